//! Which bytes are right, with liars of every kind: the plan and the judge together, on simulated servers that hold real
//! bytes.
//!
//! A fleet is put together by lot: what each server has, what it says, when it says it, and what is wrong with its network. What
//! must hold whatever happens is in [`check`].

mod sim;

use std::sync::Arc;
use std::time::Duration;

use gridlane_core::{Checksum, ChecksumKind};
use gridlane_plan::judge::{Failure, Hopeless, Known, PieceHashes, Why};
use proptest::prelude::*;
use sim::{Case, Ended, Holding, Judged, MB, Server, When, World, checksum, colliding, noise};

/// The bytes of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Has {
    Right,
    /// Other bytes everywhere: those of a version that several may have.
    Version(u64),
    /// Right bytes but for a few, there.
    WrongAt(f64),
    /// Right bytes, but when the same place is asked for once more.
    WrongAgain(u64),
    /// Fewer, and says so.
    Shorter,
    /// More, and says so.
    Longer,
    /// Fewer, and says that it has all of them.
    CutOff,
    /// Other bytes with the same adler32.
    Collides,
    /// Another version from then on. It tells, or not.
    Changes(f64, bool),
    /// Right bytes, and the last that its lanes tell is that they may not be.
    DoubtedAtLast,
    /// Other bytes, and the last that its lanes tell is that it contradicts itself.
    FoundAtLast(u64),
}

/// The statements of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    Nothing,
    Truth {
        is_strong: bool,
    },
    /// Of what it has.
    Own {
        is_strong: bool,
    },
    MadeUp {
        is_strong: bool,
    },
    /// The right adler32 and a wrong strong checksum.
    HalfTruth,
    /// The truth, and another size when it is asked.
    OtherSize,
}

/// Faults of the path to it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Network {
    Fine,
    Silent(f64),
    Down(f64, f64),
    Resets(u64),
}

#[derive(Clone, Copy, Debug)]
struct Member {
    has: Has,
    says: Says,
    answers: When,
    network: Network,
    rate_mb: f64,
    round_trip_ms: f64,
    writes_s: f64,
}

/// The request for the copy.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    Nothing,
    /// The person says the right checksum.
    ByUser,
    /// There is a metalink with pieces.
    Pieces,
}

#[derive(Clone, Copy, Debug)]
struct Fleet {
    size_bytes: u64,
    told: Told,
    in_order: bool,
    reading_s: f64,
    spoils: bool,
    /// An earlier run has left so much of the file, right or wrong.
    earlier: Option<(f64, bool)>,
}

fn member() -> impl Strategy<Value = Member> {
    let has = prop_oneof![
        6 => Just(Has::Right),
        3 => (2_u64..4).prop_map(Has::Version),
        1 => (0.0..1.0).prop_map(Has::WrongAt),
        1 => (2_u64..4).prop_map(Has::WrongAgain),
        1 => Just(Has::Shorter),
        1 => Just(Has::Longer),
        1 => Just(Has::CutOff),
        1 => Just(Has::Collides),
        1 => (0.0..0.5, any::<bool>()).prop_map(|(at_s, tells)| Has::Changes(at_s, tells)),
        1 => Just(Has::DoubtedAtLast),
        1 => (2_u64..4).prop_map(Has::FoundAtLast),
    ];
    let says = prop_oneof![
        2 => Just(Says::Nothing),
        4 => any::<bool>().prop_map(|is_strong| Says::Truth { is_strong }),
        3 => any::<bool>().prop_map(|is_strong| Says::Own { is_strong }),
        1 => any::<bool>().prop_map(|is_strong| Says::MadeUp { is_strong }),
        1 => Just(Says::HalfTruth),
        1 => Just(Says::OtherSize),
    ];
    let answers = prop_oneof![
        3 => (0.0..0.5).prop_map(When::After),
        1 => (0.5..4.0).prop_map(When::After),
        2 => (0.0..1.0).prop_map(When::AfterWhole),
        1 => Just(When::Never),
    ];
    let network = prop_oneof![
        6 => Just(Network::Fine),
        1 => (0.0..0.5).prop_map(Network::Silent),
        1 => (0.0..0.5, 0.1..3.0).prop_map(|(from_s, for_s)| Network::Down(from_s, from_s + for_s)),
        1 => (50_000_u64..300_000).prop_map(Network::Resets),
    ];
    let writes_s = prop_oneof![3 => Just(0.0), 1 => 0.0..0.05];
    (has, says, answers, network, 0.3..20.0, 0.5..150.0, writes_s).prop_map(
        |(has, says, answers, network, rate_mb, round_trip_ms, writes_s)| Member {
            has,
            says,
            answers,
            network,
            rate_mb,
            round_trip_ms,
            writes_s,
        },
    )
}

