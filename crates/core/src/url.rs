//! URLs of files and directories: `http`, `https`, `root`, `roots` and `file`; a plain path is a `file` URL.
//!
//! What is particular to `root` and `roots` is in `root`: their path is typed and sent as it is, and nothing
//! in it is percent-encoded. Inside of a [`Url`] it is encoded like any other.

mod root;

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use crate::error::{Error, ErrorKind, Fault, Result};

/// The protocol by which bytes are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// HTTP/1.1 in clear.
    Http,
    /// HTTP/1.1 over TLS.
    Https,
    /// XRootD's protocol, in clear unless the server wants TLS.
    Root,
    /// XRootD's protocol over TLS, which begins after its handshake.
    Roots,
    /// A file of this machine.
    File,
}

impl Scheme {
    /// The name in front of `:`.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::Root => "root",
            Scheme::Roots => "roots",
            Scheme::File => "file",
        }
    }

    /// True if it is HTTP, encrypted or not.
    pub fn is_http(self) -> bool {
        matches!(self, Scheme::Http | Scheme::Https)
    }

    /// True if it is XRootD's protocol, encrypted or not.
    pub fn is_root(self) -> bool {
        matches!(self, Scheme::Root | Scheme::Roots)
    }

    /// True if nothing that is sent can be read on its way.
    pub fn is_encrypted(self) -> bool {
        matches!(self, Scheme::Https | Scheme::Roots)
    }
}

/// Where a server is: what a URL says but for whose request it is, and for what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Its protocol.
    pub scheme: Scheme,
    /// Name or address, without brackets, a link-local one with its zone (`fe80::1%eth0`); letters of names are small.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// The URL of a file or directory, with a scheme that gridlane speaks.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Url {
    scheme: Scheme,
    inner: url::Url,
    /// Of a link-local address: which of this machine's networks it is in.
    zone: Option<String>,
    /// Of a `root` URL, what is behind the `?` as it was typed; `inner` has it encoded.
    cgi: Option<String>,
}

impl Url {
    /// Reads what a person typed: a URL with a known scheme (`dav` and `davs` mean `http` and `https`, `xroot`
    /// and `xroots` mean `root` and `roots`), or else a path, made absolute with `current_dir`.
    pub fn parse(text: &str, current_dir: &Path) -> Result<Url> {
        match text.split_once("://") {
            Some((scheme, _)) if is_scheme(scheme) => Url::parse_absolute(text),
            _ if text.is_empty() => Err(usage("an empty name is neither a URL nor a path")),
            _ => Url::from_path(&current_dir.join(text)),
        }
    }

    /// Reads a complete URL.
    pub fn parse_absolute(text: &str) -> Result<Url> {
        let (name, rest) = text.split_once("://").unwrap_or((text, ""));
        let (scheme, spelled) = match name.to_ascii_lowercase().as_str() {
            "http" | "dav" => (Scheme::Http, format!("http://{rest}")),
            "https" | "davs" => (Scheme::Https, format!("https://{rest}")),
            "file" => (Scheme::File, format!("file://{rest}")),
            "root" | "xroot" => return Url::parse_root(Scheme::Root, rest),
            "roots" | "xroots" => return Url::parse_root(Scheme::Roots, rest),
            other => {
                return Err(Error::new(ErrorKind::Unsupported, format!("unknown scheme {other:?}"))
                    .fault(Fault::Caller)
                    .hint("known schemes are http, https, dav, davs, root, roots, xroot, xroots and file"));
            }
        };
        let (spelled, zone) = cut_zone(&spelled);
        let mut inner = url::Url::parse(&spelled)
            .map_err(|cause| usage(format!("{:?} is not a URL: {cause}", redact(text))))?;
        inner.set_fragment(None);
        if scheme == Scheme::File && inner.to_file_path().is_err() {
            return Err(usage(format!("{:?} does not name a file of this machine", redact(text))));
        }
        Ok(Url { scheme, inner, zone, cgi: None })
    }

