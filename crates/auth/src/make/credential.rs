//! A certificate, whatever vouches for it, and its key: what somebody proves to be somebody with.

use gridlane_core::{Result, Secret};
use ring::rand::SecureRandom;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::certificate::Validity;
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
        let certificate = credential.certificate()?;
        match certificate.public_key().raw == credential.key.public_key() {
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

    /// The first certificate.
    pub fn certificate(&self) -> Result<X509Certificate<'_>> {
        let der = self.chain.first().ok_or_else(|| unusable("there is no certificate in it"))?;
        let (_, certificate) = X509Certificate::from_der(der)
            .map_err(|cause| unusable(format!("the certificate is none: {cause}")))?;
        Ok(certificate)
    }

    /// Its subject.
    pub fn subject(&self) -> Result<Name> {
        Name::from_der(self.certificate()?.subject().as_raw())
    }

    /// When the first certificate is good.
    pub fn validity(&self) -> Result<Validity> {
        let certificate = self.certificate()?;
        let validity = certificate.validity();
        Ok(Validity {
            not_before_s: validity.not_before.timestamp(),
            not_after_s: validity.not_after.timestamp(),
        })
    }

    /// What tells its key from others.
    pub fn key_id(&self) -> Result<Vec<u8>> {
        key_id(&self.key.public_key())
    }
}