fn fleet() -> impl Strategy<Value = Fleet> {
    let size_bytes = prop_oneof![1 => 1_u64..5_000, 6 => 5_000_u64..400_000, 1 => 2_500_000_u64..3_500_000];
    let told = prop_oneof![4 => Just(Told::Nothing), 1 => Just(Told::ByUser), 1 => Just(Told::Pieces)];
    let earlier = prop_oneof![3 => Just(None), 1 => (0.1..1.0, any::<bool>()).prop_map(Some)];
    let reading_s = prop_oneof![Just(0.0), 0.0..0.3];
    let flags = (prop::bool::weighted(0.15), prop::bool::weighted(0.1));
    (size_bytes, told, reading_s, earlier, flags).prop_map(
        |(size_bytes, told, reading_s, earlier, (in_order, spoils))| {
            let (earlier, spoils) = if in_order { (None, false) } else { (earlier, spoils) };
            Fleet { size_bytes, told, in_order, reading_s, spoils, earlier }
        },
    )
}

const STRONG: ChecksumKind = ChecksumKind::Sha256;

fn checksums(bytes: &[u8], is_strong: bool) -> Vec<Checksum> {
    let mut all = vec![checksum(ChecksumKind::Adler32, bytes)];
    all.extend(is_strong.then(|| checksum(STRONG, bytes)));
    all
}

fn holding(fleet: &Fleet, member: &Member, number: usize) -> Holding {
    let size_bytes = fleet.size_bytes;
    let truth = noise(1, size_bytes);
    let version = |seed: u64| Arc::new(noise(seed, size_bytes));
    let right = Arc::new(truth.clone());
    let mut holding = Holding::new(&right);
    match member.has {
        Has::Right => {}
        Has::DoubtedAtLast => holding.contradicts_itself_at_last = true,
        Has::Version(seed) => holding.bytes = version(seed),
        Has::FoundAtLast(seed) => {
            holding.bytes = version(seed);
            holding.contradicts_itself_at_last = true;
        }
        Has::WrongAt(place) => {
            let mut bytes = truth.clone();
            let at = (place * (size_bytes - 1) as f64) as usize;
            bytes[at] ^= 0x55;
            holding.bytes = Arc::new(bytes);
        }
        Has::WrongAgain(seed) => holding.again = Some(version(seed)),
        Has::Shorter => holding.bytes = Arc::new(truth[..(size_bytes / 2) as usize].to_vec()),
        Has::Longer => holding.bytes = Arc::new(noise(1, size_bytes + size_bytes / 3 + 1)),
        Has::CutOff => holding.bytes = Arc::new(truth[..(size_bytes / 2) as usize].to_vec()),
        Has::Collides => holding.bytes = Arc::new(colliding(&truth)),
        Has::Changes(at_s, tells) => {
            holding.changes = Some((at_s, version(5)));
            holding.contradicts_itself_at_s = tells.then_some(at_s + 0.01);
        }
    }
    holding.size_bytes = match member.has {
        Has::CutOff => size_bytes,
        _ => holding.bytes.len() as u64,
    };
    let of = |bytes: &[u8], is_strong| (checksums(bytes, false), checksums(bytes, is_strong));
    let made_up = |is_strong| of(&[number as u8, 7, 7], is_strong);
    let (mut says, strong) = match member.says {
        Says::Nothing => (Vec::new(), Vec::new()),
        Says::Truth { is_strong } => of(&truth, is_strong),
        Says::Own { is_strong } => of(&holding.bytes, is_strong),
        Says::MadeUp { is_strong } => made_up(is_strong),
        Says::HalfTruth => {
            let half = vec![checksum(ChecksumKind::Adler32, &truth), checksum(STRONG, &[number as u8])];
            (half.clone(), half)
        }
        Says::OtherSize => {
            holding.other_size_bytes = Some(size_bytes + 10);
            of(&truth, false)
        }
    };
    // A server that has a strong one says it with the other.
    says.extend(strong.iter().filter(|own| own.kind() == STRONG).cloned());
    says.dedup();
    (holding.says, holding.says_strong) = (says, strong);
    holding.answers = member.answers;
    holding.writes_s = member.writes_s;
    holding
}

