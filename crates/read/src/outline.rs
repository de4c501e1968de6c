//! The metadata of a file of a [format](mod@crate::format) that is recognised: asked for when the head is there, in one step for
//! what it names, and once more for what that names.
//!
//! It is an exemption of the budget, as the opening is, with a bound of its own: [`READ_FORMAT_BYTES`], and no more than the path
//! brings in four round trips, or in [`TIME_S`]. A file that lies costs that, and nothing else.

use gridlane_core::limits::{READ_FORMAT_BYTES, READ_FORMAT_STEPS_MAX, READ_HEAD_BYTES};
use gridlane_core::{ByteRange, RangeSet};

use crate::budget::Purpose;
use crate::format::{MARK_BYTES, outline};
use crate::payload::Payload;
use crate::reader::Reader;
use crate::vector::{joined, merged};

/// Round trips in which the path can bring what a format names.
const ROUND_TRIPS: f64 = 4.0;
/// Time for the same, in seconds, on a path that is shorter.
const TIME_S: f64 = 0.025;

/// The state of one file.
#[derive(Debug, Default)]
pub(crate) struct Following {
    /// Bytes that say more when they are there.
    awaited: Option<ByteRange>,
    steps: u32,
    left_bytes: u64,
    asked: RangeSet,
}

impl<P: Payload> Reader<P> {
    /// Waits for the head of a file of `size_bytes`. One that comes as a whole anyway is only recognised.
    pub(crate) fn begin_outline(&mut self, size_bytes: u64, comes_whole: bool) {
        if !self.settings.follows_formats {
            return;
        }
        self.following.awaited = Some(ByteRange::new(0, size_bytes.min(MARK_BYTES)));
        let path = self.path();
        let path_bytes = (path.rate_bytes_per_s * (ROUND_TRIPS * path.round_trip_s).max(TIME_S)) as u64;
        let most = READ_FORMAT_BYTES.min(path_bytes.max(READ_HEAD_BYTES)).min(self.settings.memory_bytes / 4);
        self.following.left_bytes = if comes_whole { 0 } else { most };
    }

    /// Looks at what has come, and has what it names asked for.
    pub(crate) fn follow_format(&mut self) {
        let (Some(size_bytes), Some(awaited)) = (self.size_bytes, self.following.awaited) else { return };
        if !self.pages.present().contains(awaited) {
            return;
        }
        self.following.steps += 1;
        let found = outline(size_bytes, |range| self.pages.bytes(range));
        self.explain.format = found.format;
        // A payload without bytes says nothing.
        let is_blind = found.lacks.is_some_and(|lacks| self.pages.present().contains(lacks));
        let is_over = is_blind || self.following.steps >= READ_FORMAT_STEPS_MAX;
        self.following.awaited = found.lacks.filter(|_| !is_over);
        let mut fresh = Vec::new();
        for range in found.wanted {
            let parts: Vec<ByteRange> = self
                .free_parts(range)
                .into_iter()
                .flat_map(|part| self.following.asked.missing(part))
                .collect();
            let bytes: u64 = parts.iter().map(|part| part.len()).sum();
            if bytes <= self.following.left_bytes {
                self.following.left_bytes -= bytes;
                parts.iter().for_each(|part| {
                    self.following.asked.insert(*part);
                });
                fresh.extend(parts);
            }
        }
        let gap_bytes = self.path().gap_bytes(self.pipelines()) as u64;
        let may_fill = |gap: ByteRange| self.free_parts(gap) == [gap];
        let (pieces, filled_bytes) = merged(joined(fresh), gap_bytes, self.following.left_bytes, may_fill);
        self.following.left_bytes -= filled_bytes;
        pieces.into_iter().rev().for_each(|piece| self.ahead.push_front((piece, Purpose::Format)));
    }
}
