//! Bytes that are in a file already, read again and compared with what is known of them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use gridlane_core::ByteRange;
use gridlane_core::limits::IO_BYTES;
use gridlane_plan::judge::{Reader, adler32_of};
use gridlane_store::journal::JournaledRange;
use gridlane_sys::AlignedBuf;

/// Reads a file for the judge.
pub(crate) struct OfFile<'a>(pub(crate) &'a File);

impl Reader for OfFile<'_> {
    fn read(&self, range: ByteRange, take: &mut dyn FnMut(&[u8])) -> bool {
        read_range(self.0, range, take).is_ok()
    }
}

/// The ranges whose bytes have the checksum that is claimed for them.
pub(crate) fn matching(file: &File, done: &[JournaledRange]) -> Vec<JournaledRange> {
    let has_it = |done: &&JournaledRange| adler32_of(&OfFile(file), done.range, |_| {}) == Some(done.adler32);
    done.iter().filter(has_it).copied().collect()
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
