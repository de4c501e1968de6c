//! What an operator decides and sees: rules, names, proxies, throttles, reloads, the drain, the admin address, the
//! audit log.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{Client, TestServer, Text, wait};
use gridlane_auth::policy::{Principal, Template};
use gridlane_auth::{Grants, Policy, Rule};
use gridlane_core::Network;
use gridlane_dav::{ResourcePath, Status};
use gridlane_front::{AccessLog, ClientLimits, LogLevel};
use gridlane_net::TrustedProxies;
use gridlane_server::{Export, Settings, open_to_anyone};
use gridlane_store::journal_key::JournalKeys;
use gridlane_store::{Completion, Expectation, MemoryStorage, ObjectPath};

fn rule(networks: &str, may: Grants, under: &str) -> Rule {
    Rule {
        name: format!("{networks} {under}"),
        who: Principal { networks: Network::parse_list([networks]).unwrap(), ..Principal::anyone() },
        may,
        under: Template::parse(under).unwrap(),
    }
}

fn policy(rules: impl Into<Vec<Rule>>) -> Arc<Policy> {
    Arc::new(Policy::new(rules.into()))
}

const READS: Grants = Grants::READ;
const LISTS: Grants = Grants::LIST;
const ALL: Grants = READS.with(LISTS).with(Grants::WRITE).with(Grants::DELETE);

#[test]
fn rules_decide_by_client_operation_and_path() {
    let server = TestServer::with(|settings| {
        settings.service.exports[0].allow_write = true;
        settings.policy = policy([
            rule("any", READS, "/public"),
            rule("loopback", LISTS, "/names"),
            rule("loopback", ALL, "/in"),
            rule("loopback", READS.with(Grants::WRITE), "/keep"),
            rule("192.0.2.0/24", ALL, "/"),
        ]);
    });
    for directory in ["public", "names", "in", "keep", "in/sub", "keep/sub"] {
        std::fs::create_dir(server.path(directory)).unwrap();
        server.write(&format!("{directory}/f"), b"x");
    }
    server.write("f", b"x");
    let put = "Content-Length: 0\r\n";
    let to = |path: &str| format!("Destination: {path}\r\n");
    for (line, fields, expected) in [
        ("GET /public/f", String::new(), 200),
        ("GET /public/none", String::new(), 404),
        ("GET /public/", String::new(), 403),
        ("PUT /public/g", put.into(), 403),
        ("GET /names/", String::new(), 200),
        ("GET /names/f", String::new(), 403),
        ("GET /f", String::new(), 403),
        ("GET /none", String::new(), 403),
        ("GET /", String::new(), 403),
        ("PUT /in/g", put.into(), 201),
        ("PUT /keep/g", put.into(), 201),
        ("PUT /keep/g", put.into(), 204),
        ("DELETE /keep/g", String::new(), 403),
        ("DELETE /in/g", String::new(), 204),
        ("PROPFIND /names", "Depth: 1\r\n".into(), 207),
        ("PROPFIND /public", "Depth: 1\r\n".into(), 403),
        ("PROPFIND /public", "Depth: 0\r\n".into(), 207),
        ("PROPFIND /names/f", "Depth: 0\r\n".into(), 207),
        ("PROPFIND /f", "Depth: 0\r\n".into(), 403),
        ("COPY /public/f", to("/in/c"), 201),
        ("COPY /public", to("/in/all"), 403),
        ("COPY /public/f", to("/public/c"), 403),
        ("COPY /names/f", to("/in/n"), 403),
        ("COPY /in/sub", to("/keep/sub"), 403),
        ("MOVE /keep/f", to("/in/k"), 403),
        ("MOVE /in/c", to("/keep/c"), 201),
        ("MKCOL /in/new", String::new(), 201),
        ("MKCOL /new", String::new(), 403),
    ] {
        let got = server.request(line, &fields);
        assert_eq!(got.status(), expected, "{line} {fields}: {}", got.text());
    }
    assert!(server.path("keep/sub/f").exists());
    // A name is not the bytes: their checksum needs the right to read them.
    let storage = server.export().storage;
    let body = "<propfind xmlns='DAV:'><prop><checksums xmlns='http://owncloud.org/ns'/></prop></propfind>";
    for (directory, is_told) in [("names", false), ("in", true)] {
        let path = ObjectPath::new([directory.as_bytes(), b"told"]).unwrap();
        let checksums = vec!["adler32:00790079".parse().unwrap()];
        let completion = Completion { checksums, ..Expectation::Absent.into() };
        wait(async {
            let upload = storage.create(&path, Some(1)).await.unwrap();
            upload.write_at(b"x", 0).await.unwrap();
            upload.commit(&completion).await.unwrap();
        });
        let head = format!("PROPFIND /{directory}/ HTTP/1.1\r\nHost: h\r\nDepth: 1\r\nContent-Length: ");
        let text = server.ask(&format!("{head}{}\r\n\r\n{body}", body.len())).text();
        assert_eq!(text.contains("ADLER32:00790079"), is_told, "{directory}: {text}");
    }
}

