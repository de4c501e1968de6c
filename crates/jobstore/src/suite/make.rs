//! Jobs for the suite, and for other tests and measurements.

use gridlane_core::{Error, ErrorKind, Result};
use gridlane_jobs::{
    Change, File, FileId, FileState, FileStates, Job, JobId, JobKind, JobState, Link, NewJob, News, Owner,
    Params, Selection, Stamps,
};
use uuid::Uuid;

use crate::store::{Answer, JobStore, Write, Written};

/// The id of the job of this number.
pub fn id(number: u128) -> JobId {
    JobId(Uuid::from_u128(number))
}

/// A job with files in these states.
pub fn job(number: u128, kind: JobKind, states: &[FileState]) -> NewJob {
    let states = states.iter().enumerate();
    NewJob {
        job: Job {
            id: id(number),
            kind,
            state: JobState::Submitted,
            owner: Owner {
                user_dn: "/DC=org/CN=Ada".to_owned(),
                vo: "atlas".to_owned(),
                delegation_id: "0123456789abcdef".to_owned(),
            },
            source_se: Some("davs://a.example".into()),
            dest_se: Some("davs://b.example".into()),
            reason: None,
            submitted_s: 1_800_000_000,
            finished_s: None,
            priority: 3,
            submit_host: "broker-1".to_owned(),
            expires_s: None,
            params: Params::default(),
            metadata: None,
        },
        files: states.map(|(index, state)| file(number, index as u32, *state)).collect(),
        has_unique_destinations: false,
    }
}

/// A file of the job of this number.
fn file(number: u128, index: u32, state: FileState) -> File {
    File {
        id: FileId(0),
        job: id(number),
        index,
        hashed_id: 7,
        state,
        initial_state: FileState::Submitted,
        source: format!("davs://a.example/{number}/{index}"),
        destination: format!("davs://b.example/{number}/{index}"),
        link: Link { source: "davs://a.example".into(), destination: "davs://b.example".into() },
        vo: "atlas".to_owned(),
        activity: "default".to_owned(),
        priority: 3,
        user_size_bytes: 0,
        size_bytes: None,
        checksum: "ADLER32".to_owned(),
        metadata: None,
        staging_metadata: None,
        archive_metadata: None,
        scitag: None,
        selection: Selection::Auto,
        attempts: 0,
        retry_after_s: None,
        transfer_host: None,
        reason: None,
        is_recoverable: None,
        transferred_bytes: 0,
        throughput_bytes_per_s: 0.0,
        duration_s: 0.0,
        stamps: Stamps::default(),
        bringonline_token: None,
        tokens: None,
    }
}

/// A job all of whose fields say something.
pub fn full(number: u128) -> NewJob {
    use gridlane_jobs::{Family, Overwrite, Verify};
    let mut new = job(number, JobKind::Reuse, &[FileState::Staging, FileState::TokenPrep]);
    new.job.state = JobState::Staging;
    new.job.dest_se = None;
    new.job.reason = Some("so far".to_owned());
    new.job.priority = 5;
    new.job.expires_s = Some(1_900_000_000);
    new.job.params = Params {
        verify: Verify::Both,
        overwrite: Overwrite::HopsAndOnlyOnDisk,
        retry: -1,
        retry_delay_s: 7,
        bring_online_s: Some(8),
        buffer_size_bytes: Some(u64::MAX),
        family: Some(Family::V6),
        source_spacetoken: "space".to_owned(),
        ..Params::default()
    };
    new.job.metadata = Some(serde_json::json!({"auth_method": "certificate", "issue": [1, null, "\u{0}"]}));
    let whole = &mut new.files[0];
    whole.hashed_id = u16::MAX;
    whole.initial_state = FileState::Staging;
    whole.link.source = "root://tape.example".into();
    whole.activity = "Data Challenge".to_owned();
    whole.user_size_bytes = u64::MAX;
    whole.size_bytes = Some(u64::MAX - 1);
    whole.checksum = "ADLER32:1a2b3c4d".to_owned();
    whole.metadata = Some(serde_json::json!({"a": 1.5}));
    whole.staging_metadata = Some(serde_json::json!({"b": true}));
    whole.archive_metadata = Some(serde_json::json!({"c": []}));
    whole.scitag = Some(65_535);
    whole.selection = Selection::WaitingTimeWithError;
    whole.attempts = 2;
    whole.retry_after_s = Some(-1);
    whole.transfer_host = Some("broker-2".to_owned());
    whole.reason = Some("SOURCE [2] no such file".to_owned());
    whole.is_recoverable = Some(false);
    whole.transferred_bytes = 12;
    whole.throughput_bytes_per_s = 0.125;
    whole.duration_s = 1e9;
    whole.stamps = Stamps {
        started_s: Some(1),
        finished_s: Some(2),
        staging_started_s: Some(3),
        staging_finished_s: Some(4),
        archive_started_s: Some(5),
        archive_finished_s: Some(6),
    };
    whole.bringonline_token = Some("request 9".to_owned());
    whole.tokens = Some(("0011223344556677".to_owned(), "8899aabbccddeeff".to_owned()));
    for file in &mut new.files {
        file.priority = 5;
    }
    new
}

/// The files of a job as the store has them, if it gives them these numbers.
pub fn numbered(new: &NewJob, files: &[FileId]) -> Vec<File> {
    new.files.iter().zip(files).map(|(file, id)| File { id: *id, ..file.clone() }).collect()
}

/// Submits a job, which is not refused.
pub fn submit(store: &dyn JobStore, new: NewJob) -> Result<Vec<FileId>> {
    match one(store, Write::Submit(Box::new(new)))? {
        Ok(Written::Submitted(files)) => Ok(files),
        other => Err(Error::new(ErrorKind::Other, format!("a submission ends with {other:?}"))),
    }
}

/// One write.
pub fn one(store: &dyn JobStore, write: Write) -> Result<Answer> {
    let answer = store.write(std::slice::from_ref(&write))?.pop();
    answer.ok_or_else(|| Error::new(ErrorKind::Other, "a write has no answer"))
}

/// A change of a file from any of these states.
pub fn change(file: FileId, from: &[FileState], to: FileState, at_s: i64) -> Change {
    Change { file, from: FileStates::of(from), if_host: None, to, at_s, news: News::default() }
}

/// Makes a change from whatever state is not final.
pub fn go(store: &dyn JobStore, file: FileId, to: FileState, at_s: i64) -> Result<Answer> {
    let mut change = change(file, &[], to, at_s);
    change.from = FileStates::live();
    one(store, Write::Change(Box::new(change)))
}

/// The states of a job's files.
pub fn states(store: &dyn JobStore, job: JobId) -> Result<Vec<FileState>> {
    Ok(store.files(job, None, 0)?.into_iter().map(|file| file.state).collect())
}

/// A job that is there.
pub fn the_job(store: &dyn JobStore, job: JobId) -> Result<Job> {
    store.job(job)?.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no job {job}")))
}

/// A file that is there.
pub fn the_file(store: &dyn JobStore, file: FileId) -> Result<File> {
    store.file(file)?.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no file {file}")))
}

/// A write was made, and not refused.
pub fn made(answer: Answer) -> Result<()> {
    let refused = |refused| Error::new(ErrorKind::Other, format!("a write is refused: {refused:?}"));
    answer.map(drop).map_err(refused)
}
