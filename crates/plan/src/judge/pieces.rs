//! Pieces with checksums of their own that turned out to be wrong: which source is blamed, and which may send them again.

use std::collections::BTreeSet;

use gridlane_core::limits::WRONG_PIECES_MAX;
use gridlane_core::{ByteRange, RangeSet};

use super::event::Action;
use super::finding::{Failure, Why};
use super::ledger::{Ledger, Piece, Sender};
use super::terms::Member;
use super::wrong_pieces::{Candidate, is_often, only_sender};
use super::{Judge, Scene};
use crate::{SourceId, SourceState};

impl Judge {
    /// A piece is right that was wrong.
    pub(super) fn piece_is_mended(&mut self, index: u64, liars: &[Sender], scene: &mut Scene<'_>) {
        if let Some(range) = self.terms.known.pieces.as_ref().map(|pieces| pieces.range(index)) {
            // As in `refetch_wrong_pieces`.
            self.act(Action::Plan(crate::Event::AlreadyDone { range }));
        }
        self.wrong_pieces.0.remove(&index);
        liars.iter().for_each(|liar| self.blame(*liar, scene));
    }

    /// A piece is wrong, and the ledger has forgotten it.
    pub(super) fn piece_is_wrong(&mut self, index: u64, parts: &[Piece], scene: &mut Scene<'_>) {
        let Some(range) = self.terms.known.pieces.as_ref().map(|pieces| pieces.range(index)) else { return };
        self.lost(parts);
        let is_ours = |part: &&Piece| (part.sender as usize) < self.members.len();
        let sources: BTreeSet<usize> =
            parts.iter().filter(is_ours).map(|part| part.sender as usize).collect();
        self.act(Action::WrongPiece { range, sources: sources.into_iter().collect() });
        self.wrong_pieces.0.entry(index).or_default().failed(parts);
        if let Some(liar) = only_sender(parts) {
            self.blame(liar, scene);
        }
        self.refetch_wrong_pieces(scene);
        let is_lost = self.wrong_pieces.0.get(&index).is_some_and(|attempts| attempts.allowed.is_empty());
        // Without any source left the plan says why.
        if is_lost && !self.candidates(scene).is_empty() {
            self.fail(Failure::NowhereRight(range));
        }
    }

    /// A source sent a wrong piece.
    fn blame(&mut self, liar: Sender, scene: &mut Scene<'_>) {
        let source = liar as usize;
        let Some(member) = self.members.get_mut(source) else { return };
        member.wrong_pieces += 1;
        let (count, received_bytes, is_alive) = (member.wrong_pieces, member.received_bytes, !member.is_dead);
        self.act(Action::Blame { source, count });
        let piece_bytes = self.terms.known.pieces.as_ref().map_or(0, |pieces| pieces.piece_bytes());
        let candidates = self.candidates(scene);
        let is_replaceable =
            || candidates.iter().any(|other| other.number != liar && other.wrong_pieces == 0);
        let is_too_often =
            count >= WRONG_PIECES_MAX || is_often(count, piece_bytes, received_bytes) && is_replaceable();
        if is_alive && is_too_often {
            self.kill(source, Some(Why::WrongPieces(count)), true, scene);
        }
    }

    /// Has the pieces that are wrong fetched again, each from a source that may have it. `true` when another one
    /// than before is asked for one of them.
    pub(super) fn refetch_wrong_pieces(&mut self, scene: &mut Scene<'_>) -> bool {
        if self.wrong_pieces.0.is_empty() {
            return false;
        }
        let all = self.candidates(scene);
        let here: Vec<Candidate> =
            all.iter().copied().filter(|one| self.is_here(one.number, scene)).collect();
        let mut wrong = std::mem::take(&mut self.wrong_pieces);
        let (mut is_news, mut there_bytes) = (false, 0);
        for (index, attempts) in &mut wrong.0 {
            let range = self.terms.known.pieces.as_ref().map(|pieces| pieces.range(*index));
            let missing = range.map(|range| scene.ledger.missing_in(range)).unwrap_or_default();
            let before = attempts.allowed.clone();
            let can = |of: &[Candidate]| before.iter().any(|one| of.iter().any(|other| other.number == *one));
            if !can(&here) {
                attempts.choose(&here);
                // One that has fallen silent is waited for where no other is left.
                match attempts.allowed.is_empty() {
                    true if can(&all) => attempts.allowed.clone_from(&before),
                    true => attempts.choose(&all),
                    false => {}
                }
                is_news |= !attempts.allowed.is_empty() && attempts.allowed != before;
            }
            if !attempts.allowed.is_empty() {
                self.refetch(&missing, &attempts.allowed);
            }
            // A source that was not asked for it any more may have brought a part, which the plan does not count.
            let missing: RangeSet = missing.into_iter().collect();
            for part in range.map(|range| missing.missing(range)).unwrap_or_default() {
                there_bytes += part.len();
                self.act(Action::Plan(crate::Event::AlreadyDone { range: part }));
            }
        }
        is_news |= std::mem::replace(&mut self.there_bytes, there_bytes) != there_bytes;
        self.wrong_pieces = wrong;
        is_news
    }

    /// True if the plan expects bytes of a source now, or could at once.
    pub(super) fn is_here(&self, number: Sender, scene: &Scene<'_>) -> bool {
        let state = scene.plan.source_state(SourceId(number));
        matches!(state, Some(SourceState::Active | SourceState::Connecting | SourceState::Spare))
    }

    fn candidates(&self, scene: &Scene<'_>) -> Vec<Candidate> {
        let of = |(number, member): (usize, &Member)| {
            let state = scene.plan.source_state(SourceId(number as u32));
            let is_usable = !member.is_dead && !member.is_doubted && state != Some(SourceState::Dead);
            is_usable.then_some(Candidate {
                number: number as Sender,
                wrong_pieces: member.wrong_pieces,
                is_spare: state == Some(SourceState::Spare),
            })
        };
        self.members.iter().enumerate().filter_map(of).collect()
    }

    /// True if pieces are compared, and none was right.
    pub fn has_no_right_piece(&self, ledger: &Ledger) -> bool {
        let size_bytes = self.size_bytes.unwrap_or(0);
        let whole = [ByteRange::new(0, size_bytes)];
        self.terms.known.pieces.is_some() && ledger.unverified(size_bytes) == whole
    }
}
