use super::*;
use crate::dn::Pattern;
use crate::fqan::Fqan;
use crate::identity::{CertificateIdentity, MacaroonIdentity, TokenIdentity, UserIdentity};
use gridlane_core::Network;
use gridlane_dav::ResourcePath;

use Operation::{Create, Delete, List, Mkdir, Overwrite, Read, Rename, Stat};

fn path(text: &str) -> ResourcePath {
    ResourcePath::parse(text).unwrap()
}

fn rule(who: Principal, may: Grants, under: &str) -> Rule {
    let under = Template::parse(under).unwrap();
    Rule { name: format!("rule for {under}"), who, may, under }
}

fn may(policy: &Policy, identity: &Identity, operation: Operation, at: &str) -> bool {
    decided(policy, identity, operation, at).is_granted()
}

fn decided<'a>(policy: &'a Policy, identity: &'a Identity, operation: Operation, at: &str) -> Decision<'a> {
    let asker = Asker { identity, address: "192.0.2.1".parse().unwrap() };
    policy.decide(asker, operation, path(at).names())
}

fn ada(fqans: &[&str]) -> Identity {
    Identity::Certificate(CertificateIdentity {
        dn: "/DC=org/DC=example/CN=Ada".to_owned(),
        user: Some("ada".to_owned()),
        fqans: fqans.iter().map(|text| text.parse::<Fqan>().unwrap()).collect(),
        expires_s: 0,
    })
}

fn token(capabilities: &[(Grants, &str)], groups: &[&str], vo: Option<&str>) -> Identity {
    let capability = |(may, under): &(Grants, &str)| Capability { may: *may, under: path(under) };
    Identity::Token(TokenIdentity {
        issuer: "https://iam.example/".to_owned(),
        subject: "b7a4".to_owned(),
        id: None,
        scopes: vec!["openid".to_owned()],
        capabilities: capabilities.iter().map(capability).collect(),
        is_capability: !capabilities.is_empty(),
        groups: groups.iter().map(|text| text.parse::<Fqan>().unwrap()).collect(),
        vo: vo.map(str::to_owned),
        expires_s: 0,
    })
}

#[test]
fn what_no_rule_grants_is_refused() {
    let networks = |text: &str| Network::parse_list([text]).unwrap();
    let at = |text: &str| Principal { networks: networks(text), ..Principal::anyone() };
    let policy = Policy::new(vec![
        rule(at("any"), Grants::READ, "/public"),
        rule(at("10.0.0.0/8"), Grants::READ.with(Grants::LIST), "/"),
        rule(at("loopback"), Grants::ADMIN, "/in/box"),
    ]);
    let may = |address: &str, operation, at: &str| {
        let asker = Asker { identity: &Identity::Anonymous, address: address.parse().unwrap() };
        policy.decide(asker, operation, path(at).names()).is_granted()
    };
    for (address, operation, at, expected) in [
        ("192.0.2.1", Read, "/public/f", true),
        ("192.0.2.1", Read, "/public", true),
        ("192.0.2.1", Stat, "/public", true),
        ("192.0.2.1", List, "/public", false),
        ("192.0.2.1", Read, "/publicly", false),
        ("192.0.2.1", Read, "/", false),
        ("192.0.2.1", Stat, "/f", false),
        ("0.0.0.0", Read, "/public/f", true),
        ("0.0.0.0", Read, "/in/box/f", false),
        ("10.1.1.1", List, "/any/where", true),
        ("10.1.1.1", Create, "/public/f", false),
        ("::ffff:10.1.1.1", Read, "/f", true),
        ("127.0.0.1", Overwrite, "/in/box/f", true),
        ("127.0.0.1", Delete, "/in/box", true),
        ("127.0.0.1", Create, "/in", false),
        ("::1", Delete, "/in/box/a/b", true),
        ("::1", Delete, "/public/f", false),
    ] {
        assert_eq!(may(address, operation, at), expected, "{address} {operation:?} {at}");
    }
    assert_eq!(
        decided(&Policy::default(), &Identity::Anonymous, Read, "/"),
        Decision::Refused(Reason::Anonymous)
    );
    assert_eq!(decided(&Policy::default(), &ada(&[]), Read, "/"), Decision::Refused(Reason::NoRule));
}

