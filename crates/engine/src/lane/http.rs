//! A lane over HTTP: range requests on one connection, several under way at once.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use gridlane_core::limits::{
    DIGEST_HEAD_MAX, ERROR_BODY_BYTES_MAX, IO_BYTES, REDIRECTS_MAX, SMALL_DOWNLOAD_BYTES_MAX,
};
use gridlane_core::{ByteRange, Checksum, Error, ErrorKind, Result, Url};
use gridlane_dav::ResponseHead;
use gridlane_dav::range::{ContentRange, RangeSpec};
use gridlane_peer::Renewal;
use gridlane_peer::http::{
    Connected, Connection, Purpose, Request, Response, is_collection, is_directory, may_be_listing,
    redirect_loop, sends_to_directory,
};
use gridlane_plan::Loss;
use gridlane_sys::ReusedBuf;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::answered::Answered;
use super::digest_request::{self, DigestRequest};
use super::tally::{DELAY_MAX, Tally};
use super::{Command, Commands, End, Lane, bounded};
use crate::digests;
use crate::notice::Notice;
use crate::source::Identity;

/// Time between two looks at the kernel's round trip while bytes come: some in each round trip that is long enough for
/// another connection to matter.
const ROUND_TRIP_INTERVAL: Duration = Duration::from_millis(10);

/// Bytes that are taken in vain, at most, to keep a connection: what one of sixteen has under way on a path of 1 Gb/s and 130 ms.
const LEFT_BYTES_MAX: u64 = 1024 * 1024;
/// They are waited for as long as a new connection takes on a long path, with its slow start.
const LEFT_MAX: Duration = Duration::from_secs(2);

/// The answer that is being read.
struct Answer {
    /// Where its next byte belongs.
    at: u64,
    /// Where it ends; `None` when only its end tells.
    end: Option<u64>,
}

/// The meaning of an answer's head.
enum Begun {
    /// Bytes follow.
    Bytes(Answer),
    /// There is nothing to take from it.
    Nothing,
    /// The same must be asked for elsewhere; the source knows where.
    Redirected,
    /// More was asked for than there is, and the connection is of no use any more; the source knows how much there is.
    Overlong,
}

/// With what a lane goes on whose connection is of no use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// A connection to where the source is now.
    Elsewhere,
    /// A new connection: the one that was idle had been closed.
    Fresh,
    /// A connection with the credential that has taken the place of a refused one.
    Renewed,
}

/// How a lane begins with its next connection.
#[derive(Default)]
struct Turn {
    /// It is a new one in any case.
    is_fresh: bool,
    /// A refused credential was replaced, and there has been no answer with bytes since: a second refusal is the end.
    has_renewed: bool,
}

/// The outcome of reading.
enum Step {
    Head(Result<Response>),
    Body(Result<usize>),
}

pub(super) async fn run(lane: &Lane, commands: &mut Commands) -> End {
    let (mut asked, mut tally) = (VecDeque::new(), Tally::default());
    let mut turn = Turn::default();
    let mut asking = lane.asks.map(DigestRequest::new);
    let mut turns_left = REDIRECTS_MAX + 1;
    while turns_left > 0 {
        let outcome = connected(lane, commands, &mut asked, &mut tally, &mut turn, &mut asking).await;
        tally.tell(lane);
        match outcome {
            // There has been an answer since the last time.
            Ok(Next::Renewed) => {
                (turn.is_fresh, turn.has_renewed, turns_left) = (false, true, REDIRECTS_MAX + 1);
                lane.source.set_resolved(None);
            }
            Ok(next) => {
                turn.is_fresh = next == Next::Fresh;
                turns_left -= 1;
            }
            Err(end) => return end,
        }
    }
    End::Dead { error: redirect_loop().endpoint(&lane.source.url), forget: false }
}

