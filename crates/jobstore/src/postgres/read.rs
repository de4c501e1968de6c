//! Questions to PostgreSQL.

use std::sync::Arc;

use gridlane_core::{Result, limits};
use gridlane_jobs::{Attempt, File, FileId, FileState, Job, JobId};
use postgres::types::ToSql;

use super::connection::{Connection, Row, Values};
use super::text::escape;
use crate::codes;
use crate::dialect::Questions;
use crate::names::Names;
use crate::rows::{
    ATTEMPT, AttemptRow, BEATS, Columns, FILE, FILE_JOB, FileJob, FileRow, HEAD, HOT, Head, JOB, JobRow,
    LEADER, NameKey, NameOf, WAITING, read_audit, read_beat, read_busy, read_leader, read_setting,
    read_waiting,
};
use crate::store::{Audit, Beat, Filter, JobFilter, Order, Setting, Waiting};

/// The number of a name that is in the store.
pub(super) fn key_of(connection: &mut Connection, digest: &[u8; 32]) -> Result<Option<NameKey>> {
    connection.one("SELECT key FROM name WHERE digest = $1", &[&digest.as_slice()], |row| row.name())
}

/// The name of a number.
pub(super) fn name_of(connection: &mut Connection, key: NameKey) -> Result<Arc<str>> {
    let name = connection.one("SELECT text FROM name WHERE key = $1", &[&key], |row| row.text())?;
    name.map(Arc::from).ok_or_else(|| codes::damaged(format!("there is no name of number {key}")))
}

/// A connection that reads what is in the store for good.
pub(crate) struct Reader<'a> {
    /// The connection.
    pub(super) connection: &'a mut Connection,
    names: &'a Names,
    /// Rows have been handed out: the question cannot be asked again.
    pub(super) has_told: bool,
}

impl NameOf for Reader<'_> {
    fn name_of(&mut self, key: NameKey) -> Result<Arc<str>> {
        if let Some(name) = self.names.name(key) {
            return Ok(name);
        }
        let name = name_of(self.connection, key)?;
        self.names.keep(key, Arc::clone(&name));
        Ok(name)
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(connection: &'a mut Connection, names: &'a Names) -> Reader<'a> {
        Reader { connection, names, has_told: false }
    }

    /// The number of a name that is in the store; rows of others are looked for in vain.
    fn key_of(&mut self, name: &str) -> Result<Option<NameKey>> {
        match self.names.key(name) {
            Some(key) => Ok(Some(key)),
            None => key_of(self.connection, &codes::digest(name)),
        }
    }

    fn files_of(&mut self, sql: &str, values: Values<'_>) -> Result<Vec<File>> {
        let rows = self.connection.all(sql, values, |row| Ok((FileRow::read(row)?, FileJob::read(row)?)))?;
        rows.into_iter().map(|(row, job)| row.file(&job, self)).collect()
    }

    /// Adds conditions on names, where there is one to be found; false if the store has no such name.
    fn named(&mut self, conditions: &mut Conditions, names: &[(&str, Option<&str>)]) -> Result<bool> {
        for (column, name) in names {
            let Some(name) = name else { continue };
            let Some(key) = self.key_of(name)? else { return Ok(false) };
            conditions.with(column, key);
        }
        Ok(true)
    }

    /// Hands out the rows of a cursor.
    fn tell(&mut self, take: &mut dyn FnMut(Waiting) -> Result<()>) -> Result<()> {
        let fetch = format!("FETCH FORWARD {} FROM waiting", limits::STORE_ROWS_AT_A_TIME);
        loop {
            let rows = self.connection.fetch(&fetch)?;
            if rows.is_empty() {
                return Ok(());
            }
            self.has_told = true;
            for row in &rows {
                take(read_waiting(&mut Row::new(row), self)?)?;
            }
        }
    }

    /// Every job that is not in the archive, with the states of its files.
    pub(super) fn each_stored(&mut self, take: &mut dyn FnMut(Head, Vec<FileState>)) -> Result<()> {
        let sql = format!(
            "SELECT {HEAD} FROM job j WHERE NOT j.is_archived AND j.key > $1 ORDER BY j.key LIMIT $2"
        );
        const STATES: &str = "SELECT state FROM file WHERE job = $1 ORDER BY id";
        let mut after = i64::MIN;
        loop {
            let limit = i64::from(limits::STORE_ROWS_AT_A_TIME);
            let heads = self.connection.all(&sql, &[&after, &limit], |row| Head::read(row))?;
            let Some(last) = heads.last() else { return Ok(()) };
            after = last.key;
            for head in heads {
                let states =
                    self.connection.all(STATES, &[&head.key], |row| codes::read_file_state(row.int()?))?;
                take(head, states);
            }
        }
    }
}

