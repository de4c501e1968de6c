//! Logins by certificate: XRootD's `gsi`, whose exchange is `gridlane-gsi`'s and whose chains are judged as those of TLS are.
//!
//! A round takes milliseconds of a processor: an operation with the server's private key, or the key exchange.

use std::sync::Arc;

use gridlane_auth::{Cause, Refusal};
use gridlane_core::limits;
use gridlane_gsi::{Server, ServerStep, SessionKey};
use gridlane_xrd::ErrorCode;
use gridlane_xrd::server::Unseal;
use tokio::task::JoinError;

use super::answer::Failure;
use super::rounds::{LoginProof, Outcome, Proof, Proved, Round};
use crate::auth::certificates::LoginChain;
use crate::auth::keys::now_s;
use crate::auth::presented::Kind;
use crate::client::Client;
use crate::front::Front;

/// A certificate or a proxy.
#[derive(Default)]
pub(super) struct Certificate {
    /// Between the rounds; `None` before the first, and once it has failed.
    server: Option<Server>,
    has_begun: bool,
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
        let (server, step, _turn) = worked.await.map_err(broke_off)?;
        match step? {
            ServerStep::Say(said) => {
                self.server = Some(server);
                Ok(Round::GoesOn(said))
            }
            ServerStep::Judge(chain) => {
                let chain = LoginChain::new(chain);
                let judged = chain.identity(front, now_s)?;
                let by = LoginProof::Chain(Arc::new(chain));
                let key = server.session_key().map(|key| Box::new(Key(key.clone())) as Box<dyn Unseal>);
                Ok(Round::Over(Some(Proved { identity: judged.identity, doubt: judged.doubt, by, key })))
            }
            // Nothing was asked for.
            ServerStep::Delegated(_) => {
                Err(Refusal::new(Cause::Malformed, "gsi: there was no request for a proxy"))
            }
        }
    }
}