#[test]
fn everything_that_a_rule_says_has_to_be_true() {
    let is = |who: Principal, identity: &Identity| {
        may(&Policy::new(vec![rule(who, Grants::READ, "/")]), identity, Read, "/f")
    };
    let text = |text: &str| Some(text.to_owned());
    let me = ada(&["/atlas/prod/Role=pilot", "/cms"]);
    let user = Identity::User(UserIdentity::by_password("ada"));
    let jwt = token(&[], &["/atlas/prod"], None);
    let nobody = Identity::Anonymous;
    for (who, expected) in [
        (Principal::anyone(), [true, true, true, true]),
        (Principal::default(), [true, true, true, false]),
        (
            Principal { dn: Some(Pattern::new("/DC=org/DC=example/CN=Ada")), ..Principal::default() },
            [true, false, false, false],
        ),
        (
            Principal { dn: Some(Pattern::new("/DC=org/DC=example/CN=Ad")), ..Principal::default() },
            [false; 4],
        ),
        (
            Principal { dn: Some(Pattern::new("/DC=org/*")), ..Principal::default() },
            [true, false, false, false],
        ),
        (
            Principal { dn: Some(Pattern::new("/dc=org/dc=example/cn=Ada")), ..Principal::default() },
            [true, false, false, false],
        ),
        (Principal { user: text("ada"), ..Principal::default() }, [true, true, false, false]),
        (Principal { vo: text("atlas"), ..Principal::default() }, [true, false, true, false]),
        (Principal { group: text("/atlas"), ..Principal::default() }, [false; 4]),
        (Principal { group: text("/atlas/*"), ..Principal::default() }, [true, false, true, false]),
        (
            Principal { group: text("/atlas/prod"), role: text("pilot"), ..Principal::default() },
            [true, false, false, false],
        ),
        (Principal { vo: text("cms"), role: text("pilot"), ..Principal::default() }, [false; 4]),
        (
            Principal { issuer: text("https://iam.example/"), ..Principal::default() },
            [false, false, true, false],
        ),
        (Principal { issuer: text("https://iam.example"), ..Principal::default() }, [false; 4]),
        (
            Principal { subject: text("b7a4"), scope: text("openid"), ..Principal::default() },
            [false, false, true, false],
        ),
        (Principal { subject: text("b7a4"), scope: text("compute"), ..Principal::default() }, [false; 4]),
    ] {
        let found = [&me, &user, &jwt, &nobody].map(|identity| is(who.clone(), identity));
        assert_eq!(found, expected, "{who:?}");
    }
}

#[test]
fn names_in_paths_stand_for_who_asks() {
    let vo = Policy::new(vec![rule(Principal::default(), Grants::READ, "/data/{vo}")]);
    let me = ada(&["/atlas/prod/Role=pilot", "/cms"]);
    for (at, expected) in [
        ("/data/atlas/f", true),
        ("/data/cms", true),
        ("/data/lhcb", false),
        ("/data", false),
        ("/data/atlasx", false),
    ] {
        assert_eq!(may(&vo, &me, Read, at), expected, "{at}");
    }
    assert!(!may(&vo, &ada(&[]), Read, "/data/atlas"));
    assert!(may(&vo, &token(&[], &[], Some("atlas")), Read, "/data/atlas"));
    let pilots = Principal { role: Some("pilot".to_owned()), ..Principal::default() };
    let both = Policy::new(vec![rule(pilots, Grants::READ, "/{vo}/{group}/{role}")]);
    assert!(may(&both, &me, Read, "/atlas/prod/pilot/f") && !may(&both, &me, Read, "/cms/prod/pilot/f"));
    let home = Policy::new(vec![rule(Principal::default(), Grants::WRITE, "/home/{user}")]);
    assert!(may(&home, &me, Create, "/home/ada/x") && !may(&home, &me, Create, "/home/eve/x"));
    assert!(!may(&home, &Identity::Anonymous, Create, "/home/anonymous"));
    for text in ["/a/{vo}x", "/{host}", "a", "/a/../b"] {
        assert!(Template::parse(text).is_err(), "{text}");
    }
    for text in ["/", "/data/{vo}/{group}", "/a%20b"] {
        assert_eq!(Template::parse(text).unwrap().to_string(), text);
    }
}

