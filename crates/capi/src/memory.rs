//! The caller's memory: what is read from there, and where bytes go.
//!
//! That a pointer which is not NULL points to what the header says is a promise of the caller's, as everywhere in C. Everything that
//! can be checked is.
#![allow(unsafe_code)] // it is about pointers of C

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;

use gridlane_core::{ByteRange, Error, ErrorKind, Fault, Result};

/// An error of the caller's.
pub(crate) fn usage(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Usage, message).fault(Fault::Caller)
}

/// A text of the caller's, copied; `None` for NULL.
///
/// # Safety
///
/// `text` is NULL or ends with a NUL.
pub(crate) unsafe fn text(text: *const c_char, what: &str) -> Result<Option<String>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: it is not NULL, and ends.
    let bytes = unsafe { CStr::from_ptr(text) };
    let text = bytes.to_str().map_err(|_| usage(format!("{what} is not in UTF-8")))?;
    Ok(Some(text.to_owned()))
}

/// The texts of a list; the list itself may not be NULL unless it is empty, and none of them may be.
///
/// # Safety
///
/// `list` is NULL or has `count` pointers, each NULL or to a text.
pub(crate) unsafe fn texts(list: *const *const c_char, count: usize, what: &str) -> Result<Vec<String>> {
    if list.is_null() && count > 0 {
        return Err(usage(format!("the list of {what}s is NULL")));
    }
    let one = |at| {
        // SAFETY: `at` is less than `count`, and the list has as many.
        let text = unsafe { self::text(list.add(at).read(), what) }?;
        text.ok_or_else(|| usage(format!("{what} {at} is NULL")))
    };
    (0..count).map(one).collect()
}

/// The length of a list that ends with NULL; 0 for NULL.
///
/// # Safety
///
/// `list` is NULL or has NULL behind its last pointer.
pub(crate) unsafe fn count<T>(list: *const *const T) -> usize {
    if list.is_null() {
        return 0;
    }
    // SAFETY: none before was NULL, so that there is this one as well.
    (0..).take_while(|at| unsafe { !list.add(*at).read().is_null() }).count()
}

/// Bytes of a structure of options that a later version may have. More are no size, but memory that was not set.
const OPTIONS_BYTES_MAX: usize = 4096;

/// A structure that begins with its size, of which the caller may know less or more than we do. What it does not know is 0; what we
/// do not know has to be.
///
/// # Safety
///
/// `from` is NULL or has as many bytes as its first `size_t` says. All-zero bytes are a valid `T`, and so is what the caller wrote.
pub(crate) unsafe fn versioned<T: Copy>(from: *const T, least_bytes: usize, what: &str) -> Result<Option<T>> {
    if from.is_null() {
        return Ok(None);
    }
    let (from, known_bytes) = (from.cast::<u8>(), size_of::<T>());
    // SAFETY: every version of it begins with a `size_t`.
    let said_bytes = unsafe { from.cast::<usize>().read_unaligned() };
    if said_bytes < least_bytes || said_bytes > OPTIONS_BYTES_MAX {
        return Err(usage(format!("the size of {what} is {said_bytes}: it is set to that of the structure")));
    }
    for at in known_bytes..said_bytes {
        // SAFETY: it has `said_bytes`.
        if unsafe { from.add(at).read() } != 0 {
            return Err(usage(format!(
                "{what} have something that this version of the library does not know"
            )));
        }
    }
    let mut copy = MaybeUninit::<T>::zeroed();
    // SAFETY: both have that many bytes, and are apart. Zero where the caller knew nothing.
    unsafe {
        from.copy_to_nonoverlapping(copy.as_mut_ptr().cast(), said_bytes.min(known_bytes));
        Ok(Some(copy.assume_init()))
    }
}

/// Writes a result for the caller.
///
/// # Safety
///
/// `to` is NULL, which is a mistake of the caller's, or can be written.
pub(crate) unsafe fn put<T>(to: *mut T, value: T, what: &str) -> Result<()> {
    if to.is_null() {
        return Err(usage(format!("the place for {what} is NULL")));
    }
    // SAFETY: it can be written.
    unsafe { to.write(value) };
    Ok(())
}

/// Room for bytes that are read. They are copied there once, by a thread of the caller's.
#[derive(Debug)]
pub(crate) struct Buffer {
    at: *mut u8,
    len: usize,
}

// SAFETY: it is the address of memory of the caller's, which any thread may fill.
unsafe impl Send for Buffer {}

impl Buffer {
    /// # Safety
    ///
    /// `len` bytes can be written at `at`, until the value is dropped, and nothing else reads or writes them meanwhile.
    unsafe fn new(at: *mut u8, len: usize) -> Buffer {
        Buffer { at, len }
    }

    /// Fills it from its beginning with as much as there is room for; returns how much that is.
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.len);
        if count > 0 {
            // SAFETY: there is room for `len` bytes. `bytes` are the library's own, so the two are apart.
            unsafe { self.at.copy_from_nonoverlapping(bytes.as_ptr(), count) };
        }
        count
    }
}

