//! Proxies that users have lent: asked for, judged, kept, handed out, and given back.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gridlane_auth::delegation::{self, KeyKind, Watch, request_subject};
use gridlane_auth::make::{Credential, Key, pem, request};
use gridlane_auth::x509::Trust;
use gridlane_auth::{Cause, Refusal};
use gridlane_core::{Error, ErrorKind, Fault, Result, Secret};
use serde::{Deserialize, Serialize};

use crate::store::{Kind, RecordId, Store};
use crate::vault::Vault;

/// Proxies that users have lent. Users are named by identifiers that the service makes from their credential ([`RecordId::new`]
/// has the rules); each has one proxy, and one key that proxies are asked for with.
pub struct Delegations<S> {
    vault: Vault<S>,
    /// One at a time decides what a user's records are: two requests at once have one key, and an upload does not bring back
    /// what was forgotten while it was judged.
    deciding: Mutex<()>,
}

/// A proxy of a user with its key.
#[derive(Debug)]
pub struct Lent {
    /// Certificates and key.
    pub credential: Credential,
    /// Its owner, as [`gridlane_auth::x509::Verified::dn`] has it.
    pub owner_dn: String,
    /// When the first certificate of the chain ends, in seconds since 1970.
    pub ends_s: i64,
    /// True if it is a limited proxy.
    pub is_limited: bool,
}

/// Why an upload is not kept.
#[derive(Debug)]
pub enum Failure {
    /// It is not believed: for the client.
    Refused(Refusal),
    /// It cannot be kept, or what is needed to judge it cannot be had: for the operator.
    Failed(Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(refusal) => refusal.fmt(f),
            Failure::Failed(error) => f.write_str(error.message()),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::Refused(refusal)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Failed(error)
    }
}

impl<S: Store> Delegations<S> {
    /// The delegations of this vault.
    pub fn new(vault: Vault<S>) -> Delegations<S> {
        Delegations { vault, deciding: Mutex::new(()) }
    }

    /// The request in PEM that the user has to sign a proxy for. Its key is the one that was made before, if it is of this
    /// kind, so that asking twice spoils no answer that is on its way; else `new_key` makes one.
    ///
    /// Fails where a kept key cannot be opened: it can be [given up](Delegations::forget) once the reason is known.
    pub fn request(
        &self,
        user: &str,
        kind: KeyKind,
        new_key: impl FnOnce() -> Result<Key>,
    ) -> Result<String> {
        let id = RecordId::new(Kind::Key, user)?;
        let kept = || Ok::<_, Error>(self.key(&id)?.filter(|key| KeyKind::of(&key.public_key()) == Ok(kind)));
        let key = match kept()? {
            Some(key) => key,
            None => {
                // A key of RSA takes a while: others go on meanwhile.
                let key = new_key()?;
                if KeyKind::of(&key.public_key()) != Ok(kind) {
                    let message = format!("the new key is {key:?}, and a {kind:?} was asked for");
                    return Err(Error::new(ErrorKind::Other, message).fault(Fault::Internal));
                }
                let _deciding = self.decide();
                match kept()? {
                    Some(other) => other,
                    None => {
                        // Before the request is out: an answer to it finds the key whatever happens.
                        self.vault.put(&id, key.to_pem().expose().as_bytes())?;
                        key
                    }
                }
            }
        };
        Ok(pem::encode(pem::REQUEST, &request(&request_subject()?, &key, self.vault.random())?))
    }

