//! Locks of open files: one session changes a file, or any number of them read it.
//!
//! They hold among the sessions of root://, as in XRootD. Uploads over HTTP ignore them: they replace a file by
//! another, and sessions that have the old one open keep it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use gridlane_dav::ResourcePath;
use gridlane_store::ObjectPath;
use gridlane_store::storage::FileIdentity;

/// The subject of a lock, in the export that has this path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A path: a file that is not seen yet has no other lock.
    Path(ResourcePath, ObjectPath),
    /// A file, whatever its names.
    File(ResourcePath, FileIdentity),
}

/// The purpose of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// To read.
    Reading,
    /// To change.
    Changing,
}

/// Another session has it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// To change it.
    Changed,
    /// So many, to read it.
    Read(usize),
}

/// The text of XRootD.
impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Taken::Changed => f.write_str("1 writer"),
            Taken::Read(1) => f.write_str("1 reader"),
            Taken::Read(count) => write!(f, "{count} readers"),
        }
    }
}

/// All locks of a server.
#[derive(Default)]
pub(crate) struct Locks {
    held: Mutex<HashMap<Key, Taken>>,
}

/// Held until it is dropped.
pub(crate) struct Lock {
    locks: Arc<Locks>,
    key: Key,
}

impl Locks {
    /// Takes a lock, or returns those that keep it from being taken.
    pub(crate) fn take(self: &Arc<Locks>, key: Key, usage: Usage) -> Result<Lock, Taken> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match (held.entry(key.clone()), usage) {
            (Entry::Vacant(free), Usage::Reading) => {
                free.insert(Taken::Read(1));
            }
            (Entry::Vacant(free), Usage::Changing) => {
                free.insert(Taken::Changed);
            }
            (Entry::Occupied(mut taken), Usage::Reading) => match taken.get_mut() {
                Taken::Read(count) => *count += 1,
                Taken::Changed => return Err(Taken::Changed),
            },
            (Entry::Occupied(taken), Usage::Changing) => return Err(*taken.get()),
        }
        Ok(Lock { locks: Arc::clone(self), key })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut held = self.locks.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.get_mut(&self.key) {
            Some(Taken::Read(count)) if *count > 1 => *count -= 1,
            _ => {
                held.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_changes_or_many_read() {
        let locks = Arc::new(Locks::default());
        let key = |number| Key::File(ResourcePath::root(), FileIdentity { device: 1, number });
        let take = |number, usage| locks.take(key(number), usage);
        let first = take(1, Usage::Reading).ok();
        let second = take(1, Usage::Reading).ok();
        assert_eq!(
            take(1, Usage::Changing).err().map(|taken| taken.to_string()),
            Some("2 readers".to_owned())
        );
        drop(first);
        assert_eq!(take(1, Usage::Changing).err(), Some(Taken::Read(1)));
        drop(second);
        let writer = take(1, Usage::Changing).ok();
        assert!(writer.is_some() && take(2, Usage::Changing).is_ok());
        for usage in [Usage::Reading, Usage::Changing] {
            assert_eq!(take(1, usage).err(), Some(Taken::Changed));
        }
        drop(writer);
        assert!(locks.held.lock().unwrap().is_empty());
    }
}
