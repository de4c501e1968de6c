//! WebDAV's header fields (RFC 4918, 10), read strictly: what a field does not say clearly is refused with
//! 400 rather than guessed, for a wrong guess copies or removes a tree.

use crate::header::Headers;
use crate::path::ResourcePath;
use crate::request::{Rejection, is_authority};

/// The depth that a request reaches below a collection (RFC 4918, 10.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The resource itself.
    Zero,
    /// And what is in it.
    One,
    /// And what is in that.
    Infinity,
}

impl Depth {
    /// The depth of a PROPFIND; without the field it is 0. RFC 4918 (9.1) means infinity by that, which a server need not
    /// do; XRootD's server means 0, and its clients ask so when they want to know of one thing. Whether an infinite
    /// one is answered is the server's decision: the answer for no is [`crate::multistatus::FINITE_DEPTH_ERROR`].
    pub fn of_propfind(headers: &Headers) -> Result<Depth, Rejection> {
        Ok(Depth::parse(headers)?.unwrap_or(Depth::Zero))
    }

    /// The depth of a COPY: the collection without what is in it, or all (RFC 4918, 9.8.3).
    pub fn of_copy(headers: &Headers) -> Result<Depth, Rejection> {
        match Depth::parse(headers)?.unwrap_or(Depth::Infinity) {
            Depth::One => Err(Rejection::bad_request("the Depth of a COPY is 0 or infinity")),
            depth => Ok(depth),
        }
    }

    /// The depth of a DELETE or MOVE. Of a collection it has to be [whole](Depth::check_whole).
    pub fn of_removal(headers: &Headers) -> Result<Depth, Rejection> {
        Ok(Depth::parse(headers)?.unwrap_or(Depth::Infinity))
    }

    /// Checks that a DELETE or MOVE of a collection does not claim to be anything but infinite (RFC 4918, 9.6.1 and 9.9.2). A
    /// file has nothing below it, and every depth is the same.
    pub fn check_whole(self) -> Result<(), Rejection> {
        match self {
            Depth::Infinity => Ok(()),
            _ => Err(Rejection::bad_request("the Depth of a DELETE or MOVE of a directory is infinity")),
        }
    }

    /// The field, if there is one.
    fn parse(headers: &Headers) -> Result<Option<Depth>, Rejection> {
        match sole(headers, "depth", "the request has more than one Depth")? {
            None => Ok(None),
            Some("0") => Ok(Some(Depth::Zero)),
            Some("1") => Ok(Some(Depth::One)),
            Some(value) if value.eq_ignore_ascii_case("infinity") => Ok(Some(Depth::Infinity)),
            Some(_) => Err(Rejection::bad_request("the Depth is none of 0, 1 and infinity")),
        }
    }
}

/// True if a COPY or MOVE may replace what is there (RFC 4918, 10.6): yes, unless it says `F`.
pub fn overwrites(headers: &Headers) -> Result<bool, Rejection> {
    match sole(headers, "overwrite", "the request has more than one Overwrite")? {
        None | Some("T" | "t") => Ok(true),
        Some("F" | "f") => Ok(false),
        Some(_) => Err(Rejection::bad_request("the Overwrite is neither T nor F")),
    }
}

/// Where a COPY or MOVE is to put things (RFC 4918, 10.3).
///
/// The first question is if that is this server ([`is_at`](Destination::is_at)): if not, the path is that of another
/// one and is not looked at.
#[derive(Clone, PartialEq, Eq)]
pub struct Destination {
    authority: Option<Authority>,
    encoded_path: String,
    query: Option<String>,
}

/// The server in a [`Destination`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// True if it is reached with TLS: `https`, or `davs` as gfal2 calls it.
    pub secure: bool,
    /// Host, and port where it is not the scheme's own, in lower case: comparable with a `Host` field.
    pub host: String,
}

impl Destination {
    /// Reads the field, which must be there: a complete URL of HTTP or a complete path.
    pub fn parse(headers: &Headers) -> Result<Destination, Rejection> {
        let value = sole(headers, "destination", "the request has more than one Destination")?
            .ok_or(Rejection::bad_request("the request has no Destination"))?;
        Destination::read(value)
    }

