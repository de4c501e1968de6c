//! The hidden directory: partial uploads, targets with their journals, trees on their way out, and the side file of checksums.
//!
//! It is the one at the export's root, or, where what is changed is on another mounted file system, one
//! beside it: a rename cannot cross. It belongs to this process's user and no other can enter it; one
//! that is a link, or another user's, is refused. No name in it is a client's: a target's is made of a digest of its path.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gridlane_core::limits;
use gridlane_core::name::is_own;
use ring::digest::{SHA256, digest};
use rustix::fs::{
    AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, RenameFlags, Statx, StatxFlags, fchmod, flock, mkdirat,
    openat, readlinkat, renameat_with, statx,
};
use rustix::fs::{renameat, unlinkat};
use rustix::io::Errno;

use super::metadata::{changed_of, look_at, look_in, modified_of};
use super::{Shared, side_file, tree};
use crate::error::{StoreError, StoreResult};
use crate::partial::{Locked, Unusable};
use crate::path::{HIDDEN_NAME, ObjectPath};

/// Names of partial uploads begin and end like this.
const PARTIAL: (&str, &str) = ("upload-", ".part");

/// Those of targets.
const TARGET: (&str, &str) = ("target-", ".part");

/// And those of their journals.
const TARGET_JOURNAL: (&str, &str) = ("target-", ".journal");

/// And those of trees that are being deleted. Nothing else in a hidden directory but the side file may be removed.
const REMOVED: (&str, &str) = ("removed-", ".tree");

/// Permissions of a journal: only the server reads it.
pub(super) const JOURNAL_MODE: u32 = 0o600;

/// Permissions of all others: the hidden directory is hidden from them.
const OTHERS: u16 = 0o077;

/// The hidden directory for changes in `parent`, which is at `parent_path`; made when it is not there.
pub(super) fn hidden_for(
    shared: &Shared,
    parent: &OwnedFd,
    parent_path: &ObjectPath,
) -> StoreResult<OwnedFd> {
    if mount_of(shared.root.as_fd())? == mount_of(parent.as_fd())? {
        return at_root(shared);
    }
    let parent_path = shared.root_path.join(parent_path.as_relative());
    // Nothing else comes by here. What is being deleted at this moment is not waited for.
    let ages = Ages { partials: limits::PARTIAL_AGE_MAX, trees: limits::PARTIAL_AGE_MAX };
    remove_abandoned(shared, parent.as_fd(), &parent_path, ages)?;
    make(parent.as_fd(), &parent_path)
}

/// The hidden directory at the export's root, made when it is not there.
pub(super) fn at_root(shared: &Shared) -> StoreResult<OwnedFd> {
    make(shared.root.as_fd(), &shared.root_path)
}

/// The same, when it is there.
pub(super) fn at_root_if_there(shared: &Shared) -> Option<OwnedFd> {
    open(shared.root.as_fd(), &shared.root_path).ok()
}

/// True if what was opened by way of a link is a hidden directory, or in one.
pub(super) fn holds(root: &OwnedFd, found: &OwnedFd) -> Result<bool, Errno> {
    // Where it is now: what leaves a hidden directory meanwhile is visible. Without procfs it cannot
    // be told, and no link works.
    let path_of =
        |open: &OwnedFd| readlinkat(CWD, format!("/proc/thread-self/fd/{}", open.as_raw_fd()), Vec::new());
    let (root, at) = (path_of(root)?, path_of(found)?);
    let inside = at.as_bytes().strip_prefix(root.as_bytes()).unwrap_or(at.as_bytes());
    Ok(inside.split(|byte| *byte == b'/').any(is_own))
}

/// Within one of these a rename works. The device alone does not tell: a bind mount has its origin's.
fn mount_of(directory: BorrowedFd<'_>) -> StoreResult<(u32, u32, u64)> {
    match statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID) {
        Ok(stat) if stat.stx_mask & StatxFlags::MNT_ID.bits() != 0 => {
            Ok((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_mnt_id))
        }
        Ok(stat) => Ok((stat.stx_dev_major, stat.stx_dev_minor, 0)),
        Err(cause) => Err(cause.into()),
    }
}

/// The hidden directory in `base`, made when it is not there. `base_path` is for messages.
fn make(base: BorrowedFd<'_>, base_path: &Path) -> StoreResult<OwnedFd> {
    match mkdirat(base, HIDDEN_NAME, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(cause) => return Err(cause.into()),
    }
    open(base, base_path)
}

