//! One copy from beginning to end: the task that owns the plan.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use gridlane_core::limits::{JOURNAL_BYTES_MAX, JOURNAL_INTERVAL, SOURCES_MAX};
use gridlane_core::{ByteRange, ChecksumKind, Error, ErrorKind, Fault, Hasher, Result, Scheme, Time};
use gridlane_peer::Client;
use gridlane_peer::descriptors::{Descriptors, RunningCopy};
use gridlane_peer::http::Purpose;
use gridlane_plan::judge::{Event as Heard, Judge, PieceHashes, Terms};
use gridlane_plan::{self as plan, Action, LaneId, Plan, Settings, SourceId};
use gridlane_share::turns::BriefKind;
use gridlane_store::{Completion, Found as Earlier};
use gridlane_sys::process::cpu_time;
use tokio::sync::mpsc;
use tokio::time::{sleep_until, timeout};

use crate::events::{Event, Observer, Report};
use crate::governor::{PIECE_HELD_BYTES_MAX, Place};
use crate::lane::{Command, Lane, Running, lanes_near};
use crate::links::FoundMetalink;
use crate::meter::{Meter, OwnCpu};
use crate::notice::Notice;
use crate::ordered::Feed;
use crate::output::Output;
use crate::pace::Pace;
use crate::read_back::Reading;
use crate::replica::Replica;
use crate::target::{Sink, Target};
use crate::ticks::{TICK, Ticks};
use crate::upload::Upload;
use crate::{CopySpec, Options, Outcome, TargetSpec, digests, spec};

/// Notices handled before the plan is asked again: bounds how stale its orders are.
const NOTICES_AT_ONCE: usize = 64;

/// Pieces up to this size are asked for whole. Larger ones would make the shares of slow sources coarse.
const WHOLE_PIECE_BYTES_MAX: u64 = 1024 * 1024;
/// Of a source that brought less than this, slow start was most of the copy.
pub(crate) const SHORT_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The time that lanes may take to end when they are told to.
pub(crate) const LANE_END_MAX: Duration = Duration::from_secs(3);
/// The same when the copy is given up: then what a lane is about to write is of no use.
const LANE_CANCEL_MAX: Duration = Duration::from_millis(20);

/// A lane that is open.
pub(crate) struct LaneEntry {
    pub(crate) source: usize,
    pub(crate) is_dialled: bool,
    pub(crate) running: Running,
    pub(crate) commands: mpsc::UnboundedSender<Command>,
}

/// Everything a copy knows.
pub(crate) struct Run<'a> {
    /// Among the copies of this process.
    pub(crate) place: &'a mut Place,
    pub(crate) observer: &'a mut dyn Observer,
    pub(crate) client: Client,
    pub(crate) options: Options,
    /// The properties of the file for the commit of a target that takes bytes at any place.
    pub(crate) completion: Option<Completion>,
    pub(crate) upload_url: Option<gridlane_core::Url>,
    /// The server's answer about the time which an upload told it: true if it keeps that.
    pub(crate) modified_accepted: Option<Arc<AtomicBool>>,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) plan: Plan,
    /// Decides which bytes are right, and which source lied.
    pub(crate) judge: Judge,
    pub(crate) target: Arc<Target>,
    pub(crate) pace: Arc<Pace>,
    /// Bytes received in attempts that were given up, beside what the plan counts.
    pub(crate) wasted_bytes: u64,
    /// There is a metalink to go on with.
    pub(crate) found_metalink: Option<FoundMetalink>,
    /// Where the first source's server says that the file's metalink is.
    pub(crate) served_metalink: Option<gridlane_core::Url>,
    pub(crate) meter: Meter,
    /// An earlier run's bytes are there, and no source has stated yet which object it has: they may be of no use.
    pub(crate) earlier_kept: bool,
    /// First number in the journal that belongs to a source of this run.
    pub(crate) journal_base: u32,
    /// The journal says which object this is.
    pub(crate) journal_begun: bool,
    pub(crate) journaled_at: Time,
    pub(crate) lanes: BTreeMap<LaneId, LaneEntry>,
    pub(crate) notices: mpsc::UnboundedReceiver<Notice>,
    pub(crate) notify: mpsc::UnboundedSender<Notice>,
    /// A lane has become ready since idle ones were last told to ask for the checksum.
    pub(crate) has_new_lanes: bool,
    pub(crate) cpu: OwnCpu,
    /// No source can deliver what is missing.
    is_stuck: bool,
    /// The judge has nothing more to ask for.
    pub(crate) is_finished: bool,
    /// Under way while the copy may be stopped.
    pub(crate) reading: Reading,
}

