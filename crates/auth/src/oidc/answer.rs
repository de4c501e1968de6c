//! Answers of an issuer about tokens (RFC 6749, 5).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gridlane_core::text::printable;
use gridlane_core::{Secret, limits};
use serde_json::{Map, Value};

use super::Call;
use crate::refusal::{Cause, Refusal};
use crate::token::json;

const WHAT: &str = "the issuer's answer";

/// Tokens that an issuer gave; their `Debug` does not show them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// The token that was asked for, which is the access token but for exchanges.
    pub access: Secret,
    /// For how many seconds it is good: by the answer, or by the token itself if that can be read. `None`: nothing says it.
    pub lasts_s: Option<u64>,
    /// The refresh token that takes the place of the one that was used, if there was one; `None`: that stays good.
    pub refresh: Option<Secret>,
    /// The scopes that were granted, if they are not those that were asked for.
    pub scope: Option<String>,
}

/// An answer without a token that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The reason.
    pub refusal: Refusal,
    /// The refresh token that is in it all the same: the one that was used may be good no longer.
    pub refresh: Option<Secret>,
}

impl From<Refusal> for Unusable {
    fn from(refusal: Refusal) -> Unusable {
        Unusable { refusal, refresh: None }
    }
}

/// An issuer's reason for giving nothing, in its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerWords {
    /// `error`, a word from RFC 6749 5.2, RFC 8628 3.5 or RFC 8693 2.2.2.
    pub error: String,
    /// `error_description`, without the secrets of the request.
    pub description: Option<String>,
}

impl IssuerWords {
    /// True if the person has not allowed the login yet.
    pub fn is_pending(&self) -> bool {
        self.error == "authorization_pending"
    }

    /// True if it was asked too often.
    pub fn is_too_often(&self) -> bool {
        self.error == "slow_down"
    }

    /// True if what a token was asked for with is no longer good: revoked, expired, used already, or denied by the person.
    pub fn is_over(&self) -> bool {
        matches!(self.error.as_str(), "invalid_grant" | "expired_token" | "access_denied")
    }

    /// True if asking again later may help.
    pub fn is_temporary(&self) -> bool {
        matches!(self.error.as_str(), "temporarily_unavailable" | "server_error")
    }
}

impl fmt::Display for IssuerWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)?;
        match &self.description {
            Some(description) => write!(f, ": {description}"),
            None => Ok(()),
        }
    }
}

/// Reads the answer to `call`, of this status: tokens, or the issuer's words why there are none. `now_s` is in seconds since
/// 1970.
///
/// # Errors
/// It is no such answer, or the token in it cannot be shown to any server.
pub fn read_tokens(
    status: u16,
    body: &[u8],
    call: &Call,
    now_s: i64,
) -> Result<Result<Tokens, IssuerWords>, Unusable> {
    let answer = match object(status, body, call)? {
        Ok(answer) => answer,
        Err(words) => return Ok(Err(words)),
    };
    let refresh = token(&answer, "refresh_token", limits::REFRESH_TOKEN_BYTES_MAX)?;
    let access = match access_token(&answer) {
        Ok(access) => access,
        Err(refusal) => return Err(Unusable { refusal, refresh }),
    };
    let said_s = seconds(&answer, "expires_in");
    let lasts_s = said_s.or_else(|| {
        let left_s = end_of_jwt_s(access.expose())?.saturating_sub(now_s);
        Some(u64::try_from(left_s).unwrap_or(0).min(limits::TOKEN_LIFETIME_MAX_S))
    });
    // Some issuers write it as a list; it is told, and nothing depends on it.
    let scope =
        json::text(&answer, "scope", WHAT).ok().flatten().map(shown).filter(|scope| !scope.is_empty());
    Ok(Ok(Tokens { access, lasts_s, refresh, scope }))
}

fn access_token(answer: &Map<String, Value>) -> Result<Secret, Refusal> {
    let access = token(answer, "access_token", limits::TOKEN_BYTES_MAX)?
        .ok_or_else(|| malformed("there is no token in it"))?;
    // RFC 6749, 7.1: a token of a kind that is not understood must not be used. RFC 8693, 2.2.1: `N_A` is of no kind.
    let kind = json::text(answer, "token_type", WHAT)?.unwrap_or("bearer");
    if !kind.eq_ignore_ascii_case("bearer") && kind != "N_A" {
        return Err(malformed("its token is of another type than Bearer"));
    }
    Ok(access)
}

