//! Copies between two servers that answer as told.

use std::sync::Mutex;

use gridlane_xrd::answer::{OpenAnswer, StatText, deferred, error, message, ok, wait};
use gridlane_xrd::flags::{ServerFlags, StatFlags};
use gridlane_xrd::request::{About, Open, Query, Stat};
use gridlane_xrd::{ErrorCode, Handle, QueryKind, Request, RequestId, Status, StreamId};

use super::*;
use crate::root::tests::Server;

/// Answers of a server to one request.
type Answers = Option<Vec<Vec<u8>>>;

const HANDLE: Handle = Handle([1, 2, 3, 4]);
const SIZE_BYTES: u64 = 1000;
const ADLER: &[u8] = b"adler32 01020304\0";

fn stat_text(size_bytes: u64) -> StatText {
    StatText { id: 7, size_bytes, flags: StatFlags::NONE, modified_s: 1, more: None }
}

fn stat_body(size_bytes: u64) -> Vec<u8> {
    let mut body = Vec::new();
    stat_text(size_bytes).write(&mut body);
    body.push(0);
    body
}

fn open_body(size_bytes: u64) -> Vec<u8> {
    let mut body = Vec::new();
    OpenAnswer { handle: HANDLE, stat: Some(stat_text(size_bytes)) }.encode(&mut body);
    body
}

/// The answers of a server that takes part, but for those to `sync`, and to `stat` of a file that is open.
fn usual(stream: StreamId, request: &Request, size_bytes: u64) -> Answers {
    let body = match request {
        Request::Open(_) => open_body(size_bytes),
        Request::Query(Query { kind: QueryKind::CONFIG, .. }) => b"1\n0:adler32,1:crc32c\n\0".to_vec(),
        Request::Query(Query { kind: QueryKind::CHECKSUM, .. }) => ADLER.to_vec(),
        Request::Query(_) | Request::Close(_) | Request::Rm(_) => Vec::new(),
        _ => return None,
    };
    Some(vec![ok(stream, &body)])
}

async fn source() -> Server {
    Server::start(|stream, request| usual(stream, request, SIZE_BYTES)).await
}

/// A destination that begins at the second sync, and then answers each stat with the next of these.
async fn target(answers: impl Fn(StreamId, StreamId, usize) -> Vec<Vec<u8>> + Send + 'static) -> Server {
    let (mut syncs, mut stats, mut copying) = (0, 0, StreamId::default());
    Server::start(move |stream, request| match request {
        Request::Sync(_) => {
            syncs += 1;
            copying = stream;
            match syncs {
                1 => Some(vec![ok(stream, b"")]),
                _ => Some(vec![wait(stream, Status::WAITRESP, 1800, "")]),
            }
        }
        Request::Stat(Stat { about: About::Handle(handle), .. }) => {
            assert_eq!(*handle, HANDLE);
            stats += 1;
            Some(answers(stream, copying, stats))
        }
        other => usual(stream, other, 0),
    })
    .await
}

/// A destination that is done when it is asked for the second time.
async fn able_target() -> Server {
    target(|stream, copying, count| match count {
        1 => vec![ok(stream, &stat_body(400))],
        2 => vec![deferred(copying, Status::OK, b""), ok(stream, &stat_body(SIZE_BYTES))],
        _ => vec![ok(stream, &stat_body(SIZE_BYTES))],
    })
    .await
}

async fn copy_between(
    source: &Server,
    target: &Server,
    options: &RootThirdParty,
) -> (Result<Copied>, Vec<u64>) {
    let told = Mutex::new(Vec::new());
    let mut observer = |progress: Progress| told.lock().unwrap().push(progress.done_bytes);
    let client = source.client();
    let outcome =
        copy(&client, &source.url, &target.url, options, &mut observer, std::future::pending()).await;
    (outcome, told.into_inner().unwrap())
}

fn names(server: &Server) -> Vec<RequestId> {
    let asked = server.asked.lock().unwrap();
    let names = asked.iter().map(Request::id);
    names.filter(|id| ![RequestId::PROTOCOL, RequestId::LOGIN].contains(id)).collect()
}

fn opened(server: &Server) -> Vec<Open> {
    let asked = server.asked.lock().unwrap();
    let opens = asked.iter().filter_map(|request| match request {
        Request::Open(open) => Some(open.clone()),
        _ => None,
    });
    opens.collect()
}

