//! The data plane of a GET: bytes of an object to a stream, in a plain loop.
//!
//! Without TLS, and where the object is a file, the kernel moves the bytes (`sendfile`): no copy into
//! this process. `sendfile` of bytes that are not in the page cache would wait for the disk on a thread that
//! serves other clients, so each step first asks for its first and last byte without waiting; if either
//! would wait, the whole step is read where blocking is allowed and sent from the buffer it is then in.
//!
//! With TLS the bytes have to pass through this process anyway: 64 KiB at a time, encrypted while they
//! are in the second-level cache.
//!
//! A client that takes bytes faster than they are sent never makes a loop wait, so each step also asks the
//! runtime whether it is somebody else's turn.
//!
//! A file that turns out shorter than it was ends the connection: the client was promised a length, and
//! padding would be a lie.

use std::fs::File;
use std::io;
use std::time::Duration;

use gridlane_core::{ByteRange, limits};
use gridlane_net::Stream;
use gridlane_store::Object;
use tokio::task::coop::consume_budget;
use tokio::time::timeout;

use crate::shared::Shared;

/// Bytes of one `sendfile` step, between two looks at the page cache.
const SENDFILE_BYTES: usize = 512 * 1024;

/// Bytes encrypted at a time.
const TLS_BYTES: usize = 64 * 1024;

/// Sends `range` of `object`; counts in `sent` also when it fails half-way.
pub(crate) async fn send_object(
    shared: &Shared,
    stream: &mut Stream,
    object: &dyn Object,
    range: ByteRange,
    sent: &mut u64,
) -> io::Result<()> {
    let file = object.as_file().filter(|_| !stream.is_tls());
    let mut at = range.start();
    while at < range.end() {
        let left = usize::try_from(range.end() - at).unwrap_or(usize::MAX);
        let step = left.min(if file.is_some() { SENDFILE_BYTES } else { limits::IO_BYTES });
        let step = match &shared.pace {
            Some(pace) => pace.ready(step).await,
            None => step,
        };
        let moved = match file {
            Some(file) if is_in_page_cache(object, at, step)? => {
                send_file_step(stream, file, at, step, shared.deadlines.body_stall, sent).await?
            }
            _ => send_buffered_step(shared, stream, object, at, step, sent).await?,
        };
        at += moved as u64;
    }
    Ok(())
}

/// Whether the first and the last byte of a step can be read without waiting. What lies between was
/// brought in by the same read-ahead, nearly always.
fn is_in_page_cache(object: &dyn Object, at: u64, len: usize) -> io::Result<bool> {
    let mut probe = [0];
    Ok(object.read_at_nowait(&mut probe, at)?.is_some()
        && object.read_at_nowait(&mut probe, at + len as u64 - 1)?.is_some())
}

/// Sends all of a step, however often the socket is full.
async fn send_file_step(
    stream: &mut Stream,
    file: &File,
    at: u64,
    len: usize,
    stall: Duration,
    sent: &mut u64,
) -> io::Result<usize> {
    let mut done = 0;
    while done < len {
        consume_budget().await;
        let step = stream.send_file(file, at + done as u64, len - done);
        match timeout(stall, step).await.map_err(|_| stalled())?? {
            0 => return Err(shrunk()),
            moved => {
                done += moved;
                *sent += moved as u64;
            }
        }
    }
    Ok(done)
}

/// Sends a part of a step, as much as one read gives, through a buffer.
async fn send_buffered_step(
    shared: &Shared,
    stream: &mut Stream,
    object: &dyn Object,
    at: u64,
    len: usize,
    sent: &mut u64,
) -> io::Result<usize> {
    let mut buffer = shared.buffers.lend();
    let len = len.min(buffer.len());
    let mut done = 0;
    while done < len {
        let offset = at + done as u64;
        let warm = (len - done).min(TLS_BYTES);
        let count = match object.read_at_nowait(&mut buffer[..warm], offset)? {
            Some(count) => count,
            None => shared.disk.run(|| object.read_at(&mut buffer[..len - done], offset)).await?,
        };
        if count == 0 {
            return Err(shrunk());
        }
        write(stream, &buffer[..count], shared.deadlines.body_stall, sent).await?;
        done += count;
    }
    Ok(done)
}

/// Writes `bytes` in pieces small enough that a piece is progress.
pub(crate) async fn write(
    stream: &mut Stream,
    bytes: &[u8],
    stall: Duration,
    sent: &mut u64,
) -> io::Result<()> {
    for piece in bytes.chunks(TLS_BYTES) {
        consume_budget().await;
        timeout(stall, stream.write_all(piece)).await.map_err(|_| stalled())??;
        *sent += piece.len() as u64;
    }
    Ok(())
}

fn stalled() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client took no byte for too long")
}

fn shrunk() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was sent")
}
