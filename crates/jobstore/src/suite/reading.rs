//! Questions, the queues at a start, and the archive.

use gridlane_core::{Error, ErrorKind, Result};
use gridlane_jobs::{
    File, FileId, FileState, FileState::*, FileStates, Job, JobId, JobKind, JobState, NewJob,
};

use super::found::Found;
use super::make::{change, go, id, job, made, one, states, submit, the_file, the_job};
use crate::store::{Filter, JobFilter, JobStore, Order, Setting, Waiting, Write, Written};

/// All jobs with their files, and settings.
pub(super) type Everything = (Vec<Job>, Vec<File>, Vec<(String, serde_json::Value)>);

pub(super) fn everything(store: &dyn JobStore) -> Result<Everything> {
    let mut settings = Vec::new();
    for kind in Setting::ALL {
        settings.extend(store.settings(kind)?);
    }
    Ok((store.jobs(&JobFilter::default())?, store.files_like(&Filter::default())?, settings))
}

/// Jobs of another VO and user than those of other parts of the suite.
fn ours(number: u128, states: &[FileState]) -> NewJob {
    let mut new = job(number, JobKind::Plain, states);
    new.job.owner.vo = "cms".to_owned();
    new.job.owner.user_dn = "/CN=Grace".to_owned();
    new.job.owner.delegation_id = format!("{:016x}", number % 2);
    for file in &mut new.files {
        file.vo = "cms".to_owned();
    }
    new
}

pub(super) fn check(store: &dyn JobStore, found: &mut Found) -> Result<()> {
    let one_source = submit(store, ours(301, &[Submitted; 2]))?;
    let ended = submit(store, ours(302, &[Submitted; 2]))?;
    let mut mixed = ours(303, &[Submitted, Staging]);
    mixed.job.source_se = None;
    mixed.files[1].link.source = "davs://c.example".into();
    let mixed = submit(store, mixed)?;
    made(go(store, ended[0], Finished, 1000)?)?;
    made(go(store, ended[1], Failed, 2000)?)?;
    let mut active = change(mixed[0], &[Submitted], Active, 2001);
    active.news.transfer_host = Some(Some("broker-3".to_owned()));
    made(one(store, Write::Change(Box::new(active)))?)?;

    jobs(store, found)?;
    files(store, found, &one_source, &ended, &mixed)?;
    queues(store, found)?;

    let all = store.files(id(301), None, 0)?;
    found.same("files are read from one on", store.files(id(301), Some(all[0].id), 0)?, all[1..].to_vec());
    found.same("and up to a limit", store.files(id(301), None, 1)?, all[..1].to_vec());
    Ok(())
}

fn jobs(store: &dyn JobStore, found: &mut Found) -> Result<()> {
    let ask = |filter: &JobFilter| -> Result<Vec<JobId>> {
        Ok(store.jobs(filter)?.into_iter().map(|job| job.id).collect())
    };
    let cms = JobFilter { vo: Some("cms".to_owned()), ..JobFilter::default() };
    let all = [id(303), id(302), id(301)];
    let open = [all[0], all[2]];
    let cases: [(&str, JobFilter, &[JobId]); 16] = [
        ("jobs of a VO, the newest first", cms.clone(), &all),
        ("the oldest first", JobFilter { order: Order::Oldest, limit: 1, ..cms.clone() }, &[id(301)]),
        ("so many", JobFilter { limit: 2, ..cms.clone() }, &all[..2]),
        ("open ones", JobFilter { is_open: true, ..cms.clone() }, &open),
        (
            "by state",
            JobFilter { states: Some(vec![JobState::FinishedDirty, JobState::Failed]), ..cms.clone() },
            &all[1..2],
        ),
        ("by no state at all", JobFilter { states: Some(Vec::new()), ..cms.clone() }, &[]),
        ("that ended since", JobFilter { ended_since_s: Some(2000), ..cms.clone() }, &all[1..2]),
        ("and not before", JobFilter { ended_since_s: Some(2001), ..cms.clone() }, &[]),
        (
            "that ended since, of whatever VO",
            JobFilter {
                ended_since_s: Some(2000),
                user_dn: Some("/CN=Grace".to_owned()),
                ..JobFilter::default()
            },
            &all[1..2],
        ),
        (
            "by delegation",
            JobFilter { delegation_id: Some(format!("{:016x}", 1)), ..JobFilter::default() },
            &open,
        ),
        (
            "by delegation, open",
            JobFilter { delegation_id: Some(format!("{:016x}", 0)), is_open: true, ..cms.clone() },
            &[],
        ),
        ("by user", JobFilter { user_dn: Some("/CN=Grace".to_owned()), ..JobFilter::default() }, &all),
        (
            "by a user that is not known",
            JobFilter { user_dn: Some("/CN=Eve".to_owned()), ..JobFilter::default() },
            &[],
        ),
        ("by source", JobFilter { source_se: Some("davs://a.example".into()), ..cms.clone() }, &all[1..]),
        ("by destination", JobFilter { dest_se: Some("davs://b.example".into()), ..cms.clone() }, &all),
        (
            "of another VO",
            JobFilter {
                dest_se: Some("davs://b.example".into()),
                vo: Some("cm".to_owned()),
                ..JobFilter::default()
            },
            &[],
        ),
    ];
    for (rule, filter, expected) in cases {
        found.same(&format!("jobs are found: {rule}"), ask(&filter)?, expected.to_vec());
    }
    Ok(())
}

