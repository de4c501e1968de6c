//! The servers that get the user's token from the client of XRootD's protocol, and those that do not.
#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use crate::root_site as support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use gridlane_core::{ErrorKind, Hint, Result, Secret, Url};
use gridlane_net::{Dialer, tls::Trust};
use gridlane_peer::root::{Answered, Client};
use gridlane_peer::{Credentials, HostPattern, Token, TokenSource};
use gridlane_xrd::PathArg;
use gridlane_xrd::flags::ServerFlags;
use gridlane_xrd::request::{About, Mkdir, Stat};
use rustls::ServerConfig;
use support::{Faults, Site, certificate};

const TOKEN: &str = "good-token";
const BOTH: &str = "&P=ztn,0:4096:&P=unix";

/// A token that may be renewed.
struct Source(Arc<AtomicBool>);

impl TokenSource for Source {
    fn token(&self) -> Result<Token> {
        let text = if self.0.load(SeqCst) { "good-renewed" } else { TOKEN };
        Ok(Token { secret: Secret::new(text), from: "the token of a test".into() })
    }
}

struct World {
    client: Client,
    config: Arc<ServerConfig>,
    is_renewed: Arc<AtomicBool>,
    _dir: tempfile::TempDir,
}

/// A client with a token; `named` are the sites that its user names.
fn world(forward_to: &str) -> (World, Credentials) {
    let dir = tempfile::tempdir().unwrap();
    let (config, trust): (Arc<ServerConfig>, Trust) = certificate(dir.path());
    let is_renewed = Arc::<AtomicBool>::default();
    let forward_to = match forward_to {
        "" => Vec::new(),
        host => vec![HostPattern::parse(host).unwrap()],
    };
    let source = Source(Arc::clone(&is_renewed));
    let credentials = Credentials::new(Some(Box::new(source)), None, forward_to);
    let client = Client::new(Dialer::new(trust), Duration::from_secs(20)).credentials(credentials.clone());
    (World { client, config, is_renewed, _dir: dir }, credentials)
}

impl World {
    fn faults(&self, methods: &'static str, demanded: ServerFlags) -> Faults {
        Faults { methods, tls: Some((self.config.clone(), demanded)), ..Faults::default() }
    }

