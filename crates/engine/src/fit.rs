//! Before the target becomes visible: does the file have the bytes that came, and did an earlier run leave the right ones?
//!
//! What a lane writes is hashed on its way, and the file lies where other programs write too: one that was cut and then
//! written behind the cut is as long as it should be, and the sum of what came is right. So the file is looked at, and where
//! that says little, its bytes are read back and compared with what came.
//!
//! What an earlier run left is vouched for by adler32, for which other bytes are made up in no time. Where a source has a
//! stronger checksum of the file, the file is compared with that.

use std::time::{Duration, Instant};

use gridlane_core::limits::{LONG_COPY_MIN, READ_BACK_BYTES_PER_S, READ_BACK_SHARE, READ_BACKS_MAX};
use gridlane_core::{ByteRange, Checksum, ChecksumKind, Error, ErrorKind, Fault, Result};
use tokio::task::JoinSet;

use crate::awake::Patience;
use crate::digests::{self, hash_file_all};
use crate::ledger::Piece;
use crate::resume::adler32_of;
use crate::run::Run;
use crate::verdict::Basis;

/// Checksums that are no accident, the strongest first.
const STRONG: [ChecksumKind; 4] =
    [ChecksumKind::Sha512, ChecksumKind::Sha256, ChecksumKind::Sha1, ChecksumKind::Md5];

/// How long a source that has had its time is waited for all the same.
const LAST_WORD_MAX: Duration = Duration::from_secs(1);

/// What is known of the bytes that an earlier run has left.
#[derive(Default)]
pub(crate) struct Earlier {
    /// Where they are.
    pub(crate) ranges: Vec<ByteRange>,
    /// Sources that are being asked for a strong checksum.
    asked: JoinSet<(u32, Option<Checksum>)>,
    /// Since when.
    asked_at: Option<Instant>,
    /// What they have said.
    said: Vec<Checksum>,
    /// They were thrown away because strong checksums contradict them.
    are_gone: bool,
    /// How often the file was read back and had other bytes than had come.
    damages: u32,
}

/// What strong checksums say of the bytes.
enum Strong {
    /// Nobody has one, or they contradict each other evenly.
    Nothing,
    Right {
        checksum: Checksum,
        agreeing: usize,
        asked: usize,
    },
    Wrong {
        found: Checksum,
        expected: Checksum,
    },
}

