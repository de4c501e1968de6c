//! A lane over HTTP: single ranges, and several in one request where the server answers in parts.
//!
//! Several ranges go in one request unless the server was seen not to understand that; then each goes by itself, ahead of the
//! answers where the server takes that. What was seen is remembered of the server for as long as the client lives.

mod answer;

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use gridlane_core::limits::{
    ERROR_BODY_BYTES_MAX, IO_BYTES, RANGE_HEADER_BYTES_MAX, RANGE_HEADER_BYTES_OWN, REDIRECTS_MAX,
};
use gridlane_core::{ByteRange, Error, ErrorKind, Result, Url};
use gridlane_dav::RangeList;
use gridlane_dav::range::RangeSpec;
use gridlane_peer::Renewal;
use gridlane_peer::http::{
    Connected, Connection, Purpose, Request, Response, is_collection, is_directory, may_be_listing,
    redirect_loop, sends_to_directory,
};
use gridlane_plan::{Loss, RequestId};
use gridlane_read::{Abilities, Event};
use gridlane_sys::ReusedBuf;
use tokio::time::{Instant, timeout_at};

use super::batch::Batch;
use super::lane::{Command, Commands, Heard, Lane, hear, meanwhile};
use crate::lane::End;
use crate::lane::http::{broken, refused};
use crate::source::Identity;
use answer::{Body, Taken};

/// Ranges that one request of the planner may have: several requests on the wire, where the header is too short.
const RANGES_MAX: usize = 1024;
/// The same where each range is a request on the wire.
const SINGLES_MAX: usize = 64;
/// Time, beside some round trips, after which a server is taken not to understand its first request for several ranges.
const PROBE_MAX: Duration = Duration::from_millis(1500);
/// A connection that was not used for so long may have been closed by the server meanwhile.
const IDLE_MIN: Duration = Duration::from_secs(1);
/// Requests that are sent ahead of their answers.
const AHEAD_MAX: usize = 128;

/// A request on the wire: one of the planner's, or a part of it.
#[derive(Debug)]
struct Get {
    request: RequestId,
    ranges: Vec<ByteRange>,
}

/// With what a lane goes on whose connection is of no use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// A connection to where the source is now.
    Elsewhere,
    /// A new connection.
    Fresh,
}

/// The outcome of reading.
enum Came {
    Head(Result<Response>),
    Bytes(Result<usize>),
    /// Nothing came in the time that a server may think about its first request for several ranges.
    Late,
}

struct Reader<'a> {
    lane: &'a Lane,
    url: Url,
    /// Sent and not answered to the end, oldest first.
    sent: VecDeque<Get>,
    /// To be sent, behind them.
    waiting: VecDeque<Get>,
    /// The planner was told that the lane is ready.
    is_ready: bool,
    abilities: Option<Abilities>,
    /// Connections since the last answer with bytes.
    moves: usize,
}

/// Runs until the connection ends or is to be closed.
pub(super) async fn run(lane: &Lane, commands: &mut Commands, batch: &mut Batch) -> End {
    let mut reader = Reader {
        lane,
        url: lane.source.current_url(),
        sent: VecDeque::new(),
        waiting: VecDeque::new(),
        is_ready: false,
        abilities: None,
        moves: 0,
    };
    let mut fresh = false;
    loop {
        reader.url = lane.source.current_url();
        match reader.connected(commands, batch, fresh).await {
            Ok(next) => fresh = next == Next::Fresh,
            Err(end) => return end,
        }
        // What was sent there is asked for again, in its order.
        while let Some(get) = reader.sent.pop_back() {
            reader.waiting.push_front(get);
        }
        reader.cut(batch);
        reader.moves += 1;
        if reader.moves > 2 * REDIRECTS_MAX {
            return End::Dead { error: redirect_loop().endpoint(&lane.source.url), forget: false };
        }
    }
}

