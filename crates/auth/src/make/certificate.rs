//! Certificates (RFC 5280, 4.1).

use gridlane_core::{Error, ErrorKind, Result};
use ring::rand::SecureRandom;

use super::der::{context, signed, write_serial, write_time};
use super::extension::Extension;
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

    /// What is in both.
    pub fn within(self, other: Validity) -> Validity {
        Validity {
            not_before_s: self.not_before_s.max(other.not_before_s),
            not_after_s: self.not_after_s.min(other.not_after_s),
        }
    }
}

/// All that a certificate says. It is signed as it is: nothing here is checked.
#[derive(Clone, Debug)]
pub struct Contents {
    /// Of whom it speaks.
    pub subject: Name,
    /// Who signs it.
    pub issuer: Name,
    /// What tells it from others of the issuer, most significant byte first: [`serial`] makes one.
    pub serial: Vec<u8>,
    /// When it is good.
    pub validity: Validity,
    /// The subject's key: [`Key::public_key`].
    pub public_key: Vec<u8>,
    /// Everything else, in this order.
    pub extensions: Vec<Extension>,
}

impl Contents {
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

/// A serial number that nobody guesses: 127 bits, above zero (RFC 5280, 4.1.2.2).
pub fn serial(random: &dyn SecureRandom) -> Result<Vec<u8>> {
    let mut serial = vec![0; 16];
    random
        .fill(&mut serial)
        .map_err(|_| Error::new(ErrorKind::Other, "no randomness for a serial number"))?;
    // The first bit would be a sign; the second one keeps it long.
    serial[0] = serial[0] & 0x7f | 0x40;
    Ok(serial)
}
