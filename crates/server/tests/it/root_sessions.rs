//! Sessions over root://: their begin and end, the connections that join them, and clients that do not keep to the
//! rules.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use crate::support::crowd::{metrics, raise_descriptors};
use crate::support::root::RootClient;
use crate::support::{TestServer, noise};
use gridlane_core::limits;
use gridlane_front::{ClientLimits, RootAuth};
use gridlane_net::TrustedProxies;
use gridlane_net::tls::{self, Trust};
use gridlane_store::fake::{Gate, SlowStorage};
use gridlane_store::{Durability, PosixStorage};
use gridlane_xrd::answer::{ErrorAnswer, ProtocolAnswer, StatusAnswer};
use gridlane_xrd::flags::{ClientFlags, OpenOptions, ServerFlags};
use gridlane_xrd::frame::HANDSHAKE;
use gridlane_xrd::pages;
use gridlane_xrd::request::{
    About, Auth, Bind, Call, Endsess, Expect, Login, PgRead, Ping, Protocol, Read, Rm, Sigver, Stat,
};
use gridlane_xrd::{
    ErrorCode, Handle, PathArg, PathId, Request, RequestHead, RequestId, SessionId, Status, StreamId,
};

fn stat(path: &str) -> Stat {
    Stat { about: About::Path(PathArg::parse(path.as_bytes())), is_vfs: false, wants: 0 }
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, (ErrorCode, String)>, code: ErrorCode, text: &str) {
    assert_eq!(outcome.unwrap_err(), (code, text.to_owned()));
}

