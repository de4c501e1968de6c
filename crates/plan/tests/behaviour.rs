//! One behaviour per test, told event by event: the engine's side of the conversation is written out.

use std::time::Duration;

use gridlane_core::{ByteRange, Time};
use gridlane_plan::{
    Action, Event, LaneId, Loss, Outcome, Plan, RequestId, Settings, SourceId, SourceState, Stuck,
};

const MIB: u64 = 1 << 20;
const A: SourceId = SourceId(0);
const B: SourceId = SourceId(1);

/// A plan and the time of the conversation.
struct Talk {
    plan: Plan,
    now: Time,
}

impl Talk {
    /// Begins with `sources` sources, and with what the plan does first.
    fn begin(settings: Settings, sources: usize) -> (Talk, Vec<Action>) {
        let mut plan = Plan::new(settings);
        for _ in 0..sources {
            plan.add_source(Time::ZERO);
        }
        let mut talk = Talk { plan, now: Time::ZERO };
        let actions = talk.actions();
        (talk, actions)
    }

    /// As `begin`, with one ready lane per source, numbered as the sources are, and a known size. What
    /// the lanes were asked for is returned.
    fn ready(settings: Settings, sources: usize, size_bytes: u64) -> (Talk, Vec<(LaneId, ByteRange)>) {
        let (mut talk, _) = Talk::begin(settings, sources);
        talk.plan.handle(talk.now, Event::SizeKnown { size_bytes });
        let mut asked = Vec::new();
        for lane in 0..sources as u64 {
            asked.extend(requests(&talk.tell(ready(lane))));
        }
        (talk, asked)
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.plan.poll(self.now)).collect()
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        self.plan.handle(self.now, event);
        self.actions()
    }

    /// Lets time pass, waking the plan at its deadlines.
    fn wait_ms(&mut self, ms: u64) -> Vec<Action> {
        let end = self.now + Duration::from_millis(ms);
        let mut actions = Vec::new();
        while let Some(at) = self.plan.deadline().filter(|at| *at < end) {
            self.now = self.now.max(at);
            let next = self.actions();
            if next.is_empty() && self.plan.deadline().is_some_and(|next_at| next_at <= self.now) {
                break; // Out of patience: nothing changes any more.
            }
            actions.extend(next);
        }
        self.now = end;
        actions.extend(self.actions());
        actions
    }

    fn state(&self, source: SourceId) -> SourceState {
        self.plan.source_report(source).expect("it was added").state
    }
}

/// No trials of another lane, which would be noise here.
fn one_lane() -> Settings {
    Settings { lanes_per_source_max: 1, ..Settings::default() }
}

fn ready(lane: u64) -> Event {
    Event::LaneReady { lane: LaneId(lane), round_trip: Some(Duration::from_millis(10)) }
}

fn received(lane: u64, bytes: u64) -> Event {
    Event::Received { lane: LaneId(lane), bytes, fresh_bytes: bytes }
}

fn lost(lane: u64, loss: Loss) -> Event {
    Event::LaneLost { lane: LaneId(lane), loss }
}

fn requests(actions: &[Action]) -> Vec<(LaneId, ByteRange)> {
    let request = |action: &Action| match *action {
        Action::Request { lane, range, .. } => Some((lane, range)),
        _ => None,
    };
    actions.iter().filter_map(request).collect()
}

fn opened(actions: &[Action]) -> Vec<SourceId> {
    let open = |action: &Action| match *action {
        Action::OpenLane { source, .. } => Some(source),
        _ => None,
    };
    actions.iter().filter_map(open).collect()
}

fn closes(actions: &[Action], lane: u64) -> bool {
    actions.contains(&Action::CloseLane { lane: LaneId(lane) })
}

// --- Start ---------------------------------------------------------------------------------------

#[test]
fn asks_before_the_size_is_known_each_lane_for_the_next_range() {
    let (mut talk, actions) = Talk::begin(Settings::default(), 2);
    assert_eq!(opened(&actions), [A, B]);
    let first = Action::Request { lane: LaneId(1), request: RequestId(0), range: ByteRange::new(0, MIB) };
    assert_eq!(talk.tell(ready(1)), [first], "the first that is ready is asked for the first bytes");
    assert_eq!(requests(&talk.tell(ready(0))), [(LaneId(0), ByteRange::new(MIB, 2 * MIB))]);
    assert_eq!(talk.plan.missing_bytes(), None);
    assert_eq!(talk.actions(), [], "nothing more before the size is known");
}

