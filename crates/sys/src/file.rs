//! File reads that do not wait for a disk, and writeback that starts early.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::fstatfs;
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};

/// `f_type` of tmpfs and ramfs (linux/magic.h).
const TMPFS_MAGIC: i128 = 0x0102_1994;
const RAMFS_MAGIC: i128 = 0x8584_58f6;

/// A way to read the files of one file system without waiting for a device. Decided once for each file
/// system, not at every read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheProbe {
    /// Its bytes are behind a device or a network: only what the kernel gives without waiting counts.
    Device,
    /// It is memory (tmpfs, ramfs), and no read of it ever waits.
    Memory,
}

impl CacheProbe {
    /// For the file system that an open file or directory is on. What cannot be told counts as a device.
    pub fn of(descriptor: impl AsFd) -> CacheProbe {
        match fstatfs(descriptor) {
            // The type of the field differs between architectures.
            Ok(stat) if [TMPFS_MAGIC, RAMFS_MAGIC].contains(&i128::from(stat.f_type)) => CacheProbe::Memory,
            _ => CacheProbe::Device,
        }
    }

    /// Reads at `offset` only what is in the page cache already.
    ///
    /// `None`: the read would wait for the device, or that cannot be told: network file systems and FUSE do
    /// not know the flag, and a plain read of theirs may wait for ever.
    pub fn read_at(self, file: &File, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        if self == CacheProbe::Device {
            return self.read_vectored_at(file, &mut [IoSliceMut::new(buf)], offset);
        }
        // Without a flag there is nothing that the plain call cannot do, and it costs less.
        match pread(file, buf, offset) {
            Ok(read) => Ok(Some(read)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(cause) => Err(cause.into()),
        }
    }

    /// The same into several buffers, one behind the other: at most 1024 (`IOV_MAX`).
    pub fn read_vectored_at(
        self,
        file: &File,
        targets: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> io::Result<Option<usize>> {
        // Of memory the kernel may refuse to promise what goes without saying.
        let flags = match self {
            CacheProbe::Memory => ReadWriteFlags::empty(),
            CacheProbe::Device => ReadWriteFlags::NOWAIT,
        };
        match preadv2(file, targets, offset, flags) {
            Ok(read) => Ok(Some(read)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) if self == CacheProbe::Device => Ok(None),
            Err(cause) => Err(cause.into()),
        }
    }
}

/// True if a descriptor is of a file system of this machine alone, whose names no other one changes: to look again at
/// a name that was found a moment ago takes the kernel's memory and no device. What cannot be told is none.
pub fn has_local_names(descriptor: impl AsFd) -> bool {
    // ext2 to ext4, XFS, Btrfs, F2FS, ZFS.
    const DISKS: [i128; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x2fc1_2fc1];
    // The type of the field differs between architectures, its low 32 bits do not.
    fstatfs(descriptor).is_ok_and(|stat| {
        let kind = i128::from(stat.f_type) & 0xffff_ffff;
        [TMPFS_MAGIC, RAMFS_MAGIC].contains(&kind) || DISKS.contains(&kind)
    })
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
        let probe = CacheProbe::of(&file);
        if let Some(read) = probe.read_at(&file, &mut buf, 3).unwrap() {
            assert_eq!(&buf[..read], b"3456");
        }
        assert!(matches!(probe.read_at(&file, &mut buf, 10).unwrap(), Some(0) | None));
    }

    #[test]
    fn who_does_not_know_the_flag_is_not_read_unless_it_is_memory() {
        // procfs makes its bytes at every read, and refuses the flag as a network file system does.
        let file = File::open("/proc/self/status").unwrap();
        assert_eq!(CacheProbe::of(&file), CacheProbe::Device);
        let mut buf = [0; 4];
        assert_eq!(CacheProbe::Device.read_at(&file, &mut buf, 0).unwrap(), None);
        assert_eq!(CacheProbe::Memory.read_at(&file, &mut buf, 0).unwrap(), Some(4));
        if let Ok(memory) = File::open("/dev/shm") {
            assert_eq!(CacheProbe::of(&memory), CacheProbe::Memory);
            assert!(has_local_names(&memory));
        }
        assert!(!has_local_names(&file));
    }
}