fn files(
    store: &dyn JobStore,
    found: &mut Found,
    one_source: &[FileId],
    ended: &[FileId],
    mixed: &[FileId],
) -> Result<()> {
    let ask = |filter: &Filter| -> Result<Vec<FileId>> {
        Ok(store.files_like(filter)?.into_iter().map(|file| file.id).collect())
    };
    let cms = Filter { vo: Some("cms".to_owned()), ..Filter::default() };
    let of = |states: &[FileState]| Filter { states: Some(FileStates::of(states)), ..cms.clone() };
    let all = [one_source, ended, mixed].concat();
    let host = Some("broker-3".to_owned());
    let url = the_file(store, ended[0])?.destination;
    let cases: [(&str, Filter, &[FileId]); 16] = [
        ("of a VO", cms.clone(), &all),
        ("of a user", Filter { user_dn: Some("/CN=Grace".to_owned()), ..Filter::default() }, &all),
        ("so many", Filter { limit: 3, ..cms.clone() }, &all[..3]),
        ("from one on", Filter { after: Some(all[1]), limit: 3, ..cms.clone() }, &all[2..5]),
        ("by state", of(&[Finished, Active]), &[ended[0], mixed[0]]),
        ("by no state at all", of(&[]), &[]),
        ("by states that are not final", of(&[Staging, Active]), mixed),
        ("by source", Filter { source_se: Some("davs://c.example".into()), ..cms.clone() }, &mixed[1..]),
        ("by destination", Filter { dest_se: Some("davs://c.example".into()), ..cms.clone() }, &[]),
        ("by URL", Filter { destination: Some(url), ..cms.clone() }, &ended[..1]),
        ("by broker", Filter { transfer_host: host.clone(), ..cms.clone() }, &mixed[..1]),
        ("by broker and state", Filter { transfer_host: host.clone(), ..of(&[Active]) }, &mixed[..1]),
        ("by broker and another state", Filter { transfer_host: host, ..of(&[Ready]) }, &[]),
        ("that ended since", Filter { ended_since_s: Some(1500), ..cms.clone() }, &ended[1..]),
        ("that ended just then", Filter { ended_since_s: Some(1000), ..cms.clone() }, ended),
        (
            "that ended since, of states that are not final",
            Filter { ended_since_s: Some(0), ..of(&[Active]) },
            &[],
        ),
    ];
    for (rule, filter, expected) in cases {
        found.same(&format!("files are found: {rule}"), ask(&filter)?, expected.to_vec());
    }
    Ok(())
}

