//! Comparing each piece with its checksum as soon as its bytes are there.
//!
//! Lanes do it, behind their own writes: the lane with the last byte of a piece compares it. Into a file, the
//! part of a piece that came in order from its beginning was hashed while it was in the cache; what
//! came otherwise is read back. A target in order is given whole pieces that are right; until then they
//! are kept here, and the plan's window bounds how many.
//!
//! The only sender of a wrong piece is wrong. Where several sources sent parts of it, their parts are compared with the
//! right ones when those have come, by SHA-256: a hostile source can make up bytes with the adler32 of right ones, and would
//! never be found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gridlane_core::checksum::adler32;
use gridlane_core::{ByteRange, Checksum, ChecksumKind, Error, Hasher, RangeSet, Result};
use gridlane_plan::judge::{Piece, PieceHashes, Sender, adler32_of};
use gridlane_store::journal::JournaledRange;

use crate::read_back::{OfTarget, matching};

/// The outcome of comparing a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is wrong and will be fetched again; what `parts` these were.
    Wrong { parts: Vec<Piece> },
    /// It is right, after it was wrong; whose parts had been wrong.
    Mended { liars: Vec<Sender> },
}

/// The pieces of one copy.
#[derive(Debug)]
pub(crate) struct Pieces {
    pub(crate) hashes: PieceHashes,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Of pieces that are being written to a file: what came in order from their beginning.
    begun: BTreeMap<u64, Begun>,
    /// Of pieces for a target in order: their bytes.
    kept: BTreeMap<u64, Box<[u8]>>,
    /// Of pieces that were wrong and had several senders: what each had sent.
    wrong: BTreeMap<u64, Vec<WrongPart>>,
}

/// A part of a wrong piece.
#[derive(Debug)]
struct WrongPart {
    piece: Piece,
    /// Of the bytes as they were sent; `None` where others were there already when they were to be hashed.
    sha256: Option<Checksum>,
}

struct Begun {
    hasher: Hasher,
    /// The ledger's epoch when the first byte came.
    epoch: u64,
    /// Everything in front of this has been hashed.
    next: u64,
}

impl std::fmt::Debug for Begun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "up to {} in epoch {}", self.next, self.epoch)
    }
}

impl Pieces {
    pub(crate) fn new(hashes: PieceHashes) -> Pieces {
        Pieces { hashes, state: Mutex::default() }
    }

    /// Hashes bytes that were just written at the beginning of a piece, or where its hashed part ends.
    /// `part` lies in one piece.
    pub(crate) fn hash(&self, part: ByteRange, bytes: &[u8], epoch: u64) {
        let index = self.hashes.index_of(part.start());
        let begun = self.state().begun.remove(&index);
        let mut begun = match begun {
            _ if part.start() == self.hashes.range(index).start() => {
                Begun { hasher: Hasher::new(self.hashes.kind()), epoch, next: part.start() }
            }
            Some(begun) => begun,
            None => return,
        };
        // Without the lock: others hash other pieces meanwhile.
        if begun.next == part.start() && begun.epoch == epoch {
            begun.hasher.update(bytes);
            begun.next = part.end();
        }
        self.state().begun.insert(index, begun);
    }

    /// Keeps bytes of a piece that a target in order cannot be given yet. `part` lies in one piece.
    pub(crate) fn keep(&self, part: ByteRange, bytes: &[u8]) {
        let index = self.hashes.index_of(part.start());
        let range = self.hashes.range(index);
        let mut state = self.state();
        let kept = state.kept.entry(index).or_insert_with(|| vec![0; range.len() as usize].into());
        let from = (part.start() - range.start()) as usize;
        kept[from..from + bytes.len()].copy_from_slice(bytes);
    }

    /// The bytes of a piece that were kept.
    pub(crate) fn take_kept(&self, index: u64) -> Option<Box<[u8]>> {
        self.state().kept.remove(&index)
    }

    /// The checksum of a piece that is at the target. Reads what has not been hashed since `epoch`.
    pub(crate) fn hash_in_file(&self, index: u64, there: &OfTarget<'_>, epoch: u64) -> Result<Checksum> {
        let range = self.hashes.range(index);
        let begun = self.state().begun.remove(&index).filter(|begun| begun.epoch == epoch);
        let begun = begun.map(|begun| (begun.hasher, begun.next));
        let (mut hasher, next) = begun.unwrap_or((Hasher::new(self.hashes.kind()), range.start()));
        if next < range.end() {
            let rest = ByteRange::new(next, range.end());
            there
                .read_range(rest, |bytes| hasher.update(bytes))
                .map_err(|cause| Error::local_io("cannot read a piece back", &cause))?;
        }
        Ok(hasher.finish())
    }

    /// The checksum of a piece in memory.
    pub(crate) fn hash_of(&self, bytes: &[u8]) -> Checksum {
        let mut hasher = Hasher::new(self.hashes.kind());
        hasher.update(bytes);
        hasher.finish()
    }

