//! The metalinks of third-party copies: one may have 32 MB, and checksums of many pieces that a copy keeps to its end. What all of
//! them may take together is bounded, and so is the part of one client.

use std::sync::Arc;

use gridlane_client::Replicas;
use gridlane_core::{Error, ErrorKind, Fault, Result, Url, limits};
use gridlane_dav::metalink::is_metalink;
use gridlane_engine::{FoundMetalink, Known};
use gridlane_peer::Client;
use gridlane_share::{Budget, Lease, Share, budget};

/// What they take of this server.
pub(crate) struct Metalinks {
    read: Arc<Budget>,
    pieces: Arc<Budget>,
}

impl Default for Metalinks {
    fn default() -> Metalinks {
        let of = |name, all| Budget::new(name, Share::of(all));
        Metalinks {
            read: of("third_party_metalinks", limits::THIRD_PARTY_METALINKS_READ_MAX),
            pieces: of("third_party_pieces", limits::THIRD_PARTY_PIECES_MAX),
        }
    }
}

/// What a metalink says, with the room for it.
pub(crate) struct Described {
    pub(crate) sources: Vec<Url>,
    pub(crate) known: Known,
    /// Of the checksums of its pieces; kept as long as these are.
    pub(crate) room: Option<Lease>,
}

impl Metalinks {
    /// Their budgets.
    pub(crate) fn budgets(&self) -> [&Arc<Budget>; 2] {
        [&self.read, &self.pieces]
    }

    /// The replicas that the metalink names which a source is by its name, or was `found` to be or to have; `None`: it is none.
    /// It is read when the turn of the client in hand has come.
    pub(crate) async fn describe(
        &self,
        client: &Client,
        source: &Url,
        found: Option<&FoundMetalink>,
    ) -> Result<Option<Described>> {
        // By their names most sources are none, and nothing is read of them.
        if found.is_none() && !is_metalink(None, source.encoded_path(), &[]) {
            return Ok(None);
        }
        let turn = self.read.take(budget::current(), 1).await;
        let described = gridlane_client::replicas(client, source, found).await?;
        drop(turn);
        let Some(Replicas { sources, known }) = described else { return Ok(None) };
        let room = self.room(&known).map_err(|error| error.endpoint(source))?;
        Ok(Some(Described { sources, known, room }))
    }

    fn room(&self, known: &Known) -> Result<Option<Lease>> {
        let Some(pieces) = &known.pieces else { return Ok(None) };
        let count = usize::try_from(pieces.size_bytes().div_ceil(pieces.piece_bytes())).unwrap_or(usize::MAX);
        self.pieces.try_take(budget::current(), count).map(Some).map_err(|_| {
            let what = "the copies that run and wait on this server have too many checksums of pieces; try again later";
            Error::new(ErrorKind::Busy, what).fault(Fault::Local)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use gridlane_core::limits::{METALINK_PIECES_MAX, THIRD_PARTY_METALINKS_READ_MAX};
    use gridlane_core::{ChecksumKind, Hasher};
    use gridlane_engine::PieceHashes;
    use gridlane_share::Holder;

    use super::*;

    fn with_pieces(count: usize) -> Known {
        let hashes = vec![Hasher::new(ChecksumKind::Adler32).finish(); count];
        Known { pieces: PieceHashes::new(count as u64 * 1000, 1000, hashes), ..Known::default() }
    }

    #[tokio::test]
    async fn checksums_of_pieces_are_bounded_and_one_client_has_a_part_of_them() {
        let metalinks = Metalinks::default();
        let of = |last: u8, count| {
            let holder = Holder::of(IpAddr::from([192, 0, 2, last]));
            let metalinks = &metalinks;
            budget::on_behalf(holder, async move { metalinks.room(&with_pieces(count)) })
        };
        let largest = of(1, METALINK_PIECES_MAX).await.unwrap();
        let refused = of(1, 1).await.err().unwrap();
        assert_eq!((refused.kind(), refused.is_retryable()), (ErrorKind::Busy, true));
        let other = of(2, METALINK_PIECES_MAX).await.unwrap();
        assert!(largest.is_some() && other.is_some());
        drop(largest);
        assert!(of(1, METALINK_PIECES_MAX).await.is_ok());
        assert!(metalinks.room(&Known::default()).unwrap().is_none());
    }

    #[test]
    fn one_client_leaves_metalinks_to_others() {
        let share = Metalinks::default().read.share();
        assert!(share.one >= 1 && 2 * share.one < share.all && share.all == THIRD_PARTY_METALINKS_READ_MAX);
    }
}
