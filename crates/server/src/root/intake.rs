//! `write`, `pgwrite`, `writev`: bytes of a client become bytes of files. And `chkpoint`, which may bring some and does
//! nothing with them.
//!
//! The data plane of uploads: bytes go from the socket into a page-aligned buffer, are hashed while they are in cache,
//! and are written from the same buffer. A request may bring 2 GiB, and there is never more of it in memory than the
//! buffer.
//!
//! The owner of the connection fills the buffer, and can do other things while it waits for bytes:
//!
//! ```text
//! new ─▶ room, took … until there is no room ─▶ write ─┬▶ room …
//!                                                      └▶ is_done ─▶ finish: the answer
//! ```
//!
//! Of a request that fails the bytes are taken all the same, so that the connection goes on; but where their number is
//! not known, it is done at once, and its failure ends the connection.

use std::collections::VecDeque;
use std::sync::Arc;

use gridlane_core::checksum::adler32;
use gridlane_core::{ByteRange, limits};
use gridlane_store::StoreError;
use gridlane_xrd::answer::Corrections;
use gridlane_xrd::frame::REQUEST_HEAD_BYTES;
use gridlane_xrd::pages::{self, WrongPages};
use gridlane_xrd::registry::ChkpointKind;
use gridlane_xrd::request::{Call, Chkpoint, PgWrite, Segment, Write, WriteV};
use gridlane_xrd::{ErrorCode, Handle, Malformed, PathId, RequestHead, RequestId};

use super::files::{Changing, OpenFile};
use super::pages_in::{CheckedPages, data_that_fits};
use super::places::Context;
use gridlane_front::metrics::Metrics;
use gridlane_front::root::answer::{Answer, Failure, Outcome};
use gridlane_front::root::sink::Sink;
use gridlane_sys::ReusedBuf;

/// A request whose bytes are coming.
pub struct Intake {
    context: Context,
    head: RequestHead,
    work: Work,
    /// Bytes that are not in the buffer yet.
    left: u64,
    buffer: ReusedBuf,
    filled: usize,
    /// Bytes of the buffer that belong together.
    step: usize,
    failure: Option<Failure>,
}

/// The use of the bytes.
enum Work {
    /// They name the places of the bytes behind them: the list of `writev`.
    List,
    /// They are the head of another request, which `chkpoint` is to do.
    Inner,
    /// They are written one behind the other.
    Bytes {
        /// The ranges that are still to be written.
        elements: VecDeque<Element>,
        /// The files that have to be on the device before the answer.
        syncs: Vec<Arc<OpenFile>>,
    },
    /// They are pages with checksums.
    Pages(Pages),
    /// Nothing: the request has failed.
    Nothing,
}

/// A place for bytes.
type Element = (Arc<OpenFile>, ByteRange);

struct Pages {
    file: Arc<OpenFile>,
    offset: u64,
    /// The range that is still to be written.
    left: ByteRange,
    /// The page that is sent again, if that is what it is.
    retried: Option<(u64, usize)>,
    wrong: WrongPages,
}

impl Intake {
    /// Begins to take what follows the head of a request. What is wrong with it is told by
    /// [`finish`](Sink::finish).
    pub(crate) fn new(context: &Context, head: &RequestHead) -> Intake {
        let buffer = context.front().data.buffers.lend();
        let mut intake = Intake {
            context: context.clone(),
            head: *head,
            work: Work::Nothing,
            left: head.payload_len.into(),
            buffer,
            filled: 0,
            step: 0,
            failure: None,
        };
        match intake.begin() {
            Ok(work) => intake.work = work,
            Err(failure) => intake.fail(failure),
        }
        intake.begin_step();
        intake
    }

    fn begin(&self) -> Result<Work, Failure> {
        const LIST_BYTES_MAX: u64 = (limits::ROOT_VECTOR_ELEMENTS_MAX * Segment::BYTES) as u64;
        let RequestHead { id, body, .. } = &self.head;
        match *id {
            RequestId::WRITE => {
                let write = Write::parse(body, &[])?;
                check_path_id(write.path_id)?;
                let element = (write.handle, ByteRange::at(write.offset, self.left));
                let elements = elements(&self.context, "write", [element])?;
                Ok(Work::Bytes { elements, syncs: Vec::new() })
            }
            RequestId::PGWRITE => {
                let write = PgWrite::parse(body, &[])?;
                check_path_id(write.path_id)?;
                Pages::new(&self.context, &write, self.left).map(Work::Pages)
            }
            RequestId::WRITEV if self.left == 0 => {
                Err(Failure::new(ErrorCode::ARG_INVALID, "Write vector is invalid"))
            }
            RequestId::WRITEV if self.left > LIST_BYTES_MAX => {
                Err(Failure::new(ErrorCode::ARG_TOO_LONG, "Write vector is too long"))
            }
            RequestId::WRITEV => Ok(Work::List),
            RequestId::CHKPOINT if Chkpoint::parse(body, &[])?.kind != ChkpointKind::EXECUTE => {
                Err(no_checkpoints())
            }
            RequestId::CHKPOINT if self.left == REQUEST_HEAD_BYTES as u64 => Ok(Work::Inner),
            RequestId::CHKPOINT => {
                let what = "the request of a checkpoint has no head";
                Err(Failure::new(ErrorCode::ARG_INVALID, what).closing())
            }
            _ => Err(Failure::new(ErrorCode::INVALID_REQUEST, "Invalid request code").closing()),
        }
    }

