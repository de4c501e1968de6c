//! Streams: reads of which each begins where the one before makes one expect it.
//!
//! A read continues a stream when it begins at its end or a little behind it (*sequential*), when it is as far from the last
//! one as that was from the one before (*strided*), or when it ends where the last one began (*backward*). Each hit doubles
//! what is read ahead, up to a cap; the next part is asked for when half of the last one is consumed. Up to eight streams are
//! followed: programs read columns in parallel.

use gridlane_core::ByteRange;
use gridlane_core::limits::{READ_AHEAD_BYTES, READ_AHEAD_BYTES_MAX, READ_STREAMS_MAX};

/// Hits after which a stream is believed when its reads are as far apart as they are long, or farther.
const STRIDES: u32 = 2;
/// Elements that a strided stream is ahead at most.
const STRIDED_ELEMENTS_MAX: u64 = 512;

/// The way a stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Unknown,
    Forward,
    Backward,
    /// From the start of a read to that of the next, in bytes.
    Strided(i64),
}

#[derive(Clone, Debug)]
struct Stream {
    last: ByteRange,
    way: Way,
    hits: u32,
    window_bytes: u64,
    /// The end of what was read ahead: the first byte behind it, or for a backward stream its first byte.
    ahead_to: u64,
    used_at: u64,
}

/// The streams of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams {
    streams: Vec<Stream>,
    reads: u64,
}

/// The cap of a window, and the gap that a stream may skip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    /// Bytes that the path holds: B x R.
    pub(crate) holds_bytes: u64,
    /// Size of the file.
    pub(crate) size_bytes: u64,
}

impl Streams {
    /// A call read `range`: what should be read ahead of it, in order, with nothing that was handed out before.
    pub(crate) fn read(&mut self, range: ByteRange, reach: Reach) -> Vec<ByteRange> {
        self.reads += 1;
        let found = self.streams.iter().position(|stream| stream.follows(range, reach).is_some());
        let Some(at) = found else {
            if self.streams.len() == READ_STREAMS_MAX {
                let oldest = self
                    .streams
                    .iter()
                    .enumerate()
                    .min_by_key(|(_, stream)| stream.used_at)
                    .map(|(at, _)| at);
                oldest.map(|at| self.streams.swap_remove(at));
            }
            self.streams.push(Stream {
                last: range,
                way: Way::Unknown,
                hits: 0,
                window_bytes: READ_AHEAD_BYTES / 2,
                ahead_to: range.end(),
                used_at: self.reads,
            });
            // The first read of a file that begins at its start is a stream until it shows otherwise.
            return Vec::new();
        };
        let reads = self.reads;
        let stream = &mut self.streams[at];
        stream.used_at = reads;
        stream.advance(range, reach)
    }
}

impl Stream {
    /// The way in which `range` continues the stream, if it does.
    fn follows(&self, range: ByteRange, reach: Reach) -> Option<Way> {
        let step = range.start().checked_signed_diff(self.last.start())?;
        if self.way == Way::Strided(step) {
            return Some(self.way);
        }
        let skip = reach.holds_bytes.min(self.window_bytes.max(2 * self.last.len()));
        if (self.last.end()..=self.last.end().saturating_add(skip)).contains(&range.start()) {
            return Some(Way::Forward);
        }
        if range.end() <= self.last.start() && self.last.start() - range.end() <= self.last.len() {
            return Some(Way::Backward);
        }
        // Two reads show no stride; the third one that is as far does.
        if self.way == Way::Unknown && self.hits == 0 && step != 0 && range.len() == self.last.len() {
            return Some(Way::Strided(step));
        }
        None
    }

    fn advance(&mut self, range: ByteRange, reach: Reach) -> Vec<ByteRange> {
        let Some(mut way) = self.follows(range, reach) else { return Vec::new() };
        let step = range.start().checked_signed_diff(self.last.start()).unwrap_or(0);
        let has_gap = range.start() > self.last.end();
        // A forward stream whose gaps are all alike and larger than its reads is strided.
        if way == Way::Forward
            && has_gap
            && (range.start() - self.last.end()) > 2 * range.len()
            && range.len() == self.last.len()
        {
            way = Way::Strided(step);
        }
        let is_same = way == self.way;
        self.hits = if is_same || self.way == Way::Unknown { self.hits + 1 } else { 1 };
        if !is_same {
            self.ahead_to = if way == Way::Backward { range.start() } else { range.end() };
        }
        (self.way, self.last) = (way, range);
        let cap = READ_AHEAD_BYTES_MAX.max(2 * reach.holds_bytes);
        match way {
            Way::Unknown => Vec::new(),
            Way::Strided(stride) => {
                if self.hits < STRIDES {
                    return Vec::new();
                }
                self.strided(range, stride, cap, reach)
            }
            Way::Forward => {
                self.ahead_to = self.ahead_to.max(range.end());
                if self.ahead_to - range.end() > self.window_bytes / 2 {
                    return Vec::new();
                }
                self.window_bytes = (2 * self.window_bytes).min(cap);
                let to = range.end().saturating_add(self.window_bytes).min(reach.size_bytes);
                let ahead = ByteRange::new(self.ahead_to, to);
                self.ahead_to = self.ahead_to.max(to);
                Vec::from_iter(Some(ahead).filter(|ahead| !ahead.is_empty()))
            }
            Way::Backward => {
                self.ahead_to = self.ahead_to.min(range.start());
                if range.start() - self.ahead_to > self.window_bytes / 2 {
                    return Vec::new();
                }
                self.window_bytes = (2 * self.window_bytes).min(cap);
                let from = range.start().saturating_sub(self.window_bytes);
                let ahead = ByteRange::new(from, self.ahead_to);
                self.ahead_to = self.ahead_to.min(from);
                Vec::from_iter(Some(ahead).filter(|ahead| !ahead.is_empty()))
            }
        }
    }

