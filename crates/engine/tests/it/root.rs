//! Copies over XRootD's protocol, against a server that does what is asked of it here.
#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use crate::root_site as support;
use crate::support as fleet;

use std::path::Path;
use std::time::Duration;

use crate::support::{Quiet, to_file};
use gridlane_core::{ChecksumKind, ErrorKind, Url};
use gridlane_engine::{self as engine, CopySpec, Options, TargetSpec, copy};
use gridlane_net::{Dialer, tls::Trust};
use gridlane_peer::Client;
use gridlane_xrd::answer::{Redirect, StatText};
use gridlane_xrd::flags::{OpenOptions, ServerFlags};
use gridlane_xrd::request::{About, Stat};
use gridlane_xrd::{ErrorCode, PathArg};
use support::{Faults, Site, certificate};

const MANY: u64 = u64::MAX;

fn client() -> Client {
    client_that_trusts(Trust::default())
}

fn client_that_trusts(trust: Trust) -> Client {
    Client::new(Dialer::new(trust), Duration::from_secs(20))
}

fn noise(len: usize) -> Vec<u8> {
    fleet::noise(len, 1)
}

fn stat(about: PathArg) -> Stat {
    Stat { about: About::Path(about), is_vfs: false, wants: 0 }
}

fn spec(sources: &[&Url], dir: &Path) -> CopySpec {
    CopySpec {
        sources: sources.iter().map(|url| (*url).clone()).collect(),
        target: to_file(&dir.join("f")),
        options: Options { patience: Duration::from_secs(20), ..Options::default() },
    }
}

async fn fetch(client: &Client, sources: &[&Url]) -> (engine::Outcome, Option<Vec<u8>>) {
    let dir = tempfile::tempdir().unwrap();
    let spec = spec(sources, dir.path());
    let outcome = copy(spec, client.clone(), &mut Quiet, std::future::pending()).await;
    (outcome, std::fs::read(dir.path().join("f")).ok())
}

