//! A directory, read a few entries at a time.

use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use gridlane_core::name::is_own;
use rustix::fs::{Dir, DirEntry, FileType, OFlags};

use super::Shared;
use super::metadata::{kind_of, look_at, look_in, metadata_of};
use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::storage::{DirectoryEntry, Metadata};

/// Holds one descriptor and one buffer of names, however many entries there are.
pub(super) struct PosixEntries {
    shared: Arc<Shared>,
    path: ObjectPath,
    /// `None` at the end, and after an error.
    directory: Option<Dir>,
}

impl PosixEntries {
    pub(super) fn new(shared: &Arc<Shared>, path: &ObjectPath, directory: OwnedFd) -> StoreResult<Self> {
        let directory = Some(Dir::new(directory)?);
        Ok(PosixEntries { shared: Arc::clone(shared), path: path.clone(), directory })
    }

    /// The same as names.
    pub(super) fn names(mut self) -> impl Iterator<Item = StoreResult<Vec<u8>>> {
        std::iter::from_fn(move || {
            let next = self.advance(|shared, directory, entry, path| match entry.file_type() {
                FileType::RegularFile | FileType::Directory => Some(()),
                _ => describe(shared, directory, entry.file_name().to_bytes(), path).map(drop),
            });
            self.ending(next.map(|next| next.map(|(name, ())| name)))
        })
    }

    /// The next entry of which `look` finds that it is served.
    fn advance<T>(
        &mut self,
        look: impl Fn(&Shared, BorrowedFd<'_>, &DirEntry, &ObjectPath) -> Option<T>,
    ) -> StoreResult<Option<(Vec<u8>, T)>> {
        let Some(directory) = &mut self.directory else { return Ok(None) };
        while let Some(entry) = directory.read() {
            let entry = entry?;
            let is_served = matches!(
                entry.file_type(),
                FileType::RegularFile | FileType::Directory | FileType::Symlink | FileType::Unknown
            );
            let name = entry.file_name().to_bytes();
            // There is no path to what is hidden, to `.` and to `..`.
            if !is_served || matches!(name, b"." | b"..") || is_own(name) {
                continue;
            }
            if let Some(found) = look(&self.shared, directory.fd()?, &entry, &self.path) {
                return Ok(Some((name.to_vec(), found)));
            }
        }
        Ok(None)
    }

    /// After the end, and after an error, there is nothing more.
    fn ending<T>(&mut self, next: StoreResult<Option<T>>) -> Option<StoreResult<T>> {
        if !matches!(next, Ok(Some(_))) {
            self.directory = None;
        }
        match next {
            // The directory itself was removed: there is nothing in it.
            Err(StoreError::NotFound) => None,
            other => other.transpose(),
        }
    }
}

/// The listing's data of `name` in the directory at `path`, with true for a link; `None` for kinds that are not served.
fn describe(
    shared: &Shared,
    directory: BorrowedFd<'_>,
    name: &[u8],
    path: &ObjectPath,
) -> Option<(Metadata, bool)> {
    let mut stat = look_in(directory, OsStr::from_bytes(name)).ok()?;
    let is_link = kind_of(&stat) == FileType::Symlink;
    if is_link {
        let below = path.join(name)?;
        stat = look_at(shared.resolve(below.as_relative(), OFlags::PATH).ok()?).ok()?;
    }
    Some((metadata_of(&stat)?, is_link))
}

impl Iterator for PosixEntries {
    type Item = StoreResult<DirectoryEntry>;

    fn next(&mut self) -> Option<StoreResult<DirectoryEntry>> {
        let next = self.advance(|shared, directory, entry, path| {
            describe(shared, directory, entry.file_name().to_bytes(), path)
        });
        let entry = |(name, (metadata, is_link))| DirectoryEntry { name, metadata, is_link };
        self.ending(next.map(|next| next.map(entry)))
    }
}
