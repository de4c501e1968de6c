//! Which bytes are there, what their checksum is, and which source sent them.
//!
//! Two lanes may carry the same bytes for a moment (a hedge). So that each byte is written once and its
//! sender is known, a lane *claims* bytes before it writes them and *commits* them after. Only what was
//! not claimed is written; the lane that comes second throws its copy away.

use std::collections::{BTreeMap, BTreeSet};

use gridlane_core::checksum::{ADLER32_EMPTY, adler32_combine};
use gridlane_core::limits::LEDGER_PIECE_BYTES_MAX;
use gridlane_core::{ByteRange, RangeSet};

/// The sender of bytes: a source of this copy by its number, or, from [`EARLIER`] on, a source that only an
/// earlier copy's journal knows.
pub type Sender = u32;

/// First number of senders that are no source of this copy.
pub const EARLIER: Sender = 1 << 16;

/// Adjoining bytes of one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where they lie.
    pub range: ByteRange,
    /// Their checksum.
    pub adler32: u32,
    /// Their source.
    pub sender: Sender,
}

/// All pieces of the object that are there.
#[derive(Debug, Default)]
pub struct Ledger {
    claimed: RangeSet,
    /// Bytes of all pieces.
    committed_bytes: u64,
    /// Bytes of the pieces of each sender that has some. Progress is told several times a second, and a file in many
    /// pieces has too many to count them for it.
    sent_bytes: BTreeMap<Sender, u64>,
    /// By offset; none overlap. Adjoining ones of one sender are one, up to [`LEDGER_PIECE_BYTES_MAX`]: without its bytes a
    /// piece cannot be cut, and what is lost of it is all of it.
    pieces: BTreeMap<u64, Piece>,
    /// Pieces end at multiples of this, so that each part with a checksum of its own can be forgotten; 0:
    /// nowhere.
    boundary_bytes: u64,
    /// Ranges that were compared with a checksum of their own: right, from whichever sender.
    verified: RangeSet,
    /// By number of the boundary in front: how often bytes behind it were forgotten. What was hashed before may
    /// have been written anew since.
    epochs: BTreeMap<u64, u64>,
    /// Senders whose bytes are not taken.
    refused: BTreeSet<Sender>,
    /// Committed and not told to the journal yet.
    unjournaled: Vec<Piece>,
    unjournaled_bytes: u64,
}

impl Ledger {
    /// A ledger whose pieces end at multiples of `boundary_bytes` at the latest; what is committed must not
    /// lie across one.
    pub fn with_boundaries(boundary_bytes: u64) -> Ledger {
        Ledger { boundary_bytes, ..Ledger::default() }
    }

    /// Reserves for `sender` the parts of `range` that are not claimed; the caller writes these parts, then commits them.
    /// A sender that is refused gets nothing.
    pub fn claim(&mut self, range: ByteRange, sender: Sender) -> Vec<ByteRange> {
        if self.refused.contains(&sender) {
            return Vec::new();
        }
        let missing = self.claimed.missing(range);
        self.claimed.insert(range);
        missing
    }

    /// Records a claimed piece that has been written.
    pub fn commit(&mut self, piece: Piece) {
        debug_assert!(self.claimed.contains(piece.range));
        self.add(piece);
        self.unjournaled_bytes += piece.range.len();
        let boundary_bytes = self.boundary_bytes;
        match self.unjournaled.last_mut() {
            Some(last) if adjoin(last, &piece, boundary_bytes) => *last = merged(last, &piece),
            _ => self.unjournaled.push(piece),
        }
    }

    /// Records a piece that a journal vouched for and whose bytes were checked.
    pub fn restore(&mut self, piece: Piece) {
        for part in self.claim(piece.range, piece.sender) {
            if part == piece.range {
                self.add(piece);
            } else {
                // A later record lies across it; without bytes its checksum cannot be cut. Fetched again.
                self.claimed.remove(part);
            }
        }
    }

    /// Takes back a piece that was forgotten and whose bytes are still there. `false`: another one has claimed some of
    /// it, or its sender is refused.
    pub fn regain(&mut self, piece: Piece) -> bool {
        let is_free =
            self.claimed.missing(piece.range) == [piece.range] && !self.refused.contains(&piece.sender);
        if is_free {
            self.claimed.insert(piece.range);
            self.commit(piece);
        }
        is_free
    }

    fn add(&mut self, piece: Piece) {
        self.committed_bytes += piece.range.len();
        *self.sent_bytes.entry(piece.sender).or_default() += piece.range.len();
        let mut piece = piece;
        if let Some((_, before)) = self.pieces.range(..piece.range.start()).next_back()
            && adjoin(before, &piece, self.boundary_bytes)
        {
            piece = merged(before, &piece);
        }
        if let Some(after) = self.pieces.get(&piece.range.end())
            && adjoin(&piece, after, self.boundary_bytes)
        {
            let after = *after;
            self.pieces.remove(&after.range.start());
            piece = merged(&piece, &after);
        }
        self.pieces.insert(piece.range.start(), piece);
    }

