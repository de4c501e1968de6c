//! Lists of revoked certificates (RFC 5280, 5).

use gridlane_core::{Error, Result};
use ring::rand::SecureRandom;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use super::certificate::Validity;
use super::credential::Credential;
use super::der::{context, signed, unusable, write_serial, write_time};
use super::extension::Extension;
use super::key::Key;
use super::name::Name;

/// One revoked certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// Its serial number, most significant byte first.
    pub serial: Vec<u8>,
    /// When it was revoked, in seconds since 1970.
    pub revoked_s: i64,
}

/// All that a list says. It is signed as it is: nothing here is checked.
#[derive(Clone, Debug)]
pub struct RevocationList {
    /// The authority.
    pub issuer: Name,
    /// From this update to the next one.
    pub validity: Validity,
    /// The revoked certificates.
    pub revoked: Vec<Revoked>,
    /// Everything else; the list's number is one of them.
    pub extensions: Vec<Extension>,
}

impl RevocationList {
    /// The `number`th list of an authority: the next one has a larger number.
    pub fn of(
        authority: &Credential,
        revoked: Vec<Revoked>,
        validity: Validity,
        number: u64,
    ) -> Result<RevocationList> {
        let number = Extension::raw(&[2, 5, 29, 20], false, yasna::construct_der(|to| to.write_u64(number)));
        let extensions = vec![Extension::authority_key_id(&authority.key_id()?), number];
        Ok(RevocationList { issuer: authority.subject()?, validity, revoked, extensions })
    }

    /// The contents of an earlier list: the revoked certificates, and the list's number.
    pub fn read(der: &[u8]) -> Result<(Vec<Revoked>, u64)> {
        let (_, list) = CertificateRevocationList::from_der(der)
            .map_err(|cause| unusable(format!("the revocation list cannot be read: {cause}")))?;
        let revoked = list.iter_revoked_certificates().map(|entry| Revoked {
            serial: entry.raw_serial().to_vec(),
            revoked_s: entry.revocation_date.timestamp(),
        });
        let number = list.crl_number().and_then(|number| u64::try_from(number).ok()).unwrap_or_default();
        Ok((revoked.collect(), number))
    }

    /// The list, signed with the authority's key.
    pub fn sign(&self, authority_key: &Key, random: &dyn SecureRandom) -> Result<Vec<u8>> {
        let body = yasna::try_construct_der(|to| {
            to.write_sequence(|to| {
                // Version 2, which has extensions.
                to.next().write_u8(1);
                authority_key.write_signature_algorithm(to.next());
                self.issuer.write(to.next());
                write_time(to.next(), self.validity.not_before_s)?;
                write_time(to.next(), self.validity.not_after_s)?;
                if !self.revoked.is_empty() {
                    to.next().write_sequence(|to| {
                        self.revoked.iter().try_for_each(|revoked| {
                            to.next().write_sequence(|to| {
                                write_serial(to.next(), &revoked.serial);
                                write_time(to.next(), revoked.revoked_s)
                            })
                        })
                    })?;
                }
                if !self.extensions.is_empty() {
                    to.next().write_tagged(context(0), |to| {
                        to.write_sequence(|to| {
                            self.extensions.iter().for_each(|extension| extension.write(to))
                        });
                    });
                }
                Ok::<(), Error>(())
            })
        })?;
        signed(&body, authority_key, random)
    }
}
