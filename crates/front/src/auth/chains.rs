//! Certificate chains that were found good.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gridlane_auth::token::VerifiedTokens;
use gridlane_core::limits;

/// What was found of chains by one generation of settings, by their digests.
#[derive(Debug)]
pub(crate) struct Chains {
    /// Tells it from others: connections outlive generations.
    number: u64,
    good: Mutex<VerifiedTokens>,
}

impl Chains {
    pub(crate) fn new(number: u64) -> Chains {
        Chains { number, good: Mutex::new(VerifiedTokens::new(limits::CHAINS_KEPT_MAX)) }
    }

    /// What was found good.
    pub(crate) fn good(&self) -> MutexGuard<'_, VerifiedTokens> {
        // Every change is complete in itself.
        self.good.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which generation it is of.
    pub(crate) fn generation(&self) -> u64 {
        self.number
    }
}
