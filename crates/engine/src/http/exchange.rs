//! One request with one answer: connecting, redirects, and errors that name the endpoint.

use std::time::Duration;

use gridlane_core::limits::{BODY_STALL_MAX, ERROR_BODY_BYTES_MAX, REDIRECTS_MAX};
use gridlane_core::{Error, ErrorKind, Result, Url};
use gridlane_dav::Status;
use gridlane_net::Dialer;
use tokio::time::timeout;

use super::redirect::{follow, redirect_loop, travels};
use super::{Connection, Request, Response, status_error};

/// Makes single requests.
#[derive(Clone)]
pub struct Client {
    /// Makes the connections.
    pub dialer: Dialer,
    /// How long an answer's head may take, for each of the servers that redirects lead to.
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
    /// A client that connects with `dialer` and waits for the head of an answer up to `answer_max`.
    pub fn new(dialer: Dialer, answer_max: Duration) -> Client {
        Client { dialer, answer_max }
    }

    /// Sends a request without a body and waits for the head of a successful answer (2xx).
    ///
    /// Redirects are followed as [`follow`] says; any other status is an error that names the endpoint.
    pub async fn request(
        &self,
        method: &'static str,
        url: &Url,
        headers: &[(&'static str, String)],
    ) -> Result<Exchange> {
        let request = Request { headers: headers.to_vec(), ..Request::new(method, url) };
        self.exchange(&request).await?.success().await
    }

    /// Sends a request and waits for the head of its answer, whatever its status is.
    ///
    /// Redirects are followed as [`follow`] says; one that is not followed is the answer. Its method, fields
    /// and body are the same at every place, but credentials stay at the endpoint they were given for. An
    /// error means that there was no answer; it names the endpoint.
    pub async fn exchange(&self, request: &Request<'_>) -> Result<Exchange> {
        let mut at = request.url.clone();
        let mut headers = request.headers.clone();
        for _ in 0..=REDIRECTS_MAX {
            let once = Request { url: &at, headers, ..request.clone() };
            let exchange = match timeout(self.answer_max, self.once(&once)).await {
                Ok(outcome) => outcome.map_err(|error| error.endpoint(&at))?,
                Err(_) => {
                    let message = format!("no answer within {} s", self.answer_max.as_secs());
                    return Err(Error::new(ErrorKind::Timeout, message).endpoint(&at));
                }
            };
            let Some(next) = follow(request.method, &at, &exchange.response.head)? else {
                return Ok(exchange);
            };
            headers = once.headers;
            if !next.same_endpoint(&at) {
                headers.retain(|(name, _)| travels(name));
            }
            exchange.finish().await;
            at = next;
        }
        Err(redirect_loop().endpoint(request.url))
    }

    async fn once(&self, request: &Request<'_>) -> Result<Exchange> {
        let mut connection = Connection::new(self.dialer.dial(request.url).await?.stream);
        connection.send(request).await?;
        let response = connection.response().await?;
        Ok(Exchange { connection, response, url: request.url.clone() })
    }
}

impl Exchange {
    /// What the server answered.
    pub fn status(&self) -> Status {
        self.response.head.status
    }

    /// This answer if it is 2xx, or else the error that it is.
    pub async fn success(self) -> Result<Exchange> {
        match self.status().is_success() {
            true => Ok(self),
            false => Err(self.into_error().await),
        }
    }

    /// This answer if its status is one of `codes`, or else the error that it is. A 2xx that is not
    /// among them is one of kind `Protocol`.
    pub async fn accept(self, codes: &[u16]) -> Result<Exchange> {
        match codes.contains(&self.status().code()) {
            true => Ok(self),
            false => Err(self.into_error().await),
        }
    }

    /// The error that this answer is, with the first line of its text. The rest of a short body is read, so
    /// that the connection can be used again.
    pub async fn into_error(mut self) -> Error {
        let said = self.connection.first_line().await;
        let error = status_error(&self.response.head, &said).endpoint(&self.url);
        self.finish().await;
        error
    }

    /// Waits for bytes of the body; 0 when it has ended. Nothing for too long is an error of kind
    /// `Timeout`. Errors name the endpoint. May be dropped and called again: no byte is lost.
    pub async fn read(&mut self, target: &mut [u8]) -> Result<usize> {
        match timeout(BODY_STALL_MAX, self.connection.read_body(target)).await {
            Ok(count) => count.map_err(|error| error.endpoint(&self.url)),
            Err(_) => {
                let message = format!("the answer stopped coming for {} s", BODY_STALL_MAX.as_secs());
                Err(Error::new(ErrorKind::Timeout, message).endpoint(&self.url))
            }
        }
    }

    /// The whole body; an error of kind `Unsupported` when it is longer than `bytes_max`.
    pub async fn read_whole(&mut self, bytes_max: usize) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        let mut buf = vec![0; 32 * 1024];
        loop {
            match self.read(&mut buf).await? {
                0 => return Ok(body),
                count if count <= bytes_max - body.len() => body.extend_from_slice(&buf[..count]),
                _ => {
                    let message = format!("the answer is longer than {bytes_max} bytes");
                    return Err(Error::new(ErrorKind::Unsupported, message).endpoint(&self.url));
                }
            }
        }
    }

    /// Nobody wants the rest of the body. What is short is read, so that the connection can be used again;
    /// what is not read closes it.
    pub async fn finish(mut self) {
        let _ = self.connection.drain(ERROR_BODY_BYTES_MAX).await;
    }
}
