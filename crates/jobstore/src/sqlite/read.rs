//! Questions to SQLite.
//!
//! SQLite has no figures of how rows are spread, so each question says itself in which order tables are read (`CROSS JOIN`) and
//! by which index (`INDEXED BY`).

use std::sync::Arc;

use gridlane_core::Result;
use gridlane_jobs::{Attempt, File, FileId, FileState, Job, JobId};
use rusqlite::types::{FromSql, Value};
use rusqlite::{Connection, Params, params_from_iter};

use super::error::failed;
use crate::codes;
use crate::dialect::Questions;
use crate::names::Names;
use crate::rows::{
    ATTEMPT, AttemptRow, BEATS, Columns, FILE, FILE_JOB, FileJob, FileRow, HEAD, HOT, Head, JOB, JobRow,
    LEADER, NameKey, NameOf, WAITING, read_audit, read_beat, read_busy, read_leader, read_setting,
    read_waiting,
};
use crate::store::{Audit, Beat, Filter, JobFilter, Order, Setting, Waiting};

/// A row of SQLite, column after column.
pub(super) struct Row<'a> {
    row: &'a rusqlite::Row<'a>,
    next: usize,
}

impl<'a> Row<'a> {
    fn new(row: &'a rusqlite::Row<'a>) -> Row<'a> {
        Row { row, next: 0 }
    }

    fn value<T: FromSql>(&mut self) -> Result<T> {
        let value = self.row.get(self.next);
        self.next += 1;
        value.map_err(codes::damaged)
    }
}

impl Columns for Row<'_> {
    fn int_or_null(&mut self) -> Result<Option<i64>> {
        self.value()
    }

    fn real_or_null(&mut self) -> Result<Option<f64>> {
        self.value()
    }

    fn text_or_null(&mut self) -> Result<Option<String>> {
        self.value()
    }

    fn bytes(&mut self) -> Result<Vec<u8>> {
        self.value()
    }
}

/// Gives every row that a question has to `take`, until it fails.
pub(super) fn each(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    mut take: impl FnMut(&mut Row<'_>) -> Result<()>,
) -> Result<()> {
    let failed = |cause| failed("read from the store of jobs", &cause);
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let mut rows = statement.query(params).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        take(&mut Row::new(row))?;
    }
    Ok(())
}

/// All rows that a question has.
pub(super) fn all<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    mut take: impl FnMut(&mut Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut found = Vec::new();
    each(connection, sql, params, |row| {
        found.push(take(row)?);
        Ok(())
    })?;
    Ok(found)
}

/// The row that a question has, of which there is one at most.
pub(super) fn one<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    take: impl FnMut(&mut Row<'_>) -> Result<T>,
) -> Result<Option<T>> {
    Ok(all(connection, sql, params, take)?.pop())
}

/// The number of a name that is in the store.
pub(super) fn key_of(connection: &Connection, digest: &[u8; 32]) -> Result<Option<NameKey>> {
    one(connection, "SELECT key FROM name WHERE digest = ?1", [digest], |row| row.name())
}

/// The name of a number.
pub(super) fn name_of(connection: &Connection, key: NameKey) -> Result<Arc<str>> {
    let name = one(connection, "SELECT text FROM name WHERE key = ?1", [key], |row| row.text())?;
    name.map(Arc::from).ok_or_else(|| codes::damaged(format!("there is no name of number {key}")))
}

/// A connection that reads what is in the store for good.
pub(crate) struct Reader<'a> {
    /// The connection.
    pub(crate) connection: &'a Connection,
    /// Names in memory.
    pub(crate) names: &'a Names,
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

