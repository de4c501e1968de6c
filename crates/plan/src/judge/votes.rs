//! Which bytes are right, when some replicas say what they have, some say nothing, and some lie; and for how long a word
//! that is still missing is waited for.
//!
//! Each replica that a person named has one vote. It consists of everything that the replica states of the file: its size,
//! and checksums of as many kinds as it likes. Two replicas contradict each other when they state different sizes, or
//! different values of one kind.
//!
//! # The rule
//!
//! Once every byte is there, replicas are *for* the bytes (they state a checksum, and nothing that they state differs from
//! the bytes), *against* them (something differs), or neither (they state no checksum). The bytes are right when more
//! replicas are for them than against them, and the others that may still speak could not change that. Sizes are counted in
//! the same way, with the size of a replica that states no checksum as a vote as well. Without a majority nothing is
//! right, and with no replica for or against them the bytes are *unverified*.
//!
//! # The word that is waited for
//!
//! How fast a replica answers says nothing about whether it is right, so the fastest must not decide. A word is waited for
//! until it could change nothing, or until the replica cannot or will not say it: it refuses connections, is dead, was asked
//! in vain, or is silent for too long. How long that is depends on that replica and on the user's patience alone, and never
//! on the others:
//!
//! - one that has not answered anything yet has a sixth of the patience, at least `SILENT` as every
//!   lane has, and eight of its own round trips, counted from when it was asked;
//! - one that has answered something and owes its checksum may be reading the file for it. It has all of the patience, and the
//!   time that a slow disk takes, counted from when every byte was there.
//!
//! What this does not know: the senders of bytes, and those whose bytes are fetched again. The engine asks for the
//! [verdict](Votes::verdict) about bytes that it has, and when they are wrong tries others.

#[cfg(test)]
mod tests;

use std::time::Duration;

use gridlane_core::limits::{DIGEST_BYTES_PER_S_MIN, DIGEST_WAIT_MAX};
use gridlane_core::{Checksum, ChecksumKind, Time};

use crate::settings::{SILENT, SILENT_ROUND_TRIPS};

/// A replica has this part of the patience for its first answer. That is less than a connection may take to be made, so
/// that one that is under way is there for the next copy.
const FIRST_ANSWER_PART: u32 = 6;

/// The statements of all replicas of one file about it.
#[derive(Clone, Debug)]
pub struct Votes {
    patience: Duration,
    voters: Vec<Voter>,
    /// The moment since which every byte is there.
    whole_at: Option<Time>,
    /// The size of a file of which an earlier run has left a part.
    continued_bytes: Option<u64>,
}

/// One replica.
#[derive(Clone, Debug)]
struct Voter {
    /// The user named it. Replicas that only a server named have no vote.
    has_vote: bool,
    asked_at: Time,
    /// The time of its last answer of any kind.
    heard_at: Option<Time>,
    /// It has been asked, or will be, and may still say its checksum.
    is_awaited: bool,
    /// It has been asked for a strong checksum as well, and may still say it.
    owes_strong: bool,
    /// No connection to it can be made.
    refuses: bool,
    /// It was waited for in vain earlier, and has not answered since.
    is_given_up: bool,
    /// Its checksum was waited for in vain earlier, and it has not stated one since.
    owed_in_vain: bool,
    /// It contradicts itself, or does not keep to its protocol: nothing that it states counts.
    is_discredited: bool,
    round_trip: Option<Duration>,
    size_bytes: Option<u64>,
    checksums: Vec<Checksum>,
}

/// Bytes that are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Their number.
    pub size_bytes: u64,
    /// Their checksums, of every kind that could be computed. What replicas state of other kinds does not count.
    pub checksums: Vec<Checksum>,
}

/// The verdict of the votes about bytes that are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A word that may still come could change it.
    Open,
    /// No replica states anything that could be compared.
    Nothing,
    /// The bytes are right.
    Right {
        /// Replicas for them.
        agreeing: usize,
        /// Replicas for or against them.
        said: usize,
        /// Replicas that were named.
        named: usize,
    },
    /// More replicas state this than contradict it, and the bytes have another value.
    Wrong {
        /// The value that they should have.
        expected: Checksum,
    },
    /// The replicas contradict each other, and no side has a majority.
    Split(Split),
}

/// The subject of a contradiction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Split {
    /// The size of the file, in bytes.
    Sizes(Vec<u64>),
    /// The checksum.
    Checksums(Vec<Checksum>),
}

