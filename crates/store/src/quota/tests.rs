use super::*;
use crate::MemoryStorage;

fn path(text: &str) -> ObjectPath {
    ObjectPath::new(text.split('/').map(str::as_bytes)).unwrap()
}

/// Holds a file of 10 bytes, and a directory with one of 20.
fn quota(limit_bytes: u64) -> QuotaStorage {
    let memory = MemoryStorage::new();
    memory.add_file(&path("f"), [0; 10]);
    memory.add_directory(&path("sub"));
    memory.add_file(&path("sub/g"), [0; 20]);
    let quota = QuotaStorage::new(Arc::new(memory), limit_bytes);
    assert!(!quota.usage().is_counted);
    quota.recount().unwrap();
    assert_eq!((quota.usage().used_bytes, quota.usage().is_counted), (30, true));
    quota
}

fn put(quota: &QuotaStorage, at: &str, len: usize) -> StoreResult<Committed> {
    let mut upload = quota.create(&path(at), Some(len as u64))?;
    upload.write_at(&vec![0; len], 0)?;
    upload.commit(&Expectation::Anything)
}

fn used(quota: &QuotaStorage) -> (u64, u64) {
    let counted = (quota.usage().used_bytes, quota.usage().reserved_bytes);
    assert_eq!(quota.recount().unwrap().used_bytes, counted.0, "as a walk finds it");
    counted
}

#[test]
fn every_change_is_counted() {
    let quota = quota(100);
    put(&quota, "h", 5).unwrap();
    assert_eq!(used(&quota), (35, 0));
    put(&quota, "h", 7).unwrap();
    assert_eq!(used(&quota), (37, 0));
    quota.remove(&path("h"), &Expectation::Anything).unwrap();
    assert_eq!(used(&quota), (30, 0));
    quota.rename(&path("f"), &path("sub/f"), Overwrite::Anything, &Expectation::Anything).unwrap();
    assert_eq!(used(&quota), (30, 0));
    put(&quota, "f", 3).unwrap();
    // A file onto a file, then a file onto a directory with 30 bytes.
    quota.rename(&path("f"), &path("sub/f"), Overwrite::Anything, &Expectation::Anything).unwrap();
    assert_eq!(used(&quota), (23, 0));
    put(&quota, "f", 1).unwrap();
    quota.rename(&path("f"), &path("sub"), Overwrite::Anything, &Expectation::Anything).unwrap();
    assert_eq!(used(&quota), (1, 0));
    quota.make_directories(&path("a/b/c")).unwrap();
    put(&quota, "a/b/c/f", 50).unwrap();
    assert_eq!(used(&quota), (51, 0));
    quota.remove_tree(&path("a")).unwrap();
    assert_eq!(used(&quota), (1, 0));
    assert!(quota.remove(&path("none"), &Expectation::Anything).is_err());
    assert!(quota.remove(&path("sub"), &Expectation::Absent).is_err());
    assert_eq!(used(&quota), (1, 0));
}

#[test]
fn what_does_not_fit_is_refused_at_once_or_as_it_grows() {
    let quota = quota(100);
    assert!(matches!(quota.create(&path("h"), Some(71)).err(), Some(StoreError::OverQuota)));
    let known = quota.create(&path("h"), Some(50)).unwrap();
    assert!(matches!(quota.create(&path("i"), Some(21)).err(), Some(StoreError::OverQuota)));
    assert_eq!(quota.space(&ObjectPath::root()).unwrap().available_bytes, 20);
    let mut growing = quota.create(&path("i"), None).unwrap();
    growing.write_at(&[0; 15], 0).unwrap();
    growing.write_at(&[0; 15], 0).unwrap();
    assert!(matches!(growing.write_at(&[0; 6], 15), Err(StoreError::OverQuota)));
    let Opened::File(source) = quota.open(&path("f")).unwrap() else { panic!("a file") };
    let mut copy = quota.create(&path("j"), None).unwrap();
    assert!(matches!(copy.copy_range(source.as_ref(), 0, u64::MAX), Err(StoreError::OverQuota)));
    drop(known);
    assert_eq!(copy.copy_range(source.as_ref(), 0, u64::MAX).unwrap(), 10);
    copy.commit(&Expectation::Anything).unwrap();
    growing.write_at(&[0; 45], 15).unwrap();
    assert_eq!(quota.usage().reserved_bytes, 60);
    assert!(growing.commit(&Expectation::Tag("other".to_owned())).is_err());
    assert_eq!(used(&quota), (40, 0));
}

