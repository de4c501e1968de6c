//! What sources state, while bytes come and afterwards.

use gridlane_core::{Checksum, ChecksumKind};

use super::event::Action;
use super::finding::{Basis, Why};
use super::votes::{Found, Verdict};
use super::{Judge, Scene};

impl Judge {
    /// A source was asked for the checksum and says these, or none. It is not waited for any more.
    pub(super) fn said(&mut self, source: usize, checksums: Vec<Checksum>, scene: &mut Scene<'_>) {
        self.votes.silent(source);
        self.with(source, |member| member.has_spoken = true);
        self.states(source, checksums, scene);
    }

    /// A source was asked for a strong checksum; `None`: it did not answer.
    pub(super) fn said_strong(
        &mut self,
        source: usize,
        checksums: Option<Vec<Checksum>>,
        scene: &mut Scene<'_>,
    ) {
        self.votes.silent_strong(source);
        if checksums.is_some() {
            self.votes.heard(source, self.now);
        }
        self.states(source, checksums.unwrap_or_default(), scene);
    }

    /// A source states checksums of the file.
    pub(super) fn states(&mut self, source: usize, checksums: Vec<Checksum>, scene: &mut Scene<'_>) {
        if checksums.is_empty() {
            return;
        }
        self.votes.heard(source, self.now);
        self.votes.states(source, checksums);
        if let Some((checksum, liars)) = self.settled() {
            self.act(Action::Settled(checksum.clone()));
            self.drop_liars(&checksum, &liars, scene);
        }
    }

    /// The checksum that the file must have, as far as that is settled while bytes come, and the sources that state another one.
    fn settled(&self) -> Option<(Checksum, Vec<usize>)> {
        match self.told() {
            Some((checksum, _)) => Some((checksum.clone(), self.votes.contradicting(checksum))),
            None => self.votes.settled(self.now, self.first_kind()),
        }
    }

    /// The checksum that the file must have, as far as that is settled.
    pub fn agreed(&self) -> Option<Checksum> {
        self.settled().map(|(checksum, _)| checksum)
    }

    /// The kind of checksum that is compared first of all.
    pub fn first_kind(&self) -> ChecksumKind {
        self.terms.kinds().first().copied().unwrap_or(ChecksumKind::Adler32)
    }

    /// The checksum of the kind that is compared first which is believed without a vote.
    pub fn told(&self) -> Option<(&Checksum, Basis)> {
        let user = self.terms.checksum.as_ref().and_then(|(_, value)| value.as_ref());
        let known = || self.terms.known.checksums.iter().find(|own| own.kind() == self.first_kind());
        user.map(|checksum| (checksum, Basis::User)).or_else(|| Some((known()?, Basis::Metalink)))
    }

    /// True if a metalink says what the bytes are, so that no source is asked for it.
    pub fn is_described(&self) -> bool {
        let known = &self.terms.known;
        let is_told_by_user = matches!(self.terms.checksum, Some((_, Some(_))));
        !is_told_by_user && (!known.checksums.is_empty() || known.pieces.is_some())
    }

    /// True if the only source is a file of this machine that is uploaded. Its checksum is that of the bytes that
    /// were read of it: reading all of it twice would tell nothing that comparing with the server does not.
    pub fn is_its_own_word(&self) -> bool {
        self.terms.is_own_word && self.members.len() == 1
    }

    /// The verdict about the bytes that are there; `Right` without votes where a person or a metalink decides.
    pub(super) fn verdict(&self, found: &Found) -> (Verdict, Option<Basis>) {
        match self.told() {
            Some((checksum, basis)) if found.checksums.contains(checksum) => {
                (Verdict::Right { agreeing: 0, said: 0, named: 0 }, Some(basis))
            }
            Some((checksum, _)) => (Verdict::Wrong { expected: checksum.clone() }, None),
            None => (self.votes.verdict(self.now, found), None),
        }
    }

