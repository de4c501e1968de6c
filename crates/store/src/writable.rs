//! Files that are opened to be changed in place, as XRootD's clients do it.
//!
//! ```text
//! open_writable ─▶ file ─▶ read_at, write_at, write_vectored_at, truncate, sync …, at the same time
//!                      ├▶ close(whole)       durable, and visible if it was not
//!                      └▶ drop               what was visible stays as it is; what was not is gone
//! ```

use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::Arc;

use crate::error::{StoreError, StoreResult};
use crate::storage::{BoxFuture, Committed, Metadata};
use gridlane_core::{Checksum, limits};
use gridlane_share::{Turns, turns};

/// The condition at a path for opening a file to be changed, and the file that opening leaves there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// A file, whose bytes stay.
    Existing,
    /// Nothing ([`Unexpected`](StoreError::Unexpected) else): a file is made.
    New,
    /// A file, which loses its bytes, or nothing: then one is made.
    Replace,
}

/// The moment from which on a file that is opened to be changed is visible to other clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Visibility {
    /// From the beginning. A file that is there is changed in place, for all to see, whatever becomes of the
    /// rest.
    AtOnce,
    /// From its [`close`](WritableFile::close) on, all at once. Without that it is gone without a trace, and
    /// what was there is there still. Not for [`Disposition::Existing`].
    WhenClosed,
}

/// The options of opening a file to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// The condition at the path.
    pub disposition: Disposition,
    /// The moment from which on it is visible.
    pub visibility: Visibility,
    /// The directories that lead to a file that is made are made as well. They stay if it is given up.
    pub parents: bool,
    /// Permission bits of a file that is made, without those that the operator's umask takes; its owner may
    /// always read and write it, and of bits beyond `0o777` it gets none. `None`: as an upload's.
    pub mode: Option<u32>,
    /// The length that is known in advance: [`NoSpace`](StoreError::NoSpace) at once when there is less room.
    pub expected_bytes: Option<u64>,
}

impl WriteOptions {
    /// Visible at once, without making directories, and with nothing known of the length.
    pub fn new(disposition: Disposition) -> WriteOptions {
        WriteOptions {
            disposition,
            visibility: Visibility::AtOnce,
            parents: false,
            mode: None,
            expected_bytes: None,
        }
    }

    /// Refuses what makes no sense: to change a file that is there, and to show it only later.
    pub(crate) fn check(&self) -> StoreResult<()> {
        match (self.disposition, self.visibility) {
            (Disposition::Existing, Visibility::WhenClosed) => Err(StoreError::Unsupported),
            _ => Ok(()),
        }
    }

    /// True if there are directories to be made.
    pub(crate) fn makes_parents(&self) -> bool {
        self.parents && self.disposition != Disposition::Existing
    }
}

/// A file that is open for being read and changed.
///
/// It may be read and written at several places at the same time. What they write to the same place is one's or
/// the other's, or a mixture. A write that fails may have changed a part.
pub trait WritableFile: Send + Sync {
    /// The turns of the device that it is on, which whatever may wait for that device takes one of. Of what never waits: those
    /// of all that never do.
    fn turns(&self) -> &Arc<Turns> {
        turns::undivided()
    }

    /// The present metadata, as far as that can be told at once. Of a file that is not visible yet: those that it will
    /// have, but for the times and the tag.
    fn metadata(&self) -> StoreResult<Metadata>;

    /// The same, waiting for the device where that has to be asked.
    fn look(&self) -> BoxFuture<'_, StoreResult<Metadata>>;

    /// The operating system's file, where there is one: for `sendfile`, and not for writing.
    fn as_file(&self) -> Option<&File> {
        None
    }

    /// True if it can be found under a name: not before it is visible, and not after it was removed or replaced.
    fn has_name(&self) -> bool;

    /// The same as [`Object::read_at_nowait`](crate::Object::read_at_nowait).
    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>>;

    /// The same as [`Object::read_at`](crate::Object::read_at).
    fn read_at<'a>(&'a self, target: &'a mut [u8], offset: u64) -> BoxFuture<'a, io::Result<usize>>;

    /// Writes all of `bytes` at `offset`, waiting as long as it takes. Behind the end, the gap reads as zeros.
    fn write_at<'a>(&'a self, bytes: &'a [u8], offset: u64) -> BoxFuture<'a, StoreResult<()>>;

