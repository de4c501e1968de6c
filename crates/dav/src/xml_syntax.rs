//! The grammar of XML below whole tokens: names, attributes, references, characters (XML 1.0, 2.2 to 2.6
//! and 4.1; Namespaces in XML 1.0, 3 and 4), and writing text so that it is read back as it was.

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;

use gridlane_core::limits;

use crate::xml::{Flaw, Problem};

/// The namespace of the prefix `xml`, always.
pub(crate) const XML_NAMESPACE: &str = "http://www.w3.org/XML/1998/namespace";
/// The namespace of the prefix `xmlns`, always.
pub(crate) const XMLNS_NAMESPACE: &str = "http://www.w3.org/2000/xmlns/";

/// An attribute of a tag.
#[derive(Debug)]
pub(crate) struct Attribute<'a> {
    /// The name as written, with its prefix.
    pub(crate) name: &'a str,
    pub(crate) value: Cow<'a, str>,
}

/// The bytes as text.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, Flaw> {
    std::str::from_utf8(bytes).map_err(|_| (Problem::Encoding, "it is not in UTF-8"))
}

/// Text between two tags, references resolved.
pub(crate) fn content(raw: &str) -> Result<Cow<'_, str>, Flaw> {
    if raw.contains("]]>") {
        return malformed("it has ']]>' in a text");
    }
    unescape(raw, false)
}

/// The text of a CDATA section: only line ends are touched.
pub(crate) fn literal(raw: &str) -> Result<Cow<'_, str>, Flaw> {
    check_characters(raw)?;
    if raw.contains('\r') {
        return Ok(Cow::Owned(raw.replace("\r\n", "\n").replace('\r', "\n")));
    }
    Ok(Cow::Borrowed(raw))
}

pub(crate) fn check_comment(inside: &str) -> Result<(), Flaw> {
    if inside.contains("--") || inside.ends_with('-') {
        return malformed("it has '--' in a comment");
    }
    check_characters(inside)
}

/// Checks what is between `<?` and `?>`. The declaration may stand `first` only, and its encoding must be
/// one that is read.
pub(crate) fn check_instruction(inside: &str, first: bool) -> Result<(), Flaw> {
    check_characters(inside)?;
    let target = inside.split(is_space_char).next().unwrap_or_default();
    if !is_name(target) || target.contains(':') {
        return malformed("it has a processing instruction without a name");
    }
    if !target.eq_ignore_ascii_case("xml") {
        return Ok(());
    }
    if target != "xml" || !first {
        return malformed("its declaration is not where it begins");
    }
    let mut fields = parse_attributes(&inside[target.len()..])?.into_iter();
    match fields.next() {
        Some(Attribute { name: "version", value }) if value.starts_with("1.") => {}
        _ => return malformed("its declaration names no version 1"),
    }
    for field in fields {
        match (field.name, field.value.to_ascii_lowercase().as_str()) {
            ("encoding", "utf-8" | "utf8" | "us-ascii" | "ascii") | ("standalone", "yes" | "no") => {}
            ("encoding", _) => {
                return Err((Problem::Encoding, "it says that it is in an encoding other than UTF-8"));
            }
            _ => return malformed("its declaration is not what one looks like"),
        }
    }
    Ok(())
}

/// The content of a start tag between its brackets: the name as written, and the attributes.
pub(crate) fn parse_tag(inside: &str) -> Result<(&str, Vec<Attribute<'_>>), Flaw> {
    let name = inside.split(is_space_char).next().unwrap_or_default();
    check_name(name)?;
    Ok((name, parse_attributes(&inside[name.len()..])?))
}

fn parse_attributes(text: &str) -> Result<Vec<Attribute<'_>>, Flaw> {
    let mut attributes: Vec<Attribute<'_>> = Vec::new();
    let mut rest = text;
    while let Some((attribute, behind)) = parse_attribute(rest)? {
        if attributes.iter().any(|other| other.name == attribute.name) {
            return malformed("it has an attribute twice");
        }
        if attributes.len() >= limits::XML_ATTRIBUTES_MAX {
            return Err((Problem::TooLarge, "it has an element with too many attributes"));
        }
        attributes.push(attribute);
        rest = behind;
    }
    Ok(attributes)
}

/// The first attribute, with the space in front of it, and what is behind it; `None` when there is none.
pub(crate) fn parse_attribute(text: &str) -> Result<Option<(Attribute<'_>, &str)>, Flaw> {
    let rest = text.trim_start_matches(is_space_char);
    if rest.is_empty() {
        return Ok(None);
    }
    if rest.len() == text.len() {
        return malformed("it has an attribute without space in front");
    }
    let Some((name, behind)) = rest.split_once('=') else {
        return malformed("it has an attribute without a value");
    };
    let name = name.trim_end_matches(is_space_char);
    check_name(name)?;
    let behind = behind.trim_start_matches(is_space_char);
    let quoted = behind.strip_prefix('"').map(|value| value.split_once('"'));
    let quoted = quoted.or_else(|| behind.strip_prefix('\'').map(|value| value.split_once('\'')));
    let Some(Some((value, behind))) = quoted else {
        return malformed("it has an attribute whose value is not in quotes");
    };
    if value.contains('<') {
        return malformed("it has '<' in an attribute");
    }
    Ok(Some((Attribute { name, value: unescape(value, true)? }, behind)))
}

