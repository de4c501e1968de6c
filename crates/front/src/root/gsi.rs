//! Logins by certificate: XRootD's `gsi`, whose exchange is `gridlane-gsi`'s and whose chains are judged as those of TLS are.
//!
//! A round takes milliseconds of a processor: an operation with the server's private key, or the key exchange. To make the key of a
//! proxy that a client is asked for takes a tenth of a second.

use std::sync::Arc;

use gridlane_auth::make::{self, pem};
use gridlane_auth::{Cause, Refusal, delegation};
use gridlane_core::{Error, limits};
use gridlane_gsi::{Server, ServerStep, SessionKey, generate_rsa_pkcs8};
use gridlane_net::tls::ClientIdentity;
use gridlane_xrd::ErrorCode;
use gridlane_xrd::server::Unseal;
use ring::rand::SystemRandom;
use tokio::task::JoinError;

use super::answer::Failure;
use super::identity;
use super::rounds::{LoginProof, Outcome, Proof, Proved, Round};
use crate::auth::certificates::{Judged, LoginChain};
use crate::auth::keys::now_s;
use crate::auth::presented::Kind;
use crate::client::Client;
use crate::front::Front;

/// Bits of the key of a proxy that a client lends.
const LENT_KEY_BITS: u32 = 2048;

/// A certificate or a proxy.
pub(super) struct Certificate {
    /// Between the rounds; `None` before the first, and once it has failed.
    server: Option<Server>,
    has_begun: bool,
    /// The client is asked for a proxy, if it would give one.
    asks: bool,
    /// A proxy is awaited.
    awaited: Option<Awaited>,
}

/// A client that is believed, and is asked for a proxy.
struct Awaited {
    chain: LoginChain,
    judged: Judged,
    session_key: Option<Box<dyn Unseal>>,
    /// The key of the proxy, which is made here.
    key: make::Key,
}

/// The key of a session, for the signatures of its requests.
struct Key(SessionKey);

impl Unseal for Key {
    fn unseal(&self, signature: &[u8]) -> Option<Vec<u8>> {
        self.0.open(signature).ok()
    }
}

impl Proof for Certificate {
    fn round<'a>(&'a mut self, front: &'a Front, client: &'a Client, data: &'a [u8]) -> Outcome<'a> {
        Box::pin(async move {
            let outcome = self.go_on(front, client, data).await;
            outcome.map_err(|refusal| {
                front.data.metrics.auth.refused(Kind::Certificate, refusal.cause);
                let code = match refusal.cause {
                    // Other credentials would fare no better, and the same may later.
                    Cause::Unavailable => ErrorCode::OVERLOADED,
                    _ => ErrorCode::AUTH_FAILED,
                };
                Failure::new(code, refusal.message)
            })
        })
    }
}

/// The work of a login has not come to its end: a defect, or the end of the server.
fn broke_off(cause: JoinError) -> Refusal {
    match cause.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Refusal::new(Cause::Unavailable, "gsi: the server is stopping"),
    }
}

impl Certificate {
    /// `is_for_copies`: the session is for a third-party copy, for which a client may lend a proxy.
    pub(super) fn new(is_for_copies: bool) -> Certificate {
        Certificate { server: None, has_begun: false, asks: is_for_copies, awaited: None }
    }

