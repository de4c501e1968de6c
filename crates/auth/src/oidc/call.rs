//! Requests to an issuer: a form, and the proof of who the client is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gridlane_core::{Secret, Url};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::Provider;

/// The name by which an issuer knows the program that asks, and how the program proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// `client_id`.
    pub id: String,
    /// Its secret; `None`: the client is public, as programs on people's machines are (RFC 8252, 8.4).
    pub secret: Option<Secret>,
}

/// A request: a POST with a form (`application/x-www-form-urlencoded`), whose answer is JSON.
#[derive(Clone, Debug)]
pub struct Call {
    /// The place that the issuer's description names.
    pub url: Url,
    /// The form.
    pub body: Secret,
    /// The value of `Authorization`, when the client's secret is sent there.
    pub authorization: Option<Secret>,
    /// What must not be repeated of the answer.
    pub secrets: Vec<Secret>,
}

/// The kind of a token in an exchange (RFC 8693, 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenType {
    /// Shown to servers.
    Access,
    /// Makes new access tokens.
    Refresh,
}

/// What a token is asked for with.
#[derive(Clone, Copy, Debug)]
pub enum Grant<'a> {
    /// The code of a login that a person allows elsewhere (RFC 8628, 3.4).
    Device(&'a Secret),
    /// A refresh token (RFC 6749, 6).
    Refresh(&'a Secret),
    /// Nothing but who the client is (RFC 6749, 4.4).
    Client,
    /// An access token, for which another one is wanted (RFC 8693).
    Exchange {
        /// The token that is exchanged.
        subject: &'a Secret,
        /// The kind that is wanted.
        wanted: TokenType,
    },
}

impl TokenType {
    /// Its name in requests and answers.
    pub fn name(self) -> &'static str {
        match self {
            TokenType::Access => "urn:ietf:params:oauth:token-type:access_token",
            TokenType::Refresh => "urn:ietf:params:oauth:token-type:refresh_token",
        }
    }
}

/// The request that begins a login with a code; `None` if the issuer has no such logins.
pub fn device_call(
    provider: &Provider,
    client: &Client,
    scope: Option<&str>,
    audience: Option<&str>,
) -> Option<Call> {
    let mut form = Form::new(provider.device.clone()?);
    form.wishes(scope, audience);
    Some(form.by(provider, client))
}

/// The request for tokens. An empty or missing scope asks for all that the grant has.
pub fn token_call(
    provider: &Provider,
    client: &Client,
    grant: Grant<'_>,
    scope: Option<&str>,
    audience: Option<&str>,
) -> Call {
    let mut form = Form::new(provider.token.clone());
    match grant {
        Grant::Device(code) => {
            form.add("grant_type", "urn:ietf:params:oauth:grant-type:device_code");
            form.secret("device_code", code);
        }
        Grant::Refresh(token) => {
            form.add("grant_type", "refresh_token");
            form.secret("refresh_token", token);
        }
        Grant::Client => form.add("grant_type", "client_credentials"),
        Grant::Exchange { subject, wanted } => {
            form.add("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange");
            form.secret("subject_token", subject);
            form.add("subject_token_type", TokenType::Access.name());
            form.add("requested_token_type", wanted.name());
        }
    }
    form.wishes(scope, audience);
    form.by(provider, client)
}

/// A form that is being filled in.
struct Form {
    url: Url,
    body: String,
    secrets: Vec<Secret>,
}

impl Form {
    fn new(url: Url) -> Form {
        Form { url, body: String::new(), secrets: Vec::new() }
    }

    fn add(&mut self, key: &str, value: &str) {
        if !self.body.is_empty() {
            self.body.push('&');
        }
        self.body.push_str(key);
        self.body.push('=');
        self.body.push_str(&encoded(value));
    }

    fn secret(&mut self, key: &str, value: &Secret) {
        self.add(key, value.expose());
        self.secrets.push(value.clone());
    }

    fn wishes(&mut self, scope: Option<&str>, audience: Option<&str>) {
        for (key, value) in [("scope", scope), ("audience", audience)] {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                self.add(key, value);
            }
        }
    }

    /// The request of this client (RFC 6749, 2.3.1).
    fn by(mut self, provider: &Provider, client: &Client) -> Call {
        let mut authorization = None;
        match &client.secret {
            Some(secret) if !provider.takes_secret_in_body => {
                let pair = format!("{}:{}", encoded(&client.id), encoded(secret.expose()));
                authorization = Some(Secret::new(format!("Basic {}", STANDARD.encode(pair))));
                self.secrets.push(secret.clone());
            }
            Some(secret) => {
                self.add("client_id", &client.id);
                self.secret("client_secret", secret);
            }
            None => self.add("client_id", &client.id),
        }
        Call { url: self.url, body: Secret::new(self.body), authorization, secrets: self.secrets }
    }
}

/// As forms have it; a space is `%20`, which every reader of forms understands.
fn encoded(text: &str) -> String {
    const OTHERS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, OTHERS).to_string()
}
