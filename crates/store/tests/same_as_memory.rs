//! Random sequences of operations: a directory of this machine answers as the storage in memory does, and has
//! the same tree in the end; a quota around it counts what is there.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::mem::discriminant;
use std::sync::Arc;

use gridlane_store::{
    Disposition, Durability, Expectation, MemoryStorage, ObjectPath, Opened, PosixStorage, QuotaStorage,
    Storage, StoreError, StoreResult, Visibility, WriteOptions,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Operation {
    Put { at: ObjectPath, len: usize, expect: Expect },
    Copy { from: ObjectPath, to: ObjectPath },
    MakeDirectory(ObjectPath),
    MakeDirectories(ObjectPath),
    Remove { at: ObjectPath, expect: Expect },
    RemoveDirectory(ObjectPath),
    RemoveTree(ObjectPath),
    Rename { from: ObjectPath, to: ObjectPath, overwrite: bool, expect: Expect },
    Look(ObjectPath),
    Change { at: ObjectPath, options: WriteOptions, offset: u64, len: usize, cut: Option<u64>, closes: bool },
}

#[derive(Clone, Copy, Debug)]
enum Expect {
    Anything,
    Absent,
    /// What is there now, if anything.
    Current,
    Other,
}

impl Expect {
    async fn of(self, storage: &dyn Storage, at: &ObjectPath) -> Expectation {
        match self {
            Expect::Anything => Expectation::Anything,
            Expect::Absent => Expectation::Absent,
            Expect::Current => {
                storage.look(at).await.map_or(Expectation::Absent, |metadata| Expectation::Tag(metadata.tag))
            }
            Expect::Other => Expectation::Tag("other".to_owned()),
        }
    }
}

fn any_path() -> impl Strategy<Value = ObjectPath> {
    let name = prop_oneof![Just(&b"a"[..]), Just(&b"b"[..]), Just(&b"a-"[..])];
    prop::collection::vec(name, 0..4).prop_map(|names| ObjectPath::new(names).unwrap())
}

fn any_expect() -> impl Strategy<Value = Expect> {
    prop_oneof![
        3 => Just(Expect::Anything),
        1 => Just(Expect::Absent),
        1 => Just(Expect::Current),
        1 => Just(Expect::Other),
    ]
}

fn any_options() -> impl Strategy<Value = WriteOptions> {
    let disposition =
        prop_oneof![Just(Disposition::Existing), Just(Disposition::New), Just(Disposition::Replace)];
    let visibility = prop_oneof![2 => Just(Visibility::AtOnce), 1 => Just(Visibility::WhenClosed)];
    (disposition, visibility, any::<bool>(), prop::option::of(0..100_u64)).prop_map(
        |(disposition, visibility, parents, expected_bytes)| WriteOptions {
            visibility,
            parents,
            expected_bytes,
            ..WriteOptions::new(disposition)
        },
    )
}

fn any_change() -> impl Strategy<Value = Operation> {
    (any_path(), any_options(), 0..100_u64, 0..100_usize, prop::option::of(0..100_u64), any::<bool>())
        .prop_map(|(at, options, offset, len, cut, closes)| Operation::Change {
            at,
            options,
            offset,
            len,
            cut,
            closes,
        })
}

fn any_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => (any_path(), 0..100_usize, any_expect())
            .prop_map(|(at, len, expect)| Operation::Put { at, len, expect }),
        1 => (any_path(), any_path()).prop_map(|(from, to)| Operation::Copy { from, to }),
        3 => any_path().prop_map(Operation::MakeDirectory),
        2 => any_path().prop_map(Operation::MakeDirectories),
        1 => (any_path(), any_expect()).prop_map(|(at, expect)| Operation::Remove { at, expect }),
        1 => any_path().prop_map(Operation::RemoveDirectory),
        1 => any_path().prop_map(Operation::RemoveTree),
        3 => (any_path(), any_path(), any::<bool>(), any_expect())
            .prop_map(|(from, to, overwrite, expect)| Operation::Rename { from, to, overwrite, expect }),
        1 => any_path().prop_map(Operation::Look),
        4 => any_change(),
    ]
}

