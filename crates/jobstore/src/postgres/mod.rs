//! Jobs in PostgreSQL, which several brokers share: one connection of each writes, a few read.
//!
//! A transaction that changes files has the rows of their jobs, locked in the order of their numbers; one that brings new jobs has
//! the counter of numbers until it ends, so that jobs are seen in the order of their numbers. Where two get into each other's way
//! all the same, PostgreSQL undoes one of them, and it is made again.

mod connection;
mod open;
mod read;
mod tables;
mod text;

use std::sync::{Mutex, MutexGuard};

use gridlane_core::{Result, limits};
use gridlane_delegation::{Kind, RecordId, Store};
use postgres::Config;

use crate::dialect::Dialect;
use crate::fault::{Faults, Stored};
use crate::names::Names;
use crate::pool::Pool;
use crate::rows::Columns;
use connection::{Connection, Purpose};
use read::Reader;
use tables::Transaction;

/// Jobs in a database of PostgreSQL.
pub struct PostgresStore {
    config: Config,
    writer: Mutex<Option<Connection>>,
    readers: Pool<Connection>,
    names: Names,
}

impl PostgresStore {
    /// Opens the store in a database, by a URL (`postgresql://user@host/database`) or by words (`host=/run/postgresql user=…`); its
    /// tables are made if they are not there, in a schema of their own, and those of an older version are brought to this one.
    ///
    /// Connections are not encrypted: the server is on this machine, or the way to it is trusted.
    ///
    /// # Errors
    /// The database cannot be used, or its tables are of a newer version.
    pub fn open(url: &str) -> Result<PostgresStore> {
        let config = connection::configuration(url)?;
        let mut writer = Connection::open(&config, Purpose::Writing)?;
        open::migrate(&mut writer, open::MIGRATIONS)?;
        Ok(PostgresStore {
            config,
            writer: Mutex::new(Some(writer)),
            readers: Pool::default(),
            names: Names::default(),
        })
    }

    /// Everything that does not fit together in the store: counts that are none of the files', jobs that have ended and whose files have
    /// not. Reads everything; nothing is found unless there is a defect, or another program writes.
    pub fn faults(&self) -> Result<Vec<String>> {
        self.read(|reader| {
            let mut found = Faults::default();
            reader.each_stored(&mut |head, states| found.look(&Stored { head, states }))?;
            Ok(found.found)
        })
    }

    /// The connection that writes.
    fn writer(&self) -> MutexGuard<'_, Option<Connection>> {
        let mut writer = self.writer.lock().unwrap_or_else(|poisoned| {
            // A transaction may have been left open by a panic.
            let mut writer = poisoned.into_inner();
            *writer = None;
            writer
        });
        if writer.as_ref().is_some_and(Connection::is_closed) {
            *writer = None;
        }
        writer
    }
}

impl Dialect for PostgresStore {
    type Transaction<'a> = Transaction<'a>;
    type Reader<'a> = Reader<'a>;

    fn transact<T>(&self, mut make: impl FnMut(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        let mut writer = self.writer();
        let mut tried = 0;
        loop {
            tried += 1;
            let connection = match writer.as_mut().filter(|connection| !connection.is_closed()) {
                Some(connection) => connection,
                None => writer.insert(Connection::open(&self.config, Purpose::Writing)?),
            };
            let begun = connection.batch("BEGIN");
            let mut transaction = Transaction::new(connection, &self.names);
            let made = begun.and_then(|()| make(&mut transaction));
            let fresh = transaction.fresh;
            let error = match made {
                Ok(made) => match connection.batch("COMMIT") {
                    Ok(()) => {
                        fresh.into_iter().for_each(|(name, key)| self.names.keep(key, name));
                        return Ok(made);
                    }
                    Err(error) if !connection.is_in_conflict => {
                        *writer = None;
                        let unknown = "it is not known whether what was to be written is in the store";
                        return Err(error.more(unknown));
                    }
                    Err(error) => error,
                },
                Err(error) => error,
            };
            let is_lost = connection.is_closed() || connection.batch("ROLLBACK").is_err();
            let is_to_be_made_again = is_lost || std::mem::take(&mut connection.is_in_conflict);
            if is_lost {
                *writer = None;
            }
            if !is_to_be_made_again || tried >= limits::STORE_ATTEMPTS_MAX {
                return Err(error);
            }
        }
    }

    fn read<T>(&self, mut read: impl FnMut(&mut Reader<'_>) -> Result<T>) -> Result<T> {
        // Every connection that is idle may have been lost meanwhile: when the server was started again, all are.
        let mut left = limits::STORE_READERS_MAX;
        loop {
            let mut connection = self.readers.take(|| Connection::open(&self.config, Purpose::Reading))?;
            let mut reader = Reader::new(&mut connection, &self.names);
            let found = read(&mut reader);
            let may_repeat = !reader.has_told;
            if !connection.is_closed() {
                self.readers.give_back(connection);
                return found;
            }
            self.readers.closed();
            if found.is_ok() || !may_repeat || left == 0 {
                return found;
            }
            left -= 1;
        }
    }
}

impl Store for PostgresStore {
    fn put(&self, id: &RecordId, sealed: &[u8]) -> Result<()> {
        self.transact(|transaction| {
            const PUT: &str = "INSERT INTO secret (kind, name, sealed) VALUES ($1, $2, $3)
                ON CONFLICT (kind, name) DO UPDATE SET sealed = excluded.sealed";
            transaction.execute(PUT, &[&id.kind().name(), &id.name(), &sealed]).map(drop)
        })
    }

    fn get(&self, id: &RecordId) -> Result<Option<Vec<u8>>> {
        self.read(|reader| {
            const GET: &str = "SELECT sealed FROM secret WHERE kind = $1 AND name = $2";
            reader.connection.one(GET, &[&id.kind().name(), &id.name()], |row| row.bytes())
        })
    }

    fn remove(&self, id: &RecordId) -> Result<bool> {
        self.transact(|transaction| {
            const REMOVE: &str = "DELETE FROM secret WHERE kind = $1 AND name = $2";
            Ok(transaction.execute(REMOVE, &[&id.kind().name(), &id.name()])? > 0)
        })
    }

    fn names(&self, kind: Kind) -> Result<Vec<String>> {
        self.read(|reader| {
            const NAMES: &str = "SELECT name FROM secret WHERE kind = $1 ORDER BY name COLLATE \"C\"";
            reader.connection.all(NAMES, &[&kind.name()], |row| row.text())
        })
    }
}

#[cfg(test)]
mod tests;
