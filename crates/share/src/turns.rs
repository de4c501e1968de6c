//! How many operations may wait for one device at the same time, and where they wait: on a thread that the runtime has
//! taken out of its rotation.
//!
//! A device is a disk, a file system over the network, or whatever else keeps an operation waiting for as long as it
//! likes. Each has turns of its own, so that one that hangs costs only requests that need it: its operations hold threads
//! up to that bound, and whatever else is asked of it waits as a task. A quarter of the turns is for one client at most,
//! and clients that wait have their turns one after the other.
//!
//! `block_in_place` costs far less than a hand-over to another thread and back (33 to 85 microseconds measured), and it works
//! on borrowed buffers. It is not free: it wakes a thread that takes over this one's tasks. With it around every `open`, small
//! GETs came at half the rate (75 instead of 150 thousand a second), so they try first what needs no device.
//!
//! A write to the page cache cannot be tried first: it is begun, and mostly over at once. Such operations are [`Brief`]: the
//! first one at a device has a turn, those behind it have none while each is as short as a copy of memory, and when one waits
//! the next ones have turns again.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gridlane_core::limits;
use gridlane_sys::process::waits_of_thread;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::budget::{self, Budget, Holder, Lease, Share};

/// A copy to the page cache takes less than this; what waits for a device, more.
const PAGE_CACHE_MAX: Duration = Duration::from_millis(1);

/// Bounds of what one device can hold up at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceShares {
    /// Operations that wait for it.
    pub operations: Share,
    /// Operations that may take very long: checksums of whole files.
    pub digests: Share,
    /// Bytes of listings that are made as a whole.
    pub listing_bytes: Share,
    /// Copies of trees.
    pub copies: Share,
}

impl Default for DeviceShares {
    /// The bounds of [`limits`].
    fn default() -> DeviceShares {
        let part = |all, one| Share { all, one };
        DeviceShares {
            operations: part(limits::DISK_OPERATIONS_MAX, limits::DISK_OPERATIONS_PER_CLIENT_MAX),
            digests: part(limits::DIGESTS_RUNNING_MAX, limits::DIGESTS_PER_CLIENT_MAX),
            listing_bytes: Share::of(limits::LISTINGS_BYTES_MAX),
            copies: Share::of(limits::COPIES_MAX),
        }
    }
}

impl DeviceShares {
    /// The bounds of each of so many devices, where memory and descriptors are shared by all of them.
    pub fn of_each(self, devices: usize) -> DeviceShares {
        let devices = devices.max(1);
        let part =
            |share: Share| Share { all: (share.all / devices).max(1), one: (share.one / devices).max(1) };
        DeviceShares { listing_bytes: part(self.listing_bytes), copies: part(self.copies), ..self }
    }
}

/// Turns at a device, and what is held while one of those is waited for.
pub struct Turns {
    running: Arc<Budget>,
    waiting: AtomicU64,
    digests: Arc<Budget>,
    listings: Arc<Budget>,
    copies: Mutex<Copies>,
    brief: [Briefs; 2],
}

/// Operations that mostly do not wait, by how much one of them tells of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BriefKind {
    /// A write of bytes to the page cache.
    Write,
    /// Anything else: a line of a journal, a look, opening a file.
    Other,
}

/// The brief operations of a device, of one kind.
struct Briefs {
    /// The last one took so long that the device must have been waited for, or there was none yet.
    wait: AtomicBool,
    /// Those that run without a turn.
    running: AtomicU32,
    /// When the first of these began, or when the last one before them ended, in nanoseconds from [`ORIGIN`].
    since_ns: AtomicU64,
}

impl Default for Briefs {
    fn default() -> Briefs {
        Briefs { wait: AtomicBool::new(true), running: AtomicU32::new(0), since_ns: AtomicU64::new(0) }
    }
}

/// The origin of times here.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Room for copies of trees from one device, apart for each that they go to: those that hang there leave the others theirs.
struct Copies {
    share: Share,
    /// By the address of the target's turns.
    to: HashMap<usize, Arc<Budget>>,
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").field("running", &self.running()).field("waiting", &self.waiting()).finish()
    }
}

impl Default for Turns {
    fn default() -> Turns {
        Turns::new(DeviceShares::default())
    }
}

impl Turns {
    /// Turns at a device of which nothing is asked yet.
    pub fn new(shares: DeviceShares) -> Turns {
        Turns {
            running: Budget::new("disk_operations", shares.operations),
            waiting: AtomicU64::new(0),
            digests: Budget::new("digests", shares.digests),
            listings: Budget::new("listing_bytes", shares.listing_bytes),
            copies: Mutex::new(Copies { share: shares.copies, to: HashMap::new() }),
            brief: Default::default(),
        }
    }

    /// Changes how much there is, for what is taken from here on.
    pub fn resize(&self, shares: DeviceShares) {
        self.running.resize(shares.operations);
        self.digests.resize(shares.digests);
        self.listings.resize(shares.listing_bytes);
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        copies.to.values().for_each(|budget| budget.resize(shares.copies));
        copies.share = shares.copies;
    }

