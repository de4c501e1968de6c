//! Reading DER (X.690) strictly, as far as extensions and names need it: nothing is skipped that is not understood.

use std::fmt::Write as _;

/// The rest of some DER. Every reading gives `None` when the bytes are something else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Der<'a>(&'a [u8]);

pub(crate) mod tag {
    pub(crate) const BOOLEAN: u8 = 0x01;
    pub(crate) const INTEGER: u8 = 0x02;
    pub(crate) const BIT_STRING: u8 = 0x03;
    pub(crate) const OCTET_STRING: u8 = 0x04;
    pub(crate) const NULL: u8 = 0x05;
    pub(crate) const OID: u8 = 0x06;
    pub(crate) const UTF8_STRING: u8 = 0x0c;
    pub(crate) const NUMERIC_STRING: u8 = 0x12;
    pub(crate) const PRINTABLE_STRING: u8 = 0x13;
    pub(crate) const T61_STRING: u8 = 0x14;
    pub(crate) const IA5_STRING: u8 = 0x16;
    pub(crate) const UTC_TIME: u8 = 0x17;
    pub(crate) const GENERALIZED_TIME: u8 = 0x18;
    pub(crate) const UNIVERSAL_STRING: u8 = 0x1c;
    pub(crate) const BMP_STRING: u8 = 0x1e;
    pub(crate) const SEQUENCE: u8 = 0x30;
    pub(crate) const SET: u8 = 0x31;

    /// `[number]`, with something simple in it.
    pub(crate) const fn context(number: u8) -> u8 {
        0x80 | number
    }

    /// `[number]`, with something composed in it.
    pub(crate) const fn composed(number: u8) -> u8 {
        0xa0 | number
    }
}

impl<'a> Der<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Der<'a> {
        Der(bytes)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Nothing is left.
    pub(crate) fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }

    /// Tag and contents of the next element. Tags above 30 are not known to any structure here.
    pub(crate) fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            // Four bytes of length are more than anything here has.
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let len = bytes.iter().fold(0usize, |len, byte| len << 8 | usize::from(*byte));
                let is_shortest = bytes.first() != Some(&0) && len >= 0x80;
                is_shortest.then_some((len, rest))?
            }
            _ => return None,
        };
        let (contents, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        (tag & 0x1f != 0x1f).then_some((tag, contents))
    }

    /// The contents of the next element, which has this tag.
    pub(crate) fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.any().filter(|(found, _)| *found == tag).map(|(_, contents)| contents)
    }

    /// The next element whole, as it stands, and its tag.
    pub(crate) fn whole(&mut self) -> Option<(u8, &'a [u8])> {
        let before = self.0;
        let (tag, _) = self.any()?;
        Some((tag, &before[..before.len() - self.0.len()]))
    }

    /// A reader of the next element, which has this tag.
    pub(crate) fn enter(&mut self, tag: u8) -> Option<Der<'a>> {
        self.take(tag).map(Der)
    }

    /// The contents of the next element if it has this tag; else nothing is read.
    pub(crate) fn optional(&mut self, tag: u8) -> Option<Option<&'a [u8]>> {
        if self.0.first() == Some(&tag) { self.take(tag).map(Some) } else { Some(None) }
    }

    /// `BOOLEAN DEFAULT FALSE`.
    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.optional(tag::BOOLEAN)? {
            None => Some(false),
            // DER wants no FALSE here, but some write it; OpenSSL takes it as well.
            Some([0]) => Some(false),
            Some([0xff]) => Some(true),
            Some(_) => None,
        }
    }

    /// `INTEGER (0..MAX) OPTIONAL`; what is beyond `u32` is its maximum.
    pub(crate) fn optional_number(&mut self) -> Option<Option<u32>> {
        let Some(bytes) = self.optional(tag::INTEGER)? else { return Some(None) };
        number(bytes).map(Some)
    }
}

