//! A server of the service, which believes an issuer of tokens, and its clients.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gridlane_auth::policy::{Class, Principal, Template};
use gridlane_auth::token::Issuer;
use gridlane_auth::{Grants, Policy, Rule};
use gridlane_dav::{ResourcePath, ResponseHead};
use gridlane_front::{AccessLog, Control, KeySource, Server, Settings, Summary};
use gridlane_net::tls;
use gridlane_xrd::QueryKind;
use gridlane_xrd::answer::ProtocolAnswer;
use gridlane_xrd::flags::{ClientFlags, ServerFlags};
use gridlane_xrd::request::{Expect, Protocol, Query};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::book::{Book, Entries};
use crate::iam::{ISSUER, Iam};
use crate::root::{Refusal, RootAnswer, RootClient};
use crate::text::Text;

/// Answers at the same time: more than there ever are.
const PERMITS: u32 = 1000;

/// Longer than any wait of a passing test.
const PATIENCE: Duration = Duration::from_secs(90);

const AUDIENCE: &str = "https://book.example";

/// A server with a runtime of its own.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    iam: Arc<Iam>,
    entries: Entries,
    control: Control<Book>,
    log: Text,
    tls: Arc<rustls::ServerConfig>,
    config: Arc<ClientConfig>,
    _directory: tempfile::TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Summary>>,
}

impl Site {
    pub(crate) fn start() -> Site {
        Site::with(|_| {})
    }

    /// Looks up `/public/…` for every client and `/members/…` for those with an identity.
    pub(crate) fn with(adjust: impl FnOnce(&mut Settings<Entries>)) -> Site {
        let directory = tempfile::tempdir().unwrap();
        let (cert, key) = tls::self_signed(directory.path(), &["localhost".to_owned()]).unwrap();
        let tls = tls::server_config(&cert, &key, false).unwrap();
        let mut roots = RootCertStore::empty();
        for der in gridlane_auth::make::pem::certificates(&std::fs::read(&cert).unwrap()).unwrap() {
            roots.add(CertificateDer::from(der)).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = Arc::new(config.unwrap().with_root_certificates(roots).with_no_client_auth());
        let (iam, log) = (Iam::new(), Text::default());
        let entries = Entries {
            words: words("first"),
            open: Arc::new(Semaphore::new(PERMITS as usize)),
            ends: Arc::new(Semaphore::new(0)),
            left: Arc::default(),
            asked: Arc::default(),
        };
        let mut settings = settings(&iam, &log, &tls, entries.clone());
        adjust(&mut settings);
        let (stop, stopped) = oneshot::channel();
        let (started, places) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            runtime.unwrap().block_on(async move {
                let server = Server::<Book>::bind(settings).await.unwrap();
                let places = (server.addresses()[0], server.admin_address().unwrap(), server.control());
                assert!(started.send(places).is_ok());
                server.run(async { drop(stopped.await) }).await
            })
        });
        let (address, admin, control) = places.recv().unwrap();
        let (stop, thread) = (Some(stop), Some(thread));
        Site { address, admin, iam, entries, control, log, tls, config, _directory: directory, stop, thread }
    }

    /// From the next request on, this is what is known of every name.
    pub(crate) fn reload(&self, word: &'static str) {
        let entries = Entries { words: words(word), ..self.entries.clone() };
        let next = settings(&self.iam, &self.log, &self.tls, entries);
        assert_eq!(self.control.reload(next).unwrap(), Vec::<&str>::new());
    }

    /// So many answers come to their ends.
    pub(crate) fn end(&self, count: usize) {
        self.entries.ends.add_permits(count);
    }

    /// Nothing is answered before this is dropped.
    pub(crate) fn close(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.entries.open).try_acquire_many_owned(PERMITS).unwrap()
    }

    /// A client has left an answer that waited.
    pub(crate) fn wait_for_one_that_left(&self) {
        let began = Instant::now();
        while self.entries.left.load(Ordering::SeqCst) == 0 {
            assert!(began.elapsed() < PATIENCE, "nobody is told of it");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// So many names were asked for since the start, answered or not.
    pub(crate) fn wait_for_asked(&self, count: usize) {
        let began = Instant::now();
        while self.entries.asked.load(Ordering::SeqCst) < count {
            assert!(began.elapsed() < PATIENCE, "fewer than {count}");
            std::thread::yield_now();
        }
    }

    /// A valid token.
    pub(crate) fn token(&self) -> String {
        self.iam.token_for(AUDIENCE, "", 600)
    }

    pub(crate) fn http(&self) -> Http<TcpStream> {
        http_at(self.address)
    }

    pub(crate) fn https(&self) -> Http<StreamOwned<ClientConnection, TcpStream>> {
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::clone(&self.config), name).unwrap();
        Http(StreamOwned::new(connection, connect(self.address)))
    }

    /// Over TLS, before the login.
    pub(crate) fn roots(&self) -> RootClient {
        let mut client = RootClient::stranger(self.address);
        let asked = Protocol { version: 0x511, flags: ClientFlags::CAN_TLS, expect: Expect::Login };
        let answer = ProtocolAnswer::parse(&client.ask(asked, &[]).unwrap().body).unwrap();
        assert!(answer.flags.has(ServerFlags::GOTO_TLS));
        client.start_tls(Arc::clone(&self.config))
    }

    pub(crate) fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Stops the server; returns what it did and what it logged.
    pub(crate) fn stop(mut self) -> (Summary, Vec<serde_json::Value>) {
        self.begin_stop();
        let summary = self.thread.take().unwrap().join().unwrap();
        assert_eq!(summary.panicked, 0);
        (summary, self.log.records())
    }
}

