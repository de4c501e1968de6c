//! Challenges: the answers to clients that have shown no credentials, or bad ones (RFC 6750, 3; RFC 7617, 2).

use gridlane_auth::{Identity, Refusal};
use gridlane_dav::Status;

use super::presented::Kind;
use crate::client::Client;
use crate::reply::Reply;
use crate::settings::AuthSettings;

/// The methods by which clients can authenticate.
#[derive(Clone, Debug, Default)]
pub struct AuthMethods {
    realm: String,
    takes_bearers: bool,
    takes_passwords: bool,
    takes_certificates: bool,
}

impl AuthMethods {
    pub(crate) fn of(settings: &AuthSettings) -> AuthMethods {
        AuthMethods {
            realm: quotable(&settings.realm),
            takes_bearers: !settings.issuers.is_empty() || settings.macaroons.is_some(),
            takes_passwords: !settings.users.is_empty(),
            takes_certificates: settings.trust.is_some(),
        }
    }

    /// True if tokens or macaroons are among them.
    pub(crate) fn takes_bearers(&self) -> bool {
        self.takes_bearers
    }

    /// True if there is any method at all.
    pub(crate) fn is_any(&self) -> bool {
        self.takes_bearers || self.takes_passwords || self.takes_certificates
    }

    /// The answer to bad credentials.
    pub(crate) fn invalid(&self, kind: Kind, refusal: &Refusal) -> Reply {
        let reply = Reply::failure(Status::UNAUTHORIZED, refusal.message.clone());
        match kind {
            Kind::Password if self.takes_passwords => reply.field(FIELD, self.basic()),
            Kind::Other => self.challenge(reply, "invalid_request", &refusal.message),
            _ => reply.field(FIELD, self.bearer("invalid_token", &refusal.message)),
        }
    }

    /// The answer to a client that is denied something, and why. Another client may be allowed it by the rules, or no
    /// client is.
    pub fn denied(&self, client: &Client, why: impl ToString, is_by_rules: bool) -> Reply {
        let mut what = why.to_string();
        if let Some(doubt) = client.doubt.as_ref().filter(|_| is_by_rules) {
            what = format!("{what}; {doubt}");
        }
        let is_anonymous = client.identity.is_anonymous();
        if !is_by_rules || !self.is_any() {
            return Reply::failure(Status::FORBIDDEN, what);
        }
        if is_anonymous && (self.takes_bearers || self.takes_passwords) {
            if !client.is_secure {
                // A client that is asked for a password here would send it where it can be read on the way.
                let what = format!("{what}; credentials are taken over https only");
                return Reply::failure(Status::FORBIDDEN, what);
            }
            return self.challenge(Reply::failure(Status::UNAUTHORIZED, what), "", "");
        }
        let is_bearer = matches!(*client.identity, Identity::Token(_) | Identity::Macaroon(_));
        let reply = Reply::failure(Status::FORBIDDEN, what.clone());
        if is_bearer { reply.field(FIELD, self.bearer("insufficient_scope", &what)) } else { reply }
    }

    /// Adds the challenges for an anonymous client. There is none for certificates.
    pub fn challenged(&self, reply: Reply) -> Reply {
        self.challenge(reply, "", "")
    }

    fn challenge(&self, mut reply: Reply, error: &str, description: &str) -> Reply {
        if self.takes_bearers || !self.takes_passwords {
            reply = reply.field(FIELD, self.bearer(error, description));
        }
        if self.takes_passwords {
            reply = reply.field(FIELD, self.basic());
        }
        reply
    }

    fn bearer(&self, error: &str, description: &str) -> String {
        let realm = &self.realm;
        match error {
            // RFC 6750, 3.1: without credentials no error is named.
            "" => format!("Bearer realm=\"{realm}\""),
            error => {
                let description = quotable(description);
                format!("Bearer realm=\"{realm}\", error=\"{error}\", error_description=\"{description}\"")
            }
        }
    }

    fn basic(&self) -> String {
        format!("Basic realm=\"{}\", charset=\"UTF-8\"", self.realm)
    }
}

const FIELD: &str = "WWW-Authenticate";

/// Longest text in a field, in characters.
const QUOTED_MAX: usize = 400;

/// A text as it may stand between quotes (RFC 6750, 3): visible ASCII and spaces, without quotes and backslashes.
fn quotable(text: &str) -> String {
    let plain = |letter: char| match letter {
        '"' => '\'',
        '\\' => '/',
        ' '..='~' => letter,
        _ => '?',
    };
    text.chars().map(plain).take(QUOTED_MAX).collect()
}
