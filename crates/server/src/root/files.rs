//! The files that a session has open.
//!
//! ```text
//! open ─▶ handle ─▶ get, as often as there are requests ─▶ close    waits for those that run
//!                                                       └▶ end_all  the session is over
//! ```

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::future::ready;
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gridlane_auth::Operation;
use gridlane_core::{ByteRange, RangeSet, limits};
use gridlane_store::{BoxFuture, Metadata, Object, StoreError, StoreResult, WritableFile};
use gridlane_xrd::{ErrorCode, Handle};
use tokio::sync::oneshot;

use super::locks::{Lock, Locks};
use super::meetings::Spoken;
use super::pull::Pull;
use super::written::Written;
use crate::digests::Digests;
use crate::export::Spot;
use gridlane_front::metrics::{CountedIn, Metrics};
use gridlane_front::root::answer::{Failure, printable_path};
use gridlane_front::root::session_files::{Readable, SessionFiles};
use gridlane_share::Turns;
use gridlane_share::budget::{self, Budget, Lease, Short};

/// State that all sessions of a server share about their open files.
pub(crate) struct OpenFiles {
    /// The locks.
    pub(crate) locks: Arc<Locks>,
    room: Arc<Budget>,
}

impl OpenFiles {
    /// With this budget.
    pub(crate) fn of(room: Arc<Budget>) -> OpenFiles {
        OpenFiles { locks: Arc::default(), room }
    }

    /// Permission to have one more, on behalf of the client of this task.
    pub(crate) fn room(&self) -> Result<Lease, Failure> {
        self.room.try_take(budget::current(), 1).map_err(|short| match short {
            Short::Holder => too_many("this client has"),
            Short::All => too_many("the server has"),
        })
    }
}

/// The open files of a session, by handle.
#[derive(Default)]
pub struct Files {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    open: HashMap<Handle, Entry>,
    next: u32,
    /// The session is over.
    has_ended: bool,
}

pub(crate) struct Entry {
    file: Arc<OpenFile>,
    /// Resolves when no request uses `file` any longer.
    left: oneshot::Receiver<()>,
}

/// An open file, for a request that uses it: it is not closed before all of them have let go.
pub(crate) struct OpenFile {
    state: Arc<FileState>,
    /// Dropped with the last user.
    _left: oneshot::Sender<()>,
}

impl Deref for OpenFile {
    type Target = FileState;
    fn deref(&self) -> &FileState {
        &self.state
    }
}

/// The state of an open file.
pub(crate) struct FileState {
    /// The path in the client's own form, for messages and logs.
    pub(crate) path: Vec<u8>,
    /// Its place when it was opened.
    pub(crate) spot: Spot,
    /// The time when it was opened.
    pub(crate) opened: Instant,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    bytes: Bytes,
    /// Given back when it is closed.
    _locks: Vec<Lock>,
    _room: Lease,
    /// The client's word that another server may read it, while it is open.
    _word: Option<Spoken>,
    /// One of the uploads, while it may be written to.
    _upload: Option<CountedIn>,
}

/// The bytes of an open file.
enum Bytes {
    /// For reading alone.
    Reading(Arc<dyn Object>),
    /// For writing as well, with a view of what is being changed.
    Changing(Arc<dyn Object>, Changing),
    /// They come from another server, and are seen when all are there.
    Pulled(Box<Pull>),
}

/// A file that was just opened.
pub(crate) struct NewFile {
    pub(crate) path: Vec<u8>,
    pub(crate) spot: Spot,
    pub(crate) content: Content,
    pub(crate) locks: Vec<Lock>,
    pub(crate) room: Lease,
    /// The client's word that another server may read it.
    pub(crate) word: Option<Spoken>,
    /// Of a file that is to be changed: counted as an upload.
    pub(crate) upload: Option<CountedIn>,
}

/// An open file's bytes.
pub(crate) enum Content {
    /// Only to be read.
    Reading(Arc<dyn Object>),
    /// To be read and changed.
    Changing {
        /// The file.
        file: Arc<dyn WritableFile>,
        /// Its metadata when it was opened.
        metadata: Metadata,
        /// It is seen when it is closed, and gone if it never is (persist on successful close).
        is_pending: bool,
    },
    /// To be fetched from another server.
    Pulled(Box<Pull>),
}

