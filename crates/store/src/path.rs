//! Where an object is inside an export.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub use gridlane_core::name::HIDDEN_DIRECTORY as HIDDEN_NAME;
use gridlane_core::name::{is_entry, is_own};

/// Names from the export's root to a file or directory. It cannot point upwards, into a [hidden](HIDDEN_NAME) directory,
/// or to the unfinished copies that a client on this machine has beside the files of an export: there is no such value.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectPath {
    /// The names with slashes between; empty for the root.
    joined: Vec<u8>,
}

impl ObjectPath {
    /// The export's root.
    pub fn root() -> ObjectPath {
        ObjectPath::default()
    }

    /// The path made of `names`. `None` when one of them is empty, `.`, `..`, hidden, or has a slash or a
    /// NUL: nothing can be there.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a [u8]>) -> Option<ObjectPath> {
        let mut path = ObjectPath::root();
        for name in names {
            path = path.join(name)?;
        }
        Some(path)
    }

    /// The path of `name` inside this directory.
    pub fn join(&self, name: &[u8]) -> Option<ObjectPath> {
        if !is_entry(name) || is_own(name) {
            return None;
        }
        let mut joined = Vec::with_capacity(self.joined.len() + 1 + name.len());
        joined.extend_from_slice(&self.joined);
        if !joined.is_empty() {
            joined.push(b'/');
        }
        joined.extend_from_slice(name);
        Some(ObjectPath { joined })
    }

    /// The directory it is in, and its name there; `None` for the root.
    pub fn split_last(&self) -> Option<(ObjectPath, &[u8])> {
        if self.is_root() {
            return None;
        }
        Some(match self.joined.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (ObjectPath { joined: self.joined[..slash].to_vec() }, &self.joined[slash + 1..]),
            None => (ObjectPath::root(), &self.joined),
        })
    }

    /// The names from the root to it; none for the root.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.joined.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
    }

    /// True if it is somewhere below `directory`; a path is not below itself.
    pub fn is_below(&self, directory: &ObjectPath) -> bool {
        match self.joined.strip_prefix(directory.joined.as_slice()) {
            Some(rest) if directory.is_root() => !rest.is_empty(),
            Some(rest) => rest.first() == Some(&b'/'),
            None => false,
        }
    }

    /// Sorts before everything that is [below](ObjectPath::is_below) this directory, with nothing else in
    /// between.
    pub(crate) fn subtree_start(&self) -> ObjectPath {
        let mut joined = self.joined.clone();
        if !self.is_root() {
            joined.push(b'/');
        }
        ObjectPath { joined }
    }

    /// Where what is at this path, in or at `from`, is when `from` has become `to`.
    pub(crate) fn moved(&self, from: &ObjectPath, to: &ObjectPath) -> ObjectPath {
        let rest = self.joined.get(from.joined.len()..).unwrap_or_default();
        ObjectPath { joined: [&to.joined, rest].concat() }
    }

    /// True if it is the export's root.
    pub fn is_root(&self) -> bool {
        self.joined.is_empty()
    }

    /// Relative to the export's root; `.` for the root itself.
    pub fn as_relative(&self) -> &Path {
        if self.is_root() { Path::new(".") } else { Path::new(OsStr::from_bytes(&self.joined)) }
    }
}

impl fmt::Display for ObjectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", String::from_utf8_lossy(&self.joined))
    }
}

impl fmt::Debug for ObjectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_make_no_path() {
        for name in ["", ".", "..", "a/b", "/", "a\0", ".gridlane", ".GridLane", ".f.gridlane-part"] {
            assert_eq!(ObjectPath::new([&b"a"[..], name.as_bytes()]), None, "{name:?}");
        }
        let path = ObjectPath::new([&b"a"[..], b"...", b".gridlane2"]).unwrap();
        assert_eq!(path.as_relative(), Path::new("a/.../.gridlane2"));
        let (parent, name) = path.split_last().unwrap();
        assert_eq!((parent.to_string().as_str(), name), ("/a/...", &b".gridlane2"[..]));
        assert!(ObjectPath::root().split_last().is_none());
        assert!(path.names().eq([&b"a"[..], b"...", b".gridlane2"]));
        assert_eq!(ObjectPath::root().names().count(), 0);
        assert_eq!(ObjectPath::root().as_relative(), Path::new("."));
    }

    #[test]
    fn what_is_below_what() {
        let path = |text: &str| ObjectPath::new(text.split('/').map(str::as_bytes)).unwrap();
        assert!(path("a/b").is_below(&path("a")) && path("a/b/c").is_below(&path("a")));
        assert!(path("a").is_below(&ObjectPath::root()));
        for not_below in ["a", "ab", "a-b", "b/a"] {
            assert!(!path(not_below).is_below(&path("a")), "{not_below}");
        }
        assert!(!ObjectPath::root().is_below(&ObjectPath::root()));
        assert_eq!(path("a/b/c").moved(&path("a/b"), &path("x")), path("x/c"));
    }
}
