//! One copy from beginning to end: the task that owns the plan.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gridlane_core::limits::{
    FIRST_CONTACT_MAX, JOURNAL_BYTES_MAX, JOURNAL_INTERVAL, REORDER_BYTES_MAX, SOURCES_MAX,
};
use gridlane_core::{
    ByteRange, Checksum, ChecksumKind, Error, ErrorKind, Fault, Hasher, Result, Scheme, Time,
};
use gridlane_peer::Client;
use gridlane_peer::descriptors::{Descriptors, RunningCopy};
use gridlane_peer::http::Purpose;
use gridlane_peer::paths::Path;
use gridlane_plan::{self as plan, Action, LaneId, Plan, Settings, SourceId, Votes};
use gridlane_store::partial::{Found, PartialFile, exists, sweep};
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use crate::attempts::WrongPieces;
use crate::events::{Event, Observer, Report, State};
use crate::governor::Place;
use crate::lane::{Command, Lane, Running, end_all, lanes_near};
use crate::ledger::{Piece, Sender, Thrown};
use crate::links::FoundMetalink;
use crate::meter::Meter;
use crate::notice::Notice;
use crate::ordered::{Feed, Output};
use crate::pace::Pace;
use crate::replica::Replica;
use crate::suspects::Suspects;
use crate::target::{Sink, Target};
use crate::upload::Upload;
use crate::verdict::Basis;
use crate::{CopySpec, Options, Outcome, TargetSpec, digests};

/// How often progress is told and the journal looked at.
const TICK: Duration = Duration::from_millis(100);
/// Notices handled before the plan is asked again: bounds how stale its orders are.
const NOTICES_AT_ONCE: usize = 64;

/// Attempts to reach a source that has never been reached: more likely a wrong name than a pause.
const CONNECTS_MAX: u32 = 3;
/// Lanes that fail within this time are one attempt.
const CONNECT_PAUSE: Duration = Duration::from_millis(200);
/// Pieces up to this size are asked for whole. Larger ones would make the shares of slow sources coarse.
const WHOLE_PIECE_BYTES_MAX: u64 = 1024 * 1024;
/// Of a source that brought less than this, slow start was most of the copy.
const SHORT_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// How long lanes may take to end when they are told to.
pub(crate) const LANE_END_MAX: Duration = Duration::from_secs(3);
/// The same when the copy is given up: then what a lane is about to write is of no use.
const LANE_CANCEL_MAX: Duration = Duration::from_millis(20);

/// A lane that is open.
pub(crate) struct LaneEntry {
    source: usize,
    pub(crate) is_dialled: bool,
    running: Running,
    commands: mpsc::UnboundedSender<Command>,
}

/// What is known of the bytes that an earlier run has left.
#[derive(Default)]
pub(crate) struct Earlier {
    /// Where they are; nowhere once they were thrown away.
    pub(crate) ranges: Vec<ByteRange>,
    /// The sources were asked for strong checksums because of them.
    pub(crate) is_compared_strongly: bool,
    /// How often the file was read back and had other bytes than had come.
    pub(crate) damages: u32,
}

