//! What the `href` of a multi-status means, seen from the URL that was requested (RFC 4918, 8.3).

use crate::links::decode_name;

/// The resource that was requested, as its server calls it.
#[derive(Debug)]
pub(crate) struct Base {
    names: Vec<Vec<u8>>,
    directory_form: bool,
    /// True if any `href` was seen.
    confirmed: bool,
}

impl Base {
    /// The base of a request to this encoded path.
    pub(crate) fn new(encoded_path: &str) -> Base {
        // A path with names that no file has is no base: then the first entry decides.
        let names = decode(encoded_path).unwrap_or_default();
        Base { names, directory_form: encoded_path.ends_with('/'), confirmed: false }
    }

    /// The names from the base down to what `href` names; `None` for what is not below it and for names that
    /// must not become file names.
    ///
    /// Only the path counts: behind a proxy the server calls itself by another name than the client does.
    /// Behind one that rewrites paths it also names them otherwise; so the first entry, which by custom is
    /// the requested resource, becomes the base when it is not below the request's path.
    pub(crate) fn relative(&mut self, href: &str) -> Option<Vec<Vec<u8>>> {
        let first = !std::mem::replace(&mut self.confirmed, true);
        let path = href.split(['?', '#']).next().unwrap_or_default();
        let (path, complete) = match path.split_once("://") {
            Some((scheme, rest)) if scheme.bytes().all(is_scheme_byte) => {
                (rest.find('/').map_or("/", |at| &rest[at..]), true)
            }
            _ => (path, path.starts_with('/')),
        };
        let mut names = decode(path)?;
        if !complete {
            if path.is_empty() {
                return None;
            }
            // The base may be long, and there may be many of these: it is not copied for each.
            let own = if self.directory_form { None } else { self.names.last() };
            let is_below = own.is_none_or(|own| names.first() == Some(own));
            if is_below {
                return Some(names.split_off(usize::from(own.is_some())));
            }
            if first {
                self.names.pop();
                self.names.append(&mut names);
                return Some(Vec::new());
            }
            return None;
        }
        if names.starts_with(&self.names) {
            return Some(names.split_off(self.names.len()));
        }
        if first {
            self.names = names;
            return Some(Vec::new());
        }
        None
    }
}

/// The names in an encoded path, empty ones and `.` left out; `None` when one of the others is no name.
fn decode(encoded: &str) -> Option<Vec<Vec<u8>>> {
    encoded.split('/').filter(|segment| !matches!(*segment, "" | ".")).map(decode_name).collect()
}

fn is_scheme_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_core::name::is_entry;
    use proptest::prelude::*;

    fn relative(base: &str, hrefs: &[&str]) -> Vec<Option<String>> {
        let mut base = Base::new(base);
        let shown = |names: Vec<Vec<u8>>| String::from_utf8_lossy(&names.join(&b'/')).into_owned();
        hrefs.iter().map(|href| base.relative(href).map(shown)).collect()
    }

    #[test]
    fn what_servers_call_their_files() {
        for (base, href, expected) in [
            ("/d/", "/d/", Some("")),
            ("/d/", "/d", Some("")),
            ("/d", "/d/", Some("")),
            ("/d/", "/d/a%20b", Some("a b")),
            ("/d/", "/d/a b", Some("a b")),
            ("/d/", "/d/100%", Some("100%")),
            ("/d/", "http://other:1094/d/x/", Some("x")),
            ("/d/", "https://h/d/x?authz=y#z", Some("x")),
            ("/d/", "//d//x", Some("x")),
            ("/d/", "/d/./x", Some("x")),
            ("/d/", "/d/x/y", Some("x/y")),
            ("/%7Ed/", "/~d/x", Some("x")),
            ("/~d/", "/%7ed/x", Some("x")),
            ("/", "/", Some("")),
            ("/", "http://h", Some("")),
            ("/", "/x", Some("x")),
            ("/d/", "x", Some("x")),
            ("/d/", "./x/", Some("x")),
            ("/d", "d", Some("")),
            ("/d/", "", None),
            ("/d/", "/d/..", None),
            ("/d/", "/d/%2e%2e/x", None),
            ("/d/", "/d/a%2fb", None),
            ("/d/", "/d/a%00", None),
            ("/d/", "../x", None),
        ] {
            assert_eq!(relative(base, &[href])[0].as_deref(), expected, "{base} {href}");
        }
    }

    #[test]
    fn the_first_entry_decides_behind_a_proxy() {
        let seen = relative("/dav/d/", &["/export/d/", "/export/d/x", "/dav/d/x", "/export/dd"]);
        let expected: [Option<String>; 4] = [Some(String::new()), Some("x".into()), None, None];
        assert_eq!(seen, expected);
        let seen = relative("/d/", &["/d/", "/e/x", "/dx"]);
        assert_eq!(seen, [Some(String::new()), None, None]);
    }

    proptest! {
        #[test]
        fn only_names(base in "(/|\\PC){0,20}", href in "(/|[.%2eF0:]|\\PC){0,40}") {
            let mut base = Base::new(&base);
            for _ in 0..2 {
                if let Some(names) = base.relative(&href) {
                    prop_assert!(names.iter().all(|name| is_entry(name)));
                }
            }
        }
    }
}
