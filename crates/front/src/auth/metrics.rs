//! Counters of authentication.

use gridlane_auth::{Cause, Identity};

use super::presented::Kind;
use crate::metrics::{self, Counter, Page};

/// Methods of authentication, by their names in logs.
const METHODS: [&str; 7] = ["anonymous", "x509", "token", "macaroon", "password", "sss", "unix"];

/// Causes of refused credentials.
const CAUSES: [(Cause, &str); 12] = [
    (Cause::Malformed, "malformed"),
    (Cause::Unacceptable, "unacceptable"),
    (Cause::Untrusted, "untrusted"),
    (Cause::BadSignature, "bad-signature"),
    (Cause::Expired, "expired"),
    (Cause::NotYetValid, "not-yet-valid"),
    (Cause::Revoked, "revoked"),
    (Cause::WrongAudience, "wrong-audience"),
    (Cause::UnknownKey, "unknown-key"),
    (Cause::Unavailable, "unavailable"),
    (Cause::WrongPassword, "wrong-password"),
    (Cause::Guessing, "guessing"),
];

/// The counters.
#[derive(Default)]
pub(crate) struct AuthMetrics {
    came: [Counter; METHODS.len()],
    refused: [[Counter; CAUSES.len()]; Kind::ALL.len()],
}

impl AuthMetrics {
    /// Counts a request by the method of its requester.
    pub(crate) fn came(&self, identity: &Identity) {
        if let Some(at) = METHODS.iter().position(|method| *method == identity.method()) {
            self.came[at].add(1);
        }
    }

    /// Counts refused credentials.
    pub(crate) fn refused(&self, kind: Kind, cause: Cause) {
        if let Some(at) = CAUSES.iter().position(|(known, _)| *known == cause) {
            self.refused[kind as usize][at].add(1);
        }
    }

    /// Adds the counters to a page.
    pub(crate) fn render(&self, page: &mut Page) {
        let kind = metrics::Kind::Counter;
        page.family(
            "auth_requests",
            kind,
            "Requests by method of authentication; over root:// those about a path.",
        );
        for (method, counter) in METHODS.iter().zip(&self.came) {
            page.sample("_total", &[("method", method)], counter.get());
        }
        page.family("auth_refused", kind, "Credentials that were refused, by kind and cause.");
        for (kind, causes) in Kind::ALL.iter().zip(&self.refused) {
            for ((_, cause), counter) in CAUSES.iter().zip(causes).filter(|(_, counter)| counter.get() > 0) {
                page.sample("_total", &[("method", kind.word()), ("cause", cause)], counter.get());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_in_their_order() {
        assert!(Kind::ALL.iter().enumerate().all(|(at, kind)| *kind as usize == at));
        let metrics = AuthMetrics::default();
        metrics.came(&Identity::Anonymous);
        metrics.refused(Kind::Token, Cause::Expired);
        let mut page = Page::default();
        metrics.render(&mut page);
        let text = page.finish();
        for line in [
            "gridlane_auth_requests_total{method=\"anonymous\"} 1",
            "gridlane_auth_refused_total{method=\"token\",cause=\"expired\"} 1",
        ] {
            assert!(text.lines().any(|other| other == line), "no {line} in\n{text}");
        }
    }
}