impl Member {
    /// It sends only right bytes, and nothing that it says is wrong.
    fn is_honest(&self) -> bool {
        self.has == Has::Right && matches!(self.says, Says::Nothing | Says::Truth { .. } | Says::Own { .. })
    }

    fn states_truth(&self) -> bool {
        let has_truth = !matches!(
            self.has,
            Has::Version(_)
                | Has::WrongAt(_)
                | Has::Shorter
                | Has::Longer
                | Has::CutOff
                | Has::Collides
                | Has::FoundAtLast(_)
        );
        matches!(self.says, Says::Truth { .. }) || has_truth && matches!(self.says, Says::Own { .. })
    }

    fn states_a_lie(&self) -> bool {
        !self.states_truth() && !matches!(self.says, Says::Nothing | Says::OtherSize)
    }

    /// Its vote counts for the truth, whatever happens.
    fn votes_for_truth(&self) -> bool {
        let keeps_vote = !matches!(self.has, Has::Changes(..) | Has::DoubtedAtLast | Has::FoundAtLast(_));
        let is_heard = self.network == Network::Fine && self.answers != When::Never;
        let is_of_size = !matches!(self.has, Has::Shorter | Has::Longer);
        self.states_truth() && keeps_vote && is_heard && is_of_size
    }

    /// It can deliver all of the file, and is used for that as long as it is needed.
    fn delivers(&self) -> bool {
        self.is_honest() && self.network == Network::Fine
    }
}

/// Most that speak say the truth, and in time.
fn has_honest_majority(members: &[Member]) -> bool {
    let count = |is: &dyn Fn(&Member) -> bool| members.iter().filter(|member| is(member)).count();
    let lying = |member: &Member| member.states_a_lie() && !member.votes_for_truth();
    let is_of_size = |member: &Member| !matches!(member.has, Has::Shorter | Has::Longer);
    let sure_of_size = |member: &Member| {
        let is_heard = member.network == Network::Fine && member.answers != When::Never;
        is_of_size(member)
            && is_heard
            && !matches!(member.has, Has::Changes(..) | Has::DoubtedAtLast | Has::FoundAtLast(_))
            && member.says != Says::OtherSize
    };
    count(&|member| member.votes_for_truth()) > count(&lying)
        && count(&sure_of_size)
            > members.len() - count(&is_of_size) + count(&|member| member.says == Says::OtherSize)
}

