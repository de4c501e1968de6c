//! The keys of all issuers, and when to fetch them again: a state machine without sockets, files and clock.
//!
//! Its driver's turn: look up [`KeyCache::keys`]; when [`KeyCache::wants`] says so, [`KeyCache::begin`], fetch, and
//! tell of
//! success by [`KeyCache::succeed`] (a failure is what does not succeed). One fetch per issuer at a time is the driver's
//! business. [`KeyCache::stored`] is for a file, [`KeyCache::restore`] for the next start, when the issuer may be gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gridlane_core::limits;
use serde_json::Value;

use super::json;
use super::keys::KeySet;
use crate::refusal::{Cause, Refusal};

/// Version of what [`KeyCache::stored`] writes.
const STORED_VERSION: i64 = 1;

/// Why keys may have to be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There are none, or they are no longer new.
    Age,
    /// A token names one that is not among them, or whose issuer's are not known at all.
    UnknownKey,
}

/// The keys of all issuers of the operator's list.
#[derive(Debug, Default)]
pub struct KeyCache {
    issuers: BTreeMap<String, Entry>,
    generation: u64,
}

#[derive(Debug, Default)]
struct Entry {
    keys: Option<Fetched>,
    /// When the last fetch began.
    tried_s: Option<i64>,
    /// True if it succeeded.
    succeeded: bool,
    /// A token has named others than these.
    is_outdated: bool,
}

#[derive(Debug)]
struct Fetched {
    keys: Arc<KeySet>,
    at_s: i64,
}

impl KeyCache {
    /// Makes these the issuers: others are forgotten, with their keys; what is known of these stays.
    pub fn set_issuers<'a>(&mut self, urls: impl IntoIterator<Item = &'a str>) {
        let mut before = std::mem::take(&mut self.issuers);
        for url in urls {
            let entry = before.remove(url).unwrap_or_default();
            self.issuers.insert(url.to_owned(), entry);
        }
        self.generation += 1;
    }

    /// The issuers.
    pub fn issuers(&self) -> impl Iterator<Item = &str> {
        self.issuers.keys().map(String::as_str)
    }

    /// The keys of an issuer, if they are known and not too old.
    pub fn keys(&self, issuer: &str, now_s: i64) -> Option<Arc<KeySet>> {
        let fetched = self.issuers.get(issuer)?.keys.as_ref()?;
        (!has_passed(fetched.at_s, limits::ISSUER_KEYS_AGE_MAX, now_s)).then(|| Arc::clone(&fetched.keys))
    }

    /// When the keys of an issuer were fetched, in seconds since 1970; `None` when there are none.
    pub fn fetched_s(&self, issuer: &str) -> Option<i64> {
        Some(self.issuers.get(issuer)?.keys.as_ref()?.at_s)
    }

    /// True if they should be fetched. Never for an issuer that is not on the list, and not again right after a fetch,
    /// whatever came of it: tokens can name any number of keys that do not exist.
    pub fn wants(&self, issuer: &str, reason: Reason, now_s: i64) -> bool {
        let Some(entry) = self.issuers.get(issuer) else { return false };
        if entry.is_outdated {
            return true;
        }
        let wait = match entry.succeeded {
            true => limits::ISSUER_KEYS_UNKNOWN_WAIT,
            false => limits::ISSUER_KEYS_FAILED_WAIT,
        };
        if entry.tried_s.is_some_and(|tried_s| !has_passed(tried_s, wait, now_s)) {
            return false;
        }
        let is_new = |fetched: &Fetched| !has_passed(fetched.at_s, limits::ISSUER_KEYS_REFRESH, now_s);
        reason == Reason::UnknownKey || !entry.keys.as_ref().is_some_and(is_new)
    }

    /// Has all keys fetched again, whenever that was done last. Until then they are of use as they are.
    pub fn outdate(&mut self) {
        for entry in self.issuers.values_mut() {
            entry.is_outdated = true;
        }
    }

    /// Notes that a fetch begins.
    pub fn begin(&mut self, issuer: &str, now_s: i64) {
        if let Some(entry) = self.issuers.get_mut(issuer) {
            entry.tried_s = Some(now_s);
            entry.succeeded = false;
            entry.is_outdated = false;
        }
    }

    /// Takes what was fetched: it replaces all keys that were there. An issuer that has left the list meanwhile has none.
    pub fn succeed(&mut self, issuer: &str, keys: KeySet, now_s: i64) {
        let Some(entry) = self.issuers.get_mut(issuer) else { return };
        entry.succeeded = true;
        if entry.keys.as_ref().is_none_or(|fetched| *fetched.keys != keys) {
            self.generation += 1;
        }
        entry.keys = Some(Fetched { keys: Arc::new(keys), at_s: now_s });
    }

    /// Forgets keys that are too old.
    pub fn drop_old(&mut self, now_s: i64) {
        for entry in self.issuers.values_mut() {
            let is_old = |fetched: &mut Fetched| has_passed(fetched.at_s, limits::ISSUER_KEYS_AGE_MAX, now_s);
            if entry.keys.take_if(is_old).is_some() {
                self.generation += 1;
            }
        }
    }

    /// Another number after each change of what tokens are good by: for [`VerifiedTokens`](super::VerifiedTokens).
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The facts about an issuer, for a file: no secret. `None` when there are none.
    pub fn stored(&self, issuer: &str) -> Option<Vec<u8>> {
        let fetched = self.issuers.get(issuer)?.keys.as_ref()?;
        let mut document = fetched.keys.to_json();
        document["version"] = STORED_VERSION.into();
        document["issuer"] = issuer.into();
        document["fetched_s"] = fetched.at_s.into();
        Some(document.to_string().into_bytes())
    }

    /// Takes what a file has, unless it is about an issuer that is not on the list, or older than what is known.
    ///
    /// # Errors
    /// It is not what [`KeyCache::stored`] made.
    pub fn restore(&mut self, stored: &[u8], now_s: i64) -> Result<(), Refusal> {
        if stored.len() > limits::ISSUER_DOCUMENT_BYTES_MAX {
            return Err(Refusal::new(Cause::Unacceptable, "the stored key set is too long"));
        }
        let document = json::object(stored, "the stored key set")?;
        let number = |name: &str| document.get(name).and_then(Value::as_i64);
        let issuer = json::text(&document, "issuer", "the stored key set")?;
        let (Some(STORED_VERSION), Some(issuer), Some(fetched_s)) =
            (number("version"), issuer, number("fetched_s"))
        else {
            return Err(Refusal::new(Cause::Malformed, "the stored key set is none, or of another version"));
        };
        let keys = KeySet::from_json(&document)?;
        // A clock that was ahead when it was written must not make it good for longer.
        let fetched_s = fetched_s.min(now_s);
        let Some(entry) = self.issuers.get_mut(issuer) else { return Ok(()) };
        if entry.keys.as_ref().is_none_or(|known| known.at_s < fetched_s) {
            entry.keys = Some(Fetched { keys: Arc::new(keys), at_s: fetched_s });
            self.generation += 1;
        }
        Ok(())
    }
}

/// True if `wait` has passed since `since_s`; also when the clock was put back in between, and that is unknown.
fn has_passed(since_s: i64, wait: Duration, now_s: i64) -> bool {
    let wait_s = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX);
    let passed_s = now_s.saturating_sub(since_s);
    passed_s >= wait_s || passed_s < -wait_s
}