#[test]
fn a_reload_counts_from_the_next_request_on() {
    let storage = |name: &str| {
        let storage = MemoryStorage::new();
        storage.add_file(&ObjectPath::new([name.as_bytes()]).unwrap(), b"x".to_vec());
        Arc::new(storage)
    };
    let old = storage("old");
    let replaced = Arc::downgrade(&old);
    let server = TestServer::of(old, |_| {});
    let mut client = server.connect();
    assert_eq!(client.request("GET /old", "").status(), 200);
    let settings = |exports: Vec<Export>| {
        let mut settings = Settings::new(vec!["127.0.0.1:0".parse().unwrap()], Default::default());
        settings.service.exports = exports;
        settings.policy = policy([open_to_anyone("anyone", &ResourcePath::root(), false)]);
        settings.host_names = vec!["h".to_owned()];
        settings
    };
    let under =
        |path: &str| Export { path: ResourcePath::parse(path).unwrap(), ..Export::new(storage("new")) };
    let control = server.control();
    assert!(control.reload(settings(vec![under("/a"), under("/a/b")])).is_err());
    assert_eq!(client.request("GET /old", "").status(), 200, "a configuration that is wrong changes nothing");
    let mut next = settings(vec![under("/a")]);
    next.admin = Some("127.0.0.1:0".parse().unwrap());
    assert_eq!(control.reload(next).unwrap(), ["admin"]);
    assert_eq!(client.request("GET /old", "").status(), 404);
    assert_eq!(client.request("GET /a/new", "").status(), 200);
    // Exports that are not served any longer are neither kept open nor tidied.
    let began = Instant::now();
    while replaced.strong_count() > 0 {
        assert!(began.elapsed() < Duration::from_secs(30));
        std::thread::yield_now();
    }
}

#[test]
fn trusted_proxies_name_the_client() {
    let server = TestServer::with(|settings| {
        settings.proxies.trusted = Network::parse_list(["loopback"]).unwrap();
        settings.policy = policy([rule("192.0.2.0/24", READS, "/")]);
    });
    server.write("f", b"x");
    let get = "GET /f HTTP/1.1\r\nHost: any.example\r\n\r\n";
    let mut binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    binary.extend([192, 0, 2, 9, 10, 0, 0, 1, 0, 99, 0, 80]);
    let mut local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".to_vec();
    local.extend(get.as_bytes());
    binary.extend(get.as_bytes());
    for (bytes, expected) in [
        (format!("PROXY TCP4 192.0.2.7 10.0.0.1 4711 80\r\n{get}").into_bytes(), 200),
        (binary, 200),
        (format!("PROXY TCP4 198.51.100.7 10.0.0.1 4711 80\r\n{get}").into_bytes(), 403),
        (format!("PROXY TCP4 127.0.0.1 10.0.0.1 4711 80\r\n{get}").into_bytes(), 403),
        (format!("PROXY UNKNOWN\r\n{get}").into_bytes(), 403),
        (local, 403),
    ] {
        let mut client = server.connect();
        // In pieces, as a network may deliver them.
        for byte in bytes.chunks(5) {
            client.send(byte);
        }
        let got = client.response(false);
        assert_eq!(got.status(), expected, "{}: {}", String::from_utf8_lossy(&bytes), got.text());
    }
    // A connection without the header is not served, and neither is one with nonsense.
    for bytes in [get, "PROXY TCP4 nonsense\r\nGET / HTTP/1.1\r\n\r\n", "PROXX"] {
        let mut client = server.connect();
        client.send(bytes);
        assert!(client.is_ended(), "{bytes}");
    }
    let (_, log) = server.stop();
    assert_eq!(log.len(), 6);
    assert_eq!(log.iter().filter(|record| record["peer"] == "192.0.2.7:4711").count(), 1);
    assert!(log.iter().all(|record| record["proxy"].as_str().unwrap().starts_with("127.0.0.1:")));
}

