//! What clients share: one that takes all it can get leaves enough for others, of everything that there is so much of.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::crowd::{connect, metrics};
use crate::support::root::RootClient;
use crate::support::{Client, TestServer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gridlane_auth::password::{Users, make_line};
use gridlane_core::Secret;
use gridlane_server::Settings;
use gridlane_share::Share;
use gridlane_store::fake::{FaultyStorage, Gate, SlowStorage};
use gridlane_store::{MemoryStorage, ObjectPath};
use gridlane_xrd::answer::ProtocolAnswer;
use gridlane_xrd::flags::{ClientFlags, DirlistOptions, OpenOptions, ServerFlags};
use gridlane_xrd::request::{Auth, Dirlist, Expect, Protocol, Query, Read, ReadV, Segment, Statx};
use gridlane_xrd::{ErrorCode, PathArg, QueryKind, Request, RequestHead, RequestId, Status, StreamId, ztn};

/// Longer than any wait of a passing test.
const PATIENCE: Duration = Duration::from_secs(60);

/// A deadline that is waited for.
const SOON: Duration = Duration::from_millis(300);

/// Clients that take all they can get are here, and others there.
const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 1));
const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));

fn with_admin(settings: &mut Settings) {
    settings.admin = Some("127.0.0.1:0".parse().unwrap());
}