#[test]
fn a_small_object_ends_what_was_asked_for_beyond_it() {
    let (mut talk, _) = Talk::begin(Settings::default(), 2);
    talk.tell(ready(0));
    talk.tell(ready(1));
    talk.tell(Event::SizeKnown { size_bytes: 1000 });
    // The second lane asked for bytes behind the end: no fault.
    talk.tell(Event::RequestDone { lane: LaneId(1) });
    assert_eq!(talk.state(B), SourceState::Active);
    talk.tell(received(0, 1000));
    assert_eq!(talk.plan.outcome(talk.now), Outcome::Complete);
    assert_eq!(talk.plan.deadline(), None);
}

#[test]
fn an_empty_object_is_complete_when_its_size_is_known() {
    let (mut talk, _) = Talk::begin(Settings::default(), 1);
    talk.tell(ready(0));
    assert!(!talk.plan.is_complete());
    talk.tell(Event::SizeKnown { size_bytes: 0 });
    assert!(talk.plan.is_complete());
}

#[test]
fn what_a_journal_vouches_for_is_not_asked_for() {
    let (mut talk, _) = Talk::begin(Settings::default(), 1);
    talk.tell(Event::AlreadyDone { range: ByteRange::new(0, MIB) });
    talk.tell(Event::SizeKnown { size_bytes: MIB + 100 });
    assert_eq!(requests(&talk.tell(ready(0))), [(LaneId(0), ByteRange::new(MIB, MIB + 100))]);
}

#[test]
fn spares_take_the_place_of_the_dead() {
    let (mut talk, actions) = Talk::begin(Settings { sources_open_max: 1, ..Settings::default() }, 2);
    assert_eq!(opened(&actions), [A]);
    assert_eq!(talk.state(B), SourceState::Spare);
    let actions = talk.tell(Event::SourceDead { source: A });
    assert!(closes(&actions, 0));
    assert_eq!(opened(&actions), [B]);
    assert_eq!(talk.state(A), SourceState::Dead);
}

#[test]
fn fixed_lanes_are_opened_at_once_when_there_is_enough_for_each() {
    let settings = Settings { lanes_fixed: true, lanes_per_source_max: 3, ..Settings::default() };
    let (mut talk, actions) = Talk::begin(settings, 1);
    assert_eq!(opened(&actions).len(), 1, "one until the size is known");
    assert_eq!(opened(&talk.tell(Event::SizeKnown { size_bytes: 100 * MIB })).len(), 2);
}

#[test]
fn the_cap_on_lanes_leaves_no_source_out() {
    let settings = Settings { lanes_fixed: true, lanes_max: 3, sources_open_max: 2, ..Settings::default() };
    let (mut talk, actions) = Talk::begin(settings, 2);
    assert_eq!(opened(&actions), [A, B]);
    assert_eq!(opened(&talk.tell(Event::SizeKnown { size_bytes: 1000 * MIB })).len(), 1);
}

// --- Requests ------------------------------------------------------------------------------------

#[test]
fn a_lane_that_does_not_pipeline_has_one_request() {
    let (mut talk, asked) = Talk::ready(Settings::default(), 1, 100 * MIB);
    assert_eq!(asked.len(), 1);
    talk.tell(received(0, 1000));
    assert_eq!(talk.actions(), []);
    let more = requests(&talk.tell(Event::Pipelines { lane: LaneId(0), requests_max: None }));
    assert_eq!(more.first().map(|(_, range)| range.start()), Some(MIB));
    let outstanding = talk.plan.source_report(A).expect("it was added").outstanding_bytes;
    assert!((4 * MIB..6 * MIB).contains(&outstanding), "{outstanding}");
}

#[test]
fn a_server_that_takes_few_requests_has_no_more() {
    let (mut talk, _) = Talk::ready(one_lane(), 1, 1000 * MIB);
    talk.tell(received(0, 1000));
    let most = |max| Event::Pipelines { lane: LaneId(0), requests_max: Some(max) };
    let mut asked = 1 + requests(&talk.tell(most(2))).len();
    assert_eq!(asked, 2);
    asked += requests(&talk.tell(most(4))).len();
    // However fast it is, and however much is free.
    for _ in 0..200 {
        asked += requests(&talk.tell(received(0, MIB / 4))).len();
        asked += requests(&talk.wait_ms(1)).len();
        assert!(asked <= 4, "{asked}");
    }
    assert_eq!(asked, 4);
}

