//! How large the file is, when sources may contradict each other.

use super::event::Action;
use super::finding::{Failure, Why};
use super::phase::{Phase, Then};
use super::{Judge, Scene};

impl Judge {
    /// A source has said how large its file is.
    pub(super) fn identified(&mut self, source: usize, size_bytes: Option<u64>, scene: &mut Scene<'_>) {
        self.votes.heard(source, self.now);
        let Some(size_bytes) = size_bytes else { return };
        self.votes.says_size(source, size_bytes);
        self.with(source, |member| member.size_bytes = Some(size_bytes));
        let Some(member) = self.members.get(source).filter(|member| !member.is_dead) else { return };
        match self.size_bytes {
            // Everything is decided by what all have said when the last lane is closed.
            _ if self.is_closing() => {}
            Some(agreed) if agreed == size_bytes => {}
            Some(agreed) if member.is_served => self.outvote(source, size_bytes, agreed, scene),
            Some(agreed) => self.contradicted(source, size_bytes, agreed, scene),
            // The source that named it will say how large the file is.
            None if member.is_served => {}
            None => self.agree(size_bytes),
        }
    }

    /// Takes the size that is known without any source, if there is one and no other counts already.
    pub fn agree_on_known(&mut self) {
        if let (None, Some(size_bytes)) = (self.size_bytes, self.terms.known.size_bytes) {
            self.agree(size_bytes);
        }
    }

    fn agree(&mut self, size_bytes: u64) {
        self.size_bytes = Some(size_bytes);
        self.act(Action::Agree { size_bytes });
    }

    /// An earlier run has left what the ledger has now.
    pub(super) fn continues(&mut self, size_bytes: Option<u64>, scene: &mut Scene<'_>) {
        self.resumed_bytes = scene.ledger.pieces().map(|piece| piece.range.len()).sum();
        if let Some(size_bytes) = size_bytes {
            self.earlier = scene.ledger.pieces().map(|piece| piece.range).collect();
            self.ask_strong();
            self.size_bytes = Some(size_bytes);
            self.votes.continues(Some(size_bytes));
        }
    }

    /// Two sources say different sizes: the copy goes on with the one that leads. The source that was outvoted keeps its vote,
    /// and a later one may turn the majority; whether there is one in the end is part of the verdict.
    fn contradicted(&mut self, source: usize, size_bytes: u64, agreed: u64, scene: &mut Scene<'_>) {
        if self.terms.known.size_bytes == Some(agreed) {
            self.outvote(source, size_bytes, agreed, scene);
            return;
        }
        let right = self.votes.leading_size().unwrap_or(agreed);
        if right == agreed {
            self.outvote(source, size_bytes, right, scene);
        } else if self.terms.in_order {
            // What it has taken cannot be called back.
            self.fail(Failure::SizeTurned { source, agreed, right });
        } else {
            self.start_over(right);
        }
    }

    /// A source does not count any more: others may lead now.
    pub(super) fn recount_sizes(&mut self) {
        let leading = self.votes.leading_size().filter(|_| self.terms.known.size_bytes.is_none());
        match (self.size_bytes, leading) {
            _ if self.is_closing() || self.terms.in_order => {}
            (Some(agreed), Some(leading)) if leading != agreed => self.start_over(leading),
            _ => {}
        }
    }

    /// Starts over with another size, with those that say it.
    fn start_over(&mut self, right: u64) {
        self.close_for(Then::StartOver(right));
    }

    /// No lane is open: what they had still to tell may have changed the size that counts.
    pub(super) fn started_over(&mut self, right: u64, scene: &mut Scene<'_>) {
        let right = self.votes.leading_size().unwrap_or(right);
        for number in 0..self.members.len() {
            match self.members[number].size_bytes {
                Some(size_bytes) if size_bytes != right => self.outvote(number, size_bytes, right, scene),
                Some(_) if self.members[number].is_outvoted && !self.members[number].is_served => {
                    let member = &mut self.members[number];
                    (member.is_outvoted, member.is_distrusted, member.is_dead) = (false, false, false);
                    self.votes.ask(number, self.now);
                    self.act(Action::Revive { source: number });
                }
                _ => {}
            }
        }
        self.resumed_bytes = 0;
        self.earlier.clear();
        scene.ledger.clear();
        self.changes += 1;
        // What was thrown away of a file of another size tells nothing of this one.
        (self.suspects, self.checksum) = (None, None);
        self.thrown.clear();
        self.members.iter_mut().for_each(|member| member.is_doubted = false);
        self.disbelieve(scene);
        self.act(Action::Restart);
        self.size_bytes = None;
        self.votes.continues(None);
        self.act(Action::NewPlan);
        self.phase = Phase::Moving;
        self.agree(right);
    }

    fn outvote(&mut self, source: usize, size_bytes: u64, right: u64, scene: &mut Scene<'_>) {
        self.members[source].is_outvoted = true;
        let by_metalink = self.terms.known.size_bytes.is_some();
        self.kill(source, Some(Why::OtherSize { size_bytes, right, by_metalink }), true, scene);
    }
}
