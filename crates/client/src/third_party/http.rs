//! One attempt to have a server copy over HTTP: the COPY, and what the active server tells until its end.
//!
//! The protocol is in `docs/protocol/third-party-copy.md`. The connection is the copy: while it is open the server copies, and
//! it stops when this is dropped.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gridlane_core::limits::{
    THIRD_PARTY_CHECKSUM_BYTES_PER_S, THIRD_PARTY_FALLS_MAX, THIRD_PARTY_LEAST_BYTES, THIRD_PARTY_LEAVE_MAX,
    THIRD_PARTY_MARKERS_MISSED_MAX, THIRD_PARTY_QUEUE_MAX, THIRD_PARTY_SILENCE_MAX, THIRD_PARTY_STALL_MAX,
};
use gridlane_core::{Boxed, Error, ErrorKind, Fault, Result, Secret, Url};
use gridlane_dav::third_party::{self, Ending, Event, MarkerReader, Progress as Marker, SOURCES_FIELD};
use gridlane_peer::Client;
use gridlane_peer::http::{Exchange, Purpose, Request};
use gridlane_peer::patience::{Patience, timeout};
use tokio::time::{MissedTickBehavior, interval};

use super::failure::{Failed, of_last_line, of_status};
use super::telling::Telling;
use super::terms::{Mode, Progress};
use crate::stop::stopped;

/// A future that completes when the user wants no more.
pub(super) type Stop<'a> = Pin<&'a mut (dyn Future<Output = ()> + Send)>;

/// Time between two reports of how far it is.
const TICK: Duration = Duration::from_millis(500);

/// A COPY that is to be sent.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    pub(super) mode: Mode,
    /// Of a push only one.
    pub(super) sources: Vec<&'a Url>,
    pub(super) target: &'a Url,
    /// The value of `Authorization` for each of the passive servers, in their order.
    pub(super) credentials: Vec<Option<Secret>>,
    pub(super) overwrite: bool,
    pub(super) requires_checksum: bool,
    pub(super) streams: Option<usize>,
    /// When the source was changed, for a target that keeps it.
    pub(super) modified: Option<SystemTime>,
    /// Bytes of the file, if that is known.
    pub(super) size_bytes: Option<u64>,
    /// Nothing has the target's name: what is there when it has begun is its own, and is removed when it is stopped.
    pub(super) is_new: bool,
}

/// A copy that the active server says it has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Made {
    /// Sources that it says it used; `None`: it does not know that there can be several.
    pub(super) sources: Option<usize>,
}

/// How far a COPY went, however it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ran {
    /// The active server has begun to copy: it has answered with 2xx.
    pub(super) has_begun: bool,
    /// It has told of the copy: bytes may have moved.
    pub(super) has_moved: bool,
    /// It has told the end: it does nothing any more.
    pub(super) has_ended: bool,
    /// The most bytes that it has told of.
    pub(super) moved_bytes: u64,
}

