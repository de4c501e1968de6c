//! A token that was taken apart, and whose signature is still to be verified (RFC 7515, 3.1 and 5.2).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gridlane_core::limits;
use serde_json::{Map, Value};

use super::claims::Claims;
use super::keys::{Algorithm, KeySet};
use super::{Issuer, Profile, json};
use crate::identity::TokenIdentity;
use crate::refusal::{Cause, Refusal};

/// Values of `typ` that an access token may have (RFC 7519, 5.1; RFC 9068, 2.1).
const TYPES: [&str; 4] = ["jwt", "application/jwt", "at+jwt", "application/at+jwt"];

/// A token of an issuer on the list, as it says itself. Nothing is proved.
#[derive(Debug)]
pub struct Unverified<'a> {
    issuer: &'a Issuer,
    algorithm: Algorithm,
    key_id: Option<String>,
    profile: Profile,
    claims: Map<String, Value>,
    /// Header and claims, as they are encoded.
    signed: &'a [u8],
    signature: Vec<u8>,
}

impl<'a> Unverified<'a> {
    /// Takes a token apart, in compact form.
    ///
    /// # Errors
    /// A fault of the text; [`Cause::Untrusted`] when its issuer is none of `issuers`.
    pub fn read(token: &'a str, issuers: &'a [Issuer]) -> Result<Unverified<'a>, Refusal> {
        if token.len() > limits::TOKEN_BYTES_MAX {
            let message = format!("the token has more than {} bytes", limits::TOKEN_BYTES_MAX);
            return Err(Refusal::new(Cause::Unacceptable, message));
        }
        let malformed = |message: &str| Refusal::new(Cause::Malformed, message);
        let mut parts = token.split('.');
        let (Some(header), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed("the token does not have three parts"));
        };
        let signed = &token.as_bytes()[..header.len() + 1 + claims.len()];
        let decoded = |part: &str, what: &str| {
            let decoded = URL_SAFE_NO_PAD.decode(part);
            decoded.map_err(|_| {
                malformed(&format!("the token's {what} is not encoded as it has to be (base64url)"))
            })
        };
        let header = json::object(&decoded(header, "header")?, "the token's header")?;
        let (algorithm, key_id) = read_header(&header)?;
        let claims = json::object(&decoded(claims, "second part")?, "the token's second part")?;
        let signature = decoded(signature, "signature")?;
        let url = Claims(&claims).issuer()?;
        let Some(issuer) = issuers.iter().find(|issuer| issuer.url == url) else {
            return Err(Refusal::new(Cause::Untrusted, "the token's issuer is not trusted here"));
        };
        let profile = Claims(&claims).profile()?;
        if profile == Profile::Wlcg && key_id.is_none() {
            return Err(malformed("the token does not say which key it was signed with (kid)"));
        }
        Ok(Unverified { issuer, algorithm, key_id, profile, claims, signed, signature })
    }

    /// The issuer that it names: one on the list.
    pub fn issuer(&self) -> &'a Issuer {
        self.issuer
    }

    /// The bearer, and the rights that it grants. The signature comes first: a forger learns nothing else.
    ///
    /// # Errors
    /// Those of [`verify`](super::verify).
    pub fn verify(&self, keys: &KeySet, audiences: &[String], now_s: i64) -> Result<TokenIdentity, Refusal> {
        let key = keys.find(self.key_id.as_deref(), self.algorithm)?;
        if !key.verifies(self.algorithm, self.signed, &self.signature) {
            return Err(Refusal::new(Cause::BadSignature, "the token's signature is not its issuer's"));
        }
        Claims(&self.claims).identity(self.profile, self.issuer, audiences, now_s)
    }
}

fn read_header(header: &Map<String, Value>) -> Result<(Algorithm, Option<String>), Refusal> {
    let what = "the token's header";
    let name = json::text(header, "alg", what)?;
    let name = name.ok_or_else(|| Refusal::new(Cause::Malformed, "the token's header has no \"alg\""))?;
    let Some(algorithm) = Algorithm::named(name) else {
        let names = Algorithm::ALL.map(Algorithm::name).join(", ");
        let message = format!("the token's algorithm is none of those that are accepted: {names}");
        return Err(Refusal::new(Cause::Unacceptable, message));
    };
    // RFC 7515, 4.1.11: what has to be understood. We know of no such extension.
    if header.contains_key("crit") {
        return Err(Refusal::new(
            Cause::Unacceptable,
            "the token's header has extensions that are not known (crit)",
        ));
    }
    if let Some(kind) = json::text(header, "typ", what)?
        && !TYPES.contains(&kind.to_ascii_lowercase().as_str())
    {
        return Err(Refusal::new(
            Cause::Unacceptable,
            "the token is of another type than JWT and at+jwt (typ)",
        ));
    }
    let key_id = json::text(header, "kid", what)?;
    if key_id.is_some_and(|id| id.len() > limits::TOKEN_NAME_BYTES_MAX) {
        return Err(Refusal::new(Cause::Unacceptable, "the name of the token's key is too long (kid)"));
    }
    Ok((algorithm, key_id.map(str::to_owned)))
}
