//! VOMS attribute certificates: statements of an organisation about a user (RFC 5755, with what VOMS adds).

use gridlane_core::{Error, Result};
use ring::rand::SecureRandom;
use yasna::{DERWriter, DERWriterSeq};

use super::certificate::{Contents, Validity};
use super::credential::Credential;
use super::der::{context, oid, signed, write_generalized_time, write_serial};
use super::extension::{AlternativeName, Extension, write_name};
use super::name::Name;

/// The contents of an attribute certificate. It is signed as it is: nothing here is checked.
#[derive(Clone, Debug)]
pub struct AttributeCertificate {
    /// The holder of the attributes, by issuer and serial number of a certificate.
    pub holder_issuer: Name,
    /// The serial number, most significant byte first.
    pub holder_serial: Vec<u8>,
    /// The issuer.
    pub issuer: Name,
    /// Its serial number.
    pub serial: Vec<u8>,
    /// When it is good.
    pub validity: Validity,
    /// The virtual organisation, and the server that speaks for it: `atlas://voms.example.org:15000`.
    pub authority: String,
    /// Groups and roles as they are written: `/atlas/Role=NULL/Capability=NULL`; the primary one first.
    pub fqans: Vec<String>,
    /// Everything else: the issuer's certificates, and whether it can be revoked.
    pub extensions: Vec<Extension>,
}

/// For which hosts an attribute certificate is: there are two ways to write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// The form of RFC 5755 (4.3.2).
    Standard(Vec<String>),
    /// The form of the VOMS library in C: each in a sequence of its own.
    Voms(Vec<String>),
}

impl AttributeCertificate {
    /// Contents as a VOMS server, with a certificate of `issuer`, makes them for the holder of an end-entity
    /// certificate (in DER): the issuer's certificates are in it, and it cannot be revoked. `server` is the server's
    /// `host:port`.
    pub fn new(
        issuer: &Credential,
        holder: &[u8],
        (vo, server): (&str, &str),
        fqans: &[String],
        validity: Validity,
        serial: Vec<u8>,
    ) -> Result<AttributeCertificate> {
        let holder = Contents::read(holder)?;
        let certificates = yasna::construct_der(|to| {
            to.write_sequence(|to| {
                to.next().write_sequence(|to| {
                    issuer.chain.iter().for_each(|certificate| to.next().write_der(certificate));
                });
            });
        });
        Ok(AttributeCertificate {
            holder_issuer: holder.issuer,
            holder_serial: holder.serial,
            issuer: issuer.subject()?,
            serial,
            validity: validity.within(issuer.validity()?),
            authority: format!("{vo}://{server}"),
            fqans: fqans.to_vec(),
            extensions: vec![
                Extension::raw(&[1, 3, 6, 1, 4, 1, 8005, 100, 100, 10], false, certificates),
                Extension::raw(&[2, 5, 29, 56], false, yasna::construct_der(|to| to.write_null())),
                Extension::authority_key_id(&issuer.key_id()?),
            ],
        })
    }

    /// Only for these hosts; critical.
    pub fn for_targets(mut self, targets: &Targets) -> AttributeCertificate {
        let name = |to: &mut DERWriterSeq<'_>, host: &String| {
            to.next().write_tagged(context(0), |to| write_one(to, &AlternativeName::Uri(host.clone())));
        };
        let der = yasna::construct_der(|to| {
            to.write_sequence(|to| {
                to.next().write_sequence(|to| match targets {
                    Targets::Standard(hosts) => hosts.iter().for_each(|host| name(to, host)),
                    Targets::Voms(hosts) => {
                        hosts.iter().for_each(|host| to.next().write_sequence(|to| name(to, host)));
                    }
                });
            });
        });
        self.extensions.push(Extension::raw(&[2, 5, 29, 55], true, der));
        self
    }

    /// The attribute certificate, signed with the issuer's key.
    pub fn sign(&self, issuer: &Credential, random: &dyn SecureRandom) -> Result<Vec<u8>> {
        let body = yasna::try_construct_der(|to| {
            to.write_sequence(|to| {
                // Version 2, which says no more than the version of these structures.
                to.next().write_u8(1);
                // Holder, [0] baseCertificateID.
                to.next().write_sequence(|to| {
                    to.next().write_tagged_implicit(context(0), |to| {
                        to.write_sequence(|to| {
                            to.next().write_sequence(|to| write_directory_name(to, &self.holder_issuer));
                            write_serial(to.next(), &self.holder_serial);
                        });
                    });
                });
                // Issuer, [0] v2Form.
                to.next().write_tagged_implicit(context(0), |to| {
                    to.write_sequence(|to| {
                        to.next().write_sequence(|to| write_directory_name(to, &self.issuer));
                    });
                });
                issuer.key.write_signature_algorithm(to.next());
                write_serial(to.next(), &self.serial);
                to.next().write_sequence(|to| {
                    write_generalized_time(to.next(), self.validity.not_before_s)?;
                    write_generalized_time(to.next(), self.validity.not_after_s)
                })?;
                to.next().write_sequence(|to| self.write_attribute(to.next()));
                if !self.extensions.is_empty() {
                    to.next().write_sequence(|to| {
                        self.extensions.iter().for_each(|extension| extension.write(to));
                    });
                }
                Ok::<(), Error>(())
            })
        })?;
        signed(&body, &issuer.key, random)
    }

    /// The groups and roles: an `IetfAttrSyntax` (RFC 5755, 4.4).
    fn write_attribute(&self, to: DERWriter<'_>) {
        to.write_sequence(|to| {
            to.next().write_oid(&oid(&[1, 3, 6, 1, 4, 1, 8005, 100, 100, 4]));
            to.next().write_set(|to| {
                to.next().write_sequence(|to| {
                    to.next().write_tagged_implicit(context(0), |to| {
                        to.write_sequence(|to| write_name(to, &AlternativeName::Uri(self.authority.clone())));
                    });
                    to.next().write_sequence(|to| {
                        self.fqans.iter().for_each(|fqan| to.next().write_bytes(fqan.as_bytes()));
                    });
                });
            });
        });
    }
}

/// The extension of a proxy that holds attribute certificates.
pub fn voms_extension(attribute_certificates: &[Vec<u8>]) -> Extension {
    let der = yasna::construct_der(|to| {
        to.write_sequence(|to| {
            to.next().write_sequence(|to| {
                attribute_certificates.iter().for_each(|certificate| to.next().write_der(certificate));
            });
        });
    });
    Extension::raw(VOMS_EXTENSION, false, der)
}

/// The name of that extension.
pub const VOMS_EXTENSION: &[u64] = &[1, 3, 6, 1, 4, 1, 8005, 100, 100, 5];

/// A `GeneralName` of a distinguished name.
fn write_directory_name(to: &mut DERWriterSeq<'_>, name: &Name) {
    to.next().write_tagged(context(4), |to| name.write(to));
}

/// A `GeneralName` where only one fits.
fn write_one(to: DERWriter<'_>, name: &AlternativeName) {
    let der = yasna::construct_der_seq(|to| write_name(to, name));
    to.write_der(&der);
}
