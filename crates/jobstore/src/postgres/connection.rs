//! A connection to PostgreSQL.

use std::collections::HashMap;
use std::time::Duration;

use gridlane_core::{Error, ErrorKind, Fault, Result, limits};
use postgres::error::SqlState;
use postgres::types::{FromSql, ToSql, Type};
use postgres::{Client, Config, NoTls, Statement};

use super::text;
use crate::codes;
use crate::rows::Columns;

/// Values of a statement.
pub(super) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A connection, with its statements.
pub(super) struct Connection {
    client: Client,
    statements: HashMap<String, Statement>,
    /// Two transactions have got into each other's way, and this one was undone: it may be made again.
    pub(super) is_in_conflict: bool,
}

/// The use of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It reads by any way that PostgreSQL finds good for the values at hand.
    Reading,
    /// It writes, and finds rows by their numbers: a plan that was made while a table was small must not read all of it when it
    /// is large.
    Writing,
}

impl Connection {
    /// Connects, as this configuration says.
    pub(super) fn open(config: &Config, purpose: Purpose) -> Result<Connection> {
        let client = config.connect(NoTls).map_err(|cause| failed("connect to PostgreSQL", &cause))?;
        let mut connection = Connection { client, statements: HashMap::new(), is_in_conflict: false };
        connection.batch(
            "SET search_path = gridlane_broker; SET synchronous_commit = on; SET client_min_messages = warning; SET jit = off;
             SET default_transaction_isolation = 'read committed'",
        )?;
        connection.batch(match purpose {
            Purpose::Reading => "SET plan_cache_mode = force_custom_plan",
            Purpose::Writing => {
                "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off"
            }
        })?;
        Ok(connection)
    }

    /// True if it cannot be used any more.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Runs statements without values.
    pub(super) fn batch(&mut self, sql: &str) -> Result<()> {
        let done = self.client.batch_execute(sql);
        done.map_err(|cause| self.failed("use PostgreSQL", &cause))
    }

    /// Runs a statement; the number of rows that it has changed.
    pub(super) fn execute(&mut self, sql: &str, values: Values<'_>) -> Result<u64> {
        let statement = self.statement(sql)?;
        let done = self.client.execute(&statement, values);
        done.map_err(|cause| self.failed("write to the store of jobs", &cause))
    }

