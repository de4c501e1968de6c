//! What is asked of names over root://, through a real server: that each request is answered by what it should be, in
//! parts and later where that is so, and that it is recorded.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::root::RootClient;
use crate::support::{Client, TestServer};
use gridlane_server::Export;
use gridlane_store::fake::{Gate, SlowStorage};
use gridlane_store::{Durability, MemoryStorage, ObjectPath, PosixStorage};
use gridlane_xrd::answer::{AttnAnswer, DirlistReader, StatText, WaitAnswer};
use gridlane_xrd::flags::{
    DirlistOptions, FattrOptions, LocateOptions, OpenOptions, PrepareOptions, StatFlags,
};
use gridlane_xrd::registry::FattrKind;
use gridlane_xrd::request::{
    About, Chmod, Dirlist, Fattr, FattrAbout, Locate, Mkdir, Mv, Prepare, Query, Rm, Rmdir, Set, Stat, Statx,
    Sync,
};
use gridlane_xrd::{ErrorCode, PathArg, QueryKind, Request, Status, StreamId};

/// Longer than anything that passes takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A session, and the requests of these tests.
struct Session(RootClient);

impl Session {
    fn open(server: &TestServer) -> Session {
        Session(RootClient::connect(server.address))
    }

    #[track_caller]
    fn ok(&mut self, request: impl Into<Request>) -> Vec<u8> {
        self.0.ask(request, &[]).unwrap().body
    }

    #[track_caller]
    fn code(&mut self, request: impl Into<Request>) -> ErrorCode {
        self.0.ask(request, &[]).unwrap_err().0
    }

    fn stat(&mut self, path: &str) -> Option<StatText> {
        match self.0.ask(Stat { about: About::Path(arg(path)), is_vfs: false, wants: 0 }, &[]) {
            Ok(answer) => Some(StatText::parse(&answer.body).unwrap()),
            Err((code, text)) => {
                assert_eq!(code, ErrorCode::NOT_FOUND, "{text}");
                None
            }
        }
    }

    fn query(&mut self, kind: QueryKind, argument: &str) -> String {
        String::from_utf8(self.ok(Query::new(kind, argument))).unwrap()
    }
}

fn arg(path: &str) -> PathArg {
    PathArg::parse(path.as_bytes())
}

#[test]
fn every_request_is_answered() {
    let server = TestServer::start();
    server.write("f", "hello");
    let mut session = Session::open(&server);
    assert_eq!(session.stat("/f").unwrap().flags, StatFlags::READABLE | StatFlags::WRITABLE);
    assert_eq!(session.stat("/.gridlane"), None);
    assert_eq!(session.ok(Mkdir { about: arg("/a/b"), parents: true, mode: 0o750 }), b"");
    assert_eq!(session.stat("/a/b").unwrap().more.unwrap().mode, 0o750);
    assert_eq!(session.ok(Statx { paths: vec![b"/a".to_vec(), b"/f".to_vec()] }), [2, 0]);
    assert_eq!(session.ok(Mv { from: arg("/f"), to: arg("/a/g h") }), b"");
    assert_eq!(server.read("a/g h"), Some(b"hello".to_vec()));
    assert_eq!(session.ok(Chmod { about: arg("/a/g h"), mode: 0o444 }), b"");
    assert_eq!(session.stat("/a/g h").unwrap().flags, StatFlags::READABLE);
    assert_eq!(session.code(Rmdir { about: arg("/a") }), ErrorCode::ITEM_EXISTS);
    // As `rmdir`: clients that remove trees send nothing else.
    assert_eq!(session.code(Rm { about: arg("/a") }), ErrorCode::ITEM_EXISTS);
    assert_eq!(session.ok(Rm { about: arg("/a/b") }), b"");
    assert_eq!(session.stat("/a/b"), None);
    let port = server.address.port();
    let options = LocateOptions(0x0501);
    let found = session.ok(Locate { about: arg("*/a"), options });
    assert_eq!(found, format!("Sw[::127.0.0.1]:{port}\0").into_bytes());
    assert_eq!(session.query(QueryKind::CONFIG, "readv_iov_max\nnothing"), "1024\nnothing\n");
    assert_eq!(session.query(QueryKind::CHECKSUM, "/a/g h?cks.type=adler32"), "adler32 062c0215\0");
    assert!(session.query(QueryKind::SPACE, "/").starts_with("oss.cgroup=public&oss.space="));
    assert!(session.query(QueryKind::XATTR, "/a").contains("oss.type=d"));
    assert!(session.query(QueryKind::STATS, "a").contains("pgm=\"gridlane\""));
    assert_eq!(session.ok(Set { modifier: 0, text: b"appid job 7".to_vec() }), b"");
    let lines = vec![b"/a/g h".to_vec()];
    let options = PrepareOptions::STAGE;
    let prepare = Prepare { options, priority: 0, port: 0, evicts: false, lines };
    let name = String::from_utf8(session.ok(prepare)).unwrap();
    let told = session.query(QueryKind::PREPARE, &format!("{name}\n/a/g h"));
    assert!(told.contains("\"online\":true") && told.contains("\"on_tape\":false"), "{told}");
    assert_eq!(session.ok(Rm { about: arg("/a/g h?authz=secret") }), b"");
    assert_eq!(session.code(Rm { about: arg("/a/g h") }), ErrorCode::NOT_FOUND);
    drop(session);
    let (_, records) = server.stop();
    let of = |method: &str| records.iter().find(|record| record["method"] == method).unwrap().clone();
    let removed = of("root:rm");
    assert_eq!((&removed["path"], &removed["status"]), (&"/a".into(), &3018.into()));
    assert_eq!(removed["user"], "tester");
    assert_eq!(of("root:login")["status"], 0);
    assert!(removed["user_agent"].as_str().unwrap().contains("probe"), "{removed}");
    assert_eq!(of("root:mv")["destination"], "/a/g h");
    assert_eq!(of("root:query.checksum")["status"], 0);
    assert!(!format!("{records:?}").contains("secret"));
}

