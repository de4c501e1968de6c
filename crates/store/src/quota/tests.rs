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
    quota.rename(&path("f"), &path("sub/f"), true, &Expectation::Anything).unwrap();
    assert_eq!(used(&quota), (30, 0));
    put(&quota, "f", 3).unwrap();
    // A file onto a file, then a file onto a directory with 30 bytes.
    quota.rename(&path("f"), &path("sub/f"), true, &Expectation::Anything).unwrap();
    assert_eq!(used(&quota), (23, 0));
    put(&quota, "f", 1).unwrap();
    quota.rename(&path("f"), &path("sub"), true, &Expectation::Anything).unwrap();
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
        overwrite: bool,
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
        quota.rename(&path("a/f"), &path(from), true, &Expectation::Anything).ok();
        let mover = Arc::clone(&quota);
        watched.once(event, move || {
            mover.rename(&path(from), &path(to), false, &Expectation::Anything).unwrap();
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