/// Runs a copy once; see [`copy`](crate::copy). Says as well whether it failed because no source could deliver.
pub(crate) async fn run(
    spec: CopySpec,
    client: Client,
    place: &mut Place,
    observer: &mut dyn Observer,
    stop: impl Future<Output = ()>,
) -> (Outcome, bool) {
    let urls: Vec<String> = spec.sources.iter().map(|url| url.to_string()).collect();
    let begun = std::time::Instant::now();
    tokio::pin!(stop);
    place.begin_again();
    let request = opened(spec, stop.as_mut()).await;
    let run = request.map(|request| Run::begin(request, client, place, observer));
    match run {
        Err(error) => {
            let report = Report::of_none(urls, begun.elapsed());
            (Outcome { report, result: Err(error), metalink: None }, false)
        }
        Ok((mut run, found)) => {
            let result = Box::pin(run.move_all(found, stop)).await;
            let report = run.report();
            run.learn();
            let metalink = run.found_metalink.take().filter(|_| result.is_err());
            let is_stuck = run.is_stuck;
            let result = run.close(result).await;
            (Outcome { report, result, metalink }, is_stuck)
        }
    }
}

/// A request whose target is open.
struct Request {
    sources: Vec<gridlane_core::Url>,
    options: Options,
    target: Opened,
}

/// A target that is open, or needs no opening.
enum Opened {
    Anywhere(spec::OpenTarget),
    InOrder(Box<dyn Output>),
    Upload { url: gridlane_core::Url, overwrite: bool, modified: Option<SystemTime> },
}

/// Looks at a request, and opens its target.
async fn opened(spec: CopySpec, stop: impl Future<Output = ()>) -> Result<Request> {
    let CopySpec { sources, target, options } = spec;
    if sources.is_empty() || sources.len() > SOURCES_MAX {
        let message = format!("a copy has 1 to {SOURCES_MAX} sources, not {}", sources.len());
        return Err(Error::new(ErrorKind::Usage, message));
    }
    let target = match target {
        TargetSpec::Anywhere(opening) => tokio::select! {
            place = opening => Opened::Anywhere(place?),
            () = stop => return Err(interrupted()),
        },
        TargetSpec::InOrder(output) => Opened::InOrder(output),
        TargetSpec::Upload { url, overwrite, modified } => Opened::Upload { url, overwrite, modified },
    };
    Ok(Request { sources, options, target })
}

/// The outcome of a copy that was given up before it had begun.
pub(crate) fn not_begun(sources: &[gridlane_core::Url], took: Duration) -> Outcome {
    let urls = sources.iter().map(|url| url.to_string()).collect();
    Outcome { report: Report::of_none(urls, took), result: Err(interrupted()), metalink: None }
}

