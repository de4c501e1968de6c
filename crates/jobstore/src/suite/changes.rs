//! Files that change, and what follows for their jobs.

use gridlane_core::Result;
use gridlane_jobs::{Attempt, FileId, FileState, FileState::*, JobKind, JobState, News};

use super::found::Found;
use super::make::{change, go, id, job, made, one, states, submit, the_file, the_job};
use crate::store::{Answer, JobStore, Refused, Standing, Write, Written};

const FAILED: &str = "One or more files failed. Please have a look at the details for more information";

pub(super) fn check(store: &dyn JobStore, found: &mut Found) -> Result<()> {
    let files = submit(store, job(101, JobKind::Plain, &[Submitted; 2]))?;
    found.same(
        "a file that is not there cannot change",
        go(store, FileId(1 << 40), Active, 1)?,
        Err(Refused::NotFound),
    );

    let mut ready = change(files[0], &[Submitted], Ready, 10);
    ready.news.transfer_host = Some(Some("broker-1".to_owned()));
    let is = one(store, Write::Change(Box::new(ready.clone())))?;
    found.same("a file goes to its next state", is, changed(&[(files[0], Ready)], JobState::Active));
    let is = one(store, Write::Change(Box::new(ready)))?;
    found.same("and only from the states that a change is for", is, Ok(Written::Stale));
    let mut active = change(files[0], &[Ready], Active, 11);
    active.if_host = Some("broker-2".to_owned());
    let is = one(store, Write::Change(Box::new(active.clone())))?;
    found.same("another broker's file stays as it is", is, Ok(Written::Stale));
    active.if_host = Some("broker-1".to_owned());
    let is = one(store, Write::Change(Box::new(active)))?;
    found.same("and one's own does not", is, changed(&[(files[0], Active)], JobState::Active));
    let mut unowned = change(files[1], &[Submitted], Active, 11);
    unowned.if_host = Some("broker-1".to_owned());
    let is = one(store, Write::Change(Box::new(unowned)))?;
    found.same("nor a file that no broker has", is, Ok(Written::Stale));

    attempts(store, found, files[0])?;

    let mut news = change(files[0], &[Submitted], Finished, 30);
    news.news = News {
        size_bytes: Some(5),
        transferred_bytes: Some(5),
        throughput_bytes_per_s: Some(2.5),
        duration_s: Some(2.0),
        dst_file: Some(serde_json::json!({"size": 5})),
        hashed_id: Some(9),
        bringonline_token: Some("r1".to_owned()),
        ..News::default()
    };
    made(one(store, Write::Change(Box::new(news)))?)?;
    let file = the_file(store, files[0])?;
    found.same("news are kept", (file.size_bytes, file.transferred_bytes, file.hashed_id), (Some(5), 5, 9));
    found.same("rates and times as well", (file.throughput_bytes_per_s, file.duration_s), (2.5, 2.0));
    found.same("and the end", file.stamps.finished_s, Some(30));
    found.same("an old failure is forgotten", (file.reason, file.is_recoverable), (None, None));
    found.same("and the request", file.bringonline_token.as_deref(), Some("r1"));
    let merged = serde_json::json!({"dst_file": {"size": 5}});
    found.same("an existing destination is in the metadata", file.metadata, Some(merged));
    found.same("a final file stays as it is", go(store, files[0], Active, 31)?, Ok(Written::Stale));
    let the = the_job(store, id(101))?;
    // It has followed a file that waits for another attempt.
    found.same("a job goes on while a file does", (the.state, the.finished_s), (JobState::Submitted, None));
    let is = go(store, files[1], Failed, 32)?;
    found.same("and ends with it", is, changed(&[(files[1], Failed)], JobState::FinishedDirty));
    let the = the_job(store, id(101))?;
    found.same("the end of a job is kept", the.finished_s, Some(32));
    found.same("with the reason", the.reason.as_deref(), Some(FAILED));

    old_failures(store, found)?;
    run_of_changes(store, found)?;
    replicas(store, found)?;
    hops(store, found)
}

fn changed(files: &[(FileId, FileState)], job: JobState) -> Answer {
    Ok(Written::Changed(
        files.iter().map(|(file, state)| Standing { file: *file, state: *state }).collect(),
        job,
    ))
}

