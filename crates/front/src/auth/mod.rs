//! Authentication: the identity that a client's credentials prove.
//!
//! ```text
//! the connection's certificates ─▶ certificates ──────────┐
//! Authorization, ?authz= ─▶ presented ─▶ authenticate ────┼─▶ Client: identity, address, and what of it does not count
//!                            keys (JSON Web Tokens), macaroons, passwords
//! ```
//!
//! Credentials in a request are meant: they take the place of the connection's certificate, and bad ones are refused,
//! whatever the rules allow there. A certificate is shown by a client's library without being asked to: a bad one
//! counts as none, and a client that is refused something is told why.
//!
//! Tokens, macaroons and passwords in clear text are refused, unless they come from this machine, or through a trusted
//! forwarder that says that they came to it by https: a secret that was sent in the clear is lost.
//!
//! Read first: `authenticate`.

pub mod certificates;
pub(crate) mod chains;
pub mod challenge;
mod guesses;
pub mod keys;
pub mod macaroons;
pub(crate) mod metrics;
pub(crate) mod passwords;
pub mod presented;
pub(crate) mod turns;

use std::net::IpAddr;
use std::sync::Arc;

use gridlane_auth::{Cause, Identity, Refusal, token};
use gridlane_core::Secret;
use gridlane_dav::Status;
use gridlane_dav::request::RequestHead;
use gridlane_net::Stream;

use self::certificates::PeerChain;
use self::keys::now_s;
use self::presented::{Credential, Presented};
use crate::client::Client;
use crate::front::Front;
use crate::reply::Reply;

/// The connection that a request came by.
pub(crate) struct Via<'a> {
    /// The client, still anonymous.
    pub(crate) client: Client,
    /// True if no third party can read what the client sends.
    pub(crate) is_secure: bool,
    /// The connection.
    pub(crate) stream: &'a Stream,
    /// The certificate chain of its handshake.
    pub(crate) chain: &'a mut PeerChain,
}

/// The client that makes a request; and its macaroon, from which others can be made. The answer if its credentials are
/// bad.
pub(crate) async fn authenticate(
    front: &Front,
    head: &RequestHead,
    via: Via<'_>,
) -> Result<(Client, Option<Secret>), Reply> {
    let auth_methods = &front.auth_methods;
    let mut client = via.client;
    let address = client.address;
    client.is_secure = via.is_secure;
    // Where no method is configured, clients' credentials are ignored.
    if !auth_methods.is_any() {
        return Ok((client, None));
    }
    let presented = presented::of(head).and_then(|presented| match presented {
        Some(presented) if !via.is_secure => Err(presented.in_clear("https")),
        presented => Ok(presented),
    });
    let (kind, outcome) = match presented {
        Ok(None) => {
            if let Some(judged) = via.chain.judged(front, via.stream, now_s()) {
                client.identity = judged.identity;
                client.doubt = judged.doubt;
            }
            front.data.metrics.auth.came(&client.identity);
            return Ok((client, None));
        }
        Ok(Some(Presented { kind, credential })) => {
            // Kept elsewhere: most requests have none.
            (kind, Box::pin(verify(front, &credential, address)).await)
        }
        Err(bad) => (bad.kind, Err(bad.refusal)),
    };
    match outcome {
        Ok((identity, macaroon)) => {
            front.data.metrics.auth.came(&identity);
            client.identity = identity;
            Ok((client, macaroon))
        }
        Err(refusal) => {
            front.data.metrics.auth.refused(kind, refusal.cause);
            Err(match refusal.cause {
                // Other credentials would fare no better.
                Cause::Unavailable => Reply::failure(Status::SERVICE_UNAVAILABLE, refusal.message),
                Cause::Guessing => {
                    let wait_s = refusal.retry_after_s.unwrap_or(1).to_string();
                    Reply::failure(Status::TOO_MANY_REQUESTS, refusal.message).field("Retry-After", wait_s)
                }
                _ if !via.is_secure => Reply::failure(Status::FORBIDDEN, refusal.message),
                _ => auth_methods.invalid(kind, &refusal),
            })
        }
    }
}

/// The bearer of a token or a macaroon. Waits for its issuer's keys when they are not known.
pub(crate) async fn bearer(front: &Front, text: &Secret, address: IpAddr) -> Result<Arc<Identity>, Refusal> {
    match bearer_nowait(front, text, address) {
        Some(known) => known,
        None => front.issuer_keys.verify(text.expose(), now_s()).await,
    }
}

/// The same, if it was found good before or needs no keys.
pub(crate) fn bearer_nowait(
    front: &Front,
    text: &Secret,
    address: IpAddr,
) -> Option<Result<Arc<Identity>, Refusal>> {
    if !token::looks_like_one(text.expose()) {
        let verified = macaroons::verify(front, text, address);
        return Some(verified.map(|macaroon| Arc::new(Identity::Macaroon(macaroon))));
    }
    if front.auth.issuers.is_empty() {
        let what = "this server takes no JSON Web Tokens";
        return Some(Err(Refusal::new(Cause::Untrusted, what)));
    }
    front.issuer_keys.seen(text.expose(), now_s()).map(Ok)
}

async fn verify(
    front: &Front,
    credential: &Credential,
    address: IpAddr,
) -> Result<(Arc<Identity>, Option<Secret>), Refusal> {
    match credential {
        Credential::Bearer(text) => {
            let identity = bearer(front, text, address).await?;
            let macaroon = matches!(*identity, Identity::Macaroon(_)).then(|| text.clone());
            Ok((identity, macaroon))
        }
        Credential::Password { name, password } => {
            if front.auth.users.is_empty() {
                let what = "this server takes no passwords";
                return Err(Refusal::new(Cause::Untrusted, what));
            }
            let user = front.passwords.verify(&front.auth.users, name, password, address).await?;
            Ok((Arc::new(Identity::User(user)), None))
        }
    }
}
