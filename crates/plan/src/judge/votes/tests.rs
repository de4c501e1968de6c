use super::*;

const SIZE: u64 = 1000;

fn at_ms(ms: u64) -> Time {
    Time::from_origin(Duration::from_millis(ms))
}

fn adler32(value: u32) -> Checksum {
    Checksum::adler32(value)
}

fn md5(value: u8) -> Checksum {
    Checksum::from_bytes(ChecksumKind::Md5, &[value; 16]).unwrap()
}

fn found(checksums: &[Checksum]) -> Found {
    Found { size_bytes: SIZE, checksums: checksums.to_vec() }
}

/// So many replicas with a patience of a minute, all bytes there at once.
fn votes(count: usize) -> Votes {
    let mut votes = Votes::new(Duration::from_secs(60));
    for _ in 0..count {
        votes.add(Time::ZERO, true);
    }
    votes.whole(Some(Time::ZERO));
    votes
}

/// A replica answers: its size, and a checksum if it says one.
fn answers(votes: &mut Votes, replica: usize, now: Time, checksum: Option<Checksum>) {
    votes.heard(replica, now);
    votes.says_size(replica, SIZE);
    votes.states(replica, checksum);
    votes.silent(replica);
}

#[test]
fn the_fastest_does_not_decide() {
    let (lie, truth) = (found(&[adler32(2)]), found(&[adler32(1)]));
    let mut votes = votes(3);
    answers(&mut votes, 0, at_ms(1), Some(adler32(2)));
    assert_eq!(votes.verdict(at_ms(2), &lie), Verdict::Open, "two have not answered");
    answers(&mut votes, 1, at_ms(20), Some(adler32(1)));
    assert_eq!(votes.verdict(at_ms(20), &lie), Verdict::Open, "a contradiction is no failure yet");
    answers(&mut votes, 2, at_ms(2000), Some(adler32(1)));
    assert_eq!(votes.verdict(at_ms(2000), &lie), Verdict::Wrong { expected: adler32(1) });
    let right = Verdict::Right { agreeing: 2, said: 3, named: 3 };
    assert_eq!(votes.verdict(at_ms(2000), &truth), right);
    assert_eq!(votes.against(&truth), [0]);
}

#[test]
fn more_than_half_is_enough_and_nobody_else_is_waited_for() {
    let mut votes = votes(3);
    answers(&mut votes, 0, at_ms(1), Some(adler32(1)));
    answers(&mut votes, 2, at_ms(2), Some(adler32(1)));
    let right = Verdict::Right { agreeing: 2, said: 2, named: 3 };
    assert_eq!(votes.verdict(at_ms(2), &found(&[adler32(1)])), right);
    assert_eq!(votes.settled(at_ms(2), ChecksumKind::Adler32), Some((adler32(1), vec![])));
    let wrong = Verdict::Wrong { expected: adler32(1) };
    assert_eq!(votes.verdict(at_ms(2), &found(&[adler32(3)])), wrong, "the third could not change that");
}

#[test]
fn one_voice_counts_when_the_others_say_nothing_are_gone_or_stay_silent() {
    let bytes = found(&[adler32(1)]);
    let alone = Verdict::Right { agreeing: 1, said: 1, named: 3 };
    let mut one = votes(3);
    answers(&mut one, 0, at_ms(1), Some(adler32(1)));
    answers(&mut one, 1, at_ms(1), None);
    assert_eq!(one.verdict(at_ms(5), &bytes), Verdict::Open);
    let mut gone = one.clone();
    gone.gone(2);
    assert_eq!(gone.verdict(at_ms(5), &bytes), alone);
    gone.reached(2, None);
    assert_eq!(gone.verdict(at_ms(5), &bytes), Verdict::Open, "it is there after all");
    gone.give_up(2);
    assert_eq!(gone.verdict(at_ms(5), &bytes), alone);
    // A sixth of the patience, and eight of its own round trips.
    one.reached(2, Some(Duration::from_millis(300)));
    assert_eq!(one.deadline(at_ms(5)), Some(at_ms(12_400)));
    assert_eq!(one.verdict(at_ms(12_399), &bytes), Verdict::Open);
    assert_eq!(one.verdict(at_ms(12_400), &bytes), alone);
}

