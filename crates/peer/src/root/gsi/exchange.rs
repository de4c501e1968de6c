//! The exchange of certificates in a login, with what this client decides about it.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gridlane_auth::delegation::Request;
use gridlane_auth::make::{Credential, Key, ProxyTerms, Validity, pem};
use gridlane_auth::voms;
use gridlane_auth::x509::Certificate;
use gridlane_auth::{Cause, Refusal};
use gridlane_core::limits::DELEGATED_PROXY_S;
use gridlane_core::units::format_seconds;
use gridlane_core::{Error, ErrorKind, Fault, Hint};
use gridlane_gsi::client::Decisions;
use gridlane_gsi::{Client, ClientCredential, Parameters, SessionKey, issuer_hash};
use gridlane_net::tls::ClientIdentity;
use gridlane_xrd::client::{Method, Seal};
use ring::rand::SystemRandom;

use super::{Asked, Delegation, Ending, NAME};

/// One login by gsi.
pub(super) struct Gsi {
    asked: Asked,
    exchange: Option<Client>,
    ending: Ending,
}

impl Gsi {
    pub(super) fn new(asked: Asked, ending: Ending) -> Gsi {
        Gsi { asked, exchange: None, ending }
    }

    /// Keeps an error, and returns its words.
    fn fail(&self, error: Error) -> String {
        let words = error.message().to_owned();
        self.ending.keep(error);
        words
    }

    fn start(&self, parameters: &[u8], is_tls: bool) -> Result<(Client, Vec<u8>), Error> {
        check_time(&self.asked)?;
        let Asked { shown, name, .. } = &self.asked;
        let parameters =
            Parameters::parse(parameters).map_err(|refusal| error_of(&refusal, Hint::CheckCertificate))?;
        let chain: Vec<Vec<u8>> = shown.chain().map(<[u8]>::to_vec).collect();
        let credential = chain
            .last()
            .ok_or_else(|| Refusal::new(Cause::Malformed, "gsi: no certificate is there"))
            .and_then(|last| issuer_hash(last))
            .and_then(|hash| ClientCredential::new(&chain, shown.key(), &hash, name));
        let hint = "make a proxy with an RSA key, or use https or a token";
        let credential = credential.map_err(|refusal| error_of(&refusal, hint).fault(Fault::Caller))?;
        Client::begin(&parameters, Arc::new(credential), self.asked.delegates, is_tls)
            .map_err(|refusal| error_of(&refusal, Hint::CheckCertificate))
    }
}

impl Method for Gsi {
    fn name(&self) -> &'static [u8] {
        NAME.as_bytes()
    }

    fn begin(&mut self, parameters: &[u8], is_tls: bool) -> Result<Vec<u8>, String> {
        let (exchange, first) = self.start(parameters, is_tls).map_err(|error| self.fail(error))?;
        self.exchange = Some(exchange);
        Ok(first)
    }

    fn more(&mut self, said: &[u8]) -> Result<Vec<u8>, String> {
        let Some(exchange) = &mut self.exchange else { return Err("it has not begun".to_owned()) };
        let mut deciding = Deciding { asked: &self.asked, disbelief: None, delegation: Delegation::Unasked };
        let answer = exchange.receive(said, &mut deciding);
        let Deciding { disbelief, delegation, .. } = deciding;
        if delegation != Delegation::Unasked {
            self.ending.delegated(delegation);
        }
        answer.map_err(|refusal| {
            let server =
                "is it the server that is meant, and is nobody on the way to it? Else ask its operator";
            self.fail(disbelief.unwrap_or_else(|| error_of(&refusal, server)))
        })
    }

    fn is_complete(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.session_key().is_some())
    }

    fn key(&self) -> Option<Box<dyn Seal>> {
        let key = self.exchange.as_ref()?.session_key()?;
        Some(Box::new(Sealing(key.clone())))
    }
}

/// Answers the questions of an exchange.
struct Deciding<'a> {
    asked: &'a Asked,
    /// Why the server's certificate is not believed.
    disbelief: Option<Error>,
    delegation: Delegation,
}

impl Decisions for Deciding<'_> {
    fn check_server(&mut self, certificate: &[u8]) -> Result<(), Refusal> {
        self.asked.dialer.check_certificate(certificate, &self.asked.host).map_err(|error| {
            let error = with_authority(error, certificate);
            let refusal = Refusal::new(Cause::Untrusted, error.message());
            self.disbelief = Some(error);
            refusal
        })
    }

    fn gives_none(&mut self, why: &Refusal) {
        self.delegation = Delegation::Failed(why.message.clone());
    }

    fn sign_proxy(&mut self, request: &[u8]) -> Result<Vec<u8>, Refusal> {
        let signed = self.sign(request);
        self.delegation = match &signed {
            Ok(_) => Delegation::Given,
            Err(refusal) => Delegation::Failed(refusal.message.clone()),
        };
        signed
    }
}