/// A file that is being changed.
pub(crate) struct Changing {
    file: Arc<dyn WritableFile>,
    is_pending: bool,
    state: Mutex<Changes>,
}

#[derive(Default)]
struct Changes {
    written: Written,
    /// Pages that were not what their checksum said, by place and length, until they are sent again.
    wrong: BTreeSet<(u64, usize)>,
    /// Bytes that could not be written, until they are. Only of files that are not seen yet.
    failed: RangeSet,
}

impl FileState {
    /// Its bytes, for reading, if the client may.
    pub(crate) fn object(&self) -> Result<&Arc<dyn Object>, Failure> {
        // A client that may only store files opens them in the same way as one that may read them as well.
        let refused = |code, why: String| {
            Err(Failure::new(code, format!("Unable to read {}; {why}", printable_path(&self.path))))
        };
        match (&self.bytes, self.spot.refusal(Operation::Read)) {
            (Bytes::Reading(object), _) | (Bytes::Changing(object, _), None) => Ok(object),
            (Bytes::Changing(..), Some(why)) => {
                refused(ErrorCode::NOT_AUTHORIZED, format!("permission denied: {why}"))
            }
            (Bytes::Pulled(_), _) => {
                refused(ErrorCode::FILE_LOCKED, "it is being copied from another server".to_owned())
            }
        }
    }

    /// The metadata at this moment.
    pub(crate) async fn metadata(&self) -> StoreResult<Metadata> {
        match &self.bytes {
            Bytes::Reading(object) => Ok(object.metadata().clone()),
            Bytes::Changing(_, changing) => changing.file.look().await,
            Bytes::Pulled(pull) => Ok(pull.metadata()),
        }
    }

    /// The length at this moment, which may be more or less than when it was opened.
    pub(crate) fn size_bytes(&self) -> StoreResult<u64> {
        match &self.bytes {
            Bytes::Changing(_, changing) => Ok(changing.file.metadata()?.size_bytes),
            Bytes::Reading(object) => match object.as_file() {
                Some(file) => Ok(file.metadata()?.len()),
                None => Ok(object.metadata().size_bytes),
            },
            Bytes::Pulled(pull) => Ok(pull.done_bytes()),
        }
    }

    /// True if it is gone unless it is closed in good order.
    pub(crate) fn is_pending(&self) -> bool {
        match &self.bytes {
            Bytes::Reading(_) => false,
            Bytes::Changing(_, changing) => changing.is_pending,
            Bytes::Pulled(_) => true,
        }
    }

    /// True if it was opened to be changed.
    pub(crate) fn is_changing(&self) -> bool {
        !matches!(self.bytes, Bytes::Reading(_))
    }

    /// The copy from another server that it was opened for, if it was.
    pub(crate) fn pull(&self) -> Option<&Pull> {
        match &self.bytes {
            Bytes::Pulled(pull) => Some(pull),
            Bytes::Reading(_) | Bytes::Changing(..) => None,
        }
    }

    /// For writing, if it was opened for that. `act` is the verb for a message.
    pub(crate) fn changing(&self, act: &str) -> Result<&Changing, Failure> {
        match &self.bytes {
            Bytes::Changing(_, changing) => Ok(changing),
            Bytes::Reading(_) | Bytes::Pulled(_) => {
                let text = format!("Unable to {act} {}; bad file descriptor", printable_path(&self.path));
                Err(Failure::new(ErrorCode::FILE_NOT_OPEN, text))
            }
        }
    }

    /// Refuses a length that the export does not take.
    pub(crate) fn check_size(&self, act: &str, size_bytes: u64) -> Result<(), Failure> {
        let bytes_max = self.spot.export.upload_bytes_max;
        match size_bytes > bytes_max {
            true => Err(Failure::of_size(act, &self.path, bytes_max)),
            false => Ok(()),
        }
    }

    /// Bytes that were sent of it.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Bytes that came for it.
    pub(crate) fn bytes_written(&self) -> u64 {
        let pulled_bytes = self.pull().map_or(0, Pull::done_bytes);
        self.bytes_written.load(Ordering::Relaxed) + pulled_bytes
    }