impl<'a> Run<'a> {
    fn begin(
        request: Request,
        client: Client,
        place: &'a mut Place,
        observer: &'a mut dyn Observer,
    ) -> (Run<'a>, Earlier) {
        let Request { sources, mut options, target } = request;
        // Without a bound, as a lane that waited for room here would hold up its bytes, and the run may be ending that lane: but
        // never long. A lane tells of at most one thing for each MiB or 2 ms of bytes that it was asked for, and has
        // 16 requests at most, which the run gives it; all else is told once for each lane, question and piece. The run
        // reads on but for the time in which it reads the file back, when nothing but the rest of duplicates is under way.
        let (notify, notices) = mpsc::unbounded_channel();
        settle_known(&mut options);
        // The ledger has adler32 in any case.
        let kinds = digests::kinds(&options).into_iter().filter(|kind| *kind != ChecksumKind::Adler32);
        let hashers: Vec<Hasher> = kinds.map(Hasher::new).collect();
        let mut found = Earlier::Nothing;
        let (mut completion, mut modified_accepted, mut upload_url) = (None, None, None);
        let sink = match target {
            Opened::Anywhere(opened) => {
                (found, completion) = (opened.found, Some(opened.completion));
                Sink::Anywhere(opened.target)
            }
            Opened::InOrder(output) => {
                // A target in order has taken bytes of the metalink by then, and they cannot be taken back.
                options.stop_at_metalink = false;
                Sink::Ordered(Box::new(Feed::new(output, hashers, notify.clone())))
            }
            Opened::Upload { url, overwrite, modified } => {
                let kind = digests::kinds(&options)[0];
                let (patience, answer_max) = (options.patience, options.upload_answer_max);
                let upload =
                    Upload::new(&client, url.clone(), overwrite, modified, kind, patience, answer_max);
                modified_accepted = upload.modified_accepted();
                upload_url = Some(url);
                Sink::Ordered(Box::new(Feed::new(Box::new(upload), hashers, notify.clone())))
            }
        };
        if let Sink::Ordered(_) = &sink {
            let is_held = |pieces: &PieceHashes| pieces.piece_bytes() <= PIECE_HELD_BYTES_MAX;
            options.known.pieces = options.known.pieces.filter(is_held);
        }
        let is_local = |urls: &[gridlane_core::Url]| matches!(urls, [only] if only.scheme() == Scheme::File);
        let mut judge = Judge::new(Terms {
            checksum: options.checksum.clone(),
            require_verified: options.require_verified,
            known: options.known.clone(),
            patience: options.patience,
            in_order: matches!(sink, Sink::Ordered(_)),
            is_own_word: upload_url.is_some() && is_local(&sources),
        });
        let is_alone = sources.len() == 1;
        let begun = std::time::Instant::now();
        let add = |(number, url): (usize, gridlane_core::Url)| {
            judge.add_source(Time::ZERO, true);
            let mute = client.unresponsive.of(&client.asked(&url));
            let stored = options.stored.clone().filter(|_| is_alone);
            let mut replica = Replica::new(number, url, stored);
            replica.was_silent = mute.is_silent(begun);
            if replica.was_silent {
                judge.votes_mut().give_up(number);
            }
            // With one source there is no other whose checksum could count instead.
            if mute.is_owing(begun) && !is_alone {
                judge.votes_mut().owed_in_vain(number);
            }
            replica
        };
        let replicas: Vec<Replica> = sources.into_iter().enumerate().map(add).collect();
        let run = Run {
            place,
            observer,
            client,
            completion,
            upload_url,
            modified_accepted,
            replicas,
            plan: Plan::new(Settings::default()),
            judge,
            target: Arc::new(
                Target::new(sink, options.known.pieces.clone(), notify.clone())
                    .at_most(options.size_bytes_max),
            ),
            pace: Arc::new(Pace::new(options.limit.clone())),
            options,
            wasted_bytes: 0,
            found_metalink: None,
            served_metalink: None,
            meter: Meter::default(),
            earlier_kept: false,
            journal_base: 0,
            journal_begun: false,
            journaled_at: Time::ZERO,
            lanes: BTreeMap::new(),
            notices,
            notify,
            has_new_lanes: false,
            cpu: OwnCpu::begin(RunningCopy::begin(), cpu_time()),
            is_stuck: false,
            is_finished: false,
            reading: Reading::default(),
        };
        (run, found)
    }

