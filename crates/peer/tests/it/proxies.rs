//! Requests and copies through proxies of all kinds: the bytes that arrive, the secrets that each party sees, and the messages
//! when it does not work.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use crate::identity::certificate;
use crate::proxy;
use crate::script;

use std::time::Duration;

use gridlane_core::{Error, ErrorKind, Secret, Url};
use gridlane_net::tls::{self, Trust};
use gridlane_net::{Acceptor, Dialer, Proxies, Stream};
use gridlane_peer::http::Client;
use gridlane_peer::{Credentials, Token, TokenSource};
use gridlane_sys::tcp::ClosedPort;
use proxy::Proxy;
use script::{Scripted, answer};
use tempfile::TempDir;
use tokio::net::TcpListener;

/// `ada:s3cret` as the header has it.
const BASIC: &str = "Basic YWRhOnMzY3JldA==";

fn client(trust: Trust, variable: &'static str, value: String) -> Client {
    let proxies = Proxies::from_environment(|name| (name == variable).then(|| value.clone()));
    Client::new(Dialer::new(trust).proxies(proxies), Duration::from_secs(30))
}

async fn get(client: &Client, url: &Url) -> Result<Vec<u8>, Error> {
    client.request("GET", url, &[]).await?.read_whole(1000).await
}

/// A TLS server that answers every request with "hello".
struct TlsSite {
    url: Url,
    /// Trusts it.
    trust: Trust,
    /// Shows its certificate.
    acceptor: Acceptor,
    /// Its address.
    _dir: TempDir,
}

impl TlsSite {
    async fn start() -> TlsSite {
        let dir = tempfile::tempdir().unwrap();
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let (cert, key) = tls::self_signed(dir.path(), &names).unwrap();
        let acceptor = Acceptor::new(Some(tls::server_config(&cert, &key, false).unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://ada:target@localhost:{}/f", listener.local_addr().unwrap().port());
        let serving = acceptor.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let acceptor = serving.clone();
                tokio::spawn(async move { greet(acceptor.accept(socket).await.ok()?.0).await });
            }
        });
        let trust = Trust { ca_files: vec![cert], ..Trust::default() };
        TlsSite { url: Url::parse_absolute(&url).unwrap(), trust, acceptor, _dir: dir }
    }
}

/// Answers requests until there are no more.
async fn greet(mut stream: Stream) -> Option<()> {
    let mut head = Vec::new();
    let mut buf = [0; 1000];
    while let Some(count) = stream.read(&mut buf).await.ok().filter(|count| *count > 0) {
        head.extend_from_slice(&buf[..count]);
        if head.ends_with(b"\r\n\r\n") {
            let text = String::from_utf8(std::mem::take(&mut head)).ok()?;
            assert!(!text.contains("Proxy-"), "{text}");
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await.ok()?;
        }
    }
    None
}

#[tokio::test]
async fn requests_in_clear_are_forwarded() {
    let server = Scripted::start(|_| answer("200 OK", &[], "hello")).await;
    let proxy = Proxy::start(Some(BASIC), None).await;
    let client = client(Trust::default(), "http_proxy", format!("ada:s3cret@{}", proxy.address));
    for path in ["/a?b=1", "/c"] {
        assert_eq!(get(&client, &server.url(path)).await.unwrap(), b"hello");
    }
    let head = &proxy.seen()[0];
    assert!(head.starts_with(&format!("GET {}/a?b=1 HTTP/1.1\r\n", server.origin)), "{head}");
    assert!(head.contains(&format!("Host: {}\r\n", server.origin.trim_start_matches("http://"))), "{head}");
    assert_eq!(proxy.seen().len(), 1, "the second request goes the same way as the first");
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn a_proxy_that_wants_credentials_says_so() {
    let TlsSite { url, trust, _dir, .. } = TlsSite::start().await;
    let server = Scripted::start(|_| answer("200 OK", &[], "hello")).await;
    let proxy = Proxy::start(Some(BASIC), None).await;
    let wrong = format!("http://ada:wr0ng@{}", proxy.address);
    for url in [server.url("/"), url] {
        let error = get(&client(trust.clone(), "all_proxy", wrong.clone()), &url).await.unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Denied, Some(407)), "{error}");
        let text = error.to_string();
        assert!(text.contains("proxy") && !text.contains("wr0ng") && !text.contains("ada"), "{text}");
    }
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn tls_goes_through_a_tunnel_and_the_proxy_sees_nothing_of_it() {
    let TlsSite { url, trust, acceptor, _dir } = TlsSite::start().await;
    for tls in [None, Some(acceptor)] {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let proxy = Proxy::start(Some(BASIC), tls).await;
        let value = format!("{scheme}://ada:s3cret@{}", proxy.address);
        let client = client(trust.clone(), "HTTPS_PROXY", value);
        for _ in 0..2 {
            assert_eq!(get(&client, &url).await.unwrap(), b"hello", "{scheme}");
        }
        let seen = proxy.seen();
        assert_eq!(seen.len(), 1, "{scheme}: one tunnel serves both");
        assert!(seen[0].starts_with(&format!("CONNECT localhost:{} HTTP/1.1\r\n", url.port())), "{seen:?}");
        assert!(!seen[0].contains("\r\nAuthorization"), "the target's secrets are not the proxy's: {seen:?}");
    }
}

