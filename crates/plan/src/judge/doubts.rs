//! The bytes are wrong: which source sent wrong ones?

use gridlane_core::Checksum;

use super::event::Action;
use super::finding::{Failure, Hopeless};
use super::ledger::{EARLIER, Piece, Sender};
use super::phase::{About, Then};
use super::suspects::Suspects;
use super::thrown::{ReadBack, Thrown, part_bytes};
use super::{Judge, Scene};
use crate::Stuck;

impl Judge {
    /// The plan is stuck. `true`: there is something else to try, or something is waited for; the plan may be asked again.
    pub fn try_others(&mut self, why: Stuck, scene: &mut Scene<'_>) -> bool {
        if self.is_waiting() {
            return true;
        }
        let is_refused = why == Stuck::Refused;
        // The sources that may send a piece again cannot: others may.
        if is_refused && self.refetch_wrong_pieces(scene) {
            return true;
        }
        // Those that are believed at the moment cannot deliver, or do not: others are believed.
        let Some((found, expected)) = self.mismatch.clone().filter(|_| self.suspects.is_some()) else {
            return false;
        };
        match why {
            Stuck::Refused => self.mismatched(&found, &expected, scene),
            Stuck::AllDead => return false,
            // The patience that they have used up is not that of the next ones.
            _ => self.close_for(Then::BelieveOthers),
        }
        true
    }

    /// No lane is open, and others than so far are to be believed.
    pub(super) fn believe_others(&mut self, scene: &mut Scene<'_>) {
        self.act(Action::NewPlan);
        self.moves_again();
        if let Some((found, expected)) = self.mismatch.clone() {
            self.mismatched(&found, &expected, scene);
        }
    }

    /// Sources that can be asked again.
    fn usable(&self) -> Vec<Sender> {
        let usable = self.members.iter().enumerate().filter(|(_, member)| !member.is_dead);
        usable.map(|(number, _)| number as Sender).collect()
    }

    /// The bytes are wrong: tries the next hypothesis about the senders of wrong ones.
    pub(super) fn mismatched(&mut self, found: &Checksum, expected: &Checksum, scene: &mut Scene<'_>) {
        self.mismatch = Some((found.clone(), expected.clone()));
        if self.terms.known.pieces.is_some() {
            self.is_hopeless(Hopeless::PiecesAreRight);
            return;
        }
        if self.terms.in_order {
            self.is_hopeless(Hopeless::InOrder);
            return;
        }
        if self.suspects.is_none() {
            self.suspects = Some(Suspects::new(&scene.ledger.senders(), &self.usable()));
        }
        // The pairs that contradict each other: one sent other bytes than are there now from another one.
        let by_another = |part: &Piece| scene.ledger.sender_of(part.range).filter(|now| *now != part.sender);
        let pieces = self.thrown.iter().map(|part| part.piece);
        let replaced: Vec<(Piece, Sender)> =
            pieces.filter_map(|piece| Some((piece, by_another(&piece)?))).collect();
        match replaced.is_empty() {
            true => self.next_hypothesis(scene),
            false => self.ask(ReadBack::Differing(replaced), About::Contradictions),
        }
    }

    pub(super) fn contradictions(&mut self, pairs: &[[Sender; 2]]) {
        if let Some(suspects) = &mut self.suspects {
            pairs.iter().for_each(|[one, other]| suspects.contradict(*one, *other));
        }
    }

    /// Believes others than so far, and has the bytes of all the rest fetched again.
    pub(super) fn next_hypothesis(&mut self, scene: &mut Scene<'_>) {
        loop {
            let here: Vec<Sender> =
                self.usable().into_iter().filter(|number| self.is_here(*number, scene)).collect();
            let next = self.suspects.as_mut().and_then(|suspects| suspects.next(|one| here.contains(&one)));
            let Some(mut believed) = next else {
                let is_alone = self.members.len() == 1;
                self.is_hopeless(if is_alone { Hopeless::OneSource } else { Hopeless::NobodyHasThem });
                return;
            };
            let usable = self.usable();
            believed.retain(|sender| usable.contains(sender));
            if believed.is_empty() {
                continue;
            }
            let believed: Vec<usize> = believed.iter().map(|sender| *sender as usize).collect();
            for (number, member) in self.members.iter_mut().enumerate() {
                // Also one that is dead by now: what it sent is still there.
                member.is_doubted = !believed.contains(&number);
            }
            // What an earlier run left is believed by no hypothesis.
            let earlier = scene.ledger.forget(|sender| sender >= EARLIER);
            self.lost(&earlier);
            self.refetch_missing(scene);
            let thrown_before = self.thrown.len();
            self.disbelieve(scene);
            let fresh: Vec<Piece> =
                self.thrown.split_off(thrown_before).into_iter().map(|thrown| thrown.piece).collect();
            if !fresh.is_empty() {
                let is_believed = |part: &&Thrown| {
                    self.members.get(part.piece.sender as usize).is_some_and(|member| member.is_believed())
                };
                let claims = self.thrown.iter().filter(|part| part.is_cut()).filter(is_believed);
                let claims: Vec<Thrown> = claims.cloned().collect();
                let part_bytes = part_bytes(self.size_bytes.unwrap_or(0));
                let thrown_bytes = fresh.iter().map(|piece| piece.range.len()).sum();
                let what = ReadBack::Cut { fresh, claims, part_bytes };
                self.ask(what, About::Spared { believed, thrown_bytes });
                return;
            }
            if self.is_tried(&believed, false, scene) {
                return;
            }
        }
    }

    /// The bytes that were thrown away are known by their parts: a part that the file has as a source that is believed
    /// again sent it need not be sent again. `thrown_bytes`: the number of bytes that were thrown away.
    pub(super) fn spared(
        &mut self,
        believed: &[usize],
        thrown_bytes: u64,
        cut: Vec<Thrown>,
        kept: &[Piece],
        scene: &mut Scene<'_>,
    ) {
        self.thrown.extend(cut);
        let mut kept_bytes = 0;
        for part in kept {
            if scene.ledger.regain(*part) {
                self.act(Action::Plan(crate::Event::AlreadyDone { range: part.range }));
                self.wrong_bytes = self.wrong_bytes.saturating_sub(self.bytes_of_this_run(&[*part]));
                kept_bytes += part.range.len();
            }
        }
        // Some may have been sent again in the meantime.
        if !self.is_tried(believed, kept_bytes < thrown_bytes, scene) {
            self.next_hypothesis(scene);
        }
    }

    /// True if those that are believed have to send bytes, or have sent some meanwhile, so that the hypothesis tells something.
    fn is_tried(&mut self, believed: &[usize], is_changed: bool, scene: &mut Scene<'_>) -> bool {
        if !is_changed && scene.ledger.missing(self.size_bytes.unwrap_or(0)).is_empty() {
            return false;
        }
        if let Some((found, expected)) = self.mismatch.clone() {
            self.act(Action::Mismatch { found, expected, believed: believed.to_vec() });
        }
        self.moves_again();
        true
    }

    fn is_hopeless(&mut self, hopeless: Hopeless) {
        if let Some((found, expected)) = self.mismatch.clone() {
            self.fail(Failure::Wrong { found, expected, hopeless });
        }
    }
}
