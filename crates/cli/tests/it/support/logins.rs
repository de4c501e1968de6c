//! The part of an issuer that people log in at: codes, tokens that last seconds, refresh tokens that are good once, and
//! refusals. Its description and keys are at an https server ([`Issuer`]); the rest at an address of loopback.
//!
//! It is written without any of gridlane's code, so that a misunderstanding of the protocol there is not repeated here.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::issuer::{Issuer, Signer, now_s, wlcg};
use super::{secrets, until};

/// A server bears tokens for so long after their end: those that are made here end so much earlier than they say to the
/// client, so that a server refuses them when the client has to know that they are over.
const SKEW_S: i64 = 60;

/// The client's secret, where one is wanted.
pub(crate) const CLIENT_SECRET: &str = "swordfish-of-the-client";

/// An issuer with logins. It stops when the value is dropped.
pub(crate) struct Logins {
    pub(crate) issuer: Issuer,
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

/// How it behaves.
pub(crate) struct State {
    signer: Signer,
    url: String,
    audience: String,
    /// Lifetime of access tokens.
    pub(crate) lifetime_s: i64,
    /// What the person does about the code: nothing yet, allow, deny.
    pub(crate) allowed: Option<bool>,
    /// The refresh token that is good; `None`: none is.
    pub(crate) refresh: Option<String>,
    /// Refresh tokens that were good once: one of them means that somebody stole it, and ends the login (RFC 9700, 4.14.2).
    used: Vec<String>,
    /// Access tokens that were given.
    pub(crate) given: u32,
    /// Whether the services answer with 503.
    pub(crate) is_down: bool,
    /// Whether answers are made and not sent yet.
    pub(crate) is_held: bool,
    /// So many of the next access tokens are none.
    pub(crate) garbled: u32,
    /// Where the token endpoint redirects to.
    pub(crate) redirect: Option<String>,
    /// Every form, with the path, and whether the client's secret came with it.
    pub(crate) asked: Vec<(String, HashMap<String, String>, bool)>,
    number: u32,
    stopped: bool,
}

impl Logins {
    /// Tokens for servers that are called so.
    pub(crate) fn start(audience: &str) -> Logins {
        secrets::remember(CLIENT_SECRET);
        let signer = Signer::es256("key");
        let issuer = Issuer::start(&[&signer]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let description = json!({
            "issuer": issuer.url, "jwks_uri": format!("{}jwk", issuer.url),
            "token_endpoint": format!("http://{address}/token"),
            "device_authorization_endpoint": format!("http://{address}/device"),
            // oidc-agent wants to know these.
            "authorization_endpoint": format!("{}auth", issuer.url), "response_types_supported": ["code"],
            "scopes_supported": ["openid", "offline_access"], "grant_types_supported": ["refresh_token"],
        });
        issuer.place("vo/.well-known/openid-configuration", &description);
        let state = Arc::new(Mutex::new(State {
            signer,
            url: issuer.url.clone(),
            audience: audience.to_owned(),
            lifetime_s: 3600,
            allowed: None,
            refresh: None,
            used: Vec::new(),
            given: 0,
            garbled: 0,
            is_down: false,
            is_held: false,
            redirect: None,
            asked: Vec::new(),
            number: 0,
            stopped: false,
        }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if shared.lock().unwrap().stopped {
                    return;
                }
                let shared = Arc::clone(&shared);
                // A connection that breaks is the client's right.
                std::thread::spawn(move || drop(answer(&stream, &shared)));
            }
        });
        Logins { issuer, address, state }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.issuer.ca.clone()
    }
}

impl Drop for Logins {
    fn drop(&mut self) {
        self.state().stopped = true;
        let _ = TcpStream::connect(self.address);
    }
}

fn answer(stream: &TcpStream, shared: &Mutex<State>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut first, mut length, mut has_secret, mut is_known) = (String::new(), 0, false, false);
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(": ").unwrap_or_default();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap_or(0),
            "authorization" => {
                use base64::Engine as _;
                let encoded = |pair: &str| base64::engine::general_purpose::STANDARD.encode(pair);
                has_secret = value == format!("Basic {}", encoded(&format!("lane:{CLIENT_SECRET}")));
                // oidc-agent's way of having none.
                is_known = value == format!("Basic {}", encoded("lane:"));
            }
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8_lossy(&body).into_owned();
    let decoded = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let mut form: HashMap<String, String> = body
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(k, v)| (decoded(k), decoded(v)))
        .collect();
    if is_known {
        form.insert("client_id".to_owned(), "lane".to_owned());
    }
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut state = shared.lock().unwrap();
    state.asked.push((path.clone(), form.clone(), has_secret));
    let (status, location, answer) = match (&state.redirect, state.is_down) {
        (Some(to), _) => (307, format!("Location: {to}\r\n"), json!({})),
        (None, true) => (503, String::new(), json!({"error": "temporarily_unavailable"})),
        (None, false) => {
            let (status, answer) = state.answer(&path, &form, has_secret);
            (status, String::new(), answer)
        }
    };
    drop(state);
    until("the answer may be sent", || !shared.lock().unwrap().is_held);
    let answer = answer.to_string();
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {status} Told\r\nContent-Type: application/json\r\n{location}Content-Length: {}\r\n\
         Connection: close\r\n\r\n{answer}",
        answer.len()
    )
}