#[test]
fn only_trusted_proxies_are_believed_and_a_page_on_this_machine_gains_nothing() {
    let optional = TestServer::with(|settings| {
        settings.proxies =
            TrustedProxies { trusted: Network::parse_list(["127.0.0.1"]).unwrap(), may_be_silent: true };
    });
    // Silent is allowed there; then it is a client of this machine, which has to know our name.
    assert_eq!(optional.request("GET /", "").status(), 200);
    assert_eq!(optional.ask("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").status(), 421);
    let mut client = optional.connect();
    client.send("PRO");
    client.send("PFIND / HTTP/1.1\r\nHost: h\r\nDepth: 0\r\n\r\n");
    assert_eq!(client.response(false).status(), 207);
    // No proxy is trusted: a header is garbage.
    let server = TestServer::start();
    let got = server.ask("PROXY TCP4 192.0.2.7 10.0.0.1 4711 80\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(matches!(got.status(), 400 | 505), "{}", got.text());
    // A name that is not ours stays foreign whatever a request says of its origin.
    let forwarded = TestServer::with(|settings| {
        settings.trusted_forwarders = Network::parse_list(["loopback"]).unwrap();
        settings.policy = policy([rule("192.0.2.0/24", READS, "/")]);
    });
    forwarded.write("f", b"x");
    let status = |fields: &str| forwarded.request("GET /f", fields).status();
    assert_eq!(status("X-Forwarded-For: 192.0.2.7\r\n"), 200);
    assert_eq!(status("X-Forwarded-For: 192.0.2.7, 198.51.100.1\r\n"), 403);
    assert_eq!(status("Forwarded: for=192.0.2.7\r\n"), 200);
    assert_eq!(status(""), 403);
    let evil = "GET /f HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-For: 192.0.2.7\r\n\r\n";
    assert_eq!(forwarded.ask(evil).status(), 421);
    let (_, log) = forwarded.stop();
    assert!(log.iter().any(|record| record["client"] == "192.0.2.7"));
    let unbelieved = TestServer::start();
    unbelieved.request("GET /", "X-Forwarded-For: 192.0.2.7\r\n");
    assert_eq!(unbelieved.stop().1[0].get("client"), None);
}

#[test]
fn a_client_has_its_share_and_others_have_theirs() {
    let limited = |limits: ClientLimits| {
        TestServer::with(move |settings| {
            settings.client_limits = limits;
            settings.service.exports[0].allow_write = true;
            settings.trusted_forwarders = Network::parse_list(["127.0.0.1"]).unwrap();
            settings.deadlines.linger = Duration::from_millis(100);
            settings.deadlines.drain = Duration::from_millis(100);
        })
    };
    // One request in an age, so that the machine's speed does not matter.
    let server = limited(ClientLimits { requests_per_s: Some(1), ..ClientLimits::default() });
    let mut client = server.connect();
    assert_eq!(client.request("GET /", "").status(), 200);
    // All at once; and once more where the machine took a second for each of them.
    let mut burst = || {
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n".repeat(20));
        let answers: Vec<_> = (0..20).map(|_| client.response(false)).collect();
        answers.into_iter().find(|got| got.status() == 429)
    };
    let refused = (0..10).find_map(|_| burst()).unwrap();
    refused.assert_refused(Status::TOO_MANY_REQUESTS, "too many requests");
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert_eq!(client.request("GET /", "X-Forwarded-For: 192.0.2.7\r\n").status(), 200);

    let server = limited(ClientLimits { connections_max: Some(2), ..ClientLimits::default() });
    let from = |source: &str| Client::from(source.parse().unwrap(), server.address);
    let mut kept = [from("127.0.0.2"), from("127.0.0.2")];
    for client in &mut kept {
        assert_eq!(client.request("GET /", "").status(), 200);
    }
    let refused = from("127.0.0.2").request("GET /", "");
    refused.assert_refused(Status::TOO_MANY_REQUESTS, "connections");
    assert!(!refused.head.keeps_alive());
    assert_eq!(from("127.0.0.3").request("GET /", "").status(), 200);
    // Connections of a proxy that speaks for many count for no client.
    let mut many = [server.connect(), server.connect(), server.connect()];
    for client in &mut many {
        assert_eq!(client.request("GET /", "X-Forwarded-For: 192.0.2.7\r\n").status(), 200);
    }

    // A client that has used up the rate for longer than any test waits is not the proxy that stands between.
    let server = limited(ClientLimits { bytes_per_s: Some(10_000), ..ClientLimits::default() });
    server.write("f", crate::support::noise(1_000_000, 1));
    server.write("small", b"x");
    let mut greedy = server.connect();
    greedy.send("GET /f HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.7\r\n\r\n");
    greedy.head();
    greedy.take(100_000);
    let mut modest = server.connect();
    for _ in 0..3 {
        assert_eq!(modest.request("GET /small", "X-Forwarded-For: 192.0.2.8\r\n").body, b"x");
    }

    const RATE: u64 = 2_000_000;
    let server = limited(ClientLimits { bytes_per_s: Some(RATE), ..ClientLimits::default() });
    server.write("f", crate::support::noise(1_000_000, 1));
    let began = Instant::now();
    assert_eq!(server.request("GET /f", "").body.len(), 1_000_000);
    let mut client = server.connect();
    client.send("PUT /g HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
    client.send(crate::support::noise(1_000_000, 2));
    assert_eq!(client.response(false).status(), 201);
    // Both directions share it. The receiver of the last piece does not wait for it.
    assert!(began.elapsed() >= Duration::from_millis(500), "{:?}", began.elapsed());
}

#[test]
fn the_admin_address_tells_how_it_goes() {
    let mut server = TestServer::with(|settings| {
        settings.admin = Some("127.0.0.1:0".parse().unwrap());
        settings.service.exports[0].allow_write = true;
        settings.deadlines.drain_delay = Duration::from_secs(3600);
    });
    server.write("f", b"0123456789");
    let admin = server.admin.unwrap();
    let ask = |request: &str| {
        let mut client = Client::connect(admin);
        client.send(request);
        client.response(request.starts_with("HEAD "))
    };
    let get = |path: &str| ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    assert_eq!((get("/healthz").status(), get("/readyz").status()), (200, 200));
    // Another directory where the served one was.
    let place = server.path("f").parent().unwrap().to_owned();
    let aside = place.with_extension("aside");
    std::fs::rename(&place, &aside).unwrap();
    // What takes too long to be found out is as it was before.
    let begun = Instant::now();
    let unready = loop {
        let told = get("/readyz");
        if told.status() == 503 || begun.elapsed() > Duration::from_secs(30) {
            break told;
        }
    };
    assert_eq!((unready.status(), get("/healthz").status()), (503, 200));
    assert!(unready.text().contains("taken the place of export /"), "{}", unready.text());
    std::fs::rename(&aside, &place).unwrap();
    let begun = Instant::now();
    while get("/readyz").status() != 200 {
        assert!(begun.elapsed() < Duration::from_secs(30), "it is still not ready");
    }
    assert_eq!(server.request("GET /f", "").status(), 200);
    assert_eq!(server.request("GET /none", "").status(), 404);
    // A request is counted when its answer is out, which the client may see a moment earlier.
    let (mut page, began) = (get("/metrics"), Instant::now());
    while !["2xx", "4xx"].iter().all(|class| {
        page.text().contains(&format!("gridlane_requests_total{{method=\"GET\",status=\"{class}\"}} 1\n"))
    }) {
        assert!(began.elapsed() < Duration::from_secs(30), "{}", page.text());
        page = get("/metrics");
    }
    assert_eq!(
        page.field("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    let text = page.text();
    for line in [
        "gridlane_requests_total{method=\"GET\",status=\"2xx\"} 1",
        "gridlane_requests_total{method=\"GET\",status=\"4xx\"} 1",
        "gridlane_export_quota_bytes{export=\"/\",kind=\"used\"}",
        "gridlane_ready 1",
    ] {
        assert!(text.contains(line), "no {line} in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    assert_eq!(get("/f").status(), 404);
    assert_eq!(ask("PUT /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").status(), 405);
    assert_eq!(ask("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n").status(), 421);
    assert_eq!(ask("nonsense\r\n\r\n").status(), 400);
    // Draining: still served, and load balancers are told to send clients elsewhere.
    let mut kept = server.connect();
    assert!(kept.request("GET /f", "").head.keeps_alive());
    server.begin_stop();
    let began = Instant::now();
    while get("/readyz").status() != 503 {
        assert!(began.elapsed() < Duration::from_secs(30));
    }
    assert_eq!(get("/healthz").status(), 200);
    let got = kept.request("GET /f", "");
    assert_eq!((got.status(), got.field("connection")), (200, Some("close")));
    let got = server.request("GET /f", "");
    assert_eq!((got.status(), got.field("connection")), (200, Some("close")));
    server.abandon();
}

/// The page says what every family is, and has no other.
#[test]
fn the_metrics_page_is_documented() {
    let server = TestServer::with(|settings| {
        settings.admin = Some("127.0.0.1:0".parse().unwrap());
        settings.certificate_expires = Some(std::time::SystemTime::now());
        let dialer = gridlane_net::Dialer::new(gridlane_net::tls::Trust::default());
        let client = gridlane_peer::Client::new(dialer, Duration::from_secs(1));
        settings.service.third_party =
            Some(gridlane_server::ThirdPartySettings::new(client, JournalKeys::default()));
    });
    let mut client = Client::connect(server.admin.unwrap());
    client.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let text = client.response(false).text();
    let mut exported: Vec<(String, String)> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|line| line.split_once(' ').unwrap())
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect();
    exported.sort();
    let page = include_str!("../../../../docs/reference/metrics.md");
    let mut documented: Vec<(String, String)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `gridlane_"))
        .map(|row| {
            let (name, rest) = row.split_once("` | ").unwrap();
            (format!("gridlane_{name}"), rest.split(' ').next().unwrap().to_owned())
        })
        .collect();
    documented.sort();
    assert_eq!(exported, documented);
    // And every sample belongs to a family.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split([' ', '{']).next().unwrap();
        let is_known = exported.iter().any(|(family, kind)| {
            let suffixes: &[&str] = match kind.as_str() {
                "counter" => &["_total"],
                "gauge" => &[""],
                "histogram" => &["_bucket", "_sum", "_count"],
                "info" => &["_info"],
                other => panic!("{other}"),
            };
            suffixes.iter().any(|suffix| name == format!("{family}{suffix}"))
        });
        assert!(is_known, "{line}");
    }
}

#[test]
fn requests_have_ids_and_changes_are_audited() {
    let audit = Text::default();
    let audit_too = audit.clone();
    let server = TestServer::with(|settings| {
        settings.service.exports[0].allow_write = true;
        settings.access_log_level = LogLevel::Failures;
        settings.audit_log = AccessLog::to_writer(audit_too);
    });
    server.write("f", b"x");
    let mut client = server.connect();
    let first = client.request("GET /f", "");
    let second =
        client.request("GET /none", "X-Request-Id: job-7 \u{e9}\r\nClientInfo: job-id=1;file-id=2\r\n");
    let (first, second) =
        (first.field("x-request-id").unwrap().to_owned(), second.field("x-request-id").unwrap().to_owned());
    assert_ne!(first, second);
    let moved = client.request("MOVE /f", "Destination: /g?authz=secret\r\n");
    assert!(matches!(moved.status(), 201 | 400), "{}", moved.text());
    client.send("PUT /h HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(client.response(false).status(), 201);
    assert_eq!(client.request("DELETE /none", "").status(), 404);
    drop(client);
    let (_, log) = server.stop();
    assert!(log.iter().all(|record| record["status"].as_u64().unwrap() >= 400), "{log:?}");
    assert_eq!((&log[0]["id"], &log[0]["client_id"]), (&second.into(), &"job-7".into()));
    assert_eq!(log[0]["client_info"], "job-id=1;file-id=2");
    let audited = audit.records();
    let methods: Vec<_> = audited.iter().map(|record| record["method"].as_str().unwrap()).collect();
    assert_eq!(methods, ["MOVE", "PUT", "DELETE"]);
    assert_eq!((&audited[0]["path"], &audited[0]["destination"]), (&"/f".into(), &"/g".into()));
    assert_eq!((&audited[1]["bytes_in"], &audited[1]["status"]), (&3.into(), &201.into()));
    assert_eq!(audited[2]["error"], "there is no such file");
    assert!(!format!("{audited:?}{log:?}").contains("secret"));
}