/// The prefix, if there is one, and the rest.
pub(crate) fn split_name(name: &str) -> (Option<&str>, &str) {
    match name.split_once(':') {
        Some((prefix, local)) => (Some(prefix), local),
        None => (None, name),
    }
}

/// A name with at most one colon, and not at an end.
fn check_name(name: &str) -> Result<(), Flaw> {
    if name.len() > limits::XML_NAME_BYTES_MAX {
        return Err((Problem::TooLarge, "it has a name that is too long"));
    }
    let (prefix, local) = split_name(name);
    let well_formed = prefix.is_none_or(is_name) && is_name(local) && !local.contains(':');
    if well_formed { Ok(()) } else { malformed("it has a name that is none") }
}

fn is_name(name: &str) -> bool {
    name.chars().next().is_some_and(is_name_start) && name.chars().all(is_name_char)
}

/// XML 1.0, 2.3: `NameStartChar`.
fn is_name_start(c: char) -> bool {
    matches!(c,
        ':' | '_' | 'A'..='Z' | 'a'..='z' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}'
        | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}' | '\u{2070}'..='\u{218f}'
        | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}'
        | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
}

/// XML 1.0, 2.3: `NameChar`.
fn is_name_char(c: char) -> bool {
    is_name_start(c)
        || matches!(c, '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
}

/// XML 1.0, 2.2: what may stand in a document at all, be it as a reference.
fn is_character(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

fn check_characters(text: &str) -> Result<(), Flaw> {
    match text.chars().all(is_character) {
        true => Ok(()),
        false => malformed("it has a character that XML does not have"),
    }
}

/// XML 1.0, 2.3: white space, and nothing else of Unicode's.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn is_space_char(c: char) -> bool {
    u8::try_from(c).is_ok_and(is_space)
}

/// Resolves references and line ends (XML 1.0, 2.11, 3.3.3 and 4.1).
fn unescape(raw: &str, attribute: bool) -> Result<Cow<'_, str>, Flaw> {
    check_characters(raw)?;
    let special = |c: char| c == '&' || c == '\r' || (attribute && matches!(c, '\t' | '\n'));
    if !raw.contains(special) {
        return Ok(Cow::Borrowed(raw));
    }
    let mut plain = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find(special) {
        plain.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        rest = match rest.as_bytes()[at] {
            b'&' => {
                let Some((reference, behind)) = behind.split_once(';') else {
                    return malformed("it has a '&' that begins no reference");
                };
                plain.push(character(reference)?);
                behind
            }
            b'\r' => {
                plain.push(if attribute { ' ' } else { '\n' });
                behind.strip_prefix('\n').unwrap_or(behind)
            }
            _ => {
                plain.push(' ');
                behind
            }
        };
    }
    plain.push_str(rest);
    Ok(Cow::Owned(plain))
}

/// The text between `&` and `;`.
fn character(reference: &str) -> Result<char, Flaw> {
    let (digits, radix) = match reference {
        "lt" => return Ok('<'),
        "gt" => return Ok('>'),
        "amp" => return Ok('&'),
        "apos" => return Ok('\''),
        "quot" => return Ok('"'),
        _ => match (reference.strip_prefix("#x"), reference.strip_prefix('#')) {
            (Some(digits), _) => (digits, 16),
            (None, Some(digits)) => (digits, 10),
            (None, None) => return malformed("it has a reference to an entity that is not predefined"),
        },
    };
    let number = u32::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'));
    match number.and_then(char::from_u32).filter(|c| is_character(*c)) {
        Some(c) => Ok(c),
        None => malformed("it has a reference to a character that XML does not have"),
    }
}

/// Text as it is written in an element or between double quotes. What XML cannot hold becomes U+FFFD.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut plain = 0;
        for (at, c) in self.0.char_indices() {
            let reference = match c {
                '&' => "&amp;",
                '<' => "&lt;",
                '>' => "&gt;",
                '"' => "&quot;",
                // As they stand, they would be read as a space or a line feed.
                '\t' => "&#9;",
                '\n' => "&#10;",
                '\r' => "&#13;",
                c if !is_character(c) => "\u{fffd}",
                _ => continue,
            };
            f.write_str(&self.0[plain..at])?;
            f.write_str(reference)?;
            plain = at + c.len_utf8();
        }
        f.write_str(&self.0[plain..])
    }
}

/// Appends text for an element or between double quotes.
pub(crate) fn write_text(out: &mut Vec<u8>, text: &str) {
    // Writing to memory does not fail.
    let _ = write!(out, "{}", Escaped(text));
}

fn malformed<T>(message: &'static str) -> Result<T, Flaw> {
    Err((Problem::Malformed, message))
}
