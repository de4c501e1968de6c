//! The task that owns a tree: what was found waits here, and its turn comes from here.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use gridlane_core::limits::{
    BACKLOG_FILES_MAX, TREE_DEPTH_MAX, TREE_FAILURES_ALIKE_MAX, TREE_LISTINGS_MAX, TREE_PARALLEL_MAX,
};
use gridlane_core::{Error, ErrorKind, Fault, Hint, Result, Url};
use gridlane_engine::small::{SmallEnd, SmallEnds};
use gridlane_peer::descriptors::Descriptors;
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};

use super::directories::Directories;
use super::event::{About, TreeEvent, TreeObserver};
use super::file::{End, Turn};
use super::find;
use super::job::{Found, Job};
use super::names::{FailedList, NameList};
use super::news::{News, Note};
use super::report::{ActiveFile, LeftOut, Rates, TreeReport, TreeSnapshot};
use super::shared::Shared;
use super::small::Small;
use super::spec::TreeSpec;
use crate::backlog::{Backlog, Order};
use crate::copies::file::{Rules, TimeKept};
use crate::copies::rules::Action;
use crate::credentials::LastingWatch;
use crate::listing::Lister;
use crate::third_party::Initiator;
use crate::tree_path::TreePath;

/// Time between two reports of progress.
const TICK: Duration = Duration::from_millis(200);
/// Messages on their way to the run; each has up to some hundred records.
const NEWS_MAX: usize = 16;
/// Files that are begun without a pause: the first are fetched while the next are looked at.
const BEGUN_AT_ONCE_MAX: usize = 64;
/// Files that are shown while they are copied.
const SHOWN_MAX: usize = 4;

/// A task that finds things.
enum Finder {
    Directory(Job),
    Names,
}

/// Why a file failed, where any other file would fail as well.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    NoSpace,
    /// Nothing comes from this endpoint, not even an answer.
    Unreachable(String),
}

impl Cause {
    fn of(error: &Error) -> Option<Cause> {
        if error.is_no_space() {
            return Some(Cause::NoSpace);
        }
        let is_silent =
            matches!(error.kind(), ErrorKind::Network | ErrorKind::Timeout) && error.status().is_none();
        let endpoint = error.endpoint_text().filter(|_| is_silent)?;
        Some(Cause::Unreachable(endpoint.to_owned()))
    }
}

struct Active {
    job: Job,
    name: TreePath,
    done_bytes: Arc<AtomicU64>,
}

struct Run<'a> {
    shared: Arc<Shared>,
    observer: &'a mut dyn TreeObserver,
    failed: Option<FailedList>,
    parallel: usize,
    listings_max: usize,
    continue_on_error: bool,
    files: Backlog<Job>,
    directories: Backlog<Job>,
    names: Option<NameList>,
    finders: JoinSet<Result<()>>,
    finding: HashMap<Id, Finder>,
    copies: JoinSet<End>,
    active: HashMap<Id, Active>,
    /// The way for small files, where there is one.
    small: Option<Small>,
    /// The next file, when there was no room for one of its kind.
    held: Option<Job>,
    /// Small files that are to be copied like others.
    returned: VecDeque<Job>,
    news: mpsc::Receiver<News>,
    tell: mpsc::Sender<News>,
    stop: watch::Sender<bool>,
    /// Nothing new is begun.
    is_ending: bool,
    /// The cause that the last failures have in common, and their number since the last success.
    alike: (Option<Cause>, u32),
    /// Directories with something too deep in them: a tree has none, a server that lists a directory in itself
    /// has them without end.
    too_deep: u32,
    /// Why the rest was not tried.
    given_up: Option<Error>,
    begun: Instant,
    watch: LastingWatch,
    rates: Rates,
    found_bytes: u64,
    /// Bytes of found files that are not going to come: they failed, or are there.
    settled_bytes: u64,
    report: TreeReport,
}