fn open(base: BorrowedFd<'_>, base_path: &Path) -> StoreResult<OwnedFd> {
    let not_ours = || StoreError::NotOurs(base_path.join(HIDDEN_NAME));
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let hidden = openat(base, HIDDEN_NAME, flags, Mode::empty()).map_err(|cause| match cause {
        Errno::LOOP | Errno::NOTDIR | Errno::ACCESS => not_ours(),
        other => other.into(),
    })?;
    let stat = look_at(&hidden)?;
    if stat.stx_uid != rustix::process::geteuid().as_raw() {
        return Err(not_ours());
    }
    if stat.stx_mode & OTHERS != 0 {
        // Restored from a backup, perhaps. A file system that has no permissions cannot do it.
        let _ = fchmod(&hidden, Mode::RWXU);
    }
    Ok(hidden)
}

/// The names of the target for one path.
pub(super) struct TargetNames {
    /// Of its bytes.
    pub(super) part: String,
    /// Of its journal.
    pub(super) journal: String,
}

impl TargetNames {
    /// Those for a file at `path`: whatever that is called, these have room, and lead nowhere else.
    pub(super) fn of(path: &ObjectPath) -> TargetNames {
        let digest = digest(&SHA256, path.as_relative().as_os_str().as_bytes());
        let stem: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        TargetNames::of_stem(&stem)
    }

    fn of_stem(stem: &str) -> TargetNames {
        let name = |(prefix, suffix): (&str, &str)| format!("{prefix}{stem}{suffix}");
        TargetNames { part: name(TARGET), journal: name(TARGET_JOURNAL) }
    }

    /// Those of the target that something of this name belongs to.
    fn holding(name: &[u8]) -> Option<TargetNames> {
        let name = std::str::from_utf8(name).ok()?;
        [TARGET, TARGET_JOURNAL].into_iter().find_map(|(prefix, suffix)| {
            Some(TargetNames::of_stem(name.strip_prefix(prefix)?.strip_suffix(suffix)?))
        })
    }

    /// Removes both if they are old and not open; returns whether it did. One of them may be missing.
    pub(super) fn remove_abandoned(
        &self,
        shared: &Shared,
        hidden: &Arc<OwnedFd>,
        is_old: impl Fn(&str) -> bool,
    ) -> bool {
        if !(is_old(&self.part) && is_old(&self.journal)) {
            return false;
        }
        let _probing = shared.lock_probes();
        let [has_part, had_journal] =
            [&self.part, &self.journal].map(|name| look_in(hidden, OsStr::new(name)).is_ok());
        if !has_part && !had_journal {
            return false;
        }
        // One that is missing is made: a copy that begins at this moment finds it locked.
        let _lock = match Locked::take(hidden, OsStr::new(&self.journal), JOURNAL_MODE) {
            Err(Unusable::Locked) => return false,
            // What cannot be locked is no journal, or its age says.
            other => other.ok(),
        };
        // A copy may have gone on with it until a moment ago.
        if !(is_old(&self.part) && (!had_journal || is_old(&self.journal))) {
            return false;
        }
        let removed = [&self.part, &self.journal].map(|name| unlinkat(hidden, name, AtFlags::empty()));
        removed.iter().any(Result::is_ok)
    }
}

/// The length of all targets together in the hidden directory in `base` that are not open.
pub(super) fn unfinished_bytes(shared: &Shared, base: BorrowedFd<'_>, base_path: &Path) -> StoreResult<u64> {
    let hidden = match open(base, base_path) {
        Ok(hidden) => hidden,
        Err(StoreError::NotFound) => return Ok(0),
        Err(other) => return Err(other),
    };
    let mut unfinished_bytes = 0_u64;
    for entry in Dir::read_from(&hidden)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let Some(names) = TargetNames::holding(name).filter(|names| names.part.as_bytes() == name) else {
            continue;
        };
        let is_open = {
            let _probing = shared.lock_probes();
            is_held(&hidden, OsStr::new(&names.journal))
        };
        if let (false, Ok(stat)) = (is_open, look_in(&hidden, OsStr::from_bytes(name))) {
            unfinished_bytes = unfinished_bytes.saturating_add(stat.stx_size);
        }
    }
    Ok(unfinished_bytes)
}

/// A name that no other process and no other thread chooses.
fn unused_name((prefix, suffix): (&str, &str)) -> String {
    static NAMES: AtomicU64 = AtomicU64::new(0);
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    let moment = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("{prefix}{}-{number}-{moment:x}{suffix}", std::process::id())
}