/// The position of replicas about bytes or a statement.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    agreeing: usize,
    against: usize,
    /// They state something that cannot be compared.
    apart: usize,
}

impl Votes {
    /// Without replicas; `patience` is the longest silence that is borne.
    pub fn new(patience: Duration) -> Votes {
        Votes { patience, voters: Vec::new(), whole_at: None, continued_bytes: None }
    }

    /// Adds a replica, which has a vote if the user named it; its number is the next one. It is asked at `now`.
    pub fn add(&mut self, now: Time, has_vote: bool) -> usize {
        self.voters.push(Voter {
            has_vote,
            asked_at: now,
            heard_at: None,
            is_awaited: has_vote,
            owes_strong: false,
            owed_in_vain: false,
            refuses: false,
            is_given_up: false,
            is_discredited: false,
            round_trip: None,
            size_bytes: None,
            checksums: Vec::new(),
        });
        self.voters.len() - 1
    }

    // --- What happens ----------------------------------------------------------------------------

    /// The replica is asked for its checksum at `now`, perhaps once more.
    pub fn ask(&mut self, replica: usize, now: Time) {
        self.with(replica, |voter| (voter.is_awaited, voter.asked_at) = (voter.has_vote, now));
    }

    /// The replica says no checksum, or is not asked for one: not waited for any more.
    pub fn silent(&mut self, replica: usize) {
        self.with(replica, |voter| voter.is_awaited = false);
    }

    /// The replica is asked at `now` for a strong checksum as well.
    pub fn ask_strong(&mut self, replica: usize, now: Time) {
        self.with(replica, |voter| (voter.owes_strong, voter.asked_at) = (voter.has_vote, now));
    }

    /// The replica says no strong checksum beside what it has stated: not waited for any more.
    pub fn silent_strong(&mut self, replica: usize) {
        self.with(replica, |voter| voter.owes_strong = false);
    }

    /// The replica has answered something at `now`.
    pub fn heard(&mut self, replica: usize, now: Time) {
        self.with(replica, |voter| {
            voter.heard_at = Some(now);
            (voter.refuses, voter.is_given_up) = (false, false);
        });
    }

    /// There is a connection to the replica; the smallest round trip counts, if it is known.
    pub fn reached(&mut self, replica: usize, round_trip: Option<Duration>) {
        self.with(replica, |voter| {
            voter.refuses = false;
            voter.round_trip = match (voter.round_trip, round_trip) {
                (Some(before), Some(seen)) => Some(before.min(seen)),
                (before, seen) => before.or(seen),
            };
        });
    }

    /// No connection can be made to a replica that was never reached, or it is dead: not waited for until it is reached.
    pub fn gone(&mut self, replica: usize) {
        self.with(replica, |voter| voter.refuses = true);
    }

    /// The replica's server was waited for in vain before: not waited for until it answers something.
    pub fn give_up(&mut self, replica: usize) {
        self.with(replica, |voter| voter.is_given_up = true);
    }

    /// The replica's server answers, and its checksum was waited for in vain before: not waited for until it states one.
    pub fn owed_in_vain(&mut self, replica: usize) {
        self.with(replica, |voter| voter.owed_in_vain = true);
    }

    /// Nothing counts that the replica states, now or later.
    pub fn discredit(&mut self, replica: usize) {
        self.with(replica, |voter| voter.is_discredited = true);
    }

    /// The replica's file has so many bytes.
    pub fn says_size(&mut self, replica: usize, size_bytes: u64) {
        self.with(replica, |voter| voter.size_bytes = Some(size_bytes));
    }

    /// The replica states checksums. Two values of one kind stand beside each other: no bytes have both.
    pub fn states(&mut self, replica: usize, checksums: impl IntoIterator<Item = Checksum>) {
        self.with(replica, |voter| {
            for checksum in checksums {
                voter.owed_in_vain = false;
                if !voter.checksums.contains(&checksum) {
                    voter.checksums.push(checksum);
                }
            }
        });
    }

    /// An earlier run has left a part of a file of this size, and it is gone on with: where as many replicas state this
    /// size as another one, it counts.
    pub fn continues(&mut self, size_bytes: Option<u64>) {
        self.continued_bytes = size_bytes;
    }

    /// Every byte is there since `now`; `None`: not any more.
    pub fn whole(&mut self, now: Option<Time>) {
        self.whole_at = now;
    }