/// Copies trees and files. Ends early, what is unfinished being kept where it can be, when `stop`
/// completes. The report says how each part ended; an error of the whole is in it as well.
pub async fn copy_tree(
    spec: TreeSpec,
    lister: Lister,
    observer: &mut dyn TreeObserver,
    stop: impl Future<Output = ()>,
) -> TreeReport {
    let (tell, news) = mpsc::channel(NEWS_MAX);
    let roots = spec.roots;
    let limit = spec.options.limit.as_ref().map(|limit| limit.bytes_per_s());
    let watch = LastingWatch::new(spec.lasting, limit);
    let directories = Directories::new(roots.target.clone(), roots.target_exists, lister.client().clone());
    let shared = Shared {
        lister,
        roots: roots.roots,
        target: roots.target,
        directories,
        filter: spec.filter,
        options: spec.options,
        journal_keys: spec.journal_keys,
        rules: Rules {
            existing: spec.existing,
            preserve_times: spec.preserve_times,
            dry_run: spec.dry_run,
            wish: spec.wish,
        },
        initiator: Initiator::default(),
        follow_links: spec.follow_links,
        has_names: spec.names.is_some(),
    };
    let begun = Instant::now();
    let shared = Arc::new(shared);
    let descriptors = Descriptors::of_process();
    let parallel = spec.parallel.clamp(1, TREE_PARALLEL_MAX).min(descriptors.copies_max());
    let _expected = Descriptors::expect_copies(parallel);
    let mut run = Run {
        small: Small::new(&shared),
        held: None,
        returned: VecDeque::new(),
        shared,
        observer,
        failed: spec.failed,
        parallel,
        listings_max: TREE_LISTINGS_MAX.min(descriptors.listings_max()),
        continue_on_error: spec.continue_on_error,
        files: Backlog::new(Order::OldestFirst),
        directories: Backlog::new(Order::NewestFirst),
        names: spec.names,
        finders: JoinSet::new(),
        finding: HashMap::new(),
        copies: JoinSet::new(),
        active: HashMap::new(),
        news,
        tell,
        stop: watch::channel(false).0,
        is_ending: false,
        alike: (None, 0),
        too_deep: 0,
        given_up: None,
        begun,
        watch,
        rates: Rates::new(begun),
        found_bytes: 0,
        settled_bytes: 0,
        report: TreeReport::default(),
    };
    let outcome = run.run(stop).await;
    run.end(outcome)
}