/// Attempts that fail.
fn attempts(store: &dyn JobStore, found: &mut Found, file: FileId) -> Result<()> {
    let mut failed = change(file, &[Active], Submitted, 20);
    failed.news = News {
        transfer_host: Some(None),
        reason: Some("TRANSFER [110] timed out".to_owned()),
        is_recoverable: Some(true),
        has_failed: true,
        retry_after_s: Some(140),
        ..News::default()
    };
    made(one(store, Write::Change(Box::new(failed.clone())))?)?;
    let waits = the_file(store, file)?;
    found.same("an attempt is counted", (waits.attempts, waits.retry_after_s), (1, Some(140)));
    found.same("a broker gives a file back", waits.transfer_host, None);
    found.same("with the reason", waits.reason.as_deref(), Some("TRANSFER [110] timed out"));
    failed.from = gridlane_jobs::FileStates::of(&[Submitted]);
    failed.at_s = 21;
    failed.news.reason = None;
    made(one(store, Write::Change(Box::new(failed)))?)?;
    let attempt = |number, ended_s, reason: &str, transfer_host: &str| Attempt {
        file,
        number,
        ended_s,
        reason: reason.to_owned(),
        transfer_host: transfer_host.to_owned(),
    };
    let expected = vec![attempt(0, 20, "TRANSFER [110] timed out", "broker-1"), attempt(1, 21, "", "")];
    found.same("attempts are kept in their order", store.attempts(file)?, expected);
    Ok(())
}

/// Files that go well in the end do not say why they failed before; unless they say something themselves.
fn old_failures(store: &dyn JobStore, found: &mut Found) -> Result<()> {
    let files = submit(store, job(109, JobKind::Plain, &[Active; 2]))?;
    let news = |reason: &str| News {
        reason: Some(reason.to_owned()),
        is_recoverable: Some(true),
        ..News::default()
    };
    let step = |file, from, to, news| {
        let mut step = change(file, &[from], to, 35);
        step.news = news;
        made(one(store, Write::Change(Box::new(step)))?)
    };
    let said = |file| the_file(store, file).map(|file| (file.reason, file.is_recoverable));
    let failed = Some("SOURCE [5] broken".to_owned());
    for file in &files {
        step(*file, Active, Submitted, news("SOURCE [5] broken"))?;
        step(*file, Submitted, Active, News::default())?;
    }
    found.same("a file that is tried again says why", said(files[0])?, (failed, Some(true)));
    step(files[0], Active, Archiving, News::default())?;
    found.same("one that was copied does not", said(files[0])?, (None, None));
    step(files[0], Archiving, Failed, news("ARCHIVING [110] timed out"))?;
    let expected = (Some("ARCHIVING [110] timed out".to_owned()), Some(true));
    found.same("but why it got to no tape", said(files[0])?, expected);
    let skipped = News { reason: Some("it was there".to_owned()), ..News::default() };
    step(files[1], Active, Finished, skipped)?;
    found.same("and what it says itself", said(files[1])?, (Some("it was there".to_owned()), None));
    Ok(())
}

/// Changes of many jobs in one transaction, and one after the other of the same file.
fn run_of_changes(store: &dyn JobStore, found: &mut Found) -> Result<()> {
    let one = submit(store, job(102, JobKind::Plain, &[Submitted; 2]))?;
    let other = submit(store, job(103, JobKind::Plain, &[Submitted; 1]))?;
    let write = |file, from, to| Write::Change(Box::new(change(file, &[from], to, 40)));
    let writes = [
        write(other[0], Submitted, Ready),
        write(one[1], Submitted, Finished),
        write(one[0], Submitted, Ready),
        write(other[0], Ready, Active),
        write(other[0], Ready, Active),
        Write::Cancel { job: id(102), files: Some(vec![one[1]]), reason: "no".to_owned(), at_s: 40 },
        write(other[0], Active, Finished),
        write(one[0], Ready, Finished),
        write(FileId(1 << 40), Ready, Finished),
    ];
    let expected = vec![
        changed(&[(other[0], Ready)], JobState::Active),
        changed(&[(one[1], Finished)], JobState::Submitted),
        changed(&[(one[0], Ready)], JobState::Active),
        changed(&[(other[0], Active)], JobState::Active),
        Ok(Written::Stale),
        Ok(Written::Canceled(Vec::new(), JobState::Active)),
        changed(&[(other[0], Finished)], JobState::Finished),
        changed(&[(one[0], Finished)], JobState::Finished),
        Err(Refused::NotFound),
    ];
    found.same("each change sees those before it", store.write(&writes)?, expected);
    found.same("and all are kept", states(store, id(102))?, vec![Finished; 2]);
    found.same("a job that went well has no reason", the_job(store, id(102))?.reason, None);
    Ok(())
}