#[test]
fn attributes_are_kept() {
    let server = TestServer::start();
    server.write("f", "hello");
    let mut session = Session::open(&server);
    let mut fattr = |kind, flags, attributes: &[(&str, &str)]| {
        let attributes =
            attributes.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        let about = FattrAbout::Path(arg("/f"));
        session.ok(Fattr { about, kind, options: FattrOptions(flags), attributes: attributes.collect() })
    };
    assert_eq!(fattr(FattrKind::SET, 0, &[("k", "vv")]), b"\0\x01\0\0k\0");
    assert_eq!(
        fattr(FattrKind::GET, 0, &[("k", ""), ("zz", "")]),
        b"\x01\x02\0\0k\0\x0b\xd3zz\0\0\0\0\x02vv\0\0\0\0"
    );
    assert_eq!(fattr(FattrKind::LIST, 0x10, &[]), b"k\0\0\0\0\x02vv");
    assert_eq!(fattr(FattrKind::DELETE, 0, &[("k", "")]), b"\0\x01\0\0k\0");
    assert_eq!(fattr(FattrKind::LIST, 0, &[]), b"");
    for (options, expected) in
        [(OpenOptions::READ, Some(ErrorCode::INVALID_REQUEST)), (OpenOptions::UPDATE, None)]
    {
        let handle = session.0.open("/f", options).unwrap();
        let attributes = vec![(b"k".to_vec(), b"v".to_vec())];
        let (about, kind) = (FattrAbout::Handle(handle), FattrKind::SET);
        let set = Fattr { about, kind, options: FattrOptions::NONE, attributes };
        assert_eq!(session.0.ask(set, &[]).err().map(|(code, _)| code), expected);
        session.0.close(handle).unwrap();
    }
}

