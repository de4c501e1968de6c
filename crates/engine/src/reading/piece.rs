//! The bytes of a file in memory: parts that the page map and calls share.

use bytes::{Bytes, BytesMut};
use gridlane_read::Payload;

/// Bytes of the file. A part of them is the same memory; joined ones are copied, unless nothing else has the first ones.
///
/// Lanes make pieces that end where pages of the page map do, and small ones of one answer and page are one piece of memory: what
/// is forgotten at once. So the map holds little more memory than it counts, and a range of a call that its owner keeps at most
/// a page of it. A piece that grows may have up to twice its bytes.
#[derive(Clone, Debug)]
pub(super) struct Piece(pub(super) Bytes);

impl Payload for Piece {
    fn len_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn part(&self, from: u64, len: u64) -> Piece {
        let all = self.0.len();
        let start = usize::try_from(from).unwrap_or(usize::MAX).min(all);
        let end = usize::try_from(from.saturating_add(len)).unwrap_or(usize::MAX).min(all);
        Piece(self.0.slice(start..end.max(start)))
    }

    fn append(&mut self, behind: Piece) {
        let mut own = match std::mem::take(&mut self.0).try_into_mut() {
            Ok(own) => own,
            Err(shared) => {
                let mut own = BytesMut::with_capacity(shared.len() + behind.0.len());
                own.extend_from_slice(&shared);
                own
            }
        };
        own.extend_from_slice(&behind.0);
        self.0 = own.freeze();
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(&self.0)
    }

    fn memory_bytes(&self) -> u64 {
        self.0.len() as u64
    }
}