    /// Counts bytes that came.
    pub(crate) fn count_written(&self, metrics: &Metrics, bytes: u64) {
        metrics.received_of_files(bytes);
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Closes it, when no request uses it any longer.
    pub(crate) async fn close(&self, digests: &Digests) -> Result<(), Failure> {
        let changing = match &self.bytes {
            Bytes::Reading(_) => return Ok(()),
            Bytes::Changing(_, changing) => changing,
            // It was committed, or was not, when it ended.
            Bytes::Pulled(_) => return Ok(()),
        };
        let failed = |error: &StoreError| Failure::of_store("close", &self.path, error);
        let (whole, lacks) = {
            let changes = changing.lock();
            (changes.written.whole(), changes.lacks(&self.path))
        };
        if let (Some(lacks), true) = (&lacks, changing.is_pending) {
            return Err(lacks.clone());
        }
        let committed = changing.file.close(whole.as_ref()).await.map_err(|error| failed(&error))?;
        // A file that others see may have been changed by others too: there only the storage knows whether the checksum
        // is that of its bytes, and has kept it if so.
        if let Some(whole) = whole.filter(|whole| whole.size_bytes == committed.metadata.size_bytes)
            && changing.is_pending
        {
            for checksum in whole.checksums {
                digests.remember(&committed.metadata, checksum);
            }
        }
        lacks.map_or(Ok(()), Err)
    }

    /// Closes it without its bytes: a file that was to be hidden until its close is gone by then.
    pub(crate) async fn discard(self) {
        match self.bytes {
            Bytes::Reading(_) => {}
            Bytes::Changing(object, changing) => {
                drop(object);
                changing.file.discard().await;
            }
            Bytes::Pulled(pull) => {
                pull.cancel().await;
            }
        }
    }
}

impl Changing {
    /// The file.
    pub(crate) fn file(&self) -> &dyn WritableFile {
        self.file.as_ref()
    }

    /// These bytes are there, and have this adler32.
    pub(crate) fn wrote(&self, range: ByteRange, adler32: u32) {
        let mut changes = self.lock();
        changes.written.add(range, adler32);
        changes.failed.remove(range);
    }

    /// These bytes are there, or a part of them, or not.
    pub(crate) fn failed(&self, range: ByteRange) {
        let mut changes = self.lock();
        changes.written.forget();
        if self.is_pending {
            changes.failed.insert(range);
            if changes.failed.range_count() > limits::ROOT_WRITTEN_PIECES_MAX {
                changes.failed.insert(ByteRange::new(0, u64::MAX));
            }
        }
    }

    /// Its length was changed.
    pub(crate) fn cut(&self) {
        self.lock().written.forget();
    }

    /// Remembers a page that is wrong, and was written all the same.
    pub(crate) fn add_wrong(&self, page: (u64, usize)) -> Result<(), Failure> {
        let mut changes = self.lock();
        changes.failed.remove(ByteRange::at(page.0, page.1 as u64));
        if changes.wrong.len() >= limits::ROOT_WRONG_PAGES_PER_FILE_MAX && !changes.wrong.contains(&page) {
            let text = "Too many uncorrected checksum errors in file";
            return Err(Failure::new(ErrorCode::TOO_MANY_ERRORS, text));
        }
        changes.wrong.insert(page);
        Ok(())
    }

    /// A page was sent again, and is right.
    pub(crate) fn corrected(&self, page: (u64, usize)) {
        self.lock().wrong.remove(&page);
    }

    fn lock(&self) -> MutexGuard<'_, Changes> {
        // A panic elsewhere leaves nothing half-done here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Changes {
    /// The reason why it is not what the client wanted to write, if so.
    fn lacks(&self, path: &[u8]) -> Option<Failure> {
        if !self.wrong.is_empty() {
            let text = format!("{} uncorrected checksum errors", self.wrong.len());
            return Some(Failure::new(ErrorCode::CHECKSUM_ERROR, text));
        }
        let first = self.failed.first()?;
        let text = format!("Unable to close {}; {first} could not be written before", printable_path(path));
        Some(Failure::new(ErrorCode::IO_ERROR, text))
    }
}

/// A file that is being changed, for reading.
struct View {
    file: Arc<dyn WritableFile>,
    /// The metadata at the moment of opening.
    metadata: Metadata,
}

impl Object for View {
    fn turns(&self) -> &Arc<Turns> {
        self.file.turns()
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn as_file(&self) -> Option<&File> {
        self.file.as_file()
    }

    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.file.read_at_nowait(target, offset)
    }

    fn read_at<'a>(&'a self, target: &'a mut [u8], offset: u64) -> BoxFuture<'a, io::Result<usize>> {
        self.file.read_at(target, offset)
    }

