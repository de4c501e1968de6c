//! Paths inside of a tree, which cannot point outside of it.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gridlane_core::limits::{NAME_BYTES_MAX, TREE_DEPTH_MAX, TREE_PATH_BYTES_MAX};
use gridlane_core::name::{self, NameFault};
use gridlane_core::{Error, ErrorKind, Fault, Result};

/// The names from the root of a tree down to something in it, as bytes; empty for the root itself.
///
/// It cannot point outside, nor to what is not complete: every name in it is one that [`name::judge_entry`] takes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct TreePath {
    /// The names with slashes between them.
    joined: Vec<u8>,
}

impl TreePath {
    /// The root.
    pub fn root() -> TreePath {
        TreePath::default()
    }

    /// Reads names with slashes between them. One slash at the end is not looked at.
    pub fn parse(text: &[u8]) -> Result<TreePath> {
        let text = text.strip_suffix(b"/").unwrap_or(text);
        let mut path = TreePath::root();
        for name in text.split(|byte| *byte == b'/') {
            path = path.child(name)?;
        }
        Ok(path)
    }

    /// The path of `name` in this directory.
    pub fn child(&self, name: &[u8]) -> Result<TreePath> {
        let wrong = |why: String| {
            let shown = String::from_utf8_lossy(&name[..name.len().min(60)]).into_owned();
            Error::new(ErrorKind::Usage, format!("{shown:?} {why}")).fault(Fault::Caller)
        };
        name::judge_entry(name).map_err(|fault| match fault {
            NameFault::TooLong => {
                wrong(format!("is a name of {} bytes; {NAME_BYTES_MAX} are possible", name.len()))
            }
            NameFault::Own => wrong("is a name that gridlane keeps for unfinished copies of its own".into()),
            _ => wrong("is not the name of a file in a tree".into()),
        })?;
        if self.names().count() >= TREE_DEPTH_MAX {
            return Err(wrong(format!("is more than {TREE_DEPTH_MAX} directories deep")));
        }
        if self.joined.len() + 1 + name.len() > TREE_PATH_BYTES_MAX {
            return Err(wrong(format!("would have a path of more than {TREE_PATH_BYTES_MAX} bytes")));
        }
        let mut joined = Vec::with_capacity(self.joined.len() + 1 + name.len());
        joined.extend_from_slice(&self.joined);
        if !joined.is_empty() {
            joined.push(b'/');
        }
        joined.extend_from_slice(name);
        Ok(TreePath { joined })
    }

    /// True if it is the root.
    pub fn is_root(&self) -> bool {
        self.joined.is_empty()
    }

    /// The names, from the root down.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.joined.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
    }

    /// The directory it is in; `None` for the root.
    pub fn parent(&self) -> Option<TreePath> {
        if self.is_root() {
            return None;
        }
        let end = self.joined.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        Some(TreePath { joined: self.joined[..end].to_vec() })
    }

    /// Every directory from the root down to this one, both included.
    pub fn with_ancestors(&self) -> Vec<TreePath> {
        let mut all = vec![self.clone()];
        while let Some(parent) = all.last().and_then(TreePath::parent) {
            all.push(parent);
        }
        all.reverse();
        all
    }

    /// The names with slashes between them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.joined
    }

    /// The path of `name` in this directory, whatever name that is: for messages, and for nothing else.
    pub(crate) fn refused(&self, name: &[u8]) -> TreePath {
        let slash: &[u8] = if self.is_root() { b"" } else { b"/" };
        TreePath { joined: [&self.joined, slash, name].concat() }
    }

    /// A path that was one before: for records of our own only.
    pub(crate) fn from_checked(joined: Vec<u8>) -> TreePath {
        TreePath { joined }
    }

    /// The path as the system has it, relative to the root.
    pub(crate) fn as_path(&self) -> &Path {
        Path::new(std::ffi::OsStr::from_bytes(&self.joined))
    }
}

/// For people: what is not UTF-8 is replaced.
impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.joined))
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.joined))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_none() {
        for bad in
            [&b"/a"[..], b"a//b", b"..", b"a/../b", b".", b"", b"a/./b", b"a\0", b"/", b"a/.f.gridlane-part"]
        {
            assert!(TreePath::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(TreePath::parse(b"a/b/").unwrap().as_bytes(), b"a/b");
        assert!(TreePath::root().child(&[b'x'; 256]).is_err());
        let mut path = TreePath::root();
        while let Ok(child) = path.child(b"d") {
            path = child;
        }
        assert_eq!(path.names().count(), TREE_DEPTH_MAX);
        let long = [b'x'; 255];
        let mut path = TreePath::root();
        while let Ok(child) = path.child(&long) {
            path = child;
        }
        assert!(path.as_bytes().len() <= TREE_PATH_BYTES_MAX);
    }

    #[test]
    fn dot_names_belong_to_trees_and_our_own_do_not() {
        assert!(TreePath::parse(b"a.zarr/.zarray").is_ok());
        for own in [&b".gridlane/x"[..], b"d/.f.gridlane-journal", b".gridlane-failed-x"] {
            let error = TreePath::parse(own).unwrap_err();
            assert!(error.message().contains("unfinished copies"), "{error}");
        }
        let told = TreePath::parse(b"d").unwrap().refused(b".gridlane");
        assert_eq!(
            (told.to_string(), TreePath::root().refused(b"x").as_bytes()),
            ("d/.gridlane".into(), &b"x"[..])
        );
    }

    #[test]
    fn directories_above() {
        let path = TreePath::parse(b"a/b/c").unwrap();
        let shown: Vec<String> = path.with_ancestors().iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["", "a", "a/b", "a/b/c"]);
        assert_eq!(TreePath::root().parent(), None);
    }
}