fn cgi(open: &Open) -> String {
    String::from_utf8(open.about.cgi.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_steps_are_those_of_xrdcp() {
    let (from, to) = (source().await, able_target().await);
    let options = RootThirdParty { make_parents: true, ..RootThirdParty::default() };
    let (outcome, told) = copy_between(&from, &to, &options).await;
    let checksum = Checksum::from_hex(ChecksumKind::Adler32, "01020304");
    assert_eq!(outcome.unwrap(), Copied { size_bytes: SIZE_BYTES, checksum });
    assert_eq!(told, [400, SIZE_BYTES]);
    let at_source = opened(&from);
    assert_eq!(cgi(&at_source[0]), "tpc.stage=placement");
    let shown = cgi(&at_source[1]);
    let key = shown.split("tpc.key=").nth(1).and_then(|rest| rest.split('&').next()).unwrap();
    assert_eq!(shown, format!("tpc.key={key}&tpc.dst=[::ffff:127.0.0.1]&tpc.stage=copy&tpc.ttl=60"));
    let at_target = opened(&to);
    assert_eq!(at_target.len(), 1);
    let how = OpenOptions::UPDATE | OpenOptions::NEW | OpenOptions::RETSTAT | OpenOptions::MKPATH;
    assert_eq!((at_target[0].options, at_target[0].mode), (how, 0o644));
    let port = from.url.port();
    assert_eq!(
        cgi(&at_target[0]),
        format!(
            "oss.asize=1000&tpc.dlg=127.0.0.1:{port}&tpc.dlgon=0&tpc.key={key}&tpc.lfn=/d&tpc.spr=root&\
             tpc.src=127.0.0.1:{port}&tpc.stage=copy&tpc.str=1&tpc.tpr=root"
        )
    );
    use RequestId as Id;
    assert_eq!(names(&from), [Id::OPEN, Id::QUERY, Id::CLOSE, Id::OPEN, Id::CLOSE, Id::QUERY]);
    let steps = [Id::QUERY, Id::OPEN, Id::SYNC, Id::SYNC, Id::STAT, Id::STAT, Id::STAT, Id::CLOSE, Id::QUERY];
    assert_eq!(names(&to), steps);
    // They say for what their sessions are.
    for server in [&from, &to] {
        for request in server.asked.lock().unwrap().iter() {
            let Request::Protocol(protocol) = request else { continue };
            assert_eq!(protocol.expect, gridlane_xrd::request::Expect::TpcLogin);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_fails_is_removed_and_blames_the_source_if_it_was_that() {
    let text = "[ERROR] Server responded with an error: [3010] tpc authorization expired";
    let mut body = ErrorCode::FS_ERROR.0.to_be_bytes().to_vec();
    body.extend_from_slice(text.as_bytes());
    let from = source().await;
    let to = target(move |stream, copying, _| {
        vec![ok(stream, &stat_body(0)), deferred(copying, Status::ERROR, &body)]
    })
    .await;
    let failed = copy_between(&from, &to, &RootThirdParty::default()).await.0.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Denied, "{failed}");
    assert_eq!(failed.endpoint_text(), Some(from.url.to_string().as_str()));
    assert!(failed.advice().unwrap().to_string().contains("[::ffff:127.0.0.1]"), "{failed}");
    assert_eq!((to.asked(RequestId::CLOSE), to.asked(RequestId::RM)), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destination_that_is_stopped_is_told_so() {
    let (from, to) = (source().await, target(|stream, _, _| vec![ok(stream, &stat_body(1))]).await);
    let client = from.client();
    let (begun, stop) = tokio::sync::oneshot::channel::<()>();
    let mut begun = Some(begun);
    let mut observer = |_| drop(begun.take());
    let options = RootThirdParty { overwrite: true, ..RootThirdParty::default() };
    // Dropping the sender ends the wait.
    let stop = async { drop(stop.await) };
    let stopped = copy(&client, &from.url, &to.url, &options, &mut observer, stop).await.unwrap_err();
    assert_eq!(stopped.kind(), ErrorKind::Interrupted);
    let asked = to.asked.lock().unwrap();
    let cancelled = asked.iter().any(|request| match request {
        Request::Query(query) => {
            query.kind == QueryKind::OPAQUE_HANDLE
                && query.handle == HANDLE
                && query.argument == b"ofs.tpc cancel"
        }
        _ => false,
    });
    assert!(cancelled, "{asked:?}");
    let delete = OpenOptions::UPDATE | OpenOptions::DELETE | OpenOptions::RETSTAT;
    assert!(asked.iter().any(|request| matches!(request, Request::Open(open) if open.options == delete)));
    // Nothing was there before, by the answer to the first question.
    assert!(asked.iter().any(|request| request.id() == RequestId::RM));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_there_before_is_not_removed() {
    let from = source().await;
    let to = Server::start(|stream, request| match request {
        Request::Stat(_) => Some(vec![ok(stream, b"9 5 48 100\0")]),
        Request::Sync(_) => Some(vec![error(stream, ErrorCode::FS_ERROR, "no idea")]),
        other => usual(stream, other, 0),
    })
    .await;
    let options = RootThirdParty { overwrite: true, ..RootThirdParty::default() };
    let failed = copy_between(&from, &to, &options).await.0.unwrap_err();
    assert!(failed.to_string().contains("this is the destination"), "{failed}");
    assert_eq!((to.asked(RequestId::CLOSE), to.asked(RequestId::RM)), (1, 0));
    // The same file by another name would be emptied before it is read.
    let itself = Server::start(|stream, request| match request {
        Request::Stat(_) => Some(vec![ok(stream, &stat_body(SIZE_BYTES))]),
        other => usual(stream, other, SIZE_BYTES),
    })
    .await;
    let failed = copy_between(&from, &itself, &options).await.0.unwrap_err();
    assert_eq!((failed.kind(), itself.asked(RequestId::OPEN)), (ErrorKind::Usage, 0), "{failed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_no_part_is_not_changed() {
    let unable = |flags, said: &'static [u8]| {
        Server::with(flags, move |stream, request| match request {
            Request::Query(_) if said.is_empty() => {
                Some(vec![error(stream, ErrorCode::UNSUPPORTED, "not supported")])
            }
            Request::Query(_) => Some(vec![ok(stream, said)]),
            Request::Ping(_) => Some(vec![ok(stream, b"")]),
            other => usual(stream, other, 0),
        })
    };
    for said in [&b""[..], b"tpc\nchksum\n\0", b"0\n", b"\xff\n", b"\0"] {
        let (able, unable) = (able_target().await, unable(ServerFlags::IS_SERVER, said).await);
        let refused = copy_between(&source().await, &unable, &RootThirdParty::default()).await.0.unwrap_err();
        assert_eq!((refused.kind(), unable.asked(RequestId::OPEN)), (ErrorKind::Unsupported, 0), "{refused}");
        let refused = copy_between(&unable, &able, &RootThirdParty::default()).await.0.unwrap_err();
        assert_eq!((refused.kind(), able.asked(RequestId::OPEN)), (ErrorKind::Unsupported, 0), "{refused}");
    }
    // A manager does not know it of its servers.
    let manager = unable(ServerFlags::IS_MANAGER, b"tpc\n").await;
    let refused = copy_between(&source().await, &manager, &RootThirdParty::default()).await.0.unwrap_err();
    assert_eq!(manager.asked(RequestId::OPEN), 1, "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_not_the_sources_are_no_copy() {
    let from = Server::start(|stream, request| match request {
        Request::Query(Query { kind: QueryKind::CHECKSUM, .. }) => {
            Some(vec![ok(stream, b"adler32 0a0b0c0d\0")])
        }
        other => usual(stream, other, SIZE_BYTES),
    })
    .await;
    let to = able_target().await;
    let wrong = copy_between(&from, &to, &RootThirdParty::default()).await.0.unwrap_err();
    assert_eq!((wrong.kind(), to.asked(RequestId::RM)), (ErrorKind::ChecksumMismatch, 1), "{wrong}");
    // One that is known counts, whatever the source says.
    let right = Checksum::from_hex(ChecksumKind::Adler32, "01020304");
    let known = Some((ChecksumKind::Adler32, right.clone()));
    let options = RootThirdParty { checksum: known, ..RootThirdParty::default() };
    let copied = copy_between(&from, &able_target().await, &options).await.0.unwrap();
    assert_eq!(copied.checksum, right);
    // In place of one that neither has, one that both have is compared.
    let unknown = Some((ChecksumKind::Md5, None));
    let options = RootThirdParty { checksum: unknown, requires_checksum: true, ..RootThirdParty::default() };
    let copied = copy_between(&source().await, &able_target().await, &options).await.0.unwrap();
    assert_eq!(copied.checksum, right);
    // And where there is none, it cannot be demanded.
    let other = Server::start(|stream, request| match request {
        Request::Query(Query { kind: QueryKind::CONFIG, .. }) => Some(vec![ok(stream, b"1\n0:sha1\n\0")]),
        other => usual(stream, other, SIZE_BYTES),
    })
    .await;
    let failed = copy_between(&other, &able_target().await, &options).await.0.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::ChecksumMismatch, "{failed}");
    assert!(failed.advice().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checksum_that_is_known_and_that_the_destination_lacks_is_not_forgotten() {
    let md5 = Checksum::from_hex(ChecksumKind::Md5, "d41d8cd98f00b204e9800998ecf8427e");
    let options = |unstated| RootThirdParty {
        checksum: Some((ChecksumKind::Md5, md5.clone())),
        unstated,
        ..RootThirdParty::default()
    };
    // It names its kinds: nothing is begun.
    for unstated in [Unstated::Reads, Unstated::Fails] {
        let to = able_target().await;
        let failed = copy_between(&source().await, &to, &options(unstated)).await.0.unwrap_err();
        assert_eq!((failed.kind(), to.asked(RequestId::OPEN)), (ErrorKind::Unsupported, 0), "{failed}");
    }
    let passed = copy_between(&source().await, &able_target().await, &options(Unstated::Passes)).await.0;
    assert_eq!(passed.unwrap().checksum, Checksum::from_hex(ChecksumKind::Adler32, "01020304"));
    // It does not: that is found out behind the copy.
    let to = Server::start(|stream, request| match request {
        Request::Query(Query { kind: QueryKind::CONFIG, .. }) => Some(vec![ok(stream, b"1\nchksum\n\0")]),
        Request::Query(Query { kind: QueryKind::CHECKSUM, .. }) => {
            Some(vec![error(stream, ErrorCode::UNSUPPORTED, "no")])
        }
        Request::Sync(_) => Some(vec![ok(stream, b"")]),
        Request::Stat(_) => Some(vec![ok(stream, &stat_body(SIZE_BYTES))]),
        other => usual(stream, other, 0),
    })
    .await;
    let failed = copy_between(&source().await, &to, &options(Unstated::Fails)).await.0.unwrap_err();
    assert!(failed.message().contains("cannot be compared"), "{failed}");
    assert_eq!(to.asked(RequestId::RM), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_answers_are_borne() {
    // The copy begins only when it is asked for again, and stats say nothing.
    let mut syncs = 0;
    let to = Server::start(move |stream, request| match request {
        Request::Sync(_) => {
            syncs += 1;
            Some(vec![if syncs == 2 { wait(stream, Status::WAIT, 0, "") } else { ok(stream, b"") }])
        }
        Request::Stat(_) => Some(vec![ok(stream, &stat_body(SIZE_BYTES))]),
        other => usual(stream, other, 0),
    })
    .await;
    copy_between(&source().await, &to, &RootThirdParty::default()).await.0.unwrap();
    assert_eq!(to.asked(RequestId::SYNC), 3);
    // Too few bytes; and answers of kinds that make no sense.
    let odd: [fn(StreamId) -> Vec<u8>; 4] = [
        |stream| ok(stream, b""),
        |stream| message(stream, Status::STATUS, &[0; 24]),
        |stream| message(stream, Status::REDIRECT, b"\0\0\x04\x46host"),
        |stream| message(stream, Status::ATTN, b"\0\0\x13\x90\0\0\0\0\0"),
    ];
    for odd in odd {
        let mut syncs = 0;
        let to = Server::start(move |stream, request| match request {
            Request::Sync(_) => {
                syncs += 1;
                Some(vec![if syncs == 1 { ok(stream, b"") } else { odd(stream) }])
            }
            Request::Stat(_) => Some(vec![ok(stream, b"nothing\0")]),
            other => usual(stream, other, 0),
        })
        .await;
        let failed = copy_between(&source().await, &to, &RootThirdParty::default()).await.0.unwrap_err();
        assert_eq!(failed.endpoint_text(), Some(to.url.to_string().as_str()), "{failed}");
        assert_eq!(to.asked(RequestId::RM), 1, "{failed}");
    }
}