    fn with(&mut self, replica: usize, change: impl FnOnce(&mut Voter)) {
        if let Some(voter) = self.voters.get_mut(replica) {
            change(voter);
        }
    }

    // --- What follows ----------------------------------------------------------------------------

    /// The checksums that a replica states.
    pub fn statement(&self, replica: usize) -> &[Checksum] {
        self.voters.get(replica).map_or(&[], |voter| &voter.checksums)
    }

    /// True if a replica has answered anything.
    pub fn was_heard(&self, replica: usize) -> bool {
        self.voters.get(replica).is_some_and(|voter| voter.heard_at.is_some())
    }

    /// True if it was waited for in vain, now or earlier, so that the next copy need not wait for the same server.
    pub fn is_mute(&self, replica: usize, now: Time) -> bool {
        self.voters.get(replica).is_some_and(|voter| {
            voter.heard_at.is_none() && (voter.is_given_up || voter.is_awaited && self.is_late(voter, now))
        })
    }

    /// The replicas that answer and whose checksums are waited for in vain, so that the next copy need not wait for them.
    pub fn owing(&self, now: Time) -> Vec<usize> {
        let is_owing = |voter: &Voter| {
            let owes = (voter.is_awaited || voter.owes_strong) && !voter.owed_in_vain;
            voter.heard_at.is_some() && owes && self.is_late(voter, now)
        };
        self.eligible().filter(|(_, voter)| is_owing(voter)).map(|(number, _)| number).collect()
    }

    /// The kinds of checksums that replicas with a vote state.
    pub fn kinds(&self) -> Vec<ChecksumKind> {
        let mut kinds: Vec<ChecksumKind> =
            self.eligible().flat_map(|(_, voter)| &voter.checksums).map(Checksum::kind).collect();
        kinds.sort();
        kinds.dedup();
        kinds
    }

    /// The size that most replicas state; of equals that of an earlier run, then that which more checksums go with, then
    /// the one of the replica that was named first.
    pub fn leading_size(&self) -> Option<u64> {
        let rank = |size_bytes: u64| {
            let saying = |voter: &&Voter| voter.size_bytes == Some(size_bytes);
            let spoken = |voter: &&Voter| saying(voter) && !voter.checksums.is_empty();
            let count = |is: &dyn Fn(&&Voter) -> bool| self.eligible().filter(|(_, voter)| is(voter)).count();
            let first = self.eligible().find(|(_, voter)| saying(voter)).map_or(0, |(number, _)| number);
            let is_continued = self.continued_bytes == Some(size_bytes);
            (count(&saying), is_continued, count(&spoken), std::cmp::Reverse(first))
        };
        self.eligible().filter_map(|(_, voter)| voter.size_bytes).max_by_key(|size_bytes| rank(*size_bytes))
    }

    /// The value of `kind` that more than half of the replicas state already, of those that have stated one or still may,
    /// whatever bytes there are; with the replicas that state another one.
    pub fn settled(&self, now: Time, kind: ChecksumKind) -> Option<(Checksum, Vec<usize>)> {
        let of_kind = |voter: &&Voter| voter.checksums.iter().any(|own| own.kind() == kind);
        let said = self.eligible().filter(|(_, voter)| of_kind(voter)).count();
        let pending =
            self.eligible().filter(|(_, voter)| !of_kind(voter) && self.may_speak(voter, now)).count();
        let stated = self.eligible().flat_map(|(_, voter)| &voter.checksums).filter(|own| own.kind() == kind);
        for value in stated {
            let states = |voter: &&Voter| voter.checksums.contains(value);
            let agreeing = self.eligible().filter(|(_, voter)| states(voter)).count();
            if 2 * agreeing > said + pending {
                return Some((value.clone(), self.contradicting(value)));
            }
        }
        None
    }

    /// The replicas that state another value of a checksum's kind.
    pub fn contradicting(&self, checksum: &Checksum) -> Vec<usize> {
        let differs = |own: &Checksum| own.kind() == checksum.kind() && own != checksum;
        let is_liar = |(_, voter): &(usize, &Voter)| voter.checksums.iter().any(differs);
        self.eligible().filter(is_liar).map(|(number, _)| number).collect()
    }

    /// The replicas that are against these bytes, by what they state of their checksum.
    pub fn against(&self, found: &Found) -> Vec<usize> {
        let mut against: Vec<usize> =
            found.checksums.iter().flat_map(|checksum| self.contradicting(checksum)).collect();
        against.sort_unstable();
        against.dedup();
        against
    }

