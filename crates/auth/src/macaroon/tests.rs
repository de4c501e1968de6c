use super::*;
use crate::operation::Operation;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use proptest::prelude::*;
use request::{Request, parse_duration_s};

const NOW_S: i64 = 1_800_000_000;

fn path(text: &str) -> ResourcePath {
    ResourcePath::parse(text).unwrap()
}

/// A text like that of a file of secrets, made from one number.
fn secret(number: u8) -> String {
    STANDARD.encode([number; 64])
}

fn keys(numbers: &[u8]) -> Keys {
    let secrets: Vec<String> = numbers.iter().map(|number| secret(*number)).collect();
    Keys::parse(&secrets.join("\n---\n")).unwrap()
}

fn minted(rights: Grants, asked: Option<Grants>, at: &str) -> Minted {
    let path = path(at);
    let terms = Terms {
        location: "SITE",
        name: "/DC=org/CN=Ada: of all",
        rights,
        path: &path,
        expires_s: NOW_S + 600,
        asked,
        networks: &[],
    };
    mint(&keys(&[1]), [7; 16], &terms).unwrap()
}

fn verified(text: &str) -> Result<MacaroonIdentity, Refusal> {
    check(text, &keys(&[1]), NOW_S)
}

fn check(text: &str, keys: &Keys, now_s: i64) -> Result<MacaroonIdentity, Refusal> {
    let revoked = HashSet::from(["gone".to_owned()]);
    let address = "192.0.2.1".parse().unwrap();
    verify(text, &Check { keys, location: "SITE", revoked: &revoked, address, now_s })
}

/// One with these caveats, whatever they are.
fn with_caveats(id: &str, caveats: &[&str]) -> Secret {
    let signature = chain::first(keys(&[1]).newest(), id.as_bytes());
    let (location, identifier) = (b"SITE".to_vec(), id.as_bytes().to_vec());
    let macaroon = Macaroon { location, identifier, caveats: Vec::new(), signature };
    let all = caveats.iter().try_fold(macaroon, |macaroon, caveat| macaroon.with_caveat(caveat.as_bytes()));
    all.unwrap().to_text()
}

fn cause(outcome: Result<MacaroonIdentity, Refusal>) -> Cause {
    outcome.unwrap_err().cause
}

#[test]
fn the_chain_is_that_of_libmacaroons() {
    // The example of its documentation.
    let root = chain::root(b"this is our super secret key; only we should know it");
    let hex = |bytes: [u8; 32]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    let first = chain::first(&root, b"we used our secret key");
    assert_eq!(hex(first), "e3d9e02908526c4c0039ae15114115d97fdd68bf2ba379b342aaf0f617d0552f");
    let second = chain::next(&first, b"test = caveat");
    assert_eq!(hex(second), "197bac7a044af33332865b9266e26d493bdd668a660e44d88ce1a998c23dbd67");
}

#[test]
fn what_is_minted_is_in_xrootd_s_order_and_verified() {
    let rights = Grants::READ.with(Grants::LIST);
    let made = minted(rights, Some(Grants::READ), "/data/a%20b/");
    let macaroon = Macaroon::parse(made.text.expose()).unwrap();
    let caveats: Vec<_> = macaroon.caveats().map(String::from_utf8_lossy).collect();
    assert_eq!(
        caveats,
        [
            "name:/DC=org/CN=Ada: of all",
            "activity:READ_METADATA,DOWNLOAD,LIST",
            "activity:READ_METADATA,DOWNLOAD",
            "path:/data/a b",
            "before:2027-01-15T08:10:00Z",
        ]
    );
    assert_eq!((macaroon.location().as_str(), macaroon.id()), ("SITE", made.id.clone()));
    let identity = verified(made.text.expose()).unwrap();
    assert_eq!((identity.name.as_str(), &identity.id), ("/DC=org/CN=Ada: of all", &made.id));
    assert_eq!(identity.expires_s, NOW_S + 600);
    assert_eq!(identity.capability.may, Grants::READ.with(Grants::of(Operation::Stat)));
    assert_eq!(identity.capability.under, path("/data/a%20b"));
    assert_eq!(made.id, "07070707-0707-4707-8707-070707070707");
    let shown = format!("{made:?} {macaroon:?} {:?}", keys(&[1, 2]));
    assert!(!shown.contains(&made.text.expose()[made.text.expose().len() - 20..]), "{shown}");
    assert!(shown.ends_with("Keys(2)"), "{shown}");
}

