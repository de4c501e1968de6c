//! `gridlane wan`.

pub(crate) mod args;
mod show;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use gridlane_core::{Error, ErrorKind, Fault, Result};
use gridlane_wan::{BackEnd, ChangeText, Down, Place, Scenario, State, check, keep_up, remote};
use serde_json::{Value, json};

use crate::args::Global;
use crate::output::{self, FailedEvent, Output, error_from, print_event};
use args::{BackEndArg, CheckArgs, ExecArgs, SetArgs, UpArgs, WanArgs, WanCommand};

/// The codes of shells: the command is not there; it is, but cannot be run.
const COMMAND_NOT_FOUND: u8 = 127;
const COMMAND_NOT_RUN: u8 = 126;

/// Runs without a runtime: entering other namespaces takes a process with a single thread.
pub(crate) fn run(args: &WanArgs, global: &Global) -> Result<ExitCode> {
    let place = Place::of(&args.name)?;
    match &args.command {
        WanCommand::Up(up) if up.dry_run => dry_run(up),
        WanCommand::Up(up) if up.foreground => stay(up, &place, global),
        WanCommand::Up(up) => bring_up(up, &place, global),
        WanCommand::Set(set) => change(set, &place),
        WanCommand::Exec(exec) => enter(exec, &place, global),
        WanCommand::Show => {
            tell(&remote::show(&place)?, &place, "wan", global);
            Ok(ExitCode::SUCCESS)
        }
        WanCommand::Check(check) => measure(check, global),
        WanCommand::Down => take_down(&place, global),
    }
}

fn scenario_of(path: &Path) -> Result<Scenario> {
    let text = std::fs::read_to_string(path).map_err(|cause| {
        Error::local_io(format!("cannot read {}", path.display()), &cause).fault(Fault::Caller)
    })?;
    Scenario::parse(&text).map_err(|error| error.endpoint(path.display()))
}

fn back_end(args: &UpArgs) -> BackEnd {
    match args.backend {
        BackEndArg::Tun => BackEnd::Tun,
        BackEndArg::Netem => BackEnd::Netem,
    }
}

fn dry_run(args: &UpArgs) -> Result<ExitCode> {
    let scenario = scenario_of(&args.scenario)?;
    say(&gridlane_wan::configuration(&scenario, back_end(args))?);
    Ok(ExitCode::SUCCESS)
}

/// `wan up`: starts the process that keeps the network up, and waits until it says that it is.
fn bring_up(args: &UpArgs, place: &Place, global: &Global) -> Result<ExitCode> {
    // Mistakes are told here, before anything is made.
    let scenario = std::fs::canonicalize(&args.scenario).unwrap_or_else(|_| args.scenario.clone());
    scenario_of(&scenario)?;
    // Also asked when the claim is made.
    if place.answers() {
        return Err(place.is_taken());
    }
    place.create()?;
    let failed = |cause: std::io::Error| Error::local_io("cannot start the process that keeps it up", &cause);
    // It stays, and so would whatever waits for them to be closed.
    gridlane_sys::process::keep_descriptors();
    let log = File::create(place.log()).map_err(failed)?;
    let mut child = Command::new(std::env::current_exe().map_err(failed)?)
        .args(["wan", "up", "--foreground", "--detached", "--json", "--name", place.name()])
        .args(["--backend", if args.backend == BackEndArg::Netem { "netem" } else { "tun" }])
        .arg(scenario)
        // Its arguments say everything.
        .env_remove("GRIDLANE_CONFIG")
        .env_remove("GRIDLANE_QUIET")
        .env_remove("GRIDLANE_VERBOSE")
        .env_remove("GRIDLANE_CA")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).map_err(failed)?;
    }
    let said: Value = serde_json::from_str(&line).unwrap_or(Value::Null);
    if said["type"] == "wan.up" {
        let state: State = serde_json::from_value(said["state"].clone())
            .map_err(|cause| Error::new(ErrorKind::Other, format!("it is up, but says nonsense: {cause}")))?;
        tell(&state, place, "wan.up", global);
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait().map_err(failed)?;
    let log = std::fs::read_to_string(place.log()).unwrap_or_default();
    // It has cleaned up after itself, unless it could not. If another one is up by now, that one stays.
    let _ = place.clean_up();
    Err(match said["error"]["message"].as_str() {
        Some(_) => error_from(&said["error"]),
        None => {
            let message = format!("the process that keeps it up ended: {status} {}", log.trim());
            Error::new(ErrorKind::Other, message).fault(Fault::Local)
        }
    })
}

