//! `gridlane serve`.

pub(crate) mod auth;
mod check;
mod gsi;
mod keys;
pub(crate) mod room;
mod rules;
mod settings;
mod tables;

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::FromArgMatches as _;
use gridlane_auth::gridmap::GridMap;
use gridlane_auth::token::Issuer;
use gridlane_auth::{Asker, Grants, Operation, Policy};
use gridlane_config::value::wrong;
use gridlane_config::{Cause, Generations, Source, Watch, notify};
use gridlane_core::units::format_bytes;
use gridlane_core::{Error, ErrorKind, Result};
use gridlane_dav::ResourcePath;
use gridlane_server::{Control, Server, Settings};
use rustix::process::Signal;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use self::room::Room;
use self::settings::{Certificate, Kept, host_name};
use self::tables::Tables;
use crate::args::{Cli, Command, Global, ServeArgs};
use crate::config;
use crate::output::{self, error_value, print_event};
use crate::words;

/// Number of devices that the exports are on, as far as that can be told before anything else is looked at.
pub(crate) fn devices(args: &ServeArgs, global: &Global) -> usize {
    // What is wrong with the configuration is told when it is read again.
    let Ok(tables) = settings::tables(args, global) else { return 1 };
    let device = |plan: &tables::Plan| std::fs::metadata(&plan.directory).ok().map(|found| found.dev());
    let devices: std::collections::HashSet<_> = tables.plans.iter().filter_map(device).collect();
    devices.len()
}