    /// Writes all `parts`, one behind the other, from `offset` on.
    fn write_vectored_at<'a>(
        &'a self,
        parts: &'a [IoSlice<'a>],
        offset: u64,
    ) -> BoxFuture<'a, StoreResult<()>>;

    /// Writes bytes to several places, given by where they begin. One call, and where writing takes a turn one turn, however
    /// many there are.
    fn write_parts<'a>(&'a self, parts: &'a [(u64, &'a [u8])]) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async move {
            for (offset, bytes) in parts {
                self.write_at(bytes, *offset).await?;
            }
            Ok(())
        })
    }

    /// Makes the file this long: what is behind is lost, what is missing reads as zeros.
    fn truncate(&self, size_bytes: u64) -> BoxFuture<'_, StoreResult<()>>;

    /// Brings what was written to the device, if durability promises anything.
    fn sync(&self) -> BoxFuture<'_, StoreResult<()>>;

    /// Ends it, once, after the writes that are running: brings to the device what durability asks for, makes visible
    /// what was not, and keeps the checksums of the `whole`. They are forgotten when the file has another length, and
    /// when another handle changed it since it was opened. From now on every change, and another `close`, is refused:
    /// [`Closed`](StoreError::Closed). If it fails, what was not visible is gone.
    fn close<'a>(&'a self, whole: Option<&'a Whole>) -> BoxFuture<'a, StoreResult<Committed>>;

    /// Lets go of it: when this is done, what was not visible is gone, unless another handle is still open. The same
    /// happens, a little later, when it is dropped.
    fn discard(self: Arc<Self>) -> BoxFuture<'static, ()>;
}

/// The size and checksums of the written bytes, as a caller that has written all of them knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// Number of bytes.
    pub size_bytes: u64,
    /// Of all of them.
    pub checksums: Vec<Checksum>,
}

impl Whole {
    /// The checksums of a file of this length; none where it has another.
    pub(crate) fn checksums_of(whole: Option<&Whole>, size_bytes: u64) -> &[Checksum] {
        match whole {
            Some(whole) if whole.size_bytes == size_bytes => &whole.checksums,
            _ => &[],
        }
    }
}

/// Opens a file that is there by `Existing`, or makes it by `New`, whatever other clients do meanwhile.
pub(crate) fn existing_or_new<T>(mut open: impl FnMut(Disposition) -> StoreResult<T>) -> StoreResult<T> {
    for _ in 0..limits::OPEN_RACES_MAX {
        match open(Disposition::Existing) {
            Err(StoreError::NotFound) => {}
            known => return known,
        }
        match open(Disposition::New) {
            Err(StoreError::Unexpected) => {}
            known => return known,
        }
    }
    // Something is there that is not served: a pipe, a link that leads nowhere.
    Err(StoreError::NotAFile)
}

/// The least length of a file after a write of `len` bytes at `offset`. A write of nothing makes it no longer, wherever
/// it is.
pub(crate) fn end_of(offset: u64, len: usize) -> StoreResult<u64> {
    match offset.checked_add(len as u64) {
        _ if len == 0 => Ok(0),
        Some(end) => check_length(end).map(|()| end),
        None => Err(StoreError::TooLarge),
    }
}

/// Refuses a length that no kernel knows.
pub(crate) fn check_length(bytes: u64) -> StoreResult<()> {
    i64::try_from(bytes).map(|_| ()).map_err(|_| StoreError::TooLarge)
}

/// The bytes of all parts together.
pub(crate) fn len_of(parts: &[IoSlice<'_>]) -> usize {
    parts.iter().map(|part| part.len()).fold(0, usize::saturating_add)
}

/// True if a user's attribute can have this name. Those of the wire end with a NUL and are never empty.
pub(crate) fn check_attribute_name(name: &[u8]) -> StoreResult<()> {
    match name.len() {
        0 => Err(StoreError::Unsupported),
        _ if name.contains(&0) => Err(StoreError::Unsupported),
        1..=limits::ATTRIBUTE_NAME_BYTES_MAX => Ok(()),
        _ => Err(StoreError::NameTooLong),
    }
}

/// The same, for one that is to have this value.
pub(crate) fn check_attribute(name: &[u8], value: &[u8]) -> StoreResult<()> {
    check_attribute_name(name)?;
    if value.len() > limits::ATTRIBUTE_VALUE_BYTES_MAX { Err(StoreError::TooLarge) } else { Ok(()) }
}
