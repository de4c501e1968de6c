//! JSON Web Tokens: the WLCG profile, and SciTokens.

use gridlane_dav::ResourcePath;

use crate::operation::Grants;

/// Whoever makes tokens, and what they are worth here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// `iss`, exactly as tokens have it, with or without a slash at its end.
    pub url: String,
    /// Paths in scopes count from here.
    pub base: ResourcePath,
    /// What its scopes can allow at most.
    pub may: Grants,
    /// The virtual organisation that it speaks for.
    pub vo: Option<String>,
    /// Audiences that it may name this server by, instead of the server's own; empty: those.
    pub audiences: Vec<String>,
}
