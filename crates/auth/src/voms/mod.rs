//! VOMS: attribute certificates of the holder of a certificate (RFC 5755), and their trusted signers.
//!
//! ```text
//! proxy ─▶ extension ─▶ attribute certificates ─▶ for each: its own? now? here? ─▶ signer? ─▶ groups and roles
//!                       ac                                                         dir, x509
//! ```
//!
//! A server of a virtual organisation signs "the holder of certificate 4711 of this authority is in /atlas", and the
//! holder puts that into a proxy. It counts when the signer is one of those that [`VomsDir`] lists for the VO, and its
//! certificate is good. Others are left out: the holder keeps its identity.
//!
//! A user has them from a server: [`VomsServer`] is where it is, [`AttributeRequest`] what is asked of it, [`read_answer`] what it
//! gives, and [`check_given`] whether that may go into a proxy. Who sends and receives is not here.
//!
//! Not here: generic attributes, which storage has no use for.

mod ac;
mod dir;
mod given;
mod request;
#[cfg(test)]
mod tests;
mod vomses;

pub use dir::VomsDir;
pub use given::{Given, check_given};
pub use request::{Answer, AttributeRequest, document_end, read_answer};
pub use vomses::VomsServer;

use std::time::{Duration, UNIX_EPOCH};

use gridlane_core::limits;
use gridlane_dav::timestamp;

use crate::fqan::Fqan;
use crate::refusal::{Cause, Refusal};
use crate::x509::signature::{self, Algorithm};
use crate::x509::{self, Certificate, Purpose, Trust, Verified};
use ac::AttributeCertificate;
use dir::Signers;

/// The content of an attribute certificate, not verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The virtual organisation.
    pub vo: String,
    /// The host of the VOMS server.
    pub host: String,
    /// Groups and roles, the primary one first.
    pub fqans: Vec<Fqan>,
    /// Its begin, in seconds since 1970.
    pub not_before_s: i64,
    /// Its end, in seconds since 1970.
    pub not_after_s: i64,
}

/// Reads the value of an [extension](extension_of) of a proxy. **Nothing of it is verified**: this is for showing a user's
/// own proxy.
///
/// # Errors
/// When it cannot be read.
pub fn claims(extension: &[u8]) -> Result<Vec<Claim>, Refusal> {
    let read = |bytes| {
        let ac = AttributeCertificate::read(bytes)
            .map_err(|refusal| refusal.context("an attribute certificate"))?;
        Ok(Claim {
            vo: ac.vo.to_owned(),
            host: ac.host.to_owned(),
            fqans: ac.fqans,
            not_before_s: ac.not_before_s,
            not_after_s: ac.not_after_s,
        })
    };
    ac::split(extension)?.into_iter().map(read).collect()
}

/// The value of the extension that has attribute certificates, of the certificate nearest to the first that has it: a
/// proxy that is made from another speaks for itself.
pub fn extension_of(chain: &[Certificate]) -> Option<&[u8]> {
    chain.iter().find_map(|certificate| certificate.extension(ac::IN_PROXY))
}

/// The groups and roles of a client, the primary one first; the last moment at which all of them count and their signers
/// are believed, in seconds since 1970; and the reason for each attribute certificate that does not count.
///
/// One counts when it is about the end-entity certificate (RFC 5755 section 4.2.2), at this time (give or take
/// [`limits::VOMS_SKEW_MAX_S`], which is in the moment as well), for one of `host_names` if it names hosts (section 4.3.2),
/// and is signed by one of those that `voms` lists for its VO, whose certificates lead to an authority of `trust`; and when
/// all of its groups are of that VO.
pub fn attributes(
    verified: &Verified,
    voms: &VomsDir,
    trust: &Trust,
    host_names: &[String],
    now_s: i64,
) -> (Vec<Fqan>, Option<i64>, Vec<Refusal>) {
    let (mut fqans, mut ends_s, mut refusals) = (Vec::new(), None::<i64>, Vec::new());
    let Some(extension) = extension_of(verified.layers()) else { return (fqans, ends_s, refusals) };
    let found = match ac::split(extension) {
        Ok(found) => found,
        Err(refusal) => return (fqans, ends_s, vec![refusal]),
    };
    let check = Check { holder: verified.end_entity(), voms, trust, host_names, now_s };
    for bytes in found {
        let (ac, until_s) = match check.read(bytes) {
            Ok(read) => read,
            Err(refusal) => {
                refusals.push(refusal);
                continue;
            }
        };
        let until_s = until_s.min(ac.not_after_s.saturating_add(limits::VOMS_SKEW_MAX_S));
        ends_s = Some(ends_s.map_or(until_s, |ends_s| ends_s.min(until_s)));
        for fqan in ac.fqans {
            if !fqans.contains(&fqan) {
                fqans.push(fqan);
            }
        }
    }
    if fqans.len() > limits::VOMS_FQANS_MAX {
        let refusal = Refusal::new(
            Cause::Unacceptable,
            format!("only {} of its {} groups count", limits::VOMS_FQANS_MAX, fqans.len()),
        );
        fqans.truncate(limits::VOMS_FQANS_MAX);
        refusals.push(refusal);
    }
    (fqans, ends_s, refusals)
}

/// The certificate, the site and the moment that an attribute certificate is verified for.
struct Check<'a> {
    holder: &'a Certificate,
    voms: &'a VomsDir,
    trust: &'a Trust,
    host_names: &'a [String],
    now_s: i64,
}

