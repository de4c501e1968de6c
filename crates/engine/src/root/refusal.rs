//! What was shown of who asks, and what a server that refuses it has said, in words.

use gridlane_core::{Error, ErrorKind, Url};
use gridlane_xrd::ErrorCode;
use gridlane_xrd::answer::ErrorAnswer;

use super::status_error;
use crate::http::without_secrets;
use crate::{Credentials, Token};

/// What may be shown of the user to a server.
pub(super) struct Shown<'a> {
    pub(super) credentials: &'a Credentials,
    /// The user or the operator has named this server.
    pub(super) may_show: bool,
    /// The token of the moment.
    pub(super) token: Option<Token>,
    /// Where it is asked.
    pub(super) at: &'a Url,
}

/// How far a login has come.
#[derive(Clone, Copy)]
pub(super) struct Login {
    pub(super) is_tls: bool,
    /// It was by the token.
    pub(super) is_by_token: bool,
}

impl Shown<'_> {
    /// The error that an answer is to a request of this login. About who may do what, it says what was shown, and what to
    /// do.
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
                .more("it was shown what is in the URL")
                .hint("check what is in the URL: has it expired, is it for this server?");
        }
        if !self.credentials.is_empty() && !self.may_show {
            return error.more("nothing was shown to it of who asks").hint(format!(
                "credentials go to the hosts that you name only: if {host} may see them, add --forward-credentials-to {host}"
            ));
        }
        match (&self.token, self.credentials.certificate()) {
            (Some(token), _) if login.is_by_token => error.more(format!("it was shown {}", token.from)).hint(
                "do its scopes cover this path? gridlane doctor shows them; else ask whoever runs the server",
            ),
            (None, Some(certificate)) if login.is_tls => {
                error.more(format!("it was shown {certificate}")).hint(
                    "does it have the VO's attributes (voms-proxy-info -all)? Else ask whoever runs the server for access",
                )
            }
            (Some(token), _) if login.is_tls => {
                error.more(format!("it did not take {}", token.from)).hint(
                    "has it expired, or is it for another audience? gridlane doctor shows what is in it",
                )
            }
            (None, None) => error.more("nothing was shown to it of who asks").hint(
                "show a token (--token-file, BEARER_TOKEN_FILE) or a proxy (voms-proxy-init); gridlane doctor shows what \
                 is found",
            ),
            _ => error.more("nothing was shown to it of who asks").hint(format!(
                "a token or a certificate is shown over TLS only: use roots://{host}/… if the server speaks it"
            )),
        }
    }

    /// A login that has failed, with the same.
    pub(super) fn login_error(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Denied || error.hint_text().is_some() {
            return error;
        }
        let host = self.at.host();
        match &self.token {
            Some(token) => error.more(format!("it was shown {}", token.from)).hint(
                "has it expired, or is it for another audience? gridlane doctor shows what is in it",
            ),
            None if !self.credentials.is_empty() && !self.may_show => error.hint(format!(
                "credentials go to the hosts that you name only: if {host} may see them, add --forward-credentials-to {host}"
            )),
            None => error.hint("show a token: by --token-file, BEARER_TOKEN_FILE or BEARER_TOKEN"),
        }
    }
}
