//! Changes of names: making, removing and moving directories, and moving files.
//!
//! A tree that is removed is first renamed into the hidden directory, where it is not visible, and deleted there.
//! The remains of a crash, in the order of the steps:
//!
//! 1. `remove_tree` renames the tree into `.gridlane/`. From here on it is gone for all clients; a crash leaves
//!    it to `remove_abandoned`. A tree that turns out to hold something that only others may delete comes back.
//! 2. `rename` onto a directory exchanges the two (`RENAME_EXCHANGE`): the new one is in place at the very
//!    moment when the old one is not. A crash here leaves the old one under the name that was moved.
//! 3. The old one, now there, goes the way of 1.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, mkdirat, openat, renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;

use super::metadata::{identity_of, kind_of, look_at, look_in};
use super::{Shared, hidden, tree};
use crate::error::{StoreError, StoreResult};
use crate::partial::rename_new;
use crate::path::{HIDDEN_NAME, ObjectPath};
use crate::storage::{Expectation, FileIdentity, NodeKind, Overwrite};

/// For `mkdir` before its umask.
const DIRECTORY_PERMISSIONS: u32 = 0o777;

pub(super) fn make_directory(shared: &Shared, path: &ObjectPath) -> StoreResult<()> {
    let (parent_path, name) = path.split_last().ok_or(StoreError::Unexpected)?;
    let parent = shared.resolve_parent(&parent_path)?;
    let name = OsStr::from_bytes(name);
    let changing = shared.lock_changes();
    // The directory is at no moment open to more users than in the end, and always to its owner, the process that
    // changes it.
    let mode = Mode::from_raw_mode(shared.options.permissions(DIRECTORY_PERMISSIONS)) | Mode::RWXU;
    mkdirat(&parent, name, mode).map_err(|cause| match cause {
        // The parent was removed since.
        Errno::NOENT => StoreError::ParentMissing,
        other => other.into(),
    })?;
    if let Err(error) = apply_options(shared, &parent, name) {
        // A directory of the wrong owner is worse than none.
        let _ = unlinkat(&parent, name, AtFlags::REMOVEDIR);
        return Err(error);
    }
    drop(changing);
    shared.options.sync_names(&parent)
}

fn apply_options(shared: &Shared, parent: &OwnedFd, name: &OsStr) -> StoreResult<()> {
    if !shared.options.change_what_is_made() {
        return Ok(());
    }
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    shared.options.apply(openat(parent, name, flags, Mode::empty())?, DIRECTORY_PERMISSIONS)
}

pub(super) fn remove(shared: &Shared, path: &ObjectPath, expectation: &Expectation) -> StoreResult<()> {
    let (parent, name) = path.split_last().ok_or(StoreError::NotAFile)?;
    let parent = shared.resolve_directory(&parent)?;
    let name = OsStr::from_bytes(name);
    let changing = shared.lock_changes();
    // Not followed: the link is removed, never what it points to.
    match kind_of(&look_in(&parent, name)?) {
        FileType::Directory => return Err(StoreError::NotAFile),
        FileType::RegularFile => {}
        // Whatever is not served is not there.
        _ => {
            if shared.look(path)?.is_directory() {
                return Err(StoreError::NotAFile);
            }
        }
    }
    if *expectation == Expectation::Absent {
        return Err(StoreError::Unexpected);
    }
    shared.check(path, expectation)?;
    unlinkat(&parent, name, AtFlags::empty())?;
    drop(changing);
    shared.options.sync_names(&parent)
}

pub(super) fn remove_directory(shared: &Shared, path: &ObjectPath) -> StoreResult<()> {
    let (parent_path, name) = path.split_last().ok_or(StoreError::InUse)?;
    let parent = shared.resolve_directory(&parent_path)?;
    let name = OsStr::from_bytes(name);
    let changing = shared.lock_changes();
    if is_link_to_directory(shared, path, &parent, name)? {
        unlinkat(&parent, name, AtFlags::empty())?;
    } else {
        match unlinkat(&parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) if clear_of_ours(&parent, name) => {
                unlinkat(&parent, name, AtFlags::REMOVEDIR)?;
            }
            other => other?,
        }
    }
    drop(changing);
    shared.options.sync_names(&parent)
}

