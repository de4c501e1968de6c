//! Where an issuer's services are: OpenID Connect Discovery 1.0 and RFC 8414.

use std::net::IpAddr;

use gridlane_core::{Scheme, Url, limits};
use serde_json::Value;

use crate::refusal::{Cause, Refusal};
use crate::token::json;

/// The services of an issuer that a login needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// The issuer's name, exactly as its tokens have it.
    pub issuer: String,
    /// Gives tokens (RFC 6749, 3.2).
    pub token: Url,
    /// Begins logins with a code (RFC 8628, 3.1); `None`: it has no such logins.
    pub device: Option<Url>,
    /// True if it takes the client's secret in the body only (`client_secret_post`).
    pub takes_secret_in_body: bool,
}

/// Where an issuer describes itself, in the order in which to ask: OpenID Connect Discovery 4.1, then RFC 8414, 3.1.
///
/// # Errors
/// The issuer is no https URL (or one of this machine itself), or has a query or a fragment.
pub fn documents(issuer: &str) -> Result<[Url; 2], Refusal> {
    let refused =
        || Refusal::new(Cause::Unacceptable, "an issuer is an https URL without user, query and fragment");
    let url = place(issuer).filter(|_| !issuer.contains('?')).ok_or_else(refused)?;
    let issuer = issuer.strip_suffix('/').unwrap_or(issuer);
    let path = url.encoded_path();
    let path = path.strip_suffix('/').unwrap_or(path);
    let (scheme, host) = (url.scheme().name(), url.host_header());
    let second = format!("{scheme}://{host}/.well-known/oauth-authorization-server{path}");
    let first = place(&format!("{issuer}/.well-known/openid-configuration")).ok_or_else(refused)?;
    Ok([first, place(&second).ok_or_else(refused)?])
}

/// The services of `issuer` by its description.
///
/// # Errors
/// It describes another issuer, gives no tokens, or a service is not to be had by https.
pub fn read_provider(document: &[u8], issuer: &str) -> Result<Provider, Refusal> {
    const WHAT: &str = "the issuer's description";
    if document.len() > limits::ISSUER_DOCUMENT_BYTES_MAX {
        return Err(Refusal::new(Cause::Unacceptable, format!("{WHAT} is too long")));
    }
    let document = json::object(document, WHAT)?;
    // OpenID Connect Discovery 4.3, RFC 8414 3.3: "MUST be identical".
    if json::text(&document, "issuer", WHAT)? != Some(issuer) {
        return Err(Refusal::new(
            Cause::Untrusted,
            "the description that was found is that of another issuer: its name has to be the same to the last slash",
        ));
    }
    let service = |key: &str| match json::text(&document, key, WHAT)? {
        None => Ok(None),
        Some(text) => place(text)
            .map(Some)
            .ok_or_else(|| Refusal::new(Cause::Unacceptable, format!("{key:?} of {WHAT} is no https URL"))),
    };
    let token = service("token_endpoint")?.ok_or_else(|| {
        Refusal::new(Cause::Malformed, format!("{WHAT} does not say where it gives tokens"))
    })?;
    let device = service("device_authorization_endpoint")?;
    // OpenID Connect Discovery 3: without a list it is `client_secret_basic`.
    let ways = document.get("token_endpoint_auth_methods_supported").and_then(Value::as_array);
    let takes = |way: &str| ways.is_some_and(|ways| ways.iter().any(|known| known.as_str() == Some(way)));
    let takes_secret_in_body = takes("client_secret_post") && !takes("client_secret_basic");
    Ok(Provider { issuer: issuer.to_owned(), token, device, takes_secret_in_body })
}

/// A URL to which secrets may go: https, or http to this machine itself.
pub(super) fn place(text: &str) -> Option<Url> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.contains(['#', '\\', '@']);
    let url = Url::parse_absolute(text).ok().filter(|_| is_plain)?;
    let is_here = url.host().eq_ignore_ascii_case("localhost")
        || url.host().parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    let is_safe = match url.scheme() {
        Scheme::Https => true,
        Scheme::Http => is_here,
        Scheme::File | Scheme::Root | Scheme::Roots => false,
    };
    (is_safe && url.credentials().is_none()).then_some(url)
}
