//! Ranges on the wire (RFC 9110, 14): what a client asks for, and what a server says came back.
//!
//! On the wire both ends are inclusive; inside gridlane a [`ByteRange`] is half-open. The conversion
//! happens here and nowhere else.

use std::fmt;

use gridlane_core::ByteRange;

use crate::header::{OWS, number, trim};

/// One range of a `Range` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeSpec {
    /// `bytes=a-b`, both inclusive, `a <= b`.
    FromTo {
        /// First byte's offset.
        first: u64,
        /// Last byte's offset.
        last: u64,
    },
    /// `bytes=a-`.
    From(u64),
    /// `bytes=-n`: the last n bytes.
    Last(u64),
}

impl RangeSpec {
    /// The way to ask for `range`; `None` when it is empty.
    pub fn of(range: ByteRange) -> Option<RangeSpec> {
        (!range.is_empty()).then(|| RangeSpec::FromTo { first: range.start(), last: range.end() - 1 })
    }

    /// Reads a header with a single range.
    ///
    /// `None` means: ignore the header and send everything. That is the answer to another unit and to
    /// malformed text (RFC 9110, 14.2); for several ranges see [`RangeList`](crate::ranges::RangeList).
    pub fn parse(text: &str) -> Option<RangeSpec> {
        let mut specs = elements(text)?;
        let (spec, None) = (specs.next()?, specs.next()) else { return None };
        RangeSpec::parse_element(spec)
    }

    /// Reads one element of the header's list: `0-99`, `100-` or `-5`.
    pub(crate) fn parse_element(spec: &str) -> Option<RangeSpec> {
        let (first, last) = spec.split_once('-')?;
        match (first, last) {
            ("", last) => digits(last).map(RangeSpec::Last),
            (first, "") => digits(first).map(RangeSpec::From),
            (first, last) => {
                let (first, last) = (digits(first)?, digits(last)?);
                (first <= last).then_some(RangeSpec::FromTo { first, last })
            }
        }
    }

    /// Writes one element of the header's list.
    pub(crate) fn write_element(self, to: &mut impl fmt::Write) -> fmt::Result {
        match self {
            RangeSpec::FromTo { first, last } => write!(to, "{first}-{last}"),
            RangeSpec::From(first) => write!(to, "{first}-"),
            RangeSpec::Last(count) => write!(to, "-{count}"),
        }
    }

    /// The bytes it means in a file of `size` bytes; `None` when there is no such byte (416).
    pub fn resolve(self, size: u64) -> Option<ByteRange> {
        let range = match self {
            RangeSpec::FromTo { first, last } => ByteRange::new(first, last.saturating_add(1).min(size)),
            RangeSpec::From(first) => ByteRange::new(first, size),
            RangeSpec::Last(count) => ByteRange::new(size - count.min(size), size),
        };
        (!range.is_empty()).then_some(range)
    }
}

/// The value of the header: `bytes=0-99`.
impl fmt::Display for RangeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes=")?;
        self.write_element(f)
    }
}

/// The `Content-Range` of a 206.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// Which bytes follow; never empty.
    pub range: ByteRange,
    /// Size of the whole file, when the server knows it.
    pub size: Option<u64>,
}

impl ContentRange {
    /// Reads `bytes 0-99/1234` or `bytes 0-99/*`; `None` for anything else, and for a range that is not
    /// inside of the file.
    pub fn parse(text: &str) -> Option<ContentRange> {
        let (first, end, size) = content_range(text)?;
        size.is_none_or(|size| end <= size).then(|| ContentRange { range: ByteRange::new(first, end), size })
    }
}

/// The `Content-Range` of a 206 whose range goes on behind the end of the file.
///
/// RFC 9110 (14.4) does not allow it. XRootD (5.5.3) repeats so what it was asked for when that is more than there is,
/// announces as many bytes, sends none, and closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlongRange {
    /// Size of the whole file.
    pub size: u64,
}

impl OverlongRange {
    /// Reads `bytes 0-1048575/300`; `None` for what RFC 9110 allows, and for anything else.
    pub fn parse(text: &str) -> Option<OverlongRange> {
        let (_, end, size) = content_range(text)?;
        size.filter(|size| end > *size).map(|size| OverlongRange { size })
    }
}

/// First byte, the one behind the last, and size.
fn content_range(text: &str) -> Option<(u64, u64, Option<u64>)> {
    let (range, size) = bytes_unit(text)?.split_once('/')?;
    let (first, last) = trim(range).split_once('-')?;
    let (first, last) = (number(trim(first))?, number(trim(last))?);
    let size = match trim(size) {
        "*" => None,
        size => Some(number(size)?),
    };
    (first <= last).then_some((first, last.checked_add(1)?, size))
}

/// The value of the header: `bytes 0-99/1234`.
impl fmt::Display for ContentRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.range.end().saturating_sub(1);
        write!(f, "bytes {}-{last}/", self.range.start())?;
        match self.size {
            Some(size) => write!(f, "{size}"),
            None => f.write_str("*"),
        }
    }
}

