//! Writes of a transaction, one after the other, whatever the dialect.
//!
//! Changes that follow each other are one run: its files and jobs are read at once, changed in memory and written at once, so
//! that a job of which hundred files change is written once, and a server of databases is asked a few times and not hundreds.

use std::collections::{BTreeSet, HashMap};

use gridlane_core::Result;
use gridlane_jobs::follow::{self, Happened, Member};
use gridlane_jobs::{Change, FileId, FileState, JobId, JobKind, JobState, NewJob, Tally};

use crate::rows::{AttemptRow, FileRow, FileText, Head, Hot, JobRow, NameKey};
use crate::store::{Answer, Refused, Setting, Standing, Write, Written};
use crate::tables::{Digest, Tables};
use crate::{codes, progress};

/// Makes these writes in this order.
///
/// # Errors
/// The store's: nothing of it may be kept.
pub(crate) fn apply<T: Tables>(tables: &mut T, writes: &[Write]) -> Result<Vec<Answer>> {
    let mut next = match writes.iter().map(numbers).sum() {
        0 => 0,
        count => tables.take_numbers(count)?,
    };
    lock(tables, writes)?;
    let mut answers = Vec::with_capacity(writes.len());
    let mut rest = writes;
    while let Some((first, others)) = rest.split_first() {
        rest = others;
        let answer = match first {
            Write::Change(_) => {
                let run = 1 + others.iter().take_while(|write| matches!(write, Write::Change(_))).count();
                let (changes, behind) = writes[answers.len()..].split_at(run);
                rest = behind;
                answers.append(&mut changes_of(tables, changes)?);
                continue;
            }
            Write::Submit(new) => {
                let key = next;
                next += numbers(first);
                submit(tables, new, key)?
            }
            Write::Cancel { job, files, reason, at_s } => {
                cancel(tables, *job, files.as_deref(), reason, *at_s)?
            }
            Write::Priority { job, priority } => prioritize(tables, *job, *priority)?,
            Write::Set { kind, name, value, by, action, at_s } => {
                let is_new = match value {
                    Some(value) => tables.set(*kind, name, &value.to_string()).map(|()| true)?,
                    None => tables.unset(*kind, name)?,
                };
                if is_new && *kind != Setting::Decision {
                    tables.add_audit(*at_s, by, &format!("{} {name}", kind.name()), action)?;
                }
                Ok(Written::Done(u64::from(is_new)))
            }
            Write::Beat(beat) => tables.beat(beat).map(|()| Ok(Written::Done(1)))?,
            Write::Lead { host, until_s, at_s } => {
                let host = tables.key_of(host)?;
                Ok(Written::Leads(tables.lead(host, *until_s, *at_s)?))
            }
            Write::Archive { before_s, limit } => Ok(Written::Done(tables.archive(*before_s, *limit)?)),
        };
        answers.push(answer);
    }
    Ok(answers)
}

/// Locks the jobs that several writes change, before the first of them does: transactions that lock in the order of numbers never
/// wait for each other in a circle.
fn lock(tables: &mut impl Tables, writes: &[Write]) -> Result<()> {
    let (mut files, mut jobs) = (Vec::new(), Vec::new());
    for write in writes {
        match write {
            Write::Change(change) => files.push(change.file.0),
            Write::Cancel { job, .. } | Write::Priority { job, .. } => jobs.push(*job),
            _ => {}
        }
    }
    // One run of changes locks all of its jobs at once, and one job is locked once.
    let is_one_run = jobs.is_empty() && writes.len() == files.len();
    let is_one_job = files.is_empty() && jobs.len() < 2;
    if is_one_run || is_one_job { Ok(()) } else { tables.lock(&files, &jobs) }
}

/// Numbers that a write needs: one for each file, and one for a job without any.
fn numbers(write: &Write) -> i64 {
    match write {
        Write::Submit(new) => i64::try_from(new.files.len()).unwrap_or(i64::MAX).max(1),
        _ => 0,
    }
}

