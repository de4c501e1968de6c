//! Writing `multipart/byteranges` (RFC 9110, 14.6): several ranges of a file in one answer.
//!
//! No byte of the file passes through here. A [`Multipart`] describes the body: for each part the bytes of
//! its head and the range of the file behind it, then the end. The sender writes the heads and lets
//! the kernel move the ranges; the length of all of it is known before the first byte, so the answer has a
//! `Content-Length` and the connection stays usable.
//!
//! It is for two parts and more: for one range, a plain 206 is the answer
//! ([`RangeAnswer::Single`](crate::ranges::RangeAnswer::Single)).
//!
//! Each head begins with the CRLF that ends what is in front of it, the first one too (as nginx, XRootD and
//! RFC 2046, 5.1.1, have it), and **`Content-Range` is its last field**: davix takes the field for the end of
//! the head, and fails for good when another one follows.
//!
//! ```
//! # use gridlane_core::ByteRange;
//! # use gridlane_dav::multipart::{Boundary, Multipart};
//! let ranges = vec![ByteRange::new(0, 2), ByteRange::new(7, 9)];
//! let multipart = Multipart::new(Boundary::from_bits(5), "text/plain", 10, ranges).unwrap();
//! let mut body = Vec::new();
//! for part in multipart.parts() {
//!     body.extend_from_slice(&part.head);
//!     body.extend_from_slice(&b"0123456789"[part.range.start() as usize..part.range.end() as usize]);
//! }
//! body.extend_from_slice(&multipart.end());
//! assert_eq!(body.len() as u64, multipart.content_length());
//! ```

use std::fmt;

use gridlane_core::ByteRange;

use crate::media_type::OCTETS;
use crate::range::ContentRange;

/// The separator of parts: 1 to 70 characters that need no quotes in a header field (RFC 2046, 5.1.1).
///
/// It must not occur in the file behind a line end, for the readers that search instead of counting, and
/// no user that could have written the file may guess it: make it [from random bits](Boundary::from_bits), new
/// for each answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boundary(String);

impl Boundary {
    /// The boundary that `text` is; `None` when it is too long or would need quotes: davix and others take
    /// the header apart at quotes and semicolons.
    pub fn new(text: &str) -> Option<Boundary> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+');
        ((1..=70).contains(&text.len()) && text.bytes().all(plain)).then(|| Boundary(text.to_owned()))
    }

    /// 32 hexadecimal digits out of 128 bits, which should be random.
    pub fn from_bits(bits: u128) -> Boundary {
        Boundary(format!("{bits:032x}"))
    }
}

impl fmt::Display for Boundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The body of a 206 in parts, as a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipart {
    boundary: Boundary,
    media_type: String,
    size: u64,
    ranges: Vec<ByteRange>,
    content_length: u64,
}

/// A part: send `head`, then the bytes `range` of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The separator from the part in front, and its fields.
    pub head: Vec<u8>,
    /// Which bytes of the file follow; never empty.
    pub range: ByteRange,
}

impl Multipart {
    /// Describes `ranges` of a file of `size` bytes, in this order. `media_type` is the file's own; one that
    /// cannot stand in a header field becomes `application/octet-stream`.
    ///
    /// `None` when there are fewer than two ranges (RFC 9110, 15.3.7.2), when one is empty or beyond the
    /// file's end, and when the length of it all is no number that fits.
    pub fn new(boundary: Boundary, media_type: &str, size: u64, ranges: Vec<ByteRange>) -> Option<Multipart> {
        let is_good = |range: &ByteRange| !range.is_empty() && range.end() <= size;
        if ranges.len() < 2 || !ranges.iter().all(is_good) {
            return None;
        }
        let printable = media_type.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        let media_type = if printable && !media_type.is_empty() { media_type } else { OCTETS }.to_owned();
        let mut multipart = Multipart { boundary, media_type, size, ranges, content_length: 0 };
        let mut length = multipart.end().len() as u64;
        for part in multipart.parts() {
            length = length.checked_add(part.head.len() as u64)?.checked_add(part.range.len())?;
        }
        multipart.content_length = length;
        Some(multipart)
    }

    /// The answer's `Content-Type`. The answer itself has no `Content-Range` (RFC 9110, 15.3.7.2).
    pub fn content_type(&self) -> String {
        format!("multipart/byteranges; boundary={}", self.boundary)
    }

    /// The answer's `Content-Length`.
    pub fn content_length(&self) -> u64 {
        self.content_length
    }

    /// The parts. Heads are made as they are needed.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = Part> + '_ {
        self.ranges.iter().map(|range| {
            let (boundary, media_type) = (&self.boundary, &self.media_type);
            let content_range = ContentRange { range: *range, size: Some(self.size) };
            let head = format!(
                "\r\n--{boundary}\r\nContent-Type: {media_type}\r\nContent-Range: {content_range}\r\n\r\n"
            );
            Part { head: head.into_bytes(), range: *range }
        })
    }

    /// The bytes behind the last part.
    pub fn end(&self) -> Vec<u8> {
        format!("\r\n--{}--\r\n", self.boundary).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(pairs: &[(u64, u64)]) -> Vec<ByteRange> {
        pairs.iter().map(|(start, end)| ByteRange::new(*start, *end)).collect()
    }

    #[test]
    fn on_the_wire() {
        let boundary = Boundary::new("123456").unwrap();
        let multipart = Multipart::new(boundary, "image/fits", 100, ranges(&[(90, 100), (0, 1)])).unwrap();
        assert_eq!(multipart.content_type(), "multipart/byteranges; boundary=123456");
        let mut body = String::new();
        for part in multipart.parts() {
            body.push_str(std::str::from_utf8(&part.head).unwrap());
            body.push_str(&"x".repeat(part.range.len() as usize));
        }
        body.push_str(std::str::from_utf8(&multipart.end()).unwrap());
        assert_eq!(
            body,
            "\r\n--123456\r\nContent-Type: image/fits\r\nContent-Range: bytes 90-99/100\r\n\r\nxxxxxxxxxx\
             \r\n--123456\r\nContent-Type: image/fits\r\nContent-Range: bytes 0-0/100\r\n\r\nx\
             \r\n--123456--\r\n"
        );
        assert_eq!(multipart.content_length(), body.len() as u64);
    }

    #[test]
    fn what_is_no_multipart() {
        let boundary = Boundary::from_bits(u128::MAX);
        assert_eq!(boundary.to_string(), "f".repeat(32));
        for bad in [&[][..], &[(0, 10)], &[(0, 10), (5, 5)], &[(0, 10), (90, 101)]] {
            assert_eq!(Multipart::new(boundary.clone(), OCTETS, 100, ranges(bad)), None, "{bad:?}");
        }
        let huge = ranges(&[(0, u64::MAX), (0, u64::MAX)]);
        assert_eq!(Multipart::new(boundary.clone(), OCTETS, u64::MAX, huge), None);
        let injected = Multipart::new(boundary, "a/b\r\nX: y", 9, ranges(&[(0, 1), (2, 3)])).unwrap();
        assert!(injected.parts().all(|part| part.head.windows(6).any(|bytes| bytes == b"octet-")));
        for text in ["", "a b", "a\"b", "a;b", "a\r\nb", "é", &"x".repeat(71)] {
            assert_eq!(Boundary::new(text), None, "{text}");
        }
    }
}