/// One connection's life. `Ok`: connect again, as it says, and ask for the same.
async fn connected(
    lane: &Lane,
    commands: &mut Commands,
    asked: &mut VecDeque<ByteRange>,
    tally: &mut Tally,
    turn: &mut Turn,
    asking: &mut Option<DigestRequest>,
) -> std::result::Result<Next, End> {
    let url = lane.source.current_url();
    let failed = |error: Error| match error.kind() {
        // A credential that is not accepted, or that has expired.
        ErrorKind::Denied => End::Dead { error, forget: false },
        _ => End::Lost(Loss::Failed, Some(error)),
    };
    asking.iter_mut().for_each(DigestRequest::begin);
    let mut connect = connect(lane, &url, turn.is_fresh);
    let connected = loop {
        tokio::select! {
            biased;
            command = commands.recv() => match command {
                Some(Command::Request(range)) => asked.push_back(range),
                Some(Command::Ask) => {}
                Some(Command::Close) | None => return Err(End::Lost(Loss::Closed, None)),
            },
            outcome = &mut connect => break outcome.unwrap_or_else(|cause| {
                Err(Error::new(ErrorKind::Other, format!("connecting failed: {cause}")))
            }),
        }
    };
    let connected = connected.map_err(|error| match error.kind() {
        // A certificate that is not trusted will not be trusted in a second either; nor will a proxy be
        // configured otherwise, or another protocol be spoken.
        ErrorKind::Denied | ErrorKind::Usage | ErrorKind::Unsupported | ErrorKind::Protocol => {
            End::Dead { error, forget: false }
        }
        _ => {
            lane.source.set_resolved(None);
            failed(error)
        }
    })?;
    let Connected { mut connection, handshake_round_trips } = connected;
    let round_trip = connection.round_trip();
    lane.source.set_peer(connection.peer());
    lane.tell(Notice::Dialled { lane: lane.id, round_trip, handshake_round_trips });

    for (at, range) in asked.iter().enumerate() {
        if at == 0 {
            match probe(lane, &mut connection, &url, *range, asking).await {
                Err(error) if connection.was_stale(&error) => return Ok(Next::Fresh),
                outcome => outcome.map_err(failed)?,
            }
        }
        let asks = asks_with_bytes(lane, asking).filter(|asking| at == 0 && !asking.is_sent());
        match send(lane, &mut connection, &url, *range, asks).await {
            Err(error) if connection.was_stale(&error) => return Ok(Next::Fresh),
            outcome => outcome.map_err(failed)?,
        }
    }
    let mut buf = ReusedBuf::new(IO_BYTES);
    let mut answer: Option<Answer> = None;
    let timer = tokio::time::sleep(DELAY_MAX);
    tokio::pin!(timer);
    let mut answers = 0_u64;
    let mut told_at = std::time::Instant::now();
    let think_max = DIGEST_HEAD_MAX + 4 * round_trip.unwrap_or_default();
    let thinking = tokio::time::sleep(think_max);
    tokio::pin!(thinking);
    loop {
        if connection.closes() && connection.body_ended() {
            return Err(End::Lost(Loss::Ended, None));
        }
        let is_asked = asking.as_ref().is_some_and(DigestRequest::is_next);
        // Bytes wait for what the server says of the checksum.
        let is_awaited = !asked.is_empty()
            && asking.as_ref().is_some_and(|asking| is_asked || answers == 0 && !asking.is_sent());
        let step = tokio::select! {
            biased;
            command = commands.recv() => match command {
                Some(Command::Request(range)) => {
                    asked.push_back(range);
                    let is_first = answers == 0 && asked.len() == 1;
                    if is_first {
                        match probe(lane, &mut connection, &url, range, asking).await {
                            Err(error) if connection.was_stale(&error) => return Ok(Next::Fresh),
                            outcome => outcome.map_err(|error| failed(error.endpoint(&url)))?,
                        }
                    }
                    let asks = asks_with_bytes(lane, asking).filter(|asking| is_first && !asking.is_sent());
                    if asks.is_some() || is_first {
                        thinking.as_mut().reset(tokio::time::Instant::now() + think_max);
                    }
                    match send(lane, &mut connection, &url, range, asks).await {
                        Ok(()) => continue,
                        Err(error) if answers == 0 && connection.was_stale(&error) => {
                            return Ok(Next::Fresh);
                        }
                        // The server may have closed an idle connection, as it is free to do.
                        Err(_) if asked.len() == 1 && answers > 0 => return Err(End::Lost(Loss::Ended, None)),
                        Err(error) => return Err(failed(error.endpoint(&url))),
                    }
                }
                Some(Command::Ask) => {
                    let is_free = asked.is_empty() && answers == 0;
                    let Some(own) = asking.as_mut().filter(|asking| is_free && !asking.is_sent()) else {
                        continue;
                    };
                    thinking.as_mut().reset(tokio::time::Instant::now() + think_max);
                    match own.send(&mut connection, &url, 0).await {
                        Ok(()) => continue,
                        Err(error) if connection.was_stale(&error) => return Ok(Next::Fresh),
                        Err(error) => return Err(failed(error.endpoint(&url))),
                    }
                }
                Some(Command::Close) | None => {
                    if asked.is_empty() && asking.as_ref().is_some_and(DigestRequest::is_next) {
                        digest_request::leave(connection);
                    } else if asking.as_ref().is_none_or(|asking| !asking.is_sent()) {
                        leave(connection, asked, answer.as_ref());
                    }
                    return Err(End::Lost(Loss::Closed, None));
                }
            },
            () = &mut timer, if !tally.is_empty() => {
                tally.tell(lane);
                continue;
            }
            step = read(&mut connection, &mut buf, &answer, lane), if !asked.is_empty() || is_asked => step,
            () = &mut thinking, if is_awaited => {
                // The server may be reading all of a large file: its checksum is asked for on another connection.
                lane.client.http.refused_digest_with_bytes(&lane.source.url);
                asking.take().into_iter().for_each(|asking| asking.give_up(lane));
                return Ok(Next::Fresh);
            }
        };
        if !turn.has_renewed && is_renewed(&connection, &step) {
            return Ok(Next::Renewed);
        }
        match step {
            Step::Head(Ok(response)) if asking.as_ref().is_some_and(|own| is_asked && own.is_probe()) => {
                let Some(mut own) = asking.take() else { continue };
                own.note(&url, &response.head);
                if !probed(lane, &mut connection, &response).await? {
                    own.give_up(lane);
                    return Ok(Next::Elsewhere);
                }
                *asking = own.answered_with_bytes(lane, &response);
                if let Some(own) = asking
                    && own.send(&mut connection, &url, asked.len()).await.is_err()
                {
                    // Reading will tell why.
                    asking.take().into_iter().for_each(|asking| asking.give_up(lane));
                }
            }
            Step::Head(Ok(response)) if is_asked => {
                let own = asking.take();
                if own.is_some_and(|asking| !asking.answered(lane, &url, &response)) {
                    return Ok(Next::Elsewhere);
                }
            }
            // XRootD (5.5.3) does so where the checksum that a GET asks for is of a kind which it does not compute.
            Step::Head(Ok(response))
                if answers == 0
                    && matches!(response.head.status.code(), 500 | 501)
                    && asking.as_ref().is_some_and(|own| !own.is_sent()) =>
            {
                lane.client.http.refused_digest_with_bytes(&lane.source.url);
                asking.take().into_iter().for_each(|asking| asking.give_up(lane));
                return Ok(Next::Fresh);
            }
            Step::Head(Ok(response)) => {
                let range = asked[0];
                let begun = begin(lane, &mut connection, &url, range, &response, answers == 0).await?;
                if matches!(begun, Begun::Bytes(_)) {
                    turn.has_renewed = false;
                    listen(lane, &response.head).await;
                }
                if let Some(asking) = asking {
                    asking.note(&url, &response.head);
                }
                answer = match begun {
                    Begun::Bytes(answer) => Some(answer),
                    Begun::Nothing => None,
                    Begun::Redirected => return Ok(Next::Elsewhere),
                    Begun::Overlong => return Ok(Next::Fresh),
                };
                if let Some(own) = asking.take_if(|asking| !asking.is_sent()) {
                    *asking = own.answered_with_bytes(lane, &response);
                    if let Some(own) = asking
                        && own.send(&mut connection, &url, asked.len()).await.is_err()
                    {
                        // Reading will tell why.
                        asking.take().into_iter().for_each(|asking| asking.give_up(lane));
                    }
                }
                answers += 1;
                tell_round_trip(lane, &connection);
                if connection.body_ended() {
                    finish(lane, asked, answer.take(), tally).map_err(|error| dead(lane, error))?;
                    if asking.as_mut().is_some_and(DigestRequest::pass) {
                        thinking.as_mut().reset(tokio::time::Instant::now() + think_max);
                    }
                }
            }
            Step::Head(Err(error)) if answers == 0 && connection.was_stale(&error) => {
                return Ok(Next::Fresh);
            }
            Step::Head(Err(_)) if is_asked => {
                // A server that refuses the digest request may still send the bytes.
                asking.take().into_iter().for_each(|asking| asking.give_up(lane));
                return Ok(Next::Fresh);
            }
            Step::Head(Err(error)) => {
                return Err(match connection.is_between_answers() && answers > 0 {
                    true => End::Lost(Loss::Ended, None),
                    // What spoke HTTP before and does not now may be another program, that has the port of a server
                    // which is being started.
                    false if answers == 0 && lane.source.identity().is_some() => {
                        End::Lost(Loss::Failed, Some(error.endpoint(&url)))
                    }
                    false => broken(error.endpoint(&url)),
                });
            }
            Step::Body(Err(error)) => return Err(broken(error.endpoint(&url))),
            Step::Body(Ok(count)) => {
                if count > 0 {
                    if tally.is_empty() {
                        timer.as_mut().reset(tokio::time::Instant::now() + DELAY_MAX);
                    }
                    take(lane, &buf[..count], &mut answer, tally).await?;
                    if told_at.elapsed() >= ROUND_TRIP_INTERVAL {
                        told_at = std::time::Instant::now();
                        tell_round_trip(lane, &connection);
                    }
                    if tally.is_empty() {
                        // As long as bytes are there already, nothing here ever waits: let the run have its
                        // turn on this thread, to read what it was told and to keep the journal.
                        tokio::task::yield_now().await;
                    }
                }
                if connection.body_ended() {
                    finish(lane, asked, answer.take(), tally).map_err(|error| dead(lane, error))?;
                    if asking.as_mut().is_some_and(DigestRequest::pass) {
                        thinking.as_mut().reset(tokio::time::Instant::now() + think_max);
                    }
                }
            }
        }
    }
}

