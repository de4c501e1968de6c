//! A VOMS server, right or wrong: it speaks both protocols, over TLS that asks for certificates, and signs what it is told to.
//!
//! VOMS's own client is a test of it (`crate::voms`).

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gridlane_auth::make::{self, AttributeCertificate, Validity, serial};
use gridlane_auth::x509::Certificate;
use gridlane_net::Stream;
use gridlane_net::tls::server_config;
use ring::rand::SystemRandom;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::Scratch;
use super::pki::{HOST_DN, Pki};

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Over HTTP, or in the older way.
    pub(crate) is_http: bool,
    /// Groups and roles, written as attributes: `/gridlane/Role=admin`.
    pub(crate) fqans: Vec<String>,
    /// For how long, in seconds.
    pub(crate) lifetime_s: i64,
    /// The subject of the client's own certificate, proxies left out.
    pub(crate) subject: String,
}

/// An answer.
pub(crate) enum Reply {
    /// An attribute certificate with these groups and roles, of the VO of the first, changed before it is signed.
    Gives(Vec<String>, fn(&mut AttributeCertificate)),
    /// A refusal: the code of the newer protocol, the number of the older one, and words.
    Refuses(&'static str, u32, &'static str),
    /// This, in place of a document.
    Says(&'static str),
    /// The connection is closed, as Debian's server does with HTTP.
    Closes,
}

/// Nothing is changed.
pub(crate) fn as_it_is(_: &mut AttributeCertificate) {}

type Handler = dyn Fn(&Asked) -> Reply + Send + Sync;

struct Shared {
    handler: Box<Handler>,
    issuer: make::Credential,
    port: u16,
    asked: Mutex<Vec<Asked>>,
    connections: AtomicUsize,
}

/// A running server on `localhost`; it stops when the value is dropped.
pub(crate) struct VomsServer {
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl VomsServer {
    /// One that gives what is asked for.
    pub(crate) fn new(pki: &Pki) -> VomsServer {
        VomsServer::with(pki, |asked| Reply::Gives(asked.fqans.clone(), as_it_is))
    }

    /// One that does as `handler` says. Its certificate has an RSA key: VOMS's client takes no other.
    pub(crate) fn with(pki: &Pki, handler: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> VomsServer {
        let host = pki.credential("host-rsa");
        let read = |path: &PathBuf| std::fs::read(path).unwrap();
        let issuer =
            make::Credential::from_pem(&read(&host.cert), &read(&host.key), &SystemRandom::new()).unwrap();
        let config = server_config(&host.cert, &host.key, true).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (asked, connections) = Default::default();
        let shared = Arc::new(Shared { handler: Box::new(handler), issuer, port, asked, connections });
        let (stop, stopped) = oneshot::channel();
        let serving = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let serve = async {
                    loop {
                        let Ok((socket, _)) = listener.accept().await else { continue };
                        serving.connections.fetch_add(1, Relaxed);
                        let (shared, config) = (Arc::clone(&serving), Arc::clone(&config));
                        tokio::spawn(async move {
                            // A client may go when it likes.
                            if let Ok(stream) = Stream::accept_tls(socket, config).await {
                                let _ = converse(stream, &shared).await;
                            }
                        });
                    }
                };
                tokio::select! { () = serve => {}, _ = stopped => {} }
            });
        });
        VomsServer { shared, stop: Some(stop), thread: Some(thread) }
    }

    /// Its line of a `vomses`.
    pub(crate) fn line(&self) -> String {
        self.line_with(HOST_DN)
    }

    /// The same with another name of a certificate.
    pub(crate) fn line_with(&self, dn: &str) -> String {
        self.line_of("gridlane", dn, "gridlane")
    }

    /// The same with another alias and VO as well.
    pub(crate) fn line_of(&self, alias: &str, dn: &str, vo: &str) -> String {
        format!("\"{alias}\" \"localhost\" \"{}\" \"{dn}\" \"{vo}\"\n", self.shared.port)
    }

    /// `localhost:PORT`.
    pub(crate) fn address(&self) -> String {
        format!("localhost:{}", self.shared.port)
    }

    /// All requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// The number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Relaxed)
    }
}

impl Drop for VomsServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A file `vomses` with these lines.
pub(crate) fn vomses(scratch: &Scratch, lines: &[String]) -> PathBuf {
    scratch.file("vomses", lines.concat().as_bytes())
}