    /// Runs something that may wait for the device, when there is a turn for it.
    ///
    /// Must be called on a runtime. May be dropped while it waits for its turn, and not later.
    pub async fn run<T>(&self, operation: impl FnOnce() -> T) -> T {
        let _turn = self.take(budget::current()).await;
        in_place(operation)
    }

    /// Runs something later, in a turn that a task waits for: for code that cannot wait for it, as when something is dropped.
    /// Outside of a runtime it runs at once.
    pub fn run_later(self: &Arc<Self>, operation: impl FnOnce() + Send + 'static) {
        match Handle::try_current() {
            Ok(runtime) => {
                let turns = Arc::clone(self);
                let run = async move { turns.run(operation).await };
                runtime.spawn(budget::on_behalf(budget::current(), run));
            }
            Err(_) => operation(),
        }
    }

    /// Leave for operations that mostly need no device, if they need no turn: the last one of this kind did not wait, and none
    /// is under way that does.
    pub fn brief_now(&self, kind: BriefKind) -> Option<Brief<'_>> {
        let briefs = &self.brief[kind as usize];
        let may_wait = briefs.wait.load(Ordering::Relaxed) || briefs.hangs();
        (!may_wait).then_some(Brief { briefs, turn: None })
    }

    /// The same, with a turn where one is needed. May be dropped while it waits for that.
    pub async fn brief(&self, kind: BriefKind) -> Brief<'_> {
        match self.brief_now(kind) {
            Some(brief) => brief,
            None => {
                let turn = self.take(budget::current()).await;
                Brief { briefs: &self.brief[kind as usize], turn: Some(turn) }
            }
        }
    }

    async fn take(&self, holder: Holder) -> Lease {
        match self.running.try_take(holder, 1) {
            Ok(turn) => turn,
            Err(_) => {
                let _waiting = Waiting::of(&self.waiting);
                // Kept elsewhere: every operation's future would have room for this.
                Box::pin(self.running.take(holder, 1)).await
            }
        }
    }

    /// For operations that may take very long (a checksum of a whole file): these wait for each other, and keep no short one
    /// from its turn.
    pub fn digests(&self) -> &Arc<Budget> {
        &self.digests
    }

    /// For listings that are made as a whole.
    pub fn listings(&self) -> &Arc<Budget> {
        &self.listings
    }

    /// For copies of trees from here to another device, or to this one: they hold descriptors for as long as they take.
    pub fn copies(&self, target: &Arc<Turns>) -> Arc<Budget> {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        let Copies { share, to } = &mut *copies;
        let target = Arc::as_ptr(target).addr();
        Arc::clone(to.entry(target).or_insert_with(|| Budget::new("copies", *share)))
    }

    /// All of it, in the order of the documentation: one budget of each name, or several.
    pub fn budgets(&self) -> Vec<Arc<Budget>> {
        let mut all = [&self.listings, &self.running, &self.digests].map(Arc::clone).to_vec();
        let copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        match copies.to.is_empty() {
            // Nothing of it is taken, and there is so much.
            true => all.push(Budget::new("copies", copies.share)),
            false => all.extend(copies.to.values().map(Arc::clone)),
        }
        all
    }

    /// The turns alone.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.running
    }

    /// Number of operations that run.
    pub fn running(&self) -> usize {
        self.running.used()
    }

    /// Number of operations that wait for their turn.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// Leave for operations at a device that mostly do not wait for it: copies to the page cache, lines of a journal.
pub struct Brief<'a> {
    briefs: &'a Briefs,
    turn: Option<Lease>,
}

impl Brief<'_> {
    /// Runs one: on the spot, or in the turn where blocking is allowed. The time that it takes decides about the next ones.
    pub fn run<T>(&self, operation: impl FnOnce() -> T) -> T {
        let briefs = self.briefs;
        let timed = |begun: Instant| {
            let waits_before = waits_of_thread();
            let outcome = operation();
            // Where all processors are busy, another process may have had this one's for milliseconds.
            (outcome, begun.elapsed() > PAGE_CACHE_MAX && waits_of_thread() > waits_before)
        };
        let (outcome, waited) = match &self.turn {
            Some(_) => in_place(|| timed(Instant::now())),
            None => {
                let begun = Instant::now();
                let _running = briefs.begin(begun);
                timed(begun)
            }
        };
        // Mostly it is no news, and others read it.
        if briefs.wait.load(Ordering::Relaxed) != waited {
            briefs.wait.store(waited, Ordering::Relaxed);
        }
        outcome
    }
}

