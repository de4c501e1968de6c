//! From a leaf to an authority that is trusted: finding the way, and what is known at its end.

use gridlane_core::limits;

use super::certificate::{Certificate, Language, shown};
use super::name::Name;
use super::rules;
use super::trust::Trust;
use crate::refusal::{Cause, Refusal};

/// For what a chain is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// A client wants in: a user, a service, or a proxy of one. No authority itself, and where extended key usages are
    /// said, they have to include clients of TLS.
    #[default]
    Client,
    /// Any purpose: signers of VOMS attributes.
    Any,
}

/// A chain that is believed.
#[derive(Clone, Debug)]
pub struct Verified {
    /// From the leaf to the end-entity certificate.
    layers: Vec<Certificate>,
    dn: String,
    issuer_dn: String,
    is_limited: bool,
    expires_s: i64,
}

impl Verified {
    /// Its owner: the subject of the end-entity certificate as OpenSSL prints it on one line,
    /// `/DC=org/DC=example/CN=Ada`.
    pub fn dn(&self) -> &str {
        &self.dn
    }

    /// The authority that made the end-entity certificate, printed alike.
    pub fn issuer_dn(&self) -> &str {
        &self.issuer_dn
    }

    /// Its owner, as RFC 2253 writes it: `CN=Ada,DC=example,DC=org`.
    pub fn rfc2253(&self) -> String {
        self.end_entity().subject().rfc2253()
    }

    /// The certificates from the leaf (whose key the peer has) to the end-entity certificate; at least one.
    pub fn layers(&self) -> &[Certificate] {
        &self.layers
    }

    /// The certificate whose key the peer has.
    pub fn leaf(&self) -> &Certificate {
        &self.layers[0]
    }

    /// The certificate that an authority made.
    pub fn end_entity(&self) -> &Certificate {
        &self.layers[self.layers.len() - 1]
    }

    /// Number of proxies below the end-entity certificate.
    pub fn proxy_depth(&self) -> usize {
        self.layers.len() - 1
    }

    /// True if the leaf is a proxy.
    pub fn is_proxy(&self) -> bool {
        self.proxy_depth() > 0
    }

    /// True if any proxy is a limited one, which all below inherit.
    pub fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// When this has to be looked at again, in seconds since 1970: when the first part of the whole path expires, or
    /// before that a revocation list that it was held against, where such lists [are refused](super::OutdatedLists).
    pub fn expires_s(&self) -> i64 {
        self.expires_s
    }
}

/// Judges what a client has sent: the leaf first, the others in any order.
///
/// # Errors
/// Why it is not believed, naming the part that is wrong.
pub fn verify(chain: &[impl AsRef<[u8]>], trust: &Trust, now_s: i64) -> Result<Verified, Refusal> {
    verify_for(Purpose::Client, chain, trust, now_s)
}

/// The same, for any purpose. With [`Purpose::Any`] the caller has to look if a [proxy](Verified::is_proxy) will
/// do.
///
/// # Errors
/// Those of [`verify`].
pub fn verify_for(
    purpose: Purpose,
    chain: &[impl AsRef<[u8]>],
    trust: &Trust,
    now_s: i64,
) -> Result<Verified, Refusal> {
    let (presented, unreadable) = read(chain)?;
    let leaf = presented.first().ok_or_else(|| Refusal::new(Cause::Malformed, "there is no certificate"))?;
    let mut search = Search {
        presented: &presented,
        trust,
        now_s,
        purpose,
        until_s: i64::MIN,
        signatures_left: limits::CHAIN_SIGNATURES_MAX,
        refusal: None,
    };
    let mut path = vec![leaf];
    if !search.extend(&mut path) {
        let nowhere = Refusal::new(Cause::Untrusted, "no way leads to an authority that is trusted here");
        let (progress, refusal) = search.refusal.unwrap_or((0, nowhere));
        // What is missing may be what could not be read.
        return Err(unreadable.filter(|_| progress < COMPLETE).unwrap_or(refusal));
    }
    let expires_s = search.until_s;
    let proxies = path.iter().take_while(|certificate| certificate.is_proxy()).count();
    let layers: Vec<Certificate> = path.iter().take(proxies + 1).map(|layer| (*layer).clone()).collect();
    let is_limited = |layer: &Certificate| {
        layer.profile.proxy.as_ref().is_some_and(|proxy| proxy.language == Language::Limited)
    };
    let Some(end_entity) = layers.last() else {
        return Err(Refusal::new(Cause::Malformed, "there is no certificate"));
    };
    Ok(Verified {
        dn: end_entity.subject().to_string(),
        issuer_dn: end_entity.issuer().to_string(),
        is_limited: layers.iter().any(is_limited),
        expires_s,
        layers,
    })
}