    fn strided(&mut self, range: ByteRange, stride: i64, cap: u64, reach: Reach) -> Vec<ByteRange> {
        let wanted = 2_u64
            .saturating_pow(self.hits.min(16))
            .min(STRIDED_ELEMENTS_MAX)
            .min((cap / range.len().max(1)).max(1));
        let mut ahead = Vec::new();
        let mut at = range.start();
        for _ in 0..wanted {
            let Some(next) = at.checked_add_signed(stride).filter(|next| *next < reach.size_bytes) else {
                break;
            };
            at = next;
            let is_new =
                if stride > 0 { at >= self.ahead_to } else { at < self.ahead_to || self.hits == STRIDES };
            if is_new {
                ahead.push(ByteRange::at(at, range.len()));
            }
        }
        if let Some(last) = ahead.last() {
            self.ahead_to = if stride > 0 { last.end() } else { last.start() };
        }
        ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REACH: Reach = Reach { holds_bytes: 3_000_000, size_bytes: 1_000_000_000 };

    fn hull(ranges: &[ByteRange]) -> Option<ByteRange> {
        Some(ByteRange::new(ranges.first()?.start(), ranges.last()?.end()))
    }

    #[test]
    fn windows_double_and_are_asked_for_once() {
        let mut streams = Streams::default();
        let (mut ahead, mut ends, mut at) = (0, Vec::new(), 0);
        for _ in 0..20_000 {
            let parts = streams.read(ByteRange::at(at, 1000), REACH);
            at += 1000;
            if let Some(hull) = hull(&parts) {
                assert_eq!(hull.start(), ahead.max(at));
                ahead = hull.end();
                ends.push(hull.len());
            }
        }
        assert!(ends[0] <= READ_AHEAD_BYTES && ends.iter().any(|len| *len > 1_000_000), "{ends:?}");
        assert!(ahead - at <= 2 * REACH.holds_bytes, "the cap holds");
    }

    #[test]
    fn strides_are_read_without_their_gaps() {
        let mut streams = Streams::default();
        let mut ahead: Vec<ByteRange> = Vec::new();
        for number in 0..100 {
            ahead.extend(streams.read(ByteRange::at(number * 50_000_000 % 1_000_000_000, 1000), REACH));
        }
        assert!(
            !ahead.is_empty()
                && ahead.iter().all(|range| range.len() == 1000 && range.start() % 50_000_000 == 0)
        );
    }

    #[test]
    fn backward_reads_are_a_stream() {
        let mut streams = Streams::default();
        let mut ahead = Vec::new();
        for number in (500..1000).rev() {
            ahead.extend(streams.read(ByteRange::at(number * 10_000, 10_000), REACH));
        }
        assert!(ahead.windows(2).all(|pair| pair[1].end() == pair[0].start()), "{ahead:?}");
        assert!(ahead.len() > 3);
    }

    #[test]
    fn random_reads_are_none_and_eight_streams_are_followed() {
        let mut streams = Streams::default();
        let mut at = 1_u64;
        for _ in 0..1000 {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let parts = streams.read(
                ByteRange::at((at >> 20) % 900_000_000, 100 + (at >> 50) % 5000),
                Reach { holds_bytes: 10_000, ..REACH },
            );
            assert!(parts.is_empty(), "{parts:?}");
        }
        let mut streams = Streams::default();
        let mut found = 0;
        for number in 0..50 {
            for stream in 0..8 {
                let start = stream * 100_000_000 + number * 10_000;
                found += usize::from(
                    !streams
                        .read(ByteRange::at(start, 10_000), Reach { holds_bytes: 100_000, ..REACH })
                        .is_empty(),
                );
            }
        }
        assert!(found >= 8, "{found}");
    }
}