/// Fetches the admin page's value.
fn metric(server: &TestServer, name: &str) -> u64 {
    metrics(server)[name]
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(std::time::Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A deadline that is waited for, and that a client which is only slow does not miss.
const SOON: Duration = Duration::from_secs(1);

/// Waits for the end of a connection, whatever is said first.
#[track_caller]
fn ends(mut stream: TcpStream) {
    if let Err(cause) = std::io::copy(&mut stream, &mut std::io::sink()) {
        assert_eq!(cause.kind(), std::io::ErrorKind::ConnectionReset, "{cause}");
    }
}

fn with_admin(settings: &mut gridlane_server::Settings) {
    settings.admin = Some("127.0.0.1:0".parse().unwrap());
}

#[test]
fn http_and_root_share_the_port() {
    let server = TestServer::start();
    server.write("f", "hello");
    let mut client = RootClient::connect(server.address);
    let handle = client.open("/f", OpenOptions::READ).unwrap();
    assert_eq!(client.read(handle, 1, 3).unwrap(), b"ell");
    assert_eq!(server.request("GET /f", "").text(), "hello");
    client.ping().unwrap();
}

#[test]
fn requests_before_the_login_are_refused() {
    let server = TestServer::start();
    let not_in = "Invalid request; user not logged in";
    for request in [Ping.into(), stat("/").into(), Endsess { session: SessionId::default() }.into()] {
        let request: gridlane_xrd::Request = request;
        let mut client = RootClient::stranger(server.address);
        refused(client.ask(request, &[]), ErrorCode::INVALID_REQUEST, not_in);
        client.finish();
        assert!(client.is_ended());
    }
    // A session that there is not.
    let mut client = RootClient::stranger(server.address);
    let bind = Bind { session: SessionId([7; 16]) };
    refused(client.ask(bind, &[]), ErrorCode::NOT_FOUND, "session not found");
    assert_eq!(client.login().status, Status::OK);
    client.ping().unwrap();
}

#[test]
fn malformed_requests_in_a_session_are_refused_there() {
    let server = TestServer::start();
    let mut client = RootClient::connect(server.address);
    let again = Login::new(1, b"again", gridlane_xrd::flags::Abilities::NONE, b"a=b".to_vec());
    refused(client.ask(again, &[]), ErrorCode::INVALID_REQUEST, "Invalid request code");
    let auth = Auth { kind: b"unix".to_vec(), credentials: b"unix\0".to_vec() };
    refused(client.ask(auth, &[]), ErrorCode::INVALID_REQUEST, "Invalid request code");
    let unknown =
        RequestHead { stream: StreamId([1, 2]), id: RequestId(3033), body: [0; 16], payload_len: 3 };
    client.send_bytes(&[&unknown.encode()[..], b"abc"].concat());
    refused(client.answer_to(StreamId([1, 2])), ErrorCode::INVALID_REQUEST, "Invalid request code");
    // Signatures are not required, and none is looked at.
    let sigver = Sigver {
        expected: RequestId::PING,
        leaves_payload_out: false,
        number: 1,
        algorithm: 1,
        signature: vec![0; 32],
    };
    client.send(sigver, &[]);
    client.ping().unwrap();
    // The protocol may be asked for at any time.
    let asked = Protocol { version: 0x511, flags: ClientFlags::CAN_TLS, expect: Expect::Login };
    let answer = ProtocolAnswer::parse(&client.ask(asked, &[]).unwrap().body).unwrap();
    assert!(answer.flags.has(ServerFlags::IS_SERVER | ServerFlags::CAN_PAGES | ServerFlags::CAN_POSC));
    assert!(!answer.flags.has_any(ServerFlags::HAS_TLS | ServerFlags::GOTO_TLS));
    // An argument that is too long ends it, before it was sent.
    let mut long = stat("/").to_bytes(StreamId([3, 4]));
    long[20..24].copy_from_slice(&(limits::ROOT_ARGUMENT_BYTES_MAX + 1).to_be_bytes());
    client.send_bytes(&long);
    let told = client.answer_to(StreamId([3, 4]));
    refused(told, ErrorCode::ARG_TOO_LONG, "Request argument is too long");
    client.finish();
    assert!(client.is_ended());
    // And so does one of a negative length.
    let mut client = RootClient::connect(server.address);
    let mut negative = Ping.to_bytes(StreamId([5, 6]));
    negative[20] = 0x80;
    client.send_bytes(&negative);
    let told = client.answer_to(StreamId([5, 6]));
    refused(told, ErrorCode::ARG_INVALID, "Invalid request data length");
}

#[test]
fn a_long_argument_is_taken_in_any_pieces() {
    let server = TestServer::start();
    let mut client = RootClient::connect(server.address);
    let path = format!("/{}", "x/".repeat(100_000));
    let bytes = client.encode(&stat(&path).into(), 0);
    for piece in bytes.chunks(7000) {
        client.send_bytes(piece);
    }
    assert!(client.answer().status == Status::ERROR);
    client.ping().unwrap();
    for byte in Ping.to_bytes(StreamId([9, 9])) {
        client.send_bytes(&[byte]);
    }
    client.answer_to(StreamId([9, 9])).unwrap();
}

#[test]
fn a_login_that_needs_authentication_waits_for_it() {
    for (setting, kind, credentials) in
        [(RootAuth::Unix, "unix", &b"unix\0tester users\0"[..]), (RootAuth::Host, "host", &b"host\0"[..])]
    {
        let server = TestServer::with(|settings| settings.root.auth = Some(vec![setting]));
        let mut client = RootClient::stranger(server.address);
        assert_eq!(client.login().body[16..], *format!("&P={kind}").as_bytes());
        client.ping().unwrap();
        let wrong = Auth { kind: b"gsi".to_vec(), credentials: b"gsi\0".to_vec() };
        let what = "gsi security protocol is not supported.";
        refused(client.ask(wrong, &[]), ErrorCode::AUTH_FAILED, what);
        let auth = Auth { kind: kind.into(), credentials: credentials.to_vec() };
        client.ask(auth, &[]).unwrap();
        client.ask(stat("/"), &[]).unwrap();
        let mut client = RootClient::stranger(server.address);
        client.login();
        let what = "Invalid request; user not authenticated";
        refused(client.ask(stat("/"), &[]), ErrorCode::INVALID_REQUEST, what);
    }
}

#[test]
fn a_session_has_so_many_connections_of_one_client() {
    let server = TestServer::with(with_admin);
    let mut client = RootClient::connect(server.address);
    let mut bound: Vec<_> = (0..limits::ROOT_BOUND_MAX).map(|_| client.bind()).collect();
    let mut late = RootClient::stranger(server.address);
    let bind = Bind { session: client.session };
    refused(late.ask(bind.clone(), &[]), ErrorCode::NO_MEMORY, "bind limit exceeded");
    // What is sent on one of them is not answered; the session goes on.
    bound[0].0.send(Ping, &[]);
    client.ping().unwrap();
    // With the main connection all of them end.
    drop(client);
    for (mut connection, _) in bound {
        assert!(connection.is_ended());
    }
    drop(late);
    eventually("all is gone", || metric(&server, "connections_open") == 0);
    let mut late = RootClient::stranger(server.address);
    refused(late.ask(bind, &[]), ErrorCode::NOT_FOUND, "session not found");
}

#[test]
fn another_client_may_neither_join_nor_end_a_session() {
    let trusted = vec!["127.0.0.1/32".parse().unwrap()];
    let server = TestServer::with(|settings| {
        settings.proxies = TrustedProxies { trusted, may_be_silent: false };
    });
    let connect = |client: &str| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        write!(stream, "PROXY TCP4 {client} 192.0.2.9 1 1094\r\n").unwrap();
        RootClient::on(stream)
    };
    let mut one = connect("192.0.2.1");
    one.login();
    let mut other = connect("192.0.2.2");
    let bind = Bind { session: one.session };
    assert_eq!(other.ask(bind.clone(), &[]).unwrap_err().0, ErrorCode::NOT_AUTHORIZED);
    other.login();
    let end = Endsess { session: one.session };
    refused(other.ask(end.clone(), &[]), ErrorCode::NOT_AUTHORIZED, "not session owner");
    one.ping().unwrap();
    // The same client may, and what was there is gone when it is told so.
    let mut again = connect("192.0.2.1");
    again.login();
    assert_eq!(again.ask(end.clone(), &[]).unwrap().body, b"");
    assert!(one.is_ended());
    // It has ended already.
    again.ask(end, &[]).unwrap();
    let own = Endsess { session: again.session };
    again.send(own, &[]);
    assert!(again.is_ended());
}

#[test]
fn silent_and_half_sent_requests_are_not_waited_for() {
    let server = TestServer::with(with_admin);
    let (mut half, mut idle) = (RootClient::connect(server.address), RootClient::connect(server.address));
    // A session goes by it from its next request on: there is time to log in.
    let mut next =
        gridlane_server::settings_of(vec!["127.0.0.1:0".parse().unwrap()], server.export().storage);
    (next.deadlines.head, next.deadlines.detect, next.deadlines.idle) = (SOON, SOON, SOON);
    server.control().reload(next).unwrap();
    half.ping().unwrap();
    half.send_bytes(&Ping.to_bytes(StreamId::default())[..10]);
    idle.ping().unwrap();
    let half_of_a_request = [&HANDSHAKE[..], &Ping.to_bytes(StreamId::default())[..10]].concat();
    let strangers = [&b"\0\0"[..], &HANDSHAKE, &half_of_a_request].map(|bytes| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    });
    assert!(half.is_ended() && idle.is_ended());
    strangers.into_iter().for_each(ends);
    eventually("all is gone", || metric(&server, "connections_open") == 0);
}

