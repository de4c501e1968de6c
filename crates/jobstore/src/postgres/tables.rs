//! A transaction of PostgreSQL. Rows go there and back by the column, so that a hundred cost one question.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use gridlane_core::Result;
use gridlane_jobs::JobId;

use super::connection::{Connection, Values};
use super::text::escape;
use crate::codes::{self, signed};
use crate::names::Names;
use crate::rows::{AttemptRow, Columns, FileRow, HEAD, HOT, Head, Hot, JobRow, NameKey, NameOf, narrow};
use crate::store::{Beat, Setting};
use crate::tables::{Digest, Tables};

const INSERT_NAME: &str =
    "INSERT INTO name (digest, text) VALUES ($1, $2) ON CONFLICT (digest) DO NOTHING RETURNING key";
const TAKE_NUMBERS: &str = "UPDATE counter SET next = next + $1 RETURNING next - $1";
const HAS_JOB: &str = "SELECT 1 FROM job WHERE id = $1";
const INSERT_JOB: &str = "INSERT INTO job (key, id, files, kind, state, tally, states, priority, user_dn, vo, delegation, \
    source_se, dest_se, submit_host, submitted_s, finished_s, expires_s, is_unique, reason) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)";
const INSERT_JOB_TEXT: &str = "INSERT INTO job_text (key, params, metadata) VALUES ($1, $2, $3)";
const INSERT_FILES: &str = "INSERT INTO file (id, job, number, hashed_id, state, initial_state, source_se, dest_se, activity, \
    user_size_bytes, attempts, retry_after_s, host, reason, is_recoverable, size_bytes, transferred_bytes, \
    throughput_bytes_per_s, duration_s, started_s, finished_s, staging_started_s, staging_finished_s, archive_started_s, \
    archive_finished_s, bringonline_token) \
    SELECT * FROM unnest($1::int8[], $2::int8[], $3::int4[], $4::int4[], $5::int2[], $6::int2[], $7::int4[], $8::int4[], \
    $9::int4[], $10::int8[], $11::int4[], $12::int8[], $13::int4[], $14::text[], $15::boolean[], $16::int8[], $17::int8[], \
    $18::float8[], $19::float8[], $20::int8[], $21::int8[], $22::int8[], $23::int8[], $24::int8[], $25::int8[], $26::text[])";
const INSERT_FILE_TEXTS: &str = "INSERT INTO file_text (id, source, destination, checksum, selection, scitag, metadata, \
    staging_metadata, archive_metadata, source_token, destination_token) \
    SELECT * FROM unnest($1::int8[], $2::text[], $3::text[], $4::text[], $5::int2[], $6::int4[], $7::text[], $8::text[], \
    $9::text[], $10::text[], $11::text[])";
const TAKEN: &str = "SELECT digest FROM live_destination WHERE digest = ANY($1)";
const TAKE_DESTINATIONS: &str = "INSERT INTO live_destination (digest, job) SELECT unnest($1::bytea[]), $2";
const FREE_DESTINATION: &str = "DELETE FROM live_destination WHERE digest = $1 AND job = $2";
const FREE_DESTINATIONS: &str = "DELETE FROM live_destination WHERE job = $1";
const DESTINATION: &str = "SELECT destination FROM file_text WHERE id = $1";
const SAVE_JOBS: &str = "UPDATE job SET state = n.state, tally = n.tally, states = n.states, source_se = n.source_se, \
    finished_s = n.finished_s, reason = n.reason \
    FROM unnest($1::int8[], $2::int2[], $3::text[], $4::int4[], $5::int4[], $6::int8[], $7::text[]) \
    AS n (key, state, tally, states, source_se, finished_s, reason) WHERE job.key = n.key";
const SAVE_FILES: &str = "UPDATE file SET state = n.state, hashed_id = n.hashed_id, attempts = n.attempts, \
    retry_after_s = n.retry_after_s, host = n.host, reason = n.reason, is_recoverable = n.is_recoverable, \
    size_bytes = n.size_bytes, transferred_bytes = n.transferred_bytes, throughput_bytes_per_s = n.throughput_bytes_per_s, \
    duration_s = n.duration_s, started_s = n.started_s, finished_s = n.finished_s, \
    staging_started_s = n.staging_started_s, staging_finished_s = n.staging_finished_s, \
    archive_started_s = n.archive_started_s, archive_finished_s = n.archive_finished_s, \
    bringonline_token = n.bringonline_token \
    FROM unnest($1::int8[], $2::int2[], $3::int4[], $4::int4[], $5::int8[], $6::int4[], $7::text[], $8::boolean[], \
    $9::int8[], $10::int8[], $11::float8[], $12::float8[], $13::int8[], $14::int8[], $15::int8[], $16::int8[], $17::int8[], \
    $18::int8[], $19::text[]) AS n (id, state, hashed_id, attempts, retry_after_s, host, reason, is_recoverable, size_bytes, \
    transferred_bytes, throughput_bytes_per_s, duration_s, started_s, finished_s, staging_started_s, staging_finished_s, \
    archive_started_s, archive_finished_s, bringonline_token) WHERE file.id = n.id";
