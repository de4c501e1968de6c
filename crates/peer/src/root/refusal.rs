//! Credentials of a login, and what a server that refuses them has said, in words.

use gridlane_core::{Error, ErrorKind, Hint, Url};
use gridlane_xrd::answer::ErrorAnswer;
use gridlane_xrd::{ErrorCode, ztn};

use super::gsi;
use super::status::status_error;
use crate::credentials::{Credentials, Token};
use crate::http::without_secrets;

/// Credentials of the user that may be shown to a server.
pub(super) struct Shown<'a> {
    pub(super) credentials: &'a Credentials,
    /// The user or the operator has named this server.
    pub(super) may_show: bool,
    /// The token of the moment.
    pub(super) token: Option<Token>,
    /// The server that is asked.
    pub(super) at: &'a Url,
}

/// The progress of a login.
#[derive(Clone, Copy)]
pub(super) struct Login {
    pub(super) is_tls: bool,
    /// The way of authentication by which the server has let us in; empty where it asked for none.
    pub(super) method: &'static str,
}

impl Shown<'_> {
    /// The error that an answer is to a request of this login. If it refuses access, it names the credentials and says
    /// what to do.
    pub(super) fn error(&self, answer: &ErrorAnswer, login: Login) -> Error {
        let secret = self.token.as_ref().map(|token| &token.secret);
        let said = without_secrets(&answer.text, self.at.cgi().unwrap_or_default(), self.at, secret);
        let error = status_error(&ErrorAnswer { text: said, ..answer.clone() });
        if !matches!(answer.code, ErrorCode::NOT_AUTHORIZED | ErrorCode::AUTH_FAILED) {
            return error;
        }
        let host = self.at.host();
        if self.at.has_secrets() && self.token.is_none() {
            return error
                .more("the request was made with the credentials in the URL")
                .hint("check what is in the URL: has it expired, is it for this server?");
        }
        if !self.credentials.is_empty() && !self.may_show {
            return error
                .more("the request was made without credentials")
                .hint(self.credentials.hint_withheld(host));
        }
        let is_by_token = login.method.as_bytes() == ztn::NAME;
        let is_by_certificate = login.method == gsi::NAME;
        match (&self.token, self.credentials.certificate()) {
            (Some(token), _) if is_by_token => error.more(format!("the request was made with {}", token.from)).hint(Hint::CheckScopes),
            (token, Some(certificate)) if is_by_certificate || login.is_tls && token.is_none() => {
                error.more(format!("the request was made with {certificate}")).hint(
                    "does it have the VO's attributes (voms-proxy-info -all)? Else ask the operator of the server for access",
                )
            }
            (Some(token), _) if login.is_tls => {
                error.more(format!("it did not take {}", token.from)).hint(Hint::CheckToken)
            }
            (None, None) => error.more("the request was made without credentials").hint(Hint::ShowCredentials),
            _ => error.more("the request was made without credentials").hint(format!(
                "a token or a certificate is sent over TLS only: use roots://{host}/… if the server speaks it"
            )),
        }
    }

    /// The error of a login that has failed, with the same.
    pub(super) fn login_error(&self, error: Error) -> Error {
        let host = self.at.host();
        let is_withheld = !self.credentials.is_empty() && !self.may_show;
        if error.advice() == Some(&Hint::NameCertificate) && is_withheld {
            return error.hint(self.credentials.hint_withheld(host));
        }
        if error.kind() != ErrorKind::Denied || error.advice().is_some() {
            return error;
        }
        let certificate = self.credentials.identity().certificate().zip(self.credentials.certificate());
        match (&self.token, certificate) {
            (_, Some((shown, name))) if error.message().contains(gsi::ANSWERED) => {
                error.more(gsi::suspicions(shown, &name)).hint(Hint::CheckCertificate)
            }
            (Some(token), _) => {
                error.more(format!("the request was made with {}", token.from)).hint(Hint::CheckToken)
            }
            (None, _) if is_withheld => error.hint(self.credentials.hint_withheld(host)),
            (None, _) => error.hint(Hint::ShowToken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Certificate;
    use gridlane_core::Secret;

    #[test]
    fn a_refusal_names_the_credentials_and_has_advice() {
        let at = Url::parse_absolute("roots://se.example//f").unwrap();
        let with_authz = Url::parse_absolute("roots://se.example//f?authz=Bearer%20qwertyuiop").unwrap();
        let token = Token { secret: Secret::new("asdfghjkl"), from: "the token of T".into() };
        let none = Credentials::default();
        let certificate = Credentials::new(None, Some(Certificate::of_test("/c.pem")), Vec::new());
        let answer = ErrorAnswer {
            code: ErrorCode::NOT_AUTHORIZED,
            text: "no asdfghjkl and no qwertyuiop may".to_owned(),
        };
        let login = |is_tls, is_by_token| Login { is_tls, method: if is_by_token { "ztn" } else { "" } };
        let by_gsi = Login { is_tls: false, method: "gsi" };
        for (credentials, may_show, token, at, login, words) in [
            (&none, true, Some(&token), &at, login(true, true), ["made with the token of T", "scopes"]),
            (&none, true, Some(&token), &at, login(true, false), ["not take the token of T", "audience"]),
            (
                &none,
                true,
                Some(&token),
                &at,
                login(false, false),
                ["without credentials", "roots://se.example"],
            ),
            (&certificate, true, None, &at, login(true, false), ["made with /c.pem", "voms-proxy-info"]),
            (
                &certificate,
                true,
                None,
                &at,
                login(false, false),
                ["without credentials", "roots://se.example"],
            ),
            (&certificate, true, None, &at, by_gsi, ["made with /c.pem", "voms-proxy-info"]),
            (
                &certificate,
                false,
                None,
                &at,
                login(true, false),
                ["without credentials", "name se.example as well"],
            ),
            (&none, false, None, &at, login(true, false), ["without credentials", "or a proxy"]),
            (&none, false, None, &with_authz, login(true, false), ["in the URL", "expired"]),
        ] {
            let shown = Shown { credentials, may_show, token: token.cloned(), at };
            let error = shown.error(&answer, login);
            let text = format!("{}; {}", error.message(), error.advice().unwrap());
            assert!(words.iter().all(|word| text.contains(word)), "{words:?} in {text}");
            let is_told = token.is_some() && text.contains("asdfghjkl")
                || text.contains("qwertyuiop") && at.has_secrets();
            assert!(!is_told, "{text}");
        }
    }
}
