//! The replicas that are believed, with many fleets from seeds: liars that are fast, slow, first and last, with and without
//! checksums, of another size, alone and agreed among each other; honest replicas that are slow, say nothing, hang, or die.
//!
//! The engine is simulated too: it has the bytes of the first replica, and when they are wrong it believes one replica
//! after the other.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use std::time::Duration;

use gridlane_core::{Checksum, ChecksumKind, Time};
use gridlane_plan::judge::{Found, Verdict, Votes};

const PATIENCE: Duration = Duration::from_secs(60);
/// Eight of the longest round trips.
const ROUND_TRIPS: Duration = Duration::from_millis(8 * 600);
const TRUTH: u8 = 0;
/// From here on, versions that no replica has.
const MADE_UP: u8 = 100;

/// Pseudo-random numbers from a seed (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Lives,
    /// No server listens, which is known at once.
    Refuses,
    /// It is gone at some time, which shows then.
    Dies(u64),
    /// It never answers.
    Hangs,
}

#[derive(Clone, Debug)]
struct Replica {
    /// The version of its bytes; the truth is 0.
    version: u8,
    /// The version of its checksums, if it states any: a liar may state those of the truth, and of each kind that of another
    /// version.
    states: Option<Vec<(u8, ChecksumKind)>>,
    round_trip_ms: u64,
    /// Times of its answer and of its checksum.
    answers_ms: u64,
    states_ms: u64,
    fate: Fate,
}

impl Replica {
    fn random(numbers: &mut Numbers, is_liar: bool, lies_agree: bool, number: usize) -> Replica {
        const ADLER32: &[ChecksumKind] = &[ChecksumKind::Adler32];
        const KINDS: [&[ChecksumKind]; 4] =
            [ADLER32, ADLER32, &[ChecksumKind::Md5], &[ChecksumKind::Adler32, ChecksumKind::Md5]];
        let version = match is_liar {
            false => TRUTH,
            true if lies_agree => 1,
            true => 2 + number as u8,
        };
        let states = match numbers.below(5) {
            0 => None,
            1 if is_liar => Some([TRUTH, TRUTH]),
            // A weak checksum that is right makes a strong one credible that is not, and the other way round.
            2 if is_liar => Some([TRUTH, MADE_UP + number as u8]),
            3 if is_liar => {
                Some([numbers.one_of(&[TRUTH, 1, version]), numbers.one_of(&[TRUTH, 1, version])])
            }
            _ => Some([version, version]),
        };
        // The bytes may be right all the same.
        let version = if is_liar && numbers.below(6) == 0 { TRUTH } else { version };
        let of_kinds = |[weak, strong]: [u8; 2], kinds: &[ChecksumKind]| {
            let of = |kind: &ChecksumKind| if *kind == ChecksumKind::Adler32 { weak } else { strong };
            kinds.iter().map(|kind| (of(kind), *kind)).collect()
        };
        // A liar is at once there, or comes last.
        let times: &[u64] = if is_liar { &[0, 0, 1, 9000] } else { &[0, 1, 20, 300, 2000, 9000] };
        let answers_ms = numbers.one_of(times);
        Replica {
            version,
            states: states.map(|states| of_kinds(states, numbers.one_of(&KINDS))),
            round_trip_ms: numbers.one_of(&[0, 1, 20, 600]),
            answers_ms,
            states_ms: answers_ms + numbers.one_of(&[0, 0, 20, 600, 20_000]),
            fate: match numbers.below(12) {
                0 => Fate::Refuses,
                1 => Fate::Dies(numbers.one_of(&[0, 5, 500, 3000, 15_000])),
                2 => Fate::Hangs,
                _ => Fate::Lives,
            },
        }
    }

    fn is_there_at(&self, ms: u64) -> bool {
        match self.fate {
            Fate::Lives => true,
            Fate::Refuses | Fate::Hangs => false,
            Fate::Dies(died_ms) => ms < died_ms,
        }
    }

    /// It has the right bytes, and states nothing else.
    fn is_honest(&self) -> bool {
        let is_right = |states: &Vec<(u8, ChecksumKind)>| states.iter().all(|(of, _)| *of == TRUTH);
        self.version == TRUTH && self.states.as_ref().is_none_or(is_right)
    }

    fn answers(&self) -> bool {
        self.is_there_at(self.answers_ms)
    }

    fn speaks(&self) -> bool {
        self.states.is_some() && self.is_there_at(self.states_ms)
    }
}

/// The size of a version: some liars have another one.
fn size_of(version: u8) -> u64 {
    if version % 3 == 2 { 777 } else { 1000 }
}