impl Run<'_> {
    /// Whether the file may become visible, as far as that can be known. `false`: bytes are missing again.
    pub(crate) async fn is_fit(&mut self) -> Result<bool> {
        if self.target.partial().is_none() {
            return Ok(true);
        }
        Ok(self.has_what_came().await? && self.is_earlier_right().await?)
    }

    /// Bytes of an earlier run are used: begins to ask the sources for strong checksums, beside the data.
    pub(crate) fn ask_strong(&mut self) {
        let told = self.told().is_some_and(|(checksum, _)| STRONG.contains(&checksum.kind()));
        if told || self.target.pieces().is_some() {
            return;
        }
        self.earlier.asked_at = Some(Instant::now());
        for replica in &self.replicas {
            let (client, source) = (self.client.clone(), replica.source.clone());
            self.earlier.asked.spawn(async move {
                let said = digests::strongest(&client, &source, &STRONG).await.ok();
                let stated = said.map_or_else(Vec::new, |word| digests::of_this_version(&source, word));
                (source.number, stated.into_iter().max_by_key(|checksum| checksum.kind().strength()))
            });
        }
    }

    /// The strongest kind of checksum that the bytes were compared with.
    pub(crate) fn verified_with(&self) -> Option<ChecksumKind> {
        let basis = self.verified?;
        let known = self.options.known.checksums.iter().map(Checksum::kind);
        let pieces =
            self.target.pieces().filter(|_| basis == Basis::Metalink).map(|pieces| pieces.hashes.kind());
        let of_metalink = known.filter(|_| basis == Basis::Metalink).chain(pieces);
        let own = self.checksum.as_ref().map(Checksum::kind).filter(|_| basis != Basis::Metalink);
        own.into_iter().chain(of_metalink).chain(self.verified_with).max_by_key(|kind| kind.strength())
    }

    /// Compares the file with what came, where there is a reason to.
    async fn has_what_came(&mut self) -> Result<bool> {
        let Some(partial) = self.target.partial() else { return Ok(true) };
        let size_bytes = self.size_bytes.unwrap_or(0);
        let is_doubtful = partial.is_doubtful(size_bytes)?;
        // A checksum that cannot be put together from those of ranges was just computed from the file.
        let was_read = self.verified.is_some() && self.digest_kind() != ChecksumKind::Adler32;
        let is_long = is_long(self.pace.elapsed(), size_bytes);
        if !is_doubtful && (was_read || self.resumed_bytes == 0 && !is_long) {
            return Ok(true);
        }
        let pieces: Vec<Piece> = self.target.ledger().pieces().copied().collect();
        let damaged = self.read_back(move |file| {
            let differs = |piece: &Piece| adler32_of(file, piece.range, |_| {}) != Some(piece.adler32);
            pieces.into_iter().filter(differs).map(|piece| piece.range).collect::<Vec<ByteRange>>()
        });
        let damaged = damaged.await?;
        if damaged.is_empty() {
            return Ok(true);
        }
        self.earlier.damages += 1;
        if self.earlier.damages > READ_BACKS_MAX {
            let message = "the file does not keep what is written to it: another program writes to it, or its disk is bad";
            return Err(Error::new(ErrorKind::LocalIo, message).fault(Fault::Local));
        }
        self.lose(&damaged);
        Ok(false)
    }

    /// Compares the file with strong checksums, where some of it is from an earlier run.
    async fn is_earlier_right(&mut self) -> Result<bool> {
        if self.earlier.ranges.is_empty() {
            return Ok(true);
        }
        let wait = gridlane_plan::reading_max(self.options.patience, self.size_bytes.unwrap_or(0));
        let waited = self.earlier.asked_at.map_or(Duration::ZERO, |at| at.elapsed());
        let mut patience = Patience::new(wait.saturating_sub(waited).max(LAST_WORD_MAX));
        while let Ok(Some(Ok((number, said)))) = patience.bear(self.earlier.asked.join_next()).await {
            let is_believed = !self.replicas[number as usize].distrusted;
            self.earlier.said.extend(said.filter(|_| is_believed));
        }
        match self.compare_strong().await? {
            Strong::Nothing => Ok(true),
            Strong::Right { checksum, agreeing, asked } => {
                // Whoever asked for a type by name is told that one.
                if self.options.checksum.is_none() && self.options.known.checksums.is_empty() {
                    self.checksum = Some(checksum.clone());
                    let named = self.replicas.iter().filter(|replica| !replica.is_served).count();
                    self.verified = Some(Basis::Sources { agreeing, said: asked, named });
                }
                self.verified_with = Some(checksum.kind());
                Ok(true)
            }
            Strong::Wrong { found, expected } if self.earlier.are_gone => {
                // All of it came in this run: somebody has lied.
                self.mismatched(&found, &expected).await
            }
            Strong::Wrong { .. } => {
                self.earlier.are_gone = true;
                let ranges = self.earlier.ranges.clone();
                self.lose(&ranges);
                self.resumed_bytes = 0;
                Ok(false)
            }
        }
    }

    async fn compare_strong(&self) -> Result<Strong> {
        let said = &self.earlier.said;
        let mut kinds: Vec<ChecksumKind> = said.iter().map(Checksum::kind).collect();
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.strength()));
        kinds.dedup();
        let Some(partial) = self.target.partial().filter(|_| !kinds.is_empty()) else {
            return Ok(Strong::Nothing);
        };
        let file = partial.file().try_clone();
        let file = file.map_err(|cause| Error::local_io("cannot read the file back", &cause))?;
        let found = hash_file_all(file, self.size_bytes.unwrap_or(0), kinds).await?;
        Ok(count_strong(&found, said))
    }

    /// Has ranges of the file fetched again, whoever sent them.
    fn lose(&mut self, ranges: &[ByteRange]) {
        let lost: Vec<Piece> = {
            let mut ledger = self.target.ledger();
            ranges.iter().flat_map(|range| ledger.lose(*range)).collect()
        };
        self.wrong_bytes += self.bytes_of_this_run(&lost);
        let lost: Vec<ByteRange> = lost.iter().map(|piece| piece.range).collect();
        let believed = self.believed();
        self.refetch(&lost, &believed);
    }
}

