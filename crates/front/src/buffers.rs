//! Page-aligned buffers, lent for the time of a transfer: an idle connection holds none.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use gridlane_core::limits;
use gridlane_sys::AlignedBuf;

/// Buffers kept for the next transfer: 16 MiB. More are made when more are needed, and freed afterwards.
const KEPT_MAX: usize = 64;

/// Buffers of [`limits::IO_BYTES`].
#[derive(Default)]
pub struct Buffers {
    free: Mutex<Vec<AlignedBuf>>,
}

impl Buffers {
    /// Lends one. Its contents are left over from other transfers: write before reading.
    pub fn lend(self: &Arc<Buffers>) -> Lent {
        let kept = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Lent {
            buffer: Some(kept.unwrap_or_else(|| AlignedBuf::new(limits::IO_BYTES))),
            home: Arc::clone(self),
        }
    }
}

/// A buffer that returns to the others when it is dropped.
pub struct Lent {
    /// There until drop.
    buffer: Option<AlignedBuf>,
    home: Arc<Buffers>,
}

impl Deref for Lent {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buffer.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut free = self.home.free.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(buffer) = self.buffer.take()
            && free.len() < KEPT_MAX
        {
            free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again() {
        let buffers = Arc::new(Buffers::default());
        let first = buffers.lend();
        let address = first.as_ptr();
        assert_eq!(first.len(), limits::IO_BYTES);
        drop(first);
        let (second, third) = (buffers.lend(), buffers.lend());
        assert_eq!(second.as_ptr(), address);
        assert_ne!(third.as_ptr(), address);
    }
}
