//! One suite for every storage: what the traits promise holds for a directory of this machine, for
//! memory, and for the fakes while they behave.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use std::time::Duration;

use gridlane_store::fake::{Delay, DelayedStorage, FaultyStorage, Gate, ObjectStore, SlowStorage};
use gridlane_store::{
    Durability, Expectation, MemoryStorage, ObjectPath, PosixOptions, PosixStorage, QuotaStorage, Storage,
    conformance,
};

/// A storage, and what has to live as long as it.
type Prepared = (Arc<dyn Storage>, Option<tempfile::TempDir>);

fn path(text: &str) -> ObjectPath {
    ObjectPath::new(text.split('/').map(str::as_bytes)).unwrap()
}

fn with_sub() -> MemoryStorage {
    let storage = MemoryStorage::new();
    storage.add_directory(&path("sub"));
    storage
}

fn memory() -> Prepared {
    (Arc::new(with_sub()), None)
}

fn objects() -> Prepared {
    let storage = ObjectStore::new();
    storage.add_directory(&path("sub"));
    (Arc::new(storage), None)
}

fn posix_with(durability: Durability) -> Prepared {
    posix_of(PosixOptions { durability, ..PosixOptions::default() })
}

fn posix_of(options: PosixOptions) -> Prepared {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("sub")).unwrap();
    (Arc::new(PosixStorage::open_with(directory.path(), options).unwrap()), Some(directory))
}

async fn with_quota((storage, kept): Prepared) -> Prepared {
    let storage = QuotaStorage::new(storage, 1 << 40);
    storage.recount().await.unwrap();
    (Arc::new(storage), kept)
}

async fn passes(name: &str, prepare: impl AsyncFn() -> Prepared) {
    let (storage, _kept) = prepare().await;
    for check in conformance::of(storage.as_ref()) {
        eprintln!("{name}: {}", check.name);
        let (storage, _kept) = prepare().await;
        check.run(storage.as_ref()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_storage_passes_every_check() {
    passes("memory", async || memory()).await;
    passes("memory, quota", async || with_quota(memory()).await).await;
    passes("posix, quota", async || with_quota(posix_with(Durability::None)).await).await;
    passes("slow", async || (Arc::new(SlowStorage::new(with_sub(), Gate::new())) as _, None)).await;
    passes("faulty", async || (Arc::new(FaultyStorage::new(with_sub(), u64::MAX)) as _, None)).await;
    for durability in [Durability::None, Durability::File, Durability::Dir] {
        passes("posix", async || posix_with(durability)).await;
    }
    passes("objects", async || objects()).await;
    passes("objects, quota", async || with_quota(objects()).await).await;
    let delay = Delay::of(Duration::from_micros(100));
    passes("delayed", async || (Arc::new(DelayedStorage::new(memory().0, delay.clone())) as _, None)).await;
    let beside = PosixOptions { without_attributes: true, ..PosixOptions::default() };
    passes("posix, side file", async || posix_of(beside.clone())).await;
}

async fn has_targets_that_pass(name: &str, prepare: impl AsyncFn() -> Prepared) {
    for check in conformance::targets::CHECKS {
        eprintln!("{name}: {}", check.name);
        let (storage, _kept) = prepare().await;
        check.run(&conformance::targets::OfStorage(storage.as_ref())).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_kind_of_target_passes_every_check() {
    has_targets_that_pass("memory", async || memory()).await;
    has_targets_that_pass("memory, quota", async || with_quota(memory()).await).await;
    has_targets_that_pass("posix, quota", async || with_quota(posix_with(Durability::File)).await).await;
    has_targets_that_pass("slow", async || (Arc::new(SlowStorage::new(with_sub(), Gate::new())) as _, None))
        .await;
    has_targets_that_pass("faulty", async || (Arc::new(FaultyStorage::new(with_sub(), u64::MAX)) as _, None))
        .await;
    for durability in [Durability::None, Durability::File, Durability::Dir] {
        has_targets_that_pass("posix", async || posix_with(durability)).await;
    }
    let delay = Delay::of(Duration::from_micros(100));
    has_targets_that_pass("delayed", async || {
        (Arc::new(DelayedStorage::new(memory().0, delay.clone())) as _, None)
    })
    .await;
    let beside = PosixOptions { without_attributes: true, ..PosixOptions::default() };
    has_targets_that_pass("posix, side file", async || posix_of(beside.clone())).await;
    for check in conformance::targets::CHECKS {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("sub")).unwrap();
        check.run(&conformance::targets::OfDirectory(directory.path())).await;
    }
    assert!(objects().0.targets().is_none(), "an object store has nothing to go on with");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_that_create_one_wins() {
    for (storage, _kept) in [memory(), posix_with(Durability::None)] {
        let mut racers = tokio::task::JoinSet::new();
        for number in 0..8 {
            let storage = Arc::clone(&storage);
            racers.spawn(async move {
                let upload = storage.create(&path("f"), Some(1)).await.unwrap();
                upload.write_at(&[number], 0).await.unwrap();
                upload.commit(&Expectation::Absent.into()).await.is_ok()
            });
        }
        assert_eq!(racers.join_all().await.into_iter().filter(|won| *won).count(), 1);
    }
}
