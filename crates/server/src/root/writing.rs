//! `write`, `pgwrite`, `writev`: bytes of a client become bytes of files. And `truncate`.
//!
//! The data plane of uploads: bytes go from the socket into a page-aligned buffer, are hashed while they are in
//! cache, and are written from the same buffer, where blocking is allowed. A request may bring 2 GiB, and there is
//! never more of it in memory than the buffer.
//!
//! A request that fails has its bytes read all the same, so that the connection goes on; but where nobody knows how
//! many there are, it ends.

use gridlane_core::checksum::adler32;
use gridlane_core::{ByteRange, limits};
use gridlane_store::{Disposition, StoreError, WriteOptions};
use gridlane_xrd::registry::ChkpointKind;
use gridlane_xrd::request::{About, Call, Chkpoint, PgWrite, Segment, Truncate, Write, WriteV};
use gridlane_xrd::{ErrorCode, PathId, RequestHead, RequestId};

use super::answer::{Answer, Failure, Outcome};
use super::context::Context;
use super::files::{Changing, OpenFile};
use super::pages_in;
use super::payload::Payload;
use crate::body::Wire;
use crate::rules::Operation;

/// Whether a request is for [`receive`]: bytes of files are in its payload, or behind it.
pub(crate) fn receives(id: RequestId) -> bool {
    matches!(id, RequestId::WRITE | RequestId::PGWRITE | RequestId::WRITEV | RequestId::CHKPOINT)
}

/// Answers a request that [brings bytes](receives). All that follows its head is read here; after a failure that
/// does not close the connection, the next head comes next.
pub(crate) async fn receive(context: &Context, wire: &mut Wire, head: &RequestHead) -> Outcome {
    let mut payload = Payload::new(context, wire, head.payload_len.into());
    let outcome = match head.id {
        RequestId::WRITE => write(context, &mut payload, head).await,
        RequestId::PGWRITE => pages(context, &mut payload, head).await,
        RequestId::WRITEV => vector(context, &mut payload, head).await,
        RequestId::CHKPOINT => checkpoint(&mut payload, head).await,
        _ => Err(Failure::new(ErrorCode::INVALID_REQUEST, "Invalid request code")),
    };
    match outcome {
        Err(failure) if failure.closes => Err(failure),
        outcome => payload.drain().await.and(outcome),
    }
}

/// `write`.
async fn write(context: &Context, payload: &mut Payload<'_>, head: &RequestHead) -> Outcome {
    let request = Write::parse(&head.body, &[])?;
    check_path_id(request.path_id)?;
    let file = context.session.files.get(request.handle)?;
    let len = payload.left();
    write_range(context, payload, &file, ByteRange::at(request.offset, len)).await?;
    Ok(Answer::done())
}

/// `pgwrite`.
async fn pages(context: &Context, payload: &mut Payload<'_>, head: &RequestHead) -> Outcome {
    let request = PgWrite::parse(&head.body, &[])?;
    check_path_id(request.path_id)?;
    let range = pages_in::range_of(&request, payload.left())?;
    let file = context.session.files.get(request.handle)?;
    let changing = writable(&file, range)?;
    let corrections = pages_in::receive(context, payload, &file, changing, range, request.is_retry)
        .await
        .inspect_err(|_| changing.failed(range))?;
    Ok(Answer::PageStatus { offset: request.offset, corrections })
}

/// `writev`: any failure ends the connection, as in XRootD, since its bytes are not counted where others' are.
async fn vector(context: &Context, payload: &mut Payload<'_>, head: &RequestHead) -> Outcome {
    segments(context, payload, head).await.map_err(Failure::closing)
}

async fn segments(context: &Context, payload: &mut Payload<'_>, head: &RequestHead) -> Outcome {
    const LIST_BYTES_MAX: usize = limits::ROOT_VECTOR_ELEMENTS_MAX * Segment::BYTES;
    let list_len = match usize::try_from(payload.left()) {
        Ok(len) if len <= LIST_BYTES_MAX => len,
        _ => return Err(Failure::new(ErrorCode::ARG_TOO_LONG, "Write vector is too long")),
    };
    let mut list = vec![0; list_len];
    payload.fill(&mut list).await?;
    let request = WriteV::parse(&head.body, &list)?;
    payload.extend(request.data_len());
    // Nothing is written when one of them cannot be.
    let mut elements = Vec::with_capacity(request.segments.len());
    for segment in &request.segments {
        let file = context.session.files.get(segment.handle)?;
        let range = ByteRange::at(segment.offset, segment.len.into());
        writable(&file, range)?;
        elements.push((file, range));
    }
    for (file, range) in &elements {
        write_range(context, payload, file, *range).await?;
    }
    if request.syncs {
        elements.dedup_by(|one, other| std::sync::Arc::ptr_eq(&one.0, &other.0));
        for (file, _) in &elements {
            let changing = file.changing("sync")?;
            let synced = context.shared.disk.run(|| changing.file().sync()).await;
            synced.map_err(|error| Failure::of_store("sync", &file.path, &error))?;
        }
    }
    Ok(Answer::done())
}

