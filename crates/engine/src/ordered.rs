//! Targets that take bytes in order: a pipe, a device, standard output, an HTTP upload.
//!
//! Lanes push pieces in any order into a bounded queue; one task puts them in order, hashes them, and
//! writes them. What waits for bytes in front of it is bounded by the plan's window, not by the queue:
//! the task always takes from the queue, so a lane with the missing bytes is never shut out by lanes
//! that are ahead.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use gridlane_core::limits::IO_BYTES;
use gridlane_core::{Checksum, Error, ErrorKind, Hasher, Result};
use gridlane_sys::AlignedBuf;
use tokio::sync::{mpsc, oneshot};

use crate::notice::Notice;
use crate::upload::Upload;

/// Pieces on their way to the task: enough to keep it busy while lanes read.
const QUEUE_PIECES: usize = 8;
/// Buffers kept for reuse.
const POOL_BUFFERS: usize = 2 * QUEUE_PIECES;

/// Buffers that go round between lanes and the writing task.
#[derive(Clone, Default)]
pub(crate) struct Pool(Arc<Mutex<Vec<AlignedBuf>>>);

impl Pool {
    pub(crate) fn fresh() -> AlignedBuf {
        AlignedBuf::new(IO_BYTES)
    }

    pub(crate) fn take(&self) -> AlignedBuf {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(Pool::fresh)
    }

    fn give(&self, buf: AlignedBuf) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < POOL_BUFFERS {
            kept.push(buf);
        }
    }

    /// The first `len` bytes of `buf` as a piece. A well-filled buffer is handed over and replaced; the
    /// bytes of another one are copied, so that a waiting piece takes little more memory than its bytes.
    pub(crate) fn detach(&self, buf: &mut AlignedBuf, len: usize) -> Data {
        if len * 2 < buf.len() {
            return Data::Copied(buf[..len].into());
        }
        Data::Buffer(std::mem::replace(buf, self.take()), len)
    }
}

/// The bytes of a piece.
pub(crate) enum Data {
    Buffer(AlignedBuf, usize),
    Copied(Box<[u8]>),
}

impl From<&[u8]> for Data {
    fn from(bytes: &[u8]) -> Data {
        Data::Copied(bytes.into())
    }
}

impl Deref for Data {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Data::Buffer(buf, len) => &buf[..*len],
            Data::Copied(bytes) => bytes,
        }
    }
}

enum Push {
    Piece {
        offset: u64,
        data: Data,
    },
    Size(u64),
    /// All bytes have been pushed: what is the checksum of them?
    Hash(oneshot::Sender<Option<Checksum>>),
    /// They are right: let go of the last ones.
    Finish(oneshot::Sender<Result<()>>),
}

/// Where the bytes end up.
pub(crate) enum Output {
    File(File),
    Upload(Box<Upload>),
}

/// The lanes' side.
pub(crate) struct Feed {
    pub(crate) pool: Pool,
    queue: mpsc::Sender<Push>,
}

impl Feed {
    /// Starts the task. With `hasher`, it hashes what it writes.
    pub(crate) fn start(
        output: Output,
        hasher: Option<Hasher>,
        notices: mpsc::UnboundedSender<Notice>,
    ) -> Feed {
        let (queue, pushes) = mpsc::channel(QUEUE_PIECES);
        let pool = Pool::default();
        let drain = Drain {
            output,
            hasher,
            notices,
            pool: pool.clone(),
            waiting: BTreeMap::new(),
            next: 0,
            size_bytes: None,
        };
        tokio::spawn(drain.run(pushes));
        Feed { pool, queue }
    }

    /// Pushes a piece if there is room; gives it back otherwise.
    pub(crate) fn try_push(&self, offset: u64, data: Data) -> std::result::Result<(), Data> {
        self.queue.try_send(Push::Piece { offset, data }).map_err(|refused| match refused.into_inner() {
            Push::Piece { data, .. } => data,
            _ => unreachable!("a piece was sent"),
        })
    }