#[test]
fn garbage_is_garbage() {
    let server = TestServer::with(with_admin);
    for seed in 0..200 {
        let mut garbage = noise(3000, seed);
        let mut stream = TcpStream::connect(server.address).unwrap();
        if seed % 2 == 0 {
            garbage[..20].copy_from_slice(&HANDSHAKE);
        } else {
            garbage[0] = 0;
        }
        // The server may have ended it by then.
        let _ = stream.write_all(&garbage);
    }
    for seed in 0..200 {
        let mut client = RootClient::connect(server.address);
        let mut garbage = noise(240, 1000 + seed);
        for (at, head) in garbage.chunks_mut(24).enumerate() {
            let id = 3000 + (seed as u16 * 7 + at as u16 * 3) % 33;
            head[2..4].copy_from_slice(&id.to_be_bytes());
            head[20..23].fill(0);
        }
        let _ = std::io::Write::write_all(&mut client.stream, &garbage);
    }
    let mut client = RootClient::connect(server.address);
    client.ping().unwrap();
    drop(client);
    eventually("all is gone", || metric(&server, "connections_open") == 0);
    server.stop();
}

#[test]
fn a_thousand_connections_come_and_go() {
    raise_descriptors();
    let server = TestServer::with(with_admin);
    server.write("f", "hello");
    for _ in 0..2 {
        let mut clients: Vec<RootClient> = (0..1000).map(|_| RootClient::connect(server.address)).collect();
        for client in &mut clients {
            let handle = client.open("/f", OpenOptions::READ).unwrap();
            assert_eq!(client.read(handle, 0, 10).unwrap(), b"hello");
        }
        assert_eq!(metric(&server, "root_sessions_open"), 1000);
        drop(clients);
        eventually("all is gone", || metric(&server, "connections_open") == 0);
        assert_eq!(metric(&server, "root_sessions_open"), 0);
    }
}

