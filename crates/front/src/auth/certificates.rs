//! The certificates that a connection's client has shown: judged once, and again when their time may be over or anything
//! has changed that they are judged by. A session of TLS that goes on restores the chain, not what was found of it.

use std::sync::{Arc, Mutex, PoisonError};

use gridlane_auth::identity::CertificateIdentity;
use gridlane_auth::token::verified::Fingerprint;
use gridlane_auth::x509::Trust;
use gridlane_auth::{Cause, Identity, Refusal, voms, x509};
use gridlane_core::limits;
use gridlane_net::Stream;
use gridlane_net::tls::ClientIdentity;
use rustls::pki_types::CertificateDer;

use super::keys::now_s;
use super::presented::Kind;
use crate::front::Front;

/// The chain of a connection's handshake, and the result of its check.
#[derive(Default)]
pub(crate) struct PeerChain {
    digest: Option<Fingerprint>,
    judged: Option<Kept<Judged>>,
}

/// What was found of a chain, for a while in which nothing can have changed that it was judged by.
struct Kept<T> {
    /// The generation that judged it.
    generation: u64,
    /// Its end, in seconds since 1970.
    until_s: i64,
    found: T,
}

impl<T: Clone> Kept<T> {
    /// What was found at this moment, and the end of the identity by it, in seconds since 1970.
    fn new(front: &Front, found: T, expires_s: Option<i64>, now_s: i64) -> Kept<T> {
        let again_s = now_s.saturating_add(limits::CHAIN_JUDGED_MAX_S);
        // Attributes count for a while when they are over: not for each request anew.
        let until_s = expires_s.unwrap_or(again_s).clamp(now_s + 1, again_s);
        Kept { generation: front.chains.generation(), until_s, found }
    }

    /// What was found, if it still holds.
    fn get(&self, front: &Front, now_s: i64) -> Option<T> {
        (self.generation == front.chains.generation() && now_s < self.until_s).then(|| self.found.clone())
    }
}

/// The result of checking a chain.
#[derive(Clone)]
pub(crate) struct Judged {
    /// The identity; anonymous if the chain does not count.
    pub(crate) identity: Arc<Identity>,
    /// The parts of it that do not count, and why.
    pub(crate) doubt: Option<Arc<str>>,
}

/// The chain that a login over root:// has proved, which counts as if every request had it.
pub struct LoginChain {
    digest: Fingerprint,
    certificates: Vec<CertificateDer<'static>>,
    judged: Mutex<Option<Kept<Result<Judged, Refusal>>>>,
    /// A proxy of the client's, with which copies are fetched as the client: it is nowhere else, and its key never was.
    /// Or why the client, which was asked for one, has lent none. `None`: it was not asked.
    delegated: Option<Result<ClientIdentity, String>>,
}

impl LoginChain {
    /// Certificates in DER, the one whose key the client has first.
    #[cfg(feature = "gsi")]
    pub(crate) fn new(certificates: Vec<Vec<u8>>) -> LoginChain {
        let digest = Fingerprint::of(certificates.concat());
        let certificates = certificates.into_iter().map(CertificateDer::from).collect();
        LoginChain { digest, certificates, judged: Mutex::default(), delegated: None }
    }

    /// The same with a proxy that the client has lent, or with the reason why it has not.
    #[cfg(feature = "gsi")]
    pub(crate) fn with_delegated(self, delegated: Result<ClientIdentity, String>) -> LoginChain {
        LoginChain { delegated: Some(delegated), ..self }
    }

    /// Why it is not believed at this moment; `None` if it is.
    pub fn refusal(&self, front: &Front) -> Option<Refusal> {
        self.identity(front, now_s()).err()
    }

    /// The proxy that the client has lent, or why there is none; `None` if it was not asked for one.
    pub fn delegated(&self) -> Option<Result<&ClientIdentity, &str>> {
        Some(self.delegated.as_ref()?.as_ref().map_err(String::as_str))
    }