#[test]
fn what_cannot_be_a_caveat_is_not_minted() {
    let at = |name: &str, under: &ResourcePath| {
        let terms = Terms {
            location: "SITE",
            name,
            rights: Grants::READ,
            path: under,
            expires_s: NOW_S,
            asked: None,
            networks: &[],
        };
        mint(&keys(&[1]), [0; 16], &terms)
    };
    for (name, under) in [("", "/a"), ("a\nb", "/a"), ("a", "/%252e%252e/b"), ("a", "/a%252fb")] {
        assert!(at(name, &path(under)).is_err(), "{name:?} {under}");
    }
    assert!(at("a", &path("/%FF%25")).is_ok());
}

#[test]
fn words_for_what_may_be_done() {
    for (grants, words) in [
        (Grants::NONE, ""),
        (Grants::of(Operation::Stat), "READ_METADATA"),
        (Grants::READ.with(Grants::LIST), "READ_METADATA,DOWNLOAD,LIST"),
        (Grants::CREATE, "READ_METADATA,UPLOAD"),
        // Less than XRootD's word is.
        (Grants::WRITE, "READ_METADATA,UPLOAD,OVERWRITE"),
        (Grants::DELETE, "READ_METADATA,DELETE,RENAME"),
        (Grants::of(Operation::Mkdir), "READ_METADATA,MKDIR"),
        (Grants::WRITE.with(Grants::DELETE), "READ_METADATA,UPLOAD,DELETE,MANAGE,UPDATE_METADATA"),
        (Grants::ADMIN, "READ_METADATA,UPLOAD,DOWNLOAD,DELETE,MANAGE,UPDATE_METADATA,LIST,STAGE"),
    ] {
        assert_eq!(words_of(grants), words);
        let back = grants_of(words);
        assert!(!back.includes(Operation::Admin));
        if grants != Grants::ADMIN && !grants.is_empty() {
            assert_eq!(back, grants.with(Grants::of(Operation::Stat)), "{words}");
        }
    }
    assert_eq!(grants_of("UPDATE_METADATA,SING,download, LIST,"), Grants::NONE);
    assert!(grants_of("DOWNLOAD,SING").includes(Operation::Stat));
}

