//! The one binary: reads the command line, calls the crates below, and prints the outcome.
//!
//! Data goes to standard output, everything else to standard error; with `--json`, events go to standard
//! output, one object a line. The exit code has the kind of the failure.

#![deny(clippy::print_stdout, clippy::print_stderr)] // everything that is said goes through `output`

mod args;
mod auth;
mod completion;
mod config;
mod connect;
mod cp;
mod doctor;
mod events;
mod files;
mod man;
mod output;
mod pki;
mod probe;
mod progress;
mod read;
mod serve;
mod wan;
mod words;

use std::process::ExitCode;
use std::time::Duration;

use clap::FromArgMatches;
use gridlane_config::options::blamed_variables;
use gridlane_core::text::printable_lines;
use gridlane_core::{Error, ErrorKind, Result};

use crate::args::{Cli, Command, Global};
use crate::output::{FailedEvent, Output, tell, to_stderr};

/// Time for which a server's thread for work that blocks is kept without work: for good.
const KEPT_FOR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

fn main() -> ExitCode {
    gridlane_sys::process::hear_of_file_size_limit();
    let cli = match parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let output = Output::new(&cli.global);
    let failed_event = match cli.command {
        Command::Cp(_) => FailedEvent::Copy,
        _ => FailedEvent::Command,
    };
    // The bytes of a file are on standard output: nothing else may be.
    let data_on_stdout = match &cli.command {
        Command::Cat(_) => true,
        Command::Cp(args) => args.paths.target == "-",
        _ => false,
    };
    let without_runtime = match &cli.command {
        Command::Wan(args) => Some(wan::run(args, &cli.global)),
        Command::Pki(args) => Some(pki::run(args, &cli.global)),
        Command::Auth(args) => Some(auth::run(args, &cli.global)),
        Command::Completion(args) => Some(completion::script(args)),
        Command::Complete(args) => Some(completion::complete(args)),
        Command::Man(args) => Some(man::run(args)),
        _ => None,
    };
    if let Some(outcome) = without_runtime {
        gridlane_client::login::settle();
        return outcome.unwrap_or_else(|error| {
            output.failed(FailedEvent::Command, &error, false);
            ExitCode::from(error.kind().exit_code())
        });
    }
    let outcome = runtime(&cli.command, &cli.global).and_then(|runtime| {
        // On a thread of the runtime and not on this one: what it awaits happens there.
        let command = runtime.spawn(run(cli, output.clone()));
        let outcome = runtime.block_on(command).unwrap_or_else(|cause| {
            Err(Error::new(ErrorKind::Other, format!("the command ended without a result: {cause}")))
        });
        // A thread that still blocks (on a terminal, on a dead disk) must not keep the process.
        runtime.shutdown_background();
        outcome
    });
    // A login that is being renewed is stored first.
    gridlane_client::login::settle();
    match outcome {
        Ok(code) => code,
        Err(error) => {
            output.failed(failed_event, &error, data_on_stdout);
            ExitCode::from(error.kind().exit_code())
        }
    }
}

fn parse() -> std::result::Result<Cli, ExitCode> {
    // clap prints its own messages; its codes for help (0) and mistakes (2) are ours too.
    let failed = |error: clap::Error| {
        let text = error.render().to_string();
        match text == printable_lines(&text) {
            true => drop(error.print()),
            // It repeats what was typed, which a shell may have taken from a directory.
            false => to_stderr(format_args!("{text}")),
        }
        ExitCode::from(error.exit_code() as u8)
    };
    let command = config::command_with_file().map_err(|error| {
        tell!("gridlane: {}", words::error(&error));
        ExitCode::from(error.kind().exit_code())
    })?;
    let args: Vec<_> = std::env::args_os().collect();
    let matches = command.clone().try_get_matches_from(&args).map_err(|error| {
        let blamed = if error.use_stderr() { blamed_variables(&command, &args, &error) } else { Vec::new() };
        let code = failed(error);
        if !blamed.is_empty() {
            tell!("The environment says so: {}", blamed.join(" "));
        }
        code
    })?;
    Cli::from_arg_matches(&matches).map_err(failed)
}

/// Makes a runtime with as many threads as there are connections to keep busy. One connection on several threads moves
/// from one to the other at every wake-up and costs a fifth more; what may wait for a disk has threads of its own.
fn runtime(command: &Command, global: &Global) -> Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let threads = match command {
        Command::Serve(_) => cores,
        Command::Cp(args) if args.is_tree() => cores,
        Command::Probe(_) | Command::Read(_) => cores,
        Command::Cp(args) => cores.min((1 + args.mirror.len()) * args.streams.map_or(1, usize::from)),
        _ => 1,
    };
    let Command::Serve(args) = command else {
        return gridlane_client::runtime(threads);
    };
    let blocking = serve::room::Threads::to_be_had(threads, serve::devices(args, global))?;
    let kept = blocking.kept;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(blocking.blocking)
        .thread_keep_alive(KEPT_FOR)
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(|cause| Error::new(ErrorKind::Other, format!("cannot start: {cause}")))?;
    runtime.block_on(serve::room::keep_threads(kept))?;
    Ok(runtime)
}

async fn run(cli: Cli, output: Output) -> Result<ExitCode> {
    // On the heap: without optimization each would have its part of the stack.
    match cli.command {
        Command::Cp(args) => Box::pin(cp::run(&args, &cli.global, &output)).await,
        Command::Serve(args) => Box::pin(serve::run(&args, &cli.global)).await,
        Command::Ls(args) => Box::pin(files::ls(&args, &cli.global)).await,
        Command::Stat(args) => Box::pin(files::stat(&args, &cli.global)).await,
        Command::Cat(args) => Box::pin(files::cat(&args, &cli.global)).await,
        Command::Read(args) => Box::pin(read::run(&args, &cli.global, &output)).await,
        Command::Rm(args) => Box::pin(files::rm(&args, &cli.global)).await,
        Command::Checksum(args) => Box::pin(files::checksum(&args, &cli.global)).await,
        Command::Mkdir(args) => Box::pin(files::mkdir(&args, &cli.global)).await,
        Command::Mv(args) => Box::pin(files::mv(&args, &cli.global)).await,
        Command::Df(args) => Box::pin(files::df(&args, &cli.global)).await,
        Command::Doctor(args) => Box::pin(doctor::run(&args, &cli.global)).await,
        Command::Probe(args) => Box::pin(probe::run(&args, &cli.global, &output)).await,
        Command::Wan(_)
        | Command::Pki(_)
        | Command::Auth(_)
        | Command::Completion(_)
        | Command::Complete(_)
        | Command::Man(_) => unreachable!("has run already, without a runtime"),
    }
}