#[test]
fn what_an_answer_did_not_bring_is_asked_for_again() {
    let (mut talk, asked) = Talk::ready(Settings::default(), 1, MIB);
    assert_eq!(asked[0].1, ByteRange::new(0, MIB), "what is so small is not divided");
    talk.tell(received(0, 1000));
    let again = requests(&talk.tell(Event::RequestDone { lane: LaneId(0) }));
    assert_eq!(again[0].1.start(), 1000);
}

#[test]
fn answers_without_a_byte_do_not_go_on_for_ever() {
    let (mut talk, _) = Talk::ready(Settings::default(), 1, 100 * MIB);
    let mut lane = 0;
    for _ in 0..2 {
        let actions = talk.tell(Event::RequestDone { lane: LaneId(lane) });
        assert!(closes(&actions, lane));
        lane += 1;
        talk.tell(ready(lane));
    }
    assert!(matches!(talk.state(A), SourceState::Probation { .. }));
}

#[test]
fn a_window_is_never_left_and_opens_with_the_target() {
    let settings = Settings { window_bytes: Some(MIB), ..Settings::default() };
    let (mut talk, asked) = Talk::ready(settings, 1, 100 * MIB);
    assert!(asked.iter().all(|(_, range)| range.end() <= MIB));
    let mut end = asked.last().expect("something was asked for").1.end();
    while end < MIB {
        talk.tell(received(0, MIB));
        let next = requests(&talk.tell(Event::RequestDone { lane: LaneId(0) }));
        end = next.last().expect("the window is not full").1.end();
    }
    assert_eq!(end, MIB);
    talk.tell(received(0, MIB));
    assert_eq!(talk.tell(Event::RequestDone { lane: LaneId(0) }), [], "the target has taken nothing");
    talk.wait_ms(100_000);
    assert_eq!(talk.plan.outcome(talk.now), Outcome::Running, "a slow target is nobody's fault");
    let next = requests(&talk.tell(Event::Released { up_to_bytes: MIB }));
    assert_eq!(next[0].1.start(), MIB);
}

// --- Silence -------------------------------------------------------------------------------------

#[test]
fn what_a_silent_lane_owes_is_fetched_elsewhere_after_a_second() {
    let (mut talk, _) = Talk::ready(one_lane(), 2, 20 * MIB);
    while !talk.plan.is_complete() {
        assert!(talk.now < Time::from_origin(Duration::from_millis(1100)), "{:?}", talk.plan);
        talk.wait_ms(10);
        // The other one delivers all it is asked for.
        if talk.plan.source_report(B).expect("it was added").outstanding_bytes > 0 {
            talk.tell(received(1, MIB));
            talk.tell(Event::RequestDone { lane: LaneId(1) });
        }
    }
    assert_eq!(talk.plan.source_report(A).expect("it was added").received_bytes, 0);
}

#[test]
fn a_lane_that_comes_back_owes_what_nobody_took() {
    let (mut talk, asked) = Talk::ready(one_lane(), 1, 100 * MIB);
    talk.wait_ms(2000);
    assert_eq!(talk.state(A), SourceState::Suspect);
    assert_eq!(talk.tell(received(0, 1000)), [], "it has what it had");
    assert_eq!(talk.state(A), SourceState::Active);
    let next = requests(&talk.tell(Event::Pipelines { lane: LaneId(0), requests_max: None }));
    assert_eq!(next[0].1.start(), asked[0].1.end(), "the rest of the first request is still to come");
}

#[test]
fn a_lane_that_stays_silent_is_closed_and_its_source_rests() {
    let (mut talk, _) = Talk::ready(one_lane(), 2, 100 * MIB);
    for _ in 0..60 {
        talk.tell(received(1, 1));
        let actions = talk.wait_ms(100);
        if closes(&actions, 0) {
            break;
        }
    }
    let SourceState::Probation { until } = talk.state(A) else { panic!("{:?}", talk.state(A)) };
    assert_eq!(until, Time::from_origin(Duration::from_secs(10)), "silent for 5 s, then 5 s of rest");
}