impl Questions for Reader<'_> {
    fn job(&mut self, id: JobId) -> Result<Option<Job>> {
        let sql = format!("SELECT {HEAD}, {JOB} FROM job j JOIN job_text t ON t.key = j.key WHERE j.id = $1");
        let row = self.connection.one(&sql, &[&id.0.as_bytes().as_slice()], |row| JobRow::read(row))?;
        row.map(|row| row.job(self)).transpose()
    }

    fn files(&mut self, job: JobId, after: Option<FileId>, limit: u32) -> Result<Vec<File>> {
        let sql = format!(
            "SELECT {HOT}, {FILE}, {FILE_JOB}
             FROM job j JOIN file f ON f.job = j.key JOIN file_text x ON x.id = f.id
             WHERE j.id = $1 AND f.id > $2 ORDER BY f.id LIMIT $3"
        );
        let after = after.map_or(i64::MIN, |file| file.0);
        self.files_of(&sql, &[&job.0.as_bytes().as_slice(), &after, &limit_of(limit)])
    }

    fn file(&mut self, id: FileId) -> Result<Option<File>> {
        let sql = format!(
            "SELECT {HOT}, {FILE}, {FILE_JOB}
             FROM file f JOIN file_text x ON x.id = f.id JOIN job j ON j.key = f.job WHERE f.id = $1"
        );
        Ok(self.files_of(&sql, &[&id.0])?.pop())
    }

    fn attempts(&mut self, file: FileId) -> Result<Vec<Attempt>> {
        let sql = format!("SELECT {ATTEMPT} FROM attempt WHERE file = $1 ORDER BY number");
        let rows = self.connection.all(&sql, &[&file.0], |row| AttemptRow::read(row))?;
        rows.into_iter().map(|row| row.attempt(self)).collect()
    }

    fn jobs(&mut self, filter: &JobFilter) -> Result<Vec<Job>> {
        let mut conditions = Conditions::default();
        let (source, dest) = (filter.source_se.as_ref(), filter.dest_se.as_ref());
        let names = [
            ("j.delegation = ", filter.delegation_id.as_deref()),
            ("j.vo = ", filter.vo.as_deref()),
            ("j.user_dn = ", filter.user_dn.as_deref()),
            ("j.source_se = ", source.map(|se| &*se.0)),
            ("j.dest_se = ", dest.map(|se| &*se.0)),
        ];
        if !self.named(&mut conditions, &names)? {
            return Ok(Vec::new());
        }
        if let Some(states) = &filter.states {
            let Some(states) = codes::list_of(states) else { return Ok(Vec::new()) };
            conditions.fixed(&format!("j.state IN ({states})"));
        }
        if filter.is_open {
            conditions.fixed("j.finished_s IS NULL");
        }
        if let Some(since_s) = filter.ended_since_s {
            conditions.with("j.finished_s >= ", since_s);
        }
        let order = match filter.order {
            Order::Newest => "DESC",
            Order::Oldest => "ASC",
        };
        conditions.values.push(Box::new(limit_of(filter.limit)));
        let sql = format!(
            "SELECT {HEAD}, {JOB} FROM job j JOIN job_text t ON t.key = j.key
             WHERE NOT j.is_archived{} ORDER BY j.key {order} LIMIT ${}",
            conditions.sql,
            conditions.values.len(),
        );
        let rows = self.connection.all(&sql, &conditions.values(), |row| JobRow::read(row))?;
        rows.into_iter().map(|row| row.job(self)).collect()
    }

    fn files_like(&mut self, filter: &Filter) -> Result<Vec<File>> {
        // They have no index by VO, storage or state: jobs are looked through that may have such files.
        let mut conditions = Conditions::default();
        let (source, dest) = (filter.source_se.as_ref(), filter.dest_se.as_ref());
        let names = [
            ("j.vo = ", filter.vo.as_deref()),
            ("j.user_dn = ", filter.user_dn.as_deref()),
            ("j.source_se IS NULL OR j.kind = 2 OR j.source_se = ", source.map(|se| &*se.0)),
            ("f.source_se = ", source.map(|se| &*se.0)),
            ("f.dest_se = ", dest.map(|se| &*se.0)),
            ("f.host = ", filter.transfer_host.as_deref()),
        ];
        if !self.named(&mut conditions, &names)? {
            return Ok(Vec::new());
        }
        if let Some(destination) = &filter.destination {
            conditions.with("x.destination = ", escape(destination).into_owned());
        }
        if let Some(since_s) = filter.ended_since_s {
            conditions.with("j.finished_s IS NULL OR j.finished_s >= ", since_s);
            let ended = "f.state >= 32 AND coalesce(f.archive_finished_s, f.finished_s) >= ";
            conditions.with(ended, since_s);
        }
        if let Some(after) = filter.after {
            conditions.with("j.key + j.files - 1 > ", after.0);
            conditions.with("f.id > ", after.0);
        }
        if let Some(states) = filter.states {
            let codes: Vec<String> =
                states.iter().map(|state| codes::file_state(state).to_string()).collect();
            conditions.fixed(&format!("(j.states & {}) <> 0", codes::states(states)));
            conditions.fixed(&format!("f.state = ANY('{{{}}}'::int2[])", codes.join(", ")));
            // Of jobs that have ended, all files have, but for those that were never used.
            if states.iter().all(|state| !state.is_final() && state != FileState::NotUsed) {
                conditions.fixed("j.finished_s IS NULL");
            }
            if filter.transfer_host.is_some() && states.iter().all(|state| !state.is_final()) {
                conditions.fixed("f.state < 32");
            }
        }
        conditions.values.push(Box::new(limit_of(filter.limit)));
        let sql = format!(
            "SELECT {HOT}, {FILE}, {FILE_JOB}
             FROM job j JOIN file f ON f.job = j.key JOIN file_text x ON x.id = f.id
             WHERE NOT j.is_archived{} ORDER BY j.key, f.id LIMIT ${}",
            conditions.sql,
            conditions.values.len(),
        );
        self.files_of(&sql, &conditions.values())
    }

    fn waiting(&mut self, after: Option<FileId>, take: &mut dyn FnMut(Waiting) -> Result<()>) -> Result<()> {
        let after = after.map_or(i64::MIN, |file| file.0);
        self.connection.batch(&format!(
            "BEGIN READ ONLY; DECLARE waiting NO SCROLL CURSOR FOR
             SELECT {WAITING} FROM job j JOIN file f ON f.job = j.key
             WHERE j.finished_s IS NULL AND j.key > '{after}'::int8 AND f.state < 32 ORDER BY j.key, f.id"
        ))?;
        let told = self.tell(take);
        let ended = self.connection.batch("ROLLBACK");
        told.and(ended)
    }

    fn settings(&mut self, kind: Setting) -> Result<Vec<(String, serde_json::Value)>> {
        const SETTINGS: &str = "SELECT name, value FROM setting WHERE kind = $1";
        let mut settings = self.connection.all(SETTINGS, &[&kind.name()], |row| read_setting(row))?;
        // By bytes, and not by the rules of the database's language.
        settings.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(settings)
    }

    fn audit(&mut self, limit: u32) -> Result<Vec<Audit>> {
        const AUDIT: &str = "SELECT at_s, by, subject, action FROM audit ORDER BY number DESC LIMIT $1";
        self.connection.all(AUDIT, &[&limit_of(limit)], |row| read_audit(row))
    }

    fn beats(&mut self) -> Result<Vec<(NameKey, Beat)>> {
        self.connection.all(BEATS, &[], |row| read_beat(row))
    }

    fn busy(&mut self) -> Result<Vec<(NameKey, FileState, u64)>> {
        const BUSY: &str = "SELECT host, state, count(*) FROM file
            WHERE host IS NOT NULL AND state < 32 GROUP BY host, state";
        self.connection.all(BUSY, &[], |row| read_busy(row))
    }

    fn leader(&mut self) -> Result<Option<(String, i64)>> {
        self.connection.one(LEADER, &[], |row| read_leader(row))
    }
}

/// A limit as PostgreSQL has it: NULL is none.
fn limit_of(limit: u32) -> Option<i64> {
    Some(i64::from(limit)).filter(|limit| *limit > 0)
}

/// Conditions that all hold.
#[derive(Default)]
struct Conditions {
    sql: String,
    values: Vec<Box<dyn ToSql + Sync>>,
}

impl Conditions {
    /// A condition without a value.
    fn fixed(&mut self, condition: &str) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
    }

    /// A condition that ends with a value.
    fn with(&mut self, condition: &str, value: impl ToSql + Sync + 'static) {
        self.values.push(Box::new(value));
        self.fixed(&format!("({condition}${})", self.values.len()));
    }

    fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.values.iter().map(|value| &**value).collect()
    }
}
