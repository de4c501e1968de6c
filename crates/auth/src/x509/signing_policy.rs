//! What an authority may make certificates for, as its file `HASH.signing_policy` says.
//!
//! The language is that of Globus (EACL), as much of it as trust directories use:
//!
//! ```text
//! access_id_CA   X509    '/C=DE/O=GermanGrid/CN=GridKa-CA'
//! pos_rights     globus  CA:sign
//! cond_subjects  globus  '"/C=DE/O=GermanGrid/*" "/O=GermanGrid/*"'
//! ```

use super::certificate::shortened;
use super::name::Name;
use crate::dn;

/// The entries of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SigningPolicy {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    authority: String,
    may_sign: bool,
    /// Patterns of subjects with `*` for anything and `?` for one character.
    subjects: Vec<String>,
}

impl SigningPolicy {
    /// Reads such a file.
    ///
    /// # Errors
    /// In words, with the number of the line.
    pub(super) fn parse(text: &str) -> Result<SigningPolicy, String> {
        let mut policy = SigningPolicy::default();
        for (index, line) in text.lines().enumerate() {
            let at = |what: &str| format!("line {}: {what}", index + 1);
            let words = words(line).ok_or_else(|| at("a quotation does not end"))?;
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let entry = policy.entries.last_mut();
            match words.as_slice() {
                [] => {}
                ["access_id_CA", _, authority] => {
                    policy.entries.push(Entry { authority: normal(authority), ..Entry::default() });
                }
                // Other rights are not our business.
                [first, ..] if first.starts_with("access_id_") => policy.entries.push(Entry::default()),
                ["pos_rights", _, rights @ ..] => {
                    let entry = entry.ok_or_else(|| at("rights without an access_id"))?;
                    entry.may_sign |= rights.contains(&"CA:sign");
                }
                ["neg_rights", _, rights @ ..] if rights.contains(&"CA:sign") => {
                    return Err(at("neg_rights for CA:sign are not known"));
                }
                ["cond_subjects", _, patterns @ ..] if !patterns.is_empty() => {
                    let entry = entry.ok_or_else(|| at("subjects without an access_id"))?;
                    for patterns in patterns {
                        let patterns = self::words(patterns).ok_or_else(|| at("a quotation does not end"))?;
                        entry.subjects.extend(patterns.iter().map(|pattern| normal(pattern)));
                    }
                }
                ["access_id_CA" | "pos_rights" | "cond_subjects", ..] => {
                    return Err(at("something is missing"));
                }
                [first, ..] if first.starts_with("cond_") || first.ends_with("_rights") => {}
                [first, ..] => return Err(at(&format!("{:?} is not known", shortened(first)))),
            }
        }
        Ok(policy)
    }

    /// True if the file speaks of this authority at all.
    pub(super) fn knows(&self, authority: &Name) -> bool {
        let authority = normal(&authority.to_string());
        self.entries.iter().any(|entry| entry.authority == authority)
    }

    /// True if the authority may make a certificate for this subject.
    pub(super) fn allows(&self, authority: &Name, subject: &Name) -> bool {
        let (authority, subject) = (normal(&authority.to_string()), normal(&subject.to_string()));
        let entries = self.entries.iter().filter(|entry| entry.may_sign && entry.authority == authority);
        entries
            .flat_map(|entry| &entry.subjects)
            .any(|pattern| matches(pattern.as_bytes(), subject.as_bytes()))
    }
}

/// Words between spaces, or between quotes of either kind; from `#` on it is a remark.
fn words(line: &str) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, behind) = match first {
            '#' => break,
            '\'' | '"' => rest[1..].split_once(first)?,
            _ => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
        };
        found.push(word.to_owned());
        rest = behind.trim_start();
    }
    Some(found)
}

/// A name as it is compared: in small letters, as names of certificates mean the same in either; without the
/// backslashes that OpenSSL 3 puts in front of slashes within a value, unless what follows looks like another attribute;
/// and with its words for what older software wrote otherwise.
fn normal(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    let mut parts = name.split('\\');
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let is_within_value = part.starts_with(['/', '+']) && dn::kind(&part.as_bytes()[1..]).is_none();
        if !is_within_value {
            plain.push('\\');
        }
        plain.push_str(part);
    }
    let name = plain.to_ascii_lowercase();
    name.replace("/email=", "/emailaddress=").replace("/e=", "/emailaddress=").replace("/userid=", "/uid=")
}

/// True if a text has the form of a pattern. Takes time in proportion to both lengths multiplied, at most.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut text_at) = (0, 0);
    // Where to go on if what follows the last star does not fit.
    let mut star: Option<(usize, usize)> = None;
    while text_at < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, text_at));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[text_at] => {
                at += 1;
                text_at += 1;
            }
            _ => match star {
                Some((star_at, from)) => {
                    star = Some((star_at, from + 1));
                    at = star_at + 1;
                    text_at = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("/c=de/*", "/c=de/cn=a", true),
            ("/c=de/*", "/c=de/", true),
            ("/c=de/*", "/c=dex/cn=a", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*b*c", "abbbxbc", true),
            ("*b*c", "abbbxb", false),
            ("/c=de/cn=a", "/c=de/cn=a", true),
            ("/c=de/cn=a", "/c=de/cn=a/cn=b", false),
            ("a**", "a", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        let many = "*a".repeat(200);
        assert!(!matches(many.as_bytes(), "a".repeat(199).as_bytes()));
    }

    #[test]
    fn what_is_written_in_files() {
        let policy = SigningPolicy::parse(
            "# A remark\n\
             access_id_CA\tX509 '/C=DE/O=GermanGrid/CN=GridKa-CA'  # another\n\
             pos_rights   globus   CA:sign\n\
             cond_subjects globus  '\"/C=DE/O=GermanGrid/*\" \"/O=GermanGrid/*\"'\n\
             \n\
             access_id_CA X509 \"/CN=Plain\"\n\
             pos_rights globus CA:sign\n\
             cond_subjects globus '/DC=org/?N=*'\n\
             access_id_CA X509 /CN=Nothing\r\n\
             pos_rights globus CA:look\r\n\
             cond_subjects globus '*'\r\n",
        )
        .unwrap();
        let subjects = |index: usize| policy.entries[index].subjects.join(" | ");
        assert_eq!(subjects(0), "/c=de/o=germangrid/* | /o=germangrid/*");
        assert_eq!(subjects(1), "/dc=org/?n=*");
        let authorities: Vec<_> =
            policy.entries.iter().map(|entry| (&entry.authority[..], entry.may_sign)).collect();
        assert_eq!(
            authorities,
            [("/c=de/o=germangrid/cn=gridka-ca", true), ("/cn=plain", true), ("/cn=nothing", false)]
        );
        for bad in [
            "pos_rights globus CA:sign",
            "access_id_CA X509 '/CN=a",
            "something else",
            "cond_subjects globus '*'",
        ] {
            assert!(SigningPolicy::parse(bad).is_err(), "{bad}");
        }
    }
}