#[test]
fn a_lane_that_waits_for_the_target_is_not_silent() {
    let (mut talk, _) = Talk::ready(Settings::default(), 1, 100 * MIB);
    talk.tell(Event::Blocked { lane: LaneId(0), blocked: true });
    assert_eq!(talk.wait_ms(90_000), []);
    assert_eq!(talk.state(A), SourceState::Active);
    assert_eq!(talk.plan.outcome(talk.now), Outcome::Running);
}

// --- Loss ----------------------------------------------------------------------------------------

#[test]
fn the_first_failure_reopens_at_once_and_the_second_rests() {
    let (mut talk, _) = Talk::ready(one_lane(), 2, 100 * MIB);
    talk.now = talk.now + Duration::from_millis(1);
    assert_eq!(opened(&talk.tell(lost(0, Loss::Failed))), [A]);
    talk.now = talk.now + Duration::from_millis(1);
    assert_eq!(opened(&talk.tell(lost(2, Loss::Failed))), []);
    assert!(matches!(talk.state(A), SourceState::Probation { .. }));
    // Back from probation it is asked for little.
    for _ in 0..49 {
        talk.tell(received(1, 1));
        talk.wait_ms(100);
    }
    talk.tell(received(1, 1));
    assert_eq!(opened(&talk.wait_ms(100)), [A]);
    let probe = requests(&talk.tell(ready(3)));
    assert_eq!(probe.iter().map(|(_, range)| range.len()).collect::<Vec<_>>(), [256 << 10]);
}

#[test]
fn a_connection_that_ends_in_good_order_is_no_fault() {
    let (mut talk, asked) = Talk::ready(Settings::default(), 1, 100 * MIB);
    let mut from = asked[0].1.start();
    for lane in 0..10 {
        talk.tell(received(lane, 1000));
        from += 1000;
        assert_eq!(opened(&talk.tell(lost(lane, Loss::Ended))), [A]);
        assert_eq!(requests(&talk.tell(ready(lane + 1)))[0].1.start(), from);
    }
}

#[test]
fn a_busy_source_is_left_alone_as_long_as_it_says() {
    let (mut talk, _) = Talk::ready(Settings::default(), 1, 100 * MIB);
    let wait = Some(Duration::from_secs(7));
    assert_eq!(opened(&talk.tell(lost(0, Loss::Busy { wait }))), []);
    assert_eq!(opened(&talk.wait_ms(6999)), []);
    assert_eq!(opened(&talk.wait_ms(2)), [A]);
}

#[test]
fn a_source_that_refuses_a_second_lane_keeps_its_first() {
    let settings = Settings { lanes_fixed: true, lanes_per_source_max: 4, ..Settings::default() };
    let (mut talk, actions) = Talk::begin(settings, 1);
    assert_eq!(opened(&actions), [A]);
    talk.tell(ready(0));
    assert_eq!(opened(&talk.tell(Event::SizeKnown { size_bytes: 100 * MIB })).len(), 3);
    for lane in 1..4 {
        assert_eq!(opened(&talk.tell(lost(lane, Loss::Failed))), []);
    }
    assert_eq!(talk.state(A), SourceState::Active);
    assert_eq!(opened(&talk.wait_ms(500)), []);
}

// --- Ends ----------------------------------------------------------------------------------------

#[test]
fn stuck_when_all_are_dead() {
    let (mut talk, _) = Talk::ready(Settings::default(), 2, MIB);
    talk.tell(Event::SourceDead { source: A });
    assert!(!talk.plan.is_stuck(talk.now));
    talk.tell(Event::SourceDead { source: B });
    assert_eq!(talk.plan.outcome(talk.now), Outcome::Stuck(Stuck::AllDead));
}

#[test]
fn stuck_when_patience_ends() {
    let settings = Settings { patience: Duration::from_secs(30), ..Settings::default() };
    let (mut talk, _) = Talk::begin(settings, 1);
    for lane in 0..100 {
        talk.tell(lost(lane, Loss::Failed));
        if talk.plan.is_stuck(talk.now) {
            break;
        }
        talk.wait_ms(1000);
    }
    assert_eq!(talk.plan.outcome(talk.now), Outcome::Stuck(Stuck::Timeout));
    assert_eq!(talk.now, Time::from_origin(Duration::from_secs(30)));
}

