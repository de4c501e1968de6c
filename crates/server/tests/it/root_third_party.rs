//! Third-party copies over root://: the words of clients at the source, the servers that come for them, and the destination.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::root::{Refusal, RootClient};
use crate::support::{Client, TestServer};
use gridlane_auth::policy::{Principal, Template};
use gridlane_auth::{Grants, Policy, Rule};
use gridlane_core::{Network, limits};
use gridlane_net::tls::Trust;
use gridlane_net::{AddressRules, Dialer};
use gridlane_server::ThirdPartySettings;
use gridlane_store::journal_key::JournalKeys;
use gridlane_sys::tcp::ClosedPort;
use gridlane_xrd::answer::{AttnAnswer, ErrorAnswer, OpenAnswer, StatText};
use gridlane_xrd::flags::{OpenMore, OpenOptions};
use gridlane_xrd::request::{About, Open, Query, Stat, Sync};
use gridlane_xrd::{ErrorCode, Handle, PathArg, QueryKind, Request, Status, StreamId};

const READ: OpenOptions = OpenOptions::READ;
/// Longer than any wait of a passing test.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that copies from others, also from this machine.
fn destination() -> TestServer {
    TestServer::with(|settings| {
        settings.service.exports[0].allow_write = true;
        let dialer = Dialer::new(Trust::default()).addresses(AddressRules::public().allow_loopback());
        let client = gridlane_peer::Client::new(dialer, Duration::from_secs(20));
        settings.service.third_party = Some(ThirdPartySettings::new(client, JournalKeys::of(&[7; 32])));
    })
}

/// A client at one of this machine's addresses.
fn client_at(address: [u8; 4], server: SocketAddr) -> RootClient {
    let mut client = RootClient::on(Client::from(address.into(), server).stream);
    assert_eq!(client.login().status, Status::OK);
    client
}

fn open(path: &str, options: OpenOptions) -> Open {
    let about = PathArg::parse(path.as_bytes());
    Open { mode: 0o644, options, more: OpenMore::NONE, template: Handle::default(), about }
}

/// The outcome of a request, which may be said to come later; true if it was.
fn outcome(client: &mut RootClient, stream: StreamId) -> (Result<Vec<u8>, Refusal>, bool) {
    let mut was_promised = false;
    loop {
        let mut answer = client.answer();
        if answer.status == Status::ATTN {
            assert!(was_promised);
            let AttnAnswer::Response(head, body) = AttnAnswer::parse(&answer.body).unwrap() else { panic!() };
            (answer.stream, answer.status, answer.body) = (head.stream, head.status, body);
        }
        assert_eq!(answer.stream, stream);
        match answer.status {
            Status::WAITRESP => was_promised = true,
            Status::OK => return (Ok(answer.body), was_promised),
            Status::ERROR => {
                let error = ErrorAnswer::parse(&answer.body).unwrap();
                return (Err((error.code, error.text)), was_promised);
            }
            other => panic!("{other:?}"),
        }
    }
}

fn asked(client: &mut RootClient, request: impl Into<Request>) -> Result<Vec<u8>, Refusal> {
    let stream = client.send(request, &[]);
    outcome(client, stream).0
}

