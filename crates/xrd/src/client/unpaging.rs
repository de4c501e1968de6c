//! Takes the checksums out of pages as they come, in the buffer that they came into.

use crate::pages::{CRC_BYTES, crc, page_len};

/// Pages of one part of an answer.
#[derive(Debug)]
pub struct Unpaging {
    /// Where the next page belongs.
    at: u64,
    /// Bytes of the part that are left, checksums included.
    left: u64,
}

/// The content of a buffer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unpaged {
    /// Where the bytes at the beginning of the buffer belong.
    pub offset: u64,
    /// Number of bytes at its beginning that are bytes of pages.
    pub len: usize,
    /// Where what is left of the raw bytes begins: less than a page with its checksum. They belong in front of
    /// what comes next.
    pub rest: usize,
    /// Pages, all of them among these bytes, that are not what their checksum says: where each begins, and its
    /// length.
    pub wrong: Vec<(u64, usize)>,
}

impl Unpaging {
    /// A part of `framed` bytes, checksums included, that belongs at `offset`.
    pub fn new(offset: u64, framed: u64) -> Unpaging {
        Unpaging { at: offset, left: framed }
    }

    /// True if all pages were taken.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Looks at raw bytes: the rest of those before, and what came since. Moves the bytes of whole pages to the
    /// beginning.
    pub fn take(&mut self, raw: &mut [u8]) -> Unpaged {
        let mut unpaged = Unpaged { offset: self.at, ..Unpaged::default() };
        loop {
            let left = self.left.saturating_sub(CRC_BYTES as u64);
            let page = page_len(self.at, left);
            let begin = unpaged.rest + CRC_BYTES;
            let Some(bytes) = raw.get(begin..begin + page).filter(|bytes| !bytes.is_empty()) else {
                return unpaged;
            };
            let said = raw[unpaged.rest..begin].first_chunk::<CRC_BYTES>();
            if said.map(|said| u32::from_be_bytes(*said)) != Some(crc(bytes)) {
                unpaged.wrong.push((self.at, page));
            }
            raw.copy_within(begin..begin + page, unpaged.len);
            unpaged.len += page;
            unpaged.rest = begin + page;
            self.at += page as u64;
            self.left -= (CRC_BYTES + page) as u64;
        }
    }
}
