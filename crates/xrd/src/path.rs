//! A path on the wire: raw bytes, perhaps with CGI behind a question mark.

use std::fmt;

use crate::wire::until_nul;

/// The target of a request, as the client wrote it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct PathArg {
    /// The path: absolute if the client is right, never decoded.
    pub path: Vec<u8>,
    /// The text behind the first `?`, without it; empty if there is none.
    pub cgi: Vec<u8>,
}

impl PathArg {
    /// A path without CGI.
    pub fn new(path: impl Into<Vec<u8>>) -> PathArg {
        PathArg { path: path.into(), cgi: Vec::new() }
    }

    /// With CGI; none if it is empty.
    pub fn with_cgi(path: impl Into<Vec<u8>>, cgi: impl Into<Vec<u8>>) -> PathArg {
        PathArg { path: path.into(), cgi: cgi.into() }
    }

    /// Reads `path[?cgi]`, up to a NUL if there is one: XRootD's paths end there.
    pub fn parse(bytes: &[u8]) -> PathArg {
        let bytes = until_nul(bytes);
        match bytes.iter().position(|byte| *byte == b'?') {
            Some(at) => PathArg { path: bytes[..at].to_vec(), cgi: bytes[at + 1..].to_vec() },
            None => PathArg::new(bytes),
        }
    }

    /// Appends `path[?cgi]`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.path);
        if !self.cgi.is_empty() {
            out.push(b'?');
            out.extend_from_slice(&self.cgi);
        }
    }

    /// The value of a key of the CGI, as it stands; the first one counts.
    pub fn value(&self, key: &str) -> Option<&[u8]> {
        pairs(&self.cgi).find(|(name, _)| *name == key.as_bytes()).map(|(_, value)| value)
    }
}

/// CGI may hold tokens.
impl fmt::Debug for PathArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.cgi.is_empty() { "" } else { "?…" };
        write!(f, "{:?}", String::from_utf8_lossy(&self.path) + more)
    }
}

/// The pairs of `key=value&…`; a key without `=` has an empty value. Empty elements, which occur, are left out.
pub fn pairs(cgi: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    cgi.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        match pair.iter().position(|byte| *byte == b'=') {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &pair[..0]),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_its_cgi() {
        let arg = PathArg::parse(b"/a b%20?&tried=h,i&triedrc=enoent&x\0");
        assert_eq!(arg.path, b"/a b%20");
        assert_eq!(arg.value("tried"), Some(&b"h,i"[..]));
        assert_eq!(arg.value("x"), Some(&b""[..]));
        assert_eq!(arg.value("y"), None);
        let mut out = Vec::new();
        arg.write(&mut out);
        assert_eq!(out, b"/a b%20?&tried=h,i&triedrc=enoent&x");
        assert_eq!(PathArg::parse(b"/a\0/../b?c"), PathArg::new("/a"));
        assert!(!format!("{:?}", PathArg::parse(b"/f?authz=secret")).contains("secret"));
    }
}