fn run(fleet: &Fleet, members: &[Member]) -> Judged {
    let holdings =
        members.iter().enumerate().map(|(number, member)| holding(fleet, member, number)).collect();
    let mut case = Case::new(holdings);
    case.reading_s = fleet.reading_s;
    case.spoils = fleet.spoils;
    case.terms.in_order = fleet.in_order;
    let truth = noise(1, fleet.size_bytes);
    match fleet.told {
        Told::Nothing => {}
        Told::ByUser => case.terms.checksum = Some((STRONG, Some(checksum(STRONG, &truth)))),
        Told::Pieces => {
            let piece_bytes = fleet.size_bytes.div_ceil(7).max(1);
            let hashes = truth.chunks(piece_bytes as usize).map(|piece| checksum(STRONG, piece)).collect();
            case.terms.known = Known {
                size_bytes: Some(fleet.size_bytes),
                checksums: Vec::new(),
                pieces: PieceHashes::new(fleet.size_bytes, piece_bytes, hashes),
            };
        }
    }
    if let (Some((part, is_right)), true) = (fleet.earlier, fleet.told != Told::Pieces) {
        let held = ((fleet.size_bytes as f64 * part) as usize).max(1);
        let bytes = if is_right { truth } else { noise(9, fleet.size_bytes) };
        case.earlier = Some((bytes[..held].to_vec(), fleet.size_bytes));
    }
    let mut world = World::new(fleet.size_bytes as f64);
    world.step_s = 0.005;
    world.settings.request_bytes_min = 16 * 1024;
    world.settings.first_request_bytes = 32 * 1024;
    world.settings.align_bytes = 4096;
    world.settings.outstanding_bytes_min = 64 * 1024;
    world.settings.window_bytes = fleet.in_order.then_some(256 * 1024);
    world.settings.patience = Duration::from_secs(60);
    world.give_up_s = 3_000.0;
    let servers: Vec<Server> = members
        .iter()
        .map(|member| {
            Server::new(member.rate_mb * MB, member.round_trip_ms).with(|server| match member.network {
                Network::Fine => {}
                Network::Silent(from_s) => server.silent_from_s = Some(from_s),
                Network::Down(from_s, to_s) => server.down = Some((from_s, to_s)),
                Network::Resets(bytes) => server.resets_after_bytes = Some(bytes),
            })
        })
        .collect();
    world.judge(&case, &servers)
}

/// Attempts that may be needed, each of which moves all bytes at most once: every set of sources that may be believed in turn,
/// once for each size that is stated.
fn attempts_max(members: &[Member]) -> u64 {
    let sizes =
        1 + members.iter().filter(|member| matches!(member.has, Has::Shorter | Has::Longer)).count() as u64;
    sizes * (2 * members.len() as u64 + 3)
}