    /// Reads what may stand in the field; other fields name resources in the same way.
    pub fn read(value: &str) -> Result<Destination, Rejection> {
        if value.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\\') {
            return Err(Rejection::bad_request("the Destination has a character that no URL has"));
        }
        if value.contains('#') {
            return Err(Rejection::bad_request("the Destination has a fragment"));
        }
        let (authority, target) = match value.split_once("://") {
            // `//host/path` is a name for another server to some, and a path to others.
            _ if value.starts_with("//") => {
                return Err(Rejection::bad_request("the Destination begins with two slashes"));
            }
            _ if value.starts_with('/') => (None, value),
            Some((scheme, rest)) => {
                let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
                (Some(Authority::parse(scheme, authority)?), target)
            }
            None => {
                return Err(Rejection::bad_request("the Destination is neither a URL nor a complete path"));
            }
        };
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (target, None),
        };
        let encoded_path = if path.is_empty() { "/" } else { path }.to_owned();
        Ok(Destination { authority, encoded_path, query })
    }

    /// The server; `None` when it is the one that was asked.
    pub fn authority(&self) -> Option<&Authority> {
        self.authority.as_ref()
    }

    /// True if it is the server that calls itself so: by its use of TLS, and the `Host` of the request.
    pub fn is_at(&self, secure: bool, host: &str) -> bool {
        let Some(authority) = &self.authority else { return true };
        authority.secure == secure && authority.host == without_own_port(secure, host)
    }

    /// The path as it stands.
    pub fn encoded_path(&self) -> &str {
        &self.encoded_path
    }

    /// The text behind the question mark, unchanged: it may hold a token, and does not belong into a log.
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// The path on this server.
    pub fn resource_path(&self) -> Result<ResourcePath, Rejection> {
        ResourcePath::parse(&self.encoded_path)
    }
}

/// Without the query.
impl std::fmt::Debug for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let host = self.authority.as_ref().map(|authority| authority.host.as_str()).unwrap_or_default();
        write!(f, "{host}{}{}", self.encoded_path, if self.query.is_some() { "?…" } else { "" })
    }
}

impl Authority {
    fn parse(scheme: &str, text: &str) -> Result<Authority, Rejection> {
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "http" | "dav" => false,
            "https" | "davs" => true,
            _ => {
                return Err(Rejection::bad_request("the Destination has a scheme other than http and https"));
            }
        };
        if text.contains('@') {
            return Err(Rejection::bad_request("the Destination has a user's name in it"));
        }
        if !is_authority(text) {
            return Err(Rejection::bad_request("the Destination has no host, or one that no URL has"));
        }
        let host = without_own_port(secure, text);
        Ok(Authority { secure, host })
    }
}

fn without_own_port(secure: bool, host: &str) -> String {
    let own = if secure { ":443" } else { ":80" };
    let host = host.strip_suffix(own).unwrap_or(host);
    host.strip_suffix(':').unwrap_or(host).to_ascii_lowercase()
}