impl Attempt<'_> {
    /// The active server's end.
    pub(super) fn active(&self) -> &Url {
        match self.mode {
            Mode::Pull => self.target,
            Mode::Push => self.sources[0],
        }
    }

    /// The others' ends.
    pub(super) fn passive(&self) -> Vec<&Url> {
        match self.mode {
            Mode::Pull => self.sources.clone(),
            Mode::Push => vec![self.target],
        }
    }

    /// Sends it, and waits until the server says how it has ended.
    pub(super) async fn run(
        &self,
        client: &Client,
        telling: &mut Telling<'_>,
        ran: &mut Ran,
        mut stop: Stop<'_>,
    ) -> std::result::Result<Made, Failed> {
        let request = self.request().map_err(Failed::Way)?;
        ran.has_ended = false;
        let mut sent = client.http.exchange_for(&request, Purpose::Upload, THIRD_PARTY_SILENCE_MAX);
        let exchange = tokio::select! {
            biased;
            () = stop.as_mut() => return Err(Failed::File(self.stop_unanswered(sent, ran).await)),
            sent = sent.as_mut() => sent.map_err(|error| match error.kind() {
                _ if error.is_unreached() => Failed::Way(error),
                // It was not sent.
                ErrorKind::Denied | ErrorKind::Usage | ErrorKind::Unsupported => Failed::Way(error),
                // It may copy although it does not say so.
                _ => Failed::Unknown(error),
            })?,
        };
        if !exchange.status().is_success() {
            return Err(of_status(exchange.into_error().await));
        }
        ran.has_begun = true;
        let sources = exchange.response.head.headers.single(SOURCES_FIELD).and_then(|said| said.parse().ok());
        self.follow(exchange, telling, ran, stop).await.map(|()| Made { sources })
    }

    /// Stops what was sent and has no answer yet. It may have begun; only the answer tells whether there is something to remove.
    async fn stop_unanswered(&self, sent: Boxed<'_, Result<Exchange>>, ran: &mut Ran) -> Error {
        if !self.is_new {
            return stopped();
        }
        match timeout(THIRD_PARTY_LEAVE_MAX, sent).await {
            Ok(Ok(exchange)) => {
                ran.has_begun = exchange.status().is_success();
                stopped()
            }
            Ok(Err(error)) if error.is_unreached() => stopped(),
            Ok(Err(_)) | Err(_) => {
                stopped().more("whether the copy had begun is not known: look at the target")
            }
        }
    }

    /// The COPY.
    fn request(&self) -> Result<Request<'_>> {
        let truth = |is: bool, yes: &'static str, no: &'static str| if is { yes } else { no };
        let mut request = Request::new("COPY", self.active())
            .header("Credential", "none")
            .header("Accept", third_party::MEDIA_TYPE)
            .header("Overwrite", truth(self.overwrite, "T", "F"))
            // dCache and StoRM take its absence for a yes.
            .header("RequireChecksumVerification", truth(self.requires_checksum, "true", "false"));
        if let Some(streams) = self.streams {
            request = request.header("X-Number-Of-Streams", streams.to_string());
        }
        let since = self.modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        if let Some(since) = since.filter(|_| self.mode == Mode::Pull) {
            request = request.header("X-OC-Mtime", since.as_secs().to_string());
        }
        let field = match self.mode {
            Mode::Pull => "Source",
            Mode::Push => "Destination",
        };
        for url in self.passive() {
            let text = remote(url)?;
            request = match url.has_secrets() {
                true => request.secret(field, Secret::new(text)),
                false => request.header(field, text),
            };
        }
        for (number, value) in self.credentials.iter().enumerate() {
            let Some(value) = value else { continue };
            let name = match number {
                0 => "TransferHeaderAuthorization".to_owned(),
                number => format!("SourceHeader{}Authorization", number + 1),
            };
            request = request.secret(name, value.clone());
        }
        Ok(request)
    }

    /// Reads what the server tells until the end.
    async fn follow(
        &self,
        mut exchange: Exchange,
        telling: &mut Telling<'_>,
        ran: &mut Ran,
        mut stop: Stop<'_>,
    ) -> std::result::Result<(), Failed> {
        telling.begins();
        let has_made = matches!(exchange.status().code(), 201 | 204);
        let (mut reader, mut buf) = (MarkerReader::new(), vec![0; 8 * 1024]);
        let mut heard = Heard::new(self.size_bytes);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let next = async {
                tokio::select! {
                    biased;
                    () = stop.as_mut() => Next::Stop,
                    read = exchange.connection.read_body(&mut buf) => Next::Read(read),
                    _ = ticks.tick() => Next::Tick,
                }
            };
            let read = match heard.bear(next).await {
                Ok(Next::Stop) => return Err(Failed::File(stopped())),
                Ok(Next::Tick) => {
                    telling.tick();
                    continue;
                }
                Ok(Next::Read(read)) => read,
                Err(late) => return Err(Failed::File(late.endpoint(self.active()))),
            };
            let mut events = Vec::new();
            let is_over = match read {
                Ok(0) => {
                    events.extend(reader.finish());
                    true
                }
                Ok(count) => {
                    let mut input = &buf[..count];
                    while let Some(event) = reader.next(&mut input) {
                        events.push(event);
                    }
                    false
                }
                Err(error) => match reader.finish() {
                    Some(event) => {
                        events.push(event);
                        true
                    }
                    None => return Err(self.unknown(&heard, Some(&error))),
                },
            };
            heard.anything();
            for event in events {
                match event {
                    Event::Marker(progress) => {
                        let connections = progress.remote_connections.len();
                        heard.marker(&progress);
                        ran.has_moved = true;
                        let done_bytes = heard.bytes.unwrap_or(0);
                        ran.moved_bytes = ran.moved_bytes.max(done_bytes);
                        telling.reached(Progress { done_bytes, size_bytes: None }, connections);
                    }
                    Event::End(Ending::Success) => {
                        ran.has_ended = true;
                        exchange.finish().await;
                        return Ok(());
                    }
                    Event::End(Ending::Failure(said)) => {
                        ran.has_ended = true;
                        let said = exchange.connection.scrubbed(&exchange.url, &said);
                        exchange.finish().await;
                        return Err(of_last_line(&said, self.mode, self.active(), heard.moved_bytes));
                    }
                }
            }
            if is_over && heard.markers == 0 && has_made {
                // RFC 4918, 9.8.5: a server that knows nothing of markers has made it, within itself.
                return Ok(());
            }
            if is_over {
                return Err(self.unknown(&heard, None));
            }
        }
    }

    /// The end of an answer that does not say how the copy has ended.
    fn unknown(&self, heard: &Heard, broke: Option<&Error>) -> Failed {
        let why = broke.map(|error| format!(": {}", error.message())).unwrap_or_default();
        let message = format!("the server's answer ended before it said how the copy has ended{why}");
        let error = Error::new(ErrorKind::Network, message).fault(Fault::Peer).endpoint(self.active());
        match heard.markers == 0 && broke.is_none() {
            // A server that took it for something else.
            true => Failed::Way(error.retryable(false)),
            false => Failed::Unknown(error),
        }
    }
}

