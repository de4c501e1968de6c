//! `gridlane cp`.

mod tree;

use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use gridlane_client::{Action, Destination, Existing, Known, Lister, decide, keep_time, look_at_source};
use gridlane_core::{Error, ErrorKind, Fault, Result, Url};
use gridlane_engine::http::Client;
use gridlane_engine::{CopySpec, Observer, Options, Outcome, RateLimit, Report, TargetSpec, copy};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{CpArgs, Global, Preserve};
use crate::events::JsonEvents;
use crate::files::parse;
use crate::output::{Output, error_value, print_event};
use crate::progress::tree::would_text;
use crate::progress::{Screen, summary_text};

pub(crate) async fn run(args: &CpArgs, global: &Global, output: &Output) -> Result<ExitCode> {
    check(args)?;
    let client = gridlane_client::connect(global.trust());
    let lister = Lister::new(client.clone());
    let is_many = args.source.len() > 1 || args.files_from.is_some();
    match is_many || args.recursive && lister.is_directory(&parse(&args.source[0])?).await? {
        true => tree::run(args, lister, output).await,
        false => one(args, client, output).await,
    }
}

/// Options that contradict each other, or are about trees where there is none.
fn check(args: &CpArgs) -> Result<()> {
    let wrong = |message: &str, hint: &str| {
        Err(Error::new(ErrorKind::Usage, message).fault(Fault::Caller).hint(hint))
    };
    let walks = args.recursive || args.files_from.is_some();
    let lists = args.files_from.is_some() || args.failed_to.is_some();
    if args.is_tree() && args.target == "-" {
        return wrong("several files cannot go to standard output", "name a directory");
    }
    if args.source.len() > 1 && !args.mirror.is_empty() {
        return wrong("--mirror is about one source", "copy each source by itself");
    }
    if args.source.len() > 1 && lists {
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
    Options {
        checksum: args.checksum.clone(),
        streams: args.streams.map(usize::from),
        limit: args.limit_rate.map(RateLimit::new),
        patience: Duration::from_secs_f64(args.timeout),
    }
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

/// Copies one file.
async fn one(args: &CpArgs, client: Client, output: &Output) -> Result<ExitCode> {
    let sources: Vec<Url> =
        args.source.iter().chain(&args.mirror).map(|text| parse(text)).collect::<Result<_>>()?;
    refuse_directory(&sources[0])?;
    let overwrite = args.force || args.update;
    // May wait for the reader of a pipe: before signals are ours, so that Ctrl-C ends it.
    let mut target = gridlane_client::resolve(&args.target, &sources[0], &current_dir()?, overwrite)?;
    let target_url = match &target.spec {
        TargetSpec::File { path, .. } => Some(Url::from_path(path)?),
        TargetSpec::Upload { url, .. } => Some(url.clone()),
        TargetSpec::Stream(_) => None,
    };
    let preserves = args.preserve == Some(Preserve::Times) && target_url.is_some();
    let mut known = Known::default();
    if preserves || args.dry_run || args.update {
        known = look_at_source(&client, &sources[0]).await?;
    }
    if args.dry_run || args.update {
        let action = match &target_url {
            Some(url) => decide(&client, &known, url, existing(args)).await?,
            None => Action::Copy,
        };
        if args.dry_run {
            return Ok(tell_plan(action, &sources, target_url.as_ref(), &target.name, &known, output));
        }
        if action == Action::Skip {
            tell_skipped(&target.name, output);
            return Ok(ExitCode::SUCCESS);
        }
    }
    if let TargetSpec::Upload { modified, .. } = &mut target.spec {
        *modified = known.modified.filter(|_| preserves);
    }
    let urls: Vec<String> = sources.iter().map(|url| url.to_string()).collect();
    let Destination { spec, name, is_resumable } = target;
    let spec = CopySpec { sources, target: spec, options: options(args) };
    let stop = stop_signal()?;
    if output.json {
        let mut events = JsonEvents::new(&urls, &name, args.target == "-");
        let outcome = copy(spec, client, &mut events, stop).await;
        let time_lost = keep(&outcome, target_url.as_ref().filter(|_| preserves), known.modified);
        if let Some(error) = time_lost {
            let fields = json!({ "target": name, "about": "time", "error": error_value(&error) });
            print_event(&mut std::io::stdout().lock(), "note", fields);
        }
        events.end(&outcome.report, outcome.result.as_ref().err());
        return Ok(code(outcome.result.as_ref().err()));
    }
    let mut screen = Screen::new(&urls, args.progress, output);
    let outcome = copy(spec, client, &mut screen as &mut dyn Observer, stop).await;
    screen.clear();
    if let Some(error) = keep(&outcome, target_url.as_ref().filter(|_| preserves), known.modified)
        && !output.quiet
    {
        eprintln!("gridlane: {name}: its time is not kept: {}", error.message());
    }
    match &outcome.result {
        Ok(()) if !output.quiet => eprint!("{}", summary_text(&outcome.report, &name)),
        Ok(()) => {}
        Err(error) => failed(error, &outcome.report, is_resumable, output),
    }
    Ok(code(outcome.result.as_ref().err()))
}

/// Gives the target its time; an error says why it has not got it.
fn keep(outcome: &Outcome, target: Option<&Url>, modified: Option<SystemTime>) -> Option<Error> {
    let target = target.filter(|_| outcome.result.is_ok())?;
    keep_time(target, modified, &outcome.report).err()
}

fn refuse_directory(source: &Url) -> Result<()> {
    let is_directory = match source.to_path() {
        Some(path) => path.is_dir(),
        None => source.is_directory_form(),
    };
    match is_directory {
        true => Err(Error::new(ErrorKind::Usage, "it is a directory")
            .fault(Fault::Caller)
            .endpoint(source)
            .hint("copy it with -r")),
        false => Ok(()),
    }
}

/// Says what would be done with a file.
fn tell_plan(
    action: Action,
    sources: &[Url],
    target_url: Option<&Url>,
    target: &str,
    known: &Known,
    output: &Output,
) -> ExitCode {
    if output.json {
        let sources: Vec<String> = sources.iter().map(ToString::to_string).collect();
        let fields = json!({
            "dry_run": true, "action": action.name(), "sources": sources, "target": target,
            "size_bytes": known.size_bytes,
        });
        print_event(&mut std::io::stdout().lock(), "plan", fields);
    } else if let Some(target) = target_url {
        println!("{}", would_text(action, sources, target, known.size_bytes));
    } else {
        println!("{:<7} {} -> {target}", action.name(), sources[0]);
    }
    match action {
        Action::Refuse => ExitCode::from(ErrorKind::Precondition.exit_code()),
        Action::Copy | Action::Replace | Action::Skip => ExitCode::SUCCESS,
    }
}

fn tell_skipped(target: &str, output: &Output) {
    let why = "it is there, of the same size and not older";
    if output.json {
        let fields = json!({ "target": target, "why": why, "there_already": true });
        print_event(&mut std::io::stdout().lock(), "file.skipped", fields);
    } else if !output.quiet {
        eprintln!("gridlane: {target}: {why}");
    }
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
        let words = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
        eprintln!("gridlane: {done} are kept; this continues: {}", command_line(words));
    }
}

/// A command as a shell reads it back.
fn command_line(words: impl Iterator<Item = String>) -> String {
    let quoted = words.map(|word| {
        let word = without_secrets(&word);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
        match !word.is_empty() && word.chars().all(plain) {
            true => word,
            false => format!("'{}'", word.replace('\'', "'\\''")),
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
