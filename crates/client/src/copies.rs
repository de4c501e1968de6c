//! Copying one file, or the files of a metalink: from a request to an outcome, with events on the way.
//!
//! ```text
//!  request ──plan──▶ files, each with its target ──▶ rules ──▶ the engine's copy ──▶ outcome
//!                     ▲                                              │
//!                     └──── a metalink was found on the way ─────────┘
//! ```
//!
//! Read first: [`CopyRequest`], then [`Copies`], then `file`, which single files and those of trees have in common.

mod event;
pub(crate) mod file;
pub(crate) mod rules;

use std::collections::VecDeque;
use std::future::Future;
use std::path::PathBuf;
use std::sync::OnceLock;

use gridlane_core::limits::{FIRST_CONTACT_MAX, SOURCES_MAX};
use gridlane_core::{Error, ErrorKind, Fault, Hint, Result, Url};
use gridlane_engine::{Event, FoundMetalink, Known, Observer, Options, Report};
use gridlane_peer::Client;
use gridlane_store::journal_key::JournalKeys;

use crate::contents::refuse_directory;
use crate::credentials::{Lasting, LastingWatch};
use crate::metalink::{Described, Naming, describe, describe_found, is_directory};
use crate::target::{Destination, resolve};
use crate::third_party::{Detour, FileObserver, Initiator, Wish};
use crate::tree::LeftOut;

use file::{FileCopy, FileEnd, Rules, TimeKept};
use rules::{Action, Existing, FileFacts};

pub use event::{CopyEvent, CopyObserver, Kept};

/// Sources, a target, and the rules of a copy.
#[derive(Clone, Debug)]
pub struct CopyRequest {
    /// Where the file is, the first of which may be a metalink; each has all of it.
    pub sources: Vec<Url>,
    /// Where it goes, as a person types it: a path, a URL, or `-` for standard output.
    pub target: String,
    /// The directory that a relative path is below.
    pub current_dir: PathBuf,
    /// For every file.
    pub options: Options,
    /// The place of the key that makes journals of partial files the user's own. Without one nothing is left to go on with.
    pub journal_keys: JournalKeys,
    /// The rule about targets that exist.
    pub existing: Existing,
    /// Targets get the time of the last change of their source.
    pub preserve_times: bool,
    /// A dry run: what would be done is told, and nothing is done.
    pub dry_run: bool,
    /// What servers copy between themselves, where both ends are at servers.
    pub wish: Wish,
    /// A metalink stands for what it describes; else it is a file like any other.
    pub takes_metalinks: bool,
    /// The end of the credentials that servers are shown, of which a warning is due.
    pub lasting: Option<Lasting>,
}

/// The end of the copies of a request.
#[derive(Clone, Debug, Default)]
pub struct CopyOutcome {
    /// The number of files to copy.
    pub files: usize,
    /// The failures of the others.
    pub failures: Vec<Error>,
}

impl CopyOutcome {
    /// The kind of failure that the whole is: `Partial` when some of many failed.
    pub fn failure(&self) -> Option<ErrorKind> {
        let last = self.failures.last()?.kind();
        let is_partial = last != ErrorKind::Interrupted && self.failures.len() < self.files;
        Some(if is_partial { ErrorKind::Partial } else { last })
    }
}

/// The client for copies that have so much patience: a server that is being started again is waited for, as its bytes are.
pub fn patient(mut client: Client, options: &Options) -> Client {
    let connect_max = FIRST_CONTACT_MAX.min(options.patience);
    (client.http.connect_max, client.root.connect_max) = (connect_max, connect_max);
    client
}

/// Where the key of the user's journals is kept: XDG's directory for what a program wants to find again.
pub fn journal_keys() -> JournalKeys {
    static KEYS: OnceLock<JournalKeys> = OnceLock::new();
    let keys = KEYS.get_or_init(|| {
        let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
        state.map_or_else(JournalKeys::default, |state| JournalKeys::at(state.join("gridlane/journal.key")))
    });
    keys.clone()
}

/// Copies that are settled and not begun.
pub struct Copies {
    request: CopyRequest,
    client: Client,
    initiator: Initiator,
    files: VecDeque<Planned>,
}

/// One file to copy.
struct Planned {
    sources: Vec<Url>,
    target: Destination,
    known: Known,
    /// Notes about parts of its metalink that are not used.
    notes: Vec<String>,
    /// A metalink is news: it was not made from one.
    stop_at_metalink: bool,
}

