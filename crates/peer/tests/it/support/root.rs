//! A small server of XRootD's protocol with one file, and with faults.

#![allow(dead_code)] // not every test that includes this needs all of it

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gridlane_core::{Checksum, ChecksumKind, Hasher, Url};
use gridlane_net::{Stream, tls};
use gridlane_xrd::answer::{
    Corrections, HandshakeAnswer, LoginAnswer, OpenAnswer, ProtocolAnswer, Redirect, Signing, StatText,
    StatusAnswer, checksum_text, deferred, error, message, ok, wait,
};
use gridlane_xrd::flags::{ClientFlags, OpenOptions, ServerFlags, StatFlags};
use gridlane_xrd::request::About;
use gridlane_xrd::{
    ErrorCode, Handle, PathArg, PathId, QueryKind, Request, RequestHead, RequestId, SessionId, Status,
    StreamId, pages, ztn,
};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

/// What is wrong with a server, or particular to it.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    /// Has no such file.
    pub(crate) is_missing: bool,
    /// The page at this offset is sent wrong, so many times.
    pub(crate) bad_page: Option<(u64, u64)>,
    /// So many requests for the path are answered with "wait 0 s".
    pub(crate) waits: u64,
    /// Checksums come later.
    pub(crate) defers: bool,
    /// Where path requests are sent: the first one of these that is not in `tried`.
    pub(crate) redirects: Vec<Redirect>,
    /// Also to those that were tried.
    pub(crate) insists: bool,
    /// TLS, and when it is demanded.
    pub(crate) tls: Option<(Arc<rustls::ServerConfig>, ServerFlags)>,
    /// Closes when more comes than the beginning of the protocol.
    pub(crate) refuses_flights: bool,
    /// Ways of authentication that are offered.
    pub(crate) methods: &'static str,
    /// The connection breaks after so many bytes of data, once.
    pub(crate) breaks_after: u64,
    /// Pages without checksums only.
    pub(crate) has_no_pages: bool,
    /// The answer to every second read goes out before the one in front of it.
    pub(crate) overtakes: bool,
    /// Bytes per second; 0: as many as it can.
    pub(crate) rate: u64,
    /// Reads fail with this.
    pub(crate) read_error: Option<ErrorCode>,
    /// Closes in place of the answer to every request that is not the first on its connection, once.
    pub(crate) closes_idle: bool,
    /// What it says of where the file is.
    pub(crate) locations: String,
    /// Nobody may join a session.
    pub(crate) has_no_binds: bool,
    /// Reads that name a connection are not answered there: they fail on the first one.
    pub(crate) fails_elsewhere: bool,
    /// The file is shorter than it says.
    pub(crate) ends_at: Option<u64>,
    /// What it says when the file is opened of how long that is; asked otherwise, it tells the truth.
    pub(crate) opens_with: Option<u64>,
    /// Opens nothing before it was asked what it has in another way.
    pub(crate) opens_last: bool,
    /// Says nothing of the file to those who ask without opening it, before somebody reads it.
    pub(crate) opens_first: bool,
    /// Never answers when it is asked for a checksum; or it says, again and again, that it will.
    pub(crate) has_no_word: bool,
    /// A listing comes in so many parts with this time between them.
    pub(crate) slow_listing: Option<(u64, Duration)>,
    /// Closes in place of the answer to the request of this name, and says nothing.
    pub(crate) dies_at: Option<RequestId>,
    /// Asks everybody who logs in to come again now.
    pub(crate) puts_off: bool,
}

pub(crate) struct Site {
    pub(crate) url: Url,
    pub(crate) port: u16,
    pub(crate) state: Arc<State>,
}

/// What is answered on a connection that joined.
type Joined = mpsc::UnboundedSender<Vec<u8>>;