#[test]
fn uploads_at_the_same_time_never_hold_more() {
    let quota = quota(30 + 10 * 7);
    let fitted: usize = std::thread::scope(|scope| {
        let uploads: Vec<_> = (0..100)
            .map(|number| {
                let quota = &quota;
                scope.spawn(move || usize::from(put(quota, &format!("upload-{number}"), 7).is_ok()))
            })
            .collect();
        uploads.into_iter().map(|upload| upload.join().unwrap()).sum()
    });
    assert_eq!(fitted, 10);
    assert_eq!(used(&quota), (100, 0));
}

type Hook = Box<dyn FnMut(&str) + Send>;

/// A storage in whose operations something else may happen.
struct Watched {
    inner: MemoryStorage,
    hook: Mutex<Option<Hook>>,
}

impl Watched {
    fn quota() -> (Arc<Watched>, Arc<QuotaStorage>) {
        let inner = MemoryStorage::new();
        for directory in ["a", "b"] {
            inner.add_directory(&path(directory));
        }
        inner.add_file(&path("a/f"), [0; 10]);
        let watched = Arc::new(Watched { inner, hook: Mutex::default() });
        let quota = Arc::new(QuotaStorage::new(Arc::clone(&watched) as Arc<dyn Storage>, 100));
        quota.recount().unwrap();
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

impl Storage for Watched {
    fn look(&self, path: &ObjectPath) -> StoreResult<Metadata> {
        self.inner.look(path)
    }
    fn open(&self, path: &ObjectPath) -> StoreResult<Opened> {
        self.inner.open(path)
    }
    fn entries(&self, path: &ObjectPath) -> StoreResult<Entries> {
        self.happens(&format!("before {path}"));
        let entries: Vec<_> = self.inner.entries(path)?.collect();
        self.happens(&format!("after {path}"));
        Ok(Box::new(entries.into_iter()))
    }
    fn make_directory(&self, path: &ObjectPath) -> StoreResult<()> {
        self.inner.make_directory(path)
    }
    fn remove(&self, path: &ObjectPath, expectation: &Expectation) -> StoreResult<()> {
        self.inner.remove(path, expectation)
    }
    fn remove_directory(&self, path: &ObjectPath) -> StoreResult<()> {
        self.inner.remove_directory(path)
    }
    fn remove_tree(&self, path: &ObjectPath) -> StoreResult<()> {
        self.inner.remove_tree(path)?;
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
        self.inner.rename(from, to, overwrite, expectation)
    }
    fn set_modified(&self, path: &ObjectPath, modified: SystemTime) -> StoreResult<()> {
        self.inner.set_modified(path, modified)
    }
    fn space(&self, path: &ObjectPath) -> StoreResult<Space> {
        self.inner.space(path)
    }
    fn create(&self, path: &ObjectPath, expected_bytes: Option<u64>) -> StoreResult<Box<dyn Upload>> {
        self.inner.create(path, expected_bytes)
    }
}

#[test]
fn what_a_walk_met_is_never_counted_too_small() {
    // A removal takes long, and a walk finds what is left.
    let (watched, quota) = Watched::quota();
    put(&quota, "b/g", 20).unwrap();
    let walker = Arc::clone(&quota);
    watched.once("removed", move || assert_eq!(walker.recount().unwrap().used_bytes, 20));
    quota.remove_tree(&path("a")).unwrap();
    assert_eq!(used(&quota), (20, 0));
    // A file is moved from where the walk has not been to where it was.
    for (event, from, to) in [("after /b", "a/f", "b/f"), ("after /a", "b/f", "a/f")] {
        let (watched, quota) = Watched::quota();
        quota.rename(&path("a/f"), &path(from), Overwrite::Anything, &Expectation::Anything).ok();
        let mover = Arc::clone(&quota);
        watched.once(event, move || {
            mover.rename(&path(from), &path(to), Overwrite::Nothing, &Expectation::Anything).unwrap();
        });
        assert!(quota.recount().unwrap().used_bytes >= 10, "{event}");
        assert_eq!(quota.recount().unwrap().used_bytes, 10);
    }
}

#[test]
fn space_is_the_smaller_of_the_two() {
    let quota = quota(100);
    let root = ObjectPath::root();
    let space = Space { total_bytes: 100, used_bytes: 30, available_bytes: 70 };
    assert_eq!(quota.space(&root).unwrap(), space);
    let small = MemoryStorage::new().with_capacity(40);
    let quota = QuotaStorage::new(Arc::new(small), 100);
    assert_eq!(quota.space(&root).unwrap().available_bytes, 40);
    // A limit that was lowered.
    let quota = self::quota(20);
    let space = Space { total_bytes: 30, used_bytes: 30, available_bytes: 0 };
    assert_eq!(quota.space(&root).unwrap(), space);
    assert!(matches!(put(&quota, "h", 1), Err(StoreError::OverQuota)));
    put(&quota, "h", 0).unwrap();
}

fn change(quota: &QuotaStorage, at: &str, options: &WriteOptions) -> StoreResult<Arc<dyn WritableFile>> {
    quota.open_writable(&path(at), options)
}

fn existing() -> WriteOptions {
    WriteOptions::new(Disposition::Existing)
}

#[test]
fn what_is_written_in_place_is_counted_and_refused() {
    let quota = quota(100);
    let file = change(&quota, "f", &existing()).unwrap();
    file.write_at(&[1; 5], 5).unwrap();
    assert_eq!(used(&quota), (30, 0), "no longer than it was");
    file.write_at(&[1; 10], 15).unwrap();
    assert_eq!(used(&quota), (45, 0));
    file.truncate(80).unwrap();
    assert_eq!(used(&quota), (100, 0));
    assert!(matches!(file.write_at(&[1], 80), Err(StoreError::OverQuota)));
    assert!(matches!(file.truncate(81), Err(StoreError::OverQuota)));
    let parts = [std::io::IoSlice::new(&[1; 5]), std::io::IoSlice::new(&[1; 5])];
    assert!(matches!(file.write_vectored_at(&parts, 71), Err(StoreError::OverQuota)));
    assert_eq!(file.metadata().unwrap().size_bytes, 80);
    assert!(matches!(put(&quota, "h", 1), Err(StoreError::OverQuota)));
    file.truncate(3).unwrap();
    assert_eq!(used(&quota), (23, 0));
    file.close(&[]).unwrap();
    drop(file);
    drop(change(&quota, "f", &WriteOptions::new(Disposition::Replace)).unwrap());
    assert_eq!(used(&quota), (20, 0));
    let made = change(&quota, "h", &WriteOptions::new(Disposition::New)).unwrap();
    made.write_at(&[0; 7], 0).unwrap();
    drop(made);
    assert_eq!(used(&quota), (27, 0));
    assert!(quota.files.is_empty());
}

#[test]
fn a_known_length_is_reserved() {
    let quota = quota(100);
    for visibility in [Visibility::AtOnce, Visibility::WhenClosed] {
        for disposition in [Disposition::New, Disposition::Replace] {
            let expecting = |bytes| WriteOptions {
                visibility,
                expected_bytes: Some(bytes),
                ..WriteOptions::new(disposition)
            };
            assert!(matches!(change(&quota, "h", &expecting(71)).err(), Some(StoreError::OverQuota)));
            assert!(quota.look(&path("h")).is_err());
            let file = change(&quota, "h", &expecting(50)).unwrap();
            assert_eq!(used(&quota), (30, 50));
            assert!(matches!(put(&quota, "i", 21), Err(StoreError::OverQuota)));
            file.write_at(&[0; 40], 0).unwrap();
            let usage = quota.usage();
            assert_eq!(usage.used_bytes + usage.reserved_bytes, 80);
            // More than was expected, as far as it goes.
            file.write_at(&[0; 30], 40).unwrap();
            assert!(matches!(file.write_at(&[0; 31], 40), Err(StoreError::OverQuota)));
            file.truncate(45).unwrap();
            file.close(&[]).unwrap();
            assert_eq!(used(&quota), (75, 0));
            quota.remove(&path("h"), &Expectation::Anything).unwrap();
            drop(change(&quota, "h", &expecting(50)).unwrap());
            assert_eq!(used(&quota), (30, 0));
            quota.remove(&path("h"), &Expectation::Anything).ok();
        }
    }
    let more = WriteOptions { expected_bytes: Some(80), ..existing() };
    let file = change(&quota, "f", &more).unwrap();
    assert_eq!(used(&quota), (30, 70));
    assert!(matches!(change(&quota, "sub/g", &more).err(), Some(StoreError::OverQuota)));
    drop(file);
    assert_eq!(used(&quota), (30, 0));
}

#[test]
fn what_is_replaced_when_closed_counts_until_then() {
    let quota = quota(100);
    let options =
        WriteOptions { visibility: Visibility::WhenClosed, ..WriteOptions::new(Disposition::Replace) };
    let file = change(&quota, "sub/g", &options).unwrap();
    file.write_at(&[0; 70], 0).unwrap();
    assert_eq!(used(&quota), (30, 70));
    assert!(matches!(file.truncate(71), Err(StoreError::OverQuota)));
    file.close(&[]).unwrap();
    assert_eq!(used(&quota), (80, 0));
    let file = change(&quota, "sub/g", &options).unwrap();
    file.write_at(&[0; 20], 0).unwrap();
    drop(file);
    assert_eq!(used(&quota), (80, 0));
}

#[test]
fn two_that_have_one_file_open_are_counted_once() {
    let quota = quota(30 + 8 * 100);
    let handles: Vec<_> = (0..8).map(|_| change(&quota, "f", &existing()).unwrap()).collect();
    std::thread::scope(|scope| {
        for (number, file) in handles.iter().enumerate() {
            scope.spawn(move || {
                for at in 0..100 {
                    file.write_at(&[1], at * 8 + number as u64).unwrap();
                }
            });
        }
    });
    assert_eq!(used(&quota), (20 + 800, 0));
    handles[0].truncate(10).unwrap();
    handles[1].write_at(&[1; 10], 10).unwrap();
    assert_eq!(used(&quota), (40, 0));
    std::thread::scope(|scope| {
        for file in &handles {
            scope.spawn(|| {
                for round in 0..100_u64 {
                    if round % 3 == 0 { file.truncate(round) } else { file.write_at(&[1; 50], round) }
                        .unwrap();
                }
            });
        }
    });
    let last = used(&quota);
    assert_eq!(last, (20 + handles[0].metadata().unwrap().size_bytes, 0));
    drop(handles);
    assert_eq!(used(&quota), last);
    assert!(quota.files.is_empty());
}

#[test]
fn a_write_that_fails_counts_nothing() {
    let memory = MemoryStorage::new();
    memory.add_file(&path("f"), [0; 10]);
    let faulty = crate::fake::FaultyStorage::new(memory, 50);
    let quota = QuotaStorage::new(Arc::new(faulty), 100);
    quota.recount().unwrap();
    let file = change(&quota, "f", &existing()).unwrap();
    assert!(matches!(file.write_at(&[1; 20], 40), Err(StoreError::NoSpace)));
    assert!(matches!(file.truncate(60), Err(StoreError::NoSpace)));
    assert_eq!(used(&quota), (10, 0));
    file.write_at(&[1; 10], 40).unwrap();
    assert_eq!(used(&quota), (50, 0));
    file.close(&[]).unwrap();
    assert!(matches!(file.truncate(20), Err(StoreError::Closed)));
    assert!(matches!(file.write_at(&[1; 20], 60), Err(StoreError::Closed | StoreError::NoSpace)));
    assert_eq!(used(&quota), (50, 0));
}

#[test]
fn what_grows_without_a_name_is_given_back_when_nobody_has_it_open() {
    let quota = quota(100);
    let files = [change(&quota, "f", &existing()).unwrap(), change(&quota, "f", &existing()).unwrap()];
    files[0].write_at(&[0; 20], 10).unwrap();
    quota.remove(&path("f"), &Expectation::Anything).unwrap();
    assert_eq!(used(&quota), (20, 0));
    files[1].write_at(&[0; 20], 30).unwrap();
    assert_eq!(used(&quota), (20, 20));
    assert!(matches!(files[0].truncate(1000), Err(StoreError::OverQuota)));
    files[0].truncate(0).unwrap();
    let [first, second] = files;
    drop(first);
    assert_eq!(used(&quota), (20, 20));
    drop(second);
    assert_eq!(used(&quota), (20, 0));
    assert!(quota.files.is_empty());
}