impl Reader<'_> {
    /// One connection's life. `Ok`: connect again, as it says, and ask for what was not answered.
    async fn connected(
        &mut self,
        commands: &mut Commands,
        batch: &mut Batch,
        fresh: bool,
    ) -> std::result::Result<Next, End> {
        let http = &self.lane.shared.client.http;
        let mut kept = Vec::new();
        let connect = http.connect(&self.lane.source.url, &self.url, Purpose::Lane, fresh);
        self.lane.tell(batch);
        let connected = meanwhile(commands, &mut kept, connect).await?;
        let Connected { mut connection, handshake_round_trips } =
            connected.map_err(|error| self.unconnected(error))?;
        self.ready(batch, connection.round_trip(), handshake_round_trips == 0);
        for command in kept {
            self.obey(command, batch);
        }
        let mut buf = ReusedBuf::new(IO_BYTES);
        let mut body: Option<Body> = None;
        let mut answers = 0_u64;
        let mut used_at = Instant::now();
        let (mut thinking_until, mut was_idle) = (used_at + PROBE_MAX, false);
        loop {
            if connection.closes() && connection.body_ended() && body.is_none() {
                return match self.sent.is_empty() {
                    true => Err(End::Lost(Loss::Ended, None)),
                    false => Ok(Next::Fresh),
                };
            }
            let before = self.sent.len();
            match self.send(&mut connection).await {
                Err(error)
                    if connection.was_stale(&error)
                        || used_at.elapsed() > IDLE_MIN && self.sent.len() <= 1 =>
                {
                    return Ok(Next::Fresh);
                }
                // The server may have closed an idle connection, as it is free to do.
                Err(_) if answers > 0 && self.sent.len() <= 1 => return Err(End::Lost(Loss::Ended, None)),
                Err(error) => return Err(self.failed(error)),
                Ok(()) if before == 0 => {
                    let now = Instant::now();
                    thinking_until = now + PROBE_MAX;
                    was_idle = now.duration_since(used_at) > IDLE_MIN;
                }
                Ok(()) => {}
            }
            let is_probe = body.is_none() && self.is_probing();
            let thinking = is_probe.then(|| thinking_until + 4 * connection.round_trip().unwrap_or_default());
            let coming =
                (!self.sent.is_empty()).then(|| read(&mut connection, &mut buf, body.is_some(), thinking));
            let came = match hear(self.lane, commands, batch, coming).await {
                Heard::Command(Some(Command::Close) | None) => return Err(End::Lost(Loss::Closed, None)),
                Heard::Command(Some(command)) => {
                    self.obey(command, batch);
                    continue;
                }
                Heard::Came(came) => came,
            };
            match came {
                Came::Late => {
                    self.singly(batch);
                    return Ok(Next::Fresh);
                }
                Came::Head(Ok(response)) => {
                    answers += 1;
                    used_at = Instant::now();
                    thinking_until = used_at + PROBE_MAX;
                    let begun = self.begin(&mut connection, &response, batch).await?;
                    match begun {
                        Begun::Body(begun) => body = Some(begun),
                        Begun::Over => self.over(batch),
                        Begun::Again(next) => return Ok(next),
                        Begun::Singly => {
                            self.singly(batch);
                            if connection.closes() || !connection.body_ended() {
                                return Ok(Next::Fresh);
                            }
                            continue;
                        }
                    }
                }
                Came::Head(Err(error)) if answers == 0 && connection.was_stale(&error) => {
                    return Ok(Next::Fresh);
                }
                // A server waits for the next request, or the first one, as long as it likes.
                Came::Head(Err(error))
                    if was_idle && connection.is_between_answers() && error.kind() == ErrorKind::Network =>
                {
                    return Ok(Next::Fresh);
                }
                Came::Head(Err(error)) => {
                    // Between two answers a server is free to close.
                    return Err(match connection.is_between_answers() && answers > 0 {
                        true => End::Lost(Loss::Ended, None),
                        false if answers == 0 && self.lane.source.identity().is_some() => {
                            End::Lost(Loss::Failed, Some(error.endpoint(&self.url)))
                        }
                        false => broken(error.endpoint(&self.url)),
                    });
                }
                Came::Bytes(Err(error)) => return Err(broken(error.endpoint(&self.url))),
                Came::Bytes(Ok(count)) => {
                    if let Some(body) = &mut body {
                        body.take(&buf[..count], batch).map_err(|error| self.dead(error))?;
                    }
                    if batch.is_full() {
                        self.lane.tell(batch);
                        // As long as bytes are there already, nothing here ever waits: let others have their turn.
                        tokio::task::yield_now().await;
                    }
                }
            }
            if connection.body_ended()
                && let Some(body) = body.take()
            {
                let taken = body.finish().map_err(|error| self.dead(error))?;
                self.finish(taken, batch)?;
            }
        }
    }

    /// What the failure of a connection means.
    fn unconnected(&self, error: Error) -> End {
        match error.kind() {
            // A certificate that is not trusted will not be trusted in a second either; nor will a proxy be
            // configured otherwise, or another protocol be spoken.
            ErrorKind::Denied | ErrorKind::Usage | ErrorKind::Unsupported | ErrorKind::Protocol => {
                End::Dead { error, forget: false }
            }
            _ => {
                self.lane.source.set_resolved(None);
                End::Lost(Loss::Failed, Some(error))
            }
        }
    }

    fn failed(&self, error: Error) -> End {
        let error = error.endpoint(&self.url);
        match error.kind() {
            // A credential that is not accepted, or that has expired.
            ErrorKind::Denied => End::Dead { error, forget: false },
            _ => End::Lost(Loss::Failed, Some(error)),
        }
    }

    /// The peer does not keep to the protocol.
    fn dead(&self, error: Error) -> End {
        End::Dead { error: error.endpoint(&self.lane.source.url), forget: true }
    }

    /// Tells that there is a connection, once, and what can be asked on it.
    fn ready(&mut self, batch: &mut Batch, round_trip: Option<Duration>, warm: bool) {
        let known = self.lane.shared.client.http.ranges(&self.url);
        let abilities = Abilities {
            elements_max: match (known.takes_one, known.pipelines) {
                (false, _) => RANGES_MAX,
                (true, true) => SINGLES_MAX,
                (true, false) => 1,
            },
            element_bytes_max: u64::MAX,
            pipelines: known.pipelines,
            warm,
        };
        let lane = self.lane.id;
        if !std::mem::replace(&mut self.is_ready, true) {
            batch.push(Event::Ready { lane, round_trip, abilities });
        } else if self.abilities.is_none_or(|before| Abilities { warm: before.warm, ..abilities } != before) {
            batch.push(Event::Able { lane, abilities });
        }
        self.abilities = Some(abilities);
    }

    /// True if requests may be sent ahead of answers, as far as the planner knows.
    fn pipelines(&self) -> bool {
        self.abilities.is_some_and(|abilities| abilities.pipelines)
    }

    /// Something was learned of the server.
    fn learned(&mut self, batch: &mut Batch) {
        let warm = self.abilities.is_some_and(|abilities| abilities.warm);
        self.ready(batch, None, warm);
    }

    fn obey(&mut self, command: Command, batch: &mut Batch) {
        match command {
            Command::Request(order) => {
                self.ask(order.request, order.ranges);
                self.cut(batch);
            }
            Command::TakeBack(request) => {
                self.waiting.retain(|get| get.request != request);
                self.done_if_over(request, batch);
            }
            Command::Close => {}
        }
    }

    /// Has ranges sent when their turn comes, in as few requests as the server takes.
    fn ask(&mut self, request: RequestId, ranges: Vec<ByteRange>) {
        let known = self.lane.shared.client.http.ranges(&self.url);
        if known.takes_one {
            self.waiting.extend(singles(Get { request, ranges }));
            return;
        }
        let bytes_max = if known.takes_long_lists { RANGE_HEADER_BYTES_OWN } else { RANGE_HEADER_BYTES_MAX };
        let mut rest = ranges.as_slice();
        while let Some((_, count)) = RangeList::batch_within(rest, bytes_max) {
            let (now, later) = rest.split_at(count);
            self.waiting.push_back(Get { request, ranges: now.to_vec() });
            rest = later;
        }
        // Ranges that cannot be written, such as empty ones, are not asked for.
        if ranges.len() == rest.len() {
            self.waiting.push_back(Get { request, ranges: Vec::new() });
        }
    }

    /// Leaves out what is behind the end of the file, which not every server takes.
    fn cut(&mut self, batch: &mut Batch) {
        let Some(size_bytes) = self.lane.source.size_bytes() else { return };
        let file = ByteRange::new(0, size_bytes);
        let mut empty = Vec::new();
        for get in &mut self.waiting {
            get.ranges.iter_mut().for_each(|range| *range = range.intersection(file));
            get.ranges.retain(|range| !range.is_empty());
            if get.ranges.is_empty() {
                empty.push(get.request);
            }
        }
        self.waiting.retain(|get| !get.ranges.is_empty());
        empty.into_iter().for_each(|request| self.done_if_over(request, batch));
    }

    /// Sends what may be sent.
    async fn send(&mut self, connection: &mut Connection) -> Result<()> {
        let ahead_max = if self.pipelines() { AHEAD_MAX } else { 1 };
        let first = self.sent.len();
        if self.waiting.is_empty() || first >= ahead_max {
            return Ok(());
        }
        let takes_one = self.lane.shared.client.http.ranges(&self.url).takes_one;
        while self.sent.len() < ahead_max
            && let Some(get) = self.waiting.pop_front()
        {
            if takes_one && get.ranges.len() > 1 {
                // Another lane has found that out.
                singles(get).into_iter().rev().for_each(|single| self.waiting.push_front(single));
                continue;
            }
            self.sent.push_back(get);
        }
        let requests: Vec<Request<'_>> =
            self.sent.range(first..).map(|get| ask_for(&self.url, &get.ranges)).collect();
        connection.send_all(&requests).await.map(|_| ())
    }

    /// True if the next answer is the first one to a request for several ranges: some servers never send it.
    fn is_probing(&self) -> bool {
        let is_of_several = self.sent.front().is_some_and(|get| get.ranges.len() > 1);
        is_of_several && !self.lane.shared.client.http.ranges(&self.url).sends_parts
    }

    /// The oldest request that was sent is answered.
    fn over(&mut self, batch: &mut Batch) {
        if let Some(get) = self.sent.pop_front() {
            self.done_if_over(get.request, batch);
        }
    }

    /// Tells that a request of the planner is done, if nothing of it is under way or waits.
    fn done_if_over(&self, request: RequestId, batch: &mut Batch) {
        let is_left = |get: &Get| get.request == request;
        if !self.sent.iter().any(is_left) && !self.waiting.iter().any(is_left) {
            batch.push(Event::Done { request });
        }
    }

    /// The server does not do as a request for several ranges says: from now on each goes by itself.
    fn singly(&mut self, batch: &mut Batch) {
        self.lane.shared.client.http.asked_for_ranges(&self.url, false);
        self.learned(batch);
        if let Some(get) = self.sent.pop_front() {
            singles(get).into_iter().rev().for_each(|single| self.waiting.push_front(single));
        }
    }

    /// What a body that has ended says.
    fn finish(&mut self, taken: Taken, batch: &mut Batch) -> std::result::Result<(), End> {
        match taken {
            Taken::All => self.over(batch),
            Taken::Parts => {
                let http = &self.lane.shared.client.http;
                if !http.ranges(&self.url).sends_parts {
                    http.asked_for_ranges(&self.url, true);
                }
                self.over(batch);
            }
            Taken::Lacks(lacks) => {
                if let Some(get) = self.sent.front_mut() {
                    get.ranges = lacks;
                }
                self.singly(batch);
            }
            // Only now it is known how large the file is.
            Taken::Size(size_bytes) => {
                self.lane.identify(&Identity::of_size(size_bytes), batch)?;
                self.over(batch);
            }
        }
        Ok(())
    }

    /// Judges the head of the oldest request's answer.
    async fn begin(
        &mut self,
        connection: &mut Connection,
        response: &Response,
        batch: &mut Batch,
    ) -> std::result::Result<Begun, End> {
        let head = &response.head;
        let Some(get) = self.sent.front() else {
            return Err(self.dead(Error::new(ErrorKind::Protocol, "it answers what was not asked")));
        };
        let http = &self.lane.shared.client.http;
        let source = &self.lane.source;
        if head.status.is_success()
            && source.identity().is_none()
            && may_be_listing(&self.url, head)
            && is_collection(http, &source.url).await
        {
            return Err(End::Dead { error: is_directory(&source.url), forget: false });
        }
        let judged = answer::judge(head, get.request, &get.ranges).map_err(|error| self.dead(error))?;
        let may_be_ahead = response.keeps_alive && !head.loses_requests();
        if may_be_ahead && matches!(head.status.code(), 200 | 206) && !self.pipelines() {
            http.pipelines(&self.url);
            self.learned(batch);
        }
        match judged {
            answer::Judged::Body { body, size_bytes } => {
                self.lane.identify_answer(&Identity::of_response(head, size_bytes), batch)?;
                self.lane.look_on_disk().await;
                self.moves = 0;
                if let Some(request) = body.whole() {
                    batch.push(Event::WholeBody { request });
                    // Nothing else is asked for here.
                    self.waiting.clear();
                }
                Ok(Begun::Body(body))
            }
            answer::Judged::Overlong(size_bytes) => {
                self.lane.identify_answer(&Identity::of_response(head, Some(size_bytes)), batch)?;
                Ok(Begun::Again(Next::Fresh))
            }
            answer::Judged::Nothing(size_bytes) => {
                self.lane.identify(&Identity::of_size(size_bytes), batch)?;
                let drained = connection.drain(ERROR_BODY_BYTES_MAX).await;
                drained.map_err(|error| broken(error.endpoint(&self.url)))?;
                Ok(Begun::Over)
            }
            answer::Judged::Singly => {
                if !connection.closes() {
                    // What is short is read away, so that the connection can go on.
                    let _ = connection.drain(ERROR_BODY_BYTES_MAX).await;
                }
                Ok(Begun::Singly)
            }
            answer::Judged::Other if sends_to_directory(&self.url, head) => {
                Err(End::Dead { error: is_directory(&source.url), forget: false })
            }
            answer::Judged::Other => match http.lead("GET", &source.url, &self.url, head) {
                Err(error) => Err(End::Dead { error, forget: false }),
                Ok(Some(next)) => {
                    // Another connection may be made there; this one may serve again if its text is short.
                    let _ = connection.drain(ERROR_BODY_BYTES_MAX).await;
                    source.set_resolved(Some(next));
                    Ok(Begun::Again(Next::Elsewhere))
                }
                // Each move is with another credential, and their number has a bound.
                Ok(None) if matches!(connection.renewal(head), Renewal::Another) => {
                    source.set_resolved(None);
                    Ok(Begun::Again(Next::Elsewhere))
                }
                Ok(None) => {
                    let error = connection.refused(&self.url, head).await.endpoint(&self.url);
                    let error = connection.renewal(head).explain(error);
                    source.set_resolved(None);
                    Err(refused(head.status.code(), error, head.retry_after(SystemTime::now())))
                }
            },
        }
    }
}