/// The properties of every copy.
fn check(fleet: &Fleet, members: &[Member]) -> Result<(), TestCaseError> {
    let judged = run(fleet, members);
    let truth = noise(1, fleet.size_bytes);
    let is_ended = !matches!(judged.result, Err(Ended::GaveUp));
    prop_assert!(is_ended, "it goes on for ever");
    // Bytes that were made up to have the adler32 of the truth are found out only by those that state more.
    let is_strong = |member: &&Member| {
        let strong = Says::Truth { is_strong: true };
        member.votes_for_truth() && (member.says == strong || member.says == Says::Own { is_strong: true })
    };
    let strong = members.iter().filter(is_strong).count();
    let is_past_finding =
        members.iter().any(|member| member.has == Has::Collides) && 2 * strong <= members.len();
    let is_right = judged.bytes == truth;
    let has_majority = has_honest_majority(members) && !is_past_finding;
    let is_told = fleet.told != Told::Nothing;
    let shown = || {
        let Judged {
            result,
            verified,
            named,
            distrusted,
            received_bytes,
            starts,
            mismatches,
            turns,
            finish_s,
            ..
        } = &judged;
        format!(
            "{result:?} {verified:?} named {named:?} distrusted {distrusted:?}, {received_bytes} B received, \
             {starts} starts, {mismatches} mismatches, {turns} turns, {finish_s} s"
        )
    };
    if judged.result.is_ok() && (is_told || has_majority && judged.verified.is_some()) {
        prop_assert!(is_right, "wrong bytes are called right: {}", shown());
    }
    if is_told && judged.result.is_ok() {
        prop_assert!(judged.verified.is_some(), "{}", shown());
    }
    // A target in order may have taken wrong bytes by the time that they are found out.
    let can_be_right = !fleet.in_order || fleet.told == Told::Pieces;
    let is_decided = match fleet.told {
        // The size is voted on, whether a checksum is told or not.
        Told::Nothing | Told::ByUser => has_majority,
        Told::Pieces => true,
    };
    if can_be_right && is_decided && members.iter().any(Member::delivers) {
        prop_assert!(judged.result.is_ok() && is_right, "the honest do not come through: {}", shown());
        prop_assert!(judged.verified.is_some(), "{}", shown());
    }
    if judged.result.is_ok() && is_right && judged.verified.is_some() {
        for (number, why) in &judged.named {
            let accused = &members[*number];
            let is_stop_in_between = matches!(why, Why::OtherSize { .. });
            prop_assert!(!accused.is_honest() || is_stop_in_between, "{number} is slandered: {}", shown());
        }
        for number in &judged.distrusted {
            prop_assert!(!members[*number].is_honest(), "{number} is not believed: {}", shown());
        }
    }
    let most = attempts_max(members) * fleet.size_bytes + 8 * 64 * 1024 * members.len() as u64;
    prop_assert!(judged.received_bytes <= most, "{} of {}", shown(), most);
    prop_assert!(u64::from(judged.mismatches) <= attempts_max(members), "{}", shown());
    prop_assert!(judged.starts <= 2 * members.len() as u32, "{}", shown());
    Ok(())
}

/// Each case takes its time; what is found by looking further is kept below.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { max_shrink_iters: 3_000, ..sim::config(cases) }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn whoever_lies_the_truth_comes_through_or_the_copy_fails(
        fleet in fleet(),
        members in prop::collection::vec(member(), 1..7),
    ) {
        check(&fleet, &members)?;
    }
}

// --- What was found -----------------------------------------------------------------------------

fn honest() -> Member {
    Member {
        has: Has::Right,
        says: Says::Truth { is_strong: false },
        answers: When::After(0.0),
        network: Network::Fine,
        rate_mb: 0.3,
        round_trip_ms: 0.5,
        writes_s: 0.0,
    }
}

fn plain(size_bytes: u64) -> Fleet {
    Fleet { size_bytes, told: Told::Nothing, in_order: false, reading_s: 0.0, spoils: false, earlier: None }
}

/// The sources had been silent for as long as patience lasts, because there was nothing to ask them for.
#[test]
fn bytes_that_are_found_wrong_after_a_long_wait_for_words_are_fetched_again() -> Result<(), TestCaseError> {
    let mute = Member { says: Says::Nothing, answers: When::Never, ..honest() };
    check(&Fleet { spoils: true, ..plain(1) }, &[mute, honest(), honest()])
}

/// The only source that had sent nothing of a wrong piece was preferred, although it had never been reached.
#[test]
fn a_wrong_piece_is_not_waited_for_from_a_source_that_sends_nothing() -> Result<(), TestCaseError> {
    let liar = Member { has: Has::Version(2), ..honest() };
    let silent = Member { network: Network::Silent(0.0), ..honest() };
    check(&Fleet { told: Told::Pieces, ..plain(2_500_000) }, &[honest(), liar, silent])
}

/// A source that was not asked any more brought a part of a piece, which the plan did not count.
#[test]
fn a_piece_that_is_right_is_not_asked_for_again() -> Result<(), TestCaseError> {
    let members = [
        Member { rate_mb: 7.567069870388351, round_trip_ms: 56.49834972067376, ..honest() },
        Member { has: Has::Collides, rate_mb: 7.993483916880151, ..honest() },
        Member { has: Has::Version(2), round_trip_ms: 75.07987128195634, ..honest() },
        Member {
            has: Has::WrongAt(0.0),
            rate_mb: 2.945688849978327,
            round_trip_ms: 37.4099615159948,
            ..honest()
        },
        Member { network: Network::Silent(0.0), ..honest() },
    ];
    check(&Fleet { told: Told::Pieces, ..plain(3_289_847) }, &members)
}