/// A new job, whose first file gets this number.
fn submit(tables: &mut impl Tables, new: &NewJob, key: i64) -> Result<Answer> {
    let job = &new.job;
    if tables.has_job(job.id)? {
        return Ok(Err(Refused::DuplicateJob));
    }
    let digests = match new.has_unique_destinations.then(|| destinations(new)) {
        None => Vec::new(),
        Some(Err(twice)) => return Ok(Err(Refused::DuplicateDestination(twice))),
        Some(Ok(of_files)) => {
            let digests: Vec<Digest> = of_files.iter().map(|(digest, _)| *digest).collect();
            if let Some(place) = tables.taken_destination(&digests)? {
                return Ok(Err(Refused::DuplicateDestination(of_files[place].1.to_owned())));
            }
            digests
        }
    };
    let tally = Tally::of(new.files.iter().map(|file| file.state));
    let se = |tables: &mut _, se: &Option<gridlane_jobs::Storage>| -> Result<Option<NameKey>> {
        se.as_ref().map(|se| Tables::key_of(tables, &se.0)).transpose()
    };
    let row = JobRow {
        head: Head {
            key,
            id: job.id,
            files: tally.files(),
            kind: job.kind,
            state: job.state,
            tally,
            source_se: se(tables, &job.source_se)?,
            finished_s: job.finished_s,
            is_unique: new.has_unique_destinations,
            is_archived: false,
            reason: job.reason.clone(),
        },
        priority: job.priority,
        user_dn: tables.key_of(&job.owner.user_dn)?,
        vo: tables.key_of(&job.owner.vo)?,
        delegation: tables.key_of(&job.owner.delegation_id)?,
        dest_se: se(tables, &job.dest_se)?,
        submit_host: tables.key_of(&job.submit_host)?,
        submitted_s: job.submitted_s,
        expires_s: job.expires_s,
        params: json(&job.params)?,
        metadata: job.metadata.as_ref().map(serde_json::Value::to_string),
    };
    let mut files = Vec::with_capacity(new.files.len());
    for (id, file) in (key..).zip(&new.files) {
        files.push(file_row(tables, file, id, key)?);
    }
    tables.insert_job(&row, &files)?;
    if !digests.is_empty() {
        tables.take_destinations(key, &digests)?;
    }
    Ok(Ok(Written::Submitted(files.iter().map(|file| FileId(file.hot.id)).collect())))
}

/// The destinations of a job's files, each once: replicas share theirs. Fails with one that two files have.
fn destinations(new: &NewJob) -> std::result::Result<Vec<(Digest, &str)>, String> {
    let mut indexes: HashMap<&str, u32> = HashMap::with_capacity(new.files.len());
    let mut found = Vec::with_capacity(new.files.len());
    for file in new.files.iter().filter(|file| !file.state.is_final()) {
        match indexes.insert(&file.destination, file.index) {
            None => found.push((codes::digest(&file.destination), file.destination.as_str())),
            Some(index) if index == file.index => {}
            Some(_) => return Err(file.destination.clone()),
        }
    }
    Ok(found)
}

/// The row of a file that is new.
fn file_row(tables: &mut impl Tables, file: &gridlane_jobs::File, id: i64, job: i64) -> Result<FileRow> {
    let text = |value: &Option<serde_json::Value>| value.as_ref().map(serde_json::Value::to_string);
    let (source_token, destination_token) = file.tokens.clone().unzip();
    Ok(FileRow {
        hot: Hot {
            id,
            job,
            state: file.state,
            initial_state: file.initial_state,
            source_se: tables.key_of(&file.link.source.0)?,
            hashed_id: file.hashed_id,
            attempts: file.attempts,
            retry_after_s: file.retry_after_s,
            host: file.transfer_host.as_deref().map(|host| tables.key_of(host)).transpose()?,
            reason: file.reason.clone(),
            is_recoverable: file.is_recoverable,
            size_bytes: file.size_bytes,
            transferred_bytes: Some(file.transferred_bytes).filter(|bytes| *bytes > 0),
            throughput_bytes_per_s: Some(file.throughput_bytes_per_s).filter(|rate| *rate > 0.0),
            duration_s: Some(file.duration_s).filter(|duration| *duration > 0.0),
            stamps: file.stamps,
            bringonline_token: file.bringonline_token.clone(),
        },
        number: file.index,
        dest_se: tables.key_of(&file.link.destination.0)?,
        activity: tables.key_of(&file.activity)?,
        user_size_bytes: file.user_size_bytes,
        text: FileText {
            source: file.source.clone(),
            destination: file.destination.clone(),
            checksum: file.checksum.clone(),
            selection: codes::selection(file.selection),
            scitag: file.scitag,
            metadata: text(&file.metadata),
            staging_metadata: text(&file.staging_metadata),
            archive_metadata: text(&file.archive_metadata),
            source_token,
            destination_token,
        },
    })
}

