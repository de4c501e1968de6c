//! The dispatcher: events in, starts out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use gridlane_core::Time;
use gridlane_core::limits::{
    BREAKER_PATHS, BREAKER_PAUSE_MAX, DISPATCH_LINK_IDLE_MAX, DISPATCH_STAGGER, DISPATCH_STARTS_MAX,
    DISPATCH_SWEEP,
};
use gridlane_jobs::{FileId, Link, Storage};

use crate::breaker::{Breaker, Class, Failure, Side, Verdict};
use crate::meter::{Meter, Told};
use crate::optimizer::{Decision, Kind, Optimizer, Sample};
use crate::queue::{Entry, LinkId, Queue, Taken};
use crate::random::Random;
use crate::rules::Rules;

/// The longest time between two reports that the measuring of rates waits for.
const MARKER_MAX: Duration = Duration::from_secs(5);
/// The time whose rate a link is said to have.
const LATELY: Duration = Duration::from_secs(10);
/// Copies at once where an FTS3 optimiser has decided nothing (fts3-rest 11).
const UNDECIDED: u32 = 10;

/// A file that is to be copied now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The file.
    pub file: FileId,
    /// Its link.
    pub link: LinkId,
    /// The path or a storage is down, and this file is to find out whether it is back.
    pub is_probe: bool,
}

/// What is to be done now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn {
    /// Files that are to be copied.
    pub starts: Vec<Start>,
    /// Files that have waited for too long; they wait no more.
    pub expired: Vec<FileId>,
    /// Files of VOs that have no share on their link; they wait no more (fts3-rest 9).
    pub refused: Vec<FileId>,
}

/// The end of a copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// It is done, with so many bytes.
    Finished {
        /// Bytes of the file.
        bytes: u64,
    },
    /// It has failed.
    Failed(Failure),
    /// It was cancelled, or given to another broker.
    Cancelled,
}

/// Where a file was that is not wanted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It waited, and does no more.
    Waiting,
    /// It is being copied: when the copy has ended, [`Dispatcher::ended`] is told.
    Running,
    /// It is not known.
    Unknown,
}

/// A file that is being copied.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) taken: Taken,
    pub(crate) started: Time,
    pub(crate) told: Told,
    pub(crate) has_moved: bool,
}

/// Retries of a file that did not count though nothing was known to be down.
#[derive(Clone, Copy, Debug)]
struct Spared {
    retries: u32,
    last_at: Time,
}

/// A link.
#[derive(Debug)]
pub(crate) struct LinkState {
    pub(crate) source: u32,
    pub(crate) destination: u32,
    pub(crate) limit: u32,
    pub(crate) meter: Meter,
    pub(crate) verifying: u32,
    /// Starts that take the place of copies that have ended: they are not delayed.
    refills: u32,
    next_start: Time,
    is_in_ring: bool,
    /// It waits for a place at its source, at its destination.
    is_parked: [bool; 2],
    /// There was one.
    is_woken_for: [bool; 2],
    alarm: Option<Time>,
    pub(crate) breaker: Breaker,
    pub(crate) finished: u64,
    pub(crate) failed: u64,
    idle_since: Time,
    /// In the last ten seconds before the last look.
    pub(crate) bytes_per_s: f64,
    pub(crate) last: Option<Decision>,
}

/// A storage.
#[derive(Debug, Default)]
pub(crate) struct StorageState {
    links: Vec<LinkId>,
    /// Copies from it and to it.
    pub(crate) active: [u32; 2],
    pub(crate) limits: [u32; 2],
    rate_limits: [Option<f64>; 2],
    /// Links that wait for it.
    waiters: [VecDeque<LinkId>; 2],
    pub(crate) breaker: Breaker,
}

/// Why a link starts nothing now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Block {
    Paused,
    Empty,
    /// With the time of the next probe; `None`: one runs.
    Down(Option<Time>),
    Full,
    Storage(u32, Side),
    Later(Time),
}

