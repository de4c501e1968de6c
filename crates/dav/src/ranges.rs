//! Several ranges in one request (RFC 9110, 14.2): what a reader of columns asks for, and what a server
//! makes of it.
//!
//! ROOT reads a few hundred small pieces of a file at once, and davix asks for them in one `Range` header.
//! [`RangeList`] reads and writes that header; [`RangeList::resolve`] says what to answer. The answer's body
//! is [`crate::multipart`], and its reader [`crate::multipart_reader`].
//!
//! # When the header is ignored
//!
//! A request of a few bytes must not cost more than the file. RFC 9110, 14.2, lets a server ignore a header
//! or refuse it; here it is ignored, and the whole file is sent. Every client has to understand that, while
//! davix takes a 416 for the end of the file and hands zero bytes to its reader, and a 400 ends a read that
//! one request per range would have served. The whole file is also the cheapest thing to send, byte for
//! byte, and a client that does not want it closes the connection. So it goes for:
//!
//! - text that is no list of ranges, and more than [`RANGES_MAX`](limits::RANGES_MAX) of them;
//! - ranges that are together more than the file: they overlap, and the file is less (as nginx does it);
//! - more than [`RANGE_REVERSALS_MAX`](limits::RANGE_REVERSALS_MAX) ranges that begin before the one in
//!   front of them: no reader asks like that (as Apache does it).
//!
//! # Every range is a part of its own
//!
//! A server may make one part of ranges that overlap or are nearly adjacent (RFC 9110, 15.3.7.2); this one
//! does not. davix before 0.7 fails for good when a part is not exactly what it asked for, and falls back to
//! one request per range when a single one is left; newer ones merge what is nearer than 2000 bytes before
//! they ask, which leaves a server nothing to merge. It is safe as well: what is sent is never more than the
//! file and a head per range. Parts come in the order that was asked for.

use std::fmt;

use gridlane_core::{ByteRange, limits};

use crate::range::{RangeSpec, elements};

/// The ranges of a `Range` header: one or more, at most [`RANGES_MAX`](limits::RANGES_MAX).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeList {
    specs: Vec<RangeSpec>,
}

/// The answer to a `Range` header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeAnswer {
    /// 200 with everything, as if there were no such header.
    Whole,
    /// 206 with `Content-Range` and these bytes, not in parts: one range was asked for, or one is left
    /// (RFC 9110, 15.3.7: a client that asked for one need not understand parts).
    Single(ByteRange),
    /// 206 with a part for each of these, two or more, in this order.
    Multi(Vec<ByteRange>),
    /// 416: the file has none of the bytes.
    Unsatisfiable,
}

impl RangeList {
    /// Reads the header; `None` means that it is to be ignored (RFC 9110, 14.2).
    pub fn parse(text: &str) -> Option<RangeList> {
        let mut specs = Vec::new();
        for element in elements(text)? {
            if specs.len() == limits::RANGES_MAX {
                return None;
            }
            specs.push(RangeSpec::parse_element(element)?);
        }
        (!specs.is_empty()).then_some(RangeList { specs })
    }

    /// The way to ask for as many of `ranges`, from the first one on, as fit in a header of
    /// [`RANGE_HEADER_BYTES_MAX`](limits::RANGE_HEADER_BYTES_MAX) bytes, and how many those are; `None` when
    /// the first one is empty or there is none. They should be inside of the file: XRootD 5.5.3 promises too
    /// many bytes otherwise.
    pub fn batch(ranges: &[ByteRange]) -> Option<(RangeList, usize)> {
        RangeList::batch_within(ranges, limits::RANGE_HEADER_BYTES_MAX)
    }

    /// The same for a server that takes a header of `header_bytes_max` bytes.
    pub fn batch_within(ranges: &[ByteRange], header_bytes_max: usize) -> Option<(RangeList, usize)> {
        let mut specs = Vec::new();
        let mut header = String::from("bytes=");
        for range in ranges.iter().take(limits::RANGES_MAX) {
            let Some(spec) = RangeSpec::of(*range) else { break };
            // Writing to a string does not fail.
            let _ = spec.write_element(&mut header);
            if header.len() > header_bytes_max {
                break;
            }
            header.push(',');
            specs.push(spec);
        }
        let count = specs.len();
        (count > 0).then_some((RangeList { specs }, count))
    }

    /// The ranges as they were asked for.
    pub fn specs(&self) -> &[RangeSpec] {
        &self.specs
    }

    /// The answer for a file of `size` bytes. Ranges that it has no byte of are left out, and ends
    /// beyond its end are cut (RFC 9110, 14.1.2).
    pub fn resolve(&self, size: u64) -> RangeAnswer {
        let ranges: Vec<ByteRange> = self.specs.iter().filter_map(|spec| spec.resolve(size)).collect();
        let asked: u128 = ranges.iter().map(|range| u128::from(range.len())).sum();
        if asked > u128::from(size) {
            return RangeAnswer::Whole;
        }
        match ranges.as_slice() {
            [] => RangeAnswer::Unsatisfiable,
            [range] => RangeAnswer::Single(*range),
            _ if reversals(&ranges) > limits::RANGE_REVERSALS_MAX => RangeAnswer::Whole,
            _ => RangeAnswer::Multi(ranges),
        }
    }
}

/// The value of the header: `bytes=0-99,200-299`.
impl fmt::Display for RangeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes=")?;
        for (index, spec) in self.specs.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            spec.write_element(f)?;
        }
        Ok(())
    }
}