fn used(server: &TestServer, budget: &str) -> u64 {
    metrics(server)[&format!("budget_used{{budget=\"{budget}\"}}")]
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A session from an address, if it is let in.
fn log_in(from: IpAddr, address: SocketAddr) -> Option<RootClient> {
    let mut stream = Client::from(from, address).stream;
    // The server may have closed it by now.
    stream.write_all(&gridlane_xrd::frame::HANDSHAKE).ok()?;
    let mut answer = [0; 16];
    stream.read_exact(&mut answer).ok()?;
    let mut client = RootClient::shaken(stream);
    (client.login().status == Status::OK).then_some(client)
}

/// GET from an address on a connection of its own.
fn get(from: IpAddr, server: &TestServer) -> u16 {
    Client::from(from, server.address).request("GET /f", "Connection: close\r\n").status()
}

#[test]
fn one_address_leaves_connections_to_others() {
    let server = TestServer::with(|settings| {
        settings.connections_max = 80;
        settings.deadlines.linger = SOON;
    });
    server.write("f", "x");
    // A quarter, by whichever protocol.
    let mut sessions: Vec<RootClient> =
        std::iter::from_fn(|| log_in(HERE, server.address)).take(100).collect();
    assert_eq!(sessions.len(), 20);
    assert_eq!(get(HERE, &server), 429);
    assert_eq!(get(THERE, &server), 200);
    log_in(THERE, server.address).unwrap().ping().unwrap();
    sessions.iter_mut().for_each(|session| session.ping().unwrap());
    drop(sessions);
    eventually("there is room again", || get(HERE, &server) == 200);
}

#[test]
fn one_address_has_as_many_connections_as_its_limit_says() {
    let server = TestServer::with(|settings| {
        settings.connections_max = 80;
        settings.client_limits.connections_max = Some(40);
    });
    let sessions: Vec<RootClient> = std::iter::from_fn(|| log_in(HERE, server.address)).take(100).collect();
    assert_eq!(sessions.len(), 40);
}

#[test]
fn one_protocol_leaves_connections_to_the_other() {
    let everything = |settings: &mut Settings| {
        settings.connections_max = 24;
        settings.client_limits.connections_max = Some(24);
        settings.deadlines.linger = SOON;
    };
    let server = TestServer::with(everything);
    server.write("f", "x");
    let sessions: Vec<RootClient> = std::iter::from_fn(|| log_in(HERE, server.address)).take(100).collect();
    assert_eq!(sessions.len(), 21);
    assert_eq!(get(HERE, &server), 200);
    drop(sessions);
    // And the other way round, on a server of its own.
    let server = TestServer::with(everything);
    server.write("f", "x");
    let mut held = Vec::new();
    loop {
        let mut client = Client::from(HERE, server.address);
        match client.request("GET /f", "").status() {
            200 => held.push(client),
            status => {
                assert_eq!(status, 503);
                break;
            }
        }
    }
    assert_eq!(held.len(), 21);
    assert!(log_in(HERE, server.address).is_some());
}

#[test]
fn sessions_that_hold_nothing_end_like_idle_connections() {
    let idle = Duration::from_secs(1);
    let site = crate::support::site::site(|settings| settings.deadlines.idle = idle);
    let token = site.iam.token("storage.read:/", 600);
    let mut proved = RootClient::stranger(site.server.address);
    let asked = Protocol { version: 0x511, flags: ClientFlags::CAN_TLS, expect: Expect::Login };
    let flags = ProtocolAnswer::parse(&proved.ask(asked, &[]).unwrap().body).unwrap().flags;
    assert!(flags.has(ServerFlags::GOTO_TLS));
    let mut proved = proved.start_tls(site.config(None));
    // Until a token is there the session is not idle, but about to begin.
    assert_eq!(proved.login().status, Status::OK);
    proved
        .ask(Auth { kind: ztn::NAME.to_vec(), credentials: ztn::encode(&Secret::new(token)) }, &[])
        .unwrap();

    let server = TestServer::start();
    server.write("f", "hello");
    let mut with_file = RootClient::connect(server.address);
    let handle = with_file.open("/f", OpenOptions::READ).unwrap();
    let mut without = RootClient::connect(server.address);
    // A session goes by it from its next request on: nothing is idle while all this begins.
    let mut next =
        gridlane_server::settings_of(vec!["127.0.0.1:0".parse().unwrap()], server.export().storage);
    next.deadlines.idle = idle;
    server.control().reload(next).unwrap();
    assert_eq!(with_file.read(handle, 0, 5).unwrap(), b"hello");
    without.ping().unwrap();
    assert!(without.is_ended());
    // The others have been silent for longer than that one.
    assert_eq!(with_file.read(handle, 0, 5).unwrap(), b"hello");
    proved.ping().unwrap();
    // What is closed is no reason to wait any longer.
    with_file.close(handle).unwrap();
    assert!(with_file.is_ended());
}

#[test]
fn one_address_leaves_open_files_to_others() {
    let server = TestServer::with(|settings| settings.shares.open_files = Share { all: 10, one: 4 });
    server.write("f", "hello");
    let mut sessions = [log_in(HERE, server.address).unwrap(), log_in(HERE, server.address).unwrap()];
    for number in 0..4 {
        sessions[number % 2].open("/f", OpenOptions::READ).unwrap();
    }
    for session in &mut sessions {
        let (code, text) = session.open("/f", OpenOptions::READ).unwrap_err();
        assert_eq!(code, ErrorCode::OVERLOADED);
        assert!(text.contains("this client has too many files open"), "{text}");
        // A directory that is being listed is one as well.
        let list = Dirlist { about: PathArg::parse(b"/"), options: DirlistOptions::NONE };
        assert_eq!(session.ask(list, &[]).unwrap_err().0, ErrorCode::OVERLOADED);
    }
    let mut others = log_in(THERE, server.address).unwrap();
    for _ in 0..4 {
        others.open("/f", OpenOptions::READ).unwrap();
    }
    drop(sessions);
    let mut again = log_in(HERE, server.address).unwrap();
    eventually("there is room again", || again.open("/f", OpenOptions::READ).is_ok());
}

/// The head of a request that announces so many bytes, and some of them.
fn half_of(len: u32, there: usize) -> Vec<u8> {
    let head =
        RequestHead { stream: StreamId([0, 9]), id: RequestId::STATX, body: [0; 16], payload_len: len };
    let mut bytes = head.encode().to_vec();
    bytes.resize(bytes.len() + there, b'a');
    bytes
}

#[test]
fn requests_that_are_half_there_share_their_memory() {
    const ONE: u64 = 512 * 1024;
    let server = TestServer::with(|settings| {
        with_admin(settings);
        settings.shares.root_memory_bytes = Share { all: 4 * ONE as usize, one: ONE as usize };
        settings.deadlines.head = PATIENCE;
    });
    server.write("f", "hello");
    // What is not read stays in the kernel.
    let mut half: Vec<RootClient> = (0..16).map(|_| log_in(HERE, server.address).unwrap()).collect();
    for client in &mut half {
        client.send_bytes(&half_of(2 << 20, 100 * 1024));
    }
    let (began, mut most) = (Instant::now(), 0);
    while most < ONE - 128 * 1024 || began.elapsed() < SOON {
        assert!(began.elapsed() < PATIENCE, "only {most} bytes");
        most = most.max(used(&server, "root_memory_bytes"));
    }
    assert!(most <= ONE, "{most}");
    // Small requests need none of it, and large ones of others have theirs.
    let small = |client: &mut RootClient, count: usize| {
        let answer = client.ask(Statx { paths: vec![b"/f".to_vec(); count] }, &[]).unwrap();
        assert_eq!(answer.body, vec![0; count]);
    };
    let mut same = log_in(HERE, server.address).unwrap();
    small(&mut same, 100);
    let mut other = log_in(THERE, server.address).unwrap();
    small(&mut other, 5000);
    drop(half);
    small(&mut same, 5000);
    drop((same, other));
    eventually("all is given back", || used(&server, "root_memory_bytes") == 0);
}

/// Lists of reads whose answers are not taken: each list takes memory until it was answered.
#[test]
fn requests_whose_answers_are_not_taken_share_their_memory() {
    const ONE: u64 = 512 * 1024;
    let server = TestServer::with(|settings| {
        with_admin(settings);
        settings.shares.root_memory_bytes = Share { all: 4 * ONE as usize, one: ONE as usize };
    });
    std::fs::File::create(server.path("big")).unwrap().set_len(64 << 20).unwrap();
    let mut stuck = Vec::new();
    for index in 0..8 {
        let stream = connect(server.address, 0, index, true);
        let mut client = RootClient::on(stream);
        client.login();
        let handle = client.open("/big", OpenOptions::READ).unwrap();
        let segments = vec![Segment { handle, len: 32 * 1024, offset: 0 }; 1024];
        let request = Request::from(ReadV { path_id: gridlane_xrd::PathId::MAIN, segments });
        // As many as the server lets it ask for.
        client.stream.set_write_timeout(Some(SOON)).unwrap();
        for _ in 0..200 {
            let bytes = client.encode(&request, 0);
            if client.stream.write_all(&bytes).is_err() {
                break;
            }
        }
        assert!(used(&server, "root_memory_bytes") <= ONE);
        stuck.push(client);
    }
    assert!(used(&server, "root_memory_bytes") > 0);
    let mut other = log_in(THERE, server.address).unwrap();
    let handle = other.open("/big", OpenOptions::READ).unwrap();
    assert_eq!(other.read(handle, 0, 1 << 20).unwrap().len(), 1 << 20);
}

#[test]
fn listings_that_are_not_read_leave_room_and_are_cut() {
    let storage = MemoryStorage::new();
    for number in 0..20_000 {
        let name = format!("{number:05}-{}", "x".repeat(200));
        storage.add_file(&ObjectPath::new([name.as_bytes()]).unwrap(), *b"");
    }
    let server = TestServer::of(Arc::new(storage), |settings| {
        with_admin(settings);
        settings.service.device.listing_bytes = Share { all: 4 << 20, one: 1 << 20 };
        settings.deadlines.listing_stall = Duration::from_secs(5);
    });
    let ask = "GET / HTTP/1.1\r\nHost: h\r\nAccept: application/json\r\nConnection: close\r\n\r\n";
    let mut stuck = Vec::new();
    // Where the machine is so busy that the first was cut before this was looked at, once more.
    eventually("both are there", || {
        let mut one = connect(server.address, 0, 0, true);
        one.write_all(ask.as_bytes()).unwrap();
        stuck.push(one);
        eventually("one is made", || used(&server, "listing_bytes") > 0);
        // One client more, elsewhere, is served meanwhile.
        let mut other = Client::from(THERE, server.address);
        other.send(ask);
        other.head();
        used(&server, "listing_bytes") == 2 << 20
    });
    // And another one of the same address when those before it were cut. Its turn may come too late.
    eventually("another one has a turn", || {
        let mut second = connect(server.address, 0, 1, false);
        second.write_all(ask.as_bytes()).unwrap();
        let mut page = Vec::new();
        let _ = second.read_to_end(&mut page);
        page.starts_with(b"HTTP/1.1 200 ") && page.trim_ascii_end().ends_with(b"]")
    });
    let (_, log) = server.stop();
    let is_cut =
        |record: &serde_json::Value| record["error"].as_str().is_some_and(|why| why.contains("took no byte"));
    assert!(log.iter().any(is_cut), "{log:?}");
}

#[test]
fn one_address_leaves_turns_at_the_disk_to_others() {
    let (storage, gate) = (MemoryStorage::new(), Gate::new());
    for name in ["slow", "f"] {
        storage.add_file(&ObjectPath::new([name.as_bytes()]).unwrap(), vec![1; 4096]);
    }
    gate.close();
    let server = TestServer::of(Arc::new(SlowStorage::new(storage, gate.clone())), |settings| {
        with_admin(settings);
        settings.service.device.operations = Share { all: 4, one: 2 };
    });
    let ask = |from: IpAddr| {
        let mut client = Client::from(from, server.address);
        client.send("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n");
        client
    };
    let here: Vec<Client> = (0..8).map(|_| ask(HERE)).collect();
    gate.wait_for_waiting(2);
    let there = ask(THERE);
    // Only if it is not behind those that were there before.
    gate.wait_for_waiting(3);
    assert_eq!(metrics(&server)["disk_operations_running"], 3);
    gate.open();
    for mut client in here.into_iter().chain([there]) {
        assert_eq!(client.response(false).body.len(), 4096);
    }
}

/// A file that two clients want the checksum of is not behind what only one of them wants.
#[test]
fn one_address_leaves_checksums_to_others() {
    let (storage, gate) = (MemoryStorage::new(), Gate::new());
    for name in ["slow", "shared"] {
        storage.add_file(&ObjectPath::new([name.as_bytes()]).unwrap(), vec![1; 4096]);
    }
    gate.close();
    let server = TestServer::of(Arc::new(SlowStorage::new(storage, gate.clone())), |settings| {
        with_admin(settings);
        settings.service.device.digests = Share { all: 2, one: 1 };
    });
    let ask = |from: IpAddr, name: &str| {
        let mut client = Client::from(from, server.address);
        client.send(format!("HEAD /{name} HTTP/1.1\r\nHost: h\r\nWant-Digest: md5\r\n\r\n"));
        client
    };
    let first = ask(HERE, "slow");
    gate.wait_for_waiting(1);
    let second = ask(HERE, "shared");
    eventually("it waits for its turn", || metrics(&server)["digests_running"] == 2);
    // By the permit of the last one, though the other one has asked before.
    let third = ask(THERE, "shared");
    gate.wait_for_waiting(2);
    assert_eq!(used(&server, "digests"), 2);
    gate.open();
    for mut client in [first, second, third] {
        let got = client.response(true);
        assert!(
            got.status() == 200 && got.field("digest").is_some_and(|it| it.starts_with("md5=")),
            "{got:?}"
        );
    }
    eventually("all is given back", || used(&server, "digests") == 0);
}

#[test]
fn checksums_that_are_not_wanted_any_longer_leave_nothing_behind() {
    let (storage, gate) = (MemoryStorage::new(), Gate::new());
    for number in 0..6 {
        let name = format!("f{number}");
        storage.add_file(&ObjectPath::new([name.as_bytes()]).unwrap(), vec![1; 4096]);
    }
    gate.close();
    let server = TestServer::of(Arc::new(SlowStorage::new(storage, gate.clone())), |settings| {
        with_admin(settings);
        settings.service.device.digests = Share { all: 1, one: 1 };
    });
    let head = |number| format!("HEAD /f{number} HTTP/1.1\r\nHost: h\r\nWant-Digest: md5\r\n\r\n");
    let running = || metrics(&server)["digests_running"];
    let mut first = server.connect();
    first.send(head(0));
    gate.wait_for_waiting(1);
    for number in 1..6 {
        let mut client = server.connect();
        client.send(head(number));
        eventually("it waits for its turn", || running() == 2);
        drop(client);
        eventually("it is not waited for", || running() == 1);
    }
    gate.open();
    assert_eq!(first.response(true).status(), 200);
}

#[test]
fn a_checksum_over_root_that_waits_is_an_open_file() {
    let (storage, gate) = (MemoryStorage::new(), Gate::new());
    for name in ["f", "g"] {
        storage.add_file(&ObjectPath::new([name.as_bytes()]).unwrap(), vec![1; 4096]);
    }
    gate.close();
    let server = TestServer::of(Arc::new(SlowStorage::new(storage, gate.clone())), |settings| {
        with_admin(settings);
        settings.shares.open_files = Share { all: 8, one: 2 };
    });
    let mut client = log_in(HERE, server.address).unwrap();
    let ask = |path: &str| Query::new(QueryKind::CHECKSUM, path);
    for path in ["/f?cks.type=md5", "/g?cks.type=md5"] {
        client.send(ask(path), &[]);
    }
    eventually("both have their file open", || used(&server, "root_files") == 2);
    let mut same = log_in(HERE, server.address).unwrap();
    assert_eq!(same.ask(ask("/f"), &[]).unwrap_err().0, ErrorCode::OVERLOADED);
    gate.open();
    eventually("all is given back", || used(&server, "root_files") == 0);
}

/// Parts of answers that wait for the disk have a buffer each.
#[test]
fn parts_that_wait_for_the_disk_share_their_memory() {
    const ONE: u64 = 512 * 1024;
    const CONNECTIONS: usize = 6;
    // What is covered by the part of one client, one that nothing was left for, and one of each other connection.
    const COLD_MAX: usize = 2 + CONNECTIONS;
    let (storage, gate) = (MemoryStorage::new(), Gate::new());
    storage.add_file(&ObjectPath::new([&b"f"[..]]).unwrap(), vec![1; 16 << 20]);
    gate.close();
    let server = TestServer::of(Arc::new(SlowStorage::new(storage, gate.clone())), |settings| {
        with_admin(settings);
        settings.shares.root_memory_bytes = Share { all: 4 * ONE as usize, one: ONE as usize };
        settings.service.device.operations = Share { all: 64, one: 64 };
    });
    let mut clients: Vec<RootClient> =
        (0..CONNECTIONS).map(|_| log_in(HERE, server.address).unwrap()).collect();
    for client in &mut clients {
        let handle = client.open("/f", OpenOptions::READ).unwrap();
        for part in 0..16 {
            let (offset, path_id) = (part << 20, gridlane_xrd::PathId::MAIN);
            client.send(Read { handle, offset, len: 1 << 20, path_id }, &[]);
        }
        // When this is answered, as much was begun with as there is memory for.
        client.ping().unwrap();
    }
    gate.wait_for_waiting(CONNECTIONS);
    clients.iter_mut().for_each(|client| client.ping().unwrap());
    let running = metrics(&server)["disk_operations_running"];
    assert!((CONNECTIONS..=COLD_MAX).contains(&(running as usize)), "{running} parts");
    assert!(used(&server, "root_memory_bytes") <= ONE);
    gate.open();
    for client in &mut clients {
        let mut len = 0;
        while len < 16 << 20 {
            len += client.answer().body.len();
        }
    }
}

#[test]
fn one_address_leaves_room_to_be_turned_away_to_others() {
    const SHARE: usize = 20;
    let told_max = gridlane_core::limits::TURNED_AWAY_MAX / gridlane_core::limits::CLIENT_PART;
    let server = TestServer::with(|settings| {
        with_admin(settings);
        settings.connections_max = 4 * SHARE;
        settings.deadlines.detect = PATIENCE;
    });
    server.write("f", "x");
    let sessions: Vec<RootClient> = std::iter::from_fn(|| log_in(HERE, server.address)).take(SHARE).collect();
    assert_eq!(sessions.len(), SHARE);
    // Each waits to be asked something, and then tells that there are too many.
    let silent: Vec<Client> = (0..told_max).map(|_| Client::from(HERE, server.address)).collect();
    eventually("all of them wait", || used(&server, "turned_away") == told_max as u64);
    assert!(Client::from(HERE, server.address).is_ended(), "closed without a word");
    // A client elsewhere that has too many is told.
    let others: Vec<RootClient> = std::iter::from_fn(|| log_in(THERE, server.address)).take(SHARE).collect();
    assert_eq!((others.len(), get(THERE, &server)), (SHARE, 429));
    drop((silent, sessions));
    eventually("there is room again", || used(&server, "turned_away") == 0 && get(HERE, &server) == 200);
}

/// However many requests are sent ahead.
#[test]
fn a_connection_of_http_has_one_file_open_at_a_time() {
    const REQUESTS: usize = 20;
    let (storage, gate) = (MemoryStorage::new(), Gate::new());
    storage.add_file(&ObjectPath::new([&b"f"[..]]).unwrap(), vec![1; 4096]);
    gate.close();
    let server = TestServer::of(Arc::new(SlowStorage::new(storage, gate.clone())), with_admin);
    let mut clients = [server.connect(), server.connect()];
    for client in &mut clients {
        client.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n".repeat(REQUESTS));
    }
    gate.wait_for_waiting(2);
    let metrics = metrics(&server);
    assert_eq!((metrics["disk_operations_running"], metrics["disk_operations_waiting"]), (2, 0));
    gate.open();
    for client in &mut clients {
        for _ in 0..REQUESTS {
            assert_eq!(client.response(false).body.len(), 4096);
        }
    }
}

#[test]
fn one_address_leaves_copies_of_directories_to_others() {
    let (storage, gate) = (MemoryStorage::new(), Gate::new());
    for directory in ["a", "b", "c"] {
        storage.add_directory(&ObjectPath::new([directory.as_bytes()]).unwrap());
        storage.add_file(&ObjectPath::new([directory.as_bytes(), &b"f"[..]]).unwrap(), vec![1; 4096]);
    }
    gate.close();
    let server = TestServer::of(Arc::new(SlowStorage::new(storage, gate.clone())), |settings| {
        with_admin(settings);
        settings.service.exports[0].allow_write = true;
        settings.service.device.copies = Share { all: 2, one: 1 };
    });
    let copy = |from: IpAddr, source: &str| {
        let mut client = Client::from(from, server.address);
        let line = format!("COPY /{source} HTTP/1.1\r\nHost: h\r\nDestination: /{source}{source}\r\n\r\n");
        client.send(line);
        client
    };
    let first = copy(HERE, "a");
    gate.wait_for_waiting(1);
    let second = copy(HERE, "b");
    let third = copy(THERE, "c");
    // Those that have a turn read a file.
    gate.wait_for_waiting(2);
    assert_eq!(used(&server, "copies"), 2);
    let begun = |name: &str| server.request(&format!("PROPFIND /{name}"), "Depth: 0\r\n").status() == 207;
    assert_eq!(["aa", "bb", "cc"].map(begun), [true, false, true]);
    gate.open();
    for mut client in [first, second, third] {
        assert_eq!(client.response(false).status(), 201);
    }
    assert_eq!(used(&server, "copies"), 0);
}

#[test]
fn silence_on_the_admin_address_holds_up_no_other_client() {
    let server = TestServer::with(with_admin);
    let admin = server.admin.unwrap();
    let mut silent: Vec<Client> = (0..40).map(|_| Client::from(HERE, admin)).collect();
    let mut other = Client::from(THERE, admin);
    other.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(other.response(false).status(), 200);
    // It was answered while the first of them were waited for.
    silent[0].stream.set_nonblocking(true).unwrap();
    let nothing = silent[0].stream.read(&mut [0]).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
}

#[test]
fn guessed_passwords_are_slowed_down_where_they_come_from() {
    let users = ["ada", "bob"].map(|name| make_line(name, "right", [7; 16], 4).unwrap()).join("\n");
    let server = TestServer::with(|settings| settings.auth.users = Arc::new(Users::parse(&users).unwrap()));
    server.write("f", "x");
    let ask = |from: IpAddr, name: &str, password: &str| {
        let credential = STANDARD.encode(format!("{name}:{password}"));
        Client::from(from, server.address)
            .request("GET /f", &format!("Authorization: Basic {credential}\r\n"))
    };
    let mut answers = (0..100).map(|number| ask(HERE, "ada", &format!("wrong {number}")));
    let told = answers.find(|answer| answer.status() != 401).unwrap();
    assert_eq!(told.status(), 429, "{}", told.text());
    assert!(told.field("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert!(told.text().contains("too many wrong passwords"), "{}", told.text());
    // The right one is not looked at there either, lest it be found; elsewhere it is, and others are here.
    assert_eq!(ask(THERE, "ada", "right").status(), 200);
    assert_eq!(ask(HERE, "bob", "right").status(), 200);
    // What was right once is known.
    assert_eq!(ask(HERE, "ada", "right").status(), 200);
}

/// Programs that send all of a body before they look for an answer find the answer, and not a broken connection.
#[test]
fn an_upload_to_a_full_disk_gets_its_answer() {
    const BYTES: usize = 24 << 20;
    let storage = FaultyStorage::new(MemoryStorage::new(), 1 << 20);
    let server = TestServer::of(Arc::new(storage), |settings| {
        settings.service.exports[0].allow_write = true;
        settings.service.exports[0].upload_bytes_max = 1 << 30;
    });
    let body = vec![7; BYTES];
    for round in 0..20 {
        let mut client = server.connect();
        let fields = match round % 2 {
            0 => format!("Content-Length: {BYTES}\r\n\r\n"),
            _ => format!("Transfer-Encoding: chunked\r\n\r\n{BYTES:x}\r\n"),
        };
        client.send(format!("PUT /f{round} HTTP/1.1\r\nHost: h\r\n{fields}"));
        client.send(&body);
        if round % 2 == 1 {
            client.send("\r\n0\r\n\r\n");
        }
        assert_eq!(client.response(false).status(), 507);
        assert!(client.is_ended());
    }
    // The same where the head alone tells.
    for size in [2_u64 << 30, 1 << 40] {
        let mut client = server.connect();
        client.send(format!("PUT /g HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n"));
        client.send(&body);
        assert_eq!(client.response(false).status(), 413);
    }
}

/// A client that goes on for ever, or sends nothing more, is not waited for.
#[test]
fn a_refused_body_is_not_read_for_ever() {
    let server = TestServer::with(|settings| {
        settings.deadlines.linger = SOON;
        settings.deadlines.linger_whole = 2 * SOON;
    });
    let refused = "PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000000\r\n\r\n";
    let mut silent = server.connect();
    silent.send(refused);
    assert_eq!(silent.response(false).status(), 403);
    let mut endless = TcpStream::connect(server.address).unwrap();
    endless.set_write_timeout(Some(PATIENCE)).unwrap();
    endless.write_all(refused.as_bytes()).unwrap();
    let began = Instant::now();
    while endless.write_all(&[7; 65_536]).is_ok() {
        assert!(began.elapsed() < PATIENCE, "it is read for ever");
    }
    // Until here both are open, as far as the silent one knows.
    assert!(silent.is_ended());
    let (summary, _) = server.stop();
    assert_eq!(summary.cut, 0);
}