/// The handle of a file that a server comes for.
fn fetched(client: &mut RootClient, path: &str) -> Result<Handle, Refusal> {
    asked(client, open(path, READ)).map(|body| OpenAnswer::parse(&body).unwrap().handle)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, Refusal>, code: ErrorCode, words: &str) {
    let (got, text) = outcome.unwrap_err();
    assert_eq!((got, text.contains(words)), (code, true), "{text}");
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const WORD: &str = "tpc.key=K&tpc.dst=[::ffff:127.0.0.1]&tpc.stage=copy";
const COMES: &str = "tpc.key=K&tpc.org=tester.1@[::ffff:127.0.0.2]";

/// Only clients at 127.0.0.2 may read.
fn private() -> TestServer {
    let server = TestServer::with(|settings| {
        let network = Network::parse_list(["127.0.0.2"]).unwrap();
        let rule = Rule {
            name: "those".to_owned(),
            who: Principal { networks: network, ..Principal::anyone() },
            may: Grants::READ,
            under: Template::parse("/").unwrap(),
        };
        settings.policy = Arc::new(Policy::new(vec![rule]));
    });
    for name in ["f", "g"] {
        server.write(name, "hello");
    }
    server
}

#[test]
fn a_destination_reads_what_its_client_has_named_and_nothing_else() {
    let server = private();
    let mut client = client_at([127, 0, 0, 2], server.address);
    let mut other = RootClient::connect(server.address);
    refused(other.open("/f", READ), ErrorCode::NOT_AUTHORIZED, "permission denied");
    // One that is early waits for the word, and is told so when that takes long.
    let early = other.send(open(&format!("//f?{COMES}"), READ | OpenOptions::RETSTAT), &[]);
    let answer = other.answer();
    assert_eq!((answer.stream, answer.status), (early, Status::WAITRESP));
    let word = client.open(&format!("/f?{WORD}"), READ).unwrap();
    let AttnAnswer::Response(head, body) = AttnAnswer::parse(&other.answer().body).unwrap() else { panic!() };
    assert_eq!((head.stream, head.status), (early, Status::OK));
    let opened = OpenAnswer::parse(&body).unwrap();
    assert_eq!(opened.stat.unwrap().size_bytes, 5);
    assert_eq!(other.read(opened.handle, 0, 10).unwrap(), b"hello");
    // Another connection of it is let in as well, and none for another file, or to write.
    let mut second = RootClient::connect(server.address);
    let again = fetched(&mut second, &format!("/./f?{COMES}")).unwrap();
    assert_eq!(second.pgread(again, 0, 10).unwrap(), b"hello");
    refused(second.write(again, 0, b"x"), ErrorCode::FILE_NOT_OPEN, "");
    // A client that may not read the file itself cannot let others read it.
    refused(other.open(&format!("/f?{WORD}"), READ), ErrorCode::NOT_AUTHORIZED, "permission denied");
    // All that does not fit looks alike, and takes as long.
    let mut waiting = Vec::new();
    for (from, path) in [
        ([127, 0, 0, 1], "/f?tpc.key=k&tpc.org=tester.1@[::ffff:127.0.0.2]"),
        ([127, 0, 0, 1], "/f?tpc.key=K&tpc.org=tester.2@[::ffff:127.0.0.2]"),
        ([127, 0, 0, 1], "/f?tpc.key=K&tpc.org=tester.1@[::ffff:127.0.0.3]"),
        ([127, 0, 0, 1], "/f?tpc.key=K&tpc.org=tester.1@no.such.name.invalid"),
        ([127, 0, 0, 1], &format!("/g?{COMES}")),
        ([127, 0, 0, 1], &format!("/none?{COMES}")),
        ([127, 0, 0, 3], &format!("/f?{COMES}")),
    ] {
        let mut stranger = client_at(from, server.address);
        let stream = stranger.send(open(path, READ), &[]);
        waiting.push((stranger, stream, Instant::now()));
    }
    for (mut stranger, stream, began) in waiting {
        let (outcome, was_promised) = outcome(&mut stranger, stream);
        refused(outcome, ErrorCode::NOT_AUTHORIZED, "tpc authorization expired");
        assert!(was_promised && began.elapsed() >= limits::ROOT_RENDEZVOUS_TTL - Duration::from_millis(100));
    }
    // What is open stays open when the client has closed, and nothing else is opened.
    client.close(word).unwrap();
    assert_eq!(other.read(opened.handle, 0, 10).unwrap(), b"hello");
    refused(fetched(&mut second, &format!("/f?{COMES}")), ErrorCode::NOT_AUTHORIZED, "expired");
}

#[test]
fn a_word_ends_with_its_time_and_with_its_session() {
    let server = private();
    let mut client = client_at([127, 0, 0, 2], server.address);
    client.open(&format!("/f?{WORD}&tpc.ttl=0"), READ).unwrap();
    let mut other = RootClient::connect(server.address);
    let late = other.send(open(&format!("/f?{COMES}"), READ), &[]);
    let mut third = client_at([127, 0, 0, 2], server.address);
    third.open("/g?tpc.key=L&tpc.dst=localhost:1094", READ).unwrap();
    let mut comes = RootClient::connect(server.address);
    fetched(&mut comes, "/g?tpc.key=L&tpc.org=tester.1@127.0.0.2").unwrap();
    drop(third);
    // The end of a session is not told to another connection: ask until it was seen.
    eventually("the word is gone", || {
        let mut comes = RootClient::connect(server.address);
        let stream = comes.send(open("/g?tpc.key=L&tpc.org=tester.1@127.0.0.2", READ), &[]);
        comes.answer().status == Status::WAITRESP && outcome_after_promise(&mut comes, stream).is_err()
    });
    refused(outcome(&mut other, late).0, ErrorCode::NOT_AUTHORIZED, "expired");
}

fn outcome_after_promise(client: &mut RootClient, stream: StreamId) -> Result<Vec<u8>, Refusal> {
    let AttnAnswer::Response(head, body) = AttnAnswer::parse(&client.answer().body).unwrap() else {
        panic!()
    };
    assert_eq!(head.stream, stream);
    match head.status {
        Status::OK => Ok(body),
        _ => ErrorAnswer::parse(&body).map(|error| Err((error.code, error.text))).unwrap(),
    }
}

const NEW: OpenOptions = OpenOptions::NEW;

#[test]
fn requests_that_make_no_sense() {
    let server = TestServer::start();
    server.write("f", "hello");
    let mut client = RootClient::connect(server.address);
    for (path, options, code, words) in [
        ("/f?tpc.key=K&tpc.dst=h&tpc.org=a.1@h", READ, ErrorCode::ARG_INVALID, "conflicting tpc cgi"),
        ("/n?tpc.key=K", NEW, ErrorCode::ARG_INVALID, "tpc source not specified"),
        ("/n?tpc.src=h&tpc.lfn=/f", NEW, ErrorCode::UNSUPPORTED, "tpc not supported without a key"),
        ("/n?tpc.key=K&tpc.src=h&tpc.lfn=/f", NEW, ErrorCode::UNSUPPORTED, "makes no third-party copies"),
        ("/none?tpc.key=K&tpc.dst=h", READ, ErrorCode::NOT_FOUND, "no such file"),
    ] {
        refused(client.open(path, options), code, words);
    }
    // To look where a file is, and words that mean nothing by themselves, are opens like others.
    for path in ["/f?tpc.stage=placement", "/f?tpc.stage=copy&tpc.dlgon=0"] {
        let handle = client.open(path, READ).unwrap();
        assert_eq!(client.read(handle, 0, 10).unwrap(), b"hello");
    }
    assert!(server.read("n").is_none());
}

fn from(server: SocketAddr, path: &str) -> String {
    format!("tpc.key=K&tpc.src={server}&tpc.lfn={path}&tpc.spr=root&tpc.stage=copy")
}

#[test]
fn a_file_is_fetched_between_two_syncs() {
    let (source, server) = (TestServer::start(), destination());
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|number| (number * 7 % 251) as u8).collect();
    source.write("f", &bytes);
    let (mut at_source, mut client) =
        (RootClient::connect(source.address), RootClient::connect(server.address));
    let path = format!("/d/n?{}", from(source.address, "/f"));
    refused(client.open(&path, NEW), ErrorCode::NOT_FOUND, "");
    let options = NEW | OpenOptions::MKPATH | OpenOptions::RETSTAT;
    let (handle, stat) = client.open_with(&path, options, 0o644).unwrap();
    assert_eq!(stat.unwrap().size_bytes, 0);
    // Nobody else changes it meanwhile, and it can be neither read nor written.
    let mut other = RootClient::connect(server.address);
    refused(other.open("/d/n", NEW | OpenOptions::MKPATH), ErrorCode::FILE_LOCKED, "");
    refused(client.read(handle, 0, 10), ErrorCode::FILE_LOCKED, "copied");
    refused(client.write(handle, 0, b"x"), ErrorCode::FILE_NOT_OPEN, "");
    asked(&mut client, Sync { handle }).unwrap();
    let word = at_source.open("/f?tpc.key=K&tpc.dst=127.0.0.1", READ).unwrap();
    asked(&mut client, Sync { handle }).unwrap();
    assert_eq!(server.read("d/n").unwrap(), bytes);
    let told = asked(&mut client, Stat { about: About::Handle(handle), is_vfs: false, wants: 0 }).unwrap();
    assert_eq!(StatText::parse(&told).unwrap().size_bytes, 3_000_000);
    asked(&mut client, Sync { handle }).unwrap();
    at_source.close(word).unwrap();
    client.close(handle).unwrap();
    assert_eq!((server.read("d/n").unwrap(), server.leftovers()), (bytes, 0));
    // What is there is replaced by those that say so.
    refused(client.open(&path, options), ErrorCode::ITEM_EXISTS, "file exists");
    source.write("f", "new");
    let handle = client.open(&path, OpenOptions::DELETE).unwrap();
    asked(&mut client, Sync { handle }).unwrap();
    let _word = at_source.open("/f?tpc.key=K&tpc.dst=127.0.0.1", READ).unwrap();
    asked(&mut client, Sync { handle }).unwrap();
    client.close(handle).unwrap();
    assert_eq!(server.read("d/n").unwrap(), b"new");
}