fn checksum(version: u8, kind: ChecksumKind) -> Checksum {
    Checksum::from_bytes(kind, &vec![version + 1; kind.value_len()]).unwrap()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Verified { version: u8, agreeing: usize },
    Unverified(u8),
    Failed,
}

enum Happening {
    Reached(usize),
    Answers(usize),
    States(usize),
    Gone(usize),
}

struct Run<'a> {
    fleet: &'a [Replica],
    votes: Votes,
    happenings: Vec<(u64, Happening)>,
    now_ms: u64,
    /// The version of the bytes that are there.
    held: Option<u8>,
    whole_ms: u64,
    untried: Vec<usize>,
}

impl Run<'_> {
    fn new(fleet: &[Replica]) -> Run<'_> {
        let mut votes = Votes::new(PATIENCE);
        let mut happenings = Vec::new();
        for (number, replica) in fleet.iter().enumerate() {
            votes.add(Time::ZERO, true);
            let is_reached = replica.fate != Fate::Refuses;
            let begun = if is_reached { Happening::Reached(number) } else { Happening::Gone(number) };
            happenings.push((0, begun));
            if replica.answers() {
                happenings.push((replica.answers_ms, Happening::Answers(number)));
            }
            if replica.answers() && replica.is_there_at(replica.states_ms) {
                happenings.push((replica.states_ms, Happening::States(number)));
            }
            if let Fate::Dies(died_ms) = replica.fate {
                happenings.push((died_ms, Happening::Gone(number)));
            }
        }
        happenings.sort_by_key(|(at_ms, _)| *at_ms);
        happenings.reverse();
        let untried = (0..fleet.len()).collect();
        Run { fleet, votes, happenings, now_ms: 0, held: None, whole_ms: 0, untried }
    }

    fn now(&self) -> Time {
        Time::from_origin(Duration::from_millis(self.now_ms))
    }

    /// The next thing that happens, at or before `until_ms`.
    fn step(&mut self, until_ms: u64) -> bool {
        match self.happenings.last() {
            Some((at_ms, _)) if *at_ms <= until_ms => {}
            _ => return false,
        }
        let Some((at_ms, happening)) = self.happenings.pop() else { return false };
        self.now_ms = self.now_ms.max(at_ms);
        let now = self.now();
        match happening {
            Happening::Reached(number) => {
                let round_trip = Duration::from_millis(self.fleet[number].round_trip_ms);
                self.votes.reached(number, Some(round_trip));
            }
            Happening::Answers(number) => {
                let version = self.fleet[number].version;
                self.votes.heard(number, now);
                self.votes.says_size(number, size_of(version));
                // Another size than that of the bytes: begun again, with a replica that has it.
                let leading = self.votes.leading_size();
                if self.held.is_none_or(|held| Some(size_of(held)) != leading) {
                    let has_it = |other: &usize| {
                        let other = &self.fleet[*other];
                        other.answers_ms <= self.now_ms && Some(size_of(other.version)) == leading
                    };
                    let from =
                        (0..self.fleet.len()).filter(|other| self.fleet[*other].answers()).find(has_it);
                    self.hold(from.map(|from| self.fleet[from].version));
                    self.untried = (0..self.fleet.len()).collect();
                }
            }
            Happening::States(number) => {
                self.votes.heard(number, now);
                if let Some(states) = &self.fleet[number].states {
                    self.votes.states(number, states.iter().map(|(of, kind)| checksum(*of, *kind)));
                }
                self.votes.silent(number);
            }
            Happening::Gone(number) => self.votes.gone(number),
        }
        true
    }

    fn hold(&mut self, version: Option<u8>) {
        self.held = version;
        self.whole_ms = self.now_ms;
        let now = self.now();
        self.votes.whole(version.map(|_| now));
    }

    /// Believes another replica, alone; what happens until it has sent the file happens.
    fn believe_another(&mut self) -> bool {
        while let Some(number) = self.untried.pop() {
            let replica = &self.fleet[number];
            if !replica.answers() {
                continue;
            }
            while self.step(replica.answers_ms) {}
            self.now_ms = self.now_ms.max(replica.answers_ms);
            if self.votes.leading_size() == Some(size_of(replica.version)) {
                self.hold(Some(replica.version));
                return true;
            }
        }
        false
    }

    fn run(mut self, seed: u64) -> (End, u64) {
        loop {
            let Some(held) = self.held else {
                match self.step(u64::MAX) {
                    true => continue,
                    false => return (End::Failed, self.now_ms),
                }
            };
            let checksums = [ChecksumKind::Adler32, ChecksumKind::Md5].map(|kind| checksum(held, kind));
            let found = Found { size_bytes: size_of(held), checksums: checksums.to_vec() };
            match self.votes.verdict(self.now(), &found) {
                Verdict::Right { agreeing, .. } => {
                    return (End::Verified { version: held, agreeing }, self.now_ms);
                }
                Verdict::Nothing => return (End::Unverified(held), self.now_ms),
                Verdict::Split(_) => return (End::Failed, self.now_ms),
                Verdict::Wrong { expected } => {
                    assert!(!found.checksums.contains(&expected), "seed {seed}");
                    if !self.believe_another() {
                        return (End::Failed, self.now_ms);
                    }
                }
                Verdict::Open => {
                    let deadline = self.votes.deadline(self.now()).expect("an open verdict ends by itself");
                    let deadline_ms = deadline.since_origin().as_millis() as u64;
                    let last_ms = self.whole_ms.max(self.now_ms);
                    let bound_ms = last_ms + (PATIENCE + ROUND_TRIPS).as_millis() as u64;
                    assert!(deadline_ms <= bound_ms, "seed {seed}: waits until {deadline_ms}");
                    if !self.step(deadline_ms) {
                        assert!(deadline_ms > self.now_ms, "seed {seed}: it stands still");
                        self.now_ms = deadline_ms;
                    }
                }
            }
        }
    }
}