    /// From now on takes bytes from all but `senders`.
    pub fn refuse(&mut self, senders: BTreeSet<Sender>) {
        self.refused = senders;
    }

    /// Forgets every piece of senders that are refused; returns them: their bytes are missing now. A
    /// piece that was being written at that time is found the next time.
    pub fn forget_refused(&mut self) -> Vec<Piece> {
        let refused = std::mem::take(&mut self.refused);
        let missing = self.forget(|sender| refused.contains(&sender));
        self.refused = refused;
        missing
    }

    /// Forgets every piece of a sender that `is_bad` names, unless it is verified; returns them: their bytes
    /// are missing now.
    pub fn forget(&mut self, is_bad: impl Fn(Sender) -> bool) -> Vec<Piece> {
        self.forget_pieces(ByteRange::new(0, u64::MAX), |piece| is_bad(piece.sender))
    }

    fn forget_pieces(&mut self, within: ByteRange, is_bad: impl Fn(&Piece) -> bool) -> Vec<Piece> {
        let is_bad = |verified: &RangeSet, piece: &Piece| {
            within.contains(piece.range) && is_bad(piece) && !verified.contains(piece.range)
        };
        let inside = self.pieces.range(within.start()..within.end());
        let bad: Vec<Piece> =
            inside.map(|(_, piece)| *piece).filter(|piece| is_bad(&self.verified, piece)).collect();
        for Piece { range, sender, .. } in &bad {
            self.pieces.remove(&range.start());
            self.claimed.remove(*range);
            self.committed_bytes -= range.len();
            if let Some(bytes) = self.sent_bytes.get_mut(sender) {
                *bytes -= range.len();
                if *bytes == 0 {
                    self.sent_bytes.remove(sender);
                }
            }
            if let Some(boundary) = range.start().checked_div(self.boundary_bytes) {
                *self.epochs.entry(boundary).or_default() += 1;
            }
        }
        self.unjournaled.retain(|piece| !is_bad(&self.verified, piece));
        if !bad.is_empty() {
            self.unjournaled_bytes = self.unjournaled.iter().map(|piece| piece.range.len()).sum();
        }
        bad
    }

    /// Changes whenever bytes are forgotten between the boundaries around `offset`.
    pub fn epoch(&self, offset: u64) -> u64 {
        let boundary = offset.checked_div(self.boundary_bytes);
        boundary.and_then(|boundary| self.epochs.get(&boundary)).copied().unwrap_or(0)
    }

    /// True if every byte of `range` has been committed.
    pub fn is_committed(&self, range: ByteRange) -> bool {
        let before = self.pieces.range(..range.start()).next_back().map(|(_, piece)| piece);
        let inside = self.pieces.range(range.start()..range.end()).map(|(_, piece)| piece);
        let bytes = |piece: &Piece| piece.range.intersection(range).len();
        before.into_iter().chain(inside).map(bytes).sum::<u64>() == range.len()
    }

    /// Notes that `range`, as it was in `epoch`, has the checksum it should have. `false`: it is another one
    /// by now.
    pub fn verify(&mut self, range: ByteRange, epoch: u64) -> bool {
        let is_same = self.epoch(range.start()) == epoch;
        if is_same {
            self.verified.insert(range);
        }
        is_same
    }

    /// Forgets `range`, which as it was in `epoch` has another checksum than it should have; returns its
    /// pieces. `None`: it is another one by now.
    pub fn reject(&mut self, range: ByteRange, epoch: u64) -> Option<Vec<Piece>> {
        (self.epoch(range.start()) == epoch).then(|| self.forget_pieces(range, |_| true))
    }

    /// Forgets all pieces that have bytes of `range`, also those that were compared with a checksum of their own: the file
    /// has lost them. Returns them: their bytes are missing now.
    pub fn lose(&mut self, range: ByteRange) -> Vec<Piece> {
        let touches = |piece: &&Piece| !piece.range.intersection(range).is_empty();
        let lost: Vec<Piece> = self.pieces.values().filter(touches).copied().collect();
        for piece in &lost {
            self.verified.remove(piece.range);
            self.forget_pieces(piece.range, |_| true);
        }
        lost
    }

    /// The parts of the first `size_bytes` that have not been compared with a checksum of its own.
    pub fn unverified(&self, size_bytes: u64) -> Vec<ByteRange> {
        self.verified.missing(ByteRange::new(0, size_bytes))
    }

    /// Forgets everything. Never while pieces are compared: where they are known the size is, and only another
    /// size makes a copy begin anew.
    pub fn clear(&mut self) {
        debug_assert_eq!(self.boundary_bytes, 0);
        *self = Ledger::default();
    }

