//! What was thrown away while looking for the liar, and what it is still good for.
//!
//! It is kept in small parts, each with its checksum. Two that sent different bytes for the same place are not both
//! honest, so that no hypothesis needs to be tried that believes both. And what is still in the file as a source
//! that is believed again sent it, because another one sent the same, need not be sent again. A liar can make up bytes with
//! the adler32 of others, and so would be believed under another's name: for that, a strong checksum counts.
//!
//! Nothing here opens a file: a [`Reader`] reads.

use gridlane_core::checksum::{ADLER32_EMPTY, adler32, adler32_combine};
use gridlane_core::{ByteRange, Checksum, ChecksumKind, Hasher};

use super::ledger::{Piece, Sender};

/// The smallest parts that are compared: a request of a lane has several.
const PART_BYTES_MIN: u64 = 1024 * 1024;
/// So many parts a file of one sender is cut into at most: 2 MB of memory each time that all is thrown away.
const PARTS_MAX: u64 = 16 * 1024;

/// Reads what the target has.
pub trait Reader {
    /// Gives all bytes of `range` to `take`, in order. `false`: they could not be read.
    fn read(&self, range: ByteRange, take: &mut dyn FnMut(&[u8])) -> bool;
}

/// Bytes of one sender that were thrown away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thrown {
    /// The piece that they were.
    pub(super) piece: Piece,
    /// Of a part that was cut: its SHA-256.
    sha256: Option<Checksum>,
}

impl From<Piece> for Thrown {
    fn from(piece: Piece) -> Thrown {
        Thrown { piece, sha256: None }
    }
}

impl Thrown {
    /// True if a strong checksum of it is known, and its bytes can be taken back by that.
    pub(super) fn is_cut(&self) -> bool {
        self.sha256.is_some()
    }
}

/// A question to the bytes that the target has.
#[derive(Clone, Debug)]
pub enum ReadBack {
    /// Which of these parts, that were replaced by bytes of the second sender, were other bytes?
    Differing(Vec<(Piece, Sender)>),
    /// Bytes that were thrown away just now, cut into parts; and of what was thrown away earlier, the parts that are there.
    Cut {
        /// Thrown away just now.
        fresh: Vec<Piece>,
        /// Thrown away earlier, of senders that are believed again.
        claims: Vec<Thrown>,
        /// Where to cut: at multiples of this.
        part_bytes: u64,
    },
    /// Which of these parts are there?
    Still(Vec<Thrown>),
    /// Which of these pieces are not as they came?
    Damage(Vec<Piece>),
}

/// The answer to a [`ReadBack`].
#[derive(Clone, Debug)]
pub enum Answer {
    /// The senders of parts that were others than the bytes which are there from the second sender.
    Differing(Vec<[Sender; 2]>),
    /// See [`ReadBack::Cut`].
    Cut {
        /// Parts of what was thrown away just now.
        cut: Vec<Thrown>,
        /// Parts that are there although they were thrown away.
        kept: Vec<Piece>,
    },
    /// The parts that are there.
    Still(Vec<Thrown>),
    /// Where the pieces are that are not as they came.
    Damage(Vec<ByteRange>),
}

impl ReadBack {
    /// Looks for the answer. May read all of the file.
    pub fn answer(self, reader: &dyn Reader) -> Answer {
        match self {
            ReadBack::Differing(replaced) => {
                let differing = replaced.into_iter().filter(|(piece, _)| has_others(reader, piece));
                Answer::Differing(differing.map(|(piece, now)| [piece.sender, now]).collect())
            }
            ReadBack::Cut { fresh, claims, part_bytes } => {
                let cut = fresh.iter().flat_map(|piece| cut(reader, piece, part_bytes)).collect();
                let is_lost =
                    |claim: &Thrown| fresh.iter().any(|piece| piece.range.contains(claim.piece.range));
                let there = claims.into_iter().filter(|claim| is_lost(claim) && is_there(reader, claim));
                Answer::Cut { cut, kept: there.map(|claim| claim.piece).collect() }
            }
            ReadBack::Still(parts) => {
                Answer::Still(parts.into_iter().filter(|part| is_there(reader, part)).collect())
            }
            ReadBack::Damage(pieces) => {
                let differs = |piece: &Piece| adler32_of(reader, piece.range, |_| {}) != Some(piece.adler32);
                let differing = pieces.into_iter().filter(differs);
                Answer::Damage(differing.map(|piece| piece.range).collect())
            }
        }
    }
}

/// Where to cut what is thrown away of a file of this size.
pub(super) fn part_bytes(size_bytes: u64) -> u64 {
    (size_bytes / PARTS_MAX).max(PART_BYTES_MIN)
}