    /// The certificates, in DER.
    #[cfg(feature = "gsi")]
    pub(crate) fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    /// The identity by it at this moment; why it has none, if so.
    pub(crate) fn identity(&self, front: &Front, now_s: i64) -> Result<Judged, Refusal> {
        let Some(trust) = front.auth.trust.as_deref() else {
            return Err(Refusal::new(Cause::Untrusted, "this server believes no certificates any more"));
        };
        // A stored result is complete in itself.
        let judged = || self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = judged().as_ref().and_then(|kept| kept.get(front, now_s)) {
            return found;
        }
        let found = look_up(front, self.digest, &self.certificates, trust, now_s);
        let expires_s = found.as_ref().ok().and_then(|judged| judged.identity.expires_s());
        *judged() = Some(Kept::new(front, found.clone(), expires_s, now_s));
        found
    }
}

impl PeerChain {
    /// The identity by the certificate; `None` without a certificate, or where none are believed.
    pub(crate) fn judged(&mut self, front: &Front, stream: &Stream, now_s: i64) -> Option<Judged> {
        let chain = stream.peer_certificates();
        let trust = front.auth.trust.as_deref().filter(|_| !chain.is_empty())?;
        if let Some(judged) = self.judged.as_ref().and_then(|kept| kept.get(front, now_s)) {
            return Some(judged);
        }
        let digest = *self.digest.get_or_insert_with(|| {
            Fingerprint::of(chain.iter().flat_map(|one| one.iter().copied()).collect::<Vec<u8>>())
        });
        // A certificate is shown by a client's library without being asked to: a bad one counts as none.
        let judged = look_up(front, digest, chain, trust, now_s).unwrap_or_else(|refusal| {
            front.data.metrics.auth.refused(Kind::Certificate, refusal.cause);
            let doubt = format!("the client's certificate does not count: {refusal}");
            Judged { identity: Arc::default(), doubt: Some(doubt.into()) }
        });
        self.judged = Some(Kept::new(front, judged.clone(), judged.identity.expires_s(), now_s));
        Some(judged)
    }
}

fn look_up(
    front: &Front,
    digest: Fingerprint,
    chain: &[CertificateDer<'_>],
    trust: &Trust,
    now_s: i64,
) -> Result<Judged, Refusal> {
    let known = || front.chains.good();
    // A list that is over its time does not wait for a reload.
    let lists = trust.lists_state(now_s);
    if let Some(identity) = known().get(digest, lists, now_s) {
        return Ok(Judged { identity, doubt: None });
    }
    let (identity, doubts) = judge(front, chain, trust, now_s)?;
    let identity = Arc::new(Identity::Certificate(identity));
    // Doubts are for the client that is refused something: they are not in the identity.
    if doubts.is_empty() {
        known().insert(digest, lists, Arc::clone(&identity));
    }
    let first = doubts.first().map(|doubt| format!("some of its attributes do not count: {doubt}"));
    Ok(Judged { identity, doubt: first.map(Into::into) })
}

/// The identity of a chain, and those of its attributes that do not count.
fn judge(
    front: &Front,
    chain: &[CertificateDer<'_>],
    trust: &Trust,
    now_s: i64,
) -> Result<(CertificateIdentity, Vec<Refusal>), Refusal> {
    let auth = &front.auth;
    let verified = x509::verify(chain, trust, now_s)?;
    let (fqans, ends_s, doubts) = voms::attributes(&verified, &auth.voms, trust, &front.host_names, now_s);
    let identity = CertificateIdentity {
        dn: verified.dn().to_owned(),
        user: auth.gridmap.user(verified.dn()).map(str::to_owned),
        fqans,
        // Attributes that are over count no longer: then the chain is judged again, and gives an identity without them.
        expires_s: ends_s.map_or(verified.expires_s(), |ends_s| ends_s.min(verified.expires_s())),
    };
    Ok((identity, doubts))
}
