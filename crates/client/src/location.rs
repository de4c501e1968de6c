//! Locations of trees and files, on this machine or on a server, and of each path below them.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use gridlane_core::name::is_entry;
use gridlane_core::{Result, Url};
use gridlane_dav::path::encode_name;

use crate::item::directory_form;
use crate::tree_path::TreePath;

/// The location of a tree's root or of a single file: on this machine or on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A path of this machine.
    Local(PathBuf),
    /// A URL of a server.
    Remote(Url),
}

impl Location {
    /// The location that a URL names.
    pub fn of(url: &Url) -> Location {
        match url.to_path() {
            Some(path) => Location::Local(path),
            None => Location::Remote(url.clone()),
        }
    }

    /// True if it is on this machine.
    pub fn is_local(&self) -> bool {
        matches!(self, Location::Local(_))
    }

    /// Its URL as it stands.
    pub fn url(&self) -> Result<Url> {
        match self {
            Location::Local(path) => Url::from_path(path),
            Location::Remote(url) => Ok(url.clone()),
        }
    }

    /// The URL of a file; that of the location itself for the root.
    pub fn file(&self, path: &TreePath) -> Result<Url> {
        match self {
            _ if path.is_root() => self.url(),
            Location::Local(root) => Url::from_path(&root.join(path.as_path())),
            Location::Remote(root) => below(root, path, ""),
        }
    }

    /// The URL of a directory, with a slash at its end.
    pub fn directory(&self, path: &TreePath) -> Result<Url> {
        match self {
            Location::Local(root) => {
                // With a name that is a slash only, a path gets one at its end.
                let path = if path.is_root() { root.clone() } else { root.join(path.as_path()) };
                Url::from_path(&path.join(""))
            }
            Location::Remote(root) => below(root, path, "/"),
        }
    }

    /// The path of something in a tree of this machine.
    pub fn local(&self, path: &TreePath) -> Option<PathBuf> {
        match self {
            Location::Local(root) if path.is_root() => Some(root.clone()),
            Location::Local(root) => Some(root.join(path.as_path())),
            Location::Remote(_) => None,
        }
    }

    /// Its name in its directory, decoded: the last one.
    pub fn name(&self) -> Option<Vec<u8>> {
        let name = match self {
            Location::Local(path) => path.file_name()?.as_bytes().to_vec(),
            Location::Remote(url) => {
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
    let base = directory_form(root)?;
    let names: Vec<String> = path.names().map(encode_name).collect();
    let end = if names.is_empty() { "" } else { end };
    base.join(&format!("./{}{end}{query}", names.join("/")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use gridlane_core::name;
    use proptest::prelude::*;

    use super::*;

    fn remote(text: &str) -> Location {
        Location::of(&Url::parse_absolute(text).unwrap())
    }

    #[test]
    fn names_are_encoded_in_urls() {
        let path = TreePath::parse(b"s p/100%?#\xff").unwrap();
        for root in ["http://u:p@h/d", "http://u:p@h/d/"] {
            let file = remote(root).file(&path).unwrap();
            assert_eq!(file.as_str(), "http://u:p@h/d/s%20p/100%25%3F%23%FF");
            assert_eq!(remote(root).directory(&path).unwrap().as_str(), format!("{}/", file.as_str()));
            assert_eq!(remote(root).directory(&TreePath::root()).unwrap().as_str(), "http://u:p@h/d/");
        }
        for root in ["root://u:p@h//d%", "root://u:p@h//d%/"] {
            let location = remote(&format!("{root}?authz=%20"));
            assert_eq!(location.name().unwrap(), b"d%");
            let file = location.file(&path).unwrap();
            assert_eq!((file.wire_path(), file.cgi()), (b"/d%/s p/100%?#\xff".to_vec(), Some("authz=%20")));
            assert_eq!(location.directory(&TreePath::root()).unwrap().typed(), "root://u:p@h//d%/?authz=%20");
        }
        let signed = remote("https://h/a%2Fb?authz=x").file(&TreePath::parse(b"f").unwrap()).unwrap();
        assert_eq!(signed.as_str(), "https://h/a%2Fb/f?authz=x");
        assert_eq!(remote("http://h/a%20b/").name().unwrap(), b"a b");
        assert_eq!(remote("http://h/").name(), None);
        assert_eq!(remote("http://h/%2e%2e%2f").name(), None);
    }

    proptest! {
        /// Every name that a file can have comes back from its URL, in both kinds of location.
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
            let here = Location::Local("/x".into()).file(&path).unwrap();
            let expected = Path::new("/x/d").join(std::ffi::OsStr::from_bytes(&name));
            prop_assert_eq!(here.to_path().unwrap(), expected);
        }
    }
}