impl Check<'_> {
    /// Reads one and verifies all of it, cheap checks first; returns the moment until which its signer is believed, in
    /// seconds since 1970.
    fn read<'a>(&self, bytes: &'a [u8]) -> Result<(AttributeCertificate<'a>, i64), Refusal> {
        let ac = AttributeCertificate::read(bytes)
            .map_err(|refusal| refusal.context("an attribute certificate"))?;
        let checked = self
            .check_time(&ac)
            .and_then(|()| self.check_holder(&ac))
            .and_then(|()| self.check_targets(&ac))
            .and_then(|()| self.check_signer(&ac));
        match checked {
            Ok(until_s) => Ok((ac, until_s)),
            Err(refusal) => Err(refusal.context(format!("the attribute certificate of {}", ac.vo))),
        }
    }

    fn check_time(&self, ac: &AttributeCertificate<'_>) -> Result<(), Refusal> {
        let moment = |s: i64| {
            timestamp::format(UNIX_EPOCH + Duration::from_secs(u64::try_from(s).unwrap_or_default()))
        };
        if ac.not_after_s < ac.not_before_s {
            return Err(Refusal::new(Cause::Malformed, "it ends before it begins"));
        }
        if self.now_s.saturating_add(limits::VOMS_SKEW_MAX_S) < ac.not_before_s {
            return Err(Refusal::new(Cause::NotYetValid, format!("it begins {}", moment(ac.not_before_s))));
        }
        if self.now_s.saturating_sub(limits::VOMS_SKEW_MAX_S) > ac.not_after_s {
            return Err(Refusal::new(Cause::Expired, format!("it ended {}", moment(ac.not_after_s))));
        }
        Ok(())
    }

    fn check_holder(&self, ac: &AttributeCertificate<'_>) -> Result<(), Refusal> {
        let (subject, issuer) = (self.holder.subject(), self.holder.issuer());
        let is_certificate = ac.holder.certificate.as_ref().is_none_or(|(name, serial)| {
            // Older VOMS writes the subject where the issuer belongs.
            *serial == self.holder.serial() && (name == issuer || name == subject)
        });
        match is_certificate && ac.holder.subject.as_ref().is_none_or(|name| name == subject) {
            true => Ok(()),
            false => Err(Refusal::new(Cause::Untrusted, "it was made for another certificate")),
        }
    }

    fn check_targets(&self, ac: &AttributeCertificate<'_>) -> Result<(), Refusal> {
        let is_here =
            |target: &&str| self.host_names.iter().any(|name| name.eq_ignore_ascii_case(host_of(target)));
        match ac.targets.as_ref().is_none_or(|targets| targets.iter().any(is_here)) {
            true => Ok(()),
            false => Err(Refusal::new(Cause::WrongAudience, "it is for other servers only")),
        }
    }

    /// Verifies that a listed server has signed; returns the moment until which that is believed.
    fn check_signer(&self, ac: &AttributeCertificate<'_>) -> Result<i64, Refusal> {
        match self.voms.signers(ac.vo, ac.host) {
            Signers::Named(listed) => {
                let names = names_of(&ac.certificates)?;
                if !dir::is_listed(listed, &names) {
                    let signer =
                        names.first().map_or_else(String::new, |(subject, _)| format!(" ({subject})"));
                    return Err(Refusal::new(
                        Cause::Untrusted,
                        format!(
                            "the certificates of its signer{signer} are not those listed for {}",
                            ac.host
                        ),
                    ));
                }
                self.check_signature(ac, &ac.certificates)
            }
            Signers::Known(known) => {
                let mut refusal =
                    Refusal::new(Cause::Untrusted, format!("no signer of {} is listed", ac.host));
                for chain in known {
                    let chain: Vec<&[u8]> = chain.iter().map(Vec::as_slice).collect();
                    match self.check_signature(ac, &chain) {
                        Ok(until_s) => return Ok(until_s),
                        Err(other) => refusal = other,
                    }
                }
                Err(refusal)
            }
        }
    }

    /// Verifies that the holder of the first of these certificates has signed; returns that certificate's end.
    fn check_signature(&self, ac: &AttributeCertificate<'_>, chain: &[&[u8]]) -> Result<i64, Refusal> {
        let by_another = || Refusal::new(Cause::Untrusted, "it is signed by another server than it states");
        let signer = Certificate::from_der(chain.first().ok_or_else(by_another)?)?;
        if ac.issuer != *signer.subject() {
            return Err(by_another());
        }
        if let (Some(said), Some(is)) = (ac.key_id, signer.subject_key())
            && said != is
        {
            return Err(Refusal::new(Cause::BadSignature, "it is signed with another key than it says"));
        }
        let algorithm = Algorithm::from_der(ac.algorithm).ok_or_else(|| {
            Refusal::new(Cause::Unacceptable, "its signature is made in a way that proves nothing")
        })?;
        signature::verify(signer.spki(), algorithm, ac.signed, ac.signature)?;
        let verified = x509::verify_for(Purpose::Any, chain, self.trust, self.now_s)
            .map_err(|refusal| refusal.context("the certificate of its signer"))?;
        // Only the server itself speaks for the VO, not a holder of its proxy.
        match verified.is_proxy() {
            false => Ok(verified.expires_s()),
            true => Err(Refusal::new(Cause::Untrusted, "it is signed by a proxy")),
        }
    }
}

/// Subject and issuer of each.
fn names_of(chain: &[&[u8]]) -> Result<Vec<(String, String)>, Refusal> {
    let names = |der: &&[u8]| {
        let certificate = Certificate::from_der(der)?;
        Ok((certificate.subject().to_string(), certificate.issuer().to_string()))
    };
    chain.iter().map(names).collect()
}

/// The host of a target, which is a URI by its kind and a name of a host in what VOMS writes.
fn host_of(target: &str) -> &str {
    let authority = target.split_once("://").map_or(target, |(_, rest)| rest);
    let authority = authority.split('/').next().unwrap_or_default();
    authority.split_once(':').map_or(authority, |(host, _)| host)
}
