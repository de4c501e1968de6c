//! The functions of `include/gridlane.h`: they turn what C gives into values, and values into what C takes.
//!
//! Every function that can fail does its work in [`try_to`], where neither a panic nor the child of a fork gets through. For all of
//! them: a pointer that is not NULL points to what the header says, for as long as it says.
#![allow(unsafe_code)] // names and pointers of C
#![allow(clippy::missing_safety_doc)] // the header says it

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use gridlane_client::events::ReadRecord;
use gridlane_core::Result;
use gridlane_core::limits::READ_RANGES_MAX;
use gridlane_engine::reading::{Hint, RemoteFile};

use crate::failure::{Failure, c_text};
use crate::file::{self, FILES};
use crate::memory::{self, Range, usage};
use crate::opening::{Numbers, Opening, Options, Texts};
use crate::process::guarded;
use crate::queue::{CALLS, Completion, QUEUES, Queue, Told};

/// `GRIDLANE_ABI_VERSION`.
const ABI_VERSION: u32 = 1 << 16;
/// Bytes of the first version of `gridlane_options`: none had fewer.
const OPTIONS_BYTES_MIN: usize = std::mem::offset_of!(Options, authorities) + size_of::<usize>();
/// Completions that are taken at once, whatever room there is for more.
const TAKEN_MAX: usize = 4096;

const SOON: c_int = 1;
const KEEP: c_int = 2;
const EVERYTHING: c_int = 3;
const RANDOM: c_int = 4;

/// A handle, which is a number.
type Handle = *mut c_void;

/// `gridlane_completion`.
#[repr(C)]
pub(crate) struct Completed {
    tag: *mut c_void,
    call: Handle,
    index: usize,
    got: usize,
    error: *mut Failure,
    reserved: u64,
}

// What the header says of a machine with pointers of 64 bits.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Options>() == 96 && size_of::<Range>() == 32 && size_of::<Completed>() == 48);

/// Does some work; what it fails with goes to `error`, and `failed` is returned.
///
/// # Safety
///
/// `error` is NULL or can be written.
unsafe fn try_to<T>(error: *mut *mut Failure, failed: T, work: impl FnOnce() -> Result<T>) -> T {
    let (value, failure) = match guarded(work) {
        Ok(value) => (value, ptr::null_mut()),
        // The reason is not wanted.
        Err(_) if error.is_null() => return failed,
        Err(why) => (failed, Box::into_raw(Box::new(Failure::from(why)))),
    };
    if !error.is_null() {
        // SAFETY: it can be written.
        unsafe { error.write(failure) };
    }
    value
}

fn number(handle: *const c_void) -> usize {
    handle.addr()
}

fn handle(number: usize) -> Handle {
    ptr::without_provenance_mut(number)
}

