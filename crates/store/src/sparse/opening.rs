//! Opening of a file: whose turn it is to write, and what counts of what is there.
//!
//! The lock is that of the data file, which keeps its inode as long as it has its name; the index is replaced beneath it. A
//! process without the lock reads what the index says at that moment: nothing that an index refers to is ever written again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use gridlane_core::ByteRange;
use gridlane_core::limits::{SPARSE_ATTEMPTS_MAX, SPARSE_DATA_WASTE_BYTES, SPARSE_INDEX_WASTE_BYTES};
use ring::rand::{SecureRandom, SystemRandom};

use super::budget::Budget;
use super::directory::{Held, Kind, Name, on_disk, try_lock};
use super::extents::{Extents, Loaded, judged};
use super::format::{DATA_HEAD_BYTES, FileId, Record, data_head, index_head, read_data_head};
use super::key::FileKey;

/// Bytes of a new index that are written at once.
const WRITE_BYTES: usize = 256 * 1024;

/// A file as it was opened.
pub(super) struct Opened {
    /// Its bytes and their random number; none where there is nothing to read.
    pub(super) data: Option<(Arc<File>, FileId)>,
    pub(super) extents: Extents,
    /// None if another process has it.
    pub(super) writer: Option<Writer>,
    /// The reason why nothing can be written, where there is room to read only.
    pub(super) trouble: Option<io::Error>,
}

/// The right to add to a file.
pub(super) struct Writer {
    held: Held,
    id: FileId,
    data_end: u64,
    index: File,
    index_end: u64,
    /// The record that is being written.
    record: Vec<u8>,
}

impl Writer {
    /// The file of the bytes.
    pub(super) fn data(&self) -> &File {
        self.held.data()
    }

    /// Writes an extent: its bytes, and then the record that they are there. Neither waits for the disk.
    pub(super) fn append(&mut self, offset: u64, bytes: &[u8]) -> io::Result<Record> {
        let extent = ByteRange::at(offset, bytes.len() as u64);
        let checksums = self.id.block_checksums(offset, bytes);
        let record = Record { extent, data_at: self.data_end, checksums };
        self.record.clear();
        record.encode(self.id, self.index_end, &mut self.record);
        let data = self.held.data();
        let written = data
            .write_all_at(bytes, self.data_end)
            .and_then(|()| self.index.write_all_at(&self.record, self.index_end));
        if let Err(cause) = written {
            // No record refers to what is behind these ends: on a full disk it would be in the way of others.
            let _ = self.index.set_len(self.index_end);
            let _ = data.set_len(self.data_end);
            return Err(cause);
        }
        self.data_end += extent.len();
        self.index_end += self.record.len() as u64;
        Ok(record)
    }
}

/// Opens what is there of a version of a file, and begins it if there is nothing.
pub(super) fn open(budget: &Budget, name: &Name, key: &FileKey) -> io::Result<Opened> {
    let directory = &budget.directory;
    for _ in 0..SPARSE_ATTEMPTS_MAX {
        let Some(data) = directory.find(name, Kind::Data, true)? else {
            match begin(budget, name, key)? {
                Some(opened) => return Ok(opened),
                None => continue,
            }
        };
        let data = Arc::new(data);
        let held = try_lock(&data)?;
        // The process that had the lock may have removed the file since it was opened here.
        if !directory.is_named(name, Kind::Data, &data) {
            continue;
        }
        let found = find(budget, name, key, &data)?;
        directory.note_use(name);
        match (found, held) {
            (Some(found), None) => return Ok(found.into_read(data)),
            // It is being begun, or is of no use to this process.
            (None, None) => return Ok(nothing()),
            (Some(found), Some(held)) if !found.is_wasted() => {
                return Ok(found.into_write(budget, name, key, held));
            }
            (_, Some(_held)) => directory.remove_all(name)?,
        }
    }
    Ok(nothing())
}

/// What is left of an earlier use.
struct Found {
    loaded: Loaded,
    index: File,
    data_bytes: u64,
    /// Bytes of extents that the data file does not have: those of a crash.
    lost_bytes: u64,
}

/// Reads the index, if it is that of this data file and of this version. What cannot be read counts as damaged.
fn find(budget: &Budget, name: &Name, key: &FileKey, data: &File) -> io::Result<Option<Found>> {
    let mut head = [0; DATA_HEAD_BYTES];
    let id = data.read_exact_at(&mut head, 0).ok().and_then(|()| read_data_head(&head));
    let Some(index) = budget.directory.find(name, Kind::Index, true)? else { return Ok(None) };
    let loaded = Extents::load(&index, key).ok().flatten();
    let Some(mut loaded) = loaded.filter(|loaded| Some(loaded.id) == id) else { return Ok(None) };
    // Behind the index: its records were written when the bytes were there.
    let data_bytes = data.metadata()?.len();
    let lost_bytes = loaded.extents.cut(data_bytes);
    Ok(Some(Found { loaded, index, data_bytes, lost_bytes }))
}

impl Found {
    /// True if most of the data file is of no use.
    fn is_wasted(&self) -> bool {
        let used_bytes = self.loaded.extents.bytes();
        let waste_bytes = self.data_bytes.saturating_sub(used_bytes);
        waste_bytes > SPARSE_DATA_WASTE_BYTES && waste_bytes > used_bytes
    }

    fn into_read(self, data: Arc<File>) -> Opened {
        Opened {
            data: Some((data, self.loaded.id)),
            extents: self.loaded.extents,
            writer: None,
            trouble: None,
        }
    }