pub(crate) struct State {
    bytes: Vec<u8>,
    pub(crate) faults: Faults,
    counts: [AtomicU64; 6],
    /// The connections that joined sessions, by session and number.
    joined: Mutex<HashMap<(SessionId, u8), Joined>>,
    was_asked: watch::Sender<bool>,
    was_read: watch::Sender<bool>,
    /// Names of the requests, in order.
    pub(crate) log: Mutex<Vec<String>>,
    /// The connection and the certificate of each request for a stat.
    askers: Mutex<Vec<(usize, &'static str)>>,
}

/// Bytes written at once.
const PIECE_BYTES: usize = 256 * 1024;

const CONNECTIONS: usize = 0;
const WAITS: usize = 1;
const BAD: usize = 2;
const BREAKS: usize = 3;
const SESSIONS: usize = 4;
const BINDS: usize = 5;

impl Site {
    pub(crate) async fn start(bytes: &[u8], faults: Faults) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (counts, log, joined, askers) = Default::default();
        let (was_asked, was_read) = (watch::Sender::new(false), watch::Sender::new(false));
        let state = State { bytes: bytes.to_vec(), faults, counts, joined, was_asked, was_read, log, askers };
        let state = Arc::new(state);
        let serving = state.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let serving = serving.clone();
                let number = serving.counts[CONNECTIONS].fetch_add(1, SeqCst) as usize;
                tokio::spawn(async move { serving.talk(socket, number).await });
            }
        });
        Site { url: Url::parse_absolute(&format!("root://127.0.0.1:{port}//f?k=v")).unwrap(), port, state }
    }

    pub(crate) fn redirect(&self) -> Redirect {
        let host = "127.0.0.1".to_owned();
        Redirect::Host { host, port: self.port, cgi: b"from=manager".to_vec(), token: Vec::new() }
    }

    pub(crate) fn roots(&self) -> Url {
        Url::parse_absolute(&format!("roots://127.0.0.1:{}//f", self.port)).unwrap()
    }

    pub(crate) fn connections(&self) -> u64 {
        self.state.counts[CONNECTIONS].load(SeqCst)
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.state.log.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, name: &str) -> usize {
        self.log().iter().filter(|line| line.starts_with(name)).count()
    }
}

impl State {
    /// The connection and the certificate of each request for a stat, in order.
    pub(crate) fn askers(&self) -> Vec<(usize, &'static str)> {
        self.askers.lock().unwrap().clone()
    }

    async fn talk(&self, mut socket: TcpStream, number: usize) -> io::Result<()> {
        socket.set_nodelay(true)?;
        let mut begin = [0; 44];
        socket.read_exact(&mut begin).await?;
        let request = Request::parse(RequestId::PROTOCOL, begin[24..40].try_into().unwrap(), b"");
        let Ok(Request::Protocol(protocol)) = request else { panic!("no protocol request") };
        let mut ahead = vec![0; 4096];
        let count = socket.try_read(&mut ahead).unwrap_or(0);
        ahead.truncate(count);
        self.log.lock().unwrap().push(format!("protocol {}", if count > 0 { "flight" } else { "alone" }));
        if self.faults.refuses_flights && count > 0 {
            return Ok(());
        }
        let mut flags = ServerFlags::IS_SERVER.with_if(!self.faults.has_no_pages, ServerFlags::CAN_PAGES);
        let mut goes = false;
        if let Some((_, demanded)) = &self.faults.tls {
            flags = flags | *demanded | ServerFlags::HAS_TLS;
            let wants = protocol.flags.has(ClientFlags::WANTS_TLS);
            goes = wants || protocol.flags.has(ClientFlags::CAN_TLS) && demanded.has(ServerFlags::TLS_LOGIN);
            flags = flags.with_if(goes, ServerFlags::GOTO_TLS);
        }
        let mut out = Vec::new();
        HandshakeAnswer { version: 0x511, is_manager: false }.encode(&mut out);
        let mut body = Vec::new();
        ProtocolAnswer { version: 0x511, flags, signing: Signing::default() }.encode(&mut body);
        out.extend(ok(StreamId(begin[20..22].try_into().unwrap()), &body));
        tokio::io::AsyncWriteExt::write_all(&mut socket, &out).await?;
        if count > 0 && (goes || flags.has(ServerFlags::TLS_LOGIN)) {
            // Its login in clear is no TLS.
            return Ok(());
        }
        let stream = match &self.faults.tls {
            Some((config, _)) if goes => Stream::accept_tls(socket, config.clone()).await?,
            Some((config, demanded)) if demanded.has(ServerFlags::TLS_SESSION) => {
                let mut line = Line { stream: None, socket: Some(socket), ahead };
                let (head, _) = line.request().await?;
                assert_eq!(head.id, RequestId::LOGIN);
                self.log.lock().unwrap().push("login".into());
                let session = LoginAnswer { session: SessionId([7; 16]), methods: Vec::new() };
                let mut body = Vec::new();
                session.encode(&mut body);
                line.write(&ok(head.stream, &body)).await?;
                if !line.ahead.is_empty() {
                    return Ok(());
                }
                ahead = Vec::new();
                Stream::accept_tls(line.socket.take().unwrap(), config.clone()).await?
            }
            _ => Stream::plain(socket)?,
        };
        self.serve(Line { stream: Some(stream), socket: None, ahead }, number).await
    }