#[test]
fn a_rule_that_does_not_count_for_a_capability_says_so() {
    let issuer = Principal { issuer: Some("https://iam.example/".to_owned()), ..Principal::default() };
    let rule = rule(issuer, Grants::READ, "/");
    let mismatch = |identity: Identity| {
        let asker = Asker { identity: &identity, address: "192.0.2.1".parse().unwrap() };
        rule.mismatch(asker, Read, path("/f").names())
    };
    assert_eq!(mismatch(token(&[], &[], None)), None);
    let by_itself = mismatch(token(&[(Grants::READ, "/")], &[], None));
    assert!(matches!(by_itself, Some(Mismatch::Principal(why)) if why.contains("capability")));
}

#[test]
fn where_a_rule_could_hold_is_known_without_who_asks() {
    for (under, base, meets) in [
        ("/", "/data", true),
        ("/data/{vo}", "/data", true),
        ("/data/{vo}", "/data/cms/inner", true),
        ("/data/cms", "/", true),
        ("/date/cms", "/data", false),
        ("/{vo}", "/data", true),
    ] {
        assert_eq!(Template::parse(under).unwrap().may_meet(&path(base)), meets, "{under} {base}");
    }
}

#[test]
fn a_capability_is_all_that_its_bearer_has() {
    let groups = Principal { vo: Some("atlas".to_owned()), ..Principal::default() };
    let policy = Policy::new(vec![
        rule(groups, Grants::ADMIN, "/"),
        rule(Principal::anyone(), Grants::READ, "/public"),
    ]);
    let jwt = token(&[(Grants::CREATE, "/data/foo")], &["/atlas"], Some("atlas"));
    for (operation, at, expected) in [
        (Create, "/data/foo", true),
        (Create, "/data/foo/a/b", true),
        (Create, "/data/foobar", false),
        (Create, "/data", false),
        (Mkdir, "/data", true),
        (Mkdir, "/other", false),
        (Stat, "/data", true),
        (Stat, "/data/foo/a", true),
        (Stat, "/data/other", false),
        (Read, "/data/foo/a", false),
        (Overwrite, "/data/foo/a", false),
        (Read, "/public/a", true),
    ] {
        assert_eq!(may(&policy, &jwt, operation, at), expected, "{operation:?} {at}");
    }
    assert_eq!(decided(&policy, &jwt, Read, "/data/foo"), Decision::Refused(Reason::BeyondScopes));
    assert!(may(&policy, &token(&[], &["/atlas"], None), Delete, "/data"), "without scopes groups count");
}

#[test]
fn a_path_that_says_who_asks_is_nothing_that_anyone_has() {
    let policy = Policy::new(vec![rule(Principal::anyone(), Grants::READ, "/data/{vo}/{group}")]);
    let groups = ["/atlas/prod"];
    assert!(may(&policy, &token(&[], &groups, None), Read, "/data/atlas/prod/f"));
    let capable = token(&[(Grants::READ, "/other")], &groups, Some("atlas"));
    assert!(!may(&policy, &capable, Read, "/data/atlas/prod/f"));
}

#[test]
fn an_issuer_fills_no_groups_of_another_vo() {
    let of = |vo: Option<&str>, issuer: Option<&str>| Principal {
        group: Some("/cms/prod".to_owned()),
        vo: vo.map(str::to_owned),
        issuer: issuer.map(str::to_owned),
        ..Principal::default()
    };
    let groups = ["/cms/prod"];
    for (who, vo, expected) in [
        (of(None, None), Some("atlas"), false),
        (of(None, None), Some("cms"), true),
        (of(None, None), None, true),
        (of(Some("cms"), None), Some("atlas"), false),
        // The operator says whose it is.
        (of(Some("atlas"), None), Some("atlas"), true),
        (of(None, Some("https://iam.example/")), Some("atlas"), true),
    ] {
        let policy = Policy::new(vec![rule(who.clone(), Grants::READ, "/data")]);
        assert_eq!(may(&policy, &token(&[], &groups, vo), Read, "/data"), expected, "{who:?} {vo:?}");
    }
    let policy = Policy::new(vec![rule(Principal::default(), Grants::READ, "/cms/{group}")]);
    assert!(!may(&policy, &token(&[], &groups, Some("atlas")), Read, "/cms/prod"));
    assert!(may(&policy, &token(&[], &groups, Some("cms")), Read, "/cms/prod"));
}

