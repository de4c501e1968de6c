//! The exchange of certificates in a login, with what this client decides about it.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gridlane_auth::x509::Certificate;
use gridlane_auth::{Cause, Refusal};
use gridlane_core::units::format_seconds;
use gridlane_core::{Error, ErrorKind, Fault, Hint};
use gridlane_gsi::client::Decisions;
use gridlane_gsi::{Client, ClientCredential, Parameters, SessionKey, issuer_hash};
use gridlane_xrd::client::{Method, Seal};

use super::{Asked, Failure, NAME};

/// One login by gsi.
pub(super) struct Gsi {
    asked: Asked,
    exchange: Option<Client>,
    failure: Failure,
}

impl Gsi {
    pub(super) fn new(asked: Asked, failure: Failure) -> Gsi {
        Gsi { asked, exchange: None, failure }
    }

    /// Keeps an error, and returns its words.
    fn fail(&self, error: Error) -> String {
        let words = error.message().to_owned();
        self.failure.keep(error);
        words
    }

    fn start(&self, parameters: &[u8]) -> Result<(Client, Vec<u8>), Error> {
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
        let hint = "make a proxy with an RSA key: gridlane auth proxy --key-type rsa";
        let credential = credential.map_err(|refusal| error_of(&refusal, hint))?;
        Client::begin(&parameters, Arc::new(credential), false)
            .map_err(|refusal| error_of(&refusal, Hint::CheckCertificate))
    }
}

impl Method for Gsi {
    fn name(&self) -> &'static [u8] {
        NAME.as_bytes()
    }

    fn begin(&mut self, parameters: &[u8], _is_tls: bool) -> Result<Vec<u8>, String> {
        let (exchange, first) = self.start(parameters).map_err(|error| self.fail(error))?;
        self.exchange = Some(exchange);
        Ok(first)
    }

    fn more(&mut self, said: &[u8]) -> Result<Vec<u8>, String> {
        let Some(exchange) = &mut self.exchange else { return Err("it has not begun".to_owned()) };
        let mut deciding = Deciding { asked: &self.asked, disbelief: None };
        let answer = exchange.receive(said, &mut deciding);
        let disbelief = deciding.disbelief;
        answer.map_err(|refusal| {
            let server =
                "is it the server that is meant, and is nobody on the way to it? Else ask its operator";
            self.fail(disbelief.unwrap_or_else(|| error_of(&refusal, server)))
        })
    }

    fn key(&self) -> Option<Box<dyn Seal>> {
        let key = self.exchange.as_ref()?.session_key()?;
        Some(Box::new(Key(key.clone())))
    }
}

/// Answers the questions of an exchange.
struct Deciding<'a> {
    asked: &'a Asked,
    /// Why the server's certificate is not believed.
    disbelief: Option<Error>,
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

    fn sign_proxy(&mut self, _request: &[u8]) -> Result<Vec<u8>, Refusal> {
        Err(Refusal::new(Cause::Unacceptable, "Not allowed to sign proxy requests"))
    }
}

/// The key of the session, to sign requests with.
struct Key(SessionKey);

impl Seal for Key {
    fn seal(&self, digest: &[u8]) -> Result<Vec<u8>, String> {
        self.0.seal(digest).map_err(|refusal| refusal.message)
    }
}

/// Refuses a certificate whose time is over or has not come: the server would, in other words.
fn check_time(asked: &Asked) -> Result<(), Error> {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let now_s = i64::try_from(now_s).unwrap_or(i64::MAX);
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