    async fn serve(&self, mut line: Line, number: usize) -> io::Result<()> {
        let by = line.stream.as_ref().map_or("nobody", asker);
        let mut held = Vec::new();
        let mut session = SessionId::default();
        let (mut is_in, mut served) = (self.faults.methods.is_empty(), 0);
        loop {
            let (head, payload) = line.request().await?;
            let name = head.id.name().unwrap_or("?");
            let request = Request::parse(head.id, &head.body, &payload).unwrap();
            let what = match &request {
                Request::Open(open) => path(&open.about),
                Request::Stat(stat) => match &stat.about {
                    About::Path(about) => path(about),
                    About::Handle(_) => String::new(),
                },
                Request::Auth(auth) => match ztn::parse(&auth.credentials) {
                    Ok(token) => format!("ztn {}", token.expose()),
                    Err(_) => String::from_utf8_lossy(&auth.kind).into_owned(),
                },
                Request::PgRead(read) if read.is_retry => format!("again {} {}", read.offset, read.len),
                _ => String::new(),
            };
            self.log.lock().unwrap().push(format!("{name} {what}").trim().to_owned());
            if let Request::Stat(_) = &request {
                self.askers.lock().unwrap().push((number, by));
            }
            if let Request::Bind(bind) = &request {
                return self.joined(line, head.stream, bind.session).await;
            }
            if !is_in && !matches!(head.id, RequestId::LOGIN | RequestId::AUTH) {
                line.write(&error(head.stream, ErrorCode::INVALID_REQUEST, "user not authenticated")).await?;
                return Ok(());
            }
            served += 1;
            if served > 2 && self.faults.closes_idle && self.counts[BREAKS].fetch_add(1, SeqCst) == 0 {
                return Ok(());
            }
            if self.faults.dies_at == Some(head.id) {
                return Ok(());
            }
            match head.id {
                RequestId::STAT | RequestId::QUERY => {
                    self.was_asked.send_replace(true);
                    if self.faults.opens_first {
                        let _ = self.was_read.subscribe().wait_for(|was_read| *was_read).await;
                    }
                }
                RequestId::READ | RequestId::PGREAD => drop(self.was_read.send_replace(true)),
                RequestId::OPEN if self.faults.opens_last => {
                    let _ = self.was_asked.subscribe().wait_for(|was_asked| *was_asked).await;
                }
                _ => {}
            }
            if let (Some((parts, pause)), Request::Dirlist(_)) = (self.faults.slow_listing, &request) {
                for number in 0..parts {
                    tokio::time::sleep(pause).await;
                    line.write(&message(head.stream, Status::OKSOFAR, format!("{number}\n").as_bytes()))
                        .await?;
                }
                line.write(&ok(head.stream, b"last\0")).await?;
                continue;
            }
            let path_id = match &request {
                Request::Read(read) => read.path_id,
                Request::PgRead(read) => read.path_id,
                _ => PathId::MAIN,
            };
            let answer = match request {
                Request::Login(_) if self.faults.puts_off => wait(head.stream, Status::WAIT, 0, "again"),
                Request::Login(_) => {
                    let mut body = Vec::new();
                    let methods = self.faults.methods.as_bytes().to_vec();
                    session = SessionId([self.counts[SESSIONS].fetch_add(1, SeqCst) as u8 + 1; 16]);
                    LoginAnswer { session, methods }.encode(&mut body);
                    ok(head.stream, &body)
                }
                Request::Auth(auth)
                    if auth.kind == b"unix"
                        || ztn::parse(&auth.credentials).is_ok_and(|it| it.expose().starts_with("good")) =>
                {
                    is_in = true;
                    ok(head.stream, b"")
                }
                // More than it should say.
                Request::Auth(_) => {
                    error(head.stream, ErrorCode::AUTH_FAILED, &format!("nobody knows {what}"))
                }
                request => self.answer(head.stream, request),
            };
            let is_read = matches!(head.id, RequestId::READ | RequestId::PGREAD);
            if is_read && self.faults.breaks_after > 0 && self.counts[BREAKS].fetch_add(1, SeqCst) == 0 {
                line.write(&answer[..(self.faults.breaks_after as usize).min(answer.len())]).await?;
                return Ok(());
            }
            if head.id == RequestId::DIRLIST && self.faults.breaks_after > 0 {
                line.write(&answer).await?;
                return Ok(());
            }
            if path_id != PathId::MAIN {
                let wanted = (session, path_id.0);
                let joined = self.joined.lock().unwrap().get(&wanted).cloned();
                if let Some(joined) = joined.filter(|_| !self.faults.fails_elsewhere) {
                    let _ = joined.send(answer);
                    continue;
                }
                line.write(&error(head.stream, ErrorCode::ARG_INVALID, "invalid path ID")).await?;
                continue;
            }
            if is_read && self.faults.overtakes && held.is_empty() && line.has_more() {
                held = answer;
                continue;
            }
            self.write_slowly(&mut line, &answer).await?;
            line.write(&std::mem::take(&mut held)).await?;
        }
    }