#[test]
fn every_caveat_has_to_hold() {
    let always = ["activity:DOWNLOAD,LIST,UPLOAD", "path:/a", "before:2030-01-01T00:00:00Z"];
    let with = |more: &[&str]| verified(with_caveats("id", &[&always[..], more].concat()).expose());
    let plain = with(&[]).unwrap();
    assert_eq!(plain.name, "unnamed");
    for (more, expected) in [
        ("before:2027-01-15T07:59:59Z", Cause::Expired),
        ("before:2027-01-15T08:00:00Z", Cause::Expired),
        ("before:2027-01-15T08:00:01", Cause::Unacceptable),
        ("before:2027-01-15T08:00:01+01:00", Cause::Unacceptable),
        ("before:2027-01-15 08:00:01Z", Cause::Unacceptable),
        ("before:Fri, 15 Jan 2027 08:00:01 GMT", Cause::Unacceptable),
        ("before:", Cause::Unacceptable),
        ("ip:10.0.0.0/8", Cause::Unacceptable),
        ("ip:", Cause::Unacceptable),
        ("ip:somewhere", Cause::Unacceptable),
        ("max-upload:5", Cause::Unacceptable),
        ("home:/a", Cause::Unacceptable),
        ("root:/a", Cause::Unacceptable),
        ("activity", Cause::Unacceptable),
        ("", Cause::Unacceptable),
        (" path:/a", Cause::Unacceptable),
        ("Path:/a", Cause::Unacceptable),
        ("path:", Cause::Unacceptable),
        ("path:a", Cause::Unacceptable),
        ("path:/a/../b", Cause::Unacceptable),
        ("path:/a/./b", Cause::Unacceptable),
        ("path://a", Cause::Unacceptable),
        ("path:/a//b", Cause::Unacceptable),
        ("path:/a//", Cause::Unacceptable),
        ("path:/a/%2e%2E/b", Cause::Unacceptable),
        ("path:/a%2fb", Cause::Unacceptable),
        ("path:/a\0", Cause::Unacceptable),
        ("name:", Cause::Unacceptable),
        ("name:a\nb", Cause::Unacceptable),
    ] {
        let refusal = with(&[more]).unwrap_err();
        assert_eq!(refusal.cause, expected, "{more:?}: {refusal}");
        assert!(!refusal.message.contains('\n'), "{refusal:?}");
    }
    let refusal = with(&["max-upload:5"]).unwrap_err();
    assert_eq!(refusal.message, "the macaroon's caveat \"max-upload:5\" is not understood here");
    for more in
        ["before:2027-01-15T08:00:01Z", "before:2027-01-15T08:00:00.999Z", "ip:10.0.0.0/8,192.0.2.0/24"]
    {
        assert_eq!(with(&[more]).is_ok(), !more.contains('.') || more.starts_with("ip"), "{more}");
    }
    assert!(with(&["name:ada", "name:ada"]).is_ok());
    assert_eq!(cause(with(&["name:ada", "name:root"])), Cause::Unacceptable);
    // Nothing is taken for granted.
    for lacking in 0..3 {
        let some: Vec<&str> = (0..3).filter(|at| *at != lacking).map(|at| always[at]).collect();
        assert_eq!(cause(verified(with_caveats("id", &some).expose())), Cause::Unacceptable, "{some:?}");
    }
    assert_eq!(cause(verified(with_caveats("gone", &always).expose())), Cause::Revoked);
}

#[test]
fn several_caveats_leave_what_all_of_them_allow() {
    let of = |caveats: &[&str]| {
        let all = [&["before:2030-01-01T00:00:00Z", "activity:DOWNLOAD,LIST,DELETE", "path:/a/b"], caveats];
        verified(with_caveats("id", &all.concat()).expose()).unwrap()
    };
    for (more, under) in [
        (&[][..], "/a/b"),
        (&["path:/"], "/a/b"),
        (&["path:/a/"], "/a/b"),
        (&["path:/a/b/c"], "/a/b/c"),
        (&["path:/a/b/c", "path:/a"], "/a/b/c"),
    ] {
        let identity = of(more);
        assert_eq!(identity.capability.under, path(under), "{more:?}");
        assert!(identity.capability.may.includes(Operation::Read));
    }
    for more in
        [&["path:/a/bc"][..], &["path:/b"], &["path:/a/b/c", "path:/a/b/d"], &["path:/x", "path:/a/b"]]
    {
        assert!(of(more).capability.may.is_empty(), "{more:?}");
    }
    let may = |more: &[&str]| of(more).capability.may;
    assert_eq!(may(&["activity:LIST,UPLOAD"]), Grants::LIST.with(Grants::of(Operation::Stat)));
    // With the right to list there and to read here looking is granted; without any right it is not.
    assert_eq!(may(&["activity:LIST", "activity:DOWNLOAD"]), Grants::of(Operation::Stat));
    assert_eq!(may(&["activity:SING"]), Grants::NONE);
    assert_eq!(of(&["before:2029-01-01T00:00:00Z", "before:2029-06-01T00:00:00Z"]).expires_s, 1_861_920_000);
}