/// Decides which transfer runs when.
///
/// Events are told in any order; after them [`next`](Dispatcher::next) says what starts, and [`deadline`](Dispatcher::deadline) when
/// to ask again if nothing happens. Each event costs O(1) or O(log n), and so does each start.
#[derive(Debug)]
pub struct Dispatcher {
    pub(crate) rules: Rules,
    pub(crate) queue: Queue,
    links: Vec<Option<LinkState>>,
    storages: Vec<StorageState>,
    running: BTreeMap<FileId, Running>,
    /// Files that have failed where nothing was known to be down, until they have ended.
    spared: HashMap<FileId, Spared>,
    /// Links to be looked at.
    ring: VecDeque<LinkId>,
    alarms: BinaryHeap<Reverse<(Time, LinkId)>>,
    forced: Vec<FileId>,
    pub(crate) optimizer: Optimizer,
    random: Random,
    /// Usual time between two reports of a copy, in seconds.
    marker_s: f64,
    sweep_at: Time,
}

fn of(side: Side) -> usize {
    side as usize
}

impl Dispatcher {
    /// With these rules, and a seed for pauses by chance, which differs from broker to broker.
    pub fn new(rules: Rules, kind: Kind, seed: u64) -> Dispatcher {
        Dispatcher {
            rules,
            queue: Queue::default(),
            links: Vec::new(),
            storages: Vec::new(),
            running: BTreeMap::new(),
            spared: HashMap::new(),
            ring: VecDeque::new(),
            alarms: BinaryHeap::new(),
            forced: Vec::new(),
            optimizer: Optimizer::new(kind),
            random: Random::new(seed),
            marker_s: 1.0,
            sweep_at: Time::ZERO,
        }
    }

    /// Files that wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Files that are being copied or verified.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Bytes of memory for the files that wait, but for names.
    pub fn queue_bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// The link of a number.
    pub fn link(&self, id: LinkId) -> Option<Link> {
        self.queue.link(id)
    }

    /// The number of a link that has something to do, or had lately.
    pub fn link_id(&self, link: &Link) -> Option<LinkId> {
        self.queue.find_link(link)
    }

    /// All links that have something to do, or had lately.
    pub fn links(&self) -> impl Iterator<Item = LinkId> {
        self.queue.links()
    }

    /// Copies of a link at once, as decided.
    pub fn limit(&self, id: LinkId) -> Option<u32> {
        self.state(id).map(|link| link.limit)
    }

    pub(crate) fn state(&self, id: LinkId) -> Option<&LinkState> {
        self.links.get(id.0 as usize)?.as_ref()
    }

    fn state_mut(&mut self, id: LinkId) -> Option<&mut LinkState> {
        self.links.get_mut(id.0 as usize)?.as_mut()
    }

    pub(crate) fn storage_state(&self, number: u32) -> Option<&StorageState> {
        self.storages.get(number as usize)
    }

    pub(crate) fn running_file(&self, file: FileId) -> Option<&Running> {
        self.running.get(&file)
    }

    // --- Events -------------------------------------------------------------------------------------

    /// A file waits; false if it did already, or is being copied.
    pub fn submitted(&mut self, entry: &Entry, now: Time) -> bool {
        if self.running.contains_key(&entry.file) {
            return false;
        }
        let Some(id) = self.queue.insert(entry, &self.rules, now) else { return false };
        self.learn(id, now);
        self.enqueue(id);
        true
    }

    /// A file that has failed waits again, as [`submitted`](Dispatcher::submitted), after so many attempts.
    pub fn requeued(&mut self, entry: &Entry, attempts: u32, now: Time) -> bool {
        let is_new = self.submitted(entry, now);
        if is_new && let Some(id) = self.queue.find_link(&entry.link) {
            self.optimizer.requeued(id, attempts, now);
        }
        is_new
    }

