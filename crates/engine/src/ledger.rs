//! Which bytes are there, what their checksum is, and who sent them.
//!
//! Two lanes may carry the same bytes for a moment (a hedge). So that each byte is written once and its
//! sender is known, a lane *claims* bytes before it writes them and *commits* them after. Only what was
//! not claimed is written; whoever comes second throws its copy away.

use std::collections::{BTreeMap, BTreeSet};

use gridlane_core::checksum::{ADLER32_EMPTY, adler32_combine};
use gridlane_core::{ByteRange, RangeSet};

/// Who sent bytes: a source of this copy by its number, or, from [`EARLIER`] on, a source that only an
/// earlier copy's journal knows.
pub(crate) type Sender = u32;

/// First number of senders that are no source of this copy.
pub(crate) const EARLIER: Sender = 1 << 16;

/// Adjoining bytes of one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) range: ByteRange,
    pub(crate) adler32: u32,
    pub(crate) sender: Sender,
}

/// All pieces of the object that are there.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    claimed: RangeSet,
    /// Bytes of all pieces.
    committed_bytes: u64,
    /// By offset; none overlap; adjoining ones have different senders.
    pieces: BTreeMap<u64, Piece>,
    /// Whose bytes are not taken.
    refused: BTreeSet<Sender>,
    /// Committed and not told to the journal yet.
    unjournaled: Vec<Piece>,
    unjournaled_bytes: u64,
}

impl Ledger {
    /// Reserves for `sender` what of `range` nobody has; the caller writes these parts, then commits them.
    /// A sender that is refused gets nothing.
    pub(crate) fn claim(&mut self, range: ByteRange, sender: Sender) -> Vec<ByteRange> {
        if self.refused.contains(&sender) {
            return Vec::new();
        }
        let missing = self.claimed.missing(range);
        self.claimed.insert(range);
        missing
    }

    /// Records a claimed piece that has been written.
    pub(crate) fn commit(&mut self, piece: Piece) {
        debug_assert!(self.claimed.contains(piece.range));
        self.add(piece);
        self.unjournaled_bytes += piece.range.len();
        match self.unjournaled.last_mut() {
            Some(last) if adjoin(last, &piece) => *last = merged(last, &piece),
            _ => self.unjournaled.push(piece),
        }
    }

    /// Records a piece that a journal vouched for and whose bytes were checked.
    pub(crate) fn restore(&mut self, piece: Piece) {
        for part in self.claim(piece.range, piece.sender) {
            if part == piece.range {
                self.add(piece);
            } else {
                // A later record lies across it; without bytes its checksum cannot be cut. Fetched again.
                self.claimed.remove(part);
            }
        }
    }

    fn add(&mut self, piece: Piece) {
        self.committed_bytes += piece.range.len();
        let mut piece = piece;
        if let Some((_, before)) = self.pieces.range(..piece.range.start()).next_back()
            && adjoin(before, &piece)
        {
            piece = merged(before, &piece);
        }
        if let Some(after) = self.pieces.get(&piece.range.end())
            && adjoin(&piece, after)
        {
            let after = *after;
            self.pieces.remove(&after.range.start());
            piece = merged(&piece, &after);
        }
        self.pieces.insert(piece.range.start(), piece);
    }

    /// From now on takes bytes from anybody but `senders`.
    pub(crate) fn refuse(&mut self, senders: BTreeSet<Sender>) {
        self.refused = senders;
    }

    /// Forgets every piece of senders that are refused; returns them: their bytes are missing now. A
    /// piece that was being written at that time is found the next time.
    pub(crate) fn forget_refused(&mut self) -> Vec<Piece> {
        let refused = std::mem::take(&mut self.refused);
        let missing = self.forget(|sender| refused.contains(&sender));
        self.refused = refused;
        missing
    }

    /// Forgets every piece of a sender that `is_bad` names; returns them: their bytes are missing now.
    pub(crate) fn forget(&mut self, is_bad: impl Fn(Sender) -> bool) -> Vec<Piece> {
        let bad: Vec<Piece> = self.pieces.values().filter(|piece| is_bad(piece.sender)).copied().collect();
        for Piece { range, .. } in &bad {
            self.pieces.remove(&range.start());
            self.claimed.remove(*range);
            self.committed_bytes -= range.len();
        }
        self.unjournaled.retain(|piece| !is_bad(piece.sender));
        bad
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Ledger::default();
    }

    /// Bytes that a sender contributed.
    pub(crate) fn bytes_of(&self, sender: Sender) -> u64 {
        self.pieces.values().filter(|piece| piece.sender == sender).map(|piece| piece.range.len()).sum()
    }

    /// Everyone who contributed, smallest contribution first.
    pub(crate) fn senders(&self) -> Vec<Sender> {
        let mut bytes: BTreeMap<Sender, u64> = BTreeMap::new();
        for piece in self.pieces.values() {
            *bytes.entry(piece.sender).or_default() += piece.range.len();
        }
        let mut senders: Vec<_> = bytes.into_iter().collect();
        senders.sort_by_key(|(sender, bytes)| (*bytes, *sender));
        senders.into_iter().map(|(sender, _)| sender).collect()
    }

    /// Whether everything that was claimed has been committed.
    pub(crate) fn is_settled(&self) -> bool {
        self.claimed.len() == self.committed_bytes
    }

    /// The parts of an object of `size_bytes` that nobody has claimed.
    pub(crate) fn missing(&self, size_bytes: u64) -> Vec<ByteRange> {
        self.claimed.missing(ByteRange::new(0, size_bytes))
    }

