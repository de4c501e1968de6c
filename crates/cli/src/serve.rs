//! `gridlane serve`.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use gridlane_core::units::format_bytes;
use gridlane_core::{Error, ErrorKind, Fault, Result};
use gridlane_net::{has_ipv6, tls};
use gridlane_server::{AccessLog, Server, Settings};
use gridlane_store::posix::PosixStorage;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Global, ServeArgs};
use crate::output::print_event;

/// The port of XRootD, which HTTP shares on the grid.
const DEFAULT_PORT: u16 = 1094;

/// Descriptors that the process needs beside those of connections.
const DESCRIPTORS_KEPT: u64 = 64;

/// Descriptors of one connection at most: its socket, and a file, a directory and a partial of an upload.
const DESCRIPTORS_PER_CONNECTION: u64 = 4;

/// How long a word to people may take: who reads it may have stopped reading.
const SAY_MAX: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: &ServeArgs, global: &Global) -> Result<ExitCode> {
    let listen = addresses(args)?;
    let storage = Arc::new(PosixStorage::open(&args.directory, args.durability)?);
    let (cert, key, is_self_signed) = certificate(args)?;
    let mut settings = Settings::new(listen, storage);
    for export in &mut settings.exports {
        export.allow_write = args.allow_write;
        export.upload_bytes_max = args.max_upload;
    }
    settings.limit_rate_bytes_per_s = args.limit_rate;
    settings.tls = Some(tls::server_config(&cert, &key)?);
    settings.access_log = match args.access_log.as_str() {
        "off" => AccessLog::off(),
        "-" if global.quiet => AccessLog::off(),
        "-" => AccessLog::to_stderr(),
        path => AccessLog::to_file(Path::new(path))?,
    };
    settings.host_names = host_name().into_iter().collect();
    let asked = args.max_connections as usize;
    let descriptors = raise_descriptors();
    settings.connections_max = connections_for(descriptors, asked);
    if settings.connections_max < asked && !global.quiet {
        say(format!(
            "gridlane: at most {} connections instead of {asked}: the process may have {} files open (ulimit -n)",
            settings.connections_max,
            descriptors.unwrap_or_default(),
        ));
    }

    let server = Server::bind(settings).await?;
    let listen_to = |kind| {
        signal(kind)
            .map_err(|cause| Error::new(ErrorKind::Other, format!("cannot listen to signals: {cause}")))
    };
    let (mut interrupt, mut terminate) =
        (listen_to(SignalKind::interrupt())?, listen_to(SignalKind::terminate())?);
    // Who reads the announcement may stop the server at once.
    announce(server.addresses(), args, global, is_self_signed.then_some(cert.as_path()));
    let stop = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
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

/// Writes a line to standard error. Nobody reading it is no reason to fail, nor to wait for ever.
fn say(line: String) {
    let (done, said) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let _done = done;
        let _ = writeln!(std::io::stderr(), "{line}");
    });
    // Nothing is ever sent: it hangs up when the line is written.
    let _ = said.recv_timeout(SAY_MAX);
}

/// Lets the process have as many files open as it may; returns how many, `None` when there is no limit.
fn raise_descriptors() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Some systems allow less than they say; then what was there stays.
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// How many connections that many descriptors are enough for, at most as many as were asked for.
fn connections_for(descriptors: Option<u64>, asked: usize) -> usize {
    let Some(descriptors) = descriptors else { return asked };
    let enough = descriptors.saturating_sub(DESCRIPTORS_KEPT) / DESCRIPTORS_PER_CONNECTION;
    usize::try_from(enough).unwrap_or(usize::MAX).clamp(1, asked.max(1))
}

/// What this machine calls itself.
fn host_name() -> Option<String> {
    let name = rustix::system::uname().nodename().to_str().ok()?.to_owned();
    (!name.is_empty()).then_some(name)
}

fn addresses(args: &ServeArgs) -> Result<Vec<SocketAddr>> {
    let mut listen = args.listen.clone();
    if listen.is_empty() {
        listen.push((Ipv4Addr::LOCALHOST, DEFAULT_PORT).into());
        if has_ipv6() {
            listen.push((Ipv6Addr::LOCALHOST, DEFAULT_PORT).into());
        }
    }
    match listen.iter().find(|address| !is_loopback(address.ip())) {
        Some(address) if !args.insecure_allow_anonymous => {
            let message =
                format!("{address} is reachable from other machines, and nobody is asked who they are");
            Err(Error::new(ErrorKind::Usage, message)
                .fault(Fault::Caller)
                .hint("listen on 127.0.0.1 or [::1], or say --insecure-allow-anonymous if anyone may read"))
        }
        _ => Ok(listen),
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// The certificate and key to use, and whether we made them.
fn certificate(args: &ServeArgs) -> Result<(PathBuf, PathBuf, bool)> {
    if let (Some(cert), Some(key)) = (&args.cert, &args.key) {
        return Ok((cert.clone(), key.clone(), false));
    }
    let data =
        std::env::var_os("XDG_DATA_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from).or_else(|| {
            let home = std::env::var_os("HOME").filter(|dir| !dir.is_empty())?;
            Some(Path::new(&home).join(".local/share"))
        });
    let data = data.ok_or_else(|| {
        Error::new(
            ErrorKind::Usage,
            "there is no place to keep a certificate: neither HOME nor XDG_DATA_HOME is set",
        )
        .hint("give one with --cert FILE --key FILE")
    })?;
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    names.extend(host_name().filter(|host| !names.contains(host)));
    let (cert, key) = tls::self_signed(&data.join("gridlane"), &names)?;
    Ok((cert, key, true))
}

/// Says where it listens, and how to copy from it.
fn announce(addresses: &[SocketAddr], args: &ServeArgs, global: &Global, ca: Option<&Path>) {
    let urls: Vec<String> = addresses
        .iter()
        .map(|address| reachable(*address, host_name()))
        .flat_map(|host| [format!("http://{host}/"), format!("https://{host}/")])
        .collect();
    if global.json {
        let fields = json!({
            "urls": urls, "ca": ca, "directory": args.directory, "writable": args.allow_write,
        });
        print_event(&mut std::io::stdout().lock(), "listening", fields);
        return;
    }
    if global.quiet {
        return;
    }
    let mut text = format!(
        "serving {} {}\n",
        args.directory.display(),
        if args.allow_write { "(writable)" } else { "(read-only)" }
    );
    for url in &urls {
        text.push_str(&format!("  {url}\n"));
    }
    let trust = ca.map_or(String::new(), |ca| format!(" --ca {}", ca.display()));
    if let Some(url) = urls.iter().find(|url| url.starts_with("https")) {
        text.push_str(&format!("copy from it:\n  gridlane cp{trust} {url}FILE .\n"));
    }
    let mut stdout = std::io::stdout().lock();
    // Nobody reading it is no reason not to serve.
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// Where a client can connect to for what the server listens at: `0.0.0.0` is nobody's address.
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
    fn connections_leave_room_for_their_files() {
        for (descriptors, asked, expected) in [
            (None, 4096, 4096),
            (Some(1 << 20), 4096, 4096),
            (Some(1024), 4096, 240),
            (Some(1024), 100, 100),
            (Some(10), 100, 1),
        ] {
            assert_eq!(connections_for(descriptors, asked), expected, "{descriptors:?}");
        }
    }

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