    /// Judges what a user uploads in answer to a request, and keeps it in place of an earlier one. Tells when it ends, in
    /// seconds since 1970. `owner_dn` is the name of the user that uploads.
    ///
    /// # Errors
    /// [`Failure::Refused`] as [`delegation::accept`], and when there is no request to answer.
    pub fn accept(
        &self,
        user: &str,
        owner_dn: &str,
        upload: &[u8],
        trust: &Trust,
        now_s: i64,
    ) -> std::result::Result<delegation::Delegated, Failure> {
        let id = RecordId::new(Kind::Key, user)?;
        let none = || {
            let message = "the delegated proxy: no request is open for this user; ask for one, and sign that";
            Refusal::new(Cause::UnknownKey, message)
        };
        let key = self.key(&id)?.ok_or_else(none)?;
        let delegated = delegation::accept(upload, &key.public_key(), owner_dn, trust, now_s)?;
        let kept = Kept {
            owner_dn: owner_dn.to_owned(),
            ends_s: delegated.ends_s,
            is_limited: delegated.verified.is_limited(),
            chain: delegated.chain.iter().map(|der| pem::encode(pem::CERTIFICATE, der)).collect(),
            key: key.to_pem().expose().to_owned(),
        };
        let text = serde_json::to_vec(&kept)
            .map_err(|_| Error::new(ErrorKind::Other, "a delegated proxy could not be written"))?;
        let _deciding = self.decide();
        if self.key(&id)?.is_none_or(|now| now.public_key() != key.public_key()) {
            return Err(none().into());
        }
        self.vault.put(&RecordId::new(Kind::Proxy, user)?, &text)?;
        Ok(delegated)
    }

    /// The proxy of a user, whether its time is over or not; `None` if there is none.
    ///
    /// Fails where it cannot be opened, or is not what it was.
    pub fn credential(&self, user: &str) -> Result<Option<Lent>> {
        let Some(kept) = self.kept(user)? else { return Ok(None) };
        let credential =
            Credential::from_pem(kept.chain.as_bytes(), kept.key.as_bytes(), self.vault.random())?;
        let Kept { owner_dn, ends_s, is_limited, .. } = kept;
        Ok(Some(Lent { credential, owner_dn, ends_s, is_limited }))
    }

    /// The proxy of a user as a file of certificates and key, the form that other programs take.
    pub fn credential_pem(&self, user: &str) -> Result<Option<Secret>> {
        Ok(self.credential(user)?.map(|lent| lent.credential.to_pem()))
    }

    /// Gives up what a user has lent, and the key of the request; false if nothing was lent.
    pub fn forget(&self, user: &str) -> Result<bool> {
        let _deciding = self.decide();
        // The key first: an upload that comes in between is refused.
        self.vault.remove(&RecordId::new(Kind::Key, user)?)?;
        self.vault.remove(&RecordId::new(Kind::Proxy, user)?)
    }

    /// The ends of all that was lent, to be told so many seconds before; and what cannot be opened, with the reason. For
    /// the start of a service: afterwards it sets the ends that [`Delegations::accept`] tells.
    pub fn watch(&self, ahead_s: i64) -> Result<(Watch<String>, Vec<Error>)> {
        let (mut watch, mut failed) = (Watch::new(ahead_s), Vec::new());
        for user in self.vault.names(Kind::Proxy)? {
            match self.kept(&user) {
                Ok(Some(kept)) => watch.set(user, kept.ends_s),
                Ok(None) => {}
                Err(error) => failed.push(error),
            }
        }
        Ok((watch, failed))
    }

    /// The vault.
    pub fn vault(&self) -> &Vault<S> {
        &self.vault
    }

    fn decide(&self) -> MutexGuard<'_, ()> {
        // It guards the store, where each call is whole.
        self.deciding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self, id: &RecordId) -> Result<Option<Key>> {
        let text = self.vault.get(id)?;
        text.map(|text| Key::from_pem(&text, self.vault.random())).transpose()
    }

    fn kept(&self, user: &str) -> Result<Option<Kept>> {
        let Some(text) = self.vault.get(&RecordId::new(Kind::Proxy, user)?)? else { return Ok(None) };
        // The parser's words would quote what it read.
        let read = serde_json::from_slice(&text);
        read.map(Some).map_err(|_| {
            let message = format!("what is kept of the proxy of {user} cannot be read");
            Error::new(ErrorKind::Other, message).fault(Fault::Local)
        })
    }
}

/// A proxy as it is kept. Names stay; what is new has a default.
#[derive(Serialize, Deserialize)]
struct Kept {
    owner_dn: String,
    ends_s: i64,
    is_limited: bool,
    /// Certificates in PEM, the proxy's first.
    chain: String,
    /// PKCS#8 in PEM.
    key: String,
}
