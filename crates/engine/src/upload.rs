//! The HTTP upload at the end of a copy: one PUT of known length.
//!
//! `Expect: 100-continue` lets the server refuse before the body travels (RFC 9110, 10.1.1). The last
//! bytes are sent only when the whole object is known to be right (see `ordered`), so a server that
//! discards short uploads, as ours and nginx do, never shows wrong bytes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gridlane_core::limits::{BODY_STALL_MAX, REDIRECTS_MAX};
use gridlane_core::{Error, ErrorKind, Fault, Result, Url};
use tokio::time::timeout;

use crate::http::{Client, Connection, Request, Response, follow, status_error};

/// How long a server may think about `Expect` before the body is sent anyway.
const CONTINUE_MAX: Duration = Duration::from_secs(2);
/// How long the final answer may take: the server may sync a large file first.
const ANSWER_MAX: Duration = Duration::from_secs(300);

/// A PUT that is begun, written and finished.
pub(crate) struct Upload {
    client: Client,
    url: Url,
    overwrite: bool,
    modified_s: Option<u64>,
    modified_accepted: Arc<AtomicBool>,
    connection: Option<Connection>,
}

impl Upload {
    /// A PUT to `url`, which replaces an existing file only when `overwrite` says so, and tells the server
    /// when the file was `modified`.
    pub(crate) fn new(client: Client, url: Url, overwrite: bool, modified: Option<SystemTime>) -> Upload {
        let modified_s = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map(|since| since.as_secs());
        Upload { client, url, overwrite, modified_s, modified_accepted: Arc::default(), connection: None }
    }

    /// Becomes true when the server says that it keeps the time; `None` when it is not told one.
    pub(crate) fn modified_accepted(&self) -> Option<Arc<AtomicBool>> {
        self.modified_s.map(|_| self.modified_accepted.clone())
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
        for _ in 0..=REDIRECTS_MAX {
            let mut connection = Connection::new(self.client.dialer.dial(&self.url).await?.stream);
            let mut request = Request::new("PUT", &self.url).header("Content-Length", size_bytes.to_string());
            if size_bytes > 0 {
                request = request.header("Expect", "100-continue");
            }
            if !self.overwrite {
                request = request.header("If-None-Match", "*");
            }
            if let Some(modified_s) = self.modified_s {
                // ownCloud's way, which rclone and other servers took over: seconds since 1970.
                request = request.header("X-OC-Mtime", modified_s.to_string());
            }
            connection.send(&request).await.map_err(|error| error.endpoint(&self.url))?;
            let early = match size_bytes {
                0 => Ok(Ok(None)),
                _ => timeout(CONTINUE_MAX, connection.response_or_continue()).await,
            };
            match early {
                // 100, or silence: an old server that does not know the header waits for the body.
                Ok(Ok(None)) | Err(_) => {
                    self.connection = Some(connection);
                    return Ok(());
                }
                Ok(Err(error)) => return Err(error.endpoint(&self.url)),
                Ok(Ok(Some(response))) => match follow("PUT", &self.url, &response.head)? {
                    Some(next) => self.url = next,
                    None => return Err(self.refused(&mut connection, &response).await),
                },
            }
        }
        Err(crate::http::redirect_loop().endpoint(&self.url))
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
        let accepted = response.head.headers.get("x-oc-mtime").is_some_and(|said| said.trim() == "accepted");
        self.modified_accepted.store(accepted, Relaxed);
        match response.head.status.is_success() {
            true => Ok(()),
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
