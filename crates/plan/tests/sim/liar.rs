//! The bytes of simulated servers, and their statements.

use std::sync::Arc;

use gridlane_core::checksum::adler32;
use gridlane_core::{Checksum, ChecksumKind, Hasher};

/// The file of one server, and its words.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    /// The bytes that it sends.
    pub(crate) bytes: Arc<Vec<u8>>,
    /// The bytes that it sends for a range that is asked of it once more.
    pub(crate) again: Option<Arc<Vec<u8>>>,
    /// From then on it has these, and nothing tells.
    pub(crate) changes: Option<(f64, Arc<Vec<u8>>)>,
    /// The size that it tells with its bytes. If it has fewer, its answers break off.
    pub(crate) size_bytes: u64,
    /// The size that it tells when it is asked for its checksum, if that is another one.
    pub(crate) other_size_bytes: Option<u64>,
    /// Its checksums, when it is asked for one.
    pub(crate) says: Vec<Checksum>,
    /// Its checksums, when it is asked for a strong one.
    pub(crate) says_strong: Vec<Checksum>,
    /// Its delay for such a question.
    pub(crate) answers: When,
    /// It contradicts itself at this time, and the engine notices it.
    pub(crate) contradicts_itself_at_s: Option<f64>,
    /// It contradicts itself in the last thing that its lanes tell when they are closed.
    pub(crate) contradicts_itself_at_last: bool,
    /// Time until its written bytes are there.
    pub(crate) writes_s: f64,
}

/// The time at which a server answers a question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum When {
    After(f64),
    /// So long after every byte is there for the first time.
    AfterWhole(f64),
    Never,
}

impl Holding {
    pub(crate) fn new(bytes: &Arc<Vec<u8>>) -> Holding {
        Holding {
            bytes: bytes.clone(),
            again: None,
            changes: None,
            size_bytes: bytes.len() as u64,
            other_size_bytes: None,
            says: vec![checksum(ChecksumKind::Adler32, bytes)],
            says_strong: Vec::new(),
            answers: When::After(0.05),
            contradicts_itself_at_s: None,
            contradicts_itself_at_last: false,
            writes_s: 0.0,
        }
    }

    /// All bytes that it has at a time: those that it sends for a range that is asked of it `is_again`, or for the first time.
    pub(crate) fn sends(&self, now_s: f64, is_again: bool) -> &[u8] {
        match (&self.changes, &self.again) {
            (Some((at_s, bytes)), _) if now_s >= *at_s => bytes,
            (_, Some(again)) if is_again => again,
            _ => &self.bytes,
        }
    }
}

pub(crate) fn checksum(kind: ChecksumKind, bytes: &[u8]) -> Checksum {
    match kind {
        ChecksumKind::Adler32 => Checksum::adler32(adler32(bytes)),
        kind => {
            let mut hasher = Hasher::new(kind);
            hasher.update(bytes);
            hasher.finish()
        }
    }
}

/// Bytes that look like nothing, the same for the same seed.
pub(crate) fn noise(seed: u64, size_bytes: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words = (0..size_bytes.div_ceil(8)).flat_map(|_| next().to_le_bytes());
    words.take(size_bytes as usize).collect()
}

/// Other bytes with the same adler32, wherever three stand together that allow it.
pub(crate) fn colliding(bytes: &[u8]) -> Vec<u8> {
    let mut others = bytes.to_vec();
    let middle = others.len() / 2;
    let fits = |three: &[u8]| three[0] < 255 && three[1] >= 2 && three[2] < 255;
    if let Some(at) = (middle..others.len().saturating_sub(2)).find(|at| fits(&others[*at..at + 3])) {
        (others[at], others[at + 1], others[at + 2]) =
            (others[at] + 1, others[at + 1] - 2, others[at + 2] + 1);
    }
    others
}