impl Reader<'_> {
    pub(super) fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        take: impl FnMut(&mut Row<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        one(self.connection, sql, params, take)
    }

    pub(super) fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        take: impl FnMut(&mut Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        all(self.connection, sql, params, take)
    }

    /// The number of a name that is in the store; rows of others are looked for in vain.
    fn key_of(&self, name: &str) -> Result<Option<NameKey>> {
        match self.names.key(name) {
            Some(key) => Ok(Some(key)),
            None => key_of(self.connection, &codes::digest(name)),
        }
    }

    fn files_of(&mut self, sql: &str, params: impl Params) -> Result<Vec<File>> {
        let rows = self.all(sql, params, |row| Ok((FileRow::read(row)?, FileJob::read(row)?)))?;
        rows.into_iter().map(|(row, job)| row.file(&job, self)).collect()
    }

    fn question_of_jobs(&self, filter: &JobFilter) -> Result<Option<Question>> {
        let mut conditions = Conditions::default();
        let owner = [
            ("j.delegation = ", &filter.delegation_id),
            ("j.vo = ", &filter.vo),
            ("+j.user_dn = ", &filter.user_dn),
        ];
        for (column, name) in owner {
            if !self.named(&mut conditions, column, name.as_deref())? {
                return Ok(None);
            }
        }
        for (column, se) in [("j.source_se = ", &filter.source_se), ("j.dest_se = ", &filter.dest_se)] {
            if !self.named(&mut conditions, column, se.as_ref().map(|se| &*se.0))? {
                return Ok(None);
            }
        }
        if let Some(states) = &filter.states {
            let Some(states) = codes::list_of(states) else { return Ok(None) };
            conditions.fixed(format!("j.state IN ({states})"));
        }
        if filter.is_open {
            conditions.fixed("j.finished_s IS NULL".to_owned());
        }
        if let Some(since_s) = filter.ended_since_s {
            conditions.with("j.finished_s >= ", since_s.into());
        }
        let index = match filter {
            JobFilter { delegation_id: Some(_), .. } => "INDEXED BY job_delegation",
            JobFilter { vo: Some(_), .. } => "INDEXED BY job_vo",
            JobFilter { is_open: true, .. } => "INDEXED BY job_finished",
            _ => "NOT INDEXED",
        };
        let order = match filter.order {
            Order::Newest => "DESC",
            Order::Oldest => "ASC",
        };
        let limit = limit_of(filter.limit);
        Ok(Some(conditions.question(|conditions| {
            format!(
                "SELECT {HEAD}, {JOB} FROM job j {index} CROSS JOIN job_text t
                 WHERE j.is_archived = 0 AND t.key = j.key{conditions} ORDER BY j.key {order} LIMIT {limit}"
            )
        })))
    }

    /// Files have no index by VO, storage or state: jobs are looked through that may have such files, and those of each follow
    /// each other.
    fn question_of_files(&self, filter: &Filter) -> Result<Option<Question>> {
        // SQLite sees that no row can be in no state, and then cannot use the index that it is told to.
        if filter.states.is_some_and(|states| states.iter().next().is_none()) {
            return Ok(None);
        }
        let mut conditions = Conditions::default();
        let (source, dest) = (filter.source_se.as_ref(), filter.dest_se.as_ref());
        let names = [
            ("j.vo = ", filter.vo.as_deref()),
            ("+j.user_dn = ", filter.user_dn.as_deref()),
            ("j.source_se IS NULL OR j.kind = 2 OR j.source_se = ", source.map(|se| &*se.0)),
            ("f.source_se = ", source.map(|se| &*se.0)),
            ("f.dest_se = ", dest.map(|se| &*se.0)),
            ("f.host = ", filter.transfer_host.as_deref()),
        ];
        for (column, name) in names {
            if !self.named(&mut conditions, column, name)? {
                return Ok(None);
            }
        }
        if let Some(destination) = &filter.destination {
            conditions.with("x.destination = ", destination.clone().into());
        }
        if let Some(since_s) = filter.ended_since_s {
            conditions.with("j.finished_s IS NULL OR j.finished_s >= ", since_s.into());
            let ended = "f.state >= 32 AND coalesce(f.archive_finished_s, f.finished_s) >= ";
            conditions.with(ended, since_s.into());
        }
        if let Some(after) = filter.after {
            conditions.with("j.key + j.files - 1 > ", after.0.into());
            conditions.with("f.id > ", after.0.into());
        }
        // Of jobs that have ended, all files have, but for those that were never used.
        let (mut is_live, mut is_open) = (false, false);
        if let Some(states) = filter.states {
            let codes: Vec<String> =
                states.iter().map(|state| codes::file_state(state).to_string()).collect();
            conditions.fixed(format!("(j.states & {}) <> 0", codes::states(states)));
            conditions.fixed(format!("f.state IN ({})", codes.join(", ")));
            is_live = states.iter().all(|state| !state.is_final());
            is_open = is_live && !states.has(FileState::NotUsed);
        }
        if is_open {
            conditions.fixed("j.finished_s IS NULL".to_owned());
        }
        let limit = limit_of(filter.limit);
        Ok(Some(conditions.question(|conditions| {
            if is_live && filter.transfer_host.is_some() {
                return format!(
                    "SELECT {HOT}, {FILE}, {FILE_JOB}
                     FROM file f INDEXED BY file_host CROSS JOIN job j CROSS JOIN file_text x
                     WHERE f.state < 32 AND j.key = f.job AND j.is_archived = 0 AND x.id = f.id{conditions}
                     ORDER BY f.id LIMIT {limit}"
                );
            }
            let index = match (is_open, &filter.vo) {
                (_, Some(_)) => "INDEXED BY job_vo",
                (true, None) => "INDEXED BY job_finished",
                (false, None) => "NOT INDEXED",
            };
            format!(
                "SELECT {HOT}, {FILE}, {FILE_JOB} FROM job j {index} CROSS JOIN file f CROSS JOIN file_text x
                 WHERE j.is_archived = 0 AND f.id >= j.key AND f.id < j.key + j.files AND x.id = f.id{conditions}
                 ORDER BY j.key, f.id LIMIT {limit}"
            )
        })))
    }

    /// Adds a condition on a name, if there is one to be found; false if the store has no such name.
    fn named(&self, conditions: &mut Conditions, column: &str, name: Option<&str>) -> Result<bool> {
        let Some(name) = name else { return Ok(true) };
        let Some(key) = self.key_of(name)? else { return Ok(false) };
        conditions.with(column, key.into());
        Ok(true)
    }

    /// Every job that is not in the archive.
    pub(crate) fn each_head(&self, take: &mut dyn FnMut(Head) -> Result<()>) -> Result<()> {
        let sql = format!("SELECT {HEAD} FROM job j WHERE j.is_archived = 0 ORDER BY j.key");
        each(self.connection, &sql, [], |row| take(Head::read(row)?))
    }

    /// The states of a job's files.
    pub(crate) fn states_of(&self, job: &Head) -> Result<Vec<FileState>> {
        const STATES: &str = "SELECT state FROM file WHERE id >= ?1 AND id < ?2 AND job = ?1";
        let numbers = [job.key, job.key + i64::from(job.files)];
        self.all(STATES, numbers, |row| codes::read_file_state(row.int()?))
    }
}

