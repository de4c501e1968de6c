//! One request with one answer: connecting, redirects, and errors that name the endpoint.

use std::time::Duration;

use gridlane_core::limits::REDIRECTS_MAX;
use gridlane_core::{Error, ErrorKind, Result, Scheme, Url};
use gridlane_dav::ResponseHead;
use gridlane_net::Dialer;
use tokio::time::timeout;

use super::{Connection, Request, Response, status_error};

/// Makes single requests, each on a connection of its own.
#[derive(Clone)]
pub struct Client {
    /// Makes the connections.
    pub dialer: Dialer,
    /// How long an answer's head may take.
    pub answer_max: Duration,
}

/// An answer whose body has not been read.
pub struct Exchange {
    /// The connection, in front of the body.
    pub connection: Connection,
    /// The answer's head.
    pub response: Response,
    /// Where the answer came from, after redirects.
    pub url: Url,
}

impl Client {
    /// Sends a request without a body and waits for the head of a successful answer.
    ///
    /// Redirects of GET and HEAD are followed; any other status than 2xx is an error that names the endpoint.
    pub async fn request(
        &self,
        method: &'static str,
        url: &Url,
        headers: &[(&'static str, String)],
    ) -> Result<Exchange> {
        let mut at = url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let name = at.clone();
            let once = self.once(method, &at, headers);
            let mut exchange = match timeout(self.answer_max, once).await {
                Ok(outcome) => outcome.map_err(|error| error.endpoint(&name))?,
                Err(_) => {
                    let message = format!("no answer within {} s", self.answer_max.as_secs());
                    return Err(Error::new(ErrorKind::Timeout, message).endpoint(&name));
                }
            };
            // A redirect is followed for questions only: what is removed is what was named.
            if matches!(method, "GET" | "HEAD")
                && let Some(next) = follow(&at, &exchange.response.head)?
            {
                at = next;
                continue;
            }
            if exchange.response.head.status.is_success() {
                return Ok(exchange);
            }
            let said = exchange.connection.first_line().await;
            return Err(status_error(&exchange.response.head, &said).endpoint(&name));
        }
        Err(redirect_loop().endpoint(url))
    }

    async fn once(
        &self,
        method: &'static str,
        url: &Url,
        headers: &[(&'static str, String)],
    ) -> Result<Exchange> {
        let mut connection = Connection::new(self.dialer.dial(url).await?.stream);
        let request = Request { method, url, headers: headers.to_vec() };
        connection.send(&request).await?;
        let response = connection.response().await?;
        Ok(Exchange { connection, response, url: url.clone() })
    }
}

/// Where a redirect points; `None` when the answer is no redirect with a place.
///
/// From https to http is refused: what TLS protected so far would travel in clear.
pub fn follow(from: &Url, head: &ResponseHead) -> Result<Option<Url>> {
    if !matches!(head.status.code(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = head.location() else { return Ok(None) };
    let to = from.join(location).map_err(|error| {
        Error::new(ErrorKind::Protocol, format!("it redirects to nowhere: {}", error.message()))
            .endpoint(from)
    })?;
    match (from.scheme(), to.scheme()) {
        (_, Scheme::File) => {
            let message = "it redirects to a file of this machine";
            Err(Error::new(ErrorKind::Protocol, message).endpoint(from))
        }
        (Scheme::Https, Scheme::Http) => {
            let message = format!("it redirects from https to {to}, which is not encrypted");
            Err(Error::new(ErrorKind::Denied, message)
                .endpoint(from)
                .hint("use that URL yourself if it is right"))
        }
        _ => Ok(Some(to)),
    }
}

/// The error for more redirects than anyone needs.
pub(crate) fn redirect_loop() -> Error {
    let message = format!("more than {REDIRECTS_MAX} redirects: it leads in a circle");
    Error::new(ErrorKind::Protocol, message)
}
