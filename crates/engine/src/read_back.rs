//! Bytes that are in a file already, read again and compared with what is known of them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use gridlane_core::ByteRange;
use gridlane_core::checksum::{ADLER32_EMPTY, adler32, adler32_combine};
use gridlane_core::limits::IO_BYTES;
use gridlane_store::journal::JournaledRange;
use gridlane_sys::AlignedBuf;

/// The ranges whose bytes have the checksum that is claimed for them.
pub(crate) fn matching(file: &File, done: &[JournaledRange]) -> Vec<JournaledRange> {
    done.iter().copied().filter(|done| adler32_of(file, done.range, |_| {}) == Some(done.adler32)).collect()
}

/// The adler32 of a range of a file, all of which goes through `take` as well; `None` when it cannot be
/// read.
pub(crate) fn adler32_of(file: &File, range: ByteRange, mut take: impl FnMut(&[u8])) -> Option<u32> {
    let mut sum = ADLER32_EMPTY;
    let read = read_range(file, range, |bytes| {
        sum = adler32_combine(sum, adler32(bytes), bytes.len() as u64);
        take(bytes);
    });
    read.ok().map(|()| sum)
}

/// Reads all of a range of a file.
pub(crate) fn read_range(file: &File, range: ByteRange, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut buf = AlignedBuf::new(range.len().clamp(1, IO_BYTES as u64) as usize);
    let mut at = range.start();
    while at < range.end() {
        let room = (range.end() - at).min(buf.len() as u64) as usize;
        file.read_exact_at(&mut buf[..room], at)?;
        take(&buf[..room]);
        at += room as u64;
    }
    Ok(())
}
