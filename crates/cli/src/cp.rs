//! `gridlane cp`.

mod tree;

use std::collections::VecDeque;
use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use gridlane_client::{
    Action, Described, Destination, Existing, FileFacts, LeftOut, Lister, Naming, decide, keep_time,
    look_at_source, refuse_directory,
};
use gridlane_core::limits::{FIRST_CONTACT_MAX, SOURCES_MAX};
use gridlane_core::text::is_unprintable;
use gridlane_core::{Error, ErrorKind, Fault, Result, Url};
use gridlane_engine::Client;
use gridlane_engine::{
    CopySpec, FoundMetalink, JournalKeys, Known, Options, Outcome, RateLimit, Report, TargetSpec, copy,
};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{CpArgs, Global, Preserve};
use crate::events::JsonEvents;
use crate::files::parse;
use crate::output::{Output, show, tell, to_stderr};
use crate::progress::tree::would_text;
use crate::progress::{Screen, summary_text};
use crate::who::{Session, Watch, Watched, connect_saying};
use crate::words;

/// One file to copy.
struct Job {
    sources: Vec<Url>,
    target: Destination,
    known: Known,
    /// Whether a metalink is news: it was not made from one.
    stop_at_metalink: bool,
}

/// How a copy of one file ended.
enum Ended {
    Well,
    Badly(Error),
    /// It goes on with a metalink.
    At(FoundMetalink),
}

/// Makes jobs of what was typed.
struct Planner<'a> {
    args: &'a CpArgs,
    /// As typed: the source, then its mirrors.
    sources: Vec<Url>,
    current_dir: PathBuf,
    client: Client,
    output: &'a Output,
}

pub(crate) async fn run(args: &CpArgs, global: &Global, output: &Output) -> Result<ExitCode> {
    check(args)?;
    let typed = args.paths.source.iter().chain(&args.mirror).chain([&args.paths.target]);
    let Session { mut client, lasting } = connect_saying(typed, &args.who, global, args.paths.target == "-")?;
    // A server that is being started again is waited for, as its bytes are.
    let connect_max = FIRST_CONTACT_MAX.min(options(args).patience);
    (client.http.connect_max, client.root.connect_max) = (connect_max, connect_max);
    let mut watch = Watch::new(lasting, args.limit_rate);
    let lister = Lister::new(client.clone());
    let is_many = args.paths.source.len() > 1 || args.files_from.is_some();
    match is_many || args.recursive && lister.is_directory(&parse(&args.paths.source[0])?).await? {
        true => Box::pin(tree::run(args, lister, &mut watch, output)).await,
        false => Box::pin(one(args, client, &mut watch, output)).await,
    }
}

/// Options that contradict each other, or are about trees where there is none.
fn check(args: &CpArgs) -> Result<()> {
    let wrong = |message: &str, hint: &str| {
        Err(Error::new(ErrorKind::Usage, message).fault(Fault::Caller).hint(hint))
    };
    let walks = args.recursive || args.files_from.is_some();
    let lists = args.files_from.is_some() || args.failed_to.is_some();
    if args.is_tree() && args.paths.target == "-" {
        return wrong("several files cannot go to standard output", "name a directory");
    }
    if args.paths.source.len() > 1 && !args.mirror.is_empty() {
        return wrong("--mirror is about one source", "copy each source by itself");
    }
    if args.paths.source.len() > 1 && lists {
        return wrong("--files-from and --failed-to are about one source", "copy each source by itself");
    }
    if args.failed_to.is_some() && !walks {
        return wrong("--failed-to is about trees", "give -r or --files-from as well");
    }
    if args.null && !lists {
        return wrong("-0 is about lists of names", "give --files-from or --failed-to as well");
    }
    if !args.filter.filter.is_empty() && !walks {
        return wrong("--include and --exclude are about trees", "give -r as well");
    }
    if args.is_tree() && matches!(&args.checksum, Some((_, Some(_)))) {
        return wrong("a checksum's value is about one file", "give its type only: --checksum adler32");
    }
    Ok(())
}

fn options(args: &CpArgs) -> Options {
    let given = args.timeout.map(Duration::from_secs_f64);
    let usual = Options::default();
    Options {
        checksum: args.checksum.clone(),
        require_verified: args.require_verified,
        follow_links: !args.no_links,
        streams: args.streams.map(usize::from),
        limit: args.limit_rate.map(RateLimit::new),
        patience: given.unwrap_or(usual.patience),
        upload_answer_max: given.unwrap_or(usual.upload_answer_max),
        journal_keys: journal_keys(),
        ..usual
    }
}

