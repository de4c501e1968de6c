//! Distinguished names: compared as OpenSSL and RFC 5280 (7.1) do, and printed as the grid knows them.

use std::fmt;

use super::der::{Der, dotted, element, tag};

/// A distinguished name, as it stands in a certificate.
#[derive(Clone)]
pub struct Name {
    der: Vec<u8>,
    /// Case, spaces and kinds of strings taken away, each relative name by itself: what is compared.
    canonical: Vec<Vec<u8>>,
}

/// One attribute of a name.
struct Attribute<'a> {
    /// Contents of the object identifier.
    kind: &'a [u8],
    tag: u8,
    value: &'a [u8],
}

impl Name {
    /// Reads a `Name` of DER, with nothing behind it; `None` if it is none.
    pub fn from_der(der: &[u8]) -> Option<Name> {
        let mut canonical = Vec::new();
        for relative in relative_names(der)? {
            let mut elements = Vec::new();
            for attribute in &relative {
                short_name(attribute.kind).map(str::to_owned).or_else(|| dotted(attribute.kind))?;
                let value = match text(attribute.tag, attribute.value)? {
                    Some(text) => element(tag::UTF8_STRING, canonical_text(&text).as_bytes()),
                    None => element(attribute.tag, attribute.value),
                };
                let pair = [element(tag::OID, attribute.kind), value].concat();
                elements.push(element(tag::SEQUENCE, &pair));
            }
            // As DER sorts a SET OF.
            elements.sort();
            canonical.push(element(tag::SET, &elements.concat()));
        }
        Some(Name { der: der.to_vec(), canonical })
    }

    /// Its bytes in the certificate.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Equal for names that mean the same: without case, kinds of strings, and spaces too many. OpenSSL's file names
    /// in trust directories are the SHA-1 of this.
    pub fn canonical(&self) -> Vec<u8> {
        self.canonical.concat()
    }

    /// True if there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.canonical.is_empty()
    }

    /// True if it is this other name and exactly one common name more, as a proxy's subject (RFC 3820, 3.4).
    pub fn is_proxy_of(&self, issuer: &Name) -> bool {
        let Some((_, first)) = self.canonical.split_last() else { return false };
        first == issuer.canonical && self.last_common_name().is_some()
    }

    /// The value of the last relative name, if that is one common name.
    pub fn last_common_name(&self) -> Option<&[u8]> {
        let mut names = relative_names(&self.der)?;
        match names.pop()?.as_slice() {
            [Attribute { kind: COMMON_NAME, value, .. }] => Some(value),
            _ => None,
        }
    }

    /// True if this name lies in the tree below another, or is that (RFC 5280, 4.2.1.10).
    pub(super) fn is_within(&self, base: &Name) -> bool {
        self.canonical.starts_with(&base.canonical)
    }

    /// The mail addresses in it, as RFC 5280 (4.2.1.10) wants them looked at.
    pub(super) fn mail_addresses(&self) -> Vec<&[u8]> {
        let names = relative_names(&self.der).unwrap_or_default();
        let attributes = names.into_iter().flatten();
        attributes
            .filter(|attribute| attribute.kind == MAIL_ADDRESS)
            .map(|attribute| attribute.value)
            .collect()
    }

    /// The form of RFC 2253, last part first: `CN=Ada,DC=example,DC=org`. What is no ASCII is escaped, as
    /// `openssl x509 -nameopt RFC2253` does.
    pub fn rfc2253(&self) -> String {
        let names = relative_names(&self.der).unwrap_or_default();
        let names = names.iter().rev().map(|relative| {
            // OpenSSL turns round the attributes of one relative name as well.
            let attributes = relative.iter().rev().map(|attribute| {
                let known = short_name(attribute.kind);
                let text = text(attribute.tag, attribute.value).flatten();
                let text =
                    if attribute.tag == tag::NUMERIC_STRING { Some(latin1(attribute.value)) } else { text };
                match (known, text) {
                    (Some(name), Some(text)) => format!("{name}={}", escaped_2253(&text)),
                    (name, _) => {
                        let name =
                            name.map(str::to_owned).or_else(|| dotted(attribute.kind)).unwrap_or_default();
                        let der = element(attribute.tag, attribute.value);
                        let hex: String = der.iter().map(|byte| format!("{byte:02X}")).collect();
                        format!("{name}=#{hex}")
                    }
                }
            });
            attributes.collect::<Vec<_>>().join("+")
        });
        names.collect::<Vec<_>>().join(",")
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.canonical == other.canonical
    }
}