#[test]
fn secrets_rotate() {
    let made = minted(Grants::READ, None, "/").text;
    assert!(check(made.expose(), &keys(&[2, 1]), NOW_S).is_ok());
    assert_eq!(cause(check(made.expose(), &keys(&[2, 3]), NOW_S)), Cause::BadSignature);
    assert_eq!(cause(check(made.expose(), &keys(&[1]), NOW_S + 600)), Cause::Expired);
    let (revoked, address) = (HashSet::new(), "::1".parse().unwrap());
    let keys = keys(&[1]);
    let elsewhere = Check { keys: &keys, location: "SITE2", revoked: &revoked, address, now_s: NOW_S };
    assert_eq!(cause(verify(made.expose(), &elsewhere)), Cause::WrongAudience);
}

#[test]
fn files_of_secrets() {
    let one = secret(1);
    let (first, second) = one.split_at(40);
    for text in [
        one.clone(),
        format!("{one}\n"),
        format!("{first}\r\n{second}\r\n"),
        format!("# of 2026\n\n {first} \n\n{second}\n---\n# old\n{}\n", secret(2)),
    ] {
        let made = minted(Grants::READ, None, "/").text;
        assert!(check(made.expose(), &Keys::parse(&text).unwrap(), NOW_S).is_ok(), "{text}");
    }
    let short = STANDARD.encode([1; 31]);
    for (text, why) in [
        ("", "0 bytes"),
        ("---\n", "0 bytes"),
        (&*format!("{one}\n---\n"), "secret 2 has 0 bytes"),
        (&*format!("{one}\n---\n{short}"), "secret 2 has 31 bytes"),
        ("swordfish swordfish", "line 1 of the secrets is not base64: it has ' '"),
        (&*format!("{first}\n# in between\n{second}"), "line 2"),
        (&one[..one.len() - 3], "not all of it"),
        (&*format!("{one}{one}"), "secret 1 is not base64"),
    ] {
        let error = Keys::parse(text).unwrap_err();
        assert!(error.to_string().contains(why), "{text}: {error}");
        assert!(!error.to_string().contains(&one[..20]));
    }
    assert!(Keys::parse(&STANDARD.encode([1; 32])).is_ok());
}

#[test]
fn other_forms_are_refused_in_words() {
    let made = minted(Grants::READ, None, "/a").text;
    let text = made.expose();
    let bytes = URL_SAFE_NO_PAD.decode(text).unwrap();
    // Both alphabets, with and without padding.
    for text in [text.to_owned(), STANDARD.encode(&bytes), format!(" {text}\n"), format!("{text}=")] {
        assert!(verified(&text).is_ok(), "{text}");
    }
    let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let packet = |key: &str, value: &str| format!("{:04x}{key} {value}\n", 6 + key.len() + value.len());
    let head = packet("location", "SITE") + &packet("identifier", "x");
    let third = head.clone() + &packet("cid", "x") + &packet("vid", "y") + &packet("cl", "z");
    let tail = packet("signature", &"s".repeat(32));
    for (text, why) in [
        (String::new(), "cut off"),
        ("eyJhbGciOi.x.y".to_owned(), "not base64"),
        ("{\"v\":2}".to_owned(), "JSON"),
        (encoded(b"\x02\x01\x04SITE"), "second binary format"),
        (encoded((third + &tail).as_bytes()), "third-party"),
        (encoded((head.clone() + &packet("cid", "x")).as_bytes()), "cut off"),
        (encoded((head.clone() + &packet("location", "SITE") + &tail).as_bytes()), "unknown kind"),
        (encoded((head.clone() + &packet("signature", "short")).as_bytes()), "32 bytes"),
        (encoded((packet("identifier", "x") + &packet("location", "y") + &tail).as_bytes()), "order"),
        (encoded((head.clone() + &tail + &tail).as_bytes()), "behind its signature"),
        (encoded((head.clone() + &tail).to_uppercase().as_bytes()), "order"),
        (encoded((head.clone() + "000Acid x\n" + &tail).as_bytes()), "cut off"),
        (encoded((head + &packet("cid", &"x".repeat(9000))).as_bytes()), "more than 8192 bytes"),
    ] {
        let refusal = verified(&text).unwrap_err();
        assert!(refusal.message.contains(why), "{refusal}: {text}");
    }
    let full = Caveat::Before(NOW_S + 5);
    let full = attenuate(text, &vec![full; limits::MACAROON_CAVEATS_MAX - 4]).unwrap();
    assert!(verified(full.expose()).is_ok());
    assert!(attenuate(full.expose(), &[Caveat::Before(NOW_S)]).unwrap_err().message.contains("64 caveats"));
    let long = Caveat::Name("x".repeat(7000));
    assert!(attenuate(text, &[long]).unwrap_err().message.contains("too long"));
}