    /// Cuts off what does not count, and writes the index anew where that is worth it, or where it speaks of bytes that are lost:
    /// others will come to their place.
    fn into_write(self, budget: &Budget, name: &Name, key: &FileKey, held: Held) -> Opened {
        let Found { loaded, index, data_bytes, lost_bytes } = self;
        let Loaded { id, mut extents, head_bytes, good_bytes } = loaded;
        let data = Arc::clone(held.data());
        let needed_bytes = extents.records_bytes();
        let waste_bytes = (good_bytes - head_bytes).saturating_sub(needed_bytes);
        let is_due = waste_bytes > SPARSE_INDEX_WASTE_BYTES && waste_bytes > needed_bytes;
        let made = match is_due || lost_bytes > 0 {
            true => rewrite(budget, name, key, &data, id, &mut extents),
            false => index.set_len(good_bytes).map(|()| (index, good_bytes)),
        };
        let (writer, trouble) = match made {
            Ok((index, index_end)) => {
                (Some(Writer { held, id, data_end: data_bytes, index, index_end, record: Vec::new() }), None)
            }
            Err(cause) => (None, Some(cause)),
        };
        Opened { data: Some((data, id)), extents, writer, trouble }
    }
}

fn nothing() -> Opened {
    Opened { data: None, extents: Extents::default(), writer: None, trouble: None }
}

/// Makes both files; `None` if another process does the same.
fn begin(budget: &Budget, name: &Name, key: &FileKey) -> io::Result<Option<Opened>> {
    let mut id = FileId([0; 16]);
    SystemRandom::new().fill(&mut id.0).map_err(|_| io::Error::other("the system has no random bytes"))?;
    let (data_head, index_head) = (data_head(id), index_head(key, id));
    let needed_bytes = on_disk(data_head.len() as u64) + on_disk(index_head.len() as u64);
    if !budget.reserve(needed_bytes, 1) {
        return Ok(Some(nothing()));
    }
    let make = || {
        let directory = &budget.directory;
        let Some(data) = directory.make(name, Kind::Data)? else { return Ok(None) };
        // Another process may have been faster with the lock, and removes a file without a head.
        let data = Arc::new(data);
        let Some(held) = try_lock(&data)?.filter(|_| directory.is_named(name, Kind::Data, &data)) else {
            return Ok(None);
        };
        let written = || {
            data.write_all_at(&data_head, 0)?;
            directory.remove(name, Kind::Index)?;
            let Some(index) = directory.make(name, Kind::Index)? else { return Ok(None) };
            index.write_all_at(&index_head, 0)?;
            Ok(Some(index))
        };
        match written() {
            Ok(Some(index)) => Ok(Some((held, index))),
            outcome => {
                // Nothing half-made stays on a full disk.
                let _ = directory.remove_all(name);
                outcome.map(|_| None)
            }
        }
    };
    match make() {
        Ok(Some((held, index))) => {
            let data = Arc::clone(held.data());
            let writer = Writer {
                held,
                id,
                data_end: data_head.len() as u64,
                index,
                index_end: index_head.len() as u64,
                record: Vec::new(),
            };
            let (data, extents) = (Some((data, id)), Extents::default());
            Ok(Some(Opened { data, extents, writer: Some(writer), trouble: None }))
        }
        outcome => {
            budget.release(needed_bytes, 1);
            outcome.map(|_| None)
        }
    }
}

/// Writes the index anew beside the old one and puts it in its place: one record for each run of extents that follow each
/// other in both files. Returns the index and its length.
fn rewrite(
    budget: &Budget,
    name: &Name,
    key: &FileKey,
    data: &File,
    id: FileId,
    extents: &mut Extents,
) -> io::Result<(File, u64)> {
    let directory = &budget.directory;
    directory.remove(name, Kind::New)?;
    let taken = || io::Error::from(io::ErrorKind::AlreadyExists);
    let index = directory.make(name, Kind::New)?.ok_or_else(taken)?;
    let (mut joined, mut pending, mut at) = (Extents::default(), index_head(key, id), 0);
    let flush = |pending: &mut Vec<u8>, at: &mut u64| {
        index.write_all_at(pending, *at)?;
        *at += pending.len() as u64;
        pending.clear();
        Ok::<(), io::Error>(())
    };
    for (run, data_at, count) in extents.runs() {
        let parts = extents.covering(run);
        for record in if count == 1 { parts } else { join(&parts, run, data_at, data, id) } {
            record.encode(id, at + pending.len() as u64, &mut pending);
            joined.insert(record.extent, record.data_at, &record.checksums);
        }
        if pending.len() >= WRITE_BYTES {
            flush(&mut pending, &mut at)?;
        }
    }
    flush(&mut pending, &mut at)?;
    directory.replace_index(name)?;
    *extents = joined;
    Ok((index, at))
}

/// The records of a run, as few as possible: blocks are made of parts of blocks, whose checksums are compared first.
fn join(parts: &[Record], run: ByteRange, data_at: u64, data: &File, id: FileId) -> Vec<Record> {
    let mut bytes = vec![0; run.len() as usize];
    if data.read_exact_at(&mut bytes, data_at).is_err() {
        return parts.to_vec();
    }
    let within = |range: ByteRange| {
        let (start, end) = (range.start() - run.start(), range.end() - run.start());
        bytes.get(start as usize..end as usize).unwrap_or_default()
    };
    let mut good: Vec<ByteRange> = Vec::new();
    for part in parts {
        for (block, is_right) in judged(part, id, within(part.extent)) {
            match good.last_mut() {
                _ if !is_right => {}
                Some(last) if last.end() == block.start() => {
                    *last = ByteRange::new(last.start(), block.end())
                }
                _ => good.push(block),
            }
        }
    }
    let record = |extent: ByteRange| Record {
        extent,
        data_at: data_at + (extent.start() - run.start()),
        checksums: id.block_checksums(extent.start(), within(extent)),
    };
    good.into_iter().map(record).collect()
}