    async fn stat(&self, url: &Url) -> Result<Answered> {
        let stat = |about: PathArg| Stat { about: About::Path(about), is_vfs: false, wants: 0 };
        self.client.call(url, stat).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_named_sees_it_over_tls() {
    let (world, credentials) = world("");
    let login = ServerFlags::TLS_LOGIN;
    let site = Site::start(b"x", world.faults(BOTH, login)).await;
    credentials.name(&site.url);
    world.stat(&site.url).await.unwrap();
    assert_eq!((site.count("auth ztn good-token"), site.count("auth unix")), (1, 0), "{:?}", site.log());
    // What must not be lost goes the same way.
    let other = Site::start(b"x", world.faults(BOTH, login)).await;
    credentials.name(&other.url);
    let mkdir = |about| Mkdir { about, parents: false, mode: 0 };
    // That one makes no directories, and was asked as the user.
    let _ = world.client.call(&other.url, mkdir).await;
    assert_eq!(other.count("auth ztn good-token"), 1, "{:?}", other.log());
    let before = site.connections();
    world.stat(&site.url).await.unwrap();
    assert_eq!(site.connections(), before, "a session is used again");
    // A renewed one begins another session.
    world.is_renewed.store(true, SeqCst);
    world.stat(&site.url).await.unwrap();
    assert_eq!(site.count("auth ztn good-renewed"), 1, "{:?}", site.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_sees_it_in_clear() {
    let (world, credentials) = world("");
    let plain = |methods| Faults { methods, ..Faults::default() };
    let site = Site::start(b"x", plain("&P=ztn,0:4096:")).await;
    credentials.name(&site.url);
    let error = world.stat(&site.url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.advice().unwrap().to_string().contains("roots://"), "{error}");
    assert_eq!(site.count("auth"), 0);
    let site = Site::start(b"x", plain(BOTH)).await;
    credentials.name(&site.url);
    world.stat(&site.url).await.unwrap();
    assert_eq!((site.count("auth unix"), site.count("auth ztn")), (1, 0));
    // Nor one in a URL, where TLS may come first.
    let site = Site::start(b"x", world.faults(BOTH, ServerFlags::TLS_LOGIN)).await;
    let url = Url::parse_absolute(&format!("{}&authz=Bearer%20abcdefgh", site.url.as_str())).unwrap();
    world.stat(&url).await.unwrap();
    assert_eq!(site.count("protocol flight"), 0, "{:?}", site.log());
    assert!(site.count("stat") == 1 && site.log().last().unwrap().contains("abcdefgh"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_another_one_leads_to_does_not_see_it() {
    for (forward_to, sees) in [("", 0), ("127.0.0.1", 1)] {
        let (world, credentials) = world(forward_to);
        let second = Site::start(b"x", world.faults(BOTH, ServerFlags::TLS_LOGIN)).await;
        let redirects = vec![second.redirect()];
        let faults = Faults { redirects, ..world.faults(BOTH, ServerFlags::TLS_LOGIN) };
        let first = Site::start(b"x", faults).await;
        credentials.name(&first.url);
        world.stat(&first.url).await.unwrap();
        assert_eq!(first.count("auth ztn good-token"), 1, "{:?}", first.log());
        assert_eq!(second.count("auth ztn"), sees, "{:?}", second.log());
        assert_eq!(second.count("auth unix"), 1 - sees, "{:?}", second.log());
        // A server that takes nothing else states the way that it wants.
        let strict = Site::start(b"x", world.faults("&P=ztn,0:4096:", ServerFlags::TLS_LOGIN)).await;
        let redirects = vec![strict.redirect()];
        let faults = Faults { redirects, ..world.faults(BOTH, ServerFlags::TLS_LOGIN) };
        let first = Site::start(b"x", faults).await;
        credentials.name(&first.url);
        match sees {
            1 => drop(world.stat(&first.url).await.unwrap()),
            _ => {
                let error = world.stat(&first.url).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
                let expected = Hint::ForwardCredentials { host: "127.0.0.1".to_owned() };
                assert_eq!(error.advice(), Some(&expected), "{error}");
            }
        }
        // It is not named, nor led to by a redirect, and gets nothing.
        let unnamed = Site::start(b"x", world.faults(BOTH, ServerFlags::TLS_LOGIN)).await;
        world.stat(&unnamed.url).await.unwrap();
        assert_eq!(unnamed.count("auth ztn"), sees);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_not_taken_is_named() {
    let (world, credentials) = world("");
    let site = Site::start(b"x", world.faults("&P=gsi,v:10600", ServerFlags::TLS_LOGIN)).await;
    credentials.name(&site.url);
    let error = world.stat(&site.url).await.unwrap_err();
    assert!(error.to_string().contains("gsi"), "{error}");
    let site = Site::start(b"x", world.faults("&P=ztn,0:4:", ServerFlags::TLS_LOGIN)).await;
    credentials.name(&site.url);
    let error = world.stat(&site.url).await.unwrap_err();
    assert!(error.to_string().contains("no token of more than 4 bytes"), "{error}");
    assert_eq!(site.count("auth"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_refused_is_not_repeated() {
    struct Bad;
    impl TokenSource for Bad {
        fn token(&self) -> Result<Token> {
            Ok(Token { secret: Secret::new("bad-0123456789"), from: "the token of a test".into() })
        }
    }
    let (world, _) = world("");
    let credentials = Credentials::new(Some(Box::new(Bad)), None, Vec::new());
    let world = World { client: world.client.clone().credentials(credentials.clone()), ..world };
    let site = Site::start(b"x", world.faults("&P=ztn,0:4096:", ServerFlags::TLS_LOGIN)).await;
    credentials.name(&site.url);
    let error = world.stat(&site.url).await.unwrap_err().to_string();
    assert_eq!(site.count("auth ztn bad-0123456789"), 1);
    assert!(error.contains("nobody knows ztn …") && error.contains("the token of a test"), "{error}");
    assert!(!error.contains("0123456789"), "{error}");
}