    /// Notes the parts of a wrong piece, whose bytes are `there` still.
    pub(crate) fn note_wrong(&self, index: u64, parts: &[Piece], there: &PieceBytes<'_>) {
        // The sender of all of it is known already.
        let doubtful = parts.iter().filter(|part| part.range != self.hashes.range(index));
        let noted: Vec<WrongPart> = doubtful
            .map(|piece| {
                let (adler32, sha256) = there.hashed(piece.range).unzip();
                let sha256 = sha256.filter(|_| adler32 == Some(piece.adler32));
                WrongPart { piece: *piece, sha256 }
            })
            .collect();
        self.state().wrong.entry(index).or_default().extend(noted);
    }

    /// The senders of parts that were other bytes than those that are right; `None` when the piece never was wrong.
    pub(crate) fn liars(&self, index: u64, right: &PieceBytes<'_>) -> Option<Vec<Sender>> {
        let parts = self.state().wrong.remove(&index)?;
        let is_right = |part: &WrongPart| {
            let Some((adler32, sha256)) = right.hashed(part.piece.range) else { return false };
            adler32 == part.piece.adler32 && part.sha256.as_ref().is_none_or(|own| *own == sha256)
        };
        let liars: BTreeSet<Sender> =
            parts.iter().filter(|part| !is_right(part)).map(|part| part.piece.sender).collect();
        Some(liars.into_iter().collect())
    }