#[test]
fn an_honest_majority_is_believed_whoever_is_faster() {
    let (mut decided, mut verified, mut unverified) = (0, 0, 0);
    for seed in 0..40_000 {
        let mut numbers = Numbers(seed);
        let count = 1 + numbers.below(7) as usize;
        let liars = numbers.below(count as u64 / 2 + 2) as usize;
        let lies_agree = numbers.below(2) == 0;
        let mut fleet: Vec<Replica> = (0..count)
            .map(|number| Replica::random(&mut numbers, number < liars, lies_agree, number))
            .collect();
        fleet.rotate_left(numbers.below(count as u64) as usize);
        let (end, _) = Run::new(&fleet).run(seed);

        let of = |is: &dyn Fn(&&Replica) -> bool| fleet.iter().filter(is).count();
        let honest_voices = of(&|one| one.is_honest() && one.speaks());
        let lying_voices = of(&|one| !one.is_honest() && one.speaks());
        if honest_voices > lying_voices {
            let is_wrong = matches!(end, End::Verified { version, .. } if version != TRUTH);
            assert!(!is_wrong, "seed {seed}: {end:?} {fleet:#?}");
        }
        let (honest, lying) =
            (of(&|one| one.is_honest() && one.answers()), of(&|one| !one.is_honest() && one.answers()));
        if honest_voices > lying_voices && honest > lying {
            decided += 1;
            assert!(matches!(end, End::Verified { version: TRUTH, .. }), "seed {seed}: {end:?} {fleet:#?}");
        }
        if honest > 0 && lying == 0 {
            assert_ne!(end, End::Failed, "seed {seed}: nobody lies {fleet:#?}");
            let is_voiced = honest_voices > 0;
            assert_eq!(matches!(end, End::Verified { .. }), is_voiced, "seed {seed}: {fleet:#?}");
        }
        verified += u32::from(matches!(end, End::Verified { .. }));
        unverified += u32::from(matches!(end, End::Unverified(_)));
    }
    assert!(decided > 10_000 && verified > decided && unverified > 1000, "{decided} {verified} {unverified}");
}

/// The case of a physicist with two good mirrors and one that answers at once with its own file and checksum.
#[test]
fn two_honest_replicas_and_a_fast_liar() {
    let replica = |version, answers_ms| Replica {
        version,
        states: Some(vec![(version, ChecksumKind::Adler32)]),
        round_trip_ms: 0,
        answers_ms,
        states_ms: answers_ms,
        fate: Fate::Lives,
    };
    for slow_ms in [1, 20, 200, 2000, 9000] {
        // A version of the same size, and one of another.
        for lie in [1, 2] {
            let mut fleet = vec![replica(lie, 0), replica(TRUTH, slow_ms), replica(TRUTH, slow_ms + 7)];
            for _ in 0..3 {
                let (end, ended_ms) = Run::new(&fleet).run(0);
                assert_eq!(end, End::Verified { version: TRUTH, agreeing: 2 }, "{slow_ms} ms");
                assert!(ended_ms <= slow_ms + 7, "nobody else is waited for: {ended_ms} ms");
                fleet.rotate_left(1);
            }
        }
    }
}
