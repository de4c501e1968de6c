//! The checksum of the whole file, compared with that of the bytes in memory when all of them are there.

use std::sync::Weak;

use gridlane_core::{ByteRange, Checksum, ChecksumKind, Error, ErrorKind, Fault, Hasher, Scheme};

use super::piece::Piece;
use super::shared::Shared;
use crate::digests;

/// The kind of checksum that sources are asked for: the field's servers have it, or compute it quickly.
const KIND: ChecksumKind = ChecksumKind::Adler32;
/// Bytes that are hashed between two looks at what else there is to do.
const STEP_BYTES: u64 = 1024 * 1024;

/// Whether the bytes of a file were compared with a checksum of the whole.
#[derive(Clone, Debug, Default)]
pub enum Proof {
    /// Not all of its bytes have been in memory at one time: what was read is unverified, but for pages with checksums of
    /// their own.
    #[default]
    NotYet,
    /// It is being compared.
    Begun,
    /// No source states a checksum.
    Unstated,
    /// It is the one that a source states.
    Verified(Checksum),
    /// It is another one.
    Wrong(Error),
}

impl Proof {
    /// The name used in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Proof::NotYet | Proof::Begun | Proof::Unstated => "unverified",
            Proof::Verified(_) => "verified",
            Proof::Wrong(_) => "wrong",
        }
    }
}

/// Asks the sources for the checksum, one after the other, and compares.
pub(super) async fn prove(shared: Weak<Shared>) {
    let sources = match shared.upgrade() {
        Some(shared) => shared.sources.clone(),
        None => return,
    };
    let mut stated = None;
    for source in sources.iter().filter(|source| source.url.scheme() != Scheme::File) {
        let Some(client) = shared.upgrade().map(|shared| shared.client.clone()) else { return };
        let Ok(word) = digests::word(&client, source, Some(KIND)).await else { continue };
        let is_of_this = source.identity().is_none_or(|known| known.agrees_with(&word.identity));
        if let Some(checksum) = word.checksum.filter(|_| is_of_this) {
            stated = Some((source.url.clone(), checksum));
            break;
        }
    }
    let Some((url, stated)) = stated else {
        if let Some(shared) = shared.upgrade() {
            shared.state().proof = Proof::Unstated;
        }
        return;
    };
    let mut hasher = Hasher::new(stated.kind());
    let mut at = 0;
    while let Some(shared) = shared.upgrade() {
        match shared.step(at) {
            Step::Bytes(pieces) => {
                for piece in pieces {
                    hasher.update(&piece.0);
                    at += piece.0.len() as u64;
                }
            }
            Step::End => break,
            Step::Gap => return,
        }
        tokio::task::yield_now().await;
    }
    let Some(shared) = shared.upgrade() else { return };
    let found = hasher.finish();
    if found == stated {
        shared.state().proof = Proof::Verified(stated);
        return;
    }
    let message =
        format!("the bytes that were read have the checksum {found}, and the server states {stated}");
    let error = Error::new(ErrorKind::ChecksumMismatch, message).fault(Fault::Peer).endpoint(&url);
    shared.state().proof = Proof::Wrong(error.clone());
    shared.distrust(error);
    shared.forget_kept().await;
}

/// What is there from a place of the file on.
enum Step {
    Bytes(Vec<Piece>),
    /// The end of the file.
    End,
    /// Bytes that were forgotten again.
    Gap,
}

impl Shared {
    fn step(&self, at: u64) -> Step {
        let mut state = self.state();
        let size_bytes = state.reader.size_bytes().unwrap_or(0);
        if at >= size_bytes {
            return Step::End;
        }
        let range = ByteRange::at(at, STEP_BYTES).split_at(size_bytes).0;
        let mut pieces = Vec::new();
        state.reader.held(range, |_, piece| pieces.push(piece));
        if pieces.iter().map(|piece: &Piece| piece.0.len() as u64).sum::<u64>() < range.len() {
            state.proof = Proof::NotYet;
            return Step::Gap;
        }
        Step::Bytes(pieces)
    }
}