    /// All pieces, ascending.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.values()
    }

    /// The adler32 of the whole object; `None` while bytes are missing.
    pub(crate) fn adler32(&self, size_bytes: u64) -> Option<u32> {
        let mut at = 0;
        let mut adler32 = ADLER32_EMPTY;
        for piece in self.pieces.values() {
            if piece.range.start() != at {
                return None;
            }
            adler32 = adler32_combine(adler32, piece.adler32, piece.range.len());
            at = piece.range.end();
        }
        (at == size_bytes).then_some(adler32)
    }

    /// Bytes committed since the journal was last told.
    pub(crate) fn unjournaled_bytes(&self) -> u64 {
        self.unjournaled_bytes
    }

    /// Takes the pieces that the journal has not been told of.
    pub(crate) fn take_unjournaled(&mut self) -> Vec<Piece> {
        self.unjournaled_bytes = 0;
        let mut pieces = std::mem::take(&mut self.unjournaled);
        // Lanes took turns: put each one's adjoining pieces together, so that a record covers more.
        pieces.sort_by_key(|piece| piece.range.start());
        pieces.dedup_by(|after, before| {
            let joins = adjoin(before, after);
            if joins {
                *before = merged(before, after);
            }
            joins
        });
        pieces
    }
}

fn adjoin(before: &Piece, after: &Piece) -> bool {
    before.sender == after.sender && before.range.end() == after.range.start()
}

fn merged(before: &Piece, after: &Piece) -> Piece {
    Piece {
        range: ByteRange::new(before.range.start(), after.range.end()),
        adler32: adler32_combine(before.adler32, after.adler32, after.range.len()),
        sender: before.sender,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_core::checksum::adler32;
    use proptest::prelude::*;

    fn object() -> Vec<u8> {
        (0..200_u32).map(|at| (at * 7 + at / 3) as u8).collect()
    }

    fn write(ledger: &mut Ledger, range: ByteRange, sender: Sender, object: &[u8]) -> u64 {
        let mut fresh = 0;
        for part in ledger.claim(range, sender) {
            let bytes = &object[part.start() as usize..part.end() as usize];
            ledger.commit(Piece { range: part, adler32: adler32(bytes), sender });
            fresh += part.len();
        }
        fresh
    }

    proptest! {
        /// However lanes overlap, each byte is claimed once, and the checksum is that of the object.
        #[test]
        fn every_byte_once_and_the_checksum_right(writes in prop::collection::vec((0_u64..200, 1_u64..80, 0_u32..4), 0..60), bad in 0_u32..4) {
            let object = object();
            let mut ledger = Ledger::default();
            let mut fresh = 0;
            for (start, len, sender) in writes {
                fresh += write(&mut ledger, ByteRange::new(start, (start + len).min(200)), sender, &object);
            }
            prop_assert_eq!(fresh, ledger.senders().iter().map(|sender| ledger.bytes_of(*sender)).sum::<u64>());
            let forgotten: u64 = ledger.forget(|sender| sender == bad).iter().map(|piece| piece.range.len()).sum();
            prop_assert_eq!(ledger.bytes_of(bad), 0);
            let again = write(&mut ledger, ByteRange::new(0, 200), 9, &object);
            prop_assert_eq!(again, 200 - fresh + forgotten);
            prop_assert_eq!(ledger.adler32(200), Some(adler32(&object)));
            for piece in ledger.take_unjournaled() {
                let bytes = &object[piece.range.start() as usize..piece.range.end() as usize];
                prop_assert_eq!(piece.adler32, adler32(bytes));
            }
            prop_assert_eq!(ledger.unjournaled_bytes(), 0);
            prop_assert!(ledger.is_settled());
        }
    }

    #[test]
    fn pieces_of_one_sender_become_one() {
        let object = object();
        let mut ledger = Ledger::default();
        for at in [0, 20, 10, 30] {
            write(&mut ledger, ByteRange::at(at, 10), 1, &object);
        }
        assert_eq!(ledger.pieces().count(), 1);
        assert_eq!(ledger.take_unjournaled().len(), 1);
        assert_eq!(ledger.adler32(200), None);
    }

    #[test]
    fn who_is_refused_adds_nothing_and_what_it_was_writing_is_found() {
        let object = object();
        let mut ledger = Ledger::default();
        let claimed = ledger.claim(ByteRange::new(0, 10), 1)[0];
        ledger.refuse(BTreeSet::from([1]));
        assert_eq!(write(&mut ledger, ByteRange::new(10, 20), 1, &object), 0);
        assert_eq!(write(&mut ledger, ByteRange::new(10, 20), 2, &object), 10);
        assert!(ledger.forget_refused().is_empty() && !ledger.is_settled());
        ledger.commit(Piece { range: claimed, adler32: 5, sender: 1 });
        assert_eq!(ledger.forget_refused()[0].range, claimed);
        assert!(ledger.is_settled());
    }

    #[test]
    fn a_restored_piece_never_overlaps() {
        let mut ledger = Ledger::default();
        ledger.restore(Piece { range: ByteRange::new(0, 50), adler32: 1, sender: EARLIER });
        ledger.restore(Piece { range: ByteRange::new(40, 60), adler32: 2, sender: EARLIER });
        assert_eq!(ledger.pieces().count(), 1);
        assert_eq!(ledger.claim(ByteRange::new(0, 60), 0), [ByteRange::new(50, 60)]);
    }
}
