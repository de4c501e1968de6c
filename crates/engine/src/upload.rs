//! The HTTP upload at the end of a copy: one PUT of known length.
//!
//! `Expect: 100-continue` lets the server refuse before the body travels (RFC 9110, 10.1.1). The last
//! bytes are sent only when the whole object is known to be right (see `ordered`), so a server that
//! discards short uploads, as ours and nginx do, never shows wrong bytes.

use std::time::Duration;

use gridlane_core::limits::{BODY_STALL_MAX, ERROR_BODY_BYTES_MAX, REDIRECTS_MAX};
use gridlane_core::{Error, ErrorKind, Fault, Result, Url};
use tokio::time::timeout;

use crate::http::{Client, Connection, Purpose, Request, Response, follow, status_error};

/// How long a server may think about `Expect` before the body is sent anyway.
const CONTINUE_MAX: Duration = Duration::from_secs(2);
/// How long the final answer may take: the server may sync a large file first.
const ANSWER_MAX: Duration = Duration::from_secs(300);

/// What a server says to the head of a PUT.
enum Invited {
    /// Send the body here.
    Now(Box<Connection>),
    /// Ask there.
    Elsewhere(Url),
    /// Nothing: the connection had been closed before.
    Stale,
}

/// A PUT that is begun, written and finished.
pub(crate) struct Upload {
    client: Client,
    url: Url,
    overwrite: bool,
    connection: Option<Connection>,
}

impl Upload {
    /// A PUT to `url`, which replaces an existing file only when `overwrite` says so.
    pub(crate) fn new(client: Client, url: Url, overwrite: bool) -> Upload {
        Upload { client, url, overwrite, connection: None }
    }

    /// Sends the head and learns whether the server wants the body; does nothing the second time.
    pub(crate) async fn begin(&mut self, size_bytes: u64) -> Result<()> {
        if self.connection.is_some() {
            return Ok(());
        }
        if !self.overwrite && self.client.request("HEAD", &self.url, &[]).await.is_ok() {
            // Some servers ignore `If-None-Match` on PUT, which guards the moment between this and that.
            return Err(already_there().endpoint(&self.url));
        }
        let mut fresh = false;
        for _ in 0..=REDIRECTS_MAX {
            match self.invite(size_bytes, fresh).await? {
                Invited::Now(connection) => {
                    self.connection = Some(*connection);
                    return Ok(());
                }
                Invited::Elsewhere(next) => (self.url, fresh) = (next, false),
                Invited::Stale => fresh = true,
            }
        }
        Err(crate::http::redirect_loop().endpoint(&self.url))
    }

    /// Asks one server, on a new connection if that must be, whether it takes the file.
    async fn invite(&self, size_bytes: u64, fresh: bool) -> Result<Invited> {
        let mut connection = self.client.connect(&self.url, Purpose::Upload, fresh).await?.connection;
        let mut request = Request::new("PUT", &self.url).header("Content-Length", size_bytes.to_string());
        if size_bytes > 0 {
            request = request.header("Expect", "100-continue");
        }
        if !self.overwrite {
            request = request.header("If-None-Match", "*");
        }
        let sent = connection.send(&request).await;
        let early = match (sent, size_bytes) {
            (Err(error), _) => Ok(Err(error)),
            (Ok(()), 0) => Ok(Ok(None)),
            (Ok(()), _) => timeout(CONTINUE_MAX, connection.response_or_continue()).await,
        };
        match early {
            // 100, or silence: an old server that does not know the header waits for the body.
            Ok(Ok(None)) | Err(_) => Ok(Invited::Now(Box::new(connection))),
            Ok(Err(error)) if connection.was_stale(&error) => Ok(Invited::Stale),
            Ok(Err(error)) => Err(error.endpoint(&self.url)),
            Ok(Ok(Some(response))) => match follow("PUT", &self.url, &response.head)? {
                Some(next) => Ok(Invited::Elsewhere(next)),
                None => Err(self.refused(&mut connection, &response).await),
            },
        }
    }

    /// Sends the next bytes of the body.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(connection) = &mut self.connection else {
            return Err(Error::new(ErrorKind::Other, "an upload was written to before it was begun"));
        };
        let error = match timeout(BODY_STALL_MAX, connection.write_body(bytes)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => Error::new(ErrorKind::Timeout, "the server takes no bytes any more"),
        };
        // It may have said why before it closed the connection.
        let said = timeout(CONTINUE_MAX, connection.response()).await;
        match (said, self.connection.take()) {
            (Ok(Ok(response)), Some(mut connection)) if !response.head.status.is_success() => {
                Err(self.refused(&mut connection, &response).await)
            }
            _ => Err(error.endpoint(&self.url)),
        }
    }

    /// Waits for the server's word that the file is there.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        let Some(mut connection) = self.connection.take() else {
            return Err(Error::new(ErrorKind::Other, "an upload was finished before it was begun"));
        };
        let response = match timeout(ANSWER_MAX, connection.response()).await {
            Ok(outcome) => outcome.map_err(|error| error.endpoint(&self.url))?,
            Err(_) => {
                let message = format!("no answer within {} s after the last byte", ANSWER_MAX.as_secs());
                return Err(Error::new(ErrorKind::Timeout, message).endpoint(&self.url));
            }
        };
        match response.head.status.is_success() {
            true => {
                // Some servers say in a few words that it worked.
                let _ = connection.drain(ERROR_BODY_BYTES_MAX).await;
                Ok(())
            }
            false => Err(self.refused(&mut connection, &response).await),
        }
    }

    async fn refused(&self, connection: &mut Connection, response: &Response) -> Error {
        let said = connection.first_line().await;
        match response.head.status.code() {
            412 if !self.overwrite => already_there(),
            409 => {
                let message = format!("the server cannot put a file there: {said}");
                Error::new(ErrorKind::Precondition, message)
                    .fault(Fault::Caller)
                    .hint("make the directory first")
            }
            _ => status_error(&response.head, &said),
        }
        .http_status(response.head.status.code())
        .endpoint(&self.url)
    }
}

fn already_there() -> Error {
    Error::new(ErrorKind::Precondition, "the file exists")
        .fault(Fault::Caller)
        .hint("replace it with --force")
}
