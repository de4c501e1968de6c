//! The directory of an authority.
//!
//! ```text
//! ca.key                            its key
//! certificates/HASH.0               its certificate
//! certificates/HASH.signing_policy  which names it may vouch for (Globus)
//! certificates/HASH.r0              its revocation list
//! ```
//!
//! `HASH` is OpenSSL's of its name: how programs find it.

use std::fs;
use std::path::{Path, PathBuf};

use gridlane_auth::make::{Contents, Credential, Name, RevocationList, Revoked, Validity, pem};
use gridlane_core::{Error, ErrorKind, Fault, Result};
use gridlane_net::file;
use ring::rand::SystemRandom;
use rustix::fs::FlockOperation;

use super::{DAY_S, now_s, refuse_if_there, usage, write_new};

/// An authority with its key.
pub(super) struct Authority {
    credential: Credential,
    certificate: PathBuf,
    key: PathBuf,
}

/// The revoked certificates.
pub(super) struct Recalled {
    pub(super) subject: String,
    pub(super) serial: String,
    pub(super) list: PathBuf,
}

impl Authority {
    /// Writes the files of a new one.
    pub(super) fn found(directory: &Path, credential: Credential) -> Result<Authority> {
        let certificates = directory.join("certificates");
        let hash = credential.subject()?.hash()?;
        let authority = Authority {
            certificate: certificates.join(format!("{hash}.0")),
            key: directory.join("ca.key"),
            credential,
        };
        let (policy, list) = (authority.policy(), authority.list());
        let policy_text = authority.signing_policy()?;
        for path in [&authority.key, &authority.certificate, &policy, &list] {
            refuse_if_there(path)?;
        }
        // The key comes first: it is what a second `init` at the same time meets with.
        write_new(&authority.key, 0o600, authority.credential.key.to_pem().expose().as_bytes())?;
        write_new(&authority.certificate, 0o644, authority.credential.chain_pem().as_bytes())?;
        write_new(&policy, 0o644, policy_text.as_bytes())?;
        write_new(&list, 0o644, authority.signed_list(Vec::new(), 1)?.as_bytes())?;
        Ok(authority)
    }

    /// Reads one that is there.
    pub(super) fn open(directory: &Path) -> Result<Authority> {
        let key = directory.join("ca.key");
        let key_pem = fs::read(&key).map_err(|cause| {
            Error::local_io(format!("cannot read {}", key.display()), &cause)
                .fault(Fault::Caller)
                .hint(format!("make the authority first: gridlane pki init {}", directory.display()))
        })?;
        let certificates = directory.join("certificates");
        let entries = fs::read_dir(&certificates)
            .map_err(|cause| Error::local_io(format!("cannot read {}", certificates.display()), &cause))?;
        // Others may have been put there as well, for servers to trust them.
        for certificate in entries.flatten().map(|entry| entry.path()) {
            if certificate.extension().is_some_and(|end| end == "0") {
                let pem = fs::read(&certificate).map_err(|cause| {
                    Error::local_io(format!("cannot read {}", certificate.display()), &cause)
                })?;
                if let Ok(credential) = Credential::from_pem(&pem, &key_pem, &SystemRandom::new()) {
                    return Ok(Authority { credential, certificate, key });
                }
            }
        }
        let what = format!("no certificate in {} has the key {}", certificates.display(), key.display());
        Err(Error::new(ErrorKind::NotFound, what).fault(Fault::Local))
    }

    pub(super) fn credential(&self) -> &Credential {
        &self.credential
    }

    /// The parts that the names of what it vouches for begin with.
    pub(super) fn names_begin(&self) -> Result<Name> {
        Ok(self.credential.subject()?.above())
    }

    /// From now for so many days, as far as its own certificate lasts.
    pub(super) fn validity(&self, days: i64) -> Result<Validity> {
        let now_s = now_s();
        let own = self.credential.validity()?;
        match own.not_after_s <= now_s {
            true => Err(usage(format!("the authority {} has expired", self.certificate.display()))),
            false => Ok(Validity::from_now(now_s, days * DAY_S).within(own)),
        }
    }