/// Always the same token.
struct Fixed;

impl TokenSource for Fixed {
    fn token(&self) -> Result<Token, Error> {
        Ok(Token { secret: Secret::new("t0ken.of.ada"), from: "a test".to_owned() })
    }
}

#[tokio::test]
async fn no_proxy_sees_what_is_shown_to_the_server_behind_it() {
    let TlsSite { url, trust, acceptor, _dir } = TlsSite::start().await;
    let server = Scripted::start(|_| answer("200 OK", &[], "hello")).await;
    let bare = Url::parse_absolute(&format!("https://localhost:{}/f", url.port())).unwrap();
    for (scheme, tls) in [("http", None), ("https", Some(acceptor))] {
        let proxy = Proxy::start(None, tls).await;
        let credentials = Credentials::new(Some(Box::new(Fixed)), Some(certificate("ada")), Vec::new());
        credentials.name(&bare);
        credentials.name(&server.url("/"));
        let value = format!("{scheme}://{}", proxy.address);
        let client = client(trust.clone(), "all_proxy", value).credentials(credentials);
        for url in [&bare, &server.url("/")] {
            assert_eq!(get(&client, url).await.unwrap(), b"hello", "{scheme}");
        }
        let seen = proxy.seen();
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert!(seen.iter().all(|head| !head.to_lowercase().contains("authorization")), "{seen:?}");
    }
    assert!(
        server.seen().iter().all(|request| request.field("authorization").is_none()),
        "it is not encrypted"
    );
}

#[tokio::test]
async fn socks_with_names_and_with_addresses() {
    let TlsSite { url, trust, _dir, .. } = TlsSite::start().await;
    let server = Scripted::start(|_| answer("200 OK", &[], "hello")).await;
    let proxy = Proxy::start(Some("ada:s3cret"), None).await;
    let with =
        |scheme: &str| client(trust.clone(), "ALL_PROXY", format!("{scheme}://ada:s3cret@{}", proxy.address));
    assert_eq!(get(&with("socks5h"), &url).await.unwrap(), b"hello");
    assert_eq!(get(&with("socks5"), &server.url("/")).await.unwrap(), b"hello");
    let addresses = [format!("SOCKS localhost:{}", url.port()), server.origin.replace("http://", "SOCKS ")];
    assert_eq!(proxy.seen(), addresses);
    let nobody = client(trust, "all_proxy", format!("socks5h://{}", proxy.address));
    assert_eq!(get(&nobody, &url).await.unwrap_err().kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn what_a_proxy_cannot_reach_is_not_the_proxys_fault() {
    let TlsSite { trust, _dir, .. } = TlsSite::start().await;
    let closed_port = ClosedPort::new().unwrap();
    let closed = closed_port.address();
    let url = Url::parse_absolute(&format!("https://{closed}/")).unwrap();
    let proxy = Proxy::start(None, None).await;
    for scheme in ["http", "socks5h"] {
        let client = client(trust.clone(), "https_proxy", format!("{scheme}://{}", proxy.address));
        let error = get(&client, &url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Network, "{error}");
        assert!(error.is_retryable());
    }
    let client = client(trust, "https_proxy", format!("http://{closed}"));
    let error = get(&client, &url).await.unwrap_err();
    assert!(error.message().contains("the proxy cannot be used"), "{error}");
    assert_eq!(error.endpoint_text(), Some(&*format!("http://{closed}")));
}