    /// The `file` URL of an absolute path.
    pub fn from_path(path: &Path) -> Result<Url> {
        // `Url::from_file_path` drops a final slash, which a person may mean.
        let slash = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        let made = if slash { url::Url::from_directory_path(path) } else { url::Url::from_file_path(path) };
        let inner = made.map_err(|()| usage(format!("{} is not an absolute path", path.display())))?;
        Ok(Url { scheme: Scheme::File, inner, zone: None, cgi: None })
    }

    /// The protocol by which bytes are reached.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The path on this machine, of a `file` URL.
    pub fn to_path(&self) -> Option<PathBuf> {
        let path = (self.scheme == Scheme::File).then(|| self.inner.to_file_path().ok()).flatten()?;
        // The crate takes `c:` at the end for a drive of Windows and puts a slash behind it.
        let bytes = path.as_os_str().as_bytes();
        match bytes.strip_suffix(b"/") {
            Some(file) if file.ends_with(b":") || file.ends_with(b"|") => {
                let is_directory = self.inner.path().ends_with('/');
                Some(if is_directory { path } else { PathBuf::from(OsStr::from_bytes(file)) })
            }
            _ => Some(path),
        }
    }

    /// Host name or address without brackets; empty for `file`.
    pub fn host(&self) -> &str {
        self.inner.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
    }

    /// Of a link-local address (`http://[fe80::1%25eth0]/`, RFC 6874), the network it is in: `eth0`. It means
    /// nothing to any other server, so that no header has it.
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// TCP port, given or the scheme's own; 0 for `file`.
    pub fn port(&self) -> u16 {
        let own = if self.scheme.is_root() { root::PORT } else { 0 };
        self.inner.port_or_known_default().unwrap_or(own)
    }

    /// `host:port` as HTTP's `Host` header has it: brackets around IPv6, no port that is the scheme's own.
    pub fn host_header(&self) -> String {
        let host = self.inner.host_str().unwrap_or_default();
        match self.inner.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }

    /// Path and query as HTTP's request line has them, percent-encoded.
    pub fn request_target(&self) -> &str {
        &self.inner[url::Position::BeforePath..url::Position::AfterQuery]
    }

    /// The percent-encoded path without the query.
    pub fn encoded_path(&self) -> &str {
        self.inner.path()
    }

    /// User and password in the URL, percent-decoded by neither.
    pub fn credentials(&self) -> Option<(&str, &str)> {
        let (user, password) = (self.inner.username(), self.inner.password());
        (!user.is_empty() || password.is_some()).then(|| (user, password.unwrap_or_default()))
    }

    /// The same URL without the user and password in it. Its query stays.
    #[must_use]
    pub fn without_credentials(mut self) -> Url {
        // These fail for URLs without a host only, which have neither.
        let _ = self.inner.set_username("");
        let _ = self.inner.set_password(None);
        self
    }

    /// The last part of the path, percent-encoded as it stands; `None` for a directory.
    pub fn file_name(&self) -> Option<&str> {
        self.inner.path_segments()?.next_back().filter(|name| !name.is_empty())
    }

    /// True if the path ends with a slash.
    pub fn is_directory_form(&self) -> bool {
        self.inner.path().ends_with('/')
    }

    /// Where its server is: what is kept for servers is found by it.
    pub fn endpoint(&self) -> Endpoint {
        let host = match &self.zone {
            Some(zone) => format!("{}%{zone}", self.host()),
            None => self.host().to_owned(),
        };
        Endpoint { scheme: self.scheme, host, port: self.port() }
    }

    /// True if two URLs have the same [`endpoint`](Url::endpoint).
    pub fn same_endpoint(&self, other: &Url) -> bool {
        self.scheme == other.scheme
            && self.host() == other.host()
            && self.zone == other.zone
            && self.port() == other.port()
    }

