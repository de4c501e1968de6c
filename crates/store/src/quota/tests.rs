use super::*;
use crate::MemoryStorage;
use crate::blocking::{BlockingStorage, Read};
use crate::storage::DirectoryEntry;

fn path(text: &str) -> ObjectPath {
    ObjectPath::new(text.split('/').map(str::as_bytes)).unwrap()
}

/// Holds a file of 10 bytes, and a directory with one of 20.
async fn quota(limit_bytes: u64) -> QuotaStorage {
    let memory = MemoryStorage::new();
    memory.add_file(&path("f"), [0; 10]);
    memory.add_directory(&path("sub"));
    memory.add_file(&path("sub/g"), [0; 20]);
    let quota = QuotaStorage::new(Arc::new(memory), limit_bytes);
    assert!(!quota.usage().is_counted);
    quota.recount().await.unwrap();
    assert_eq!((quota.usage().used_bytes, quota.usage().is_counted), (30, true));
    quota
}

async fn put(quota: &QuotaStorage, at: &str, len: usize) -> StoreResult<Committed> {
    let upload = quota.create(&path(at), Some(len as u64)).await?;
    upload.write_at(&vec![0; len], 0).await?;
    upload.commit(&Expectation::Anything.into()).await
}

async fn used(quota: &QuotaStorage) -> (u64, u64) {
    let counted = (quota.usage().used_bytes, quota.usage().reserved_bytes);
    assert_eq!(quota.recount().await.unwrap().used_bytes, counted.0, "as a walk finds it");
    counted
}

#[tokio::test]
async fn every_change_is_counted() {
    let quota = quota(100).await;
    put(&quota, "h", 5).await.unwrap();
    assert_eq!(used(&quota).await, (35, 0));
    put(&quota, "h", 7).await.unwrap();
    assert_eq!(used(&quota).await, (37, 0));
    quota.remove(&path("h"), &Expectation::Anything).await.unwrap();
    assert_eq!(used(&quota).await, (30, 0));
    quota.rename(&path("f"), &path("sub/f"), Overwrite::Anything, &Expectation::Anything).await.unwrap();
    assert_eq!(used(&quota).await, (30, 0));
    put(&quota, "f", 3).await.unwrap();
    // A file onto a file, then a file onto a directory with 30 bytes.
    quota.rename(&path("f"), &path("sub/f"), Overwrite::Anything, &Expectation::Anything).await.unwrap();
    assert_eq!(used(&quota).await, (23, 0));
    put(&quota, "f", 1).await.unwrap();
    quota.rename(&path("f"), &path("sub"), Overwrite::Anything, &Expectation::Anything).await.unwrap();
    assert_eq!(used(&quota).await, (1, 0));
    quota.make_directories(&path("a/b/c")).await.unwrap();
    put(&quota, "a/b/c/f", 50).await.unwrap();
    assert_eq!(used(&quota).await, (51, 0));
    quota.remove_tree(&path("a")).await.unwrap();
    assert_eq!(used(&quota).await, (1, 0));
    assert!(quota.remove(&path("none"), &Expectation::Anything).await.is_err());
    assert!(quota.remove(&path("sub"), &Expectation::Absent).await.is_err());
    assert_eq!(used(&quota).await, (1, 0));
}