#[test]
fn limits_count_as_over_http() {
    let server = TestServer::with(|settings| {
        settings.client_limits = ClientLimits { requests_per_s: Some(5), ..ClientLimits::default() };
    });
    let mut client = RootClient::connect(server.address);
    let statuses: Vec<Status> = (0..20).map(|_| client.ask(Ping, &[]).unwrap().status).collect();
    assert_eq!(statuses[0], Status::OK);
    assert!(statuses.contains(&Status::WAIT));
    // What is to be asked again was not done, and no log says that it was.
    let removed = Request::from(Rm { about: PathArg::parse(b"/f") });
    while client.ask(removed.clone(), &[]).is_err() {}
    let (_, records) = server.stop();
    let of_rm: Vec<_> = records.iter().filter(|record| record["method"] == "root:rm").collect();
    assert!(!of_rm.is_empty() && of_rm.iter().all(|record| record["status"] != 0), "{of_rm:?}");
    let server = TestServer::with(|settings| {
        settings.client_limits = ClientLimits { requests_per_s: Some(5), ..ClientLimits::default() };
    });
    // Writes cannot be told to wait, and are held back.
    let mut client = RootClient::connect(server.address);
    let began = std::time::Instant::now();
    for _ in 0..10 {
        assert!(client.write(Handle([9; 4]), 0, b"x").is_err());
    }
    assert!(began.elapsed() > Duration::from_millis(500), "{:?}", began.elapsed());
    let server = TestServer::with(|settings| {
        settings.client_limits = ClientLimits { connections_max: Some(2), ..ClientLimits::default() };
    });
    let (mut one, mut two) = (RootClient::connect(server.address), RootClient::connect(server.address));
    let mut three = TcpStream::connect(server.address).unwrap();
    three.write_all(&HANDSHAKE).unwrap();
    assert!(matches!(std::io::copy(&mut three, &mut std::io::sink()), Ok(0) | Err(_)));
    one.ping().unwrap();
    two.ping().unwrap();
    // Bytes: half a second's worth is held back by about as long.
    let server = TestServer::with(|settings| settings.limit_rate_bytes_per_s = Some(4_000_000));
    server.write("f", noise(3_000_000, 1));
    let mut client = RootClient::connect(server.address);
    let handle = client.open("/f", OpenOptions::READ).unwrap();
    let began = std::time::Instant::now();
    assert_eq!(client.read(handle, 0, 3_000_000).unwrap().len(), 3_000_000);
    assert!(began.elapsed() > Duration::from_millis(400), "{:?}", began.elapsed());
}

#[test]
fn files_that_are_open_for_writing_count_as_uploads() {
    let server = TestServer::with(|settings| {
        with_admin(settings);
        settings.service.exports[0].allow_write = true;
    });
    server.write("f", "x");
    let mut client = RootClient::connect(server.address);
    client.open("/f", OpenOptions::READ).unwrap();
    assert_eq!(metric(&server, "uploads_running"), 0);
    let handle = client.open("/new", OpenOptions(OpenOptions::NEW.0 | OpenOptions::UPDATE.0)).unwrap();
    assert_eq!(metric(&server, "uploads_running"), 1);
    client.close(handle).unwrap();
    assert_eq!(metric(&server, "uploads_running"), 0);
}

#[test]
fn a_server_that_stops_finishes_running_requests() {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("f"), noise(1000, 1)).unwrap();
    let storage = PosixStorage::open(data.path(), Durability::None).unwrap();
    let gate = Gate::new();
    let mut server = TestServer::of(Arc::new(SlowStorage::new(storage, gate.clone())), |settings| {
        settings.deadlines.drain_pause = Duration::ZERO;
    });
    let mut idle = RootClient::connect(server.address);
    let mut client = RootClient::connect(server.address);
    let handle = client.open("/f", OpenOptions::READ).unwrap();
    gate.close();
    let read = client.send(Read { handle, offset: 0, len: 1000, path_id: PathId::MAIN }, &[]);
    gate.wait_for_waiting(1);
    server.begin_stop();
    assert!(idle.is_ended());
    gate.open();
    assert_eq!(client.answer_to(read).unwrap().body, noise(1000, 1));
    assert!(client.is_ended());
    let (summary, _) = server.stop();
    assert_eq!(summary.cut, 0);
}

