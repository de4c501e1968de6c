//! File reads that do not wait for a disk, and writeback that starts early.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// Reads at `offset` only what is in the page cache already.
///
/// `None`: the read would wait for the device. File systems without the flag (tmpfs refuses it with
/// EOPNOTSUPP, and is memory anyway) are read plainly.
pub fn read_at_nowait(file: &File, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
    match preadv2(file, &mut [IoSliceMut::new(buf)], offset, ReadWriteFlags::NOWAIT) {
        Ok(read) => Ok(Some(read)),
        Err(Errno::AGAIN) => Ok(None),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => file.read_at(buf, offset).map(Some),
        Err(Errno::INTR) => Ok(None),
        Err(cause) => Err(cause.into()),
    }
}

/// Tells the kernel to start writing `len` bytes from `offset` to the device, without waiting for them,
/// so that a later sync finds little left to do. A hint: failure is of no consequence and not reported.
pub fn start_writeback(file: &File, offset: u64, len: u64) {
    let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return };
    // SAFETY: the descriptor is open for the duration of the call; the other arguments are numbers.
    unsafe {
        libc::sync_file_range(file.as_fd().as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn reads_what_was_just_written() {
        let path = std::env::temp_dir().join(format!("gridlane-sys-{}", std::process::id()));
        let mut file =
            File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(b"0123456789").unwrap();
        start_writeback(&file, 0, 10);
        let mut buf = [0; 4];
        // A page under writeback is still in the cache; another answer than the bytes would be a wait.
        if let Some(read) = read_at_nowait(&file, &mut buf, 3).unwrap() {
            assert_eq!(&buf[..read], b"3456");
        }
        assert_eq!(read_at_nowait(&file, &mut buf, 10).unwrap(), Some(0));
    }
}