/// Makes the file of an upload; returns its name, too. The umask is taken from its permissions.
pub(super) fn create_partial(hidden: &OwnedFd, permissions: u32) -> StoreResult<(String, File)> {
    // Readable as the umask says, since the rename keeps the mode; until then the directory protects it.
    let mode = Mode::from_raw_mode(permissions);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        let name = unused_name(PARTIAL);
        match openat(hidden, name.as_str(), flags, mode) {
            Ok(descriptor) => return Ok((name, File::from(descriptor))),
            Err(Errno::EXIST) => {}
            Err(cause) => return Err(cause.into()),
        }
    }
}

/// Keeps a partial from being removed because of its age, until it is closed. Where no locks are, its age says.
pub(super) fn hold(partial: &File) {
    let _ = flock(partial, FlockOperation::NonBlockingLockExclusive);
}

fn is_held(hidden: &OwnedFd, name: &OsStr) -> bool {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(hidden, name, flags, Mode::empty()).is_ok_and(|partial| {
        flock(&partial, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
    })
}

/// Takes `name` out of sight, to be deleted; returns what it is called now.
pub(super) fn discard(parent: &OwnedFd, name: &OsStr, hidden: &OwnedFd) -> Result<String, Errno> {
    loop {
        let removed = unused_name(REMOVED);
        match renameat_with(parent, name, hidden, removed.as_str(), RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(removed),
            Err(Errno::EXIST) => {}
            // A file system without the flag. Nothing else chooses that name.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                return renameat(parent, name, hidden, removed.as_str()).map(|()| removed);
            }
            Err(cause) => return Err(cause),
        }
    }
}

/// Deletes what was discarded. It is out of sight already: what fails now is tried again by
/// [`remove_abandoned`].
pub(super) fn delete_discarded(hidden: &OwnedFd, removed: &str) {
    let _ = tree::delete(hidden.as_fd(), OsStr::new(removed));
}

/// Removes the hidden directory in `base` if it is gridlane's and empty; returns true if it did.
pub(super) fn remove_unused(base: BorrowedFd<'_>) -> bool {
    open(base, Path::new("")).is_ok() && unlinkat(base, HIDDEN_NAME, AtFlags::REMOVEDIR).is_ok()
}

/// For how long something has to be left alone before it counts as abandoned.
pub(super) struct Ages {
    /// Uploads and targets.
    pub(super) partials: Duration,
    /// Trees. One that is being deleted needs no age: two may delete it at once.
    pub(super) trees: Duration,
}

/// Removes partial uploads that are old and not [held](hold), targets that are old and not open, and discarded trees that are
/// old, from the hidden directory in `base`, if there is one.
pub(super) fn remove_abandoned(
    shared: &Shared,
    base: BorrowedFd<'_>,
    base_path: &Path,
    ages: Ages,
) -> StoreResult<usize> {
    let hidden = match open(base, base_path) {
        Ok(hidden) => hidden,
        Err(StoreError::NotFound) => return Ok(0),
        Err(other) => return Err(other),
    };
    let hidden = Arc::new(hidden);
    let now = SystemTime::now();
    // A clock that was set back must not keep what needs no age.
    let passed = |moment| now.duration_since(moment).unwrap_or_default();
    let mut removed = 0;
    for entry in Dir::read_from(&hidden)? {
        let entry = entry?;
        let bytes = entry.file_name().to_bytes();
        let is = |(prefix, suffix): (&str, &str)| {
            bytes.starts_with(prefix.as_bytes()) && bytes.ends_with(suffix.as_bytes())
        };
        let name = OsStr::from_bytes(bytes);
        let has_age = |moment: fn(&Statx) -> SystemTime, age: Duration| {
            look_in(&hidden, name).is_ok_and(|stat| passed(moment(&stat)) >= age)
        };
        let is_gone = if is(REMOVED) {
            // The move into this directory was a change, and keeps the time of modification.
            has_age(changed_of, ages.trees) && tree::delete(hidden.as_fd(), name).is_ok()
        } else if is(PARTIAL) {
            has_age(modified_of, ages.partials)
                && !is_held(&hidden, name)
                && unlinkat(&hidden, name, AtFlags::empty()).is_ok()
        } else if let Some(target) = TargetNames::holding(bytes) {
            target.remove_abandoned(shared, &hidden, |name| {
                let stat = look_in(&hidden, OsStr::new(name));
                stat.map_or(true, |stat| passed(modified_of(&stat)) >= ages.partials)
            })
        } else {
            false
        };
        removed += usize::from(is_gone);
    }
    Ok(removed + side_file::remove_unused(hidden.as_fd()))
}