impl Eq for Name {}

impl fmt::Display for Name {
    /// The form that OpenSSL 3 prints on one line (`X509_NAME_oneline`): `/DC=org/DC=example/CN=Ada`. Slashes and
    /// plus signs within a value have a backslash in front; bytes that are no printable ASCII are `\xHH`.
    ///
    /// Rules and grid-mapfiles compare this text, so no two names may share it by the choice of a user that asked for a
    /// certificate. Hence two differences from OpenSSL: a backslash is `\x5C`, and strings of wide characters
    /// (`BMPString`, `UniversalString`) are written as the same text in UTF-8, as U+4141 is not `AA`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for relative in relative_names(&self.der).unwrap_or_default() {
            for (position, attribute) in relative.iter().enumerate() {
                f.write_str(if position == 0 { "/" } else { "+" })?;
                match short_name(attribute.kind) {
                    Some(name) => f.write_str(name)?,
                    None => f.write_str(&dotted(attribute.kind).unwrap_or_default())?,
                }
                f.write_str("=")?;
                write_value(f, attribute)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

fn write_value(f: &mut fmt::Formatter<'_>, attribute: &Attribute<'_>) -> fmt::Result {
    let wide = match attribute.tag {
        tag::BMP_STRING | tag::UNIVERSAL_STRING => text(attribute.tag, attribute.value).flatten(),
        _ => None,
    };
    for byte in wide.as_deref().map_or(attribute.value, str::as_bytes) {
        match byte {
            b'/' | b'+' => write!(f, "\\{}", char::from(*byte))?,
            b'\\' => f.write_str("\\x5C")?,
            b' '..=b'~' => write!(f, "{}", char::from(*byte))?,
            _ => write!(f, "\\x{byte:02X}")?,
        }
    }
    Ok(())
}

/// `SEQUENCE OF SET OF SEQUENCE { type, value }`.
fn relative_names(der: &[u8]) -> Option<Vec<Vec<Attribute<'_>>>> {
    let mut outer = Der::new(der);
    let mut names = outer.enter(tag::SEQUENCE)?;
    outer.end()?;
    let mut found = Vec::new();
    while !names.is_empty() {
        let mut set = names.enter(tag::SET)?;
        let mut attributes = Vec::new();
        while !set.is_empty() {
            let mut pair = set.enter(tag::SEQUENCE)?;
            let kind = pair.take(tag::OID)?;
            let (tag, value) = pair.any()?;
            pair.end()?;
            attributes.push(Attribute { kind, tag, value });
        }
        found.push(attributes);
        found.last().filter(|attributes| !attributes.is_empty())?;
    }
    Some(found)
}

/// The characters of a string of the kinds that are compared as text; `Some(None)` for kinds that are compared as they
/// stand; `None` if the bytes are no such string, or of a kind that names are not written with.
fn text(kind: u8, value: &[u8]) -> Option<Option<String>> {
    let text = match kind {
        tag::UTF8_STRING => String::from_utf8(value.to_vec()).ok()?,
        tag::PRINTABLE_STRING | tag::T61_STRING | tag::IA5_STRING => latin1(value),
        tag::BMP_STRING => wide(value.chunks(2), 2)?,
        tag::UNIVERSAL_STRING => wide(value.chunks(4), 4)?,
        tag::NUMERIC_STRING => return Some(None),
        _ => return None,
    };
    Some(Some(text))
}

/// OpenSSL reads all strings of one byte as Latin-1.
fn latin1(value: &[u8]) -> String {
    value.iter().copied().map(char::from).collect()
}

fn wide<'a>(mut characters: impl Iterator<Item = &'a [u8]>, width: usize) -> Option<String> {
    characters.try_fold(String::new(), |mut text, bytes| {
        let code = bytes.iter().fold(0u32, |code, byte| code << 8 | u32::from(*byte));
        text.push(char::from_u32(code).filter(|_| bytes.len() == width)?);
        Some(text)
    })
}

