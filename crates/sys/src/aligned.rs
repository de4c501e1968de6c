//! Page-aligned buffers.
//!
//! The kernel copies with `rep movsb`, which on common CPUs is three to four times slower when the
//! destination lies 1 to 16 bytes ahead of the source modulo 4096. The allocator puts large buffers at
//! page + 16 and file pages start at 0: exactly that case. So buffers for I/O come from here.
//!
//! They are mappings of their own: a page takes memory when it is first written to, and all are given back at once.
//! An allocator would zero the whole buffer for a client that sends ten bytes, and after a crowd keep what it cannot
//! give back because something small lies behind it.

use std::alloc::{Layout, handle_alloc_error};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::{Mutex, PoisonError};

/// The alignment: a page of every architecture we run on, or a divisor of it.
pub const PAGE_BYTES: usize = 4096;

/// Zeroed memory of fixed length that starts at a page boundary.
pub struct AlignedBuf {
    start: NonNull<u8>,
    layout: Layout,
}

impl AlignedBuf {
    /// `len` zeroed bytes at a page boundary; `len` must not be 0.
    ///
    /// # Panics
    /// When `len` is 0 or larger than the address space.
    pub fn new(len: usize) -> AlignedBuf {
        assert!(len > 0, "an empty buffer has no address");
        let layout = Layout::from_size_align(len, PAGE_BYTES).expect("the length fits the address space");
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, wherever the kernel has room, of a length that is not 0. It is zeroed, and begins at
        // a page.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            handle_alloc_error(layout);
        }
        let Some(start) = NonNull::new(start.cast::<u8>()) else { handle_alloc_error(layout) };
        AlignedBuf { start, layout }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: `start` was mapped with exactly this length and is given back once.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.layout.size()) };
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `layout.size()` initialised bytes that live as long as `self`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes the access exclusive.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

// SAFETY: the buffer owns its memory and has no interior mutability.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared references only read.
unsafe impl Sync for AlignedBuf {}

/// Buffers that are kept for the next that wants one, 16 MiB of the usual ones. More are made when more are needed, and freed
/// afterwards.
const KEPT_MAX: usize = 64;

static KEPT: Mutex<Vec<AlignedBuf>> = Mutex::new(Vec::new());

/// A buffer for a short time that is filled before it is read. When it is dropped, it is kept for the next one of its length: a
/// mapping, the first touch of its pages and its end cost as much as to copy 100 kB.
pub struct ReusedBuf(ManuallyDrop<AlignedBuf>);

impl ReusedBuf {
    /// `len` bytes at a page boundary, left over from other uses; `len` must not be 0.
    ///
    /// # Panics
    /// When `len` is 0 or larger than the address space.
    pub fn new(len: usize) -> ReusedBuf {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let same = kept.iter().rposition(|buf| buf.len() == len).map(|index| kept.swap_remove(index));
        drop(kept);
        ReusedBuf(ManuallyDrop::new(same.unwrap_or_else(|| AlignedBuf::new(len))))
    }
}

impl Drop for ReusedBuf {
    fn drop(&mut self) {
        // SAFETY: it is taken once, and not used again.
        let buf = unsafe { ManuallyDrop::take(&mut self.0) };
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX {
            kept.push(buf);
        }
    }
}

impl Deref for ReusedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for ReusedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again() {
        const LEN: usize = 3 * PAGE_BYTES + 1;
        let first = ReusedBuf::new(LEN);
        let address = first.as_ptr();
        assert_eq!(first.len(), LEN);
        drop(first);
        let (second, third) = (ReusedBuf::new(LEN), ReusedBuf::new(LEN));
        assert_eq!(second.as_ptr(), address);
        assert_ne!(third.as_ptr(), address);
    }

    #[test]
    fn starts_at_a_page_and_is_zeroed() {
        for len in [1, 4096, 262_144 + 7] {
            let mut buf = AlignedBuf::new(len);
            assert_eq!(buf.as_ptr() as usize % PAGE_BYTES, 0);
            assert_eq!(buf.len(), len);
            assert!(buf.iter().all(|byte| *byte == 0));
            buf[len - 1] = 7;
            assert_eq!(buf[len - 1], 7);
        }
    }
}
