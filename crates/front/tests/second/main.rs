//! A service that has nothing to do with storage, on the front: it gets TLS, tokens, throttles, logs, reload and drain from
//! it, over HTTP and over root://.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod book;
#[allow(dead_code, reason = "each test program uses its part")]
#[path = "../../../server/tests/it/support/iam.rs"]
mod iam;
mod later;
#[allow(dead_code, reason = "each test program uses its part")]
#[path = "../../../server/tests/it/support/root.rs"]
mod root;
mod site;
#[path = "../../../server/tests/it/support/text.rs"]
mod text;

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use gridlane_core::{Secret, limits};
use gridlane_front::ClientLimits;
use gridlane_xrd::request::Auth;
use gridlane_xrd::{ErrorCode, Handle, Status, ztn};

use crate::root::RootClient;
use crate::site::{Site, query, word};

/// A client whose token is not asked for.
fn unproved(mut client: RootClient) -> RootClient {
    client.login();
    let credentials = b"unix\0tester users\0".to_vec();
    client.ask(Auth { kind: b"unix".to_vec(), credentials }, &[]).unwrap();
    client
}

/// An anonymous session in clear text.
fn anyone(site: &Site) -> RootClient {
    unproved(RootClient::stranger(site.address))
}

#[test]
fn names_are_looked_up_in_clear_text_and_over_tls() {
    let site = Site::start();
    assert_eq!(site.http().get("/public/name", ""), (200, "first".to_owned()));
    assert_eq!(site.https().get("/public/name", ""), (200, "first".to_owned()));
    assert_eq!(site.http().get("/public/other", "").0, 404);
    for mut client in [anyone(&site), unproved(site.roots())] {
        assert_eq!(word(client.ask(query("/public/name"), &[])), "first");
        assert_eq!(client.ask(query("/public/other"), &[]).unwrap_err().0, ErrorCode::NOT_FOUND);
        client.ping().unwrap();
    }
}

/// It has no files and takes no data: what comes all the same is dropped, and the session goes on.
#[test]
fn data_and_reads_are_refused_where_there_are_no_files() {
    let site = Site::start();
    let mut client = anyone(&site);
    let handle = Handle::default();
    assert_eq!(client.write(handle, 0, &[1; 10_000]).unwrap_err().0, ErrorCode::UNSUPPORTED);
    assert_eq!(client.read(handle, 0, 10).unwrap_err().0, ErrorCode::FILE_NOT_OPEN);
    assert_eq!(word(client.ask(query("/public/name"), &[])), "first");
}

#[test]
fn a_token_names_the_requester() {
    let site = Site::start();
    let token = site.token();
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let mut https = site.https();
    assert_eq!(https.get("/members/name", "").0, 401);
    assert_eq!(https.get("/members/name", &bearer), (200, "first".to_owned()));
    assert_eq!(https.get("/members/name", "Authorization: Bearer eyJ.a.b\r\n").0, 401);
    // From this machine it is taken in clear text as well, and from nowhere else.
    assert_eq!(site.http().get("/members/name", &bearer).0, 200);

    let mut stranger = unproved(site.roots());
    assert_eq!(stranger.ask(query("/members/name"), &[]).unwrap_err().0, ErrorCode::NOT_AUTHORIZED);
    let with_token = format!("/members/name?authz=Bearer%20{token}");
    assert_eq!(word(stranger.ask(query(&with_token), &[])), "first");
    let mut known = site.roots();
    known.login();
    let proof = Auth { kind: ztn::NAME.to_vec(), credentials: ztn::encode(&Secret::new(token.clone())) };
    known.ask(proof, &[]).unwrap();
    assert_eq!(word(known.ask(query("/members/name"), &[])), "first");
    drop((stranger, known, https));
    let (_, log) = site.stop();
    assert!(!format!("{log:?}").contains(token.rsplit('.').next().unwrap()));
}

#[test]
fn a_client_over_its_limit_waits() {
    let site = Site::with(|settings| {
        settings.client_limits = ClientLimits { requests_per_s: Some(1), ..ClientLimits::default() };
    });
    let mut http = site.http();
    assert_eq!(http.get("/public/name", "").0, 200);
    // However slow the machine is, two of them come within a second.
    assert!((0..1000).any(|_| http.get("/public/name", "").0 == 429));
    let mut root = anyone(&site);
    assert!((0..1000).any(|_| root.ask(query("/public/name"), &[]).unwrap().status == Status::WAIT));
}

