//! Settings with their audit, brokers, and the right to decide.

use gridlane_core::Result;
use gridlane_jobs::{FileState, FileState::*, JobKind};
use serde_json::json;

use super::found::Found;
use super::make::{change, job, made, one, submit};
use crate::store::{Audit, Beat, Host, JobStore, Setting, Write, Written};

pub(super) fn check(store: &dyn JobStore, found: &mut Found) -> Result<()> {
    let set = |kind, name: &str, value, at_s| {
        let (name, by, action) = (name.to_owned(), "/CN=Op".to_owned(), format!("at {at_s}"));
        one(store, Write::Set { kind, name, value, by, action, at_s })
    };
    found.same(
        "a setting is made",
        set(Setting::Link, "b", Some(json!({"max": 4})), 1)?,
        Ok(Written::Done(1)),
    );
    made(set(Setting::Link, "a", Some(json!([1, "é\u{0}"])), 2)?)?;
    made(set(Setting::Link, "B", Some(json!(null)), 3)?)?;
    made(set(Setting::Storage, "b", Some(json!(false)), 4)?)?;
    made(set(Setting::Link, "b", Some(json!({"max": 5})), 5)?)?;
    found.same(
        "a setting that is not there is not removed",
        set(Setting::Share, "b", None, 6)?,
        Ok(Written::Done(0)),
    );
    found.same("one that is there is", set(Setting::Storage, "b", None, 7)?, Ok(Written::Done(1)));
    made(set(Setting::Decision, "a|b", Some(json!(9)), 8)?)?;
    let named = |name: &str, value| (name.to_owned(), value);
    let links =
        vec![named("B", json!(null)), named("a", json!([1, "é\u{0}"])), named("b", json!({"max": 5}))];
    found.same("settings are in order, each as it was made last", store.settings(Setting::Link)?, links);
    found.same("kinds are apart", store.settings(Setting::Storage)?, Vec::new());
    found.same(
        "decisions are kept as well",
        store.settings(Setting::Decision)?,
        vec![named("a|b", json!(9))],
    );
    let audit = store.audit(2)?;
    let entry = |at_s: i64, subject: &str| Audit {
        at_s,
        by: "/CN=Op".to_owned(),
        subject: subject.to_owned(),
        action: format!("at {at_s}"),
    };
    found.same(
        "changes are known, the last one first",
        audit,
        vec![entry(7, "storage b"), entry(5, "link b")],
    );
    found.same("all of them", store.audit(0)?.len(), 6);

    hosts(store, found)?;
    leader(store, found)
}

fn hosts(store: &dyn JobStore, found: &mut Found) -> Result<()> {
    found.same("there is no broker before it lives", store.hosts()?, Vec::new());
    let beat = |host: &str, at_s, is_draining| Beat { host: host.to_owned(), at_s, is_draining };
    for one in [beat("z", 5, false), beat("broker-9", 6, false), beat("z", 7, true)] {
        store.write(&[Write::Beat(one)])?;
    }
    let files = submit(store, job(401, JobKind::Plain, &[Submitted, Submitted, Staging, Submitted]))?;
    let give = |file, to: FileState| {
        let mut given = change(file, &[Submitted, Staging], to, 8);
        given.news.transfer_host = Some(Some("broker-9".to_owned()));
        one(store, Write::Change(Box::new(given)))
    };
    made(give(files[0], Active)?)?;
    made(give(files[1], Ready)?)?;
    made(give(files[2], Started)?)?;
    made(give(files[3], Finished)?)?;
    let expected = vec![
        Host { beat: beat("broker-9", 6, false), active: 2, staging: 1 },
        Host { beat: beat("z", 7, true), active: 0, staging: 0 },
    ];
    found.same("brokers are known by name, with what they do", store.hosts()?, expected);
    Ok(())
}

fn leader(store: &dyn JobStore, found: &mut Found) -> Result<()> {
    let lead = |host: &str, until_s, at_s| one(store, Write::Lead { host: host.to_owned(), until_s, at_s });
    found.same("nobody decides at first", store.leader()?, None);
    found.same("one broker takes the right", lead("one", 20, 10)?, Ok(Written::Leads(true)));
    found.same("another does not", lead("two", 30, 19)?, Ok(Written::Leads(false)));
    found.same("the one that has it keeps it", lead("one", 25, 19)?, Ok(Written::Leads(true)));
    found.same("and is known", store.leader()?, Some(("one".to_owned(), 25)));
    found.same("it is not over before its time", lead("two", 30, 24)?, Ok(Written::Leads(false)));
    found.same("and then it is", lead("two", 40, 25)?, Ok(Written::Leads(true)));
    found.same("and another broker has it", store.leader()?, Some(("two".to_owned(), 40)));
    Ok(())
}