    /// Pushes a piece as soon as there is room.
    pub(crate) async fn push(&self, offset: u64, data: Data) -> Result<()> {
        self.queue.send(Push::Piece { offset, data }).await.map_err(|_| gone())
    }

    /// Tells the size of the object: an upload needs it before its first byte.
    pub(crate) async fn size(&self, size_bytes: u64) {
        // A task that is gone has told why already.
        let _ = self.queue.send(Push::Size(size_bytes)).await;
    }

    /// The checksum of everything, once every byte was pushed; `None` without a hasher.
    pub(crate) async fn hash(&self) -> Result<Option<Checksum>> {
        let (answer, question) = oneshot::channel();
        self.queue.send(Push::Hash(answer)).await.map_err(|_| gone())?;
        question.await.map_err(|_| gone())
    }

    /// Writes what was held back and ends.
    pub(crate) async fn finish(&self) -> Result<()> {
        let (answer, question) = oneshot::channel();
        self.queue.send(Push::Finish(answer)).await.map_err(|_| gone())?;
        question.await.map_err(|_| gone())?
    }
}

/// What lanes see when the task has ended; the cause itself travels as a notice.
fn gone() -> Error {
    Error::new(ErrorKind::LocalIo, "the target takes no more bytes")
}

struct Drain {
    output: Output,
    hasher: Option<Hasher>,
    notices: mpsc::UnboundedSender<Notice>,
    pool: Pool,
    waiting: BTreeMap<u64, Data>,
    /// Everything before this was written (or, the last piece of an upload, is held back).
    next: u64,
    size_bytes: Option<u64>,
}

impl Drain {
    async fn run(mut self, mut pushes: mpsc::Receiver<Push>) {
        // What an upload keeps until the whole object is known to be right.
        let mut held: Option<Data> = None;
        while let Some(push) = pushes.recv().await {
            let outcome = match push {
                Push::Piece { offset, data } => {
                    self.waiting.insert(offset, data);
                    self.advance(&mut held).await
                }
                Push::Size(size_bytes) => {
                    self.size_bytes = Some(size_bytes);
                    self.advance(&mut held).await
                }
                Push::Hash(answer) => {
                    let _ = answer.send(self.hasher.clone().map(Hasher::finish));
                    Ok(())
                }
                Push::Finish(answer) => {
                    let _ = answer.send(self.finish(held.take()).await);
                    return;
                }
            };
            if let Err(error) = outcome {
                let _ = self.notices.send(Notice::LocalFailure { error });
                return;
            }
        }
    }

    async fn advance(&mut self, held: &mut Option<Data>) -> Result<()> {
        if let Output::Upload(upload) = &mut self.output {
            let Some(size_bytes) = self.size_bytes else { return Ok(()) };
            upload.begin(size_bytes).await?;
        }
        let before = self.next;
        while let Some(data) = self.waiting.remove(&self.next) {
            self.next += data.len() as u64;
            if let Some(hasher) = &mut self.hasher {
                hasher.update(&data);
            }
            match &mut self.output {
                Output::Upload(_) if Some(self.next) == self.size_bytes => *held = Some(data),
                Output::Upload(upload) => {
                    upload.write(&data).await?;
                    self.recycle(data);
                }
                Output::File(file) => {
                    let written = tokio::task::block_in_place(|| file.write_all(&data));
                    written.map_err(|cause| Error::local_io("cannot write to the target", &cause))?;
                    self.recycle(data);
                }
            }
        }
        if self.next > before {
            let _ = self.notices.send(Notice::Released { up_to_bytes: self.next });
        }
        Ok(())
    }

    async fn finish(&mut self, held: Option<Data>) -> Result<()> {
        match &mut self.output {
            Output::File(file) => {
                file.flush().map_err(|cause| Error::local_io("cannot write to the target", &cause))
            }
            Output::Upload(upload) => {
                upload.begin(self.size_bytes.unwrap_or(0)).await?;
                if let Some(data) = held {
                    upload.write(&data).await?;
                }
                upload.finish().await
            }
        }
    }

    fn recycle(&self, data: Data) {
        if let Data::Buffer(buf, _) = data {
            self.pool.give(buf);
        }
    }
}