fn json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|cause| {
        gridlane_core::Error::new(gridlane_core::ErrorKind::Other, format!("cannot write JSON: {cause}"))
    })
}

/// A run of changes. Each of these is a [`Write::Change`].
fn changes_of(tables: &mut impl Tables, writes: &[Write]) -> Result<Vec<Answer>> {
    let changes: Vec<&Change> = writes
        .iter()
        .filter_map(|write| match write {
            Write::Change(change) => Some(change.as_ref()),
            _ => None,
        })
        .collect();
    let files: BTreeSet<i64> = changes.iter().map(|change| change.file.0).collect();
    let files: Vec<i64> = files.into_iter().collect();
    let (heads, hots) = tables.load(&files)?;
    let mut work = Work::new(tables);
    work.heads.extend(heads.into_iter().map(|head| (head.key, head)));
    work.files.extend(hots.into_iter().map(|hot| (hot.id, hot)));
    let answers = changes.into_iter().map(|change| work.change(change)).collect::<Result<Vec<Answer>>>()?;
    work.save()?;
    Ok(answers)
}

/// Cancels files of a job, or all.
fn cancel(
    tables: &mut impl Tables,
    job: JobId,
    files: Option<&[FileId]>,
    reason: &str,
    at_s: i64,
) -> Result<Answer> {
    let Some(head) = tables.head(job)? else { return Ok(Err(Refused::NotFound)) };
    if head.is_archived || head.state.is_final() {
        return Ok(Ok(Written::Stale));
    }
    let hots = tables.files_of(&head)?;
    let chosen: Option<BTreeSet<i64>> = files.map(|files| files.iter().map(|file| file.0).collect());
    let is_chosen = |file: &&Hot| {
        !file.state.is_final() && chosen.as_ref().is_none_or(|chosen| chosen.contains(&file.id))
    };
    let canceled: Vec<(i64, FileState, Option<NameKey>)> =
        hots.iter().filter(is_chosen).map(|file| (file.id, file.state, file.host)).collect();
    let mut work = Work::new(tables);
    let key = head.key;
    work.is_complete.insert(key);
    work.heads.insert(key, head);
    work.files.extend(hots.into_iter().map(|hot| (hot.id, hot)));
    for (id, from, _) in &canceled {
        if let Some(file) = work.files.get_mut(id) {
            progress::stamp(&mut file.stamps, *from, FileState::Canceled, at_s);
            file.state = FileState::Canceled;
            file.reason = Some(reason.to_owned());
            file.retry_after_s = None;
        }
        work.moved(key, *id, *from, FileState::Canceled);
        work.free_destination(key, *id)?;
    }
    // Only now, so that no file begins that is to be cancelled as well.
    let mut begun = Vec::new();
    if files.is_some() {
        for (_, from, _) in &canceled {
            begun.extend(work.follow(key, Happened { from: *from, to: FileState::Canceled })?);
        }
    }
    let latest = begun.last().map_or(FileState::Canceled, |standing| standing.state);
    let state = match files {
        None => work.end(key, JobState::Canceled, Some(reason.to_owned()), at_s)?,
        Some(_) if canceled.is_empty() => work.heads.get(&key).map_or(JobState::Canceled, |head| head.state),
        Some(_) => work.judge(key, latest, Some(reason), at_s)?,
    };
    work.save()?;
    let mut standings = Vec::with_capacity(canceled.len() + begun.len());
    for (id, from, host) in canceled {
        let host = host.map(|key| tables.string_of(key)).transpose()?;
        standings.push((Standing { file: FileId(id), state: FileState::Canceled }, from, host));
    }
    standings.extend(begun.into_iter().map(|standing| (standing, FileState::NotUsed, None)));
    Ok(Ok(Written::Canceled(standings, state)))
}