/// Copies from one server with these faults, and expects the right bytes.
async fn fetches(bytes: &[u8], faults: Faults) -> Site {
    let site = Site::start(bytes, faults).await;
    let (outcome, found) = fetch(&client(), &[&site.url]).await;
    outcome.result.unwrap();
    assert!(found.unwrap() == bytes);
    assert_eq!(outcome.report.checksum, Some(site.state.checksum()));
    assert!(outcome.report.verified.is_some());
    site
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_all_sizes() {
    for len in [0, 1, 4095, 4096, 4097, 100_000, 9_000_001] {
        fetches(&noise(len), Faults::default()).await;
        fetches(&noise(len), Faults { has_no_pages: true, ..Faults::default() }).await;
        fetches(&noise(len), Faults { overtakes: true, ..Faults::default() }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_and_an_open_file_are_one_flight() {
    let site = fetches(&noise(100_000), Faults::default()).await;
    assert_eq!(site.count("protocol flight") as u64, site.connections());
    let site = Site::start(b"bytes", Faults::default()).await;
    let client = client();
    let file = client.root.open(&site.url, OpenOptions::READ | OpenOptions::RETSTAT, 0, "a=b").await.unwrap();
    assert_eq!(file.stat.as_ref().unwrap().size_bytes, 5);
    assert_eq!(site.log(), ["protocol flight", "login", "open /f?k=v&a=b"]);
    file.close().await.unwrap();
    // The session goes on.
    client.root.call(&site.url, stat).await.unwrap();
    assert_eq!(site.log()[3..], ["close", "stat /f?k=v"]);
    assert_eq!(site.connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_page_is_asked_for_again_alone() {
    let bytes = noise(300_001);
    let bad_page = Some((4096 * 9, 1));
    let site = fetches(&bytes, Faults { bad_page, ..Faults::default() }).await;
    assert_eq!(site.count("pgread again 36864 4096"), 1);
    let last = 300_001 / 4096 * 4096;
    let site = fetches(&bytes, Faults { bad_page: Some((last, 1)), ..Faults::default() }).await;
    assert_eq!(site.count(&format!("pgread again {last} {}", 300_001 - last)), 1);
    // Still wrong: that source is not used, and named; another one serves.
    let faults = Faults { bad_page: Some((4096 * 9, MANY)), ..Faults::default() };
    let (bad, good) = (Site::start(&bytes, faults).await, Site::start(&bytes, Faults::default()).await);
    let (outcome, found) = fetch(&client(), &[&bad.url]).await;
    let error = outcome.result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ChecksumMismatch, "{error}");
    assert!(error.endpoint_text().unwrap().contains(&bad.port.to_string()) && found.is_none());
    let (outcome, found) = fetch(&client(), &[&bad.url, &good.url]).await;
    outcome.result.unwrap();
    assert!(found.unwrap() == bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_and_answers_that_come_later() {
    let site = fetches(&noise(5000), Faults { waits: 3, defers: true, ..Faults::default() }).await;
    assert!(site.count("query") >= 1);
    let site = Site::start(b"x", Faults { waits: MANY, ..Faults::default() }).await;
    let error = client().root.call(&site.url, stat).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    let checksum = Site::start(b"x", Faults { defers: true, ..Faults::default() }).await;
    let said = client().root.checksum(&checksum.url, ChecksumKind::Adler32).await.unwrap();
    assert_eq!(said, Some(checksum.state.checksum()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_is_asked_again_for_each_replica_that_fails() {
    let bytes = noise(50_000);
    let missing = Site::start(&bytes, Faults { is_missing: true, ..Faults::default() }).await;
    let good = Site::start(&bytes, Faults::default()).await;
    let nobody = Redirect::Host { host: "127.0.0.1".into(), port: 1, cgi: Vec::new(), token: Vec::new() };
    // By other names for the same address: the server that was tried is known by its name.
    let named = |redirect: &Redirect, name: &str| match redirect.clone() {
        Redirect::Host { port, cgi, token, .. } => Redirect::Host { host: name.into(), port, cgi, token },
        other => other,
    };
    let redirects =
        vec![named(&missing.redirect(), "localhost"), named(&nobody, "127.0.0.2"), good.redirect()];
    let manager = Site::start(&bytes, Faults { redirects: redirects.clone(), ..Faults::default() }).await;
    let answered = client().root.call(&manager.url, stat).await.unwrap();
    assert_eq!(StatText::parse(&answered.body).unwrap().size_bytes, 50_000);
    assert_eq!(answered.url.port(), good.port);
    let asked = "stat /f?k=v&from=manager&tried=localhost,127.0.0.2&triedrc=enoent,srverr";
    assert_eq!(manager.log().last().unwrap(), asked);
    let (outcome, found) = fetch(&client(), &[&manager.url]).await;
    outcome.result.unwrap();
    assert!(found.unwrap() == bytes);
    // No server is left: the one that failed for another reason than a missing file is named.
    let manager =
        Site::start(&bytes, Faults { redirects: redirects[..2].to_vec(), ..Faults::default() }).await;
    let error = client().root.call(&manager.url, stat).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Network, "{error}");
    let manager =
        Site::start(&bytes, Faults { redirects: redirects[..1].to_vec(), ..Faults::default() }).await;
    let error = client().root.call(&manager.url, stat).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    // One that does not listen.
    let faults = Faults { redirects: vec![missing.redirect()], insists: true, ..Faults::default() };
    let manager = Site::start(&bytes, faults).await;
    client().root.call(&manager.url, stat).await.unwrap_err();
    assert!(manager.count("stat") <= 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_is_spoken_where_it_is_demanded_and_where_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (config, trust) = certificate(dir.path());
    let bytes = noise(200_000);
    for demanded in [ServerFlags::NONE, ServerFlags::TLS_LOGIN, ServerFlags::TLS_SESSION] {
        let faults = Faults { tls: Some((config.clone(), demanded)), ..Faults::default() };
        let site = Site::start(&bytes, faults).await;
        let client = client_that_trusts(trust.clone());
        for url in [site.roots(), site.url.clone()] {
            let (outcome, found) = fetch(&client, &[&url]).await;
            outcome.result.unwrap();
            assert!(found.unwrap() == bytes);
            // TLS protects the bytes already.
            let is_clear = url == site.url && demanded == ServerFlags::NONE;
            assert_eq!(site.count("pgread") > 0, is_clear, "{url} {demanded:?}");
        }
        // It is known by now how to begin: connections are not made in vain.
        let before = site.connections();
        client.root.open(&site.url, OpenOptions::UPDATE, 0, "").await.unwrap();
        client.root.open(&site.url, OpenOptions::UPDATE, 0, "").await.unwrap();
        assert!(site.connections() <= before + 2);
        // No checksum vouches for it.
        let error = self::client().root.call(&site.roots(), stat).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    }
    let site = Site::start(&bytes, Faults::default()).await;
    let error = client().root.call(&site.roots(), stat).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert_eq!(site.log(), ["protocol alone"], "nothing more goes out in clear");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_no_flight_is_remembered() {
    for faults in [
        Faults { refuses_flights: true, ..Faults::default() },
        Faults { methods: "&P=gsi,v:10600&P=unix", ..Faults::default() },
    ] {
        let site = Site::start(&noise(5000), faults).await;
        let client = client();
        client.root.open(&site.url, OpenOptions::UPDATE, 0, "").await.unwrap();
        assert_eq!(site.connections(), 1 + u64::from(site.count("auth") == 0));
        let before = site.connections();
        client.root.open(&site.url, OpenOptions::READ, 0, "").await.unwrap();
        client.root.open(&site.url, OpenOptions::READ, 0, "").await.unwrap();
        assert!(site.connections() <= before + 3);
        let flights = site.count("protocol flight");
        client.root.open(&site.url, OpenOptions::UPDATE, 0, "").await.unwrap();
        client.root.open(&site.url, OpenOptions::UPDATE, 0, "").await.unwrap();
        assert_eq!(site.count("protocol flight"), flights);
        let (outcome, found) = fetch(&client, &[&site.url]).await;
        outcome.result.unwrap();
        assert_eq!(found.unwrap().len(), 5000);
    }
    let site = Site::start(b"", Faults { methods: "&P=gsi,v:10600&P=ztn", ..Faults::default() }).await;
    let error = client().root.call(&site.url, stat).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.message().contains("gsi, ztn"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_connection_costs_what_was_not_there() {
    let bytes = noise(20_000_000);
    let site = fetches(&bytes, Faults { breaks_after: 50_000, ..Faults::default() }).await;
    assert!(site.count("open") >= 2 && site.count("endsess") == 1, "{:?}", site.log());
    // Errors of a read end the lane, not the copy, if there is another source.
    for read_error in [ErrorCode::IO_ERROR, ErrorCode::NOT_AUTHORIZED, ErrorCode::FILE_NOT_OPEN] {
        let faults = Faults { read_error: Some(read_error), ..Faults::default() };
        let (bad, good) = (Site::start(&bytes, faults).await, Site::start(&bytes, Faults::default()).await);
        let (outcome, found) = fetch(&client(), &[&bad.url, &good.url]).await;
        outcome.result.unwrap();
        assert!(found.unwrap() == bytes);
    }
    // A file that became shorter is another one.
    let site = Site::start(&bytes, Faults { ends_at: Some(10_000_000), ..Faults::default() }).await;
    let (outcome, _) = fetch(&client(), &[&site.url]).await;
    assert_eq!(outcome.result.unwrap_err().kind(), ErrorKind::Precondition);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_says_where_else_the_file_is() {
    let bytes = noise(60_000_000);
    let nodes = [
        Site::start(&bytes, Faults { rate: 30_000_000, ..Faults::default() }).await,
        Site::start(&bytes, Faults { rate: 30_000_000, ..Faults::default() }).await,
    ];
    let words: Vec<String> = nodes.iter().map(|node| format!("Sr[::127.0.0.1]:{}", node.port)).collect();
    let faults =
        Faults { redirects: vec![nodes[0].redirect()], locations: words.join(" "), ..Faults::default() };
    let manager = Site::start(&bytes, faults).await;
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec(&[&manager.url], dir.path());
    spec.options.follow_links = true;
    let outcome = copy(spec, client(), &mut Quiet, std::future::pending()).await;
    outcome.result.unwrap();
    assert!(std::fs::read(dir.path().join("f")).unwrap() == bytes);
    let received: Vec<u64> = outcome.report.sources.iter().map(|source| source.bytes).collect();
    assert!(received.len() == 2 && received[1] > 0, "{received:?}");
}

/// Copies with three connections from one server.
async fn fetch_with_three(client: &Client, site: &Site, url: &Url) -> (engine::Outcome, Option<Vec<u8>>) {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec(&[url], dir.path());
    spec.options.streams = Some(3);
    let outcome = copy(spec, client.clone(), &mut Quiet, std::future::pending()).await;
    assert!(outcome.result.is_ok(), "{:?} {:?}", outcome.result, site.log());
    assert_eq!(outcome.report.checksum, Some(site.state.checksum()));
    (outcome, std::fs::read(dir.path().join("f")).ok())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn further_connections_join_the_session() {
    let bytes = noise(40_000_000);
    // The size, and with it that there is something for three, is known when the first has opened it.
    let faults = Faults { rate: 100_000_000, opens_first: true, ..Faults::default() };
    let site = Site::start(&bytes, faults.clone()).await;
    let (outcome, found) = fetch_with_three(&client(), &site, &site.url).await;
    assert!(found.unwrap() == bytes);
    assert_eq!(outcome.report.sources[0].connections, 3);
    assert!(site.count("bind") >= 2 && site.count("open") == 1, "{:?}", site.log());
    // As over TLS.
    let dir = tempfile::tempdir().unwrap();
    let (config, trust) = certificate(dir.path());
    let site = Site::start(&bytes, Faults { tls: Some((config, ServerFlags::NONE)), ..faults }).await;
    let (_, found) = fetch_with_three(&client_that_trusts(trust), &site, &site.roots()).await;
    assert!(found.unwrap() == bytes);
    assert!(site.count("bind") >= 2 && site.count("open") == 1, "{:?}", site.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_none_may_join_each_connection_has_a_session() {
    let bytes = noise(40_000_000);
    let rate = 100_000_000;
    for faults in [
        Faults { has_no_binds: true, rate, ..Faults::default() },
        Faults { fails_elsewhere: true, rate, ..Faults::default() },
    ] {
        let site = Site::start(&bytes, faults).await;
        let (_, found) = fetch_with_three(&client(), &site, &site.url).await;
        assert!(found.unwrap() == bytes);
        // A lane that cannot join opens the file; one that could, and got no answer, is tried again with a session of
        // its own later.
        let opens = if site.state.faults.has_no_binds { 3 } else { 1 };
        assert!(site.count("bind") <= 2 && site.count("open") >= opens, "{:?}", site.log());
    }
}

/// Something that makes a server worse, but not useless.
fn nuisance(numbers: &mut fleet::Numbers) -> Faults {
    let mut faults = Faults { has_no_pages: numbers.below(3) == 0, ..Faults::default() };
    match numbers.below(8) {
        0 => faults.breaks_after = 1000 + numbers.below(500_000),
        1 => faults.rate = 20_000_000 + numbers.below(50_000_000),
        2 => faults.overtakes = true,
        3 => faults.bad_page = Some((numbers.below(1000) * 4096, 1)),
        4 => faults.refuses_flights = true,
        5 => faults.methods = "&P=unix",
        6 => faults.waits = numbers.below(4),
        _ => faults.has_no_binds = true,
    }
    faults
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_of_both_protocols_in_one_copy() {
    for seed in 0..16 {
        let mut numbers = fleet::Numbers(seed);
        let bytes = noise(3_000_000 + numbers.below(9_000_000) as usize);
        let web = fleet::Site::start(&bytes, numbers.nuisance(), seed).await;
        let first = Site::start(&bytes, nuisance(&mut numbers)).await;
        let useless = match numbers.below(4) {
            0 => Faults { is_missing: true, ..Faults::default() },
            1 => Faults { ends_at: Some(numbers.below(3_000_000)), ..Faults::default() },
            2 => Faults { bad_page: Some((0, MANY)), ..Faults::default() },
            _ => Faults { read_error: Some(ErrorCode::IO_ERROR), ..Faults::default() },
        };
        let second = Site::start(&bytes, useless).await;
        let dir = tempfile::tempdir().unwrap();
        let mut spec = spec(&[&second.url, &web.url, &first.url], dir.path());
        spec.options.streams = (numbers.below(2) == 0).then_some(2);
        let outcome = copy(spec, client(), &mut Quiet, std::future::pending()).await;
        assert!(outcome.result.is_ok(), "seed {seed}: {:?} {:?}", outcome.result, first.log());
        assert!(std::fs::read(dir.path().join("f")).unwrap() == bytes, "seed {seed}");
        assert_eq!(outcome.report.checksum, Some(first.state.checksum()), "seed {seed}");
        let of_sources: u64 = outcome.report.sources.iter().map(|source| source.bytes).sum();
        assert_eq!(of_sources, bytes.len() as u64, "seed {seed}: every byte has one sender");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_two_sizes_is_none() {
    let bytes = noise(100_000);
    // A digit of the size was damaged on its way: the checksum of the whole says nothing about a part, and must not be
    // left out for that.
    let faults = |opens_last| Faults { opens_with: Some(90_000), opens_last, ..Faults::default() };
    // Whichever of the two it hears of first.
    for opens_last in [false, true] {
        let site = Site::start(&bytes, faults(opens_last)).await;
        let (outcome, found) = fetch(&client(), &[&site.url]).await;
        let error = outcome.result.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Precondition, true), "{error}");
        assert!(error.message().contains("90000") && error.message().contains("100000"), "{error}");
        assert!(found.is_none());
    }
    let site = Site::start(&bytes, faults(false)).await;
    // What a stream has taken cannot be called back.
    let dir = tempfile::tempdir().unwrap();
    let target = TargetSpec::pipe(std::fs::File::create(dir.path().join("f")).unwrap());
    let spec = CopySpec { target, ..spec(&[&site.url], dir.path()) };
    let outcome = copy(spec, client(), &mut Quiet, std::future::pending()).await;
    assert_eq!(outcome.result.unwrap_err().kind(), ErrorKind::Precondition);
    // Another source may say what is right.
    let honest = Site::start(&bytes, Faults::default()).await;
    let (outcome, found) = fetch(&client(), &[&site.url, &honest.url]).await;
    assert!(outcome.result.is_err() || found.unwrap() == bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checksum_that_never_comes_is_not_waited_for() {
    let bytes = noise(100_000);
    let site = Site::start(&bytes, Faults { has_no_word: true, ..Faults::default() }).await;
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec(&[&site.url], dir.path());
    spec.options.patience = Duration::from_secs(1);
    let mut quiet = Quiet;
    let copying = copy(spec, client(), &mut quiet, std::future::pending());
    let outcome = tokio::time::timeout(Duration::from_secs(60), copying).await.unwrap();
    outcome.result.unwrap();
    assert!(outcome.report.verified.is_none());
    assert!(std::fs::read(dir.path().join("f")).unwrap() == bytes);
}
