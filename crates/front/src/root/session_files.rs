//! The files that a session has open, as far as the front has to know them: it answers reads, and names the files in
//! logs.

use std::sync::Arc;

use gridlane_store::{Object, StoreResult};
use gridlane_xrd::Handle;

use super::answer::Failure;

/// The files that a session has open.
pub trait SessionFiles: Default + Send + Sync + 'static {
    /// Their number.
    fn count(&self) -> usize;

    /// The file of a handle; `act` names the request in a message that there is none.
    fn readable(&self, handle: Handle, act: &str) -> Result<Arc<dyn Readable>, Failure>;
}

/// An open file, for as long as a read uses it.
pub trait Readable: Send + Sync {
    /// The path in the client's own form, for messages and logs.
    fn path(&self) -> &[u8];

    /// Its bytes, if the client may read them.
    fn object(&self) -> Result<&Arc<dyn Object>, Failure>;

    /// The length at this moment, which may be more or less than when it was opened.
    fn size_bytes(&self) -> StoreResult<u64>;

    /// True if it was opened for changes.
    fn is_changing(&self) -> bool;

    /// Counts bytes that were sent.
    fn count_read(&self, bytes: u64);
}

/// Of a service that has no files.
impl SessionFiles for () {
    fn count(&self) -> usize {
        0
    }

    fn readable(&self, _handle: Handle, act: &str) -> Result<Arc<dyn Readable>, Failure> {
        Err(Failure::not_open(act))
    }
}