/// Where the key of the user's journals is kept: XDG's directory for what a program wants to find again.
fn journal_keys() -> JournalKeys {
    static KEYS: OnceLock<JournalKeys> = OnceLock::new();
    let keys = KEYS.get_or_init(|| {
        let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
        state.map_or_else(JournalKeys::default, |state| JournalKeys::at(state.join("gridlane/journal.key")))
    });
    keys.clone()
}

fn existing(args: &CpArgs) -> Existing {
    match (args.update, args.force) {
        (true, _) => Existing::Update,
        (false, true) => Existing::Replace,
        (false, false) => Existing::Refuse,
    }
}

fn current_dir() -> Result<PathBuf> {
    std::env::current_dir().map_err(|cause| Error::local_io("cannot tell the current directory", &cause))
}

/// Copies one file, or the files of a metalink.
async fn one(args: &CpArgs, client: Client, watch: &mut Watch, output: &Output) -> Result<ExitCode> {
    let sources: Vec<Url> =
        args.paths.source.iter().chain(&args.mirror).map(|text| parse(text)).collect::<Result<_>>()?;
    sources.iter().try_for_each(refuse_directory)?;
    let current_dir = current_dir()?;
    let planner = Planner { args, sources, current_dir, client, output };
    let mut jobs = planner.begin().await?;
    let stop = stop_signal()?;
    tokio::pin!(stop);
    let (mut failed, mut count) = (Vec::new(), jobs.len());
    while let Some(job) = jobs.pop_front() {
        match Box::pin(copy_one(job, args, planner.client.clone(), watch, output, stop.as_mut())).await {
            Ended::Well => {}
            Ended::Badly(error) => {
                let is_stopped = error.kind() == ErrorKind::Interrupted;
                failed.push(error);
                if is_stopped {
                    break;
                }
            }
            Ended::At(found) => {
                jobs = planner.go_on(&found).await?;
                count = jobs.len();
            }
        }
    }
    Ok(match failed.last() {
        Some(error) if count > 1 && error.kind() != ErrorKind::Interrupted && failed.len() < count => {
            ExitCode::from(ErrorKind::Partial.exit_code())
        }
        error => code(error),
    })
}

impl Planner<'_> {
    /// What is to be copied: what was typed, or the files of a metalink.
    async fn begin(&self) -> Result<VecDeque<Job>> {
        let files = match self.args.no_metalink {
            true => None,
            false => gridlane_client::describe(&self.client, &self.sources[0], false).await?,
        };
        match files {
            Some(files) => self.described(files, true),
            None => Ok([self.plain(!self.args.no_metalink)?].into()),
        }
    }

    /// What is to be copied now that a metalink was found.
    async fn go_on(&self, found: &FoundMetalink) -> Result<VecDeque<Job>> {
        if found.is_source {
            let files = gridlane_client::describe(&self.client, &found.url, true).await?;
            return self.described(files.unwrap_or_default(), false);
        }
        let mut job = self.plain(false)?;
        match gridlane_client::describe_found(&self.client, &self.sources[0], found).await {
            Ok(file) => {
                self.tell(&file.notes);
                let more = file.sources.into_iter().filter(|url| !self.sources.contains(url));
                let room = SOURCES_MAX.saturating_sub(job.sources.len());
                job.sources.extend(more.take(room));
                job.known = file.known;
            }
            Err(why) => self.tell(&[format!("the metalink {} is not used: {why}", found.url)]),
        }
        Ok([job].into())
    }

    fn plain(&self, stop_at_metalink: bool) -> Result<Job> {
        // May wait for the reader of a pipe: before signals are ours, so that Ctrl-C ends it.
        let (text, source) = (&self.args.paths.target, &self.sources[0]);
        let target = gridlane_client::resolve(text, source, &self.current_dir, replaces(self.args))?;
        Ok(Job { sources: self.sources.clone(), target, known: Known::default(), stop_at_metalink })
    }

    /// The files of a metalink. `is_called_one`: the user called the source a metalink; else it is one file, with a name
    /// of its own, whatever a server answers.
    fn described(&self, files: Vec<Described>, is_called_one: bool) -> Result<VecDeque<Job>> {
        let args = self.args;
        if files.len() > 1 && !is_called_one {
            let message = format!("one file was asked for, and the answer is a metalink of {}", files.len());
            return Err(Error::new(ErrorKind::Protocol, message)
                .fault(Fault::Peer)
                .endpoint(&self.sources[0])
                .hint("to have them all, save it as NAME.meta4 with --no-metalink, and copy that into a directory"));
        }
        let is_directory = gridlane_client::is_directory(&args.paths.target, &self.current_dir);
        if files.len() > 1 && (!is_directory || !args.mirror.is_empty() || args.checksum.is_some()) {
            let message = format!("the metalink has {} files", files.len());
            return Err(Error::new(ErrorKind::Usage, message)
                .fault(Fault::Caller)
                .hint("name an existing directory as the target, without --mirror and --checksum"));
        }
        let naming = match files.len() {
            _ if !is_called_one => Naming::Own(&self.sources[0]),
            1 => Naming::Only,
            _ => Naming::OneOfSeveral,
        };
        let job = |file: Described| {
            self.tell(&file.notes);
            let target = file.resolve(&args.paths.target, naming, &self.current_dir, replaces(args))?;
            let sources = file.sources.into_iter().chain(self.sources[1..].iter().cloned()).collect();
            Ok(Job { sources, target, known: file.known, stop_at_metalink: false })
        };
        files.into_iter().map(job).collect()
    }

    fn tell(&self, notes: &[String]) {
        if self.output.verbose {
            notes.iter().for_each(|note| tell!("gridlane: {note}"));
        }
    }
}

