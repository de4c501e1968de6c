//! A transaction of SQLite.

use std::collections::HashMap;
use std::sync::Arc;

use gridlane_core::Result;
use gridlane_jobs::JobId;
use rusqlite::{Connection, Params, params};

use super::error::failed;
use super::read::{self, Row};
use crate::codes::{self, signed};
use crate::names::Names;
use crate::rows::{AttemptRow, Columns, FileRow, HEAD, HOT, Head, Hot, JobRow, NameKey, NameOf, narrow};
use crate::store::{Beat, Setting};
use crate::tables::{Digest, Tables};

const INSERT_NAME: &str = "INSERT INTO name (digest, text) VALUES (?1, ?2)";
const TAKE_NUMBERS: &str = "UPDATE counter SET next = next + ?1 RETURNING next - ?1";
const HAS_JOB: &str = "SELECT 1 FROM job WHERE id = ?1";
const INSERT_JOB: &str = "INSERT INTO job (key, id, files, kind, state, tally, states, priority, user_dn, vo, delegation, \
    source_se, dest_se, submit_host, submitted_s, finished_s, expires_s, is_unique, reason) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)";
const INSERT_JOB_TEXT: &str = "INSERT INTO job_text (key, params, metadata) VALUES (?1, ?2, ?3)";
const INSERT_FILE: &str = "INSERT INTO file (id, job, number, hashed_id, state, initial_state, source_se, dest_se, activity, \
    user_size_bytes, attempts, retry_after_s, host, reason, is_recoverable, size_bytes, transferred_bytes, \
    throughput_bytes_per_s, duration_s, started_s, finished_s, staging_started_s, staging_finished_s, archive_started_s, \
    archive_finished_s, bringonline_token) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, \
    ?24, ?25, ?26)";
const INSERT_FILE_TEXT: &str = "INSERT INTO file_text (id, source, destination, checksum, selection, scitag, metadata, \
    staging_metadata, archive_metadata, source_token, destination_token) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
const IS_TAKEN: &str = "SELECT 1 FROM live_destination WHERE digest = ?1";
const TAKE_DESTINATION: &str = "INSERT INTO live_destination (digest, job) VALUES (?1, ?2)";
const FREE_DESTINATION: &str = "DELETE FROM live_destination WHERE digest = ?1 AND job = ?2";
const FREE_DESTINATIONS: &str = "DELETE FROM live_destination WHERE job = ?1";
const DESTINATION: &str = "SELECT destination FROM file_text WHERE id = ?1";
const SAVE_JOB: &str = "UPDATE job SET state = ?2, tally = ?3, states = ?4, source_se = ?5, finished_s = ?6, reason = ?7 \
    WHERE key = ?1";
const SAVE_FILE: &str = "UPDATE file SET state = ?2, hashed_id = ?3, attempts = ?4, retry_after_s = ?5, host = ?6, \
    reason = ?7, is_recoverable = ?8, size_bytes = ?9, transferred_bytes = ?10, throughput_bytes_per_s = ?11, \
    duration_s = ?12, started_s = ?13, finished_s = ?14, staging_started_s = ?15, staging_finished_s = ?16, \
    archive_started_s = ?17, archive_finished_s = ?18, bringonline_token = ?19 WHERE id = ?1";
const INSERT_ATTEMPT: &str =
    "INSERT INTO attempt (file, number, ended_s, reason, host) VALUES (?1, ?2, ?3, ?4, ?5)";
const METADATA: &str = "SELECT metadata FROM file_text WHERE id = ?1";
const SET_METADATA: &str = "UPDATE file_text SET metadata = ?2 WHERE id = ?1";
const SET_PRIORITY: &str = "UPDATE job SET priority = ?2 WHERE key = ?1";
const SET: &str = "INSERT INTO setting (kind, digest, name, value) VALUES (?1, ?2, ?3, ?4) \
    ON CONFLICT (kind, digest) DO UPDATE SET value = excluded.value";
const UNSET: &str = "DELETE FROM setting WHERE kind = ?1 AND digest = ?2";
const ADD_AUDIT: &str = "INSERT INTO audit (at_s, by, subject, action) VALUES (?1, ?2, ?3, ?4)";
const BEAT: &str = "INSERT INTO host (name, beat_s, is_draining) VALUES (?1, ?2, ?3) \
    ON CONFLICT (name) DO UPDATE SET beat_s = excluded.beat_s, is_draining = excluded.is_draining";
const LEAD: &str = "INSERT INTO leader (one, host, until_s) VALUES (1, ?1, ?2) \
    ON CONFLICT (one) DO UPDATE SET host = excluded.host, until_s = excluded.until_s \
    WHERE leader.host = excluded.host OR leader.until_s <= ?3";
const ARCHIVE: &str = "UPDATE job SET is_archived = 1 WHERE key IN \
    (SELECT key FROM job INDEXED BY job_finished WHERE is_archived = 0 AND finished_s <= ?1 ORDER BY finished_s LIMIT ?2)";

