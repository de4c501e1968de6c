//! From the last byte to the end: what is waited for, compared, and looked at.

use std::time::Duration;

use gridlane_core::limits::{LONG_COPY_MIN, READ_BACK_BYTES_PER_S, READ_BACK_SHARE, READ_BACKS_MAX};
use gridlane_core::{ByteRange, Checksum, ChecksumKind};

use super::event::Action;
use super::finding::{Basis, Failure, Why};
use super::ledger::{Piece, Sender};
use super::phase::{About, Hearing, Phase, Then};
use super::terms::Member;
use super::thrown::{Answer, ReadBack, Thrown};
use super::votes::{Found, Verdict};
use super::{Judge, Scene};

impl Judge {
    /// Takes one step, if one can be taken without news.
    pub(super) fn advance(&mut self, scene: &mut Scene<'_>) -> bool {
        match self.phase {
            Phase::Moving if scene.plan.is_complete() => {
                // What was so of the bytes says nothing of those that are there now.
                self.verified = None;
                self.verified_with.clear();
                self.phase = Phase::Settling;
                true
            }
            // A lane that lost a race for bytes may have told of them before the winner had written them.
            Phase::Settling if scene.ledger.is_settled() => {
                // A lane may have written for a source after that was found out.
                match self.disbelieve(scene) || self.refetch_missing(scene) {
                    true => self.moves_again(),
                    false if self.terms.known.pieces.is_some() => {
                        self.phase = Phase::Checking { is_asked: true };
                        self.act(Action::ComparePieces);
                    }
                    false => self.hears(),
                }
                true
            }
            Phase::Checking { is_asked: false } => self.are_pieces_compared(scene),
            Phase::Hearing(_) => self.listen(scene),
            _ => false,
        }
    }