#[test]
fn stuck_on_busy_sources_is_said_to_be_so() {
    let (mut talk, _) = Talk::begin(Settings::default(), 1);
    for lane in 0..100 {
        talk.tell(lost(lane, Loss::Busy { wait: Some(Duration::from_secs(7)) }));
        if talk.plan.is_stuck(talk.now) {
            break;
        }
        talk.wait_ms(7000);
    }
    assert_eq!(talk.plan.outcome(talk.now), Outcome::Stuck(Stuck::Busy));
    assert_eq!(talk.now, Time::from_origin(Duration::from_secs(56)), "at 63 s patience has ended");
}

#[test]
fn nobody_waits_for_sources_that_come_back_after_patience_has_ended() {
    let (mut talk, _) = Talk::ready(Settings::default(), 2, 100 * MIB);
    let wait = Some(Duration::from_secs(100_000));
    talk.tell(lost(0, Loss::Busy { wait }));
    assert_eq!(talk.plan.outcome(talk.now), Outcome::Running, "another one delivers");
    talk.tell(lost(1, Loss::Busy { wait }));
    assert_eq!(talk.plan.outcome(talk.now), Outcome::Stuck(Stuck::Busy));
}

#[test]
fn a_busy_source_whose_open_lane_may_deliver_is_waited_for() {
    let settings = Settings { lanes_fixed: true, lanes_per_source_max: 2, ..Settings::default() };
    let (mut talk, _) = Talk::ready(settings, 1, 100 * MIB);
    talk.tell(lost(1, Loss::Busy { wait: Some(Duration::from_secs(100_000)) }));
    assert_eq!(talk.plan.outcome(talk.now), Outcome::Running);
}

#[test]
fn a_source_that_cuts_each_connection_is_dialled_with_pauses() {
    let (mut talk, _) = Talk::ready(Settings::default(), 1, 100 * MIB);
    let mut lane = 0;
    while talk.now < Time::from_origin(Duration::from_secs(10)) && lane < 1000 {
        talk.tell(received(lane, 1000));
        let mut next = opened(&talk.tell(lost(lane, Loss::Failed)));
        while next.is_empty() {
            next = opened(&talk.wait_ms(10));
        }
        assert_eq!(next, [A]);
        lane += 1;
        talk.tell(ready(lane));
    }
    assert!((10..=60).contains(&lane), "{lane} connections in 10 s");
}

#[test]
fn wrong_bytes_are_fetched_again_from_somebody_else() {
    let (mut talk, asked) = Talk::ready(Settings::default(), 2, 2 * MIB);
    let (_, wrong) = asked[0];
    talk.tell(received(0, wrong.len()));
    talk.tell(Event::SourceDead { source: A });
    talk.tell(Event::Invalidate { range: wrong, not_from: vec![A] });
    talk.tell(received(0, 1000));
    assert_eq!(talk.plan.missing_bytes(), Some(2 * MIB), "what the liar still says does not count");
    talk.tell(received(1, asked[1].1.len()));
    let next = requests(&talk.tell(Event::RequestDone { lane: LaneId(1) }));
    assert_eq!(next[0].1.start(), wrong.start());
}

#[test]
fn stuck_when_nobody_is_left_who_may_deliver_a_byte() {
    let (mut talk, _) = Talk::ready(Settings::default(), 2, 2 * MIB);
    let range = ByteRange::new(0, 10);
    talk.tell(Event::Invalidate { range, not_from: vec![A] });
    assert_eq!(talk.plan.outcome(talk.now), Outcome::Running);
    talk.tell(Event::Invalidate { range, not_from: vec![A, B] });
    assert_eq!(talk.plan.outcome(talk.now), Outcome::Stuck(Stuck::Refused));
    // The last word counts: a source that is believed again may deliver again.
    talk.tell(Event::Invalidate { range, not_from: vec![B] });
    assert_eq!(talk.plan.outcome(talk.now), Outcome::Running);
}

// --- Servers that ignore ranges ------------------------------------------------------------------

#[test]
fn the_only_source_may_send_the_whole_object() {
    let (mut talk, _) = Talk::begin(Settings::default(), 1);
    talk.tell(ready(0));
    assert_eq!(talk.tell(Event::WholeBody { lane: LaneId(0), size_bytes: None }), []);
    talk.tell(received(0, 3 * MIB));
    assert_eq!(talk.plan.missing_bytes(), None);
    talk.tell(Event::RequestDone { lane: LaneId(0) });
    talk.tell(Event::SizeKnown { size_bytes: 3 * MIB });
    assert_eq!(talk.plan.outcome(talk.now), Outcome::Complete);
}

