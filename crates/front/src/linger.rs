//! The end of a connection on which the client may still send: our direction ends, and what comes is read and dropped.
//!
//! Most programs that send a large body look at the answer when they have sent all of it. If the connection were closed
//! before, the kernel would answer what they still send with a reset, and they would see that instead of the answer
//! that explains it. So it is read for as long as bytes go on coming; not for ever, and a client that sends nothing is
//! not waited for.

use std::io;

use gridlane_core::limits;
use gridlane_net::Stream;
use tokio::time::timeout;

use crate::settings::Deadlines;

/// Bytes that are dropped at a time, at first: most clients send nothing more.
const READ_BYTES_MIN: usize = 4 * 1024;
/// The same of a client that goes on sending.
const READ_BYTES_MAX: usize = 64 * 1024;

/// Ends our direction, then reads and drops what the client still sends. When this returns the connection can be closed.
pub(crate) async fn linger(stream: &mut Stream, deadlines: &Deadlines) {
    let drained = async {
        timeout(deadlines.linger, stream.shutdown()).await??;
        let mut buffer = vec![0; READ_BYTES_MIN];
        let mut dropped = 0;
        while dropped < limits::BODY_DRAIN_BYTES_MAX {
            match timeout(deadlines.linger, stream.read(&mut buffer)).await?? {
                0 => break,
                count => {
                    dropped += count as u64;
                    if count == buffer.len() {
                        buffer = vec![0; READ_BYTES_MAX];
                    }
                }
            }
        }
        Ok::<(), io::Error>(())
    };
    // Whatever comes of it, the connection ends now.
    let _ = timeout(deadlines.linger_whole, drained).await;
}