impl Run<'_> {
    async fn run(&mut self, stop: impl Future<Output = ()>) -> Result<()> {
        tokio::pin!(stop);
        self.begin()?;
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            let has_more = self.start_tasks()?;
            let is_found = self.finders.is_empty() && self.news.is_empty() && self.directories.is_empty();
            // A finder that reads a terminal cannot be ended, and is not waited for.
            let is_begun = self.files.is_empty() && self.held.is_none() && self.returned.is_empty();
            if self.copies.is_empty() && self.small_files() == 0 && (self.is_ending || is_found && is_begun) {
                return Ok(());
            }
            tokio::select! {
                // The run holds a sender itself, so the channel never ends.
                Some(news) = self.news.recv() => self.take(news)?,
                Some(ended) = self.finders.join_next_with_id() => self.found_all(ended)?,
                Some(ended) = self.copies.join_next_with_id() => self.copied(ended)?,
                ends = small_ends(&mut self.small) => self.small_ended(ends)?,
                _ = tick.tick() => self.tick(),
                // Those that were begun have their turn before more are.
                () = tokio::task::yield_now(), if has_more => {}
                () = &mut stop, if !self.report.is_interrupted => {
                    self.report.is_interrupted = true;
                    self.end_early();
                    if let Some(small) = &mut self.small {
                        small.stop();
                    }
                    self.stop.send_replace(true);
                }
            }
        }
    }

    fn begin(&mut self) -> Result<()> {
        if let Some(target) = self.shared.target.local(&TreePath::root()) {
            // Before a directory is made in it.
            gridlane_store::links::follow(&target)?;
        }
        if let Some(names) = self.names.take() {
            let (shared, tell) = (self.shared.clone(), self.tell.clone());
            let task = self.finders.spawn_blocking(move || find::list(names, &shared, &tell));
            self.finding.insert(task.id(), Finder::Names);
            return Ok(());
        }
        for number in 0..self.shared.roots.len() {
            let job = Job { root: number as u32, path: TreePath::root(), size_bytes: None, modified: None };
            match self.shared.roots[number].is_directory {
                true => self.directories.push(job)?,
                false => self.add_file(job)?,
            }
        }
        Ok(())
    }

    /// Begins as much as may run at the same time; `true`: there may be more to begin.
    fn start_tasks(&mut self) -> Result<bool> {
        while !self.is_ending
            && self.copies.len() < self.parallel
            && let Some(job) = self.returned.pop_front()
        {
            self.start_copy(job, true)?;
        }
        let mut begun = 0;
        while !self.is_ending && self.held.is_none() && begun < BEGUN_AT_ONCE_MAX && self.has_room() {
            let Some(job) = self.files.pop()? else { break };
            self.start_file(job)?;
            begun += 1;
        }
        if self.copies.len() < self.parallel
            && !self.is_ending
            && let Some(job) = self.held.take()
        {
            self.start_copy(job, false)?;
        }
        while !self.is_ending
            && self.finders.len() < self.listings_max
            && self.files.len() < BACKLOG_FILES_MAX
            && let Some(job) = self.directories.pop()?
        {
            let (shared, tell, task_job) = (self.shared.clone(), self.tell.clone(), job.clone());
            let task = self.finders.spawn(async move { find::directory(&shared, &task_job, &tell).await });
            self.finding.insert(task.id(), Finder::Directory(job));
        }
        Ok(begun == BEGUN_AT_ONCE_MAX)
    }

    /// True if a file may begin, if it is a small one; where there is no way for these, any file.
    fn has_room(&self) -> bool {
        self.small.as_ref().map_or(self.copies.len() < self.parallel, Small::has_room)
    }

    fn small_files(&self) -> usize {
        self.small.as_ref().map_or(0, Small::len)
    }

    /// Begins with a file in one way or the other, or holds it until there is room.
    fn start_file(&mut self, job: Job) -> Result<()> {
        if let Some(small) = &mut self.small
            && let Ok(name) = self.shared.roots[job.root as usize].target(&job.path)
            && let Some(file) = small.file(&job, &name)
        {
            self.observer.event(&TreeEvent::FileStarted { name: &name, size_bytes: job.size_bytes });
            small.push(file, job, name);
            return Ok(());
        }
        match self.copies.len() < self.parallel {
            true => self.start_copy(job, false),
            false => {
                self.held = Some(job);
                Ok(())
            }
        }
    }

    /// Copies a file by itself; that it begins may have been told.
    fn start_copy(&mut self, job: Job, is_told: bool) -> Result<()> {
        let name = match self.shared.roots[job.root as usize].target(&job.path) {
            Ok(name) => name,
            Err(error) => return self.fail(&job, false, &error),
        };
        if !self.shared.rules.dry_run && !is_told {
            self.observer.event(&TreeEvent::FileStarted { name: &name, size_bytes: job.size_bytes });
        }
        let done_bytes = Arc::new(AtomicU64::new(0));
        let turn = Turn {
            shared: self.shared.clone(),
            job: job.clone(),
            name: name.clone(),
            done_bytes: done_bytes.clone(),
            news: self.tell.clone(),
            stop: self.stop.subscribe(),
        };
        let task = self.copies.spawn(turn.run());
        self.active.insert(task.id(), Active { job, name, done_bytes });
        Ok(())
    }

    fn take(&mut self, news: News) -> Result<()> {
        match news {
            News::Found(found) => found.into_iter().try_for_each(|one| self.found(one)),
            News::Noted(Note { name, url, about, error }) => {
                let (url, error) = (url.as_deref(), error.as_ref());
                self.observer.event(&TreeEvent::Noted { name: &name, url, about, error });
                Ok(())
            }
        }
    }

    fn found(&mut self, found: Found) -> Result<()> {
        if self.is_ending {
            return Ok(());
        }
        match found {
            Found::File(job) => self.add_file(job),
            Found::Directory(job) => self.directories.push(job),
            Found::LeftOut { job, why } => {
                self.report.left_out += 1;
                let name = self.name(&job);
                self.observer.event(&TreeEvent::Skipped { name: &name, why });
                Ok(())
            }
            Found::Failed { job, is_directory, error } => self.fail(&job, is_directory, &error),
        }
    }

    fn add_file(&mut self, job: Job) -> Result<()> {
        self.report.found_files += 1;
        self.found_bytes += job.size_bytes.unwrap_or(0);
        self.files.push(job)
    }

    fn found_all(&mut self, ended: std::result::Result<(Id, Result<()>), JoinError>) -> Result<()> {
        let (id, outcome) = match ended {
            Ok(ended) => ended,
            Err(broken) if broken.is_cancelled() => {
                self.finding.remove(&broken.id());
                return Ok(());
            }
            Err(broken) => (broken.id(), Err(defect(&broken))),
        };
        match (self.finding.remove(&id), outcome) {
            (Some(Finder::Directory(job)), Err(error)) => self.fail(&job, true, &error),
            // The rest of the list is not known.
            (_, Err(error)) => Err(error),
            (Some(Finder::Directory(_)), Ok(())) => {
                if let Some(small) = self.small.as_mut().filter(|_| !self.is_ending) {
                    small.expect();
                }
                Ok(())
            }
            (_, Ok(())) => Ok(()),
        }
    }

    fn copied(&mut self, ended: std::result::Result<(Id, End), JoinError>) -> Result<()> {
        let (id, end) = match ended {
            Ok(ended) => ended,
            Err(broken) => (broken.id(), End::Failed(defect(&broken))),
        };
        let Some(Active { job, name, .. }) = self.active.remove(&id) else { return Ok(()) };
        self.ended(job, name, end)
    }

    fn small_ended(&mut self, ends: SmallEnds) -> Result<()> {
        for (id, end) in ends {
            let Some((job, name)) = self.small.as_mut().and_then(|small| small.ended(id)) else { continue };
            match end {
                SmallEnd::Copied { report, time_lost } => {
                    let kept = match time_lost {
                        Some(error) => TimeKept::No(error),
                        None => TimeKept::Yes,
                    };
                    self.ended(job, name, End::Copied { report, time: kept, carrier: None })?;
                }
                SmallEnd::Returned => self.returned.push_back(job),
                SmallEnd::Stopped => {}
            }
        }
        Ok(())
    }

    fn ended(&mut self, job: Job, name: TreePath, end: End) -> Result<()> {
        let size_bytes = job.size_bytes.unwrap_or(0);
        match end {
            End::Copied { report, time, carrier } => {
                self.alike = (None, 0);
                self.report.done_files += 1;
                self.report.done_bytes += report.done_bytes;
                self.report.resumed_bytes += report.resumed_bytes;
                self.report.verified_files += u64::from(report.verified.is_some());
                self.report.third_party_files += u64::from(carrier.is_some());
                self.report.unstated_files += u64::from(report.unstated.is_some());
                // The listing did not tell, or told of another version.
                self.found_bytes = (self.found_bytes + report.done_bytes).saturating_sub(size_bytes);
                if let TimeKept::No(error) = &time {
                    self.report.times_lost += 1;
                    let (about, error) = (About::Time, Some(error));
                    self.observer.event(&TreeEvent::Noted { name: &name, url: None, about, error });
                }
                let carrier = carrier.as_ref();
                self.observer.event(&TreeEvent::FileDone { name: &name, report: &report, carrier });
            }
            End::ThereAlready => {
                self.report.there_already += 1;
                self.settled_bytes += size_bytes;
                self.observer.event(&TreeEvent::Skipped { name: &name, why: LeftOut::UpToDate });
            }
            End::Would { action, sources, target, size_bytes } => {
                let (sources, target) = (&sources[..], &target);
                self.observer.event(&TreeEvent::Would { name: &name, action, sources, target, size_bytes });
                match action {
                    Action::Skip => self.report.there_already += 1,
                    Action::Refuse => return self.fail(&job, false, &exists(target)),
                    Action::Copy | Action::Replace => {
                        self.report.done_files += 1;
                        self.report.done_bytes += size_bytes.unwrap_or(0);
                    }
                }
            }
            // What it has is kept, or was never begun.
            End::Failed(error) if error.kind() == ErrorKind::Interrupted => {}
            End::Failed(error) => {
                self.settled_bytes += size_bytes;
                return self.fail(&job, false, &error);
            }
        }
        Ok(())
    }

    fn fail(&mut self, job: &Job, is_directory: bool, error: &Error) -> Result<()> {
        self.report.fail(error);
        let name = self.name(job);
        self.observer.event(&TreeEvent::Failed { name: &name, is_directory, error });
        if !self.continue_on_error {
            self.end_early();
        }
        let cause = Cause::of(error);
        if cause.is_none() || self.alike.0 != cause {
            self.alike = (cause, 0);
        }
        self.alike.1 += 1;
        if self.alike.0.is_some() && self.alike.1 == TREE_FAILURES_ALIKE_MAX && !self.is_ending {
            self.given_up = Some(given_up(error));
            self.end_early();
        }
        if error.kind() == ErrorKind::Denied
            && !self.is_ending
            && let Some(over) = self.shared.lister.client().credentials.over()
        {
            self.given_up = Some(ended(&over));
            self.end_early();
        }
        self.too_deep += u32::from(is_directory && job.path.names().count() >= TREE_DEPTH_MAX);
        if self.too_deep == TREE_FAILURES_ALIKE_MAX && !self.is_ending {
            let message =
                "given up, the rest was not tried: the source seems to list directories in themselves";
            self.given_up = Some(Error::new(ErrorKind::Protocol, message).fault(Fault::Peer));
            self.end_early();
        }
        if let Some(failed) = &mut self.failed
            && !failed.add(&job.path, is_directory)?
        {
            let message = "its name has a line break and is not in the list of what failed";
            let error = Error::new(ErrorKind::Unsupported, message).hint(Hint::SeparateByNul);
            let (about, error) = (About::Unlisted, Some(&error));
            self.observer.event(&TreeEvent::Noted { name: &name, url: None, about, error });
        }
        Ok(())
    }

    /// Begins nothing new.
    fn end_early(&mut self) {
        self.is_ending = true;
        self.finders.abort_all();
        if let Some(small) = &mut self.small {
            small.begin_nothing();
        }
    }

    /// The path of a job below the target.
    fn name(&self, job: &Job) -> TreePath {
        self.shared.roots[job.root as usize].target(&job.path).unwrap_or_else(|_| job.path.clone())
    }

    fn tick(&mut self) {
        let snapshot = self.snapshot();
        if let Some(warning) = self.watch.needs(snapshot.found_bytes.saturating_sub(snapshot.done_bytes)) {
            self.observer.event(&TreeEvent::Warning(&warning));
        }
        self.observer.event(&TreeEvent::Progress(&snapshot));
    }

    fn snapshot(&mut self) -> TreeSnapshot {
        let now = Instant::now();
        let mut active: Vec<ActiveFile> = self
            .active
            .values()
            .map(|active| ActiveFile {
                name: active.name.clone(),
                done_bytes: active.done_bytes.load(Relaxed),
                size_bytes: active.job.size_bytes,
            })
            .collect();
        let active_bytes: u64 = active.iter().map(|file| file.done_bytes).sum();
        active.sort_by_key(|file| std::cmp::Reverse(file.size_bytes));
        active.truncate(SHOWN_MAX);
        let done_bytes = self.report.done_bytes + active_bytes;
        let settled_files = self.report.done_files + self.report.there_already;
        let (rate_bytes_per_s, rate_files_per_s) = self.rates.at(now, done_bytes, settled_files);
        let is_listed = self.finders.is_empty() && self.directories.is_empty() && self.news.is_empty();
        let left_bytes = self.found_bytes.saturating_sub(done_bytes + self.settled_bytes) as f64;
        let begun =
            self.active.len() + self.small_files() + self.returned.len() + usize::from(self.held.is_some());
        let left_files = (self.files.len() + begun as u64) as f64;
        // Big files need their bytes, small ones their turns: whichever takes longer.
        let eta_s = (left_bytes / rate_bytes_per_s).max(match rate_files_per_s > 0.0 {
            true => left_files / rate_files_per_s,
            false => 0.0,
        });
        TreeSnapshot {
            found_files: self.report.found_files,
            found_bytes: self.found_bytes,
            is_listed,
            done_files: self.report.done_files,
            done_bytes,
            failed: self.report.failed,
            skipped: self.report.there_already + self.report.left_out,
            rate_bytes_per_s,
            rate_files_per_s,
            eta_s: Some(eta_s).filter(|eta_s| is_listed && eta_s.is_finite()),
            elapsed_s: self.begun.elapsed().as_secs_f64(),
            active,
        }
    }

    fn end(mut self, outcome: Result<()>) -> TreeReport {
        let listed = match self.failed.take() {
            Some(failed) => failed.finish(),
            None => Ok(()),
        };
        self.report.fatal = outcome.and(listed).err().or(self.given_up.take());
        self.report.directories = self.shared.directories.made();
        self.report.seconds = self.begun.elapsed().as_secs_f64();
        self.report
    }
}