    /// Fails the request: the rest is not written.
    fn fail(&mut self, mut failure: Failure) {
        match std::mem::replace(&mut self.work, Work::Nothing) {
            Work::Bytes { elements, .. } => {
                for (file, range) in elements {
                    if let Ok(changing) = file.changing("write") {
                        changing.failed(range);
                    }
                }
            }
            Work::Pages(Pages { file, left, .. }) => {
                if let Ok(changing) = file.changing("write") {
                    changing.failed(left);
                }
            }
            Work::List | Work::Inner | Work::Nothing => {}
        }
        // Its data are not counted where others' are: any failure ends the connection, as in XRootD.
        failure.closes |= self.head.id == RequestId::WRITEV;
        self.failure = Some(failure);
    }

    fn begin_step(&mut self) {
        let room = self.buffer.len();
        let wanted = match &self.work {
            Work::Pages(pages) => {
                let data = data_that_fits(pages.left, room);
                pages::framed_len(pages.left.start(), data)
            }
            Work::List | Work::Inner | Work::Bytes { .. } | Work::Nothing => room as u64,
        };
        self.step = usize::try_from(wanted.min(self.left)).unwrap_or(room).min(room);
    }
}

impl Sink for Intake {
    fn room(&mut self) -> &mut [u8] {
        self.buffer.get_mut(self.filled..self.step).unwrap_or_default()
    }

    fn took(&mut self, count: usize) {
        debug_assert!(self.filled + count <= self.step);
        self.filled += count;
        self.left = self.left.saturating_sub(count as u64);
    }

    fn is_done(&self) -> bool {
        (self.left == 0 && self.filled == 0) || self.failure.as_ref().is_some_and(|failure| failure.closes)
    }

    async fn write(&mut self) {
        let bytes = &self.buffer[..self.filled];
        let metrics = &*self.context.front().data.metrics;
        let written = match &mut self.work {
            Work::List => match list(&self.context, &self.head.body, bytes) {
                Ok((work, len)) => {
                    self.work = work;
                    self.left = len;
                    Ok(())
                }
                Err(failure) => Err(failure),
            },
            Work::Inner => match counted(&self.head, bytes) {
                Ok(len) => {
                    self.left = len;
                    Err(no_checkpoints())
                }
                Err(failure) => Err(failure),
            },
            Work::Bytes { elements, .. } => write_bytes(metrics, elements, bytes).await,
            Work::Pages(pages) => pages.write(metrics, bytes).await,
            Work::Nothing => Ok(()),
        };
        if let Err(failure) = written {
            self.fail(failure);
        }
        self.filled = 0;
        self.begin_step();
    }

    async fn finish(self) -> Outcome {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        match self.work {
            Work::Bytes { syncs, .. } => {
                for file in syncs {
                    let changing = file.changing("sync")?;
                    let synced = changing.file().sync().await;
                    synced.map_err(|error| Failure::of_store("sync", &file.path, &error))?;
                }
                Ok(Answer::done())
            }
            Work::Pages(pages) => Ok(pages.answer()),
            Work::List | Work::Inner | Work::Nothing => Ok(Answer::done()),
        }
    }
}

/// The files and ranges of a list of `writev`, and the number of bytes that follow it.
fn list(context: &Context, body: &[u8; 16], list: &[u8]) -> Result<(Work, u64), Failure> {
    let request = WriteV::parse(body, list)?;
    let ranges = request.segments.iter();
    let ranges = ranges.map(|segment| (segment.handle, ByteRange::at(segment.offset, segment.len.into())));
    let elements = elements(context, "writev", ranges)?;
    let mut syncs = Vec::new();
    if request.syncs {
        syncs.extend(elements.iter().map(|(file, _)| Arc::clone(file)));
        syncs.dedup_by(|one, other| Arc::ptr_eq(one, other));
    }
    Ok((Work::Bytes { elements, syncs }, request.data_len()))
}

/// The number of bytes that follow the request of a checkpoint, where it is known.
fn counted(outer: &RequestHead, inner: &[u8]) -> Result<u64, Failure> {
    let inner = match inner.first_chunk() {
        Some(inner) => RequestHead::parse(inner)?,
        None => return Err(no_checkpoints().closing()),
    };
    match inner.id {
        RequestId::WRITE | RequestId::PGWRITE | RequestId::TRUNCATE if inner.stream == outer.stream => {
            Ok(inner.payload_len.into())
        }
        _ => Err(no_checkpoints().closing()),
    }
}

fn no_checkpoints() -> Failure {
    Failure::new(ErrorCode::UNSUPPORTED, "checkpoints are not supported")
}