    /// Bytes that a sender contributed.
    pub fn bytes_of(&self, sender: Sender) -> u64 {
        self.sent_bytes.get(&sender).copied().unwrap_or(0)
    }

    /// The sender of all of `range`; `None` when there is none, or several.
    pub fn sender_of(&self, range: ByteRange) -> Option<Sender> {
        let (first, piece) = self.pieces.range(..=range.start()).next_back()?;
        let parts = self.pieces.range(first..).map(|(_, part)| part);
        let parts = parts.take_while(|part| part.range.start() < range.end());
        let is_one = parts.clone().all(|part| part.sender == piece.sender);
        (is_one && self.is_committed(range)).then_some(piece.sender)
    }

    /// Every contributor, smallest contribution first.
    pub fn senders(&self) -> Vec<Sender> {
        let mut senders: Vec<(Sender, u64)> =
            self.sent_bytes.iter().map(|(&sender, &bytes)| (sender, bytes)).collect();
        senders.sort_by_key(|(sender, bytes)| (*bytes, *sender));
        senders.into_iter().map(|(sender, _)| sender).collect()
    }

    /// True if everything that was claimed has been committed.
    pub fn is_settled(&self) -> bool {
        self.claimed.len() == self.committed_bytes
    }

    /// The parts of an object of `size_bytes` that are not claimed.
    pub fn missing(&self, size_bytes: u64) -> Vec<ByteRange> {
        self.claimed.missing(ByteRange::new(0, size_bytes))
    }

    /// The parts of `range` that are not claimed.
    pub fn missing_in(&self, range: ByteRange) -> Vec<ByteRange> {
        self.claimed.missing(range)
    }

    /// All pieces, ascending.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.values()
    }

    /// The adler32 of the whole object; `None` while bytes are missing.
    pub fn adler32(&self, size_bytes: u64) -> Option<u32> {
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
    pub fn unjournaled_bytes(&self) -> u64 {
        self.unjournaled_bytes
    }

    /// Takes the pieces that the journal has not been told of.
    pub fn take_unjournaled(&mut self) -> Vec<Piece> {
        self.unjournaled_bytes = 0;
        let mut pieces = std::mem::take(&mut self.unjournaled);
        // Lanes took turns: put each one's adjoining pieces together, so that a record covers more.
        pieces.sort_by_key(|piece| piece.range.start());
        let boundary_bytes = self.boundary_bytes;
        pieces.dedup_by(|after, before| {
            let joins = adjoin(before, after, boundary_bytes);
            if joins {
                *before = merged(before, after);
            }
            joins
        });
        pieces
    }
}

