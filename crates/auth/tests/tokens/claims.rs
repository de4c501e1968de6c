//! The claims that a token needs, its audience and its times.

use super::*;

fn cause(claims: Value, changes: Value) -> Option<Cause> {
    of_claims(&with(claims, &changes)).err().map(|refusal| refusal.cause)
}

#[test]
fn what_profiles_demand() {
    use Cause::{Malformed, Unacceptable};
    for (changes, expected) in [
        (json!({}), None),
        (json!({"sub": null}), Some(Malformed)),
        (json!({"exp": null}), Some(Malformed)),
        (json!({"iat": null}), Some(Malformed)),
        (json!({"nbf": null}), None),
        (json!({"jti": null}), Some(Malformed)),
        (json!({"aud": null}), Some(Malformed)),
        (json!({"scope": null}), None),
        (json!({"wlcg.ver": null}), Some(Unacceptable)),
        (json!({"wlcg.ver": "1.3"}), None),
        (json!({"wlcg.ver": "1.27"}), None),
        (json!({"wlcg.ver": "2.0"}), Some(Unacceptable)),
        (json!({"wlcg.ver": "11.0"}), Some(Unacceptable)),
        (json!({"wlcg.ver": "1"}), Some(Malformed)),
        (json!({"wlcg.ver": "1."}), Some(Malformed)),
        (json!({"wlcg.ver": "1.x"}), Some(Malformed)),
        (json!({"wlcg.ver": "1.0.0"}), Some(Malformed)),
        (json!({"wlcg.ver": 1.0}), Some(Malformed)),
        (json!({"scope": ["storage.read:/"]}), Some(Malformed)),
        (json!({"scope": 1}), Some(Malformed)),
        (json!({"sub": 7}), Some(Malformed)),
        (json!({"sub": "x".repeat(255)}), None),
        (json!({"sub": "x".repeat(256)}), Some(Malformed)),
        (json!({"sub": "é"}), Some(Malformed)),
        (json!({"sub": "a\nb"}), Some(Malformed)),
        (json!({"jti": "a\u{7f}"}), Some(Malformed)),
        (json!({"exp": "1800003600"}), Some(Malformed)),
        (json!({"exp": 1e300}), Some(Malformed)),
        (json!({"exp": 18_446_744_073_709_551_615_u64}), Some(Malformed)),
        (json!({"exp": NOW_S as f64 + 10.5}), None),
        (json!({"nbf": "now"}), Some(Malformed)),
        (json!({"unknown": {"a": [1]}}), None),
    ] {
        assert_eq!(cause(wlcg(), changes.clone()), expected, "{changes}");
    }
    for (changes, expected) in [
        (json!({}), None),
        (json!({"sub": null, "jti": null, "nbf": null}), None),
        (json!({"exp": null}), Some(Malformed)),
        (json!({"iat": null}), Some(Malformed)),
        (json!({"aud": null}), Some(Malformed)),
        (json!({"ver": "scitokens:2.0"}), None),
        (json!({"ver": "scitoken:1.0"}), None),
        (json!({"ver": "scitoken:1.0", "aud": null}), None),
        (json!({"ver": "scitoken:3.0"}), Some(Unacceptable)),
        (json!({"ver": "2.0"}), Some(Unacceptable)),
        (json!({"ver": null}), Some(Unacceptable)),
        (json!({"ver": 2}), Some(Malformed)),
    ] {
        assert_eq!(cause(scitoken(), changes.clone()), expected, "{changes}");
    }
}

#[test]
fn when_it_holds() {
    let signer = Signer::shared();
    let at = |claims: &Value, now_s: i64| {
        let keys = Arc::new(signer.key_set());
        let found = verify(&signer.token(claims), &[issuer()], |_| Some(keys), &[SERVER.to_owned()], now_s);
        found.map_err(|refusal| refusal.cause).map(|identity| identity.expires_s)
    };
    let claims = with(wlcg(), &json!({"nbf": 1000, "iat": 1000, "exp": 2000}));
    for (now_s, expected) in [
        (i64::MIN, Err(Cause::NotYetValid)),
        (0, Err(Cause::NotYetValid)),
        (939, Err(Cause::NotYetValid)),
        (940, Ok(2000)),
        (1500, Ok(2000)),
        (2000, Ok(2000)),
        (2059, Ok(2000)),
        (2060, Err(Cause::Expired)),
        (i64::MAX, Err(Cause::Expired)),
    ] {
        assert_eq!(at(&claims, now_s), expected, "{now_s}");
    }
    // Made later than it begins, and the other way round: the later counts.
    assert_eq!(at(&with(claims.clone(), &json!({"iat": 1500})), 1439), Err(Cause::NotYetValid));
    assert_eq!(at(&with(claims.clone(), &json!({"nbf": 1500})), 1439), Err(Cause::NotYetValid));
    assert_eq!(at(&with(claims, &json!({"nbf": 1500})), 1440), Ok(2000));
    let refusal = of_claims(&with(wlcg(), &json!({"exp": NOW_S - 100}))).unwrap_err();
    assert_eq!(refusal.message, "the token expired 100 s ago");
}

