//! Requests for macaroons: `POST` of an `application/macaroon-request`, as dCache and XRootD have it, and XRootD's
//! token endpoint, in the form of OAuth, with the document that leads there.
//!
//! A macaroon can be given the rights that its requester has by the rules at the path and below it, for no longer than
//! the requester's credentials are valid. A requester with a macaroon gets that one back with more caveats, so that all
//! of its caveats stay in force, and so that revoking it revokes all that was made of it.

use gridlane_auth::macaroon::request::Request;
use gridlane_auth::macaroon::{self, Caveat, Keys, Minted, Terms};
use gridlane_auth::{Grants, Identity, Refusal};
use gridlane_core::{Secret, limits};
use gridlane_dav::request::{RequestBody, RequestHead};
use gridlane_dav::{Method, ResourcePath, Status, media_type};
use serde_json::json;

use crate::origin::Origin;
use crate::storage_service::StorageService;
use gridlane_front::auth::keys::now_s;
use gridlane_front::auth::macaroons::location;
use gridlane_front::body::{Body, Wire};
use gridlane_front::client::Client;
use gridlane_front::forwarded;
use gridlane_front::reply::{Payload, Reply};

const REQUEST_TYPE: &str = "application/macaroon-request";
const FORM_TYPE: &str = "application/x-www-form-urlencoded";
const TOKEN_PATH: &str = "/.oauth2/token";
/// Paths of the documents that name the token endpoint: RFC 8414, and OpenID Connect Discovery.
const DISCOVERY_PATHS: [&str; 2] =
    ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"];
/// Bytes of a name in a macaroon: a DN of several hundred is known.
const NAME_BYTES_MAX: usize = 1000;

/// Answers requests about macaroons; `None` for every other request, and for all where there are no macaroons.
/// `presented` is the macaroon by which the client has authenticated, if it did so by one.
pub(crate) async fn answer(
    service: &StorageService,
    wire: &mut Wire,
    head: &RequestHead,
    path: &ResourcePath,
    client: &Client,
    presented: Option<&Secret>,
    body: &mut Body,
) -> Option<Reply> {
    let keys = service.front.auth.macaroons.as_deref()?;
    let name = path.to_string();
    match head.method {
        Method::Get | Method::Head if DISCOVERY_PATHS.contains(&name.as_str()) => {
            Some(discovery(&Origin::new(head, true)))
        }
        Method::Post => {
            let form = name == TOKEN_PATH;
            if !form && sent_type(head) != REQUEST_TYPE {
                return None;
            }
            let made = issue(service, keys, wire, head, path, client, presented, body, form).await;
            Some(made.unwrap_or_else(|refusal| refusal))
        }
        _ => None,
    }
}

/// The type of a request's body.
fn sent_type(head: &RequestHead) -> String {
    head.headers.single("content-type").map(media_type::of_field).unwrap_or_default()
}

fn discovery(origin: &Origin<'_>) -> Reply {
    let Some(url) = origin.url() else {
        return Reply::failure(Status::BAD_REQUEST, "the answer has URLs of this server: send a Host");
    };
    json_reply(&json!({
        "issuer": url,
        "token_endpoint": format!("{url}{TOKEN_PATH}"),
        "grant_types_supported": ["client_credentials"],
    }))
}

#[allow(clippy::too_many_arguments)] // everything there is of a request, once
async fn issue(
    service: &StorageService,
    keys: &Keys,
    wire: &mut Wire,
    head: &RequestHead,
    path: &ResourcePath,
    client: &Client,
    presented: Option<&Secret>,
    body: &mut Body,
    is_form: bool,
) -> Result<Reply, Reply> {
    let expected = if is_form { FORM_TYPE } else { REQUEST_TYPE };
    if sent_type(head) != expected {
        let what = format!("a request for a macaroon is {expected}");
        return Err(Reply::failure(Status::UNSUPPORTED_MEDIA_TYPE, what).field("Accept", expected));
    }
    let peer = wire.stream.peer().ip().to_canonical();
    let is_https =
        wire.stream.is_tls() || forwarded::is_https(&head.headers, peer, &service.front.trusted_forwarders);
    if !is_https {
        let what = "a macaroon is a secret: ask for it over https";
        return Err(Reply::failure(Status::BAD_REQUEST, what));
    }
    if client.identity.is_anonymous() {
        let what = "a macaroon needs a requester that is authenticated: ask with a certificate, a token or a password";
        return Err(Reply::failure(Status::UNAUTHORIZED, what));
    }
    if !matches!(head.body, RequestBody::Known(_)) {
        let what = "a request for a macaroon needs Content-Length";
        return Err(Reply::failure(Status::LENGTH_REQUIRED, what));
    }
    let bytes = body.read_whole(&service.front.data, wire, head, limits::MACAROON_REQUEST_BYTES_MAX).await?;
    let request = match is_form {
        true => Request::parse_form(&bytes),
        false => Request::parse_json(&bytes, path),
    };
    let request = request.map_err(|refusal| refused(&refusal))?;
    let rights = service.exports.grants(&request.path, client);
    let mut random = [0; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).map_err(|cause| {
        Reply::failure(Status::INTERNAL_SERVER_ERROR, format!("the system has no random numbers: {cause}"))
    })?;
    let lifetime_s_max = service.front.auth.macaroon_lifetime_s_max.unwrap_or(limits::MACAROON_MAX.as_secs());
    let site = Site { keys, location: location(&service.front), random, lifetime_s_max };
    let issued = site.give(&client.identity, presented, rights, &request, now_s())?;
    client.noted(format!("macaroon {} for {} s under {}", issued.id, issued.lifetime_s, request.path));
    Ok(reply_with(&issued, is_form, path, &Origin::new(head, true)))
}

