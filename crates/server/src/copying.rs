//! Copies of files and trees from storage to storage: each file appears when it is complete.
//!
//! Memory and descriptors are bounded by the depth of a tree, which is, and not by how much is in it. A long copy goes
//! step by step, and between two steps it can be dropped: then the file in hand is gone without a trace.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::sync::Arc;

use gridlane_core::{ChecksumKind, limits};
use gridlane_dav::webdav::Depth;
use gridlane_dav::{EntryKind, Status};
use gridlane_store::storage::FileIdentity;
use gridlane_store::{
    Completion, DirectoryEntry, Entries, Expectation, Metadata, Object, ObjectPath, Opened, StoreError,
    StoreResult, Upload,
};
use tokio::task::yield_now;

use crate::export::Export;
use crate::propfind::{joined, kind_of};
use crate::storage_service::StorageService;
use gridlane_front::reply::Reply;

/// Bytes copied between two checks if the copy is still waited for.
const STEP_BYTES: u64 = 64 * 1024 * 1024;

/// A copy from one storage to another.
pub(crate) struct Copying<'a> {
    pub(crate) service: &'a StorageService,
    pub(crate) from: &'a Export,
    pub(crate) to: &'a Export,
    /// True if a file's time of the last change is copied as well.
    pub(crate) keeps_times: bool,
}

/// The end that cannot do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Source,
    Target,
}

/// The reason why something was not copied.
pub(crate) struct Trouble {
    pub(crate) end: End,
    pub(crate) reply: Reply,
}

impl Trouble {
    fn of(end: End) -> impl Fn(StoreError) -> Trouble {
        move |error| Trouble { end, reply: Reply::store_failure(&error) }
    }
}

/// Something that was not copied with its directory.
pub(crate) struct Failure {
    /// Names with slashes in front, from the server's root.
    pub(crate) path: Vec<u8>,
    pub(crate) kind: EntryKind,
    pub(crate) status: Status,
    /// The cause, for the log.
    pub(crate) cause: String,
}

/// The outcome of copying a tree.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) failures: Vec<Failure>,
    copied: Content,
}

/// The contents of a tree as a number, so that two looks at it can be compared without keeping it: by every entry's
/// path, and of files by their tags, in any order.
#[derive(Default)]
struct Content {
    entries: u64,
    sum: u64,
    /// With a secret seed.
    hashes: RandomState,
}

impl Content {
    /// `tag` is empty for a directory, which is not another one because something was added to it and taken away.
    fn add(&mut self, path: &ObjectPath, tag: &str) {
        self.entries += 1;
        let names: Vec<&[u8]> = path.names().collect();
        self.sum = self.sum.wrapping_add(self.hashes.hash_one((names, tag)));
    }
}

impl Outcome {
    pub(crate) fn is_clean(&self) -> bool {
        self.failures.is_empty()
    }
}

/// A directory that is being copied.
struct Level {
    from: ObjectPath,
    to: ObjectPath,
    identity: FileIdentity,
    entries: Entries,
    /// Entries that were read and not copied yet.
    waiting: VecDeque<DirectoryEntry>,
}

