//! A target in memory, on a device that hangs when a test says so.

use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use gridlane_core::{Error, ErrorKind, Result};
use gridlane_engine::{OpenTarget, TargetSpec};
use gridlane_share::Turns;
use gridlane_store::journal::Record;
use gridlane_store::storage::FileIdentity;
use gridlane_store::{Committed, Completion, Expectation, Found, Metadata, NodeKind, Target};

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

/// What a copy has made.
#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    records: usize,
    committed: Option<Completion>,
    is_discarded: bool,
}

pub(crate) struct Memory {
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
        Arc::new(Memory { device: device.clone(), cache: cache.clone(), state: Mutex::default() })
    }

    pub(crate) fn spec(self: &Arc<Memory>) -> TargetSpec {
        let completion = Expectation::Absent.into();
        OpenTarget { target: self.clone(), found: Found::Nothing, completion }.into()
    }

    /// The bytes that are visible, and what was said of them.
    pub(crate) fn committed(&self) -> Option<(Vec<u8>, Completion)> {
        let state = self.state.lock().unwrap();
        Some((state.bytes.clone(), state.committed.clone()?))
    }

    pub(crate) fn size_bytes_written(&self) -> usize {
        self.state.lock().unwrap().bytes.len()
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
        "memory".into()
    }

    fn size_bytes(&self) -> Result<u64> {
        Ok(self.state.lock().unwrap().bytes.len() as u64)
    }

    fn allocated_bytes(&self) -> u64 {
        self.state.lock().unwrap().bytes.len() as u64
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.device.wait();
        let mut state = self.state.lock().unwrap();
        let end = offset as usize + bytes.len();
        let len = state.bytes.len().max(end);
        state.bytes.resize(len, 0);
        state.bytes[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.state.lock().unwrap();
        let rest = state.bytes.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn is_recorded(&self) -> bool {
        true
    }

    fn record(&self, records: &[Record]) -> Result<()> {
        self.state.lock().unwrap().records += records.len();
        Ok(())
    }

    fn restart(&self) -> Result<()> {
        *self.state.lock().unwrap() = State::default();
        Ok(())
    }

    fn restart_journal(&self) -> Result<()> {
        self.state.lock().unwrap().records = 0;
        Ok(())
    }

    fn is_doubtful(&self, _: u64) -> Result<bool> {
        Ok(false)
    }

    fn sync(&self) -> Result<()> {
        self.cache.wait();
        Ok(())
    }

    fn commit(&self, size_bytes: u64, completion: &Completion) -> Result<Committed> {
        let mut state = self.state.lock().unwrap();
        if state.bytes.len() as u64 != size_bytes {
            return Err(Error::new(ErrorKind::LocalIo, "it has another size"));
        }
        state.committed = Some(completion.clone());
        let now = SystemTime::now();
        let metadata = Metadata {
            kind: NodeKind::File,
            size_bytes,
            modified: now,
            changed: now,
            created: None,
            tag: String::new(),
            identity: FileIdentity { device: 0, number: 0 },
            mode: 0o100_644,
            owner: 0,
            group: 0,
        };
        Ok(Committed { metadata, replaced: false, replaced_bytes: 0 })
    }

    fn discard(&self) {
        self.state.lock().unwrap().is_discarded = true;
    }
}