/// A macaroon, and its life in seconds.
#[derive(Debug)]
struct Issued {
    text: Secret,
    id: String,
    lifetime_s: u64,
}

/// The site's part of a macaroon.
struct Site<'a> {
    keys: &'a Keys,
    location: &'a str,
    random: [u8; 16],
    lifetime_s_max: u64,
}

impl Site<'_> {
    /// Makes a macaroon for a requester with these rights at the path of the request, and below it.
    fn give(
        &self,
        identity: &Identity,
        presented: Option<&Secret>,
        rights: Grants,
        request: &Request,
        now_s: i64,
    ) -> Result<Issued, Reply> {
        let held = match identity {
            Identity::Macaroon(held) => Some(held),
            _ => None,
        };
        // Rights that every client has beside it are not in a macaroon, and cannot be put in.
        let rights = held.map_or(rights, |held| rights.and(held.capability.may));
        let is_there = held.is_none_or(|held| {
            let mut names = request.path.names();
            held.capability.under.names().all(|name| names.next() == Some(name))
        });
        let Some(left) = request.granted(rights).filter(|_| is_there) else {
            let what = match rights.is_empty() {
                true => "this client may do nothing there that a macaroon could be given for",
                false => "this client may do nothing there of what the macaroon is asked for",
            };
            return Err(Reply::failure(Status::FORBIDDEN, what));
        };
        let asked_s = request.asked_s(now_s);
        let lifetime_s = macaroon::lifetime_s(asked_s, self.lifetime_s_max, identity.expires_s(), now_s);
        if lifetime_s == 0 {
            let what = "the macaroon would expire before it is made: ask for a later end";
            return Err(Reply::failure(Status::BAD_REQUEST, what));
        }
        let expires_s = now_s.saturating_add(i64::try_from(lifetime_s).unwrap_or(i64::MAX));
        let made = match (held, presented) {
            (None, _) => self.mint(identity, rights, left, request, expires_s),
            (Some(held), Some(presented)) => {
                let mut caveats = vec![
                    Caveat::Activity(left),
                    Caveat::Path(request.path.clone()),
                    Caveat::Before(expires_s),
                ];
                caveats.extend(request.networks.iter().cloned().map(Caveat::Ip));
                let id = held.id.clone();
                macaroon::attenuate(presented.expose(), &caveats).map(|text| Minted { text, id })
            }
            (Some(_), None) => {
                let what = "the macaroon that this client has authenticated with is missing";
                return Err(Reply::failure(Status::INTERNAL_SERVER_ERROR, what));
            }
        };
        let Minted { text, id } = made.map_err(|refusal| refused(&refusal))?;
        Ok(Issued { text, id, lifetime_s })
    }

    fn mint(
        &self,
        identity: &Identity,
        rights: Grants,
        left: Grants,
        request: &Request,
        expires_s: i64,
    ) -> Result<Minted, Refusal> {
        let name = name_of(identity);
        let terms = Terms {
            location: self.location,
            name: &name,
            rights,
            path: &request.path,
            expires_s,
            asked: request.activities.map(|_| left),
            networks: &request.networks,
        };
        macaroon::mint(self.keys, self.random, &terms)
    }
}