pub(super) fn remove_tree(shared: &Shared, path: &ObjectPath) -> StoreResult<()> {
    let (parent_path, name) = path.split_last().ok_or(StoreError::InUse)?;
    let parent = shared.resolve_directory(&parent_path)?;
    let name = OsStr::from_bytes(name);
    let discarded = {
        let changing = shared.lock_changes();
        if is_link_to_directory(shared, path, &parent, name)? {
            unlinkat(&parent, name, AtFlags::empty())?;
            drop(changing);
            return shared.options.sync_names(&parent);
        }
        if tree::holds_mounts(&parent, name) {
            return Err(StoreError::InUse);
        }
        discard(shared, &parent, &parent_path, name)?
    };
    match discarded {
        Some((hidden, removed)) => {
            shared.options.sync_names(&parent)?;
            let deleted = tree::delete(hidden.as_fd(), OsStr::new(&removed));
            let Err(error @ StoreError::Denied) = deleted else {
                // The tree is not visible any more: a failed deletion is tried again by `remove_abandoned`.
                return Ok(());
            };
            // Something in it belongs to another user, and this process may never delete it. Its owner must find it.
            let _changing = shared.lock_changes();
            match rename_new(&hidden, OsStr::new(&removed), &parent, name) {
                Ok(()) => Err(error),
                Err(_) => Ok(()),
            }
        }
        None => {
            tree::delete(parent.as_fd(), name)?;
            shared.options.sync_names(&parent)
        }
    }
}

/// Takes `name` out of sight; `None` where no rename can: an overlay file system refuses to move a directory
/// of its lower layer, and there may be no hidden directory.
fn discard(
    shared: &Shared,
    parent: &OwnedFd,
    parent_path: &ObjectPath,
    name: &OsStr,
) -> StoreResult<Option<(OwnedFd, String)>> {
    let Ok(hidden) = hidden::hidden_for(shared, parent, parent_path) else { return Ok(None) };
    match hidden::discard(parent, name, &hidden) {
        Ok(removed) => Ok(Some((hidden, removed))),
        Err(Errno::XDEV) => Ok(None),
        Err(cause) => Err(cause.into()),
    }
}

/// For removing a directory: whether `name` is one itself, or a link to one. Everything else is an error.
fn is_link_to_directory(
    shared: &Shared,
    path: &ObjectPath,
    parent: &OwnedFd,
    name: &OsStr,
) -> StoreResult<bool> {
    if kind_of(&look_in(parent, name)?) == FileType::Directory {
        return Ok(false);
    }
    match shared.look(path)?.kind {
        NodeKind::Directory => Ok(true),
        NodeKind::File => Err(StoreError::NotADirectory),
    }
}

/// True if the directory held only a hidden directory of gridlane's that is not in use, which is gone now.
fn clear_of_ours(parent: &OwnedFd, name: &OsStr) -> bool {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(mut directory) = openat(parent, name, flags, Mode::empty()).and_then(Dir::new) else {
        return false;
    };
    while let Some(entry) = directory.read() {
        let Ok(entry) = entry else { return false };
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") && name != HIDDEN_NAME.as_bytes() {
            return false;
        }
    }
    directory.fd().is_ok_and(hidden::remove_unused)
}

/// Both ends of a move.
struct Move<'a> {
    from_parent: OwnedFd,
    from: &'a OsStr,
    to_parent: OwnedFd,
    to: &'a OsStr,
}