    async fn move_all(&mut self, found: Earlier, stop: impl Future<Output = ()>) -> Result<()> {
        tokio::pin!(stop);
        let work = async {
            // What happens once in a copy has its state on the heap: without optimization the stack would have room for all of
            // it at once.
            Box::pin(self.take_up(found)).await?;
            self.judge.agree_on_known();
            self.obey_judge().await?;
            for source in 0..self.replicas.len() {
                self.ask_digest(source);
            }
            self.new_plan();
            for source in 0..self.replicas.len() {
                // Some have said already what they have, when an earlier run was taken up or dropped.
                if let Some(identity) = self.replicas[source].source.identity() {
                    self.identified(source, identity.size_bytes).await?;
                }
            }
            self.drive().await?;
            Box::pin(self.finish()).await
        };
        tokio::select! {
            outcome = work => outcome,
            () = &mut stop => Err(interrupted()),
        }
    }

    /// The connections to a source that an earlier copy has left, and what it has measured on them.
    fn warm(&self, replica: &Replica) -> Option<plan::Event> {
        let url = &replica.source.url;
        let path = self.client.paths.of(&url.endpoint());
        let connections = if url.scheme().is_http() { self.client.http.idle(url, Purpose::Lane) } else { 0 };
        (connections > 0).then_some(plan::Event::Warm {
            source: SourceId(replica.source.number),
            connections,
            expected_bytes: path.file_bytes,
            rate_bytes_per_s: path.rate_bytes_per_s?,
            round_trip: path.round_trip?,
        })
    }

    pub(crate) fn is_known_to_pipeline(&self, lane: LaneId) -> bool {
        let source = self.lanes.get(&lane).map(|entry| &self.replicas[entry.source].source);
        source.is_some_and(|source| self.client.paths.of(&source.url.endpoint()).pipelines)
    }

    /// True if threads of their own are worth it for lanes: a stream takes bytes from one lane at a time, and over
    /// root:// little is gained.
    fn may_share_work(&self) -> bool {
        let is_http = |replica: &Replica| replica.source.url.scheme().is_http();
        self.target.anywhere().is_some() && self.replicas.iter().all(is_http)
    }

    /// Starts a plan over what the ledger has; called again when the size turned out to be another one.
    pub(crate) fn new_plan(&mut self) {
        let streams = self.options.streams;
        let defaults = Settings::default();
        let descriptors = Descriptors::of_process().lanes_max();
        // A wrong piece that comes from one source proves that source wrong, and needs no reading back.
        let piece_bytes = self.target.pieces().map(|pieces| pieces.hashes.piece_bytes());
        let request_bytes_min = match piece_bytes {
            Some(piece_bytes) if piece_bytes <= WHOLE_PIECE_BYTES_MAX => {
                defaults.request_bytes_min.max(piece_bytes)
            }
            _ => defaults.request_bytes_min,
        };
        let is_round = |bytes: &u64| (defaults.align_bytes..=request_bytes_min).contains(bytes);
        let settings = Settings {
            request_bytes_min,
            align_bytes: piece_bytes.filter(is_round).unwrap_or(defaults.align_bytes),
            lanes_per_source_max: streams.unwrap_or(defaults.lanes_per_source_max).min(descriptors),
            lanes_fixed: streams.is_some(),
            lanes_near: if self.may_share_work() { lanes_near() } else { 1 },
            lanes_max: defaults.lanes_max.max(streams.unwrap_or(0)).min(descriptors),
            window_bytes: self.place.window_bytes(),
            patience: self.options.patience,
            ..defaults
        };
        self.plan = Plan::new(settings);
        let now = self.pace.now();
        for replica in &self.replicas {
            let id = self.plan.add_source(now);
            debug_assert_eq!(id, SourceId(replica.source.number));
            if let Some(warm) = self.warm(replica) {
                self.plan.handle(now, warm);
            }
            if replica.dead.is_some() {
                self.plan.handle(now, plan::Event::SourceDead { source: id });
            }
        }
        let done: Vec<ByteRange> = self.target.ledger().pieces().map(|piece| piece.range).collect();
        for range in done {
            self.plan.handle(now, plan::Event::AlreadyDone { range });
        }
        if let Some(size_bytes) = self.judge.size_bytes() {
            self.plan.handle(now, plan::Event::SizeKnown { size_bytes });
        }
    }

