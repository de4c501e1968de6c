//! Targets that are no files: what they are told, and a device that hangs.

use std::time::Duration;

use gridlane_core::checksum::adler32;
use gridlane_core::{Checksum, ChecksumKind, ErrorKind, Url};
use gridlane_engine::{CopySpec, Options, Outcome, TargetSpec, copy};
use gridlane_net::Dialer;
use gridlane_net::tls::Trust;
use gridlane_peer::Client;
use gridlane_share::Turns;
use gridlane_share::budget::Share;
use gridlane_share::turns::DeviceShares;
use gridlane_store::fake::ObjectStore;
use gridlane_store::{Expectation, ObjectPath, Opened, Storage};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::support::memory::{Device, Memory, PATIENCE};
use crate::support::{Quiet, copy_quietly, noise};

/// A copy that ends when `stop` changes.
fn begin(source: &Url, target: TargetSpec, mut stop: watch::Receiver<()>) -> JoinHandle<Outcome> {
    let options = Options { streams: Some(1), ..Options::default() };
    let spec = CopySpec { sources: vec![source.clone()], target, options };
    let client = Client::new(Dialer::new(Trust::default()), Duration::from_secs(60));
    tokio::spawn(async move {
        let stop = async { drop(stop.changed().await) };
        copy(spec, client, &mut Quiet, stop).await
    })
}

/// There are more copies to it than turns, and more turns than threads that could be spared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_hangs_holds_its_turns_and_no_copy_to_another() {
    let dir = tempfile::tempdir().unwrap();
    let (path, bytes) = (dir.path().join("f"), noise(3_000_000, 1));
    std::fs::write(&path, &bytes).unwrap();
    let source = Url::from_path(&path).unwrap();
    let few = DeviceShares { operations: Share { all: 3, one: 3 }, ..DeviceShares::default() };
    let hung = Device::new(Turns::new(few), true);
    let copies: Vec<_> = (0..8)
        .map(|_| {
            let (stop, stopped) = watch::channel(());
            let target = Memory::on(&hung);
            (begin(&source, target.spec(), stopped), target, stop)
        })
        .collect();
    while (hung.turns.running(), hung.turns.waiting()) != (3, 5) {
        tokio::task::yield_now().await;
    }
    // Another copy goes on, and its target is told of its bytes.
    let other = Memory::on(&Device::new(Turns::default(), false));
    let (_stop, stopped) = watch::channel(());
    begin(&source, other.spec(), stopped).await.unwrap().result.unwrap();
    let (copied, completion) = other.committed().unwrap();
    assert!(copied == bytes && other.records() > 0);
    assert_eq!(completion.expectation, Expectation::Absent);
    assert!(completion.checksums.contains(&Checksum::adler32(adler32(&bytes))));
    // Those that wait for a turn are stopped while nothing moves; those that have one, when it does.
    copies.iter().for_each(|(_, _, stop)| stop.send(()).unwrap());
    while hung.turns.waiting() > 0 || copies.iter().filter(|(copy, ..)| copy.is_finished()).count() < 5 {
        tokio::task::yield_now().await;
    }
    assert_eq!(hung.turns.running(), 3);
    hung.go_on();
    for (copy, target, _) in copies {
        assert_eq!(copy.await.unwrap().result.unwrap_err().kind(), ErrorKind::Interrupted);
        assert!(target.committed().is_none());
        // Three have written something, which is kept.
        assert_eq!(target.is_discarded(), target.size_bytes_written() == 0);
    }
}

/// An object store takes one part after the other, and no size before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storage_that_takes_bytes_in_order_is_a_target() {
    let dir = tempfile::tempdir().unwrap();
    let (path, bytes) = (dir.path().join("f"), noise(3_000_000, 2));
    std::fs::write(&path, &bytes).unwrap();
    let (store, key) = (ObjectStore::new(), ObjectPath::new([&b"object"[..]]).unwrap());
    let kind = ChecksumKind::Sha256;
    for is_there in [false, true] {
        let upload = Storage::create(&store, &key, None).await.unwrap();
        let spec = CopySpec {
            sources: vec![Url::from_path(&path).unwrap()],
            target: TargetSpec::stored(upload, Expectation::Absent.into()),
            options: Options { checksum: Some((kind, None)), ..Options::default() },
        };
        let outcome = copy_quietly(spec).await;
        match outcome.result {
            Ok(()) => assert!(!is_there),
            Err(error) => assert!(is_there && error.kind() == ErrorKind::Precondition, "{error}"),
        }
        let Opened::File(object) = Storage::open(&store, &key).await.unwrap() else { panic!("a file") };
        let mut stored = vec![0; bytes.len() + 1];
        let mut len = 0;
        while let count @ 1.. = object.read_at(&mut stored[len..], len as u64).await.unwrap() {
            len += count;
        }
        assert!(stored[..len] == bytes[..]);
        let kept = object.kept_checksums(&[kind, ChecksumKind::Adler32]).await;
        assert_eq!(kept.len(), 2, "{kept:?}");
    }
}

/// A commit is not interrupted; the sync before it, which may take long, holds no stop up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_ends_while_its_device_takes_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let cache = Device::new(Turns::default(), true);
    let target = Memory::synced_by(&Device::new(Turns::default(), false), &cache);
    let (stop, stopped) = watch::channel(());
    let copying = begin(&Url::from_path(&path).unwrap(), target.spec(), stopped);
    let has_begun = async {
        while cache.begun() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, has_begun).await.expect("it is synced");
    stop.send(()).unwrap();
    assert_eq!(copying.await.unwrap().result.unwrap_err().kind(), ErrorKind::Interrupted);
    assert!(target.committed().is_none() && !target.is_discarded(), "it is there to go on with");
    cache.go_on();
}
