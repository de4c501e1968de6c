//! The path of a request: percent-decoded once, cut into names, and unable to point outside.
//!
//! A [`ResourcePath`] has no `.` or `..`, no empty name, no NUL and no slash inside a name. Code that
//! opens it below a directory still has symbolic links to care for; nothing else.

use std::fmt;

use gridlane_core::limits;
pub use gridlane_core::url::encode_name;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};

use crate::request::Rejection;
use crate::status::Status;

/// The names from the export's root to a file or directory, as bytes.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct ResourcePath {
    names: Vec<Vec<u8>>,
    directory_form: bool,
}

impl ResourcePath {
    /// The root.
    pub fn root() -> ResourcePath {
        ResourcePath { names: Vec::new(), directory_form: true }
    }

    /// Reads an encoded path as it stands in a request line, without a query.
    pub fn parse(encoded: &str) -> Result<ResourcePath, Rejection> {
        if !encoded.starts_with('/') {
            return Err(Rejection::bad_request("the path does not begin with a slash"));
        }
        let mut names = Vec::new();
        for segment in encoded.split('/') {
            let name = decode_segment(segment)?;
            match name.as_slice() {
                b"" | b"." => {}
                b".." => return Err(Rejection::bad_request("the path has a component '..'")),
                _ if name.len() > limits::NAME_BYTES_MAX => {
                    let max = limits::NAME_BYTES_MAX;
                    let message = format!("the path has a name of more than {max} bytes");
                    return Err(Rejection::new(Status::URI_TOO_LONG, message));
                }
                _ => names.push(name),
            }
        }
        let directory_form = matches!(encoded.rsplit('/').next(), Some("" | ".")) || names.is_empty();
        Ok(ResourcePath { names, directory_form })
    }

    /// The names, from the root down.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator + Clone {
        self.names.iter().map(Vec::as_slice)
    }

    /// The last name and the path of the directory it is in; `None` for the root.
    pub fn split_last(&self) -> Option<(ResourcePath, &[u8])> {
        let (last, parents) = self.names.split_last()?;
        Some((ResourcePath { names: parents.to_vec(), directory_form: true }, last))
    }

    /// True if it ends with a slash: the client means a directory.
    pub fn is_directory_form(&self) -> bool {
        self.directory_form
    }

    /// True if it is the export's root.
    pub fn is_root(&self) -> bool {
        self.names.is_empty()
    }

    /// The same names, meaning a directory.
    pub fn to_directory_form(&self) -> ResourcePath {
        ResourcePath { names: self.names.clone(), directory_form: true }
    }

    /// The path of these names, none of which has a slash in it.
    pub fn of_names<'a>(names: impl Iterator<Item = &'a [u8]>) -> ResourcePath {
        ResourcePath { names: names.map(<[u8]>::to_vec).collect(), directory_form: false }
    }

    /// The path of `name` inside this directory.
    pub fn join(&self, name: &[u8]) -> ResourcePath {
        let mut names = self.names.clone();
        names.push(name.to_vec());
        ResourcePath { names, directory_form: false }
    }
}

/// The encoded path: always with a leading slash, safe in a header and in HTML.
impl fmt::Display for ResourcePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.names {
            write!(f, "/{}", encode_name(name))?;
        }
        if self.directory_form || self.names.is_empty() { f.write_str("/") } else { Ok(()) }
    }
}

impl fmt::Debug for ResourcePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn decode_segment(segment: &str) -> Result<Vec<u8>, Rejection> {
    let bytes = segment.as_bytes();
    for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%') {
        let complete = bytes.get(at + 1..at + 3).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
        if !complete {
            return Err(Rejection::bad_request("the path has a '%' without two hexadecimal digits"));
        }
    }
    let name = match bytes.contains(&b'%') {
        true => percent_decode(bytes).collect(),
        false => bytes.to_vec(),
    };
    if name.contains(&b'/') {
        return Err(Rejection::bad_request("the path has an encoded slash"));
    }
    if name.contains(&0) {
        return Err(Rejection::bad_request("the path has a NUL"));
    }
    Ok(name)
}

/// A query as it may stand in a header: what is not visible ASCII is encoded, everything else stays.
pub fn encode_query(query: &str) -> String {
    utf8_percent_encode(query, QUERY).to_string()
}

const QUERY: &AsciiSet = &CONTROLS.add(b' ');

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn queries_are_safe_in_a_header() {
        assert_eq!(encode_query("C=N;O=D&x=%20"), "C=N;O=D&x=%20");
        assert_eq!(encode_query("\u{85}\u{e9}\r\n x"), "%C2%85%C3%A9%0D%0A%20x");
    }

    #[test]
    fn what_paths_mean() {
        for (text, shown) in [
            ("/", "/"),
            ("//", "/"),
            ("/a/b", "/a/b"),
            ("//a///b", "/a/b"),
            ("/a/", "/a/"),
            ("/a/.", "/a/"),
            ("/./a", "/a"),
            ("/a%20b+c", "/a%20b+c"),
            ("/%61", "/a"),
            ("/%2561", "/%2561"),
            ("/...", "/..."),
            ("/a..b", "/a..b"),
            ("/%FF%0a", "/%FF%0A"),
            ("/é", "/%C3%A9"),
            ("/a\\..\\b", "/a%5C..%5Cb"),
        ] {
            assert_eq!(ResourcePath::parse(text).unwrap().to_string(), shown, "{text}");
        }
        assert_eq!(ResourcePath::default().to_string(), "/");
    }

    #[test]
    fn what_is_refused() {
        let long = format!("/{}", "x".repeat(limits::NAME_BYTES_MAX + 1));
        for (text, code) in [
            ("/..", 400),
            ("/a/../b", 400),
            ("/%2e%2e/x", 400),
            ("/.%2E", 400),
            ("/a%2fb", 400),
            ("/%2F", 400),
            ("/a%00", 400),
            ("/a%", 400),
            ("/a%1", 400),
            ("/a%gg", 400),
            ("a", 400),
            ("", 400),
            (&long, 414),
        ] {
            assert_eq!(ResourcePath::parse(text).unwrap_err().status.code(), code, "{text}");
        }
    }

    #[test]
    fn parents() {
        let path = ResourcePath::parse("/a/b").unwrap();
        let (parent, name) = path.split_last().unwrap();
        assert_eq!((parent.to_string().as_str(), name), ("/a/", &b"b"[..]));
        assert_eq!(parent.join(name), path);
        assert!(ResourcePath::root().split_last().is_none());
    }

    proptest! {
        #[test]
        fn never_points_outside(text in "/?([a.%2eF/0é]|\\PC){0,40}") {
            if let Ok(path) = ResourcePath::parse(&text) {
                for name in path.names() {
                    prop_assert!(!matches!(name, b"" | b"." | b".."));
                    prop_assert!(!name.contains(&b'/') && !name.contains(&0));
                }
                prop_assert_eq!(ResourcePath::parse(&path.to_string()).unwrap(), path);
            }
        }

        #[test]
        fn any_name_survives(name in prop::collection::vec(1u8.., 1..50)) {
            prop_assume!(!name.contains(&b'/') && name != b"." && name != b"..");
            let path = ResourcePath::root().join(&name);
            let shown = path.to_string();
            prop_assert!(shown.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"'<>&".contains(&byte)));
            prop_assert_eq!(ResourcePath::parse(&shown).unwrap(), path);
        }
    }
}
