//! The checksum of a file that is written in pieces, in any order, each byte once.
//!
//! The adler32 of adjoining pieces is combined into that of both, so that a whole upload is one piece in the end and
//! its checksum costs no second look at the bytes. A byte that is written twice makes it unknown: without reading the
//! file it is not known which of the two is there.

use std::collections::BTreeMap;

use gridlane_core::checksum::{ADLER32_EMPTY, adler32_combine};
use gridlane_core::{ByteRange, Checksum, limits};
use gridlane_store::Whole;

/// The ranges that were written, and their checksums.
#[derive(Default)]
pub(crate) struct Written {
    /// By where they begin; none touches the next.
    pieces: BTreeMap<u64, Piece>,
    is_unknown: bool,
}

#[derive(Clone, Copy)]
struct Piece {
    end: u64,
    adler32: u32,
}

impl Written {
    /// Adds bytes that were written, and their adler32.
    pub(crate) fn add(&mut self, range: ByteRange, adler32: u32) {
        if self.is_unknown || range.is_empty() {
            return;
        }
        let mut start = range.start();
        let mut piece = Piece { end: range.end(), adler32 };
        let before = self.pieces.range(..=start).next_back().map(|(start, piece)| (*start, *piece));
        let after = self.pieces.range(start..).next().map(|(start, piece)| (*start, *piece));
        if before.is_some_and(|(_, before)| before.end > start)
            || after.is_some_and(|(after, _)| after < piece.end)
        {
            return self.forget();
        }
        if let Some((behind, after)) = after.filter(|(after, _)| *after == piece.end) {
            self.pieces.remove(&behind);
            piece = Piece {
                end: after.end,
                adler32: adler32_combine(piece.adler32, after.adler32, after.end - behind),
            };
        }
        if let Some((ahead, before)) = before.filter(|(_, before)| before.end == start) {
            piece.adler32 = adler32_combine(before.adler32, piece.adler32, piece.end - start);
            start = ahead;
        }
        self.pieces.insert(start, piece);
        if self.pieces.len() > limits::ROOT_WRITTEN_PIECES_MAX {
            self.forget();
        }
    }

    /// Forgets everything: bytes were changed in another way.
    pub(crate) fn forget(&mut self) {
        self.pieces.clear();
        self.is_unknown = true;
    }

    /// The checksum of the whole file, if each of its bytes was written once.
    pub(crate) fn whole(&self) -> Option<Whole> {
        let mut pieces = self.pieces.iter();
        let (size_bytes, adler32) = match (pieces.next(), pieces.next()) {
            _ if self.is_unknown => return None,
            (None, _) => (0, ADLER32_EMPTY),
            (Some((0, piece)), None) => (piece.end, piece.adler32),
            _ => return None,
        };
        Some(Whole { size_bytes, checksums: vec![Checksum::adler32(adler32)] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_core::checksum::adler32;
    use proptest::prelude::*;

    #[test]
    fn gaps_and_rewritten_bytes_have_no_checksum() {
        let whole =
            |size_bytes, adler32| Some(Whole { size_bytes, checksums: vec![Checksum::adler32(adler32)] });
        let range = ByteRange::new;
        let mut written = Written::default();
        assert_eq!(written.whole(), whole(0, 1));
        written.add(range(4, 8), adler32(b"4567"));
        assert_eq!(written.whole(), None);
        written.add(range(8, 8), 1);
        written.add(range(0, 4), adler32(b"0123"));
        assert_eq!(written.whole(), whole(8, adler32(b"01234567")));
        for twice in [range(0, 1), range(3, 5), range(7, 9), range(0, 100)] {
            let mut written = Written::default();
            written.add(range(0, 8), 7);
            written.add(range(8, 10), 7);
            written.add(twice, 7);
            assert_eq!(written.whole(), None, "{twice:?}");
        }
        written.forget();
        written.add(range(0, 4), 1);
        assert_eq!(written.whole(), None);
    }

    #[test]
    fn pieces_are_bounded() {
        let mut written = Written::default();
        for at in 0..=limits::ROOT_WRITTEN_PIECES_MAX as u64 {
            assert!(!written.is_unknown);
            written.add(ByteRange::at(at * 2, 1), 1);
        }
        assert!(written.is_unknown && written.pieces.is_empty());
    }

    proptest! {
        #[test]
        fn any_order_gives_the_checksum_of_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..4000),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
            order in prop::collection::vec(any::<u32>(), 32),
        ) {
            let mut borders: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            borders.extend([0, bytes.len()]);
            borders.sort_unstable();
            let mut pieces: Vec<_> = borders.windows(2).zip(order).collect();
            pieces.sort_unstable_by_key(|(_, order)| *order);
            let mut written = Written::default();
            for (piece, _) in pieces {
                let range = ByteRange::new(piece[0] as u64, piece[1] as u64);
                written.add(range, adler32(&bytes[piece[0]..piece[1]]));
            }
            let (size_bytes, checksums) = (bytes.len() as u64, vec![Checksum::adler32(adler32(&bytes))]);
            prop_assert_eq!(written.whole(), Some(Whole { size_bytes, checksums }));
            prop_assert!(written.pieces.len() <= 1);
        }
    }
}
