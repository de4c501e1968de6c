//! One suite for every storage: what [`Storage`] promises, and [`PosixExtras`] where there are some. [`targets`] is one for every
//! kind of target.
//!
//! Each check wants a storage of its own that has an empty directory `sub` and nothing else:
//!
//! ```no_run
//! # async fn all(prepare: impl Fn() -> std::sync::Arc<dyn gridlane_store::Storage>) {
//! for check in gridlane_store::conformance::of(prepare().as_ref()) {
//!     check.run(prepare().as_ref()).await;
//! }
//! # }
//! ```
//!
//! A check panics where a promise does not hold. Storages that block want a runtime of several threads.

#![allow(clippy::unwrap_used, reason = "a suite stops at the first surprise")]

mod core;
mod posix;
pub mod targets;
mod writable;

use std::pin::Pin;
use std::time::SystemTime;

use gridlane_core::{Checksum, ChecksumKind};

use crate::error::StoreError;
use crate::path::ObjectPath;
use crate::posix_extras::PosixExtras;
use crate::storage::{Completion, Expectation, Opened, Storage};

/// One thing that has to hold.
#[derive(Clone, Copy)]
pub struct Check {
    /// In words.
    pub name: &'static str,
    run: for<'a> fn(&'a dyn Storage) -> Running<'a>,
}

type Running<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

impl Check {
    /// Tries it on a storage that is used for nothing else.
    pub async fn run(&self, storage: &dyn Storage) {
        (self.run)(storage).await;
    }
}

/// Those that a storage has to pass: those of the core, and of the extras if it has some.
pub fn of(storage: &dyn Storage) -> Vec<Check> {
    let posix: &[&[Check]] = match storage.posix() {
        Some(_) => &[posix::CHECKS, writable::CHECKS],
        None => &[],
    };
    CORE.iter().chain(posix.iter().copied().flatten()).copied().collect()
}

/// Checks by their functions, each a `Check` of the module that lists them.
macro_rules! checks {
    ($($check:ident),* $(,)?) => {
        &[$(Check { name: stringify!($check), run: |subject| Box::pin($check(subject)) }),*]
    };
}
use checks;

/// The duties of every storage.
const CORE: &[Check] = core::CHECKS;

fn path(text: &str) -> ObjectPath {
    ObjectPath::new(text.split('/').map(str::as_bytes)).unwrap()
}

async fn write(
    storage: &dyn Storage,
    at: &str,
    bytes: &[u8],
    expectation: &Expectation,
) -> Result<bool, StoreError> {
    let upload = storage.create(&path(at), Some(bytes.len() as u64)).await?;
    upload.write_at(bytes, 0).await?;
    upload.commit(&expectation.clone().into()).await.map(|committed| committed.replaced)
}

async fn read(storage: &dyn Storage, at: &str) -> Result<Vec<u8>, StoreError> {
    let Opened::File(object) = storage.open(&path(at)).await? else { return Err(StoreError::NotAFile) };
    let mut bytes = vec![0; 100];
    let mut len = 0;
    loop {
        match object.read_at(&mut bytes[len..], len as u64).await.unwrap() {
            0 => break,
            count => len += count,
        }
    }
    bytes.truncate(len);
    assert_eq!(object.metadata().size_bytes, len as u64);
    Ok(bytes)
}

async fn names(storage: &dyn Storage, at: &ObjectPath) -> Vec<String> {
    let listing = storage.list(at).await.unwrap();
    assert!(!listing.is_cut);
    let sorted = |mut names: Vec<Vec<u8>>| {
        names.sort();
        names
    };
    let (mut pages, mut alone) = (storage.names(at).await.unwrap(), Vec::new());
    loop {
        let page = pages.next_page().await.unwrap();
        if page.is_empty() {
            break;
        }
        alone.extend(page);
    }
    let with_more = listing.entries.iter().map(|entry| entry.name.clone()).collect();
    assert_eq!(sorted(alone), sorted(with_more));
    let mut names: Vec<_> = listing
        .entries
        .into_iter()
        .map(|entry| {
            let slash = if entry.metadata.is_directory() { "/" } else { "" };
            format!("{}{slash}", String::from_utf8(entry.name).unwrap())
        })
        .collect();
    names.sort();
    names
}

async fn kept(storage: &dyn Storage, at: &str, kind: ChecksumKind) -> Option<Checksum> {
    let Opened::File(object) = storage.open(&path(at)).await.unwrap() else { panic!("a file") };
    object.kept_checksums(&[kind]).await.pop()
}

/// Checksums that are stated of an upload's bytes without being theirs: the storage does not compare them.
fn checksums() -> [Checksum; 2] {
    [Checksum::adler32(7), Checksum::from_bytes(ChecksumKind::Md5, &[1; 16]).unwrap()]
}

async fn upload_with_checksums(storage: &dyn Storage, at: &str, modified: Option<SystemTime>) {
    let upload = storage.create(&path(at), None).await.unwrap();
    upload.write_at(b"one", 0).await.unwrap();
    let completion =
        Completion { modified, checksums: checksums().to_vec(), expectation: Expectation::Anything };
    upload.commit(&completion).await.unwrap();
}

/// The extras, of a storage that has some.
fn posix(storage: &dyn Storage) -> &dyn PosixExtras {
    storage.posix().unwrap()
}
