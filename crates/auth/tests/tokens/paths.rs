//! What scopes allow, and where.

use proptest::prelude::*;

use super::*;
use gridlane_auth::identity::Identity;
use gridlane_auth::operation::Operation;
use gridlane_auth::policy::{Asker, Policy};

#[test]
fn what_scopes_allow() {
    let modify = "create overwrite delete";
    for (scope, expected) in [
        ("storage.read:/", vec!["read list /data/vo/".to_owned()]),
        ("storage.read:/a", vec!["read list /data/vo/a".to_owned()]),
        ("storage.read:/a/", vec!["read list /data/vo/a/".to_owned()]),
        ("storage.create:/a", vec!["create rename /data/vo/a".to_owned()]),
        ("storage.modify:/a/b", vec![format!("{modify} /data/vo/a/b")]),
        ("storage.stage:/a", vec!["stage /data/vo/a".to_owned()]),
        ("storage.poll:/a", vec!["stat /data/vo/a".to_owned()]),
        ("storage.read:/a%20b/%C3%A9", vec!["read list /data/vo/a%20b/%C3%A9".to_owned()]),
        ("storage.read:/a:b", vec!["read list /data/vo/a%3Ab".to_owned()]),
        (
            "openid storage.read:/a  storage.read:/b",
            vec!["read list /data/vo/a".to_owned(), "read list /data/vo/b".to_owned()],
        ),
        ("read:/ write:/", vec![]),
        ("openid", vec![]),
        ("", vec![]),
    ] {
        assert_eq!(of_scopes(wlcg(), scope).unwrap(), expected, "{scope}");
    }
    for (scope, expected) in [
        ("read:/a", vec!["read list /data/vo/a".to_owned()]),
        ("read", vec!["read list /data/vo/".to_owned()]),
        ("write:/a", vec![format!("{modify} /data/vo/a")]),
        ("write", vec![format!("{modify} /data/vo/")]),
        ("storage.read:/a", vec!["read list /data/vo/a".to_owned()]),
        ("queue execute reader:/", vec![]),
    ] {
        assert_eq!(of_scopes(scitoken(), scope).unwrap(), expected, "{scope}");
    }
}

/// WLCG profile 2.2.3: a capability is one also where it is worth nothing.
#[test]
fn what_is_a_capability() {
    for (claims, scope, expected) in [
        (wlcg(), "openid", false),
        (wlcg(), "wlcg.groups host.auth", false),
        (wlcg(), "storage.read:/x", true),
        (wlcg(), "storage.invented:/x", true),
        (wlcg(), "compute.create", true),
        (wlcg(), "read:/x", false),
        (scitoken(), "read:/x", true),
        (scitoken(), "queue", false),
    ] {
        let identity = of_claims(&with(claims, &json!({ "scope": scope }))).unwrap();
        assert_eq!(identity.is_capability, expected, "{scope}");
    }
}

#[test]
fn what_an_issuer_may() {
    let signer = Signer::shared();
    let found = |may: Grants, scope: &str| {
        let issuer = Issuer { may, ..issuer() };
        let keys = Arc::new(signer.key_set());
        let token = signer.token(&with(wlcg(), &json!({ "scope": scope })));
        let identity = verify(&token, &[issuer], |_| Some(keys), &[SERVER.to_owned()], NOW_S).unwrap();
        assert!(identity.is_capability);
        identity.capabilities.iter().map(|able| able.may.to_string()).collect::<Vec<_>>().join(",")
    };
    let read = Grants::READ.with(Grants::LIST);
    assert_eq!(found(read, "storage.read:/ storage.modify:/ storage.poll:/"), "read list,stat,stat");
    assert_eq!(found(Grants::CREATE, "storage.modify:/"), "create");
    assert_eq!(found(Grants::CREATE, "storage.create:/"), "create", "renaming is not given");
    assert_eq!(found(Grants::NONE, "storage.read:/ storage.poll:/"), "");
    // At the root of the server.
    let token = signer.token(&with(wlcg(), &json!({"scope": "storage.read:/a"})));
    let keys = Arc::new(signer.key_set());
    let root = Issuer { base: ResourcePath::root(), ..issuer() };
    let identity = verify(&token, &[root], |_| Some(keys), &[SERVER.to_owned()], NOW_S).unwrap();
    assert_eq!(identity.capabilities[0].under.to_string(), "/a");
}