/// The adler32 of a range, all of which goes through `take` as well; `None` when it cannot be read.
pub fn adler32_of(reader: &dyn Reader, range: ByteRange, mut take: impl FnMut(&[u8])) -> Option<u32> {
    let mut sum = ADLER32_EMPTY;
    let is_read = reader.read(range, &mut |bytes| {
        sum = adler32_combine(sum, adler32(bytes), bytes.len() as u64);
        take(bytes);
    });
    is_read.then_some(sum)
}

/// True if there are other bytes in the place of a piece. What cannot be read contradicts no sender.
fn has_others(reader: &dyn Reader, piece: &Piece) -> bool {
    // By adler32 alone, which takes less time: where that differs, the bytes do.
    adler32_of(reader, piece.range, |_| {}).is_some_and(|adler32| adler32 != piece.adler32)
}

/// True if a part's bytes are there: the same SHA-256, where the part has one.
fn is_there(reader: &dyn Reader, part: &Thrown) -> bool {
    let mut hasher = part.sha256.as_ref().map(|_| Hasher::new(ChecksumKind::Sha256));
    let adler32 = adler32_of(reader, part.piece.range, |bytes| {
        if let Some(hasher) = &mut hasher {
            hasher.update(bytes);
        }
    });
    adler32 == Some(part.piece.adler32) && hasher.map(Hasher::finish) == part.sha256
}

/// Cuts a piece into parts at multiples of `part_bytes`. It stays whole when there are other bytes by now.
fn cut(reader: &dyn Reader, piece: &Piece, part_bytes: u64) -> Vec<Thrown> {
    let (mut parts, mut all, mut at) = (Vec::new(), ADLER32_EMPTY, piece.range.start());
    while at < piece.range.end() {
        let end = ((at / part_bytes + 1) * part_bytes).min(piece.range.end());
        let range = ByteRange::new(at, end);
        let mut hasher = Hasher::new(ChecksumKind::Sha256);
        let Some(adler32) = adler32_of(reader, range, |bytes| hasher.update(bytes)) else { break };
        all = adler32_combine(all, adler32, range.len());
        parts.push(Thrown { piece: Piece { range, adler32, ..*piece }, sha256: Some(hasher.finish()) });
        at = end;
    }
    match all == piece.adler32 && at == piece.range.end() {
        true => parts,
        false => vec![Thrown::from(*piece)],
    }
}

/// Reads what is in memory.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl Reader for Bytes<'_> {
    fn read(&self, range: ByteRange, take: &mut dyn FnMut(&[u8])) -> bool {
        self.0.get(range.start() as usize..range.end() as usize).map(take).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_cut_as_long_as_its_bytes_are_there() {
        let bytes: Vec<u8> = (0..100).collect();
        let piece = Piece { range: ByteRange::new(5, 47), adler32: adler32(&bytes[5..47]), sender: 3 };
        let parts = cut(&Bytes(&bytes), &piece, 20);
        let ranges: Vec<ByteRange> = parts.iter().map(|part| part.piece.range).collect();
        assert_eq!(ranges, [ByteRange::new(5, 20), ByteRange::new(20, 40), ByteRange::new(40, 47)]);
        assert!(parts.iter().all(|part| part.piece.sender == 3 && is_there(&Bytes(&bytes), part)));

        let mut others = bytes.clone();
        others[30] ^= 1;
        let there: Vec<bool> = parts.iter().map(|part| is_there(&Bytes(&others), part)).collect();
        assert_eq!(there, [true, false, true]);
        assert!(
            has_others(&Bytes(&others), &parts[1].piece) && !has_others(&Bytes(&others), &parts[0].piece)
        );
        assert!(!has_others(&Bytes(&bytes[..30]), &parts[1].piece), "what cannot be read contradicts nobody");
        let whole = [Thrown::from(piece)];
        assert_eq!(cut(&Bytes(&others), &piece, 20), whole, "they were written over");
        assert_eq!(cut(&Bytes(&bytes[..30]), &piece, 20), whole, "they are not there");
    }

    #[test]
    fn bytes_that_were_made_up_to_have_the_same_adler32_are_others() {
        let bytes = [50_u8; 20];
        let piece = Piece { range: ByteRange::new(0, 20), adler32: adler32(&bytes), sender: 3 };
        let parts = cut(&Bytes(&bytes), &piece, 20);
        let mut others = bytes;
        (others[4], others[5], others[6]) = (51, 48, 51);
        assert_eq!(adler32(&others), piece.adler32);
        assert!(!is_there(&Bytes(&others), &parts[0]));
    }
}
