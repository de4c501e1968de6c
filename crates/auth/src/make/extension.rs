//! What a certificate says beside a name and a key.

use std::net::IpAddr;
use std::ops::BitOr;

use gridlane_core::Result;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use x509_parser::prelude::FromDer;
use x509_parser::x509::SubjectPublicKeyInfo;
use yasna::DERWriterSeq;

use super::der::{context, oid, unusable};

/// An extension of a certificate, of a list, or of an attribute certificate (RFC 5280, 4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Its type.
    pub oid: Vec<u64>,
    /// True if software that does not know it must refuse.
    pub is_critical: bool,
    /// Its value.
    pub der: Vec<u8>,
}

/// Uses of a key (RFC 5280, 4.2.1.3): bit 0 is the most significant one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUsage(pub u16);

impl KeyUsage {
    /// To sign other things than certificates: TLS handshakes, proxies.
    pub const DIGITAL_SIGNATURE: KeyUsage = KeyUsage(0x8000);
    /// To decrypt keys: TLS 1.2 with RSA.
    pub const KEY_ENCIPHERMENT: KeyUsage = KeyUsage(0x2000);
    /// To sign certificates.
    pub const CERTIFICATE_SIGN: KeyUsage = KeyUsage(0x0400);
    /// To sign revocation lists.
    pub const CRL_SIGN: KeyUsage = KeyUsage(0x0200);
}

impl BitOr for KeyUsage {
    type Output = KeyUsage;

    fn bitor(self, other: KeyUsage) -> KeyUsage {
        KeyUsage(self.0 | other.0)
    }
}

/// Another name of the subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlternativeName {
    /// A host's name; `*.` in front stands for any first label.
    Dns(String),
    /// An address.
    Ip(IpAddr),
    /// An address for mail.
    Email(String),
    /// A URI.
    Uri(String),
}

/// Uses of a proxy (RFC 3820, 3.8.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyPolicy {
    /// Everything that its issuer may.
    InheritAll,
    /// Nothing of what its issuer may.
    Independent,
    /// Not to start jobs (Globus).
    Limited,
    /// Another language.
    Other(Vec<u64>),
}

impl ProxyPolicy {
    /// The language of an identifier.
    pub fn of(oid: &[u64]) -> ProxyPolicy {
        let known = [ProxyPolicy::InheritAll, ProxyPolicy::Independent, ProxyPolicy::Limited];
        let named = known.into_iter().find(|language| language.oid() == oid);
        named.unwrap_or_else(|| ProxyPolicy::Other(oid.to_vec()))
    }

    /// The language's identifier.
    pub fn oid(&self) -> &[u64] {
        match self {
            ProxyPolicy::InheritAll => &[1, 3, 6, 1, 5, 5, 7, 21, 1],
            ProxyPolicy::Independent => &[1, 3, 6, 1, 5, 5, 7, 21, 2],
            ProxyPolicy::Limited => &[1, 3, 6, 1, 4, 1, 3536, 1, 1, 1, 9],
            ProxyPolicy::Other(numbers) => numbers,
        }
    }
}

/// `ProxyCertInfo` (RFC 3820, 3.8).
pub(super) const PROXY_CERT_INFO: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 1, 14];
/// Usage by TLS servers, for [`Extension::extended_key_usage`].
pub(super) const SERVER_AUTH: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 3, 1];
/// Usage by TLS clients.
pub(super) const CLIENT_AUTH: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 3, 2];

impl Extension {
    /// Any extension, right or wrong.
    pub fn raw(oid: &[u64], is_critical: bool, der: Vec<u8>) -> Extension {
        Extension { oid: oid.to_vec(), is_critical, der }
    }

    /// Basic constraints: true for an authority, and the number of authorities below it; critical (RFC 5280, 4.2.1.9).
    pub fn basic_constraints(is_authority: bool, path_len: Option<u32>) -> Extension {
        Extension::raw(
            &[2, 5, 29, 19],
            true,
            yasna::construct_der(|to| {
                to.write_sequence(|to| {
                    if is_authority {
                        to.next().write_bool(true);
                    }
                    if let Some(path_len) = path_len {
                        to.next().write_u32(path_len);
                    }
                });
            }),
        )
    }