/// The certificates that a peer sent, within limits. Behind the leaf there may be what cannot be read, which is
/// passed over: some send
/// their authority's certificate along, and old ones are odd. Also tells what was wrong with the first of those.
fn read(chain: &[impl AsRef<[u8]>]) -> Result<(Vec<Certificate>, Option<Refusal>), Refusal> {
    let bytes: usize = chain.iter().map(|der| der.as_ref().len()).sum();
    if chain.len() > limits::CHAIN_CERTIFICATES_MAX || bytes > limits::CHAIN_BYTES_MAX {
        let count = chain.len();
        let message =
            format!("a chain of {count} certificates with {bytes} bytes is longer than is accepted");
        return Err(Refusal::new(Cause::Unacceptable, message));
    }
    let mut presented = Vec::with_capacity(chain.len());
    let mut unreadable = None;
    for der in chain {
        match Certificate::from_der(der.as_ref()) {
            Ok(certificate) => presented.push(certificate),
            Err(refusal) if presented.is_empty() => return Err(refusal),
            Err(refusal) => unreadable = unreadable.or(Some(refusal)),
        }
    }
    Ok((presented, unreadable))
}

/// Looks for a way from the leaf to a root that is trusted, first over what is in the trust directory, then over what
/// was presented. Where there are several, one that keeps all rules is enough (cross-signed authorities).
struct Search<'a> {
    presented: &'a [Certificate],
    trust: &'a Trust,
    now_s: i64,
    purpose: Purpose,
    /// Until when the path that was found is good.
    until_s: i64,
    /// Certificates can be made that sign each other in circles, and with the same names in great numbers: what is
    /// spent on one chain is bounded by this.
    signatures_left: usize,
    /// Why nothing was found, and how far that way led.
    refusal: Option<(usize, Refusal)>,
}

/// Further than any way that does not reach a root.
const COMPLETE: usize = usize::MAX;

impl<'a> Search<'a> {
    /// Goes on from the last certificate of the path. When it is true, the path is complete and good.
    fn extend(&mut self, path: &mut Vec<&'a Certificate>) -> bool {
        let Some(last) = path.last().copied() else { return false };
        if last.is_self_issued() && !last.is_proxy() && self.trust.authority(last).is_some() {
            return match rules::check(path, self.trust, self.purpose, self.now_s) {
                Ok(until_s) => {
                    self.until_s = until_s;
                    true
                }
                Err(refusal) => self.refuse(COMPLETE, refusal),
            };
        }
        let candidates = self.candidates(last);
        if candidates.is_empty() {
            return self.refuse(path.len(), rules::no_issuer(last, self.presented, self.trust));
        }
        if path.len() >= limits::CHAIN_CERTIFICATES_MAX {
            let message = "the path to an authority is longer than is accepted";
            return self.refuse(path.len(), Refusal::new(Cause::Unacceptable, message));
        }
        for candidate in candidates {
            if path.iter().any(|part| part.der() == candidate.der()) {
                continue;
            }
            if self.signatures_left == 0 {
                let message = "the chain has more ways to an authority than are tried";
                return self.refuse(path.len(), Refusal::new(Cause::Unacceptable, message));
            }
            self.signatures_left -= 1;
            if let Err(refusal) = last.check_signature(candidate.spki()) {
                self.refuse(path.len(), refusal);
                continue;
            }
            path.push(candidate);
            if self.extend(path) {
                return true;
            }
            path.pop();
        }
        let dn = shown(last.issuer());
        let message =
            format!("the authority {dn}, which made a certificate of the chain, is not trusted here");
        self.refuse(path.len(), Refusal::new(Cause::Untrusted, message))
    }

    /// The possible issuers of this certificate, by name and by what it says of the key, the trusted ones first.
    /// Proxies are made by certificates that were presented, and by no authority; all else by authorities. What a proxy says of the
    /// key only decides which one is tried first: XRootD's clients copy that from the certificate that they make it of.
    fn candidates(&self, made: &Certificate) -> Vec<&'a Certificate> {
        let is_other_key = |candidate: &Certificate| {
            let keys = (&made.profile.authority_key, &candidate.profile.subject_key);
            matches!(keys, (Some(said), Some(own)) if said != own)
        };
        let is_named = |candidate: &&Certificate| candidate.subject() == made.issuer();
        if made.is_proxy() {
            let presented = self.presented.iter().filter(is_named);
            let mut candidates: Vec<_> = presented.filter(|candidate| !candidate.is_authority()).collect();
            candidates.sort_by_key(|candidate| is_other_key(candidate));
            return candidates;
        }
        let fits = |candidate: &&Certificate| is_named(candidate) && !is_other_key(candidate);
        let presented = self.presented.iter().filter(fits);
        let trusted = self.trust.named(made.issuer()).map(|authority| &authority.certificate).filter(fits);
        let presented = presented
            .filter(|candidate| candidate.is_authority() && self.trust.authority(candidate).is_none());
        let mut candidates: Vec<_> = trusted.chain(presented).collect();
        // Of a root that was renewed under the same key, the one that still counts.
        candidates.sort_by_key(|candidate| !rules::is_in_time(candidate, self.now_s));
        candidates
    }

    /// Remembers why, if this way led further than those before. Always false.
    fn refuse(&mut self, progress: usize, refusal: Refusal) -> bool {
        if self.refusal.as_ref().is_none_or(|(before, _)| progress > *before) {
            self.refusal = Some((progress, refusal));
        }
        false
    }
}

/// True if a name ends in what tools before RFC 3820 called their proxies.
pub(super) fn is_legacy_proxy_name(subject: &Name, issuer: &Name) -> bool {
    subject.is_proxy_of(issuer) && matches!(subject.last_common_name(), Some(b"proxy" | b"limited proxy"))
}
