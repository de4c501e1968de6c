//! The upload by HTTP: one PUT of known length.
//!
//! A small file is held until all of it is there and right, and is sent with its checksum, which the server
//! can compare before the file is visible. With others, `Expect: 100-continue` lets the server refuse
//! before the body travels (RFC 9110, 10.1.1). The last bytes are sent only when the whole object is known to
//! be right, so a server that discards short uploads, as gridlane and nginx do, never shows wrong bytes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gridlane_core::limits::{
    BODY_STALL_MAX, ERROR_BODY_BYTES_MAX, REDIRECTS_MAX, SMALL_UPLOAD_BYTES_MAX,
    SMALL_UPLOAD_BYTES_PER_S_MIN, UPLOAD_ANSWER_MAX,
};
use gridlane_core::{Checksum, ChecksumKind, Error, ErrorKind, Fault, Hasher, Hint, Result, Url};
use gridlane_peer::Renewal;
use gridlane_peer::http::{Client, Connection, Purpose, REASON_MAX, Request, Response, Sent};
use gridlane_peer::patience::timeout;

/// The time that a server may think about `Expect` before the body is sent anyway.
const CONTINUE_MAX: Duration = Duration::from_secs(2);

/// The server's answer to the head of a PUT.
enum Invited {
    /// Send the body here.
    Now(Box<Connection>),
    /// Ask there.
    Elsewhere(Url),
    /// Nothing: the connection had been closed before.
    Stale,
    /// It refuses the credential, and another one has taken its place.
    Renewed,
}

/// A PUT that is begun, written and finished.
pub(crate) struct Upload {
    client: Client,
    /// The URL that the caller gave.
    origin: Url,
    /// Where redirects led.
    url: Url,
    overwrite: bool,
    modified_s: Option<u64>,
    modified_accepted: Arc<AtomicBool>,
    /// The kind of checksum that the server is told, and asked for.
    kind: ChecksumKind,
    /// The time in which the server may take no byte.
    stall_max: Duration,
    /// The time that the final answer may take: the server may sync a large file first.
    answer_max: Duration,
    state: State,
}

enum State {
    New,
    /// All of it so far.
    Held(Vec<u8>),
    /// The server has the head and waits for the body.
    Open(Box<Connection>),
    /// The server has answered, or failed.
    Over,
}

impl Upload {
    /// A PUT to `url`, which replaces an existing file only when `overwrite` says so, and tells the server
    /// when the file was `modified`.
    pub(crate) fn new(
        client: Client,
        url: Url,
        overwrite: bool,
        modified: Option<SystemTime>,
        kind: ChecksumKind,
    ) -> Upload {
        let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified_s = since.map(|since| since.as_secs());
        let modified_accepted = Arc::default();
        Upload {
            client,
            origin: url.clone(),
            url,
            overwrite,
            modified_s,
            modified_accepted,
            kind,
            stall_max: BODY_STALL_MAX,
            answer_max: UPLOAD_ANSWER_MAX,
            state: State::New,
        }
    }

    /// The same, giving up when the server takes no byte for `stall_max`, or does not answer `answer_max` after the
    /// last one.
    pub(crate) fn patience(self, stall_max: Duration, answer_max: Duration) -> Upload {
        Upload { stall_max, answer_max, ..self }
    }

    /// Becomes true when the server says that it keeps the time; `None` when it is not told one.
    pub(crate) fn modified_accepted(&self) -> Option<Arc<AtomicBool>> {
        self.modified_s.map(|_| self.modified_accepted.clone())
    }

    /// Sends the head and learns whether the server wants the body; does nothing the second time.
    pub(crate) async fn begin(&mut self, size_bytes: u64) -> Result<()> {
        if !matches!(self.state, State::New) {
            return Ok(());
        }
        if !self.overwrite && !self.client.keeps_existing(&self.url) {
            // Some servers ignore `If-None-Match` on PUT, which guards the moment between this and that.
            let looked = self.client.request("HEAD", &self.url, &[]).await;
            if looked.is_ok() {
                return Err(already_there().endpoint(&self.url));
            }
        }
        if size_bytes <= SMALL_UPLOAD_BYTES_MAX {
            self.state = State::Held(Vec::with_capacity(size_bytes as usize));
            return Ok(());
        }
        let (mut fresh, mut may_renew) = (false, true);
        for _ in 0..=REDIRECTS_MAX + 1 {
            match self.invite(size_bytes, fresh, may_renew).await? {
                Invited::Now(connection) => {
                    self.state = State::Open(connection);
                    return Ok(());
                }
                Invited::Elsewhere(next) => (self.url, fresh) = (next, false),
                Invited::Stale => fresh = true,
                Invited::Renewed => {
                    (self.url, fresh, may_renew) = (self.origin.clone(), false, false);
                }
            }
        }
        Err(gridlane_peer::http::redirect_loop().endpoint(&self.url))
    }

    /// Asks one server, on a new connection if that must be, whether it takes the file. `may_renew`: no refused credential was
    /// replaced yet.
    async fn invite(&self, size_bytes: u64, fresh: bool, may_renew: bool) -> Result<Invited> {
        let mut connection =
            self.client.connect(&self.origin, &self.url, Purpose::Upload, fresh).await?.connection;
        let request =
            self.request().header("Content-Length", size_bytes.to_string()).header("Expect", "100-continue");
        let early = match connection.send(&request).await {
            Err(error) => Ok(Err(error)),
            Ok(()) => timeout(CONTINUE_MAX, connection.response_or_continue()).await,
        };
        match early {
            // 100, or silence: an old server that does not know the header waits for the body.
            Ok(Ok(None)) | Err(_) => Ok(Invited::Now(Box::new(connection))),
            Ok(Err(error)) if connection.was_stale(&error) => Ok(Invited::Stale),
            Ok(Err(error))
                if may_renew && matches!(connection.renewal_of_certificate(&error), Renewal::Another) =>
            {
                Ok(Invited::Renewed)
            }
            Ok(Ok(Some(response)))
                if may_renew && matches!(connection.renewal(&response.head), Renewal::Another) =>
            {
                Ok(Invited::Renewed)
            }
            Ok(Err(error)) => Err(error.endpoint(&self.url)),
            Ok(Ok(Some(response))) => {
                match self.client.lead("PUT", &self.origin, &self.url, &response.head)? {
                    Some(next) => Ok(Invited::Elsewhere(next)),
                    None => Err(self.refused(&mut connection, &response).await),
                }
            }
        }
    }