    /// A file that was being copied already when the service began is being copied still.
    pub fn adopted(&mut self, entry: &Entry, now: Time) -> bool {
        if !self.submitted(entry, now) {
            return false;
        }
        let taken = self.queue.remove(entry.file);
        taken.is_some_and(|taken| self.begin(taken, now).is_some())
    }

    /// So many bytes of a copy have moved by now.
    pub fn progress(&mut self, file: FileId, bytes: u64, now: Time) {
        let Some(running) = self.running.get_mut(&file) else { return };
        if running.has_moved {
            return;
        }
        let (id, started, is_alive) = (running.taken.link, running.started, bytes > running.told.bytes);
        let marker_s = now.since(running.told.at).as_secs_f64().min(MARKER_MAX.as_secs_f64());
        self.marker_s += 0.05 * (marker_s - self.marker_s);
        if let Some(link) = self.links.get_mut(id.0 as usize).and_then(Option::as_mut) {
            link.meter.tell(&mut running.told, bytes, now);
        }
        self.optimizer.progress(file, bytes);
        if is_alive {
            self.alive(id, file, started, now);
        }
    }

    /// All bytes of a copy are there, and are verified from now on: the next file of its link may start.
    pub fn moved(&mut self, file: FileId, bytes: u64, now: Time) {
        let Some(running) = self.running.get_mut(&file) else { return };
        if std::mem::replace(&mut running.has_moved, true) {
            return;
        }
        let (id, started) = (running.taken.link, running.started);
        if let Some(link) = self.links.get_mut(id.0 as usize).and_then(Option::as_mut) {
            link.meter.end(&mut running.told, bytes, now);
            link.verifying += 1;
            link.finished += 1;
        }
        self.optimizer.ended(file, Some(true), bytes, now);
        self.alive(id, file, started, now);
        self.freed(id);
    }

    /// A copy has ended. Of one that has failed: what follows. The file is not known here any more: one that is tried again is
    /// [`requeued`](Dispatcher::requeued).
    pub fn ended(&mut self, file: FileId, outcome: &Outcome, now: Time) -> Option<Verdict> {
        let mut running = self.running.remove(&file)?;
        let id = running.taken.link;
        let is_good = match outcome {
            Outcome::Finished { .. } => Some(true),
            Outcome::Failed(failure) if matches!(failure.class, Class::File | Class::User) => None,
            Outcome::Failed(_) => Some(false),
            Outcome::Cancelled => None,
        };
        let bytes = match outcome {
            Outcome::Finished { bytes } => *bytes,
            _ => running.told.bytes,
        };
        self.queue.charge(&running.taken, bytes);
        let link = self.links.get_mut(id.0 as usize)?.as_mut()?;
        if running.has_moved {
            link.verifying -= 1;
        } else {
            link.meter.end(&mut running.told, bytes, now);
            link.finished += u64::from(is_good == Some(true));
            self.optimizer.ended(file, is_good, bytes, now);
        }
        link.failed += u64::from(is_good == Some(false));
        link.idle_since = now;
        let verdict = match outcome {
            Outcome::Finished { .. } => {
                self.alive(id, file, running.started, now);
                None
            }
            Outcome::Cancelled => {
                self.breakers(id, |breaker, _| breaker.ended(file, now));
                None
            }
            Outcome::Failed(failure) => {
                self.failed(id, file, &running, failure.class, now);
                Some(self.verdict(id, file, failure, now))
            }
        };
        if !matches!(verdict, Some(Verdict::Retry { .. })) {
            self.spared.remove(&file);
        }
        if running.has_moved {
            self.enqueue(id);
        } else {
            self.freed(id);
        }
        verdict
    }

    /// A file is not wanted any more.
    pub fn cancelled(&mut self, file: FileId) -> Cancelled {
        if self.queue.remove(file).is_some() {
            return Cancelled::Waiting;
        }
        if self.running.contains_key(&file) { Cancelled::Running } else { Cancelled::Unknown }
    }