#[test]
fn a_long_listing_comes_in_parts() {
    let storage = MemoryStorage::new();
    for number in 0..50_000 {
        storage.add_file(&ObjectPath::new([format!("file-{number:06}").as_bytes()]).unwrap(), Vec::new());
    }
    let server = TestServer::of(Arc::new(storage), |_| {});
    let mut session = Session::open(&server);
    for options in [DirlistOptions::NONE, DirlistOptions::STAT, DirlistOptions::CHECKSUM] {
        let stream = session.0.send(Dirlist { about: arg("/"), options }, &[]);
        let (mut reader, mut entries, mut parts) = (DirlistReader::default(), Vec::new(), 0);
        loop {
            let answer = session.0.answer();
            assert_eq!(answer.stream, stream);
            parts += 1;
            let is_last = answer.status == Status::OK;
            assert!(is_last || answer.status == Status::OKSOFAR && answer.body.ends_with(b"\n"));
            reader.read(&answer.body, is_last, &mut entries).unwrap();
            if is_last {
                break;
            }
        }
        assert_eq!(entries.len(), 50_000);
        assert!(parts > 2 && entries[0].stat.is_none() == (options == DirlistOptions::NONE));
    }
    drop(session);
    let (_, records) = server.stop();
    let lists: Vec<_> = records.iter().filter(|record| record["method"] == "root:dirlist").collect();
    // Names of eleven bytes and a line break.
    assert!(lists.len() == 3 && lists[0]["bytes_out"].as_u64().is_some_and(|bytes| bytes >= 20_000 * 12));
}

/// Sends what hangs at a gate, which is opened when its answer was promised; what it comes to.
fn later(session: &mut Session, gate: &Gate, request: impl Into<Request>) -> Vec<u8> {
    gate.close();
    let stream = session.0.send(request, &[]);
    let answer = session.0.answer();
    assert_eq!((answer.stream, answer.status), (stream, Status::WAITRESP));
    assert!(WaitAnswer::parse(&answer.body).unwrap().seconds > 0);
    // Others are answered meanwhile.
    session.0.ping().unwrap();
    gate.open();
    let answer = session.0.answer();
    assert_eq!((answer.stream, answer.status), (StreamId::default(), Status::ATTN));
    let AttnAnswer::Response(head, body) = AttnAnswer::parse(&answer.body).unwrap() else {
        panic!("no answer")
    };
    assert_eq!((head.stream, head.status), (stream, Status::OK));
    body.to_vec()
}

#[test]
fn slow_answers_come_later() {
    let storage = MemoryStorage::new();
    storage.add_file(&ObjectPath::new([&b"f"[..]]).unwrap(), b"hello".to_vec());
    let (bytes, names) = (Gate::new(), Gate::new());
    let slow = SlowStorage::new(storage, bytes.clone()).with_names(names.clone());
    let server = TestServer::of(Arc::new(slow), |settings| settings.service.exports[0].allow_write = true);
    let mut session = Session::open(&server);
    let checksum = later(&mut session, &bytes, Query::new(QueryKind::CHECKSUM, "/f"));
    assert_eq!(checksum, b"adler32 062c0215\0");
    // And now it is known.
    assert_eq!(session.query(QueryKind::CHECKSUM, "/f"), "adler32 062c0215\0");
    let locate = Locate { about: arg("/f"), options: LocateOptions(0) };
    assert!(later(&mut session, &names, locate).starts_with(b"Sw["));
    let handle = session.0.open("/f", OpenOptions::UPDATE).unwrap();
    assert_eq!(later(&mut session, &bytes, Sync { handle }), b"");
    session.0.close(handle).unwrap();
}

#[test]
fn several_exports_and_the_directories_above_them() {
    let directory = tempfile::tempdir().unwrap();
    let export = |path: &str| {
        let place = directory.path().join(path);
        std::fs::create_dir(&place).unwrap();
        std::fs::write(place.join("f"), "x").unwrap();
        Export {
            path: gridlane_dav::ResourcePath::parse(&format!("/data/{path}")).unwrap(),
            ..Export::new(Arc::new(PosixStorage::open(&place, Durability::None).unwrap()))
        }
    };
    let server = TestServer::with(|settings| {
        settings.service.exports = vec![export("one"), Export { allow_write: true, ..export("two") }];
    });
    let mut session = Session::open(&server);
    assert_eq!(session.ok(Dirlist { about: arg("/data"), options: DirlistOptions::NONE }), b"one\ntwo\0");
    assert_eq!(session.stat("/").unwrap().flags, StatFlags(19));
    assert_eq!(session.stat("/data/one/f").unwrap().flags, StatFlags::READABLE);
    assert_eq!(session.code(Rm { about: arg("/data/one/f") }), ErrorCode::NOT_AUTHORIZED);
    assert_eq!(
        session.code(Mv { from: arg("/data/two/f"), to: arg("/data/one/g") }),
        ErrorCode::NOT_AUTHORIZED
    );
    assert_eq!(session.ok(Rm { about: arg("/data/two/f") }), b"");
    assert_eq!(session.stat("/data/two/f"), None);
    let not_there = session.code(Dirlist { about: arg("/other"), options: DirlistOptions::NONE });
    assert_eq!(not_there, ErrorCode::NOT_FOUND);
}

