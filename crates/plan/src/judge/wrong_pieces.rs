//! Pieces that turned out to be wrong: which sources to blame, and which may send them again.
//!
//! A piece is asked of those first that have not sent any of it. When there is no source like that any more it is
//! asked of one source alone: then it is clear which one lies. When all have failed, no source has what
//! the metalink describes.

use std::collections::{BTreeMap, BTreeSet};

use gridlane_core::limits::WRONG_PIECES_OFTEN;

use super::ledger::{Piece, Sender};

/// The number of times that one source alone is asked for the same piece: bytes may be damaged on the way, once.
const ALONE_MAX: u32 = 2;

/// Pieces that are not right yet, by their number.
#[derive(Debug, Default)]
pub(super) struct WrongPieces(pub(super) BTreeMap<u64, Attempts>);

/// The attempts at one piece.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// The senders of any of it.
    senders: BTreeSet<Sender>,
    /// The number of times that a sender sent all of it.
    alone: BTreeMap<Sender, u32>,
    /// The senders that may send it now.
    pub(super) allowed: Vec<Sender>,
}

/// A source that could be asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) number: Sender,
    pub(super) wrong_pieces: u32,
    /// Not in use: the plan calls it only when another one is lost.
    pub(super) is_spare: bool,
}

impl Attempts {
    pub(super) fn failed(&mut self, parts: &[Piece]) {
        self.senders.extend(parts.iter().map(|part| part.sender));
        if let Some(only) = only_sender(parts) {
            *self.alone.entry(only).or_default() += 1;
        }
        self.allowed.clear();
    }

    /// Chooses the senders that may send it now; none when all have failed.
    pub(super) fn choose(&mut self, candidates: &[Candidate]) {
        let untried = candidates.iter().filter(|candidate| !self.senders.contains(&candidate.number));
        let rank = |candidate: &Candidate| (candidate.is_spare, candidate.wrong_pieces > 0);
        if let Some(best) = untried.clone().map(rank).min() {
            let best = untried.filter(|candidate| rank(candidate) == best);
            self.allowed = best.map(|candidate| candidate.number).collect();
            return;
        }
        let times = |candidate: &Candidate| self.alone.get(&candidate.number).copied().unwrap_or(0);
        let left = candidates.iter().filter(|candidate| times(candidate) < ALONE_MAX);
        let next =
            left.min_by_key(|candidate| (times(candidate), candidate.is_spare, candidate.wrong_pieces));
        self.allowed = next.map(|candidate| candidate.number).into_iter().collect();
    }
}

/// The sender of all of a piece, when it was one.
pub(super) fn only_sender(parts: &[Piece]) -> Option<Sender> {
    let first = parts.first()?.sender;
    parts.iter().all(|part| part.sender == first).then_some(first)
}

/// True if so many wrong pieces among all that came from a source are too many for a bad place on its disk.
pub(super) fn is_often(wrong: u32, piece_bytes: u64, received_bytes: u64) -> bool {
    wrong >= 2 && u64::from(wrong) * WRONG_PIECES_OFTEN >= received_bytes / piece_bytes.max(1)
}

#[cfg(test)]
mod tests {
    use gridlane_core::ByteRange;

    use super::*;

    fn part(start: u64, sender: Sender) -> Piece {
        Piece { range: ByteRange::at(start, 10), adler32: 1, sender }
    }

    fn candidates(wrong: &[u32]) -> Vec<Candidate> {
        let numbers = 0..wrong.len() as Sender;
        let of = |number: Sender| Candidate { number, wrong_pieces: wrong[number as usize], is_spare: false };
        numbers.map(of).collect()
    }

    #[test]
    fn a_few_wrong_pieces_are_a_bad_disk_and_many_another_file() {
        assert!(!is_often(1, 10, 10), "damaged on the way");
        assert!(is_often(2, 10, 89), "two of eight");
        assert!(!is_often(2, 10, 90), "two of nine");
    }

    #[test]
    fn others_are_asked_first_and_then_one_alone() {
        let mut attempts = Attempts::default();
        attempts.failed(&[part(0, 0), part(10, 1)]);
        attempts.choose(&candidates(&[0, 0, 0, 1]));
        assert_eq!(attempts.allowed, [2], "who has lied before is asked later");
        attempts.failed(&[part(0, 2)]);
        attempts.choose(&candidates(&[0, 0, 1, 1]));
        assert_eq!(attempts.allowed, [3]);
        attempts.failed(&[part(0, 3)]);
        attempts.choose(&candidates(&[0, 0, 1, 2]));
        assert_eq!(attempts.allowed, [0]);
        attempts.failed(&[part(0, 0), part(10, 0)]);
        attempts.choose(&candidates(&[1, 0, 1, 2]));
        assert_eq!(attempts.allowed, [1]);
    }

    #[test]
    fn the_only_source_is_asked_twice() {
        let mut attempts = Attempts::default();
        attempts.failed(&[part(0, 0)]);
        attempts.choose(&candidates(&[1]));
        assert_eq!(attempts.allowed, [0]);
        attempts.failed(&[part(0, 0)]);
        attempts.choose(&candidates(&[2]));
        assert!(attempts.allowed.is_empty());
    }
}