/// The entries of the names.
fn words(word: &'static str) -> HashMap<&'static str, &'static str> {
    HashMap::from([("/public/name", word), ("/public/name/", word), ("/members/name", word)])
}

fn settings(
    iam: &Arc<Iam>,
    log: &Text,
    tls: &Arc<rustls::ServerConfig>,
    entries: Entries,
) -> Settings<Entries> {
    let any = "127.0.0.1:0".parse().unwrap();
    let mut settings = Settings::new(vec![any], entries);
    settings.admin = Some(any);
    settings.tls = Some(Arc::clone(tls));
    settings.access_log = AccessLog::to_writer(log.clone());
    let rule = |name: &str, who, under: &str| {
        let (name, under) = (name.to_owned(), Template::parse(under).unwrap());
        Rule { name, who, may: Grants::READ, under }
    };
    let known = Principal { class: Class::Authenticated, ..Principal::default() };
    settings.policy = Arc::new(Policy::new(vec![
        rule("all", Principal::anyone(), "/public"),
        rule("known", known, "/members"),
    ]));
    let auth = &mut settings.auth;
    auth.issuers = vec![Issuer {
        url: ISSUER.to_owned(),
        base: ResourcePath::root(),
        may: Grants::READ,
        vo: None,
        audiences: Vec::new(),
        clock_skew_s: 60,
    }];
    auth.audiences = vec![AUDIENCE.to_owned()];
    let source: Arc<dyn KeySource> = Arc::<Iam>::clone(iam);
    auth.key_source = Some(source);
    settings
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A connection in clear text.
pub(crate) fn http_at(address: SocketAddr) -> Http<TcpStream> {
    Http(connect(address))
}

/// A connection over HTTP.
pub(crate) struct Http<T>(T);

impl<T: Read + Write> Http<T> {
    pub(crate) fn send(&mut self, path: &str, fields: &str) {
        write!(self.0, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").unwrap();
        self.0.flush().unwrap();
    }

    /// The head and the text of the next answer.
    pub(crate) fn answer(&mut self) -> (ResponseHead, String) {
        let mut bytes = Vec::new();
        loop {
            if let Some((head, used)) = ResponseHead::parse(&bytes).unwrap() {
                let len = head.headers.single("content-length").unwrap().parse::<usize>().unwrap();
                let mut body = bytes.split_off(used);
                let have = body.len();
                body.resize(len, 0);
                self.0.read_exact(&mut body[have..]).unwrap();
                return (head, String::from_utf8(body).unwrap());
            }
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            bytes.push(byte[0]);
        }
    }

    /// The status and the text of what is at a path.
    pub(crate) fn get(&mut self, path: &str, fields: &str) -> (u16, String) {
        self.send(path, fields);
        let (head, text) = self.answer();
        (head.status.code(), text)
    }

    /// Reads up to the end of this text.
    pub(crate) fn read_to(&mut self, end: &str) {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end.as_bytes()) {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            bytes.push(byte[0]);
        }
    }

    /// True if the server has ended the connection.
    pub(crate) fn is_ended(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0))
    }
}

/// A question for what is known of a name.
pub(crate) fn query(path: &str) -> Query {
    Query::new(QueryKind::XATTR, path)
}

/// The word of an answer.
pub(crate) fn word(answer: Result<RootAnswer, Refusal>) -> String {
    String::from_utf8(answer.unwrap().body).unwrap().trim_end_matches('\0').to_owned()
}