/// Without spaces around it, with one between words, in small letters, as far as ASCII goes.
fn canonical_text(text: &str) -> String {
    let is_space = |character: char| matches!(character, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c');
    let words: Vec<&str> = text.split(is_space).filter(|word| !word.is_empty()).collect();
    words.join(" ").to_ascii_lowercase()
}

fn escaped_2253(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let last = text.len().saturating_sub(1);
    for (position, character) in text.char_indices() {
        match character {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => escaped.extend(['\\', character]),
            '#' if position == 0 => escaped.push_str("\\#"),
            ' ' if position == 0 || position == last => escaped.push_str("\\ "),
            ' '..='~' => escaped.push(character),
            _ => {
                let mut bytes = [0; 4];
                for byte in character.encode_utf8(&mut bytes).bytes() {
                    escaped.push_str(&format!("\\{byte:02X}"));
                }
            }
        }
    }
    escaped
}

const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const MAIL_ADDRESS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];

/// OpenSSL's words for the attributes of names that are id-at, in the order of their last numbers, which begin with 3.
const X520: [&str; 52] = [
    "CN",
    "SN",
    "serialNumber",
    "C",
    "L",
    "ST",
    "street",
    "O",
    "OU",
    "title",
    "description",
    "searchGuide",
    "businessCategory",
    "postalAddress",
    "postalCode",
    "postOfficeBox",
    "physicalDeliveryOfficeName",
    "telephoneNumber",
    "telexNumber",
    "teletexTerminalIdentifier",
    "facsimileTelephoneNumber",
    "x121Address",
    "internationaliSDNNumber",
    "registeredAddress",
    "destinationIndicator",
    "preferredDeliveryMethod",
    "presentationAddress",
    "supportedApplicationContext",
    "member",
    "owner",
    "roleOccupant",
    "seeAlso",
    "userPassword",
    "userCertificate",
    "cACertificate",
    "authorityRevocationList",
    "certificateRevocationList",
    "crossCertificatePair",
    "name",
    "GN",
    "initials",
    "generationQualifier",
    "x500UniqueIdentifier",
    "dnQualifier",
    "enhancedSearchGuide",
    "protocolInformation",
    "distinguishedName",
    "uniqueMember",
    "houseIdentifier",
    "supportedAlgorithms",
    "deltaRevocationList",
    "dmdName",
];

/// Its words for others, by the contents of their object identifiers.
const OTHERS: [(&[u8], &str); 12] = [
    (&[0x55, 4, 65], "pseudonym"),
    (&[0x55, 4, 72], "role"),
    (&[0x55, 4, 97], "organizationIdentifier"),
    // Of RFC 4524: 0.9.2342.19200300.100.1.
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 3], "mail"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (MAIL_ADDRESS, "emailAddress"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 2], "unstructuredName"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 8], "unstructuredAddress"),
    // Of certificates for hosts with extended validation: 1.3.6.1.4.1.311.60.2.1.
    (&[0x2b, 6, 1, 4, 1, 0x82, 0x37, 0x3c, 2, 1, 1], "jurisdictionL"),
    (&[0x2b, 6, 1, 4, 1, 0x82, 0x37, 0x3c, 2, 1, 2], "jurisdictionST"),
    (&[0x2b, 6, 1, 4, 1, 0x82, 0x37, 0x3c, 2, 1, 3], "jurisdictionC"),
];

/// OpenSSL's word for a kind of attribute in names.
fn short_name(kind: &[u8]) -> Option<&'static str> {
    match kind {
        [0x55, 4, number @ 3..=54] => X520.get(usize::from(*number) - 3).copied(),
        _ => OTHERS.iter().find(|(known, _)| *known == kind).map(|(_, name)| *name),
    }
}

/// All that OpenSSL has a word for in names.
pub(crate) fn short_names() -> impl Iterator<Item = &'static str> {
    X520.into_iter().chain(OTHERS.iter().map(|(_, name)| *name))
}
