//! Tokens that are made here, by the rules and against each of them.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

mod cached;
mod claims;
mod issuers;
mod paths;
mod signatures;
mod signer;

use std::sync::Arc;

use gridlane_auth::identity::TokenIdentity;
use gridlane_auth::token::{Issuer, KeyCache, KeySet, VerifiedTokens, discovery, looks_like_one, verify};
use gridlane_auth::{Cause, Grants, Refusal};
use gridlane_dav::ResourcePath;
use serde_json::{Value, json};
use signer::Signer;

/// The time in tests.
const NOW_S: i64 = 1_800_000_000;
const ISSUER: &str = "https://iam.example/vo/";
const SERVER: &str = "https://storage.example:1094";

/// An issuer of the list: everything that is below `/data/vo`.
fn issuer() -> Issuer {
    Issuer {
        url: ISSUER.to_owned(),
        base: ResourcePath::parse("/data/vo").unwrap(),
        may: Grants::ADMIN,
        vo: Some("vo".to_owned()),
        audiences: Vec::new(),
        clock_skew_s: 60,
    }
}

/// The claims of a token of the WLCG profile.
fn wlcg() -> Value {
    json!({
        "iss": ISSUER, "sub": "b7a4", "aud": SERVER, "exp": NOW_S + 3600, "iat": NOW_S, "nbf": NOW_S - 60, "jti": "1",
        "wlcg.ver": "1.0", "scope": "storage.read:/",
    })
}

/// The claims of a SciToken.
fn scitoken() -> Value {
    json!({
        "iss": ISSUER, "sub": "b7a4", "aud": "ANY", "exp": NOW_S + 3600, "iat": NOW_S, "nbf": NOW_S,
        "ver": "scitoken:2.0", "scope": "read:/",
    })
}

/// The same with something else for a claim, or without it.
fn with(mut claims: Value, changes: &Value) -> Value {
    for (key, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => claims.as_object_mut().unwrap().remove(key),
            value => claims.as_object_mut().unwrap().insert(key.clone(), value.clone()),
        };
    }
    claims
}

fn verified(token: &str, keys: &KeySet) -> Result<TokenIdentity, Refusal> {
    verify(token, &[issuer()], |_| Some(Arc::new(keys.clone())), &[SERVER.to_owned()], NOW_S)
}

/// The verdict about claims with a good signature.
fn of_claims(claims: &Value) -> Result<TokenIdentity, Refusal> {
    let signer = Signer::shared();
    verified(&signer.token(claims), &signer.key_set())
}

/// The capabilities of scopes, as `grants /path` each.
fn of_scopes(claims: Value, scope: &str) -> Result<Vec<String>, Refusal> {
    let identity = of_claims(&with(claims, &json!({ "scope": scope })))?;
    Ok(identity.capabilities.iter().map(|able| format!("{} {}", able.may, able.under)).collect())
}