/// A transaction that writes.
pub(crate) struct Transaction<'a> {
    connection: &'a Connection,
    names: &'a Names,
    /// Names that are in the store for good when the transaction is.
    pub(crate) fresh: HashMap<Arc<str>, NameKey>,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(connection: &'a Connection, names: &'a Names) -> Transaction<'a> {
        Transaction { connection, names, fresh: HashMap::new() }
    }

    /// Runs a statement; the number of rows that it has changed.
    pub(crate) fn execute(&mut self, sql: &str, params: impl Params) -> Result<usize> {
        let done = self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute(params));
        done.map_err(|cause| failed("write to the store of jobs", &cause))
    }

    /// The first row that a question has.
    fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        take: impl FnMut(&mut Row<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        read::one(self.connection, sql, params, take)
    }

    fn insert_file(&mut self, file: &FileRow) -> Result<()> {
        let (hot, text, stamps) = (&file.hot, &file.text, &file.hot.stamps);
        self.execute(
            INSERT_FILE,
            params![
                hot.id,
                hot.job,
                file.number,
                hot.hashed_id,
                codes::file_state(hot.state),
                codes::file_state(hot.initial_state),
                hot.source_se,
                file.dest_se,
                file.activity,
                signed(file.user_size_bytes),
                hot.attempts,
                hot.retry_after_s,
                hot.host,
                hot.reason,
                hot.is_recoverable,
                hot.size_bytes.map(signed),
                hot.transferred_bytes.map(signed),
                hot.throughput_bytes_per_s,
                hot.duration_s,
                stamps.started_s,
                stamps.finished_s,
                stamps.staging_started_s,
                stamps.staging_finished_s,
                stamps.archive_started_s,
                stamps.archive_finished_s,
                hot.bringonline_token,
            ],
        )?;
        self.execute(
            INSERT_FILE_TEXT,
            params![
                hot.id,
                text.source,
                text.destination,
                text.checksum,
                text.selection,
                text.scitag,
                text.metadata,
                text.staging_metadata,
                text.archive_metadata,
                text.source_token,
                text.destination_token,
            ],
        )?;
        Ok(())
    }

    fn save_file(&mut self, hot: &Hot) -> Result<()> {
        let stamps = &hot.stamps;
        let saved = params![
            hot.id,
            codes::file_state(hot.state),
            hot.hashed_id,
            hot.attempts,
            hot.retry_after_s,
            hot.host,
            hot.reason,
            hot.is_recoverable,
            hot.size_bytes.map(signed),
            hot.transferred_bytes.map(signed),
            hot.throughput_bytes_per_s,
            hot.duration_s,
            stamps.started_s,
            stamps.finished_s,
            stamps.staging_started_s,
            stamps.staging_finished_s,
            stamps.archive_started_s,
            stamps.archive_finished_s,
            hot.bringonline_token,
        ];
        self.execute(SAVE_FILE, saved).map(drop)
    }
}