#[test]
fn for_whom_it_is() {
    let any = "https://wlcg.cern.ch/jwt/v1/any";
    for (aud, expected) in [
        (json!(SERVER), true),
        (json!([SERVER]), true),
        (json!(["https://other.example", SERVER]), true),
        (json!(any), true),
        (json!([any]), true),
        (json!("ANY"), false),
        (json!([]), false),
        (json!(""), false),
        (json!(format!("{SERVER}/")), false),
        (json!("https://STORAGE.example:1094"), false),
        (json!("https://storage.example"), false),
        (json!("https://storage.example:1094.evil.example"), false),
        (json!(["https://other.example"]), false),
    ] {
        let expected = (!expected).then_some(Cause::WrongAudience);
        assert_eq!(cause(wlcg(), json!({ "aud": aud })), expected, "{aud}");
    }
    assert_eq!(cause(scitoken(), json!({"aud": "ANY"})), None);
    assert_eq!(cause(scitoken(), json!({ "aud": any })), Some(Cause::WrongAudience));
    assert_eq!(cause(wlcg(), json!({"aud": [SERVER, 1]})), Some(Cause::Malformed));
    assert_eq!(cause(wlcg(), json!({"aud": {"a": SERVER}})), Some(Cause::Malformed));
    assert_eq!(cause(wlcg(), json!({"aud": vec![SERVER; 65]})), Some(Cause::Unacceptable));
    let refusal = of_claims(&with(wlcg(), &json!({"aud": "https://x.example"}))).unwrap_err();
    assert!(refusal.message.contains(SERVER), "{refusal}");
    // An issuer may have names of its own for this server; then no others count for it.
    let signer = Signer::shared();
    let special = Issuer { audiences: vec!["site".to_owned()], ..issuer() };
    for (aud, expected) in [("site", true), (SERVER, false), (any, true)] {
        let token = signer.token(&with(wlcg(), &json!({ "aud": aud })));
        let keys = Arc::new(signer.key_set());
        let found =
            verify(&token, std::slice::from_ref(&special), |_| Some(keys), &[SERVER.to_owned()], NOW_S);
        assert_eq!(found.is_ok(), expected, "{aud}");
    }
}

#[test]
fn whose_groups() {
    let groups = |groups: Value| {
        let identity = of_claims(&with(wlcg(), &json!({"scope": "openid", "wlcg.groups": groups})));
        identity
            .map(|it| it.groups.iter().map(ToString::to_string).collect::<Vec<_>>())
            .map_err(|it| it.cause)
    };
    assert_eq!(groups(json!(["/vo/prod", "/vo"])), Ok(vec!["/vo/prod".to_owned(), "/vo".to_owned()]));
    assert_eq!(groups(json!([])), Ok(vec![]));
    for bad in [
        json!("/vo"),
        json!([1]),
        json!(["vo"]),
        json!(["/"]),
        json!(["/vo/"]),
        json!(["/vo/Role=admin"]),
        json!(["/vo/Capability=NULL"]),
        json!(["/vo/.hidden"]),
        json!(["/vo", "/a b"]),
    ] {
        assert_eq!(groups(bad.clone()), Err(Cause::Malformed), "{bad}");
    }
    assert_eq!(groups(json!(vec!["/vo"; 257])), Err(Cause::Unacceptable));
}

#[test]
fn what_is_known_of_the_bearer() {
    let claims =
        with(wlcg(), &json!({"scope": "openid storage.read:/a offline_access", "wlcg.groups": ["/vo"]}));
    let identity = of_claims(&claims).unwrap();
    assert_eq!(
        identity,
        TokenIdentity {
            issuer: ISSUER.to_owned(),
            subject: "b7a4".to_owned(),
            id: Some("1".to_owned()),
            scopes: ["openid", "storage.read:/a", "offline_access"].map(str::to_owned).to_vec(),
            capabilities: vec![gridlane_auth::Capability {
                may: Grants::READ.with(Grants::LIST),
                under: ResourcePath::parse("/data/vo/a").unwrap(),
            }],
            is_capability: true,
            groups: vec!["/vo".parse().unwrap()],
            vo: Some("vo".to_owned()),
            expires_s: NOW_S + 3600,
        }
    );
}