#[test]
fn a_private_file_is_fetched_and_compared_with_its_checksum() {
    let (source, server) = (private(), destination());
    let (mut at_source, mut client) =
        (client_at([127, 0, 0, 2], source.address), client_at([127, 0, 0, 2], server.address));
    let handle = client.open(&format!("/n?{}", from(source.address, "/f")), NEW).unwrap();
    asked(&mut client, Sync { handle }).unwrap();
    at_source.open(&format!("/f?{WORD}"), READ).unwrap();
    asked(&mut client, Sync { handle }).unwrap();
    client.close(handle).unwrap();
    assert_eq!(server.read("n").unwrap(), b"hello");
    let mut other = RootClient::connect(source.address);
    refused(other.checksum("/f"), ErrorCode::NOT_AUTHORIZED, "permission denied");
    let of_another = Query::new(QueryKind::CHECKSUM, format!("/g?{COMES}"));
    refused(asked(&mut other, of_another), ErrorCode::NOT_AUTHORIZED, "expired");
    let (_, log) = server.stop();
    let record = log.iter().find(|line| line["copy"] == "pull").unwrap();
    assert_eq!((&record["checksum"], &record["verified"]), (&"adler32:062c0215".into(), &true.into()));
    let shown = format!("{log:?}");
    assert!(!shown.contains("tpc.key") && !shown.contains("key=K"), "{shown}");
}