const INSERT_ATTEMPTS: &str = "INSERT INTO attempt (file, number, ended_s, reason, host) \
    SELECT * FROM unnest($1::int8[], $2::int4[], $3::int8[], $4::text[], $5::int4[])";
const METADATA: &str = "SELECT metadata FROM file_text WHERE id = $1";
const SET_METADATA: &str = "UPDATE file_text SET metadata = $2 WHERE id = $1";
const SET_PRIORITY: &str = "UPDATE job SET priority = $2 WHERE key = $1";
const SET: &str = "INSERT INTO setting (kind, digest, name, value) VALUES ($1, $2, $3, $4) \
    ON CONFLICT (kind, digest) DO UPDATE SET value = excluded.value";
const UNSET: &str = "DELETE FROM setting WHERE kind = $1 AND digest = $2";
const ADD_AUDIT: &str = "INSERT INTO audit (at_s, by, subject, action) VALUES ($1, $2, $3, $4)";
const BEAT: &str = "INSERT INTO host (name, beat_s, is_draining) VALUES ($1, $2, $3) \
    ON CONFLICT (name) DO UPDATE SET beat_s = excluded.beat_s, is_draining = excluded.is_draining";
const LEAD: &str = "INSERT INTO leader (one, host, until_s) VALUES (1, $1, $2) \
    ON CONFLICT (one) DO UPDATE SET host = excluded.host, until_s = excluded.until_s \
    WHERE leader.host = excluded.host OR leader.until_s <= $3";
const ARCHIVE: &str = "UPDATE job SET is_archived = true WHERE key IN (SELECT key FROM job \
    WHERE NOT is_archived AND finished_s <= $1 ORDER BY finished_s LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)";

/// A transaction that writes.
pub(crate) struct Transaction<'a> {
    connection: &'a mut Connection,
    names: &'a Names,
    /// Names that are in the store for good when the transaction is.
    pub(super) fresh: HashMap<Arc<str>, NameKey>,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(connection: &'a mut Connection, names: &'a Names) -> Transaction<'a> {
        Transaction { connection, names, fresh: HashMap::new() }
    }

    /// Runs a statement; the number of rows that it has changed.
    pub(super) fn execute(&mut self, sql: &str, values: Values<'_>) -> Result<u64> {
        self.connection.execute(sql, values)
    }

    fn save_files(&mut self, files: &[&Hot]) -> Result<()> {
        let columns = HotColumns::of(files.iter().copied());
        self.execute(
            SAVE_FILES,
            &[
                &columns.ids,
                &columns.states,
                &columns.hashed_ids,
                &columns.attempts,
                &columns.retries_after_s,
                &columns.hosts,
                &columns.reasons,
                &columns.are_recoverable,
                &columns.sizes,
                &columns.transferred,
                &columns.throughputs,
                &columns.durations,
                &columns.stamps[0],
                &columns.stamps[1],
                &columns.stamps[2],
                &columns.stamps[3],
                &columns.stamps[4],
                &columns.stamps[5],
                &columns.tokens,
            ],
        )
        .map(drop)
    }

    fn insert_files(&mut self, files: &[FileRow]) -> Result<()> {
        let hot = HotColumns::of(files.iter().map(|file| &file.hot));
        let jobs: Vec<i64> = files.iter().map(|file| file.hot.job).collect();
        let numbers: Vec<i32> = column(files, |file| small(file.number))?;
        let initial_states: Vec<i16> =
            column(files, |file| narrow(codes::file_state(file.hot.initial_state)))?;
        let sources_se: Vec<NameKey> = files.iter().map(|file| file.hot.source_se).collect();
        let dests_se: Vec<NameKey> = files.iter().map(|file| file.dest_se).collect();
        let activities: Vec<NameKey> = files.iter().map(|file| file.activity).collect();
        let user_sizes: Vec<i64> = files.iter().map(|file| signed(file.user_size_bytes)).collect();
        self.execute(
            INSERT_FILES,
            &[
                &hot.ids,
                &jobs,
                &numbers,
                &hot.hashed_ids,
                &hot.states,
                &initial_states,
                &sources_se,
                &dests_se,
                &activities,
                &user_sizes,
                &hot.attempts,
                &hot.retries_after_s,
                &hot.hosts,
                &hot.reasons,
                &hot.are_recoverable,
                &hot.sizes,
                &hot.transferred,
                &hot.throughputs,
                &hot.durations,
                &hot.stamps[0],
                &hot.stamps[1],
                &hot.stamps[2],
                &hot.stamps[3],
                &hot.stamps[4],
                &hot.stamps[5],
                &hot.tokens,
            ],
        )?;
        let text = |of: fn(&FileRow) -> &str| files.iter().map(|file| escape(of(file))).collect::<Vec<_>>();
        let text_or_null = |of: fn(&FileRow) -> &Option<String>| {
            files.iter().map(|file| of(file).as_deref().map(escape)).collect::<Vec<_>>()
        };
        let selections: Vec<i16> = column(files, |file| narrow(file.text.selection))?;
        let scitags: Vec<Option<i32>> = files.iter().map(|file| file.text.scitag.map(i32::from)).collect();
        self.execute(
            INSERT_FILE_TEXTS,
            &[
                &hot.ids,
                &text(|file| &file.text.source),
                &text(|file| &file.text.destination),
                &text(|file| &file.text.checksum),
                &selections,
                &scitags,
                &text_or_null(|file| &file.text.metadata),
                &text_or_null(|file| &file.text.staging_metadata),
                &text_or_null(|file| &file.text.archive_metadata),
                &text_or_null(|file| &file.text.source_token),
                &text_or_null(|file| &file.text.destination_token),
            ],
        )?;
        Ok(())
    }
}