/// `gridlane_range`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub(crate) offset: u64,
    pub(crate) length: usize,
    pub(crate) buffer: *mut u8,
    /// Written by us, and set by nobody before.
    pub(crate) got: MaybeUninit<i64>,
}

/// A range of a file and the room for its bytes.
///
/// # Safety
///
/// As for [`Buffer::new`], if `buffer` is not NULL.
pub(crate) unsafe fn place(offset: u64, length: usize, buffer: *mut u8) -> Result<(ByteRange, Buffer)> {
    let range = bytes(offset, length)?;
    if buffer.is_null() && length > 0 {
        return Err(usage("a buffer is NULL"));
    }
    // SAFETY: as it was promised; nothing is written where there is no room.
    Ok((range, unsafe { Buffer::new(buffer, length) }))
}

/// The ranges of a call, and the room for each.
///
/// # Safety
///
/// `ranges` is NULL or has `count` of them, each as for [`place`].
pub(crate) unsafe fn places(ranges: *const Range, count: usize) -> Result<(Vec<ByteRange>, Vec<Buffer>)> {
    // SAFETY: as it was promised.
    let all = unsafe { all(ranges, count) }?;
    // SAFETY: as it was promised.
    let place = |range: Range| unsafe { place(range.offset, range.length, range.buffer) };
    let places: Result<Vec<_>> = all.map(place).collect();
    Ok(places?.into_iter().unzip())
}

/// The ranges of a hint.
///
/// # Safety
///
/// `ranges` is NULL or has `count` of them.
pub(crate) unsafe fn ranges(ranges: *const Range, count: usize) -> Result<Vec<ByteRange>> {
    // SAFETY: as it was promised.
    unsafe { all(ranges, count) }?.map(|range| bytes(range.offset, range.length)).collect()
}

/// # Safety
///
/// `ranges` is NULL or has `count` of them, while the iterator is used.
unsafe fn all(ranges: *const Range, count: usize) -> Result<impl Iterator<Item = Range>> {
    if ranges.is_null() && count > 0 {
        return Err(usage("the ranges are NULL"));
    }
    if count > gridlane_core::limits::READ_RANGES_MAX {
        return Err(usage(format!("{count} ranges are more than a call can have")));
    }
    // SAFETY: `at` is less than `count`, and of what is there `got` alone may be unset. It is copied: the caller's other threads may
    // look at it as well.
    Ok((0..count).map(move |at| unsafe { ranges.add(at).read() }))
}

/// Says in the caller's range how many bytes came, or -1.
///
/// # Safety
///
/// `ranges` has more than `at` of them, and can be written.
pub(crate) unsafe fn tell(ranges: *mut Range, at: usize, got: i64) {
    // SAFETY: it is there; no reference to it is made.
    unsafe { (&raw mut (*ranges.add(at)).got).write(MaybeUninit::new(got)) };
}

fn bytes(offset: u64, length: usize) -> Result<ByteRange> {
    let is_told = i64::try_from(length).is_ok() && offset.checked_add(length as u64).is_some();
    match is_told {
        true => Ok(ByteRange::at(offset, length as u64)),
        false => Err(usage(format!("no file has {length} bytes from {offset} on"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Known {
        size: usize,
        first: u64,
        second: u64,
    }

    fn read(words: &[u64]) -> Result<Option<Known>> {
        // SAFETY: the tests say no more than there is.
        unsafe { versioned(words.as_ptr().cast::<Known>(), 16, "options") }
    }

    #[test]
    fn structures_of_other_versions_are_understood_or_refused() {
        let older = read(&[16, 5]).unwrap().unwrap();
        assert_eq!((older.size, older.first, older.second), (16, 5, 0));
        let newer = read(&[32, 5, 6, 0]).unwrap().unwrap();
        assert_eq!((newer.first, newer.second), (5, 6));
        assert!(read(&[32, 5, 6, 1]).is_err());
        for size in [0, 8, 15] {
            assert!(read(&[size, 5, 6]).is_err());
        }
        // SAFETY: it is NULL.
        assert!(unsafe { versioned(std::ptr::null::<Known>(), 16, "options") }.unwrap().is_none());
    }

    #[test]
    fn a_buffer_is_not_overrun() {
        let mut memory = [0_u8; 8];
        // SAFETY: it is there, and is looked at when the buffer is not used any more.
        let (_, mut buffer) = unsafe { place(0, 4, memory.as_mut_ptr()) }.unwrap();
        assert_eq!(buffer.fill(b"abcdefgh"), 4);
        assert_eq!(&memory, b"abcd\0\0\0\0");
        // SAFETY: nothing is written where it is refused.
        unsafe {
            assert!(place(u64::MAX, 2, memory.as_mut_ptr()).is_err());
            assert!(place(0, usize::MAX, memory.as_mut_ptr()).is_err());
            assert!(place(0, 1, std::ptr::null_mut()).is_err());
            assert!(place(0, 0, std::ptr::null_mut()).is_ok());
        }
    }
}