#[test]
fn requests_are_logged_and_counted() {
    let site = Site::start();
    let token = site.token();
    let bearer = format!("Authorization: Bearer {token}\r\n");
    assert_eq!(site.https().get("/members/name", &bearer).0, 200);
    assert_eq!(anyone(&site).ask(query("/members/name"), &[]).unwrap_err().0, ErrorCode::NOT_AUTHORIZED);
    let lines = [
        "gridlane_requests_total{method=\"GET\",status=\"2xx\"} 1",
        "gridlane_root_requests_total{request=\"query\",outcome=\"error\"} 1",
        "gridlane_auth_requests_total{method=\"token\"} 1",
    ];
    let began = Instant::now();
    loop {
        let (status, page) = site::http_at(site.admin).get("/metrics", "");
        assert_eq!(status, 200);
        if lines.iter().all(|line| page.lines().any(|other| other == *line)) {
            break;
        }
        // Requests are counted after their answers.
        assert!(began.elapsed() < Duration::from_secs(90), "{lines:?} are not all in\n{page}");
    }
    let (summary, log) = site.stop();
    assert!(summary.requests >= 2, "{summary:?}");
    let of = |method: &str| log.iter().find(|record| record["method"] == method).unwrap().clone();
    let got = of("GET");
    assert_eq!((&got["path"], &got["status"]), (&"/members/name".into(), &200.into()));
    assert_eq!((&got["identity"]["kind"], &got["operation"]), (&"token".into(), &"read".into()));
    assert!(got["decision"].as_str().unwrap().contains("known"), "{got}");
    let asked = of("root:query.xattr");
    assert_eq!(
        (&asked["path"], &asked["status"]),
        (&"/members/name".into(), &ErrorCode::NOT_AUTHORIZED.0.into())
    );
}

#[test]
fn a_reload_holds_from_the_next_request_on() {
    let site = Site::start();
    let (mut http, mut root) = (site.http(), anyone(&site));
    assert_eq!(http.get("/public/name", "").1, "first");
    assert_eq!(word(root.ask(query("/public/name"), &[])), "first");
    // What runs goes on by the settings that it began with.
    let closed = site.close();
    http.send("/public/name", "");
    let asked = root.send(query("/public/name"), &[]);
    site.wait_for_asked(4);
    site.reload("second");
    drop(closed);
    assert_eq!(http.answer().1, "first");
    assert_eq!(word(root.answer_to(asked)), "first");
    assert_eq!(http.get("/public/name", "").1, "second");
    assert_eq!(word(root.ask(query("/public/name"), &[])), "second");
}

#[test]
fn a_server_that_stops_answers_requests_that_began() {
    let mut site = Site::start();
    let (mut http, mut idle, mut root) = (site.http(), site.http(), anyone(&site));
    assert_eq!(idle.get("/public/name", "").0, 200);
    let closed = site.close();
    http.send("/public/name", "");
    let asked = root.send(query("/public/name"), &[]);
    site.wait_for_asked(3);
    site.begin_stop();
    // A client that asks nothing is let go at once, and no other gets in.
    assert!(idle.is_ended());
    drop(idle);
    let began = Instant::now();
    while std::net::TcpStream::connect(site.address).is_ok() {
        assert!(began.elapsed() < Duration::from_secs(90), "it still listens");
    }
    drop(closed);
    let (head, text) = http.answer();
    assert_eq!((head.status.code(), text.as_str()), (200, "first"));
    assert_eq!(head.headers.single("connection"), Some("close"));
    assert_eq!(word(root.answer_to(asked)), "first");
    assert!(http.is_ended() && root.is_ended());
    drop((http, root));
    let (summary, _) = site.stop();
    assert_eq!(summary.cut, 0);
}

/// More than a device has turns, and than the server has threads.
const STREAMS: usize = limits::DISK_OPERATIONS_MAX + 6;

#[test]
fn payloads_that_wait_hold_nothing() {
    let site = Site::start();
    let mut streams: Vec<_> = (0..STREAMS).map(|_| site.http()).collect();
    for stream in &mut streams {
        stream.send("/public/name/", "");
        stream.read_to("first\r\n");
    }
    // All of them wait, and whatever else is asked for is answered.
    assert_eq!(site.http().get("/public/name", "").0, 200);
    assert_eq!(word(anyone(&site).ask(query("/public/name"), &[])), "first");
    site.end(STREAMS);
    for stream in &mut streams {
        stream.read_to(", and that is all\r\n0\r\n\r\n");
    }
}

/// Whatever makes an answer piece by piece hears that nobody waits for it, also where not even the head could be sent.
#[test]
fn one_that_left_before_the_head_of_an_answer_has_left_it() {
    let site = Site::start();
    let client = TcpStream::connect(site.address).unwrap();
    let ask = |mut client: &TcpStream, path: &str| {
        write!(client, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    };
    ask(&client, "/public/name");
    // Closed with an answer that was not taken, the connection is reset, and not ended.
    assert_eq!(client.peek(&mut [0; 1]).unwrap(), 1);
    let held = site.close();
    ask(&client, "/public/name/");
    site.wait_for_asked(2);
    drop(client);
    drop(held);
    site.wait_for_one_that_left();
}
