//! Before the target becomes visible: does the file have the bytes that came, and did an earlier run leave the right ones?
//!
//! What a lane writes is hashed on its way, and the file lies where other programs write too: one that was cut and then
//! written behind the cut is as long as it should be, and the sum of what came is right. So the file is looked at, and where
//! that says little, its bytes are read back and compared with what came.
//!
//! What an earlier run left is vouched for by adler32, for which other bytes are made up in no time. The sources are asked for
//! stronger checksums of such a file, which are votes as all that they state.

use std::time::Duration;

use gridlane_core::limits::{LONG_COPY_MIN, READ_BACK_BYTES_PER_S, READ_BACK_SHARE, READ_BACKS_MAX};
use gridlane_core::{ByteRange, ChecksumKind, Error, ErrorKind, Fault, Result};

use crate::digests;
use crate::resume::adler32_of;
use crate::run::Run;
use crate::verdict::Basis;
use gridlane_plan::judge::Piece;

/// What is known of the bytes that an earlier run has left.
#[derive(Default)]
pub(crate) struct Earlier {
    /// Where they are; nowhere once they were thrown away.
    pub(crate) ranges: Vec<ByteRange>,
    /// The sources were asked for strong checksums because of them.
    pub(crate) is_compared_strongly: bool,
    /// How often the file was read back and had other bytes than had come.
    damages: u32,
}

impl Run<'_> {
    /// Whether the file may become visible, as far as that can be known. `false`: bytes are missing again.
    pub(crate) async fn is_fit(&mut self) -> Result<bool> {
        if self.target.partial().is_none() {
            return Ok(true);
        }
        self.has_what_came().await
    }

    /// Bytes of an earlier run are used: asks the sources for strong checksums, beside the data. What they say are votes like
    /// any other.
    pub(crate) fn ask_strong(&mut self) {
        if self.told().is_some() || self.is_described() || self.digest_kind().is_strong() {
            return;
        }
        self.earlier.is_compared_strongly = true;
        let now = self.pace.now();
        for (number, replica) in self.replicas.iter().enumerate() {
            if replica.dead.is_some() {
                continue;
            }
            self.votes.ask_strong(number, now);
            digests::ask_strong(self.client.clone(), replica.source.clone(), self.notify.clone());
        }
    }

    /// The bytes are not as they should be. What an earlier run has left is the first to be doubted; `false`: it was, or there
    /// is none.
    pub(crate) fn lose_earlier(&mut self) -> bool {
        let ranges = std::mem::take(&mut self.earlier.ranges);
        if ranges.is_empty() || self.target.pieces().is_some() {
            return false;
        }
        self.lose(&ranges);
        self.resumed_bytes = 0;
        true
    }

    /// The strongest kind of checksum that the bytes were compared with.
    pub(crate) fn verified_with(&self) -> Option<ChecksumKind> {
        let pieces = self.target.pieces().filter(|_| self.verified == Some(Basis::Metalink));
        let pieces = pieces.map(|pieces| pieces.hashes.kind());
        let kinds = self.verified_with.iter().copied().chain(pieces);
        kinds.filter(|_| self.verified.is_some()).max_by_key(|kind| kind.strength())
    }

    /// Compares the file with what came, where there is a reason to.
    async fn has_what_came(&mut self) -> Result<bool> {
        let Some(partial) = self.target.partial() else { return Ok(true) };
        let size_bytes = self.size_bytes.unwrap_or(0);
        let is_doubtful = tokio::task::block_in_place(|| partial.is_doubtful(size_bytes))?;
        // A checksum that cannot be put together from those of ranges was just computed from the file, and compared.
        let was_read = self.verified_with.iter().any(|kind| *kind != ChecksumKind::Adler32);
        let is_long = is_long(self.pace.elapsed(), size_bytes);
        if !is_doubtful && (was_read || self.resumed_bytes == 0 && !is_long) {
            return Ok(true);
        }
        let pieces: Vec<Piece> = self.target.ledger().pieces().copied().collect();
        let damaged = self.read_back(move |file| {
            let differs = |piece: &Piece| adler32_of(file, piece.range, |_| {}) != Some(piece.adler32);
            pieces.into_iter().filter(differs).map(|piece| piece.range).collect::<Vec<ByteRange>>()
        });
        let damaged = damaged.await?;
        if damaged.is_empty() {
            return Ok(true);
        }
        self.earlier.damages += 1;
        if self.earlier.damages > READ_BACKS_MAX {
            let message = "the file does not keep what is written to it: another program writes to it, or its disk is bad";
            return Err(Error::new(ErrorKind::LocalIo, message).fault(Fault::Local));
        }
        self.lose(&damaged);
        Ok(false)
    }

    /// Has ranges of the file fetched again, whoever sent them.
    fn lose(&mut self, ranges: &[ByteRange]) {
        let lost: Vec<Piece> = {
            let mut ledger = self.target.ledger();
            ranges.iter().flat_map(|range| ledger.lose(*range)).collect()
        };
        self.wrong_bytes += self.bytes_of_this_run(&lost);
        let lost: Vec<ByteRange> = lost.iter().map(|piece| piece.range).collect();
        let believed = self.believed();
        self.refetch(&lost, &believed);
    }
}

/// Whether a copy that took `took` was long enough to look at its bytes again: reading them is a small part of its time, or
/// they have lain there for long.
fn is_long(took: Duration, size_bytes: u64) -> bool {
    let read = Duration::from_secs_f64(size_bytes as f64 / READ_BACK_BYTES_PER_S as f64);
    took >= LONG_COPY_MIN || took >= Duration::from_secs(1) && took >= read.saturating_mul(READ_BACK_SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_long_by_its_bytes_or_by_the_clock() {
        let secs = Duration::from_secs;
        for (took, size_bytes, expected) in [
            (Duration::from_millis(900), 1, false),
            (secs(1), 1 << 20, true),
            (secs(10), 100 << 20, true),
            (secs(10), 10 << 30, false),
            (LONG_COPY_MIN, 1 << 40, true),
        ] {
            assert_eq!(is_long(took, size_bytes), expected, "{took:?} for {size_bytes}");
        }
    }
}