    /// The URL that `reference` (a `Location` header, a link in a listing) means seen from this one. A relative one is
    /// percent-encoded, whatever the scheme.
    pub fn join(&self, reference: &str) -> Result<Url> {
        let failed = |cause| usage(format!("{:?} is not a URL: {cause}", redact(reference)));
        let mut to = match root::is_typed(reference) {
            // As it is written: nothing in it is encoded.
            true => Url::parse_absolute(reference)?,
            false => {
                let joined = self.inner.join(reference).map_err(failed)?;
                match self.scheme.is_root() && joined.scheme() == self.inner.scheme() {
                    true => Url::of_encoded_root(self.scheme, &joined)?,
                    false => Url::parse_absolute(joined.as_str())?,
                }
            }
        };
        if to.host() == self.host() {
            to.zone.clone_from(&self.zone);
        }
        // Only servers that may see the user's secrets already see them again.
        if to.same_endpoint(self) {
            to.take_secrets_of(self)?;
        }
        Ok(to)
    }

    /// Takes over what opens `other`: its user and password, and the `authz=` of its query, unless this URL has its own.
    ///
    /// Only where the place that this URL names may see them.
    pub fn take_secrets_of(&mut self, other: &Url) -> Result<()> {
        if self.credentials().is_none() {
            // These fail for URLs without a host only, which have no endpoint to send a secret to.
            let _ = self.inner.set_username(other.inner.username());
            let _ = self.inner.set_password(other.inner.password());
        }
        let Some(pair) = other.authz().filter(|_| self.authz().is_none()) else { return Ok(()) };
        if self.scheme.is_root() {
            let cgi = self.cgi().map_or(pair.to_owned(), |cgi| format!("{cgi}&{pair}"));
            let authority = &self.inner[url::Position::BeforeUsername..url::Position::AfterPort];
            let mut with = Url::of_root(self.scheme, authority, &self.wire_path(), Some(&cgi))?;
            with.zone.clone_from(&self.zone);
            *self = with;
        } else {
            let query = self.inner.query().map_or(pair.to_owned(), |query| format!("{query}&{pair}"));
            self.inner.set_query(Some(&query));
        }
        Ok(())
    }

    /// True if there is something in it that opens what it names: a password, or a token (`?authz=`). The user of a
    /// `root` URL is no more than the name of a login.
    pub fn has_secrets(&self) -> bool {
        let is_secret = |(_, password): (&str, &str)| !self.scheme.is_root() || !password.is_empty();
        self.credentials().is_some_and(is_secret) || self.authz().is_some()
    }

    /// The token in the query, with its name in front, as it stands: `authz=…` (WLCG profile; XRootD's CGI).
    fn authz(&self) -> Option<&str> {
        let query = if self.scheme.is_root() { self.cgi() } else { self.inner.query() };
        let is_authz = |pair: &&str| {
            pair.split_once('=').is_some_and(|(name, value)| name == "authz" && !value.is_empty())
        };
        query?.split('&').find(is_authz)
    }

    /// The whole URL, secrets included, percent-encoded: never for messages. The zone of a link-local address
    /// is not in it, and the text of a `root` URL is another one: see [`Url::typed`].
    pub fn as_str(&self) -> &str {
        self.inner.as_str()
    }

    /// The whole URL, secrets included, as a person would type it: [`Url::parse_absolute`] reads it back as
    /// an equal one. Never for messages.
    ///
    /// Bytes of a `root` path that are not UTF-8 cannot be typed and are replaced.
    pub fn typed(&self) -> String {
        if !self.scheme.is_root() && self.zone.is_none() {
            return self.inner.as_str().to_owned();
        }
        let user = &self.inner[url::Position::BeforeUsername..url::Position::BeforeHost];
        let mut host = self.host_header();
        if let (Some(zone), Some(end)) = (&self.zone, host.find(']')) {
            host.insert_str(end, &format!("%25{zone}"));
        }
        let start = format!("{}://{user}{host}", self.scheme.name());
        if !self.scheme.is_root() {
            return format!("{start}{}", self.request_target());
        }
        let path = String::from_utf8_lossy(&self.wire_path()).into_owned();
        let cgi = self.cgi().map(|cgi| format!("?{cgi}")).unwrap_or_default();
        format!("{start}/{path}{cgi}")
    }
}

