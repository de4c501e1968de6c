//! Names are chosen by others, and are data: whatever they look like.

use gridlane_core::Result;
use gridlane_jobs::{FileState::*, JobKind, JobState};
use serde_json::json;

use super::found::Found;
use super::make::{change, id, job, made, numbered, one, submit};
use crate::store::{Beat, Filter, JobFilter, JobStore, Setting, Write};

pub(super) fn check(store: &dyn JobStore, found: &mut Found) -> Result<()> {
    let long = "n".repeat(1 << 20);
    let names = [
        "'; DROP TABLE file; --",
        "\"quoted\" \\back\\slash\\ $1 ?1 :a @a {}",
        "100 % _ done",
        "zero \0 in it",
        "\0",
        "\u{1a}0 and \u{1a}",
        "line\nfeed\r\ttab\u{7f}",
        "ß é 漢字 \u{1f680} \u{202e}",
        "",
        " ",
        "NULL",
        long.as_str(),
    ];
    for (number, name) in (500..).zip(names) {
        let shown: String = name.escape_debug().take(40).collect();
        let mut new = job(number, JobKind::Plain, &[Submitted, Active]);
        new.job.owner.user_dn = name.to_owned();
        new.job.owner.vo = format!("vo {name}");
        new.job.owner.delegation_id = name.to_owned();
        new.job.source_se = Some(name.into());
        new.job.submit_host = name.to_owned();
        new.job.reason = Some(name.to_owned());
        new.job.metadata = Some(json!({name: name}));
        new.job.params.source_spacetoken = name.to_owned();
        for file in &mut new.files {
            file.source = name.to_owned();
            file.destination = format!("{}{name}", file.index);
            file.link.destination = name.into();
            file.vo.clone_from(&new.job.owner.vo);
            file.activity = name.to_owned();
            file.checksum = name.to_owned();
            file.metadata = Some(json!([name]));
            file.staging_metadata = Some(json!({"a": name}));
            file.reason = Some(name.to_owned());
            file.transfer_host = Some(name.to_owned());
            file.bringonline_token = Some(name.to_owned());
            file.tokens = Some((name.to_owned(), name.to_owned()));
        }
        new.has_unique_destinations = true;
        let files = submit(store, new.clone())?;
        found.same(&format!("{shown:?} comes back in a job"), store.job(id(number))?, Some(new.job.clone()));
        let expected = numbered(&new, &files);
        let is = store.files(id(number), None, 0)? == expected;
        found.holds(&format!("{shown:?} comes back in files"), is);

        let by = JobFilter {
            user_dn: Some(name.to_owned()),
            vo: Some(format!("vo {name}")),
            delegation_id: Some(name.to_owned()),
            source_se: Some(name.into()),
            ..JobFilter::default()
        };
        let ids: Vec<_> = store.jobs(&by)?.into_iter().map(|job| job.id).collect();
        found.same(&format!("jobs of {shown:?} are found, and no others"), ids, vec![id(number)]);
        let by = Filter {
            destination: Some(format!("1{name}")),
            dest_se: Some(name.into()),
            transfer_host: Some(name.to_owned()),
            ..Filter::default()
        };
        let ids: Vec<_> = store.files_like(&by)?.into_iter().map(|file| file.id).collect();
        found.same(&format!("files of {shown:?} are found, and no others"), ids, files[1..].to_vec());

        let mut failed = change(files[0], &[Submitted], Failed, 1);
        failed.if_host = Some(name.to_owned());
        failed.news.reason = Some(name.to_owned());
        failed.news.has_failed = true;
        failed.news.transfer_host = Some(Some(format!("{name}.")));
        failed.news.dst_file = Some(json!(name));
        made(one(store, Write::Change(Box::new(failed)))?)?;
        let attempts = store.attempts(files[0])?;
        let is = attempts.iter().any(|attempt| attempt.reason == name && attempt.transfer_host == name);
        found.holds(&format!("{shown:?} comes back in an attempt"), is);
        let reason = format!("because of {name}");
        made(one(store, Write::Cancel { job: id(number), files: None, reason: reason.clone(), at_s: 2 })?)?;
        let is = store
            .job(id(number))?
            .is_some_and(|job| job.reason == Some(reason) && job.state == JobState::Canceled);
        found.holds(&format!("{shown:?} comes back in a reason"), is);

        for value in [Some(json!({"is": name})), None] {
            let is_there = value.is_some();
            let (text, kind) = (name.to_owned(), Setting::BannedUser);
            made(one(
                store,
                Write::Set { kind, name: text.clone(), value, by: text.clone(), action: text, at_s: 3 },
            )?)?;
            let settings = store.settings(kind)?;
            let is = settings.iter().any(|(text, value)| text == name && *value == json!({"is": name}));
            found.same(&format!("{shown:?} is a setting like others"), is, is_there);
            let is = store.audit(1)?.iter().any(|audit| audit.by == name && audit.action == name);
            found.holds(&format!("{shown:?} comes back in the audit"), is);
        }
        made(one(store, Write::Beat(Beat { host: name.to_owned(), at_s: 1, is_draining: false }))?)?;
        let is = store.hosts()?.iter().any(|host| host.beat.host == name);
        found.holds(&format!("{shown:?} comes back as a broker"), is);
    }
    Ok(())
}
