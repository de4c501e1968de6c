//! JSON Web Tokens: the WLCG profile, and SciTokens.
//!
//! ```text
//! text ─▶ Unverified (issuer on the list?) ─▶ KeyCache ─▶ verify: signature, profile, times, audience, scopes ─▶ TokenIdentity
//!                                                │ unknown key
//!                                                ▼
//!                                     the edge fetches: discovery, KeySet
//! ```
//!
//! Nothing of a token is believed, nor is any server asked about it, before its issuer is found on the operator's list.
//! Nothing of what this server is called or allows is told before its signature is found to be good.
//!
//! Read first: [`verify`], then [`keys`] and [`cache`].
//!
//! Specifications: JWS (RFC 7515), JWT (RFC 7519), its best practices (RFC 8725), WLCG Common JWT Profiles 1.0 to 1.3,
//! SciTokens 1.0 and 2.0.

pub mod cache;
pub mod discovery;
pub mod keys;
pub mod verified;

mod claims;
pub(crate) mod json;
mod scopes;
mod unverified;

use std::sync::Arc;

use gridlane_dav::ResourcePath;

use crate::fqan::Fqan;
use crate::identity::TokenIdentity;
use crate::operation::Grants;
use crate::refusal::{Cause, Refusal};

pub use cache::KeyCache;
pub use keys::KeySet;
pub use unverified::Unverified;
pub use verified::VerifiedTokens;

/// An issuer of tokens, and what they are worth here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// `iss`, exactly as tokens have it, with or without a slash at its end.
    pub url: String,
    /// Paths in scopes count from here.
    pub base: ResourcePath,
    /// The rights that its scopes can grant at most.
    pub may: Grants,
    /// The virtual organisation that it speaks for.
    pub vo: Option<String>,
    /// Audiences that it may name this server by, instead of the server's own; empty: those.
    pub audiences: Vec<String>,
    /// Difference between its clock and this server's that is borne, in seconds.
    pub clock_skew_s: i64,
}

/// The profile that a token follows. It says so itself (`wlcg.ver`, `ver`), and its issuer may say either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// WLCG Common JWT Profiles, 1.0 to 1.3.
    Wlcg,
    /// SciTokens 1.0: without an audience it is for all servers.
    SciTokens1,
    /// SciTokens 2.0.
    SciTokens2,
}

impl Profile {
    fn is_scitokens(self) -> bool {
        matches!(self, Profile::SciTokens1 | Profile::SciTokens2)
    }
}

/// True if a text is written like a JSON Web Token: in three parts. Everything else that a client calls a bearer
/// token is tried as a macaroon, which has no dots.
pub fn looks_like_one(text: &str) -> bool {
    text.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// The bearer of a token of this issuer with this subject, these scopes and these groups: for explaining what it
/// would be worth. `read:` and `write:` are SciTokens' scopes, `storage.read:` and the like the WLCG profile's.
///
/// # Errors
/// When a scope is not written as that profile has it.
pub fn would_be(
    issuer: &Issuer,
    subject: &str,
    scopes: &[String],
    groups: Vec<Fqan>,
) -> Result<TokenIdentity, Refusal> {
    let is_scitokens = scopes.iter().any(|scope| scope.starts_with("read:") || scope.starts_with("write:"));
    let profile = if is_scitokens { Profile::SciTokens2 } else { Profile::Wlcg };
    let scopes = scopes::Scopes::read(&scopes.join(" "), profile, issuer)?;
    Ok(TokenIdentity {
        issuer: issuer.url.clone(),
        subject: subject.to_owned(),
        id: None,
        scopes: scopes.all,
        capabilities: scopes.capabilities,
        is_capability: scopes.is_capability,
        groups,
        vo: issuer.vo.clone(),
        expires_s: i64::MAX,
    })
}

/// The bearer of a token, and the rights that it grants.
///
/// `keys` are those of an issuer that are known at the moment; `audiences` is what tokens may call this server.
///
/// # Errors
/// [`Cause::UnknownKey`] when the issuer's keys are not known, or the one that the token names is not among them: they
/// should be fetched, if that was not done just now. All other refusals are final.
pub fn verify(
    token: &str,
    issuers: &[Issuer],
    keys: impl FnOnce(&Issuer) -> Option<Arc<KeySet>>,
    audiences: &[String],
    now_s: i64,
) -> Result<TokenIdentity, Refusal> {
    let unverified = Unverified::read(token, issuers)?;
    let Some(keys) = keys(unverified.issuer()) else {
        return Err(Refusal::new(Cause::UnknownKey, "the keys of the token's issuer are not known"));
    };
    unverified.verify(&keys, audiences, now_s)
}