/// Copies one file and tells how it went.
async fn copy_one(
    mut job: Job,
    args: &CpArgs,
    client: Client,
    watch: &mut Watch,
    output: &Output,
    stop: impl Future<Output = ()> + Send,
) -> Ended {
    let target_url = match job.target.url() {
        Ok(url) => url,
        Err(error) => return Ended::Badly(error),
    };
    let preserves = args.preserve == Some(Preserve::Times) && target_url.is_some();
    let mut facts = FileFacts::default();
    if preserves || args.dry_run || args.update {
        let action = match prepare(&job, target_url.as_ref(), args, &client).await {
            Ok((action, known)) => {
                facts = known;
                action
            }
            Err(error) => {
                tell_failed(&job.target.name, &error, output);
                return Ended::Badly(error);
            }
        };
        if args.dry_run {
            tell_plan(action, &job, target_url.as_ref(), &facts, output);
            return match action {
                Action::Refuse => Ended::Badly(Error::new(ErrorKind::Precondition, "the target exists")),
                Action::Copy | Action::Replace | Action::Skip => Ended::Well,
            };
        }
        if action == Action::Skip {
            if let TargetSpec::File { path, .. } = &job.target.spec {
                // Perhaps an earlier run was killed when all was there.
                gridlane_store::partial::sweep(path);
            }
            tell_skipped(&job.target.name, output);
            return Ended::Well;
        }
    }
    if let TargetSpec::Upload { modified, .. } = &mut job.target.spec {
        *modified = facts.modified.filter(|_| preserves);
    }
    let urls: Vec<String> = job.sources.iter().map(|url| url.to_string()).collect();
    let Destination { spec, name, is_resumable } = job.target;
    let keys = Some(journal_keys());
    let options = Options { known: job.known, stop_at_metalink: job.stop_at_metalink, ..options(args) };
    let spec = CopySpec { sources: job.sources, target: spec, options };
    let keeps = target_url.as_ref().filter(|_| preserves);
    if output.json {
        let mut events = JsonEvents::new(&urls, &name, args.paths.target == "-");
        let mut watched = Watched { observer: &mut events, watch };
        let outcome = copy(spec, client, &mut watched, stop).await;
        if let Some(error) = keep(&outcome, keeps, facts.modified) {
            events.time_lost(&error);
        }
        if let Some(found) = outcome.metalink {
            return Ended::At(found);
        }
        events.end(&outcome.report, outcome.result.as_ref().err());
        return outcome.result.map_or_else(Ended::Badly, |()| Ended::Well);
    }
    let mut screen = Screen::new(&urls, args.progress, output);
    let mut watched = Watched { observer: &mut screen, watch };
    let outcome = copy(spec, client, &mut watched, stop).await;
    screen.clear();
    if let Some(error) = keep(&outcome, keeps, facts.modified)
        && !output.quiet
    {
        tell!("gridlane: {name}: its time is not kept: {}", error.message());
    }
    if let Some(found) = outcome.metalink {
        return Ended::At(found);
    }
    match &outcome.result {
        Ok(()) if !output.quiet => to_stderr(format_args!("{}", summary_text(&outcome.report, &name))),
        Ok(()) => {}
        Err(error) => failed(error, &outcome.report, keys.filter(|_| is_resumable), output),
    }
    outcome.result.map_or_else(Ended::Badly, |()| Ended::Well)
}

/// What is to be done with a file, and what its source says of it.
async fn prepare(
    job: &Job,
    target: Option<&Url>,
    args: &CpArgs,
    client: &Client,
) -> Result<(Action, FileFacts)> {
    let facts = look_at_source(client, &job.sources[0]).await?;
    let decides = args.dry_run || args.update;
    let action = match target.filter(|_| decides) {
        Some(url) => decide(client, &facts, url, existing(args)).await?,
        None => Action::Copy,
    };
    Ok((action, facts))
}

