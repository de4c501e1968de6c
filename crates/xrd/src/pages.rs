//! Pages: how bytes travel with a checksum for each 4096 of them (`pgread`, `pgwrite`).
//!
//! Pages are aligned to the file, so that the first and the last may be short. In front of each is its CRC-32C
//! (Castagnoli), big-endian:
//!
//! ```text
//! crc (4)   page (1 to 4096)   crc (4)   page (4096)   …   crc (4)   page (1 to 4096)
//! ```

/// Bytes of a page that is not the first or last.
pub const PAGE_BYTES: usize = 4096;
/// Bytes of a page's checksum.
pub const CRC_BYTES: usize = 4;
/// Bytes of a whole page with its checksum.
pub const UNIT_BYTES: usize = PAGE_BYTES + CRC_BYTES;

/// The checksum of a page.
pub fn crc(page: &[u8]) -> u32 {
    crc32c::crc32c(page)
}

/// Bytes of the page that begins at `offset`, when `left` bytes are left.
pub fn page_len(offset: u64, left: u64) -> usize {
    let room = PAGE_BYTES as u64 - offset % PAGE_BYTES as u64;
    left.min(room) as usize
}

/// Number of pages that `len` bytes at `offset` are in.
pub fn count(offset: u64, len: u64) -> u64 {
    if len == 0 {
        return 0;
    }
    let begin = offset % PAGE_BYTES as u64;
    (begin + len).div_ceil(PAGE_BYTES as u64)
}

/// Bytes on the wire of `len` bytes at `offset`: with their checksums.
pub fn framed_len(offset: u64, len: u64) -> u64 {
    len + count(offset, len) * CRC_BYTES as u64
}

/// Bytes without checksums of `framed` bytes on the wire that begin at `offset`; `None` when the last page would
/// have a checksum and no byte.
pub fn data_len(offset: u64, framed: u64) -> Option<u64> {
    if framed == 0 {
        return Some(0);
    }
    let first = PAGE_BYTES as u64 - offset % PAGE_BYTES as u64 + CRC_BYTES as u64;
    let pages = match framed.checked_sub(first) {
        None => 1,
        Some(rest) => 1 + rest.div_ceil(UNIT_BYTES as u64),
    };
    let data = framed.checked_sub(pages * CRC_BYTES as u64)?;
    (framed_len(offset, data) == framed).then_some(data)
}

/// The lengths of the pages that `len` bytes at `offset` are in, and where each begins.
pub fn pages(offset: u64, len: u64) -> impl Iterator<Item = (u64, usize)> {
    let end = offset.saturating_add(len);
    let mut at = offset;
    std::iter::from_fn(move || {
        let page = page_len(at, end - at);
        let begin = at;
        at += page as u64;
        (page > 0).then_some((begin, page))
    })
}

/// Appends `bytes`, which belong at `offset`, with their checksums.
pub fn frame(offset: u64, bytes: &[u8], out: &mut Vec<u8>) {
    let mut rest = bytes;
    for (_, len) in pages(offset, bytes.len() as u64) {
        let (page, behind) = rest.split_at(len);
        out.extend_from_slice(&crc(page).to_be_bytes());
        out.extend_from_slice(page);
        rest = behind;
    }
}

/// Pages that are not what their checksum says: where each begins, and its length.
pub type WrongPages = Vec<(u64, usize)>;

/// Takes the checksums out of `framed`, which begins at `offset`: the bytes, and the wrong pages. `None` when the
/// framing makes no sense.
pub fn unframe(offset: u64, framed: &[u8]) -> Option<(Vec<u8>, WrongPages)> {
    let len = data_len(offset, framed.len() as u64)?;
    let mut bytes = Vec::with_capacity(framed.len());
    let mut wrong = Vec::new();
    let mut rest = framed;
    for (at, len) in pages(offset, len) {
        let (said, behind) = rest.split_first_chunk::<CRC_BYTES>()?;
        let (page, behind) = behind.split_at_checked(len)?;
        if crc(page) != u32::from_be_bytes(*said) {
            wrong.push((at, len));
        }
        bytes.extend_from_slice(page);
        rest = behind;
    }
    Some((bytes, wrong))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_check_value_and_what_was_captured() {
        assert_eq!(crc(b"123456789"), 0xe306_9283);
        let mut out = Vec::new();
        frame(4090, b"0123456789", &mut out);
        assert_eq!(out.len(), 18);
        assert_eq!(out[..4], [0x4f, 0x71, 0x0f, 0x39]);
        assert_eq!(out[10..14], [0xc2, 0x7e, 0x5d, 0xb2]);
        out[13] = 0xb3;
        let (bytes, wrong) = unframe(4090, &out).unwrap();
        assert_eq!((bytes.as_slice(), wrong), (&b"0123456789"[..], vec![(4096, 4)]));
        assert_eq!(unframe(4090, &out[..14]), None);
        assert_eq!(data_len(4090, 4), None);
    }

    proptest! {
        #[test]
        fn framing_is_undone(offset in 0u64..20_000, bytes in prop::collection::vec(any::<u8>(), 0..20_000)) {
            let mut out = Vec::new();
            frame(offset, &bytes, &mut out);
            prop_assert_eq!(out.len() as u64, framed_len(offset, bytes.len() as u64));
            prop_assert_eq!(data_len(offset, out.len() as u64), Some(bytes.len() as u64));
            prop_assert_eq!(pages(offset, bytes.len() as u64).count() as u64, count(offset, bytes.len() as u64));
            let (back, wrong) = unframe(offset, &out).unwrap();
            prop_assert!(wrong.is_empty());
            prop_assert_eq!(back, bytes);
        }

        #[test]
        fn any_length_is_a_length_or_none(offset in any::<u64>(), framed in 0u64..100_000) {
            let offset = offset >> 1;
            if let Some(len) = data_len(offset, framed) {
                prop_assert_eq!(framed_len(offset, len), framed);
            }
        }
    }
}