/// Over HTTP a client cannot say whether it wants the directories above; here each request that may make them says so.
#[test]
fn parents_are_made_for_those_that_ask() {
    for create_parents in [false, true] {
        let server = TestServer::with(|settings| {
            settings.service.exports[0].allow_write = true;
            settings.service.exports[0].compat.create_parents = create_parents;
        });
        server.write("f", "x");
        let mut session = Session::open(&server);
        let mkdir = |path: &str, parents| Mkdir { about: arg(path), parents, mode: 0o755 };
        assert_eq!(session.code(mkdir("/a/b", false)), ErrorCode::NOT_FOUND);
        for options in [OpenOptions::NEW, OpenOptions::DELETE, OpenOptions::NEW | OpenOptions::POSC] {
            let refused = session.0.open("/a/g", options).map_err(|(code, _)| code);
            assert_eq!(refused, Err(ErrorCode::NOT_FOUND), "{options:?}");
        }
        assert_eq!(session.stat("/a"), None, "nothing was made for them");
        let handle = session.0.open("/a/g", OpenOptions::NEW | OpenOptions::MKPATH).unwrap();
        session.0.close(handle).unwrap();
        session.ok(mkdir("/b/c", true));
        assert!(session.stat("/a/g").is_some() && session.stat("/b/c").is_some());
        // This one cannot say it.
        let moved = session.0.ask(Mv { from: arg("/f"), to: arg("/d/f") }, &[]).map(drop);
        assert_eq!(moved.is_ok(), create_parents, "{moved:?}");
        assert_eq!(session.stat("/d/f").is_some(), create_parents);
    }
}

#[test]
fn changes_happen_in_the_order_of_their_requests() {
    let server = TestServer::start();
    let mut session = Session::open(&server);
    let deepest = (0..40).fold(String::new(), |path, level| format!("{path}/d{level}"));
    session.ok(Mkdir { about: arg(&deepest), parents: true, mode: 0o755 });
    server.write(&format!("{}/f", &deepest[1..]), "x");
    // As a client removes a tree that sends everything at once: each is empty only when the one before is done.
    let file = format!("{deepest}/f");
    let up = std::iter::successors(Some(file.as_str()), |path| {
        path.rsplit_once('/').map(|(above, _)| above).filter(|above| !above.is_empty())
    });
    let asked: Vec<StreamId> = up.map(|path| session.0.send(Rm { about: arg(path) }, &[])).collect();
    assert_eq!(asked.len(), 41);
    for (at, stream) in asked.into_iter().enumerate() {
        let answer = session.0.answer();
        assert_eq!((answer.stream, answer.status), (stream, Status::OK), "{at}");
    }
    assert_eq!(session.stat("/d0"), None);
}

#[test]
fn counters_of_requests() {
    let server = TestServer::with(|settings| settings.admin = Some("127.0.0.1:0".parse().unwrap()));
    let mut session = Session::open(&server);
    assert_eq!(session.stat("/nope"), None);
    let page = || {
        let mut client = Client::connect(server.admin.unwrap());
        client.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client.response(false).text()
    };
    let lines = [
        "gridlane_root_sessions_open 1",
        "gridlane_root_files_open 0",
        "gridlane_root_requests_total{request=\"stat\",outcome=\"error\"} 1",
        "gridlane_root_errors_total{error=\"NotFound\"} 1",
    ];
    // A request is counted when its answer is out, which the client may see a moment earlier.
    let began = Instant::now();
    loop {
        let text = page();
        let Some(line) = lines.iter().find(|line| !text.lines().any(|other| other == **line)) else { break };
        assert!(began.elapsed() < PATIENCE, "no {line} in\n{text}");
    }
}

#[test]
fn where_it_is_not_spoken() {
    let server = TestServer::with(|settings| settings.root.is_enabled = false);
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&gridlane_xrd::frame::HANDSHAKE).unwrap();
    let mut rest = Vec::new();
    // Ended with or without a word of the kernel's, and without one of the server's.
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(rest, b"");
    assert_eq!(server.request("GET /", "").status(), 200);
}
