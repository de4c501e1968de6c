//! `gridlane cp`.

use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use gridlane_client::Destination;
use gridlane_core::{Error, ErrorKind, Result, Url};
use gridlane_engine::{CopySpec, Observer, Options, RateLimit, Report, copy};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{CpArgs, Global};
use crate::events::JsonEvents;
use crate::files::parse;
use crate::output::Output;
use crate::progress::{Screen, summary_text};

pub(crate) async fn run(args: &CpArgs, global: &Global, output: &Output) -> Result<ExitCode> {
    let sources: Vec<Url> =
        std::iter::once(&args.source).chain(&args.mirror).map(|text| parse(text)).collect::<Result<_>>()?;
    let current_dir = std::env::current_dir()
        .map_err(|cause| Error::local_io("cannot tell the current directory", &cause))?;
    // May wait for the reader of a pipe: before signals are ours, so that Ctrl-C ends it.
    let target = gridlane_client::resolve(&args.target, &sources[0], &current_dir, args.force)?;
    let client = gridlane_client::connect(global.trust());
    let urls: Vec<String> = sources.iter().map(|url| url.to_string()).collect();
    let Destination { spec, name, is_resumable } = target;
    let spec = CopySpec {
        sources,
        target: spec,
        options: Options {
            checksum: args.checksum.clone(),
            streams: args.streams.map(usize::from),
            limit: args.limit_rate.map(RateLimit::new),
            patience: Duration::from_secs_f64(args.timeout),
        },
    };
    let stop = stop_signal()?;
    if output.json {
        let mut events = JsonEvents::new(&urls, &name, args.target == "-");
        let outcome = copy(spec, client, &mut events, stop).await;
        events.end(&outcome.report, outcome.result.as_ref().err());
        return Ok(code(outcome.result.as_ref().err()));
    }
    let mut screen = Screen::new(&urls, args.progress, output);
    let outcome = copy(spec, client, &mut screen as &mut dyn Observer, stop).await;
    screen.clear();
    match &outcome.result {
        Ok(()) if !output.quiet => eprint!("{}", summary_text(&outcome.report, &name)),
        Ok(()) => {}
        Err(error) => failed(error, &outcome.report, is_resumable, output),
    }
    Ok(code(outcome.result.as_ref().err()))
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