/// The object of an answer that is 200, or the issuer's words of one that is not.
pub(super) fn object(
    status: u16,
    body: &[u8],
    call: &Call,
) -> Result<Result<Map<String, Value>, IssuerWords>, Refusal> {
    if body.len() > limits::LOGIN_ANSWER_BYTES_MAX {
        return Err(Refusal::new(Cause::Unacceptable, format!("{WHAT} is too long")));
    }
    let unavailable = |words: String| Refusal::new(Cause::Unavailable, words);
    let read = json::object(body, WHAT);
    if status == 200 {
        let answer = read?;
        // Some issuers say so under the wrong status.
        return Ok(match answer.contains_key("error") {
            true => Err(words(&answer, call)?),
            false => Ok(answer),
        });
    }
    match read {
        Ok(answer) if answer.get("error").is_some_and(Value::is_string) => {
            let words = words(&answer, call)?;
            match status >= 500 && !words.is_over() {
                true => Err(unavailable(format!("the issuer answered {status}: {words}"))),
                false => Ok(Err(words)),
            }
        }
        _ if status >= 500 || status == 429 => Err(unavailable(format!("the issuer answered {status}"))),
        _ => Err(malformed(&format!("it is {status} and does not say why"))),
    }
}

fn words(answer: &Map<String, Value>, call: &Call) -> Result<IssuerWords, Refusal> {
    let error = json::text(answer, "error", WHAT)?.ok_or_else(|| malformed("it does not say why"))?;
    let description = json::text(answer, "error_description", WHAT)?;
    let clean = |text: &str| {
        let mut text = text.to_owned();
        for secret in call.secrets.iter().filter(|secret| !secret.expose().is_empty()) {
            text = text.replace(secret.expose(), "…");
        }
        // What was cut out of a secret by the issuer is not found above, and words are short.
        let words = text.split_whitespace().map(|word| if word.len() > WORD_BYTES_MAX { "…" } else { word });
        shown(&words.collect::<Vec<_>>().join(" "))
    };
    let description = description.map(clean).filter(|description| !description.is_empty());
    Ok(IssuerWords { error: clean(error), description })
}

/// Bytes of a word of an issuer's text that is repeated: longer ones may be parts of tokens.
const WORD_BYTES_MAX: usize = 64;

/// A token in an answer: `None` when it is not there, or empty.
pub(super) fn token(
    answer: &Map<String, Value>,
    key: &str,
    bytes_max: usize,
) -> Result<Option<Secret>, Refusal> {
    let Some(text) = json::text(answer, key, WHAT)?.filter(|text| !text.is_empty()) else { return Ok(None) };
    // RFC 6749, appendix A: VSCHAR; an access token is a part of a header field besides.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    match is_plain && text.len() <= bytes_max {
        true => Ok(Some(Secret::new(text))),
        false => Err(malformed(&format!("its {key} is not written as tokens are"))),
    }
}

/// A number of seconds, which some issuers write as a text.
pub(super) fn seconds(answer: &Map<String, Value>, key: &str) -> Option<u64> {
    let value = answer.get(key)?;
    let whole = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let seconds =
        whole.or_else(|| value.as_f64().filter(|seconds| *seconds >= 0.0).map(|seconds| seconds as u64));
    seconds.map(|seconds| seconds.min(limits::TOKEN_LIFETIME_MAX_S))
}

/// When a JSON Web Token says that it ends, which nothing proves, in seconds since 1970.
fn end_of_jwt_s(token: &str) -> Option<i64> {
    let mut parts = token.split('.');
    let payload = parts.nth(1)?;
    let claims = json::object(&URL_SAFE_NO_PAD.decode(payload).ok()?, WHAT).ok()?;
    let end = claims.get("exp")?;
    end.as_i64().or_else(|| end.as_f64().map(|seconds| seconds as i64))
}

/// An issuer's words as they may be shown.
pub(super) fn shown(text: &str) -> String {
    printable(text).chars().take(limits::ISSUER_WORDS_CHARS_MAX).collect()
}

pub(super) fn malformed(why: &str) -> Refusal {
    Refusal::new(Cause::Malformed, format!("{WHAT} is not understood: {why}"))
}
