//! Uploads to a server that answers as told.

use std::sync::{Arc, Mutex};

use gridlane_net::Dialer;
use gridlane_net::tls::Trust;
use gridlane_xrd::answer::{
    Corrections, HandshakeAnswer, LoginAnswer, OpenAnswer, ProtocolAnswer, Signing, StatusAnswer, error, ok,
};
use gridlane_xrd::flags::ServerFlags;
use gridlane_xrd::frame::{HANDSHAKE_BYTES, PROTOCOL_VERSION, REQUEST_HEAD_BYTES};
use gridlane_xrd::{ErrorCode, Handle, Request, RequestHead, RequestId, StreamId, pages};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Answers a request with its data; `None`: as a server does that has room for everything.
type Answer = dyn FnMut(StreamId, &Request, &[u8]) -> Option<Vec<u8>> + Send;

/// A server with one file.
struct Server {
    url: Url,
    /// What was asked, in order.
    asked: Arc<Mutex<Vec<Request>>>,
    /// The file.
    bytes: Arc<Mutex<Vec<u8>>>,
}

const PAGES: ServerFlags = ServerFlags(0x30_0001);

impl Server {
    async fn start(
        flags: ServerFlags,
        answer: impl FnMut(StreamId, &Request, &[u8]) -> Option<Vec<u8>> + Send + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("root://{}//d/f", listener.local_addr().unwrap());
        let url = Url::parse_absolute(&url).unwrap();
        let (asked, bytes) = <(Arc<Mutex<Vec<Request>>>, Arc<Mutex<Vec<u8>>>)>::default();
        let answer: Arc<Mutex<Answer>> = Arc::new(Mutex::new(answer));
        let server = Server { url, asked: asked.clone(), bytes: bytes.clone() };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (asked, bytes, answer) = (asked.clone(), bytes.clone(), answer.clone());
                tokio::spawn(async move {
                    // Ends with the connection.
                    let _ = serve(stream, flags, &asked, &bytes, &answer).await;
                });
            }
        });
        server
    }

    fn upload(&self, overwrite: bool) -> Upload {
        let client = Client::new(Dialer::new(Trust::default()), Duration::from_secs(30));
        Upload::new(client, self.url.clone(), overwrite, ChecksumKind::Adler32, Duration::from_secs(20))
    }

    fn asked(&self) -> Vec<Request> {
        self.asked.lock().unwrap().clone()
    }

    /// Numbers of what was asked behind the opening of the session.
    fn ids(&self) -> Vec<RequestId> {
        let ids = self.asked().iter().map(Request::id).collect::<Vec<_>>();
        ids.into_iter().filter(|id| ![RequestId::PROTOCOL, RequestId::LOGIN].contains(id)).collect()
    }

    fn open(&self) -> gridlane_xrd::request::Open {
        let open = |request| match request {
            Request::Open(open) => Some(open),
            _ => None,
        };
        self.asked().into_iter().find_map(open).unwrap()
    }
}

async fn serve(
    mut stream: TcpStream,
    flags: ServerFlags,
    asked: &Mutex<Vec<Request>>,
    bytes: &Mutex<Vec<u8>>,
    answer: &Mutex<Answer>,
) -> std::io::Result<()> {
    stream.read_exact(&mut [0; HANDSHAKE_BYTES]).await?;
    let mut hello = Vec::new();
    HandshakeAnswer { version: PROTOCOL_VERSION, is_manager: false }.encode(&mut hello);
    stream.write_all(&hello).await?;
    loop {
        let mut head = [0; REQUEST_HEAD_BYTES];
        stream.read_exact(&mut head).await?;
        let head = RequestHead::parse(&head).unwrap();
        let mut data = vec![0; head.payload_len as usize];
        stream.read_exact(&mut data).await?;
        let request = Request::parse(head.id, &head.body, &data).unwrap();
        asked.lock().unwrap().push(request.clone());
        // Pages that came wrong are written as well.
        let usual = usual(head.stream, &request, &data, flags, &mut bytes.lock().unwrap());
        let told = answer.lock().unwrap()(head.stream, &request, &data);
        stream.write_all(&told.unwrap_or(usual)).await?;
    }
}