/// The bytes come on this connection. With another path id they would come on another one, and what comes here instead
/// is not known.
fn check_path_id(path_id: PathId) -> Result<(), Failure> {
    match path_id {
        PathId::MAIN => Ok(()),
        _ => Err(Failure::new(ErrorCode::ARG_INVALID, "invalid path ID").closing()),
    }
}

/// The files and ranges that are to be written: none, if one of them cannot be.
fn elements(
    context: &Context,
    act: &str,
    ranges: impl IntoIterator<Item = (Handle, ByteRange)>,
) -> Result<VecDeque<Element>, Failure> {
    let element = |(handle, range)| {
        let file = context.session.files.get(handle, act)?;
        writable(&file, range)?;
        Ok((file, range))
    };
    ranges.into_iter().map(element).collect()
}

/// The file, if these bytes can be written to it.
fn writable(file: &OpenFile, range: ByteRange) -> Result<&Changing, Failure> {
    let changing = file.changing("write")?;
    file.check_size("write", range.end()).inspect_err(|_| changing.failed(range))?;
    Ok(changing)
}

/// Writes bytes to the places that come next: in one call what belongs to one file.
async fn write_bytes(
    metrics: &Metrics,
    elements: &mut VecDeque<Element>,
    mut bytes: &[u8],
) -> Result<(), Failure> {
    while let (Some((file, _)), false) = (elements.front(), bytes.is_empty()) {
        let file = Arc::clone(file);
        let changing = file.changing("write")?;
        let (mut parts, mut written) = (Vec::new(), Vec::new());
        for (_, range) in elements.iter().take_while(|(next, _)| Arc::ptr_eq(next, &file)) {
            let (now, _) = range.split_at(range.start().saturating_add(bytes.len() as u64));
            let (these, behind) = bytes.split_at(now.len() as usize);
            // While they are in cache.
            written.push((now, adler32(these)));
            parts.push((now.start(), these));
            file.count_written(metrics, now.len());
            bytes = behind;
            if bytes.is_empty() {
                break;
            }
        }
        let outcome = match parts.as_slice() {
            [(offset, bytes)] => changing.file().write_at(bytes, *offset).await,
            parts => changing.file().write_parts(parts).await,
        };
        outcome.map_err(|error| failed(&file, &error))?;
        for (now, adler32) in written {
            changing.wrote(now, adler32);
            if let Some((_, range)) = elements.front_mut() {
                *range = range.split_at(now.end()).1;
            }
            if elements.front().is_some_and(|(_, left)| left.is_empty()) {
                elements.pop_front();
            }
        }
    }
    Ok(())
}

impl Pages {
    fn new(context: &Context, request: &PgWrite, framed_len: u64) -> Result<Pages, Failure> {
        // Where its layout makes no sense, XRootD's servers stop listening as well.
        let invalid = |what| Failure::from(Malformed::new(ErrorCode::ARG_INVALID, what).closing());
        if framed_len == 0 {
            return Err(invalid("pgwrite length is invalid"));
        }
        let len =
            pages::data_len(request.offset, framed_len).ok_or_else(|| invalid("last page too short"))?;
        if request.is_retry && pages::count(request.offset, len) > 1 {
            let what = "pgwrite retry of more than one page not allowed";
            return Err(Failure::new(ErrorCode::ARG_INVALID, what));
        }
        let file = context.session.files.get(request.handle, "pgwrite")?;
        let range = ByteRange::at(request.offset, len);
        writable(&file, range)?;
        // A page is short.
        let retried = request.is_retry.then_some((request.offset, len as usize));
        Ok(Pages { file, offset: request.offset, left: range, retried, wrong: WrongPages::new() })
    }

    /// Writes pages that come with their checksums.
    async fn write(&mut self, metrics: &Metrics, framed: &[u8]) -> Result<(), Failure> {
        let changing = self.file.changing("write")?;
        let len = pages::data_len(self.left.start(), framed.len() as u64).unwrap_or(0);
        let (now, later) = self.left.split_at(self.left.start().saturating_add(len));
        self.file.count_written(metrics, now.len());
        let checked = CheckedPages::of(now, framed);
        let written = changing.file().write_vectored_at(&checked.pages, now.start()).await;
        written.map_err(|error| failed(&self.file, &error))?;
        for (range, adler32) in &checked.right {
            changing.wrote(*range, *adler32);
        }
        for page in checked.wrong {
            if self.wrong.len() >= limits::ROOT_WRONG_PAGES_PER_REQUEST_MAX {
                let text = "Too many checksum errors in request";
                return Err(Failure::new(ErrorCode::TOO_MANY_ERRORS, text));
            }
            changing.add_wrong(page)?;
            self.wrong.push(page);
        }
        self.left = later;
        if let (Some(page), true) = (self.retried, self.wrong.is_empty()) {
            changing.corrected(page);
        }
        Ok(())
    }

    fn answer(self) -> Answer {
        Answer::PageStatus { offset: self.offset, corrections: Corrections::of(&self.wrong) }
    }
}

fn failed(file: &OpenFile, error: &StoreError) -> Failure {
    Failure::of_store("write", &file.path, error)
}

#[cfg(test)]
mod tests;
