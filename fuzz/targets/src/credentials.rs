//! Credentials, and requests for them.

use std::collections::HashSet;
use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gridlane_auth::macaroon::request::Request;
use gridlane_auth::macaroon::{
    Caveat, Check, Keys, Macaroon, Terms, attenuate, grants_of, mint, verify, words_of,
};
use gridlane_auth::{Capability, Grants};
use gridlane_core::limits;
use gridlane_dav::ResourcePath;

use crate::names::check_path;
use crate::random::Random;

const NOW_S: i64 = 1_800_000_000;

fn keys() -> Keys {
    Keys::parse(&"QUJD".repeat(16)).unwrap_or_else(|cause| panic!("{cause}"))
}

/// A macaroon as bytes or as text, and caveats in lines, which are added to one that is good.
pub(crate) fn macaroon(data: &[u8]) {
    let keys = keys();
    let revoked = HashSet::new();
    let address = IpAddr::from([192, 0, 2, 1]);
    let check = Check { keys: &keys, location: "SITE", revoked: &revoked, address, now_s: NOW_S };
    for text in [String::from_utf8_lossy(data).into_owned(), URL_SAFE_NO_PAD.encode(data)] {
        // Without the secret none can be made.
        assert!(verify(&text, &check).is_err(), "{text:?} is good");
        let Ok(macaroon) = Macaroon::parse(&text) else { continue };
        assert!(text.len() <= limits::MACAROON_BYTES_MAX);
        assert!(macaroon.caveats().len() <= limits::MACAROON_CAVEATS_MAX);
        assert_eq!(Macaroon::parse(macaroon.to_text().expose()).as_ref(), Ok(&macaroon));
    }

    let all = Capability { may: Grants::READ.with(Grants::WRITE), under: ResourcePath::root() };
    let terms = Terms {
        location: "SITE",
        name: "ada",
        rights: all.may,
        path: &all.under,
        expires_s: NOW_S + 600,
        asked: None,
        networks: &[],
    };
    let made = mint(&keys, [7; 16], &terms).unwrap_or_else(|refusal| panic!("{refusal}")).text;
    let first = verify(made.expose(), &check).unwrap_or_else(|refusal| panic!("{refusal}"));
    let mut held = made;
    for line in data.split(|byte| *byte == b'\n') {
        let understood = Caveat::parse(line);
        if let Ok(caveat) = &understood {
            assert_eq!(Caveat::parse(&caveat.to_bytes()).as_ref(), Ok(caveat));
            if let Caveat::Path(path) = caveat {
                check_path(path);
            }
        }
        let with_it = Macaroon::parse(held.expose()).and_then(|macaroon| macaroon.with_caveat(line));
        let Ok(with_it) = with_it else { return };
        held = with_it.to_text();
        let Ok(identity) = verify(held.expose(), &check) else { continue };
        assert!(understood.is_ok(), "{line:?} is not understood, and does no harm");
        assert_eq!((&identity.name, &identity.id), (&first.name, &first.id));
        assert!(identity.expires_s > NOW_S && identity.expires_s <= first.expires_s);
        let may = identity.capability.may;
        assert_eq!(may.and(first.capability.may).and(may), may.and(first.capability.may));
        assert_eq!(grants_of(&words_of(may)), may);
    }
    // What has a caveat that is not understood is not saved by others behind it.
    if data.split(|byte| *byte == b'\n').any(|line| Caveat::parse(line).is_err()) {
        assert!(verify(held.expose(), &check).is_err());
        assert!(attenuate(held.expose(), &[]).is_ok());
    }
}

/// Requests of clients for one: a path in the first line, JSON or a form behind it.
pub(crate) fn macaroon_request(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == b'\n');
    let path = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let body = parts.next().unwrap_or_default();
    let path = ResourcePath::parse(&path).unwrap_or_else(|_| ResourcePath::root());
    let mut random = Random::of(data);
    let rights = [Grants::NONE, Grants::READ, Grants::READ.with(Grants::CREATE), Grants::ADMIN];
    let rights = *random.pick(&rights);
    for request in [Request::parse_json(body, &path), Request::parse_form(body)] {
        let Ok(request) = request else { continue };
        assert!(body.len() <= limits::MACAROON_REQUEST_BYTES_MAX);
        check_path(&request.path);
        let _ = request.asked_s(NOW_S);
        let Some(left) = request.granted(rights) else { continue };
        assert!(!left.is_empty() && !rights.is_empty());
        let terms = Terms {
            location: "SITE",
            name: "ada",
            rights,
            path: &request.path,
            expires_s: NOW_S + 600,
            asked: request.activities.map(|_| left),
            networks: &[],
        };
        let keys = keys();
        let Ok(made) = mint(&keys, [7; 16], &terms) else { continue };
        let revoked = HashSet::new();
        let address = IpAddr::from([192, 0, 2, 1]);
        let check = Check { keys: &keys, location: "SITE", revoked: &revoked, address, now_s: NOW_S };
        let identity = verify(made.text.expose(), &check).unwrap_or_else(|refusal| panic!("{refusal}"));
        assert!(identity.capability.under.names().eq(request.path.names()));
        assert_eq!(identity.capability.may.and(left), identity.capability.may, "it may do more");
    }
}
