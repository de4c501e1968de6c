//! A run of a scenario.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use gridlane_core::Time;
use gridlane_jobs::{FileId, Link};

use super::fluid;
use super::world::{Path, Scenario};
use crate::breaker::{Class, Failure, Verdict};
use crate::dispatcher::{Dispatcher, Outcome};
use crate::optimizer::{Decision, Kind};
use crate::queue::Entry;
use crate::random::Random;

/// A copy on a path that is down ends so long after it has begun.
const CONNECT_TIMEOUT_S: f64 = 5.0;
/// A copy that does not move is given up after so long.
const STALL_S: f64 = 30.0;

/// What a run has shown.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// When the last file ended, in seconds; the end of the run if some did not.
    pub time_s: f64,
    /// The least time for which all bytes go through the narrowest resource, in seconds.
    pub bound_s: f64,
    /// Files that are done.
    pub finished: u32,
    /// Files that have failed for good.
    pub failed: u32,
    /// Attempts that have failed.
    pub failures: u32,
    /// Starts.
    pub starts: u32,
    /// Bytes of all files that are done.
    pub bytes: f64,
    /// Bytes that were moved in vain.
    pub twice_bytes: f64,
    /// The rate of all paths in each second, in bytes per second.
    pub rates: Vec<f64>,
    /// Bytes of each VO in each second, by name.
    pub vos: Vec<(String, Vec<f64>)>,
    /// All changes of concurrencies.
    pub decisions: Vec<Decision>,
    /// Copies at once of each path, as last decided.
    pub limits: Vec<u32>,
    /// Links that are treated as one, by path: how many with this one.
    pub groups: Vec<usize>,
    /// When each file began, in seconds: its path and time.
    pub started: Vec<(u32, f64)>,
    /// Bytes of memory of the queue, when most files waited.
    pub queue_bytes: usize,
    /// The best rate, as the scenario says, in bytes per second.
    pub best_bytes_per_s: f64,
}

impl Report {
    /// The mean rate from one second up to another, in bytes per second.
    pub fn rate(&self, from_s: usize, to_s: usize) -> f64 {
        let rates = &self.rates[from_s.min(self.rates.len())..to_s.min(self.rates.len())];
        rates.iter().sum::<f64>() / rates.len().max(1) as f64
    }

    /// The first time from which on five seconds have this part of the best rate, in seconds.
    pub fn reaches_s(&self, part: f64) -> Option<usize> {
        let best = self.best_bytes_per_s;
        (0..self.rates.len().saturating_sub(5)).find(|from| self.rate(*from, from + 5) >= part * best)
    }

    /// Changes of a path's concurrency in an hour, on average, between two times in seconds.
    pub fn changes_per_hour(&self, from_s: f64, to_s: f64) -> f64 {
        let (from, to) = (Time::ZERO.plus_s(from_s), Time::ZERO.plus_s(to_s));
        let changes =
            self.decisions.iter().filter(|decision| decision.at >= from && decision.at < to).count();
        changes as f64 / self.limits.len().max(1) as f64 * 3600.0 / (to_s - from_s).max(1.0)
    }
}

#[derive(Clone, Copy, Debug)]
struct File {
    path: u32,
    batch: u32,
    size_bytes: f64,
    done_bytes: f64,
    attempts: u32,
}

/// What happens to a file at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Its bytes begin to move, if the path is up.
    Flows(u32),
    /// It cannot be begun.
    Unreached(u32),
    /// It is verified.
    Verified(u32),
}

/// A copy whose bytes move. Ordered by the bytes of a connection of its path at which it ends.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Flow {
    ends_at: f64,
    began_at: f64,
    file: u32,
    /// It breaks off there.
    breaks: bool,
}

impl Eq for Flow {}

impl PartialOrd for Flow {
    fn partial_cmp(&self, other: &Flow) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Flow {
    fn cmp(&self, other: &Flow) -> std::cmp::Ordering {
        self.ends_at.total_cmp(&other.ends_at).then(self.file.cmp(&other.file))
    }
}

struct World<'a> {
    scenario: &'a Scenario,
    dispatcher: Dispatcher,
    files: Vec<File>,
    flows: Vec<BinaryHeap<Reverse<Flow>>>,
    /// Bytes that a connection of each path has moved that was always there.
    moved: Vec<f64>,
    down_since: Vec<Option<f64>>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    random: Random,
    report: Report,
    open: u32,
}

fn time(seconds: f64) -> Time {
    Time::ZERO.plus_s(seconds)
}

fn micros(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}

