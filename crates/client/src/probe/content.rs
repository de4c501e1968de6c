//! The bytes that a probe writes and expects back: made as they are needed, so that no size of them takes memory.
//!
//! They look random, and are others in every run: nothing on the way can compress them, or have them from an earlier one.

use std::future::ready;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, UNIX_EPOCH};

use gridlane_core::{Boxed, Checksum, Error, ErrorKind, Fault, Result, Url};
use gridlane_engine::{Manner, Output, StoredSource, Waits};
use gridlane_store::{Content as _, ContentObject};

/// A file of bytes that a number determines.
#[derive(Clone, Debug)]
pub(super) struct Content {
    seed: u64,
    size_bytes: u64,
}

impl Content {
    /// Other bytes for each `seed`.
    pub(super) fn new(seed: u64, size_bytes: u64) -> Content {
        Content { seed, size_bytes }
    }

    /// The source of a copy that has these bytes, and its name in messages.
    pub(super) fn source(&self) -> Result<(Url, StoredSource)> {
        let name = Url::from_path(Path::new("/what the probe writes"))?;
        let tag = format!("{:016x}-{}", self.seed, self.size_bytes);
        let object = Arc::new(ContentObject::new(self.clone(), tag, UNIX_EPOCH));
        Ok((name, StoredSource { object, checksums: Vec::new() }))
    }

    /// The eight bytes of this number.
    fn word(&self, number: u64) -> [u8; 8] {
        // SplitMix64, by Steele, Lea and Flood.
        let mut word = self.seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (word ^ word >> 31).to_le_bytes()
    }

    /// The place of the first of these bytes that is another one at `offset`.
    fn first_difference(&self, bytes: &[u8], offset: u64) -> Option<u64> {
        let mut expected = [0; 4096];
        let mut at = offset;
        for part in bytes.chunks(expected.len()) {
            let count = self.fill(&mut expected[..part.len()], at);
            let same =
                part.iter().zip(&expected[..count]).take_while(|(found, wanted)| found == wanted).count();
            if same < part.len() {
                return Some(at + same as u64);
            }
            at += part.len() as u64;
        }
        None
    }
}

impl gridlane_store::Content for Content {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn fill(&self, into: &mut [u8], offset: u64) -> usize {
        let left = usize::try_from(self.size_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = into.len().min(left);
        let into = &mut into[..count];
        let (mut number, skipped) = (offset / 8, (offset % 8) as usize);
        let first = into.len().min(if skipped == 0 { 0 } else { 8 - skipped });
        let (head, rest) = into.split_at_mut(first);
        if first > 0 {
            head.copy_from_slice(&self.word(number)[skipped..skipped + first]);
            number += 1;
        }
        for part in rest.chunks_mut(8) {
            let len = part.len();
            part.copy_from_slice(&self.word(number)[..len]);
            number += 1;
        }
        count
    }
}

/// The bytes that came back so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    bytes: AtomicU64,
    /// Microseconds from the beginning to the last of them.
    last_us: AtomicU64,
    /// As many as were wanted are there.
    is_enough: AtomicBool,
}

impl Tally {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Time from the beginning to the last byte.
    pub(super) fn took(&self) -> Duration {
        Duration::from_micros(self.last_us.load(Relaxed))
    }

    pub(super) fn is_enough(&self) -> bool {
        self.is_enough.load(Relaxed)
    }
}

/// Takes the bytes of a file and keeps none: compares them with the expected ones, or counts up to as many as are wanted.
pub(super) struct Sink {
    expected: Option<Content>,
    bytes_max: u64,
    begun: Instant,
    tally: Arc<Tally>,
}

impl Sink {
    /// Compares a file with `expected`.
    pub(super) fn comparing(expected: Content) -> (Sink, Arc<Tally>) {
        Sink::new(Some(expected), u64::MAX)
    }

    /// Counts the bytes of a file, and ends the copy when there are more than `bytes_max`.
    pub(super) fn counting(bytes_max: u64) -> (Sink, Arc<Tally>) {
        Sink::new(None, bytes_max)
    }

    fn new(expected: Option<Content>, bytes_max: u64) -> (Sink, Arc<Tally>) {
        let tally = Arc::<Tally>::default();
        (Sink { expected, bytes_max, begun: Instant::now(), tally: Arc::clone(&tally) }, tally)
    }

    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        let before = self.tally.bytes();
        if let Some(at) = self.expected.as_ref().and_then(|expected| expected.first_difference(bytes, before))
        {
            return Err(differs(format!("what comes back is not what was written, from byte {at} on")));
        }
        let wanted = self.bytes_max.saturating_sub(before).min(bytes.len() as u64);
        self.tally.bytes.store(before + wanted, Relaxed);
        let elapsed_us = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.tally.last_us.store(elapsed_us.max(1), Relaxed);
        if wanted < bytes.len() as u64 {
            self.tally.is_enough.store(true, Relaxed);
            return Err(Error::new(ErrorKind::Interrupted, "as much as was wanted is there"));
        }
        Ok(())
    }
}

