//! `gridlane cp`.

use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use gridlane_client::{Described, Destination};
use gridlane_core::{Error, ErrorKind, Fault, Result, Url};
use gridlane_engine::http::Client;
use gridlane_engine::{CopySpec, Known, Observer, Options, Report, copy};
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
}

pub(crate) async fn run(args: &CpArgs, global: &Global, output: &Output) -> Result<ExitCode> {
    let sources: Vec<Url> =
        std::iter::once(&args.source).chain(&args.mirror).map(|text| parse(text)).collect::<Result<_>>()?;
    let client = gridlane_client::connect(global.trust());
    let jobs = jobs(args, sources, &client, output).await?;
    let stop = stop_signal()?;
    tokio::pin!(stop);
    let (mut failed, count) = (Vec::new(), jobs.len());
    for job in jobs {
        let error = copy_one(job, args, client.clone(), output, stop.as_mut()).await;
        let is_stopped = error.as_ref().is_some_and(|error| error.kind() == ErrorKind::Interrupted);
        failed.extend(error);
        if is_stopped {
            break;
        }
    }
    Ok(match failed.last() {
        Some(error) if count > 1 && error.kind() != ErrorKind::Interrupted && failed.len() < count => {
            ExitCode::from(ErrorKind::Partial.exit_code())
        }
        error => code(error),
    })
}

/// What is to be copied: what was typed, or the files of a metalink.
async fn jobs(args: &CpArgs, sources: Vec<Url>, client: &Client, output: &Output) -> Result<Vec<Job>> {
    let current_dir = std::env::current_dir()
        .map_err(|cause| Error::local_io("cannot tell the current directory", &cause))?;
    let files = match args.no_metalink {
        true => None,
        false => gridlane_client::describe(client, &sources[0], false).await?,
    };
    let Some(files) = files else {
        // May wait for the reader of a pipe: before signals are ours, so that Ctrl-C ends it.
        let target = gridlane_client::resolve(&args.target, &sources[0], &current_dir, args.force)?;
        return Ok(vec![Job { sources, target, known: Known::default() }]);
    };
    let is_directory = gridlane_client::is_directory(&args.target, &current_dir);
    if files.len() > 1 && (!is_directory || sources.len() > 1 || args.checksum.is_some()) {
        let message = format!("the metalink has {} files", files.len());
        return Err(Error::new(ErrorKind::Usage, message)
            .fault(Fault::Caller)
            .hint("name an existing directory as the target, without --mirror and --checksum"));
    }
    let job = |file: Described| {
        if output.verbose {
            file.notes.iter().for_each(|note| eprintln!("gridlane: {note}"));
        }
        let target = file.resolve(&args.target, &current_dir, args.force)?;
        let sources = file.sources.into_iter().chain(sources[1..].iter().cloned()).collect();
        Ok(Job { sources, target, known: file.known })
    };
    files.into_iter().map(job).collect()
}

/// Copies one file and tells how it went.
async fn copy_one(
    job: Job,
    args: &CpArgs,
    client: Client,
    output: &Output,
    stop: impl Future<Output = ()>,
) -> Option<Error> {
    let urls: Vec<String> = job.sources.iter().map(|url| url.to_string()).collect();
    let Destination { spec, name, is_resumable } = job.target;
    let spec = CopySpec {
        sources: job.sources,
        target: spec,
        options: Options {
            checksum: args.checksum.clone(),
            known: job.known,
            streams: args.streams.map(usize::from),
            limit_bytes_per_s: args.limit_rate,
            patience: Duration::from_secs_f64(args.timeout),
        },
    };
    if output.json {
        let mut events = JsonEvents::new(&urls, &name, args.target == "-");
        let outcome = copy(spec, client, &mut events, stop).await;
        events.end(&outcome.report, outcome.result.as_ref().err());
        return outcome.result.err();
    }
    let mut screen = Screen::new(&urls, args.progress, output);
    let outcome = copy(spec, client, &mut screen as &mut dyn Observer, stop).await;
    screen.clear();
    match &outcome.result {
        Ok(()) if !output.quiet => eprint!("{}", summary_text(&outcome.report, &name)),
        Ok(()) => {}
        Err(error) => failed(error, &outcome.report, is_resumable, output),
    }
    outcome.result.err()
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