pub(super) fn rename(
    shared: &Shared,
    from_path: &ObjectPath,
    to_path: &ObjectPath,
    overwrite: Overwrite,
    expectation: &Expectation,
) -> StoreResult<bool> {
    let (from_parent_path, from) = from_path.split_last().ok_or(StoreError::InUse)?;
    let (to_parent_path, to) = to_path.split_last().ok_or(StoreError::InUse)?;
    let from_parent = shared.resolve_directory(&from_parent_path)?;
    // Before the parent of its new place: that may be something in it.
    shared.look(from_path)?;
    if from_path == to_path || to_path.is_below(from_path) || from_path.is_below(to_path) {
        return Err(StoreError::IntoItself);
    }
    let moving = Move {
        from_parent,
        from: OsStr::from_bytes(from),
        to_parent: shared.resolve_parent(&to_parent_path)?,
        to: OsStr::from_bytes(to),
    };
    let (replaced, discarded) = {
        let _changing = shared.lock_changes();
        shared.look(from_path)?;
        if *expectation == Expectation::Absent {
            return Err(StoreError::Unexpected);
        }
        shared.check(from_path, expectation)?;
        match moving.onto_nothing() {
            Ok(()) => (false, None),
            Err(Errno::EXIST) if overwrite == Overwrite::Nothing => return Err(StoreError::Unexpected),
            Err(Errno::EXIST) => {
                let only_files = overwrite == Overwrite::Files;
                (true, moving.onto_something(shared, &from_parent_path, &to_parent_path, only_files)?)
            }
            Err(cause) => return Err(move_error(cause)),
        }
    };
    shared.options.sync_names(&moving.to_parent)?;
    shared.options.sync_names(&moving.from_parent)?;
    if let Some((hidden, removed)) = discarded {
        hidden::delete_discarded(&hidden, &removed);
    }
    Ok(replaced)
}

/// The meaning of a failed rename.
fn move_error(cause: Errno) -> StoreError {
    match cause {
        Errno::INVAL => StoreError::IntoItself,
        // What is moved was looked at, so it is the other end's directory.
        Errno::NOENT => StoreError::ParentMissing,
        other => other.into(),
    }
}

impl Move<'_> {
    /// Fails when something is there.
    fn onto_nothing(&self) -> Result<(), Errno> {
        rename_new(&self.from_parent, self.from, &self.to_parent, self.to)
    }

    /// Replaces what is there; returns what has been taken out of sight and is to be deleted.
    fn onto_something(
        &self,
        shared: &Shared,
        from_parent_path: &ObjectPath,
        to_parent_path: &ObjectPath,
        only_files: bool,
    ) -> StoreResult<Option<(OwnedFd, String)>> {
        let (old, new) = (look_in(&self.to_parent, self.to)?, look_in(&self.from_parent, self.from)?);
        let is_name_of_file = |kind| matches!(kind, FileType::RegularFile | FileType::Symlink);
        let (old_kind, new_kind) = (kind_of(&old), kind_of(&new));
        if !is_name_of_file(old_kind) && old_kind != FileType::Directory {
            return Err(StoreError::NotAFile);
        }
        if is_name_of_file(old_kind) && is_name_of_file(new_kind) {
            renameat(&self.from_parent, self.from, &self.to_parent, self.to).map_err(move_error)?;
            if identity_of(&old) == identity_of(&new) {
                // Two names of one file: a rename leaves both (rename(2)).
                unlinkat(&self.from_parent, self.from, AtFlags::empty())?;
            }
            return Ok(None);
        }
        if only_files {
            return Err(StoreError::NotAFile);
        }
        if old_kind == FileType::Directory && tree::holds_mounts(&self.to_parent, self.to) {
            return Err(StoreError::InUse);
        }
        match self.exchange() {
            Ok(()) if is_name_of_file(old_kind) => {
                unlinkat(&self.from_parent, self.from, AtFlags::empty())?;
                Ok(None)
            }
            Ok(()) => match discard(shared, &self.from_parent, from_parent_path, self.from) {
                Ok(None) => {
                    tree::delete(self.from_parent.as_fd(), self.from)?;
                    Ok(None)
                }
                Ok(discarded) => Ok(discarded),
                Err(error) => {
                    // As if nothing had happened: the old one cannot be removed.
                    self.exchange()?;
                    Err(error)
                }
            },
            // Either the file system cannot, or one of the two is in the other by way of a link.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                if is_in(shared, &self.from_parent, identity_of(&old))?
                    || is_in(shared, &self.to_parent, identity_of(&new))?
                {
                    return Err(StoreError::IntoItself);
                }
                let hidden = hidden::hidden_for(shared, &self.to_parent, to_parent_path)?;
                self.by_turns(&hidden).map(|removed| Some((hidden, removed)))
            }
            Err(cause) => Err(move_error(cause)),
        }
    }

    fn exchange(&self) -> Result<(), Errno> {
        renameat_with(&self.from_parent, self.from, &self.to_parent, self.to, RenameFlags::EXCHANGE)
    }

    /// Where the file system cannot exchange two names (some network ones): the old one is moved away, the
    /// new one into its place. There is a moment without either; a failure puts the old one back.
    fn by_turns(&self, hidden: &OwnedFd) -> StoreResult<String> {
        let removed = hidden::discard(&self.to_parent, self.to, hidden)?;
        match renameat(&self.from_parent, self.from, &self.to_parent, self.to) {
            Ok(()) => Ok(removed),
            Err(cause) => {
                renameat(hidden, removed.as_str(), &self.to_parent, self.to)?;
                Err(move_error(cause))
            }
        }
    }
}

