//! Any events in any order: limits hold, nothing is lost, and what may start does.

use std::collections::{BTreeMap, BTreeSet};

use gridlane_core::Time;
use gridlane_dispatch::{
    Class, Dispatcher, Entry, Failure, Hold, HoldReason, Kind, LinkRule, Outcome, Rules, Side, StorageRule,
};
use gridlane_jobs::{FileId, Link};
use proptest::prelude::*;

const STORAGES: u8 = 4;

#[derive(Clone, Debug)]
enum Op {
    Submit { from: u8, to: u8, vo: u8, priority: u8, delay_s: u8 },
    Move(u8),
    Finish(u8),
    Fail(u8, u8),
    Progress(u8),
    Cancel(u8),
    Force(u8),
    Priority(u8, u8),
    Hold(Option<u8>),
    Limit(u8),
    Pass(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => any::<[u8; 5]>().prop_map(|[from, to, vo, priority, delay_s]| Op::Submit {
            from: from % STORAGES, to: to % STORAGES, vo: vo % 3, priority: priority % 6, delay_s: delay_s % 30,
        }),
        2 => any::<u8>().prop_map(Op::Move),
        3 => any::<u8>().prop_map(Op::Finish),
        2 => any::<(u8, u8)>().prop_map(|(file, class)| Op::Fail(file, class)),
        1 => any::<u8>().prop_map(Op::Progress),
        1 => any::<u8>().prop_map(Op::Cancel),
        1 => any::<u8>().prop_map(Op::Force),
        1 => any::<(u8, u8)>().prop_map(|(file, priority)| Op::Priority(file, priority)),
        1 => proptest::option::of(0..STORAGES).prop_map(Op::Hold),
        1 => (1..5u8).prop_map(Op::Limit),
        4 => (0..60u8).prop_map(Op::Pass),
    ]
}

fn rules(limit: u8, held: Option<u8>) -> Rules {
    let mut rules = Rules::default();
    rules.links.insert(("*".into(), "*".into()), LinkRule { min_active: 1, max_active: 6, mode: 2 });
    let storage = StorageRule {
        inbound_max_active: u32::from(limit),
        outbound_max_active: u32::from(limit) + 1,
        inbound_max_bytes_per_s: None,
        outbound_max_bytes_per_s: None,
    };
    rules.storages.insert("*".into(), storage);
    if let Some(held) = held {
        rules.holds.insert(format!("s{held}"), vec![Hold { vo: None, why: HoldReason::Draining }]);
    }
    rules
}

#[derive(Debug)]
struct Model {
    dispatcher: Dispatcher,
    waiting: BTreeSet<i64>,
    /// Storages of files that are copied, and whether their bytes are there.
    running: BTreeMap<i64, (u8, u8, bool)>,
    ends: BTreeMap<i64, (u8, u8)>,
    forced: BTreeSet<i64>,
    limit: u8,
    /// Limits have been lower since some of what runs has started.
    has_limits: bool,
    held: Option<u8>,
}

impl Model {
    fn turn(&mut self, now: Time) {
        let turn = self.dispatcher.next(now);
        assert!(turn.expired.is_empty() && turn.refused.is_empty());
        for start in turn.starts {
            let file = start.file.0;
            assert!(self.waiting.remove(&file), "{file} waited");
            let (from, to) = self.ends[&file];
            self.running.insert(file, (from, to, false));
            if self.forced.remove(&file) {
                self.has_limits = false;
                continue;
            }
            assert!(self.held.is_none_or(|held| held != from && held != to), "a storage is on hold");
            if self.has_limits {
                let count = |of: &dyn Fn(u8, u8) -> bool| {
                    self.running.values().filter(|it| !it.2 && of(it.0, it.1)).count()
                };
                assert!(count(&|it, _| it == from) <= usize::from(self.limit) + 1);
                assert!(count(&|_, it| it == to) <= usize::from(self.limit));
            }
        }
        assert_eq!(
            (self.dispatcher.waiting(), self.dispatcher.running()),
            (self.waiting.len(), self.running.len())
        );
    }

    fn pick(&self, number: u8) -> Option<i64> {
        self.running.keys().nth(usize::from(number) % self.running.len().max(1)).copied()
    }