/// What came of it: the same for all storages, whatever their times and tags.
async fn apply(storage: &dyn Storage, operation: &Operation) -> StoreResult<String> {
    match operation {
        Operation::Put { at, len, expect } => {
            let expectation = expect.of(storage, at).await;
            let upload = storage.create(at, Some(*len as u64)).await?;
            upload.write_at(&vec![*len as u8; *len], 0).await?;
            let committed = upload.commit(&expectation.into()).await?;
            Ok(format!("{} {}", committed.replaced, committed.replaced_bytes))
        }
        Operation::Copy { from, to } => {
            let Opened::File(source) = storage.open(from).await? else { return Err(StoreError::NotAFile) };
            let upload = storage.create(to, None).await?;
            let mut at = 0;
            loop {
                let mut buffer = [0; 30];
                at += match upload.copy_range(source.as_ref(), at, 30).await? {
                    0 => match source.read_at(&mut buffer, at).await? {
                        0 => break,
                        count => {
                            upload.write_at(&buffer[..count], at).await?;
                            count as u64
                        }
                    },
                    count => count,
                };
            }
            upload.commit(&Expectation::Anything.into()).await?;
            Ok(at.to_string())
        }
        Operation::MakeDirectory(at) => storage.make_directory(at).await.map(|()| String::new()),
        Operation::MakeDirectories(at) => storage.make_directories(at).await.map(|()| String::new()),
        Operation::Remove { at, expect } => {
            storage.remove(at, &expect.of(storage, at).await).await.map(|()| String::new())
        }
        Operation::RemoveDirectory(at) => storage.remove_directory(at).await.map(|()| String::new()),
        Operation::RemoveTree(at) => storage.remove_tree(at).await.map(|()| String::new()),
        Operation::Rename { from, to, overwrite, expect } => {
            let expectation = expect.of(storage, from).await;
            storage
                .posix()
                .unwrap()
                .rename(from, to, (*overwrite).into(), &expectation)
                .await
                .map(|replaced| replaced.to_string())
        }
        Operation::Change { at, options, offset, len, cut, closes } => {
            let file = storage.posix().unwrap().open_writable(at, options).await?;
            file.write_at(&vec![*len as u8; *len], *offset).await?;
            if let Some(cut) = cut {
                file.truncate(*cut).await?;
            }
            let size_bytes = file.metadata()?.size_bytes;
            if !closes {
                file.discard().await;
                return Ok(size_bytes.to_string());
            }
            let committed = file.close(None).await?;
            Ok(format!("{size_bytes} {} {}", committed.replaced, committed.replaced_bytes))
        }
        Operation::Look(at) => {
            storage.look(at).await.map(|metadata| format!("{:?} {}", metadata.kind, metadata.size_bytes))
        }
    }
}

/// Every path with its kind and length, and with the byte that a file is full of.
async fn tree(storage: &dyn Storage) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = vec![ObjectPath::root()];
    while let Some(directory) = pending.pop() {
        for entry in storage.list(&directory).await.unwrap().entries {
            let path = directory.join(&entry.name).unwrap();
            let mut byte = [0];
            match storage.open(&path).await.unwrap() {
                Opened::File(object) => {
                    object.read_at(&mut byte, 0).await.unwrap();
                }
                Opened::Directory => pending.push(path.clone()),
            }
            let metadata = entry.metadata;
            found.push(format!("{path} {:?} {} {}", metadata.kind, metadata.size_bytes, byte[0]));
        }
    }
    found.sort();
    found
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_answer_alike(operations in prop::collection::vec(any_operation(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let posix = Arc::new(PosixStorage::open(directory.path(), Durability::None).unwrap());
        let quota = QuotaStorage::new(posix, 1 << 40);
        runtime.block_on(quota.recount()).unwrap();
        let memory = MemoryStorage::new();
        for operation in &operations {
            let (expected, found) = (runtime.block_on(apply(&memory, operation)), runtime.block_on(apply(&quota, operation)));
            match (&expected, &found) {
                (Ok(expected), Ok(found)) => prop_assert_eq!(expected, found, "{:?}", operation),
                (Err(expected), Err(found)) => prop_assert_eq!(
                    discriminant(expected), discriminant(found), "{:?}: {} and {}", operation, expected, found
                ),
                _ => prop_assert!(false, "{operation:?}: {expected:?} and {found:?}"),
            }
        }
        prop_assert_eq!(runtime.block_on(tree(&memory)), runtime.block_on(tree(&quota)));
        // What was dropped is undone in tasks.
        runtime.block_on(async {
            while quota.usage().reserved_bytes > 0 {
                tokio::task::yield_now().await;
            }
        });
        let counted = quota.usage();
        prop_assert_eq!(counted.reserved_bytes, 0);
        prop_assert_eq!(runtime.block_on(quota.recount()).unwrap().used_bytes, counted.used_bytes);
        let hidden = std::fs::read_dir(directory.path().join(".gridlane")).map_or(0, Iterator::count);
        prop_assert_eq!(hidden, 0);
    }
}
