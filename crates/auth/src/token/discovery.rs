//! Where an issuer's keys are: OpenID Connect Discovery 1.0 and RFC 8414.

use gridlane_core::limits;
use gridlane_core::{Scheme, Url};

use super::json;
use crate::refusal::{Cause, Refusal};

/// Where an issuer describes itself, in the order in which to ask: as OpenID Connect Discovery has it (4.1), which the WLCG
/// profile demands, then as RFC 8414 (3.1).
///
/// # Errors
/// The issuer is no https URL, or has a query or a fragment.
pub fn documents(issuer: &str) -> Result<[String; 2], Refusal> {
    let url = https(issuer).filter(|_| !issuer.contains('?')).ok_or_else(|| {
        Refusal::new(Cause::Unacceptable, "an issuer is an https URL without user, query and fragment")
    })?;
    let issuer = issuer.strip_suffix('/').unwrap_or(issuer);
    let path = url.encoded_path();
    let path = path.strip_suffix('/').unwrap_or(path);
    Ok([
        format!("{issuer}/.well-known/openid-configuration"),
        format!("https://{}/.well-known/oauth-authorization-server{path}", url.host_header()),
    ])
}

/// Where the issuer's keys are, by its description.
///
/// # Errors
/// It describes another issuer, or its keys are not to be had by https.
pub fn read(document: &[u8], issuer: &str) -> Result<String, Refusal> {
    if document.len() > limits::ISSUER_DOCUMENT_BYTES_MAX {
        return Err(Refusal::new(Cause::Unacceptable, "the issuer's description is too long"));
    }
    let what = "the issuer's description";
    let document = json::object(document, what)?;
    // OpenID Connect Discovery 4.3, RFC 8414 3.3: "MUST be identical".
    if json::text(&document, "issuer", what)? != Some(issuer) {
        return Err(Refusal::new(
            Cause::Untrusted,
            "the description that was found is that of another issuer",
        ));
    }
    let keys = json::text(&document, "jwks_uri", what)?;
    let keys = keys
        .ok_or_else(|| Refusal::new(Cause::Malformed, format!("{what} does not say where its keys are")))?;
    match https(keys) {
        Some(_) => Ok(keys.to_owned()),
        None => Err(Refusal::new(Cause::Unacceptable, "the issuer's keys are not at an https URL")),
    }
}

fn https(text: &str) -> Option<Url> {
    let is_clear = text.starts_with("https://") && text.bytes().all(|byte| byte.is_ascii_graphic());
    let url = Url::parse_absolute(text).ok().filter(|_| is_clear && !text.contains(['#', '\\']))?;
    let is_plain = url.scheme() == Scheme::Https && url.credentials().is_none() && !text.contains('@');
    is_plain.then_some(url)
}
