//! A certificate, its chain and its key: a proof of identity.

use gridlane_core::{Result, Secret};
use ring::rand::SecureRandom;

use super::certificate::{Contents, Validity};
use super::der::unusable;
use super::extension::key_id;
use super::key::Key;
use super::name::Name;
use super::pem;

/// A certificate, the ones that vouch for it, and its key.
#[derive(Debug)]
pub struct Credential {
    /// The certificate, then the one of its issuer, and so on; in DER. An authority need not be in it, except its own.
    pub chain: Vec<Vec<u8>>,
    /// The first certificate's key.
    pub key: Key,
}

impl Credential {
    /// From PEM: certificates in one text, the key in the same or in another one. The key has to be the first
    /// certificate's.
    pub fn from_pem(certificates: &[u8], key: &[u8], random: &dyn SecureRandom) -> Result<Credential> {
        let credential =
            Credential { chain: pem::certificates(certificates)?, key: Key::from_pem(key, random)? };
        match credential.contents()?.public_key == credential.key.public_key() {
            true => Ok(credential),
            false => Err(unusable("the private key is not that of the certificate")),
        }
    }

    /// Certificate, key, then the rest of the chain: the order of a proxy's file.
    pub fn to_pem(&self) -> Secret {
        let mut blocks: Vec<String> =
            self.chain.iter().map(|certificate| pem::encode(pem::CERTIFICATE, certificate)).collect();
        blocks.insert(blocks.len().min(1), self.key.to_pem().expose().to_owned());
        Secret::new(blocks.concat())
    }

    /// The certificates without the key.
    pub fn chain_pem(&self) -> String {
        self.chain.iter().map(|certificate| pem::encode(pem::CERTIFICATE, certificate)).collect()
    }

    /// The contents of the first certificate.
    pub fn contents(&self) -> Result<Contents> {
        Contents::read(self.chain.first().ok_or_else(|| unusable("there is no certificate in it"))?)
    }

    /// The subject.
    pub fn subject(&self) -> Result<Name> {
        Ok(self.contents()?.subject)
    }

    /// When it is good.
    pub fn validity(&self) -> Result<Validity> {
        Ok(self.contents()?.validity)
    }

    /// The certificate that the proxies in front of it stand for: the first that is none.
    pub fn end_entity(&self) -> Result<&[u8]> {
        for der in &self.chain {
            if Contents::read(der)?.proxy_policy()?.is_none() {
                return Ok(der);
            }
        }
        Err(unusable("there are only proxies in it"))
    }

    /// The identifier of its key.
    pub fn key_id(&self) -> Result<Vec<u8>> {
        key_id(&self.key.public_key())
    }
}