/// Whether an existing target may be replaced.
fn replaces(args: &CpArgs) -> bool {
    existing(args) != Existing::Refuse
}

/// Says why nothing was begun.
fn tell_failed(target: &str, error: &Error, output: &Output) {
    if output.json {
        JsonEvents::new(&[], target, false).failed(error);
    } else {
        output.error(error);
    }
}

/// Gives the target its time; an error says why it has not got it.
fn keep(outcome: &Outcome, target: Option<&Url>, modified: Option<SystemTime>) -> Option<Error> {
    let target = target.filter(|_| outcome.result.is_ok())?;
    keep_time(target, modified, &outcome.report).err()
}

/// Says what would be done with a file.
fn tell_plan(action: Action, job: &Job, target_url: Option<&Url>, facts: &FileFacts, output: &Output) {
    let target = &job.target.name;
    if output.json {
        let sources: Vec<String> = job.sources.iter().map(ToString::to_string).collect();
        JsonEvents::new(&sources, target, false).would(action, facts);
    } else if let Some(target) = target_url {
        show!("{}", would_text(action, &job.sources, target, facts.size_bytes));
    } else {
        show!("{:<7} {} -> {target}", action.name(), job.sources[0]);
    }
}

fn tell_skipped(target: &str, output: &Output) {
    let why = LeftOut::UpToDate;
    if output.json {
        JsonEvents::new(&[], target, false).skipped(why);
    } else if !output.quiet {
        tell!("gridlane: {target}: {}", words::left_out(why));
    }
}

fn code(error: Option<&Error>) -> ExitCode {
    error.map_or(ExitCode::SUCCESS, |error| ExitCode::from(error.kind().exit_code()))
}

/// Says how a copy failed; with `keys`, what was to be kept of it.
fn failed(error: &Error, report: &Report, keys: Option<JournalKeys>, output: &Output) {
    output.error(error);
    if !output.quiet {
        for source in &report.sources {
            if let Some(error) = &source.error
                && report.sources.len() > 1
            {
                tell!("  {}: {}", source.url, error.message());
            }
        }
    }
    let may_go_on = error.is_retryable()
        || matches!(error.kind(), ErrorKind::LocalIo | ErrorKind::Interrupted | ErrorKind::Denied);
    let Some(keys) = keys.filter(|_| may_go_on && report.done_bytes > 0) else { return };
    if let Err(why) = keys.key() {
        tell!("gridlane: nothing of it is kept: {why}; set XDG_STATE_HOME to a directory that lasts");
    } else {
        let done = gridlane_core::units::format_bytes(report.done_bytes);
        let words = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
        tell!("gridlane: {done} are kept; this continues: {}", command_line(words));
    }
}

/// A command as a shell reads it back.
fn command_line(words: impl Iterator<Item = String>) -> String {
    let quoted = words.map(|word| {
        let word = without_secrets(&word);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
        match &word {
            _ if !word.is_empty() && word.chars().all(plain) => word,
            // As bytes, in the form that most shells know (POSIX.1-2024, 2.2.4): what is not shown cannot be copied.
            _ if word.chars().any(is_unprintable) => {
                let quoted = |byte: u8| match byte {
                    b'\'' | b'\\' => format!("\\{}", char::from(byte)),
                    b' '..=b'~' => char::from(byte).to_string(),
                    other => format!("\\{other:03o}"),
                };
                format!("$'{}'", word.bytes().map(quoted).collect::<String>())
            }
            _ => format!("'{}'", word.replace('\'', "'\\''")),
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// An argument as it may stand in a log: a URL with a password or a signed query loses them.
fn without_secrets(arg: &str) -> String {
    // `--mirror=URL`: the URL alone is one.
    if let Some((option, value)) = arg.split_once('=').filter(|_| arg.starts_with("--")) {
        return format!("{option}={}", without_secrets(value));
    }
    match Url::parse_absolute(arg) {
        Ok(url) if url.credentials().is_some() || url.request_target().contains('?') => url.to_string(),
        _ => arg.to_owned(),
    }
}

/// Completes at the first SIGINT or SIGTERM; the second one ends the process at once.
fn stop_signal() -> Result<impl Future<Output = ()> + Send> {
    let listen = |kind| {
        signal(kind)
            .map_err(|cause| Error::new(ErrorKind::Other, format!("cannot listen to signals: {cause}")))
    };
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let (first, stopped) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        let _ = first.send(());
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::process::exit(i32::from(ErrorKind::Interrupted.exit_code()));
    });
    Ok(async move {
        let _ = stopped.await;
    })
}
