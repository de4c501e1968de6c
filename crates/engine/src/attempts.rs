//! Pieces that are wrong, and the sources that may send each of them next.

use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::{Piece, Sender};

/// How often one source alone is asked for the same piece: bytes may be damaged on the way, once.
const ALONE_MAX: u32 = 2;

/// Pieces that are not right yet, by their number.
#[derive(Debug, Default)]
pub(crate) struct WrongPieces(pub(crate) BTreeMap<u64, Attempts>);

/// What was tried for one piece.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// Who sent any of it.
    senders: BTreeSet<Sender>,
    /// How often somebody sent all of it.
    alone: BTreeMap<Sender, u32>,
    /// Who may send it now.
    pub(crate) allowed: Vec<Sender>,
}

/// A source that could be asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) number: Sender,
    pub(crate) wrong_pieces: u32,
    /// Not in use: the plan calls it only when another one is lost.
    pub(crate) is_spare: bool,
}

impl Attempts {
    /// These parts of it were not what they should be.
    pub(crate) fn failed(&mut self, parts: &[Piece]) {
        self.senders.extend(parts.iter().map(|part| part.sender));
        if let Some(only) = only_sender(parts) {
            *self.alone.entry(only).or_default() += 1;
        }
        self.allowed.clear();
    }

    /// Who may send it now; nobody when all have failed.
    pub(crate) fn choose(&mut self, candidates: &[Candidate]) {
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

/// Who sent all of a piece, when it was one.
pub(crate) fn only_sender(parts: &[Piece]) -> Option<Sender> {
    let first = parts.first()?.sender;
    parts.iter().all(|part| part.sender == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_core::ByteRange;

    fn part(start: u64, sender: Sender) -> Piece {
        Piece { range: ByteRange::at(start, 10), adler32: 1, sender }
    }

    fn candidates(wrong: &[u32]) -> Vec<Candidate> {
        let numbers = 0..wrong.len() as Sender;
        let of = |number: Sender| Candidate { number, wrong_pieces: wrong[number as usize], is_spare: false };
        numbers.map(of).collect()
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