/// A URL as another server reads it: a user in it is not for that.
fn remote(url: &Url) -> Result<String> {
    if url.zone().is_some() {
        let message = "an address of this machine's own network means nothing to another server";
        return Err(Error::new(ErrorKind::Unsupported, message).fault(Fault::Caller).endpoint(url));
    }
    let url = url.clone().without_credentials();
    Ok(if url.scheme().is_root() { url.typed() } else { url.as_str().to_owned() })
}

enum Next {
    Stop,
    Read(Result<usize>),
    Tick,
}

/// What was heard of the active server, and how much longer it is waited for.
struct Heard {
    silence: Patience,
    stall: Patience,
    silence_max: Duration,
    /// The time that it may still wait for its turn.
    queue: Duration,
    markers: u64,
    marker_at: Instant,
    /// Bytes of the file, if that is known: more of them is no progress.
    size_bytes: Option<u64>,
    /// Bytes that are there, by its last word.
    bytes: Option<u64>,
    /// The most that it has ever told.
    moved_bytes: u64,
    /// Bytes from which on more of them are progress.
    base_bytes: Option<u64>,
    /// The number of times that it had fewer than before.
    falls: u32,
}

impl Heard {
    fn new(size_bytes: Option<u64>) -> Heard {
        Heard {
            silence: Patience::new(THIRD_PARTY_SILENCE_MAX),
            stall: Patience::new(THIRD_PARTY_STALL_MAX),
            silence_max: THIRD_PARTY_SILENCE_MAX,
            queue: THIRD_PARTY_QUEUE_MAX,
            markers: 0,
            marker_at: Instant::now(),
            // Some servers say of anything that it is empty.
            size_bytes: size_bytes.filter(|size| *size > 0),
            bytes: None,
            moved_bytes: 0,
            base_bytes: None,
            falls: 0,
        }
    }