impl Questions for Reader<'_> {
    fn job(&mut self, id: JobId) -> Result<Option<Job>> {
        let sql = format!("SELECT {HEAD}, {JOB} FROM job j JOIN job_text t ON t.key = j.key WHERE j.id = ?1");
        let row = self.one(&sql, [id.0.as_bytes().as_slice()], |row| JobRow::read(row))?;
        row.map(|row| row.job(self)).transpose()
    }

    fn files(&mut self, job: JobId, after: Option<FileId>, limit: u32) -> Result<Vec<File>> {
        let sql = format!(
            "SELECT {HOT}, {FILE}, {FILE_JOB} FROM job j CROSS JOIN file f CROSS JOIN file_text x
             WHERE j.id = ?1 AND f.id >= max(j.key, ?2) AND f.id < j.key + j.files AND x.id = f.id
             ORDER BY f.id LIMIT ?3"
        );
        let from = after.map_or(i64::MIN, |file| file.0.saturating_add(1));
        self.files_of(&sql, rusqlite::params![job.0.as_bytes().as_slice(), from, limit_of(limit)])
    }

    fn file(&mut self, id: FileId) -> Result<Option<File>> {
        let sql = format!(
            "SELECT {HOT}, {FILE}, {FILE_JOB} FROM file f CROSS JOIN file_text x CROSS JOIN job j
             WHERE f.id = ?1 AND x.id = f.id AND j.key = f.job"
        );
        Ok(self.files_of(&sql, [id.0])?.pop())
    }

    fn attempts(&mut self, file: FileId) -> Result<Vec<Attempt>> {
        let sql = format!("SELECT {ATTEMPT} FROM attempt WHERE file = ?1 ORDER BY number");
        let rows = self.all(&sql, [file.0], |row| AttemptRow::read(row))?;
        rows.into_iter().map(|row| row.attempt(self)).collect()
    }

    fn jobs(&mut self, filter: &JobFilter) -> Result<Vec<Job>> {
        let Some(question) = self.question_of_jobs(filter)? else { return Ok(Vec::new()) };
        let rows = self.all(&question.sql, params_from_iter(question.values), |row| JobRow::read(row))?;
        rows.into_iter().map(|row| row.job(self)).collect()
    }

    fn files_like(&mut self, filter: &Filter) -> Result<Vec<File>> {
        let Some(question) = self.question_of_files(filter)? else { return Ok(Vec::new()) };
        self.files_of(&question.sql, params_from_iter(question.values))
    }

    fn waiting(&mut self, after: Option<FileId>, take: &mut dyn FnMut(Waiting) -> Result<()>) -> Result<()> {
        let sql = format!(
            "SELECT {WAITING} FROM job j INDEXED BY job_finished CROSS JOIN file f
             WHERE j.is_archived = 0 AND j.finished_s IS NULL AND j.key > ?1
             AND f.id >= j.key AND f.id < j.key + j.files AND f.state < 32 ORDER BY j.key, f.id"
        );
        let after = after.map_or(i64::MIN, |file| file.0);
        each(self.connection, &sql, [after], |row| take(read_waiting(row, self)?))
    }

    fn settings(&mut self, kind: Setting) -> Result<Vec<(String, serde_json::Value)>> {
        const SETTINGS: &str = "SELECT name, value FROM setting WHERE kind = ?1 ORDER BY name";
        self.all(SETTINGS, [kind.name()], |row| read_setting(row))
    }

    fn audit(&mut self, limit: u32) -> Result<Vec<Audit>> {
        const AUDIT: &str = "SELECT at_s, by, subject, action FROM audit ORDER BY number DESC LIMIT ?1";
        self.all(AUDIT, [limit_of(limit)], |row| read_audit(row))
    }

    fn beats(&mut self) -> Result<Vec<(NameKey, Beat)>> {
        self.all(BEATS, [], |row| read_beat(row))
    }

    fn busy(&mut self) -> Result<Vec<(NameKey, FileState, u64)>> {
        const BUSY: &str = "SELECT host, state, count(*) FROM file INDEXED BY file_host
            WHERE host IS NOT NULL AND state < 32 GROUP BY host, state";
        self.all(BUSY, [], |row| read_busy(row))
    }

    fn leader(&mut self) -> Result<Option<(String, i64)>> {
        self.one(LEADER, [], |row| read_leader(row))
    }
}