/// True if the server refuses the credential of the oldest request, and another one has taken its place.
fn is_renewed(connection: &Connection, step: &Step) -> bool {
    let renewal = match step {
        Step::Head(Ok(response)) => connection.renewal(&response.head),
        Step::Head(Err(error)) | Step::Body(Err(error)) => connection.renewal_of_certificate(error),
        Step::Body(Ok(_)) => return false,
    };
    matches!(renewal, Renewal::Another)
}

/// Connects in a task of its own, which goes on when the handle is dropped: the next copy finds the connection.
fn connect(lane: &Lane, url: &Url, fresh: bool) -> JoinHandle<Result<Connected>> {
    let (client, origin, url) = (lane.client.http.clone(), lane.source.url.clone(), url.clone());
    let (notices, id) = (lane.notices.clone(), lane.id);
    tokio::spawn(async move {
        let reached = |round_trip| {
            // The copy may be over.
            let _ =
                notices.send(Notice::RoundTrip { lane: id, round_trip, loaded: None, out_of_order: None });
        };
        client.connect_telling(&origin, &url, Purpose::Lane, fresh, &reached).await
    })
}

/// Leaves a connection whose answers are of no use any more, because others have brought the same bytes. Where few are
/// left, which are on their way already or soon will be, they are taken, so that the next copy can use the connection: a new
/// one has a handshake and a window that must grow.
fn leave(mut connection: Connection, asked: &VecDeque<ByteRange>, answer: Option<&Answer>) {
    let all = asked.iter().map(|range| range.len()).fold(0, u64::saturating_add);
    let came = answer.zip(asked.front()).map_or(0, |(answer, first)| answer.at.saturating_sub(first.start()));
    if asked.is_empty() || all.saturating_sub(came) > LEFT_BYTES_MAX {
        return;
    }
    let (is_begun, answers) = (answer.is_some(), asked.len() - usize::from(answer.is_some()));
    tokio::spawn(timeout(LEFT_MAX, async move {
        if is_begun {
            connection.drain(LEFT_BYTES_MAX as usize).await?;
        }
        for _ in 0..answers {
            connection.response().await?;
            connection.drain(LEFT_BYTES_MAX as usize).await?;
        }
        Ok::<(), Error>(())
    }));
}