    /// A file has another priority; false if it does not wait.
    pub fn reprioritized(&mut self, file: FileId, priority: u8) -> bool {
        self.queue.set_priority(file, priority)
    }

    /// A file that waits starts at the next turn, whatever the limits say; false if it does not wait.
    pub fn forced(&mut self, file: FileId) -> bool {
        let waits = self.queue.place(file).is_some();
        if waits {
            self.forced.push(file);
        }
        waits
    }

    /// The configuration is another one.
    pub fn configured(&mut self, rules: Rules) {
        self.rules = rules;
        let ids: Vec<LinkId> = self.queue.links().collect();
        for id in ids {
            self.queue.configured(id, &self.rules);
            let Some(name) = self.queue.link(id) else { continue };
            let range = self.rules.range(&name);
            if let Some(link) = self.state_mut(id) {
                link.limit = link.limit.clamp(range.min, range.max);
            }
            self.limit_storages(id, &name);
            self.enqueue(id);
        }
    }

    // --- Turns --------------------------------------------------------------------------------------

    /// What is to be done now.
    pub fn next(&mut self, now: Time) -> Turn {
        let mut turn = Turn::default();
        while turn.expired.len() < DISPATCH_STARTS_MAX
            && let Some(file) = self.queue.expire(now)
        {
            turn.expired.push(file);
        }
        let mut woken = Vec::new();
        self.queue.wake(now, |id| woken.push(id));
        while let Some(Reverse((at, id))) = self.alarms.peek().copied().filter(|Reverse((at, _))| *at <= now)
        {
            self.alarms.pop();
            if let Some(link) = self.state_mut(id)
                && link.alarm == Some(at)
            {
                link.alarm = None;
                woken.push(id);
            }
        }
        for id in woken {
            self.enqueue(id);
        }
        for file in std::mem::take(&mut self.forced) {
            if let Some(taken) = self.queue.remove(file) {
                turn.starts.extend(self.begin(taken, now));
            }
        }
        while turn.starts.len() < DISPATCH_STARTS_MAX
            && turn.refused.len() < DISPATCH_STARTS_MAX
            && let Some(id) = self.ring.pop_front()
        {
            self.visit(id, now, &mut turn);
        }
        turn
    }

    /// Starts a file of a link, if there is one and it may.
    fn visit(&mut self, id: LinkId, now: Time, turn: &mut Turn) {
        let Some(link) = self.state_mut(id) else { return };
        link.is_in_ring = false;
        let (woken_for, ends) = (std::mem::take(&mut link.is_woken_for), [link.source, link.destination]);
        if self.queue.waiting(id).1 > self.queue.waiting(id).0 {
            turn.refused.extend(self.queue.refused(id, DISPATCH_STARTS_MAX - turn.refused.len()));
            if turn.refused.len() >= DISPATCH_STARTS_MAX {
                // There may be more of them, for the next turn.
                self.enqueue(id);
            }
        }
        let block = self.block(id, now);
        if block.is_some() {
            // A place that became free is for another link that waits for it.
            for side in [Side::Source, Side::Destination] {
                if woken_for[of(side)] {
                    self.wake(ends[of(side)], side);
                }
            }
        }
        match block {
            None => {
                if let Some(taken) = self.queue.choose(id, &self.rules) {
                    let is_due = self.state(id).is_some_and(|link| link.refills > 0);
                    if let Some(link) = self.state_mut(id) {
                        if is_due {
                            link.refills -= 1;
                        } else {
                            link.next_start = link.next_start.max(now) + DISPATCH_STAGGER / link.limit.max(1);
                        }
                    }
                    turn.starts.extend(self.begin(taken, now));
                }
                self.enqueue(id);
            }
            Some(Block::Storage(storage, side)) => {
                let Some(link) = self.state_mut(id) else { return };
                if !std::mem::replace(&mut link.is_parked[of(side)], true)
                    && let Some(storage) = self.storages.get_mut(storage as usize)
                {
                    storage.waiters[of(side)].push_back(id);
                }
            }
            Some(Block::Later(at) | Block::Down(Some(at))) => self.alarm(id, at),
            // The probe of another link may end and show nothing.
            Some(Block::Down(None)) => self.alarm(id, now + BREAKER_PAUSE_MAX),
            Some(Block::Empty) => {
                if let Some(link) = self.state_mut(id) {
                    // What ends while nothing waits makes no place for what comes later.
                    link.refills = 0;
                }
            }
            Some(Block::Paused | Block::Full) => {}
        }
    }