#[test]
fn a_server_that_stops_lets_files_that_are_open_be_read_and_written_to_their_end() {
    let mut server = TestServer::with(|settings| {
        settings.service.exports[0].allow_write = true;
        settings.deadlines.drain = Duration::from_secs(3600);
        settings.deadlines.drain_pause = Duration::from_secs(3600);
    });
    server.write("f", noise(3000, 1));
    let connect = || RootClient::connect(server.address);
    let (mut idle, mut reader, mut writer) = (connect(), connect(), connect());
    let read = reader.open("/f", OpenOptions::READ).unwrap();
    let (mut other, _) = reader.bind();
    let options = OpenOptions(OpenOptions::NEW.0 | OpenOptions::UPDATE.0 | OpenOptions::POSC.0);
    let written = writer.open("/g", options).unwrap();
    writer.write(written, 0, &noise(3000, 2)[..1000]).unwrap();
    let address = server.address;
    server.begin_stop();
    assert!(idle.is_ended());
    assert!(TcpStream::connect(address).is_err(), "nobody else is let in");
    for (at, part) in noise(3000, 1).chunks(1000).enumerate() {
        assert_eq!(reader.read(read, at as u64 * 1000, 1000).unwrap(), part);
    }
    refused(
        reader.open("/f", OpenOptions::READ),
        ErrorCode::OVERLOADED,
        "the server is stopping; try again later",
    );
    writer.write(written, 1000, &noise(3000, 2)[1000..]).unwrap();
    writer.close(written).unwrap();
    assert!(server.read("g").unwrap() == noise(3000, 2));
    assert!(writer.checksum("/g").unwrap().starts_with("adler32 "), "what was uploaded can be compared");
    reader.close(read).unwrap();
    for client in [&mut reader, &mut writer] {
        client.finish();
        assert!(client.is_ended());
    }
    assert!(other.is_ended());
    drop((idle, reader, writer, other));
    let (summary, _) = server.stop();
    assert_eq!(summary.cut, 0);
}

#[test]
fn a_server_that_stops_does_not_wait_for_idle_clients() {
    let mut server = TestServer::with(|settings| {
        settings.deadlines.drain = Duration::from_secs(3600);
        settings.deadlines.drain_pause = Duration::from_millis(50);
    });
    server.write("f", noise(3000, 1));
    let mut client = RootClient::connect(server.address);
    let handle = client.open("/f", OpenOptions::READ).unwrap();
    assert_eq!(client.read(handle, 0, 3000).unwrap(), noise(3000, 1));
    server.begin_stop();
    assert!(client.is_ended());
    drop(client);
    let (summary, _) = server.stop();
    assert_eq!(summary.cut, 0);
}

/// A server with a certificate, and how to trust it.
fn with_tls() -> (tempfile::TempDir, TestServer, Arc<rustls::ClientConfig>) {
    let keys = tempfile::tempdir().unwrap();
    let (certificate, key) = tls::self_signed(keys.path(), &["localhost".to_owned()]).unwrap();
    let config = tls::server_config(&certificate, &key, false).unwrap();
    let server = TestServer::with(|settings| {
        settings.tls = Some(config);
        settings.service.exports[0].allow_write = true;
    });
    let trust = Trust { ca_files: vec![certificate], ..Trust::default() };
    (keys, server, tls::client_config(&trust).unwrap())
}

/// Asks for the protocol; what the server is.
fn flags(client: &mut RootClient, wanted: ClientFlags) -> ServerFlags {
    let asked = Protocol { version: 0x511, flags: wanted, expect: Expect::Login };
    ProtocolAnswer::parse(&client.ask(asked, &[]).unwrap().body).unwrap().flags
}

#[test]
fn tls_begins_in_place() {
    let (_keys, server, config) = with_tls();
    let bytes = noise(2_000_000, 3);
    server.write("f", &bytes);
    let mut plain = RootClient::stranger(server.address);
    let able = flags(&mut plain, ClientFlags::CAN_TLS);
    assert!(able.has(ServerFlags::HAS_TLS) && !able.has(ServerFlags::GOTO_TLS));
    plain.login();
    let mut client = RootClient::stranger(server.address);
    assert!(flags(&mut client, ClientFlags::CAN_TLS | ClientFlags::WANTS_TLS).has(ServerFlags::GOTO_TLS));
    let mut client = client.start_tls(config.clone());
    assert_eq!(client.login().status, Status::OK);
    let handle = client.open("/f", OpenOptions::READ).unwrap();
    assert!(client.read(handle, 0, 3_000_000).unwrap() == bytes);
    assert!(client.pgread(handle, 0, 3_000_000).unwrap() == bytes);
    assert!(client.read(handle, 70, 100).unwrap() == bytes[70..170]);
    let new = client.open("/new", OpenOptions(OpenOptions::NEW.0 | OpenOptions::UPDATE.0)).unwrap();
    client.write(new, 0, &bytes).unwrap();
    client.close(new).unwrap();
    assert!(server.read("new").unwrap() == bytes);
    // What joins an encrypted session has to be encrypted as well.
    let mut bound = RootClient::stranger(server.address);
    let bind = Bind { session: client.session };
    assert_eq!(bound.ask(bind.clone(), &[]).unwrap_err().0, ErrorCode::TLS_REQUIRED);
    flags(&mut bound, ClientFlags::CAN_TLS | ClientFlags::WANTS_TLS);
    let mut bound = bound.start_tls(config);
    assert_eq!(bound.ask(bind, &[]).unwrap().body, [1]);
    let read = client.send(Read { handle, offset: 5, len: 1_000_000, path_id: PathId(1) }, &[]);
    assert!(bound.answer_to(read).unwrap().body == bytes[5..1_000_005]);
}

