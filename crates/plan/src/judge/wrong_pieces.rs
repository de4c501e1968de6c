//! Pieces that turned out to be wrong: whom to blame, and who may send them again.
//!
//! A piece is asked of those first who have not sent any of it. When there is nobody like that any more it is
//! asked of one source alone: then it is clear who lies. When all have failed, no source has what
//! the metalink describes.

use std::collections::{BTreeMap, BTreeSet};

use gridlane_core::limits::{WRONG_PIECES_MAX, WRONG_PIECES_OFTEN};
use gridlane_core::{ByteRange, Error, ErrorKind, Fault, Result};
use gridlane_plan::{SourceId, SourceState};

use crate::events::Event;
use crate::pieces::Found;
use crate::run::Run;
use gridlane_plan::judge::{Piece, Sender};

/// How often one source alone is asked for the same piece: bytes may be damaged on the way, once.
const ALONE_MAX: u32 = 2;

/// Pieces that are not right yet, by their number.
#[derive(Debug, Default)]
pub(crate) struct WrongPieces(BTreeMap<u64, Attempts>);

/// What was tried for one piece.
#[derive(Debug, Default)]
struct Attempts {
    /// Who sent any of it.
    senders: BTreeSet<Sender>,
    /// How often somebody sent all of it.
    alone: BTreeMap<Sender, u32>,
    /// Who may send it now.
    allowed: Vec<Sender>,
}

/// A source that could be asked.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    number: Sender,
    wrong_pieces: u32,
    /// Not in use: the plan calls it only when another one is lost.
    is_spare: bool,
}

impl Attempts {
    fn failed(&mut self, parts: &[Piece]) {
        self.senders.extend(parts.iter().map(|part| part.sender));
        if let Some(only) = only_sender(parts) {
            *self.alone.entry(only).or_default() += 1;
        }
        self.allowed.clear();
    }

    /// Who may send it now; nobody when all have failed.
    fn choose(&mut self, candidates: &[Candidate]) {
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
fn only_sender(parts: &[Piece]) -> Option<Sender> {
    let first = parts.first()?.sender;
    parts.iter().all(|part| part.sender == first).then_some(first)
}

impl Run<'_> {
    /// A piece turned out to be wrong, or right after all.
    pub(crate) fn piece_compared(&mut self, index: u64, found: Found) -> Result<()> {
        match found {
            Found::Mended { liars } => {
                self.wrong_pieces.0.remove(&index);
                liars.into_iter().for_each(|liar| self.blame(liar));
                Ok(())
            }
            Found::Wrong { parts } => self.piece_is_wrong(index, &parts),
        }
    }

    fn piece_is_wrong(&mut self, index: u64, parts: &[Piece]) -> Result<()> {
        let Some(range) = self.target.pieces().map(|pieces| pieces.hashes.range(index)) else {
            return Ok(());
        };
        let is_ours = |part: &&Piece| (part.sender as usize) < self.replicas.len();
        self.wrong_bytes += self.bytes_of_this_run(parts);
        let sources: BTreeSet<usize> =
            parts.iter().filter(is_ours).map(|part| part.sender as usize).collect();
        let sources: Vec<usize> = sources.into_iter().collect();
        self.observer.event(&Event::WrongPiece { range, sources: &sources });
        self.wrong_pieces.0.entry(index).or_default().failed(parts);
        if let Some(liar) = only_sender(parts) {
            self.blame(liar);
        }
        self.refetch_wrong_pieces();
        let is_lost = self.wrong_pieces.0.get(&index).is_some_and(|attempts| attempts.allowed.is_empty());
        // Without any source left the plan says why.
        match is_lost && !self.candidates().is_empty() {
            true => Err(nobody_has(range)),
            false => Ok(()),
        }
    }

    /// A source sent a wrong piece.
    fn blame(&mut self, liar: Sender) {
        let Some(replica) = self.replicas.get_mut(liar as usize) else { return };
        replica.wrong_pieces += 1;
        let count = replica.wrong_pieces;
        let message = match count {
            1 => "it sent a wrong piece".to_owned(),
            count => format!("it sent {count} wrong pieces"),
        };
        let error = Error::new(ErrorKind::ChecksumMismatch, message)
            .fault(Fault::Peer)
            .hint("tell whoever runs that server")
            .endpoint(&replica.source.url);
        replica.last_error = Some(error.clone());
        if count == 1 {
            let source = liar as usize;
            self.observer.event(&Event::Source { source, state: "wrong", error: Some(&error) });
        }
        let received_bytes = replica.received_bytes;
        let is_alive = replica.dead.is_none();
        let piece_bytes = self.target.pieces().map_or(0, |pieces| pieces.hashes.piece_bytes());
        let is_replaceable =
            || self.candidates().iter().any(|other| other.number != liar && other.wrong_pieces == 0);
        let is_too_often =
            count >= WRONG_PIECES_MAX || is_often(count, piece_bytes, received_bytes) && is_replaceable();
        if is_alive && is_too_often {
            self.kill(liar as usize, error, true);
        }
    }

    /// Has the pieces that are wrong fetched again, each from somebody who may have it. `true` when somebody
    /// else than before is asked for one of them.
    pub(crate) fn refetch_wrong_pieces(&mut self) -> bool {
        if self.wrong_pieces.0.is_empty() {
            return false;
        }
        let candidates = self.candidates();
        let mut wrong = std::mem::take(&mut self.wrong_pieces);
        let mut is_news = false;
        for (index, attempts) in &mut wrong.0 {
            let range = self.target.pieces().map(|pieces| pieces.hashes.range(*index));
            let missing = range.map(|range| self.target.ledger().missing_in(range)).unwrap_or_default();
            let can = |number: &Sender| candidates.iter().any(|candidate| candidate.number == *number);
            if !attempts.allowed.iter().any(can) {
                attempts.choose(&candidates);
                is_news |= !attempts.allowed.is_empty();
            }
            if !attempts.allowed.is_empty() {
                self.refetch(&missing, &attempts.allowed);
            }
        }
        self.wrong_pieces = wrong;
        is_news
    }

    fn candidates(&self) -> Vec<Candidate> {
        let of = |number: usize| {
            let replica = &self.replicas[number];
            let state = self.plan.source_report(SourceId(number as u32)).map(|report| report.state);
            let is_usable = replica.dead.is_none() && !replica.doubted && state != Some(SourceState::Dead);
            is_usable.then_some(Candidate {
                number: number as Sender,
                wrong_pieces: replica.wrong_pieces,
                is_spare: state == Some(SourceState::Spare),
            })
        };
        (0..self.replicas.len()).filter_map(of).collect()
    }

    /// Whether pieces are compared, and none was right.
    pub(crate) fn has_no_right_piece(&self) -> bool {
        let size_bytes = self.size_bytes.unwrap_or(0);
        let whole = [ByteRange::new(0, size_bytes)];
        self.target.pieces().is_some() && self.target.ledger().unverified(size_bytes) == whole
    }
}

/// Whether so many wrong pieces among all that came from a source are too many for a bad place on its disk.
fn is_often(wrong: u32, piece_bytes: u64, received_bytes: u64) -> bool {
    wrong >= 2 && u64::from(wrong) * WRONG_PIECES_OFTEN >= received_bytes / piece_bytes.max(1)
}

fn nobody_has(range: ByteRange) -> Error {
    let message = format!("no source has the piece {range} that the metalink describes");
    Error::new(ErrorKind::ChecksumMismatch, message)
        .fault(Fault::Peer)
        .hint("the metalink may be of another version of the file, or the file is damaged at every source")
}

#[cfg(test)]
mod tests {
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