    /// When something is to be done if nothing happens before: a turn, or a look at rates.
    pub fn deadline(&mut self, now: Time) -> Option<Time> {
        if !self.ring.is_empty() || !self.forced.is_empty() {
            return Some(now);
        }
        let alarm = self.alarms.peek().map(|Reverse((at, _))| *at);
        let has_work = !self.running.is_empty() || self.queue.len() > 0;
        let look = self.optimizer.next_at().filter(|_| has_work);
        let sweep = (!self.links.is_empty()).then_some(self.sweep_at);
        [alarm, look, sweep, self.queue.next_due()].into_iter().flatten().min().map(|at| at.max(now))
    }

    /// Looks at rates, if it is time, and changes how many copies links have.
    pub fn tick(&mut self, now: Time) -> Vec<Decision> {
        if now >= self.sweep_at {
            self.sweep_at = now + DISPATCH_SWEEP;
            self.sweep(now);
        }
        if self.optimizer.next_at().is_none_or(|at| at > now) {
            return Vec::new();
        }
        let samples = self.samples(now);
        let decisions = self.optimizer.look(now, &samples);
        for decision in &decisions {
            if let Some(link) = self.state_mut(decision.link) {
                link.limit = decision.to;
                link.refills = link.refills.min(decision.to);
                link.last = Some(decision.clone());
            }
            self.enqueue(decision.link);
        }
        decisions
    }

    // --- Inside -------------------------------------------------------------------------------------

    /// Makes what is kept of a link, if it is new.
    fn learn(&mut self, id: LinkId, now: Time) {
        if self.state(id).is_some() {
            return;
        }
        let (Some((source, destination)), Some(name)) = (self.queue.ends(id), self.queue.link(id)) else {
            return;
        };
        if self.sweep_at == Time::ZERO {
            self.sweep_at = now + DISPATCH_SWEEP;
        }
        let limit = self.optimizer.first(id, self.rules.range(&name));
        let place = id.0 as usize;
        if self.links.len() <= place {
            self.links.resize_with(place + 1, || None);
        }
        self.links[place] = Some(LinkState {
            source,
            destination,
            limit,
            meter: Meter::default(),
            verifying: 0,
            refills: 0,
            next_start: now,
            is_in_ring: false,
            is_parked: [false; 2],
            is_woken_for: [false; 2],
            alarm: None,
            breaker: Breaker::default(),
            finished: 0,
            failed: 0,
            idle_since: now,
            bytes_per_s: 0.0,
            last: None,
        });
        let most = source.max(destination) as usize;
        if self.storages.len() <= most {
            self.storages.resize_with(most + 1, StorageState::default);
        }
        for storage in [source, destination] {
            self.storages[storage as usize].links.push(id);
        }
        self.limit_storages(id, &name);
    }

    /// Looks up the limits of a link's storages.
    fn limit_storages(&mut self, id: LinkId, name: &Link) {
        let Some((source, destination)) = self.queue.ends(id) else { return };
        for (number, name) in [(source, &name.source), (destination, &name.destination)] {
            let rule = self.rules.storage(name);
            if let Some(storage) = self.storages.get_mut(number as usize) {
                storage.limits = [rule.outbound_max_active, rule.inbound_max_active];
                storage.rate_limits = [rule.outbound_max_bytes_per_s, rule.inbound_max_bytes_per_s];
            }
        }
    }