#[test]
fn a_source_that_ignores_ranges_waits_until_it_is_the_last() {
    let (mut talk, _) = Talk::ready(Settings::default(), 2, 10 * MIB);
    let actions = talk.tell(Event::WholeBody { lane: LaneId(0), size_bytes: Some(10 * MIB) });
    assert!(closes(&actions, 0));
    // What it sent before it heard of that counts from byte 0, whatever it was asked for.
    talk.tell(received(0, 1000));
    assert_eq!(talk.plan.missing_bytes(), Some(10 * MIB - 1000));
    assert_eq!(talk.tell(lost(0, Loss::Closed)), [], "it is not opened again");
    assert_eq!(opened(&talk.tell(Event::SourceDead { source: B })), [A]);
    assert_eq!(requests(&talk.tell(ready(2))), [(LaneId(2), ByteRange::new(0, 10 * MIB))]);
}

#[test]
fn sources_that_ignore_ranges_are_used_one_after_the_other() {
    let (mut talk, _) = Talk::ready(Settings::default(), 3, 10 * MIB);
    for lane in [0, 1] {
        talk.tell(Event::WholeBody { lane: LaneId(lane), size_bytes: Some(10 * MIB) });
        talk.tell(lost(lane, Loss::Closed));
    }
    assert_eq!(opened(&talk.tell(Event::SourceDead { source: SourceId(2) })), [A]);
    assert_eq!(opened(&talk.tell(Event::SourceDead { source: A })), [B]);
}

#[test]
fn the_end_of_a_late_request_is_fetched_twice_at_most() {
    let (mut talk, asked) = Talk::ready(one_lane(), 3, 3 * MIB);
    let (_, late) = asked[0];
    // Two lanes are done with everything else and turn to the first, which delivers slowly.
    let mut copies = Vec::new();
    while talk.plan.missing_bytes().expect("known") > late.len() {
        for lane in [1, 2] {
            if talk.plan.source_report(SourceId(lane)).expect("it was added").outstanding_bytes > 0 {
                talk.plan.handle(talk.now, received(u64::from(lane), MIB));
                copies = requests(&talk.tell(Event::RequestDone { lane: LaneId(u64::from(lane)) }));
            }
        }
    }
    copies.extend(requests(&talk.wait_ms(20)));
    assert!(!copies.is_empty(), "somebody helps");
    assert!(copies.iter().all(|(_, copy)| late.contains(*copy)), "{copies:?} is not of {late}");
    for (nth, (_, copy)) in copies.iter().enumerate() {
        assert!(copies[nth + 1..].iter().all(|(_, other)| copy.intersection(*other).is_empty()));
    }
    // Whatever of both arrives first counts, byte by byte.
    let (lane, copy) = copies[0];
    talk.tell(Event::Received { lane, bytes: copy.len(), fresh_bytes: copy.len() });
    talk.tell(Event::Received { lane: LaneId(0), bytes: late.len(), fresh_bytes: late.len() - copy.len() });
    assert!(talk.plan.is_complete());
    assert_eq!(talk.plan.extra_bytes(), copy.len());
}

/// A connection from an earlier copy, of 80 MB/s and 10 ms.
fn warm(source: SourceId) -> Event {
    let round_trip = Duration::from_millis(10);
    Event::Warm { source, connections: 1, expected_bytes: None, rate_bytes_per_s: 80e6, round_trip }
}

#[test]
fn a_small_object_comes_whole_from_the_connection_that_is_there() {
    let mut plan = Plan::new(one_lane());
    plan.add_source(Time::ZERO);
    plan.add_source(Time::ZERO);
    plan.handle(Time::ZERO, Event::SizeKnown { size_bytes: MIB });
    plan.handle(Time::ZERO, warm(A));
    let mut talk = Talk { plan, now: Time::ZERO };
    talk.actions();
    // The other one is ready first, and far away.
    let round_trip = Some(Duration::from_millis(30));
    let far = talk.tell(Event::LaneReady { lane: LaneId(1), round_trip });
    assert_eq!(requests(&far), []);
    talk.tell(Event::Pipelines { lane: LaneId(0), requests_max: None });
    let near = requests(&talk.tell(ready(0)));
    assert!(near.iter().all(|(lane, _)| *lane == LaneId(0)), "{near:?}");
    assert_eq!(
        near.iter().map(|(_, range)| range.len()).sum::<u64>(),
        MIB,
        "all of it, without an answer between"
    );
}