/// Whether a copy that took `took` was long enough to look at its bytes again: reading them is a small part of its time, or
/// they have lain there for long.
fn is_long(took: Duration, size_bytes: u64) -> bool {
    let read = Duration::from_secs_f64(size_bytes as f64 / READ_BACK_BYTES_PER_S as f64);
    took >= LONG_COPY_MIN || took >= Duration::from_secs(1) && took >= read.saturating_mul(READ_BACK_SHARE)
}

/// What the checksums that were `found` mean, after sources have `said` some.
fn count_strong(found: &[Checksum], said: &[Checksum]) -> Strong {
    let (right, wrong): (Vec<&Checksum>, Vec<&Checksum>) = said.iter().partition(|one| found.contains(one));
    let strength = |checksum: &&&Checksum| checksum.kind().strength();
    match right.len().cmp(&wrong.len()) {
        std::cmp::Ordering::Equal => Strong::Nothing,
        std::cmp::Ordering::Greater => {
            right.iter().max_by_key(strength).map_or(Strong::Nothing, |checksum| Strong::Right {
                checksum: (**checksum).clone(),
                agreeing: right.len(),
                asked: said.len(),
            })
        }
        std::cmp::Ordering::Less => {
            let expected = wrong.iter().max_by_key(strength).map(|checksum| (**checksum).clone());
            let found = expected
                .as_ref()
                .and_then(|expected| found.iter().find(|own| own.kind() == expected.kind()).cloned());
            match expected.zip(found) {
                Some((expected, found)) => Strong::Wrong { found, expected },
                None => Strong::Nothing,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_long_by_its_bytes_or_by_the_clock() {
        let secs = Duration::from_secs;
        for (took, size_bytes, expected) in [
            (Duration::from_millis(900), 1, false),
            (secs(1), 1 << 20, true),
            (secs(10), 100 << 20, true),
            (secs(10), 10 << 30, false),
            (LONG_COPY_MIN, 1 << 40, true),
        ] {
            assert_eq!(is_long(took, size_bytes), expected, "{took:?} for {size_bytes}");
        }
    }

    #[test]
    fn the_majority_of_strong_checksums_decides() {
        let value =
            |kind: ChecksumKind, fill| Checksum::from_bytes(kind, &vec![fill; kind.value_len()]).unwrap();
        let (md5, sha256) = (value(ChecksumKind::Md5, 1), value(ChecksumKind::Sha256, 1));
        let others = [value(ChecksumKind::Md5, 2), value(ChecksumKind::Sha256, 2)];
        let found = [sha256.clone(), md5.clone()];
        assert!(matches!(count_strong(&found, &[]), Strong::Nothing));
        assert!(matches!(count_strong(&found, &[md5.clone(), others[1].clone()]), Strong::Nothing));
        let Strong::Right { checksum, agreeing: 2, asked: 3 } =
            count_strong(&found, &[md5.clone(), sha256.clone(), others[0].clone()])
        else {
            panic!()
        };
        assert_eq!(checksum, sha256);
        let Strong::Wrong { expected, .. } =
            count_strong(&found, &[others[0].clone(), md5, others[1].clone()])
        else {
            panic!()
        };
        assert_eq!(expected, others[1]);
    }
}