/// `wan up --foreground`: is the process that keeps the network up.
fn stay(args: &UpArgs, place: &Place, global: &Global) -> Result<ExitCode> {
    let scenario = scenario_of(&args.scenario)?;
    if args.detached {
        // Closing the terminal must not end it.
        let _ = rustix::process::setsid();
    }
    keep_up(scenario, place, back_end(args), |state| {
        if !args.detached {
            tell(state, place, "wan.up", global);
            return Ok(());
        }
        let stdout = std::io::stdout();
        let mut line = Vec::new();
        print_event(&mut line, "wan.up", json!({ "state": state }));
        // Without a waiting process the network is known to none, and it is taken down.
        stdout
            .lock()
            .write_all(&line)
            .and_then(|()| stdout.lock().flush())
            .map_err(|cause| Error::local_io("the process that brought it up is gone", &cause))?;
        let nowhere = File::options().write(true).open("/dev/null");
        nowhere
            .and_then(|nowhere| rustix::stdio::dup2_stdout(&nowhere).map_err(Into::into))
            .map_err(|cause| Error::local_io("cannot leave the terminal", &cause))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn change(args: &SetArgs, place: &Place) -> Result<ExitCode> {
    let change = ChangeText {
        rate: args.rate.clone(),
        delay_ms: args.delay_ms,
        queue: args.queue.clone(),
        loss: args.loss,
        jitter_ms: args.jitter_ms,
        down: (args.down || args.up).then_some(args.down),
    }
    .parse()?;
    if change.is_empty() && !args.restore {
        return Err(Error::new(ErrorKind::Usage, "nothing is to be changed")
            .hint("give --rate, --delay-ms, --queue, --loss, --jitter-ms, --down, --up or --restore"));
    }
    remote::set(place, &args.link, args.from.as_deref(), args.restore, change)?;
    Ok(ExitCode::SUCCESS)
}

fn enter(args: &ExecArgs, place: &Place, global: &Global) -> Result<ExitCode> {
    let (error, code) = match remote::exec(place, &args.site, &args.command, args.timetable)? {
        remote::NotRun::NotFound(error) => (error, COMMAND_NOT_FOUND),
        remote::NotRun::Other(error) => (error, COMMAND_NOT_RUN),
    };
    Output::new(global).failed(FailedEvent::Command, &error, false);
    Ok(ExitCode::from(code))
}

fn take_down(place: &Place, global: &Global) -> Result<ExitCode> {
    let was = remote::down(place)?;
    let (word, killed) = match was {
        Down::Network => ("network", 0),
        Down::Remains { killed } => ("remains", killed),
        Down::Nothing => ("nothing", 0),
    };
    if global.json {
        let fields = json!({ "name": place.name(), "was": word, "killed_processes": killed });
        print_event(&mut std::io::stdout(), "wan.down", fields);
    } else if !global.quiet {
        match was {
            Down::Network => say(&format!("{} is down\n", place.name())),
            Down::Remains { killed } => {
                say(&format!("{} had died; removed what was left of it ({killed} processes)\n", place.name()))
            }
            Down::Nothing => say(&format!("no network {} was up\n", place.name())),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(args: &CheckArgs, global: &Global) -> Result<ExitCode> {
    let settings = check::Settings { is_quick: args.quick, only: args.only.clone().unwrap_or_default() };
    let (mut told, mut failed) = (0, 0);
    check::run(&settings, &mut |row| {
        if told == 0 && !global.json && !global.quiet {
            say(&format!("{}\n", show::check_heading()));
        }
        told += 1;
        failed += usize::from(!row.passed);
        if global.json {
            print_event(&mut std::io::stdout(), "wan.check", json!(row));
        } else if !global.quiet || !row.passed {
            say(&format!("{}\n", show::check_row(row, global.verbose)));
        }
    })?;
    if failed > 0 && !global.json && !global.quiet {
        say(&format!("{failed} out of limits: figures from this machine mean little until you know why\n"));
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn tell(state: &State, place: &Place, event: &str, global: &Global) {
    if global.json {
        let mut fields = json!({ "name": place.name() });
        if let (Value::Object(fields), Value::Object(state)) = (&mut fields, json!(state)) {
            fields.extend(state);
        }
        print_event(&mut std::io::stdout(), event, fields);
    } else if !(global.quiet && event == "wan.up") {
        say(&show::text(state, place.name()));
    }
}

/// Prints text. A closed output is no reason to fail.
fn say(text: &str) {
    output::to_stdout(format_args!("{text}"));
}
