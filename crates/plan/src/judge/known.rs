//! What is known of the object before any source is asked: what a metalink says of it.

use gridlane_core::{ByteRange, Checksum, ChecksumKind};

/// The statements of a believed party about the object. It counts before what sources say, and after what the
/// caller says.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Its size.
    pub size_bytes: Option<u64>,
    /// Checksums of the whole, the strongest first; all of them are compared.
    pub checksums: Vec<Checksum>,
    /// Checksums of its pieces. Without a size they are not used: nothing would tell where the last one ends.
    pub pieces: Option<PieceHashes>,
}

/// Checksums of the pieces of an object (RFC 5854, 4.1.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceHashes {
    kind: ChecksumKind,
    piece_bytes: u64,
    size_bytes: u64,
    hashes: Vec<Checksum>,
}

impl PieceHashes {
    /// For an object of `size_bytes`, cut into pieces of `piece_bytes` of which only the last may be shorter.
    /// `None` when that is not what the checksums can be of.
    pub fn new(size_bytes: u64, piece_bytes: u64, hashes: Vec<Checksum>) -> Option<PieceHashes> {
        let kind = hashes.first()?.kind();
        let is_whole = piece_bytes > 0 && size_bytes.div_ceil(piece_bytes) == hashes.len() as u64;
        (is_whole && hashes.iter().all(|hash| hash.kind() == kind)).then_some(PieceHashes {
            kind,
            piece_bytes,
            size_bytes,
            hashes,
        })
    }

    /// The algorithm.
    pub fn kind(&self) -> ChecksumKind {
        self.kind
    }

    /// Bytes of a piece.
    pub fn piece_bytes(&self) -> u64 {
        self.piece_bytes
    }

    /// Bytes of the object.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The piece that a byte is in.
    pub fn index_of(&self, offset: u64) -> u64 {
        offset / self.piece_bytes
    }

    /// Where a piece lies.
    pub fn range(&self, index: u64) -> ByteRange {
        let start = (index * self.piece_bytes).min(self.size_bytes);
        ByteRange::new(start, start.saturating_add(self.piece_bytes).min(self.size_bytes))
    }

    /// True if these are the bytes of a piece, by their checksum.
    pub fn is_right(&self, index: u64, found: &Checksum) -> bool {
        self.hashes.get(index as usize) == Some(found)
    }

    /// The pieces that `range` touches.
    pub fn touched(&self, range: ByteRange) -> impl Iterator<Item = u64> + use<> {
        let last = range.end().min(self.size_bytes).div_ceil(self.piece_bytes);
        self.index_of(range.start())..last
    }

    /// `range`, cut where pieces end.
    pub fn cut(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        let parts = self.touched(range).map(move |index| self.range(index).intersection(range));
        // What lies behind the last piece belongs to none.
        let behind = range.intersection(ByteRange::new(self.size_bytes, u64::MAX));
        parts.chain((!behind.is_empty()).then_some(behind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_object_and_nothing_else() {
        let hash: Checksum = "md5:900150983cd24fb0d6963f7d28e17f72".parse().unwrap();
        let pieces = PieceHashes::new(25, 10, vec![hash.clone(); 3]).unwrap();
        assert_eq!(pieces.range(2), ByteRange::new(20, 25));
        let parts: Vec<ByteRange> = pieces.cut(ByteRange::new(5, 22)).collect();
        assert_eq!(parts, [ByteRange::new(5, 10), ByteRange::new(10, 20), ByteRange::new(20, 22)]);
        assert_eq!(pieces.cut(ByteRange::new(24, 27)).count(), 2);
        assert_eq!(pieces.cut(ByteRange::new(10, 20)).collect::<Vec<_>>(), [ByteRange::new(10, 20)]);
        assert!(pieces.is_right(1, &hash) && !pieces.is_right(3, &hash));
        for (size, piece) in [(25, 0), (31, 10), (20, 10), (0, 10)] {
            assert_eq!(PieceHashes::new(size, piece, vec![hash.clone(); 3]), None);
        }
        assert_eq!(PieceHashes::new(20, 10, vec![hash, Checksum::adler32(1)]), None);
        assert_eq!(PieceHashes::new(0, 10, Vec::new()), None);
    }
}