    /// A connection that joined: what is read for it elsewhere is written here.
    async fn joined(&self, mut line: Line, stream: StreamId, session: SessionId) -> io::Result<()> {
        if self.faults.has_no_binds {
            return line.write(&error(stream, ErrorCode::NOT_FOUND, "session not found")).await;
        }
        let path_id = self.counts[BINDS].fetch_add(1, SeqCst) as u8 + 1;
        let (sender, mut answers) = mpsc::unbounded_channel();
        self.joined.lock().unwrap().insert((session, path_id), sender);
        line.write(&ok(stream, &[path_id])).await?;
        while let Some(answer) = answers.recv().await {
            self.write_slowly(&mut line, &answer).await?;
        }
        Ok(())
    }

    async fn write_slowly(&self, line: &mut Line, answer: &[u8]) -> io::Result<()> {
        for piece in answer.chunks(PIECE_BYTES) {
            line.write(piece).await?;
            if self.faults.rate > 0 {
                let seconds = piece.len() as f64 / self.faults.rate as f64;
                tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
            }
        }
        Ok(())
    }

    fn answer(&self, stream: StreamId, request: Request) -> Vec<u8> {
        let about = match &request {
            Request::Open(open) => Some(open.about.clone()),
            Request::Stat(stat) => match &stat.about {
                About::Path(about) => Some(about.clone()),
                About::Handle(_) => None,
            },
            Request::Query(query) => Some(PathArg::parse(&query.argument)),
            Request::Mkdir(mkdir) => Some(mkdir.about.clone()),
            Request::Dirlist(dirlist) => Some(dirlist.about.clone()),
            _ => None,
        };
        if let Some(about) = about {
            if self.counts[WAITS].fetch_add(1, SeqCst) < self.faults.waits {
                return wait(stream, Status::WAIT, 0, "patience");
            }
            let tried = about.value("tried").map(<[u8]>::to_vec).unwrap_or_default();
            let tried = String::from_utf8(tried).unwrap().split(',').filter(|t| !t.is_empty()).count();
            let at = if self.faults.insists { 0 } else { tried };
            if let Some(redirect) = self.faults.redirects.get(at) {
                let mut body = Vec::new();
                redirect.encode(&mut body);
                return message(stream, Status::REDIRECT, &body);
            }
            if self.faults.is_missing || !self.faults.redirects.is_empty() {
                return error(stream, ErrorCode::NOT_FOUND, "there is nothing");
            }
        }
        let stat = StatText {
            id: 1,
            size_bytes: self.bytes.len() as u64,
            flags: StatFlags::READABLE,
            modified_s: 1_700_000_000,
            more: None,
        };
        let mut text = Vec::new();
        match request {
            Request::Open(open) => {
                let size_bytes = self.faults.opens_with.unwrap_or(stat.size_bytes);
                let stat = StatText { size_bytes, ..stat };
                let stat = open.options.has(OpenOptions::RETSTAT).then_some(stat);
                OpenAnswer { handle: Handle([1, 2, 3, 4]), stat }.encode(&mut text);
                ok(stream, &text)
            }
            Request::Stat(_) => {
                stat.write(&mut text);
                ok(stream, &text)
            }
            Request::Query(query) if query.kind == QueryKind::CHECKSUM && self.faults.has_no_word => {
                wait(stream, Status::WAITRESP, 3600, "")
            }
            Request::Query(query) if query.kind == QueryKind::CHECKSUM => {
                let text = checksum_text(&self.checksum());
                match self.faults.defers {
                    true => {
                        let later = wait(stream, Status::WAITRESP, 5, "");
                        [later, deferred(stream, Status::OK, &text)].concat()
                    }
                    false => ok(stream, &text),
                }
            }
            Request::Locate(_) => ok(stream, self.faults.locations.as_bytes()),
            Request::Dirlist(_) if self.faults.breaks_after > 0 => {
                message(stream, Status::OKSOFAR, b"a\nb\n")
            }
            Request::Dirlist(_) => {
                let parts = [message(stream, Status::OKSOFAR, b"a\nb\n"), ok(stream, b"c\0")];
                parts.concat()
            }
            Request::Read(_) | Request::PgRead(_) if self.faults.read_error.is_some() => {
                error(stream, self.faults.read_error.unwrap(), "broken")
            }
            Request::Read(read) => {
                let data = self.range(read.offset, read.len);
                // In two parts, of which the first may be empty.
                let (first, rest) = data.split_at(data.len() / 3);
                [message(stream, Status::OKSOFAR, first), ok(stream, rest)].concat()
            }
            Request::PgRead(read) => self.pages(stream, read.offset, self.range(read.offset, read.len)),
            Request::PgWrite(write) => {
                let bad = self.faults.bad_page.filter(|_| write.offset == 0 && !write.is_retry);
                let list = bad.and_then(|(offset, _)| Corrections::of(&[(offset, 4096)]));
                let list = list.map(|list| list.encode()).unwrap_or_default();
                let (request, data_len) = (RequestId::PGWRITE, list.len() as u32);
                let (is_partial, offset) = (false, write.offset);
                let status = StatusAnswer { stream, request, is_partial, data_len, offset }.encode();
                [&status[..], &list].concat()
            }
            Request::Write(_) => ok(stream, b""),
            Request::Close(_) | Request::Ping(_) | Request::Endsess(_) | Request::Mkdir(_) => ok(stream, b""),
            _ => error(stream, ErrorCode::UNSUPPORTED, "not here"),
        }
    }

