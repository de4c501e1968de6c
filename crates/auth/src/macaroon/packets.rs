//! Macaroons as bytes: libmacaroons' version 1, in base64.
//!
//! Each packet is four hexadecimal digits of its own length, a key, a space, a value and a line feed: `location`,
//! `identifier`, a `cid` for each caveat, and last `signature`, 32 bytes. What a packet's value is does not matter here.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use gridlane_core::{Secret, limits};

use super::chain;
use crate::refusal::{Cause, Refusal};

/// Bytes of a packet beside its key and its value.
const PACKET_FRAME_BYTES: usize = 6;
const SIGNATURE_BYTES: usize = 32;

/// A macaroon as its holder sees it: what it says, and not whether that is true.
#[derive(Clone, PartialEq, Eq)]
pub struct Macaroon {
    pub(super) location: Vec<u8>,
    pub(super) identifier: Vec<u8>,
    pub(super) caveats: Vec<Vec<u8>>,
    /// Of all of the above: it is enough to use the macaroon.
    pub(super) signature: [u8; SIGNATURE_BYTES],
}

impl Macaroon {
    /// Reads one. Base64 in both alphabets, with padding or without, as libmacaroons takes it.
    pub fn parse(text: &str) -> Result<Macaroon, Refusal> {
        if text.len() > limits::MACAROON_BYTES_MAX {
            let max = limits::MACAROON_BYTES_MAX;
            return Err(Refusal::new(Cause::Unacceptable, format!("the macaroon has more than {max} bytes")));
        }
        let text = text.trim();
        if text.starts_with('{') {
            return Err(unacceptable("the macaroon is JSON; only the first binary format is known here"));
        }
        let plain = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
        let standard: String = plain.chars().map(to_standard).collect();
        let bytes = STANDARD_NO_PAD.decode(standard).map_err(|_| malformed("it is not base64"))?;
        Macaroon::from_bytes(&bytes)
    }

    fn from_bytes(bytes: &[u8]) -> Result<Macaroon, Refusal> {
        if bytes.first() == Some(&2) {
            return Err(unacceptable(
                "the macaroon has the second binary format; only the first is known here",
            ));
        }
        let mut rest = bytes;
        let location = expect(&mut rest, b"location")?.to_vec();
        let identifier = expect(&mut rest, b"identifier")?.to_vec();
        let mut caveats = Vec::new();
        loop {
            match packet(&mut rest)? {
                (b"cid", caveat) if caveats.len() < limits::MACAROON_CAVEATS_MAX => {
                    caveats.push(caveat.to_vec());
                }
                (b"cid", _) => return Err(too_many()),
                (b"vid" | b"cl", _) => {
                    return Err(unacceptable(
                        "the macaroon has a third-party caveat, which cannot be discharged here",
                    ));
                }
                (b"signature", signature) => {
                    let signature =
                        signature.try_into().map_err(|_| malformed("its signature is not 32 bytes"))?;
                    if !rest.is_empty() {
                        return Err(malformed("there is something behind its signature"));
                    }
                    return Ok(Macaroon { location, identifier, caveats, signature });
                }
                _ => return Err(malformed("it has a packet of an unknown kind, or in the wrong place")),
            }
        }
    }

    /// Its text on the wire: URL-safe, without padding.
    pub fn to_text(&self) -> Secret {
        let mut bytes = Vec::new();
        append(&mut bytes, b"location", &self.location);
        append(&mut bytes, b"identifier", &self.identifier);
        for caveat in &self.caveats {
            append(&mut bytes, b"cid", caveat);
        }
        append(&mut bytes, b"signature", &self.signature);
        Secret::new(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// The same with one more caveat. Any holder of a macaroon can do this, and none can undo it. Fails when it
    /// would be larger than macaroons may be.
    pub fn with_caveat(mut self, caveat: &[u8]) -> Result<Macaroon, Refusal> {
        if self.caveats.len() >= limits::MACAROON_CAVEATS_MAX {
            return Err(too_many());
        }
        if caveat.len() > limits::MACAROON_BYTES_MAX {
            return Err(unacceptable("the caveat is too long"));
        }
        self.signature = chain::next(&self.signature, caveat);
        self.caveats.push(caveat.to_vec());
        if self.to_text().expose().len() > limits::MACAROON_BYTES_MAX {
            return Err(unacceptable("the macaroon would become too long"));
        }
        Ok(self)
    }

    /// Which site made it, as it says.
    pub fn location(&self) -> String {
        String::from_utf8_lossy(&self.location).into_owned()
    }

    /// Its identifier: for audits and for revoking it.
    pub fn id(&self) -> String {
        String::from_utf8_lossy(&self.identifier).into_owned()
    }

    /// Its limits, in the order in which they were added.
    pub fn caveats(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.caveats.iter().map(Vec::as_slice)
    }
}

/// Without the signature.
impl std::fmt::Debug for Macaroon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let caveats: Vec<_> = self.caveats().map(String::from_utf8_lossy).collect();
        f.debug_struct("Macaroon")
            .field("location", &self.location())
            .field("id", &self.id())
            .field("caveats", &caveats)
            .finish_non_exhaustive()
    }
}

fn to_standard(letter: char) -> char {
    match letter {
        '-' => '+',
        '_' => '/',
        other => other,
    }
}

/// The value of the next packet, which has to have this key.
fn expect<'a>(rest: &mut &'a [u8], key: &[u8]) -> Result<&'a [u8], Refusal> {
    match packet(rest)? {
        (found, value) if found == key => Ok(value),
        _ => Err(malformed("its packets are not in their order")),
    }
}

/// Takes the next packet off: its key and its value.
fn packet<'a>(rest: &mut &'a [u8]) -> Result<(&'a [u8], &'a [u8]), Refusal> {
    let cut = || malformed("it is cut off, or not a macaroon at all");
    let digits = rest.get(..4).ok_or_else(cut)?;
    let length = digits.iter().try_fold(0, |length, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(length * 16 + usize::from(digit))
    });
    let inside = length.and_then(|length| rest.get(4..length)).ok_or_else(cut)?;
    let (end, inside) = inside.split_last().ok_or_else(cut)?;
    let space = inside.iter().position(|byte| *byte == b' ').ok_or_else(cut)?;
    if *end != b'\n' {
        return Err(malformed("a packet does not end where it should"));
    }
    *rest = &rest[inside.len() + 5..];
    Ok((&inside[..space], &inside[space + 1..]))
}

/// The bounds of a macaroon keep every packet shorter than four digits can say.
fn append(bytes: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let length = PACKET_FRAME_BYTES + key.len() + value.len();
    bytes.extend_from_slice(format!("{length:04x}").as_bytes());
    bytes.extend_from_slice(key);
    bytes.push(b' ');
    bytes.extend_from_slice(value);
    bytes.push(b'\n');
}

fn malformed(what: &str) -> Refusal {
    Refusal::new(Cause::Malformed, format!("the macaroon cannot be read: {what}"))
}

fn unacceptable(what: &str) -> Refusal {
    Refusal::new(Cause::Unacceptable, what)
}

fn too_many() -> Refusal {
    let max = limits::MACAROON_CAVEATS_MAX;
    Refusal::new(Cause::Unacceptable, format!("the macaroon has more than {max} caveats"))
}
