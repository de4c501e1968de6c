//! The job that a submission becomes (fts3-rest 4.3).

use std::collections::{HashMap, HashSet};

use gridlane_core::limits::{
    REUSE_FILES_MAX, REUSE_FILES_MIN, REUSE_LARGE_BYTES_MAX, REUSE_LARGE_FILES_MAX, REUSE_SMALL_BYTES_MAX,
};
use serde_json::{Map, Value, json};

use crate::config::{Ban, BanEffect};
use crate::select::Figures;
use crate::submission::{Requested, Submission, token_id};
use crate::{
    File, FileId, FileState, Job, JobId, JobKind, JobState, Link, Method, NewJob, Owner, Refusal, Stamps,
    Storage,
};

/// The user that submits a job.
#[derive(Clone, Debug)]
pub struct Submitter {
    /// The user.
    pub owner: Owner,
    /// The kind of its credentials, which the job's metadata tell.
    pub method: Method,
}

/// The rules of the service for new jobs.
pub struct Rules<'a> {
    /// The name of this broker.
    pub host: &'a str,
    /// Storages that are banned.
    pub bans: &'a [Ban],
    /// True if a job of this VO is refused where a file that is not done has the same destination.
    pub has_unique_destinations: bool,
    /// True if jobs of many small files get one session for all of them.
    pub has_automatic_reuse: bool,
    /// Names of tokens that have to be exchanged for ones that can be refreshed: files that begin with one of these wait for it.
    pub unprepared_tokens: &'a HashSet<String>,
    /// Figures of a link for a VO and an activity, by which a source is chosen.
    pub figures: &'a dyn Fn(&Link, &str, &str) -> Figures,
}

impl Submission {
    /// The job that it becomes, with its files. `random` makes the job's id, if that is not computed from a name, and shares the files
    /// out among brokers.
    ///
    /// # Errors
    /// 400 for files that do not go together in the kind of job that is asked for, 403 for a storage that is banned.
    pub fn into_job(
        self,
        submitter: &Submitter,
        now_s: i64,
        random: [u8; 24],
        rules: &Rules<'_>,
    ) -> Result<NewJob, Refusal> {
        let (uuid, seed) = split(random);
        let id = match &self.sid {
            Some(sid) => JobId::deterministic(&submitter.owner.vo, sid),
            None => JobId(uuid::Builder::from_random_bytes(uuid).into_uuid()),
        };
        let state = if self.is_staging() { FileState::Staging } else { FileState::Submitted };
        let mut files = self.files(id, &submitter.owner.vo, state);
        let mut kind = self.kind(&files)?;
        let (source_se, dest_se) = ends(&files, kind);
        if kind == JobKind::Reuse && (source_se.is_none() || dest_se.is_none()) {
            let message = "Reuse jobs must only contain transfers for the same source ad destination storage";
            return Err(Refusal::bad(message));
        }
        if rules.has_automatic_reuse
            && kind == JobKind::Plain
            && source_se.is_some()
            && dest_se.is_some()
            && self.is_small()
        {
            kind = JobKind::Reuse;
        }
        begin(&mut files, kind, state, rules);
        hold(&mut files, rules)?;
        share_out(&mut files, seed, kind != JobKind::Plain || self.is_staging());
        let job = Job {
            id,
            kind,
            state: if self.is_staging() { JobState::Staging } else { JobState::Submitted },
            owner: submitter.owner.clone(),
            source_se,
            dest_se,
            reason: None,
            submitted_s: now_s,
            finished_s: None,
            priority: self.priority,
            submit_host: rules.host.to_owned(),
            expires_s: self.queue_max_s.map(|queue_max_s| now_s.saturating_add(i64::from(queue_max_s))),
            params: self.params,
            metadata: Some(metadata(self.metadata, submitter.method)),
        };
        Ok(NewJob { job, files, has_unique_destinations: rules.has_unique_destinations })
    }

    /// A file for each pair of a source and a destination, in the order of the submission.
    fn files(&self, job: JobId, vo: &str, state: FileState) -> Vec<File> {
        let mut storages: HashMap<Storage, Storage> = HashMap::new();
        let mut shared =
            |storage: &Storage| storages.entry(storage.clone()).or_insert_with(|| storage.clone()).clone();
        let mut files = Vec::new();
        for (index, requested) in (0..).zip(&self.files) {
            for source in &requested.sources {
                for destination in &requested.destinations {
                    let tokens = source.token.as_deref().zip(destination.token.as_deref());
                    files.push(File {
                        id: FileId(0),
                        job,
                        index,
                        hashed_id: 0,
                        state,
                        initial_state: state,
                        source: source.url.clone(),
                        destination: destination.url.clone(),
                        link: Link {
                            source: shared(&source.storage),
                            destination: shared(&destination.storage),
                        },
                        vo: vo.to_owned(),
                        activity: requested.activity.clone(),
                        priority: self.priority,
                        user_size_bytes: requested.size_bytes,
                        size_bytes: None,
                        checksum: requested.checksum.clone(),
                        metadata: requested.metadata.clone(),
                        staging_metadata: requested.staging_metadata.clone(),
                        archive_metadata: requested.archive_metadata.clone(),
                        scitag: requested.scitag,
                        selection: requested.selection,
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
                        tokens: tokens.map(|(source, destination)| (token_id(source), token_id(destination))),
                    });
                }
            }
        }
        files
    }