impl Deciding<'_> {
    fn sign(&self, request: &[u8]) -> Result<Vec<u8>, Refusal> {
        let failed = |error: Error| Refusal::new(Cause::Unacceptable, error.message());
        let random = SystemRandom::new();
        // It was encrypted with the key of the session, by the server that has proved itself.
        let request = Request::read_from_proved(request)?;
        let shown = &self.asked.shown;
        let key = Key::from_pkcs8(shown.key(), &random)
            .or_else(|_| Key::from_pem(pem::encode(RSA_KEY, shown.key()).as_bytes(), &random))
            .map_err(failed)?;
        let issuer = Credential { chain: shown.chain().map(<[u8]>::to_vec).collect(), key };
        let now_s = now_s();
        let terms = ProxyTerms::new(Validity::from_now(now_s, DELEGATED_PROXY_S));
        let chain = request.sign(&issuer, terms, now_s, &random).map_err(failed)?;
        // The server has the rest of the chain from the login.
        let first = chain.first().ok_or_else(|| Refusal::new(Cause::Malformed, "no proxy was made"))?;
        Ok(pem::encode(pem::CERTIFICATE, first).into_bytes())
    }
}

/// The label of a private key in PKCS#1.
const RSA_KEY: &str = "RSA PRIVATE KEY";

/// The key of the session, to sign requests with.
struct Sealing(SessionKey);

impl Seal for Sealing {
    fn seal(&self, digest: &[u8]) -> Result<Vec<u8>, String> {
        self.0.seal(digest).map_err(|refusal| refusal.message)
    }
}

fn now_s() -> i64 {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    i64::try_from(now_s).unwrap_or(i64::MAX)
}

/// Refuses a certificate whose time is over or has not come: the server would, in other words.
fn check_time(asked: &Asked) -> Result<(), Error> {
    let now_s = now_s();
    let (facts, name) = (asked.shown.facts(), &asked.name);
    let apart = |s: i64| format_seconds(s.abs_diff(now_s) as f64);
    let denied = |what: String| Error::new(ErrorKind::Denied, what).fault(Fault::Caller);
    if facts.ends_s <= now_s {
        let hint = if facts.proxies > 0 { Hint::RenewProxy } else { Hint::RenewCertificate };
        return Err(denied(format!("{name} expired {} ago", apart(facts.ends_s))).hint(hint));
    }
    if facts.begins_s > now_s {
        let what = format!("{name} is valid only in {}", apart(facts.begins_s));
        return Err(denied(what).hint("is this machine's clock right (timedatectl)?"));
    }
    Ok(())
}

/// Adds the authority that a server's certificate names to the error that says that it is not known.
fn with_authority(error: Error, certificate: &[u8]) -> Error {
    if error.advice() != Some(&Hint::NameAuthority) {
        return error;
    }
    let (Ok(read), Ok(hash)) = (Certificate::from_der(certificate), issuer_hash(certificate)) else {
        return error;
    };
    error.more(format!(
        "it names {} as its authority, which a directory of authorities has as {hash}.0",
        read.issuer()
    ))
}

fn error_of(refusal: &Refusal, hint: impl Into<Hint>) -> Error {
    let message = refusal.message.strip_prefix("gsi: ").unwrap_or(&refusal.message);
    let kind = match refusal.cause {
        Cause::Malformed => ErrorKind::Protocol,
        Cause::Unavailable => ErrorKind::Other,
        _ => ErrorKind::Denied,
    };
    Error::new(kind, message).hint(hint)
}

/// What is known here about a certificate that a server has refused, which has no words for it as XRootD has not: its VOMS
/// attributes, which many servers want.
pub(super) fn suspicions(shown: &ClientIdentity, name: &str) -> String {
    let chain: Vec<Certificate> = shown.chain().filter_map(|der| Certificate::from_der(der).ok()).collect();
    let now_s = now_s();
    let Some(extension) = voms::extension_of(&chain) else {
        return format!("{name} has no VOMS attributes, which it may want");
    };
    let Ok(claims) = voms::claims(extension) else {
        return format!("the VOMS attributes of {name} cannot be read");
    };
    let over = claims.iter().find(|claim| claim.not_after_s < now_s);
    match (over, claims.iter().find(|claim| claim.not_before_s > now_s)) {
        (Some(claim), _) => {
            let ago = format_seconds(now_s.abs_diff(claim.not_after_s) as f64);
            format!("the attributes of {name} in the VO {} expired {ago} ago", claim.vo)
        }
        (None, Some(claim)) => {
            let wait = format_seconds(now_s.abs_diff(claim.not_before_s) as f64);
            format!("the attributes of {name} in the VO {} are valid only in {wait}", claim.vo)
        }
        (None, None) => {
            let names: Vec<&str> = claims.iter().map(|claim| claim.vo.as_str()).collect();
            format!("{name} has attributes of {}", names.join(", "))
        }
    }
}