/// Rows that queues are made of at a start.
fn queues(store: &dyn JobStore, found: &mut Found) -> Result<()> {
    let (mut all, mut later) = (Vec::new(), Vec::new());
    store.waiting(None, &mut |waiting| {
        all.push(waiting);
        Ok(())
    })?;
    found.holds("files come by number", all.is_sorted_by(|one, other| one.file < other.file));
    let mut expected = Vec::new();
    for file in store.files_like(&Filter { states: Some(FileStates::live()), ..Filter::default() })? {
        let job = the_job(store, file.job)?;
        if job.state.is_final() {
            continue;
        }
        expected.push(Waiting {
            file: file.id,
            job: file.job,
            kind: job.kind,
            state: file.state,
            link: file.link,
            vo: file.vo,
            activity: file.activity,
            priority: job.priority,
            submitted_s: job.submitted_s,
            retry_after_s: file.retry_after_s,
            expires_s: job.expires_s,
            size_bytes: file.size_bytes.unwrap_or(file.user_size_bytes),
            transfer_host: file.transfer_host,
        });
    }
    found.same("queues have all that is not final", all.clone(), expected);
    // A job of one file: it did not come after itself.
    let newest = submit(store, ours(305, &[Submitted]))?.pop();
    let new = submit(store, ours(304, &[Submitted, Finished, Submitted]))?;
    store.waiting(newest, &mut |waiting| {
        later.push(waiting.file);
        Ok(())
    })?;
    found.same("and what came later by itself", later, vec![new[0], new[2]]);
    let mut taken = 0;
    let stopped = store.waiting(None, &mut |_| {
        taken += 1;
        Err(Error::new(ErrorKind::Interrupted, "enough"))
    });
    let stopped = stopped.map_err(|error| error.message().to_owned());
    found.same("reading stops when that is wanted", (stopped, taken), (Err("enough".to_owned()), 1));
    Ok(())
}

/// Jobs that go into the archive; at the end, since they are not in lists any more.
pub(super) fn check_archive(store: &dyn JobStore, found: &mut Found) -> Result<()> {
    found.part = "archive";
    let open = store.jobs(&JobFilter { is_open: true, ..JobFilter::default() })?;
    let old = JobFilter {
        vo: Some("cms".to_owned()),
        states: Some(vec![JobState::FinishedDirty]),
        ..JobFilter::default()
    };
    found.same("a job has ended", store.jobs(&old)?.len(), 1);
    let before = (the_job(store, id(302))?, store.files(id(302), None, 0)?);
    let archive = |before_s, limit| one(store, Write::Archive { before_s, limit });
    let is = archive(-1, 100)?;
    found.same("nothing ended that early", is, Ok(Written::Done(0)));
    let ended = store
        .jobs(&JobFilter::default())?
        .into_iter()
        .filter(|job| job.finished_s.is_some_and(|end| end <= 2000));
    let ended = ended.count() as u64;
    found.same("so many at a time", archive(2000, 1)?, Ok(Written::Done(1)));
    found.same("and the rest", archive(2000, 10_000)?, Ok(Written::Done(ended - 1)));
    found.same("and no more", archive(2000, 10_000)?, Ok(Written::Done(0)));
    found.same("they are in no list", store.jobs(&old)?, Vec::new());
    let finished = Filter {
        vo: Some("cms".to_owned()),
        states: Some(FileStates::of(&[Finished, Failed])),
        ..Filter::default()
    };
    let left: Vec<JobId> = store.files_like(&finished)?.into_iter().map(|file| file.job).collect();
    found.same("nor are their files", left, vec![id(304)]);
    let after = (the_job(store, id(302))?, store.files(id(302), None, 0)?);
    found.same("a file is found by its number", the_file(store, before.1[1].id)?, before.1[1].clone());
    found.same("a job is found by its id, with files", after, before.clone());
    found.same("open jobs stay", store.jobs(&JobFilter { is_open: true, ..JobFilter::default() })?, open);
    found.same("a file of the archive stays", go(store, before.1[0].id, Active, 1)?, Ok(Written::Stale));
    let cancel = Write::Cancel { job: id(302), files: None, reason: "no".to_owned(), at_s: 1 };
    found.same("and a job", one(store, cancel)?, Ok(Written::Stale));
    let again = one(store, Write::Submit(Box::new(ours(302, &[Submitted]))))?;
    found.same("an id is never used again", again, Err(crate::store::Refused::DuplicateJob));
    found.same("states stay", states(store, id(302))?, vec![Finished, Failed]);
    Ok(())
}
