//! What is particular to `root` and `roots` URLs.
//!
//! `root://[user[:password]@]host[:port]//path?cgi`: the path is what follows the authority's first slash, so
//! an absolute one has two. XRootD knows no percent-encoding: every byte of the path and of the CGI stands for
//! itself, `%`, `#` and spaces too, when it is typed and when it is sent. Only `?` ends the path.

use std::fmt;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use super::{Scheme, Url, cut_zone, encode_name, redact, usage};
use crate::error::Result;

/// The port that IANA assigned to `rootd`.
pub(super) const PORT: u16 = 1094;

/// Characters that a query may have of a CGI unchanged; `%` is not among them, so that it comes back as it was.
const CGI: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>');

impl Url {
    /// Reads what is typed behind `root://`.
    pub(super) fn parse_root(scheme: Scheme, text: &str) -> Result<Url> {
        let end = text.find(['/', '?']).unwrap_or(text.len());
        let (authority, rest) = text.split_at(end);
        let (path, cgi) = match rest.split_once('?') {
            Some((path, cgi)) => (path, Some(cgi)),
            None => (rest, None),
        };
        Url::of_root(scheme, authority, path.strip_prefix('/').unwrap_or(path).as_bytes(), cgi)
    }

    /// The `root` or `roots` URL of a path as it is on the wire, at a server called `authority`
    /// (`[user[:password]@]host[:port]`). A relative path is taken for one that counts from the root.
    pub fn of_root(scheme: Scheme, authority: &str, wire_path: &[u8], cgi: Option<&str>) -> Result<Url> {
        let cgi = cgi.filter(|cgi| !cgi.is_empty());
        let name = scheme.name();
        if !scheme.is_root() {
            return Err(usage(format!("{name} is not a scheme of XRootD's protocol")));
        }
        if wire_path.contains(&0) || cgi.is_some_and(|cgi| cgi.contains('\0')) {
            return Err(usage("a NUL is in no path and no CGI of a root URL"));
        }
        let (start, zone) = cut_zone(&format!("{name}://{authority}/"));
        let failed = |cause: url::ParseError| {
            usage(format!("{:?} is not a URL: {cause}", redact(&format!("{name}://{authority}/"))))
        };
        // Each would end the authority for the crate, and not for others.
        if authority.contains(['/', '?', '#', '\\']) {
            return Err(failed(url::ParseError::InvalidDomainCharacter));
        }
        let mut text = start;
        let names = wire_path.strip_prefix(b"/").unwrap_or(wire_path).split(|byte| *byte == b'/');
        text.push_str(&names.map(encode_name).collect::<Vec<_>>().join("/"));
        if let Some(cgi) = cgi {
            text.push('?');
            text.extend(utf8_percent_encode(cgi, CGI));
        }
        let mut inner = url::Url::parse(&text).map_err(failed)?;
        // To the crate it is a scheme like any other, whose hosts are not looked at.
        let host = inner.host_str().filter(|host| !host.is_empty()).ok_or(url::ParseError::EmptyHost);
        let host = host.and_then(url::Host::parse).map_err(failed)?;
        inner.set_host(Some(&host.to_string())).map_err(failed)?;
        if inner.port() == Some(PORT) {
            // It fails for URLs without a host only.
            let _ = inner.set_port(None);
        }
        Ok(Url { scheme, inner, zone, cgi: cgi.map(str::to_owned) })
    }

    /// Result of the crate for a `root` URL and a relative reference.
    pub(super) fn of_encoded_root(scheme: Scheme, joined: &url::Url) -> Result<Url> {
        let authority = &joined[url::Position::BeforeUsername..url::Position::AfterPort];
        let mut path = Vec::with_capacity(joined.path().len());
        for name in joined.path().strip_prefix('/').unwrap_or_default().split('/') {
            let before = path.len() + 1;
            path.push(b'/');
            path.extend(percent_decode_str(name));
            // One name would become several, and could lead elsewhere.
            if path[before..].contains(&b'/') {
                return Err(usage("a name in a root URL has no slash"));
            }
        }
        let cgi = joined.query().map(|query| percent_decode_str(query).decode_utf8()).transpose();
        let cgi = cgi.map_err(|_| usage("a CGI that is not UTF-8 has no root URL"))?;
        Url::of_root(scheme, authority, &path, cgi.as_deref())
    }

