//! The disk cache at work: entries are looked for, stored bytes are read, and what lanes bring is written.

use std::sync::{Arc, Weak};
use std::time::SystemTime;

use gridlane_core::limits::{READ_PAGE_BYTES, SPARSE_PATIENCE, SPARSE_WAITING_BYTES_MAX};
use gridlane_core::units::format_bytes;
use gridlane_core::{ByteRange, RangeSet};
use gridlane_plan::SourceId;
use gridlane_read::{Event, Explain};
use gridlane_store::sparse::{FileKey, SparseFile};

use super::disk::{is_settled, read_piece};
use super::options::ReadCache;
use super::piece::Piece;
use super::shared::Shared;
use crate::source::Source;

/// Events and bytes that are told together at most.
const EVENTS_MAX: usize = 256;
const BYTES_MAX: u64 = 512 * 1024;
/// Memory of a piece that waits to be written, beside its bytes.
const PIECE_BYTES: u64 = 64;

impl Shared {
    /// Looks for the entry of what a source has, if a cache is wanted and this is the first time; the planner knows what is there
    /// when this returns.
    pub(super) async fn look_on_disk(self: &Arc<Shared>, source: &Source) {
        let (Some(wanted), Some(looked)) =
            (&self.options.cache, self.disk.looked.get(source.number as usize))
        else {
            return;
        };
        if looked.initialized() {
            return;
        }
        let Some(identity) = source.identity() else { return };
        let Some(size_bytes) = identity.size_bytes else { return };
        let look = async || {
            let validator = identity.validator.as_deref().unwrap_or_default();
            match self.find(wanted, source, size_bytes, validator).await {
                Ok((file, ranges)) => {
                    self.disk.work().files.push((source.number, file));
                    let source = SourceId(source.number);
                    self.tell(vec![Event::Size { source, size_bytes }, Event::Stored { source, ranges }]);
                }
                Err(why) => self.disk.say(why),
            }
        };
        looked.get_or_init(look).await;
    }

    /// The entry, and what is in it; or the reason why there is none.
    async fn find(
        &self,
        wanted: &ReadCache,
        source: &Source,
        size_bytes: u64,
        validator: &str,
    ) -> Result<(SparseFile, Vec<ByteRange>), String> {
        if !is_settled(validator, SystemTime::now()) {
            let url = &source.url;
            return Err(format!("{url} is not cached: it has changed within the last minute, and may again"));
        }
        let key = FileKey::new(&wanted.user, &source.url, size_bytes, validator)
            .map_err(|error| error.message().to_owned())?;
        let cache = wanted.cache.clone();
        let open = self.runtime.spawn_blocking(move || {
            let file = cache.file(&key)?;
            let ranges = file.present().iter().collect();
            Ok::<_, gridlane_core::Error>((file, ranges))
        });
        match tokio::time::timeout(SPARSE_PATIENCE, open).await {
            Ok(Ok(found)) => found.map_err(|error| error.to_string()),
            Ok(Err(_)) => Err("the cache cannot be opened".to_owned()),
            Err(_) => Err("the disk of the cache does not answer".to_owned()),
        }
    }

    /// Has stored bytes read.
    pub(super) fn recall(self: &Arc<Shared>, ranges: Vec<ByteRange>) {
        let mut work = self.disk.work();
        work.reads.extend(ranges);
        let begins = !std::mem::replace(&mut work.is_reading, true);
        let watches = begins && !std::mem::replace(&mut work.is_watched, true);
        drop(work);
        if begins {
            let shared = Arc::clone(self);
            self.runtime.spawn_blocking(move || shared.read_stored());
        }
        if watches {
            self.runtime.spawn(watch(Arc::downgrade(self)));
        }
    }

    /// Reads what is to be read, until there is no more. Blocks.
    fn read_stored(self: Arc<Shared>) {
        let size_bytes = self.state().reader.size_bytes().unwrap_or(0);
        let (mut events, mut bytes) = (Vec::new(), 0);
        loop {
            let (range, files) = {
                let mut work = self.disk.work();
                let Some(range) = work.reads.pop_front() else {
                    if events.is_empty() {
                        work.is_reading = false;
                        return;
                    }
                    drop(work);
                    self.tell(std::mem::take(&mut events));
                    bytes = 0;
                    continue;
                };
                let (now, rest) = range.split_at((range.start() / READ_PAGE_BYTES + 1) * READ_PAGE_BYTES);
                if !rest.is_empty() {
                    work.reads.push_front(rest);
                }
                work.pieces += 1;
                let files = work.files.iter().map(|(_, file)| file);
                let files = files.filter(|file| file.key().size_bytes() == size_bytes);
                (now, files.cloned().collect::<Vec<_>>())
            };
            read_piece(&files, range, &mut events);
            bytes += range.len();
            if events.len() >= EVENTS_MAX || bytes >= BYTES_MAX {
                self.tell(std::mem::take(&mut events));
                bytes = 0;
            }
        }
    }

