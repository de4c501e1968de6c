//! Grid-mapfiles: which user of this site the holder of a certificate is.
//!
//! ```text
//! # a remark
//! "/DC=org/DC=example/CN=Ada Lovelace" ada,atlas001
//! /DC=org/DC=example/CN=robot production
//! ```
//!
//! Written as Globus reads them: a name in quotation marks when it has blanks in it, `\"` and `\\` for these characters,
//! `\xNN` for any byte; then users with commas between them, of which the first counts; what follows does not.

use std::collections::HashMap;

use crate::dn::{self, hex};

/// Users by the subjects of their certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GridMap {
    /// The key is in the [normal](dn::normal) form.
    users: HashMap<String, String>,
}

impl GridMap {
    /// Reads a file, and says which lines of it do not count, and why. The first line for a name counts.
    pub fn read(text: &[u8]) -> (GridMap, Vec<String>) {
        let mut map = GridMap::default();
        let mut warnings = Vec::new();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            match read_line(line) {
                Ok((name, user)) => {
                    let known = map.users.entry(name).or_insert_with(|| user.clone());
                    if *known != user {
                        warnings.push(format!("line {number}: the name is {known} already, not {user}"));
                    }
                }
                Err(trouble) => warnings.push(format!("line {number}: {trouble}")),
            }
        }
        (map, warnings)
    }

    /// The user whose certificate has this subject, in the form `/DC=org/CN=Ada`.
    pub fn user(&self, dn: &str) -> Option<&str> {
        self.users.get(&dn::normal(dn)).map(String::as_str)
    }

    /// Names, as OpenSSL prints them, and users, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.users.iter().map(|(name, user)| (name.as_str(), user.as_str()))
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// True if no subject is in it.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }
}

fn read_line(line: &[u8]) -> Result<(String, String), &'static str> {
    let (name, rest) = match line {
        [b'"', quoted @ ..] => read_until(quoted, |byte| byte == b'"')?,
        _ => read_until(line, |byte| byte.is_ascii_whitespace())?,
    };
    if !name.starts_with(b"/") {
        return Err("the name does not begin with a slash");
    }
    let users = rest.trim_ascii().split(u8::is_ascii_whitespace).next().unwrap_or_default();
    let first = users.split(|byte| *byte == b',').next().unwrap_or_default();
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.@+$".contains(byte);
    // A dot in front means a pool of accounts for lcmaps: no user.
    match std::str::from_utf8(first) {
        Ok(user) if !user.is_empty() && !user.starts_with(['.', '-']) && first.iter().all(is_name) => {
            Ok((dn::normal_bytes(&name, false), user.to_owned()))
        }
        Ok("") => Err("no user follows the name"),
        _ => Err("what follows the name is no user"),
    }
}

/// A name without its escapes, and what is behind its end. What the [normal](dn::normal) form has escapes for keeps its own.
fn read_until(line: &[u8], is_end: impl Fn(u8) -> bool) -> Result<(Vec<u8>, &[u8]), &'static str> {
    let mut name = Vec::with_capacity(line.len());
    let mut rest = line;
    loop {
        match rest {
            [] => return Err("the line ends within the name"),
            [b'\\', b'\\', behind @ ..] | [b'\\', b'x', b'5', b'c' | b'C', behind @ ..] => {
                name.extend(b"\\x5C");
                rest = behind;
            }
            [b'\\', b'x', high, low, behind @ ..] if hex(*high, *low).is_some() => {
                name.extend(hex(*high, *low));
                rest = behind;
            }
            [b'\\', b'/' | b'+', behind @ ..] => {
                name.extend(&rest[..2]);
                rest = behind;
            }
            [b'\\', byte, behind @ ..] => {
                name.push(*byte);
                rest = behind;
            }
            [byte, behind @ ..] if is_end(*byte) => return Ok((name, behind)),
            [byte, behind @ ..] => {
                name.push(*byte);
                rest = behind;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read() {
        let text = br#"
# a remark
"/DC=org/CN=Ada Lovelace" ada,atlas001
   /DC=org/CN=robot	production more of it
"/DC=org/CN=\"Quoted\" back\\slash" quoted
"/DC=org/CN=Andr\xC3\xA9" andre
"/DC=org/CN=host\x2Fwn1" wn
"/DC=org/CN=Bob/emailAddress=bob@example.org" bob
"/DC=org/USERID=328/CN=Cy" cy
"#;
        let (map, warnings) = GridMap::read(text);
        assert!(warnings.is_empty(), "{warnings:?}");
        for (dn, user) in [
            ("/DC=org/CN=Ada Lovelace", Some("ada")),
            ("/DC=org/CN=robot", Some("production")),
            ("/DC=org/CN=\"Quoted\" back\\slash", Some("quoted")),
            // As OpenSSL prints it, and as it is.
            ("/DC=org/CN=Andr\\xC3\\xA9", Some("andre")),
            ("/DC=org/CN=Andr\\xc3\\xa9", Some("andre")),
            ("/DC=org/CN=André", Some("andre")),
            ("/DC=org/CN=host/wn1", Some("wn")),
            // As OpenSSL 3 prints that slash.
            ("/DC=org/CN=host\\/wn1", Some("wn")),
            ("/DC=org/CN=host\\x2Fwn1", None),
            ("/DC=org/CN=Bob/Email=bob@example.org", Some("bob")),
            ("/DC=org/CN=Bob/E=bob@example.org", Some("bob")),
            ("/DC=org/CN=Bob/EMAILADDRESS=bob@example.org", Some("bob")),
            ("/DC=org/CN=Bob/Email=Bob@example.org", None),
            ("/DC=org/UID=328/CN=Cy", Some("cy")),
            ("/DC=org/userId=328/CN=Cy", Some("cy")),
            ("/DC=org/CN=ada lovelace", None),
            ("/DC=org/CN=Ada Lovelace/CN=proxy", None),
            ("/DC=org", None),
            ("", None),
        ] {
            assert_eq!(map.user(dn), user, "{dn}");
        }
        assert_eq!(map.len(), 7);
        // For rules, which know names as OpenSSL prints them.
        for name in [
            "/DC=org/CN=Andr\\xC3\\xA9",
            "/DC=org/CN=Bob/emailAddress=bob@example.org",
            "/DC=org/UID=328/CN=Cy",
        ] {
            assert!(map.iter().any(|(dn, _)| dn == name), "{name}: {map:?}");
        }
    }

    #[test]
    fn lines_that_do_not_count_are_named() {
        let text = b"\"/CN=open ada\n\"/CN=nobody\"\n/CN=alone\nada /CN=ada\n\"/CN=pool\" .atlas\n\"/CN=a\" a b\n\"/CN=a\" c\n\"/CN=a\" a\n\"/CN=odd\" a:b\n";
        let (map, warnings) = GridMap::read(text);
        let lines: Vec<&str> = warnings.iter().filter_map(|it| it.split(':').next()).collect();
        assert_eq!(
            lines,
            ["line 1", "line 2", "line 3", "line 4", "line 5", "line 7", "line 9"],
            "{warnings:?}"
        );
        // The first line for a name counts.
        assert_eq!((map.len(), map.user("/CN=a")), (1, Some("a")));
    }

    #[test]
    fn garbage_is_no_trouble() {
        for text in
            [&b"\\"[..], b"\"\\", b"\"\\x", b"\"/\\x4\" a", b"\xff\xfe", b"\"/CN=\xff\" a\0b", b"\"\" a"]
        {
            let (map, warnings) = GridMap::read(text);
            assert!(map.len() + warnings.len() == 1, "{text:?}");
        }
    }
}
