//! Names inside of a tree, and what they are called at each of the places where the tree is.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gridlane_core::limits::{NAME_BYTES_MAX, TREE_DEPTH_MAX, TREE_PATH_BYTES_MAX};
use gridlane_core::name::{self, NameFault, is_entry};
use gridlane_core::{Error, ErrorKind, Fault, Result, Url};
use gridlane_dav::path::encode_name;

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

    fn as_path(&self) -> &Path {
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

/// The root of a tree, or the place of a single file: on this machine or on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A path of this machine.
    Local(PathBuf),
    /// A URL of a server.
    Remote(Url),
}

impl Place {
    /// The place that a URL names.
    pub fn of(url: &Url) -> Place {
        match url.to_path() {
            Some(path) => Place::Local(path),
            None => Place::Remote(url.clone()),
        }
    }

    /// True if it is on this machine.
    pub fn is_local(&self) -> bool {
        matches!(self, Place::Local(_))
    }

    /// The URL of this place as it stands.
    pub fn url(&self) -> Result<Url> {
        match self {
            Place::Local(path) => Url::from_path(path),
            Place::Remote(url) => Ok(url.clone()),
        }
    }

    /// The URL of a file; that of the place itself for the root.
    pub fn file(&self, path: &TreePath) -> Result<Url> {
        match self {
            _ if path.is_root() => self.url(),
            Place::Local(root) => Url::from_path(&root.join(path.as_path())),
            Place::Remote(root) => below(root, path, ""),
        }
    }

    /// The URL of a directory, with a slash at its end.
    pub fn directory(&self, path: &TreePath) -> Result<Url> {
        match self {
            Place::Local(root) => {
                // With a name that is a slash only, a path gets one at its end.
                let path = if path.is_root() { root.clone() } else { root.join(path.as_path()) };
                Url::from_path(&path.join(""))
            }
            Place::Remote(root) => below(root, path, "/"),
        }
    }

    /// The path of something in a tree of this machine.
    pub fn local(&self, path: &TreePath) -> Option<PathBuf> {
        match self {
            Place::Local(root) if path.is_root() => Some(root.clone()),
            Place::Local(root) => Some(root.join(path.as_path())),
            Place::Remote(_) => None,
        }
    }

    /// The last name, decoded: what this place is called in its directory.
    pub fn name(&self) -> Option<Vec<u8>> {
        let name = match self {
            Place::Local(path) => path.file_name()?.as_bytes().to_vec(),
            Place::Remote(url) => {
                let path = url.encoded_path().trim_end_matches('/');
                percent_encoding::percent_decode_str(path.rsplit('/').next()?).collect()
            }
        };
        is_entry(&name).then_some(name)
    }
}

/// The query of the root may be what opens it (`?authz=`): everything below has it too.
fn below(root: &Url, path: &TreePath, end: &str) -> Result<Url> {
    let query = &root.request_target()[root.encoded_path().len()..];
    let base = match (root.is_directory_form(), root.encoded_path().rsplit('/').next()) {
        (false, Some(name)) => root.join(&format!("./{name}/"))?,
        _ => root.clone(),
    };
    let names: Vec<String> = path.names().map(encode_name).collect();
    let end = if names.is_empty() { "" } else { end };
    base.join(&format!("./{}{end}{query}", names.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn remote(text: &str) -> Place {
        Place::of(&Url::parse_absolute(text).unwrap())
    }

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

    #[test]
    fn what_things_are_called_at_a_server() {
        let path = TreePath::parse(b"s p/100%?#\xff").unwrap();
        for root in ["http://u:p@h/d", "http://u:p@h/d/"] {
            let file = remote(root).file(&path).unwrap();
            assert_eq!(file.as_str(), "http://u:p@h/d/s%20p/100%25%3F%23%FF");
            assert_eq!(remote(root).directory(&path).unwrap().as_str(), format!("{}/", file.as_str()));
            assert_eq!(remote(root).directory(&TreePath::root()).unwrap().as_str(), "http://u:p@h/d/");
        }
        for root in ["root://u:p@h//d%", "root://u:p@h//d%/"] {
            let place = remote(&format!("{root}?authz=%20"));
            assert_eq!(place.name().unwrap(), b"d%");
            let file = place.file(&path).unwrap();
            assert_eq!((file.wire_path(), file.cgi()), (b"/d%/s p/100%?#\xff".to_vec(), Some("authz=%20")));
            assert_eq!(place.directory(&TreePath::root()).unwrap().typed(), "root://u:p@h//d%/?authz=%20");
        }
        let signed = remote("https://h/a%2Fb?authz=x").file(&TreePath::parse(b"f").unwrap()).unwrap();
        assert_eq!(signed.as_str(), "https://h/a%2Fb/f?authz=x");
        assert_eq!(remote("http://h/a%20b/").name().unwrap(), b"a b");
        assert_eq!(remote("http://h/").name(), None);
        assert_eq!(remote("http://h/%2e%2e%2f").name(), None);
    }

    proptest! {
        /// Every name that a file can have comes back from its URL, on both kinds of places.
        #[test]
        fn names_survive_the_way_through_a_url(name in prop::collection::vec(1u8.., 1..40)) {
            prop_assume!(name::judge_entry(&name).is_ok());
            let path = TreePath::root().child(b"d").unwrap().child(&name).unwrap();
            let url = remote("http://h/x/").file(&path).unwrap();
            let decoded: Vec<u8> = percent_encoding::percent_decode_str(url.encoded_path()).collect();
            let mut expected = b"/x/d/".to_vec();
            expected.extend(&name);
            prop_assert_eq!(&decoded, &expected);
            prop_assert_eq!(url.file_name().is_some(), true);
            prop_assert_eq!(&remote("root://h//x/").file(&path).unwrap().wire_path(), &expected);
            let here = Place::Local("/x".into()).file(&path).unwrap();
            let expected = Path::new("/x/d").join(std::ffi::OsStr::from_bytes(&name));
            prop_assert_eq!(here.to_path().unwrap(), expected);
        }
    }
}