fn usual(id: StreamId, request: &Request, data: &[u8], flags: ServerFlags, file: &mut Vec<u8>) -> Vec<u8> {
    let mut put = |offset: u64, bytes: &[u8]| {
        let end = offset as usize + bytes.len();
        file.resize(file.len().max(end), 0);
        file[offset as usize..end].copy_from_slice(bytes);
    };
    let mut body = Vec::new();
    match request {
        Request::Protocol(_) => {
            ProtocolAnswer { version: PROTOCOL_VERSION, flags, signing: Signing::default() }.encode(&mut body)
        }
        Request::Login(_) => body = login(),
        Request::Open(_) => OpenAnswer { handle: Handle([1, 2, 3, 4]), stat: None }.encode(&mut body),
        Request::PgWrite(write) => {
            let (bytes, wrong) = pages::unframe(write.offset, data).unwrap();
            assert_eq!(wrong, []);
            put(write.offset, &bytes);
            return written(id, write.offset, &[]);
        }
        Request::Write(write) => put(write.offset, data),
        Request::Close(_) | Request::Rm(_) => {}
        _ => return error(id, ErrorCode::UNSUPPORTED, "not here"),
    }
    ok(id, &body)
}

fn login() -> Vec<u8> {
    let mut body = Vec::new();
    LoginAnswer { session: gridlane_xrd::SessionId([7; 16]), methods: Vec::new() }.encode(&mut body);
    body
}

/// The answer to `pgwrite`.
fn written(stream: StreamId, offset: u64, wrong: &[(u64, usize)]) -> Vec<u8> {
    let list = Corrections::of(wrong).map(|list| list.encode()).unwrap_or_default();
    let (request, data_len) = (RequestId::PGWRITE, list.len() as u32);
    let status = StatusAnswer { stream, request, is_partial: false, data_len, offset };
    [&status.encode()[..], &list].concat()
}

fn content(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 23) as u8).collect()
}

/// Uploads in pieces of odd lengths.
async fn send(upload: &mut Upload, bytes: &[u8]) -> Result<Option<Checksum>> {
    upload.begin(bytes.len() as u64).await?;
    let mut rest = bytes;
    let mut len = 1;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(len.min(rest.len()));
        upload.write(now).await?;
        rest = later;
        len = len * 7 % 300_007 + 1;
    }
    upload.finish().await
}

#[tokio::test]
async fn a_small_file_is_opened_and_then_written_and_closed_at_once() {
    let server = Server::start(PAGES, |_, _, _| None).await;
    let bytes = content(9000);
    assert_eq!(send(&mut server.upload(false), &bytes).await.unwrap(), None);
    assert!(*server.bytes.lock().unwrap() == bytes);
    assert_eq!(server.ids(), [RequestId::OPEN, RequestId::PGWRITE, RequestId::CLOSE, RequestId::QUERY]);
    let open = server.open();
    assert_eq!(
        open.options.without(OpenOptions::RETSTAT),
        OpenOptions::UPDATE | OpenOptions::NEW | OpenOptions::POSC
    );
    assert!(!open.options.makes_parents());
    assert_eq!(
        (open.about.path.as_slice(), open.about.value("oss.asize")),
        (&b"/d/f"[..], Some(&b"9000"[..]))
    );
    // One connection was enough.
    let logins = server.asked().iter().filter(|request| request.id() == RequestId::LOGIN).count();
    assert_eq!(logins, 1);
}

#[tokio::test]
async fn an_empty_file_is_opened_and_closed() {
    let server = Server::start(PAGES, |_, _, _| None).await;
    send(&mut server.upload(true), &[]).await.unwrap();
    assert_eq!(server.ids(), [RequestId::STAT, RequestId::OPEN, RequestId::CLOSE, RequestId::QUERY]);
    let options = server.open().options;
    assert!(options.has(OpenOptions::DELETE | OpenOptions::POSC) && !options.has(OpenOptions::NEW));
}

#[tokio::test]
async fn a_large_file_comes_in_large_writes_with_and_without_pages() {
    let bytes = content(3 * 1024 * 1024 + 4097);
    for (flags, id) in [(PAGES, RequestId::PGWRITE), (ServerFlags::IS_SERVER, RequestId::WRITE)] {
        let server = Server::start(flags, |_, _, _| None).await;
        send(&mut server.upload(false), &bytes).await.unwrap();
        assert!(*server.bytes.lock().unwrap() == bytes);
        assert_eq!(server.ids(), [RequestId::OPEN, id, id, id, id, RequestId::CLOSE, RequestId::QUERY]);
    }
}

