//! Records in memory: for tests, and for services that keep nothing.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gridlane_core::Result;

use crate::store::{Kind, RecordId, Store};

/// Records in memory.
#[derive(Default)]
pub struct MemoryStore {
    records: Mutex<BTreeMap<RecordId, Vec<u8>>>,
}

impl MemoryStore {
    fn records(&self) -> MutexGuard<'_, BTreeMap<RecordId, Vec<u8>>> {
        // Each call changes one entry: there is nothing half done.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn put(&self, id: &RecordId, sealed: &[u8]) -> Result<()> {
        self.records().insert(id.clone(), sealed.to_vec());
        Ok(())
    }

    fn get(&self, id: &RecordId) -> Result<Option<Vec<u8>>> {
        Ok(self.records().get(id).cloned())
    }

    fn remove(&self, id: &RecordId) -> Result<bool> {
        Ok(self.records().remove(id).is_some())
    }

    fn names(&self, kind: Kind) -> Result<Vec<String>> {
        let records = self.records();
        let of_kind = records.keys().filter(|id| id.kind() == kind);
        Ok(of_kind.map(|id| id.name().to_owned()).collect())
    }
}