/// For messages: user information, and the query of a signed URL, are left out.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = self.to_path() {
            return write!(f, "{}", path.display());
        }
        let host = self.host_header();
        write!(f, "{}://{host}", self.scheme.name())?;
        match self.scheme.is_root() {
            true => root::show_path(f, &self.wire_path())?,
            false => f.write_str(self.inner.path())?,
        }
        if self.inner.query().is_some() {
            f.write_str("?…")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Everything but unreserved characters and the sub-delimiters that mean nothing in a path segment
/// (RFC 3986, 3.3). Quotes and `&` are encoded as well, so that the result can stand in HTML.
const SEGMENT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'&')
    .add(b'\'')
    .add(b'/')
    .add(b':')
    .add(b';')
    .add(b'<')
    .add(b'=')
    .add(b'>')
    .add(b'?')
    .add(b'@')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// One name, encoded for a URL.
pub fn encode_name(name: &[u8]) -> String {
    percent_encode(name, SEGMENT).to_string()
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

/// Takes the zone out of an address in brackets, which the URL standard has no place for.
fn cut_zone(text: &str) -> (String, Option<String>) {
    let authority = text.find("://").map_or(0, |at| at + 3);
    let end = text[authority..].find(['/', '?', '#']).map_or(text.len(), |at| authority + at);
    let found = text[authority..end].rfind('[').and_then(|at| {
        let open = authority + at;
        let close = open + text[open..end].find(']')?;
        let zone = open + text[open..close].find("%25")?;
        let name = &text[zone + 3..close];
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        (!name.is_empty() && name.bytes().all(is_plain)).then_some((zone, close))
    });
    match found {
        Some((zone, close)) => {
            (format!("{}{}", &text[..zone], &text[close..]), Some(text[zone + 3..close].to_owned()))
        }
        None => (text.to_owned(), None),
    }
}

/// Cuts what may be secret out of a text that could not be parsed as a URL.
fn redact(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        _ => text.to_owned(),
    }
}