    /// The kinds of checksums by which replicas are for these bytes.
    pub fn supporting(&self, found: &Found) -> Vec<ChecksumKind> {
        let is_for = |voter: &&Voter| matches!(stand(voter, found), Stand::For);
        let stated =
            self.eligible().map(|(_, voter)| voter).filter(is_for).flat_map(|voter| &voter.checksums);
        let mut kinds: Vec<ChecksumKind> =
            stated.filter(|own| found.checksums.contains(own)).map(Checksum::kind).collect();
        kinds.sort();
        kinds.dedup();
        kinds
    }

    /// The verdict about bytes that are there.
    pub fn verdict(&self, now: Time, found: &Found) -> Verdict {
        let count = |is: &dyn Fn(&Voter) -> bool| self.eligible().filter(|(_, voter)| is(voter)).count();
        let pending = count(&|voter| self.may_speak(voter, now));
        let pending_size = count(&|voter| voter.size_bytes.is_none() && self.may_speak(voter, now));
        let has_size = |voter: &Voter| voter.size_bytes.is_none_or(|own| own == found.size_bytes);
        let same_size = count(&|voter| voter.size_bytes == Some(found.size_bytes));
        let other_size = count(&|voter| !has_size(voter));
        let is_continued = self.continued_bytes == Some(found.size_bytes);
        // A replica that states another size than most has another file, and no say in the checksum of this one.
        let is_size_right = |others: usize| {
            others == 0 || same_size > others || is_continued && pending_size == 0 && same_size == others
        };
        let bytes = self.count(has_size, |voter| stand(voter, found));
        let pending_as = |is: &dyn Fn(Stand) -> bool| {
            count(&|voter| has_size(voter) && self.may_speak(voter, now) && is(stand(voter, found)))
        };
        // One that is for them and has more to say may turn against them, which counts twice.
        let may_turn = pending_as(&|stand| matches!(stand, Stand::For));
        // One that is against them stays so, whatever else it says.
        let undecided = pending - pending_as(&|stand| matches!(stand, Stand::Against));
        if is_size_right(other_size + pending_size) && bytes.agreeing > bytes.against + undecided + may_turn {
            let (agreeing, said) = (bytes.agreeing, bytes.agreeing + bytes.against);
            return Verdict::Right { agreeing, said, named: self.named() };
        }
        if is_size_right(other_size + pending_size)
            && let Some((leading, expected)) = self.leading(now, found, has_size)
            && leading.agreeing > leading.against + if undecided > 0 { leading.apart + undecided } else { 0 }
        {
            return Verdict::Wrong { expected: expected.clone() };
        }
        if pending > 0 {
            return Verdict::Open;
        }
        if !is_size_right(other_size) {
            return Verdict::Split(Split::Sizes(self.sizes()));
        }
        match bytes.agreeing + bytes.against {
            0 => Verdict::Nothing,
            _ => Verdict::Split(Split::Checksums(self.values())),
        }
    }

    /// The checksum that these bytes do not have and that most replicas state; of equals, that which is harder to make up. Two
    /// replicas against the bytes that state checksums of different kinds may well mean the same file.
    fn leading(
        &self,
        now: Time,
        found: &Found,
        has_size: impl Fn(&Voter) -> bool,
    ) -> Option<(Count, &Checksum)> {
        let differs =
            |own: &&Checksum| found.checksums.iter().any(|is| is.kind() == own.kind() && is != *own);
        let stated = self.eligible().filter(|(_, voter)| has_size(voter));
        let values = stated.flat_map(|(_, voter)| voter.checksums.iter().map(move |own| (voter, own)));
        // Those that have more to say are counted by the caller.
        let stand_to = |voter: &Voter, leader: &Voter| {
            match (stand_to(voter, &leader.checksums), stand(voter, found)) {
                (Stand::Apart, Stand::Against) => Stand::For,
                // All that it states is so of the bytes as well: it tells nothing of where the two differ.
                (Stand::For, Stand::For) | (Stand::Apart, _) if self.may_speak(voter, now) => Stand::Silent,
                (Stand::For, Stand::For) => Stand::Apart,
                (stand, _) => stand,
            }
        };
        values
            .filter(|(_, own)| differs(own))
            .map(|(leader, own)| (self.count(&has_size, |voter| stand_to(voter, leader)), own))
            .filter(|(count, _)| count.agreeing > count.against)
            .max_by_key(|(count, own)| (count.agreeing - count.against, own.kind().strength()))
    }