/// A limit as SQLite has it: -1 is none.
fn limit_of(limit: u32) -> i64 {
    if limit == 0 { -1 } else { limit.into() }
}

/// A question with its values.
struct Question {
    sql: String,
    values: Vec<Value>,
}

/// Conditions that all hold.
#[derive(Default)]
struct Conditions {
    sql: String,
    values: Vec<Value>,
}

impl Conditions {
    /// A condition without a value.
    fn fixed(&mut self, condition: String) {
        self.sql.push_str(" AND ");
        self.sql.push_str(&condition);
    }

    /// A condition that ends with a value.
    fn with(&mut self, condition: &str, value: Value) {
        self.values.push(value);
        self.fixed(format!("({condition}?{})", self.values.len()));
    }

    fn question(self, sql: impl FnOnce(&str) -> String) -> Question {
        Question { sql: sql(&self.sql), values: self.values }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_jobs::FileStates;

    /// The steps in which SQLite answers a question.
    fn plan(connection: &Connection, question: Question) -> String {
        let sql = format!("EXPLAIN QUERY PLAN {}", question.sql);
        let mut statement = connection.prepare(&sql).unwrap();
        let steps =
            statement.query_map(params_from_iter(question.values), |row| row.get::<_, String>(3)).unwrap();
        steps.map(|step| step.unwrap()).collect::<Vec<_>>().join("; ")
    }

    /// Filters that are used all day read what they find, in its order.
    #[test]
    fn what_is_asked_often_is_found_by_an_index() {
        let dir = tempfile::tempdir().unwrap();
        let connection = super::super::open::writer(&dir.path().join("jobs")).unwrap();
        let names = Names::default();
        for (key, name) in [(1, "atlas"), (2, "ada"), (3, "host"), (4, "davs://a")] {
            names.keep(key, name.into());
        }
        let reader = Reader { connection: &connection, names: &names };
        let jobs = |filter: &JobFilter| plan(&connection, reader.question_of_jobs(filter).unwrap().unwrap());
        let files = |filter: &Filter| plan(&connection, reader.question_of_files(filter).unwrap().unwrap());

        let own = JobFilter { delegation_id: Some("ada".into()), ..JobFilter::default() };
        let own_open = JobFilter { is_open: true, limit: 100, ..own.clone() };
        let of_vo = JobFilter { vo: Some("atlas".into()), is_open: true, ..JobFilter::default() };
        let open = JobFilter { is_open: true, ..JobFilter::default() };
        let expected = [
            (&own_open, "USING INDEX job_delegation (delegation=? AND finished_s=?)"),
            (&of_vo, "USING INDEX job_vo (vo=? AND finished_s=?)"),
            (&open, "USING INDEX job_finished (finished_s=?)"),
            (&JobFilter::default(), "SCAN j;"),
        ];
        for (filter, step) in expected {
            let found = jobs(filter);
            assert!(found.contains(step) && !found.contains("TEMP B-TREE"), "{filter:?}: {found}");
        }
        let found = jobs(&own);
        assert!(found.contains("USING INDEX job_delegation (delegation=?)"), "{found}");

        let active = Some(FileStates::of(&[FileState::Active]));
        let on_host = Filter { transfer_host: Some("host".into()), states: active, ..Filter::default() };
        assert!(files(&on_host).contains("USING INDEX file_host (host=?"), "{}", files(&on_host));
        let from = Filter { source_se: Some("davs://a".into()), states: active, ..Filter::default() };
        let found = files(&from);
        assert!(found.contains("USING INDEX job_finished (finished_s=?)"), "{found}");
        assert!(found.contains("SEARCH f USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"), "{found}");
        assert!(!found.contains("TEMP B-TREE"), "{found}");
    }
}
