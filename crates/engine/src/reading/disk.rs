//! The disk cache of a file that is read.
//!
//! Each source has an entry of its own, by its own URL and validator: what one server says never counts as another's, and a file that
//! has changed is another entry. A file that is open is read from the entries of all its sources that state its size. An entry is
//! looked for when a lane has heard from the server which version it has; so what is kept is given only to who may open the
//! file now.
//!
//! Two workers per file do what blocks, each only while there is something to do: one reads what the planner recalls, and one
//! writes what lanes have brought. What waits to be written is bounded, and what does not fit is not kept: a disk that is slower than
//! the path slows no reader. A disk that hangs is given up.
//!
//! Here is what they share; `kept` has what is done with it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use gridlane_core::limits::SPARSE_SETTLED_AFTER;
use gridlane_core::{ByteRange, RangeSet};
use gridlane_read::Event;
use gridlane_store::sparse::SparseFile;
use tokio::sync::{Notify, OnceCell};

use super::piece::Piece;

/// What is kept of a file, and what is to be read and written.
pub(super) struct Disk {
    /// Of each source, whether its entry was looked for.
    pub(super) looked: Vec<OnceCell<()>>,
    pub(super) work: Mutex<Work>,
    /// Nothing waits to be written.
    pub(super) is_idle: Notify,
}

#[derive(Default)]
pub(super) struct Work {
    /// Entries of sources, by their numbers.
    pub(super) files: Vec<(u32, SparseFile)>,
    pub(super) reads: VecDeque<ByteRange>,
    pub(super) is_reading: bool,
    pub(super) is_watched: bool,
    /// Pieces that were read, ever: to see that the disk answers.
    pub(super) pieces: u64,
    pub(super) writes: VecDeque<(u32, u64, Bytes)>,
    pub(super) is_writing: bool,
    pub(super) waiting_bytes: u64,
    pub(super) kept_bytes: u64,
    pub(super) dropped_bytes: u64,
    pub(super) words: Vec<String>,
}

impl Disk {
    pub(super) fn new(sources: usize) -> Disk {
        let looked = (0..sources).map(|_| OnceCell::new()).collect();
        Disk { looked, work: Mutex::default(), is_idle: Notify::new() }
    }

    pub(super) fn work(&self) -> MutexGuard<'_, Work> {
        // A panic elsewhere leaves nothing half-done here.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn say(&self, words: String) {
        let mut work = self.work();
        if !work.words.contains(&words) {
            work.words.push(words);
        }
    }
}

/// Reads a piece from the entries that have it.
pub(super) fn read_piece(files: &[SparseFile], range: ByteRange, events: &mut Vec<Event<Piece>>) {
    let mut missing = vec![range];
    for file in files {
        for part in std::mem::take(&mut missing) {
            let mut buffer = vec![0; part.len() as usize];
            let found = file.read(part.start(), &mut buffer);
            let buffer = Bytes::from(buffer);
            for found in &found {
                let (begin, end) = (found.start() - part.start(), found.end() - part.start());
                let payload = Piece(buffer.slice(begin as usize..end as usize));
                events.push(Event::Recalled { offset: found.start(), payload });
            }
            let found: RangeSet = found.into_iter().collect();
            missing.extend(found.missing(part));
        }
        if missing.is_empty() {
            return;
        }
    }
    events.extend(missing.into_iter().map(|range| Event::Unstored { range }));
}

/// True unless a further change at the same time could look like the one that `validator` tells of: over root:// it has a time in
/// whole seconds.
pub(super) fn is_settled(validator: &str, now: SystemTime) -> bool {
    let Some(of_root) = validator.strip_prefix("root:") else { return true };
    let changed_s = of_root.rsplit(':').next().and_then(|text| text.parse::<u64>().ok());
    let changed = changed_s.and_then(|changed_s| UNIX_EPOCH.checked_add(Duration::from_secs(changed_s)));
    let age = changed.and_then(|changed| now.duration_since(changed).ok());
    age.is_some_and(|age| age >= SPARSE_SETTLED_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_in_seconds_is_believed_after_a_minute() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        assert!(is_settled("\"etag\"", now) && is_settled("date:999999", now));
        for (validator, settled) in [
            ("root:17:999940", true),
            ("root:17:999941", false),
            ("root:17:1000001", false),
            ("root:17:-5", false),
            ("root:", false),
        ] {
            assert_eq!(is_settled(validator, now), settled, "{validator}");
        }
    }
}