impl Copying<'_> {
    /// Copies a file, if it and what is at its target are as expected; returns what it was.
    pub(crate) async fn file(
        &self,
        (from, to): (&ObjectPath, &ObjectPath),
        source_expectation: &Expectation,
        target_expectation: &Expectation,
    ) -> Result<Metadata, Trouble> {
        let object = self.open(from, source_expectation).await?;
        let size_bytes = object.metadata().size_bytes;
        let create = self.to.storage.create(to, Some(size_bytes));
        let upload = create.await.map_err(Trouble::of(End::Target))?;
        let copied = self.bytes(object.as_ref(), upload.as_ref()).await;
        let source = object.metadata().clone();
        let checksums = match copied {
            Ok(()) => self.service.digests.kept(object.as_ref(), &ChecksumKind::OFFERED).await,
            Err(_) => Vec::new(),
        };
        let trouble = match copied {
            // Asked for last: what was found before is of the bytes that were copied.
            Ok(()) if object.is_unchanged().await => None,
            Ok(()) => Some(changed()),
            Err(trouble) => Some(trouble),
        };
        if let Some(trouble) = trouble {
            upload.discard().await;
            return Err(trouble);
        }
        let completion = Completion {
            expectation: target_expectation.clone(),
            modified: self.keeps_times.then_some(source.modified),
            checksums,
        };
        let committed = upload.commit(&completion).await.map_err(Trouble::of(End::Target))?;
        for checksum in completion.checksums {
            self.service.digests.remember(&committed.metadata, checksum);
        }
        Ok(source)
    }

    async fn open(&self, from: &ObjectPath, expectation: &Expectation) -> Result<Arc<dyn Object>, Trouble> {
        let opened = self.from.storage.open(from).await.map_err(Trouble::of(End::Source))?;
        let Opened::File(object) = opened else {
            return Err(Trouble::of(End::Source)(StoreError::NotAFile));
        };
        if let Expectation::Tag(tag) = expectation
            && *tag != object.metadata().tag
        {
            return Err(Trouble::of(End::Source)(StoreError::Unexpected));
        }
        match object.metadata().size_bytes > self.to.upload_bytes_max {
            true => Err(Trouble::of(End::Target)(StoreError::TooLarge)),
            false => Ok(object),
        }
    }

    async fn bytes(&self, object: &dyn Object, upload: &dyn Upload) -> Result<(), Trouble> {
        let size_bytes = object.metadata().size_bytes;
        // By the storage's own means, as long as it has some.
        let mut by_storage = Arc::ptr_eq(self.from.storage.turns(), self.to.storage.turns());
        let mut at = 0;
        while at < size_bytes {
            // The task that watches for the client's leaving gets a turn.
            yield_now().await;
            let left = size_bytes - at;
            let mut copied = 0;
            if by_storage {
                let step = upload.copy_range(object, at, left.min(STEP_BYTES));
                copied = step.await.map_err(Trouble::of(End::Target))?;
                by_storage = copied > 0;
            }
            if copied == 0 {
                copied = self.part(object, upload, at, left).await?;
            }
            if copied == 0 {
                return Err(changed());
            }
            at += copied;
        }
        Ok(())
    }

    /// Copies one buffer of at most `left` bytes from one device to another; returns the number of bytes. No operation
    /// waits for both: a device that hangs holds no turns of the other.
    async fn part(
        &self,
        object: &dyn Object,
        upload: &dyn Upload,
        at: u64,
        left: u64,
    ) -> Result<u64, Trouble> {
        let mut buffer = self.service.front.data.buffers.lend();
        let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let buffer = &mut buffer[..wanted];
        let failed = |cause: io::Error| Trouble::of(End::Source)(cause.into());
        let count = match object.read_at_nowait(buffer, at).map_err(failed)? {
            Some(count) => count,
            None => object.read_at(buffer, at).await.map_err(failed)?,
        };
        if count > 0 {
            let write = upload.write_at(&buffer[..count], at);
            write.await.map_err(Trouble::of(End::Target))?;
        }
        Ok(count as u64)
    }

    /// Copies a directory to where nothing is, with what is in it unless the depth is 0. A failure of the directory
    /// itself is the answer; of anything in it, it goes into `outcome`, and the rest is copied.
    pub(crate) async fn tree(
        &self,
        from: &ObjectPath,
        to: &ObjectPath,
        depth: Depth,
        outcome: &mut Outcome,
    ) -> Result<(), Reply> {
        let (first, target) = self.enter(from, to).await.map_err(|trouble| trouble.reply)?;
        if depth == Depth::Zero {
            return Ok(());
        }
        let mut levels = vec![first];
        while let Some(level) = levels.last_mut() {
            yield_now().await;
            let Some(entry) = level.waiting.pop_front() else {
                match level.read().await {
                    Ok(true) => {}
                    Ok(false) => drop(levels.pop()),
                    Err(error) => {
                        let path = level.from.clone();
                        levels.pop();
                        let trouble = Trouble::of(End::Source)(error);
                        self.note(outcome, trouble, &path, &path, EntryKind::Directory)?;
                    }
                }
                continue;
            };
            let (Some(from), Some(to)) = (level.from.join(&entry.name), level.to.join(&entry.name)) else {
                continue;
            };
            let kind = kind_of(&entry.metadata);
            let trouble = match kind {
                EntryKind::File => {
                    let ends = (&from, &to);
                    let copied = self.file(ends, &Expectation::Anything, &Expectation::Absent).await;
                    copied.map(|source| outcome.copied.add(&from, &source.tag)).err()
                }
                // A link may lead back to a directory that is being copied, or to the copy.
                EntryKind::Directory if is_loop(&levels, target, entry.metadata.identity) => {
                    let what = "a link makes the directory hold itself";
                    Some(Trouble { end: End::Source, reply: Reply::failure(Status::LOOP_DETECTED, what) })
                }
                EntryKind::Directory if levels.len() >= limits::COPY_DEPTH_MAX => {
                    let what = format!("a copy goes {} directories deep at most", limits::COPY_DEPTH_MAX);
                    Some(Trouble { end: End::Source, reply: Reply::failure(Status::FORBIDDEN, what) })
                }
                EntryKind::Directory => match self.enter(&from, &to).await {
                    Ok((below, _)) => {
                        outcome.copied.add(&from, "");
                        levels.push(below);
                        None
                    }
                    Err(trouble) => Some(trouble),
                },
            };
            if let Some(trouble) = trouble {
                self.note(outcome, trouble, &from, &to, kind)?;
            }
        }
        Ok(())
    }

    /// True if a tree is still what was copied of it. Takes as long as a removal of the tree would.
    pub(crate) async fn is_as_copied(&self, from: &ObjectPath, outcome: &Outcome) -> StoreResult<bool> {
        let copied = &outcome.copied;
        let mut now = Content { hashes: copied.hashes.clone(), ..Content::default() };
        let mut levels = vec![self.level(from, from, self.identity(from).await?).await?];
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.waiting.pop_front() else {
                if !level.read().await? {
                    levels.pop();
                }
                continue;
            };
            let Some(path) = level.from.join(&entry.name) else { continue };
            match kind_of(&entry.metadata) {
                EntryKind::File => now.add(&path, &entry.metadata.tag),
                EntryKind::Directory => {
                    now.add(&path, "");
                    levels.push(self.level(&path, &path, entry.metadata.identity).await?);
                }
            }
            // A link that was made meanwhile may make a tree endless.
            if now.entries > copied.entries || levels.len() > limits::COPY_DEPTH_MAX {
                return Ok(false);
            }
        }
        Ok((now.entries, now.sum) == (copied.entries, copied.sum))
    }

    /// Begins a directory: makes it at the target, and opens it at the source. In this order: a link in it may lead to what is made.
    async fn enter(&self, from: &ObjectPath, to: &ObjectPath) -> Result<(Level, FileIdentity), Trouble> {
        let storage = &self.to.storage;
        let identity = self.identity(from).await.map_err(Trouble::of(End::Source))?;
        storage.make_directory(to).await.map_err(Trouble::of(End::Target))?;
        let target = storage.look(to).await.map_err(Trouble::of(End::Target))?;
        match self.level(from, to, identity).await {
            Ok(level) => Ok((level, target.identity)),
            Err(error) => {
                // What cannot be read is not copied.
                let _ = storage.remove_directory(to).await;
                Err(Trouble::of(End::Source)(error))
            }
        }
    }

    /// The identity of a directory of the source.
    async fn identity(&self, from: &ObjectPath) -> StoreResult<FileIdentity> {
        match self.from.storage.look(from).await? {
            there if there.is_directory() => Ok(there.identity),
            _ => Err(StoreError::NotADirectory),
        }
    }

    /// Opens a directory of the source.
    async fn level(&self, from: &ObjectPath, to: &ObjectPath, identity: FileIdentity) -> StoreResult<Level> {
        let entries = self.from.storage.entries(from).await?;
        Ok(Level { from: from.clone(), to: to.clone(), identity, entries, waiting: VecDeque::new() })
    }

    /// Writes down what failed; gives up when that becomes pointless.
    fn note(
        &self,
        outcome: &mut Outcome,
        trouble: Trouble,
        from: &ObjectPath,
        to: &ObjectPath,
        kind: EntryKind,
    ) -> Result<(), Reply> {
        let status = trouble.reply.status;
        if status == Status::INSUFFICIENT_STORAGE || outcome.failures.len() >= limits::COPY_FAILURES_MAX {
            return Err(trouble.reply);
        }
        let (export, path) = match trouble.end {
            End::Source => (self.from, from),
            End::Target => (self.to, to),
        };
        outcome.failures.push(Failure {
            path: joined(export.path.names().chain(path.names())),
            kind,
            status,
            cause: trouble.reply.cause.unwrap_or_default(),
        });
        Ok(())
    }
}

impl Level {
    /// Reads some entries; returns true if there were any.
    async fn read(&mut self) -> StoreResult<bool> {
        self.waiting.extend(self.entries.next_page().await?);
        Ok(!self.waiting.is_empty())
    }
}

/// True if a directory is one of those that are being copied, or the copy.
fn is_loop(levels: &[Level], target: FileIdentity, identity: FileIdentity) -> bool {
    identity == target || levels.iter().any(|level| level.identity == identity)
}

fn changed() -> Trouble {
    let reply = Reply::failure(Status::SERVICE_UNAVAILABLE, "the file is being changed");
    Trouble { end: End::Source, reply }
}