    fn enqueue(&mut self, id: LinkId) {
        if let Some(link) = self.state_mut(id)
            && !std::mem::replace(&mut link.is_in_ring, true)
        {
            self.ring.push_back(id);
        }
    }

    fn alarm(&mut self, id: LinkId, at: Time) {
        if let Some(link) = self.state_mut(id)
            && link.alarm.is_none_or(|before| before > at)
        {
            link.alarm = Some(at);
            self.alarms.push(Reverse((at, id)));
        }
    }

    /// Why a link starts nothing now; `None`: it may.
    pub(crate) fn block(&self, id: LinkId, now: Time) -> Option<Block> {
        let link = self.state(id)?;
        if self.rules.is_paused {
            return Some(Block::Paused);
        }
        if self.queue.waiting(id).0 == 0 {
            return Some(Block::Empty);
        }
        let ends = [(link.source, Side::Source), (link.destination, Side::Destination)];
        let storages = ends.map(|(number, side)| (number, side, self.storages.get(number as usize)));
        let breakers = storages.iter().filter_map(|(_, _, storage)| storage.map(|storage| &storage.breaker));
        let mut is_probe = false;
        for breaker in breakers.chain([&link.breaker]) {
            is_probe |= breaker.open_since().is_some();
            if let Err(at) = breaker.may_start(now) {
                return Some(Block::Down(at));
            }
        }
        for (number, side, storage) in storages {
            if storage.is_some_and(|storage| storage.active[of(side)] >= storage.limits[of(side)]) {
                return Some(Block::Storage(number, side));
            }
        }
        if is_probe {
            return None;
        }
        let limit = if link.limit == 0 { UNDECIDED } else { link.limit };
        // What is verified has left its place to the next one; but no more of it than there are places.
        if link.meter.active() + link.verifying.saturating_sub(limit) >= limit {
            return Some(Block::Full);
        }
        if link.refills == 0 && link.next_start > now {
            return Some(Block::Later(link.next_start));
        }
        None
    }

    /// A file is being copied from now on.
    fn begin(&mut self, taken: Taken, now: Time) -> Option<Start> {
        let (id, file) = (taken.link, taken.file);
        let link = self.links.get_mut(id.0 as usize)?.as_mut()?;
        link.meter.begin(now);
        for (storage, side) in [(link.source, Side::Source), (link.destination, Side::Destination)] {
            self.storages[storage as usize].active[of(side)] += 1;
        }
        let mut is_probe = false;
        self.breakers(id, |breaker, _| {
            is_probe |= breaker.open_since().is_some();
            breaker.started(file);
        });
        self.optimizer.started(file, id, now);
        self.running.insert(file, Running { taken, started: now, told: Told::new(now), has_moved: false });
        Some(Start { file, link: id, is_probe })
    }

    /// A copy leaves its place at the link and at both storages.
    fn freed(&mut self, id: LinkId) {
        let Some(link) = self.state_mut(id) else { return };
        if link.meter.active() < link.limit {
            link.refills = (link.refills + 1).min(link.limit);
        }
        let (source, destination) = (link.source, link.destination);
        for (storage, side) in [(source, Side::Source), (destination, Side::Destination)] {
            self.storages[storage as usize].active[of(side)] -= 1;
            self.wake(storage, side);
        }
        // One that has waited goes before one that has just had its turn.
        self.enqueue(id);
    }

    /// There is a place at a storage: the link that has waited longest may look.
    fn wake(&mut self, storage: u32, side: Side) {
        let Some(state) = self.storages.get_mut(storage as usize) else { return };
        if state.active[of(side)] >= state.limits[of(side)] {
            return;
        }
        if let Some(id) = state.waiters[of(side)].pop_front() {
            if let Some(link) = self.state_mut(id) {
                link.is_parked[of(side)] = false;
                link.is_woken_for[of(side)] = true;
            }
            self.enqueue(id);
        }
    }