    /// Bytes of the answer have come.
    fn anything(&mut self) {
        self.silence.renew(self.silence_max);
    }

    /// A marker has come.
    fn marker(&mut self, progress: &Marker) {
        let pause = self.marker_at.elapsed();
        (self.markers, self.marker_at) = (self.markers + 1, Instant::now());
        self.silence_max = self.silence_max.max(pause * THIRD_PARTY_MARKERS_MISSED_MAX);
        let is_queued = progress.state.as_ref().is_some_and(|state| state.eq_ignore_ascii_case("queued"));
        let size_bytes = self.size_bytes.unwrap_or(u64::MAX);
        let told = progress.bytes.map(|bytes| bytes.min(size_bytes));
        if self.goes_on(told, size_bytes) {
            self.base_bytes = told;
            let comparing = told.unwrap_or(0) / THIRD_PARTY_CHECKSUM_BYTES_PER_S;
            let comparing = Duration::from_secs(comparing).min(THIRD_PARTY_QUEUE_MAX);
            self.stall.renew(THIRD_PARTY_STALL_MAX.saturating_add(comparing));
        } else if is_queued && self.bytes.is_none() && self.queue > pause {
            self.queue -= pause;
            self.stall.renew(THIRD_PARTY_STALL_MAX);
        }
        self.moved_bytes = self.moved_bytes.max(told.unwrap_or(0));
        self.bytes = told.or(self.bytes);
    }

    /// True if so many bytes are progress. Some servers begin again, or throw away what was wrong, but not for ever.
    fn goes_on(&mut self, told: Option<u64>, size_bytes: u64) -> bool {
        let (Some(told), Some(base)) = (told, self.base_bytes) else { return told.is_some() };
        if told < base && Some(told) < self.bytes && self.falls < THIRD_PARTY_FALLS_MAX {
            (self.falls, self.base_bytes) = (self.falls + 1, Some(told));
            return false;
        }
        told > base && (told == size_bytes || told - base >= THIRD_PARTY_LEAST_BYTES)
    }