/// The meaning of an answer's head.
enum Begun {
    /// Bytes follow.
    Body(Body),
    /// It is answered without any.
    Over,
    /// The connection is of no use any more.
    Again(Next),
    /// The server does not understand a request for several ranges.
    Singly,
}

/// Each range by itself.
fn singles(get: Get) -> Vec<Get> {
    let Get { request, ranges } = get;
    ranges.into_iter().map(|range| Get { request, ranges: vec![range] }).collect()
}

fn ask_for<'a>(url: &'a Url, ranges: &[ByteRange]) -> Request<'a> {
    let request = Request::new("GET", url);
    match ranges {
        [one] => match RangeSpec::of(*one) {
            Some(spec) => request.header("Range", spec.to_string()),
            None => request,
        },
        several => match RangeList::batch_within(several, usize::MAX) {
            Some((list, _)) => request.header("Range", list.to_string()),
            None => request,
        },
    }
}

/// Reads the next head, or body bytes when an answer has begun, up to a moment if there is one. May be dropped at any time.
async fn read(
    connection: &mut Connection,
    buf: &mut ReusedBuf,
    is_inside: bool,
    until: Option<Instant>,
) -> Came {
    match (is_inside, until) {
        (true, _) => Came::Bytes(connection.read_body(buf).await),
        (false, None) => Came::Head(connection.response().await),
        (false, Some(until)) => match timeout_at(until, connection.response()).await {
            Ok(head) => Came::Head(head),
            Err(_) => Came::Late,
        },
    }
}