    fn end(&mut self, file: i64, outcome: &Outcome, now: Time) {
        self.dispatcher.ended(FileId(file), outcome, now);
        self.running.remove(&file);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn limits_hold_and_everything_ends(ops in proptest::collection::vec(op(), 1..200)) {
        let mut model = Model {
            dispatcher: Dispatcher::new(rules(4, None), Kind::Ours, 1),
            waiting: BTreeSet::new(),
            running: BTreeMap::new(),
            ends: BTreeMap::new(),
            forced: BTreeSet::new(),
            limit: 4,
            has_limits: true,
            held: None,
        };
        let mut now = Time::ZERO.plus_s(10.0);
        let mut files = 0;
        for op in ops {
            match op {
                Op::Submit { from, to, vo, priority, delay_s } => {
                    files += 1;
                    let entry = Entry {
                        file: FileId(files),
                        link: Link { source: format!("s{from}").as_str().into(), destination: format!("s{to}").as_str().into() },
                        vo: vo.to_string(),
                        activity: "default".into(),
                        priority,
                        size_bytes: 1000,
                        waited_s: 0,
                        not_before: (delay_s > 10).then(|| now.plus_s(delay_s.into())),
                        expires: None,
                    };
                    prop_assert!(model.dispatcher.submitted(&entry, now));
                    model.waiting.insert(files);
                    model.ends.insert(files, (from, to));
                }
                Op::Move(number) => if let Some(file) = model.pick(number) {
                    model.dispatcher.moved(FileId(file), 1000, now);
                    if let Some(running) = model.running.get_mut(&file) {
                        running.2 = true;
                    }
                }
                Op::Finish(number) => if let Some(file) = model.pick(number) {
                    model.end(file, &Outcome::Finished { bytes: 1000 }, now);
                }
                Op::Fail(number, class) => if let Some(file) = model.pick(number) {
                    let class = [Class::Path, Class::Storage(Side::Source), Class::Storage(Side::Destination), Class::File][usize::from(class % 4)];
                    let failure = Failure { class, is_recoverable: true, attempts: 0, retries: 1, retry_pause: None, has_replica: false };
                    model.end(file, &Outcome::Failed(failure), now);
                }
                Op::Progress(number) => if let Some(file) = model.pick(number) {
                    model.dispatcher.progress(FileId(file), 500, now);
                }
                Op::Cancel(number) => {
                    let file = model.waiting.iter().nth(usize::from(number) % model.waiting.len().max(1)).copied();
                    if let Some(file) = file {
                        model.dispatcher.cancelled(FileId(file));
                        model.waiting.remove(&file);
                        model.forced.remove(&file);
                    }
                }
                Op::Force(number) => {
                    let file = model.waiting.iter().nth(usize::from(number) % model.waiting.len().max(1)).copied();
                    if let Some(file) = file {
                        prop_assert!(model.dispatcher.forced(FileId(file)));
                        model.forced.insert(file);
                    }
                }
                Op::Priority(number, priority) => {
                    let file = model.waiting.iter().nth(usize::from(number) % model.waiting.len().max(1)).copied();
                    if let Some(file) = file {
                        prop_assert!(model.dispatcher.reprioritized(FileId(file), priority));
                    }
                }
                Op::Hold(held) => {
                    model.held = held;
                    model.dispatcher.configured(rules(model.limit, held));
                }
                Op::Limit(limit) => {
                    model.has_limits &= limit >= model.limit;
                    model.limit = limit;
                    model.dispatcher.configured(rules(limit, model.held));
                }
                Op::Pass(seconds) => {
                    now = now.plus_s(f64::from(seconds));
                    model.dispatcher.tick(now);
                }
            }
            model.turn(now);
            for file in &model.waiting {
                prop_assert!(!model.dispatcher.why_waits(FileId(*file), now).to_string().is_empty());
            }
        }
        // Everything works from now on: all of it starts, though nobody asks but at the deadlines.
        model.held = None;
        model.dispatcher.configured(rules(model.limit, None));
        let mut turns = 0;
        while !(model.waiting.is_empty() && model.running.is_empty()) {
            let all: Vec<i64> = model.running.keys().copied().collect();
            for file in all {
                model.dispatcher.progress(FileId(file), 500, now);
                model.end(file, &Outcome::Finished { bytes: 1000 }, now);
            }
            model.dispatcher.tick(now);
            model.turn(now);
            if model.running.is_empty() && !model.waiting.is_empty() {
                let deadline = model.dispatcher.deadline(now);
                prop_assert!(deadline.is_some());
                now = now.max(deadline.unwrap_or(now)).plus_s(1e-6);
            }
            turns += 1;
            prop_assert!(turns < 5000, "{:?} wait", model.waiting);
        }
    }
}