/// Runs a scenario with one of the optimisers.
pub fn run(scenario: &Scenario, kind: Kind) -> Report {
    let vos: std::collections::BTreeSet<&String> = scenario.batches.iter().map(|batch| &batch.vo).collect();
    let report = Report {
        best_bytes_per_s: scenario.best_bytes_per_s,
        vos: vos.into_iter().map(|vo| (vo.clone(), Vec::new())).collect(),
        ..Report::default()
    };
    let paths = scenario.paths.len();
    let mut world = World {
        scenario,
        dispatcher: Dispatcher::new(scenario.rules.clone(), kind, scenario.seed),
        files: Vec::new(),
        flows: vec![BinaryHeap::new(); paths],
        moved: vec![0.0; paths],
        down_since: vec![None; paths],
        events: BinaryHeap::new(),
        random: Random::new(scenario.seed),
        report,
        open: 0,
    };
    world.run();
    world.report
}

impl World<'_> {
    fn run(&mut self) {
        let scenario = self.scenario;
        let mut batches: Vec<usize> = (0..scenario.batches.len()).collect();
        batches.sort_by(|one, other| scenario.batches[*other].at_s.total_cmp(&scenario.batches[*one].at_s));
        let (mut now_s, mut marker_s) = (0.0, 0.0);
        let mut rates = Vec::new();
        loop {
            while let Some(batch) =
                batches.last().copied().filter(|batch| scenario.batches[*batch].at_s <= now_s)
            {
                batches.pop();
                self.submit(batch, now_s);
            }
            if self.open == 0 && batches.is_empty() || now_s >= scenario.until_s {
                break;
            }
            self.break_paths(now_s);
            while let Some(Reverse((_, event))) =
                self.events.peek().copied().filter(|Reverse((at, _))| *at <= micros(now_s))
            {
                self.events.pop();
                self.happen(event, now_s);
            }
            if now_s >= marker_s {
                marker_s = now_s + scenario.marker_s;
                self.mark(now_s);
            }
            let decisions = self.dispatcher.tick(time(now_s));
            self.report.decisions.extend(decisions);
            self.start(now_s);
            self.flow(now_s, &mut rates);
            now_s += scenario.step_s;
        }
        self.report.time_s = now_s;
        self.report.bound_s = self.bound_s();
        for path in &scenario.paths {
            let id = self.dispatcher.link_id(&link(path));
            self.report.limits.push(id.and_then(|id| self.dispatcher.limit(id)).unwrap_or_default());
            self.report.groups.push(id.map_or(1, |id| self.dispatcher.optimizer.group(id).len()));
        }
    }

    fn submit(&mut self, number: usize, now_s: f64) {
        let batch = &self.scenario.batches[number];
        for _ in 0..batch.files {
            let size_bytes = batch.size_bytes as f64 * (0.9 + 0.2 * self.random.part());
            let file = File {
                path: batch.path as u32,
                batch: number as u32,
                size_bytes: size_bytes.round(),
                done_bytes: 0.0,
                attempts: 0,
            };
            self.files.push(file);
            self.open += 1;
            let entry = self.entry(self.files.len() - 1);
            self.dispatcher.submitted(&entry, time(now_s));
        }
        self.report.queue_bytes = self.report.queue_bytes.max(self.dispatcher.queue_bytes());
    }

    fn entry(&self, number: usize) -> Entry {
        let file = &self.files[number];
        let batch = &self.scenario.batches[file.batch as usize];
        Entry {
            file: FileId(number as i64),
            link: link(&self.scenario.paths[batch.path]),
            vo: batch.vo.clone(),
            activity: batch.activity.clone(),
            priority: 3,
            size_bytes: file.size_bytes as u64,
            waited_s: 0,
            not_before: None,
            expires: None,
        }
    }

    /// Paths go down and come back; copies that have stalled for too long are given up.
    fn break_paths(&mut self, now_s: f64) {
        for path in 0..self.scenario.paths.len() {
            let is_down = self
                .scenario
                .faults
                .iter()
                .any(|fault| fault.path == path && now_s >= fault.from_s && now_s < fault.to_s);
            match (self.down_since[path], is_down) {
                (None, true) => self.down_since[path] = Some(now_s),
                (Some(_), false) => self.down_since[path] = None,
                (Some(since), true) if now_s - since >= STALL_S => {
                    for Reverse(flow) in std::mem::take(&mut self.flows[path]) {
                        let done = self.moved[path] - flow.began_at;
                        self.fail(flow.file, done, Class::Path, now_s);
                    }
                }
                _ => {}
            }
        }
    }

    fn happen(&mut self, event: Event, now_s: f64) {
        match event {
            Event::Flows(number) => {
                let file = self.files[number as usize];
                let path = file.path as usize;
                if self.down_since[path].is_some() {
                    return self.fail(number, 0.0, Class::Path, now_s);
                }
                let left = file.size_bytes - file.done_bytes;
                let breaks = self.random.part() < self.scenario.failing;
                let began_at = self.moved[path];
                let ends_at = began_at + if breaks { left / 2.0 } else { left };
                self.flows[path].push(Reverse(Flow { ends_at, began_at, file: number, breaks }));
            }
            Event::Unreached(number) => self.fail(number, 0.0, Class::Path, now_s),
            Event::Verified(number) => {
                let bytes = self.files[number as usize].size_bytes as u64;
                self.dispatcher.ended(FileId(i64::from(number)), &Outcome::Finished { bytes }, time(now_s));
                self.report.finished += 1;
                self.report.bytes += bytes as f64;
                self.open -= 1;
            }
        }
    }

    fn fail(&mut self, number: u32, moved_bytes: f64, class: Class, now_s: f64) {
        let file = &mut self.files[number as usize];
        if self.scenario.is_resuming {
            file.done_bytes += moved_bytes;
        } else {
            self.report.twice_bytes += moved_bytes;
        }
        self.report.failures += 1;
        let failure = Failure {
            class,
            is_recoverable: true,
            attempts: file.attempts,
            retries: self.scenario.retries,
            retry_pause: Some(Duration::from_secs(10)),
            has_replica: false,
        };
        let id = FileId(i64::from(number));
        match self.dispatcher.ended(id, &Outcome::Failed(failure), time(now_s)) {
            Some(Verdict::Retry { after, is_counted }) => {
                file.attempts += u32::from(is_counted);
                let attempts = file.attempts;
                let not_before = Some(time(now_s) + after);
                let entry = Entry { not_before, ..self.entry(number as usize) };
                self.dispatcher.requeued(&entry, attempts, time(now_s));
            }
            _ => {
                self.report.failed += 1;
                self.open -= 1;
            }
        }
    }

    /// Storages tell how far they are.
    fn mark(&mut self, now_s: f64) {
        for (path, flows) in self.flows.iter().enumerate() {
            for Reverse(flow) in flows {
                let bytes = self.moved[path] - flow.began_at;
                self.dispatcher.progress(FileId(i64::from(flow.file)), bytes as u64, time(now_s));
            }
        }
    }

    fn start(&mut self, now_s: f64) {
        loop {
            let turn = self.dispatcher.next(time(now_s));
            for start in &turn.starts {
                let number = start.file.0 as u32;
                let path = self.files[number as usize].path;
                self.report.starts += 1;
                self.report.started.push((path, now_s));
                let event = if self.down_since[path as usize].is_some() {
                    (micros(now_s + CONNECT_TIMEOUT_S), Event::Unreached(number))
                } else {
                    let overhead_s = self.scenario.paths[path as usize].overhead_s;
                    (micros(now_s + overhead_s), Event::Flows(number))
                };
                self.events.push(Reverse(event));
            }
            if turn.starts.is_empty() {
                return;
            }
        }
    }

    /// Bytes move for a step.
    fn flow(&mut self, now_s: f64, rates: &mut Vec<f64>) {
        let scenario = self.scenario;
        let connections: Vec<u32> = (0..scenario.paths.len())
            .map(|path| if self.down_since[path].is_some() { 0 } else { self.flows[path].len() as u32 })
            .collect();
        fluid::rates(&scenario.resources, &scenario.paths, &connections, rates);
        let (second, then_s) = (now_s as usize, now_s + scenario.step_s);
        self.report.rates.resize(second + 1, 0.0);
        for (_, bytes) in &mut self.report.vos {
            bytes.resize(second + 1, 0.0);
        }
        for (path, rate) in rates.iter().enumerate().filter(|(_, rate)| **rate > 0.0) {
            self.moved[path] += rate * scenario.step_s;
            self.report.rates[second] += rate * scenario.step_s * f64::from(connections[path]);
            while let Some(Reverse(flow)) = self.flows[path].peek().copied() {
                if flow.ends_at > self.moved[path] {
                    break;
                }
                self.flows[path].pop();
                if flow.breaks {
                    self.fail(flow.file, flow.ends_at - flow.began_at, Class::Path, then_s);
                    continue;
                }
                let file = &self.files[flow.file as usize];
                let bytes = file.size_bytes as u64;
                let vo = &scenario.batches[file.batch as usize].vo;
                if let Some((_, sums)) = self.report.vos.iter_mut().find(|(name, _)| name == vo) {
                    sums[second] += file.size_bytes;
                }
                self.dispatcher.moved(FileId(i64::from(flow.file)), bytes, time(then_s));
                let at = micros(then_s + scenario.paths[path].verify_s);
                self.events.push(Reverse((at, Event::Verified(flow.file))));
            }
        }
    }

    fn bound_s(&self) -> f64 {
        let mut bytes = vec![0.0; self.scenario.resources.len()];
        for file in &self.files {
            for resource in &self.scenario.paths[file.path as usize].through {
                bytes[*resource] += file.size_bytes;
            }
        }
        let times = bytes.iter().zip(&self.scenario.resources).map(|(bytes, it)| bytes / it.bytes_per_s);
        times.fold(0.0, f64::max)
    }
}

fn link(path: &Path) -> Link {
    Link { source: (*path.source).into(), destination: (*path.destination).into() }
}