/// XRootD's clients misread a page that crosses records: each record has whole pages, each with its checksum.
#[test]
fn records_end_where_pages_do() {
    let keys = tempfile::tempdir().unwrap();
    let (certificate, key) = tls::self_signed(keys.path(), &["localhost".to_owned()]).unwrap();
    let config = tls::server_config(&certificate, &key, false).unwrap();
    let trust = Trust { ca_files: vec![certificate], ..Trust::default() };
    let ours = tls::client_config(&trust).unwrap();
    // Neither what may be sent at a time nor a limit of the rate ends a record in the middle.
    for limit in [None, Some(30_000_000)] {
        let server = TestServer::with(|settings| {
            settings.tls = Some(config.clone());
            settings.limit_rate_bytes_per_s = limit;
        });
        let bytes = noise(5_000_000, 4);
        server.write("f", &bytes);
        let mut client = RootClient::stranger(server.address);
        flags(&mut client, ClientFlags::CAN_TLS | ClientFlags::WANTS_TLS);
        let mut client = client.start_tls(ours.clone());
        client.login();
        let handle = client.open("/f", OpenOptions::READ).unwrap();
        for (offset, len) in [(0, 4_999_999), (100, 3_000_000), (4090, 12), (4095, 70_000), (8192, 12_288)] {
            let read = PgRead { handle, offset, len, path_id: PathId::MAIN, is_retry: false };
            client.send(read, &[]);
            let (mut at, end) = (offset, offset + u64::from(len));
            while at < end {
                let mut record = client.next_record();
                while record.is_empty() {
                    record = client.next_record();
                }
                let mut rest = record.as_slice();
                // A message begins with a record.
                if rest[2..8] == [0x0f, 0xa7, 0, 0, 0, 24] {
                    rest = &rest[StatusAnswer::BYTES..];
                }
                while !rest.is_empty() {
                    let page = pages::page_len(at, end - at);
                    assert!(rest.len() >= 4 + page, "a page at {at} is cut: {} bytes are left", rest.len());
                    assert!(rest[4..4 + page] == bytes[at as usize..at as usize + page], "{at}");
                    rest = &rest[4 + page..];
                    at += page as u64;
                }
            }
        }
    }
}

#[test]
fn a_handshake_of_tls_that_never_comes_is_not_waited_for() {
    let keys = tempfile::tempdir().unwrap();
    let (certificate, key) = tls::self_signed(keys.path(), &["localhost".to_owned()]).unwrap();
    let config = tls::server_config(&certificate, &key, false).unwrap();
    let server = TestServer::with(|settings| {
        settings.tls = Some(config);
        // Longer than a busy machine takes for the first bytes.
        settings.deadlines.detect = 5 * SOON;
    });
    let mut client = RootClient::stranger(server.address);
    flags(&mut client, ClientFlags::WANTS_TLS);
    assert!(client.is_ended());
    let mut client = RootClient::stranger(server.address);
    flags(&mut client, ClientFlags::WANTS_TLS);
    client.send_bytes(&noise(100, 1));
    client.finish();
    // An alert, and the end.
    ends(client.stream);
}

#[test]
fn errors_have_words_that_end_in_a_nul() {
    let server = TestServer::start();
    let mut client = RootClient::connect(server.address);
    client.send(stat("/nope"), &[]);
    let answer = client.answer();
    assert_eq!((answer.status, answer.body.last()), (Status::ERROR, Some(&0)));
    let error = ErrorAnswer::parse(&answer.body).unwrap();
    assert_eq!(error.code, ErrorCode::NOT_FOUND);
    assert!(error.text.ends_with("no such file or directory"), "{}", error.text);
}