#[test]
fn holders_attenuate() {
    let made = minted(Grants::READ.with(Grants::LIST), None, "/a").text;
    let network = Network::parse_list(["192.0.2.0/24"]).unwrap();
    let caveats = [
        Caveat::Activity(Grants::READ),
        Caveat::Path(path("/a/b")),
        Caveat::Before(NOW_S + 60),
        Caveat::Ip(network),
    ];
    let less = attenuate(made.expose(), &caveats).unwrap();
    let identity = verified(less.expose()).unwrap();
    assert_eq!((identity.capability.under, identity.expires_s), (path("/a/b"), NOW_S + 60));
    assert!(!identity.capability.may.includes(Operation::List));
    // Without the last caveat, and with the old signature or the new one.
    let (old, new) = (Macaroon::parse(made.expose()).unwrap(), Macaroon::parse(less.expose()).unwrap());
    let cut = Macaroon { caveats: new.caveats[..new.caveats.len() - 1].to_vec(), ..new.clone() };
    assert_eq!(cause(verified(cut.to_text().expose())), Cause::BadSignature);
    let mixed = Macaroon { signature: old.signature, ..new.clone() };
    assert_eq!(cause(verified(mixed.to_text().expose())), Cause::BadSignature);
    let mut turned = new.clone();
    turned.caveats.swap(0, 1);
    assert_eq!(cause(verified(turned.to_text().expose())), Cause::BadSignature);
}

