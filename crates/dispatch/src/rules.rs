//! The configuration: limits of storages and links, shares, holds (fts3-rest 9).

use std::collections::HashMap;
use std::fmt;

use gridlane_core::limits::{
    DISPATCH_LINK_ACTIVE_MIN, DISPATCH_LOCAL_ACTIVE_MIN, DISPATCH_STORAGE_ACTIVE_MAX,
};
use gridlane_jobs::{Link, Storage};

/// Everything that is configured. A change is another one of these: [`Dispatcher::configured`](crate::Dispatcher::configured).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// By source and destination, of which either may be `*`.
    pub links: HashMap<(String, String), LinkRule>,
    /// By storage or `*`.
    pub storages: HashMap<String, StorageRule>,
    /// Weights of VOs, by source and destination as in `links`. A link without has equal weights for all VOs.
    pub shares: HashMap<(String, String), HashMap<String, u32>>,
    /// Weights of activities in small letters, by VO; `default` is for those that are not named.
    pub activities: HashMap<String, HashMap<String, f64>>,
    /// Storages from and to which nothing new starts.
    pub holds: HashMap<String, Vec<Hold>>,
    /// Nothing new starts at all.
    pub is_paused: bool,
}

/// Numbers of copies of a link at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkRule {
    /// At the least.
    pub min_active: u32,
    /// At the most.
    pub max_active: u32,
    /// FTS3's mode of its optimiser, 0 to 3; only for the optimisers that are FTS3's.
    pub mode: u8,
}

/// Limits of a storage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StorageRule {
    /// Copies to it at once.
    pub inbound_max_active: u32,
    /// Copies from it at once.
    pub outbound_max_active: u32,
    /// Bytes per second to it.
    pub inbound_max_bytes_per_s: Option<f64>,
    /// Bytes per second from it.
    pub outbound_max_bytes_per_s: Option<f64>,
}

/// A storage from and to which nothing new starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Only of this VO.
    pub vo: Option<String>,
    /// The reason.
    pub why: HoldReason,
}

/// Why nothing new starts at a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldReason {
    /// It is banned, and its files wait (`WAIT_AS`).
    Banned,
    /// It is to be switched off: what runs ends.
    Draining,
    /// An operator has stopped it.
    Paused,
}

impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HoldReason::Banned => "is banned",
            HoldReason::Draining => "is being drained",
            HoldReason::Paused => "is paused",
        })
    }
}

/// The range of a link's concurrency, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Copies at once, at the least.
    pub min: u32,
    /// At the most.
    pub max: u32,
    /// FTS3's mode.
    pub mode: u8,
    /// True if the rule names the source, the destination or both.
    pub is_specific: bool,
}

/// The host of a storage, without the scheme.
fn host(storage: &Storage) -> &str {
    storage.0.split_once("://").map_or(&*storage.0, |(_, host)| host)
}

/// The rule for a link: exact, of the source, of the destination, of all (fts3-rest 9).
fn of_link<'a, T>(map: &'a HashMap<(String, String), T>, link: &Link) -> Option<(&'a T, bool)> {
    let any = Storage::ANY.to_owned();
    let (source, destination) = (link.source.0.to_string(), link.destination.0.to_string());
    let keys = [
        (source.clone(), destination.clone()),
        (source, any.clone()),
        (any.clone(), destination),
        (any.clone(), any),
    ];
    keys.iter().enumerate().find_map(|(place, key)| map.get(key).map(|found| (found, place < 3)))
}

impl Rules {
    /// The range of a link. Without a rule: two, or ten within a host, up to what the storages take (fts3-rest 10.2).
    pub fn range(&self, link: &Link) -> Range {
        let most = self
            .storage(&link.source)
            .outbound_max_active
            .min(self.storage(&link.destination).inbound_max_active)
            .max(1);
        match of_link(&self.links, link) {
            Some((rule, is_specific)) => {
                let max = rule.max_active.max(1);
                Range { min: rule.min_active.clamp(1, max), max, mode: rule.mode, is_specific }
            }
            None => {
                let is_local = host(&link.source) == host(&link.destination);
                let min = if is_local { DISPATCH_LOCAL_ACTIVE_MIN } else { DISPATCH_LINK_ACTIVE_MIN };
                Range { min: min.min(most), max: most, mode: 2, is_specific: false }
            }
        }
    }

