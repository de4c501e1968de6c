//! The frame of TLS' records (RFC 8446, section 5): their headers, how long they are, where they end.
//!
//! Nothing here depends on whose code makes and opens them: see [`session`](crate::session).

use std::io::IoSliceMut;

use gridlane_core::limits::TLS_RECORD_BYTES_MAX;
use rustls::Error;

/// Type, version and length in front of every record.
pub(crate) const HEADER_BYTES: usize = 5;
/// The tag with which every cipher of TLS 1.3 proves that a record is genuine.
pub(crate) const TAG_BYTES: usize = 16;
/// A record is longer than its plaintext by header, content type and tag.
pub(crate) const OVERHEAD_BYTES: usize = HEADER_BYTES + 1 + TAG_BYTES;

/// Where the records end that bytes are sent in: a peer may want to find whole units of what is sent in each of them.
/// A unit is at most [`TLS_RECORD_BYTES_MAX`] long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordEnds {
    /// The first one, in bytes of plaintext from here.
    pub first: usize,
    /// Each further one, in bytes behind the one before.
    pub each: usize,
}

impl RecordEnds {
    /// Where nothing but the size of a record bounds them.
    pub const FULL: RecordEnds = RecordEnds { first: TLS_RECORD_BYTES_MAX, each: TLS_RECORD_BYTES_MAX };

    /// Ends that no peer would refuse: a record has a byte at least, and as many as it may have at most.
    pub(crate) fn bounded(self) -> RecordEnds {
        let bounded = |bytes: usize| bytes.clamp(1, TLS_RECORD_BYTES_MAX);
        RecordEnds { first: bounded(self.first), each: bounded(self.each) }
    }

    /// The last end that is not behind `bytes`; `bytes` itself where the first one is behind it.
    pub fn last_within(self, bytes: usize) -> usize {
        let RecordEnds { first, each } = self.bounded();
        match bytes.checked_sub(first) {
            Some(behind) => first + behind / each * each,
            None => bytes,
        }
    }

    /// The first end that is not in front of `bytes`.
    pub fn next_from(self, bytes: usize) -> usize {
        let RecordEnds { first, each } = self.bounded();
        match bytes.checked_sub(first) {
            Some(behind) => first.saturating_add(behind.div_ceil(each).saturating_mul(each)),
            None => first,
        }
    }

    /// Number of records that so many bytes take.
    pub(crate) fn count(self, bytes: usize) -> usize {
        let RecordEnds { first, each } = self.bounded();
        1 + bytes.saturating_sub(first).div_ceil(each)
    }
}

/// The places in `out` of `bytes` of plaintext, at most those of `N` records, in records of full size one behind the other: what is
/// put there is encrypted without having been copied. Returns how many places there are.
pub(crate) fn places<'a, const N: usize>(
    out: &'a mut [u8],
    bytes: usize,
    places: &mut [IoSliceMut<'a>; N],
) -> usize {
    let (mut rest, mut left, mut count) = (out, bytes, 0);
    for place in places {
        let plain_bytes = left.min(TLS_RECORD_BYTES_MAX);
        let record_bytes = plain_bytes + OVERHEAD_BYTES;
        if plain_bytes == 0 || rest.len() < record_bytes {
            break;
        }
        let (record, behind) = rest.split_at_mut(record_bytes);
        *place = IoSliceMut::new(&mut record[HEADER_BYTES..HEADER_BYTES + plain_bytes]);
        (rest, left, count) = (behind, left - plain_bytes, count + 1);
    }
    count
}

/// The outcome of opening records.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Where the plaintext ends.
    pub(crate) plain_end: usize,
    /// Where the ciphertext begins that is left.
    pub(crate) rest: usize,
    /// Length of the last record with data, from its header to its tag; 0: there was none.
    pub(crate) record_bytes: usize,
    pub(crate) stop: Option<Stop>,
}

/// Why no more records are opened.
#[derive(Debug)]
#[cfg_attr(not(feature = "own-records"), expect(dead_code, reason = "rustls says so itself"))]
pub(crate) enum Stop {
    /// The peer has said that it will send no more.
    Closed,
    /// The peer breaks the protocol, or has said that we do.
    Failed(Error),
}

/// The front of a record.
pub(crate) struct Header(pub(crate) [u8; HEADER_BYTES]);

impl Header {
    /// Length of the record with this header.
    pub(crate) fn record_bytes(&self) -> usize {
        HEADER_BYTES + usize::from(u16::from_be_bytes([self.0[3], self.0[4]]))
    }
}

/// Length of the first record, protected or not, if all of it is there.
pub(crate) fn first_record(bytes: &[u8]) -> Option<usize> {
    let header = Header(*bytes.first_chunk::<HEADER_BYTES>()?);
    Some(header.record_bytes()).filter(|len| *len <= bytes.len())
}