    /// A reader of a file that is being changed knows that it is.
    fn is_unchanged_nowait(&self) -> Option<bool> {
        Some(true)
    }

    fn is_unchanged(&self) -> BoxFuture<'_, bool> {
        Box::pin(ready(true))
    }
}

impl Files {
    /// The file of a handle; `act` names the request in a message that there is none.
    pub(crate) fn get(&self, handle: Handle, act: &str) -> Result<Arc<OpenFile>, Failure> {
        let file = self.lock().open.get(&handle).map(|entry| Arc::clone(&entry.file));
        file.ok_or_else(|| Failure::not_open(act))
    }

    /// Refuses one more if there are too many: before something is made that would have to be unmade.
    pub(crate) fn check_room(&self) -> Result<(), Failure> {
        match self.count() >= limits::ROOT_OPEN_FILES_PER_SESSION_MAX {
            true => Err(too_many("this session has")),
            false => Ok(()),
        }
    }

    /// Takes a file in; returns its handle.
    pub(crate) fn insert(&self, new: NewFile) -> Result<Handle, Failure> {
        let bytes = match new.content {
            Content::Reading(object) => Bytes::Reading(object),
            Content::Changing { file, metadata, is_pending } => {
                let object: Arc<dyn Object> = Arc::new(View { file: Arc::clone(&file), metadata });
                Bytes::Changing(object, Changing { file, is_pending, state: Mutex::default() })
            }
            Content::Pulled(pull) => Bytes::Pulled(pull),
        };
        let state = Arc::new(FileState {
            path: new.path,
            spot: new.spot,
            opened: Instant::now(),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            bytes,
            _locks: new.locks,
            _room: new.room,
            _word: new.word,
            _upload: new.upload,
        });
        let (_left, left) = oneshot::channel();
        let entry = Entry { file: Arc::new(OpenFile { state, _left }), left };
        let mut inner = self.lock();
        if inner.has_ended {
            return Err(Failure::new(ErrorCode::CANCELLED, "the session has ended"));
        }
        if inner.open.len() >= limits::ROOT_OPEN_FILES_PER_SESSION_MAX {
            return Err(too_many("this session has"));
        }
        // One is free after as many steps as there are files, at most.
        let handle = loop {
            let handle = Handle(inner.next.to_be_bytes());
            inner.next = inner.next.wrapping_add(1);
            if !inner.open.contains_key(&handle) {
                break handle;
            }
        };
        inner.open.insert(handle, entry);
        Ok(handle)
    }

    /// Takes a file out: no other request finds it.
    pub(crate) fn remove(&self, handle: Handle) -> Option<Entry> {
        self.lock().open.remove(&handle)
    }

    /// Takes all of them out, and takes no other one in.
    pub(crate) fn end(&self) -> Vec<Entry> {
        let mut inner = self.lock();
        inner.has_ended = true;
        inner.open.drain().map(|(_, entry)| entry).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere leaves nothing half-done here.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionFiles for Files {
    fn count(&self) -> usize {
        self.lock().open.len()
    }

    fn readable(&self, handle: Handle, act: &str) -> Result<Arc<dyn Readable>, Failure> {
        self.get(handle, act).map(|file| file as Arc<dyn Readable>)
    }
}

impl Readable for OpenFile {
    fn path(&self) -> &[u8] {
        &self.path
    }

    fn object(&self) -> Result<&Arc<dyn Object>, Failure> {
        self.state.object()
    }

    fn size_bytes(&self) -> StoreResult<u64> {
        self.state.size_bytes()
    }

    fn is_changing(&self) -> bool {
        self.state.is_changing()
    }

    fn count_read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Entry {
    /// Ends the copy that it was opened for, if that runs; true if it did.
    pub(crate) async fn stop(&self) -> bool {
        match self.file.pull() {
            Some(pull) => pull.cancel().await,
            None => false,
        }
    }

    /// The file, when no request uses it any longer.
    pub(crate) async fn settled(self) -> Arc<FileState> {
        let state = Arc::clone(&self.file.state);
        drop(self.file);
        // An error, always: the last user drops its end.
        let _ = self.left.await;
        state
    }
}

fn too_many(who: &str) -> Failure {
    let text = format!("{who} too many files open; close some, or try again later");
    Failure::new(ErrorCode::OVERLOADED, text)
}