    /// The limits of a storage: its own, else those of `*`, else 60. Its own hide those of `*` as a whole.
    pub fn storage(&self, storage: &Storage) -> StorageRule {
        let rule = self.storages.get(&*storage.0).or_else(|| self.storages.get(Storage::ANY));
        rule.copied().unwrap_or(StorageRule {
            inbound_max_active: DISPATCH_STORAGE_ACTIVE_MAX,
            outbound_max_active: DISPATCH_STORAGE_ACTIVE_MAX,
            inbound_max_bytes_per_s: None,
            outbound_max_bytes_per_s: None,
        })
    }

    /// The weight of a VO on a link. VOs that are not named split that of `public` evenly: the weight is theirs together, and
    /// true beside it. `None`: no share is configured for it.
    pub fn weight(&self, link: &Link, vo: &str) -> Option<(f64, bool)> {
        let Some((shares, _)) = of_link(&self.shares, link) else { return Some((1.0, false)) };
        let weight = |vo: &str| shares.get(vo).map(|weight| f64::from((*weight).max(1)));
        weight(vo).map(|weight| (weight, false)).or_else(|| weight("public").map(|weight| (weight, true)))
    }

    /// The weights of a VO's activities, if they have some.
    pub fn activity_weights(&self, vo: &str) -> Option<&HashMap<String, f64>> {
        self.activities.get(vo).or_else(|| self.activities.get("*"))
    }

    /// The hold of a VO's files on a link: its storage, and why.
    pub fn hold(&self, link: &Link, vo: &str) -> Option<(Storage, HoldReason)> {
        [&link.source, &link.destination].into_iter().find_map(|storage| {
            let holds = self.holds.get(&*storage.0)?;
            let hold = holds.iter().find(|hold| hold.vo.as_deref().is_none_or(|of| of == vo))?;
            Some((storage.clone(), hold.why))
        })
    }
}

/// The weight of an activity: its own, else that of `default`, else 1. Names compare in small letters.
pub(crate) fn activity_weight(weights: &HashMap<String, f64>, activity: &str) -> f64 {
    let weight =
        weights.get(&activity.to_lowercase()).or_else(|| weights.get("default")).copied().unwrap_or(1.0);
    // A weight of nothing would wait for ever.
    if weight.is_finite() { weight.max(1e-3) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(source: &str, destination: &str) -> Link {
        Link { source: source.into(), destination: destination.into() }
    }

    #[test]
    fn the_most_special_rule_of_a_link_holds() {
        let mut rules = Rules::default();
        assert_eq!(rules.range(&link("a", "b")), Range { min: 2, max: 60, mode: 2, is_specific: false });
        let all = [("*", "*", 4), ("*", "b", 3), ("a", "*", 2), ("a", "b", 1)];
        for (source, destination, max_active) in all {
            let rule = LinkRule { min_active: 1, max_active, mode: 1 };
            rules.links.insert((source.into(), destination.into()), rule);
            assert_eq!(rules.range(&link("a", "b")).max, max_active);
        }
        assert!(!rules.range(&link("c", "d")).is_specific);
        assert!(rules.range(&link("c", "b")).is_specific);
    }

    #[test]
    fn vos_without_a_share_have_that_of_public_or_none() {
        let mut rules = Rules::default();
        assert_eq!(rules.weight(&link("a", "b"), "cms"), Some((1.0, false)));
        let shares = [("atlas".to_owned(), 3)];
        rules.shares.insert(("a".into(), "*".into()), shares.into());
        assert_eq!(rules.weight(&link("a", "b"), "cms"), None);
        let shares = [("atlas".to_owned(), 3), ("public".to_owned(), 2)];
        rules.shares.insert(("a".into(), "b".into()), shares.into());
        assert_eq!(rules.weight(&link("a", "b"), "cms"), Some((2.0, true)));
        assert_eq!(rules.weight(&link("a", "b"), "atlas"), Some((3.0, false)));
    }
}
