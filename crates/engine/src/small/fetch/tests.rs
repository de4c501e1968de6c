//! How much is asked for ahead.

use std::path::Path;

use gridlane_core::Url;
use gridlane_net::Dialer;
use gridlane_net::tls::Trust;
use gridlane_peer::Client;

use super::*;
use crate::Options;
use crate::small::{Directory, SmallFiles};

const KB: u64 = 1000;
const LONG: Option<Duration> = Some(Duration::from_millis(100));

/// How many files a connection is asked for that has this round trip and rate, when many of this size wait.
fn asked(
    size_bytes: u64,
    round_trip: Option<Duration>,
    bytes_per_s: f64,
    set: impl Fn(&mut Fetcher<'_>),
) -> usize {
    let client = Client::new(Dialer::new(Trust::default()), Duration::from_secs(60));
    let shared = SmallFiles::new(client, &Options::default()).unwrap().shared.clone();
    let dir = tempfile::tempdir().unwrap();
    let directory = Arc::new(Directory::open(dir.path(), Path::new("")).unwrap());
    let origin = Arc::new(Origin::default());
    origin.is_proven.store(true, Relaxed);
    let url = Url::parse_absolute("http://h/f").unwrap();
    for id in 0..2000 {
        let (url, directory, name) = (url.clone(), directory.clone(), "f".into());
        let size_bytes = Some(size_bytes);
        origin.queue().push_back(SmallFile { id, url, size_bytes, directory, name, modified: None });
    }
    let mut groups = Groups::new(shared.clone(), origin.clone());
    let (_stop, stopped) = watch::channel(false);
    let mut fetcher = Fetcher {
        shared: &shared,
        origin: &origin,
        asked: &mut VecDeque::new(),
        groups: &mut groups,
        fresh: false,
        answers: 0,
        sent: 0,
        requests_bytes: 100,
        round_trip,
        rate: Rate { bytes_per_s, ..Rate::default() },
        stopped,
    };
    set(&mut fetcher);
    fetcher.take(None).len()
}

#[test]
fn what_is_asked_for_ahead_follows_the_path() {
    let nothing = |_: &mut Fetcher<'_>| {};
    // To a near server a MiB.
    assert_eq!(asked(100 * KB, None, 1e9, nothing), 10);
    // What comes in a round trip and a half; before it is known, 10 MB/s.
    assert_eq!(asked(100 * KB, LONG, 100e6, nothing), 150);
    assert_eq!(asked(100 * KB, LONG, 0.0, nothing), 10);
    assert_eq!(asked(100 * KB, Some(Duration::from_millis(20)), 0.0, nothing), 2);
    // At least one, however large.
    assert_eq!(asked(1_000_000, Some(Duration::from_millis(10)), 0.0, nothing), 1);
}

#[test]
fn requests_ahead_are_bounded_whatever_the_rate() {
    let nothing = |_: &mut Fetcher<'_>| {};
    assert_eq!(asked(1, LONG, 1e12, nothing), SMALL_AHEAD_MAX);
    // Their bytes are: both ends may send without reading.
    let long_requests = |fetcher: &mut Fetcher<'_>| fetcher.requests_bytes = 2 * KB as usize;
    assert_eq!(asked(1, LONG, 1e12, long_requests), SMALL_REQUESTS_BYTES_MAX / (2 * KB as usize));
    let one_by_one = |fetcher: &mut Fetcher<'_>| fetcher.origin.is_one_by_one.store(true, Relaxed);
    assert_eq!(asked(1, LONG, 1e12, one_by_one), 1);
    let unproven = |fetcher: &mut Fetcher<'_>| fetcher.origin.is_proven.store(false, Relaxed);
    assert_eq!(asked(1, LONG, 1e12, unproven), 1);
    // Its server closes connections after 100 answers.
    let closes = |fetcher: &mut Fetcher<'_>| {
        fetcher.origin.requests_max.store(100, Relaxed);
        fetcher.sent = 30;
    };
    assert_eq!(asked(1, LONG, 1e12, closes), 70);
}