/// A column of rows.
fn column<R, T>(rows: &[R], of: impl Fn(&R) -> Result<T>) -> Result<Vec<T>> {
    rows.iter().map(of).collect()
}

/// A count as PostgreSQL has it.
fn small(count: u32) -> Result<i32> {
    narrow(i64::from(count))
}

/// The changing parts of files, by the column.
#[derive(Default)]
struct HotColumns<'a> {
    ids: Vec<i64>,
    states: Vec<i16>,
    hashed_ids: Vec<i32>,
    attempts: Vec<i32>,
    retries_after_s: Vec<Option<i64>>,
    hosts: Vec<Option<NameKey>>,
    reasons: Vec<Option<Cow<'a, str>>>,
    are_recoverable: Vec<Option<bool>>,
    sizes: Vec<Option<i64>>,
    transferred: Vec<Option<i64>>,
    throughputs: Vec<Option<f64>>,
    durations: Vec<Option<f64>>,
    /// In the order of the table.
    stamps: [Vec<Option<i64>>; 6],
    tokens: Vec<Option<Cow<'a, str>>>,
}

impl<'a> HotColumns<'a> {
    fn of(files: impl Iterator<Item = &'a Hot>) -> HotColumns<'a> {
        let mut columns = HotColumns::default();
        for hot in files {
            columns.ids.push(hot.id);
            // Numbers of states are small.
            columns.states.push(codes::file_state(hot.state) as i16);
            columns.hashed_ids.push(hot.hashed_id.into());
            columns.attempts.push(i32::try_from(hot.attempts).unwrap_or(i32::MAX));
            columns.retries_after_s.push(hot.retry_after_s);
            columns.hosts.push(hot.host);
            columns.reasons.push(hot.reason.as_deref().map(escape));
            columns.are_recoverable.push(hot.is_recoverable);
            columns.sizes.push(hot.size_bytes.map(signed));
            columns.transferred.push(hot.transferred_bytes.map(signed));
            columns.throughputs.push(hot.throughput_bytes_per_s);
            columns.durations.push(hot.duration_s);
            let stamps = &hot.stamps;
            let stamps = [
                stamps.started_s,
                stamps.finished_s,
                stamps.staging_started_s,
                stamps.staging_finished_s,
                stamps.archive_started_s,
                stamps.archive_finished_s,
            ];
            for (column, stamp) in columns.stamps.iter_mut().zip(stamps) {
                column.push(stamp);
            }
            columns.tokens.push(hot.bringonline_token.as_deref().map(escape));
        }
        columns
    }
}

impl NameOf for Transaction<'_> {
    fn name_of(&mut self, key: NameKey) -> Result<Arc<str>> {
        // One that is read here may be of this transaction, and is not kept before its end.
        match self.names.name(key) {
            Some(name) => Ok(name),
            None => super::read::name_of(self.connection, key),
        }
    }
}

