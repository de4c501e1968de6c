//! What was thrown away while looking for who lied, and what it is still good for.
//!
//! It is kept in small parts, each with its checksum. Two who sent different bytes for the same place are not both
//! honest, so that no hypothesis needs to be tried that believes both. And what is still in the file as somebody who
//! is believed again sent it, because another one sent the same, need not be sent again. A liar can make up bytes with
//! the adler32 of others, and so would be believed under another's name: for that, a strong checksum counts.

use std::fs::File;

use gridlane_core::checksum::{ADLER32_EMPTY, adler32_combine};
use gridlane_core::{ByteRange, Checksum, ChecksumKind, Error, ErrorKind, Hasher, Result};
use gridlane_plan as plan;

use crate::resume::adler32_of;
use crate::run::Run;
use gridlane_plan::judge::{Piece, Sender};

/// The smallest parts that are compared: a request of a lane has several.
const PART_BYTES_MIN: u64 = 1024 * 1024;
/// So many parts a file of one sender is cut into at most: 2 MB of memory each time that all is thrown away.
const PARTS_MAX: u64 = 16 * 1024;

/// Bytes of one sender that were thrown away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Thrown {
    pub(crate) piece: Piece,
    /// Of a part that was cut: its SHA-256.
    sha256: Option<Checksum>,
}

impl From<Piece> for Thrown {
    fn from(piece: Piece) -> Thrown {
        Thrown { piece, sha256: None }
    }
}

impl Run<'_> {
    /// Of parts that were thrown away, those that the file has all the same.
    pub(crate) async fn still_there(&self, parts: Vec<Thrown>) -> Result<Vec<Thrown>> {
        self.read_back(move |file| parts.into_iter().filter(|part| is_there(file, part)).collect()).await
    }

    /// Notes who contradicts whom: sent other bytes than are there now from somebody else.
    pub(crate) async fn note_contradictions(&mut self) -> Result<()> {
        let replaced: Vec<(Thrown, Sender)> = {
            let ledger = self.target.ledger();
            let by_another = |part: &Piece| ledger.sender_of(part.range).filter(|now| *now != part.sender);
            // By adler32 alone, which takes less time: where that differs, the bytes do.
            let pieces = self.thrown.iter().map(|part| part.piece);
            pieces.filter_map(|piece| Some((Thrown::from(piece), by_another(&piece)?))).collect()
        };
        let differing = self.read_back(move |file| {
            replaced.into_iter().filter(|(part, _)| has_others(file, part)).collect::<Vec<_>>()
        });
        let differing = differing.await?;
        if let Some(suspects) = &mut self.suspects {
            differing.into_iter().for_each(|(part, now)| suspects.contradict(part.piece.sender, now));
        }
        Ok(())
    }

    /// After bytes were thrown away, the last ones from `thrown[first..]` on: spares those who are believed sending
    /// again what the file has as they sent it.
    pub(crate) async fn spare(&mut self, first: usize) -> Result<()> {
        let fresh: Vec<Piece> = self.thrown.split_off(first).into_iter().map(|thrown| thrown.piece).collect();
        let believed = self.believed();
        let is_claim = |part: &&Thrown| part.sha256.is_some() && believed.contains(&part.piece.sender);
        let claims: Vec<Thrown> = self.thrown.iter().filter(is_claim).cloned().collect();
        let part_bytes = (self.size_bytes.unwrap_or(0) / PARTS_MAX).max(PART_BYTES_MIN);
        let read = self.read_back(move |file| {
            let cut: Vec<Thrown> = fresh.iter().flat_map(|piece| cut(file, piece, part_bytes)).collect();
            let is_lost = |claim: &Thrown| fresh.iter().any(|piece| piece.range.contains(claim.piece.range));
            let there = claims.into_iter().filter(|claim| is_lost(claim) && is_there(file, claim));
            let kept: Vec<Piece> = there.map(|claim| claim.piece).collect();
            (cut, kept)
        });
        let (cut, kept) = read.await?;
        self.thrown.extend(cut);
        let now = self.pace.now();
        for part in kept {
            if self.target.ledger().regain(part) {
                self.plan.handle(now, plan::Event::AlreadyDone { range: part.range });
                self.wrong_bytes -= self.bytes_of_this_run(&[part]);
            }
        }
        Ok(())
    }

    /// Reads the file where blocking is allowed.
    pub(crate) async fn read_back<T: Default + Send + 'static>(
        &self,
        read: impl FnOnce(&File) -> T + Send + 'static,
    ) -> Result<T> {
        let Some(partial) = self.target.partial() else { return Ok(T::default()) };
        let file = partial.file().try_clone();
        let file = file.map_err(|cause| Error::local_io("cannot read the file back", &cause))?;
        let outcome = tokio::task::spawn_blocking(move || read(&file)).await;
        outcome.map_err(|cause| Error::new(ErrorKind::Other, format!("reading back failed: {cause}")))
    }
}