    /// All rows that a question has.
    pub(super) fn all<T>(
        &mut self,
        sql: &str,
        values: Values<'_>,
        mut take: impl FnMut(&mut Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let statement = self.statement(sql)?;
        let rows = self.client.query(&statement, values);
        let rows = rows.map_err(|cause| self.failed("read from the store of jobs", &cause))?;
        rows.iter().map(|row| take(&mut Row { row, next: 0 })).collect()
    }

    /// The row that a question has, of which there is one at most.
    pub(super) fn one<T>(
        &mut self,
        sql: &str,
        values: Values<'_>,
        take: impl FnMut(&mut Row<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        Ok(self.all(sql, values, take)?.pop())
    }

    /// All rows of a question that is asked once, without values.
    pub(super) fn fetch(&mut self, sql: &str) -> Result<Vec<postgres::Row>> {
        let rows = self.client.query(sql, &[]);
        rows.map_err(|cause| self.failed("read from the store of jobs", &cause))
    }

    /// A statement that is prepared once.
    fn statement(&mut self, sql: &str) -> Result<Statement> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        if self.statements.len() >= limits::STORE_STATEMENTS_KEPT {
            self.statements.clear();
        }
        let statement = self.client.prepare(sql);
        let statement = statement.map_err(|cause| self.failed("use PostgreSQL", &cause))?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    fn failed(&mut self, what: &str, cause: &postgres::Error) -> Error {
        let conflicts = [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE];
        self.is_in_conflict = cause.code().is_some_and(|code| conflicts.contains(code));
        failed(what, cause)
    }
}

/// Reads the configuration of a connection, and completes it.
pub(super) fn configuration(url: &str) -> Result<Config> {
    let mut config: Config = url.parse().map_err(|cause: postgres::Error| {
        // Without the text, which may have a password.
        Error::new(ErrorKind::Usage, format!("the address of PostgreSQL makes no sense: {}", words(&cause)))
            .hint("postgresql://user@host/database, or host=/run/postgresql user=gridlane dbname=gridlane")
    })?;
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(limits::STORE_CONNECT_MAX);
    }
    if config.get_application_name().is_none() {
        config.application_name("gridlane broker");
    }
    // A server whose machine is gone says nothing.
    config.keepalives_idle(KEEPALIVE).tcp_user_timeout(limits::STORE_BUSY_MAX);
    Ok(config)
}

/// A connection that is idle for so long is tried.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// An error of PostgreSQL, with what could not be done.
pub(super) fn failed(what: &str, cause: &postgres::Error) -> Error {
    let message = format!("cannot {what}: {}", words(cause));
    let Some(code) = cause.code() else {
        // The connection, and not the server: it is made anew with the next call.
        return Error::new(ErrorKind::Network, message);
    };
    let local = |message| Error::new(ErrorKind::LocalIo, message).fault(Fault::Peer).retryable(true);
    match code {
        code if *code == SqlState::DISK_FULL => local(message)
            .no_space()
            .hint("make room on the disk of PostgreSQL: the service goes on by itself"),
        // Classes of the standard: connections, a server that stops or has not started yet, its resources.
        code if ["08", "57", "53"].contains(&class(code)) => Error::new(ErrorKind::Network, message),
        code if class(code) == "40" => Error::new(ErrorKind::Busy, message),
        // Values that cannot be: the caller's.
        code if ["22", "54"].contains(&class(code)) => Error::new(ErrorKind::Usage, message),
        code if ["28", "3D", "42"].contains(&class(code)) => Error::new(ErrorKind::Denied, message)
            .fault(Fault::Local)
            .hint("look at the user, the database and what the user may do there"),
        code if class(code) == "58" => local(message),
        _ => Error::new(ErrorKind::Other, message),
    }
}

/// The class of a code.
fn class(code: &SqlState) -> &str {
    code.code().get(..2).unwrap_or_default()
}

/// The cause, in the server's words where it has some.
fn words(cause: &postgres::Error) -> String {
    use std::error::Error as _;
    match (cause.as_db_error(), cause.source()) {
        (Some(error), _) => format!("{} ({})", error.message(), error.code().code()),
        (None, Some(source)) => format!("{cause}: {source}"),
        (None, None) => cause.to_string(),
    }
}

/// A row of PostgreSQL, column after column.
pub(super) struct Row<'a> {
    row: &'a postgres::Row,
    next: usize,
}

impl<'a> Row<'a> {
    pub(super) fn new(row: &'a postgres::Row) -> Row<'a> {
        Row { row, next: 0 }
    }

    fn value<T: FromSql<'a>>(&mut self) -> Result<T> {
        let value = self.row.try_get(self.next);
        self.next += 1;
        value.map_err(codes::damaged)
    }
}

impl Columns for Row<'_> {
    fn int_or_null(&mut self) -> Result<Option<i64>> {
        let kind = self.row.columns().get(self.next).map(|column| column.type_());
        match kind {
            Some(kind) if *kind == Type::BOOL => Ok(self.value::<Option<bool>>()?.map(i64::from)),
            Some(kind) if *kind == Type::INT2 => Ok(self.value::<Option<i16>>()?.map(i64::from)),
            Some(kind) if *kind == Type::INT4 => Ok(self.value::<Option<i32>>()?.map(i64::from)),
            _ => self.value(),
        }
    }

    fn real_or_null(&mut self) -> Result<Option<f64>> {
        self.value()
    }

    fn text_or_null(&mut self) -> Result<Option<String>> {
        Ok(self.value::<Option<String>>()?.map(text::unescape))
    }

    fn bytes(&mut self) -> Result<Vec<u8>> {
        self.value()
    }
}