/// The digest request that goes with a request for bytes; `None` for a large file.
fn asks_with_bytes<'a>(lane: &Lane, asking: &'a mut Option<DigestRequest>) -> Option<&'a DigestRequest> {
    if lane.target.size_bytes().is_some_and(|size_bytes| size_bytes > SMALL_DOWNLOAD_BYTES_MAX) {
        let unasked = asking.take_if(|asking| !asking.is_sent());
        unasked.into_iter().for_each(|asking| asking.give_up(lane));
    }
    asking.as_ref()
}

/// Sends the digest request in front of one for bytes that may lie behind the end of the file.
async fn probe(
    lane: &Lane,
    connection: &mut Connection,
    url: &Url,
    range: ByteRange,
    asking: &mut Option<DigestRequest>,
) -> Result<()> {
    let is_known = lane.source.size_bytes().is_some() || lane.target.size_bytes().is_some();
    match asking.as_mut().filter(|asking| range.start() > 0 && !is_known && !asking.is_sent()) {
        Some(asking) => asking.send_probe(connection, url).await,
        None => Ok(()),
    }
}

/// Takes the answer to a request for the first byte. `false`: the connection is of no use any more.
async fn probed(
    lane: &Lane,
    connection: &mut Connection,
    response: &Response,
) -> std::result::Result<bool, End> {
    let head = &response.head;
    match head.status.code() {
        206 => {
            let range = head.content_range().ok().flatten();
            lane.identify(&Identity::of_response(head, range.and_then(|range| range.size)))?;
            listen(lane, head).await;
        }
        416 => {}
        // Errors are found by requests for bytes; a whole file is not read here.
        _ => return Ok(false),
    }
    Ok(connection.drain(ERROR_BODY_BYTES_MAX).await.is_ok() && !connection.closes())
}

