//! Revocation lists: what an authority has revoked (RFC 5280, 5).

use std::collections::BTreeMap;

use x509_parser::asn1_rs::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::x509::{AlgorithmIdentifier, ReasonCode};

use super::certificate::{Certificate, shown};
use super::der::{Der, tag};
use super::name::Name;
use super::signature::verify_list;

/// A revocation list, not yet believed.
#[derive(Debug)]
pub(super) struct RevocationList {
    pub(super) issuer: Name,
    /// True if it says only what has changed since another one (RFC 5280, 5.2.4): then others may be revoked as well.
    pub(super) is_delta: bool,
    pub(super) this_update_s: i64,
    pub(super) next_update_s: Option<i64>,
    /// Serial numbers, and since when.
    revoked: BTreeMap<Box<[u8]>, i64>,
    algorithm: Vec<u8>,
    signed: Vec<u8>,
    signature: Vec<u8>,
}

/// 2.5.29.28: for which certificates a list is.
const ISSUING_POINT: &[u8] = &[0x55, 0x1d, 28];
/// 2.5.29.27: it is to be read with another list.
const DELTA: &[u8] = &[0x55, 0x1d, 27];
/// 2.5.29.29 of an entry: another authority than the one before.
const CERTIFICATE_ISSUER: &[u8] = &[0x55, 0x1d, 29];

impl RevocationList {
    /// Reads a list of what its issuer has revoked: all of it, a part, or the newest.
    ///
    /// # Errors
    /// In words why it cannot be used: lists for certificates of other authorities (RFC 5280, 5.2.5) are not.
    pub(super) fn from_der(der: &[u8]) -> Result<RevocationList, String> {
        let (rest, read) = CertificateRevocationList::from_der(der).map_err(|_| "it cannot be read")?;
        if !rest.is_empty() || read.signature_value.unused_bits != 0 {
            return Err("it cannot be read".to_owned());
        }
        let inner = &read.tbs_cert_list;
        let mut is_delta = false;
        for extension in read.extensions() {
            match extension.oid.as_bytes() {
                ISSUING_POINT if is_indirect(extension.value).ok_or("it cannot be read")? => {
                    return Err("it is for certificates of other authorities".to_owned());
                }
                // What a list for a part of the certificates has revoked is revoked.
                ISSUING_POINT => {}
                DELTA => is_delta = true,
                _ if extension.critical => {
                    return Err(format!(
                        "it has the critical extension {}, which is not known",
                        extension.oid
                    ));
                }
                _ => {}
            }
        }
        let mut revoked = BTreeMap::new();
        for entry in read.iter_revoked_certificates() {
            if entry.extensions().iter().any(|extension| extension.oid.as_bytes() == CERTIFICATE_ISSUER) {
                return Err("it is for certificates of other authorities".to_owned());
            }
            // Only lists of changes say that something is no longer revoked.
            if entry.reason_code().is_some_and(|(_, reason)| reason == ReasonCode::RemoveFromCRL) {
                continue;
            }
            revoked.insert(shortest(entry.raw_serial()).into(), entry.revocation_date.timestamp());
        }
        Ok(RevocationList {
            issuer: Name::from_der(read.issuer().as_raw()).ok_or("its issuer cannot be read")?,
            is_delta,
            this_update_s: read.last_update().timestamp(),
            next_update_s: read.next_update().map(|time| time.timestamp()),
            revoked,
            algorithm: algorithm_der(der, inner.as_ref()).ok_or("it cannot be read")?,
            signed: inner.as_ref().to_vec(),
            signature: read.signature_value.data.to_vec(),
        })
    }

    /// True if this authority has made it.
    pub(super) fn is_by(&self, authority: &Certificate) -> bool {
        let algorithm = AlgorithmIdentifier::from_der(&self.algorithm);
        self.issuer == *authority.subject()
            && algorithm
                .is_ok_and(|(_, kind)| verify_list(authority.spki(), &kind, &self.signed, &self.signature))
    }

    /// Since when a certificate of its issuer is revoked.
    pub(super) fn revoked_since_s(&self, certificate: &Certificate) -> Option<i64> {
        self.revoked.get(certificate.serial()).copied()
    }

    pub(super) fn shown(&self) -> String {
        format!("the revocation list of {}", shown(&self.issuer))
    }
}

/// A number as DER has it, which is how certificates have theirs; lists may write zeros in front.
fn shortest(mut serial: &[u8]) -> &[u8] {
    while let [0, rest @ ..] = serial
        && rest.first().is_some_and(|first| *first < 0x80)
    {
        serial = rest;
    }
    serial
}

/// True if an issuing distribution point (RFC 5280, 5.2.5) says that the list is for certificates of others.
fn is_indirect(value: &[u8]) -> Option<bool> {
    let mut outer = Der::new(value);
    let mut fields = outer.enter(tag::SEQUENCE)?;
    outer.end()?;
    let mut is_indirect = false;
    while !fields.is_empty() {
        let (found, contents) = fields.any()?;
        is_indirect |= found == tag::context(4) && contents != [0];
    }
    Some(is_indirect)
}

/// The algorithm that stands behind what is signed.
fn algorithm_der(der: &[u8], signed: &[u8]) -> Option<Vec<u8>> {
    let mut fields = Der::new(der).enter(tag::SEQUENCE)?;
    let (_, whole) = fields.whole()?;
    let (_, algorithm) = fields.whole()?;
    (whole == signed).then(|| algorithm.to_vec())
}

#[cfg(test)]
mod tests {
    use super::shortest;

    #[test]
    fn serial_numbers_have_one_form() {
        for (serial, form) in [
            (&[0, 0, 7][..], &[7][..]),
            (&[0, 0x80], &[0, 0x80]),
            (&[0, 0, 0x80], &[0, 0x80]),
            (&[0], &[0]),
            (&[0, 0], &[0]),
            (&[0xff, 1], &[0xff, 1]),
            (&[], &[]),
        ] {
            assert_eq!(shortest(serial), form, "{serial:?}");
        }
    }
}
