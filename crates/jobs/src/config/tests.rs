//! Settings by the words of fts3-rest 3.4, 3.5 and 9.

use std::collections::BTreeMap;

use gridlane_core::Secret;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::{Link, Operation};
use crate::{Refusal, Storage};

fn fields(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn refused<T: std::fmt::Debug>(asked: Result<T, Refusal>) -> String {
    let refusal = asked.unwrap_err();
    assert_eq!(refusal.status, 400);
    refusal.message
}

fn link(source: &str, destination: &str) -> Link {
    Link { source: source.into(), destination: destination.into() }
}

#[test]
fn a_link_is_made_changed_and_answered() {
    let asked = |value: Value, before: Option<&LinkRule>| LinkRule::asked(&fields(value), before);
    let made = asked(
        json!({"symbolicname": "a-b", "source": "Davs://A.example:443/x", "destination": "davs://b"}),
        None,
    )
    .unwrap();
    let answer = json!({
        "source": "davs://a.example", "destination": "davs://b", "symbolicname": "a-b", "min_active": 2, "max_active": 2,
        "optimizer_mode": null, "tcp_buffer_size": null, "nostreams": null, "no_delegation": false,
    });
    assert_eq!(serde_json::to_value(&made).unwrap(), answer);
    assert_eq!(serde_json::from_value::<LinkRule>(answer).unwrap(), made);
    let change = json!({"symbolicname": "a-b", "max_active": "40", "nostreams": 4, "no_delegation": "on", "optimizer_mode": 2});
    let changed = asked(change, Some(&made)).unwrap();
    assert_eq!((changed.source, changed.max_active, changed.streams), (made.source.clone(), 40, Some(4)));
    assert!(changed.no_delegation && made.replaces(&LinkRule { name: "other".into(), ..made.clone() }));
    assert!(!made.replaces(&LinkRule { name: "other".into(), source: "davs://c".into(), ..made.clone() }));
    for (value, message) in [
        (json!({"source": "davs://a"}), "Missing symbolicname"),
        (json!({"symbolicname": "x", "source": null}), "Missing source and/or destination"),
        (json!({"symbolicname": "x", "source": "nonsense"}), "Invalid source"),
        (
            json!({"symbolicname": "x", "min_active": 5, "max_active": 4}),
            "max_active is lower than min_active",
        ),
        (json!({"symbolicname": "x", "nonsense": 1}), "Field nonsense unknown"),
        (json!({"symbolicname": "x", "nostreams": "x"}), "Field nostreams is expected to be int"),
    ] {
        assert_eq!(refused(asked(value, None)), message);
    }
    let message = refused(asked(json!({"symbolicname": "x", "min_active": -1}), None));
    assert!(message.starts_with("Active must be an integer"), "{message}");
}

#[test]
fn the_nearest_settings_of_a_link_hold() {
    let rule = |source: &str, destination: &str| LinkRule {
        source: source.into(),
        destination: destination.into(),
        name: format!("{source}-{destination}"),
        ..LinkRule::shipped()
    };
    let rules = [rule("a", "b"), rule("a", "*"), rule("*", "b"), rule("*", "*")];
    let found = |links: &Links, source: &str, destination: &str| {
        links.of(&link(source, destination)).map(|rule| rule.name.clone())
    };
    let links = Links::new(rules.clone());
    for (source, destination, name) in
        [("a", "b", "a-b"), ("a", "c", "a-*"), ("c", "b", "*-b"), ("c", "d", "*-*")]
    {
        assert_eq!(found(&links, source, destination).as_deref(), Some(name));
    }
    let [_, of_source, of_destination, _] = rules;
    let links = Links::new([of_destination, of_source]);
    assert_eq!(found(&links, "a", "b").as_deref(), Some("a-*"), "the source's are nearer");
    assert_eq!(found(&links, "c", "d"), None);
}

#[test]
fn a_storage_is_set_changed_and_answered() {
    let asked = |value: Value, before: Option<StorageRule>| {
        StorageRule::asked(&fields(value), &move |_| before.clone())
    };
    let value = json!({"davs://A.example:8443": {
        "se_info": {"inbound_max_active": "20", "outbound_max_throughput": 10, "site": "S", "tpc_support": "PULL", "udt": null},
        "operations": {"dteam": {"staging": 5, "delete": "7"}},
    }});
    let made = asked(value, None).unwrap();
    assert_eq!(made[0].0, "davs://a.example".into());
    let rule = &made[0].1;
    assert_eq!((rule.inbound_max_active, rule.outbound_max_mib_per_s), (Some(20), Some(10.0)));
    assert_eq!((rule.tpc_support, rule.operations["dteam"]["delete"]), (Some(TpcSupport::Pull), 7));
    let answer = rule.answer();
    assert_eq!(answer["se_info"]["tpc_support"], "PULL");
    assert_eq!(answer["operations"], json!({"dteam": {"staging": 5, "delete": 7}}));
    assert_eq!(answer["se_info"].get("operations"), None);
    let again: StorageRule = serde_json::from_value(serde_json::to_value(rule).unwrap()).unwrap();
    assert_eq!(&again, rule);
    let change = json!({"davs://a.example": {"operations": {"dteam": {"staging": 0, "delete": -1}}}});
    let changed = asked(change, Some(rule.clone())).unwrap();
    assert_eq!((changed[0].1.operations.len(), changed[0].1.inbound_max_active), (0, Some(20)));
    assert_eq!(asked(json!({"*": {}}), None).unwrap(), [(Storage::from("*"), StorageRule::default())]);
    let twice = json!({"davs://A": {"se_info": {"ipv6": 1}}, "davs://a": {"se_info": {"udt": 1}}});
    let twice = asked(twice, None).unwrap();
    assert_eq!((twice.len(), twice[0].1.ipv6, twice[0].1.udt), (1, Some(1), Some(1)));
    for (value, message) in [
        (json!({"nonsense": {}}), "Malformed configuration"),
        (json!({" ": {}}), "Malformed configuration"),
        (json!({"davs://a": 3}), "Malformed configuration"),
        (json!({"davs://a": {"operations": {"dteam": 1}}}), "Malformed configuration"),
        (json!({"davs://a": {"se_info": {"nonsense": 1}}}), "Field nonsense unknown"),
        (json!({"davs://a": {"se_info": {"site": 1}}}), "Field site is expected to be str"),
        (
            json!({"davs://a": {"se_info": {"inbound_max_active": "x"}}}),
            "Field inbound_max_active is expected to be int",
        ),
        (
            json!({"davs://a": {"se_info": {"tpc_support": "BOTH"}}}),
            "Field tpc_support is expected to be one of the following: FULL, PULL, PUSH, NONE",
        ),
        (
            json!({"davs://a": {"operations": {"dteam": {"staging": "x"}}}}),
            "Field concurrent_ops is expected to be int",
        ),
    ] {
        assert_eq!(refused(asked(value, None)), message);
    }
}

#[test]
fn settings_of_a_storage_hide_those_of_all_as_a_whole() {
    let own = StorageRule {
        inbound_max_active: Some(20),
        outbound_max_mib_per_s: Some(2.0),
        ..StorageRule::default()
    };
    let tape = BTreeMap::from([("dteam".to_owned(), BTreeMap::from([("staging".to_owned(), 9)]))]);
    let all = StorageRule { operations: tape, ..StorageRule::shipped() };
    let storages = Storages::new([("davs://a".into(), own), (Storage::ANY.into(), all)]);
    let limits = |storage: &str| storages.limits(&storage.into());
    let hidden = StorageLimits {
        inbound: 20,
        outbound: 60,
        inbound_bytes_per_s: None,
        outbound_bytes_per_s: Some(2.0 * 1_048_576.0),
    };
    assert_eq!(limits("davs://a"), hidden);
    assert_eq!((limits("davs://b").inbound, limits("davs://b").outbound), (200, 200));
    assert_eq!(Storages::default().limits(&"davs://b".into()).inbound, 60);
    assert_eq!(storages.operations(&"davs://b".into(), "dteam", "staging"), Some(9));
    assert_eq!(storages.operations(&"davs://a".into(), "dteam", "staging"), None);
}

#[test]
fn shares_of_vos_are_weights_of_those_that_wait() {
    let asked = |value: Value| Share::asked(&fields(value));
    let share =
        asked(json!({"source": "davs://A:1/x", "destination": "*", "vo": "dteam", "share": "80"})).unwrap();
    assert_eq!((share.key().as_str(), share.share), ("davs://a|*|dteam", 80));
    let key = Share::key_asked(&fields(json!({"source": "davs://a", "destination": "*", "vo": "dteam"})));
    assert_eq!(key.unwrap(), share.key());
    for (value, message) in [
        (json!({"source": "davs://a", "destination": "davs://b", "vo": "x"}), "Bad share value"),
        (json!({"share": -1}), "Bad share value"),
        (json!({"share": 5, "vo": "x"}), "Missing source, destination, vo and/or share"),
        (
            json!({"source": "davs://a", "destination": "davs://b", "vo": "x", "share": 0}),
            "Missing source, destination, vo and/or share",
        ),
        (json!({"source": "a", "destination": "davs://b", "vo": "x", "share": 5}), "Invalid source"),
    ] {
        assert_eq!(refused(asked(value)), message);
    }
    assert_eq!(refused(Share::key_asked(&Map::new())), "Missing source, destination and/or vo");

    let shares =
        |shares: &[(&str, u32)]| shares.iter().map(|(vo, share)| ((*vo).to_owned(), *share)).collect();
    let vos = ["dteam", "atlas", "cms"];
    assert_eq!(weight_of_vo(&BTreeMap::new(), "cms", &vos), Weight::Of(1.0));
    let listed = shares(&[("dteam", 60), ("public", 40)]);
    assert_eq!(weight_of_vo(&listed, "dteam", &vos), Weight::Of(60.0));
    assert_eq!(weight_of_vo(&listed, "cms", &vos), Weight::Of(20.0), "two are not listed");
    assert_eq!(weight_of_vo(&listed, "cms", &["cms"]), Weight::Of(40.0));
    assert_eq!(weight_of_vo(&shares(&[("dteam", 60)]), "cms", &vos), Weight::None);
}

#[test]
fn shares_of_activities_have_a_default() {
    let asked = |value: Value| ActivityShare::asked(&fields(value));
    let made = asked(json!({"vo": "atlas", "share": [{"Production": 70}, {"default": 2.5}], "active": true}))
        .unwrap();
    assert_eq!(asked(json!({"vo": "atlas", "share": {"Production": 70, "default": 2.5}})).unwrap(), made);
    assert_eq!((made.weight("pRODUCTION"), made.weight("x")), (Some(70.0), Some(2.5)));
    assert_eq!(made.answer(), json!({"share": {"Production": 70.0, "default": 2.5}, "active": true}));
    let bare = asked(json!({"vo": "atlas", "share": {"a": 1}, "active": "off"})).unwrap();
    assert_eq!((bare.weight("x"), bare.active), (None, false));
    let form = "share is expected to be a single JSON object with activity names and respective weights";
    for (value, message) in [
        (json!({"share": {"a": 1}}), "Missing VO"),
        (json!({"vo": "x"}), "Missing share"),
        (json!({"vo": "x", "share": {}}), "Missing share"),
        (json!({"vo": "x", "share": [1]}), form),
        (json!({"vo": "x", "share": "a"}), form),
        (json!({"vo": "x", "share": {"a": "1"}}), "Share weight must be a number"),
        (json!({"vo": "x", "share": {"a": -1}}), "Share weight must be a number"),
    ] {
        assert_eq!(refused(asked(value)), message);
    }
}

#[test]
fn settings_of_a_vo_fall_back_to_those_of_all() {
    let asked = |value: Value, before: Option<&Global>| Global::asked(&fields(value), before);
    let all = asked(json!({"retry": 3, "max_time_queue": "24", "no_streaming": true}), None).unwrap();
    assert_eq!(all.vo_name, "*");
    let own = asked(json!({"vo_name": "dteam", "retry": 5, "sec_per_mb": 4}), None).unwrap();
    let globals = Globals::new([all.clone(), own]);
    let of = globals.of("dteam");
    assert_eq!((of.retry, of.queue_max_hours, of.s_per_mib, of.no_streaming), (5, 24, 4, true));
    assert_eq!((globals.of("x").retry, globals.of("x").vo_name.as_str()), (3, "x"));
    let answer = globals.answer();
    let expected = json!({
        "vo_name": "*", "retry": 3, "max_time_queue": 24, "global_timeout": 0, "sec_per_mb": 0, "no_streaming": true,
        "show_user_dn": false,
    });
    assert_eq!((&answer["*"], answer["dteam"]["retry"].as_u64()), (&expected, Some(5)));
    assert_eq!(Globals::new([]).answer()["*"]["retry"], 0);
    let changed = asked(json!({"show_user_dn": "yes"}), Some(&all)).unwrap();
    assert!(changed.show_user_dn && changed.retry == 3);
    assert_eq!(refused(asked(json!({"nonsense": 1}), None)), "Field nonsense unknown");
    assert_eq!(refused(asked(json!({"retry": -1}), None)), "Field retry is expected to be int");
    assert_eq!(
        refused(asked(json!({"no_streaming": null}), None)),
        "Field no_streaming is expected to be bool"
    );
    assert_eq!(refused(Global::vo_deleted(&fields(json!({"vo_name": "*"})))), "Missing VO name");
    assert_eq!(Global::vo_deleted(&fields(json!({"vo_name": "dteam"}))).unwrap(), "dteam");
}

#[test]
fn storages_are_banned_for_the_vo_of_the_one_that_asks() {
    let asked = |value: Value| Ban::asked(&fields(value), "dteam", "/CN=Ada", 951_827_696);
    let ban = asked(json!({"storage": "davs://A:443", "status": "wait", "timeout": 5, "allow_submit": true, "message": "m"})).unwrap();
    let answer = json!({
        "se": "davs://a", "vo": "dteam", "status": "WAIT_AS", "addition_time": "2000-02-29T12:34:56", "admin_dn": "/CN=Ada",
        "message": "m",
    });
    assert_eq!((ban.answer(), ban.key()), (answer, "davs://a|dteam".to_owned()));
    assert_eq!(ban.action(), "Storage davs://a for dteam banned (WAIT)");
    assert_eq!(serde_json::from_value::<Ban>(serde_json::to_value(&ban).unwrap()).unwrap(), ban);
    assert!(ban.is_for(&"davs://a".into(), "dteam") && !ban.is_for(&"davs://a".into(), "atlas"));
    assert!(Ban { vo: "*".into(), ..ban }.is_for(&"davs://a".into(), "atlas"));
    assert_eq!(asked(json!({"storage": "davs://a"})).unwrap().effect, BanEffect::Cancel);
    for (value, message) in [
        (json!({}), "Missing storage parameter"),
        (json!({"storage": ""}), "Missing storage parameter"),
        (json!({"storage": "davs://a", "status": "x"}), "status can only be cancel or wait"),
        (
            json!({"storage": "davs://a", "allow_submit": "true"}),
            "allow_submit and status = CANCEL can not be combined",
        ),
        (json!({"storage": "a"}), "Invalid storage"),
    ] {
        assert_eq!(refused(asked(value)), message);
    }
}

#[test]
fn users_are_banned_but_for_oneself() {
    let asked = |value: Value| UserBan::asked(&fields(value), "/CN=Ada", 0);
    let ban = asked(json!({"user_dn": "/CN=Bob", "message": "m"})).unwrap();
    assert_eq!(
        (ban.answer()["dn"].as_str(), ban.answer()["admin_dn"].as_str()),
        (Some("/CN=Bob"), Some("/CN=Ada"))
    );
    assert_eq!(asked(json!({"user_dn": "/CN=Ada"})).unwrap_err().status, 409);
    assert_eq!(refused(asked(json!({}))), "Missing dn parameter");
    assert_eq!(refused(UserBan::lifted(&Map::new())), "Missing user_dn parameter");
}

#[test]
fn operations_are_granted_and_revoked() {
    let grant = Grant::asked(&fields(json!({"dn": "/CN=Ada", "operation": "config"}))).unwrap();
    assert_eq!((grant.key().as_str(), grant.operation), ("config|/CN=Ada", Operation::Config));
    assert_eq!(serde_json::to_value(&grant).unwrap(), json!({"dn": "/CN=Ada", "operation": "config"}));
    let refusal = |value: Value| refused(Grant::asked(&fields(value)));
    assert_eq!(refusal(json!({"dn": "/CN=Ada"})), "Missing dn and/or operation");
    assert_eq!(
        refusal(json!({"dn": "x", "operation": "admin"})),
        "'admin' level can only be changed via database access"
    );
    assert_eq!(refusal(json!({"dn": "x", "operation": "fly"})), "There is no operation fly");
    let all = Revocation::asked(&fields(json!({"dn": "/CN=Ada"}))).unwrap();
    let other = Revocation::asked(&fields(json!({"dn": "/CN=Ada", "operation": "deleg"}))).unwrap();
    assert!(all.is_for(&grant) && !other.is_for(&grant));
    assert!(!all.is_for(&Grant { operation: Operation::Admin, ..grant }), "it was not granted by request");
    assert_eq!(refused(Revocation::asked(&Map::new())), "Missing DN parameter");
}

#[test]
fn brokers_are_drained_and_issuers_known() {
    let asked = |value: Value| Drain::asked(&fields(value));
    assert!(asked(json!({"hostname": "h"})).unwrap().is_draining);
    assert!(!asked(json!({"hostname": "h", "drain": false})).unwrap().is_draining);
    for value in [json!({}), json!({"hostname": 5}), json!({"hostname": "h", "drain": 1})] {
        assert_eq!(refused(asked(value)), "Invalid drain request");
    }
    let providers = [TokenProvider::new("https://iam.example", "id", Secret::new("s"))];
    assert!(TokenProvider::of(&providers, "https://iam.example/").is_ok());
    let message = refused(TokenProvider::of(&providers, "https://other.example"));
    assert_eq!(message, "Transfer access-token has unknown issuer: issuer=https://other.example/");
}

proptest! {
    /// Whatever a client sends as a setting is refused with a reason, or gives a setting that is kept and read as it is.
    #[test]
    fn any_setting_is_refused_or_kept(
        name in prop::sample::select(vec!["source", "min_active", "optimizer_mode", "vo", "share", "retry", "storage", "davs://a"]),
        value in prop_oneof![
            Just(json!(null)), any::<i64>().prop_map(Value::from), any::<i32>().prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)),
            "\\PC{0,9}".prop_map(Value::from), Just(json!({"se_info": {"inbound_max_throughput": 1e15}})), Just(json!([{"a": 1}])),
        ],
    ) {
        let mut asked = fields(json!({"symbolicname": "n", "vo": "v", "source": "davs://a", "destination": "davs://b"}));
        asked.insert(name.to_owned(), value.clone());
        fn kept<T>(setting: Result<T, Refusal>) -> bool
        where
            T: serde::Serialize + serde::de::DeserializeOwned + PartialEq,
        {
            match setting {
                Ok(setting) => {
                    let json = serde_json::to_string(&setting).unwrap_or_default();
                    serde_json::from_str::<T>(&json).is_ok_and(|again| again == setting)
                }
                Err(refusal) => (400..500).contains(&refusal.status) && !refusal.message.is_empty(),
            }
        }
        prop_assert!(kept(LinkRule::asked(&asked, None)));
        prop_assert!(kept(Share::asked(&asked)));
        prop_assert!(kept(ActivityShare::asked(&asked)));
        prop_assert!(kept(Ban::asked(&asked, "v", "/CN=Ada", 0)));
        let alone = fields(json!({name: value}));
        prop_assert!(kept(Global::asked(&alone, None)));
        prop_assert!(kept(StorageRule::asked(&alone, &|_| None)));
    }
}
