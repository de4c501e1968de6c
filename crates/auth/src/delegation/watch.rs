//! Which of many things ends next, told in time.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// Ends of things with names, told some time before they come.
///
/// Pure: it is asked with the time, says what is due and when to ask again. Each is told once, when the time passes the
/// moment where it is due. A clock that was wrong and is set back makes due again what was told too early, so that nothing
/// is missed.
///
/// ```
/// # use gridlane_auth::delegation::Watch;
/// let mut watch = Watch::new(60);
/// watch.set("ada", 1000);
/// assert_eq!(watch.due(900), []);
/// assert_eq!(watch.next_s(), Some(940));
/// assert_eq!(watch.due(940), [("ada", 1000)]);
/// ```
#[derive(Clone, Debug)]
pub struct Watch<K> {
    ahead_s: i64,
    ends: HashMap<K, i64>,
    /// By their ends: those to tell, and those that were told.
    waiting: BTreeSet<(i64, K)>,
    told: BTreeSet<(i64, K)>,
}

impl<K: Clone + Ord + Hash> Watch<K> {
    /// Nothing yet; each end will be told so many seconds before it comes.
    pub fn new(ahead_s: i64) -> Watch<K> {
        Watch { ahead_s, ends: HashMap::new(), waiting: BTreeSet::new(), told: BTreeSet::new() }
    }

    /// Something ends at this time, in seconds since 1970; or at this one instead of another. It will be told again.
    pub fn set(&mut self, key: K, ends_s: i64) {
        self.remove(&key);
        self.ends.insert(key.clone(), ends_s);
        self.waiting.insert((ends_s, key));
    }

    /// It is not of interest any more.
    pub fn remove(&mut self, key: &K) {
        if let Some(ends_s) = self.ends.remove(key) {
            let entry = (ends_s, key.clone());
            self.waiting.remove(&entry);
            self.told.remove(&entry);
        }
    }

    /// When something ends.
    pub fn ends_s(&self, key: &K) -> Option<i64> {
        self.ends.get(key).copied()
    }

    /// Number of things.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Names of what is due and was not told, with its end, the first to end first.
    pub fn due(&mut self, now_s: i64) -> Vec<(K, i64)> {
        let ahead_s = self.ahead_s;
        let is_due = |entry: &(i64, K)| entry.0.saturating_sub(ahead_s) <= now_s;
        // The clock was set back: these were told too early.
        while let Some(entry) = self.told.pop_last() {
            if is_due(&entry) {
                self.told.insert(entry);
                break;
            }
            self.waiting.insert(entry);
        }
        let mut due = Vec::new();
        while let Some(entry) = self.waiting.pop_first() {
            if !is_due(&entry) {
                self.waiting.insert(entry);
                break;
            }
            due.push((entry.1.clone(), entry.0));
            self.told.insert(entry);
        }
        due
    }

    /// When to ask again, in seconds since 1970; `None` while nothing is to be told. A clock can be set back before that:
    /// a waiting caller asks again from time to time.
    pub fn next_s(&self) -> Option<i64> {
        self.waiting.first().map(|(ends_s, _)| ends_s.saturating_sub(self.ahead_s))
    }

    /// Names of what ends before a time, told or not, the first to end first.
    pub fn ends_before(&self, time_s: i64) -> impl Iterator<Item = (&K, i64)> {
        // What was set since may end before what was told: both are walked together.
        let mut told = self.told.iter().take_while(move |entry| entry.0 < time_s).peekable();
        let mut waiting = self.waiting.iter().take_while(move |entry| entry.0 < time_s).peekable();
        std::iter::from_fn(move || {
            let (first, second) = (told.peek(), waiting.peek());
            let is_told = match (first, second) {
                (Some(first), Some(second)) => first <= second,
                (first, _) => first.is_some(),
            };
            let entry = if is_told { told.next() } else { waiting.next() };
            entry.map(|(ends_s, key)| (key, *ends_s))
        })
    }
}
