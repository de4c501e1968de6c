//! A client of XRootD's protocol that says exactly what it is told to say.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridlane_core::limits;
use gridlane_xrd::answer::{Corrections, ErrorAnswer, OpenAnswer, StatText, StatusAnswer};
use gridlane_xrd::flags::{Abilities, OpenMore, OpenOptions};
use gridlane_xrd::frame::{HANDSHAKE, RESPONSE_HEAD_BYTES, ResponseHead};
use gridlane_xrd::pages;
use gridlane_xrd::request::{self, About, Close, Login, Open, PgWrite, ReadV, Segment, Truncate, WriteV};
use gridlane_xrd::{ErrorCode, Handle, PathArg, PathId, Request, RequestId, SessionId, Status, StreamId};

/// Longer than any wait of a passing test.
const PATIENCE: Duration = Duration::from_secs(90);

/// A connection, logged in.
pub(crate) struct RootClient {
    pub(crate) stream: TcpStream,
    tls: Option<Box<rustls::ClientConnection>>,
    next: u16,
    /// The id by its login; zeros without one.
    pub(crate) session: SessionId,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct RootAnswer {
    pub(crate) stream: StreamId,
    pub(crate) status: Status,
    pub(crate) body: Vec<u8>,
    /// Behind the body of a status message.
    pub(crate) data: Vec<u8>,
}

/// A failure as a client is told of it.
pub(crate) type Refusal = (ErrorCode, String);

impl RootClient {
    pub(crate) fn connect(address: SocketAddr) -> RootClient {
        let mut client = RootClient::stranger(address);
        let answer = client.login();
        assert_eq!((answer.status, answer.body.len()), (Status::OK, 16));
        client
    }

    /// Only the handshake was made.
    pub(crate) fn stranger(address: SocketAddr) -> RootClient {
        RootClient::on(TcpStream::connect(address).unwrap())
    }

    /// The same on a connection that there is.
    pub(crate) fn on(stream: TcpStream) -> RootClient {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut client = RootClient { stream, tls: None, next: 0, session: SessionId::default() };
        client.send_bytes(&HANDSHAKE);
        assert_eq!(client.answer().status, Status::OK);
        client
    }

    /// The same after the handshake and its answer.
    pub(crate) fn shaken(stream: TcpStream) -> RootClient {
        stream.set_nodelay(true).unwrap();
        RootClient { stream, tls: None, next: 0, session: SessionId::default() }
    }

    /// Logs in.
    pub(crate) fn login(&mut self) -> RootAnswer {
        let cgi = b"xrd.appname=probe&xrd.rn=v5.5.3".to_vec();
        self.send(Login::new(1, b"tester", Abilities::NONE, cgi), &[]);
        let answer = self.answer();
        if let Some(id) = answer.body.first_chunk() {
            self.session = SessionId(*id);
        }
        answer
    }

    /// A connection that has joined this session, and what it is called.
    pub(crate) fn bind(&self) -> (RootClient, PathId) {
        let mut bound = RootClient::stranger(self.stream.peer_addr().unwrap());
        let answer = bound.ask(request::Bind { session: self.session }, &[]).unwrap();
        (bound, PathId(answer.body[0]))
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(tls.as_mut(), &mut self.stream).write_all(bytes).unwrap(),
            None => self.stream.write_all(bytes).unwrap(),
        }
    }

    /// Goes on within TLS.
    pub(crate) fn start_tls(mut self, config: Arc<rustls::ClientConfig>) -> RootClient {
        let connection = rustls::ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
        self.tls = Some(Box::new(connection));
        self
    }

