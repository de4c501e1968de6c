//! The fakes misbehave as they are told to.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;

use gridlane_store::fake::{FaultyStorage, Gate, SlowStorage};
use gridlane_store::{
    BlockingFile, BlockingObject, BlockingStorage, BlockingUpload, Disposition, Expectation, MemoryStorage,
    ObjectPath, Opened, StoreError, Visibility, WriteOptions,
};

fn path(text: &str) -> ObjectPath {
    ObjectPath::new(text.split('/').map(str::as_bytes)).unwrap()
}

fn open<S: BlockingStorage>(storage: &S, at: &str) -> Arc<S::Object> {
    match storage.open(&path(at)).unwrap() {
        Opened::File(object) => object,
        Opened::Directory => panic!("a file"),
    }
}

#[test]
fn the_fakes_misbehave() {
    let storage = MemoryStorage::new();
    storage.add_file(&path("f"), *b"0123456789");
    let faulty = FaultyStorage::new(storage.clone(), 4);
    assert_eq!(open(&faulty, "f").read_at(&mut [0; 10], 0).unwrap(), 4);
    let upload = faulty.create(&path("g"), Some(5)).unwrap();
    assert!(matches!(upload.write_at(b"01234", 0), Err(StoreError::NoSpace)));
    assert!(matches!(faulty.open(&path("g")), Err(StoreError::NotFound)));

    let gate = Gate::new();
    let slow = SlowStorage::new(storage.clone(), gate.clone());
    let object = open(&slow, "f");
    assert_eq!(object.read_at_nowait(&mut [0; 10], 0).unwrap(), None);
    gate.close();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| object.read_at(&mut [0; 10], 0).unwrap());
        gate.wait_for_waiting(1);
        gate.open();
        assert_eq!(reader.join().unwrap(), 10);
    });

    let broken = FaultyStorage::new(storage.clone(), 4).broken();
    let file = broken.open_writable(&path("f"), &WriteOptions::new(Disposition::Existing)).unwrap();
    assert!(matches!(file.write_at(b"01", 3), Err(StoreError::NoSpace)));
    assert!(matches!(file.truncate(5), Err(StoreError::NoSpace)));
    assert_eq!(file.read_at(&mut [0; 10], 2).unwrap(), 2);
    assert!(file.read_at(&mut [0; 10], 4).is_err());
    let file = slow.open_writable(&path("f"), &WriteOptions::new(Disposition::Existing)).unwrap();
    assert_eq!(file.read_at_nowait(&mut [0; 10], 0).unwrap(), None);

    let small = MemoryStorage::new().with_capacity(4);
    for visibility in [Visibility::AtOnce, Visibility::WhenClosed] {
        let options = WriteOptions { visibility, ..WriteOptions::new(Disposition::New) };
        let file = small.open_writable(&path("g"), &options).unwrap();
        file.write_at(b"012", 0).unwrap();
        assert!(matches!(file.write_at(b"34", 3), Err(StoreError::NoSpace)));
        assert_eq!(file.close(None).unwrap().metadata.size_bytes, 3);
        small.remove(&path("g"), &Expectation::Anything).unwrap();
    }
    assert!(matches!(small.create(&path("f"), Some(5)), Err(StoreError::NoSpace)));
    let upload = small.create(&path("f"), None).unwrap();
    assert!(matches!(upload.write_at(b"01234", 0), Err(StoreError::NoSpace)));
}