    /// Looks in what an earlier run has left for what it claims to have: the pieces that are right, and of those
    /// that are incomplete the parts that still are as they were written. The senders are the journal's.
    pub(crate) fn survey(&self, there: &OfTarget<'_>, claims: &[JournaledRange]) -> Surveyed {
        let claimed: RangeSet = claims.iter().map(|claim| claim.range).collect();
        let mut found = Surveyed::default();
        let mut incomplete = RangeSet::new();
        for index in claimed.iter().flat_map(|range| self.hashes.touched(range)).collect::<BTreeSet<u64>>() {
            let range = self.hashes.range(index);
            if !claimed.contains(range) {
                incomplete.insert(range);
                continue;
            }
            let mut hasher = Hasher::new(self.hashes.kind());
            let Some(adler32) = adler32_of(there, range, |bytes| hasher.update(bytes)) else {
                continue;
            };
            if self.hashes.is_right(index, &hasher.finish()) {
                let covers = |claim: &&JournaledRange| claim.range.contains(range);
                let source = claims.iter().rev().find(covers).map_or(u32::MAX, |claim| claim.source);
                found.right.push(JournaledRange { range, adler32, source });
            }
        }
        let touches = |claim: &&JournaledRange| !incomplete.intersection(claim.range).is_empty();
        let touching: Vec<JournaledRange> = claims.iter().filter(touches).copied().collect();
        for claim in matching(there, &touching) {
            for part in self.hashes.cut(claim.range).filter(|part| incomplete.contains(*part)) {
                if let Some(adler32) = adler32_of(there, part, |_| {}) {
                    found.parts.push(JournaledRange { range: part, adler32, ..claim });
                }
            }
        }
        found
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves nothing half-done here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of an earlier run that can be used.
#[derive(Debug, Default)]
pub(crate) struct Surveyed {
    /// Whole pieces that are right.
    pub(crate) right: Vec<JournaledRange>,
    /// Parts of others, as they were written; none lies across the end of a piece.
    pub(crate) parts: Vec<JournaledRange>,
}

/// Where the bytes of a piece are.
pub(crate) enum PieceBytes<'a> {
    InFile(&'a OfTarget<'a>),
    InMemory { bytes: &'a [u8], offset: u64 },
}

impl PieceBytes<'_> {
    /// The adler32 and the SHA-256 of a range; `None` if it cannot be read.
    fn hashed(&self, range: ByteRange) -> Option<(u32, Checksum)> {
        let mut hasher = Hasher::new(ChecksumKind::Sha256);
        let adler32 = match self {
            PieceBytes::InFile(there) => adler32_of(*there, range, |bytes| hasher.update(bytes))?,
            PieceBytes::InMemory { bytes, offset } => {
                let from = (range.start() - offset) as usize;
                let bytes = bytes.get(from..from + range.len() as usize)?;
                hasher.update(bytes);
                adler32(bytes)
            }
        };
        Some((adler32, hasher.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_core::checksum::adler32;
    use gridlane_store::Target as _;
    use gridlane_store::path_target::PathTarget;

    const PIECE: u64 = 100;

    fn object() -> Vec<u8> {
        (0..250_u32).map(|at| (at * 7 + at / 3) as u8).collect()
    }

    fn pieces(object: &[u8]) -> Pieces {
        let hash = |bytes: &[u8]| {
            let mut hasher = Hasher::new(ChecksumKind::Sha1);
            hasher.update(bytes);
            hasher.finish()
        };
        let hashes = object.chunks(PIECE as usize).map(hash).collect();
        Pieces::new(PieceHashes::new(object.len() as u64, PIECE, hashes).unwrap())
    }

    /// A target that has these bytes.
    fn file(bytes: &[u8]) -> PathTarget {
        let dir = tempfile::tempdir().unwrap();
        let (file, _) = PathTarget::open(&dir.path().join("f"), &Default::default()).unwrap();
        file.write_at(bytes, 0).unwrap();
        file
    }

    #[test]
    fn however_a_piece_came_its_checksum_is_that_of_its_bytes() {
        let object = object();
        let file = file(&object);
        // In order; in order with a gap that is read back; from the middle; after something was forgotten.
        for parts in [
            vec![(100, 140, 0), (140, 200, 0)],
            vec![(100, 140, 0), (160, 200, 0)],
            vec![(150, 200, 0), (100, 120, 0)],
            vec![(100, 160, 1), (160, 200, 0)],
        ] {
            let pieces = pieces(&object);
            for (start, end, epoch) in &parts {
                pieces.hash(ByteRange::new(*start, *end), &object[*start as usize..*end as usize], *epoch);
            }
            let found = pieces.hash_in_file(1, &OfTarget::of(&file), 0).unwrap();
            assert!(pieces.hashes.is_right(1, &found), "{parts:?}");
            assert!(pieces.state().begun.is_empty());
        }
    }

    #[test]
    fn bytes_that_were_forgotten_do_not_count() {
        let object = object();
        let pieces = pieces(&object);
        pieces.hash(ByteRange::new(0, 50), &[0; 50], 0);
        pieces.hash(ByteRange::new(50, 100), &object[50..100], 1);
        let found = pieces.hash_in_file(0, &OfTarget::of(&file(&object)), 1).unwrap();
        assert!(pieces.hashes.is_right(0, &found));
    }

    #[test]
    fn who_sent_wrong_parts_is_found_when_the_right_ones_are_there() {
        let object = object();
        let pieces = pieces(&object);
        let part = |start: u64, end: u64, sender, bytes: &[u8]| Piece {
            range: ByteRange::new(start, end),
            adler32: adler32(bytes),
            sender,
        };
        let is_right = |index, at: &[u8]| pieces.liars(index, &PieceBytes::InFile(&OfTarget::of(&file(at))));
        assert_eq!(is_right(0, &object), None);
        let mut wrong = object.clone();
        wrong[60] ^= 1;
        wrong[205] ^= 1;
        let parts = [part(0, 40, 1, &object[..40]), part(40, 100, 2, &wrong[40..100])];
        pieces.note_wrong(0, &parts, &PieceBytes::InFile(&OfTarget::of(&file(&wrong))));
        assert_eq!(is_right(0, &object), Some(vec![2]));
        let parts = [part(200, 210, 3, &wrong[200..210]), part(210, 250, 1, &object[210..])];
        pieces.note_wrong(2, &parts, &PieceBytes::InMemory { bytes: &wrong[200..], offset: 200 });
        let right = PieceBytes::InMemory { bytes: &object[200..], offset: 200 };
        assert_eq!(pieces.liars(2, &right), Some(vec![3]));
        // Right bytes were there already when the wrong ones were to be hashed: adler32 has to do.
        let parts = [part(0, 40, 1, &wrong[..40]), part(40, 100, 2, &wrong[40..100])];
        pieces.note_wrong(0, &parts, &PieceBytes::InFile(&OfTarget::of(&file(&object))));
        assert_eq!(is_right(0, &object), Some(vec![2]));
    }

    #[test]
    fn parts_that_were_made_up_to_have_the_right_adler32_are_wrong() {
        let object = [50; 250];
        let pieces = pieces(&object);
        let mut wrong = object;
        (wrong[4], wrong[5], wrong[6]) = (51, 48, 51);
        assert_eq!(adler32(&wrong[..40]), adler32(&object[..40]));
        let part = |start: usize, end: usize, sender| Piece {
            range: ByteRange::new(start as u64, end as u64),
            adler32: adler32(&wrong[start..end]),
            sender,
        };
        pieces.note_wrong(
            0,
            &[part(0, 40, 1), part(40, 100, 2)],
            &PieceBytes::InFile(&OfTarget::of(&file(&wrong))),
        );
        assert_eq!(pieces.liars(0, &PieceBytes::InFile(&OfTarget::of(&file(&object)))), Some(vec![1]));
    }

    #[test]
    fn of_an_earlier_run_only_what_is_right_is_used() {
        let object = object();
        let pieces = pieces(&object);
        let mut written = object.clone();
        written[120] ^= 1;
        written[230] ^= 1;
        let claim = |start: u64, end: u64| JournaledRange {
            range: ByteRange::new(start, end),
            // As if the wrong byte had come so; but not that of the end, which changed on the disk.
            adler32: adler32(&match start {
                225 => object[start as usize..end as usize].to_vec(),
                _ => written[start as usize..end as usize].to_vec(),
            }),
            source: 7,
        };
        let found = pieces.survey(&OfTarget::of(&file(&written)), &[claim(0, 210), claim(225, 240)]);
        let ranges = |found: &[JournaledRange]| found.iter().map(|one| one.range).collect::<Vec<_>>();
        assert_eq!(ranges(&found.right), [ByteRange::new(0, 100)]);
        assert_eq!(ranges(&found.parts), [ByteRange::new(200, 210)]);
        assert_eq!((found.right[0].source, found.parts[0].adler32), (7, adler32(&object[200..210])));
    }
}