async fn converse(mut stream: Stream, shared: &Shared) -> std::io::Result<()> {
    let request = read_request(&mut stream).await?;
    let chain: Vec<Certificate> = stream
        .peer_certificates()
        .iter()
        .filter_map(|der| Certificate::from_der(der.as_ref()).ok())
        .collect();
    let Some(holder) = chain.iter().find(|certificate| !certificate.is_proxy()) else { return Ok(()) };
    let asked = parse(&request, holder.subject().to_string());
    shared.asked.lock().unwrap().push(asked.clone());
    let (status, document) = match (shared.handler)(&asked) {
        Reply::Closes => return Ok(()),
        Reply::Says(text) => (200, text.to_owned()),
        Reply::Refuses(code, number, words) => match asked.is_http {
            true => {
                (403, format!("<voms><error><code>{code}</code><message>{words}</message></error></voms>"))
            }
            // Its filler is an answer to nothing.
            false => (
                200,
                format!(
                    "<vomsans><version>3</version><error><item><number>{number}</number><message>{words}</message></item>\
                     </error><ac>QQ==</ac></vomsans>"
                ),
            ),
        },
        Reply::Gives(fqans, change) => {
            let ac = STANDARD.encode(sign(shared, holder.der(), &asked, &fqans, change));
            // In lines, by which VOMS's client knows the alphabet.
            let lines: Vec<&str> =
                ac.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
            let ac = lines.join("\n") + "\n";
            match asked.is_http {
                true => (200, format!("<voms><ac>{ac}</ac></voms>")),
                false => (200, format!("<vomsans><version>3</version><ac>{ac}</ac></vomsans>")),
            }
        }
    };
    let document = match document.starts_with('<') {
        true => format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>{document}"),
        false => document,
    };
    let head = match asked.is_http {
        true => format!(
            "HTTP/1.1 {status} Answer\r\nContent-Type: text/xml\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            document.len()
        ),
        false => String::new(),
    };
    stream.write_all((head + &document).as_bytes()).await?;
    stream.shutdown().await
}

/// A request to its end. VOMS's client sends a `0` ahead, which GSI once wanted.
async fn read_request(stream: &mut Stream) -> std::io::Result<String> {
    let (mut request, mut piece) = (String::new(), [0; 4096]);
    loop {
        let text = request.trim_start_matches('0');
        let ends: &[&str] = if text.starts_with("GET ") { &["\n\n", "\r\n\r\n"] } else { &["</voms>"] };
        if ends.iter().any(|end| text.contains(end)) {
            return Ok(text.to_owned());
        }
        match stream.read(&mut piece).await? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => request.push_str(&String::from_utf8_lossy(&piece[..count])),
        }
    }
}

fn parse(request: &str, subject: String) -> Asked {
    let between = |begin: &str, end: &str| {
        let rest = &request[request.find(begin).map_or(request.len(), |at| at + begin.len())..];
        rest[..rest.find(end).unwrap_or(0)].to_owned()
    };
    if request.starts_with("GET ") {
        let fqans = between("fqans=", "&").split(',').map(str::to_owned).collect();
        let lifetime_s = between("lifetime=", " ").parse().unwrap_or(0);
        return Asked { is_http: true, fqans, lifetime_s, subject };
    }
    let commands = request.split("<command>").skip(1).filter_map(|rest| rest.split("</command>").next());
    let fqans = commands.map(|command| command[1..].replacen(':', "/Role=", 1)).collect();
    let lifetime_s = between("<lifetime>", "</lifetime>").parse().unwrap_or(0);
    Asked { is_http: false, fqans, lifetime_s, subject }
}

fn sign(
    shared: &Shared,
    holder: &[u8],
    asked: &Asked,
    fqans: &[String],
    change: fn(&mut AttributeCertificate),
) -> Vec<u8> {
    let random = SystemRandom::new();
    let written = |fqan: &String| match fqan.contains("/Role=") {
        true => format!("{fqan}/Capability=NULL"),
        false => format!("{fqan}/Role=NULL/Capability=NULL"),
    };
    let fqans: Vec<String> = fqans.iter().map(written).collect();
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let lasts_s = if asked.lifetime_s > 0 { asked.lifetime_s } else { 43_200 };
    let place = format!("localhost:{}", shared.port);
    let vo = fqans.first().and_then(|fqan| fqan.split('/').nth(1)).unwrap_or("gridlane");
    let mut said = AttributeCertificate::new(
        &shared.issuer,
        holder,
        (vo, &place),
        &fqans,
        Validity::from_now(now_s, lasts_s),
        serial(&random).unwrap(),
    )
    .unwrap();
    change(&mut said);
    said.sign(&shared.issuer, &random).unwrap()
}
