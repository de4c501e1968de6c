//! Authentication over root://: tokens and macaroons by `ztn` and in the CGI of a path, certificates of TLS that begins
//! in place; their rights, their refusals, and that a session is one client's.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::root::{Refusal, RootClient};
use crate::support::site::*;
use gridlane_auth::make::{Credential, profile};
use gridlane_auth::policy::Principal;
use gridlane_auth::{Grants, Operation, Policy, macaroon};
use gridlane_core::{Secret, limits};
use gridlane_front::{RootAuth, RootTls};
use gridlane_net::TrustedProxies;
use gridlane_server::Settings;
use gridlane_xrd::answer::ProtocolAnswer;
use gridlane_xrd::flags::{ClientFlags, FattrOptions, OpenOptions, PrepareOptions, ServerFlags};
use gridlane_xrd::registry::FattrKind;
use gridlane_xrd::request::{
    About, Auth, Bind, Chmod, Endsess, Expect, Fattr, FattrAbout, Locate, Mkdir, Mv, Prepare, Protocol, Rm,
    Stat, Statx, Truncate,
};
use gridlane_xrd::{ErrorCode, PathArg, Status, ztn};
use ring::rand::SystemRandom;

fn arg(path: &str) -> PathArg {
    PathArg::parse(path.as_bytes())
}

fn stat(path: &str) -> Stat {
    Stat { about: About::Path(arg(path)), is_vfs: false, wants: 0 }
}

fn proof(token: &str) -> Auth {
    Auth { kind: ztn::NAME.to_vec(), credentials: ztn::encode(&Secret::new(token)) }
}

fn user() -> Auth {
    Auth { kind: b"unix".to_vec(), credentials: b"unix\0tester users\0".to_vec() }
}

fn flags(client: &mut RootClient, flags: ClientFlags) -> ServerFlags {
    let asked = Protocol { version: 0x511, flags, expect: Expect::Login };
    ProtocolAnswer::parse(&client.ask(asked, &[]).unwrap().body).unwrap().flags
}

impl Site {
    /// A connection over TLS that has shown a certificate, or none.
    fn roots(&self, shown: Option<&Credential>) -> RootClient {
        let mut client = RootClient::stranger(self.server.address);
        assert!(flags(&mut client, ClientFlags::CAN_TLS).has(ServerFlags::GOTO_TLS));
        client.start_tls(self.config(shown))
    }

    /// A session by a token.
    fn with_token(&self, token: &str) -> RootClient {
        let mut client = self.roots(None);
        assert_eq!(client.login().status, Status::OK);
        client.ask(proof(token), &[]).unwrap();
        client
    }