/// Replicas of one file, one after the other.
fn replicas(store: &dyn JobStore, found: &mut Found) -> Result<()> {
    let mut new = job(104, JobKind::Replicas, &[NotUsed, Submitted, NotUsed]);
    for (file, source) in new.files.iter_mut().zip(["davs://r1", "davs://r2", "davs://r3"]) {
        file.index = 0;
        file.link.source = source.into();
    }
    new.files[0].initial_state = Staging;
    new.job.source_se = None;
    let files = submit(store, new)?;
    let is = go(store, files[1], Failed, 50)?;
    found.same(
        "the next replica begins",
        is,
        changed(&[(files[1], Failed), (files[0], Staging)], JobState::Staging),
    );
    let is = go(store, files[0], Finished, 51)?;
    found.same("one is enough", is, changed(&[(files[0], Finished)], JobState::Finished));
    found.same("the third one is never used", states(store, id(104))?, vec![Finished, Failed, NotUsed]);
    found.same(
        "the job has the source that worked",
        the_job(store, id(104))?.source_se,
        Some("davs://r1".into()),
    );
    found.same("a file of a final job stays", go(store, files[2], Submitted, 52)?, Ok(Written::Stale));

    not_on_tape(store, found)?;

    let files = submit(store, job(106, JobKind::Replicas, &[Submitted, NotUsed]))?;
    let writes: Vec<Write> = [(files[0], Failed), (files[1], Failed)]
        .map(|(file, to)| Write::Change(Box::new(change(file, &[Submitted], to, 54))))
        .into();
    let expected = vec![
        changed(&[(files[0], Failed), (files[1], Submitted)], JobState::Submitted),
        changed(&[(files[1], Failed)], JobState::Failed),
    ];
    found.same("replicas follow each other in one transaction", store.write(&writes)?, expected);
    Ok(())
}

/// A replica that was copied and did not get to tape: no other one is tried, and the job says from where it was copied.
fn not_on_tape(store: &dyn JobStore, found: &mut Found) -> Result<()> {
    let mut new = job(105, JobKind::Replicas, &[NotUsed, Submitted, NotUsed]);
    for (file, source) in new.files.iter_mut().zip(["davs://r1", "davs://r2", "davs://r3"]) {
        file.index = 0;
        file.link.source = source.into();
    }
    new.job.source_se = None;
    let files = submit(store, new)?;
    made(go(store, files[1], Failed, 52)?)?;
    let is = go(store, files[0], Archiving, 53)?;
    found.same("a copy waits for tape", is, changed(&[(files[0], Archiving)], JobState::Archiving));
    let is = go(store, files[0], Failed, 54)?;
    found.same(
        "a copy that got to no tape ends the job",
        is,
        changed(&[(files[0], Failed)], JobState::Failed),
    );
    let the = the_job(store, id(105))?;
    let expected = "Archive monitoring failed in a multiple replica job";
    found.same("and says so", the.reason.as_deref(), Some(expected));
    found.same("and has the source that was copied", the.source_se, Some("davs://r1".into()));

    let files = submit(store, job(108, JobKind::Replicas, &[Archiving, NotUsed]))?;
    made(go(store, files[0], Archiving, 55)?)?;
    let is = go(store, files[0], Canceled, 56)?;
    found.same(
        "a copy that is cancelled while it waits for tape is made from another replica",
        is,
        changed(&[(files[0], Canceled), (files[1], Submitted)], JobState::Submitted),
    );
    Ok(())
}

