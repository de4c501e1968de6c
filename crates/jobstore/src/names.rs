//! Names that rows have by number: found in memory, since the same few thousand come again and again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridlane_core::limits;

use crate::rows::NameKey;

/// Names that are in the store, as far as they have been met. A name keeps its number for good.
#[derive(Default)]
pub(crate) struct Names(Mutex<Known>);

#[derive(Default)]
struct Known {
    keys: HashMap<Arc<str>, NameKey>,
    names: HashMap<NameKey, Arc<str>>,
    bytes: usize,
}

impl Names {
    /// The number of a name.
    pub(crate) fn key(&self, name: &str) -> Option<NameKey> {
        self.known().keys.get(name).copied()
    }

    /// The name of a number.
    pub(crate) fn name(&self, key: NameKey) -> Option<Arc<str>> {
        self.known().names.get(&key).cloned()
    }

    /// Keeps a name that is in the store for good: none of a transaction that may still come to nothing.
    pub(crate) fn keep(&self, key: NameKey, name: Arc<str>) {
        let mut known = self.known();
        // Submitters choose activities: their imagination must not fill the memory. What is used comes back at once.
        if known.bytes.saturating_add(name.len()) > limits::STORE_NAMES_BYTES_MAX {
            *known = Known::default();
        }
        if known.names.insert(key, Arc::clone(&name)).is_none() {
            known.bytes += name.len() + limits::STORE_NAME_OVERHEAD_BYTES;
            known.keys.insert(name, key);
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Each entry is right by itself.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_names_has_an_end() {
        let names = Names::default();
        names.keep(1, "first".into());
        assert_eq!(names.key("first"), Some(1));
        let long = "n".repeat(limits::STORE_NAMES_BYTES_MAX / 4);
        for key in 2..8 {
            names.keep(key, format!("{key}{long}").into());
        }
        let known = names.known();
        assert!(known.bytes <= limits::STORE_NAMES_BYTES_MAX + 5 * limits::STORE_NAME_OVERHEAD_BYTES);
        assert_eq!(known.names.len(), known.keys.len());
        assert!(!known.names.contains_key(&1) && known.names.contains_key(&7));
    }
}