    pub(crate) fn checksum(&self) -> Checksum {
        let mut hasher = Hasher::new(ChecksumKind::Adler32);
        hasher.update(&self.bytes);
        hasher.finish()
    }

    fn range(&self, offset: u64, len: u32) -> &[u8] {
        let end = self.faults.ends_at.unwrap_or(u64::MAX).min(self.bytes.len() as u64) as usize;
        let from = (offset as usize).min(end);
        &self.bytes[from..(from + len as usize).min(end)]
    }

    /// Pages, in messages of at most 64 KiB.
    fn pages(&self, stream: StreamId, offset: u64, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut at = offset;
        let end = offset + data.len() as u64;
        loop {
            let next = ((at / 65_536 + 1) * 65_536).min(end);
            let mut framed = Vec::new();
            pages::frame(at, &data[(at - offset) as usize..(next - offset) as usize], &mut framed);
            if let Some((bad, times)) = self.faults.bad_page
                && (at..next).contains(&bad)
                && self.counts[BAD].fetch_add(1, SeqCst) < times
            {
                let into = pages::framed_len(at, bad - at) as usize;
                framed[into + 10] ^= 1;
            }
            let data_len = framed.len() as u32;
            let (request, is_partial) = (RequestId::PGREAD, next < end);
            out.extend(StatusAnswer { stream, request, is_partial, data_len, offset: at }.encode());
            out.extend(framed);
            at = next;
            if !is_partial {
                return out;
            }
        }
    }
}

