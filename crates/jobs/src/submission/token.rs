//! Tokens that come with a submission (fts3-rest 13): their names, and what they say of themselves.
//!
//! Nothing here says that a token is good: its signature is looked at where its issuer's keys are.

use std::collections::HashSet;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use gridlane_core::Secret;
use serde_json::{Map, Value};

use crate::names::{first_digits, with_slash};
use crate::{NewToken, Refusal, Submission};

/// The name of a token: the first 16 digits of its SHA-1.
pub fn token_id(token: &Secret) -> String {
    first_digits(&[token.expose()])
}

impl Submission {
    /// Uses this token for every source and destination, if the submission has none of its own: of a user with a token, the one that
    /// came with the request.
    pub fn lend(&mut self, token: Secret) {
        let token = Arc::new(token);
        let places = || self.files.iter().flat_map(|file| file.sources.iter().chain(&file.destinations));
        if places().any(|place| place.token.is_some()) {
            return;
        }
        for file in &mut self.files {
            for place in file.sources.iter_mut().chain(&mut file.destinations) {
                place.token = Some(Arc::clone(&token));
            }
        }
    }

    /// Its tokens, each once.
    ///
    /// # Errors
    /// 400 for one that is no JSON Web Token, or does not say its issuer, its end or its scope.
    pub fn tokens(&self) -> Result<Vec<NewToken>, Refusal> {
        let mut seen = HashSet::new();
        let mut tokens = Vec::new();
        for place in self.files.iter().flat_map(|file| file.sources.iter().chain(&file.destinations)) {
            let Some(token) = &place.token else { continue };
            if seen.insert(token.expose()) {
                tokens.push(read(token)?);
            }
        }
        Ok(tokens)
    }
}

/// The parts of a token that the service needs to keep it.
fn read(token: &Secret) -> Result<NewToken, Refusal> {
    let claims = claims(token.expose()).unwrap_or_default();
    let without = |claim: &str| Refusal::bad(format!("Token does not contain an {claim} claim"));
    let issuer = claims.get("iss").and_then(Value::as_str).filter(|issuer| !issuer.is_empty());
    let issuer = issuer.ok_or_else(|| without("iss"))?;
    let ends = claims.get("exp").and_then(Value::as_f64).ok_or_else(|| without("exp"))?;
    let scope = claims.get("scope").and_then(Value::as_str);
    let scope = scope.ok_or_else(|| Refusal::bad("Token does not contain a scope claim"))?;
    let audience = match claims.get("aud") {
        None | Some(Value::Null) => None,
        Some(Value::String(audience)) => Some(audience.clone()),
        Some(Value::Array(audiences)) if audiences.iter().all(Value::is_string) => {
            let audiences: Vec<&str> = audiences.iter().filter_map(Value::as_str).collect();
            Some(audiences.join(" "))
        }
        Some(_) => return Err(Refusal::bad("Token audience must be a null, string or list of strings")),
    };
    Ok(NewToken {
        id: token_id(token),
        access: token.clone(),
        issuer: with_slash(issuer),
        ends_s: ends as i64,
        scope: scope.to_owned(),
        audience,
    })
}

/// The claims of a JSON Web Token, whose signature is not looked at.
fn claims(token: &str) -> Option<Map<String, Value>> {
    let mut parts = token.split('.');
    let (payload, _signature) = (parts.nth(1)?, parts.next()?);
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
    serde_json::from_slice(&bytes).ok()
}
