//! Proxies: certificates that a user makes of the own one, for a while (RFC 3820).

use gridlane_core::{Error, ErrorKind, Result};
use ring::rand::SecureRandom;

use super::certificate::{Contents, Validity};
use super::credential::Credential;
use super::extension::{Extension, KeyUsage, ProxyPolicy};
use super::key::Key;
use super::name::Text;

/// Properties of a proxy.
#[derive(Clone, Debug)]
pub struct ProxyTerms {
    /// When; no longer than its issuer in any case.
    pub validity: Validity,
    /// Its uses.
    pub policy: ProxyPolicy,
    /// Number of proxies that may follow.
    pub path_len: Option<u32>,
    /// Further extensions: VOMS attributes.
    pub extensions: Vec<Extension>,
}

impl ProxyTerms {
    /// Everything that the issuer may, for a time.
    pub fn new(validity: Validity) -> ProxyTerms {
        ProxyTerms { validity, policy: ProxyPolicy::InheritAll, path_len: None, extensions: Vec::new() }
    }
}

/// A proxy of `issuer` with a key of its own. Its subject is the issuer's with a number behind it, which is its serial
/// number as well.
pub fn proxy(
    issuer: &Credential,
    key: Key,
    terms: &ProxyTerms,
    random: &dyn SecureRandom,
) -> Result<Credential> {
    let chain = proxy_chain(issuer, key.public_key(), terms, random)?;
    Ok(Credential { chain, key })
}

/// The certificates of a proxy of `issuer` whose key another party has: the new one, then those of the issuer.
/// `public_key` is a `SubjectPublicKeyInfo`. As [`proxy`], it judges nothing.
pub fn proxy_chain(
    issuer: &Credential,
    public_key: Vec<u8>,
    terms: &ProxyTerms,
    random: &dyn SecureRandom,
) -> Result<Vec<Vec<u8>>> {
    let number = proxy_number(random)?.to_be_bytes();
    let issuer_name = issuer.subject()?;
    let usage = KeyUsage::DIGITAL_SIGNATURE | KeyUsage::KEY_ENCIPHERMENT;
    let mut extensions = vec![
        Extension::proxy(&terms.policy, terms.path_len),
        Extension::key_usage(usage),
        Extension::authority_key_id(&issuer.key_id()?),
    ];
    extensions.extend(terms.extensions.iter().cloned());
    let contents = Contents {
        subject: issuer_name.clone().with("CN", &u32::from_be_bytes(number).to_string(), Text::Printable)?,
        issuer: issuer_name,
        serial: number.to_vec(),
        validity: terms.validity.within(issuer.validity()?),
        public_key,
        extensions,
    };
    let mut chain = vec![contents.sign(&issuer.key, random)?];
    chain.extend(issuer.chain.iter().cloned());
    Ok(chain)
}

/// The number of a new proxy, which is the end of its name and its serial number: tools keep it in a signed number of 32 bits.
pub(super) fn proxy_number(random: &dyn SecureRandom) -> Result<u32> {
    let mut number = [0; 4];
    random
        .fill(&mut number)
        .map_err(|_| Error::new(ErrorKind::Other, "no randomness for a serial number"))?;
    number[0] = number[0] & 0x7f | 0x40;
    Ok(u32::from_be_bytes(number))
}