#[test]
fn what_can_be_reached_below_a_path() {
    let groups = Principal { group: Some("/atlas/prod".to_owned()), ..Principal::default() };
    let policy = Policy::new(vec![
        rule(Principal::anyone(), Grants::READ, "/public/data"),
        rule(groups, Grants::LIST, "/{vo}/{group}/in"),
        rule(Principal::default(), Grants::WRITE, "/home/{user}"),
    ]);
    let reaches = |identity: &Identity, operation, at: &str| {
        let asker = Asker { identity, address: "192.0.2.1".parse().unwrap() };
        policy.reaches(asker, operation, path(at).names())
    };
    let (nobody, me) = (Identity::Anonymous, ada(&["/atlas/prod"]));
    let capable = token(&[(Grants::READ, "/a/b")], &[], None);
    for (identity, operation, at, expected) in [
        (&nobody, Read, "/", true),
        (&nobody, Read, "/public", true),
        (&nobody, Stat, "/public/data/f", true),
        (&nobody, List, "/", false),
        (&nobody, Stat, "/home", false),
        (&nobody, Stat, "/publ", false),
        (&me, List, "/", true),
        (&me, List, "/atlas/prod", true),
        (&me, List, "/atlas/other", false),
        (&me, Create, "/home", true),
        (&me, Create, "/home/eve", false),
        (&capable, Read, "/a", true),
        (&capable, Read, "/a/b/c", true),
        (&capable, Read, "/a/c", false),
        (&capable, Create, "/", false),
    ] {
        assert_eq!(reaches(identity, operation, at), expected, "{identity:?} {operation:?} {at}");
    }
}

#[test]
fn rules_about_macaroons_are_a_ceiling() {
    let macaroon = Identity::Macaroon(MacaroonIdentity {
        name: "ada".to_owned(),
        id: "1".to_owned(),
        capability: Capability { may: Grants::READ.with(Grants::DELETE), under: path("/data") },
        expires_s: 0,
    });
    let free = Policy::new(vec![rule(
        Principal { user: Some("ada".to_owned()), ..Principal::default() },
        Grants::ADMIN,
        "/",
    )]);
    assert!(may(&free, &macaroon, Rename, "/data/f") && !may(&free, &macaroon, Overwrite, "/data/f"));
    assert_eq!(decided(&free, &macaroon, Read, "/f"), Decision::Refused(Reason::BeyondCaveats));
    let about = Principal { class: Class::Macaroons, ..Principal::default() };
    let bound = Policy::new(vec![rule(about, Grants::READ, "/data")]);
    assert!(may(&bound, &macaroon, Read, "/data/f"));
    assert_eq!(decided(&bound, &macaroon, Delete, "/data/f"), Decision::Refused(Reason::BeyondCeiling));
    assert!(!may(&bound, &ada(&[]), Read, "/data/f"), "a ceiling grants nothing to others");
}

#[test]
fn what_a_macaroon_can_be_given() {
    let policy = Policy::new(vec![
        rule(Principal::default(), Grants::READ.with(Grants::LIST), "/data"),
        rule(Principal { user: Some("ada".to_owned()), ..Principal::default() }, Grants::WRITE, "/data/ada"),
        // For clients at these addresses, and not for holders of macaroons that were made there.
        rule(
            Principal { networks: Network::parse_list(["::1"]).unwrap(), ..Principal::anyone() },
            Grants::ADMIN,
            "/",
        ),
    ]);
    let me = ada(&[]);
    let asker = Asker { identity: &me, address: "::1".parse().unwrap() };
    let grants = |at: &str| policy.grants(asker, path(at).names()).to_string();
    assert_eq!(grants("/data/ada/x"), "read list create overwrite");
    assert_eq!((grants("/data").as_str(), grants("/").as_str()), ("read list", "nothing"));
}

#[test]
fn an_identity_is_the_same_in_a_log() {
    for identity in [
        Identity::Anonymous,
        ada(&["/atlas/Role=pilot"]),
        token(&[(Grants::READ, "/a%20b/c")], &["/atlas"], Some("atlas")),
        Identity::User(UserIdentity::by_password("ada")),
    ] {
        let text = serde_json::to_string(&identity).unwrap();
        assert_eq!(serde_json::from_str::<Identity>(&text).unwrap(), identity, "{text}");
    }
}