/// The contents of an INTEGER that is not negative; what is beyond `u32` is its maximum.
fn number(bytes: &[u8]) -> Option<u32> {
    match bytes {
        [] | [0x80..=0xff, ..] | [0, 0..=0x7f, ..] => None,
        [0, rest @ ..] | rest if rest.len() <= 4 => {
            Some(rest.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
        }
        _ => Some(u32::MAX),
    }
}

/// The bytes of a BIT STRING without unused bits.
pub(crate) fn whole_bits(contents: &[u8]) -> Option<&[u8]> {
    contents.split_first().filter(|(unused, _)| **unused == 0).map(|(_, bits)| bits)
}

/// An object identifier as people write it: `2.5.4.3`.
pub(crate) fn dotted(contents: &[u8]) -> Option<String> {
    let mut text = String::new();
    let mut number = 0u64;
    let mut is_inside = false;
    for byte in contents {
        if !is_inside && *byte == 0x80 {
            return None;
        }
        number = number.checked_mul(128)? | u64::from(byte & 0x7f);
        is_inside = byte & 0x80 != 0;
        if is_inside {
            continue;
        }
        // Appended, not made anew: identifiers of a peer may have tens of thousands of numbers.
        let written = if text.is_empty() {
            let first = (number / 40).min(2);
            write!(text, "{first}.{}", number - 40 * first)
        } else {
            write!(text, ".{number}")
        };
        written.ok()?;
        number = 0;
    }
    (!is_inside && !text.is_empty()).then_some(text)
}

/// An element with this tag.
pub(crate) fn element(tag: u8, contents: &[u8]) -> Vec<u8> {
    let len = contents.len();
    let mut der = vec![tag];
    match len {
        0..=0x7f => der.push(len as u8),
        _ => {
            let bytes = len.to_be_bytes();
            let bytes = &bytes[len.leading_zeros() as usize / 8..];
            der.push(0x80 | bytes.len() as u8);
            der.extend_from_slice(bytes);
        }
    }
    der.extend_from_slice(contents);
    der
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_the_shortest() {
        for (bytes, contents) in [
            (&[4, 0][..], Some(&[][..])),
            (&[4, 1, 7], Some(&[7])),
            (&[4, 1], None),
            (&[4, 0x80, 0, 0], None),
            (&[4, 0x81, 1, 7], None),
            (&[4, 0x82, 0, 1, 7], None),
            (&[4, 0x85, 0, 0, 0, 0, 1, 7], None),
            (&[4, 0x84, 0xff, 0xff, 0xff, 0xff], None),
            (&[0x1f, 1, 7], None),
            (&[], None),
        ] {
            assert_eq!(Der::new(bytes).any().map(|(_, contents)| contents), contents, "{bytes:?}");
        }
        for len in [0, 1, 127, 128, 255, 256, 70_000] {
            let contents = vec![7; len];
            let der = element(tag::OCTET_STRING, &contents);
            let mut reader = Der::new(&der);
            assert_eq!(reader.take(tag::OCTET_STRING), Some(&contents[..]), "{len}");
            assert_eq!(reader.end(), Some(()));
        }
    }

    #[test]
    fn numbers() {
        for (bytes, expected) in [
            (&[2u8, 1, 0][..], Some(Some(0))),
            (&[2, 1, 127], Some(Some(127))),
            (&[2, 2, 0, 128], Some(Some(128))),
            (&[2, 5, 0, 255, 255, 255, 255], Some(Some(u32::MAX))),
            (&[2, 9, 1, 0, 0, 0, 0, 0, 0, 0, 0], Some(Some(u32::MAX))),
            (&[2, 1, 0x80], None),
            (&[2, 2, 0, 1], None),
            (&[2, 0], None),
            (&[4, 0], Some(None)),
        ] {
            assert_eq!(Der::new(bytes).optional_number(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn identifiers() {
        for (bytes, text) in [
            (&[0x55, 4, 3][..], Some("2.5.4.3")),
            (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d], Some("1.2.840.113549")),
            (&[0x88, 0x37, 3], Some("2.999.3")),
            (&[0x09], Some("0.9")),
            (&[], None),
            (&[0x55, 0x80, 1], None),
            (&[0x55, 0x84], None),
            (&[0xff; 12], None),
        ] {
            assert_eq!(dotted(bytes).as_deref(), text, "{bytes:?}");
        }
        // In proportion to its length: this would take minutes if each number made a new text.
        assert_eq!(dotted(&vec![1; 1 << 20]).map(|text| text.len()), Some((2 << 20) + 1));
    }
}
