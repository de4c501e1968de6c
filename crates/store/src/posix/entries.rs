//! A directory, read a few entries at a time.

use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::{Dir, FileType, OFlags};

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

    fn advance(&mut self) -> StoreResult<Option<DirectoryEntry>> {
        let Some(directory) = &mut self.directory else { return Ok(None) };
        while let Some(entry) = directory.read() {
            let entry = entry?;
            let is_served = matches!(
                entry.file_type(),
                FileType::RegularFile | FileType::Directory | FileType::Symlink | FileType::Unknown
            );
            let name = entry.file_name().to_bytes();
            // There is no path to what is hidden, to `.` and to `..`.
            let Some(below) = self.path.join(name).filter(|_| is_served) else { continue };
            if let Some((metadata, is_link)) = describe(&self.shared, directory.fd()?, name, &below) {
                return Ok(Some(DirectoryEntry { name: name.to_vec(), metadata, is_link }));
            }
        }
        Ok(None)
    }
}

/// What a listing says of `name`, and whether it is a link; `None` for what is not served.
fn describe(
    shared: &Shared,
    directory: BorrowedFd<'_>,
    name: &[u8],
    path: &ObjectPath,
) -> Option<(Metadata, bool)> {
    let mut stat = look_in(directory, OsStr::from_bytes(name)).ok()?;
    let is_link = kind_of(&stat) == FileType::Symlink;
    if is_link {
        stat = look_at(shared.resolve(path.as_relative(), OFlags::PATH).ok()?).ok()?;
    }
    Some((metadata_of(&stat)?, is_link))
}

impl Iterator for PosixEntries {
    type Item = StoreResult<DirectoryEntry>;

    fn next(&mut self) -> Option<StoreResult<DirectoryEntry>> {
        let next = self.advance().map_err(|error| match error {
            // The directory itself was removed: there is nothing in it.
            StoreError::NotFound => None,
            other => Some(other),
        });
        if !matches!(next, Ok(Some(_))) {
            self.directory = None;
        }
        match next {
            Ok(entry) => entry.map(Ok),
            Err(error) => error.map(Err),
        }
    }
}