    /// Moves bytes until the judge has nothing more to ask for.
    async fn drive(&mut self) -> Result<()> {
        let mut ticks = Ticks::new(tokio::time::Instant::now());
        loop {
            let now = self.pace.now();
            while let Some(action) = self.plan.poll(now) {
                self.act(action);
            }
            self.ask_by_idle_lanes();
            self.tell_states();
            let is_news = self.ask_judge().await?;
            if self.is_finished {
                return Ok(());
            }
            if is_news {
                continue;
            }
            if let plan::Outcome::Stuck(why) = self.plan.outcome(now) {
                if !self.try_others(why) {
                    self.is_stuck = true;
                    return Err(self.stuck(why));
                }
                if self.ask_judge().await? {
                    continue;
                }
            }
            let deadline = self.plan.deadline().into_iter().chain(self.judge.deadline()).min();
            let deadline = deadline.map(|time| self.pace.instant(time));
            let far = tokio::time::Instant::now() + TICK * 10;
            tokio::select! {
                notice = self.notices.recv() => {
                    // The run holds a sender itself, so the queue never ends.
                    let mut notice = notice;
                    for _ in 0..NOTICES_AT_ONCE {
                        let Some(one) = notice else { break };
                        self.notice(one).await?;
                        notice = self.notices.try_recv().ok();
                    }
                    if let Some(last) = notice {
                        self.notice(last).await?;
                    }
                    ticks.moved(self.meter.total(), tokio::time::Instant::now());
                    // By bytes and not by time only: what a kill costs is counted in bytes.
                    if self.target.ledger().unjournaled_bytes() >= JOURNAL_BYTES_MAX {
                        self.journal().await?;
                    }
                }
                () = sleep_until(deadline.unwrap_or(far)) => {}
                () = sleep_until(ticks.next) => {
                    self.tick().await?;
                    ticks.ticked(self.meter.total(), tokio::time::Instant::now());
                }
            }
        }
    }

    /// Does what the plan wants.
    fn act(&mut self, action: Action) {
        match action {
            Action::OpenLane { lane, source } => {
                let source = source.0 as usize;
                // Without a bound, and never long: the plan has at most 16 requests under way on a lane, a lane is asked for
                // a checksum once for each connection, and told to close once.
                let (commands, orders) = mpsc::unbounded_channel();
                let asks = self.digest_query_of_lane(source);
                let listens = self.judge.first_kind();
                let is_voted = self.judge.told().is_none() && !self.judge.is_described();
                let listens = Some(listens).filter(|_| is_voted);
                let replica = &mut self.replicas[source];
                replica.asking_lane = asks.map_or(replica.asking_lane, |_| Some(lane));
                let task = Lane {
                    id: lane,
                    source: self.replicas[source].source.clone(),
                    target: self.target.clone(),
                    client: self.client.clone(),
                    pace: self.pace.clone(),
                    asks,
                    listens,
                    notices: self.notify.clone(),
                };
                let has_thread = self.lanes.values().any(|entry| entry.running.has_thread());
                // Beside one that keeps the runtime busy.
                let is_beside = !self.lanes.is_empty() && self.plan.is_near(SourceId(source as u32));
                let running = match has_thread || !is_beside {
                    true => task.spawn(orders),
                    false => task.spawn_thread(orders),
                };
                self.lanes.insert(lane, LaneEntry { source, is_dialled: false, running, commands });
            }
            Action::Request { lane, range, .. } => self.command(lane, Command::Request(range)),
            Action::CloseLane { lane } => self.command(lane, Command::Close),
        }
    }

    pub(crate) fn command(&self, lane: LaneId, command: Command) {
        if let Some(entry) = self.lanes.get(&lane) {
            // A lane that has just ended has told so; its notice is on the way.
            let _ = entry.commands.send(command);
        }
    }