/// A time that a call may take; `None`: any.
fn timeout(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

fn opened(file: *const c_void) -> Result<Arc<RemoteFile>> {
    FILES.get(number(file))
}

fn count_of(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

// --- Versions ---------------------------------------------------------------------------------------

#[unsafe(no_mangle)]
pub(crate) extern "C" fn gridlane_abi_version() -> u32 {
    ABI_VERSION
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn gridlane_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

// --- Errors -----------------------------------------------------------------------------------------

/// # Safety
///
/// `error` is NULL or one that was given and not freed.
unsafe fn failure<'a>(error: *const Failure) -> Option<&'a Failure> {
    // SAFETY: as it was promised; nothing changes it.
    unsafe { error.as_ref() }
}

fn pointer_to(text: Option<&CString>) -> *const c_char {
    text.map_or(c"".as_ptr(), |text| text.as_ptr())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gridlane_error_kind(error: *const Failure) -> c_int {
    // SAFETY: the header says it.
    unsafe { failure(error) }.map_or(0, |failure| failure.kind)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gridlane_error_name(error: *const Failure) -> *const c_char {
    // SAFETY: the header says it.
    pointer_to(unsafe { failure(error) }.map(|failure| &failure.name))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gridlane_error_message(error: *const Failure) -> *const c_char {
    // SAFETY: the header says it.
    pointer_to(unsafe { failure(error) }.map(|failure| &failure.message))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gridlane_error_text(error: *const Failure) -> *const c_char {
    // SAFETY: the header says it.
    pointer_to(unsafe { failure(error) }.map(|failure| &failure.text))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gridlane_error_endpoint(error: *const Failure) -> *const c_char {
    // SAFETY: the header says it.
    let endpoint = unsafe { failure(error) }.and_then(|failure| failure.endpoint.as_ref());
    endpoint.map_or(ptr::null(), |text| text.as_ptr())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gridlane_error_retryable(error: *const Failure) -> c_int {
    // SAFETY: the header says it.
    c_int::from(unsafe { failure(error) }.is_some_and(|failure| failure.is_retryable))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gridlane_error_free(error: *mut Failure) {
    if !error.is_null() {
        // SAFETY: it was given by `Box::into_raw`, and is freed once.
        drop(unsafe { Box::from_raw(error) });
    }
}

// --- Files ------------------------------------------------------------------------------------------

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gridlane_open(
    urls: *const *const c_char,
    count: usize,
    options: *const Options,
    error: *mut *mut Failure,
) -> Handle {
    let work = || {
        // So many are refused, and not read.
        let count = count.min(gridlane_core::limits::READ_SOURCES_MAX + 1);
        // SAFETY: the header says it.
        let (urls, opening) = unsafe { (memory::texts(urls, count, "URL")?, self::opening(options)?) };
        file::open(&urls, opening).map(handle)
    };
    // SAFETY: the header says it.
    unsafe { try_to(error, ptr::null_mut(), work) }
}

/// # Safety
///
/// `options` is NULL or what the header says.
unsafe fn opening(options: *const Options) -> Result<Opening> {
    // SAFETY: all-zero bytes are valid options.
    let Some(given) = (unsafe { memory::versioned(options, OPTIONS_BYTES_MIN, "the options") })? else {
        return Opening::new(Numbers::default(), Texts::default());
    };
    // SAFETY: each is NULL or a text; the authorities end with NULL.
    let texts = unsafe {
        Texts {
            policy: memory::text(given.policy, "the policy")?,
            token: memory::text(given.token, "the token")?,
            token_file: memory::text(given.token_file, "the name of the token's file")?,
            certificate: memory::text(given.certificate, "the name of the certificate's file")?,
            key: memory::text(given.key, "the name of the key's file")?,
            authorities: memory::texts(given.authorities, memory::count(given.authorities), "authority")?,
        }
    };
    let Options { memory_bytes, budget, connections, flags, patience_ms, timeout_ms, .. } = given;
    Opening::new(Numbers { memory_bytes, budget, connections, flags, patience_ms, timeout_ms }, texts)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gridlane_size(
    file: *const c_void,
    size: *mut u64,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header says it.
    let work = || unsafe { memory::put(size, opened(file)?.size_bytes(), "the size") }.map(|()| 0);
    // SAFETY: the header says it.
    unsafe { try_to(error, -1, work) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn gridlane_close(file: Handle) {
    let work = || {
        if let Some(file) = FILES.remove(number(file)) {
            file.close();
        }
        Ok(())
    };
    // An error has no place to go to.
    let _ = guarded(work);
}

// --- Reading, waiting for it ------------------------------------------------------------------------

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gridlane_pread(
    file: Handle,
    buffer: *mut c_void,
    length: usize,
    offset: u64,
    timeout_ms: i64,
    error: *mut *mut Failure,
) -> i64 {
    let work = || {
        let file = opened(file)?;
        // SAFETY: the header says it; the buffer is used until this returns.
        let (range, buffer) = unsafe { memory::place(offset, length, buffer.cast()) }?;
        let mut count = 0;
        file::read(&file, &[range], vec![buffer], timeout(timeout_ms), |_, got| count = got)?;
        Ok(count_of(count))
    };
    // SAFETY: the header says it.
    unsafe { try_to(error, -1, work) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gridlane_readv(
    file: Handle,
    ranges: *mut Range,
    count: usize,
    timeout_ms: i64,
    error: *mut *mut Failure,
) -> c_int {
    // First, and whatever fails: what an earlier call has left there is of no range of this one.
    if !ranges.is_null() && count <= READ_RANGES_MAX {
        // SAFETY: there are `count` ranges, which the caller lets be written.
        (0..count).for_each(|at| unsafe { memory::tell(ranges, at, -1) });
    }
    let work = || {
        // SAFETY: the header says it; the buffers are used until this returns.
        let (wanted, buffers) = unsafe { memory::places(ranges, count) }?;
        let file = opened(file)?;
        // SAFETY: the reader tells of ranges that it was given only.
        let complete = |at, got| unsafe { memory::tell(ranges, at, count_of(got)) };
        file::read(&file, &wanted, buffers, timeout(timeout_ms), complete).map(|()| 0)
    };
    // SAFETY: the header says it.
    unsafe { try_to(error, -1, work) }
}

// --- Reading, range by range ------------------------------------------------------------------------

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gridlane_queue_open(error: *mut *mut Failure) -> Handle {
    let work = || Ok(handle(QUEUES.add(Arc::new(Queue::new()?))));
    // SAFETY: the header says it.
    unsafe { try_to(error, ptr::null_mut(), work) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gridlane_queue_descriptor(
    queue: *const c_void,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header says it.
    unsafe { try_to(error, -1, || Ok(QUEUES.get(number(queue))?.descriptor())) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gridlane_submit(
    file: Handle,
    queue: Handle,
    ranges: *const Range,
    count: usize,
    timeout_ms: i64,
    tag: *mut c_void,
    call: *mut Handle,
    error: *mut *mut Failure,
) -> c_int {
    let work = || {
        let (file, queue) = (opened(file)?, QUEUES.get(number(queue))?);
        // SAFETY: the header says it; the call drops the buffers at its end.
        let (wanted, buffers) = unsafe { memory::places(ranges, count) }?;
        let begun = queue.submit(&file, &wanted, buffers, timeout(timeout_ms), tag.expose_provenance())?;
        if !call.is_null() {
            // SAFETY: the header says it.
            unsafe { call.write(handle(begun)) };
        }
        Ok(0)
    };
    // SAFETY: the header says it.
    unsafe { try_to(error, -1, work) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gridlane_queue_take(
    queue: Handle,
    completions: *mut Completed,
    count: usize,
    timeout_ms: i64,
    error: *mut *mut Failure,
) -> i64 {
    let work = || {
        if completions.is_null() || count == 0 {
            return Err(usage("there is no room for completions"));
        }
        let taken = QUEUES.get(number(queue))?.take(count.min(TAKEN_MAX), timeout(timeout_ms))?;
        let found = taken.len();
        for (at, completion) in taken.into_iter().enumerate() {
            // SAFETY: there is room for `count`, and no more are taken.
            unsafe { completions.add(at).write(completed(completion)) };
        }
        Ok(count_of(found))
    };
    // SAFETY: the header says it.
    unsafe { try_to(error, -1, work) }
}

fn completed(Completion { tag, call, what }: Completion) -> Completed {
    let (index, got, error) = match what {
        Told::Range { index, got } => (index, got, ptr::null_mut()),
        Told::End(Ok(())) => (usize::MAX, 0, ptr::null_mut()),
        Told::End(Err(why)) => (usize::MAX, 0, Box::into_raw(Box::new(Failure::from(why)))),
    };
    let tag = ptr::with_exposed_provenance_mut(tag);
    Completed { tag, call: handle(call), index, got, error, reserved: 0 }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn gridlane_cancel(call: Handle) {
    let work = || {
        if let Ok(call) = CALLS.get(number(call)) {
            call.cancel();
        }
        Ok(())
    };
    // An error has no place to go to.
    let _ = guarded(work);
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn gridlane_queue_close(queue: Handle) {
    let work = || {
        // It is known until all is over, so that another closer waits as well.
        if let Ok(found) = QUEUES.get(number(queue)) {
            found.close();
            QUEUES.remove(number(queue));
        }
        Ok(())
    };
    // An error has no place to go to.
    let _ = guarded(work);
}

// --- Hints, and the record --------------------------------------------------------------------------

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gridlane_hint(
    file: Handle,
    hint: c_int,
    ranges: *const Range,
    count: usize,
    error: *mut *mut Failure,
) -> c_int {
    let work = || {
        let file = opened(file)?;
        // SAFETY: the header says it.
        let ranges = unsafe { memory::ranges(ranges, count) }?;
        match (hint, count) {
            (SOON, _) => file.hint(Hint::Soon(ranges)),
            (KEEP, _) => ranges.into_iter().for_each(|range| file.hint(Hint::Keep(range))),
            (EVERYTHING, 0) => file.hint(Hint::Everything),
            (RANDOM, 0) => file.hint(Hint::Random),
            (EVERYTHING | RANDOM, _) => return Err(usage("this hint has no ranges")),
            _ => return Err(usage(format!("there is no hint {hint}"))),
        }
        Ok(0)
    };
    // SAFETY: the header says it.
    unsafe { try_to(error, -1, work) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gridlane_prefetch(
    file: Handle,
    ranges: *const Range,
    count: usize,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header says it.
    unsafe { gridlane_hint(file, SOON, ranges, count, error) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gridlane_explain(
    file: *const c_void,
    error: *mut *mut Failure,
) -> *mut c_char {
    let work = || Ok(c_text(&ReadRecord::of(&*opened(file)?).to_json()).into_raw());
    // SAFETY: the header says it.
    unsafe { try_to(error, ptr::null_mut(), work) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gridlane_text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: it was given by `CString::into_raw`, and is freed once.
        drop(unsafe { CString::from_raw(text) });
    }
}