fn adjoin(before: &Piece, after: &Piece, boundary_bytes: u64) -> bool {
    let is_boundary = boundary_bytes > 0 && after.range.start().is_multiple_of(boundary_bytes);
    let is_small = before.range.len().saturating_add(after.range.len()) <= LEDGER_PIECE_BYTES_MAX;
    before.sender == after.sender && before.range.end() == after.range.start() && !is_boundary && is_small
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

    #[test]
    fn one_byte_that_is_lost_does_not_cost_the_whole_file() {
        let mut ledger = Ledger::default();
        let part_bytes = LEDGER_PIECE_BYTES_MAX / 4;
        for number in 0..40 {
            let range = ByteRange::new(number * part_bytes, (number + 1) * part_bytes);
            assert_eq!(ledger.claim(range, 3), [range]);
            ledger.commit(Piece { range, adler32: 1, sender: 3 });
        }
        let all = ByteRange::new(0, 40 * part_bytes);
        assert!(ledger.pieces().count() <= 10, "what adjoins is put together");
        assert_eq!(ledger.sender_of(all), Some(3));
        let lost = ledger.lose(ByteRange::new(15 * part_bytes, 15 * part_bytes + 1));
        assert_eq!(lost.iter().map(|piece| piece.range.len()).sum::<u64>(), LEDGER_PIECE_BYTES_MAX);
        assert_eq!(ledger.missing(all.end()), [lost[0].range]);
        assert_eq!(ledger.sender_of(all), None);
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

    proptest! {
        /// The totals are those of a look at every piece, after whatever was done.
        #[test]
        fn totals_are_those_of_all_pieces(
            boundary_bytes in prop_oneof![Just(0_u64), Just(20), Just(50)],
            steps in prop::collection::vec((0_u8..9, 0_u64..200, 1_u64..80, 0_u32..4), 0..80),
        ) {
            let object = object();
            let mut ledger = Ledger::with_boundaries(boundary_bytes);
            let mut forgotten: Vec<Piece> = Vec::new();
            let mut claimed: Vec<Piece> = Vec::new();
            for (what, start, len, sender) in steps {
                let range = ByteRange::new(start, (start + len).min(200));
                match what {
                    0..3 => {
                        // What is committed lies across no boundary.
                        let step = if boundary_bytes == 0 { 200 } else { boundary_bytes };
                        let end = range.end().min((range.start() / step + 1) * step);
                        write(&mut ledger, ByteRange::new(range.start(), end), sender, &object);
                    }
                    3 if boundary_bytes == 0 => {
                        let parts = ledger.claim(range, sender).into_iter();
                        claimed.extend(parts.map(|range| Piece { range, adler32: 1, sender }));
                    }
                    4 => claimed.drain(..).for_each(|piece| ledger.commit(piece)),
                    5 => forgotten.extend(ledger.forget(|own| own == sender)),
                    6 => forgotten.retain(|piece| !ledger.regain(*piece)),
                    7 => {
                        ledger.refuse(BTreeSet::from([sender]));
                        forgotten.extend(ledger.forget_refused());
                        ledger.refuse(BTreeSet::new());
                    }
                    8 if boundary_bytes > 0 => {
                        let at = range.start() - range.start() % boundary_bytes;
                        let whole = ByteRange::at(at, boundary_bytes);
                        match sender {
                            0 => drop(ledger.verify(whole, ledger.epoch(at))),
                            1 => drop(ledger.reject(whole, ledger.epoch(at))),
                            _ => drop(ledger.lose(range)),
                        }
                    }
                    8 => ledger.restore(Piece { range, adler32: 1, sender }),
                    _ => drop(ledger.take_unjournaled()),
                }
                let mut bytes: BTreeMap<Sender, u64> = BTreeMap::new();
                for piece in ledger.pieces() {
                    *bytes.entry(piece.sender).or_default() += piece.range.len();
                }
                prop_assert_eq!(&ledger.sent_bytes, &bytes);
                prop_assert_eq!(ledger.committed_bytes, bytes.values().sum::<u64>());
                let unjournaled = ledger.unjournaled.iter().map(|piece| piece.range.len()).sum::<u64>();
                prop_assert_eq!(ledger.unjournaled_bytes(), unjournaled);
                let is_settled = ledger.claimed.iter().all(|range| ledger.is_committed(range));
                prop_assert_eq!(ledger.is_settled(), is_settled);
            }
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
    fn what_is_verified_is_kept_whoever_sent_it_and_what_is_rejected_is_fetched_again() {
        let object = object();
        let mut ledger = Ledger::with_boundaries(50);
        for start in [0, 50, 100] {
            write(&mut ledger, ByteRange::at(start, 50), 1, &object);
        }
        assert_eq!(ledger.pieces().count(), 3);
        let (first, second) = (ByteRange::new(0, 50), ByteRange::new(50, 100));
        assert!(ledger.is_committed(second) && !ledger.is_committed(ByteRange::new(140, 160)));
        let epoch = ledger.epoch(50);
        assert!(ledger.verify(first, ledger.epoch(0)));
        assert_eq!(ledger.reject(second, epoch).unwrap()[0].range, second);
        // An earlier look at it is in vain.
        assert!(!ledger.verify(second, epoch) && ledger.reject(second, epoch).is_none());
        assert_eq!(ledger.forget(|sender| sender == 1).len(), 1);
        assert_eq!(ledger.unverified(200), [ByteRange::new(50, 200)]);
        assert_eq!(ledger.missing(200), [ByteRange::new(50, 200)]);
        assert_eq!(ledger.take_unjournaled().len(), 1);
    }

    #[test]
    fn what_was_forgotten_and_is_there_all_the_same_is_taken_back_once() {
        let object = object();
        let mut ledger = Ledger::default();
        write(&mut ledger, ByteRange::new(0, 100), 1, &object);
        let part = Piece { range: ByteRange::new(20, 40), adler32: adler32(&object[20..40]), sender: 1 };
        assert!(!ledger.regain(part), "it was not forgotten");
        ledger.refuse(BTreeSet::from([1]));
        assert_eq!(ledger.forget_refused().len(), 1);
        assert!(!ledger.regain(part), "its sender is refused");
        ledger.refuse(BTreeSet::new());
        assert!(ledger.regain(part) && !ledger.regain(part));
        assert_eq!((ledger.sender_of(part.range), ledger.bytes_of(1)), (Some(1), 20));
        write(&mut ledger, ByteRange::new(40, 60), 2, &object);
        assert_eq!(ledger.sender_of(ByteRange::new(30, 50)), None, "two sent it");
        assert_eq!(ledger.sender_of(ByteRange::new(60, 70)), None, "nobody sent it");
        write(&mut ledger, ByteRange::new(0, 200), 3, &object);
        assert!(ledger.is_settled());
        assert_eq!(ledger.adler32(200), Some(adler32(&object)));
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