    /// The three breakers of a link: its own, and those of its storages.
    fn breakers(&mut self, id: LinkId, mut each: impl FnMut(&mut Breaker, Option<u32>)) {
        let Some(link) = self.links.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        each(&mut link.breaker, None);
        for storage in [link.source, link.destination] {
            each(&mut self.storages[storage as usize].breaker, Some(storage));
        }
    }

    /// Bytes of a file have moved on a link, which started at this time.
    fn alive(&mut self, id: LinkId, file: FileId, started: Time, now: Time) {
        let mut closed = Vec::new();
        let mut is_closed = false;
        self.breakers(id, |breaker, storage| {
            if breaker.alive(file, started, now) {
                is_closed = true;
                closed.extend(storage);
            }
        });
        if !is_closed {
            return;
        }
        self.enqueue(id);
        for storage in closed {
            for id in self.storages[storage as usize].links.clone() {
                self.enqueue(id);
            }
        }
    }

    /// A copy has failed.
    fn failed(&mut self, id: LinkId, file: FileId, running: &Running, class: Class, now: Time) {
        let Some(link) = self.links.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let ends = [(link.source, Side::Source), (link.destination, Side::Destination)];
        let mut has_opened = match class {
            Class::Path => link.breaker.failed(file, running.started, now, &mut self.random),
            _ => {
                link.breaker.ended(file, now);
                false
            }
        };
        if has_opened {
            // What ended in a storm makes no place for a storm.
            link.refills = 0;
        }
        for (number, side) in ends {
            let breaker = &mut self.storages[number as usize].breaker;
            let is_its =
                class == Class::Storage(side) || (class == Class::Path && breaker.open_since().is_some());
            if is_its {
                has_opened |= breaker.failed(file, running.started, now, &mut self.random);
            } else {
                breaker.ended(file, now);
            }
        }
        if has_opened {
            for (number, _) in ends {
                self.suspect(number, now);
            }
        }
    }

    /// What follows from a failure, which the breakers know of already.
    fn verdict(&mut self, id: LinkId, file: FileId, failure: &Failure, now: Time) -> Verdict {
        let down = self.down_since(id).map(|since| now.since(since));
        let spared = self.spared.get(&file).map_or(0, |spared| spared.retries);
        let verdict = failure.verdict(down, spared);
        if down.is_none() && matches!(verdict, Verdict::Retry { is_counted: false, .. }) {
            self.spared.insert(file, Spared { retries: spared + 1, last_at: now });
        }
        verdict
    }

    /// Opens the breaker of a storage of which several paths are down and none works.
    fn suspect(&mut self, number: u32, now: Time) {
        let Some(storage) = self.storages.get(number as usize) else { return };
        if storage.breaker.open_since().is_some() {
            return;
        }
        let links = || storage.links.iter().filter_map(|id| self.state(*id));
        let down = links().filter(|link| link.breaker.open_since().is_some()).count();
        let is_any_alive =
            links().any(|link| link.breaker.open_since().is_none() && link.breaker.is_alive(now));
        if down >= BREAKER_PATHS && !is_any_alive {
            let Dispatcher { storages, random, .. } = self;
            if let Some(storage) = storages.get_mut(number as usize) {
                storage.breaker.open(now, random);
            }
        }
    }

    /// Since when a link or a storage of it is down.
    pub(crate) fn down_since(&self, id: LinkId) -> Option<Time> {
        let link = self.state(id)?;
        let storages = [link.source, link.destination].map(|number| self.storages.get(number as usize));
        let breakers = storages.into_iter().flatten().map(|storage| &storage.breaker).chain([&link.breaker]);
        breakers.filter_map(Breaker::open_since).min()
    }