#[tokio::test]
async fn pages_that_came_wrong_are_sent_again() {
    let bytes = content(2 * 1024 * 1024 + 10);
    // A whole page in the middle, the first one and, of the last write, the short one at the end.
    let mut wrong = vec![(2 * 1024 * 1024_u64, 10_usize), (1024 * 1024, 4096), (4096, 4096)];
    let mut again = 0;
    let server = Server::start(PAGES, move |stream, request, data| {
        let Request::PgWrite(write) = request else { return None };
        if write.is_retry {
            again += 1;
            // The first of them comes wrong once more.
            let len = data.len() - 4;
            return (again == 1).then(|| written(stream, write.offset, &[(write.offset, len)]));
        }
        let end = write.offset + pages::data_len(write.offset, data.len() as u64).unwrap();
        let at = wrong.iter().position(|(page, _)| (write.offset..end).contains(page))?;
        Some(written(stream, write.offset, &[wrong.remove(at)]))
    })
    .await;
    send(&mut server.upload(false), &bytes).await.unwrap();
    let retries: Vec<u64> = server
        .asked()
        .iter()
        .filter_map(|request| match request {
            Request::PgWrite(write) if write.is_retry => Some(write.offset),
            _ => None,
        })
        .collect();
    assert_eq!(retries.len(), 4, "{retries:?}");
    for offset in [4096, 1024 * 1024, 2 * 1024 * 1024] {
        assert!(retries.contains(&offset), "{retries:?}");
    }
    assert_eq!(server.ids().iter().filter(|id| **id == RequestId::CLOSE).count(), 1);
    assert_eq!(
        server.ids().iter().rposition(|id| *id == RequestId::PGWRITE).unwrap() + 1,
        server.ids().iter().position(|id| *id == RequestId::CLOSE).unwrap()
    );
}

#[tokio::test]
async fn a_small_file_that_came_wrong_is_written_again_step_by_step() {
    // The first write is answered when the close has come.
    let mut held = Some(None);
    let server = Server::start(PAGES, move |stream, request, _| match (request, held) {
        (Request::PgWrite(_), Some(None)) => {
            held = Some(Some(stream));
            Some(Vec::new())
        }
        (Request::Close(_), Some(Some(write))) => {
            held = None;
            Some([written(write, 0, &[(4096, 4096)]), error(stream, ErrorCode::CHECKSUM_ERROR, "1")].concat())
        }
        _ => None,
    })
    .await;
    let bytes = content(9000);
    send(&mut server.upload(false), &bytes).await.unwrap();
    assert!(*server.bytes.lock().unwrap() == bytes);
    let opens = server.asked().into_iter().filter(|request| request.id() == RequestId::OPEN).count();
    assert_eq!(opens, 2);
}

#[tokio::test]
async fn a_page_that_always_comes_wrong_ends_the_upload() {
    let server = Server::start(PAGES, |stream, request, data| match request {
        Request::PgWrite(write) if write.is_retry || write.offset == 0 => {
            let len = (data.len() - 4).min(4096);
            Some(written(stream, write.offset, &[(write.offset, len)]))
        }
        _ => None,
    })
    .await;
    let mut upload = server.upload(false);
    let error = send(&mut upload, &content(3 * 1024 * 1024)).await.unwrap_err();
    assert_eq!((error.kind(), error.whose_fault()), (ErrorKind::ChecksumMismatch, Fault::Network));
    assert!(error.endpoint_text().is_some());
}

