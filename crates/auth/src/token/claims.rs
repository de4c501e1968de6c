//! What a token says of itself, and the rules that its profile has for that.

use std::str::FromStr as _;

use gridlane_core::limits;
use serde_json::{Map, Value};

use super::json;
use super::scopes::Scopes;
use super::{Issuer, Profile};
use crate::fqan::Fqan;
use crate::identity::TokenIdentity;
use crate::refusal::{Cause, Refusal};

/// "Any relying party" (WLCG profile 2.1.1).
const WLCG_ANY_AUDIENCE: &str = "https://wlcg.cern.ch/jwt/v1/any";
/// The same for SciTokens.
const SCITOKENS_ANY_AUDIENCE: &str = "ANY";
/// A time that no real one comes near: behind it arithmetic with seconds would not be exact.
const SECONDS_MAX: i64 = 1 << 50;
const WHAT: &str = "the token's claims";

/// The claims of a token, whose signature is good.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claims<'a>(pub(super) &'a Map<String, Value>);

impl<'a> Claims<'a> {
    /// `iss`.
    pub(super) fn issuer(self) -> Result<&'a str, Refusal> {
        self.required("iss")
    }

    /// Which rules it follows.
    pub(super) fn profile(self) -> Result<Profile, Refusal> {
        if let Some(version) = self.text("wlcg.ver")? {
            let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            return match version.split_once('.') {
                // "If newer MINOR numbers are encountered the library MUST accept them" (4.3.3).
                Some(("1", minor)) if number(minor) => Ok(Profile::Wlcg),
                Some((major, minor)) if number(major) && number(minor) => Err(Refusal::new(
                    Cause::Unacceptable,
                    "the token follows a WLCG profile other than 1 (wlcg.ver)",
                )),
                _ => Err(malformed("\"wlcg.ver\" of the token is no version")),
            };
        }
        match self.text("ver")? {
            Some("scitoken:2.0" | "scitokens:2.0") => Ok(Profile::SciTokens2),
            Some("scitoken:1.0" | "scitokens:1.0") => Ok(Profile::SciTokens1),
            _ => {
                let message = "the token follows neither the WLCG profile (wlcg.ver) nor SciTokens (ver)";
                Err(Refusal::new(Cause::Unacceptable, message))
            }
        }
    }

    /// The bearer, and the rights that it grants.
    pub(super) fn identity(
        self,
        profile: Profile,
        issuer: &Issuer,
        audiences: &[String],
        now_s: i64,
    ) -> Result<TokenIdentity, Refusal> {
        let expires_s = self.check_times(profile, issuer.clock_skew_s, now_s)?;
        self.check_audience(
            profile,
            if issuer.audiences.is_empty() { audiences } else { &issuer.audiences },
        )?;
        let is_wlcg = profile == Profile::Wlcg;
        let subject = match self.name("sub")? {
            None if is_wlcg => return Err(missing("sub")),
            subject => subject.unwrap_or_default(),
        };
        let id = self.name("jti")?;
        if is_wlcg && id.is_none() {
            return Err(missing("jti"));
        }
        let scopes = Scopes::read(self.text("scope")?.unwrap_or_default(), profile, issuer)?;
        Ok(TokenIdentity {
            issuer: issuer.url.clone(),
            subject: subject.to_owned(),
            id: id.map(str::to_owned),
            scopes: scopes.all,
            capabilities: scopes.capabilities,
            is_capability: scopes.is_capability,
            groups: self.groups()?,
            vo: issuer.vo.clone(),
            expires_s,
        })
    }

    /// Returns when it expires.
    fn check_times(self, profile: Profile, skew_s: i64, now_s: i64) -> Result<i64, Refusal> {
        let expires_s = self.seconds("exp")?.ok_or_else(|| missing("exp"))?;
        let issued_s = self.seconds("iat")?;
        if issued_s.is_none() && profile != Profile::SciTokens1 {
            return Err(missing("iat"));
        }
        if now_s >= expires_s.saturating_add(skew_s) {
            let message = format!("the token expired {} s ago", now_s.saturating_sub(expires_s));
            return Err(Refusal::new(Cause::Expired, message));
        }
        for (begins_s, what) in [(self.seconds("nbf")?, "becomes valid"), (issued_s, "was made")] {
            let ahead_s = begins_s.map_or(0, |begins_s| begins_s.saturating_sub(now_s));
            if ahead_s > skew_s {
                let message = format!("the token {what} {ahead_s} s from now by this server's clock");
                return Err(Refusal::new(Cause::NotYetValid, message));
            }
        }
        Ok(expires_s)
    }

    fn check_audience(self, profile: Profile, own: &[String]) -> Result<(), Refusal> {
        let any = match profile {
            Profile::Wlcg => WLCG_ANY_AUDIENCE,
            Profile::SciTokens1 | Profile::SciTokens2 => SCITOKENS_ANY_AUDIENCE,
        };
        // RFC 7519, 4.1.3: compared as they are written.
        let is_this = |audience: &str| audience == any || own.iter().any(|own| own == audience);
        let is_for_us = match self.0.get("aud") {
            None if profile == Profile::SciTokens1 => return Ok(()),
            None => return Err(missing("aud")),
            Some(Value::String(audience)) => is_this(audience),
            Some(Value::Array(audiences)) if audiences.len() > limits::TOKEN_AUDIENCES_MAX => {
                let message = format!("the token has more than {} audiences", limits::TOKEN_AUDIENCES_MAX);
                return Err(Refusal::new(Cause::Unacceptable, message));
            }
            Some(Value::Array(audiences)) => {
                let mut is_for_us = false;
                for audience in audiences {
                    let Value::String(audience) = audience else {
                        return Err(malformed("an audience of the token is no text"));
                    };
                    is_for_us |= is_this(audience);
                }
                is_for_us
            }
            Some(_) => return Err(malformed("\"aud\" of the token is neither a text nor an array")),
        };
        if is_for_us {
            return Ok(());
        }
        let message = match own {
            [] => "the token was made for another server (aud); this one has no name for tokens".to_owned(),
            own => format!("the token was made for another server (aud); this one is {}", own.join(" or ")),
        };
        Err(Refusal::new(Cause::WrongAudience, message))
    }

    /// `wlcg.groups` (2.1.1). A token with anything else among them is refused.
    fn groups(self) -> Result<Vec<Fqan>, Refusal> {
        let groups = match self.0.get("wlcg.groups") {
            None => return Ok(Vec::new()),
            Some(Value::Array(groups)) => groups,
            Some(_) => return Err(malformed("\"wlcg.groups\" of the token is no array")),
        };
        if groups.len() > limits::TOKEN_GROUPS_MAX {
            let message = format!("the token has more than {} groups", limits::TOKEN_GROUPS_MAX);
            return Err(Refusal::new(Cause::Unacceptable, message));
        }
        let is_name = |name: &str| {
            name.starts_with(|first: char| first.is_ascii_alphanumeric())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
        };
        let read = |group: &Value| {
            let text = group.as_str()?;
            let is_group = text.strip_prefix('/')?.split('/').all(is_name);
            if is_group { Fqan::from_str(text).ok() } else { None }
        };
        let groups = groups
            .iter()
            .map(|group| read(group).ok_or_else(|| malformed("a group of the token is no group")));
        groups.collect()
    }

    fn text(self, key: &str) -> Result<Option<&'a str>, Refusal> {
        json::text(self.0, key, WHAT)
    }

    fn required(self, key: &str) -> Result<&'a str, Refusal> {
        self.text(key)?.ok_or_else(|| missing(key))
    }

    /// The form for logs: printable ASCII of bounded length (2.1.1).
    fn name(self, key: &str) -> Result<Option<&'a str>, Refusal> {
        let name = self.text(key)?;
        let is_name = |name: &str| {
            name.len() <= limits::TOKEN_NAME_BYTES_MAX && name.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        };
        match name.is_none_or(is_name) {
            true => Ok(name),
            false => Err(malformed(&format!("{key:?} of the token is too long, or not printable ASCII"))),
        }
    }

    /// Seconds since 1970 (RFC 7519, 2: perhaps with a fraction).
    fn seconds(self, key: &str) -> Result<Option<i64>, Refusal> {
        let Some(value) = self.0.get(key) else { return Ok(None) };
        #[expect(clippy::cast_possible_truncation, reason = "what is outside is excluded below")]
        let seconds = value.as_i64().or_else(|| value.as_f64().map(|seconds| seconds.floor() as i64));
        match seconds.filter(|seconds| (-SECONDS_MAX..=SECONDS_MAX).contains(seconds)) {
            Some(seconds) => Ok(Some(seconds)),
            None => Err(malformed(&format!("{key:?} of the token is no time"))),
        }
    }
}

fn missing(claim: &str) -> Refusal {
    malformed(&format!("the token has no {claim:?}"))
}

fn malformed(message: &str) -> Refusal {
    Refusal::new(Cause::Malformed, message)
}
