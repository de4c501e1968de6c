//! Where the bytes of small files go, and how they become visible: in groups.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use gridlane_core::limits::{SMALL_GROUP_BYTES_MAX, SMALL_GROUP_FILES_MAX, SMALL_GROUPS_MAX};
use gridlane_core::{Checksum, ChecksumKind, Error, Hasher};
use gridlane_plan::judge::Basis;
use gridlane_share::turns::BriefKind;
use gridlane_store::unnamed::{Directory, UnnamedFile, commit};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;

use super::{Origin, Shared, SmallEnd, SmallEnds, SmallFile};
use crate::events::{Limit, Report, SourceReport, State};

/// A sync that takes longer waited for a device.
const PAGE_CACHE_MAX: Duration = Duration::from_millis(2);
/// A file that is complete waits no longer than this for others to be synced with.
pub(super) const GROUP_AGE_MAX: Duration = Duration::from_millis(50);

/// A file that is being written.
pub(super) struct Landing {
    file: UnnamedFile,
    leave: Leave,
    /// The first is of the kind that is asked for.
    hashers: Vec<Hasher>,
    at: u64,
}

/// A permit to have a file open; their number is limited.
pub(super) type Leave = OwnedSemaphorePermit;

impl Landing {
    /// Opens the file, of which the server has `stated` checksums beside the one of `kind` that it is asked for; `None` when
    /// that fails: the copy that follows says why.
    pub(super) async fn begin(
        file: &SmallFile,
        kind: ChecksumKind,
        stated: &[Checksum],
        leave: Leave,
    ) -> Option<Landing> {
        let unnamed =
            briefly(&file.directory, BriefKind::Other, || file.directory.create(&file.name)).await.ok()?;
        let hashers = std::iter::once(kind).chain(stated.iter().map(Checksum::kind)).map(Hasher::new);
        Some(Landing { file: unnamed, leave, hashers: hashers.collect(), at: 0 })
    }

    /// Takes the next bytes. `None` as above.
    pub(super) async fn take(&mut self, bytes: &[u8]) -> Option<()> {
        // Hashed while it is in the cache, before the write takes it from there.
        self.hashers.iter_mut().for_each(|hasher| hasher.update(bytes));
        let written =
            briefly(self.file.directory(), BriefKind::Write, || self.file.write_at(bytes, self.at)).await;
        self.at += bytes.len() as u64;
        written.ok()
    }

    /// All bytes are there.
    pub(super) async fn finish(self) -> Landed {
        briefly(self.file.directory(), BriefKind::Other, || self.file.written(self.at)).await;
        let Landing { file, leave, hashers, at: size_bytes } = self;
        Landed { file, leave, checksums: hashers.into_iter().map(Hasher::finish).collect(), size_bytes }
    }
}

/// Does something in a directory that mostly needs no device: at once where there is none.
async fn briefly<T>(directory: &Directory, kind: BriefKind, doing: impl FnOnce() -> T) -> T {
    match directory.has_device() {
        true => directory.turns().brief(kind).await.run(doing),
        false => doing(),
    }
}

/// A file that is complete and not yet visible.
pub(super) struct Landed {
    file: UnnamedFile,
    leave: Leave,
    /// The first is of the kind that is asked for.
    pub(super) checksums: Vec<Checksum>,
    pub(super) size_bytes: u64,
}

/// The data for the end of a file that is complete; it is reported when the file is visible.
struct PendingEnd {
    id: u64,
    checksum: Option<Checksum>,
    unstated: Option<ChecksumKind>,
    size_bytes: u64,
    is_verified: bool,
    url: String,
    took: Duration,
    round_trip: Option<Duration>,
    time_lost: Option<Error>,
}

/// Complete files that wait for a sync, and groups that are being synced.
pub(super) struct Groups {
    shared: Arc<Shared>,
    origin: Arc<Origin>,
    files: Vec<UnnamedFile>,
    /// For each of `files`.
    leaves: Vec<Leave>,
    told: Vec<PendingEnd>,
    bytes: u64,
    begun: Instant,
    syncing: JoinSet<()>,
}