    /// The path as XRootD's protocol has it: absolute, every byte as it is.
    pub fn wire_path(&self) -> Vec<u8> {
        percent_decode_str(self.inner.path()).collect()
    }

    /// The text behind the `?` of a `root` URL, as it was typed; `None` when there is nothing.
    pub fn cgi(&self) -> Option<&str> {
        self.cgi.as_deref()
    }
}

/// True if `text` is a complete `root` URL.
pub(super) fn is_typed(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        ["root", "roots", "xroot", "xroots"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
    })
}

/// The path for messages, with a slash in front as it is typed.
pub(super) fn show_path(f: &mut fmt::Formatter<'_>, wire_path: &[u8]) -> fmt::Result {
    f.write_str("/")?;
    for character in String::from_utf8_lossy(wire_path).chars() {
        match character.is_control() {
            true => write!(f, "{}", character.escape_default())?,
            false => write!(f, "{character}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Url {
        Url::parse_absolute(text).unwrap()
    }

    #[test]
    fn what_follows_the_first_slash_is_the_path() {
        for (typed, path, shown) in [
            ("root://h//a/b", "/a/b", "root://h//a/b"),
            ("root://h/a/b", "/a/b", "root://h//a/b"),
            ("xroot://h:1094//a/", "/a/", "root://h//a/"),
            ("roots://h", "/", "roots://h//"),
            ("xroots://h/", "/", "roots://h//"),
            ("ROOT://H.Example:10940//", "/", "root://h.example:10940//"),
            ("root://h///a", "//a", "root://h///a"),
            ("root://[::1]:1095//a%20b #c\\é?x=1", "/a%20b #c\\é", "root://[::1]:1095//a%20b #c\\é?…"),
            ("root://p//root://origin:1094//f", "/root://origin:1094//f", "root://p//root://origin:1094//f"),
            ("root://h//a\nb\u{9b}", "/a\nb\u{9b}", "root://h//a\\nb\\u{9b}"),
            ("root://h//a@b:c|", "/a@b:c|", "root://h//a@b:c|"),
            ("root://127.1//a", "/a", "root://127.0.0.1//a"),
        ] {
            let url = parse(typed);
            assert_eq!(url.wire_path(), path.as_bytes(), "{typed}");
            assert_eq!(url.to_string(), shown, "{typed}");
            assert_eq!(parse(&url.typed()), url, "{typed}");
            assert!(url.to_path().is_none());
        }
        assert_eq!(parse("root://h/a"), parse("xroot://H:1094//a"));
        assert_ne!(parse("root://h/a"), parse("roots://h/a"));
    }

    #[test]
    fn the_host_is_that_of_any_url() {
        let url = parse("root://ada:pw@[FE80::1%25eth0]:1094//a");
        assert_eq!((url.host(), url.zone(), url.port()), ("fe80::1", Some("eth0"), 1094));
        assert_eq!((url.host_header().as_str(), url.credentials()), ("[fe80::1]", Some(("ada", "pw"))));
        assert_eq!(url.join("./c").unwrap().zone(), Some("eth0"));
        assert_eq!(parse(&url.typed()), url);
        let http = parse("http://[fe80::1%25eth0]:8080/a%20b?c");
        assert_eq!(parse(&http.typed()), http);
        assert!(parse("root://h//a").same_endpoint(&parse("root://H:1094//b")));
        assert_eq!(parse("root://h//a").endpoint(), parse("root://H:1094//b").endpoint());
        assert!(!parse("root://h//a").same_endpoint(&parse("roots://h//a")));
        assert_eq!(parse("root://h:80//a").port(), 80);
        assert_eq!(parse("root://bücher.example//a").host(), "xn--bcher-kva.example");
    }

    #[test]
    fn the_cgi_is_as_it_was_typed() {
        let url = parse("root://h//a?authz=Bearer%20x&b= #?ü");
        assert_eq!(url.cgi(), Some("authz=Bearer%20x&b= #?ü"));
        assert_eq!(url.wire_path(), b"/a");
        assert!(url.request_target().is_ascii() && !url.to_string().contains("Bearer"));
        // What `join` is given is encoded, as `request_target` is.
        let query = &url.request_target()[url.encoded_path().len()..];
        assert_eq!(
            url.join(&format!("./b%25{query}")).unwrap().typed(),
            url.typed().replace("//a?", "//b%?")
        );
        assert_eq!(url.join("./x%20y").unwrap().cgi(), Some("authz=Bearer%20x"));
        assert_eq!(parse("root://h//a?"), parse("root://h//a"));
        assert_eq!(parse("root://h?x").cgi(), Some("x"));
    }

    #[test]
    fn references() {
        let url = parse("root://ada:pw@h:1095//d/a%b");
        assert_eq!(url.join("./x%20y").unwrap().typed(), "root://ada:pw@h:1095//d/x y");
        assert_eq!(url.join("/x").unwrap().wire_path(), b"/x");
        assert_eq!(url.join("root://h:1095//x%20y").unwrap().typed(), "root://ada:pw@h:1095//x%20y");
        assert_eq!(url.join("roots://h:1095//x").unwrap().credentials(), None);
        assert_eq!(url.join("https://h/x%20y").unwrap().as_str(), "https://h/x%20y");
        assert_eq!(parse("https://h/m").join("root://k//x%20y").unwrap().wire_path(), b"/x%20y");
        for bad in ["root:x", "root:/x", "///x", "x\0y", "x%00y", "?%FF", "..%2Fx"] {
            assert!(url.join(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_refused() {
        for bad in ["root://", "root:///a", "root://u:secret@/a", "root://h:99999//a", "root://h#secret/a"] {
            let error = Url::parse_absolute(bad).unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        for bad in ["root://u:secret@h\\x//a", "root://h h//a", "root://h//a\0", "root://h//a?\0", "root:a"] {
            let error = Url::parse_absolute(bad).unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        let url = parse("roots://ada:secret@h//f?authz=token");
        assert_eq!(format!("{url} {url:?}"), "roots://h//f?… roots://h//f?…");
    }

    fn is_name(name: &[u8]) -> bool {
        !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
    }

    proptest! {
        /// Every name that a file can have is found again on the wire, however the URL came about.
        #[test]
        fn names_survive_the_way_through_a_url(name in prop::collection::vec(1u8.., 1..40)) {
            prop_assume!(is_name(&name));
            let joined = parse("root://h//d/").join(&format!("./{}", encode_name(&name))).unwrap();
            prop_assert_eq!(joined.wire_path(), [b"/d/", &name[..]].concat());
            let encoded = encode_name(&name);
            prop_assert_eq!(joined.file_name(), Some(encoded.as_str()));
            prop_assert_eq!(Url::of_root(Scheme::Root, "h", &joined.wire_path(), None).unwrap(), joined.clone());
            let below = joined.join(&format!("./{}/x", joined.file_name().unwrap())).unwrap();
            prop_assert_eq!(below.wire_path(), [b"/d/", &name[..], b"/x"].concat());
        }

        /// Typed text is read back as the same, and its meaning is on the wire.
        #[test]
        fn typed_text_is_read_back(name in "[^/?\\x00]{1,20}", cgi in proptest::option::of("[^\\x00]{1,20}")) {
            prop_assume!(is_name(name.as_bytes()));
            let cgi_text = cgi.as_ref().map(|cgi| format!("?{cgi}")).unwrap_or_default();
            let url = parse(&format!("roots://ada@h//d/{name}{cgi_text}"));
            prop_assert_eq!(url.wire_path(), format!("/d/{name}").into_bytes());
            prop_assert_eq!(url.cgi(), cgi.as_deref());
            prop_assert_eq!(parse(&url.typed()), url.clone());
            prop_assert!(url.request_target().bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert!(!url.to_string().contains(char::is_control));
        }

        #[test]
        fn never_panics(text in "x?roots?://\\PC{0,40}", reference in "\\PC{0,30}") {
            if let Ok(url) = Url::parse_absolute(&text) {
                prop_assert_eq!(parse(&url.typed()), url.clone());
                prop_assert!(!url.host().is_empty());
                let _ = url.join(&reference);
            }
        }
    }
}