    /// The kinds of checksums by which the bytes are compared: those that were asked for first.
    pub(super) fn kinds(&self) -> Vec<ChecksumKind> {
        let first = self.terms.kinds();
        let mut kinds = first.clone();
        if self.told().is_none() && !self.is_described() {
            kinds.extend(self.votes.kinds().into_iter().filter(|kind| !first.contains(kind)));
        }
        kinds
    }

    /// Stops using sources that contradict the agreed checksum, as long as another one is left.
    fn drop_liars(&mut self, checksum: &Checksum, liars: &[usize], scene: &mut Scene<'_>) {
        let honest = |number: usize| !self.members[number].is_dead && !liars.contains(&number);
        if !(0..self.members.len()).any(honest) {
            return;
        }
        for liar in liars {
            if self.members[*liar].is_dead {
                continue;
            }
            let is_other = |own: &&Checksum| own.kind() == checksum.kind() && *own != checksum;
            let said = self.votes.statement(*liar).iter().find(is_other).cloned();
            self.kill(*liar, Some(Why::OtherChecksum { said, agreed: checksum.clone() }), true, scene);
        }
    }

    /// Stops using sources that have told two sizes: their bytes may be of another file, or not all of it. Only a
    /// checksum that was told otherwise could still say that they are right.
    pub(super) fn drop_contradictory(&mut self, scene: &mut Scene<'_>) {
        if self.told().is_some() || self.is_described() {
            return;
        }
        for number in 0..self.members.len() {
            let Some((sent, asked)) =
                self.members[number].two_sizes.filter(|_| !self.members[number].is_dead)
            else {
                continue;
            };
            self.votes.discredit(number);
            self.kill(number, Some(Why::TwoSizes { sent, asked }), true, scene);
        }
    }

    /// The bytes are right: names those that state another checksum of them.
    pub(super) fn name_contradicting(&mut self, found: &Found) {
        for number in self.votes.against(found) {
            if !self.members[number].is_distrusted {
                self.name(number, Why::AgainstTheBytes);
            }
        }
    }

    /// A source has lied, and nothing more is needed of it.
    pub(super) fn name(&mut self, source: usize, why: Why) {
        self.with(source, |member| (member.is_distrusted, member.is_dead) = (true, true));
        self.act(Action::Name { source, why });
    }

    /// The checksum that was compared: of the kind that was asked for if any source states that, else the strongest one that
    /// is stated. Of a file that an earlier run has begun it is the strongest, unless the caller asked for a kind.
    pub(super) fn compared_by(&self, found: &Found) -> Option<Checksum> {
        let stated = self.votes.supporting(found);
        let is_stated = |own: &&Checksum| stated.contains(&own.kind());
        let is_asked = self.terms.checksum.is_some() || !self.is_compared_strongly;
        let asked = found.checksums.first().filter(|_| is_asked).filter(is_stated);
        let strongest = || found.checksums.iter().filter(is_stated).max_by_key(|own| own.kind().strength());
        asked.or_else(strongest).cloned()
    }

    /// The kind of checksum that the caller asked for, if no source states one.
    pub(super) fn unstated_kind(&self) -> Option<ChecksumKind> {
        let (kind, value) = self.terms.checksum.as_ref()?;
        let is_known = || self.terms.known.checksums.iter().any(|own| own.kind() == *kind);
        (value.is_none() && !self.votes.kinds().contains(kind) && !is_known()).then_some(*kind)
    }

    /// The bytes of an earlier run are used: has the sources asked for strong checksums, beside the data. What they say are
    /// votes like any other.
    pub(super) fn ask_strong(&mut self) {
        if self.told().is_some() || self.is_described() || self.first_kind().is_strong() {
            return;
        }
        self.is_compared_strongly = true;
        for source in 0..self.members.len() {
            if !self.members[source].is_dead {
                self.votes.ask_strong(source, self.now);
                self.act(Action::AskStrong { source });
            }
        }
    }
}