fn reversals(ranges: &[ByteRange]) -> usize {
    ranges.windows(2).filter(|pair| pair[1].start() < pair[0].start()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn resolve(text: &str, size: u64) -> RangeAnswer {
        RangeList::parse(text).unwrap_or_else(|| panic!("{text}")).resolve(size)
    }

    fn ranges(pairs: &[(u64, u64)]) -> Vec<ByteRange> {
        pairs.iter().map(|(start, end)| ByteRange::new(*start, *end)).collect()
    }

    #[test]
    fn what_is_answered() {
        use RangeAnswer::{Multi, Single, Unsatisfiable, Whole};
        let single = |start, end| Single(ByteRange::new(start, end));
        let multi = |pairs: &[(u64, u64)]| Multi(ranges(pairs));
        for (text, size, expected) in [
            // davix, curl -r, RFC 9110's examples.
            ("bytes=0-499,9500-9999", 10000, multi(&[(0, 500), (9500, 10000)])),
            ("bytes= 0-0, -1", 10000, multi(&[(0, 1), (9999, 10000)])),
            ("bytes=500-600,601-999", 10000, multi(&[(500, 601), (601, 1000)])),
            ("bytes=500-700,601-999", 10000, multi(&[(500, 701), (601, 1000)])),
            ("bytes=0-3,8-11", 20, multi(&[(0, 4), (8, 12)])),
            // The order is kept.
            ("bytes=5000-5009,0-9,5010-5019", 10000, multi(&[(5000, 5010), (0, 10), (5010, 5020)])),
            // Clamped, open, from the end; unsatisfiable ones are left out.
            ("bytes=0-9,900-5000", 1000, multi(&[(0, 10), (900, 1000)])),
            ("bytes=0-9,900-", 1000, multi(&[(0, 10), (900, 1000)])),
            ("bytes=0-9,1000-", 1000, single(0, 10)),
            ("bytes=1000-,-0,5000-6000", 1000, Unsatisfiable),
            ("bytes=0-,-1", 0, Unsatisfiable),
            ("bytes=5-,,", 10, single(5, 10)),
            // More than the file.
            ("bytes=0-,0-,0-,0-", 1000, Whole),
            ("bytes=0-999,0-0", 1000, Whole),
            ("bytes=-5000,5-9", 1000, Whole),
            ("bytes=0-18446744073709551615,0-18446744073709551615", u64::MAX, Whole),
            ("bytes=0-999", 1000, single(0, 1000)),
        ] {
            assert_eq!(resolve(text, size), expected, "{text}");
        }
    }

    #[test]
    fn what_is_ignored() {
        let list = |count: usize| format!("bytes={}", vec!["0-0"; count].join(","));
        assert!(RangeList::parse(&list(limits::RANGES_MAX)).is_some());
        assert_eq!(RangeList::parse(&list(limits::RANGES_MAX + 1)), None);
        for text in ["", "bytes", "bytes=", "bytes=,", "bytes=0-1,x", "bytes=0-1,9-8", "lines=0-1,2-3", "0-1"]
        {
            assert_eq!(RangeList::parse(text), None, "{text}");
        }
        let backwards = |count: u64| {
            let specs: Vec<_> = (0..count).rev().map(|at| format!("{0}-{0}", at * 1000)).collect();
            resolve(&format!("bytes={}", specs.join(",")), 1 << 20)
        };
        assert!(matches!(backwards(21), RangeAnswer::Multi(ranges) if ranges.len() == 21));
        assert_eq!(backwards(22), RangeAnswer::Whole);
    }

    #[test]
    fn batches_fit_a_header() {
        let ranges: Vec<_> = (0..2000u64).map(|at| ByteRange::at(at * 10_000_000_000, 4096)).collect();
        let (mut at, mut headers) = (0, 0);
        while let Some((list, count)) = RangeList::batch(&ranges[at..]) {
            let header = list.to_string();
            assert!(header.len() <= limits::RANGE_HEADER_BYTES_MAX, "{}", header.len());
            assert_eq!(RangeList::parse(&header), Some(list));
            (at, headers) = (at + count, headers + 1);
        }
        assert_eq!(at, ranges.len());
        assert!((15..30).contains(&headers), "{headers}");
        assert_eq!(RangeList::batch(&[ByteRange::new(5, 5)]), None);
    }

    proptest! {
        #[test]
        fn never_more_than_the_file_and_exactly_what_was_asked(
            pieces in prop::collection::vec((0u64..3000, 1u64..200), 1..30), size in 1u64..3000
        ) {
            let asked: Vec<_> = pieces.iter().map(|(start, len)| ByteRange::at(*start, *len)).collect();
            let (list, count) = RangeList::batch(&asked).unwrap();
            prop_assert_eq!(count, asked.len());
            let file = ByteRange::new(0, size);
            let there: Vec<_> =
                asked.iter().map(|range| range.intersection(file)).filter(|range| !range.is_empty()).collect();
            let sent = match list.resolve(size) {
                RangeAnswer::Whole => return Ok(()),
                RangeAnswer::Unsatisfiable => Vec::new(),
                RangeAnswer::Single(range) => vec![range],
                RangeAnswer::Multi(ranges) => ranges,
            };
            prop_assert!(sent.iter().map(|range| range.len()).sum::<u64>() <= size);
            prop_assert_eq!(sent, there);
        }

        #[test]
        fn never_panics(text in "(bytes[= ])?([0-9]{0,20}-[0-9]{0,20}[, ]*)*\\PC{0,3}", size: u64) {
            if let Some(list) = RangeList::parse(&text) {
                let _ = list.resolve(size);
            }
        }
    }
}