    fn request(&self) -> Request<'_> {
        let wanted = gridlane_dav::digest::name(self.kind);
        let mut request = Request::new("PUT", &self.url).header("Want-Digest", wanted);
        if let Some(modified_s) = self.modified_s {
            // ownCloud's way, which rclone and other servers took over: seconds since 1970.
            request = request.header("X-OC-Mtime", modified_s.to_string());
        }
        match self.overwrite {
            true => request,
            false => request.header("If-None-Match", "*"),
        }
    }

    /// Sends the next bytes of the body.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let connection = match &mut self.state {
            State::Open(connection) => connection,
            State::Held(held) => {
                held.extend_from_slice(bytes);
                return Ok(());
            }
            State::New | State::Over => {
                let message = "an upload was written to before it was begun";
                return Err(Error::new(ErrorKind::Other, message));
            }
        };
        let broke = match connection.write_body(bytes, self.stall_max).await {
            Ok(Sent::All) => return Ok(()),
            Ok(Sent::Answered) => None,
            Err(error) if error.kind() == ErrorKind::Timeout => {
                self.state = State::Over;
                return Err(error.hint(Hint::WaitLonger).endpoint(&self.url));
            }
            // It may have said why before it closed the connection.
            Err(error) => Some(error),
        };
        let said = timeout(REASON_MAX, connection.response()).await;
        let error = match (said, std::mem::replace(&mut self.state, State::Over)) {
            (Ok(Ok(response)), State::Open(mut connection)) if !response.head.status.is_success() => {
                return Err(self.refused(&mut connection, &response).await);
            }
            (Ok(Err(said)), _) => broke.unwrap_or(said),
            _ => broke.unwrap_or_else(|| Error::new(ErrorKind::Timeout, "the server's answer breaks off")),
        };
        Err(error.endpoint(&self.url))
    }

    /// Waits for the server's confirmation that the file is there, and for its checksum if it states one.
    pub(crate) async fn finish(&mut self) -> Result<Option<Checksum>> {
        let (mut connection, response) = match std::mem::replace(&mut self.state, State::Over) {
            State::Open(mut connection) => {
                let response = match timeout(self.answer_max, connection.response()).await {
                    Ok(outcome) => outcome.map_err(|error| error.endpoint(&self.url))?,
                    Err(_) => {
                        let message = format!(
                            "no answer within {} s after the last byte",
                            self.answer_max.as_secs_f64()
                        );
                        return Err(Error::new(ErrorKind::Timeout, message)
                            .hint(Hint::WaitLonger)
                            .endpoint(&self.url));
                    }
                };
                (connection, response)
            }
            State::Held(bytes) => {
                let mut hasher = Hasher::new(self.kind);
                hasher.update(&bytes);
                let digest = gridlane_dav::digest::encode(&hasher.finish());
                let request = self.request().header("Digest", digest).body(&bytes);
                let body = Duration::from_millis(bytes.len() as u64 * 1000 / SMALL_UPLOAD_BYTES_PER_S_MIN);
                let answer_max = (self.answer_max + body).min(self.answer_max.max(UPLOAD_ANSWER_MAX));
                let exchange = self.client.exchange_for(&request, Purpose::Upload, answer_max).await;
                let exchange = exchange.map_err(|error| match error.kind() {
                    ErrorKind::Timeout if error.advice().is_none() => error.hint(Hint::WaitLonger),
                    _ => error,
                })?;
                self.url = exchange.url;
                (Box::new(exchange.connection), exchange.response)
            }
            State::New | State::Over => {
                let message = "an upload was finished before it was begun";
                return Err(Error::new(ErrorKind::Other, message));
            }
        };
        let accepted = response.head.headers.get("x-oc-mtime").is_some_and(|said| said.trim() == "accepted");
        self.modified_accepted.store(accepted, Relaxed);
        if !response.head.status.is_success() {
            return Err(self.refused(&mut connection, &response).await);
        }
        // Some servers say in a few words that it worked.
        let _ = connection.drain(ERROR_BODY_BYTES_MAX).await;
        Ok(response.head.digests().into_iter().find(|checksum| checksum.kind() == self.kind))
    }

    async fn refused(&self, connection: &mut Connection, response: &Response) -> Error {
        let said = connection.first_line().await;
        match response.head.status.code() {
            412 if !self.overwrite => already_there(),
            409 => {
                let said = connection.scrubbed(&self.url, &said);
                let message = format!("the server cannot put a file there: {said}");
                Error::new(ErrorKind::Precondition, message).fault(Fault::Caller).hint(Hint::MakeDirectory)
            }
            _ => {
                let refused = connection.refused_saying(&self.url, &response.head, &said);
                connection.renewal(&response.head).explain(refused)
            }
        }
        .http_status(response.head.status.code())
        .endpoint(&self.url)
    }
}

fn already_there() -> Error {
    Error::new(ErrorKind::Precondition, "the file exists").fault(Fault::Caller).hint(Hint::Replace)
}