/// The name of the bearer in a macaroon: the user here, for XRootD's servers that share a secret, or else the name in
/// logs; without characters that no caveat can have.
fn name_of(identity: &Identity) -> String {
    let mut name: String = identity
        .user()
        .unwrap_or(identity.name())
        .chars()
        .map(|letter| if letter.is_control() { '?' } else { letter })
        .collect();
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// The answer with a macaroon: dCache's and XRootD's members, or those of OAuth (RFC 6749, 5.1).
fn reply_with(issued: &Issued, is_form: bool, path: &ResourcePath, origin: &Origin<'_>) -> Reply {
    let (text, expires_in) = (issued.text.expose(), issued.lifetime_s);
    if is_form {
        return json_reply(&json!({"access_token": text, "token_type": "bearer", "expires_in": expires_in}));
    }
    let mut answer = json!({"macaroon": text, "expires_in": expires_in});
    if let Some(base) = origin.url() {
        answer["uri"] = json!({
            "target": format!("{base}{path}"),
            "targetWithMacaroon": format!("{base}{path}?authz={text}"),
            "base": format!("{base}/"),
            "baseWithMacaroon": format!("{base}/?authz={text}"),
        });
    }
    json_reply(&answer)
}

fn json_reply(value: &serde_json::Value) -> Reply {
    Reply::new(Status::OK)
        .field("Content-Type", "application/json")
        .field("Cache-Control", "no-store")
        .payload(Payload::Bytes(format!("{value:#}\n").into_bytes()))
}

/// The answer to a request that cannot be granted as it is written.
fn refused(refusal: &Refusal) -> Reply {
    Reply::failure(Status::BAD_REQUEST, refusal.message.clone())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use gridlane_auth::Capability;
    use gridlane_auth::identity::{CertificateIdentity, UserIdentity};

    use super::*;
    use gridlane_auth::identity::MacaroonIdentity;
    use gridlane_auth::macaroon::Check;

    const NOW_S: i64 = 1_800_000_000;

    fn keys() -> Keys {
        Keys::parse(&"QUJD".repeat(16)).unwrap()
    }

    fn path(text: &str) -> ResourcePath {
        ResourcePath::parse(text).unwrap()
    }

    fn issued(
        identity: &Identity,
        presented: Option<&Secret>,
        rights: Grants,
        at: &str,
        body: &str,
    ) -> Result<Issued, u16> {
        let keys = keys();
        let site = Site { keys: &keys, location: "SITE", random: [1; 16], lifetime_s_max: 86_400 };
        let request = Request::parse_json(body.as_bytes(), &path(at)).unwrap();
        let issued = site.give(identity, presented, rights, &request, NOW_S);
        issued.map_err(|reply| reply.status.code())
    }

    fn verified(text: &Secret) -> MacaroonIdentity {
        let (keys, revoked) = (keys(), HashSet::new());
        let address = "192.0.2.1".parse().unwrap();
        let check = Check { keys: &keys, location: "SITE", revoked: &revoked, address, now_s: NOW_S };
        macaroon::verify(text.expose(), &check).unwrap()
    }

    fn ada(expires_s: i64) -> Identity {
        Identity::Certificate(CertificateIdentity {
            dn: "/DC=org/CN=Ada\n".to_owned(),
            user: None,
            fqans: Vec::new(),
            expires_s,
        })
    }

    #[test]
    fn a_macaroon_has_no_more_rights_or_time_than_its_requester() {
        let rights = Grants::READ.with(Grants::LIST);
        let ada = ada(NOW_S + 600);
        let made = issued(&ada, None, rights, "/a", r#"{"validity": "PT2H"}"#).unwrap();
        assert_eq!(made.lifetime_s, 600);
        let identity = verified(&made.text);
        assert_eq!((identity.name.as_str(), identity.expires_s), ("/DC=org/CN=Ada?", NOW_S + 600));
        assert_eq!(identity.capability.under, path("/a"));
        let asked = r#"{"caveats": ["activity:UPLOAD,DOWNLOAD"], "validity": "PT5M"}"#;
        let made = issued(&ada, None, rights, "/a", asked).unwrap();
        assert_eq!(made.lifetime_s, 300);
        assert_eq!(verified(&made.text).capability.may.and(Grants::ADMIN), macaroon::grants_of("DOWNLOAD"));
        for (rights, body, code) in [
            (rights, r#"{"caveats": ["activity:UPLOAD"]}"#, 403),
            (Grants::NONE, "{}", 403),
            (rights, r#"{"caveats": ["before:2020-01-01T00:00:00Z"]}"#, 400),
        ] {
            let status = issued(&ada, None, rights, "/a", body).unwrap_err();
            assert_eq!(status, code, "{body}");
        }
        let user = Identity::User(UserIdentity::by_password("eve"));
        assert_eq!(issued(&user, None, rights, "/", "{}").unwrap().lifetime_s, 3600);
    }

    #[test]
    fn a_macaroon_for_a_macaroon_is_the_same_with_more_caveats() {
        let all = Grants::READ.with(Grants::LIST);
        let first =
            issued(&ada(NOW_S + 6000), None, all, "/a", r#"{"caveats": ["ip:192.0.2.0/24"]}"#).unwrap();
        let held = verified(&first.text);
        let id = held.id.clone();
        let holder = Identity::Macaroon(held);
        // The rules let anyone create there, and that is not the macaroon's.
        let rights = all.with(Grants::CREATE);
        let body = r#"{"caveats": ["activity:DOWNLOAD,UPLOAD"], "validity": "PT5M"}"#;
        let second = issued(&holder, Some(&first.text), rights, "/a/b", body).unwrap();
        let identity = verified(&second.text);
        assert_eq!((&identity.id, identity.expires_s), (&id, NOW_S + 300));
        let may = macaroon::grants_of("DOWNLOAD");
        assert_eq!(identity.capability, Capability { may, under: path("/a/b") });
        let bound = macaroon::Macaroon::parse(second.text.expose()).unwrap();
        assert!(bound.caveats().any(|caveat| caveat == b"ip:192.0.2.0/24"));
        for at in ["/", "/b", "/ab"] {
            let status = issued(&holder, Some(&first.text), rights, at, "{}").unwrap_err();
            assert_eq!(status, 403, "{at}");
        }
    }
}