#[test]
fn a_replica_that_answers_has_the_time_to_read_its_file() {
    let mut votes = votes(1);
    votes.heard(0, at_ms(3));
    votes.says_size(0, 2_000_000_000);
    votes.whole(None);
    assert_eq!(votes.deadline(at_ms(500_000)), None, "bytes are still coming");
    votes.whole(Some(at_ms(1000)));
    assert_eq!(votes.deadline(at_ms(1000)), Some(at_ms(1000 + 60_000 + 100_000)));
}

#[test]
fn patience_that_is_short_is_kept() {
    for (patience_ms, waits_ms) in [(1000, 1000), (5000, 5000), (9000, 5000), (120_000, 20_000)] {
        let mut votes = Votes::new(Duration::from_millis(patience_ms));
        votes.add(Time::ZERO, true);
        votes.whole(Some(Time::ZERO));
        assert_eq!(votes.deadline(Time::ZERO), Some(at_ms(waits_ms)));
        assert_eq!(votes.verdict(at_ms(waits_ms), &found(&[])), Verdict::Nothing);
    }
}

#[test]
fn a_contradiction_without_a_majority_is_a_failure_in_the_end() {
    let mut votes = votes(2);
    answers(&mut votes, 0, at_ms(1), Some(adler32(1)));
    answers(&mut votes, 1, at_ms(1), Some(adler32(2)));
    let split = Verdict::Split(Split::Checksums(vec![adler32(1), adler32(2)]));
    assert_eq!(votes.verdict(at_ms(2), &found(&[adler32(1)])), split);
    votes.discredit(1);
    let right = Verdict::Right { agreeing: 1, said: 1, named: 2 };
    assert_eq!(votes.verdict(at_ms(2), &found(&[adler32(1)])), right);
}

#[test]
fn checksums_of_different_kinds_are_compared_by_the_bytes() {
    let both = found(&[adler32(1), md5(1)]);
    let mut votes = votes(3);
    answers(&mut votes, 0, at_ms(1), Some(adler32(1)));
    answers(&mut votes, 1, at_ms(1), Some(md5(1)));
    assert_eq!(votes.kinds(), [ChecksumKind::Adler32, ChecksumKind::Md5]);
    let right = Verdict::Right { agreeing: 2, said: 2, named: 3 };
    assert_eq!(votes.verdict(at_ms(2), &both), right);
    // Bytes that were made up to have the same adler32.
    let forged = found(&[adler32(1), md5(7)]);
    answers(&mut votes, 2, at_ms(2), None);
    assert_eq!(votes.verdict(at_ms(2), &forged), Verdict::Wrong { expected: md5(1) });
    // Where md5 was not computed, its statement does not count.
    let one = Verdict::Right { agreeing: 1, said: 1, named: 3 };
    assert_eq!(votes.verdict(at_ms(2), &found(&[adler32(1)])), one);
}

#[test]
fn a_replica_that_states_two_things_is_against_any_bytes() {
    let mut votes = votes(1);
    answers(&mut votes, 0, at_ms(1), Some(adler32(1)));
    votes.states(0, [md5(2)]);
    let bytes = found(&[adler32(1), md5(1)]);
    assert_eq!(votes.verdict(at_ms(2), &bytes), Verdict::Wrong { expected: md5(2) });
    assert_eq!(votes.against(&bytes), [0]);
}

#[test]
fn sizes_are_votes_too() {
    let bytes = found(&[adler32(1)]);
    let mut votes = votes(3);
    answers(&mut votes, 0, at_ms(1), Some(adler32(1)));
    votes.heard(1, at_ms(5));
    votes.says_size(1, 7);
    assert_eq!(votes.leading_size(), Some(SIZE), "more goes with it");
    assert_eq!(votes.verdict(at_ms(5), &bytes), Verdict::Open);
    votes.silent(1);
    votes.gone(2);
    let split = Verdict::Split(Split::Sizes(vec![7, SIZE]));
    assert_eq!(votes.verdict(at_ms(5), &bytes), split);
    let mut continued = votes.clone();
    continued.continues(Some(SIZE));
    let right = Verdict::Right { agreeing: 1, said: 1, named: 3 };
    assert_eq!(continued.verdict(at_ms(5), &bytes), right, "an earlier run breaks the tie");
    votes.says_size(2, 7);
    assert_eq!(votes.leading_size(), Some(7));
    assert_eq!(votes.verdict(at_ms(5), &found(&[])), split);
    let other = Found { size_bytes: 7, checksums: Vec::new() };
    assert_eq!(votes.verdict(at_ms(5), &other), Verdict::Nothing, "who has it states no checksum");
}