impl Output for Sink {
    fn manner(&self) -> Manner {
        Manner { waits: Waits::Never, ..Manner::default() }
    }

    fn begin(&mut self, size_bytes: u64) -> Boxed<'_, Result<()>> {
        let expected = self.expected.as_ref().map(Content::size_bytes);
        Box::pin(ready(match expected {
            Some(expected) if expected != size_bytes => Err(differs(format!(
                "a file of {expected} bytes was written, and one of {size_bytes} bytes comes back"
            ))),
            _ => Ok(()),
        }))
    }

    fn write_nowait(&mut self, bytes: &[u8]) -> Option<Result<()>> {
        Some(self.take(bytes))
    }

    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Boxed<'a, Result<()>> {
        Box::pin(ready(self.take(bytes)))
    }

    fn finish<'a>(&'a mut self, _: &'a [Checksum]) -> Boxed<'a, Result<Option<Checksum>>> {
        let came = self.tally.bytes();
        let expected = self.expected.as_ref().map(Content::size_bytes);
        Box::pin(ready(match expected {
            Some(expected) if expected != came => {
                Err(differs(format!("a file of {expected} bytes was written, and {came} come back")))
            }
            _ => Ok(None),
        }))
    }
}

fn differs(message: String) -> Error {
    Error::new(ErrorKind::ChecksumMismatch, message).fault(Fault::Peer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(content: &Content) -> Vec<u8> {
        let mut bytes = vec![0; content.size_bytes() as usize + 9];
        let count = content.fill(&mut bytes, 0);
        bytes.truncate(count);
        bytes
    }

    #[test]
    fn each_run_has_other_bytes() {
        let (a, b) = (all(&Content::new(1, 1000)), all(&Content::new(2, 1000)));
        assert_eq!((a.len(), b.len()), (1000, 1000));
        let same = a.iter().zip(&b).filter(|(a, b)| a == b).count();
        assert!(same < 30, "{same} of 1000 bytes are the same");
        assert_eq!(a, all(&Content::new(1, 1000)));
    }

    proptest! {
        /// Any part of it is the same as in the whole, and another byte is found wherever it is.
        #[test]
        fn parts_are_those_of_the_whole(seed: u64, size in 1_u64..9000, from in 0_usize..9000, len in 0_usize..9000) {
            let content = Content::new(seed, size);
            let whole = all(&content);
            let from = from.min(whole.len());
            let mut part = vec![0; len];
            let count = content.fill(&mut part, from as u64);
            prop_assert_eq!(&part[..count], &whole[from..whole.len().min(from + len)]);
            prop_assert_eq!(content.first_difference(&part[..count], from as u64), None);
            if count > 0 {
                let at = (seed % count as u64) as usize;
                part[at] ^= 1;
                prop_assert_eq!(content.first_difference(&part[..count], from as u64), Some((from + at) as u64));
            }
            let longer = [&whole[..], b"x"].concat();
            prop_assert_eq!(content.first_difference(&longer, 0), Some(size));
        }

        /// In any pieces the right bytes are taken, and no others.
        #[test]
        fn a_sink_takes_the_right_bytes(size in 1_u64..5000, piece in 1_usize..600, wrong in proptest::option::of(0_usize..5000)) {
            let content = Content::new(7, size);
            let mut bytes = all(&content);
            let wrong = wrong.filter(|at| *at < bytes.len());
            if let Some(at) = wrong {
                bytes[at] = !bytes[at];
            }
            let (mut sink, tally) = Sink::comparing(content);
            let outcome = bytes.chunks(piece).try_for_each(|piece| sink.take(piece));
            prop_assert_eq!(outcome.is_err(), wrong.is_some());
            if wrong.is_none() {
                prop_assert_eq!(tally.bytes(), size);
            }
        }

        /// However much comes, no more is counted than is wanted.
        #[test]
        fn a_sink_has_enough(max in 1_u64..3000, pieces in prop::collection::vec(0_usize..800, 0..9)) {
            let (mut sink, tally) = Sink::counting(max);
            let mut sum = 0;
            for len in pieces {
                sum += len as u64;
                let outcome = sink.take(&vec![0; len]);
                prop_assert_eq!(outcome.is_err(), sum > max);
                prop_assert_eq!((tally.bytes(), tally.is_enough()), (sum.min(max), sum > max));
                if sum > max { break; }
            }
        }
    }
}
