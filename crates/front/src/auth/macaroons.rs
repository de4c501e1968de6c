//! The macaroons of this site, as credentials.

use std::net::IpAddr;

use gridlane_auth::identity::MacaroonIdentity;
use gridlane_auth::macaroon::{self, Check};
use gridlane_auth::{Cause, Refusal};
use gridlane_core::Secret;

use super::keys::now_s;
use crate::front::Front;

/// The location that macaroons of this server name: servers that share a secret have to have the same.
pub fn location(front: &Front) -> &str {
    front.root.site_name.as_deref().unwrap_or("gridlane")
}

/// The bearer of a macaroon, with its permissions. They depend on the client's address, and on the time.
pub(crate) fn verify(front: &Front, text: &Secret, address: IpAddr) -> Result<MacaroonIdentity, Refusal> {
    let Some(keys) = &front.auth.macaroons else {
        let what = "this server takes no macaroons, and the token is no JSON Web Token";
        return Err(Refusal::new(Cause::Untrusted, what));
    };
    let revoked = &front.auth.revoked_macaroons;
    let check = Check { keys, location: location(front), revoked, address, now_s: now_s() };
    macaroon::verify(text.expose(), &check)
}