#[test]
fn requests_in_json() {
    let parsed = |body: &str| Request::parse_json(body.as_bytes(), &path("/data/a/"));
    let request =
        parsed(r#"{"caveats": ["activity:DOWNLOAD,LIST", "path:sub/x"], "validity": "PT30M"}"#).unwrap();
    assert_eq!(request.path, path("/data/a/sub/x"));
    assert_eq!((request.validity_s, request.asked_s(0)), (Some(1800), Some(1800)));
    assert_eq!(request.activities, Some(grants_of("DOWNLOAD,LIST")));
    assert_eq!(parsed("{}").unwrap(), Request::at(&path("/data/a/")));
    let request = parsed(
        r#"{"caveats": ["path:/data/a/b", "before:2027-01-15T08:00:10Z", "ip:10.0.0.0/8", "activity:LIST,DELETE", "activity:LIST"],
            "validity": "PT1H", "other": 5}"#,
    )
    .unwrap();
    assert_eq!((request.path.to_string().as_str(), request.asked_s(NOW_S)), ("/data/a/b", Some(10)));
    assert_eq!((request.activities, request.networks.len()), (Some(grants_of("LIST")), 1));
    for body in [
        "",
        "[]",
        "{",
        r#"{"caveats": "activity:LIST"}"#,
        r#"{"caveats": [5]}"#,
        r#"{"caveats": [], "caveats": []}"#,
        r#"{"validity": 30}"#,
        r#"{"validity": "30M"}"#,
        r#"{"caveats": ["activity:SING"]}"#,
        r#"{"caveats": ["activity:"]}"#,
        r#"{"caveats": ["path:/data"]}"#,
        r#"{"caveats": ["path:/data/ab"]}"#,
        r#"{"caveats": ["path:../x"]}"#,
        r#"{"caveats": ["path:%2e%2e/x"]}"#,
        r#"{"caveats": ["path:x//y"]}"#,
        r#"{"caveats": ["name:root"]}"#,
        r#"{"caveats": ["max-upload:5"]}"#,
        r#"{"caveats": ["before:soon"]}"#,
        r#"{"caveats": ["ip:here"]}"#,
    ] {
        assert_eq!(parsed(body).unwrap_err().cause, Cause::Malformed, "{body}");
    }
    let many = format!(r#"{{"caveats": [{}]}}"#, vec!["\"activity:LIST\""; 65].join(","));
    assert!(parsed(&many).is_err());
    assert!(parsed(&format!("{}{{}}", " ".repeat(4095))).unwrap_err().message.contains("4096"));
    let root = Request::parse_json(br#"{"caveats": ["path:x"]}"#, &path("/")).unwrap();
    assert_eq!(root.path, path("/x"));
}

#[test]
fn requests_as_forms() {
    let parsed = |body: &str| Request::parse_form(body.as_bytes());
    let request =
        parsed("grant_type=client_credentials&expire_in=600&scope=DOWNLOAD%3A%2Fa+b%20LIST:/a").unwrap_err();
    assert!(request.message.contains("several paths") || request.message.contains("ACTIVITY:"), "{request}");
    for body in [
        "grant_type=client_credentials&expire_in=600&scope=DOWNLOAD%3A%2Fa%20LIST:/a",
        "scopes=DOWNLOAD:/a+LIST:/a&expire_in=600&grant_type=client_credentials&x=y\n",
    ] {
        let request = parsed(body).unwrap();
        assert_eq!((request.path, request.validity_s), (path("/a"), Some(600)), "{body}");
        assert_eq!(request.activities, Some(grants_of("DOWNLOAD,LIST")));
    }
    for body in [
        "",
        "grant_type=client_credentials",
        "grant_type=client_credentials&scope=",
        "grant_type=client_credentials&scope=LIST",
        "grant_type=client_credentials&scope=SING:/a",
        "grant_type=client_credentials&scope=LIST:/a/../b",
        "grant_type=client_credentials&scope=LIST:/a+LIST:/b",
        "grant_type=client_credentials&scope=LIST:/a&scopes=LIST:/a",
        "grant_type=client_credentials&scope=LIST:/a&expire_in=0",
        "grant_type=client_credentials&scope=LIST:/a&expire_in=-5",
        "grant_type=client_credentials&scope=LIST:/%ff",
        "grant_type=password&scope=LIST:/a",
        "scope=LIST:/a",
        "scope",
    ] {
        assert_eq!(parsed(body).unwrap_err().cause, Cause::Malformed, "{body}");
    }
    assert_eq!(parsed("grant_type=client_credentials&scope=LIST:").unwrap().path, path("/"));
}

#[test]
fn durations() {
    for (text, seconds) in [
        ("PT30M", Some(1800)),
        ("PT1H30M5S", Some(5405)),
        ("P1D", Some(86_400)),
        ("P1DT1S", Some(86_401)),
        ("P2W", Some(1_209_600)),
        ("PT90S", Some(90)),
        ("", None),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("PT0S", None),
        ("PT-5M", None),
        ("PT+5M", None),
        ("PT5", None),
        ("PTM", None),
        ("PT5M3H", None),
        ("P1M", None),
        ("P1Y", None),
        ("PT1.5H", None),
        ("pt5m", None),
        ("PT99999999999999999999S", None),
        ("PT9999999999999999999H", None),
    ] {
        assert_eq!(parse_duration_s(text).ok(), seconds, "{text}");
    }
    let day_s = 86_400;
    assert_eq!(lifetime_s(None, day_s, None, 0), 3600);
    assert_eq!(lifetime_s(Some(10 * day_s), day_s, None, 0), day_s);
    assert_eq!(lifetime_s(Some(600), day_s, Some(NOW_S + 5), NOW_S), 5);
    assert_eq!(lifetime_s(Some(600), day_s, Some(NOW_S - 5), NOW_S), 0);
}

#[test]
fn nobody_gets_more_than_they_have() {
    let asked = |words: Option<&str>| Request { activities: words.map(grants_of), ..Request::at(&path("/")) };
    let rights = Grants::READ.with(Grants::LIST);
    let stat = Grants::of(Operation::Stat);
    for (words, rights, expected) in [
        (None, rights, Some(rights.with(stat))),
        (Some("DOWNLOAD,MANAGE"), rights, Some(Grants::READ.with(stat))),
        (Some("READ_METADATA"), rights, Some(stat)),
        (Some("READ_METADATA"), Grants::NONE, None),
        (Some("DELETE,UPLOAD"), rights, None),
        (Some("UPDATE_METADATA"), Grants::ADMIN, None),
        (None, Grants::NONE, None),
    ] {
        assert_eq!(asked(words).granted(rights), expected, "{words:?}");
    }
}

proptest! {
    #[test]
    fn what_is_changed_is_refused(at in any::<prop::sample::Index>(), bit in 0_u8..8, how in 0..5) {
        let made = minted(Grants::WRITE, Some(Grants::CREATE), "/a/b").text;
        let bytes = URL_SAFE_NO_PAD.decode(made.expose()).unwrap();
        let at = at.index(bytes.len());
        let mut changed = bytes.clone();
        match how {
            0 => changed[at] ^= 1_u8 << bit,
            1 => changed.truncate(at),
            2 => { changed.remove(at); }
            3 => changed.insert(at, b'0' + bit),
            _ => changed.extend_from_slice(&bytes),
        }
        prop_assume!(changed != bytes);
        prop_assert!(verified(&URL_SAFE_NO_PAD.encode(&changed)).is_err());
    }

    #[test]
    fn a_caveat_never_adds_anything(words in "[A-Z_,]{0,30}", name in "[a-z]{1,3}", end_s in 0_i64..2_000_000_000) {
        let made = minted(Grants::WRITE, None, "/a").text;
        let before = verified(made.expose()).unwrap();
        let caveats = [
            Caveat::Activity(grants_of(&words)),
            Caveat::Path(path("/").join(name.as_bytes())),
            Caveat::Before(end_s),
        ];
        let less = attenuate(made.expose(), &caveats).unwrap();
        if let Ok(after) = verified(less.expose()) {
            prop_assert_eq!(after.capability.may.and(before.capability.may), after.capability.may);
            prop_assert!(after.expires_s <= before.expires_s);
            prop_assert!(after.capability.may.is_empty() || is_below(&after.capability.under, &before.capability.under));
        }
    }

    #[test]
    fn words_never_grant_more(bits in 0_u16..0x400) {
        let all = (0..10).filter(|bit| bits & 1 << bit != 0).fold(Grants::NONE, |all, bit| {
            use Operation::*;
            let operations = [Stat, Read, List, Create, Mkdir, Overwrite, Delete, Rename, Stage, Admin];
            all.with(Grants::of(operations[bit]))
        });
        let back = grants_of(&words_of(all));
        let stat = Grants::of(Operation::Stat);
        prop_assert_eq!(back.with(Grants::of(Operation::Admin)).with(stat), all.with(Grants::of(Operation::Admin)).with(stat));
    }

    #[test]
    fn caveats_are_read_as_written(bytes in prop::collection::vec(any::<u8>(), 0..40), number in 0..253_402_300_799_i64) {
        if let Ok(caveat) = Caveat::parse(&bytes) {
            prop_assert_eq!(Caveat::parse(&caveat.to_bytes()), Ok(caveat));
        }
        prop_assert_eq!(Caveat::parse(&Caveat::Before(number).to_bytes()), Ok(Caveat::Before(number)));
    }
}