    /// The kind of job that is asked for, or that its files make it.
    fn kind(&self, files: &[File]) -> Result<JobKind, Refusal> {
        let has_replicas = files.len() > self.files.len();
        match (has_replicas, self.is_multihop, self.is_reuse) {
            (true, false, false) if self.files.len() == 1 => Ok(JobKind::Replicas),
            (true, false, false) => Err(Refusal::bad("Multiple replica jobs must only have one unique file")),
            (true, _, _) => Err(Refusal::bad(
                "Can not request multiple replica job together with multihop or session reuse at the same time",
            )),
            (false, true, _) => Ok(JobKind::Multihop),
            (false, false, true) => Ok(JobKind::Reuse),
            (false, false, false) => Ok(JobKind::Plain),
        }
    }

    /// True for a job of many small files and hardly a large one, whose sizes are all known.
    fn is_small(&self) -> bool {
        let is_small = |file: &Requested| (1..=REUSE_SMALL_BYTES_MAX).contains(&file.size_bytes);
        let is_large =
            |file: &Requested| (REUSE_SMALL_BYTES_MAX + 1..=REUSE_LARGE_BYTES_MAX).contains(&file.size_bytes);
        let small = self.files.iter().filter(|file| is_small(file)).count();
        let large = self.files.iter().filter(|file| is_large(file)).count();
        (REUSE_FILES_MIN..=REUSE_FILES_MAX).contains(&self.files.len())
            && small + large == self.files.len()
            && large <= REUSE_LARGE_FILES_MAX
            && !self.is_staging()
    }
}

/// The first 16 bytes, and a number of the last 8.
fn split(random: [u8; 24]) -> ([u8; 16], u64) {
    let (mut uuid, mut seed) = ([0; 16], [0; 8]);
    uuid.copy_from_slice(&random[..16]);
    seed.copy_from_slice(&random[16..]);
    (uuid, u64::from_le_bytes(seed))
}

/// The storages of a job: those that all its files have; of hops the first source and the last destination.
fn ends(files: &[File], kind: JobKind) -> (Option<Storage>, Option<Storage>) {
    let (Some(first), Some(last)) = (files.first(), files.last()) else { return (None, None) };
    if kind == JobKind::Multihop {
        return (Some(first.link.source.clone()), Some(last.link.destination.clone()));
    }
    let is_one_source = files.iter().all(|file| file.link.source == first.link.source);
    let is_one_destination = files.iter().all(|file| file.link.destination == first.link.destination);
    (
        is_one_source.then(|| first.link.source.clone()),
        is_one_destination.then(|| first.link.destination.clone()),
    )
}

/// Gives files their states: of replicas the chosen one begins, of hops the first.
fn begin(files: &mut [File], kind: JobKind, state: FileState, rules: &Rules<'_>) {
    let chosen = match (kind, files.first()) {
        (JobKind::Replicas, Some(first)) => {
            let figures = |link: &Link| (rules.figures)(link, &first.vo, &first.activity);
            first.selection.best(files.iter().map(|file| &file.link), first.user_size_bytes, &figures)
        }
        (JobKind::Multihop, _) => Some(0),
        _ => return,
    };
    for (place, file) in files.iter_mut().enumerate() {
        // Only the first source of hops can be on tape: the others are destinations of the hop before.
        let is_later_hop = kind == JobKind::Multihop && place > 0;
        file.initial_state = if is_later_hop { FileState::Submitted } else { state };
        file.state = if Some(place) == chosen { file.initial_state } else { FileState::NotUsed };
    }
}

/// Holds files of storages that are banned, and those that wait for a token that can be refreshed.
fn hold(files: &mut [File], rules: &Rules<'_>) -> Result<(), Refusal> {
    for file in files {
        for storage in [&file.link.source, &file.link.destination] {
            let mut bans = rules.bans.iter().filter(|ban| ban.is_for(storage, &file.vo)).peekable();
            if bans.peek().is_none() {
                continue;
            }
            if bans.any(|ban| ban.effect != BanEffect::WaitButSubmit) {
                return Err(Refusal::forbidden(format!("{storage} is banned")));
            }
            file.state = match file.state {
                FileState::Submitted => FileState::OnHold,
                FileState::Staging => FileState::OnHoldStaging,
                other => other,
            };
        }
        let waits = |tokens: &(String, String)| {
            rules.unprepared_tokens.contains(&tokens.0) || rules.unprepared_tokens.contains(&tokens.1)
        };
        if file.state != FileState::NotUsed && file.tokens.as_ref().is_some_and(waits) {
            // A ban may be lifted before the token is there: it is looked at again then.
            file.initial_state = match file.state {
                FileState::OnHold => FileState::Submitted,
                FileState::OnHoldStaging => FileState::Staging,
                state => state,
            };
            file.state = FileState::TokenPrep;
        }
    }
    Ok(())
}

/// Gives files the numbers by which brokers share them out: the same to those that belong together.
fn share_out(files: &mut [File], seed: u64, is_together: bool) {
    let mut state = seed;
    let mut hashed_id = next(&mut state);
    for file in files {
        file.hashed_id = hashed_id;
        if !is_together {
            hashed_id = next(&mut state);
        }
    }
}

/// The next number of a sequence that looks random (splitmix64: Steele, Lea, Flood, 2014).
fn next(state: &mut u64) -> u16 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 48) as u16
}

/// The submitter's words, with the kind of its credentials.
fn metadata(words: Option<Map<String, Value>>, method: Method) -> Value {
    let mut words = words.unwrap_or_default();
    words.insert("auth_method".to_owned(), json!(method.name()));
    Value::Object(words)
}
