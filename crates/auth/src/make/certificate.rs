//! Certificates (RFC 5280, 4.1).

use gridlane_core::{Error, ErrorKind, Result};
use ring::rand::SecureRandom;
use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::Oid;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::credential::Credential;
use super::der::{context, signed, unusable, write_serial, write_time};
use super::extension::{Extension, PROXY_CERT_INFO, ProxyPolicy};
use super::key::Key;
use super::name::Name;

/// From when until when, in seconds since 1970; both belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before_s: i64,
    /// The last second.
    pub not_after_s: i64,
}

impl Validity {
    /// From a little before now, since clocks differ, until `lifetime_s` after now.
    pub fn from_now(now_s: i64, lifetime_s: i64) -> Validity {
        let backdated_s = gridlane_core::limits::CERTIFICATE_BACKDATED_S;
        Validity {
            not_before_s: now_s.saturating_sub(backdated_s),
            not_after_s: now_s.saturating_add(lifetime_s),
        }
    }

    /// The part in both.
    pub fn within(self, other: Validity) -> Validity {
        Validity {
            not_before_s: self.not_before_s.max(other.not_before_s),
            not_after_s: self.not_after_s.min(other.not_after_s),
        }
    }
}

/// All that a certificate says. It is signed as it is: nothing here is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The subject.
    pub subject: Name,
    /// The issuer.
    pub issuer: Name,
    /// Its serial number, most significant byte first: [`serial`] makes one.
    pub serial: Vec<u8>,
    /// When it is good.
    pub validity: Validity,
    /// The subject's key: [`Key::public_key`].
    pub public_key: Vec<u8>,
    /// Everything else, in this order.
    pub extensions: Vec<Extension>,
}

impl Contents {
    /// The contents of a certificate, as it is written: nothing of it is checked.
    pub fn read(der: &[u8]) -> Result<Contents> {
        let (_, certificate) = X509Certificate::from_der(der)
            .map_err(|cause| unusable(format!("the certificate cannot be read: {cause}")))?;
        let validity = certificate.validity();
        let numbers = |oid: &Oid<'_>| {
            oid.iter()
                .map(|numbers| numbers.collect())
                .ok_or_else(|| unusable("an extension has no usable name"))
        };
        let extensions = certificate.extensions().iter().map(|extension| {
            Ok(Extension {
                oid: numbers(&extension.oid)?,
                is_critical: extension.critical,
                der: extension.value.to_vec(),
            })
        });
        Ok(Contents {
            subject: Name::from_der(certificate.subject().as_raw())?,
            issuer: Name::from_der(certificate.issuer().as_raw())?,
            serial: certificate.raw_serial().to_vec(),
            validity: Validity {
                not_before_s: validity.not_before.timestamp(),
                not_after_s: validity.not_after.timestamp(),
            },
            public_key: certificate.public_key().raw.to_vec(),
            extensions: extensions.collect::<Result<_>>()?,
        })
    }

    /// The value of an extension.
    pub fn extension(&self, oid: &[u64]) -> Option<&[u8]> {
        self.extensions
            .iter()
            .find(|extension| extension.oid == oid)
            .map(|extension| extension.der.as_slice())
    }

    /// True if it says that this authority made it: by its name, and by its key where it names one.
    pub fn is_by(&self, authority: &Credential) -> Result<bool> {
        let expected = Extension::authority_key_id(&authority.key_id()?);
        let key = self.extension(&expected.oid);
        Ok(self.issuer == authority.contents()?.subject && key.is_none_or(|key| key == expected.der))
    }

    /// The uses that it allows, if it is a proxy (RFC 3820, 3.8.2).
    pub fn proxy_policy(&self) -> Result<Option<ProxyPolicy>> {
        Ok(self.proxy()?.map(|(policy, _)| policy))
    }

    /// Number of proxies that may follow, if it is a proxy that says so (RFC 3820, 3.8.1).
    pub fn proxy_path_len(&self) -> Result<Option<u64>> {
        Ok(self.proxy()?.and_then(|(_, path_len)| path_len))
    }

    fn proxy(&self) -> Result<Option<(ProxyPolicy, Option<u64>)>> {
        let Some(der) = self.extension(PROXY_CERT_INFO) else { return Ok(None) };
        // SEQUENCE { path length OPTIONAL, SEQUENCE { language, policy OPTIONAL } }
        let read = yasna::parse_der(der, |reader| {
            reader.read_sequence(|reader| {
                let path_len = reader.read_optional(|reader| reader.read_u64())?;
                let language = reader.next().read_sequence(|reader| {
                    let language = reader.next().read_oid()?;
                    reader.read_optional(|reader| reader.read_bytes())?;
                    Ok(language)
                })?;
                Ok((ProxyPolicy::of(language.components()), path_len))
            })
        });
        read.map(Some).map_err(|_| unusable("what makes the certificate a proxy cannot be read"))
    }

    /// Of which kind the key is, and how many bits it has: `ECDSA`, 256.
    pub fn key_strength(&self) -> Result<(&'static str, usize)> {
        let unreadable = |_| unusable("the public key cannot be read");
        let (_, info) = SubjectPublicKeyInfo::from_der(&self.public_key).map_err(unreadable)?;
        let key = info.parsed().map_err(|_| unusable("the public key cannot be read"))?;
        let kind = match key {
            PublicKey::RSA(_) => "RSA",
            PublicKey::EC(_) => "ECDSA",
            PublicKey::DSA(_) => "DSA",
            // All that x509-parser does not know, of which only this one is in use.
            _ => return Ok(("Ed25519", info.subject_public_key.data.len() * 8)),
        };
        Ok((kind, key.key_size()))
    }

    /// The certificate, signed with the issuer's key.
    pub fn sign(&self, issuer_key: &Key, random: &dyn SecureRandom) -> Result<Vec<u8>> {
        let body = yasna::try_construct_der(|to| {
            to.write_sequence(|to| {
                // Version 3, and version 1 where there are no extensions.
                if !self.extensions.is_empty() {
                    to.next().write_tagged(context(0), |to| to.write_u8(2));
                }
                write_serial(to.next(), &self.serial);
                issuer_key.write_signature_algorithm(to.next());
                self.issuer.write(to.next());
                to.next().write_sequence(|to| {
                    write_time(to.next(), self.validity.not_before_s)?;
                    write_time(to.next(), self.validity.not_after_s)
                })?;
                self.subject.write(to.next());
                to.next().write_der(&self.public_key);
                if !self.extensions.is_empty() {
                    to.next().write_tagged(context(3), |to| {
                        to.write_sequence(|to| {
                            self.extensions.iter().for_each(|extension| extension.write(to))
                        });
                    });
                }
                Ok::<(), Error>(())
            })
        })?;
        signed(&body, issuer_key, random)
    }
}

/// A serial number that cannot be guessed: 127 bits, above zero (RFC 5280, 4.1.2.2).
pub fn serial(random: &dyn SecureRandom) -> Result<Vec<u8>> {
    let mut serial = vec![0; 16];
    random
        .fill(&mut serial)
        .map_err(|_| Error::new(ErrorKind::Other, "no randomness for a serial number"))?;
    // The first bit would be a sign; the second one keeps it long.
    serial[0] = serial[0] & 0x7f | 0x40;
    Ok(serial)
}
