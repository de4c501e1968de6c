//! What an operator decides for one exported directory.

use std::os::fd::{AsFd, OwnedFd};

use gridlane_core::{Error, ErrorKind};
use rustix::fs::{Gid, Mode, OFlags, Uid, fchmod, fchown, fsync, openat};
use rustix::io::Errno;

use super::metadata::look_at;
use crate::error::StoreResult;

/// The data that is certain to be on the device when an upload or another change is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: after a power failure the file may be empty, short or missing.
    None,
    /// The bytes: after a power failure the name has the old file or the new one, whole.
    #[default]
    File,
    /// The bytes and the name: after a power failure the new file is there, what was removed is not, and
    /// what was moved is where it was moved to.
    Dir,
}

impl std::str::FromStr for Durability {
    type Err = Error;

    fn from_str(text: &str) -> gridlane_core::Result<Durability> {
        match text {
            "none" => Ok(Durability::None),
            "file" => Ok(Durability::File),
            "dir" => Ok(Durability::Dir),
            _ => Err(Error::new(ErrorKind::Usage, format!("unknown durability {text:?}"))
                .hint("use none, file or dir")),
        }
    }
}

/// The properties of files and directories that are made in an exported directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PosixOptions {
    /// The data that is synced before an answer.
    pub durability: Durability,
    /// The number of the user that new files and directories shall belong to. Ignored where the operating system does
    /// not let this process give them away.
    pub uid: Option<u32>,
    /// The number of their group; ignored likewise.
    pub gid: Option<u32>,
    /// Permissions that new files (of `0666`) and directories (of `0777`) do not get. `None`: the process's
    /// own umask says.
    pub umask: Option<u32>,
    /// Keeps no checksums in extended attributes and looks for none, as where the file system has none.
    pub without_attributes: bool,
}

/// All that a client can give: never to run as the owner, never to be in the way of others' removals.
pub(super) const PERMISSIONS: u32 = 0o777;
const SET_GROUP: u32 = 0o2000;

impl PosixOptions {
    /// True if there is anything to [`apply`](PosixOptions::apply).
    pub(super) fn change_what_is_made(&self) -> bool {
        self.uid.is_some() || self.gid.is_some() || self.umask.is_some()
    }

    /// Gives a new file or directory, which is not visible yet or is empty, the owner and the permissions that the
    /// operator wants. `permissions` are those that an umask is taken from.
    pub(super) fn apply(&self, made: impl AsFd, permissions: u32) -> StoreResult<()> {
        if self.uid.is_some() || self.gid.is_some() {
            let (uid, gid) = (self.uid.map(Uid::from_raw), self.gid.map(Gid::from_raw));
            match fchown(&made, uid, gid) {
                Ok(()) | Err(Errno::PERM) => {}
                Err(cause) => return Err(cause.into()),
            }
        }
        if self.umask.is_some() {
            // What a directory has of the one that it was made in: the group of what is made in it.
            let inherited = u32::from(look_at(&made)?.stx_mode) & SET_GROUP;
            fchmod(&made, Mode::from_raw_mode(self.permissions(permissions) | inherited))?;
        }
        Ok(())
    }

    /// `permissions` without the bits of the umask.
    pub(super) fn permissions(&self, permissions: u32) -> u32 {
        permissions & !self.umask.unwrap_or(0) & PERMISSIONS
    }

    /// Brings the names in `directory` to the device, if that is promised.
    pub(super) fn sync_names(&self, directory: &OwnedFd) -> StoreResult<()> {
        if self.durability == Durability::Dir {
            let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
            fsync(openat(directory, ".", flags, Mode::empty())?)?;
        }
        Ok(())
    }
}
