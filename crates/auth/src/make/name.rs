//! Distinguished names: of subjects and issuers of certificates.

use std::fmt;
use std::str::FromStr;

use gridlane_core::{Error, Result};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use yasna::DERWriter;

use super::der::{oid, unusable};
use crate::x509;

/// The string type of a name's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Text {
    /// `UTF8String`, which RFC 5280 asks for.
    #[default]
    Utf8,
    /// `PrintableString`, which older authorities use; a few signs only.
    Printable,
}

/// A distinguished name. Its parts are kept as they were written, byte for byte: names are compared like that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name {
    /// The `RelativeDistinguishedName`s in DER.
    parts: Vec<Vec<u8>>,
}

impl Name {
    /// Reads the form that OpenSSL prints on one line, `/DC=org/DC=example/CN=Ada`. What follows a slash without a type
    /// of its own belongs to the value before (`/CN=host/node.example.org`), as does one with a backslash.
    pub fn parse(text: &str, how: Text) -> Result<Name> {
        let refused = |what: &str| {
            unusable(format!("{text:?} is no name of a certificate: {what}"))
                .hint("write it as /DC=org/CN=Ada")
        };
        let mut pairs: Vec<(&str, String)> = Vec::new();
        for part in
            text.strip_prefix('/').ok_or_else(|| refused("it does not begin with a slash"))?.split('/')
        {
            let is_escaped = pairs.last().is_some_and(|(_, before)| before.ends_with('\\'));
            match (part.split_once('='), pairs.last_mut()) {
                (Some((word, value)), _) if !is_escaped && kind_of(word).is_some() => {
                    pairs.push((word, value.to_owned()));
                }
                (_, Some((_, before))) => {
                    before.push('/');
                    before.push_str(part);
                }
                _ => return Err(refused("it does not begin with a type such as CN=")),
            }
        }
        let mut name = Name::default();
        for (word, value) in pairs {
            name = name.with(word, &value.replace("\\/", "/").replace("\\+", "+"), how)?;
        }
        Ok(name)
    }

    /// The name in a certificate: a `SEQUENCE` of its parts.
    pub fn from_der(der: &[u8]) -> Result<Name> {
        let parts = yasna::parse_der(der, |reader| {
            let mut parts = Vec::new();
            reader.read_sequence_of(|reader| {
                parts.push(reader.read_der()?);
                Ok(())
            })?;
            Ok(parts)
        });
        parts.map(|parts| Name { parts }).map_err(|_| unusable("there is no name where one should be"))
    }

    /// The same with one more part: `word` is its type (`CN`, `DC`, …).
    pub fn with(mut self, word: &str, value: &str, how: Text) -> Result<Name> {
        let kind = kind_of(word).ok_or_else(|| unusable(format!("names have no part {word:?}")))?;
        let refused = |signs: &str| unusable(format!("{word}={value} has other signs than {signs}"));
        if value.is_empty() {
            return Err(unusable(format!("{word}= is empty")));
        }
        let how = match (kind.text, how) {
            (Own::Ia5, _) if value.is_ascii() => Own::Ia5,
            (Own::Ia5, _) => return Err(refused("ASCII")),
            (Own::Printable, _) | (_, Text::Printable) if is_printable(value) => Own::Printable,
            (Own::Printable, _) | (_, Text::Printable) => {
                return Err(refused("letters, digits, space and '()+,-./:=?"));
            }
            (Own::Any, Text::Utf8) => Own::Any,
        };
        self.parts.push(yasna::construct_der(|to| {
            to.write_set(|to| {
                to.next().write_sequence(|to| {
                    to.next().write_oid(&oid(kind.oid));
                    match how {
                        Own::Ia5 => to.next().write_ia5_string(value),
                        Own::Printable => to.next().write_printable_string(value),
                        Own::Any => to.next().write_utf8_string(value),
                    }
                });
            });
        }));
        Ok(self)
    }

    /// The name above it: the same without its last part.
    pub fn above(mut self) -> Name {
        self.parts.pop();
        self
    }

    /// Its last part, if that is a common name in UTF-8.
    pub fn common_name(&self) -> Option<String> {
        String::from_utf8(self.read()?.last_common_name()?.to_vec()).ok()
    }

    /// Its DER in a certificate.
    pub fn to_der(&self) -> Vec<u8> {
        yasna::construct_der(|to| self.write(to))
    }

    pub(super) fn write(&self, to: DERWriter<'_>) {
        to.write_sequence(|to| {
            for part in &self.parts {
                to.next().write_der(part);
            }
        });
    }

    /// The eight digits by which OpenSSL finds an authority in a directory (`openssl x509 -hash`): of the SHA-1 of the
    /// parts, in which case and repeated spaces do not count, the first four bytes as a number, least significant first.
    pub fn hash(&self) -> Result<String> {
        let name = self.read().ok_or_else(|| unusable("there is no name where one should be"))?;
        let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, &name.canonical());
        let [a, b, c, d, ..] = digest.as_ref() else { return Err(unusable("the name has no digest")) };
        Ok(format!("{:08x}", u32::from_le_bytes([*a, *b, *c, *d])))
    }

    /// The form in which certificates are judged.
    fn read(&self) -> Option<x509::Name> {
        x509::Name::from_der(&self.to_der())
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Name> {
        Name::parse(text, Text::Utf8)
    }
}

impl fmt::Display for Name {
    /// The text that OpenSSL prints on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.read() {
            Some(name) => name.fmt(f),
            None => f.write_str("/?"),
        }
    }
}

/// A type of a part: how it is written, and what it is made of.
struct Kind {
    words: &'static [&'static str],
    oid: &'static [u64],
    text: Own,
}

/// Requirements of a type for its values.
#[derive(Clone, Copy)]
enum Own {
    Any,
    Ia5,
    Printable,
}

const KINDS: &[Kind] = &[
    Kind { words: &["CN"], oid: &[2, 5, 4, 3], text: Own::Any },
    Kind { words: &["DC"], oid: &[0, 9, 2342, 19200300, 100, 1, 25], text: Own::Ia5 },
    Kind { words: &["O"], oid: &[2, 5, 4, 10], text: Own::Any },
    Kind { words: &["OU"], oid: &[2, 5, 4, 11], text: Own::Any },
    Kind { words: &["C"], oid: &[2, 5, 4, 6], text: Own::Printable },
    Kind { words: &["ST"], oid: &[2, 5, 4, 8], text: Own::Any },
    Kind { words: &["L"], oid: &[2, 5, 4, 7], text: Own::Any },
    Kind { words: &["SN"], oid: &[2, 5, 4, 4], text: Own::Any },
    Kind { words: &["GN"], oid: &[2, 5, 4, 42], text: Own::Any },
    Kind { words: &["UID", "USERID"], oid: &[0, 9, 2342, 19200300, 100, 1, 1], text: Own::Any },
    Kind { words: &["serialNumber"], oid: &[2, 5, 4, 5], text: Own::Printable },
    Kind { words: &["street"], oid: &[2, 5, 4, 9], text: Own::Any },
    Kind { words: &["title"], oid: &[2, 5, 4, 12], text: Own::Any },
    Kind { words: &["emailAddress", "Email", "E"], oid: &[1, 2, 840, 113549, 1, 9, 1], text: Own::Ia5 },
];

fn kind_of(word: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.words.iter().any(|known| known.eq_ignore_ascii_case(word)))
}

fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&byte))
}
