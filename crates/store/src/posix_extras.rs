//! What a storage like a file system can do, and an object store cannot: other names, modes, attributes, changes in place.

use std::sync::Arc;
use std::time::SystemTime;

use crate::error::StoreResult;
use crate::path::ObjectPath;
use crate::storage::{BoxFuture, Expectation, Overwrite};
use crate::writable::{WritableFile, WriteOptions};

/// The extras of a file system. A file system may lack one of them: [`Unsupported`](crate::StoreError::Unsupported).
pub trait PosixExtras: Send + Sync {
    /// True if a symbolic link is at `path`, which [`look`](crate::Storage::look) follows and a removal does not.
    fn is_link<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<bool>>;

    /// Moves the file or directory at `from`, which has to be as expected, to `to`, all at once; returns
    /// whether something was replaced. What is at `to` is replaced if `overwrite` lets it, and there is no moment
    /// without either.
    /// [`AcrossDevices`](crate::StoreError::AcrossDevices): copy it and remove the source.
    fn rename<'a>(
        &'a self,
        from: &'a ObjectPath,
        to: &'a ObjectPath,
        overwrite: Overwrite,
        expectation: &'a Expectation,
    ) -> BoxFuture<'a, StoreResult<bool>>;

    /// Sets [`Metadata::modified`](crate::Metadata::modified) of a file or directory. Kept checksums are forgotten:
    /// nothing would tell whether the bytes were changed meanwhile.
    fn set_modified<'a>(
        &'a self,
        path: &'a ObjectPath,
        modified: SystemTime,
    ) -> BoxFuture<'a, StoreResult<()>>;

    /// Opens a file to read and change it, or makes it. A link at the end of the path is followed, unless the
    /// file is to be visible only [when closed](crate::Visibility::WhenClosed): then it is replaced. Everything is
    /// refused here that [`create`](crate::Storage::create) refuses; a directory is [`NotAFile`](crate::StoreError::NotAFile).
    /// Kept checksums are forgotten before the first byte changes.
    fn open_writable<'a>(
        &'a self,
        path: &'a ObjectPath,
        options: &'a WriteOptions,
    ) -> BoxFuture<'a, StoreResult<Arc<dyn WritableFile>>>;

    /// Sets the permission bits (`0o777`; others are ignored) of a file or directory. A directory keeps what it
    /// has beyond them, a file does not. [`InUse`](crate::StoreError::InUse): the export's root is its operator's.
    fn set_mode<'a>(&'a self, path: &'a ObjectPath, mode: u32) -> BoxFuture<'a, StoreResult<()>>;

    /// The names of the attributes that users gave a file or directory, in no particular order.
    fn attribute_names<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Vec<Vec<u8>>>>;

    /// The value of such an attribute; `None` when there is none of that name.
    fn attribute<'a>(
        &'a self,
        path: &'a ObjectPath,
        name: &'a [u8],
    ) -> BoxFuture<'a, StoreResult<Option<Vec<u8>>>>;

    /// Sets such an attribute; with `must_be_new`, [`Unexpected`](crate::StoreError::Unexpected) if there is one. A name is
    /// of 1 to [`ATTRIBUTE_NAME_BYTES_MAX`](gridlane_core::limits::ATTRIBUTE_NAME_BYTES_MAX) bytes but NUL
    /// ([`NameTooLong`](crate::StoreError::NameTooLong)), a value has at most
    /// [`ATTRIBUTE_VALUE_BYTES_MAX`](gridlane_core::limits::ATTRIBUTE_VALUE_BYTES_MAX)
    /// ([`TooLarge`](crate::StoreError::TooLarge)); a file system may have room for less:
    /// [`NoSpace`](crate::StoreError::NoSpace). The [tag](crate::Metadata::tag) may change, kept checksums stay.
    fn set_attribute<'a>(
        &'a self,
        path: &'a ObjectPath,
        name: &'a [u8],
        value: &'a [u8],
        must_be_new: bool,
    ) -> BoxFuture<'a, StoreResult<()>>;

    /// Removes such an attribute; returns whether there was one.
    fn remove_attribute<'a>(
        &'a self,
        path: &'a ObjectPath,
        name: &'a [u8],
    ) -> BoxFuture<'a, StoreResult<bool>>;
}
