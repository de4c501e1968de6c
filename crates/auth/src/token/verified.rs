//! Tokens that were found good: for the hot path, which a signature would cost more than the rest of a small request.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use gridlane_core::limits;
use ring::digest;

use crate::identity::Identity;

/// The SHA-256 of texts, tokens for one, which tells them apart. The text itself is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of a text.
    pub fn of(text: impl AsRef<[u8]>) -> Fingerprint {
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest::digest(&digest::SHA256, text.as_ref()).as_ref());
        Fingerprint(fingerprint)
    }
}

/// In hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Tokens that were found good, with their bearers.
///
/// It is bounded: when half of the room is full, what was not used since the other half filled is forgotten. An entry is of no
/// use once its token has expired, and none is once anything changes that they were found good by: the caller says so by
/// another `generation`.
#[derive(Debug)]
pub struct VerifiedTokens {
    generation: u64,
    recent: HashMap<Fingerprint, Arc<Identity>>,
    older: HashMap<Fingerprint, Arc<Identity>>,
    half_max: usize,
}

impl Default for VerifiedTokens {
    fn default() -> VerifiedTokens {
        VerifiedTokens::new(limits::TOKENS_KEPT_MAX)
    }
}

impl VerifiedTokens {
    /// For at most so many.
    pub fn new(max: usize) -> VerifiedTokens {
        let half_max = (max / 2).max(1);
        VerifiedTokens { generation: 0, recent: HashMap::new(), older: HashMap::new(), half_max }
    }

    /// The bearer of a token, if it is known and still valid.
    pub fn get(&mut self, token: Fingerprint, generation: u64, now_s: i64) -> Option<Arc<Identity>> {
        self.move_to(generation);
        let is_over = |identity: &Identity| identity.expires_s().is_some_and(|expires_s| now_s >= expires_s);
        if let Some(identity) = self.recent.get(&token) {
            if !is_over(identity) {
                return Some(Arc::clone(identity));
            }
            self.recent.remove(&token);
            return None;
        }
        let identity = self.older.remove(&token).filter(|identity| !is_over(identity))?;
        self.keep(token, Arc::clone(&identity));
        Some(identity)
    }

    /// Notes that a token was found good.
    pub fn insert(&mut self, token: Fingerprint, generation: u64, identity: Arc<Identity>) {
        self.move_to(generation);
        self.keep(token, identity);
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.recent.len() + self.older.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn move_to(&mut self, generation: u64) {
        if self.generation != generation {
            self.generation = generation;
            self.recent.clear();
            self.older.clear();
        }
    }

    fn keep(&mut self, token: Fingerprint, identity: Arc<Identity>) {
        self.older.remove(&token);
        if self.recent.len() >= self.half_max && !self.recent.contains_key(&token) {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(token, identity);
    }
}