impl Briefs {
    /// Counts one that runs without a turn, until the answer is dropped.
    fn begin(&self, now: Instant) -> Running<'_> {
        let note = || self.since_ns.store(ns_from_origin(now), Ordering::Relaxed);
        // Before it is counted: others would see it hang since whenever the last one was.
        let is_first = self.running.load(Ordering::Relaxed) == 0;
        if is_first {
            note();
        }
        // The one that was there may have ended meanwhile.
        if self.running.fetch_add(1, Ordering::Release) == 0 && !is_first {
            note();
        }
        Running(self)
    }

    /// True if those under way have taken too long for the page cache.
    fn hangs(&self) -> bool {
        self.running.load(Ordering::Acquire) > 0 && {
            let since_ns = self.since_ns.load(Ordering::Relaxed);
            ns_from_origin(Instant::now()).saturating_sub(since_ns) > PAGE_CACHE_MAX.as_nanos() as u64
        }
    }
}

struct Running<'a>(&'a Briefs);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::Relaxed) > 1 {
            // One of them has ended: the device takes bytes.
            self.0.since_ns.store(ns_from_origin(Instant::now()), Ordering::Relaxed);
        }
    }
}

fn ns_from_origin(now: Instant) -> u64 {
    now.saturating_duration_since(*ORIGIN).as_nanos() as u64
}

/// Threads that a runtime has for work that blocks where each of so many devices may hold up as much as the limits say.
pub fn blocking_threads(devices: usize) -> usize {
    devices.max(1) * limits::DEVICE_THREADS_MAX + limits::BLOCKING_THREADS_SPARE
}

/// Those of everything that never waits for a device: one for all.
pub fn undivided() -> &'static Arc<Turns> {
    static UNDIVIDED: OnceLock<Arc<Turns>> = OnceLock::new();
    UNDIVIDED.get_or_init(Arc::default)
}

/// Counts one that waits, until it is dropped.
struct Waiting<'a>(&'a AtomicU64);

impl Waiting<'_> {
    fn of(count: &AtomicU64) -> Waiting<'_> {
        count.fetch_add(1, Ordering::Relaxed);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs something that may block, without a bound of its own: for what is bounded otherwise.
pub fn in_place<T>(operation: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        // With a single thread there is nothing to take over its tasks.
        RuntimeFlavor::CurrentThread => operation(),
        _ => tokio::task::block_in_place(operation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// One that hangs shows the others that they need turns, before it has ended; one that was quick, that they do not.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn brief_operations_have_turns_while_the_device_makes_them_wait() {
        let turns = Arc::new(Turns::default());
        assert!(turns.brief_now(BriefKind::Write).is_none(), "nothing is known of the device");
        // A machine that does other things may make any of them long.
        while turns.brief_now(BriefKind::Write).is_none() {
            turns.brief(BriefKind::Write).await.run(|| ());
        }
        assert_eq!(turns.running(), 0);
        let (release, wait) = mpsc::channel::<()>();
        let hung = std::thread::spawn({
            let turns = Arc::clone(&turns);
            // It sleeps at the end: where it has come to `recv` late, that does not wait.
            let hangs = move || (wait.recv().is_err(), std::thread::sleep(2 * PAGE_CACHE_MAX));
            move || turns.brief_now(BriefKind::Write).map(|brief| brief.run(hangs))
        });
        while turns.brief_now(BriefKind::Write).is_some() {
            tokio::task::yield_now().await;
        }
        assert_eq!(turns.running(), 0, "it had none");
        {
            let _brief = turns.brief(BriefKind::Write).await;
            assert_eq!(turns.running(), 1);
        }
        drop(release);
        hung.join().unwrap();
        assert!(turns.brief_now(BriefKind::Write).is_none(), "the last one waited");
    }

    /// What only takes long, or is kept from its processor by others, is no wait for the device.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn brief_operations_that_do_not_wait_have_no_turns() {
        let turns = Turns::default();
        let works = || {
            let begun = Instant::now();
            while begun.elapsed() < 2 * PAGE_CACHE_MAX {}
        };
        turns.brief(BriefKind::Write).await.run(works);
        for _ in 0..3 {
            turns.brief_now(BriefKind::Write).expect("the last one did not wait").run(works);
        }
    }

    /// What hangs at one device costs nothing at another.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_device_has_turns_of_its_own() {
        let two = DeviceShares { operations: Share { all: 2, one: 2 }, ..DeviceShares::default() };
        let (hung, other) = (Arc::new(Turns::new(two)), Turns::default());
        let (release, wait) = mpsc::channel::<()>();
        let wait = Arc::new(std::sync::Mutex::new(wait));
        let tasks: Vec<_> = (0..5)
            .map(|_| {
                let (turns, wait) = (Arc::clone(&hung), Arc::clone(&wait));
                tokio::spawn(async move { turns.run(|| drop(wait.lock().map(|wait| wait.recv()))).await })
            })
            .collect();
        while (hung.running(), hung.waiting()) != (2, 3) {
            tokio::task::yield_now().await;
        }
        assert_eq!(other.run(|| 7).await, 7);
        assert_eq!((other.running(), other.waiting()), (0, 0));
        drop(release);
        for task in tasks {
            assert!(task.await.is_ok());
        }
        assert_eq!((hung.running(), hung.waiting()), (0, 0));
    }
}