    /// The time at which [`verdict`](Votes::verdict) may be another one without an event.
    pub fn deadline(&self, now: Time) -> Option<Time> {
        let awaited = self.eligible().filter(|(_, voter)| self.may_speak(voter, now));
        awaited.filter_map(|(_, voter)| self.due(voter)).min()
    }

    /// The replicas whose word is waited for.
    pub fn awaited(&self, now: Time) -> Vec<usize> {
        let awaited = self.eligible().filter(|(_, voter)| self.may_speak(voter, now));
        awaited.map(|(number, _)| number).collect()
    }

    fn eligible(&self) -> impl Iterator<Item = (usize, &Voter)> {
        self.voters.iter().enumerate().filter(|(_, voter)| voter.has_vote && !voter.is_discredited)
    }

    fn named(&self) -> usize {
        self.voters.iter().filter(|voter| voter.has_vote).count()
    }

    fn may_speak(&self, voter: &Voter, now: Time) -> bool {
        let is_there = !voter.refuses && !voter.is_given_up && !voter.owed_in_vain;
        (voter.is_awaited || voter.owes_strong) && is_there && !self.is_late(voter, now)
    }

    fn is_late(&self, voter: &Voter, now: Time) -> bool {
        self.due(voter).is_some_and(|due| due <= now)
    }

    /// The moment until which a word is waited for; `None`: for as long as bytes come.
    fn due(&self, voter: &Voter) -> Option<Time> {
        let round_trips = voter.round_trip.unwrap_or_default() * SILENT_ROUND_TRIPS;
        let Some(heard_at) = voter.heard_at else {
            return Some(voter.asked_at + first_answer_max(self.patience) + round_trips);
        };
        let since = self.whole_at?.max(heard_at).max(voter.asked_at);
        Some(since + reading_max(self.patience, voter.size_bytes.unwrap_or(0)) + round_trips)
    }

    fn count(&self, counts: impl Fn(&Voter) -> bool, stand: impl Fn(&Voter) -> Stand) -> Count {
        let mut count = Count::default();
        for (_, voter) in self.eligible().filter(|(_, voter)| counts(voter)) {
            match stand(voter) {
                Stand::For => count.agreeing += 1,
                Stand::Against => count.against += 1,
                Stand::Apart => count.apart += 1,
                Stand::Silent => {}
            }
        }
        count
    }

    /// Every size that is stated.
    fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.eligible().filter_map(|(_, voter)| voter.size_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Every checksum that is stated.
    fn values(&self) -> Vec<Checksum> {
        let mut values: Vec<Checksum> = Vec::new();
        for value in self.eligible().flat_map(|(_, voter)| &voter.checksums) {
            if !values.contains(value) {
                values.push(value.clone());
            }
        }
        values
    }
}

/// The position of one replica.
enum Stand {
    For,
    Against,
    /// It states only what cannot be compared.
    Apart,
    /// It states nothing.
    Silent,
}

/// The position of a replica with a file of the same size about bytes.
fn stand(voter: &Voter, found: &Found) -> Stand {
    stand_to(voter, &found.checksums)
}

/// The position of a replica with a file of the same size about checksums of it.
fn stand_to(voter: &Voter, checksums: &[Checksum]) -> Stand {
    let differs = |own: &Checksum, other: &Checksum| own.kind() == other.kind() && own != other;
    let is_against = voter.checksums.iter().any(|own| checksums.iter().any(|other| differs(own, other)));
    match voter.checksums.iter().any(|own| checksums.contains(own)) {
        _ if is_against => Stand::Against,
        true => Stand::For,
        // Of those that state nothing at all, nothing can come any more.
        false if voter.checksums.is_empty() => Stand::Silent,
        false => Stand::Apart,
    }
}

/// The time that a replica has for its first answer, its round trips aside.
pub fn first_answer_max(patience: Duration) -> Duration {
    (patience / FIRST_ANSWER_PART).max(SILENT).min(patience)
}

/// The time that a replica that answers has for its checksum: as long as silence is borne, and as long as a slow server
/// reads the file.
pub fn reading_max(patience: Duration, size_bytes: u64) -> Duration {
    patience
        .saturating_add(Duration::from_secs(size_bytes / DIGEST_BYTES_PER_S_MIN))
        .min(DIGEST_WAIT_MAX.max(patience))
}