#[test]
fn the_first_bytes_of_an_unknown_size_wait_for_the_connection_that_is_there_and_not_for_ever() {
    let mut plan = Plan::new(one_lane());
    plan.add_source(Time::ZERO);
    plan.add_source(Time::ZERO);
    plan.handle(Time::ZERO, warm(A));
    let mut talk = Talk { plan, now: Time::ZERO };
    talk.actions();
    assert_eq!(requests(&talk.tell(ready(1))), []);
    let late = requests(&talk.wait_ms(1000));
    assert_eq!(late.first().map(|(lane, range)| (*lane, range.start())), Some((LaneId(1), 0)));
}

// --- Lanes at the start --------------------------------------------------------------------------

/// The round trip of a lane is told while it is being opened.
fn reached(lane: u64, round_trip_ms: u64) -> Event {
    Event::RoundTrip {
        lane: LaneId(lane),
        round_trip: Duration::from_millis(round_trip_ms),
        loaded: None,
        out_of_order: None,
    }
}

/// It is ready, and nothing new is told of its round trip.
fn connected(lane: u64) -> Event {
    Event::LaneReady { lane: LaneId(lane), round_trip: None }
}

#[test]
fn a_far_source_has_all_lanes_when_its_round_trip_is_known() {
    let (mut talk, first) = Talk::begin(Settings::default(), 1);
    assert_eq!(opened(&first), [A]);
    assert_eq!(opened(&talk.tell(reached(0, 300))), [A; 15], "before the size is known");
    assert_eq!(opened(&talk.tell(connected(0))), []);
    assert_eq!(opened(&talk.tell(Event::SizeKnown { size_bytes: 1024 * MIB })), []);
}

#[test]
fn a_near_source_and_a_small_object_have_few_lanes() {
    let (mut talk, _) = Talk::begin(Settings::default(), 1);
    talk.plan.handle(talk.now, Event::SizeKnown { size_bytes: 1024 * MIB });
    assert_eq!(opened(&talk.tell(reached(0, 20))), [], "slow start is short");
    let (mut talk, _) = Talk::begin(Settings::default(), 1);
    talk.plan.handle(talk.now, Event::SizeKnown { size_bytes: MIB });
    assert_eq!(opened(&talk.tell(reached(0, 300))), [A; 3], "one for each of the smallest requests");
}

/// The sources that get another connection when one has brought 32 MiB at this rate.
fn opened_near(
    sources: usize,
    lanes_near: usize,
    size_bytes: u64,
    round_trip_us: u64,
    mib_per_s: u64,
) -> Vec<SourceId> {
    let settings = Settings { lanes_near, ..Settings::default() };
    let (mut talk, _) = Talk::ready(settings, sources, size_bytes);
    let round_trip = Duration::from_micros(round_trip_us);
    let mut actions =
        talk.tell(Event::RoundTrip { lane: LaneId(0), round_trip, loaded: None, out_of_order: None });
    actions.extend(talk.tell(Event::Pipelines { lane: LaneId(0), requests_max: None }));
    for _ in 0..32 {
        talk.now = talk.now + Duration::from_micros(1_000_000 / mib_per_s);
        actions.extend(talk.tell(received(0, MIB)));
        actions.extend(talk.tell(Event::RequestDone { lane: LaneId(0) }));
    }
    opened(&actions)
}

#[test]
fn a_source_that_only_a_processor_holds_back_gets_the_lanes_that_there_are_threads_for() {
    assert_eq!(opened_near(1, 2, 1024 * MIB, 50, 2000), [A]);
    assert_eq!(opened_near(1, 1, 1024 * MIB, 50, 2000), [], "no thread");
    assert_eq!(opened_near(1, 2, 256 * MIB, 50, 2000), [], "soon over");
    assert_eq!(opened_near(1, 2, 1024 * MIB, 50, 900), [], "a link of 10 Gb/s may be full");
    assert_eq!(opened_near(1, 2, 1024 * MIB, 3000, 2000), [], "far away");
    assert_eq!(opened_near(2, 2, 1024 * MIB, 50, 2000), [], "the other source has a lane already");
}

