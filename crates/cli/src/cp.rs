//! `gridlane cp`.

use std::collections::VecDeque;
use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use gridlane_client::{Described, Destination};
use gridlane_core::limits::SOURCES_MAX;
use gridlane_core::{Error, ErrorKind, Fault, Result, Url};
use gridlane_engine::http::Client;
use gridlane_engine::{CopySpec, FoundMetalink, Known, Observer, Options, Report, copy};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{CpArgs, Global};
use crate::events::JsonEvents;
use crate::files::parse;
use crate::output::Output;
use crate::progress::{Screen, summary_text};

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
    let sources: Vec<Url> =
        std::iter::once(&args.source).chain(&args.mirror).map(|text| parse(text)).collect::<Result<_>>()?;
    let current_dir = std::env::current_dir()
        .map_err(|cause| Error::local_io("cannot tell the current directory", &cause))?;
    let client = gridlane_client::connect(global.trust());
    let planner = Planner { args, sources, current_dir, client, output };
    let mut jobs = planner.begin().await?;
    let stop = stop_signal()?;
    tokio::pin!(stop);
    let (mut failed, mut count) = (Vec::new(), jobs.len());
    while let Some(job) = jobs.pop_front() {
        match copy_one(job, args, planner.client.clone(), output, stop.as_mut()).await {
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
            Some(files) => self.described(files),
            None => Ok([self.plain(!self.args.no_metalink)?].into()),
        }
    }

    /// What is to be copied now that a metalink was found.
    async fn go_on(&self, found: &FoundMetalink) -> Result<VecDeque<Job>> {
        if found.is_source {
            let files = gridlane_client::describe(&self.client, &found.url, true).await?;
            return self.described(files.unwrap_or_default());
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
        let (text, source) = (&self.args.target, &self.sources[0]);
        let target = gridlane_client::resolve(text, source, &self.current_dir, self.args.force)?;
        Ok(Job { sources: self.sources.clone(), target, known: Known::default(), stop_at_metalink })
    }

    fn described(&self, files: Vec<Described>) -> Result<VecDeque<Job>> {
        let args = self.args;
        let is_directory = gridlane_client::is_directory(&args.target, &self.current_dir);
        if files.len() > 1 && (!is_directory || !args.mirror.is_empty() || args.checksum.is_some()) {
            let message = format!("the metalink has {} files", files.len());
            return Err(Error::new(ErrorKind::Usage, message)
                .fault(Fault::Caller)
                .hint("name an existing directory as the target, without --mirror and --checksum"));
        }
        let job = |file: Described| {
            self.tell(&file.notes);
            let target = file.resolve(&args.target, &self.current_dir, args.force)?;
            let sources = file.sources.into_iter().chain(self.sources[1..].iter().cloned()).collect();
            Ok(Job { sources, target, known: file.known, stop_at_metalink: false })
        };
        files.into_iter().map(job).collect()
    }

    fn tell(&self, notes: &[String]) {
        if self.output.verbose {
            notes.iter().for_each(|note| eprintln!("gridlane: {note}"));
        }
    }
}

/// Copies one file and tells how it went.
async fn copy_one(
    job: Job,
    args: &CpArgs,
    client: Client,
    output: &Output,
    stop: impl Future<Output = ()>,
) -> Ended {
    let urls: Vec<String> = job.sources.iter().map(|url| url.to_string()).collect();
    let Destination { spec, name, is_resumable } = job.target;
    let spec = CopySpec {
        sources: job.sources,
        target: spec,
        options: Options {
            checksum: args.checksum.clone(),
            known: job.known,
            follow_links: !args.no_links,
            stop_at_metalink: job.stop_at_metalink,
            streams: args.streams.map(usize::from),
            limit_bytes_per_s: args.limit_rate,
            patience: Duration::from_secs_f64(args.timeout),
        },
    };
    if output.json {
        let mut events = JsonEvents::new(&urls, &name, args.target == "-");
        let outcome = copy(spec, client, &mut events, stop).await;
        if let Some(found) = outcome.metalink {
            return Ended::At(found);
        }
        events.end(&outcome.report, outcome.result.as_ref().err());
        return outcome.result.map_or_else(Ended::Badly, |()| Ended::Well);
    }
    let mut screen = Screen::new(&urls, args.progress, output);
    let outcome = copy(spec, client, &mut screen as &mut dyn Observer, stop).await;
    screen.clear();
    if let Some(found) = outcome.metalink {
        return Ended::At(found);
    }
    match &outcome.result {
        Ok(()) if !output.quiet => eprint!("{}", summary_text(&outcome.report, &name)),
        Ok(()) => {}
        Err(error) => failed(error, &outcome.report, is_resumable, output),
    }
    outcome.result.map_or_else(Ended::Badly, |()| Ended::Well)
}

fn code(error: Option<&Error>) -> ExitCode {
    error.map_or(ExitCode::SUCCESS, |error| ExitCode::from(error.kind().exit_code()))
}

fn failed(error: &Error, report: &Report, is_resumable: bool, output: &Output) {
    output.error(error);
    if !output.quiet {
        for source in &report.sources {
            if let Some(error) = &source.error
                && report.sources.len() > 1
            {
                eprintln!("  {}: {}", source.url, error.message());
            }
        }
    }
    let may_go_on = error.is_retryable()
        || matches!(error.kind(), ErrorKind::LocalIo | ErrorKind::Interrupted | ErrorKind::Denied);
    if is_resumable && may_go_on && report.done_bytes > 0 {
        let done = gridlane_core::units::format_bytes(report.done_bytes);
        eprintln!("gridlane: {done} are kept; this continues: {}", command_line());
    }
}

/// The command that was typed, so that a shell reads it back as it was.
fn command_line() -> String {
    let quoted = std::env::args_os().map(|arg| {
        let arg = without_secrets(&arg.to_string_lossy());
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
        match !arg.is_empty() && arg.chars().all(plain) {
            true => arg,
            false => format!("'{}'", arg.replace('\'', "'\\''")),
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// An argument as it may stand in a log: a URL with a password or a signed query loses them.
fn without_secrets(arg: &str) -> String {
    match Url::parse_absolute(arg) {
        Ok(url) if url.credentials().is_some() || url.request_target().contains('?') => url.to_string(),
        _ => arg.to_owned(),
    }
}

/// Completes at the first SIGINT or SIGTERM; the second one ends the process at once.
fn stop_signal() -> Result<impl Future<Output = ()>> {
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