#[test]
fn paths_that_could_be_read_in_more_ways_than_one() {
    for path in [
        "",
        "a",
        "a/b",
        "../a",
        "/..",
        "/../a",
        "/a/..",
        "/a/../b",
        "/./a",
        "/a/.",
        "//",
        "//a",
        "/a//b",
        "/a//",
        "/%2e%2e/a",
        "/%2E%2E",
        "/.%2e/a",
        "/%2e",
        "/a%2eb",
        "/a%2fb",
        "/a%2F..%2Fb",
        "/a%5cb",
        "/a%5Cb",
        "/a%00b",
        "/%00",
        "/a%0ab",
        "/a%7f",
        "/%",
        "/%2",
        "/%zz",
        "/a%252e",
        "/%252e%252e/a",
        "/%252f",
        "/%25%32%65",
        "/a\\b",
        "/a\"b",
        "/é",
    ] {
        for (claims, scope) in [(wlcg(), "storage.read:"), (scitoken(), "read:")] {
            let refusal = of_scopes(claims, &format!("openid {scope}{path}")).unwrap_err();
            assert_eq!(refusal.cause, Cause::Malformed, "{path}");
        }
    }
    for scope in ["storage.read", "storage.create", "storage.modify", "storage.stage", "storage.poll"] {
        assert_eq!(of_scopes(wlcg(), scope).unwrap_err().cause, Cause::Malformed, "{scope}");
        assert_eq!(of_scopes(scitoken(), scope).unwrap_err().cause, Cause::Malformed, "{scope}");
    }
    for scope in ["storage.read:/a\tstorage.modify:/", "storage.read:/\n", "storage.read:/a\u{0}"] {
        assert_eq!(of_scopes(wlcg(), scope).unwrap_err().cause, Cause::Malformed, "{scope:?}");
    }
    let long = format!("storage.read:/{}", "x".repeat(256));
    assert_eq!(of_scopes(wlcg(), &long).unwrap_err().cause, Cause::Malformed);
    let many = "storage.read:/a ".repeat(257);
    assert_eq!(of_scopes(wlcg(), &many).unwrap_err().cause, Cause::Unacceptable);
    // Names that look odd, and mean one thing only.
    for path in ["/...", "/a..b", "/..a", "/a.", "/a%25", "/a;b=c", "/~u", "/a+b"] {
        assert_eq!(of_scopes(wlcg(), &format!("storage.read:{path}")).unwrap().len(), 1, "{path}");
    }
}

/// The examples of WLCG profile 2.2.1.
#[test]
fn the_examples_of_the_profile() {
    use Operation::{Create, Delete, Mkdir, Overwrite, Read, Rename, Stat};
    let may = |scope: &str, operation: Operation, path: &str| {
        let identity = Identity::Token(of_claims(&with(wlcg(), &json!({ "scope": scope }))).unwrap());
        let asker = Asker { identity: &identity, address: "::1".parse().unwrap() };
        let path = ResourcePath::parse(&format!("/data/vo{path}")).unwrap();
        Policy::default().decide(asker, operation, path.names()).is_granted()
    };
    let (create, directory) = ("storage.create:/foo/bar", "storage.create:/foo/bar/");
    for (scope, operation, path, expected) in [
        (create, Mkdir, "/foo", true),
        (create, Mkdir, "/foo/bar", true),
        (create, Create, "/foo/bar", true),
        (create, Mkdir, "/foo/bar/qux", true),
        (create, Create, "/foo/bar/qux", true),
        (create, Create, "/foo", false),
        (create, Create, "/foo/bargain", false),
        (create, Mkdir, "/foo/bargain", false),
        (create, Overwrite, "/foo/bar/qux", false),
        (create, Delete, "/foo/bar/qux", false),
        (create, Rename, "/foo/bar/qux", true),
        (create, Read, "/foo/bar/qux", false),
        (create, Stat, "/foo/bar/qux", true),
        (directory, Mkdir, "/foo/bar", true),
        (directory, Create, "/foo/bar", false),
        (directory, Create, "/foo/bar/qux", true),
        ("storage.modify:/baz", Overwrite, "/baz/qux", true),
        ("storage.modify:/baz", Delete, "/baz/qux", true),
        ("storage.modify:/baz", Read, "/baz/qux", false),
        ("storage.stage:/tape", Read, "/tape/a", false),
        ("storage.stage:/tape", Stat, "/tape/a", true),
        ("storage.poll:/tape", Stat, "/tape/a", true),
        ("storage.poll:/tape", Operation::Stage, "/tape/a", false),
        ("storage.read:/foo", Read, "/bar", false),
    ] {
        assert_eq!(may(scope, operation, path), expected, "{scope} {operation:?} {path}");
    }
}

proptest! {
    /// Whatever a scope says, it does not lead out of the issuer's base path, nor to more than its issuer may.
    #[test]
    fn nothing_leads_out(scope in "(storage\\.(read|create|modify|stage|poll)|read|write):?(/|%2[eEfF]|%5c|\\.|a|%25| ){0,12}") {
        for claims in [wlcg(), scitoken()] {
            let Ok(identity) = of_claims(&with(claims, &json!({ "scope": scope.clone() }))) else { continue };
            for able in identity.capabilities {
                let shown = able.under.to_string();
                prop_assert!(shown == "/data/vo/" || shown.starts_with("/data/vo/"), "{scope} {shown}");
                prop_assert!(!able.under.names().any(|name| matches!(name, b"." | b".." | b"")));
                prop_assert!(!able.may.includes(Operation::Admin));
            }
        }
    }

    /// A path that is written as it has to be is the path that is meant.
    #[test]
    fn what_is_encoded_is_what_is_meant(names in prop::collection::vec("[a-zA-Z0-9 +:éß_-]{1,8}", 0..4), slash: bool) {
        let mut path: String = names.iter().map(|name| format!("/{}", gridlane_dav::path::encode_name(name.as_bytes()))).collect();
        if slash || path.is_empty() {
            path.push('/');
        }
        let found = of_scopes(wlcg(), &format!("storage.read:{path}")).unwrap();
        prop_assert_eq!(found, vec![format!("read list /data/vo{path}")]);
    }
}
