//! A client that does nothing but shake hands: what `make bench-auth` measures servers with.
//!
//! ```text
//! tls_load HOST:PORT CA.pem full|resumed COUNT THREADS [PROXY.pem]
//! ```
//!
//! Each connection asks for `/small` once, since only an answer shows that the server has looked at what the client
//! presented. Prints, as JSON, how many connections were resumed and how many answers began with 200, and how long all took.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const REQUEST: &[u8] = b"GET /small HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

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
        "full" => false,
        "resumed" => true,
        _ => return Err("full or resumed?".into()),
    };
    let done = Done::default();
    let began = Instant::now();
    thread::scope(|scope| -> Outcome<()> {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    // One each, so that no thread takes another's session.
                    let config = Arc::new(config(ca, proxy, resumes)?);
                    (0..count / threads).try_for_each(|_| connect(server, &config, &done))
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a thread panicked")?)
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let [connections, resumed, granted] = [&done.connections, &done.resumed, &done.granted].map(|n| n.load(Ordering::Relaxed));
    println!("{{\"connections\": {connections}, \"resumed\": {resumed}, \"granted\": {granted}, \"seconds\": {seconds:.6}}}");
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
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(Path::new(file))?)?
        }
        None => builder.with_no_client_auth(),
    };
    config.resumption = if resumes { Resumption::in_memory_sessions(64) } else { Resumption::disabled() };
    Ok(config)
}

fn connect(server: &str, config: &Arc<ClientConfig>, done: &Done) -> Outcome<()> {
    let socket = TcpStream::connect(server)?;
    socket.set_nodelay(true)?;
    let session = ClientConnection::new(config.clone(), ServerName::try_from("localhost")?)?;
    let mut stream = StreamOwned::new(session, socket);
    stream.write_all(REQUEST)?;
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
