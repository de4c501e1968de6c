//! Asking a server for a macaroon, as dCache, XRootD and gridlane give them.

use gridlane_core::limits::MACAROON_ANSWER_BYTES_MAX;
use gridlane_core::{Error, ErrorKind, Fault, Result, Secret, Url};
use gridlane_peer::Client;
use gridlane_peer::http::Request;
use serde_json::{Value, json};

/// A macaroon that a server has given.
#[derive(Clone, Debug)]
pub struct GivenMacaroon {
    /// Its text.
    pub text: Secret,
    /// For how many seconds it is good, if the server says it.
    pub lifetime_s: Option<u64>,
}

/// Asks the server of `url` for a macaroon for that path and what is below it: with these caveats (`activity:DOWNLOAD`),
/// good for so many seconds. The credentials of `client` are what the server knows the user by.
///
/// An error of kind `Unsupported` says that the server gives none.
pub async fn ask_macaroon(
    client: &Client,
    url: &Url,
    caveats: &[String],
    lifetime_s: u64,
) -> Result<GivenMacaroon> {
    let body = json!({"caveats": caveats, "validity": format!("PT{lifetime_s}S")}).to_string();
    let request = Request::new("POST", url)
        .header("Content-Type", "application/macaroon-request")
        .header("Accept", "application/json")
        .body(body.as_bytes());
    let mut exchange = client.http.exchange(&request).await?;
    if matches!(exchange.status().code(), 404 | 405 | 501) {
        let status = exchange.status().code();
        exchange.finish().await;
        let what = "the server gives no macaroons there";
        let error = Error::new(ErrorKind::Unsupported, what).fault(Fault::Peer).http_status(status);
        return Err(error.endpoint(url));
    }
    exchange = exchange.accept(&[200]).await?;
    let answer = exchange.read_whole(MACAROON_ANSWER_BYTES_MAX).await?;
    let broken =
        |what: &str| Error::new(ErrorKind::Protocol, what.to_owned()).fault(Fault::Peer).endpoint(url);
    let answer: Value =
        serde_json::from_slice(&answer).map_err(|_| broken("the answer with the macaroon is not JSON"))?;
    let text = answer["macaroon"].as_str().or(answer["access_token"].as_str());
    let text = text.ok_or_else(|| broken("there is no macaroon in the answer"))?.trim();
    let is_token = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_token {
        return Err(broken("the server's macaroon cannot be read"));
    }
    Ok(GivenMacaroon { text: Secret::new(text), lifetime_s: answer["expires_in"].as_u64() })
}