    /// Waits as long as there is hope.
    async fn bear<T>(&mut self, next: impl Future<Output = T>) -> Result<T> {
        let late = |what: &str| Error::new(ErrorKind::Timeout, what).fault(Fault::Peer);
        match self.stall.bear(self.silence.bear(next)).await {
            Ok(Ok(next)) => Ok(next),
            Ok(Err(_)) => {
                let seconds = self.silence_max.as_secs();
                Err(late(&format!("the server told nothing of the copy for {seconds} s")))
            }
            Err(_) => {
                let seconds = THIRD_PARTY_STALL_MAX.as_secs();
                Err(late(&format!("the copy that the server makes got no more bytes for {seconds} s")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse_absolute(text).unwrap()
    }

    fn head(attempt: &Attempt<'_>) -> String {
        String::from_utf8(attempt.request().unwrap().head().unwrap()).unwrap()
    }

    #[test]
    fn the_copy_that_is_sent() {
        let (first, second) = (url("https://ada:pw@a.example/f?x=1"), url("root://b.example//f"));
        let target = url("https://se.example:8443/d/g");
        let bearer = |text: &str| Some(Secret::new(format!("Bearer {text}")));
        let pull = Attempt {
            mode: Mode::Pull,
            sources: vec![&first, &second],
            target: &target,
            credentials: vec![bearer("one"), bearer("two")],
            overwrite: false,
            requires_checksum: false,
            streams: None,
            modified: Some(UNIX_EPOCH + Duration::from_secs(7)),
            size_bytes: None,
            is_new: true,
        };
        let text = head(&pull);
        assert!(text.starts_with("COPY /d/g HTTP/1.1\r\nHost: se.example:8443\r\n"), "{text}");
        for line in [
            "Source: https://a.example/f?x=1",
            "Source: root://b.example//f",
            "TransferHeaderAuthorization: Bearer one",
            "SourceHeader2Authorization: Bearer two",
            "Credential: none",
            "Overwrite: F",
            "RequireChecksumVerification: false",
            "X-OC-Mtime: 7",
        ] {
            assert!(text.contains(&format!("\r\n{line}\r\n")), "{line}: {text}");
        }
        assert!(!text.contains("X-Number-Of-Streams"), "{text}");
        let push = Attempt {
            mode: Mode::Push,
            sources: vec![&first],
            credentials: vec![None],
            overwrite: true,
            requires_checksum: true,
            streams: Some(4),
            ..pull
        };
        let text = head(&push);
        assert!(text.starts_with("COPY /f?x=1 HTTP/1.1\r\nHost: a.example\r\n"), "{text}");
        for line in [
            "Destination: https://se.example:8443/d/g",
            "Overwrite: T",
            "RequireChecksumVerification: true",
            "X-Number-Of-Streams: 4",
        ] {
            assert!(text.contains(&format!("\r\n{line}\r\n")), "{line}: {text}");
        }
        assert!(!text.contains("TransferHeader") && !text.contains("X-OC-Mtime"), "{text}");
        assert!(remote(&url("http://[fe80::1%25eth0]/f")).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn silence_and_standstill_end_the_wait() {
        let mut heard = Heard::new(None);
        let silent = heard.bear(std::future::pending::<()>()).await.unwrap_err();
        assert!(silent.kind() == ErrorKind::Timeout && silent.message().contains("120 s"), "{silent}");
        let mut heard = Heard::new(None);
        for bytes in [None, Some(1), Some(1)] {
            heard.anything();
            heard.marker(&Marker { bytes, ..Marker::default() });
        }
        heard.silence = Patience::new(Duration::from_secs(10_000));
        let still = heard.bear(std::future::pending::<()>()).await.unwrap_err();
        assert!(still.message().contains("no more bytes for 900 s"), "{still}");
    }

    #[test]
    fn only_more_bytes_of_the_file_are_progress() {
        const MIB: u64 = 1 << 20;
        let goes_on = |heard: &mut Heard, told: u64| {
            let base_bytes = heard.base_bytes;
            heard.marker(&Marker { bytes: Some(told), ..Marker::default() });
            heard.base_bytes > base_bytes
        };
        let mut heard = Heard::new(Some(10 * MIB));
        for (told, progresses) in [
            (0, true),
            (MIB, true),
            (MIB, false),
            // Hardly anything.
            (MIB + 1, false),
            (9 * MIB, true),
            // It begins again.
            (MIB, false),
            (2 * MIB, true),
            // More than there is.
            (u64::MAX, true),
            (u64::MAX, false),
        ] {
            assert_eq!(goes_on(&mut heard, told), progresses, "{told}");
        }
        assert_eq!((heard.bytes, heard.moved_bytes), (Some(10 * MIB), 10 * MIB));
        assert!(goes_on(&mut Heard::new(Some(0)), MIB));
        // But not again and again.
        let mut heard = Heard::new(None);
        let turns = (0..1000).filter(|turn| goes_on(&mut heard, (1 + turn % 2) * MIB)).count();
        assert!(turns <= THIRD_PARTY_FALLS_MAX as usize + 2, "{turns}");
        // A word without bytes takes none away.
        heard.marker(&Marker::default());
        assert!(heard.bytes.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_queue_is_waited_for_without_bytes_and_not_for_ever() {
        for (state, most, renews) in [
            ("Running", THIRD_PARTY_QUEUE_MAX, false),
            ("Queued", THIRD_PARTY_QUEUE_MAX, true),
            ("Queued", Duration::ZERO, false),
        ] {
            let mut heard = Heard::new(None);
            (heard.stall, heard.queue) = (Patience::new(Duration::from_secs(1)), most);
            heard.marker(&Marker { state: Some(state.to_owned()), ..Marker::default() });
            let late = heard.bear(std::future::pending::<()>()).await.unwrap_err();
            // Renewed, it outlasts the silence.
            assert_eq!(late.message().contains("told nothing"), renews, "{state} {most:?}: {late}");
        }
    }
}
