//! Comparing each piece with its checksum as soon as its bytes are there.
//!
//! Lanes do it, behind their own writes: whoever brings the last byte of a piece compares it. Into a file, the
//! part of a piece that came in order from its beginning was hashed while it was in the cache; what
//! came otherwise is read back. A target in order is given whole pieces that are right; until then they
//! are kept here, and the plan's window bounds how many.
//!
//! Who sent a wrong piece alone has lied. Where several sent parts of it, their parts are compared with the
//! right ones when those have come.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gridlane_core::checksum::adler32;
use gridlane_core::{ByteRange, Checksum, Error, Hasher, RangeSet, Result};
use gridlane_store::journal::JournaledRange;

use crate::resume::{OfFile, matching, read_range};
use gridlane_plan::judge::{Piece, PieceHashes, Sender, adler32_of};

/// What comparing a piece brought.
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
    wrong: BTreeMap<u64, Vec<Piece>>,
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

    /// The checksum of a piece of a file. Reads what has not been hashed since `epoch`.
    pub(crate) fn hash_in_file(&self, index: u64, file: &File, epoch: u64) -> Result<Checksum> {
        let range = self.hashes.range(index);
        let begun = self.state().begun.remove(&index).filter(|begun| begun.epoch == epoch);
        let begun = begun.map(|begun| (begun.hasher, begun.next));
        let (mut hasher, next) = begun.unwrap_or((Hasher::new(self.hashes.kind()), range.start()));
        if next < range.end() {
            let rest = ByteRange::new(next, range.end());
            read_range(file, rest, |bytes| hasher.update(bytes))
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

    /// Notes what a wrong piece was made of.
    pub(crate) fn note_wrong(&self, index: u64, parts: &[Piece]) {
        self.state().wrong.entry(index).or_default().extend(parts);
    }

    /// Whose parts of a piece were other bytes than those that are right; `None` when it never was wrong.
    pub(crate) fn liars(&self, index: u64, right: &Right<'_>) -> Option<Vec<Sender>> {
        let parts = self.state().wrong.remove(&index)?;
        let is_alone = |part: &Piece| part.range == self.hashes.range(index);
        // Who sent all of it is known already.
        let doubtful = parts.iter().filter(|part| !is_alone(part));
        let liars: BTreeSet<Sender> =
            doubtful.filter(|part| !right.has(part)).map(|part| part.sender).collect();
        Some(liars.into_iter().collect())
    }

    /// Looks in the file of an earlier run for what it claims to have: the pieces that are right, and of those
    /// that are incomplete the parts that still are as they were written. The senders are the journal's.
    pub(crate) fn survey(&self, file: &File, claims: &[JournaledRange]) -> Surveyed {
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
            let Some(adler32) = adler32_of(&OfFile(file), range, |bytes| hasher.update(bytes)) else {
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
        for claim in matching(file, &touching) {
            for part in self.hashes.cut(claim.range).filter(|part| incomplete.contains(*part)) {
                if let Some(adler32) = adler32_of(&OfFile(file), part, |_| {}) {
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

/// What of an earlier run can be used.
#[derive(Debug, Default)]
pub(crate) struct Surveyed {
    /// Whole pieces that are right.
    pub(crate) right: Vec<JournaledRange>,
    /// Parts of others, as they were written; none lies across the end of a piece.
    pub(crate) parts: Vec<JournaledRange>,
}

/// Bytes that are right.
pub(crate) enum Right<'a> {
    InFile(&'a File),
    InMemory { bytes: &'a [u8], offset: u64 },
}

impl Right<'_> {
    fn has(&self, part: &Piece) -> bool {
        let found = match self {
            Right::InFile(file) => adler32_of(&OfFile(file), part.range, |_| {}),
            Right::InMemory { bytes, offset } => {
                let from = (part.range.start() - offset) as usize;
                bytes.get(from..from + part.range.len() as usize).map(adler32)
            }
        };
        found == Some(part.adler32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_core::ChecksumKind;
    use gridlane_core::checksum::adler32;

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

    fn file(bytes: &[u8]) -> File {
        use std::io::Write as _;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
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
            let found = pieces.hash_in_file(1, &file, 0).unwrap();
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
        let found = pieces.hash_in_file(0, &file(&object), 1).unwrap();
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
        assert_eq!(pieces.liars(0, &Right::InFile(&file(&object))), None);
        let right = part(0, 40, 1, &object[..40]);
        pieces.note_wrong(0, &[right, part(40, 100, 2, b"nothing")]);
        assert_eq!(pieces.liars(0, &Right::InFile(&file(&object))), Some(vec![2]));
        pieces.note_wrong(2, &[part(200, 210, 3, b"nothing"), part(210, 250, 1, &object[210..])]);
        let right = Right::InMemory { bytes: &object[200..], offset: 200 };
        assert_eq!(pieces.liars(2, &right), Some(vec![3]));
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
        let found = pieces.survey(&file(&written), &[claim(0, 210), claim(225, 240)]);
        let ranges = |found: &[JournaledRange]| found.iter().map(|one| one.range).collect::<Vec<_>>();
        assert_eq!(ranges(&found.right), [ByteRange::new(0, 100)]);
        assert_eq!(ranges(&found.parts), [ByteRange::new(200, 210)]);
        assert_eq!((found.right[0].source, found.parts[0].adler32), (7, adler32(&object[200..210])));
    }
}