/// Hops of one file, one after the other.
fn hops(store: &dyn JobStore, found: &mut Found) -> Result<()> {
    let files = submit(store, job(107, JobKind::Multihop, &[Active, NotUsed, NotUsed]))?;
    let is = go(store, files[0], Finished, 60)?;
    found.same(
        "the next hop begins",
        is,
        changed(&[(files[0], Finished), (files[1], Submitted)], JobState::Submitted),
    );
    let is = go(store, files[1], Failed, 61)?;
    found.same("a hop that fails ends the job", is, changed(&[(files[1], Failed)], JobState::Failed));
    found.same("and the rest is not used", states(store, id(107))?, vec![Finished, Failed, NotUsed]);
    Ok(())
}

/// Jobs and files that are not wanted any more.
pub(super) fn check_canceling(store: &dyn JobStore, found: &mut Found) -> Result<()> {
    let cancel = |job, files: Option<Vec<FileId>>, at_s| {
        one(store, Write::Cancel { job: id(job), files, reason: "Job canceled by the user".to_owned(), at_s })
    };
    found.same("a job that is not there is not cancelled", cancel(999, None, 1)?, Err(Refused::NotFound));

    let waiting = [Submitted, Active, OnHold, NotUsed, TokenPrep, Failed];
    let files = submit(store, job(201, JobKind::Plain, &waiting))?;
    let mut active = change(files[1], &[Active], Active, 1);
    active.news.transfer_host = Some(Some("broker-7".to_owned()));
    made(one(store, Write::Change(Box::new(active)))?)?;
    let host = |state| (state == Active).then(|| "broker-7".to_owned());
    let expected = files[..5]
        .iter()
        .zip(waiting)
        .map(|(file, before)| (Standing { file: *file, state: Canceled }, before, host(before)));
    let is = cancel(201, None, 70)?;
    found.same(
        "all that is not done is cancelled",
        is,
        Ok(Written::Canceled(expected.collect(), JobState::Canceled)),
    );
    let the = the_job(store, id(201))?;
    found.same("a job says why", the.reason.as_deref(), Some("Job canceled by the user"));
    found.same("and when", the.finished_s, Some(70));
    let file = the_file(store, files[0])?;
    found.same(
        "and so do its files",
        (file.reason.as_deref(), file.stamps.finished_s),
        (Some("Job canceled by the user"), Some(70)),
    );
    found.same("what has failed has failed", the_file(store, files[5])?.state, Failed);
    found.same("a final job is not cancelled", cancel(201, None, 71)?, Ok(Written::Stale));
    found.same("a late report changes nothing", go(store, files[1], Finished, 72)?, Ok(Written::Stale));

    let files = submit(store, job(202, JobKind::Plain, &[Submitted; 3]))?;
    let is = cancel(202, Some(vec![files[1], FileId(1 << 40)]), 73)?;
    let gone = |file, before| (Standing { file, state: Canceled }, before, None);
    found.same(
        "some files are cancelled",
        is,
        Ok(Written::Canceled(vec![gone(files[1], Submitted)], JobState::Submitted)),
    );
    made(go(store, files[0], Finished, 74)?)?;
    let is = cancel(202, Some(vec![files[2]]), 75)?;
    found.same(
        "a job ends with its last file",
        is,
        Ok(Written::Canceled(vec![gone(files[2], Submitted)], JobState::Canceled)),
    );

    let files = submit(store, job(203, JobKind::Replicas, &[Submitted, NotUsed, NotUsed]))?;
    let is = cancel(203, Some(vec![files[0], files[1]]), 76)?;
    let expected = vec![
        gone(files[0], Submitted),
        gone(files[1], NotUsed),
        (Standing { file: files[2], state: Submitted }, NotUsed, None),
    ];
    found.same("a replica begins that is left", is, Ok(Written::Canceled(expected, JobState::Submitted)));

    let set = |job, priority| one(store, Write::Priority { job: id(job), priority });
    found.same("a job gets another priority with its files", set(203, 5)?, Ok(Written::Done(1)));
    let (the, file) = (the_job(store, id(203))?, the_file(store, files[2])?);
    found.same("and has it", (the.priority, file.priority), (5, 5));
    found.same("a final job has its own", set(201, 5)?, Ok(Written::Stale));
    found.same("and one that is not there has none", set(999, 5)?, Err(Refused::NotFound));
    Ok(())
}
