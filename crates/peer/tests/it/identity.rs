//! Several users of one server in one process: no connection, no session and no ticket of one of them serves another.
//! The server's answer states the identity of its client.

use crate::root_site;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gridlane_core::{Result, Secret, Url};
use gridlane_net::tls::{self, ClientIdentity, Trust};
use gridlane_net::{Acceptor, Dialer, Stream};
use gridlane_peer::http::Purpose;
use gridlane_peer::{Certificate, Client, Credentials, Token, TokenSource};
use gridlane_xrd::PathArg;
use gridlane_xrd::flags::ServerFlags;
use gridlane_xrd::request::{About, Stat};
use root_site::{Faults, asker};
use tempfile::TempDir;
use tokio::net::TcpListener;

/// A certificate for `name.example`.
pub(crate) fn certificate(name: &str) -> Certificate {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = tls::self_signed(dir.path(), &[format!("{name}.example")]).unwrap();
    let read = |file: &Path| std::fs::read(file).unwrap();
    let shown = ClientIdentity::from_pem(&read(&certificate), &read(&key)).unwrap();
    Certificate { shown, name: format!("the certificate of {name}") }
}

struct Fixed(&'static str);

impl TokenSource for Fixed {
    fn token(&self) -> Result<Token> {
        Ok(Token { secret: Secret::new(self.0), from: "a test".to_owned() })
    }
}

/// The client of a user with these credentials for `url`, on the parts that `client` shares.
fn user(client: &Client, url: &Url, token: Option<&'static str>, name: Option<&str>) -> Client {
    let token = token.map(|token| Box::new(Fixed(token)) as Box<dyn TokenSource>);
    let credentials = Credentials::new(token, name.map(certificate), Vec::new());
    credentials.name(url);
    client.clone().credentials(credentials)
}

/// A request, as the server heard it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) connection: usize,
    pub(crate) is_resumed: bool,
    /// By certificate and token.
    pub(crate) by: String,
}

/// A server of HTTP over TLS that asks for certificates.
pub(crate) struct Site {
    pub(crate) url: Url,
    heard: Arc<Mutex<Vec<Heard>>>,
    trust: Trust,
    _dir: TempDir,
}

impl Site {
    /// `keeps`: connections stay open.
    pub(crate) async fn start(keeps: bool) -> Site {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = tls::self_signed(dir.path(), &["127.0.0.1".to_owned()]).unwrap();
        let acceptor = Acceptor::new(Some(tls::server_config(&cert, &key, true).unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse_absolute(&format!("https://{}/f", listener.local_addr().unwrap())).unwrap();
        let heard: Arc<Mutex<Vec<Heard>>> = Arc::default();
        let hears = heard.clone();
        tokio::spawn(async move {
            let mut connection = 0;
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, heard) = (acceptor.clone(), hears.clone());
                tokio::spawn(async move {
                    let (stream, _) = acceptor.accept(socket).await.ok()?;
                    talk(stream, connection, keeps, &heard).await
                });
                connection += 1;
            }
        });
        let trust = Trust { ca_files: vec![cert], ..Trust::default() };
        Site { url, heard, trust, _dir: dir }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(Dialer::new(self.trust.clone()), Duration::from_secs(30))
    }

    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }
}