/// The value of a field that may stand once.
fn sole<'a>(headers: &'a Headers, name: &'a str, twice: &'static str) -> Result<Option<&'a str>, Rejection> {
    match headers.single(name) {
        None if headers.contains(name) => Err(Rejection::bad_request(twice)),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with(name: &str, values: &[&str]) -> Headers {
        let mut headers = Headers::new();
        values.iter().for_each(|value| headers.push(name, value.as_bytes()));
        headers
    }

    #[test]
    fn depths() {
        use Depth::{Infinity, One, Zero};
        // The field, then what PROPFIND, COPY and DELETE make of it.
        for (values, propfind, copy, whole) in [
            (&[][..], Some(Zero), Some(Infinity), true),
            (&["0"], Some(Zero), Some(Zero), false),
            (&["1"], Some(One), None, false),
            (&["infinity"], Some(Infinity), Some(Infinity), true),
            (&["Infinity"], Some(Infinity), Some(Infinity), true),
            (&["1,noroot"], None, None, false),
            (&["2"], None, None, false),
            (&["00"], None, None, false),
            (&["infinite"], None, None, false),
            (&[""], None, None, false),
            (&["0", "0"], None, None, false),
        ] {
            let headers = with("Depth", values);
            assert_eq!(Depth::of_propfind(&headers).ok(), propfind, "{values:?}");
            assert_eq!(Depth::of_copy(&headers).ok(), copy, "{values:?}");
            let is_whole = Depth::of_removal(&headers).and_then(Depth::check_whole).is_ok();
            assert_eq!(is_whole, whole, "{values:?}");
        }
    }

    #[test]
    fn overwriting() {
        for (values, expected) in [
            (&[][..], Some(true)),
            (&["T"], Some(true)),
            (&["t"], Some(true)),
            (&["F"], Some(false)),
            (&["f"], Some(false)),
            (&["true"], None),
            (&["False"], None),
            (&["0"], None),
            (&[""], None),
            (&["T", "F"], None),
        ] {
            assert_eq!(overwrites(&with("Overwrite", values)).ok(), expected, "{values:?}");
        }
    }

    #[test]
    fn destinations() {
        // The field; whether it is at https://h:8443; path; query.
        for (value, here, path, query) in [
            // rclone, litmus, cadaver and davix send complete URLs; Python's webdav4 sends a path too.
            ("https://h:8443/a/b%20c", true, "/a/b%20c", None),
            ("HTTPS://H:8443/a/", true, "/a/", None),
            ("davs://h:8443/a", true, "/a", None),
            ("/a/b", true, "/a/b", None),
            ("/a://b", true, "/a://b", None),
            ("https://h:8443", true, "/", None),
            ("https://h:8443?authz=x", true, "/", Some("authz=x")),
            ("https://h:8443/a?authz=x/y", true, "/a", Some("authz=x/y")),
            ("http://h:8443/a", false, "/a", None),
            ("https://h/a", false, "/a", None),
            ("https://h:443/a%2Fb/../c", false, "/a%2Fb/../c", None),
            ("https://[::1]:8443/a", false, "/a", None),
        ] {
            let destination = Destination::parse(&with("Destination", &[value])).unwrap();
            assert_eq!(destination.is_at(true, "h:8443"), here, "{value}");
            assert_eq!((destination.encoded_path(), destination.query()), (path, query), "{value}");
            assert_eq!(destination.authority().is_none(), value.starts_with('/'));
            assert!(!format!("{destination:?}").contains("authz"));
        }
        let default_port = Destination::parse(&with("Destination", &["http://h:80/a"])).unwrap();
        assert!(default_port.is_at(false, "h") && default_port.is_at(false, "H:80"));
        assert!(!default_port.is_at(true, "h"));
        let bad_path = Destination::parse(&with("Destination", &["/a/../b"])).unwrap();
        assert_eq!(bad_path.resource_path().unwrap_err().status.code(), 400);
        for values in [
            &[][..],
            &[""],
            &["a/b"],
            &["//h/a"],
            &["ftp://h/a"],
            &["file:///a"],
            &["http:///a"],
            &["http://:80/a"],
            &["http://user:secret@h/a"],
            &["/a#b"],
            &["http://h/a b"],
            &["/a\\b"],
            &["davs://h:443:/a"],
            &["http://[::1/a"],
            &["/a", "/b"],
        ] {
            let rejection = Destination::parse(&with("Destination", values)).unwrap_err();
            assert_eq!(rejection.status.code(), 400, "{values:?}");
            assert!(!rejection.message.contains("secret"));
        }
    }

    proptest! {
        #[test]
        fn never_panics(value in "((https?|davs?)://)?([/:?#@\\[\\]]|\\PC){0,40}") {
            let headers = with("Destination", &[&value]);
            if let Ok(destination) = Destination::parse(&headers) {
                let _ = (destination.resource_path(), destination.is_at(true, &value));
            }
            let _ = Depth::of_propfind(&with("Depth", &[&value]));
        }
    }
}