/// Longest wait for a line to be written: its reader may have stopped reading.
const SAY_MAX: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: &ServeArgs, global: &Global) -> Result<ExitCode> {
    if args.check {
        return Ok(check::run(args, global));
    }
    let listen_to = |kind| {
        signal(kind)
            .map_err(|cause| Error::new(ErrorKind::Other, format!("cannot listen to signals: {cause}")))
    };
    // First of all: a log rotation while directories are counted must not end the server.
    let mut hang_up = listen_to(SignalKind::hangup())?;
    // Where files may have a certain size only, a larger upload is refused, and nothing ends by it.
    let _file_size = listen_to(SignalKind::from_raw(Signal::XFSZ.as_raw()))?;
    let asked = args.max_connections as usize;
    let descriptors = room::raise_descriptors();
    let source = FromFiles { descriptors, first: Some((args.clone(), global.clone())) };
    let (mut generations, first) = Generations::begin(source, global.config.clone())?;
    let Next { settings, tables, certificate, .. } = first;
    let room = Room::of(descriptors);
    for line in room.warnings(&settings, asked, descriptors).into_iter().filter(|_| !global.quiet) {
        say(line);
    }

    let server = Server::bind(settings).await?;
    let (mut interrupt, mut terminate) =
        (listen_to(SignalKind::interrupt())?, listen_to(SignalKind::terminate())?);
    // A reader of the announcement may stop the server at once.
    announce(
        &server,
        args,
        global,
        &tables,
        certificate.is_self_signed.then_some(certificate.cert.as_path()),
    );
    notify::ready();
    let control = server.control();
    let speaks = Speaks { json: global.json, quiet: global.quiet };
    let reloading = tokio::spawn(async move {
        loop {
            let told = async {
                if hang_up.recv().await.is_none() {
                    std::future::pending::<()>().await;
                }
            };
            let cause = generations.changed(told).await;
            // Directories and certificates are read: where blocking is allowed.
            tokio::task::block_in_place(|| {
                notify::reloading();
                let outcome = generations.next(|next| {
                    let unchanged = control.reload(next.settings)?;
                    Ok(Reloaded { unchanged, warnings: next.news })
                });
                if cause == Cause::Told {
                    // Not at every new list of what was revoked: issuers have many servers.
                    control.refetch_keys();
                }
                generations.kept().reopen_logs();
                speaks.reloaded(outcome, &control);
                notify::ready();
            });
        }
    });
    let stop = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        notify::stopping();
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            // The second one does not wait for running requests.
            std::process::exit(i32::from(ErrorKind::Interrupted.exit_code()));
        });
    };
    let summary = server.run(stop).await;
    reloading.abort();
    if !global.quiet && !global.json && !summary.log_is_stalled {
        say(format!(
            "gridlane: stopped after {} requests on {} connections: {} sent, {} received{}",
            summary.requests,
            summary.connections,
            format_bytes(summary.bytes_out),
            format_bytes(summary.bytes_in),
            if summary.cut > 0 {
                format!("; {} did not end in time and were cut", summary.cut)
            } else {
                String::new()
            },
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The rules and issuers of a configuration file.
pub(crate) struct ConfiguredRules {
    /// The rules.
    pub(crate) policy: Policy,
    /// The issuers whose tokens count.
    pub(crate) issuers: Vec<Issuer>,
    /// Users by the subjects of their certificates.
    pub(crate) gridmap: GridMap,
    /// Paths where nothing may be changed, whatever the rules say.
    read_only: Vec<ResourcePath>,
}

impl ConfiguredRules {
    /// The server's decision: whether it may be done, and by which rule, or why not.
    pub(crate) fn decide(
        &self,
        asker: Asker<'_>,
        operation: Operation,
        path: &ResourcePath,
    ) -> (bool, String) {
        let holds = |export: &ResourcePath| export.names().eq(path.names().take(export.names().count()));
        if Grants::of(operation).changes() && self.read_only.iter().any(holds) {
            return (false, words::READ_ONLY.to_owned());
        }
        let decision = self.policy.decide(asker, operation, path.names());
        (decision.is_granted(), decision.to_string())
    }
}

/// The rules of a configuration file; `directory` is what is served where the file names nothing.
pub(crate) fn configured_rules(global: &Global, directory: Option<&Path>) -> Result<ConfiguredRules> {
    // The file also has the options of the command.
    let parsed = config::command_with_file()?
        .try_get_matches_from(["gridlane", "serve"])
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .map_err(|error| wrong(error.render().to_string().trim_end().to_owned()))?;
    let allow_write = matches!(&parsed.command, Command::Serve(args) if args.allow_write);
    let tables = settings::tables_of_file(global, directory, allow_write)?;
    let read_only = tables.plans.iter().filter(|plan| !plan.allow_write);
    Ok(ConfiguredRules {
        policy: tables.policy(),
        read_only: read_only.map(|plan| plan.path.clone()).collect(),
        gridmap: auth::gridmap_of(&tables.auth)?.0,
        issuers: tables.auth.issuers,
    })
}

/// The files and directories whose change is a reason to read everything again.
fn watched(global: &Global, tables: &Tables, certificate: &Certificate) -> Vec<PathBuf> {
    let mut all = tables.auth.watched();
    all.extend(global.config.clone());
    all.extend([certificate.cert.clone(), certificate.key.clone()]);
    all.extend(tables.root.gsi_files.iter().flat_map(|(cert, key)| [cert.clone(), key.clone()]));
    all
}

/// The outcome of reading everything again.
struct Reloaded {
    /// Options that did not change because they cannot.
    unchanged: Vec<&'static str>,
    /// Mistakes in single files that were not there before.
    warnings: Vec<String>,
}

/// Reads what the server goes by: options, the configuration file, and what they name.
struct FromFiles {
    /// The number of files that may be open.
    descriptors: Option<u64>,
    /// The options that the command was begun with. Later the file is read again, and the options with it.
    first: Option<(ServeArgs, Global)>,
}

/// The settings, with what they were made of.
struct Next {
    settings: Settings,
    tables: Tables,
    certificate: Certificate,
    /// Mistakes in single files that were not there before.
    news: Vec<String>,
    /// Between two looks at the files.
    interval: Duration,
}

impl Source for FromFiles {
    type Settings = Next;
    type Kept = Kept;

    fn read(&mut self, kept: &mut Kept, watch: &mut Watch) -> Result<Next> {
        let is_first = self.first.is_some();
        let (args, global) = match self.first.take() {
            Some(first) => first,
            None => read_again()?,
        };
        let tables = settings::tables(&args, &global)?;
        // Before anything is made on disk.
        settings::addresses(&args, tables.auth.authenticates())?;
        watch.follow_directories(tables.plans.iter().map(|plan| plan.directory.clone()));
        settings::check_directories(&tables.plans)?;
        let certificate = settings::certificate(&args)?;
        certificate.make(&args)?;
        watch.follow(watched(&global, &tables, &certificate));
        if !is_first {
            certificate.check_validity()?;
        }
        // What is open stays so unless the server really goes on by what is new.
        let (mut settings, news) = settings::settings(&args, &global, &tables, &certificate, kept)?;
        Room::of(self.descriptors).apply(&mut settings, args.client_files, self.descriptors)?;
        let interval = Duration::from_secs_f64(args.watch_interval);
        Ok(Next { settings, tables, certificate, news, interval })
    }

    fn interval(next: &Next) -> Duration {
        next.interval
    }
}

/// The options of the command, with the configuration file as it is now.
fn read_again() -> Result<(ServeArgs, Global)> {
    let parsed = config::command_with_file()?
        .try_get_matches()
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .map_err(|error| wrong(error.render().to_string().trim_end().to_owned()))?;
    match parsed.command {
        Command::Serve(args) => Ok((args, parsed.global)),
        _ => Err(wrong("the command is another one now")),
    }
}

/// The form of the server's messages while it runs.
#[derive(Clone, Copy)]
struct Speaks {
    json: bool,
    quiet: bool,
}

impl Speaks {
    fn reloaded(self, outcome: Result<Reloaded>, control: &Control) {
        match outcome {
            Ok(Reloaded { unchanged: kept, warnings }) => {
                let rest = match kept.is_empty() {
                    true => String::new(),
                    false => format!("; only a restart changes --{}", kept.join(" and --")),
                };
                for warning in &warnings {
                    say(format!("gridlane: {warning}"));
                }
                if self.json {
                    let fields = json!({ "unchanged": kept, "warnings": warnings });
                    print_event(&mut std::io::stdout().lock(), "reloaded", fields);
                } else if !self.quiet {
                    say(format!("gridlane: serving by the new configuration{rest}"));
                }
            }
            Err(error) => {
                let words = words::error(&error).to_string();
                control.note(&format!("the new configuration is not used: {words}"));
                if self.json {
                    let fields = json!({ "error": error_value(&error) });
                    print_event(&mut std::io::stdout().lock(), "reload.failed", fields);
                }
                say(format!("gridlane: the new configuration is NOT used, the old one stays: {words}"));
            }
        }
    }
}

/// Writes a line to standard error. A closed output is no reason to fail, nor to wait for ever.
fn say(line: String) {
    let (done, said) = std::sync::mpsc::channel::<()>();
    // Without a thread it is not said.
    let _ = std::thread::Builder::new().spawn(move || {
        let _done = done;
        output::tell!("{line}");
    });
    // Nothing is ever sent: it hangs up when the line is written.
    let _ = said.recv_timeout(SAY_MAX);
}

/// Says where it listens, and how to copy from it.
fn announce(server: &Server, args: &ServeArgs, global: &Global, tables: &Tables, ca: Option<&Path>) {
    let plans = &tables.plans;
    let schemes: &[&str] = match tables.root.is_enabled {
        true => &["http", "https", "root", "roots"],
        false => &["http", "https"],
    };
    let host = || args.server_name.clone().or_else(host_name);
    let urls: Vec<String> = server
        .addresses()
        .iter()
        .map(|address| reachable(*address, host()))
        .flat_map(|host| schemes.iter().map(move |scheme| format!("{scheme}://{host}/")))
        .collect();
    let admin = server.admin_address().map(|address| format!("http://{address}/"));
    if global.json {
        let exports: Vec<_> = plans
            .iter()
            .map(|plan| {
                json!({
                    "path": plan.path.to_string(), "directory": plan.directory, "writable": plan.allow_write,
                })
            })
            .collect();
        let fields = json!({
            "urls": urls, "ca": ca, "directory": args.directory, "writable": args.allow_write,
            "exports": exports, "admin": admin,
        });
        print_event(&mut std::io::stdout().lock(), "listening", fields);
        return;
    }
    if global.quiet {
        return;
    }
    let mut text = String::new();
    for plan in plans {
        let at = if plan.path.is_root() { String::new() } else { format!(" at {}", plan.path) };
        let how = if plan.allow_write { "writable" } else { "read-only" };
        text.push_str(&format!("serving {}{at} ({how})\n", plan.directory.display()));
    }
    for url in &urls {
        text.push_str(&format!("  {url}\n"));
    }
    if let Some(admin) = &admin {
        text.push_str(&format!("health and metrics:\n  {admin}\n"));
    }
    let trust = ca.map_or(String::new(), |ca| format!(" --ca {}", ca.display()));
    if let (Some(url), Some(plan)) = (urls.iter().find(|url| url.starts_with("https")), plans.first()) {
        let path = plan.path.to_string();
        text.push_str(&format!(
            "copy from it:\n  gridlane cp{trust} {url}{}FILE .\n",
            path.trim_start_matches('/')
        ));
    }
    // A closed output is no reason not to serve.
    output::to_stdout(format_args!("{text}"));
}

/// The address at which clients reach what the server listens at: `0.0.0.0` is none that they could connect to.
fn reachable(address: SocketAddr, host: Option<String>) -> String {
    match host {
        Some(host) if address.ip().is_unspecified() => format!("{host}:{}", address.port()),
        _ => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announced_address_can_be_connected_to() {
        let host = || Some("node7.example".to_owned());
        for (listening, announced) in [
            ("0.0.0.0:1094", "node7.example:1094"),
            ("[::]:1094", "node7.example:1094"),
            ("127.0.0.1:1094", "127.0.0.1:1094"),
            ("[::1]:1094", "[::1]:1094"),
        ] {
            assert_eq!(reachable(listening.parse().unwrap(), host()), announced);
        }
    }
}
