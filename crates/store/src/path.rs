//! Where an object is inside an export.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The directory for partial uploads: on the same file system as what it becomes, never listed, never
/// reachable.
pub const HIDDEN_NAME: &str = ".gridlane";

/// Names from the export's root to a file or directory. It cannot point upwards or into a
/// [hidden](HIDDEN_NAME) directory: there is no such value.
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
        let refused = matches!(name, b"" | b"." | b"..")
            || is_hidden(name)
            || name.iter().any(|byte| matches!(byte, b'/' | 0));
        if refused {
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

    /// Whether it is somewhere below `directory`, which nothing is of itself.
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

    /// Whether it is the export's root.
    pub fn is_root(&self) -> bool {
        self.joined.is_empty()
    }

    /// Relative to the export's root; `.` for the root itself.
    pub fn as_relative(&self) -> &Path {
        if self.is_root() { Path::new(".") } else { Path::new(OsStr::from_bytes(&self.joined)) }
    }
}

/// Whether some file system takes `name` for that of the hidden directory. In any case: vfat, SMB and ext4 with
/// casefold do not tell them apart. With dots and spaces at its end, which vfat leaves off. As vfat's short name
/// of it. With characters that nobody sees, which ext4 with casefold and HFS+ leave out.
pub(crate) fn is_hidden(name: &[u8]) -> bool {
    const SHORT: &[u8] = b"gridla~";
    let is = |name: &[u8]| {
        let end = name.iter().rposition(|byte| !matches!(byte, b'.' | b' ')).map_or(0, |last| last + 1);
        let is_short = |at: &[u8]| at.eq_ignore_ascii_case(SHORT);
        name[..end].eq_ignore_ascii_case(HIDDEN_NAME.as_bytes())
            || name.get(..SHORT.len()).is_some_and(is_short)
    };
    if name.is_ascii() {
        return is(name);
    }
    let Ok(text) = std::str::from_utf8(name) else { return false };
    // It is ASCII but for what may be left out.
    let seen: Vec<u8> = text.bytes().filter(u8::is_ascii).collect();
    is(&seen) && text.chars().all(|char| char.is_ascii() || is_left_out(char))
}

/// Unicode's `Default_Ignorable_Code_Point`.
fn is_left_out(char: char) -> bool {
    matches!(char,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
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
        for name in ["", ".", "..", "a/b", "/", "a\0", ".gridlane", ".GridLane"] {
            assert_eq!(ObjectPath::new([&b"a"[..], name.as_bytes()]), None, "{name:?}");
        }
        for name in [".gridlane. .", "GRIDLA~1", ".grid\u{200d}lane", "\u{feff}.GRIDLANE."] {
            assert_eq!(ObjectPath::new([name.as_bytes()]), None, "{name:?}");
        }
        for name in [".grid\u{e9}lane", "gridlane", ".gridlane\u{200d}s", "a~1", ". .", "\u{200d}"] {
            assert!(ObjectPath::new([name.as_bytes()]).is_some(), "{name:?}");
        }
        assert!(ObjectPath::new([&b".gridlane\xff"[..]]).is_some());
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