    /// The uses of the key; critical.
    pub fn key_usage(usage: KeyUsage) -> Extension {
        // DER: no zeros behind the last bit that is set (X.690, 11.2.2).
        let bits = 16 - usage.0.trailing_zeros().min(16) as usize;
        let bytes = usage.0.to_be_bytes();
        let der = yasna::construct_der(|to| to.write_bitvec_bytes(&bytes[..bits.div_ceil(8)], bits));
        Extension::raw(&[2, 5, 29, 15], true, der)
    }

    /// For which protocols.
    pub fn extended_key_usage(purposes: &[&[u64]]) -> Extension {
        Extension::raw(
            &[2, 5, 29, 37],
            false,
            yasna::construct_der(|to| {
                to.write_sequence(|to| {
                    purposes.iter().for_each(|purpose| to.next().write_oid(&oid(purpose)))
                });
            }),
        )
    }

    /// For TLS, as a server and as a client.
    pub fn server_and_client() -> Extension {
        Extension::extended_key_usage(&[SERVER_AUTH, CLIENT_AUTH])
    }

    /// For TLS as a client.
    pub fn client() -> Extension {
        Extension::extended_key_usage(&[CLIENT_AUTH])
    }

    /// Other names of the subject.
    pub fn alternative_names(names: &[AlternativeName]) -> Extension {
        Extension::raw(
            &[2, 5, 29, 17],
            false,
            yasna::construct_der(|to| {
                to.write_sequence(|to| names.iter().for_each(|name| write_name(to, name)));
            }),
        )
    }

    /// The identifier of the subject's key: [`key_id`] of it.
    pub fn subject_key_id(key_id: &[u8]) -> Extension {
        Extension::raw(&[2, 5, 29, 14], false, yasna::construct_der(|to| to.write_bytes(key_id)))
    }

    /// The identifier of the issuer's key: [`key_id`] of it.
    pub fn authority_key_id(key_id: &[u8]) -> Extension {
        Extension::raw(
            &[2, 5, 29, 35],
            false,
            yasna::construct_der(|to| {
                to.write_sequence(|to| {
                    to.next().write_tagged_implicit(context(0), |to| to.write_bytes(key_id));
                });
            }),
        )
    }

    /// The extension of proxies, `ProxyCertInfo`; critical (RFC 3820, 3.8). `path_len` is how many proxies may
    /// follow.
    pub fn proxy(policy: &ProxyPolicy, path_len: Option<u32>) -> Extension {
        Extension::raw(
            PROXY_CERT_INFO,
            true,
            yasna::construct_der(|to| {
                to.write_sequence(|to| {
                    if let Some(path_len) = path_len {
                        to.next().write_u32(path_len);
                    }
                    to.next().write_sequence(|to| to.next().write_oid(&oid(policy.oid())));
                });
            }),
        )
    }

    pub(super) fn write(&self, to: &mut DERWriterSeq<'_>) {
        to.next().write_sequence(|to| {
            to.next().write_oid(&oid(&self.oid));
            if self.is_critical {
                to.next().write_bool(true);
            }
            to.next().write_bytes(&self.der);
        });
    }
}

/// The identifier of a key: SHA-1 of its bits (RFC 5280, 4.2.1.2), of a `SubjectPublicKeyInfo`.
pub fn key_id(public_key: &[u8]) -> Result<Vec<u8>> {
    let (_, info) = SubjectPublicKeyInfo::from_der(public_key)
        .map_err(|_| unusable("there is no public key where one should be"))?;
    Ok(digest(&SHA1_FOR_LEGACY_USE_ONLY, &info.subject_public_key.data).as_ref().to_vec())
}

/// A `GeneralName` (RFC 5280, 4.2.1.6).
pub(super) fn write_name(to: &mut DERWriterSeq<'_>, name: &AlternativeName) {
    let (number, bytes) = match name {
        AlternativeName::Email(text) => (1, text.as_bytes().to_vec()),
        AlternativeName::Dns(text) => (2, text.as_bytes().to_vec()),
        AlternativeName::Uri(text) => (6, text.as_bytes().to_vec()),
        AlternativeName::Ip(IpAddr::V4(address)) => (7, address.octets().to_vec()),
        AlternativeName::Ip(IpAddr::V6(address)) => (7, address.octets().to_vec()),
    };
    to.next().write_tagged_implicit(context(number), |to| to.write_bytes(&bytes));
}
