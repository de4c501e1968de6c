//! How much is open, made and waited for, and when.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use super::*;

/// With so many descriptors in all, and a path that counts as long.
fn within(descriptors: u64, client: Client) -> SmallFiles {
    let bounds = Bounds { long_round_trip: Duration::ZERO, ..Bounds::of(Some(descriptors)) };
    SmallFiles::within(client, &Options::default(), bounds).unwrap()
}

/// Files that this process has open in `target`: descriptor, name and time of birth of each.
///
/// `/proc/self/fd` is not read at one instant. A file that is closed meanwhile may be among them, and the one that was
/// opened in its place, too.
fn seen_in(target: &Path) -> HashSet<(PathBuf, PathBuf, Option<SystemTime>)> {
    let beneath = |fd: std::fs::DirEntry| {
        let fd = fd.path();
        let to = std::fs::read_link(&fd).ok().filter(|to| to != target && to.starts_with(target))?;
        let born = std::fs::metadata(&fd).and_then(|file| file.created()).ok();
        Some((fd, to, born))
    };
    std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(beneath).collect()
}

fn names_in(target: &Path) -> usize {
    std::fs::read_dir(target).unwrap().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_files_are_open_than_may_be() {
    for descriptors in [8, 32] {
        let files_open_max = Bounds::of(Some(descriptors)).files_open_max;
        let dir = tempfile::tempdir().unwrap();
        let target: PathBuf = dir.path().to_owned();
        let (most, any) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (at_once, seen) = (most.clone(), any.clone());
        let server = Server::start(move |request| {
            let before = seen_in(&target);
            seen.fetch_max(before.len(), Relaxed);
            // What is there before and afterwards was open at the moment in between.
            at_once.fetch_max(before.intersection(&seen_in(&target)).count(), Relaxed);
            Reply::Send(good(request.file))
        });
        let mut small = within(descriptors, client());
        // More than there is room for, so that they wait for each other.
        Arc::get_mut(&mut small.shared).unwrap().bounds.fetchers_max = SMALL_FETCHERS_MAX;
        let ended = fetch_by(small, &server, dir.path(), true).await;
        assert_eq!(ended.copied.len(), FILES, "{:?}", ended.returned);
        let (most, any) = (most.load(Relaxed), any.load(Relaxed));
        assert!(any >= 1 && most <= files_open_max, "{most} of {files_open_max}, {any} seen");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_made_while_it_is_found_out_which_files_there_are() {
    const LISTERS: usize = 3;
    let requests = Arc::new(AtomicUsize::new(0));
    let seen = requests.clone();
    let server = Server::start(move |request| {
        seen.fetch_add(1, Relaxed);
        Reply::Send(good(request.file))
    });
    let client = client();
    let mut small = within(1024, client.clone());
    // Nothing shows yet that the server keeps connections.
    small.expect(&server.url, LISTERS);
    assert!(small.origins.is_empty());
    let listing = server.url.join("f0").unwrap();
    client.http.request("GET", &listing, &[]).await.unwrap().read_whole(100_000).await.unwrap();
    small.expect(&server.url, LISTERS);
    let origin = small.origins.values().next().unwrap().clone();
    let begun = Instant::now();
    let wanted = loop {
        let wanted = origin.fetchers_wanted.load(Relaxed);
        if wanted > 0 && server.connections.load(Relaxed) == 1 + wanted + LISTERS {
            break wanted;
        }
        assert!(begun.elapsed() < DEADLINE, "{wanted}: {:?}", server.connections);
        tokio::task::yield_now().await;
    };
    assert_eq!(requests.load(Relaxed), 1, "nobody knows yet what to ask for");
    let dir = tempfile::tempdir().unwrap();
    let ended = fetch_by(small, &server, dir.path(), true).await;
    assert_eq!(ended.copied.len(), FILES);
    // There are as many as before, or as many as the path was found to need at the first answer.
    let most = 1 + wanted.max(origin.fetchers_wanted.load(Relaxed)) + LISTERS;
    assert!(server.connections.load(Relaxed) <= most, "{:?} of {most}", server.connections);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_complete_is_visible_while_others_are_waited_for() {
    // Before its answer, and in the middle of it.
    for begins_at in [0, 300] {
        let dir = tempfile::tempdir().unwrap();
        let target: PathBuf = dir.path().to_owned();
        let server = Server::start(move |request| {
            let bytes = good(request.file);
            if request.file != 100 {
                return Reply::Send(bytes);
            }
            let (begin, rest) = bytes.split_at(begins_at);
            let (target, begun) = (target.clone(), Instant::now());
            let wait = move || {
                while names_in(&target) < 100 && begun.elapsed() < DEADLINE {
                    std::thread::yield_now();
                }
            };
            Reply::Late(begin.to_vec(), Box::new(wait), rest.to_vec())
        });
        let mut small = within(1024, client());
        // So that the files come in their order.
        Arc::get_mut(&mut small.shared).unwrap().bounds.fetchers_max = 1;
        let ended = fetch_by(small, &server, dir.path(), true).await;
        // A server that is silent for too long is given up.
        assert_eq!((ended.copied.len(), ended.returned.len()), (FILES, 0), "{begins_at}");
    }
}