    /// True while lanes are closed: nothing is begun meanwhile.
    pub(super) fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing(_) | Phase::Ended)
    }

    /// True while something else than bytes is waited for.
    pub(super) fn is_waiting(&self) -> bool {
        !matches!(self.phase, Phase::Moving)
    }

    /// The pieces that lanes had not compared were compared.
    pub(super) fn pieces_were_compared(&mut self) {
        if let Phase::Checking { is_asked } = &mut self.phase {
            *is_asked = false;
        }
    }

    /// Waits until every piece has been compared, or bytes are missing again.
    fn are_pieces_compared(&mut self, scene: &mut Scene<'_>) -> bool {
        let size_bytes = self.size_bytes.unwrap_or(0);
        let is_missing = !scene.ledger.missing(size_bytes).is_empty();
        if !is_missing && !scene.ledger.unverified(size_bytes).is_empty() {
            return false;
        }
        match self.refetch_missing(scene) {
            true => self.moves_again(),
            false => self.hears(),
        }
        true
    }

    fn hears(&mut self) {
        self.is_verifying = true;
        self.votes.whole(Some(self.now));
        // A lane that had nothing to fetch has not asked either.
        self.act(Action::AskOthers);
        let found = Found { size_bytes: self.size_bytes.unwrap_or(0), checksums: Vec::new() };
        self.phase = Phase::Hearing(Hearing { found, ..Hearing::default() });
    }

    pub(super) fn hears_no_more(&mut self) {
        self.is_verifying = false;
        self.votes.whole(None);
    }

    pub(super) fn moves_again(&mut self) {
        self.hears_no_more();
        self.phase = Phase::Moving;
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        self.hears_no_more();
        self.is_worthless |= matches!(failure, Failure::Wrong { .. });
        self.phase = Phase::Ended;
        self.act(Action::Fail(failure));
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// Asks the file something.
    pub(super) fn ask(&mut self, what: ReadBack, about: About) {
        let ticket = self.ticket();
        self.phase = Phase::Asking { ticket, changes: self.changes, about };
        self.act(Action::ReadBack { ticket, what });
    }

    // --- Hearing ---------------------------------------------------------------------------------

    /// Every byte is there: has checksums computed, waits for words that could change the verdict, and judges.
    fn listen(&mut self, scene: &mut Scene<'_>) -> bool {
        let kinds = self.kinds();
        let Phase::Hearing(hearing) = &mut self.phase else { return false };
        if hearing.waits.is_some() {
            return false;
        }
        if scene.plan.is_complete() {
            let new: Vec<ChecksumKind> =
                kinds.iter().copied().filter(|kind| !hearing.asked.contains(kind)).collect();
            if !new.is_empty() {
                hearing.asked.extend(&new);
                self.tickets += 1;
                hearing.waits = Some((self.tickets, self.changes));
                self.act(Action::Hash { ticket: self.tickets, kinds: new });
                return true;
            }
            hearing.found.checksums.sort_by_key(|own| kinds.iter().position(|kind| *kind == own.kind()));
            let found = hearing.found.clone();
            let own_word = found.checksums.first().filter(|_| self.is_its_own_word() && !self.is_described());
            if let Some(own) = own_word.filter(|_| self.votes.statement(0).is_empty()) {
                self.votes.states(0, [own.clone()]);
                return true;
            }
            if matches!(self.verdict(&found), (Verdict::Open, _)) {
                return false;
            }
        }
        for number in self.votes.owing(self.now) {
            self.members[number].owed_in_vain = true;
        }
        self.drop_contradictory(scene);
        let is_complete = scene.plan.is_complete();
        if !is_complete || self.disbelieve(scene) || self.refetch_missing(scene) {
            self.moves_again();
            return true;
        }
        let Phase::Hearing(Hearing { found, .. }) = &self.phase else { return true };
        let found = found.clone();
        self.decide(found, scene)
    }

    /// Checksums of the bytes were computed.
    pub(super) fn hashed(&mut self, answered: u64, checksums: Vec<Checksum>) {
        let changes = self.changes;
        let Phase::Hearing(hearing) = &mut self.phase else { return };
        let Some((_, before)) = hearing.waits.take_if(|(ticket, _)| *ticket == answered) else { return };
        match before == changes {
            true => hearing.found.checksums.extend(checksums),
            // These are not the bytes any more.
            false => (hearing.found.checksums, hearing.asked) = (Vec::new(), Vec::new()),
        }
    }

    /// Decides about the bytes that are there. `false`: a word is missing.
    fn decide(&mut self, found: Found, scene: &mut Scene<'_>) -> bool {
        let all = &found.checksums;
        let Some(first) = all.first().cloned() else {
            self.fail(Failure::NotComputed);
            return true;
        };
        self.checksum = Some(first.clone());
        self.compared.clone_from(all);
        self.unstated = self.unstated_kind();
        let of_kind = |expected: &Checksum| {
            all.iter().find(|own| own.kind() == expected.kind()).unwrap_or(&first).clone()
        };
        let differs = |known: &&Checksum| !all.contains(known);
        if let Some(known) = self.terms.known.checksums.iter().find(differs).cloned() {
            let own = of_kind(&known);
            self.wrong(&own, &known, scene);
            return true;
        }
        match self.verdict(&found) {
            // All that the metalink says is so; it counts before what sources say.
            _ if self.is_described() => self.right(Basis::Metalink, found),
            (Verdict::Right { agreeing, said, named }, told) => {
                self.right(told.unwrap_or(Basis::Sources { agreeing, said, named }), found);
            }
            (Verdict::Wrong { expected }, _) => {
                let own = of_kind(&expected);
                self.wrong(&own, &expected, scene);
            }
            (Verdict::Split(contradiction), _) => self.fail(Failure::Split(contradiction)),
            (Verdict::Nothing, _) => self.not_compared(scene),
            // A source that had said nothing, and was not waited for, has begun to answer since: what it says is
            // on its way, and counts.
            (Verdict::Open, _) => return false,
        }
        true
    }

    /// Nothing was stated that the bytes could be compared with.
    fn not_compared(&mut self, scene: &mut Scene<'_>) {
        if self.has_unvouched(scene) {
            self.fail(Failure::Unvouched);
        } else if let Some(source) = self.disproved(scene) {
            self.fail(Failure::Disproved { source });
        } else if self.terms.require_verified {
            self.fail(Failure::NotCompared);
        } else {
            self.is_fit();
        }
    }

    /// True if bytes are from a replica that only a server named. It was used because a checksum was to tell
    /// whether they are right; the source that had said that checksum may have turned out to be wrong since.
    fn has_unvouched(&self, scene: &Scene<'_>) -> bool {
        let mut served = self.members.iter().enumerate().filter(|(_, member)| member.is_served);
        served.any(|(number, _)| scene.ledger.bytes_of(number as Sender) > 0)
    }

    /// A source that is not believed, and whose bytes are among those that cannot be called back, or which alone says that
    /// there are none at all.
    fn disproved(&self, scene: &Scene<'_>) -> Option<usize> {
        let says_empty = |member: &Member| self.size_bytes == Some(0) && member.size_bytes == Some(0);
        let is_vouched = self.terms.known.size_bytes.is_some()
            || self.members.iter().any(|member| !member.is_distrusted && says_empty(member));
        let is_used = |(number, member): &(usize, &Member)| {
            scene.ledger.bytes_of(*number as Sender) > 0 || !is_vouched && says_empty(member)
        };
        let mut distrusted = self.members.iter().enumerate().filter(|(_, member)| member.is_distrusted);
        distrusted.find(is_used).map(|(number, _)| number)
    }

    /// The bytes are wrong. What an earlier run has left is fetched again before any source is suspected.
    fn wrong(&mut self, found: &Checksum, expected: &Checksum, scene: &mut Scene<'_>) {
        let ranges = std::mem::take(&mut self.earlier);
        if ranges.is_empty() || self.terms.known.pieces.is_some() {
            self.mismatched(found, expected, scene);
            return;
        }
        self.lose(&ranges, scene);
        self.resumed_bytes = 0;
        self.moves_again();
    }

    // --- Right -----------------------------------------------------------------------------------

    /// The bytes are right, as `basis` says: whose bytes were others than those that are there now?
    fn right(&mut self, basis: Basis, found: Found) {
        let thrown = std::mem::take(&mut self.thrown);
        match thrown.is_empty() {
            true => self.is_right(&[], &[], basis, &found),
            false => self.ask(ReadBack::Still(thrown.clone()), About::Liars { thrown, basis, found }),
        }
    }

    fn is_right(&mut self, thrown: &[Thrown], there: &[Thrown], basis: Basis, found: &Found) {
        for number in 0..self.members.len() {
            let of_it =
                |parts: &[Thrown]| parts.iter().filter(|part| part.piece.sender == number as Sender).count();
            if of_it(thrown) > of_it(there) {
                self.name(number, Why::WrongBytes);
            }
        }
        self.verified = Some(basis);
        self.verified_with = match basis {
            Basis::User => self.told().map(|(checksum, _)| checksum.kind()).into_iter().collect(),
            Basis::Metalink => self.terms.known.checksums.iter().map(Checksum::kind).collect(),
            Basis::Sources { .. } => self.votes.supporting(found),
        };
        if !self.is_described() {
            self.checksum = self.compared_by(found).or(found.checksums.first().cloned());
            if self.told().is_none() {
                self.name_contradicting(found);
            }
        }
        self.is_fit();
    }

    // --- Fit -------------------------------------------------------------------------------------

    /// The bytes that came are as right as can be known: are they those that the target has?
    fn is_fit(&mut self) {
        self.hears_no_more();
        if !self.terms.in_order {
            self.phase = Phase::Looking { changes: self.changes };
            self.act(Action::LookAtFile);
        } else if self.verified.is_none() && self.members.iter().any(|member| member.is_distrusted) {
            self.fail(Failure::DisprovedInOrder);
        } else {
            self.phase = Phase::Ended;
            self.act(Action::Finish);
        }
    }

    /// The engine has looked at the file: it is read back where there is a reason to.
    pub(super) fn looked(&mut self, is_doubtful: bool, took: Duration, scene: &mut Scene<'_>) {
        let Phase::Looking { changes } = self.phase else { return };
        if changes != self.changes {
            self.moves_again();
            return;
        }
        // A checksum that cannot be put together from those of ranges was just computed from the file, and compared.
        let was_read = self.verified_with.iter().any(|kind| *kind != ChecksumKind::Adler32);
        let is_long = is_long(took, self.size_bytes.unwrap_or(0));
        if !is_doubtful && (was_read || self.resumed_bytes == 0 && !is_long) {
            self.close_for(Then::Finish);
            return;
        }
        let pieces: Vec<Piece> = scene.ledger.pieces().copied().collect();
        self.ask(ReadBack::Damage(pieces), About::Damage);
    }

    fn damaged(&mut self, damaged: &[ByteRange], scene: &mut Scene<'_>) {
        if damaged.is_empty() {
            self.close_for(Then::Finish);
            return;
        }
        self.damages += 1;
        if self.damages > READ_BACKS_MAX {
            self.fail(Failure::NotKept);
            return;
        }
        self.lose(damaged, scene);
        self.moves_again();
    }

    /// Has ranges of the file fetched again, from whichever sender.
    fn lose(&mut self, ranges: &[ByteRange], scene: &mut Scene<'_>) {
        let lost: Vec<Piece> = ranges.iter().flat_map(|range| scene.ledger.lose(*range)).collect();
        self.lost(&lost);
        let lost: Vec<ByteRange> = lost.iter().map(|piece| piece.range).collect();
        let believed = self.believed();
        self.refetch(&lost, &believed);
    }

    /// The file was asked something, and this is the answer.
    pub(super) fn was_read(&mut self, answered: u64, answer: Answer, scene: &mut Scene<'_>) {
        let Phase::Asking { ticket, changes, about } = &mut self.phase else { return };
        if *ticket != answered {
            return;
        }
        let is_same = *changes == self.changes;
        let about = std::mem::replace(about, About::Damage);
        match (about, answer) {
            (About::Contradictions, Answer::Differing(pairs)) => {
                self.contradictions(if is_same { &pairs } else { &[] });
                self.next_hypothesis(scene);
            }
            (About::Spared { believed, thrown_bytes }, Answer::Cut { cut, kept }) => {
                self.spared(&believed, thrown_bytes, cut, &kept, scene);
            }
            (About::Liars { thrown, .. }, _) if !is_same => {
                self.thrown.extend(thrown);
                self.moves_again();
            }
            (About::Liars { thrown, basis, found }, Answer::Still(there)) => {
                self.is_right(&thrown, &there, basis, &found);
            }
            (About::Damage, Answer::Damage(ranges)) if is_same => self.damaged(&ranges, scene),
            // Bytes were taken away meanwhile, or it is no answer to what was asked: everything is compared again.
            _ => self.moves_again(),
        }
    }

    // --- Closing ---------------------------------------------------------------------------------

    pub(super) fn close_for(&mut self, then: Then) {
        self.hears_no_more();
        self.phase = Phase::Closing(then);
        self.act(Action::CloseLanes);
    }

    /// No lane is open, and everything was told that lanes had still to tell.
    pub(super) fn lanes_closed(&mut self, scene: &mut Scene<'_>) {
        match self.phase {
            Phase::Closing(Then::StartOver(right)) => self.started_over(right, scene),
            Phase::Closing(Then::BelieveOthers) => self.believe_others(scene),
            Phase::Closing(Then::Finish) => self.closed(scene),
            _ => {}
        }
    }

    /// Where no checksum says that the bytes are right, the last word of a lane still counts: that its bytes are not to be
    /// believed, so that others send them again; or a checksum, by which they are compared after all.
    fn closed(&mut self, scene: &mut Scene<'_>) {
        let is_proved = self.verified.is_some();
        let is_missing = |scene: &Scene<'_>| !scene.ledger.missing(self.size_bytes.unwrap_or(0)).is_empty();
        if is_proved || !is_missing(scene) && !self.disbelieve(scene) && !self.was_told_more() {
            self.phase = Phase::Ended;
            self.act(Action::Finish);
            return;
        }
        self.act(Action::NewPlan);
        self.moves_again();
        self.refetch_missing(scene);
    }

    /// True if the bytes, that could not be compared with anything, can be by now.
    fn was_told_more(&self) -> bool {
        let is_known = |kind: &ChecksumKind| self.compared.iter().any(|own| own.kind() == *kind);
        let found = Found { size_bytes: self.size_bytes.unwrap_or(0), checksums: self.compared.clone() };
        !self.kinds().iter().all(is_known)
            || !matches!(self.votes.verdict(self.now, &found), Verdict::Nothing | Verdict::Open)
    }

    /// The server of an upload says what it has now: whether it is what was sent. Without a checksum of its own the copy is
    /// not verified.
    pub fn is_stored(&mut self, size_bytes: Option<u64>, checksum: Option<&Checksum>) -> bool {
        let is_other_size = size_bytes.is_some() && size_bytes != self.size_bytes;
        if is_other_size || checksum.is_some_and(|said| !self.compared.contains(said)) {
            return false;
        }
        // That the server has what was sent says nothing about the source; both words are needed.
        if checksum.is_none() {
            self.verified = None;
            if let Some((kind, None)) = &self.terms.checksum {
                self.unstated = Some(*kind);
            }
        }
        true
    }
}

/// True if a copy that took `took` was long enough to look at its bytes again: reading them is a small part of its time, or
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