/// Answers requests with the identity of their client, until there are no more.
async fn talk(mut stream: Stream, connection: usize, keeps: bool, heard: &Mutex<Vec<Heard>>) -> Option<()> {
    let mut head = Vec::new();
    let mut buf = [0; 1000];
    loop {
        let count = stream.read(&mut buf).await.ok().filter(|count| *count > 0)?;
        head.extend_from_slice(&buf[..count]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8(std::mem::take(&mut head)).ok()?;
        let token = text.lines().find_map(|line| line.strip_prefix("Authorization: Bearer "));
        let by = format!("{} {}", asker(&stream), token.unwrap_or("no token"));
        let close = if keeps { "" } else { "Connection: close\r\n" };
        let answer = format!("HTTP/1.1 200 OK\r\n{close}Content-Length: {}\r\n\r\n{by}", by.len());
        heard.lock().unwrap().push(Heard { connection, is_resumed: stream.is_resumed(), by });
        stream.write_all(answer.as_bytes()).await.ok()?;
        if !keeps {
            let _ = stream.shutdown().await;
            return None;
        }
    }
}

pub(crate) async fn ask(client: &Client, url: &Url) -> String {
    let body = client.http.request("GET", url, &[]).await.unwrap().read_whole(1000).await.unwrap();
    String::from_utf8(body).unwrap()
}

#[tokio::test]
async fn an_idle_connection_of_http_serves_its_user_alone() {
    let site = Site::start(true).await;
    let anonymous = site.client();
    let users = [
        (user(&anonymous, &site.url, None, Some("ada")), "ada no token"),
        (user(&anonymous, &site.url, None, Some("bob")), "bob no token"),
        (user(&anonymous, &site.url, Some("t.of.ada"), None), "nobody t.of.ada"),
        (user(&anonymous, &site.url, Some("t.of.bob"), None), "nobody t.of.bob"),
        // The same certificate and the same token, of another user of the process.
        (user(&anonymous, &site.url, Some("t.of.bob"), None), "nobody t.of.bob"),
        (anonymous.clone(), "nobody no token"),
    ];
    for _ in 0..3 {
        for (client, by) in &users {
            assert_eq!(ask(client, &site.url).await, *by);
        }
    }
    let heard = site.heard();
    for (number, of_user) in (0..users.len()).map(|n| (n, heard.iter().skip(n).step_by(users.len()))) {
        let connections: Vec<usize> = of_user.map(|heard| heard.connection).collect();
        assert_eq!(connections, [number; 3], "each has one, which it uses again: {heard:?}");
    }
    for (client, _) in &users {
        assert!(client.http.has_idle(&site.url, Purpose::Request));
    }
    // A later user finds none.
    let late = user(&anonymous, &site.url, None, Some("ada"));
    assert!(!late.http.has_idle(&site.url, Purpose::Request));
}

#[tokio::test]
async fn a_ticket_is_gone_on_from_by_its_user_alone() {
    let site = Site::start(false).await;
    let anonymous = site.client();
    let ada = user(&anonymous, &site.url, None, Some("ada"));
    let bob = user(&anonymous, &site.url, None, Some("bob"));
    let carol = user(&anonymous, &site.url, Some("t.of.carol"), None);
    let all = [
        (&ada, "ada no token"),
        (&bob, "bob no token"),
        (&carol, "nobody t.of.carol"),
        (&anonymous, "nobody no token"),
    ];
    for is_resumed in [false, true, true] {
        for (client, by) in all {
            assert_eq!(ask(client, &site.url).await, by);
            let heard = site.heard();
            let last = heard.last().unwrap();
            assert_eq!(last.is_resumed, is_resumed, "{by}: {heard:?}");
        }
    }
    // Whatever a user has shown in a handshake, another one goes on from nothing of it.
    let again = user(&anonymous, &site.url, None, Some("ada"));
    assert_eq!(ask(&again, &site.url).await, "ada no token");
    assert!(!site.heard().last().unwrap().is_resumed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_root_serves_its_user_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = tls::self_signed(dir.path(), &["127.0.0.1".into()]).unwrap();
    let config = tls::server_config(&cert, &key, true).unwrap();
    let trust = Trust { ca_files: vec![cert], ..Trust::default() };
    let stat = |about: PathArg| Stat { about: About::Path(about), is_vfs: false, wants: 0 };
    // What the server takes a session for is the certificate of the handshake, or the token of the login.
    for (methods, tokens, names) in [
        ("", [None, None], [Some("ada"), Some("bob")]),
        ("&P=ztn,0:4096:", [Some("good-of-ada"), Some("good-of-bob")], [None, None]),
        ("&P=ztn,0:4096:", [Some("good-of-two"), Some("good-of-two")], [None, None]),
    ] {
        let tls = Some((config.clone(), ServerFlags::TLS_LOGIN));
        let site = root_site::Site::start(b"x", Faults { methods, tls, ..Faults::default() }).await;
        let client = Client::new(Dialer::new(trust.clone()), Duration::from_secs(20));
        let users = [0, 1].map(|number| user(&client, &site.url, tokens[number], names[number]));
        for round in 0..3 {
            for (number, user) in users.iter().enumerate() {
                user.root.call(&site.url, stat).await.unwrap();
                let by = names[number].unwrap_or("nobody");
                let begun = 2 * round + number + 1;
                assert_eq!(site.count("stat"), begun, "{:?}", site.log());
                assert_eq!(site.state.askers()[begun - 1].1, by, "{:?}", site.log());
            }
        }
        let connections: Vec<usize> = site.state.askers().iter().map(|(connection, _)| *connection).collect();
        assert_eq!(connections[..2], connections[2..4]);
        assert_eq!(connections[..2], connections[4..]);
        assert_ne!(connections[0], connections[1], "each has a session, which it uses again");
        for token in tokens.into_iter().flatten() {
            let logins = tokens.iter().filter(|other| **other == Some(token)).count();
            assert_eq!(site.count(&format!("auth ztn {token}")), logins, "{:?}", site.log());
        }
    }
}
