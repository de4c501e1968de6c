//! The secrets of a site that records are sealed with.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use gridlane_core::{Error, ErrorKind, Fault, Result, limits};
use ring::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};

/// The secrets of a site: the first seals, all open. To change one, put the new one in front, have all records
/// [sealed again](crate::Vault::reseal), and take the old one away.
#[derive(Clone)]
pub struct Secrets {
    secrets: Vec<Secret>,
}

/// One of them.
#[derive(Clone)]
pub(crate) struct Secret {
    bytes: Vec<u8>,
    id: [u8; ID_BYTES],
}

/// Bytes of what tells secrets apart; with two at a time, chance makes no equals.
pub(crate) const ID_BYTES: usize = 8;
/// Bytes of the salt that makes the key of each record another one.
pub(crate) const SALT_BYTES: usize = 32;

impl Secrets {
    /// Reads the text of a file: base64, further secrets behind lines `---` ([`gridlane_auth::secrets`]).
    ///
    /// Fails for what is not base64, and for secrets of fewer than 32 bytes.
    pub fn parse(text: &str) -> Result<Secrets> {
        let secrets = gridlane_auth::secrets::parse(text, limits::VAULT_SECRET_BYTES_MIN)?;
        let secrets = secrets.into_iter().map(|bytes| {
            let mut id = [0; ID_BYTES];
            fill(&extract(b"", &bytes), b"gridlane vault 1: id of a secret", &mut id)?;
            Ok(Secret { bytes, id })
        });
        Ok(Secrets { secrets: secrets.collect::<Result<_>>()? })
    }

    /// Reads them from a file that only its owner may read.
    ///
    /// Fails where others may, and as [`Secrets::parse`].
    pub fn read(path: &Path) -> Result<Secrets> {
        let failed = |cause: std::io::Error| {
            Error::local_io(format!("cannot read the secret in {}", path.display()), &cause)
        };
        let file = File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            let message = format!("the secret in {} can be read by others (mode {mode:03o})", path.display());
            let hint = format!(
                "make another one, where only you can read it: (umask 077; openssl rand -base64 64 > {})",
                path.display()
            );
            return Err(Error::new(ErrorKind::Denied, message).fault(Fault::Caller).hint(hint));
        }
        let mut text = String::new();
        file.take(limits::CREDENTIAL_BYTES_MAX as u64).read_to_string(&mut text).map_err(failed)?;
        Secrets::parse(&text).map_err(|error| error.more(format!("in {}", path.display())))
    }

    /// The one that seals.
    pub(crate) fn newest(&self) -> &Secret {
        // There is always one: `gridlane_auth::secrets::parse`.
        &self.secrets[0]
    }

    /// The one that a record was sealed with.
    pub(crate) fn named(&self, id: &[u8]) -> Option<&Secret> {
        self.secrets.iter().find(|secret| secret.id == id)
    }
}

impl Secret {
    pub(crate) fn id(&self) -> &[u8; ID_BYTES] {
        &self.id
    }

    /// The key of the record with this salt (HKDF, RFC 5869): each has its own, so that no number of records brings two
    /// under the same key and nonce.
    pub(crate) fn key(&self, salt: &[u8]) -> Result<LessSafeKey> {
        let prk = extract(salt, &self.bytes);
        let output =
            prk.expand(&[b"gridlane vault 1: key of a record"], &AES_256_GCM).map_err(|_| broken())?;
        Ok(LessSafeKey::new(UnboundKey::from(output)))
    }
}

fn extract(salt: &[u8], secret: &[u8]) -> Prk {
    Salt::new(HKDF_SHA256, salt).extract(secret)
}

fn fill(prk: &Prk, purpose: &[u8], bytes: &mut [u8]) -> Result<()> {
    // As long as a digest; the beginning is taken.
    let mut whole = [0; 32];
    let output = prk.expand(std::slice::from_ref(&purpose), HKDF_SHA256).map_err(|_| broken())?;
    output.fill(&mut whole).map_err(|_| broken())?;
    bytes.copy_from_slice(&whole[..bytes.len()]);
    Ok(())
}

/// Lengths are constants of ours.
fn broken() -> Error {
    Error::new(ErrorKind::Other, "a key could not be derived").fault(Fault::Internal)
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.secrets.len())
    }
}