#[test]
fn a_copy_that_fails_leaves_what_is_there() {
    let (source, server) = (TestServer::start(), destination());
    source.write("f", "hello");
    server.write("n", "old");
    let mut client = RootClient::connect(server.address);
    let mut failing = Vec::new();
    // Nobody has said there that it may be read; there is no such file; nobody listens; other bytes are expected.
    let closed = ClosedPort::new().unwrap();
    let mut at_source = RootClient::connect(source.address);
    let _word = at_source.open("/f?tpc.key=L&tpc.dst=127.0.0.1", READ).unwrap();
    let other = from(source.address, "/f").replace("tpc.key=K", "tpc.key=L");
    for (name, cgi, code, words) in [
        ("n", from(source.address, "/f"), ErrorCode::FS_ERROR, "tpc authorization expired"),
        ("o", from(source.address, "/none"), ErrorCode::FS_ERROR, "tpc authorization expired"),
        ("p", from(closed.address(), "/f"), ErrorCode::FS_ERROR, "refused"),
        ("q", format!("{other}&tpc.cks=adler32:00000001"), ErrorCode::CHECKSUM_ERROR, ""),
    ] {
        let handle = client.open(&format!("/{name}?{cgi}"), OpenOptions::DELETE).unwrap();
        asked(&mut client, Sync { handle }).unwrap();
        failing.push((handle, code, words));
    }
    for (handle, code, words) in failing {
        refused(asked(&mut client, Sync { handle }), code, words);
        // XRootD's clients are told once.
        client.close(handle).unwrap();
    }
    assert_eq!((server.read("n").unwrap(), server.leftovers()), (b"old".to_vec(), 0));
    assert!(["o", "p", "q"].iter().all(|name| server.read(name).is_none()));
}

