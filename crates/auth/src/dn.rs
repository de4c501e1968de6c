//! Subjects of certificates as text: `/DC=org/DC=example/CN=Ada`.
//!
//! A certificate's own is written by [`Name`](crate::x509::Name) in one form. Operators write theirs by hand or copy them
//! from older software: [`normal`] makes that form of it, for everything that compares subjects: rules, grid-mapfiles,
//! and the files of `vomsdir`.

use std::fmt::Write as _;

use crate::x509::short_names;

/// A subject in the form in which a certificate's is printed, whatever way a file has it.
///
/// - Words for attributes are OpenSSL's, in its letters: `Email` and `E` are `emailAddress`, `USERID` is `UID`.
/// - A slash, or a plus sign, begins another attribute where such a word and `=` follow, and else belongs to the value,
///   where it has a backslash in front: `/CN=host/node.example.org` is `/CN=host\/node.example.org`.
/// - What is no printable ASCII is `\xHH`, and a backslash `\x5C`.
///
/// Values are as they are: in them case and spaces count.
pub fn normal(dn: &str) -> String {
    normal_bytes(dn.as_bytes(), false)
}

/// The same for bytes; `is_start` for what may go on behind its end.
pub(crate) fn normal_bytes(dn: &[u8], is_start: bool) -> String {
    let mut form = String::with_capacity(dn.len());
    let mut rest = dn;
    while let [byte, behind @ ..] = rest {
        rest = behind;
        match (*byte, behind) {
            (b'/' | b'+', _) => {
                let kind = kind(behind);
                let is_cut = is_start && is_cut_kind(behind);
                if kind.is_none() && !is_cut && !form.is_empty() {
                    form.push('\\');
                }
                form.push(char::from(*byte));
                if let Some((word, len)) = kind {
                    form.push_str(&word);
                    rest = &behind[len..];
                }
            }
            (b'\\', [escaped @ (b'/' | b'+'), behind @ ..]) => {
                form.push('\\');
                form.push(char::from(*escaped));
                rest = behind;
            }
            (b'\\', [b'x', high, low, behind @ ..]) if is_escape(*high, *low) => {
                push(&mut form, hex(*high, *low).unwrap_or_default());
                rest = behind;
            }
            (byte, _) => push(&mut form, byte),
        }
    }
    form
}

fn push(form: &mut String, byte: u8) {
    match is_plain(byte) {
        true => form.push(char::from(byte)),
        false => {
            let _ = write!(form, "\\x{byte:02X}");
        }
    }
}

fn is_plain(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte) && byte != b'\\'
}

/// OpenSSL escapes only what cannot be printed. Anything else that looks so is text.
fn is_escape(high: u8, low: u8) -> bool {
    hex(high, low).is_some_and(|byte| !is_plain(byte))
}

/// The byte of two hexadecimal digits.
pub(crate) fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// The kind of attribute that begins here, as OpenSSL writes it, and the length of what is written instead.
pub(crate) fn kind(text: &[u8]) -> Option<(String, usize)> {
    // The longest word has 27 letters; identifiers are longer, but not endless.
    let len = text.iter().take(KIND_BYTES_MAX).position(|byte| *byte == b'=')?;
    let word = std::str::from_utf8(&text[..len]).ok()?;
    let is = |known: &&str| word.eq_ignore_ascii_case(known);
    let known = match word {
        _ if is(&"Email") || is(&"E") => Some("emailAddress"),
        _ if is(&"USERID") => Some("UID"),
        _ => short_names().find(is),
    };
    let is_identifier = || {
        let mut numbers = word.split('.');
        word.contains('.') && numbers.all(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let word = known.or_else(|| is_identifier().then_some(word))?;
    Some((word.to_owned(), len))
}

/// True if this is the beginning of a word for a kind, and nothing more.
fn is_cut_kind(text: &[u8]) -> bool {
    short_names().any(|word| word.as_bytes().starts_with(text))
}

const KIND_BYTES_MAX: usize = 256;

/// A subject, or with a `*` at its end all that begin so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// In the [normal] form.
    start: String,
    is_whole: bool,
}

impl Pattern {
    /// Reads a subject as a file has it. `/DC=org/*` is every subject below `/DC=org`.
    pub fn new(text: &str) -> Pattern {
        match text.strip_suffix('*') {
            Some(start) => Pattern { start: normal_bytes(start.as_bytes(), true), is_whole: false },
            None => Pattern { start: normal(text), is_whole: true },
        }
    }

    /// True if it is about this subject, which is in the [normal] form.
    pub fn fits(&self, dn: &str) -> bool {
        if self.is_whole { dn == self.start } else { dn.starts_with(&self.start) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_form_for_all_ways_to_write() {
        for (written, form) in [
            ("/DC=org/DC=example/CN=Ada Lovelace", "/DC=org/DC=example/CN=Ada Lovelace"),
            ("/dc=org/cn=Ada", "/DC=org/CN=Ada"),
            ("/CN=Bob/Email=b@c.org", "/CN=Bob/emailAddress=b@c.org"),
            ("/CN=Bob/E=b@c.org", "/CN=Bob/emailAddress=b@c.org"),
            ("/USERID=7/1.2.3=x", "/UID=7/1.2.3=x"),
            ("/CN=host/n.example.org", "/CN=host\\/n.example.org"),
            ("/CN=host\\/n.example.org", "/CN=host\\/n.example.org"),
            ("/CN=a/wings=b", "/CN=a\\/wings=b"),
            ("/CN=a+UID=b+c", "/CN=a+UID=b\\+c"),
            // Escaped, it belongs to the value: that is not the holder of `/CN=Ada/CN=proxy`.
            ("/CN=Ada\\/CN=proxy", "/CN=Ada\\/CN=proxy"),
            ("/CN=Andr\u{e9}", "/CN=Andr\\xC3\\xA9"),
            ("/CN=Andr\\xc3\\xA9", "/CN=Andr\\xC3\\xA9"),
            ("/CN=a\\b", "/CN=a\\x5Cb"),
            ("/CN=a\\x5cb", "/CN=a\\x5Cb"),
            ("/CN=a\\x41", "/CN=a\\x5Cx41"),
            ("/CN=a\0", "/CN=a\\x00"),
            ("/nothing", "/nothing"),
            ("", ""),
        ] {
            assert_eq!(normal(written), form, "{written}");
            assert_eq!(normal(form), form, "{form}");
        }
    }

    #[test]
    fn patterns() {
        for (pattern, dn, fits) in [
            ("/DC=org/*", "/DC=org/CN=Ada", true),
            ("/DC=org/*", "/DC=organic/CN=Ada", false),
            ("/DC=org/*", "/DC=org\\/CN=Ada", false),
            ("/DC=org/C*", "/DC=org/CN=Ada", true),
            ("/dc=org/cn=Ad*", "/DC=org/CN=Ada", true),
            ("/DC=org/CN=host/node*", "/DC=org/CN=host\\/node1", true),
            ("/DC=org/Email=a@b", "/DC=org/emailAddress=a@b", true),
            ("/DC=org/CN=Ada", "/DC=org/CN=Ada/CN=Eve", false),
            ("/DC=org/CN=Ada/CN=Eve", "/DC=org/CN=Ada\\/CN=Eve", false),
            ("*", "/DC=org", true),
        ] {
            assert_eq!(Pattern::new(pattern).fits(dn), fits, "{pattern} {dn}");
        }
    }
}
