//! A client that does nothing but shake hands: what `make bench-auth` measures servers with.
//!
//! ```text
//! tls_load HOST:PORT CA.pem full|resumed COUNT THREADS [PROXY.pem]     COUNT connections
//! tls_load HOST:PORT CA.pem requests COUNT THREADS [PROXY.pem]         COUNT requests on THREADS connections
//! ```
//!
//! In place of a proxy there may be a directory of proxies: each thread shows all of its share of them in turn.
//!
//! Each connection asks for `/data/small`, since only an answer shows that the server has looked at what the client
//! presented; with `Authorization:` and what `TLS_LOAD_AUTHORIZATION` says, if it is set. Prints, as JSON, how many
//! connections were resumed and how many answers began with 200, and how long all took.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, SignatureScheme, StreamOwned};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// More than any head and body of an answer.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (server, ca, mode, count, threads, proxy) = match words[..] {
        [server, ca, mode, count, threads] => (server, ca, mode, count, threads, None),
        [server, ca, mode, count, threads, proxy] => (server, ca, mode, count, threads, Some(proxy)),
        _ => return Err("usage: tls_load HOST:PORT CA.pem full|resumed COUNT THREADS [PROXY.pem]".into()),
    };
    let (count, threads): (u64, u64) = (count.parse()?, threads.parse()?);
    let resumes = match mode {
        "full" | "requests" => false,
        "resumed" => true,
        _ => return Err("full, resumed or requests?".into()),
    };
    let authorization = std::env::var("TLS_LOAD_AUTHORIZATION").ok();
    let request = |ends: bool| {
        let ends = if ends { "Connection: close\r\n" } else { "" };
        let said =
            authorization.as_ref().map(|value| format!("Authorization: {value}\r\n")).unwrap_or_default();
        format!("GET /data/small HTTP/1.1\r\nHost: localhost\r\n{said}{ends}\r\n")
    };
    let (last, next) = (request(true), request(false));
    let each = count / threads;
    let proxies = match proxy {
        Some(place) if Path::new(place).is_dir() => {
            let entries = std::fs::read_dir(place)?.collect::<Result<Vec<_>, _>>()?;
            entries.iter().map(|entry| Some(entry.path().display().to_string())).collect()
        }
        place => vec![place.map(str::to_owned)],
    };
    let done = Done::default();
    let began = Instant::now();
    thread::scope(|scope| -> Outcome<()> {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                let (proxies, done, last, next) = (&proxies, &done, &last, &next);
                scope.spawn(move || {
                    // One each, so that no thread takes another's session.
                    let of_thread = proxies.iter().skip(if proxies.len() > 1 { number as usize } else { 0 });
                    let configs = of_thread
                        .step_by(threads as usize)
                        .map(|proxy| Ok(Arc::new(config(ca, proxy.as_deref(), resumes)?)))
                        .collect::<Outcome<Vec<_>>>()?;
                    match (mode, configs.first()) {
                        (_, None) => Err("there are fewer proxies than threads".into()),
                        ("requests", Some(config)) => ask(server, config, done, each, next.as_bytes()),
                        _ => configs
                            .iter()
                            .cycle()
                            .take(each as usize)
                            .try_for_each(|config| connect(server, config, done, last.as_bytes())),
                    }
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a thread panicked")?)
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let [connections, resumed, granted] =
        [&done.connections, &done.resumed, &done.granted].map(|n| n.load(Ordering::Relaxed));
    println!(
        "{{\"connections\": {connections}, \"resumed\": {resumed}, \"granted\": {granted}, \"seconds\": {seconds:.6}}}"
    );
    Ok(())
}

#[derive(Default)]
struct Done {
    connections: AtomicU64,
    resumed: AtomicU64,
    granted: AtomicU64,
}

fn config(ca: &str, proxy: Option<&str>, resumes: bool) -> Outcome<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(Path::new(ca))? {
        roots.add(certificate?)?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match proxy {
        Some(file) => {
            let chain = CertificateDer::pem_file_iter(Path::new(file))?.collect::<Result<Vec<_>, _>>()?;
            let key = ring::sign::any_supported_type(&PrivateKeyDer::from_pem_file(Path::new(file))?)?;
            builder.with_client_cert_resolver(Arc::new(Shown(Arc::new(CertifiedKey::new(chain, key)))))
        }
        None => builder.with_no_client_auth(),
    };
    config.resumption = if resumes { Resumption::in_memory_sessions(64) } else { Resumption::disabled() };
    Ok(config)
}

/// Shows a proxy, which rustls would not take as a certificate: it does not know the extension.
#[derive(Debug)]
struct Shown(Arc<CertifiedKey>);

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn dial(server: &str, config: &Arc<ClientConfig>) -> Outcome<StreamOwned<ClientConnection, TcpStream>> {
    let socket = TcpStream::connect(server)?;
    socket.set_nodelay(true)?;
    let session = ClientConnection::new(config.clone(), ServerName::try_from("localhost")?)?;
    Ok(StreamOwned::new(session, socket))
}

/// One connection, many requests one after the other.
fn ask(server: &str, config: &Arc<ClientConfig>, done: &Done, count: u64, request: &[u8]) -> Outcome<()> {
    let mut stream = dial(server, config)?;
    done.connections.fetch_add(1, Ordering::Relaxed);
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    for _ in 0..count {
        stream.write_all(request)?;
        let mut there = 0;
        let mut whole = None;
        while whole.is_none_or(|whole| there < whole) {
            match stream.read(&mut answer[there..])? {
                0 => return Err("the server ended the connection".into()),
                more => there += more,
            }
            whole = whole.or_else(|| length(&answer[..there]));
        }
        if answer.starts_with(b"HTTP/1.1 200") {
            done.granted.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// The length of an answer, once its head is there.
fn length(answer: &[u8]) -> Option<usize> {
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&answer[..head]).ok()?.to_ascii_lowercase();
    let body =
        text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    Some(head + body.unwrap_or(0))
}

fn connect(server: &str, config: &Arc<ClientConfig>, done: &Done, request: &[u8]) -> Outcome<()> {
    let mut stream = dial(server, config)?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    // Servers that close without a word of TLS have answered nevertheless.
    if let Err(cause) = stream.read_to_end(&mut answer)
        && answer.is_empty()
    {
        return Err(cause.into());
    }
    done.connections.fetch_add(1, Ordering::Relaxed);
    if stream.conn.handshake_kind() == Some(HandshakeKind::Resumed) {
        done.resumed.fetch_add(1, Ordering::Relaxed);
    }
    if answer.starts_with(b"HTTP/1.1 200") {
        done.granted.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