#[tokio::test]
async fn what_does_not_fit_is_refused_at_once_or_as_it_grows() {
    let quota = quota(100).await;
    assert!(matches!(quota.create(&path("h"), Some(71)).await.err(), Some(StoreError::OverQuota)));
    let known = quota.create(&path("h"), Some(50)).await.unwrap();
    assert!(matches!(quota.create(&path("i"), Some(21)).await.err(), Some(StoreError::OverQuota)));
    assert_eq!(quota.space(&ObjectPath::root()).await.unwrap().available_bytes, 20);
    let growing = quota.create(&path("i"), None).await.unwrap();
    growing.write_at(&[0; 15], 0).await.unwrap();
    growing.write_at(&[0; 15], 0).await.unwrap();
    assert!(matches!(growing.write_at(&[0; 6], 15).await, Err(StoreError::OverQuota)));
    let Opened::File(source) = quota.open(&path("f")).await.unwrap() else { panic!("a file") };
    let copy = quota.create(&path("j"), None).await.unwrap();
    assert!(matches!(copy.copy_range(source.as_ref(), 0, u64::MAX).await, Err(StoreError::OverQuota)));
    known.discard().await;
    // Memory has no means of its own.
    assert_eq!(copy.copy_range(source.as_ref(), 0, u64::MAX).await.unwrap(), 0);
    copy.write_at(&[0; 10], 0).await.unwrap();
    copy.commit(&Expectation::Anything.into()).await.unwrap();
    growing.write_at(&[0; 45], 15).await.unwrap();
    assert_eq!(quota.usage().reserved_bytes, 60);
    assert!(growing.commit(&Expectation::Tag("other".to_owned()).into()).await.is_err());
    assert_eq!(used(&quota).await, (40, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_at_the_same_time_never_hold_more() {
    let quota = quota(30 + 10 * 7).await;
    let quota = Arc::new(quota);
    let mut uploads = tokio::task::JoinSet::new();
    for number in 0..100 {
        let quota = Arc::clone(&quota);
        uploads.spawn(async move { put(&quota, &format!("upload-{number}"), 7).await.is_ok() });
    }
    let fitted = uploads.join_all().await.into_iter().filter(|fitted| *fitted).count();
    assert_eq!(fitted, 10);
    assert_eq!(used(&quota).await, (100, 0));
}

type Hook = Box<dyn FnMut(&str) + Send>;

/// A storage in whose operations something else may happen.
struct Watched {
    inner: MemoryStorage,
    hook: Mutex<Option<Hook>>,
}

impl Watched {
    async fn quota() -> (Arc<Watched>, Arc<QuotaStorage>) {
        let inner = MemoryStorage::new();
        for directory in ["a", "b"] {
            inner.add_directory(&path(directory));
        }
        inner.add_file(&path("a/f"), [0; 10]);
        let watched = Arc::new(Watched { inner, hook: Mutex::default() });
        let quota = Arc::new(QuotaStorage::new(Arc::clone(&watched) as Arc<dyn Storage>, 100));
        quota.recount().await.unwrap();
        (watched, quota)
    }

    /// Runs `hook` once, the next time that `event` happens.
    fn once(&self, event: &'static str, hook: impl FnOnce() + Send + 'static) {
        let mut hook = Some(hook);
        *self.hook.lock().unwrap() = Some(Box::new(move |happened| {
            if happened == event
                && let Some(hook) = hook.take()
            {
                hook();
            }
        }));
    }

    fn happens(&self, event: &str) {
        let hook = self.hook.lock().unwrap().take();
        if let Some(mut hook) = hook {
            hook(event);
            self.hook.lock().unwrap().get_or_insert(hook);
        }
    }
}

impl BlockingStorage for Watched {
    type Object = <MemoryStorage as BlockingStorage>::Object;
    type Upload = <MemoryStorage as BlockingStorage>::Upload;
    type File = <MemoryStorage as BlockingStorage>::File;

    fn turns(&self) -> &Arc<Turns> {
        BlockingStorage::turns(&self.inner)
    }
    fn look(&self, path: &ObjectPath) -> StoreResult<Metadata> {
        BlockingStorage::look(&self.inner, path)
    }
    fn open(&self, path: &ObjectPath) -> StoreResult<Opened<Self::Object>> {
        BlockingStorage::open(&self.inner, path)
    }
    fn entries(&self, path: &ObjectPath) -> StoreResult<Read<DirectoryEntry>> {
        self.happens(&format!("before {path}"));
        let entries: Vec<_> = BlockingStorage::entries(&self.inner, path)?.collect();
        self.happens(&format!("after {path}"));
        Ok(Box::new(entries.into_iter()))
    }
    fn make_directory(&self, path: &ObjectPath) -> StoreResult<()> {
        BlockingStorage::make_directory(&self.inner, path)
    }
    fn remove(&self, path: &ObjectPath, expectation: &Expectation) -> StoreResult<()> {
        BlockingStorage::remove(&self.inner, path, expectation)
    }
    fn remove_directory(&self, path: &ObjectPath) -> StoreResult<()> {
        BlockingStorage::remove_directory(&self.inner, path)
    }
    fn remove_tree(&self, path: &ObjectPath) -> StoreResult<()> {
        BlockingStorage::remove_tree(&self.inner, path)?;
        self.happens("removed");
        Ok(())
    }
    fn rename(
        &self,
        from: &ObjectPath,
        to: &ObjectPath,
        overwrite: Overwrite,
        expectation: &Expectation,
    ) -> StoreResult<bool> {
        BlockingStorage::rename(&self.inner, from, to, overwrite, expectation)
    }
    fn set_modified(&self, path: &ObjectPath, modified: SystemTime) -> StoreResult<()> {
        BlockingStorage::set_modified(&self.inner, path, modified)
    }
    fn space(&self, path: &ObjectPath) -> StoreResult<Space> {
        BlockingStorage::space(&self.inner, path)
    }
    fn create(&self, path: &ObjectPath, expected_bytes: Option<u64>) -> StoreResult<Self::Upload> {
        BlockingStorage::create(&self.inner, path, expected_bytes)
    }
    fn open_writable(&self, path: &ObjectPath, options: &WriteOptions) -> StoreResult<Self::File> {
        BlockingStorage::open_writable(&self.inner, path, options)
    }
}

/// The change by another client meanwhile, where the storage blocks.
fn meanwhile<T>(task: impl Future<Output = T>) -> T {
    Handle::current().block_on(task)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_walk_met_is_never_counted_too_small() {
    // A removal takes long, and a walk finds what is left.
    let (watched, quota) = Watched::quota().await;
    put(&quota, "b/g", 20).await.unwrap();
    let walker = Arc::clone(&quota);
    watched.once("removed", move || assert_eq!(meanwhile(walker.recount()).unwrap().used_bytes, 20));
    quota.remove_tree(&path("a")).await.unwrap();
    assert_eq!(used(&quota).await, (20, 0));
    // A file is moved from where the walk has not been to where it was.
    for (event, from, to) in [("after /b", "a/f", "b/f"), ("after /a", "b/f", "a/f")] {
        let (watched, quota) = Watched::quota().await;
        quota.rename(&path("a/f"), &path(from), Overwrite::Anything, &Expectation::Anything).await.ok();
        let mover = Arc::clone(&quota);
        watched.once(event, move || {
            let (from, to) = (path(from), path(to));
            meanwhile(mover.rename(&from, &to, Overwrite::Nothing, &Expectation::Anything)).unwrap();
        });
        assert!(quota.recount().await.unwrap().used_bytes >= 10, "{event}");
        assert_eq!(quota.recount().await.unwrap().used_bytes, 10);
    }
}

#[tokio::test]
async fn space_is_the_smaller_of_the_two() {
    let quota = quota(100).await;
    let root = ObjectPath::root();
    let space = Space { total_bytes: 100, used_bytes: 30, available_bytes: 70 };
    assert_eq!(quota.space(&root).await.unwrap(), space);
    let small = MemoryStorage::new().with_capacity(40);
    let quota = QuotaStorage::new(Arc::new(small), 100);
    assert_eq!(quota.space(&root).await.unwrap().available_bytes, 40);
    // A limit that was lowered.
    let quota = self::quota(20).await;
    let space = Space { total_bytes: 30, used_bytes: 30, available_bytes: 0 };
    assert_eq!(quota.space(&root).await.unwrap(), space);
    assert!(matches!(put(&quota, "h", 1).await, Err(StoreError::OverQuota)));
    put(&quota, "h", 0).await.unwrap();
}

async fn change(
    quota: &QuotaStorage,
    at: &str,
    options: &WriteOptions,
) -> StoreResult<Arc<dyn WritableFile>> {
    quota.open_writable(&path(at), options).await
}

fn existing() -> WriteOptions {
    WriteOptions::new(Disposition::Existing)
}

#[tokio::test]
async fn what_is_written_in_place_is_counted_and_refused() {
    let quota = quota(100).await;
    let file = change(&quota, "f", &existing()).await.unwrap();
    file.write_at(&[1; 5], 5).await.unwrap();
    assert_eq!(used(&quota).await, (30, 0), "no longer than it was");
    file.write_at(&[1; 10], 15).await.unwrap();
    assert_eq!(used(&quota).await, (45, 0));
    file.truncate(80).await.unwrap();
    assert_eq!(used(&quota).await, (100, 0));
    assert!(matches!(file.write_at(&[1], 80).await, Err(StoreError::OverQuota)));
    assert!(matches!(file.truncate(81).await, Err(StoreError::OverQuota)));
    let parts = [std::io::IoSlice::new(&[1; 5]), std::io::IoSlice::new(&[1; 5])];
    assert!(matches!(file.write_vectored_at(&parts, 71).await, Err(StoreError::OverQuota)));
    assert_eq!(file.metadata().unwrap().size_bytes, 80);
    assert!(matches!(put(&quota, "h", 1).await, Err(StoreError::OverQuota)));
    file.truncate(3).await.unwrap();
    assert_eq!(used(&quota).await, (23, 0));
    file.close(None).await.unwrap();
    file.discard().await;
    change(&quota, "f", &WriteOptions::new(Disposition::Replace)).await.unwrap().discard().await;
    assert_eq!(used(&quota).await, (20, 0));
    let made = change(&quota, "h", &WriteOptions::new(Disposition::New)).await.unwrap();
    made.write_at(&[0; 7], 0).await.unwrap();
    made.discard().await;
    assert_eq!(used(&quota).await, (27, 0));
    assert!(quota.files.is_empty());
}

#[tokio::test]
async fn a_known_length_is_reserved() {
    let quota = quota(100).await;
    for visibility in [Visibility::AtOnce, Visibility::WhenClosed] {
        for disposition in [Disposition::New, Disposition::Replace] {
            let expecting = |bytes| WriteOptions {
                visibility,
                expected_bytes: Some(bytes),
                ..WriteOptions::new(disposition)
            };
            assert!(matches!(change(&quota, "h", &expecting(71)).await.err(), Some(StoreError::OverQuota)));
            assert!(quota.look(&path("h")).await.is_err());
            let file = change(&quota, "h", &expecting(50)).await.unwrap();
            assert_eq!(used(&quota).await, (30, 50));
            assert!(matches!(put(&quota, "i", 21).await, Err(StoreError::OverQuota)));
            file.write_at(&[0; 40], 0).await.unwrap();
            let usage = quota.usage();
            assert_eq!(usage.used_bytes + usage.reserved_bytes, 80);
            // More than was expected, as far as it goes.
            file.write_at(&[0; 30], 40).await.unwrap();
            assert!(matches!(file.write_at(&[0; 31], 40).await, Err(StoreError::OverQuota)));
            file.truncate(45).await.unwrap();
            file.close(None).await.unwrap();
            assert_eq!(used(&quota).await, (75, 0));
            quota.remove(&path("h"), &Expectation::Anything).await.unwrap();
            change(&quota, "h", &expecting(50)).await.unwrap().discard().await;
            assert_eq!(used(&quota).await, (30, 0));
            quota.remove(&path("h"), &Expectation::Anything).await.ok();
        }
    }
    let more = WriteOptions { expected_bytes: Some(80), ..existing() };
    let file = change(&quota, "f", &more).await.unwrap();
    assert_eq!(used(&quota).await, (30, 70));
    assert!(matches!(change(&quota, "sub/g", &more).await.err(), Some(StoreError::OverQuota)));
    file.discard().await;
    assert_eq!(used(&quota).await, (30, 0));
}

#[tokio::test]
async fn what_is_replaced_when_closed_counts_until_then() {
    let quota = quota(100).await;
    let options =
        WriteOptions { visibility: Visibility::WhenClosed, ..WriteOptions::new(Disposition::Replace) };
    let file = change(&quota, "sub/g", &options).await.unwrap();
    file.write_at(&[0; 70], 0).await.unwrap();
    assert_eq!(used(&quota).await, (30, 70));
    assert!(matches!(file.truncate(71).await, Err(StoreError::OverQuota)));
    file.close(None).await.unwrap();
    assert_eq!(used(&quota).await, (80, 0));
    let file = change(&quota, "sub/g", &options).await.unwrap();
    file.write_at(&[0; 20], 0).await.unwrap();
    file.discard().await;
    assert_eq!(used(&quota).await, (80, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_have_one_file_open_are_counted_once() {
    let quota = quota(30 + 8 * 100).await;
    let mut handles = Vec::new();
    for _ in 0..8 {
        handles.push(change(&quota, "f", &existing()).await.unwrap());
    }
    let mut tasks = tokio::task::JoinSet::new();
    for (number, file) in handles.iter().cloned().enumerate() {
        tasks.spawn(async move {
            for at in 0..100 {
                file.write_at(&[1], at * 8 + number as u64).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(used(&quota).await, (20 + 800, 0));
    handles[0].truncate(10).await.unwrap();
    handles[1].write_at(&[1; 10], 10).await.unwrap();
    assert_eq!(used(&quota).await, (40, 0));
    let mut tasks = tokio::task::JoinSet::new();
    for file in &handles {
        let file = Arc::clone(file);
        tasks.spawn(async move {
            for round in 0..100_u64 {
                let changed = match round % 3 {
                    0 => file.truncate(round).await,
                    _ => file.write_at(&[1; 50], round).await,
                };
                changed.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let last = used(&quota).await;
    assert_eq!(last, (20 + handles[0].metadata().unwrap().size_bytes, 0));
    drop(handles);
    assert_eq!(used(&quota).await, last);
    assert!(quota.files.is_empty());
}

#[tokio::test]
async fn a_write_that_fails_counts_nothing() {
    let memory = MemoryStorage::new();
    memory.add_file(&path("f"), [0; 10]);
    let faulty = crate::fake::FaultyStorage::new(memory, 50);
    let quota = QuotaStorage::new(Arc::new(faulty), 100);
    quota.recount().await.unwrap();
    let file = change(&quota, "f", &existing()).await.unwrap();
    assert!(matches!(file.write_at(&[1; 20], 40).await, Err(StoreError::NoSpace)));
    assert!(matches!(file.truncate(60).await, Err(StoreError::NoSpace)));
    assert_eq!(used(&quota).await, (10, 0));
    file.write_at(&[1; 10], 40).await.unwrap();
    assert_eq!(used(&quota).await, (50, 0));
    file.close(None).await.unwrap();
    assert!(matches!(file.truncate(20).await, Err(StoreError::Closed)));
    assert!(matches!(file.write_at(&[1; 20], 60).await, Err(StoreError::Closed | StoreError::NoSpace)));
    assert_eq!(used(&quota).await, (50, 0));
}

#[tokio::test]
async fn what_grows_without_a_name_is_given_back_when_nobody_has_it_open() {
    let quota = quota(100).await;
    let files =
        [change(&quota, "f", &existing()).await.unwrap(), change(&quota, "f", &existing()).await.unwrap()];
    files[0].write_at(&[0; 20], 10).await.unwrap();
    quota.remove(&path("f"), &Expectation::Anything).await.unwrap();
    assert_eq!(used(&quota).await, (20, 0));
    files[1].write_at(&[0; 20], 30).await.unwrap();
    assert_eq!(used(&quota).await, (20, 20));
    assert!(matches!(files[0].truncate(1000).await, Err(StoreError::OverQuota)));
    files[0].truncate(0).await.unwrap();
    let [first, second] = files;
    first.discard().await;
    assert_eq!(used(&quota).await, (20, 20));
    second.discard().await;
    assert_eq!(used(&quota).await, (20, 0));
    assert!(quota.files.is_empty());
}

/// A call that is cancelled while its write waits for the device has counted bytes that were never written.
#[tokio::test]
async fn a_write_that_is_cancelled_counts_nothing_in_the_end() {
    let memory = MemoryStorage::new();
    memory.add_file(&path("f"), [0; 10]);
    let turns = Arc::clone(BlockingStorage::turns(&memory));
    let quota = QuotaStorage::new(Arc::new(memory), 100);
    quota.recount().await.unwrap();
    for recounts in [false, true] {
        let file = change(&quota, "f", &existing()).await.unwrap();
        let all =
            turns.budget().try_take(gridlane_share::budget::Holder::SERVER, limits::DISK_OPERATIONS_MAX);
        let held = all.ok().unwrap();
        {
            let bytes = [1; 50];
            let mut write = file.write_at(&bytes, 10);
            let waker = &mut std::task::Context::from_waker(std::task::Waker::noop());
            assert!(write.as_mut().poll(waker).is_pending());
        }
        drop(held);
        assert_eq!(quota.usage().used_bytes, 60);
        if recounts {
            quota.recount().await.unwrap();
        }
        file.discard().await;
        assert_eq!(used(&quota).await, (10, 0), "{recounts}");
    }
}