#[test]
fn those_that_only_a_server_named_have_no_vote() {
    let mut votes = votes(1);
    votes.add(Time::ZERO, false);
    answers(&mut votes, 1, at_ms(1), Some(adler32(2)));
    answers(&mut votes, 0, at_ms(1), Some(adler32(1)));
    let right = Verdict::Right { agreeing: 1, said: 1, named: 1 };
    assert_eq!(votes.verdict(at_ms(2), &found(&[adler32(1)])), right);
}

/// It may well have the right bytes, which the weak checksum of every replica is of.
#[test]
fn one_that_makes_up_a_strong_checksum_does_not_decide_while_another_has_not_answered() {
    let right = found(&[adler32(1), md5(1)]);
    let mut votes = votes(3);
    answers(&mut votes, 0, at_ms(1), Some(adler32(1)));
    votes.states(1, [md5(9)]);
    answers(&mut votes, 1, at_ms(1), Some(adler32(1)));
    assert_eq!(votes.verdict(at_ms(2), &right), Verdict::Open, "the third may say that they are right");
    answers(&mut votes, 2, at_ms(900), Some(adler32(1)));
    let two = Verdict::Right { agreeing: 2, said: 3, named: 3 };
    assert_eq!(votes.verdict(at_ms(900), &right), two);
    assert_eq!(votes.supporting(&right), [ChecksumKind::Adler32]);
    let forged = found(&[adler32(1), md5(2)]);
    votes.states(2, [md5(1)]);
    assert_eq!(votes.supporting(&right), [ChecksumKind::Adler32, ChecksumKind::Md5]);
    assert_ne!(votes.verdict(at_ms(901), &forged), two);
}

#[test]
fn a_strong_checksum_that_is_owed_is_waited_for_like_any_word() {
    let bytes = found(&[adler32(1), md5(1)]);
    let mut votes = votes(3);
    for replica in 0..3 {
        votes.ask_strong(replica, Time::ZERO);
        answers(&mut votes, replica, at_ms(1), Some(adler32(1)));
    }
    assert_eq!(votes.verdict(at_ms(2), &bytes), Verdict::Open);
    let mut contradicted = votes.clone();
    votes.states(0, [md5(1)]);
    votes.silent_strong(0);
    assert_eq!(votes.verdict(at_ms(3), &bytes), Verdict::Open, "two may still turn against them");
    let mut silent = votes.clone();
    silent.silent_strong(1);
    let right = Verdict::Right { agreeing: 3, said: 3, named: 3 };
    assert_eq!(silent.verdict(at_ms(4), &bytes), right, "the third alone changes nothing");
    silent.gone(2);
    assert_eq!(silent.verdict(at_ms(4), &bytes), right);
    // Two that contradict them are enough.
    contradicted.states(0, [md5(2)]);
    contradicted.states(1, [md5(2)]);
    assert_eq!(contradicted.verdict(at_ms(4), &bytes), Verdict::Wrong { expected: md5(2) });
    // A replica that hangs is waited for as long as a checksum may take.
    assert_eq!(votes.deadline(at_ms(5)), Some(at_ms(60_001)));
    assert_eq!(votes.verdict(at_ms(60_001), &bytes), right);
    assert_eq!(votes.owing(at_ms(60_001)), [1, 2]);
    assert_eq!(votes.owing(at_ms(60_000)), [0; 0]);
}

#[test]
fn one_that_owed_its_checksum_in_vain_is_not_waited_for_until_it_states_one() {
    let bytes = found(&[adler32(1)]);
    let mut votes = votes(2);
    answers(&mut votes, 0, at_ms(1), Some(adler32(1)));
    votes.owed_in_vain(1);
    votes.heard(1, at_ms(2));
    assert_eq!(votes.verdict(at_ms(2), &bytes), Verdict::Right { agreeing: 1, said: 1, named: 2 });
    votes.states(1, [adler32(2)]);
    assert_eq!(votes.verdict(at_ms(3), &bytes), Verdict::Open);
}
