//! Who asks: what clients prove of themselves.
//!
//! ```text
//! the connection's certificates ─▶ certificates ─┐
//! Authorization, ?authz= ─▶ presented ─▶ who ────┼─▶ Client: identity, address, and what of it does not count
//!                            keys (JSON Web Tokens), macaroons, passwords
//! ```
//!
//! A credential in a request is meant: it takes the place of the connection's certificate, and one that is bad is
//! refused, whatever anyone may do there. A certificate is what a client's library shows by itself: one that is bad counts
//! as none, and who is refused something is told why.
//!
//! Tokens, macaroons and passwords in clear text are refused, unless they come from this machine, or through a trusted
//! forwarder that says that they came to it by https: whoever sends a secret in the clear has lost it.
//!
//! Read first: `who`.

pub(crate) mod certificates;
pub(crate) mod chains;
pub mod challenge;
mod guesses;
pub mod keys;
pub mod macaroons;
pub(crate) mod metrics;
pub(crate) mod passwords;
pub mod presented;

use std::net::IpAddr;
use std::sync::Arc;

use gridlane_auth::{Cause, Identity, Refusal, token};
use gridlane_core::Secret;
use gridlane_dav::Status;
use gridlane_dav::request::RequestHead;
use gridlane_net::Stream;

use self::certificates::Shown;
use self::keys::now_s;
use self::presented::{Credential, Presented};
use crate::client::Client;
use crate::front::Front;
use crate::reply::Reply;

/// What a request comes by.
pub(crate) struct By<'a> {
    /// The client, nobody in particular yet.
    pub(crate) client: Client,
    /// Whether nobody between the client and us could read it.
    pub(crate) is_secure: bool,
    /// The connection.
    pub(crate) stream: &'a Stream,
    /// What its handshake has shown.
    pub(crate) shown: &'a mut Shown,
}

/// Who makes a request; and the macaroon that it has, from which others can be made. The answer if its credential is bad.
pub(crate) async fn who(
    front: &Front,
    head: &RequestHead,
    by: By<'_>,
) -> Result<(Client, Option<Secret>), Reply> {
    let asking = &front.asking;
    let mut client = by.client;
    let address = client.address;
    client.is_secure = by.is_secure;
    // Where nobody is asked, what clients bring of themselves is no business of ours.
    if !asking.is_any() {
        return Ok((client, None));
    }
    let presented = presented::of(head).and_then(|presented| match presented {
        Some(presented) if !by.is_secure => Err(presented.in_clear("https")),
        presented => Ok(presented),
    });
    let (kind, outcome) = match presented {
        Ok(None) => {
            if let Some(judged) = by.shown.judged(front, by.stream, now_s()) {
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
                // Another one would fare no better.
                Cause::Unavailable => Reply::failure(Status::SERVICE_UNAVAILABLE, refusal.message),
                Cause::Guessing => {
                    let wait_s = refusal.retry_after_s.unwrap_or(1).to_string();
                    Reply::failure(Status::TOO_MANY_REQUESTS, refusal.message).field("Retry-After", wait_s)
                }
                _ if !by.is_secure => Reply::failure(Status::FORBIDDEN, refusal.message),
                _ => asking.invalid(kind, &refusal),
            })
        }
    }
}

/// Who bears a token or a macaroon. Waits for its issuer's keys when they are not known.
pub(crate) async fn bearer(front: &Front, text: &Secret, address: IpAddr) -> Result<Arc<Identity>, Refusal> {
    match bearer_nowait(front, text, address) {
        Some(known) => known,
        None => front.issuer_keys.verify(text.expose(), now_s()).await,
    }
}

/// The same, if it was found good before or can be told without anybody's keys.
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
