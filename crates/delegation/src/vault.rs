//! Sealed records in a store.

use gridlane_core::Result;
use ring::rand::SystemRandom;

use crate::seal::{open, seal};
use crate::secrets::Secrets;
use crate::store::{Kind, RecordId, Store};

/// Records that can be read with the site's secret only.
///
/// ```
/// # use gridlane_delegation::{Kind, MemoryStore, RecordId, Secrets, Vault};
/// let secrets = Secrets::parse("oLXt3DuSgwL8Bz1AZLAbAJT5n6tTjmCkFz2T0mDcBv0=")?;
/// let vault = Vault::new(MemoryStore::default(), secrets);
/// let id = RecordId::new(Kind::Token, "job-1")?;
/// vault.put(&id, b"a token")?;
/// assert_eq!(vault.get(&id)?.as_deref(), Some(&b"a token"[..]));
/// # Ok::<(), gridlane_core::Error>(())
/// ```
pub struct Vault<S> {
    store: S,
    secrets: Secrets,
    random: SystemRandom,
}

impl<S: Store> Vault<S> {
    /// Records in this store, sealed with these secrets.
    pub fn new(store: S, secrets: Secrets) -> Vault<S> {
        Vault { store, secrets, random: SystemRandom::new() }
    }

    /// Seals a record and keeps it, in place of one of the same name.
    pub fn put(&self, id: &RecordId, plain: &[u8]) -> Result<()> {
        let sealed = seal(&self.secrets, id, plain, &self.random)?;
        self.store.put(id, &sealed)
    }

    /// A record, opened; `None` if there is none.
    ///
    /// Fails for a record that was changed, put in the place of another, or sealed with a secret that is not here any more.
    pub fn get(&self, id: &RecordId) -> Result<Option<Vec<u8>>> {
        let sealed = self.store.get(id)?;
        sealed.map(|sealed| open(&self.secrets, id, &sealed).map(|opened| opened.plain)).transpose()
    }

    /// Takes a record away; false if there is none. One that cannot be opened goes as well.
    pub fn remove(&self, id: &RecordId) -> Result<bool> {
        self.store.remove(id)
    }

    /// The names of all records of a kind, in order.
    pub fn names(&self, kind: Kind) -> Result<Vec<String>> {
        self.store.names(kind)
    }

    /// Seals with the newest secret what is sealed with an older one, and tells how many records that were. Afterwards the
    /// older secrets can go. Nothing else may write records meanwhile.
    ///
    /// Fails at the first record that cannot be opened or written; those before it are done, and it can be called again.
    pub fn reseal(&self) -> Result<usize> {
        let mut count = 0;
        for kind in Kind::ALL {
            for name in self.names(kind)? {
                let id = RecordId::new(kind, &name)?;
                let Some(sealed) = self.store.get(&id)? else { continue };
                let opened = open(&self.secrets, &id, &sealed)?;
                if !opened.is_newest {
                    self.put(&id, &opened.plain)?;
                    count += 1;
                }
            }
        }
        Ok(count)
    }

    /// The randomness of keys and signatures.
    pub(crate) fn random(&self) -> &SystemRandom {
        &self.random
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }
}