#[tokio::test]
async fn a_page_that_was_never_sent_is_not_sent_again() {
    for wrong in [(8 * 1024 * 1024, 4096), (1, 4095), (4096, 17)] {
        let server = Server::start(PAGES, move |stream, request, _| match request {
            Request::PgWrite(write) if write.offset == 0 => Some(written(stream, 0, &[wrong])),
            _ => None,
        })
        .await;
        let error = send(&mut server.upload(false), &content(3 * 1024 * 1024)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{wrong:?}");
    }
}

#[tokio::test]
async fn a_full_server_ends_the_upload_and_nothing_stays() {
    let server = Server::start(PAGES, |stream, request, _| match request {
        Request::PgWrite(write) if write.offset > 0 => Some(error(stream, ErrorCode::NO_SPACE, "full")),
        Request::Stat(_) => Some(ok(stream, b"1 5 112 100\0")), // it waits for its close
        _ => None,
    })
    .await;
    let mut upload = server.upload(false);
    let failed = send(&mut upload, &content(8 * 1024 * 1024)).await.unwrap_err();
    assert!(failed.is_no_space() && failed.kind() == ErrorKind::LocalIo, "{failed}");
    assert_eq!(failed.endpoint_text(), Some(server.url.to_string().as_str()));
    upload.abandon().await;
    assert_eq!(server.ids().last(), Some(&RequestId::RM));
    assert!(!server.ids().contains(&RequestId::CLOSE), "closed in good order it would stay");
    // Once is enough.
    let asked = server.asked().len();
    upload.abandon().await;
    assert_eq!(server.asked().len(), asked);
}

#[tokio::test]
async fn an_old_file_that_still_has_its_name_is_not_removed() {
    // A server that does not promise that the file vanishes has only the new one.
    for (flags, removals) in [(PAGES, 0), (ServerFlags(0x20_0001), 1)] {
        let server = Server::start(flags, |stream, request, _| match request {
            Request::PgWrite(write) if write.offset > 0 => Some(error(stream, ErrorCode::NO_SPACE, "full")),
            Request::Stat(_) => Some(ok(stream, b"1 5 48 100\0")),
            _ => None,
        })
        .await;
        let mut upload = server.upload(true);
        send(&mut upload, &content(8 * 1024 * 1024)).await.unwrap_err();
        upload.abandon().await;
        assert_eq!(server.ids().iter().filter(|id| **id == RequestId::RM).count(), removals, "{flags:?}");
    }
}

#[tokio::test]
async fn a_manager_without_servers_is_not_a_missing_directory() {
    for (directory, kind) in [(&b"1 4096 51 100\0"[..], ErrorKind::Network), (b"", ErrorKind::Precondition)] {
        let server = Server::start(PAGES, move |stream, request, _| match request {
            Request::Open(_) => Some(error(stream, ErrorCode::NOT_FOUND, "No servers are available")),
            Request::Stat(_) if !directory.is_empty() => Some(ok(stream, directory)),
            Request::Stat(_) => Some(error(stream, ErrorCode::NOT_FOUND, "no such file")),
            _ => None,
        })
        .await;
        let failed = send(&mut server.upload(false), &content(10)).await.unwrap_err();
        assert_eq!(failed.kind(), kind, "{failed}");
    }
}

#[tokio::test]
async fn what_is_not_begun_is_not_removed() {
    let server = Server::start(PAGES, |stream, request, _| match request {
        Request::Open(_) => Some(error(stream, ErrorCode::ITEM_EXISTS, "file exists")),
        Request::Stat(_) => Some(ok(stream, b"1 5 48 100\0")),
        _ => None,
    })
    .await;
    for size in [10, 2 * 1024 * 1024] {
        let mut upload = server.upload(false);
        let error = send(&mut upload, &content(size)).await.unwrap_err();
        assert_eq!((error.kind(), error.advice()), (ErrorKind::Precondition, Some(&Hint::Replace)));
        upload.abandon().await;
        assert!(!server.ids().contains(&RequestId::RM));
    }
}

#[tokio::test]
async fn a_missing_directory_is_named() {
    let server = Server::start(PAGES, |stream, request, _| match request {
        Request::Open(_) => Some(error(stream, ErrorCode::NOT_FOUND, "no such file or directory")),
        _ => None,
    })
    .await;
    let error = send(&mut server.upload(false), b"x").await.unwrap_err();
    assert!(error.message().contains("//d/ is not there"), "{error}");
    assert_eq!((error.kind(), error.advice()), (ErrorKind::Precondition, Some(&Hint::MakeDirectory)));
}

#[tokio::test]
async fn a_server_that_waits_is_waited_for() {
    let mut is_first = true;
    let server = Server::start(PAGES, move |stream, request, _| match request {
        Request::PgWrite(_) if std::mem::take(&mut is_first) => {
            Some(gridlane_xrd::answer::wait(stream, gridlane_xrd::Status::WAIT, 0, "soon"))
        }
        _ => None,
    })
    .await;
    let bytes = content(2 * 1024 * 1024 + 1);
    send(&mut server.upload(false), &bytes).await.unwrap();
    assert!(*server.bytes.lock().unwrap() == bytes);
}

#[tokio::test]
async fn the_servers_checksum_is_asked_for() {
    let server = Server::start(PAGES, |stream, request, _| match request {
        Request::Query(_) => Some(ok(stream, b"adler32 353ad728\0")),
        _ => None,
    })
    .await;
    let said = send(&mut server.upload(false), b"x").await.unwrap().unwrap();
    assert_eq!((said.kind(), said.hex().as_str()), (ChecksumKind::Adler32, "353ad728"));
}

#[tokio::test]
async fn a_directory_that_another_server_of_a_cluster_has_is_made() {
    let server = Server::start(PAGES, |stream, request, _| match request {
        Request::Open(open) if !open.options.has(OpenOptions::MKPATH) => {
            Some(error(stream, ErrorCode::NOT_FOUND, "no such file or directory"))
        }
        Request::Stat(Stat { about: About::Path(about), .. }) => {
            assert_eq!(about.path, b"/d/");
            Some(ok(stream, b"1 4096 51 100\0"))
        }
        _ => None,
    })
    .await;
    send(&mut server.upload(false), b"x").await.unwrap();
    assert_eq!(*server.bytes.lock().unwrap(), b"x");
}

/// The server may have a checksum of what was there before, and take it for that of what is there now.
#[tokio::test]
async fn the_bytes_of_a_file_replaced_within_a_second_are_read_back() {
    // The second that the old file was written in; that of the new one at its open; and at its end. Whether the new one is
    // the old one; whether that has lost its bytes already; and whether it may be removed.
    for (old, opened, closed, is_same, is_empty, may_remove, is_read) in [
        (100, 100, 100, false, false, true, true),
        (100, 100, 101, false, false, true, false),
        (99, 100, 100, false, false, true, false),
        (100, 100, 100, true, true, true, false),
        (100, 100, 100, true, true, false, true),
        (100, 100, 100, true, false, true, true),
        (99, 100, 100, true, true, true, false),
    ] {
        let mut has_closed = false;
        let mut opens = 0;
        let server = Server::start(PAGES, move |stream, request, _| match request {
            Request::Stat(_) => {
                let at = if has_closed { closed } else { old };
                let size_bytes = if is_empty && opens > 0 { 0 } else { 5 };
                Some(ok(stream, format!("1 {size_bytes} 48 {at}\0").as_bytes()))
            }
            Request::Open(_) => {
                opens += 1;
                let id = if is_same { 1 } else { 2 };
                let mut body = Vec::new();
                let stat = StatText::parse(format!("{id} 0 48 {opened}").as_bytes()).ok();
                OpenAnswer { handle: Handle([1, 2, 3, 4]), stat }.encode(&mut body);
                Some(ok(stream, &body))
            }
            Request::Close(_) => {
                has_closed |= opens > 0;
                None
            }
            Request::Rm(_) if !may_remove => Some(error(stream, ErrorCode::NOT_AUTHORIZED, "no")),
            Request::Read(read) => Some(ok(stream, if read.offset == 0 { &b"new"[..] } else { b"" })),
            // Of the old one.
            Request::Query(_) => Some(ok(stream, b"adler32 353ad728\0")),
            _ => None,
        })
        .await;
        let case = format!("{old} {opened} {closed} {is_same} {is_empty} {may_remove}");
        let said = send(&mut server.upload(true), b"new").await.unwrap().unwrap();
        let read = Checksum::adler32(gridlane_core::checksum::adler32(b"new"));
        assert_eq!(said == read, is_read, "{case}");
        assert_eq!(server.ids().contains(&RequestId::QUERY), !is_read, "{case}");
        assert_eq!(server.ids().contains(&RequestId::RM), is_same && is_empty && old == opened, "{case}");
        assert_eq!(*server.bytes.lock().unwrap(), b"new", "{case}");
    }
}

/// The server that a manager names makes the directories that it lacks, at once: a second question to the manager would be
/// answered by what it believes since the first.
#[tokio::test]
async fn behind_a_manager_directories_are_made() {
    let member = Server::start(PAGES, |stream, request, _| match request {
        Request::Open(open) if !open.options.has(OpenOptions::MKPATH) => {
            Some(error(stream, ErrorCode::NOT_FOUND, "no such file or directory"))
        }
        _ => None,
    })
    .await;
    let (host, port) = (member.url.host().to_owned(), member.url.port());
    let manager = Server::start(PAGES, move |stream, request, _| match request {
        Request::Protocol(_) | Request::Login(_) => None,
        _ => {
            let body = [&u32::from(port).to_be_bytes()[..], host.as_bytes()].concat();
            let len = (body.len() as u32).to_be_bytes();
            Some([&stream.0[..], &4004_u16.to_be_bytes(), &len, &body].concat())
        }
    })
    .await;
    send(&mut manager.upload(false), b"x").await.unwrap();
    assert_eq!(*member.bytes.lock().unwrap(), b"x");
    assert!(!manager.open().options.makes_parents() && member.open().options.has(OpenOptions::MKPATH));
}
