//! A target in memory, on a device that hangs when a test says so.

use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use gridlane_core::Result;
use gridlane_engine::{OpenTarget, TargetSpec};
use gridlane_share::Turns;
use gridlane_store::journal::Record;
use gridlane_store::{Committed, Completion, Expectation, Found, MemoryTarget, Target};

/// Far longer than anything takes in a test that passes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Keeps writes waiting while it hangs.
pub(crate) struct Device {
    pub(crate) turns: Arc<Turns>,
    hangs: Mutex<bool>,
    goes_on: Condvar,
    /// Operations that have come to it.
    begun: AtomicUsize,
}

impl Device {
    pub(crate) fn new(turns: Turns, hangs: bool) -> Arc<Device> {
        Arc::new(Device {
            turns: Arc::new(turns),
            hangs: Mutex::new(hangs),
            goes_on: Condvar::new(),
            begun: AtomicUsize::new(0),
        })
    }

    pub(crate) fn go_on(&self) {
        *self.hangs.lock().unwrap() = false;
        self.goes_on.notify_all();
    }

    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Relaxed)
    }

    fn wait(&self) {
        self.begun.fetch_add(1, Relaxed);
        let waited = self.goes_on.wait_timeout_while(self.hangs.lock().unwrap(), PATIENCE, |hangs| *hangs);
        assert!(!waited.unwrap().1.timed_out(), "the device hangs still");
    }
}

/// The calls of a copy beside those that write.
#[derive(Default)]
struct State {
    records: usize,
    committed: Option<Completion>,
    is_discarded: bool,
}

pub(crate) struct Memory {
    inner: MemoryTarget,
    device: Arc<Device>,
    /// Keeps syncs waiting.
    cache: Arc<Device>,
    state: Mutex<State>,
}

impl Memory {
    pub(crate) fn on(device: &Arc<Device>) -> Arc<Memory> {
        Memory::synced_by(device, &Device::new(Turns::default(), false))
    }

    pub(crate) fn synced_by(device: &Arc<Device>, cache: &Arc<Device>) -> Arc<Memory> {
        let inner = MemoryTarget::new("memory", u64::MAX);
        Arc::new(Memory { inner, device: device.clone(), cache: cache.clone(), state: Mutex::default() })
    }

    pub(crate) fn spec(self: &Arc<Memory>) -> TargetSpec {
        let completion = Expectation::Absent.into();
        OpenTarget { target: self.clone(), found: Found::Nothing, completion }.into()
    }

    /// The bytes that are visible, and what was said of them.
    pub(crate) fn committed(&self) -> Option<(Vec<u8>, Completion)> {
        Some((self.inner.complete()?, self.state.lock().unwrap().committed.clone()?))
    }

    pub(crate) fn size_bytes_written(&self) -> usize {
        self.inner.size_bytes().unwrap() as usize
    }

    pub(crate) fn records(&self) -> usize {
        self.state.lock().unwrap().records
    }

    pub(crate) fn is_discarded(&self) -> bool {
        self.state.lock().unwrap().is_discarded
    }
}

impl Target for Memory {
    fn turns(&self) -> &Arc<Turns> {
        &self.device.turns
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn size_bytes(&self) -> Result<u64> {
        self.inner.size_bytes()
    }

    fn allocated_bytes(&self) -> u64 {
        self.inner.allocated_bytes()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.inner.free_bytes()
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.device.wait();
        self.inner.write_at(bytes, offset)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(into, offset)
    }

    fn is_recorded(&self) -> bool {
        true
    }

    fn record(&self, records: &[Record]) -> Result<()> {
        self.state.lock().unwrap().records += records.len();
        Ok(())
    }

    fn restart(&self) -> Result<()> {
        self.restart_journal()?;
        self.inner.restart()
    }

    fn restart_journal(&self) -> Result<()> {
        self.state.lock().unwrap().records = 0;
        Ok(())
    }

    fn is_doubtful(&self, size_bytes: u64) -> Result<bool> {
        self.inner.is_doubtful(size_bytes)
    }

    fn sync(&self) -> Result<()> {
        self.cache.wait();
        Ok(())
    }

    fn commit(&self, size_bytes: u64, completion: &Completion) -> Result<Committed> {
        let committed = self.inner.commit(size_bytes, completion)?;
        self.state.lock().unwrap().committed = Some(completion.clone());
        Ok(committed)
    }

    /// The bytes stay, so that it can be told what there were.
    fn discard(&self) {
        self.state.lock().unwrap().is_discarded = true;
    }
}