impl Groups {
    pub(super) fn new(shared: Arc<Shared>, origin: Arc<Origin>) -> Groups {
        let (files, leaves, told, begun) = (Vec::new(), Vec::new(), Vec::new(), Instant::now());
        Groups { shared, origin, files, leaves, told, bytes: 0, begun, syncing: JoinSet::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Waits for a permit to open another file; `None` never happens. A fetcher that waits has no complete file open,
    /// so that no two wait for each other.
    pub(super) async fn leave_to_open(&mut self) -> Option<Leave> {
        let leaves = self.shared.leaves.clone();
        if let Ok(leave) = leaves.clone().try_acquire_owned() {
            return Some(leave);
        }
        self.flush().await;
        leaves.acquire_owned().await.ok()
    }

    /// Adds a file whose bytes are right, as far as can be known.
    pub(super) async fn add(
        &mut self,
        file: SmallFile,
        landed: Landed,
        verified: Option<Checksum>,
        took: Duration,
        round_trip: Option<Duration>,
    ) {
        if self.files.is_empty() {
            self.begun = Instant::now();
        }
        let time_lost =
            file.modified.and_then(|modified| landed.file.set_modified(modified).err()).map(|cause| {
                let path = file.directory.path().join(&file.name);
                Error::local_io("cannot set when it was changed", &cause).endpoint(path.display())
            });
        let Landed { file: unnamed, leave, checksums, size_bytes } = landed;
        let kind = self.shared.kind;
        let is_stated = verified.as_ref().is_some_and(|one| one.kind() == kind);
        let unstated = Some(kind).filter(|_| self.shared.is_kind_asked && !is_stated);
        let is_verified = verified.is_some();
        let checksum = verified.or_else(|| checksums.into_iter().next());
        let (id, url) = (file.id, file.url.to_string());
        // The directory is not held any more when the end of its file is told.
        drop(file);
        self.told.push(PendingEnd {
            id,
            checksum,
            unstated,
            size_bytes,
            is_verified,
            url,
            took,
            round_trip,
            time_lost,
        });
        self.files.push(unnamed);
        self.leaves.push(leave);
        self.bytes += size_bytes;
        let is_full = self.files.len() >= SMALL_GROUP_FILES_MAX || self.bytes >= SMALL_GROUP_BYTES_MAX;
        if is_full || self.begun.elapsed() > GROUP_AGE_MAX {
            self.flush().await;
        }
    }

    /// Makes visible what is complete. In memory, and where syncs were seen not to wait, that is done here; else in turns of the
    /// device, a few groups at a time.
    pub(super) async fn flush(&mut self) {
        let Some(first) = self.files.first() else { return };
        let is_slow = first.has_device() && !self.origin.syncs_are_brief.load(Relaxed);
        let turns = first.directory().turns().clone();
        // Before anything is taken: no files are lost with this future when it is dropped.
        while is_slow && self.syncing.len() >= SMALL_GROUPS_MAX {
            self.syncing.join_next().await;
        }
        self.bytes = 0;
        let (files, told) = (std::mem::take(&mut self.files), std::mem::take(&mut self.told));
        let leaves = std::mem::take(&mut self.leaves);
        let (shared, origin) = (self.shared.clone(), self.origin.clone());
        let sync = move || {
            let has_device = files.iter().any(UnnamedFile::has_device);
            let begun = Instant::now();
            let outcomes = commit(files);
            drop(leaves);
            // Where there is no device, it was the processor that was waited for.
            origin.syncs_are_brief.store(!has_device || begun.elapsed() <= PAGE_CACHE_MAX, Relaxed);
            let ends: SmallEnds = told
                .into_iter()
                .zip(outcomes)
                .map(|(told, outcome)| {
                    (told.id, if outcome.is_ok() { told.end() } else { SmallEnd::Returned })
                })
                .collect();
            shared.end(ends);
        };
        if !is_slow {
            return sync();
        }
        self.syncing.spawn(async move { turns.run(sync).await });
    }

    /// Waits until everything that was complete is visible.
    pub(super) async fn finish(mut self) {
        self.flush().await;
        while self.syncing.join_next().await.is_some() {}
    }
}

impl PendingEnd {
    fn end(self) -> SmallEnd {
        let seconds = self.took.as_secs_f64();
        let source = SourceReport {
            url: self.url,
            state: State::Active,
            bytes: self.size_bytes,
            received_bytes: self.size_bytes,
            rate_best_bytes_per_s: None,
            round_trip: self.round_trip,
            connections: 1,
            handshakes: 0,
            wrong_pieces: 0,
            error: None,
        };
        let report = Report {
            size_bytes: Some(self.size_bytes),
            done_bytes: self.size_bytes,
            resumed_bytes: 0,
            fetched_bytes: self.size_bytes,
            extra_bytes: 0,
            seconds,
            bound_s: None,
            bound_from: "unknown: not every source was active for a second".into(),
            limited_by: Limit::StartUp,
            verified: self.is_verified.then_some(Basis::Sources { agreeing: 1, said: 1, named: 1 }),
            verified_with: self.checksum.as_ref().filter(|_| self.is_verified).map(Checksum::kind),
            checksum: self.checksum,
            unstated: self.unstated,
            modified_accepted: None,
            sources: vec![source],
        };
        SmallEnd::Copied { report: Box::new(report), time_lost: self.time_lost }
    }
}
