//! Pages that come with a checksum each.
//!
//! Each is looked at while it is in cache. A wrong one is written all the same, as in XRootD: the client is told
//! which, and sends it again. Until then the file cannot be closed in good order.

use std::io::IoSlice;

use gridlane_core::ByteRange;
use gridlane_core::checksum::{adler32, adler32_combine};
use gridlane_xrd::pages::{self, CRC_BYTES, WrongPages};

/// The number of bytes of whole pages that fit into a buffer together with their checksums.
pub(crate) fn data_that_fits(range: ByteRange, room: usize) -> u64 {
    let mut framed = 0;
    let fits = |(_, len): &(u64, usize)| {
        framed += CRC_BYTES + len;
        framed <= room
    };
    pages::pages(range.start(), range.len()).take_while(fits).map(|(_, len)| len as u64).sum()
}

/// Pages, without their checksums.
pub(crate) struct CheckedPages<'a> {
    /// All of them.
    pub(crate) pages: Vec<IoSlice<'a>>,
    /// Runs of those that are what their checksums say, with the adler32 of each run.
    pub(crate) right: Vec<(ByteRange, u32)>,
    /// The others.
    pub(crate) wrong: WrongPages,
}

impl CheckedPages<'_> {
    /// `framed` is as long as `range` makes it.
    pub(crate) fn of(range: ByteRange, framed: &[u8]) -> CheckedPages<'_> {
        let mut pages = Vec::with_capacity(framed.len().div_ceil(pages::UNIT_BYTES) + 1);
        let (mut right, mut wrong): (Vec<(ByteRange, u32)>, _) = (Vec::new(), WrongPages::new());
        let mut rest = framed;
        for (at, len) in pages::pages(range.start(), range.len()) {
            let Some((said, behind)) = rest.split_first_chunk::<CRC_BYTES>() else { break };
            let Some((page, behind)) = behind.split_at_checked(len) else { break };
            rest = behind;
            pages.push(IoSlice::new(page));
            if pages::crc(page) != u32::from_be_bytes(*said) {
                wrong.push((at, len));
                continue;
            }
            let sum = adler32(page);
            match right.last_mut() {
                Some((run, whole)) if run.end() == at => {
                    *run = ByteRange::new(run.start(), at + len as u64);
                    *whole = adler32_combine(*whole, sum, len as u64);
                }
                _ => right.push((ByteRange::at(at, len as u64), sum)),
            }
        }
        debug_assert!(rest.is_empty());
        CheckedPages { pages, right, wrong }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn as_many_pages_as_fit() {
        let range = ByteRange::new;
        for (pages, room, expected) in [
            (range(0, 1 << 20), 256 * 1024, 63 * 4096),
            (range(4095, 1 << 20), 256 * 1024, 1 + 63 * 4096),
            (range(0, 64 * 4096), 64 * 4100, 64 * 4096),
            (range(0, 64 * 4096), 64 * 4100 - 1, 63 * 4096),
            (range(10, 20), 256 * 1024, 10),
        ] {
            assert_eq!(data_that_fits(pages, room), expected, "{pages}");
        }
    }

    proptest! {
        #[test]
        fn pages_lose_their_checksums_and_wrong_ones_are_found(
            offset in 0u64..10_000,
            bytes in prop::collection::vec(any::<u8>(), 1..50_000),
            bad in prop::collection::btree_set(0usize..13, 0..5),
        ) {
            let range = ByteRange::at(offset, bytes.len() as u64);
            let mut framed = Vec::new();
            pages::frame(offset, &bytes, &mut framed);
            let mut expected = Vec::new();
            let mut at = 0;
            for (index, (begin, len)) in pages::pages(offset, range.len()).enumerate() {
                if bad.contains(&index) {
                    framed[at] ^= 1;
                    expected.push((begin, len));
                }
                at += CRC_BYTES + len;
            }
            let checked = CheckedPages::of(range, &framed);
            prop_assert_eq!(&checked.wrong, &expected);
            let whole: Vec<u8> = checked.pages.iter().flat_map(|page| page.to_vec()).collect();
            prop_assert_eq!(&whole, &bytes);
            for (run, sum) in &checked.right {
                let (begin, end) = ((run.start() - offset) as usize, (run.end() - offset) as usize);
                prop_assert_eq!(*sum, adler32(&bytes[begin..end]));
            }
            let right: u64 = checked.right.iter().map(|(run, _)| run.len()).sum();
            let wrong: u64 = expected.iter().map(|(_, len)| *len as u64).sum();
            prop_assert_eq!(right + wrong, range.len());
        }
    }
}