    pub(super) fn files(&self) -> Vec<(&'static str, PathBuf)> {
        vec![
            ("certificate", self.certificate.clone()),
            ("key", self.key.clone()),
            ("signing_policy", self.policy()),
            ("list", self.list()),
        ]
    }

    /// Adds a certificate to the list.
    pub(super) fn revoke(&self, path: &Path, now_s: i64) -> Result<Recalled> {
        let text = fs::read(path).map_err(|cause| {
            Error::local_io(format!("cannot read {}", path.display()), &cause).fault(Fault::Caller)
        })?;
        let at = |error: Error| error.endpoint(path.display());
        let chain = pem::certificates(&text).map_err(at)?;
        let Contents { subject, serial, .. } = self.own(&chain).map_err(at)?;
        // Of two at the same time, the second has to see what the first has written.
        let lock = fs::File::open(&self.key).and_then(|key| {
            rustix::fs::flock(&key, FlockOperation::LockExclusive)?;
            Ok(key)
        });
        let _lock =
            lock.map_err(|cause| Error::local_io(format!("cannot lock {}", self.key.display()), &cause))?;
        let list = self.list();
        let old = fs::read(&list)
            .map_err(|cause| Error::local_io(format!("cannot read {}", list.display()), &cause))?;
        let old = pem::decode(&old)?.into_iter().find(|block| block.label == pem::CRL);
        let old = old.ok_or_else(|| usage(format!("there is no list in {}", list.display())))?;
        let (mut revoked, number) = RevocationList::read(&old.der)?;
        let digits: String = serial.iter().map(|byte| format!("{byte:02X}")).collect();
        if revoked.iter().any(|revoked| revoked.serial == serial) {
            let what = format!("{subject}, serial number {digits}, is revoked already");
            return Err(Error::new(ErrorKind::Precondition, what).fault(Fault::Caller));
        }
        revoked.push(Revoked { serial, revoked_s: now_s });
        let signed = self.signed_list(revoked, number.saturating_add(1))?;
        file::replace(&list, 0o644, signed.as_bytes())
            .map_err(|cause| Error::local_io(format!("cannot write {}", list.display()), &cause))?;
        Ok(Recalled { subject: subject.to_string(), serial: digits, list })
    }

    /// The contents of the first certificate of a chain, if it is one of the authority's.
    fn own(&self, chain: &[Vec<u8>]) -> Result<Contents> {
        let der = chain.first().ok_or_else(|| usage("there is no certificate in it".into()))?;
        let contents = Contents::read(der)?;
        match contents.is_by(&self.credential)? {
            true if contents.subject == contents.issuer => {
                Err(usage("an authority cannot revoke itself".into()))
            }
            true => Ok(contents),
            false => Err(usage(format!("it was made by another authority: {}", contents.issuer))),
        }
    }

    fn policy(&self) -> PathBuf {
        self.certificate.with_extension("signing_policy")
    }

    fn list(&self) -> PathBuf {
        self.certificate.with_extension("r0")
    }

    /// In the language of Globus.
    fn signing_policy(&self) -> Result<String> {
        let name = self.credential.subject()?.to_string();
        let below = self.names_begin()?;
        if name.contains(['\'', '"', '*', '?']) {
            let what =
                format!("{name} has a quotation mark, * or ?, which mean something in a signing_policy");
            return Err(usage(what));
        }
        Ok(format!(
            "access_id_CA   X509    '{name}'\n\
             pos_rights     globus  CA:sign\n\
             cond_subjects  globus  '\"{below}/*\"'\n"
        ))
    }

    /// Good for as long as the authority: the lists of a test fleet are not renewed, and one that is too old stops it.
    fn signed_list(&self, revoked: Vec<Revoked>, number: u64) -> Result<String> {
        let validity = Validity { not_before_s: now_s(), ..self.credential.validity()? };
        let list = RevocationList::of(&self.credential, revoked, validity, number)?;
        Ok(pem::encode(pem::CRL, &list.sign(&self.credential.key, &SystemRandom::new())?))
    }
}
