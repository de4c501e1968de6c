//! Copies from fleets of real sockets whose servers are slow, dead, lying, restarting and rude, in random
//! mixtures from a seed. Whatever happens, a copy ends; if it says that it succeeded, the bytes are right;
//! and as long as an honest majority works, it succeeds.
#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use crate::script;
use crate::support;

use std::time::Duration;

use gridlane_core::{Checksum, ErrorKind};
use gridlane_engine::{Basis, CopySpec, Options, State, TargetSpec};
use script::{Reply, Scripted, answer};
use support::{Faults, Numbers, Site, copy_quietly, noise, target_dir, to_file};

fn spec(sites: &[Site], dir: &tempfile::TempDir) -> CopySpec {
    CopySpec {
        sources: sites.iter().map(|site| site.url.clone()).collect(),
        target: to_file(&dir.path().join("f")),
        // A server that says nothing at all is not waited for longer than with five seconds.
        options: Options { patience: Duration::from_secs(20), ..Options::default() },
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_honest_majority_always_wins() {
    for seed in 0..24 {
        let mut numbers = Numbers(seed);
        let bytes = noise(3_000_000 + numbers.below(9_000_000) as usize, seed);
        let mut sites = Vec::new();
        for number in 0..3 {
            // One in three may be anything; two work, though not well.
            let faults = if number == 1 { numbers.any_fault() } else { numbers.nuisance() };
            sites.push(Site::start(&bytes, faults, seed * 10 + number).await);
        }
        let dir = target_dir();
        let outcome = copy_quietly(spec(&sites, &dir)).await;
        let told: Vec<_> = sites.iter().map(|site| site.faults).collect();
        assert!(outcome.result.is_ok(), "seed {seed}: {:?} {told:?}", outcome.result);
        assert!(std::fs::read(dir.path().join("f")).unwrap() == bytes, "seed {seed}: wrong bytes {told:?}");
        assert!(matches!(outcome.report.verified, Some(Basis::Sources { .. })), "seed {seed}");
        let of_sources: u64 = outcome.report.sources.iter().map(|source| source.bytes).sum();
        assert_eq!(of_sources, bytes.len() as u64, "seed {seed}: every byte has one sender");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "seed {seed}: something is left over");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_liars_of_three_do_not_pass_a_known_checksum() {
    let bytes = noise(5_000_000, 77);
    let right = Checksum::adler32(gridlane_core::checksum::adler32(&bytes));
    let liar = Faults { lies_every: Some(700_000), ..Faults::default() };
    let sites = [
        Site::start(&bytes, liar, 1).await,
        Site::start(&bytes, Faults::default(), 2).await,
        Site::start(&bytes, liar, 3).await,
    ];
    let dir = target_dir();
    let mut spec = spec(&sites, &dir);
    spec.options.checksum = Some((right.kind(), Some(right)));
    let outcome = copy_quietly(spec).await;
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert!(std::fs::read(dir.path().join("f")).unwrap() == bytes);
    let states: Vec<_> = outcome.report.sources.iter().map(|source| source.state).collect();
    // A liar whose right bytes were enough for its part did no harm, and is not named.
    assert!(states[0] == State::Wrong || states[2] == State::Wrong, "nobody is named: {states:?}");
    assert_ne!(states[1], State::Wrong);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_everybody_lies_nothing_is_left_that_looks_complete() {
    let bytes = noise(2_000_000, 5);
    let liar = Faults { lies_every: Some(500_000), ..Faults::default() };
    let sites = [Site::start(&bytes, liar, 1).await, Site::start(&bytes, liar, 2).await];
    let dir = target_dir();
    let outcome = copy_quietly(spec(&sites, &dir)).await;
    assert_eq!(outcome.result.unwrap_err().kind(), ErrorKind::ChecksumMismatch);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_flaky_source_is_enough() {
    for seed in 0..6 {
        let bytes = noise(4_000_000, seed);
        let faults = Faults { breaks_after: Some(900_000 + seed * 50_000), ..Faults::default() };
        let sites = [Site::start(&bytes, faults, seed).await];
        let dir = target_dir();
        let outcome = copy_quietly(spec(&sites, &dir)).await;
        assert!(outcome.result.is_ok(), "seed {seed}: {:?}", outcome.result);
        assert!(std::fs::read(dir.path().join("f")).unwrap() == bytes, "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_written_in_order_gets_every_byte_in_order() {
    for seed in 100..108 {
        let mut numbers = Numbers(seed);
        let bytes = noise(6_000_000, seed);
        let mut sites = Vec::new();
        for number in 0..3 {
            sites.push(Site::start(&bytes, numbers.nuisance(), seed * 10 + number).await);
        }
        let dir = target_dir();
        let path = dir.path().join("stream");
        let mut spec = spec(&sites, &dir);
        spec.target = TargetSpec::pipe(std::fs::File::create(&path).unwrap());
        let outcome = copy_quietly(spec).await;
        assert!(outcome.result.is_ok(), "seed {seed}: {:?}", outcome.result);
        assert!(std::fs::read(&path).unwrap() == bytes, "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_fleet_ends_and_says_why() {
    let bytes = noise(1_000_000, 1);
    let silent = Faults { silent_after: Some(0), ..Faults::default() };
    let sites = [Site::start(&bytes, silent, 1).await, Site::start(&bytes, silent, 2).await];
    let dir = target_dir();
    let mut spec = spec(&sites, &dir);
    spec.options.patience = Duration::from_millis(1500);
    let outcome = copy_quietly(spec).await;
    let error = outcome.result.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Network), "{error}");
    assert!(error.is_retryable());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_liar_that_dies_is_still_doubted() {
    for seed in 0..4 {
        let bytes = noise(8_000_000, 900 + seed);
        let right = Checksum::adler32(gridlane_core::checksum::adler32(&bytes));
        let liar = Faults { lies_every: Some(100_000), gone_after: Some(2_500_000), ..Faults::default() };
        let honest = Faults { rate: Some(30_000_000), ..Faults::default() };
        let sites = [Site::start(&bytes, liar, seed).await, Site::start(&bytes, honest, seed).await];
        let dir = target_dir();
        let mut spec = spec(&sites, &dir);
        spec.options.checksum = Some((right.kind(), Some(right)));
        let outcome = copy_quietly(spec).await;
        assert!(outcome.result.is_ok(), "seed {seed}: {:?}", outcome.result);
        assert!(std::fs::read(dir.path().join("f")).unwrap() == bytes);
        let states: Vec<_> = outcome.report.sources.iter().map(|source| source.state).collect();
        assert_eq!(states[0], State::Wrong, "seed {seed}");
        assert_ne!(states[1], State::Wrong, "seed {seed}: the honest one is not accused");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_without_its_text_holds_nobody_up() {
    let bytes = noise(4_000_000, 31);
    let mute = Faults { mute_errors: true, ..Faults::default() };
    let sites = [Site::start(&bytes, Faults::default(), 1).await, Site::start(&bytes, mute, 2).await];
    let dir = target_dir();
    let outcome = copy_quietly(spec(&sites, &dir)).await;
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert!(outcome.report.seconds < 30.0, "{} s", outcome.report.seconds);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_replica_of_another_size_never_wins_whatever_it_does_first() {
    for seed in 0..6 {
        let bytes = noise(3_000_000, 40 + seed);
        let longer = noise(5_000_000, 50 + seed);
        let slow = Faults { rate: Some(5_000_000), ..Faults::default() };
        let sites = [
            Site::start(&longer, Faults::default(), seed).await,
            Site::start(&bytes, slow, seed).await,
            Site::start(&bytes, slow, seed).await,
        ];
        let dir = target_dir();
        let outcome = copy_quietly(spec(&sites, &dir)).await;
        assert!(outcome.result.is_ok(), "seed {seed}: {:?}", outcome.result);
        assert!(std::fs::read(dir.path().join("f")).unwrap() == bytes, "seed {seed}");
        assert_eq!(outcome.report.sources[0].state, State::Wrong, "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_not_empty_because_a_server_says_so_that_also_says_otherwise() {
    let site = Scripted::start(|seen| match seen.method() {
        "HEAD" => Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n".to_vec()),
        _ => answer("416 Range Not Satisfiable", &["Content-Range: bytes */0"], ""),
    })
    .await;
    let dir = target_dir();
    let outcome = copy_quietly(CopySpec { sources: vec![site.url("/f")], ..spec(&[], &dir) }).await;
    let error = outcome.result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Precondition, "{error}");
    assert!(error.message().contains("0 bytes and 3000000 bytes"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_empty_is_copied() {
    let site = Scripted::start(|seen| match seen.method() {
        "HEAD" => answer("200 OK", &[], ""),
        _ => answer("416 Range Not Satisfiable", &["Content-Range: bytes */0"], ""),
    })
    .await;
    let dir = target_dir();
    let outcome = copy_quietly(CopySpec { sources: vec![site.url("/f")], ..spec(&[], &dir) }).await;
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert_eq!(std::fs::metadata(dir.path().join("f")).unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_the_only_source_when_it_wants_to_be_asked_tomorrow() {
    let server = Scripted::start(|_| answer("503 Busy", &["Retry-After: 100000"], "")).await;
    let dir = target_dir();
    let mut spec = spec(&[], &dir);
    spec.sources = vec![server.url("/f")];
    spec.options.patience = Duration::from_secs(300);
    let error = copy_quietly(spec).await.result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert_eq!(error.wait(), Some(Duration::from_secs(100_000)));
    assert!(error.advice().unwrap().to_string().contains("100000 s"), "{error}");
}