/// The only source that might have brought a part of a piece died, and another one had brought that part unasked.
#[test]
fn a_piece_that_is_there_in_part_is_refused_by_nobody() -> Result<(), TestCaseError> {
    let of =
        |has, rate_mb, round_trip_ms| Member { has, rate_mb, round_trip_ms, says: Says::Nothing, ..honest() };
    let members = [
        of(Has::Right, 0.3, 0.5),
        of(Has::FoundAtLast(2), 16.216624522305647, 20.610599275983635),
        of(Has::WrongAgain(2), 8.202571937617595, 0.5),
        of(Has::Right, 17.09174249255353, 11.58372314487826),
        of(Has::Shorter, 0.3, 71.49211312983181),
        of(Has::FoundAtLast(2), 0.3, 9.77498903195006),
    ];
    check(&Fleet { told: Told::Pieces, ..plain(313_979) }, &members)
}

/// The bytes that a hypothesis had thrown away were there again before the file had been read back.
#[test]
fn a_hypothesis_that_is_tried_at_once_counts() -> Result<(), TestCaseError> {
    let liar = Member {
        has: Has::Version(2),
        says: Says::Nothing,
        answers: When::After(0.2386385999288773),
        network: Network::Down(0.4988148346912384, 0.5988148346912384),
        round_trip_ms: 119.00827775129689,
        ..honest()
    };
    let late = Member { answers: When::After(0.5), round_trip_ms: 74.68301543175065, ..honest() };
    check(&Fleet { reading_s: 0.21453174418698742, ..plain(94_209) }, &[liar, late])
}

/// It ended the copy, with an error that asked for another try.
#[test]
fn others_send_what_came_from_a_source_that_is_found_wrong_at_its_last_word() {
    let found = Member { has: Has::FoundAtLast(2), says: Says::Nothing, ..honest() };
    let other = Member { says: Says::Nothing, ..honest() };
    let fleet = plain(200_000);
    let judged = run(&fleet, &[found, other]);
    assert!(judged.result.is_ok() && judged.verified.is_none(), "{judged:?}");
    assert!(judged.bytes == noise(1, fleet.size_bytes), "bytes of the liar are kept");
    assert_eq!(judged.distrusted, [0]);
}

/// The first hypothesis believes a source that sends nothing, for as long as patience lasts.
#[test]
fn a_source_that_is_believed_and_silent_does_not_end_the_search() -> Result<(), TestCaseError> {
    let liar = Member { has: Has::Version(2), rate_mb: 10.0, says: Says::Nothing, ..honest() };
    let silent =
        Member { network: Network::Silent(0.3), answers: When::After(0.1), rate_mb: 1.0, ..honest() };
    check(&plain(300_000), &[liar, silent, honest(), silent])
}

/// A metalink says nothing of the whole, and no piece that is asked for is right anywhere.
#[test]
fn a_file_that_is_wrong_everywhere_ends_the_copy() {
    let liar = Member { has: Has::Version(2), ..honest() };
    let judged = run(&Fleet { told: Told::Pieces, ..plain(100_000) }, &[liar, liar]);
    assert!(judged.result.is_err(), "{judged:?}");
    let judged = run(&Fleet { told: Told::ByUser, ..plain(100_000) }, &[liar, liar]);
    let is_hopeless =
        matches!(judged.result, Err(Ended::Failed(Failure::Wrong { hopeless: Hopeless::NobodyHasThem, .. })));
    assert!(is_hopeless, "{judged:?}");
}