    /// Once in a while: progress and journal.
    async fn tick(&mut self) -> Result<()> {
        let now = self.pace.now();
        self.meter.advance(now);
        for replica in &mut self.replicas {
            replica.meter.advance(now);
        }
        if self.target.anywhere().is_some() {
            // A range for which a target in order has no room is not asked for, and says nothing about sources that
            // could send it.
            self.tell_slow();
        }
        self.place.moved(self.meter.total(), now);
        self.resize_window();
        let snapshot = self.snapshot();
        self.observer.event(&Event::Progress(&snapshot));
        self.tell_judge(Heard::Tick);
        let waits = self.target.ledger().unjournaled_bytes() > 0;
        match waits && now.since(self.journaled_at) >= JOURNAL_INTERVAL {
            true => self.journal().await,
            false => Ok(()),
        }
    }

    /// Takes the window that the other copies of the process leave to a target in order.
    fn resize_window(&mut self) {
        let Sink::Ordered(feed) = &self.target.sink else { return };
        self.place.resize_window(self.plan.ahead_bytes(), self.plan.waits_for_target());
        let Some(bytes) = self.place.window_bytes() else { return };
        let now = self.pace.now();
        self.plan.handle(now, plan::Event::Window { bytes });
        if let Some(up_to_bytes) = feed.set_window(bytes) {
            self.plan.handle(now, plan::Event::Released { up_to_bytes });
        }
    }

    /// Ends the run: the target becomes visible, or what can be resumed is kept.
    async fn close(mut self, result: Result<()>) -> Result<()> {
        let error = match result {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let patience = match error.kind() {
            ErrorKind::Interrupted => LANE_CANCEL_MAX,
            _ => LANE_END_MAX,
        };
        let Some(target) = self.target.anywhere().cloned() else {
            // A stream that takes no bytes would hold its lane for ever, and there is nothing to keep.
            if let Sink::Ordered(feed) = &self.target.clone().sink
                && feed.leaves_traces()
            {
                let _ = self.close_lanes(patience).await;
                feed.abandon().await;
            }
            return Err(error);
        };
        // Lanes finish the write they are in; then the journal tells of all that was written. If it cannot,
        // the first failure is still the one to report: a full disk fails both.
        let _ = self.close_lanes(patience).await;
        self.reading.end(patience).await;
        // What a lane was writing while its source turned out to be wrong is not to be continued.
        self.target.ledger().forget_refused();
        // A device that hangs keeps what it has: nothing waits for a turn at it any more.
        let _ = timeout(patience, self.journal()).await;
        let has_none = self.target.ledger().pieces().next().is_none();
        // Kept across a failure to reach any source: an earlier run's bytes that could not be judged yet.
        let is_useless = has_none || !target.is_recorded() && self.target.pieces().is_none();
        let nothing_to_keep = is_useless && !self.earlier_kept;
        let has_no_right_piece = self.judge.has_no_right_piece(&self.target.ledger());
        let is_worthless =
            self.judge.is_worthless() || error.kind() == ErrorKind::ChecksumMismatch && has_no_right_piece;
        if nothing_to_keep || is_worthless {
            let turns = target.turns();
            match timeout(patience, turns.brief(BriefKind::Other)).await {
                Ok(brief) => brief.run(|| target.discard()),
                Err(_) => {
                    let target = target.clone();
                    turns.run_later(move || target.discard());
                }
            }
        }
        Err(error)
    }
}

/// Of what is known, keeps what is to be compared: where the caller gives a checksum, that one decides.
fn settle_known(options: &mut Options) {
    let known = &mut options.known;
    if matches!(options.checksum, Some((_, Some(_)))) {
        known.checksums.clear();
    }
    // Of another size they are of another object, and where the last one ends nothing would be in its place.
    let size_bytes = known.size_bytes;
    known.pieces = known.pieces.take().filter(|pieces| Some(pieces.size_bytes()) == size_bytes);
    known.checksums.sort_by_key(|checksum| std::cmp::Reverse(checksum.kind().strength()));
}

fn interrupted() -> Error {
    Error::new(ErrorKind::Interrupted, "stopped").fault(Fault::Caller)
}