/// Tells what the kernel knows of the round trip.
fn tell_round_trip(lane: &Lane, connection: &Connection) {
    if let Some(path) = connection.path() {
        lane.tell_path(&path);
    }
}

async fn send(
    lane: &Lane,
    connection: &mut Connection,
    url: &gridlane_core::Url,
    range: ByteRange,
    asks: Option<&DigestRequest>,
) -> Result<()> {
    let mut request = Request::new("GET", url);
    if let Some(asking) = asks {
        request = asking.add_to(request);
    }
    // Not every server takes a range that goes on behind the end.
    let end = lane.source.size_bytes().map_or(range.end(), |size_bytes| range.end().min(size_bytes));
    let range = if end > range.start() { ByteRange::new(range.start(), end) } else { range };
    if let Some(spec) = RangeSpec::of(range) {
        request = request.header("Range", spec.to_string());
    }
    connection.send(&request).await
}

/// Reads the next head, or body bytes when an answer has begun. May be dropped at any time.
async fn read(
    connection: &mut Connection,
    buf: &mut ReusedBuf,
    answer: &Option<Answer>,
    lane: &Lane,
) -> Step {
    if connection.body_ended() && answer.is_none() {
        return Step::Head(connection.response().await);
    }
    lane.pace.ready().await;
    let room = lane.pace.step_bytes(buf.len());
    Step::Body(connection.read_body(&mut buf[..room]).await)
}

/// Judges the head of an answer to a request for `range`.
async fn begin(
    lane: &Lane,
    connection: &mut Connection,
    url: &gridlane_core::Url,
    range: ByteRange,
    response: &Response,
    first: bool,
) -> std::result::Result<Begun, End> {
    let head = &response.head;
    if head.status.is_success()
        && lane.source.identity().is_none()
        && may_be_listing(url, head)
        && is_collection(&lane.client.http, &lane.source.url).await
    {
        return Err(End::Dead { error: is_directory(&lane.source.url), forget: false });
    }
    match Answered::of(head, range).map_err(|error| dead(lane, error))? {
        Answered::Overlong(size_bytes) => {
            lane.identify_answer(&Identity::of_response(head, Some(size_bytes)))?;
            match range.start() < size_bytes {
                true => Ok(Begun::Overlong),
                // There is nothing to ask for.
                false => Err(End::Lost(Loss::Ended, None)),
            }
        }
        Answered::Part(came) => {
            lane.identify_answer(&Identity::of_response(head, came.size))?;
            if first && response.keeps_alive && !head.loses_requests() {
                lane.tell(Notice::Pipelines { lane: lane.id });
            }
            Ok(Begun::Bytes(Answer { at: came.range.start(), end: Some(came.range.end()) }))
        }
        Answered::Whole(size_bytes) => {
            lane.identify_answer(&Identity::of_response(head, size_bytes))?;
            lane.tell(Notice::WholeBody { lane: lane.id, size_bytes });
            Ok(Begun::Bytes(Answer { at: 0, end: size_bytes }))
        }
        Answered::Nothing(size_bytes) => {
            lane.identify(&Identity::of_size(size_bytes))?;
            // An answer without bytes: the request is done.
            connection.drain(ERROR_BODY_BYTES_MAX).await.map_err(|error| broken(error.endpoint(url)))?;
            Ok(Begun::Nothing)
        }
        Answered::Other if sends_to_directory(url, head) => {
            Err(End::Dead { error: is_directory(&lane.source.url), forget: false })
        }
        Answered::Other => match lane.client.http.lead("GET", &lane.source.url, url, head) {
            Err(error) => Err(End::Dead { error, forget: false }),
            Ok(Some(next)) => {
                // Another connection may be made there; this one may serve again if its text is short.
                let _ = connection.drain(ERROR_BODY_BYTES_MAX).await;
                lane.source.set_resolved(Some(next));
                Ok(Begun::Redirected)
            }
            Ok(None) => {
                let error = connection.refused(url, head).await.endpoint(url);
                let error = connection.renewal(head).explain(error);
                lane.source.set_resolved(None);
                Err(refused(head.status.code(), error, head.retry_after(SystemTime::now())))
            }
        },
    }
}