/// Everything a copy knows.
pub(crate) struct Run<'a> {
    /// Among the copies of this process.
    place: &'a mut Place,
    pub(crate) observer: &'a mut dyn Observer,
    pub(crate) client: Client,
    pub(crate) options: Options,
    pub(crate) overwrite: bool,
    pub(crate) upload_url: Option<gridlane_core::Url>,
    /// Whether the server has said that it keeps the time which an upload told it.
    pub(crate) modified_accepted: Option<Arc<AtomicBool>>,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) plan: Plan,
    /// What the sources say of the file.
    pub(crate) votes: Votes,
    pub(crate) target: Arc<Target>,
    pub(crate) pace: Arc<Pace>,
    pub(crate) size_bytes: Option<u64>,
    pub(crate) resumed_bytes: u64,
    /// Bytes received in attempts that were given up, beside what the plan counts.
    pub(crate) wasted_bytes: u64,
    /// Bytes that were thrown away because their piece was wrong.
    pub(crate) wrong_bytes: u64,
    /// Pieces that were wrong, until they are right.
    pub(crate) wrong_pieces: WrongPieces,
    /// There is a metalink to go on with.
    pub(crate) found_metalink: Option<FoundMetalink>,
    /// Where the first source's server says that the file's metalink is.
    pub(crate) served_metalink: Option<gridlane_core::Url>,
    pub(crate) meter: Meter,
    pub(crate) suspects: Option<Suspects>,
    /// What was thrown away while looking for who lied.
    pub(crate) thrown: Vec<Thrown>,
    pub(crate) verified: Option<Basis>,
    pub(crate) checksum: Option<Checksum>,
    /// All checksums of the bytes that were computed to compare them.
    pub(crate) compared: Vec<Checksum>,
    /// The kind of checksum that the caller asked for, when nobody states one.
    pub(crate) unstated: Option<ChecksumKind>,
    /// What the bytes had and should have had when they were last wrong.
    pub(crate) mismatch: Option<(Checksum, Checksum)>,
    pub(crate) verifying: bool,
    /// The bytes are wrong, and nobody has right ones: not to be resumed.
    pub(crate) is_worthless: bool,
    /// An earlier run's bytes are there and nobody has said yet whether they are of use.
    pub(crate) earlier_kept: bool,
    /// First number in the journal that belongs to a source of this run.
    pub(crate) journal_base: u32,
    /// Whether the journal says which object this is.
    pub(crate) journal_begun: bool,
    pub(crate) journaled_at: Time,
    pub(crate) lanes: BTreeMap<LaneId, LaneEntry>,
    notices: mpsc::UnboundedReceiver<Notice>,
    pub(crate) notify: mpsc::UnboundedSender<Notice>,
    /// A lane has become ready since idle ones were last told to ask for the checksum.
    pub(crate) has_new_lanes: bool,
    /// What an earlier run has left.
    pub(crate) earlier: Earlier,
    _counted: RunningCopy,
    /// The kinds of checksums that the bytes were compared with and have.
    pub(crate) verified_with: Vec<ChecksumKind>,
    /// No source can deliver what is missing.
    is_stuck: bool,
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
    match Run::begin(spec, client, place, observer) {
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

/// The outcome of a copy that was given up before it had begun.
pub(crate) fn not_begun(sources: &[gridlane_core::Url], took: Duration) -> Outcome {
    let urls = sources.iter().map(|url| url.to_string()).collect();
    Outcome { report: Report::of_none(urls, took), result: Err(interrupted()), metalink: None }
}

impl<'a> Run<'a> {
    fn begin(
        spec: CopySpec,
        client: Client,
        place: &'a mut Place,
        observer: &'a mut dyn Observer,
    ) -> Result<(Run<'a>, Found)> {
        place.begin_again();
        if spec.sources.is_empty() || spec.sources.len() > SOURCES_MAX {
            let message = format!("a copy has 1 to {SOURCES_MAX} sources, not {}", spec.sources.len());
            return Err(Error::new(ErrorKind::Usage, message));
        }
        let (notify, notices) = mpsc::unbounded_channel();
        let mut options = spec.options;
        settle_known(&mut options);
        // The ledger has adler32 in any case.
        let kinds = digests::kinds(&options).into_iter().filter(|kind| *kind != ChecksumKind::Adler32);
        let hashers: Vec<Hasher> = kinds.map(Hasher::new).collect();
        let mut found = Found::Nothing;
        let mut modified_accepted = None;
        let (sink, overwrite, upload_url) = match spec.target {
            TargetSpec::File { path, overwrite } => {
                if !overwrite && path.symlink_metadata().is_ok() {
                    // Perhaps an earlier run was killed when all was there.
                    sweep(&path);
                    return Err(exists(&path));
                }
                let (partial, earlier) = PartialFile::open(&path, &options.journal_keys)?;
                found = earlier;
                (Sink::Partial(partial), overwrite, None)
            }
            TargetSpec::Stream(file) => {
                // What it has taken of a metalink could not be called back.
                options.stop_at_metalink = false;
                (Sink::Ordered(Feed::new(Output::File(file), hashers, notify.clone())), true, None)
            }
            TargetSpec::Upload { url, overwrite, modified } => {
                let kind = digests::kinds(&options)[0];
                let (patience, answer_max) = (options.patience, options.upload_answer_max);
                let upload =
                    Upload::new(&client, url.clone(), overwrite, modified, kind, patience, answer_max);
                modified_accepted = upload.modified_accepted();
                let output = Output::Upload(Box::new(upload));
                (Sink::Ordered(Feed::new(output, hashers, notify.clone())), overwrite, Some(url))
            }
        };
        if let Sink::Ordered(_) = &sink {
            let held_max = REORDER_BYTES_MAX / 2;
            // Whole pieces are held back until they are right: a window must have room for two.
            options.known.pieces = options.known.pieces.filter(|pieces| pieces.piece_bytes() <= held_max);
        }
        let mut votes = Votes::new(options.patience);
        let is_alone = spec.sources.len() == 1;
        let begun = std::time::Instant::now();
        let add = |(number, url): (usize, gridlane_core::Url)| {
            votes.add(Time::ZERO, true);
            let mute = client.unresponsive.of(&client.asked(&url));
            let mut replica = Replica::new(number, url);
            replica.was_silent = mute.is_silent(begun);
            if replica.was_silent {
                votes.give_up(number);
            }
            // The only source has nobody beside it who could be believed instead.
            if mute.is_owing(begun) && !is_alone {
                votes.owed_in_vain(number);
            }
            replica
        };
        let replicas: Vec<Replica> = spec.sources.into_iter().enumerate().map(add).collect();
        let run = Run {
            place,
            observer,
            client,
            overwrite,
            upload_url,
            modified_accepted,
            replicas,
            plan: Plan::new(Settings::default()),
            votes,
            target: Arc::new(Target::new(sink, options.known.pieces.clone(), notify.clone())),
            pace: Arc::new(Pace::new(options.limit.clone())),
            options,
            size_bytes: None,
            resumed_bytes: 0,
            wasted_bytes: 0,
            wrong_bytes: 0,
            wrong_pieces: WrongPieces::default(),
            found_metalink: None,
            served_metalink: None,
            meter: Meter::default(),
            suspects: None,
            thrown: Vec::new(),
            verified: None,
            checksum: None,
            compared: Vec::new(),
            unstated: None,
            mismatch: None,
            verifying: false,
            is_worthless: false,
            earlier_kept: false,
            journal_base: 0,
            journal_begun: false,
            journaled_at: Time::ZERO,
            lanes: BTreeMap::new(),
            notices,
            notify,
            has_new_lanes: false,
            earlier: Earlier::default(),
            _counted: RunningCopy::begin(),
            verified_with: Vec::new(),
            is_stuck: false,
        };
        Ok((run, found))
    }

    async fn move_all(&mut self, found: Found, stop: impl Future<Output = ()>) -> Result<()> {
        tokio::pin!(stop);
        let work = async {
            // What happens once in a copy has its state on the heap: without optimization the stack would have room for all of
            // it at once.
            Box::pin(self.take_up(found)).await?;
            if let (None, Some(size_bytes)) = (self.size_bytes, self.options.known.size_bytes) {
                self.agree(size_bytes).await?;
            }
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
            loop {
                match self.drive(|run| run.plan.is_complete()).await {
                    // Those who may send a piece again cannot: others may.
                    Err(_) if self.is_refused() && self.refetch_wrong_pieces() => {}
                    // Those who are believed at the moment cannot deliver: believe others.
                    Err(error) if self.suspects.is_some() && self.is_refused() => {
                        Box::pin(self.believe_others(error)).await?
                    }
                    outcome => outcome?,
                }
                self.is_stuck = false;
                if self.plan.is_complete() && Box::pin(self.judge()).await? && Box::pin(self.is_fit()).await?
                {
                    return Box::pin(self.finish()).await;
                }
            }
        };
        tokio::select! {
            outcome = work => outcome,
            () = &mut stop => Err(interrupted()),
        }
    }

    /// What a connection to a source does that an earlier copy has left: bytes per second, and its round trip.
    fn warm_path(&self, replica: &Replica) -> Option<(f64, Duration)> {
        let url = &replica.source.url;
        let path = self.client.paths.of(&url.endpoint());
        let is_there = url.scheme().is_http() && self.client.http.has_idle(url, Purpose::Lane);
        path.rate_bytes_per_s.zip(path.round_trip).filter(|_| is_there)
    }

    fn is_known_to_pipeline(&self, lane: LaneId) -> bool {
        let source = self.lanes.get(&lane).map(|entry| &self.replicas[entry.source].source);
        source.is_some_and(|source| self.client.paths.of(&source.url.endpoint()).pipelines)
    }

    /// Remembers what the connections did, for copies to come.
    fn learn(&self) {
        for (number, replica) in self.replicas.iter().enumerate() {
            self.learn_mute(number, replica);
            let report = self.plan.source_report(SourceId(number as u32));
            let Some(report) = report.filter(|_| replica.received_bytes > 0 && replica.dead.is_none()) else {
                continue;
            };
            let mean = Some(report.rate_bytes_per_s).filter(|rate| *rate > 0.0);
            let rate_bytes_per_s = match replica.received_bytes < SHORT_BYTES_MAX {
                true => replica.bursts.best_bytes_per_s().or(mean),
                false => mean,
            };
            let rate_bytes_per_s = rate_bytes_per_s.map(|rate| rate / report.lanes.max(1) as f64);
            let path =
                Path { rate_bytes_per_s, round_trip: replica.round_trip, pipelines: replica.pipelines };
            self.client.paths.learn(&replica.source.url.endpoint(), |known| known.update(path));
        }
    }

    /// Remembers whether a source was waited for in vain. What an earlier copy has found is not prolonged by one that did not
    /// wait.
    fn learn_mute(&self, number: usize, replica: &Replica) {
        let (at, now) = (self.client.asked(&replica.source.url), std::time::Instant::now());
        let was_heard = self.votes.was_heard(number);
        let is_silent = !replica.was_silent && self.votes.is_mute(number, self.pace.now());
        let known = self.client.unresponsive.of(&at);
        let mut news = known;
        if is_silent || was_heard {
            news.note_silent(is_silent, now);
        }
        // What has not answered anything owes its checksum as well, even if it sends bytes of the next file.
        let is_owing = replica.owed_in_vain || is_silent;
        if is_owing || replica.has_spoken {
            news.note_owing(is_owing, now);
        }
        if news != known {
            self.client.unresponsive.learn(&at, |known| *known = news);
        }
    }

    /// The kind of checksum that is compared first of all.
    pub(crate) fn digest_kind(&self) -> ChecksumKind {
        digests::kinds(&self.options)[0]
    }

    /// Whether lanes with threads of their own are worth it: a stream takes bytes from one at a time, and over root://
    /// little is gained.
    fn may_share_work(&self) -> bool {
        let is_http = |replica: &Replica| replica.source.url.scheme().is_http();
        self.target.partial().is_some() && self.replicas.iter().all(is_http)
    }

    /// Starts a plan over what the ledger has; called again when the size turned out to be another one.
    pub(crate) fn new_plan(&mut self) {
        let streams = self.options.streams;
        let defaults = Settings::default();
        let descriptors = Descriptors::of_process().lanes_max();
        // A piece that comes from one source tells who lied, and needs no reading back.
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
            window_bytes: self.target.partial().is_none().then_some(REORDER_BYTES_MAX),
            patience: self.options.patience,
            ..defaults
        };
        self.plan = Plan::new(settings);
        let now = self.pace.now();
        for replica in &self.replicas {
            let id = self.plan.add_source(now);
            debug_assert_eq!(id, SourceId(replica.source.number));
            if let Some((rate_bytes_per_s, round_trip)) = self.warm_path(replica) {
                self.plan.handle(now, plan::Event::Warm { source: id, rate_bytes_per_s, round_trip });
            }
            if replica.dead.is_some() {
                self.plan.handle(now, plan::Event::SourceDead { source: id });
            }
        }
        let done: Vec<ByteRange> = self.target.ledger().pieces().map(|piece| piece.range).collect();
        for range in done {
            self.plan.handle(now, plan::Event::AlreadyDone { range });
        }
        if let Some(size_bytes) = self.size_bytes {
            self.plan.handle(now, plan::Event::SizeKnown { size_bytes });
        }
    }

    /// Moves bytes until `done` says so.
    pub(crate) async fn drive(&mut self, done: impl Fn(&Run<'_>) -> bool) -> Result<()> {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            let now = self.pace.now();
            while let Some(action) = self.plan.poll(now) {
                self.act(action);
            }
            self.ask_by_idle_lanes();
            self.tell_states();
            if done(self) {
                return Ok(());
            }
            if let plan::Outcome::Stuck(why) = self.plan.outcome(now) {
                self.is_stuck = true;
                return Err(self.stuck(why));
            }
            let deadline = self.plan.deadline().map(|time| self.pace.instant(time));
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
                    // By bytes and not by time only: what a kill costs is counted in bytes.
                    if self.target.ledger().unjournaled_bytes() >= JOURNAL_BYTES_MAX {
                        self.journal()?;
                    }
                }
                () = sleep_until(deadline.unwrap_or(far)) => {}
                _ = tick.tick() => self.tick()?,
            }
        }
    }

    /// Does what the plan wants.
    fn act(&mut self, action: Action) {
        match action {
            Action::OpenLane { lane, source } => {
                let source = source.0 as usize;
                let (commands, orders) = mpsc::unbounded_channel();
                let asks = self.asks_of_lane(source);
                let listens = self.digest_kind();
                let listens = Some(listens).filter(|_| self.told().is_none() && !self.is_described());
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

    /// Takes in what happened.
    async fn notice(&mut self, notice: Notice) -> Result<()> {
        let now = self.pace.now();
        match notice {
            Notice::Dialled { lane, round_trip, handshake_round_trips } => {
                if let Some(entry) = self.lanes.get_mut(&lane) {
                    let replica = &mut self.replicas[entry.source];
                    let is_remote = replica.source.url.scheme() != Scheme::File;
                    // A lane tells it again after a redirect, or when its connection had been closed.
                    replica.connections += u32::from(is_remote && !entry.is_dialled);
                    entry.is_dialled = true;
                    self.has_new_lanes = true;
                    replica.handshakes += u32::from(handshake_round_trips > 0);
                    replica.is_reached |= is_remote;
                    replica.handshake_round_trips = handshake_round_trips;
                    replica.saw_round_trip(round_trip);
                    self.votes.reached(entry.source, round_trip);
                }
                if handshake_round_trips == 0 && self.is_known_to_pipeline(lane) {
                    self.plan.handle(now, plan::Event::Pipelines { lane });
                }
                self.plan.handle(now, plan::Event::LaneReady { lane, round_trip });
            }
            Notice::RoundTrip { lane, round_trip, loaded, out_of_order } => {
                if let Some(entry) = self.lanes.get(&lane) {
                    let replica = &mut self.replicas[entry.source];
                    replica.saw_round_trip(Some(round_trip));
                    self.place.measured(&replica.source.url.endpoint(), round_trip);
                    self.votes.reached(entry.source, Some(round_trip));
                }
                self.plan.handle(now, plan::Event::RoundTrip { lane, round_trip, loaded, out_of_order });
            }
            Notice::Pipelines { lane } => {
                if let Some(entry) = self.lanes.get(&lane) {
                    self.replicas[entry.source].pipelines = true;
                }
                self.plan.handle(now, plan::Event::Pipelines { lane });
            }
            Notice::Identified { source, size_bytes } => {
                Box::pin(self.identified(source as usize, size_bytes)).await?
            }
            Notice::Received { lane, bytes, fresh_bytes } => {
                if let Some(entry) = self.lanes.get(&lane) {
                    let replica = &mut self.replicas[entry.source];
                    replica.meter.add(now, bytes);
                    if replica.received_bytes < SHORT_BYTES_MAX {
                        replica.bursts.add(now, bytes);
                    }
                    replica.received_bytes += bytes;
                    self.votes.heard(entry.source, now);
                    self.meter.add(now, fresh_bytes);
                }
                self.plan.handle(now, plan::Event::Received { lane, bytes, fresh_bytes });
            }
            Notice::RequestDone { lane } => self.plan.handle(now, plan::Event::RequestDone { lane }),
            Notice::WholeBody { lane, size_bytes } => {
                self.plan.handle(now, plan::Event::WholeBody { lane, size_bytes });
            }
            Notice::Lost { lane, loss, error } => {
                let entry = self.lanes.remove(&lane);
                self.plan.handle(now, plan::Event::LaneLost { lane, loss });
                for replica in self.replicas.iter_mut().filter(|replica| replica.asking_lane == Some(lane)) {
                    (replica.asks_by_lane, replica.asking_lane) = (true, None);
                }
                if let (Some(entry), Some(error)) = (entry, error) {
                    self.lost(entry.source, error);
                }
                if self.verifying {
                    self.ask_instead();
                }
            }
            Notice::Dead { source, error, forget } => {
                self.die(source as usize, error, forget);
                self.recount_sizes().await?;
            }
            Notice::Blocked { lane, blocked } => {
                self.plan.handle(now, plan::Event::Blocked { lane, blocked })
            }
            Notice::Released { up_to_bytes } => {
                self.plan.handle(now, plan::Event::Released { up_to_bytes });
            }
            Notice::Digest { source, checksums, identity } => {
                let source = source as usize;
                self.replicas[source].asking_lane = None;
                if let Some(identity) = identity {
                    self.votes.heard(source, now);
                    // Who has sent nothing of it has told no lane how large it is.
                    if self.replicas[source].source.identity().is_none() && identity.size_bytes.is_some() {
                        let _ = self.replicas[source].source.identify(&identity);
                        self.identified(source, identity.size_bytes).await?;
                    }
                }
                self.voted(source, checksums)?;
            }
            Notice::Stated { source, checksums } => self.stated(source as usize, checksums)?,
            Notice::Strong { source, checksums } => self.told_strong(source as usize, checksums)?,
            Notice::DigestUnsaid { source } => self.unsaid(source as usize)?,
            Notice::Served { source, served } => self.served(source as usize, served)?,
            Notice::Piece { index, found } => self.piece_compared(index, found)?,
            Notice::LocalFailure { error } => return Err(error),
        }
        Ok(())
    }

    /// A connection to a source was lost, or never made.
    fn lost(&mut self, source: usize, error: Error) {
        self.observer.event(&Event::Retry { source, error: &error });
        let replica = &mut self.replicas[source];
        replica.last_error = Some(error.clone());
        let now = self.pace.now();
        let is_another =
            replica.failed_connects == 0 || now.since(replica.failed_connect_at) >= CONNECT_PAUSE;
        if !replica.is_reached {
            match error.kind() {
                // It took as long as it ever takes: the next copy need not wait so long for it.
                ErrorKind::Timeout => self.votes.give_up(source),
                _ => self.votes.gone(source),
            }
        }
        let replica = &mut self.replicas[source];
        if !replica.is_reached && is_another {
            replica.failed_connect_at = now;
            replica.failed_connects += 1;
            if replica.failed_connects >= CONNECTS_MAX && !self.may_come(source, &error) {
                self.kill(source, error, false);
            }
        }
    }

    /// Whether a source that could not be reached is all there is, and may be about to be started again.
    fn may_come(&self, source: usize, error: &Error) -> bool {
        let may_deliver = |replica: &Replica| replica.is_reached || replica.failed_connects == 0;
        let has_others = self
            .replicas
            .iter()
            .enumerate()
            .any(|(number, replica)| number != source && replica.dead.is_none() && may_deliver(replica));
        let hope = FIRST_CONTACT_MAX.min(self.options.patience);
        error.is_unreached() && !has_others && self.pace.now().since_origin() < hope
    }

    /// Ends all lanes; none writes afterwards.
    ///
    /// A lane that does not listen is ended where it waits: between claiming bytes of a file and committing
    /// them it never does.
    pub(crate) async fn close_lanes(&mut self, patience: Duration) -> Result<()> {
        for entry in self.lanes.values() {
            let _ = entry.commands.send(Command::Close);
        }
        let lanes = std::mem::take(&mut self.lanes);
        end_all(lanes.into_values().map(|entry| entry.running).collect(), patience).await;
        let mut outcome = Ok(());
        while let Ok(notice) = self.notices.try_recv() {
            match notice {
                Notice::LocalFailure { error } => outcome = outcome.and(Err(error)),
                Notice::Digest { source, checksums, .. } => {
                    outcome = outcome.and(self.voted(source as usize, checksums));
                }
                Notice::Stated { source, checksums } => {
                    outcome = outcome.and(self.stated(source as usize, checksums));
                }
                Notice::Strong { source, checksums } => {
                    outcome = outcome.and(self.told_strong(source as usize, checksums));
                }
                Notice::Dead { source, error, forget } => self.die(source as usize, error, forget),
                // Its lane is no more, and a source says its size once.
                Notice::Identified { source, size_bytes: Some(size_bytes) } => {
                    self.votes.heard(source as usize, self.pace.now());
                    self.votes.says_size(source as usize, size_bytes);
                }
                // About lanes that are no more.
                _ => {}
            }
        }
        outcome
    }

    /// A source is of no use any more; with `forget`, what it sent and stated is not to be believed either.
    fn die(&mut self, source: usize, error: Error, forget: bool) {
        if forget {
            self.votes.discredit(source);
        }
        self.kill(source, error, forget);
    }

    /// Never uses a source again; with `forget`, nor what it sent. What it has stated stays a vote.
    pub(crate) fn kill(&mut self, source: usize, error: Error, forget: bool) {
        let replica = &mut self.replicas[source];
        replica.distrusted |= forget;
        if replica.dead.is_none() {
            self.observer.event(&Event::Source { source, state: State::Dead, error: Some(&error) });
            replica.last_error = Some(error.clone());
            replica.dead = Some(error);
        }
        self.votes.silent(source);
        self.votes.silent_strong(source);
        let id = SourceId(source as u32);
        self.plan.handle(self.pace.now(), plan::Event::SourceDead { source: id });
        if forget {
            self.disbelieve();
        }
        self.refetch_wrong_pieces();
    }

    /// Sources that may deliver: neither distrusted nor doubted at the moment.
    pub(crate) fn believed(&self) -> Vec<Sender> {
        let is_believed = |replica: &&Replica| !replica.distrusted && !replica.doubted;
        self.replicas.iter().filter(is_believed).map(|replica| replica.source.number).collect()
    }

    /// Takes no more bytes from sources that are not believed, and has what they sent fetched again. `true`
    /// when bytes are missing now.
    pub(crate) fn disbelieve(&mut self) -> bool {
        if self.target.partial().is_none() {
            // What a stream has taken cannot be called back: only the checksum can tell whether it is right.
            return false;
        }
        let believed = self.believed();
        let missing = {
            let mut ledger = self.target.ledger();
            ledger.refuse((0..self.replicas.len() as Sender).filter(|n| !believed.contains(n)).collect());
            ledger.forget_refused()
        };
        let ranges: Vec<ByteRange> = missing.iter().map(|piece| piece.range).collect();
        self.wrong_bytes += self.bytes_of_this_run(&missing);
        self.refetch(&ranges, &believed);
        if self.suspects.is_some() {
            self.thrown.extend(missing.iter().copied().map(Thrown::from));
        }
        !missing.is_empty()
    }

    /// How many of these bytes were received in this run.
    pub(crate) fn bytes_of_this_run(&self, pieces: &[Piece]) -> u64 {
        let is_ours = |piece: &&Piece| (piece.sender as usize) < self.replicas.len();
        pieces.iter().filter(is_ours).map(|piece| piece.range.len()).sum()
    }

    /// Has ranges fetched again, from `believed` sources only.
    pub(crate) fn refetch(&mut self, missing: &[ByteRange], believed: &[Sender]) {
        let not_from: Vec<SourceId> =
            (0..self.replicas.len() as u32).filter(|n| !believed.contains(n)).map(SourceId).collect();
        let now = self.pace.now();
        for range in missing {
            let event = plan::Event::Invalidate { range: *range, not_from: not_from.clone() };
            self.plan.handle(now, event);
        }
    }

    /// Several times a second: progress and journal.
    fn tick(&mut self) -> Result<()> {
        let now = self.pace.now();
        self.meter.advance(now);
        for replica in &mut self.replicas {
            replica.meter.advance(now);
        }
        if self.target.partial().is_some() {
            // What a target in order has no room for is not asked for, and says nothing of who would send it.
            self.tell_slow();
        }
        self.place.moved(self.meter.total(), now);
        let snapshot = self.snapshot();
        self.observer.event(&Event::Progress(&snapshot));
        // A lane may have told of bytes after they had turned out to be wrong.
        self.refetch_wrong_pieces();
        let waits = self.target.ledger().unjournaled_bytes() > 0;
        match waits && now.since(self.journaled_at) >= JOURNAL_INTERVAL {
            true => self.journal(),
            false => Ok(()),
        }
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.plan.outcome(self.pace.now()) == plan::Outcome::Stuck(plan::Stuck::Refused)
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
        let Some(partial) = self.target.partial().is_some().then(|| self.target.clone()) else {
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
        // What a lane was writing while its source turned out to be wrong is not to be continued.
        let late = self.target.ledger().forget_refused();
        self.wrong_bytes += self.bytes_of_this_run(&late);
        let _ = self.journal();
        let has_none = self.target.ledger().pieces().next().is_none();
        // Kept across a failure to reach anybody: an earlier run's bytes that could not be judged yet.
        let is_recorded = self.target.partial().is_some_and(PartialFile::is_recorded);
        let is_useless = has_none || !is_recorded && self.target.pieces().is_none();
        let nothing_to_keep = is_useless && !self.earlier_kept;
        self.is_worthless |= error.kind() == ErrorKind::ChecksumMismatch && self.has_no_right_piece();
        if let (true, Some(partial)) = (nothing_to_keep || self.is_worthless, partial.partial()) {
            partial.discard();
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