    /// What the optimiser sees.
    fn samples(&mut self, now: Time) -> Vec<Sample> {
        let marker = Duration::from_secs_f64(self.marker_s);
        let lately = Time::ZERO.plus_s(now.since_origin().as_secs_f64() - LATELY.as_secs_f64());
        let since = self.optimizer.measures_since();
        // What was not told of yet, by link: lately, and since the measurement began.
        let mut untold = vec![(0.0, 0.0); self.links.len()];
        for running in self.running.values().filter(|running| !running.has_moved) {
            let bytes = |from| running.told.since(from, now, 2 * marker);
            let sums = &mut untold[running.taken.link.0 as usize];
            *sums = (sums.0 + bytes(lately), sums.1 + since.map_or(0.0, bytes));
        }
        let mut rates = vec![[0.0; 2]; self.storages.len()];
        for (number, link) in self.links.iter_mut().enumerate() {
            let Some(link) = link else { continue };
            let bytes = link.meter.bytes(lately, now) + untold[number].0;
            link.bytes_per_s = bytes / now.since(lately).as_secs_f64().max(1e-3);
            rates[link.source as usize][of(Side::Source)] += link.bytes_per_s;
            rates[link.destination as usize][of(Side::Destination)] += link.bytes_per_s;
        }
        let share = |storage: u32, side: Side| {
            let limit = self.storages[storage as usize].rate_limits[of(side)].filter(|limit| *limit > 0.0);
            limit.map_or(0.0, |limit| rates[storage as usize][of(side)] / limit)
        };
        let mut samples = Vec::new();
        for id in self.queue.links() {
            let (Some(link), Some(name)) = (self.state(id), self.queue.link(id)) else { continue };
            let (waiting, _) = self.queue.waiting(id);
            if link.meter.active() == 0 && waiting == 0 {
                continue;
            }
            samples.push(Sample {
                link: id,
                source: link.source,
                destination: link.destination,
                range: self.rules.range(&name),
                limit: link.limit,
                waiting,
                bytes: since.map_or(0.0, |since| link.meter.bytes(since, now) + untold[id.0 as usize].1),
                marker_s: self.marker_s,
                slot_s: link.meter.slot_s(now),
                finished: link.finished,
                failed: link.failed,
                is_down: self.down_since(id).is_some(),
                rate_share: share(link.source, Side::Source).max(share(link.destination, Side::Destination)),
            });
        }
        samples
    }

    /// Forgets links that have been idle for long, and of files that did not come back what they have failed.
    fn sweep(&mut self, now: Time) {
        let Dispatcher { spared, running, queue, .. } = self;
        spared.retain(|file, spared| {
            let is_here = running.contains_key(file) || queue.place(*file).is_some();
            is_here || now.since(spared.last_at) < DISPATCH_SWEEP
        });
        let idle: Vec<LinkId> = self
            .queue
            .links()
            .filter(|id| {
                self.state(*id).is_none_or(|link| {
                    link.meter.active() + link.verifying == 0
                        && self.queue.waiting(*id).1 == 0
                        && now.since(link.idle_since) >= DISPATCH_LINK_IDLE_MAX
                })
            })
            .collect();
        for id in idle {
            let Some((source, destination)) = self.queue.ends(id) else { continue };
            if !self.queue.forget_link(id) {
                continue;
            }
            self.optimizer.forget(id);
            self.links[id.0 as usize] = None;
            self.ring.retain(|other| *other != id);
            for storage in [source, destination] {
                let state = &mut self.storages[storage as usize];
                state.links.retain(|other| *other != id);
                for waiters in &mut state.waiters {
                    waiters.retain(|other| *other != id);
                }
                if state.links.is_empty() {
                    *state = StorageState::default();
                }
            }
        }
    }

    /// The name of a storage, by number.
    pub(crate) fn storage_name(&self, number: u32) -> Storage {
        Storage(self.queue.storages.get(number).clone())
    }
}