    /// Has what a source has sent written, as far as there is room for it to wait.
    pub(super) fn keep(self: &Arc<Shared>, source: &Source, events: &[Event<Piece>]) {
        if self.options.cache.is_none() || events.is_empty() {
            return;
        }
        let mut work = self.disk.work();
        if !work.files.iter().any(|(number, _)| *number == source.number) {
            return;
        }
        for event in events {
            let Event::Part { offset, payload: Piece(bytes), .. } = event else { continue };
            let len = bytes.len() as u64;
            if work.waiting_bytes + len > SPARSE_WAITING_BYTES_MAX {
                work.dropped_bytes += len;
                continue;
            }
            work.waiting_bytes += len + PIECE_BYTES;
            work.writes.push_back((source.number, *offset, bytes.clone()));
        }
        let begins = !work.writes.is_empty() && !std::mem::replace(&mut work.is_writing, true);
        drop(work);
        if begins {
            let shared = Arc::clone(self);
            self.runtime.spawn_blocking(move || shared.write_kept());
        }
    }

    /// Writes what is to be written, until there is no more. Blocks.
    fn write_kept(self: Arc<Shared>) {
        loop {
            let (pieces, files) = {
                let mut work = self.disk.work();
                if work.writes.is_empty() {
                    work.is_writing = false;
                    self.disk.is_idle.notify_waiters();
                    return;
                }
                let count = work.writes.len().min(EVENTS_MAX);
                (work.writes.drain(..count).collect::<Vec<_>>(), work.files.clone())
            };
            let mut done_bytes = 0;
            let mut kept_bytes = 0;
            for (number, file) in &files {
                let mut stored: Vec<ByteRange> = Vec::new();
                for (_, offset, bytes) in pieces.iter().filter(|(of, ..)| of == number) {
                    match file.write(*offset, bytes) {
                        Ok(count) => {
                            kept_bytes += count;
                            let range = ByteRange::at(*offset, bytes.len() as u64);
                            // Also what another reader of this process has kept before.
                            let missing: RangeSet = file.missing(range).into_iter().collect();
                            stored.extend(missing.gaps(range));
                        }
                        Err(error) => self.disk.say(error.to_string()),
                    }
                }
                if !stored.is_empty() {
                    self.tell(vec![Event::Stored { source: SourceId(*number), ranges: stored }]);
                }
            }
            for (.., bytes) in &pieces {
                done_bytes += bytes.len() as u64 + PIECE_BYTES;
            }
            let mut work = self.disk.work();
            work.waiting_bytes = work.waiting_bytes.saturating_sub(done_bytes);
            work.kept_bytes += kept_bytes;
        }
    }

    /// Waits until nothing is left to be written.
    pub(super) async fn kept(&self) {
        loop {
            let idle = self.disk.is_idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if !self.disk.work().is_writing {
                return;
            }
            idle.await;
        }
    }

    /// The bytes turned out to be wrong: nothing of them stays.
    pub(super) async fn forget_kept(&self) {
        let files = {
            let mut work = self.disk.work();
            work.writes.clear();
            work.waiting_bytes = 0;
            std::mem::take(&mut work.files)
        };
        let discarded = self.runtime.spawn_blocking(move || {
            files.iter().filter_map(|(_, file)| file.discard().err()).map(|error| error.to_string()).next()
        });
        if let Ok(Ok(Some(failure))) = tokio::time::timeout(SPARSE_PATIENCE, discarded).await {
            self.disk.say(failure);
        }
    }

    /// Adds what the disk has done to the record.
    pub(super) fn explain_disk(&self, mut explain: Explain) -> Explain {
        if self.options.cache.is_none() {
            return explain;
        }
        let work = self.disk.work();
        explain.damaged_bytes = work.files.iter().map(|(_, file)| file.damaged_bytes()).sum();
        explain.kept_bytes = work.kept_bytes;
        explain.cache.clone_from(&work.words);
        if work.dropped_bytes > 0 {
            let dropped = format_bytes(work.dropped_bytes);
            explain.cache.push(format!("{dropped} were not kept: the disk is slower than the path"));
        }
        explain
    }
}

/// Gives the disk up when it gives nothing for too long; until nothing is to be read, or the file is closed.
async fn watch(shared: Weak<Shared>) {
    let mut before = None;
    loop {
        tokio::time::sleep(SPARSE_PATIENCE).await;
        let Some(shared) = shared.upgrade().filter(|shared| !shared.state().reader.is_closed()) else {
            return;
        };
        let is_stuck = {
            let mut work = shared.disk.work();
            if !work.is_reading {
                work.is_watched = false;
                return;
            }
            let is_stuck = before == Some(work.pieces);
            before = Some(work.pieces);
            if is_stuck {
                // The worker stays as it is: no other one begins.
                work.files.clear();
                work.reads.clear();
            }
            is_stuck
        };
        if is_stuck {
            shared.disk.say("the disk of the cache does not answer".to_owned());
            shared.tell(vec![Event::Unstored { range: ByteRange::new(0, u64::MAX) }]);
        }
    }
}
