//! `gridlane serve`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use gridlane_core::units::format_bytes;
use gridlane_core::{Error, ErrorKind, Fault, Result};
use gridlane_net::{has_ipv6, tls};
use gridlane_server::{AccessLog, Server, Settings};
use gridlane_store::posix::PosixStorage;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Global, ServeArgs};
use crate::output::print_event;

/// The port of XRootD, which HTTP shares on the grid.
const DEFAULT_PORT: u16 = 1094;

pub(crate) async fn run(args: &ServeArgs, global: &Global) -> Result<ExitCode> {
    let listen = addresses(args)?;
    let export = Arc::new(PosixStorage::open(&args.directory, args.durability)?);
    let (cert, key, is_self_signed) = certificate(args)?;
    let mut settings = Settings::new(listen, export);
    settings.allow_write = args.allow_write;
    settings.limit_rate_bytes_per_s = args.limit_rate;
    settings.tls = Some(tls::server_config(&cert, &key)?);
    settings.access_log = match args.access_log.as_str() {
        "off" => AccessLog::off(),
        "-" if global.quiet => AccessLog::off(),
        "-" => AccessLog::to_stderr(),
        path => AccessLog::to_file(Path::new(path))?,
    };
    settings.upload_bytes_max = args.max_upload;
    settings.connections_max = args.max_connections as usize;

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
    if !global.quiet && !global.json {
        eprintln!(
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
        );
    }
    Ok(ExitCode::SUCCESS)
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
    if let Ok(host) = rustix::system::uname().nodename().to_str()
        && !host.is_empty()
        && !names.iter().any(|name| name == host)
    {
        names.push(host.to_owned());
    }
    let (cert, key) = tls::self_signed(&data.join("gridlane"), &names)?;
    Ok((cert, key, true))
}

/// Says where it listens, and how to copy from it.
fn announce(addresses: &[SocketAddr], args: &ServeArgs, global: &Global, ca: Option<&Path>) {
    let urls: Vec<String> = addresses
        .iter()
        .flat_map(|address| [format!("http://{address}/"), format!("https://{address}/")])
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
    println!(
        "serving {} {}",
        args.directory.display(),
        if args.allow_write { "(writable)" } else { "(read-only)" }
    );
    for url in &urls {
        println!("  {url}");
    }
    let trust = ca.map_or(String::new(), |ca| format!(" --ca {}", ca.display()));
    if let Some(url) = urls.iter().find(|url| url.starts_with("https")) {
        println!("copy from it:\n  gridlane cp{trust} {url}FILE .");
    }
}
