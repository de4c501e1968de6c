//! Page-aligned buffers, lent for the time of a transfer: an idle connection holds none.

use std::sync::Arc;

use gridlane_core::limits;
use gridlane_sys::ReusedBuf;

/// Buffers of [`limits::IO_BYTES`].
#[derive(Default)]
pub struct Buffers;

impl Buffers {
    /// Lends one. Its contents are left over from other transfers: write before reading.
    pub fn lend(self: &Arc<Buffers>) -> ReusedBuf {
        ReusedBuf::new(limits::IO_BYTES)
    }
}
