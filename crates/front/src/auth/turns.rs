//! Turns at a processor, for checks of credentials that keep one busy: a few at a time, where blocking is allowed.
//!
//! Of one client one at a time, so that it holds up only the clients of the same lane: clients are dealt to lanes by a
//! hash with a secret seed.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use gridlane_core::limits;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::throttle::Party;

/// Turns.
pub(crate) struct Turns {
    all: Arc<Semaphore>,
    lanes: Vec<Arc<Semaphore>>,
    deal: RandomState,
}

/// A turn, which ends when this is dropped: it belongs to the check, and not to its caller, which may leave.
pub(crate) struct Held {
    _held: (OwnedSemaphorePermit, OwnedSemaphorePermit),
}

impl Turns {
    /// So many checks at a time.
    pub(crate) fn new(all: usize) -> Turns {
        Turns {
            all: Arc::new(Semaphore::new(all)),
            lanes: (0..limits::PASSWORD_LANES).map(|_| Arc::new(Semaphore::new(1))).collect(),
            deal: RandomState::new(),
        }
    }

    /// Waits for a turn of the client at `address`; `None` when there was none for so long.
    pub(crate) async fn take(&self, address: IpAddr, wait_max: Duration) -> Option<Held> {
        let lane = Arc::clone(&self.lanes[self.lane_of(address)]);
        let both = async {
            Some((lane.acquire_owned().await.ok()?, Arc::clone(&self.all).acquire_owned().await.ok()?))
        };
        Some(Held { _held: timeout(wait_max, both).await.ok()?? })
    }

    pub(crate) fn lane_of(&self, address: IpAddr) -> usize {
        let hash = self.deal.hash_one(Party::client(address));
        usize::try_from(hash % limits::PASSWORD_LANES as u64).unwrap_or(0)
    }
}