/// A server that takes connections and says nothing.
fn silent() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

#[test]
fn a_copy_is_cancelled() {
    let (silent, server) = (silent(), destination());
    let cgi = from(silent.local_addr().unwrap(), "/f");
    let mut client = RootClient::connect(server.address);
    let begin = |client: &mut RootClient, name: &str| {
        let handle = client.open(&format!("/{name}?{cgi}"), NEW).unwrap();
        asked(client, Sync { handle }).unwrap();
        handle
    };
    let cancel = |handle| Query { handle, ..Query::new(QueryKind::OPAQUE_HANDLE, "ofs.tpc cancel") };
    // By a request: who waits for it is told.
    let handle = begin(&mut client, "a");
    let waits = client.send(Sync { handle }, &[]);
    assert_eq!(client.answer().status, Status::WAITRESP);
    let cancelling = client.send(cancel(handle), &[]);
    let mut answers = [client.answer(), client.answer()];
    answers.sort_by_key(|answer| answer.status);
    let [done, later] = answers;
    assert_eq!((done.stream, done.status), (cancelling, Status::OK));
    let AttnAnswer::Response(head, body) = AttnAnswer::parse(&later.body).unwrap() else { panic!() };
    assert_eq!((head.stream, head.status), (waits, Status::ERROR));
    assert_eq!(ErrorAnswer::parse(&body).unwrap().code, ErrorCode::CANCELLED);
    refused(asked(&mut client, Sync { handle }), ErrorCode::CANCELLED, "");
    client.close(handle).unwrap();
    // By closing it too early.
    let handle = begin(&mut client, "b");
    refused(client.close(handle), ErrorCode::CANCELLED, "prematurely closed");
    // A file that nobody asked for was none.
    let handle = client.open(&format!("/c?{cgi}"), NEW).unwrap();
    client.close(handle).unwrap();
    // By leaving.
    begin(&mut client, "d");
    drop(client);
    let mut client = RootClient::connect(server.address);
    client.open_when_free("/d", NEW);
    eventually("nothing is left", || server.leftovers() == 0);
    assert!(["a", "b", "c"].iter().all(|name| server.read(name).is_none()));
}

#[test]
fn addresses_that_are_not_allowed_are_not_asked() {
    let server = TestServer::with(|settings| {
        settings.service.exports[0].allow_write = true;
        let dialer = Dialer::new(Trust::default()).addresses(AddressRules::public());
        let client = gridlane_peer::Client::new(dialer, Duration::from_secs(20));
        settings.service.third_party = Some(ThirdPartySettings::new(client, JournalKeys::of(&[7; 32])));
    });
    let silent = silent();
    let mut client = RootClient::connect(server.address);
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::127.0.0.1]"] {
        let port = silent.local_addr().unwrap().port();
        let path = format!("/n?tpc.key=K&tpc.src={host}:{port}&tpc.lfn=/f");
        let handle = client.open(&path, NEW).unwrap();
        asked(&mut client, Sync { handle }).unwrap();
        refused(asked(&mut client, Sync { handle }), ErrorCode::FS_ERROR, "");
        client.close(handle).unwrap();
    }
    silent.set_nonblocking(true).unwrap();
    assert_eq!(silent.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}