    async fn go_on(&mut self, front: &Front, client: &Client, data: &[u8]) -> Result<Round, Refusal> {
        let busy =
            || Refusal::new(Cause::Unavailable, "too many clients log in by certificate; try again later");
        let mut server = match (self.server.take(), &front.auth.gsi_host) {
            (Some(server), _) => server,
            (None, Some(host)) if !self.has_begun => Server::new(Arc::clone(host)),
            _ => return Err(Refusal::new(Cause::Malformed, "gsi: this login has failed; begin another one")),
        };
        self.has_begun = true;
        let turn = front.logins.take(client.address, limits::PASSWORD_WAIT_MAX).await.ok_or_else(busy)?;
        let (data, now_s) = (data.to_vec(), now_s());
        let worked = tokio::task::spawn_blocking(move || {
            let step = server.receive(&data, now_s);
            (server, step, turn)
        });
        // The turn is for what is judged after it as well.
        let (server, step, turn) = worked.await.map_err(broke_off)?;
        match step? {
            ServerStep::Say(said) => {
                self.server = Some(server);
                Ok(Round::GoesOn(said))
            }
            ServerStep::Judge(chain) => {
                let chain = LoginChain::new(chain);
                let judged = chain.identity(front, now_s)?;
                let session_key =
                    server.session_key().map(|key| Box::new(Key(key.clone())) as Box<dyn Unseal>);
                if !(self.asks && identity::takes_proxies(front) && server.may_ask()) {
                    return Ok(over(chain, judged, session_key));
                }
                // To make a key takes longer than all the rest: it has turns of its own.
                drop(turn);
                let making = front.lent_keys.take(client.address, limits::PASSWORD_WAIT_MAX).await;
                let making = making.ok_or_else(busy)?;
                let subject = chain.certificates().first().map(|first| first.to_vec()).unwrap_or_default();
                let worked = tokio::task::spawn_blocking(move || {
                    let _making = making;
                    ask(server, &subject)
                });
                match worked.await.map_err(broke_off)? {
                    Ok((server, key, said)) => {
                        self.server = Some(server);
                        self.awaited = Some(Awaited { chain, judged, session_key, key });
                        Ok(Round::GoesOn(said))
                    }
                    // A client that is believed comes in whether or not it can be asked.
                    Err(refusal) => Ok(over(chain.with_delegated(Err(refusal.message)), judged, session_key)),
                }
            }
            ServerStep::Delegated(answer) => {
                let Some(Awaited { chain, judged, session_key, key }) = self.awaited.take() else {
                    return Err(Refusal::new(Cause::Malformed, "gsi: there was no request for a proxy"));
                };
                // A client that lends none is let in all the same.
                let lent = answer
                    .and_then(|proxy| lent(&chain, &proxy, &key, now_s).map_err(|refusal| refusal.message));
                let chain = chain.with_delegated(lent);
                Ok(over(chain, judged, session_key))
            }
        }
    }
}

/// The end of a login.
fn over(chain: LoginChain, judged: Judged, key: Option<Box<dyn Unseal>>) -> Round {
    let Judged { identity, doubt } = judged;
    Round::Over(Some(Proved { identity, doubt, by: LoginProof::Chain(Arc::new(chain)), key }))
}

/// Makes a key and asks for a proxy with it, below the certificate (DER) that the client has shown.
fn ask(mut server: Server, certificate: &[u8]) -> Result<(Server, make::Key, Vec<u8>), Refusal> {
    let random = SystemRandom::new();
    let failed = |error: Error| Refusal::new(Cause::Unavailable, format!("gsi: {}", error.message()));
    let key = make::Key::from_pkcs8(&generate_rsa_pkcs8(LENT_KEY_BITS)?, &random).map_err(failed)?;
    let subject = make::Contents::read(certificate).map_err(failed)?.subject;
    let request = make::proxy_request(&subject, &key, &random).map_err(failed)?;
    let said = server.ask(pem::encode(pem::REQUEST, &request).as_bytes())?;
    Ok((server, key, said))
}

/// The proxy that a client has lent, with the chain that it has shown.
fn lent(chain: &LoginChain, proxy: &[u8], key: &make::Key, now_s: i64) -> Result<ClientIdentity, Refusal> {
    let chain = delegation::accept_of_session(proxy, &key.public_key(), chain.certificates(), now_s)?;
    let chain: String = chain.iter().map(|der| pem::encode(pem::CERTIFICATE, der)).collect();
    ClientIdentity::from_pem(chain.as_bytes(), key.to_pem().expose().as_bytes())
        .map_err(|error| Refusal::new(Cause::Malformed, format!("the delegated proxy: {}", error.message())))
}