/// Ends of small files; never where there are none.
async fn small_ends(small: &mut Option<Small>) -> SmallEnds {
    match small {
        Some(small) => small.next().await,
        None => std::future::pending().await,
    }
}

/// The error of a whole whose credential has ended: every other file would be refused.
fn ended(over: &Error) -> Error {
    let message = format!("given up, the rest was not tried: {}", over.message());
    let error = Error::new(ErrorKind::Denied, message).fault(over.whose_fault());
    match over.advice() {
        Some(hint) => error.hint(hint.clone()),
        None => error,
    }
}

/// The error of a whole that was given up after many failures like this one.
fn given_up(last: &Error) -> Error {
    let message = format!(
        "given up after {TREE_FAILURES_ALIKE_MAX} failures in a row of this kind, the rest was not tried: {}",
        last.message()
    );
    let error = Error::new(last.kind(), message).fault(last.whose_fault()).retryable(last.is_retryable());
    let error = match last.advice() {
        Some(hint) => error.hint(hint.clone()),
        None => error,
    };
    match last.endpoint_text() {
        // With no space, that is the one file.
        Some(endpoint) if !last.is_no_space() => error.endpoint(endpoint),
        _ => error,
    }
}

fn exists(target: &Url) -> Error {
    Error::new(ErrorKind::Precondition, "it exists")
        .fault(Fault::Caller)
        .endpoint(target)
        .hint(Hint::UpdateOrReplace)
}

fn defect(cause: &JoinError) -> Error {
    Error::new(ErrorKind::Other, format!("a task ended without a result: {cause}")).fault(Fault::Internal)
}