/// The end of the copy of one file.
enum Ended {
    Well,
    Badly(Error),
    /// It goes on with a metalink.
    At(FoundMetalink),
}

impl Copies {
    /// Finds out what there is to copy, and settles where it goes. A pipe that is a target may wait here for its reader.
    pub async fn plan(request: CopyRequest, client: Client) -> Result<Copies> {
        request.sources.iter().try_for_each(refuse_directory)?;
        let mut copies = Copies { request, client, initiator: Initiator::default(), files: VecDeque::new() };
        let described = match copies.request.takes_metalinks {
            true => describe(&copies.client, copies.source(), false).await?,
            false => None,
        };
        copies.files = match described {
            Some(files) => copies.described(files, true)?,
            None => [copies.plain(copies.request.takes_metalinks)?].into(),
        };
        Ok(copies)
    }

    /// Copies one file after the other. Ends early, what is unfinished being kept where it can be, when `stop` completes.
    pub async fn run(
        mut self,
        observer: &mut dyn CopyObserver,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<CopyOutcome> {
        tokio::pin!(stop);
        let limit = self.request.options.limit.as_ref().map(|limit| limit.bytes_per_s());
        let mut watch = LastingWatch::new(self.request.lasting.take(), limit);
        let mut outcome = CopyOutcome { files: self.files.len(), failures: Vec::new() };
        while let Some(file) = self.files.pop_front() {
            match Box::pin(self.one(file, &mut watch, observer, stop.as_mut())).await {
                Ended::Well => {}
                Ended::Badly(error) => {
                    let is_stopped = error.kind() == ErrorKind::Interrupted;
                    outcome.failures.push(error);
                    if is_stopped {
                        break;
                    }
                }
                Ended::At(found) => {
                    self.files = self.go_on(&found, observer).await?;
                    outcome.files = self.files.len();
                }
            }
        }
        Ok(outcome)
    }

    /// Copies one file and tells how it went.
    async fn one(
        &self,
        file: Planned,
        watch: &mut LastingWatch,
        observer: &mut dyn CopyObserver,
        stop: impl Future<Output = ()> + Send,
    ) -> Ended {
        let Planned { sources, target, known, notes, stop_at_metalink } = file;
        let Destination { goal, name, is_resumable } = target;
        let urls: Vec<String> = sources.iter().map(|url| url.to_string()).collect();
        observer.event(&CopyEvent::Turn { sources: &urls, target: &name });
        notes.iter().for_each(|note| observer.event(&CopyEvent::Note(note)));
        let rules = self.rules();
        let mut file = FileCopy { sources, target: goal, facts: FileFacts::default(), rules };
        let action = match file.decide(&self.client).await {
            Ok(action) => action,
            Err(error) => {
                observer.event(&CopyEvent::Refused(&error));
                return Ended::Badly(error);
            }
        };
        if rules.dry_run {
            let (target, size_bytes) = (file.target_url().ok().flatten(), file.facts.size_bytes);
            let (sources, target) = (&file.sources[..], target.as_ref());
            observer.event(&CopyEvent::Would { action, sources, target, size_bytes });
            return match action {
                Action::Refuse => Ended::Badly(Error::new(ErrorKind::Precondition, "the target exists")),
                Action::Copy | Action::Replace | Action::Skip => Ended::Well,
            };
        }
        if action == Action::Skip {
            observer.event(&CopyEvent::Skipped(LeftOut::UpToDate));
            return Ended::Well;
        }
        let options = Options { known, stop_at_metalink, ..self.request.options.clone() };
        let keys = &self.request.journal_keys;
        let mut told = Told { observer, watch };
        let means = (self.client.clone(), &self.initiator);
        let FileEnd { outcome, time, carrier } = file.run(options, keys, means, &mut told, stop).await;
        if let TimeKept::No(error) = &time {
            observer.event(&CopyEvent::TimeLost(error));
        }
        if let Some(found) = outcome.metalink {
            return Ended::At(found);
        }
        let error = outcome.result.as_ref().err();
        let kept =
            error.filter(|_| is_resumable).map_or(Kept::Nothing, |error| kept(error, &outcome.report, keys));
        let (report, carrier) = (&outcome.report, carrier.as_ref());
        observer.event(&CopyEvent::Ended { report, error, kept: &kept, carrier });
        outcome.result.map_or_else(Ended::Badly, |()| Ended::Well)
    }

    fn source(&self) -> &Url {
        &self.request.sources[0]
    }

    fn rules(&self) -> Rules {
        let CopyRequest { existing, preserve_times, dry_run, wish, .. } = self.request;
        Rules { existing, preserve_times, dry_run, wish }
    }

    /// Plans the files of a metalink that was found on the way.
    async fn go_on(
        &self,
        found: &FoundMetalink,
        observer: &mut dyn CopyObserver,
    ) -> Result<VecDeque<Planned>> {
        if found.is_source {
            let files = describe(&self.client, &found.url, true).await?;
            return self.described(files.unwrap_or_default(), false);
        }
        let mut file = self.plain(false)?;
        match describe_found(&self.client, self.source(), found).await {
            Ok(described) => {
                file.notes = described.notes;
                let more = described.sources.into_iter().filter(|url| !self.request.sources.contains(url));
                let room = SOURCES_MAX.saturating_sub(file.sources.len());
                file.sources.extend(more.take(room));
                file.known = described.known;
            }
            Err(why) => {
                let note = format!("the metalink {} is not used: {why}", found.url);
                observer.event(&CopyEvent::Note(&note));
            }
        }
        Ok([file].into())
    }

    /// The file that was asked for, as it stands.
    fn plain(&self, stop_at_metalink: bool) -> Result<Planned> {
        let CopyRequest { target, current_dir, sources, .. } = &self.request;
        let target = resolve(target, self.source(), current_dir)?;
        let (known, notes) = (Known::default(), Vec::new());
        Ok(Planned { sources: sources.clone(), target, known, notes, stop_at_metalink })
    }

    /// The files of a metalink. `is_called_one`: the user called the source a metalink; else it is one file, with a name
    /// of its own, whatever a server answers.
    fn described(&self, files: Vec<Described>, is_called_one: bool) -> Result<VecDeque<Planned>> {
        let CopyRequest { target, current_dir, sources, options, .. } = &self.request;
        if files.len() > 1 && !is_called_one {
            let message = format!("one file was asked for, and the answer is a metalink of {}", files.len());
            return Err(Error::new(ErrorKind::Protocol, message)
                .fault(Fault::Peer)
                .endpoint(self.source())
                .hint(Hint::SaveMetalink));
        }
        let into_directory = is_directory(target, current_dir);
        if files.len() > 1 && (!into_directory || sources.len() > 1 || options.checksum.is_some()) {
            let message = format!("the metalink has {} files", files.len());
            return Err(Error::new(ErrorKind::Usage, message).fault(Fault::Caller).hint(Hint::NameDirectory));
        }
        let naming = match files.len() {
            _ if !is_called_one => Naming::Own(self.source()),
            1 => Naming::Only,
            _ => Naming::OneOfSeveral,
        };
        let plan = |file: Described| {
            let target = file.resolve(target, naming, current_dir)?;
            let Described { known, notes, .. } = file;
            let sources = file.sources.into_iter().chain(sources[1..].iter().cloned()).collect();
            Ok(Planned { sources, target, known, notes, stop_at_metalink: false })
        };
        files.into_iter().map(plan).collect()
    }
}

/// Hands on what the engine tells, after a warning where one is due.
struct Told<'a> {
    observer: &'a mut dyn CopyObserver,
    watch: &'a mut LastingWatch,
}

impl Observer for Told<'_> {
    fn event(&mut self, event: &Event<'_>) {
        if let Event::Started { size_bytes } = event
            && let Some(warning) = self.watch.needs(*size_bytes)
        {
            self.observer.event(&CopyEvent::Warning(&warning));
        }
        self.observer.event(&CopyEvent::Engine(event));
    }
}

impl FileObserver for Told<'_> {
    fn detour(&mut self, detour: Detour, why: &Error) {
        self.observer.event(&CopyEvent::Detour { detour, why });
    }
}

/// The remains of a copy that failed, of a target that can be continued.
fn kept(error: &Error, report: &Report, keys: &JournalKeys) -> Kept {
    let may_go_on = error.is_retryable()
        || matches!(error.kind(), ErrorKind::LocalIo | ErrorKind::Interrupted | ErrorKind::Denied);
    match keys.key() {
        _ if !may_go_on || report.done_bytes == 0 => Kept::Nothing,
        Ok(_) => Kept::Bytes(report.done_bytes),
        Err(why) => Kept::Unusable(why.to_owned()),
    }
}

#[cfg(test)]
mod tests;