impl Tables for Transaction<'_> {
    fn key_of(&mut self, name: &str) -> Result<NameKey> {
        if let Some(key) = self.names.key(name) {
            return Ok(key);
        }
        if let Some(key) = self.fresh.get(name) {
            return Ok(*key);
        }
        let digest = codes::digest(name);
        let found = match super::read::key_of(self.connection, &digest)? {
            Some(key) => Some(key),
            None => {
                let values: Values<'_> = &[&digest.as_slice(), &escape(name)];
                match self.connection.one(INSERT_NAME, values, |row| row.name())? {
                    Some(key) => Some(key),
                    // Another broker has just made it.
                    None => super::read::key_of(self.connection, &digest)?,
                }
            }
        };
        let key = found.ok_or_else(|| codes::damaged("a name is there and is not"))?;
        self.fresh.insert(name.into(), key);
        Ok(key)
    }

    fn take_numbers(&mut self, count: i64) -> Result<i64> {
        let first = self.connection.one(TAKE_NUMBERS, &[&count], |row| row.int())?;
        first.ok_or_else(|| codes::damaged("there is no counter"))
    }

    fn has_job(&mut self, id: JobId) -> Result<bool> {
        let id = id.0.as_bytes().as_slice();
        Ok(self.connection.one(HAS_JOB, &[&id], |_| Ok(()))?.is_some())
    }

    fn insert_job(&mut self, job: &JobRow, files: &[FileRow]) -> Result<()> {
        let head = &job.head;
        let values: Values<'_> = &[
            &head.key,
            &head.id.0.as_bytes().as_slice(),
            &small(head.files)?,
            &narrow::<i16>(codes::job_kind(head.kind))?,
            &narrow::<i16>(codes::job_state(head.state))?,
            &codes::tally(&head.tally),
            &narrow::<i32>(codes::states_of(&head.tally))?,
            &i16::from(job.priority),
            &job.user_dn,
            &job.vo,
            &job.delegation,
            &head.source_se,
            &job.dest_se,
            &job.submit_host,
            &job.submitted_s,
            &head.finished_s,
            &job.expires_s,
            &head.is_unique,
            &head.reason.as_deref().map(escape),
        ];
        self.execute(INSERT_JOB, values)?;
        let metadata = job.metadata.as_deref().map(escape);
        self.execute(INSERT_JOB_TEXT, &[&head.key, &escape(&job.params), &metadata])?;
        if files.is_empty() { Ok(()) } else { self.insert_files(files) }
    }

    fn taken_destination(&mut self, digests: &[Digest]) -> Result<Option<usize>> {
        let taken = self.connection.all(TAKEN, &[&slices(digests)], |row| row.bytes())?;
        Ok(digests.iter().position(|digest| taken.iter().any(|taken| taken == digest)))
    }

    fn take_destinations(&mut self, job: i64, digests: &[Digest]) -> Result<()> {
        self.execute(TAKE_DESTINATIONS, &[&slices(digests), &job]).map(drop)
    }

    fn free_destination(&mut self, job: i64, digest: &Digest) -> Result<()> {
        self.execute(FREE_DESTINATION, &[&digest.as_slice(), &job]).map(drop)
    }

    fn free_destinations(&mut self, job: i64) -> Result<()> {
        self.execute(FREE_DESTINATIONS, &[&job]).map(drop)
    }

    fn destination(&mut self, file: i64) -> Result<String> {
        let found = self.connection.one(DESTINATION, &[&file], |row| row.text())?;
        found.ok_or_else(|| codes::damaged(format!("the file {file} has no URLs")))
    }

    fn lock(&mut self, files: &[i64], jobs: &[JobId]) -> Result<()> {
        const LOCK: &str = "SELECT j.key FROM job j WHERE j.key IN (SELECT f.job FROM file f WHERE f.id = ANY($1) \
            UNION SELECT k.key FROM job k WHERE k.id = ANY($2)) ORDER BY j.key FOR NO KEY UPDATE OF j";
        let jobs: Vec<&[u8]> = jobs.iter().map(|job| job.0.as_bytes().as_slice()).collect();
        self.connection.all(LOCK, &[&files, &jobs], |_| Ok(())).map(drop)
    }

    fn load(&mut self, files: &[i64]) -> Result<(Vec<Head>, Vec<Hot>)> {
        // First the jobs: each is the lock of its files, and is had in the order of numbers.
        let heads = format!(
            "SELECT {HEAD} FROM job j WHERE j.key IN (SELECT f.job FROM file f WHERE f.id = ANY($1))
             ORDER BY j.key FOR NO KEY UPDATE OF j"
        );
        let heads = self.connection.all(&heads, &[&files], |row| Head::read(row))?;
        let hots = format!("SELECT {HOT} FROM file f WHERE f.id = ANY($1)");
        let hots = self.connection.all(&hots, &[&files], |row| Hot::read(row))?;
        Ok((heads, hots))
    }

    fn head(&mut self, id: JobId) -> Result<Option<Head>> {
        let sql = format!("SELECT {HEAD} FROM job j WHERE j.id = $1 FOR NO KEY UPDATE");
        self.connection.one(&sql, &[&id.0.as_bytes().as_slice()], |row| Head::read(row))
    }

    fn files_of(&mut self, job: &Head) -> Result<Vec<Hot>> {
        let sql = format!("SELECT {HOT} FROM file f WHERE f.job = $1 ORDER BY f.id");
        self.connection.all(&sql, &[&job.key], |row| Hot::read(row))
    }

    fn save(&mut self, jobs: &[&Head], files: &[&Hot], attempts: &[AttemptRow]) -> Result<()> {
        if !jobs.is_empty() {
            let keys: Vec<i64> = jobs.iter().map(|head| head.key).collect();
            let states: Vec<i16> = column(jobs, |head| narrow(codes::job_state(head.state)))?;
            let tallies: Vec<String> = jobs.iter().map(|head| codes::tally(&head.tally)).collect();
            let of_files: Vec<i32> = column(jobs, |head| narrow(codes::states_of(&head.tally)))?;
            let sources: Vec<Option<NameKey>> = jobs.iter().map(|head| head.source_se).collect();
            let ends: Vec<Option<i64>> = jobs.iter().map(|head| head.finished_s).collect();
            let reasons: Vec<_> = jobs.iter().map(|head| head.reason.as_deref().map(escape)).collect();
            self.execute(SAVE_JOBS, &[&keys, &states, &tallies, &of_files, &sources, &ends, &reasons])?;
        }
        if !files.is_empty() {
            self.save_files(files)?;
        }
        if !attempts.is_empty() {
            let files: Vec<i64> = attempts.iter().map(|attempt| attempt.file).collect();
            let numbers: Vec<i32> = column(attempts, |attempt| small(attempt.number))?;
            let ends: Vec<i64> = attempts.iter().map(|attempt| attempt.ended_s).collect();
            let reasons: Vec<_> = attempts.iter().map(|attempt| escape(&attempt.reason)).collect();
            let hosts: Vec<NameKey> = attempts.iter().map(|attempt| attempt.host).collect();
            self.execute(INSERT_ATTEMPTS, &[&files, &numbers, &ends, &reasons, &hosts])?;
        }
        Ok(())
    }

    fn metadata(&mut self, file: i64) -> Result<Option<String>> {
        Ok(self.connection.one(METADATA, &[&file], |row| row.text_or_null())?.flatten())
    }

    fn set_metadata(&mut self, file: i64, metadata: &str) -> Result<()> {
        self.execute(SET_METADATA, &[&file, &escape(metadata)]).map(drop)
    }

    fn set_priority(&mut self, job: i64, priority: u8) -> Result<()> {
        self.execute(SET_PRIORITY, &[&job, &i16::from(priority)]).map(drop)
    }

    fn set(&mut self, kind: Setting, name: &str, value: &str) -> Result<()> {
        let digest = codes::digest(name);
        let values: Values<'_> = &[&kind.name(), &digest.as_slice(), &escape(name), &escape(value)];
        self.execute(SET, values).map(drop)
    }

    fn unset(&mut self, kind: Setting, name: &str) -> Result<bool> {
        Ok(self.execute(UNSET, &[&kind.name(), &codes::digest(name).as_slice()])? > 0)
    }

    fn add_audit(&mut self, at_s: i64, by: &str, subject: &str, action: &str) -> Result<()> {
        let values: Values<'_> = &[&at_s, &escape(by), &escape(subject), &escape(action)];
        self.execute(ADD_AUDIT, values).map(drop)
    }

    fn beat(&mut self, beat: &Beat) -> Result<()> {
        let host = self.key_of(&beat.host)?;
        self.execute(BEAT, &[&host, &beat.at_s, &beat.is_draining]).map(drop)
    }

    fn lead(&mut self, host: NameKey, until_s: i64, at_s: i64) -> Result<bool> {
        Ok(self.execute(LEAD, &[&host, &until_s, &at_s])? > 0)
    }

    fn archive(&mut self, before_s: i64, limit: u32) -> Result<u64> {
        self.execute(ARCHIVE, &[&before_s, &i64::from(limit)])
    }
}

/// Digests as PostgreSQL takes them.
fn slices(digests: &[Digest]) -> Vec<&[u8]> {
    digests.iter().map(Digest::as_slice).collect()
}