fn usage(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Usage, message).fault(Fault::Caller)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Url {
        Url::parse(text, Path::new("/home/ada")).unwrap()
    }

    #[test]
    fn a_colon_at_the_end_is_no_drive_of_windows() {
        for path in ["/d/notes:", "/c:", "/d/a|", "/d/x:/", "/d/x:/y", "/d/1:"] {
            let url = Url::from_path(Path::new(path)).unwrap();
            assert_eq!(url.to_path().unwrap().as_os_str(), path, "{url}");
        }
    }

    #[test]
    fn what_people_type() {
        let url = parse("https://[::1]:1094/a%20b/c?x=1#part");
        assert_eq!((url.host(), url.port()), ("::1", 1094));
        assert_eq!(url.host_header(), "[::1]:1094");
        assert_eq!(url.request_target(), "/a%20b/c?x=1");
        assert_eq!(url.file_name(), Some("c"));
        assert_eq!(parse("davs://h/x").scheme(), Scheme::Https);
        assert_eq!(parse("http://h").request_target(), "/");
        assert_eq!(parse("a b/c:d").to_path().unwrap(), Path::new("/home/ada/a b/c:d"));
        assert_eq!(parse("file:///x%20y").to_path().unwrap(), Path::new("/x y"));
        assert!(parse("dir/").is_directory_form());
    }

    #[test]
    fn a_link_local_address_has_a_zone_that_stays_here() {
        let url = parse("http://ada:pw@[fe80::1%25eth0]:1094/a?b=[x%25y]");
        assert_eq!((url.host(), url.zone(), url.port()), ("fe80::1", Some("eth0"), 1094));
        assert_eq!(url.host_header(), "[fe80::1]:1094");
        assert_eq!(url.request_target(), "/a?b=[x%25y]");
        assert_eq!(url.join("/c").unwrap().zone(), Some("eth0"));
        assert_eq!(url.join("http://other/c").unwrap().zone(), None);
        let other = parse("http://[fe80::1%25eth1]:1094/a");
        assert!(!url.same_endpoint(&other) && url.endpoint() != other.endpoint());
        assert_eq!(url.endpoint().host, "fe80::1%eth0");
        for bad in ["http://[fe80::1%25]/", "http://[fe80::1%25a%20b]/", "http://[fe80::1%eth0]/"] {
            assert!(Url::parse(bad, Path::new("/")).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_user_can_be_left_out() {
        for (with, without) in [
            ("https://ada:secret@h:8443/a%20b?authz=x", "https://h:8443/a%20b?authz=x"),
            ("https://ada@h/", "https://h/"),
            ("http://h/a?b", "http://h/a?b"),
            ("root://ada@h//a b?x=y", "root://h//a b?x=y"),
            ("http://ada@[fe80::1%25eth0]/a", "http://[fe80::1%25eth0]/a"),
            ("/a/b", "/a/b"),
        ] {
            assert_eq!(parse(with).without_credentials(), parse(without), "{with}");
        }
    }

    #[test]
    fn messages_show_no_secret() {
        let url = parse("https://ada:secret@h.example:8443/f?authz=token");
        assert_eq!(url.to_string(), "https://h.example:8443/f?…");
        assert!(!format!("{url:?}").contains("secret"));
        let error = Url::parse("https://ada:secret@:::/", Path::new("/")).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn what_is_refused() {
        for bad in ["ftp://h/f", "http://", "", "https://h:99999/", "file://other/f"] {
            assert!(Url::parse(bad, Path::new("/")).is_err(), "{bad}");
        }
    }

    #[test]
    fn redirects_are_relative_to_the_request() {
        let url = parse("http://h:1/a/b");
        assert_eq!(url.join("../c").unwrap().as_str(), "http://h:1/c");
        assert_eq!(url.join("//k/d").unwrap().as_str(), "http://k/d");
        assert!(url.join("ftp://x/").is_err());
        let secret = parse("http://ada:pw@h:1/a");
        assert_eq!(secret.join("http://h:1/b").unwrap().credentials(), Some(("ada", "pw")));
        assert_eq!(secret.join("http://h:2/b").unwrap().credentials(), None);
        assert_eq!(secret.join("https://h:1/b").unwrap().credentials(), None);
    }

    #[test]
    fn a_token_in_a_url_reaches_what_is_below_it_and_no_other_host() {
        let url = parse("https://h/d/?a=1&authz=Bearer%20x.y");
        for (reference, expected) in [
            ("./e/", "https://h/d/e/?authz=Bearer%20x.y"),
            ("f?b=2", "https://h/d/f?b=2&authz=Bearer%20x.y"),
            ("f?authz=own", "https://h/d/f?authz=own"),
            ("https://h/g", "https://h/g?authz=Bearer%20x.y"),
            ("https://k/g", "https://k/g"),
            ("https://h:444/g", "https://h:444/g"),
            ("http://h/g", "http://h/g"),
        ] {
            assert_eq!(url.join(reference).unwrap().as_str(), expected, "{reference}");
        }
        let url = parse("root://h//d/?authz=Bearer%20x&k=v");
        assert_eq!(url.join("./e/").unwrap().typed(), "root://h//d/e/?authz=Bearer%20x");
        assert_eq!(url.join("root://h//f?z=1").unwrap().typed(), "root://h//f?z=1&authz=Bearer%20x");
        assert_eq!(url.join("roots://h//f").unwrap().typed(), "roots://h//f");
        assert!(url.has_secrets() && !parse("https://h/?authz=").has_secrets());
        assert!(parse("https://ada@h/").has_secrets() && !parse("roots://ada@h//f").has_secrets());
        assert!(parse("roots://ada@h//f?authz=x").has_secrets());
        let mut forwarded = parse("https://k/f");
        forwarded.take_secrets_of(&parse("https://ada:pw@h/?authz=t")).unwrap();
        assert_eq!(forwarded.as_str(), "https://ada:pw@k/f?authz=t");
        assert_eq!(forwarded.to_string(), "https://k/f?…");
    }
}