/// True if `directory`, in the export, is the one that is `above`, or below it.
fn is_in(shared: &Shared, directory: &OwnedFd, above: FileIdentity) -> StoreResult<bool> {
    let root = identity_of(&look_at(&shared.root)?);
    let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    let mut at = openat(directory, ".", flags, Mode::empty())?;
    loop {
        let identity = identity_of(&look_at(&at)?);
        if identity == above || identity == root {
            return Ok(identity == above);
        }
        let next = openat(&at, "..", flags, Mode::empty())?;
        if identity_of(&look_at(&next)?) == identity {
            // The root of everything: the directory was moved out of the export meanwhile.
            return Ok(false);
        }
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::BlockingStorage;
    use crate::posix::{PosixOptions, PosixStorage};

    fn path(text: &str) -> ObjectPath {
        ObjectPath::new(text.split('/').map(str::as_bytes)).unwrap()
    }

    #[test]
    fn without_an_exchange_the_two_take_turns() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("old/sub")).unwrap();
        std::fs::write(directory.path().join("new"), b"new").unwrap();
        let storage = PosixStorage::open_with(directory.path(), PosixOptions::default()).unwrap();
        let shared = &storage.shared;
        let turn = |from: &str, to: &str| {
            let parent = || shared.resolve_directory(&ObjectPath::root()).unwrap();
            let moving = Move {
                from_parent: parent(),
                from: OsStr::new(from),
                to_parent: parent(),
                to: OsStr::new(to),
            };
            let hidden = hidden::hidden_for(shared, &parent(), &ObjectPath::root()).unwrap();
            moving.by_turns(&hidden)
        };
        assert!(matches!(turn("none", "old"), Err(StoreError::ParentMissing)));
        assert!(storage.look(&path("old/sub")).unwrap().is_directory(), "put back");
        turn("new", "old").unwrap();
        assert_eq!(std::fs::read(directory.path().join("old")).unwrap(), b"new");
        assert!(matches!(storage.look(&path("new")), Err(StoreError::NotFound)));
        assert_eq!(storage.remove_abandoned(std::time::Duration::MAX).unwrap(), 1);
        assert_eq!(std::fs::read_dir(directory.path().join(HIDDEN_NAME)).unwrap().count(), 0);
    }
}