impl NameOf for Transaction<'_> {
    fn name_of(&mut self, key: NameKey) -> Result<Arc<str>> {
        // One that is read here may be of this transaction, and is not kept before its end.
        self.names.name(key).map_or_else(|| read::name_of(self.connection, key), Ok)
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
        let key = match read::key_of(self.connection, &digest)? {
            Some(key) => key,
            None => {
                self.execute(INSERT_NAME, params![digest, name])?;
                narrow(self.connection.last_insert_rowid())?
            }
        };
        self.fresh.insert(name.into(), key);
        Ok(key)
    }

    fn take_numbers(&mut self, count: i64) -> Result<i64> {
        let first = self.one(TAKE_NUMBERS, [count], |row| row.int())?;
        first.ok_or_else(|| codes::damaged("there is no counter"))
    }

    fn has_job(&mut self, id: JobId) -> Result<bool> {
        Ok(self.one(HAS_JOB, [id.0.as_bytes().as_slice()], |_| Ok(()))?.is_some())
    }

    fn insert_job(&mut self, job: &JobRow, files: &[FileRow]) -> Result<()> {
        let head = &job.head;
        let inserted = params![
            head.key,
            head.id.0.as_bytes().as_slice(),
            head.files,
            codes::job_kind(head.kind),
            codes::job_state(head.state),
            codes::tally(&head.tally),
            codes::states_of(&head.tally),
            job.priority,
            job.user_dn,
            job.vo,
            job.delegation,
            head.source_se,
            job.dest_se,
            job.submit_host,
            job.submitted_s,
            head.finished_s,
            job.expires_s,
            head.is_unique,
            head.reason,
        ];
        self.execute(INSERT_JOB, inserted)?;
        self.execute(INSERT_JOB_TEXT, params![head.key, job.params, job.metadata])?;
        files.iter().try_for_each(|file| self.insert_file(file))
    }

    fn taken_destination(&mut self, digests: &[Digest]) -> Result<Option<usize>> {
        for (place, digest) in digests.iter().enumerate() {
            if self.one(IS_TAKEN, [digest], |_| Ok(()))?.is_some() {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    fn take_destinations(&mut self, job: i64, digests: &[Digest]) -> Result<()> {
        for digest in digests {
            self.execute(TAKE_DESTINATION, params![digest, job])?;
        }
        Ok(())
    }

    fn free_destination(&mut self, job: i64, digest: &Digest) -> Result<()> {
        self.execute(FREE_DESTINATION, params![digest, job]).map(drop)
    }

    fn free_destinations(&mut self, job: i64) -> Result<()> {
        self.execute(FREE_DESTINATIONS, [job]).map(drop)
    }

    fn destination(&mut self, file: i64) -> Result<String> {
        let found = self.one(DESTINATION, [file], |row| row.text())?;
        found.ok_or_else(|| codes::damaged(format!("the file {file} has no URLs")))
    }

    fn lock(&mut self, _files: &[i64], _jobs: &[JobId]) -> Result<()> {
        // One transaction writes at a time.
        Ok(())
    }

    fn load(&mut self, files: &[i64]) -> Result<(Vec<Head>, Vec<Hot>)> {
        let (mut heads, mut hots) = (Vec::<Head>::new(), Vec::with_capacity(files.len()));
        for file in files {
            let Some(hot) =
                self.one(&format!("SELECT {HOT} FROM file f WHERE f.id = ?1"), [*file], |row| {
                    Hot::read(row)
                })?
            else {
                continue;
            };
            // Files come by number, and those of a job one after the other.
            if heads.last().is_none_or(|head| head.key != hot.job) {
                let sql = format!("SELECT {HEAD} FROM job j WHERE j.key = ?1");
                heads.extend(self.one(&sql, [hot.job], |row| Head::read(row))?);
            }
            hots.push(hot);
        }
        Ok((heads, hots))
    }

    fn head(&mut self, id: JobId) -> Result<Option<Head>> {
        let sql = format!("SELECT {HEAD} FROM job j WHERE j.id = ?1");
        self.one(&sql, [id.0.as_bytes().as_slice()], |row| Head::read(row))
    }

    fn files_of(&mut self, job: &Head) -> Result<Vec<Hot>> {
        let sql = format!("SELECT {HOT} FROM file f WHERE f.id >= ?1 AND f.id < ?2 ORDER BY f.id");
        let numbers = [job.key, job.key + i64::from(job.files)];
        read::all(self.connection, &sql, numbers, |row| Hot::read(row))
    }

    fn save(&mut self, jobs: &[&Head], files: &[&Hot], attempts: &[AttemptRow]) -> Result<()> {
        for head in jobs {
            let saved = params![
                head.key,
                codes::job_state(head.state),
                codes::tally(&head.tally),
                codes::states_of(&head.tally),
                head.source_se,
                head.finished_s,
                head.reason,
            ];
            self.execute(SAVE_JOB, saved)?;
        }
        files.iter().try_for_each(|hot| self.save_file(hot))?;
        for attempt in attempts {
            let AttemptRow { file, number, ended_s, reason, host } = attempt;
            self.execute(INSERT_ATTEMPT, params![file, number, ended_s, reason, host])?;
        }
        Ok(())
    }

    fn metadata(&mut self, file: i64) -> Result<Option<String>> {
        Ok(self.one(METADATA, [file], |row| row.text_or_null())?.flatten())
    }

    fn set_metadata(&mut self, file: i64, metadata: &str) -> Result<()> {
        self.execute(SET_METADATA, params![file, metadata]).map(drop)
    }

    fn set_priority(&mut self, job: i64, priority: u8) -> Result<()> {
        self.execute(SET_PRIORITY, params![job, priority]).map(drop)
    }

    fn set(&mut self, kind: Setting, name: &str, value: &str) -> Result<()> {
        self.execute(SET, params![kind.name(), codes::digest(name), name, value]).map(drop)
    }

    fn unset(&mut self, kind: Setting, name: &str) -> Result<bool> {
        Ok(self.execute(UNSET, params![kind.name(), codes::digest(name)])? > 0)
    }

    fn add_audit(&mut self, at_s: i64, by: &str, subject: &str, action: &str) -> Result<()> {
        self.execute(ADD_AUDIT, params![at_s, by, subject, action]).map(drop)
    }

    fn beat(&mut self, beat: &Beat) -> Result<()> {
        let host = self.key_of(&beat.host)?;
        self.execute(BEAT, params![host, beat.at_s, beat.is_draining]).map(drop)
    }

    fn lead(&mut self, host: NameKey, until_s: i64, at_s: i64) -> Result<bool> {
        Ok(self.execute(LEAD, params![host, until_s, at_s])? > 0)
    }

    fn archive(&mut self, before_s: i64, limit: u32) -> Result<u64> {
        Ok(self.execute(ARCHIVE, params![before_s, limit])? as u64)
    }
}