/// `chkpoint`: there are none. What one would do within it comes with its own bytes, and is not done.
async fn checkpoint(payload: &mut Payload<'_>, head: &RequestHead) -> Outcome {
    let refused = Failure::new(ErrorCode::UNSUPPORTED, "checkpoints are not supported");
    let is_execute = Chkpoint::parse(&head.body, &[])?.kind == ChkpointKind::EXECUTE;
    if !is_execute {
        return Err(refused);
    }
    let mut inner = [0; gridlane_xrd::frame::REQUEST_HEAD_BYTES];
    if payload.left() != inner.len() as u64 {
        return Err(Failure::new(ErrorCode::ARG_INVALID, "the request of a checkpoint has no head").closing());
    }
    payload.fill(&mut inner).await?;
    let inner = RequestHead::parse(&inner)?;
    match inner.id {
        RequestId::WRITE | RequestId::PGWRITE | RequestId::TRUNCATE if inner.stream == head.stream => {
            payload.extend(inner.payload_len.into());
            Err(refused)
        }
        // More follows, and nobody counts it.
        _ => Err(refused.closing()),
    }
}

/// Receives the next bytes of the payload and writes them.
async fn write_range(
    context: &Context,
    payload: &mut Payload<'_>,
    file: &OpenFile,
    range: ByteRange,
) -> Result<(), Failure> {
    let changing = writable(file, range)?;
    let outcome = write_pieces(context, payload, file, changing, range).await;
    outcome.inspect_err(|_| changing.failed(range))
}

async fn write_pieces(
    context: &Context,
    payload: &mut Payload<'_>,
    file: &OpenFile,
    changing: &Changing,
    range: ByteRange,
) -> Result<(), Failure> {
    if range.is_empty() {
        return Ok(());
    }
    let mut buffer = context.shared.buffers.lend();
    let mut left = range;
    while !left.is_empty() {
        let (now, later) = left.split_at(left.start() + buffer.len() as u64);
        let bytes = &mut buffer[..now.len() as usize];
        payload.fill(bytes).await?;
        file.count_written(&context.shared, now.len());
        let write = || {
            // While they are in cache.
            let adler32 = adler32(bytes);
            changing.file().write_at(bytes, now.start()).map(|()| changing.wrote(now, adler32))
        };
        let written = context.shared.disk.run(write).await;
        written.map_err(|error| Failure::of_store("write", &file.path, &error))?;
        left = later;
    }
    Ok(())
}

/// The file, if these bytes can be written to it.
fn writable(file: &OpenFile, range: ByteRange) -> Result<&Changing, Failure> {
    let changing = file.changing("write")?;
    file.check_size("write", range.end()).inspect_err(|_| changing.failed(range))?;
    Ok(changing)
}

/// The bytes come on this connection. With another path id they would come on another one, and nobody knows what
/// comes here instead.
fn check_path_id(path_id: PathId) -> Result<(), Failure> {
    match path_id {
        PathId::MAIN => Ok(()),
        _ => Err(Failure::new(ErrorCode::ARG_INVALID, "invalid path ID").closing()),
    }
}

/// `truncate`.
pub(crate) async fn truncate(context: &Context, request: &Truncate) -> Outcome {
    let size_bytes = request.size_bytes;
    match &request.about {
        About::Handle(handle) => {
            let file = context.session.files.get(*handle)?;
            let changing = file.changing("truncate")?;
            file.check_size("truncate", size_bytes)?;
            // Before and after: of what is written at the same time nobody knows whether it came first.
            changing.cut();
            let outcome = context.shared.disk.run(|| changing.file().truncate(size_bytes)).await;
            outcome.map_err(|error| Failure::of_store("truncate", &file.path, &error))?;
        }
        About::Path(about) => {
            // As in XRootD, without regard to who has it open.
            const ACT: &str = "trunc";
            let spot = context.spot(about, ACT, Operation::Write)?;
            let truncate = || {
                if size_bytes > spot.export.upload_bytes_max {
                    return Err(StoreError::TooLarge);
                }
                let options = WriteOptions::new(Disposition::Existing);
                let file = spot.storage().open_writable(&spot.object, &options)?;
                file.truncate(size_bytes)?;
                file.close(&[]).map(|_| ())
            };
            let outcome = context.shared.disk.run(truncate).await;
            outcome.map_err(|error| Failure::of_store(ACT, &about.path, &error))?;
        }
    }
    Ok(Answer::done())
}