    fn read_exact(&mut self, target: &mut [u8]) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(tls.as_mut(), &mut self.stream).read_exact(target),
            None => self.stream.read_exact(target),
        }
    }

    /// The plaintext of the next record of TLS; empty, of one about TLS itself. Not beside what reads answers.
    pub(crate) fn next_record(&mut self) -> Vec<u8> {
        let tls = self.tls.as_mut().unwrap();
        let mut record = vec![0; 5];
        self.stream.read_exact(&mut record).unwrap();
        let len = usize::from(u16::from_be_bytes([record[3], record[4]]));
        record.resize(5 + len, 0);
        self.stream.read_exact(&mut record[5..]).unwrap();
        let mut rest = record.as_slice();
        while !rest.is_empty() {
            tls.read_tls(&mut rest).unwrap();
        }
        let came = tls.process_new_packets().unwrap().plaintext_bytes_to_read();
        let mut plain = vec![0; came];
        tls.reader().read_exact(&mut plain).unwrap();
        plain
    }

    /// The bytes of a request but for its data.
    pub(crate) fn encode(&mut self, request: &Request, data_len: usize) -> Vec<u8> {
        self.next = self.next.wrapping_add(1);
        let counted = if request.id() == RequestId::WRITEV { 0 } else { data_len as u32 };
        let mut bytes = Vec::new();
        request.encode_for(StreamId(self.next.to_be_bytes()), counted, &mut bytes);
        bytes
    }

    /// Sends a request and its data.
    pub(crate) fn send(&mut self, request: impl Into<Request>, data: &[u8]) -> StreamId {
        let mut bytes = self.encode(&request.into(), data.len());
        bytes.extend_from_slice(data);
        self.send_bytes(&bytes);
        StreamId(self.next.to_be_bytes())
    }

    /// Reads a message.
    pub(crate) fn try_answer(&mut self) -> io::Result<RootAnswer> {
        let mut head = [0; RESPONSE_HEAD_BYTES];
        self.read_exact(&mut head)?;
        let head = ResponseHead::parse(&head).unwrap();
        let mut body = vec![0; head.len as usize];
        self.read_exact(&mut body)?;
        let mut data = Vec::new();
        if head.status == Status::STATUS {
            let status = StatusAnswer::parse(body.as_slice().try_into().unwrap()).unwrap();
            data = vec![0; status.data_len as usize];
            self.read_exact(&mut data)?;
        }
        Ok(RootAnswer { stream: head.stream, status: head.status, body, data })
    }

    pub(crate) fn answer(&mut self) -> RootAnswer {
        self.try_answer().unwrap()
    }

    /// Sends a request and reads its answer, put together from its parts.
    pub(crate) fn ask(&mut self, request: impl Into<Request>, data: &[u8]) -> Result<RootAnswer, Refusal> {
        let stream = self.send(request, data);
        self.answer_to(stream)
    }

    /// Reads the answer to a request, put together from its parts.
    pub(crate) fn answer_to(&mut self, stream: StreamId) -> Result<RootAnswer, Refusal> {
        let mut before = Vec::new();
        loop {
            let mut answer = self.answer();
            assert_eq!(answer.stream, stream);
            match answer.status {
                Status::OKSOFAR => before.extend_from_slice(&answer.body),
                Status::ERROR => {
                    let error = ErrorAnswer::parse(&answer.body).unwrap();
                    return Err((error.code, error.text));
                }
                Status::OK => {
                    before.append(&mut answer.body);
                    answer.body = before;
                    return Ok(answer);
                }
                _ => return Ok(answer),
            }
        }
    }

    pub(crate) fn open_with(
        &mut self,
        path: &str,
        options: OpenOptions,
        mode: u16,
    ) -> Result<(Handle, Option<StatText>), Refusal> {
        let about = PathArg::parse(path.as_bytes());
        let open = Open { mode, options, more: OpenMore::NONE, template: Handle::default(), about };
        let answer = self.ask(open, &[])?;
        let opened = OpenAnswer::parse(&answer.body).unwrap();
        Ok((opened.handle, opened.stat))
    }

    pub(crate) fn open(&mut self, path: &str, options: OpenOptions) -> Result<Handle, Refusal> {
        self.open_with(path, options, 0o644).map(|(handle, _)| handle)
    }

    /// The same, as soon as no other session has it open: a client that has gone may have it for a moment still.
    pub(crate) fn open_when_free(&mut self, path: &str, options: OpenOptions) -> Handle {
        let began = Instant::now();
        loop {
            match self.open(path, options) {
                Err((ErrorCode::FILE_LOCKED, why)) => assert!(began.elapsed() < PATIENCE, "{why}"),
                opened => return opened.unwrap(),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn write(&mut self, handle: Handle, offset: u64, bytes: &[u8]) -> Result<(), Refusal> {
        let write = request::Write { handle, offset, path_id: PathId::MAIN };
        self.ask(write, bytes).map(|answer| assert_eq!((answer.status, answer.body.len()), (Status::OK, 0)))
    }

    /// Sends framed pages; returns those that the server says are wrong.
    pub(crate) fn pgwrite(
        &mut self,
        handle: Handle,
        offset: u64,
        framed: &[u8],
        is_retry: bool,
    ) -> Result<Vec<(u64, usize)>, Refusal> {
        let write = PgWrite { handle, offset, path_id: PathId::MAIN, is_retry };
        let answer = self.ask(write, framed)?;
        let status = StatusAnswer::parse(answer.body.as_slice().try_into().unwrap()).unwrap();
        assert_eq!((status.request, status.is_partial), (RequestId::PGWRITE, false));
        assert_eq!((status.offset, status.stream), (offset, answer.stream));
        match answer.data.is_empty() {
            true => Ok(Vec::new()),
            false => Ok(Corrections::parse(&answer.data).unwrap().pages()),
        }
    }

    pub(crate) fn writev(&mut self, writev: WriteV, data: &[u8]) -> Result<(), Refusal> {
        self.ask(writev, data).map(|answer| assert_eq!(answer.status, Status::OK))
    }

    pub(crate) fn read(&mut self, handle: Handle, offset: u64, len: u32) -> Result<Vec<u8>, Refusal> {
        let read = request::Read { handle, offset, len, path_id: PathId::MAIN };
        self.ask(read, &[]).map(|answer| answer.body)
    }

    /// Reads pages; their bytes, put together, with the checksums checked.
    pub(crate) fn pgread(&mut self, handle: Handle, offset: u64, len: u32) -> Result<Vec<u8>, Refusal> {
        let read = request::PgRead { handle, offset, len, path_id: PathId::MAIN, is_retry: false };
        let stream = self.send(read, &[]);
        self.pages_of(stream, offset)
    }

    /// Reads the answer to a `pgread` at `offset`.
    pub(crate) fn pages_of(&mut self, stream: StreamId, offset: u64) -> Result<Vec<u8>, Refusal> {
        let mut bytes = Vec::new();
        loop {
            let answer = self.answer();
            assert_eq!(answer.stream, stream);
            if answer.status == Status::ERROR {
                let error = ErrorAnswer::parse(&answer.body).unwrap();
                return Err((error.code, error.text));
            }
            assert_eq!(answer.status, Status::STATUS);
            let status = StatusAnswer::parse(answer.body.as_slice().try_into().unwrap()).unwrap();
            assert_eq!((status.request, status.offset), (RequestId::PGREAD, offset + bytes.len() as u64));
            let (mut page_bytes, wrong) = pages::unframe(status.offset, &answer.data).unwrap();
            assert!(wrong.is_empty(), "{wrong:?}");
            assert!(pages::count(status.offset, page_bytes.len() as u64) <= limits::ROOT_PAGES_MAX);
            bytes.append(&mut page_bytes);
            if !status.is_partial {
                return Ok(bytes);
            }
        }
    }

    /// Reads many ranges; the bytes of each.
    pub(crate) fn readv(&mut self, segments: &[Segment]) -> Result<Vec<Vec<u8>>, Refusal> {
        let readv = ReadV { path_id: PathId::MAIN, segments: segments.to_vec() };
        let body = self.ask(readv, &[])?.body;
        let (mut rest, mut elements) = (body.as_slice(), Vec::new());
        while let Some((head, behind)) = rest.split_first_chunk::<{ Segment::BYTES }>() {
            let element = Segment::parse(head).unwrap();
            assert_eq!(element, segments[elements.len()]);
            let (bytes, behind) = behind.split_at(element.len as usize);
            elements.push(bytes.to_vec());
            rest = behind;
        }
        assert!(rest.is_empty() && elements.len() == segments.len());
        Ok(elements)
    }

    pub(crate) fn close(&mut self, handle: Handle) -> Result<(), Refusal> {
        self.ask(Close { handle }, &[]).map(|_| ())
    }

    pub(crate) fn truncate(&mut self, about: About, size_bytes: u64) -> Result<(), Refusal> {
        self.ask(Truncate { about, size_bytes }, &[]).map(|_| ())
    }

    pub(crate) fn ping(&mut self) -> Result<(), Refusal> {
        self.ask(request::Ping, &[]).map(|_| ())
    }

    /// The value of a checksum that the server has at hand or computes.
    pub(crate) fn checksum(&mut self, path: &str) -> Result<String, Refusal> {
        let query = request::Query {
            kind: gridlane_xrd::QueryKind::CHECKSUM,
            handle: Handle::default(),
            argument: path.as_bytes().to_vec(),
        };
        let answer = self.ask(query, &[])?;
        Ok(String::from_utf8(answer.body).unwrap().trim_end_matches('\0').to_owned())
    }

    /// Says that nothing more will come.
    pub(crate) fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// True if the server has ended the connection, whatever it says last, also within TLS.
    pub(crate) fn is_gone(&mut self) -> bool {
        let mut rest = [0; 1024];
        loop {
            match self.read_some(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(cause) => {
                    let kinds = [io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof];
                    return kinds.contains(&cause.kind());
                }
            }
        }
    }

    fn read_some(&mut self, target: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(tls.as_mut(), &mut self.stream).read(target),
            None => self.stream.read(target),
        }
    }

    /// True if the server has ended the connection, without another byte.
    pub(crate) fn is_ended(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => rest.is_empty(),
            Err(cause) => cause.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}