/// Whether the file has other bytes in the place of a part. What cannot be read contradicts nobody.
fn has_others(file: &File, part: &Thrown) -> bool {
    adler32_of(file, part.piece.range, |_| {}).is_some_and(|adler32| adler32 != part.piece.adler32)
}

/// Whether the file has a part's bytes: the same SHA-256, where the part has one.
fn is_there(file: &File, part: &Thrown) -> bool {
    let mut hasher = part.sha256.as_ref().map(|_| Hasher::new(ChecksumKind::Sha256));
    let adler32 = adler32_of(file, part.piece.range, |bytes| {
        if let Some(hasher) = &mut hasher {
            hasher.update(bytes);
        }
    });
    adler32 == Some(part.piece.adler32) && hasher.map(Hasher::finish) == part.sha256
}

/// Cuts a piece into parts at multiples of `part_bytes`. It stays whole when the file has other bytes by now.
fn cut(file: &File, piece: &Piece, part_bytes: u64) -> Vec<Thrown> {
    let (mut parts, mut all, mut at) = (Vec::new(), ADLER32_EMPTY, piece.range.start());
    while at < piece.range.end() {
        let end = ((at / part_bytes + 1) * part_bytes).min(piece.range.end());
        let range = ByteRange::new(at, end);
        let mut hasher = Hasher::new(ChecksumKind::Sha256);
        let Some(adler32) = adler32_of(file, range, |bytes| hasher.update(bytes)) else { break };
        all = adler32_combine(all, adler32, range.len());
        parts.push(Thrown { piece: Piece { range, adler32, ..*piece }, sha256: Some(hasher.finish()) });
        at = end;
    }
    match all == piece.adler32 && at == piece.range.end() {
        true => parts,
        false => vec![Thrown::from(*piece)],
    }
}

#[cfg(test)]
mod tests {
    use gridlane_core::checksum::adler32;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0).unwrap();
        file
    }

    #[test]
    fn a_piece_is_cut_as_long_as_its_bytes_are_there() {
        let bytes: Vec<u8> = (0..100).collect();
        let piece = Piece { range: ByteRange::new(5, 47), adler32: adler32(&bytes[5..47]), sender: 3 };
        let parts = cut(&file(&bytes), &piece, 20);
        let ranges: Vec<ByteRange> = parts.iter().map(|part| part.piece.range).collect();
        assert_eq!(ranges, [ByteRange::new(5, 20), ByteRange::new(20, 40), ByteRange::new(40, 47)]);
        assert!(parts.iter().all(|part| part.piece.sender == 3 && is_there(&file(&bytes), part)));

        let mut others = bytes.clone();
        others[30] ^= 1;
        let there: Vec<bool> = parts.iter().map(|part| is_there(&file(&others), part)).collect();
        assert_eq!(there, [true, false, true]);
        assert!(has_others(&file(&others), &parts[1]) && !has_others(&file(&others), &parts[0]));
        assert!(!has_others(&file(&bytes[..30]), &parts[1]), "what cannot be read contradicts nobody");
        let whole = [Thrown::from(piece)];
        assert_eq!(cut(&file(&others), &piece, 20), whole, "they were written over");
        assert_eq!(cut(&file(&bytes[..30]), &piece, 20), whole, "they are not there");
    }

    #[test]
    fn bytes_that_were_made_up_to_have_the_same_adler32_are_others() {
        let bytes = [50_u8; 20];
        let piece = Piece { range: ByteRange::new(0, 20), adler32: adler32(&bytes), sender: 3 };
        let parts = cut(&file(&bytes), &piece, 20);
        let mut others = bytes;
        (others[4], others[5], others[6]) = (51, 48, 51);
        assert_eq!(adler32(&others), piece.adler32);
        assert!(!is_there(&file(&others), &parts[0]));
    }
}
