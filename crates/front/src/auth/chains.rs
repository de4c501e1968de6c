//! Certificate chains that were found good.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gridlane_auth::token::VerifiedTokens;
use gridlane_core::limits;

/// Certificate chains that one generation of settings has verified, by their digests.
#[derive(Debug)]
pub(crate) struct Chains {
    /// The number of the generation: connections outlive generations.
    number: u64,
    good: Mutex<VerifiedTokens>,
}

impl Chains {
    pub(crate) fn new(number: u64) -> Chains {
        Chains { number, good: Mutex::new(VerifiedTokens::new(limits::CHAINS_KEPT_MAX)) }
    }

    /// The verified chains.
    pub(crate) fn good(&self) -> MutexGuard<'_, VerifiedTokens> {
        // Every change is complete in itself.
        self.good.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The generation that it is of.
    pub(crate) fn generation(&self) -> u64 {
        self.number
    }
}