/// Another priority for a job.
fn prioritize(tables: &mut impl Tables, job: JobId, priority: u8) -> Result<Answer> {
    let Some(head) = tables.head(job)? else { return Ok(Err(Refused::NotFound)) };
    if head.is_archived || head.state.is_final() {
        return Ok(Ok(Written::Stale));
    }
    tables.set_priority(head.key, priority)?;
    let is_live = |state: &&FileState| !state.is_final();
    let live: u32 = FileState::ALL.iter().filter(is_live).map(|state| head.tally.count(*state)).sum();
    Ok(Ok(Written::Done(live.into())))
}

/// Jobs and files that are being changed.
struct Work<'a, T> {
    tables: &'a mut T,
    heads: HashMap<i64, Head>,
    files: HashMap<i64, Hot>,
    /// Jobs all of whose files are here.
    is_complete: BTreeSet<i64>,
    changed_heads: BTreeSet<i64>,
    changed_files: BTreeSet<i64>,
    attempts: Vec<AttemptRow>,
}

impl<T: Tables> Work<'_, T> {
    fn new(tables: &mut T) -> Work<'_, T> {
        Work {
            tables,
            heads: HashMap::new(),
            files: HashMap::new(),
            is_complete: BTreeSet::new(),
            changed_heads: BTreeSet::new(),
            changed_files: BTreeSet::new(),
            attempts: Vec::new(),
        }
    }

    /// A change of a file, and what follows.
    fn change(&mut self, change: &Change) -> Result<Answer> {
        let id = change.file.0;
        let Some(file) = self.files.get(&id) else { return Ok(Err(Refused::NotFound)) };
        let (from, key) = (file.state, file.job);
        // Its job came after this transaction began: its number was not known to any caller.
        let Some(head) = self.heads.get(&key) else { return Ok(Err(Refused::NotFound)) };
        let has_file = match (&change.if_host, file.host) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(wanted), Some(host)) => *self.tables.name_of(host)? == **wanted,
        };
        let is_over = head.is_archived || head.state.is_final() || from.is_final();
        if is_over || !has_file || !change.from.has(from) {
            return Ok(Ok(Written::Stale));
        }
        let host = match &change.news.transfer_host {
            Some(Some(host)) => Some(self.tables.key_of(host)?),
            _ => None,
        };
        let nobody = match change.news.has_failed && file.host.is_none() {
            true => self.tables.key_of("")?,
            false => 0,
        };
        if let Some(file) = self.files.get_mut(&id) {
            self.attempts.extend(progress::make(file, change, host, nobody));
        }
        if let Some(dst_file) = &change.news.dst_file {
            self.merge_dst_file(id, dst_file)?;
        }
        self.moved(key, id, from, change.to);
        if change.to.is_final() {
            self.free_destination(key, id)?;
        }
        let mut standings = vec![Standing { file: change.file, state: change.to }];
        let happened = Happened { from, to: change.to };
        standings.extend(self.follow(key, happened)?);
        let latest = standings.last().map_or(change.to, |standing| standing.state);
        self.keep_source(key, id, happened);
        let state = self.judge(key, latest, None, change.at_s)?;
        Ok(Ok(Written::Changed(standings, state)))
    }

    /// Counts a file that has another state.
    fn moved(&mut self, job: i64, file: i64, from: FileState, to: FileState) {
        self.changed_files.insert(file);
        if from != to
            && let Some(head) = self.heads.get_mut(&job)
        {
            head.tally.moved(from, to);
            self.changed_heads.insert(job);
        }
    }

    /// Begins the file whose turn has come by this change of another one. The store knows no queues: it is the next by number.
    fn follow(&mut self, job: i64, happened: Happened) -> Result<Option<Standing>> {
        let Some(head) = self.heads.get(&job) else { return Ok(None) };
        if !matches!(head.kind, JobKind::Replicas | JobKind::Multihop) || !happened.to.is_final() {
            return Ok(None);
        }
        if self.is_complete.insert(job) {
            for file in self.tables.files_of(head)? {
                // What has changed here is newer.
                self.files.entry(file.id).or_insert(file);
            }
        }
        let numbers = head.key..head.key + i64::from(head.files);
        let member = |file: &Hot| Member {
            id: FileId(file.id),
            state: file.state,
            initial_state: file.initial_state,
            waiting: 0,
        };
        let members: Vec<Member> = numbers.filter_map(|id| self.files.get(&id)).map(member).collect();
        let next = follow::consequence(head.kind, head.state, &members, happened);
        let Some((FileId(id), state)) = next else { return Ok(None) };
        if let Some(file) = self.files.get_mut(&id) {
            file.state = state;
        }
        self.moved(job, id, FileState::NotUsed, state);
        Ok(Some(Standing { file: FileId(id), state }))
    }

    /// A job with replicas has the source that was copied (fts3-rest 6.2).
    fn keep_source(&mut self, job: i64, file: i64, happened: Happened) {
        if let (Some(head), Some(file)) = (self.heads.get_mut(&job), self.files.get(&file))
            && follow::is_source_in_the_end(head.kind, happened)
        {
            head.source_se = Some(file.source_se);
        }
    }

    /// Finds a job's state after its files have changed, the last one of which is `latest` now.
    /// `canceled`: the reason of a job that is cancelled by that.
    fn judge(&mut self, job: i64, latest: FileState, canceled: Option<&str>, at_s: i64) -> Result<JobState> {
        let Some(head) = self.heads.get_mut(&job) else {
            return Err(codes::damaged(format!("the job {job} is gone")));
        };
        let state = head.tally.job_state(head.kind, head.state, latest);
        if state.is_final() {
            let reason = match canceled.filter(|_| state == JobState::Canceled) {
                Some(reason) => Some(reason.to_owned()),
                None => follow::reason(head.kind, head.state, latest, state).map(str::to_owned),
            };
            return self.end(job, state, reason, at_s);
        }
        if head.state != state {
            head.state = state;
            self.changed_heads.insert(job);
        }
        Ok(state)
    }

    /// Ends a job.
    fn end(&mut self, job: i64, state: JobState, reason: Option<String>, at_s: i64) -> Result<JobState> {
        if let Some(head) = self.heads.get_mut(&job) {
            head.state = state;
            head.finished_s = Some(at_s);
            head.reason = reason;
            self.changed_heads.insert(job);
            if head.is_unique {
                self.tables.free_destinations(job)?;
            }
        }
        Ok(state)
    }

    /// Gives the destination of a file free that has ended; replicas have theirs together, until their job ends.
    fn free_destination(&mut self, job: i64, file: i64) -> Result<()> {
        let is_its_own =
            self.heads.get(&job).is_some_and(|head| head.is_unique && head.kind != JobKind::Replicas);
        if is_its_own {
            let destination = self.tables.destination(file)?;
            self.tables.free_destination(job, &codes::digest(&destination))?;
        }
        Ok(())
    }

    /// Puts the description of an existing destination into a file's metadata (fts3-rest 4.2, `dst_file_report`).
    fn merge_dst_file(&mut self, file: i64, dst_file: &serde_json::Value) -> Result<()> {
        let metadata: Option<serde_json::Value> = match self.tables.metadata(file)? {
            Some(text) => Some(crate::rows::read_json(&text)?),
            None => None,
        };
        let mut merged = match metadata {
            Some(serde_json::Value::Object(words)) => words,
            _ => serde_json::Map::new(),
        };
        merged.insert("dst_file".to_owned(), dst_file.clone());
        self.tables.set_metadata(file, &serde_json::Value::Object(merged).to_string())
    }

    /// Writes what has changed.
    fn save(self) -> Result<()> {
        let heads: Vec<&Head> = self.changed_heads.iter().filter_map(|key| self.heads.get(key)).collect();
        let files: Vec<&Hot> = self.changed_files.iter().filter_map(|id| self.files.get(id)).collect();
        self.tables.save(&heads, &files, &self.attempts)
    }
}