/// Passes on the checksums that an answer with bytes states without a request for them.
async fn listen(lane: &Lane, head: &ResponseHead) {
    let Some(asked) = lane.listens else { return };
    let is_all = |range: ContentRange| range.size == Some(range.range.len());
    let is_whole = match head.status.code() {
        200 => true,
        _ => head.content_range().ok().flatten().is_some_and(is_all),
    };
    let checksums = lane.source.note_stated(digests::stated(head, Some(asked), is_whole));
    if checksums.is_empty() {
        return;
    }
    // Before its first byte is taken: what goes out in order is hashed on the way, or never.
    lane.target.hash_too(checksums.iter().map(Checksum::kind)).await;
    lane.tell(Notice::Stated { source: lane.source.number, checksums });
}

/// Which loss a status is.
pub(crate) fn refused(code: u16, error: Error, wait: Option<Duration>) -> End {
    match code {
        429 | 503 => End::Lost(Loss::Busy { wait: bounded(wait) }, Some(error)),
        408 | 500 | 502 | 504 => End::Lost(Loss::Failed, Some(error)),
        _ => End::Dead { error, forget: false },
    }
}

/// Writes body bytes where they belong.
async fn take(
    lane: &Lane,
    bytes: &[u8],
    answer: &mut Option<Answer>,
    tally: &mut Tally,
) -> std::result::Result<(), End> {
    let protocol = |message: &str| dead(lane, Error::new(ErrorKind::Protocol, message));
    let count = bytes.len() as u64;
    let Some(answer) = answer else {
        return Err(protocol("it sent bytes behind the end of an answer"));
    };
    if answer.end.is_some_and(|end| answer.at + count > end) {
        return Err(protocol("it sent more bytes than it announced"));
    }
    if lane.target.size_bytes().is_some_and(|size_bytes| answer.at + count > size_bytes) {
        if lane.source.size_bytes().is_some_and(|own| answer.at + count <= own) {
            // The source stated this size: the run decides which size is right, and the source is not at fault.
            return Err(End::Lost(Loss::Closed, None));
        }
        return Err(protocol("it sent more bytes than the file has"));
    }
    lane.pace.spend(bytes.len());
    let written = lane.target.write(lane.id, lane.source.number, bytes, answer.at).await;
    let fresh_bytes = written.map_err(End::Local)?;
    answer.at += count;
    tally.add(lane, count, fresh_bytes);
    Ok(())
}

/// The oldest request's answer is over.
fn finish(
    lane: &Lane,
    asked: &mut VecDeque<ByteRange>,
    answer: Option<Answer>,
    tally: &mut Tally,
) -> Result<()> {
    tally.tell(lane);
    asked.pop_front();
    if let Some(answer) = answer {
        match answer.end {
            Some(end) if answer.at < end => {
                let missing = end - answer.at;
                return Err(Error::new(
                    ErrorKind::Protocol,
                    format!("it sent {missing} bytes less than it announced"),
                ));
            }
            Some(_) => {}
            // Only now it is known how large the object is.
            None => {
                let identity = Identity::of_size(answer.at);
                let _ = lane.source.identify(&identity);
                lane.tell(Notice::Identified { source: lane.source.number, size_bytes: Some(answer.at) });
            }
        }
    }
    lane.tell(Notice::RequestDone { lane: lane.id });
    Ok(())
}

/// The peer does not keep to the protocol: the bytes that it sent do not count either.
fn dead(lane: &Lane, error: Error) -> End {
    End::Dead { error: error.endpoint(&lane.source.url), forget: true }
}

pub(crate) fn broken(error: Error) -> End {
    match error.kind() {
        ErrorKind::Protocol | ErrorKind::Denied => End::Dead { error, forget: false },
        _ => End::Lost(Loss::Failed, Some(error)),
    }
}