fn path(about: &PathArg) -> String {
    let mut text = Vec::new();
    about.write(&mut text);
    String::from_utf8(text).unwrap()
}

/// A connection of a server.
struct Line {
    stream: Option<Stream>,
    /// As long as TLS may still begin.
    socket: Option<TcpStream>,
    ahead: Vec<u8>,
}

impl Line {
    async fn request(&mut self) -> io::Result<(RequestHead, Vec<u8>)> {
        let head: [u8; 24] = self.take(24).await?.try_into().unwrap();
        let head = RequestHead::parse(&head).unwrap();
        let payload = self.take(head.payload_len as usize).await?;
        Ok((head, payload))
    }

    async fn take(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut buf = vec![0; 65_536];
        while self.ahead.len() < count {
            let read = match (&mut self.stream, &mut self.socket) {
                (Some(stream), _) => stream.read(&mut buf).await?,
                (None, Some(socket)) => socket.read(&mut buf).await?,
                (None, None) => 0,
            };
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.ahead.extend_from_slice(&buf[..read]);
        }
        let rest = self.ahead.split_off(count);
        Ok(std::mem::replace(&mut self.ahead, rest))
    }

    fn has_more(&self) -> bool {
        self.ahead.len() >= 24
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match (&mut self.stream, &mut self.socket) {
            (Some(stream), _) => stream.write_all(bytes).await,
            (None, Some(socket)) => tokio::io::AsyncWriteExt::write_all(socket, bytes).await,
            (None, None) => Ok(()),
        }
    }
}

/// The name in the certificate that a client has shown, of those that tests use.
pub(crate) fn asker(stream: &Stream) -> &'static str {
    let has = |name: &str| {
        let name = format!("{name}.example");
        let shown = stream.peer_certificates().first();
        shown.is_some_and(|shown| shown.windows(name.len()).any(|part| part == name.as_bytes()))
    };
    ["ada", "bob"].into_iter().find(|name| has(name)).unwrap_or("nobody")
}

/// A certificate for 127.0.0.1: for the server, and whom a client has to trust for it.
pub(crate) fn certificate(dir: &std::path::Path) -> (Arc<rustls::ServerConfig>, tls::Trust) {
    let (cert, key) = tls::self_signed(dir, &["127.0.0.1".into()]).unwrap();
    let config = tls::server_config(&cert, &key, false).unwrap();
    (config, tls::Trust { ca_files: vec![cert], ..tls::Trust::default() })
}
