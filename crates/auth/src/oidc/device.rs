//! A login that a person allows with another device, or in a browser: RFC 8628.

use std::time::Duration;

use gridlane_core::{Secret, Url, limits};

use super::answer::{malformed, object, seconds, shown, token};
use super::provider::place;
use super::{Call, IssuerWords};
use crate::refusal::Refusal;
use crate::token::json;

/// What an issuer gives to begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceGrant {
    /// Stands for the login when a token is asked for.
    pub code: Secret,
    /// The person types it at the issuer's page.
    pub user_code: String,
    /// The issuer's page.
    pub page: Url,
    /// The same page with the code filled in.
    pub page_with_code: Option<Url>,
    /// For how many seconds the code is good.
    pub lasts_s: u64,
    /// Seconds between two questions.
    pub interval_s: u64,
}

/// Reads the answer to `call`, of this status.
///
/// # Errors
/// It is no such answer.
pub fn read_device(
    status: u16,
    body: &[u8],
    call: &Call,
) -> Result<Result<DeviceGrant, IssuerWords>, Refusal> {
    const WHAT: &str = "the issuer's answer";
    let answer = match object(status, body, call)? {
        Ok(answer) => answer,
        Err(words) => return Ok(Err(words)),
    };
    let code = token(&answer, "device_code", limits::REFRESH_TOKEN_BYTES_MAX)?;
    let code = code.ok_or_else(|| malformed("there is no device_code in it"))?;
    let user_code = json::text(&answer, "user_code", WHAT)?.map(shown).unwrap_or_default();
    if user_code.is_empty() || user_code.chars().count() > limits::USER_CODE_CHARS_MAX {
        return Err(malformed("there is no code for a person in it"));
    }
    // Google has the older name.
    let page = match json::text(&answer, "verification_uri", WHAT)? {
        Some(page) => Some(page),
        None => json::text(&answer, "verification_url", WHAT)?,
    };
    let no_page = || malformed("the page for the person's code is no https URL");
    let page = page.and_then(place).ok_or_else(no_page)?;
    let page_with_code = match json::text(&answer, "verification_uri_complete", WHAT)? {
        Some(text) => Some(place(text).ok_or_else(no_page)?),
        None => None,
    };
    let lasts_s = seconds(&answer, "expires_in")
        .ok_or_else(|| malformed("it does not say how long the code is good"))?;
    let lasts_s = lasts_s.min(limits::DEVICE_WAIT_MAX_S);
    let interval_s = seconds(&answer, "interval").unwrap_or(limits::DEVICE_INTERVAL_S);
    let interval_s = interval_s.clamp(1, limits::DEVICE_INTERVAL_MAX_S);
    Ok(Ok(DeviceGrant { code, user_code, page, page_with_code, lasts_s, interval_s }))
}

/// When to ask if the person has allowed the login. Times are since any moment, the same for all calls.
///
/// Call [`step`](DeviceFlow::step), do as it says, and tell what came of a question by [`pending`](DeviceFlow::pending) or
/// [`unreached`](DeviceFlow::unreached); any other answer ends the login.
#[derive(Clone, Debug)]
pub struct DeviceFlow {
    end: Duration,
    interval: Duration,
    next: Duration,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, for this long.
    Wait(Duration),
    /// Ask the issuer.
    Ask,
    /// Give up: the code is no longer good.
    Expired,
}

impl DeviceFlow {
    /// A login that begins now.
    pub fn new(grant: &DeviceGrant, now: Duration) -> DeviceFlow {
        let interval = Duration::from_secs(grant.interval_s);
        DeviceFlow { end: now + Duration::from_secs(grant.lasts_s), interval, next: now + interval }
    }

    /// What to do at this moment.
    pub fn step(&self, now: Duration) -> Step {
        match self.next.checked_sub(now) {
            _ if now >= self.end => Step::Expired,
            None | Some(Duration::ZERO) => Step::Ask,
            // The last question comes when the code is about to end, and not after that.
            Some(wait) => Step::Wait(wait.min(self.end - now)),
        }
    }

    /// The person has not decided yet, or the issuer was asked too often. `false`: it says something else, which ends the
    /// login.
    pub fn pending(&mut self, words: &IssuerWords, now: Duration) -> bool {
        if words.is_too_often() {
            self.slow_down(self.interval + Duration::from_secs(limits::DEVICE_SLOWER_S));
        }
        self.next = now + self.interval;
        words.is_pending() || words.is_too_often()
    }

    /// The issuer could not be asked: the next question waits twice as long (RFC 8628, 3.5).
    pub fn unreached(&mut self, now: Duration) {
        self.slow_down(2 * self.interval);
        self.next = now + self.interval;
    }

    fn slow_down(&mut self, interval: Duration) {
        self.interval = interval.min(Duration::from_secs(limits::DEVICE_INTERVAL_MAX_S));
    }
}