/// The `Content-Range` of a 416: there is no such byte in a file of `size` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsatisfiedRange {
    /// Size of the whole file.
    pub size: u64,
}

impl UnsatisfiedRange {
    /// Reads `bytes */1234`.
    pub fn parse(text: &str) -> Option<UnsatisfiedRange> {
        let size = bytes_unit(text)?.trim_start_matches(OWS).strip_prefix("*/")?;
        Some(UnsatisfiedRange { size: number(trim(size))? })
    }
}

/// The value of the header: `bytes */1234`.
impl fmt::Display for UnsatisfiedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes */{}", self.size)
    }
}

/// The elements of a `Range` header in bytes; `None` for another unit.
pub(crate) fn elements(text: &str) -> Option<impl Iterator<Item = &str>> {
    let (unit, list) = text.split_once('=')?;
    let is_bytes = trim(unit).eq_ignore_ascii_case("bytes");
    is_bytes.then(|| list.split(',').map(trim).filter(|spec| !spec.is_empty()))
}

fn bytes_unit(text: &str) -> Option<&str> {
    let (unit, rest) = trim(text).split_once(' ')?;
    unit.eq_ignore_ascii_case("bytes").then_some(rest)
}

/// A number of any length; beyond the largest offset there is, it is as good as that one.
fn digits(text: &str) -> Option<u64> {
    let valid = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    valid.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_clients_ask_for() {
        // Header, size, then the half-open range; None where there is nothing to send.
        for (text, size, expected) in [
            ("bytes=0-0", 10, Some((0, 1))),
            ("bytes=2-5", 10, Some((2, 6))),
            ("bytes=2-500", 10, Some((2, 10))),
            ("bytes=9-", 10, Some((9, 10))),
            ("bytes=-3", 10, Some((7, 10))),
            ("bytes=-30", 10, Some((0, 10))),
            ("Bytes = 0-1", 10, Some((0, 2))),
            ("bytes=0-99999999999999999999999", 10, Some((0, 10))),
            ("bytes=10-", 10, None),
            ("bytes=99999999999999999999999-", 10, None),
            ("bytes=-0", 10, None),
            ("bytes=0-", 0, None),
            ("bytes=-5", 0, None),
        ] {
            let range = RangeSpec::parse(text).unwrap_or_else(|| panic!("{text}")).resolve(size);
            assert_eq!(range.map(|range| (range.start(), range.end())), expected, "{text}");
        }
    }

    #[test]
    fn what_is_ignored() {
        for text in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=5-2",
            "bytes=1-2,4-5",
            "items=0-1",
            "bytes=+1-2",
            "bytes=1--2",
            "bytes=0x1-2",
            "bytes 0-1",
        ] {
            assert_eq!(RangeSpec::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_servers_say() {
        let parsed = ContentRange::parse("bytes 2-5/10").unwrap();
        assert_eq!((parsed.range, parsed.size), (ByteRange::new(2, 6), Some(10)));
        assert_eq!(ContentRange::parse("BYTES 2-5/*").unwrap().size, None);
        assert_eq!(UnsatisfiedRange::parse("bytes */10"), Some(UnsatisfiedRange { size: 10 }));
        for bad in [
            "",
            "bytes",
            "bytes 2-5",
            "bytes 5-2/10",
            "bytes 2-10/10",
            "bytes */10",
            "bytes 2-/10",
            "bytes -5/10",
            "bytes=2-5/10",
            "items 2-5/10",
            "bytes 2-5/x",
            "bytes 2-18446744073709551615/*",
            "bytes 2-5/10/11",
        ] {
            assert_eq!(ContentRange::parse(bad), None, "{bad}");
        }
        assert_eq!(UnsatisfiedRange::parse("bytes 2-5/10"), None);
        assert_eq!(OverlongRange::parse("bytes 2-10/10"), Some(OverlongRange { size: 10 }));
        assert_eq!(OverlongRange::parse("bytes 0-1048575/0"), Some(OverlongRange { size: 0 }));
        for good in ["bytes 2-9/10", "bytes 2-5/*", "bytes 5-2/10", "bytes */10"] {
            assert_eq!(OverlongRange::parse(good), None, "{good}");
        }
    }

    proptest! {
        #[test]
        fn round_trips(start in 0..u64::MAX - 1, len in 1..u64::MAX, beyond: u32, known: bool) {
            let range = ByteRange::at(start, len);
            let size = known.then(|| range.end().saturating_add(beyond.into()));
            let header = ContentRange { range, size };
            prop_assert_eq!(ContentRange::parse(&header.to_string()), Some(header));
            let spec = RangeSpec::of(range).unwrap();
            prop_assert_eq!(RangeSpec::parse(&spec.to_string()), Some(spec));
            prop_assert_eq!(spec.resolve(range.end()), Some(range));
        }

        #[test]
        fn never_panics(text in "(bytes[= ])?\\PC*", size: u64) {
            if let Some(range) = RangeSpec::parse(&text).and_then(|spec| spec.resolve(size)) {
                prop_assert!(range.end() <= size);
            }
            let _ = ContentRange::parse(&text);
            let _ = UnsatisfiedRange::parse(&text);
        }
    }
}