    /// A session that is anonymous, unless a certificate says more.
    fn with_name(&self, shown: Option<&Credential>) -> RootClient {
        let mut client = self.roots(shown);
        client.login();
        client.ask(user(), &[]).unwrap();
        client
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, Refusal>, code: ErrorCode, words: &[&str]) {
    let (got, text) = outcome.unwrap_err();
    assert_eq!(got, code, "{text}");
    for word in words {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
}

const NO: ErrorCode = ErrorCode::NOT_AUTHORIZED;

#[test]
fn methods_that_each_client_is_offered() {
    let list = |client: &mut RootClient| String::from_utf8(client.login().body[16..].to_vec()).unwrap();
    let first = format!("&P=ztn,0:{}:", limits::TOKEN_BYTES_MAX);
    let site = site(|_| {});
    assert_eq!(list(&mut site.roots(None)), format!("{first}&P=unix"));
    // A client without TLS is not told of methods that need it.
    let mut plain = RootClient::stranger(site.server.address);
    assert!(!flags(&mut plain, ClientFlags::NONE).has_any(ServerFlags::TLS_LOGIN | ServerFlags::GOTO_TLS));
    assert_eq!(list(&mut plain), "&P=unix");
    refused(plain.ask(proof("eyJ.a.b"), &[]), ErrorCode::AUTH_FAILED, &["ztn", "not supported"]);
    plain.ask(user(), &[]).unwrap();
    plain.ask(stat("/public/f"), &[]).unwrap();
    refused(plain.ask(stat("/known/f"), &[]), NO, &["permission denied"]);

    let tokens = site_with(|settings| settings.root.auth = Some(vec![RootAuth::Ztn]));
    assert_eq!(list(&mut tokens.roots(None)), first);
    let tls = site_with(|settings| {
        (settings.root.auth, settings.root.tls) = (Some(vec![RootAuth::Host]), Some(RootTls::Login));
    });
    assert_eq!(list(&mut tls.roots(None)), "&P=host");
    for site in [&tokens, &tls] {
        let mut plain = RootClient::stranger(site.server.address);
        assert!(flags(&mut plain, ClientFlags::NONE).has(ServerFlags::TLS_LOGIN));
        let login = gridlane_xrd::request::Login::new(1, b"x", gridlane_xrd::flags::Abilities::NONE, vec![]);
        refused(plain.ask(login, &[]), ErrorCode::TLS_REQUIRED, &["roots://"]);
    }
    // A client that is not asked to begin TLS and has to show a token is told so.
    let offered = site_with(|settings| {
        (settings.root.auth, settings.root.tls) = (Some(vec![RootAuth::Ztn]), Some(RootTls::Offered));
    });
    let mut plain = RootClient::stranger(offered.server.address);
    assert!(!flags(&mut plain, ClientFlags::CAN_TLS).has(ServerFlags::GOTO_TLS));
    let login = gridlane_xrd::request::Login::new(1, b"x", gridlane_xrd::flags::Abilities::NONE, vec![]);
    refused(plain.ask(login, &[]), ErrorCode::TLS_REQUIRED, &["token", "roots://"]);
    // An operator may ask for no credentials, or for the name first.
    let nobody = site_with(|settings| settings.root.auth = Some(Vec::new()));
    assert_eq!(list(&mut RootClient::stranger(nobody.server.address)), "");
    let turned = site_with(|settings| {
        settings.root.auth = Some(vec![RootAuth::Unix, RootAuth::Ztn]);
    });
    assert_eq!(list(&mut turned.roots(None)), format!("&P=unix{first}"));
}

/// Where `site` is one already.
fn site_with(adjust: impl FnOnce(&mut Settings)) -> Site {
    site(adjust)
}

#[test]
fn a_token_acts_within_its_scopes() {
    let site = site(|_| {});
    let token = site.iam.token("storage.read:/in storage.create:/new storage.stage:/in", 600);
    std::fs::create_dir(site.server.path("data/new")).unwrap();
    site.server.write("data/new/old", "old");
    let mut client = site.with_token(&token);
    let handle = client.open("/data/in/f", OpenOptions::READ).unwrap();
    assert_eq!(client.read(handle, 0, 100).unwrap(), b"data/in");
    client.ask(Locate { about: arg("/data/in/f"), options: Default::default() }, &[]).unwrap();
    assert!(client.checksum("/data/in/f").unwrap().starts_with("adler32 "));
    client.ask(stat("/public/f"), &[]).unwrap();
    for path in ["/data/f", "/known/f", "/data/inx", "/secret/f"] {
        refused(client.open(path, OpenOptions::READ), NO, &["permission denied"]);
        refused(client.ask(stat(path), &[]), NO, &["permission denied"]);
    }
    // It makes what is new, and changes nothing that is there, whatever the open says.
    let options = |more: &[OpenOptions]| {
        more.iter().fold(OpenOptions::UPDATE, |options, more| OpenOptions(options.0 | more.0))
    };
    for (path, more) in [
        ("/data/new/a", &[OpenOptions::NEW][..]),
        ("/data/new/b", &[OpenOptions::DELETE]),
        ("/data/new/c", &[OpenOptions::DELETE, OpenOptions::POSC]),
        ("/data/new/d/e", &[OpenOptions::NEW, OpenOptions::MKPATH]),
    ] {
        let handle = client.open(path, options(more)).unwrap();
        client.write(handle, 0, b"bytes").unwrap();
        client.close(handle).unwrap();
    }
    for (path, more) in [
        ("/data/new/old", &[][..]),
        ("/data/new/old", &[OpenOptions::DELETE]),
        ("/data/new/old", &[OpenOptions::DELETE, OpenOptions::POSC]),
        ("/data/new/old", &[OpenOptions::FORCE]),
        ("/data/in/g", &[OpenOptions::NEW]),
        ("/data/in/g", &[OpenOptions::DELETE]),
    ] {
        refused(client.open(path, options(more)), NO, &["permission denied"]);
    }
    refused(client.truncate(About::Path(arg("/data/new/old")), 0), NO, &[]);
    refused(client.ask(Chmod { about: arg("/data/new/old"), mode: 0o600 }, &[]), NO, &[]);
    refused(client.ask(Rm { about: arg("/data/new/old") }, &[]), NO, &[]);
    let fattr = Fattr {
        about: FattrAbout::Path(arg("/data/new/old")),
        kind: FattrKind::SET,
        options: FattrOptions::NONE,
        attributes: vec![(b"k".to_vec(), b"v".to_vec())],
    };
    refused(client.ask(fattr, &[]), NO, &[]);
    // Other names for what is there are new names (WLCG profile 2.2.1).
    client.ask(Mv { from: arg("/data/new/a"), to: arg("/data/new/x") }, &[]).unwrap();
    refused(client.ask(Mv { from: arg("/data/new/b"), to: arg("/data/new/old") }, &[]), NO, &[]);
    client.ask(Mkdir { about: arg("/data/new/dir"), parents: false, mode: 0 }, &[]).unwrap();
    refused(client.ask(Mkdir { about: arg("/data/in/dir"), parents: false, mode: 0 }, &[]), NO, &[]);
    // Staging is a right of its own; all files are on disk.
    let prepare = |path: &str| Prepare {
        options: PrepareOptions::STAGE,
        priority: 0,
        port: 0,
        evicts: false,
        lines: vec![path.into()],
    };
    client.ask(prepare("/data/in/f"), &[]).unwrap();
    refused(client.ask(prepare("/data/new/old"), &[]), NO, &[]);
    assert_eq!(site.server.read("data/new/old").unwrap(), b"old");

    drop(client);
    let (_, log) = site.server.stop();
    let of = |method: &str, path: &str| {
        log.iter().rfind(|line| line["method"] == method && line["path"] == path).unwrap().clone()
    };
    let opened = of("root:open", "/data/in/f");
    assert_eq!(
        (&opened["identity"]["kind"], &opened["identity"]["subject"]),
        (&"token".into(), &"b7a4".into())
    );
    assert!(opened["decision"].as_str().unwrap().contains("credential"), "{opened}");
    assert!(of("root:open", "/secret/f")["decision"].as_str().unwrap().contains("token"));
    assert_eq!(of("root:close", "/data/new/a")["identity"]["kind"], "token");
    assert_eq!(of("root:auth", "")["identity"]["kind"], "token");
    let text = format!("{log:?}");
    assert!(!text.contains(token.rsplit('.').next().unwrap()));
}

#[test]
fn a_bad_token_is_refused_in_words_and_another_way_may_follow() {
    let site = site(|_| {});
    let stranger = Iam::new();
    let over = minted(Grants::READ, "/data", -5, &[]);
    for (token, word) in [
        (site.iam.token("storage.read:/", -600), "expired"),
        (site.iam.token_for("https://other.example", "storage.read:/", 600), "another server"),
        (stranger.token("storage.read:/", 600), "signature"),
        (over, "expired"),
        ("eyJ.nonsense.x".to_owned(), "token"),
    ] {
        let mut client = site.roots(None);
        client.login();
        refused(client.ask(proof(&token), &[]), ErrorCode::AUTH_FAILED, &[word]);
        // No client is in yet.
        client.ask(user(), &[]).unwrap();
        client.ask(stat("/public/f"), &[]).unwrap();
        refused(client.ask(stat("/data/in/f"), &[]), NO, &["the token of the login was not taken", word]);
    }
    let mut client = site.roots(None);
    client.login();
    let malformed = Auth { kind: ztn::NAME.to_vec(), credentials: b"ztn\0\0T\0\0\xff\xffabc\0".to_vec() };
    refused(client.ask(malformed, &[]), ErrorCode::AUTH_FAILED, &["malformed"]);
    client.ask(proof(&site.iam.token("storage.read:/", 600)), &[]).unwrap();
    client.ask(stat("/data/in/f"), &[]).unwrap();
    let page = site.ask("GET /.gridlane/metrics", &basic("root", PASSWORD));
    page.has("gridlane_auth_refused_total{method=\"token\",cause=\"expired\"} 1")
        .has("gridlane_auth_refused_total{method=\"token\",cause=\"wrong-audience\"} 1")
        .has("gridlane_auth_refused_total{method=\"token\",cause=\"bad-signature\"} 1")
        .has("gridlane_auth_refused_total{method=\"macaroon\",cause=\"expired\"} 1")
        .has("gridlane_auth_requests_total{method=\"token\"} 1");
}

#[test]
fn guessing_is_slow_for_the_guessing_client_alone() {
    let site = site(|_| {});
    let mut client = site.roots(None);
    client.login();
    let bad = proof("eyJ.a.b");
    for _ in 0..limits::ROOT_PROOFS_FREE_MAX {
        assert!(client.ask(bad.clone(), &[]).is_err());
    }
    let began = Instant::now();
    let stream = client.send(bad, &[]);
    site.with_token(&site.iam.token("storage.read:/", 600)).ask(stat("/data/in/f"), &[]).unwrap();
    refused(client.answer_to(stream), ErrorCode::AUTH_FAILED, &[]);
    assert!(began.elapsed() >= limits::ROOT_PROOF_PAUSE);
}

#[test]
fn a_token_in_a_path_counts_for_its_request() {
    let site = site(|settings| {
        let trusted = vec!["127.0.0.1/32".parse().unwrap()];
        settings.proxies = TrustedProxies { trusted, may_be_silent: true };
    });
    let mut client = site.with_token(&site.iam.token("storage.read:/in", 600));
    let other = site.iam.token("storage.modify:/", 600);
    let with = |path: &str, token: &str| format!("{path}?authz=Bearer%20{token}");
    client.ask(stat("/data/in/f"), &[]).unwrap();
    // Instead of the login's, also where that could do more.
    let handle = client
        .open(&with("/data/f", &other), OpenOptions(OpenOptions::UPDATE.0 | OpenOptions::DELETE.0))
        .unwrap();
    refused(client.open(&with("/data/in/f", &other), OpenOptions::READ), NO, &["permission denied"]);
    // What is opened stays so.
    client.write(handle, 0, b"new").unwrap();
    let fattr = Fattr {
        about: FattrAbout::Handle(handle),
        kind: FattrKind::SET,
        options: FattrOptions::NONE,
        attributes: vec![(b"k".to_vec(), b"v".to_vec())],
    };
    client.ask(fattr, &[]).unwrap();
    client.close(handle).unwrap();
    assert_eq!(site.server.read("data/f").unwrap(), b"new");
    refused(client.ask(stat("/data/f"), &[]), NO, &["permission denied"]);
    client.ask(stat(&with("/data/f", &other)), &[]).unwrap();
    client.ask(Truncate { about: About::Path(arg(&with("/data/f", &other))), size_bytes: 1 }, &[]).unwrap();
    let moves = |from: String, to: String| Mv { from: arg(&from), to: arg(&to) };
    client.ask(moves(with("/data/f", &other), "/data/g".into()), &[]).unwrap();
    client.ask(moves("/data/g".into(), with("/data/f", &other)), &[]).unwrap();
    let third = site.iam.token("storage.modify:/ storage.read:/", 600);
    let both = moves(with("/data/f", &other), with("/data/g", &third));
    refused(client.ask(both, &[]), NO, &["different tokens"]);
    let paths = vec![with("/data/f", &other).into_bytes(), b"/data/in/f".to_vec()];
    client.ask(Statx { paths }, &[]).unwrap();
    // A macaroon as well, with and without the word.
    let made = minted(Grants::READ, "/dteam", 600, &[]);
    client.ask(stat(&format!("/dteam/f?x=y&authz={made}")), &[]).unwrap();
    // A bad one is refused, whatever the rules allow there; its text is not shown.
    for token in [site.iam.token("storage.read:/", -600), "eyJ.secretsecret.b".to_owned()] {
        let (code, text) = client.ask(stat(&with("/public/f", &token)), &[]).unwrap_err();
        assert!(code == NO && !text.contains(&token) && !text.contains("secretsecret"), "{text}");
        refused(client.open(&with("/public/f", &token), OpenOptions::READ), NO, &[]);
    }
    // Nor is one that could be read on the way.
    let mut stream = TcpStream::connect(site.server.address).unwrap();
    write!(stream, "PROXY TCP4 192.0.2.1 192.0.2.9 1 1094\r\n").unwrap();
    let mut plain = RootClient::on(stream);
    plain.login();
    plain.ask(user(), &[]).unwrap();
    let good = site.iam.token("storage.read:/", 600);
    refused(plain.ask(stat(&with("/data/in/f", &good)), &[]), NO, &["clear text", "roots"]);
    refused(plain.ask(stat(&with("/public/f", &good)), &[]), NO, &["clear text"]);
    plain.ask(stat("/public/f"), &[]).unwrap();
    drop((client, plain));
    let (_, log) = site.server.stop();
    let text = format!("{log:?}");
    for token in [&other, &third, &good, &made] {
        assert!(!text.contains(&token[token.len() - 20..]), "{text}");
    }
    let opened = log.iter().find(|line| line["method"] == "root:open" && line["path"] == "/data/f").unwrap();
    assert_eq!(opened["identity"]["scopes"][0], "storage.modify:/");
    let closed = log.iter().find(|line| line["method"] == "root:close").unwrap();
    assert_eq!(closed["identity"]["scopes"][0], "storage.modify:/");
}

#[test]
fn certificates_of_tls() {
    let site = site(|_| {});
    let mut client = site.with_name(Some(&PKI.ada));
    client.ask(stat("/ada/f"), &[]).unwrap();
    let new = OpenOptions(OpenOptions::NEW.0 | OpenOptions::UPDATE.0);
    let handle = client.open("/home/ada/new", new).unwrap();
    client.close(handle).unwrap();
    refused(client.ask(stat("/dteam/f"), &[]), NO, &["permission denied"]);
    let group = ada(hour(), Some(("/dteam/Role=NULL/Capability=NULL", &PKI.voms)));
    site.with_name(Some(&group)).ask(stat("/dteam/f"), &[]).unwrap();
    // A token is meant, and takes its place.
    let mut both = site.roots(Some(&PKI.ada));
    both.login();
    both.ask(proof(&site.iam.token("storage.read:/in", 600)), &[]).unwrap();
    both.ask(stat("/data/in/f"), &[]).unwrap();
    refused(both.ask(stat("/ada/f"), &[]), NO, &["permission denied"]);
    // A bad one counts as none, and is named when something is refused.
    let random = SystemRandom::new();
    let other = profile::authority(&name("/CN=Other CA"), key(), year(), &random).unwrap();
    let stranger = profile::user(&other, &name("/DC=org/CN=Ada"), key(), year(), &random).unwrap();
    let mut nobody = site.with_name(Some(&stranger));
    nobody.ask(stat("/public/f"), &[]).unwrap();
    refused(nobody.ask(stat("/ada/f"), &[]), NO, &["certificate does not count", "authority"]);
    drop((client, both, nobody));
    let (_, log) = site.server.stop();
    let made = log.iter().find(|line| line["method"] == "root:open").unwrap();
    assert_eq!((&made["identity"]["dn"], &made["user"]), (&"/DC=org/CN=Ada".into(), &"tester".into()));
    assert_eq!(made["decision"], "rule of /home/{user}");
}

#[test]
fn a_session_is_one_clients() {
    let site = site(|_| {});
    let token = |scope| site.iam.token(scope, 600);
    let mut one = site.with_token(&token("storage.read:/in"));
    let handle = one.open("/data/in/f", OpenOptions::READ).unwrap();
    // A client that knows its id joins it, unless it shows another identity than the session's.
    let mut bound = site.roots(None);
    assert_eq!(bound.ask(Bind { session: one.session }, &[]).unwrap().body, [1]);
    let read = gridlane_xrd::request::Read { handle, offset: 0, len: 4, path_id: gridlane_xrd::PathId(1) };
    let stream = one.send(read, &[]);
    assert_eq!(bound.answer_to(stream).unwrap().body, b"data");
    let mut of_ada = site.with_name(Some(&PKI.ada));
    let bind = Bind { session: of_ada.session };
    refused(site.roots(Some(&PKI.voms)).ask(bind.clone(), &[]), NO, &["another client"]);
    assert_eq!(site.roots(Some(&ada(hour(), None))).ask(bind, &[]).unwrap().body, [1]);
    // No other client ends it, but the same with another token does.
    let end = Endsess { session: one.session };
    for client in
        [&mut of_ada, &mut site.with_name(None), &mut site.with_token(&minted(Grants::READ, "/", 60, &[]))]
    {
        refused(client.ask(end.clone(), &[]), NO, &["not session owner"]);
    }
    assert_eq!(one.read(handle, 0, 4).unwrap(), b"data");
    site.with_token(&token("storage.read:/")).ask(end, &[]).unwrap();
    assert!(one.is_gone());
    let of_nobody = site.with_name(None);
    of_ada.ask(Endsess { session: of_nobody.session }, &[]).unwrap();
}

#[test]
fn a_login_ends_with_its_token() {
    let site = site(|_| {});
    // Long enough to log in on any machine.
    let skew_s = limits::TOKEN_CLOCK_SKEW.as_secs() as i64;
    let mut lives_s = 1;
    let (mut client, handle) = loop {
        let mut client = site.roots(None);
        client.login();
        let came = client.ask(proof(&site.iam.token("storage.read:/", lives_s - skew_s)), &[]);
        if let Some(handle) = came.ok().and_then(|_| client.open("/data/in/f", OpenOptions::READ).ok()) {
            break (client, handle);
        }
        lives_s *= 2;
    };
    let began = Instant::now();
    let refusal = loop {
        match client.ask(stat("/data/in/f"), &[]) {
            Err(refusal) => break refusal,
            Ok(_) => assert!(began.elapsed() < Duration::from_secs(60)),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    refused::<()>(Err(refusal), NO, &["expired", "log in again"]);
    refused(client.ask(stat("/public/f"), &[]), NO, &["expired"]);
    // What is open goes on.
    assert_eq!(client.read(handle, 0, 4).unwrap(), b"data");
    client.ask(Stat { about: About::Handle(handle), is_vfs: false, wants: 0 }, &[]).unwrap();
    client.close(handle).unwrap();
    // Whatever has a token of its own does too.
    let own = format!("/data/in/f?authz={}", site.iam.token("storage.read:/", 600));
    client.ask(stat(&own), &[]).unwrap();
}

#[test]
fn a_revoked_macaroon_ends_its_session() {
    let site = site(|_| {});
    let made = minted(Grants::READ.with(Grants::of(Operation::List)), "/data", 600, &[]);
    let mut client = site.with_token(&made);
    let handle = client.open("/data/in/f", OpenOptions::READ).unwrap();
    let id = macaroon::Macaroon::parse(&made).unwrap().id();
    let mut next = site_settings(&site);
    next.auth.revoked_macaroons = Arc::new([id].into());
    site.server.control().reload(next).unwrap();
    refused(client.ask(stat("/data/in/f"), &[]), NO, &["was revoked", "log in again"]);
    assert_eq!(client.read(handle, 0, 4).unwrap(), b"data");
    client.ask(Stat { about: About::Handle(handle), is_vfs: false, wants: 0 }, &[]).unwrap();
}

/// Settings that believe less make identities anonymous, in sessions that are there as well.
#[test]
fn an_identity_that_is_no_longer_believed_is_anonymous() {
    let site = site(|_| {});
    let mut of_ada = site.with_name(Some(&PKI.ada));
    of_ada.ask(stat("/ada/f"), &[]).unwrap();
    let mut next = site_settings(&site);
    next.policy = Arc::new(Policy::new(vec![rule(Principal::default(), READS, "/known")]));
    let made = minted(READS, "/known", 600, &[]);
    let mut of_bearer = site.with_token(&made);
    for client in [&mut of_ada, &mut of_bearer] {
        client.ask(stat("/known/f"), &[]).unwrap();
    }
    let mut none = Settings { policy: Arc::clone(&next.policy), ..site_settings(&site) };
    none.auth.macaroons = None;
    site.server.control().reload(next).unwrap();
    refused(of_ada.ask(stat("/known/f"), &[]), NO, &["permission denied"]);
    of_bearer.ask(stat("/known/f"), &[]).unwrap();
    site.server.control().reload(none).unwrap();
    for client in [&mut of_ada, &mut of_bearer] {
        refused(client.ask(stat("/known/f"), &[]), NO, &["permission denied"]);
    }
}

fn site_settings(site: &Site) -> Settings {
    let listen = vec![site.server.address];
    let mut settings = gridlane_server::settings_of(listen, site.server.export().storage);
    settings.root.site_name = Some("SITE".to_owned());
    settings.auth.macaroons = Some(Arc::new(site_keys()));
    settings
}
