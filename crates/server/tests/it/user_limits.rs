//! What users and virtual organisations may take, wherever they are and however they come.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support::root::RootClient;
use crate::support::site::{PKI, Site, ada, bearer, minted, site as site_with, year};
use gridlane_auth::Grants;
use gridlane_core::Secret;
use gridlane_front::ClientLimits;
use gridlane_xrd::answer::ProtocolAnswer;
use gridlane_xrd::flags::{ClientFlags, ServerFlags};
use gridlane_xrd::request::{About, Auth, Expect, Protocol, Stat, Statx};
use gridlane_xrd::{ErrorCode, PathArg, Request, Status, ztn};

const NONE: ClientLimits = ClientLimits { connections_max: None, requests_per_s: None, bytes_per_s: None };

/// More than anything needs that is refused at last.
const TRIES: usize = 1000;

fn stat(path: &str) -> Stat {
    Stat { about: About::Path(PathArg::parse(path.as_bytes())), is_vfs: false, wants: 0 }
}

/// A login over TLS that has proved nothing.
fn over_tls(site: &Site) -> RootClient {
    let mut client = RootClient::stranger(site.server.address);
    let asked = Protocol { version: 0x511, flags: ClientFlags::CAN_TLS, expect: Expect::Login };
    let flags = ProtocolAnswer::parse(&client.ask(asked, &[]).unwrap().body).unwrap().flags;
    assert!(flags.has(ServerFlags::GOTO_TLS));
    let mut client = client.start_tls(site.config(None));
    assert_eq!(client.login().status, Status::OK);
    client
}

/// A session by a token.
fn with_token(site: &Site, token: &str) -> RootClient {
    let mut client = over_tls(site);
    let proof = Auth { kind: ztn::NAME.to_vec(), credentials: ztn::encode(&Secret::new(token)) };
    client.ask(proof, &[]).unwrap();
    client
}

#[test]
fn an_organisation_shares_its_requests() {
    let site =
        site_with(|settings| settings.auth.vo_limits = ClientLimits { requests_per_s: Some(2), ..NONE });
    let member = ada(year(), Some(("/dteam", &PKI.voms)));
    let mut answers = (0..TRIES).map(|_| site.shows(&member, "GET /dteam/f"));
    let refused = answers.find(|answer| answer.status != 200).unwrap();
    assert_eq!(refused.status, 429);
    refused.has("this virtual organisation sends too many requests").has("Retry-After: 1");
    // The same user, without saying that she is a member; and an anonymous client.
    assert_eq!(site.shows(&PKI.ada, "GET /ada/f").status, 200);
    assert_eq!(site.ask("GET /public/f", "").status, 200);
    let (_, log) = site.server.stop();
    let record = log.iter().find(|record| record["status"] == 429).unwrap();
    assert_eq!(record["identity"]["dn"], "/DC=org/CN=Ada");
}

#[test]
fn bearers_of_tokens_and_macaroons_are_users_as_well() {
    let site =
        site_with(|settings| settings.auth.user_limits = ClientLimits { requests_per_s: Some(2), ..NONE });
    let of_scope = |path: &str| site.iam.token(&format!("storage.read:{path}"), 600);
    let macaroon = minted(Grants::READ, "/data", 600, &[]);
    // Any token of a subject counts for it.
    let tokens = [of_scope("/"), of_scope("/f")];
    let mut tries = (0..TRIES).map(|try_| site.ask("GET /data/f", &bearer(&tokens[try_ % 2])).status);
    assert_eq!(tries.find(|status| *status != 200), Some(429));
    assert_eq!(site.ask("GET /data/f", &bearer(&macaroon)).status, 200);
    let mut tries = (0..TRIES).map(|_| site.ask("GET /data/f", &bearer(&macaroon)).status);
    assert_eq!(tries.find(|status| *status != 200), Some(429));
}

#[test]
fn over_root_as_well() {
    let site =
        site_with(|settings| settings.auth.user_limits = ClientLimits { connections_max: Some(1), ..NONE });
    let token = site.iam.token("storage.read:/", 600);
    let mut first = with_token(&site, &token);
    let mut second = with_token(&site, &token);
    let (code, text) = second.ask(stat("/data/f"), &[]).unwrap_err();
    assert_eq!(code, ErrorCode::OVERLOADED);
    assert!(text.contains("this user has too many connections open"), "{text}");
    assert_eq!(first.ask(stat("/data/f"), &[]).unwrap().status, Status::OK);
    // By http it is the same user.
    site.ask("GET /data/f", &bearer(&token)).has("429 ").has("this user has too many connections open");
    drop((first, second));
    // Until the server has noticed that they are gone.
    assert!((0..TRIES).any(|_| site.ask("GET /data/f", &bearer(&token)).status == 200));

    let site =
        site_with(|settings| settings.auth.user_limits = ClientLimits { requests_per_s: Some(3), ..NONE });
    let token = site.iam.token("storage.read:/", 600);
    let mut client = with_token(&site, &token);
    let mut statuses = (0..TRIES).map(|_| client.ask(stat("/data/f"), &[]).unwrap().status);
    assert_eq!(statuses.find(|status| *status != Status::OK), Some(Status::WAIT));
}

/// An anonymous session, whose requests have tokens of their own.
#[test]
fn tokens_in_paths_count_for_their_users() {
    let site =
        site_with(|settings| settings.auth.user_limits = ClientLimits { requests_per_s: Some(2), ..NONE });
    let path = format!("/data/f?authz={}", site.iam.token("storage.read:/", 600));
    let mut client = over_tls(&site);
    let user = Auth { kind: b"unix".to_vec(), credentials: b"unix\0ann users\0".to_vec() };
    client.ask(user, &[]).unwrap();
    let list = Statx { paths: vec![path.clone().into_bytes()] };
    // One is answered at once, the other waits for a disk.
    for request in [Request::from(stat(&path)), list.into()] {
        let mut answers = (0..TRIES).map(|_| client.ask(request.clone(), &[]).unwrap());
        let told = answers.find(|answer| answer.status != Status::OK).unwrap();
        assert_eq!(told.status, Status::WAIT);
        assert!(String::from_utf8_lossy(&told.body).contains("this user sends too many requests"));
    }
    let mut others = (0..TRIES).map(|_| client.ask(stat("/public/f"), &[]).unwrap().status);
    assert!(others.all(|status| status == Status::OK));
}