impl State {
    fn answer(&mut self, path: &str, form: &HashMap<String, String>, has_secret: bool) -> (u16, Value) {
        let field = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
        let refused = |error: &str| (400, json!({"error": error}));
        if field("client_id") != "lane" && !has_secret {
            return (401, json!({"error": "invalid_client"}));
        }
        if path == "/device" {
            return (
                200,
                json!({
                    "device_code": "device-code-that-is-secret", "user_code": "WDJB-MJHT", "expires_in": 60,
                    "interval": 1, "verification_uri": format!("{}device", self.url),
                }),
            );
        }
        match field("grant_type") {
            "urn:ietf:params:oauth:grant-type:device_code" => match self.allowed {
                None => refused("authorization_pending"),
                Some(false) => refused("access_denied"),
                Some(true) if field("device_code") != "device-code-that-is-secret" => {
                    refused("invalid_grant")
                }
                Some(true) => self.tokens(true, "storage.read:/ offline_access"),
            },
            "refresh_token" => {
                let token = field("refresh_token").to_owned();
                if self.used.contains(&token) {
                    self.refresh = None;
                }
                if self.refresh.as_ref() != Some(&token) {
                    // As INDIGO IAM does.
                    let words = format!("Invalid refresh token: {token}");
                    return (400, json!({"error": "invalid_grant", "error_description": words}));
                }
                self.used.push(token);
                self.tokens(true, "storage.read:/")
            }
            "client_credentials" if has_secret => self.tokens(false, "storage.read:/"),
            "urn:ietf:params:oauth:grant-type:token-exchange" => {
                let is_one = field("subject_token").split('.').count() == 3;
                let scope = field("scope").to_owned();
                match is_one && scope.starts_with("storage.read:/") {
                    true => self.tokens(false, &scope),
                    false => refused("invalid_scope"),
                }
            }
            _ => refused("unsupported_grant_type"),
        }
    }

    /// Tokens, with a refresh token that takes the place of the one before.
    fn tokens(&mut self, is_renewable: bool, scope: &str) -> (u16, Value) {
        self.given += 1;
        self.number += 1;
        let end_s = now_s() + self.lifetime_s - SKEW_S;
        let begin_s = end_s.min(now_s()) - 1;
        let changes = json!({
            "exp": end_s, "iat": begin_s, "nbf": begin_s, "scope": scope, "jti": self.number.to_string(),
        });
        let access = self.signer.token(&wlcg(&self.url, &self.audience, &changes));
        let mut answer = json!({
            "access_token": access, "token_type": "Bearer", "expires_in": self.lifetime_s, "scope": scope,
        });
        if is_renewable {
            let refresh = format!("refresh-token-number-{}-{}", self.number, std::process::id());
            secrets::remember(&refresh);
            answer["refresh_token"] = json!(refresh);
            self.refresh = Some(refresh);
        }
        if self.garbled > 0 {
            self.garbled -= 1;
            answer["access_token"] = json!("a token with blanks");
        }
        (200, answer)
    }
}