#[test]
fn a_connection_that_is_there_tells_the_size_before_others_are_made() {
    let mut plan = Plan::new(Settings::default());
    plan.add_source(Time::ZERO);
    let round_trip = Duration::from_millis(300);
    let (connections, expected_bytes) = (1, None);
    let warm = Event::Warm { source: A, connections, expected_bytes, rate_bytes_per_s: 10e6, round_trip };
    plan.handle(Time::ZERO, warm);
    let mut talk = Talk { plan, now: Time::ZERO };
    assert_eq!(opened(&talk.actions()), [A]);
    assert_eq!(opened(&talk.tell(connected(0))), []);
    assert_eq!(opened(&talk.tell(Event::SizeKnown { size_bytes: 1024 * MIB })), [A; 15]);
}

/// The lanes of a source on which so many connections are there, before and after the size is told.
fn opened_warm(connections: usize, expected_mib: u64, size_mib: u64) -> (usize, usize, usize) {
    let mut plan = Plan::new(Settings::default());
    plan.add_source(Time::ZERO);
    let (expected_bytes, round_trip) = (Some(expected_mib * MIB), Duration::from_millis(100));
    let warm = Event::Warm { source: A, connections, expected_bytes, rate_bytes_per_s: 7e6, round_trip };
    plan.handle(Time::ZERO, warm);
    let mut talk = Talk { plan, now: Time::ZERO };
    let first = opened(&talk.actions()).len();
    let asked = (0..first as u64).flat_map(|lane| requests(&talk.tell(connected(lane)))).count();
    (first, asked, opened(&talk.tell(Event::SizeKnown { size_bytes: size_mib * MIB })).len())
}

#[test]
fn connections_that_are_there_are_asked_at_once_for_what_was_there_last_time() {
    assert_eq!(opened_warm(16, 100, 100), (16, 16, 0));
    assert_eq!(opened_warm(16, 1, 1), (1, 1, 0), "small files take one");
    assert_eq!(opened_warm(16, 1, 100), (1, 1, 15), "as soon as it is known to be larger");
    assert_eq!(opened_warm(12, 100, 50), (12, 12, 0), "new ones would begin when it is over");
    assert_eq!(opened_warm(12, 100, 1000), (12, 12, 4));
}

#[test]
fn sources_share_the_lanes_that_the_start_is_worth() {
    let (mut talk, first) = Talk::begin(Settings::default(), 2);
    assert_eq!(opened(&first), [A, B]);
    assert_eq!(opened(&talk.tell(reached(0, 100))), [], "the other one may say how much there is");
    talk.tell(reached(1, 100));
    let all = opened(&talk.tell(Event::SizeKnown { size_bytes: 1024 * MIB }));
    assert_eq!([A, B].map(|source| all.iter().filter(|opened| **opened == source).count()), [7, 7]);
}

#[test]
fn a_far_source_gets_one_lane_where_a_near_one_is_done_before_it_has_begun() {
    let (mut talk, _) = Talk::ready(Settings::default(), 1, 64 * MIB);
    for _ in 0..20 {
        talk.wait_ms(10);
        talk.tell(received(0, 1_000_000));
    }
    let far = talk.plan.add_source(talk.now);
    assert_eq!(opened(&talk.actions()), [far]);
    assert_eq!(opened(&talk.tell(reached(1, 300))), []);
}

#[test]
fn near_the_end_a_lane_owes_no_more_than_its_path_holds() {
    let owed = |size_bytes: u64| {
        let (mut talk, asked) = Talk::ready(one_lane(), 1, size_bytes);
        talk.tell(Event::Pipelines { lane: LaneId(0), requests_max: None });
        let mut owed: Vec<u64> = asked.iter().map(|(_, range)| range.len()).collect();
        // 100 MB/s at 10 ms, until 72 MB came.
        for _ in 0..72 {
            let mut actions = talk.wait_ms(10);
            let mut came = 1_000_000;
            while came > 0 && !owed.is_empty() {
                let part = owed[0].min(came);
                (owed[0], came) = (owed[0] - part, came - part);
                actions.extend(talk.tell(received(0, part)));
                if owed[0] == 0 {
                    owed.remove(0);
                    actions.extend(talk.tell(Event::RequestDone { lane: LaneId(0) }));
                }
            }
            owed.extend(requests(&actions).iter().map(|(_, range)| range.len()));
        }
        owed.iter().sum::<u64>()
    };
    let (ending, midway) = (owed(100_000_000), owed(1_000_000_000));
    assert!(2 * ending <= midway + MIB, "{ending} bytes near the end, {midway} in the middle");
}
