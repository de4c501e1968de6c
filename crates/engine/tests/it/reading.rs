//! Remote files that are read here and there over XRootD's protocol, from a server with faults.

use std::time::Duration;

use crate::root_site::{Faults, Site};
use crate::support::noise;
use gridlane_core::{ByteRange, Error, ErrorKind};
use gridlane_engine::reading::{Explain, Policy, ReadOptions, RemoteFile, Settings};
use gridlane_net::{Dialer, tls::Trust};
use gridlane_peer::Client;
use gridlane_xrd::ErrorCode;

/// Larger than what is fetched whole.
const SIZE: usize = 12_000_001;
const MANY: u64 = u64::MAX;

fn options(policy: Policy, budget: f64) -> ReadOptions {
    let patience = Duration::from_secs(20);
    let settings = Settings { patience, budget, ..Settings::forced(policy) };
    ReadOptions { settings, skips_proof: true, ..ReadOptions::default() }
}

fn ranges() -> Vec<ByteRange> {
    (0..300).map(|nth| ByteRange::at(nth * 39_989, 1 + nth * 7)).collect()
}

/// Reads scattered ranges and a long one, and compares what comes.
async fn read(site: &Site, bytes: &[u8], options: ReadOptions) -> Result<Explain, Error> {
    let client = Client::new(Dialer::new(Trust::default()), Duration::from_secs(20));
    let file = RemoteFile::open(vec![site.url.clone()], client, options).await?;
    assert_eq!(file.size_bytes(), bytes.len() as u64);
    let long = vec![ByteRange::at(5_000_003, 3_000_000)];
    for call in [ranges(), long] {
        let found = file.read(&call, None).all().await?;
        for (range, found) in call.iter().zip(found) {
            assert!(found == bytes[range.start() as usize..range.end() as usize], "{range:?}");
        }
    }
    Ok(file.explain())
}

async fn reads(faults: Faults) -> (Site, Explain) {
    let bytes = noise(SIZE, 7);
    let site = Site::start(&bytes, faults).await;
    let explain = read(&site, &bytes, options(Policy::Vector, 4.0)).await.unwrap();
    (site, explain)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_vectors_is_sent_their_ranges() {
    let (site, explain) = reads(Faults::default()).await;
    let vectors = site.count("readv");
    assert!((1..40).contains(&vectors), "{vectors} vectors");
    assert!(site.count("pgread") >= 290);
    assert_eq!(explain.failures, 0, "{explain}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_vectors_is_asked_for_none_by_the_second_file() {
    let bytes = noise(SIZE, 7);
    let site = Site::start(&bytes, Faults::default()).await;
    let client = Client::new(Dialer::new(Trust::default()), Duration::from_secs(20));
    let mut vectors = 0;
    for nth in 0..2 {
        let options = options(Policy::Vector, 4.0);
        let file = RemoteFile::open(vec![site.url.clone()], client.clone(), options).await.unwrap();
        file.read(&ranges(), None).all().await.unwrap();
        assert_eq!(file.explain().failures, 0, "{}", file.explain());
        assert_eq!(site.count("readv") > vectors, nth == 0, "{} vectors", site.count("readv"));
        vectors = site.count("readv");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_the_server_does_to_reads_the_bytes_are_right() {
    for faults in [
        Faults { has_no_pages: true, ..Faults::default() },
        Faults { overtakes: true, ..Faults::default() },
        Faults { waits: 3, ..Faults::default() },
        Faults { breaks_after: 500, ..Faults::default() },
        Faults { has_no_binds: true, ..Faults::default() },
    ] {
        reads(faults).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_page_is_asked_for_again_and_never_delivered() {
    // In the long range.
    let page = 6_000_640 / 4096 * 4096;
    let (_, explain) = reads(Faults { bad_page: Some((page, 1)), ..Faults::default() }).await;
    assert_eq!(explain.failures, 0, "{explain}");
    let bytes = noise(SIZE, 7);
    let site = Site::start(&bytes, Faults { bad_page: Some((page, MANY)), ..Faults::default() }).await;
    let error = read(&site, &bytes, options(Policy::Vector, 4.0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ChecksumMismatch, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_that_stay_end_the_read_with_their_reason() {
    let bytes = noise(SIZE, 7);
    for (faults, kind) in [
        (Faults { ends_at: Some(6_000_000), ..Faults::default() }, ErrorKind::Precondition),
        (Faults { read_error: Some(ErrorCode::NOT_AUTHORIZED), ..Faults::default() }, ErrorKind::Denied),
        (Faults { is_missing: true, ..Faults::default() }, ErrorKind::NotFound),
    ] {
        let site = Site::start(&bytes, faults).await;
        let error = read(&site, &bytes, options(Policy::Vector, 4.0)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_budget_of_one_no_byte_comes_that_is_not_wanted() {
    let bytes = noise(SIZE, 7);
    let site = Site::start(&bytes, Faults::default()).await;
    let explain = read(&site, &bytes, options(Policy::Adaptive, 1.0)).await.unwrap();
    let mut wanted: gridlane_core::RangeSet = ranges().into_iter().collect();
    wanted.insert(ByteRange::at(5_000_003, 3_000_000));
    // The first byte comes with the opening.
    wanted.insert(ByteRange::at(0, 1));
    assert_eq!(explain.moved_in_all(), wanted.len(), "{explain}");
}
