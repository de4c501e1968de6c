//! Jobs in SQLite: one file, one connection that writes, a few that read.
//!
//! The log (WAL) is synced with every transaction (`synchronous=FULL`), so what a write has returned survives a loss of power.
//! Readers see what was there when they began, and never hold up a write.

mod error;
mod open;
mod read;
mod tables;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gridlane_core::{Error, ErrorKind, Fault, Result};
use gridlane_delegation::{Kind, RecordId, Store};
use rusqlite::{Connection, params};

use crate::dialect::Dialect;
use crate::fault::{self, Stored};
use crate::names::Names;
use crate::pool::Pool;
use crate::rows::Columns;
use error::failed;
use read::Reader;
use tables::Transaction;

/// Jobs in a file of SQLite.
pub struct SqliteStore {
    path: PathBuf,
    writer: Mutex<Connection>,
    readers: Pool<Connection>,
    names: Names,
}

impl SqliteStore {
    /// Opens a store, which is made if it is not there; one of an older version is brought to this one.
    ///
    /// # Errors
    /// The file cannot be opened, is none of this service, or is of a newer version.
    pub fn open(path: &Path) -> Result<SqliteStore> {
        let writer = open::writer(path)?;
        Ok(SqliteStore {
            path: path.to_owned(),
            writer: Mutex::new(writer),
            readers: Pool::default(),
            names: Names::default(),
        })
    }

    /// Everything that does not fit together in the store: counts that are none of the files', jobs that have ended and whose files have
    /// not. Reads everything; nothing is found unless there is a defect, or another program writes.
    pub fn faults(&self) -> Result<Vec<String>> {
        self.read(|reader| {
            let mut found = fault::Faults::default();
            reader.each_head(&mut |head| {
                let states = reader.states_of(&head)?;
                found.look(&Stored { head, states });
                Ok(())
            })?;
            Ok(found.found)
        })
    }

    /// Copies the store while it is used, to a file that must not be there: jobs and sealed credentials as they are now.
    pub fn backup(&self, to: &Path) -> Result<()> {
        if to.exists() {
            let message = format!("{} exists", to.display());
            return Err(Error::new(ErrorKind::Precondition, message).fault(Fault::Caller));
        }
        let Some(name) = to.to_str() else {
            let message = format!("{} is no name in UTF-8", to.display());
            return Err(Error::new(ErrorKind::Usage, message));
        };
        self.read(|reader| {
            let copied = reader.connection.execute("VACUUM INTO ?1", [name]);
            copied.map(drop).map_err(|cause| failed("copy the store of jobs", &cause))
        })
    }

    /// Lets the file grow no further than so many pages, or as far as it likes: what a full disk looks like.
    #[cfg(test)]
    pub(crate) fn limit_pages(&self, pages: Option<u32>) -> Result<()> {
        let pages = pages.unwrap_or(u32::MAX - 1);
        let writer = self.writer();
        let set = writer.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()));
        set.map_err(|cause| failed("limit the store of jobs", &cause))
    }

    /// The connection that writes, without a transaction.
    fn writer(&self) -> MutexGuard<'_, Connection> {
        // A transaction that was left open by a panic is undone by the next one to begin.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dialect for SqliteStore {
    type Transaction<'a> = Transaction<'a>;
    type Reader<'a> = Reader<'a>;

    fn transact<T>(&self, mut make: impl FnMut(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        let writer = self.writer();
        if !writer.is_autocommit() {
            writer.execute_batch("ROLLBACK").map_err(|cause| failed("undo a transaction", &cause))?;
        }
        writer.execute_batch("BEGIN IMMEDIATE").map_err(|cause| failed("begin a transaction", &cause))?;
        let mut transaction = Transaction::new(&writer, &self.names);
        let made = make(&mut transaction);
        let fresh = transaction.fresh;
        let committed = made.and_then(|made| {
            let committed = writer.execute_batch("COMMIT");
            committed.map(|()| made).map_err(|cause| failed("end a transaction", &cause))
        });
        match committed {
            Ok(made) => {
                fresh.into_iter().for_each(|(name, key)| self.names.keep(key, name));
                Ok(made)
            }
            Err(error) => {
                // SQLite undoes some transactions itself.
                if !writer.is_autocommit()
                    && let Err(cause) = writer.execute_batch("ROLLBACK")
                {
                    return Err(error.more(format!("and it cannot be undone: {cause}")));
                }
                Err(error)
            }
        }
    }

    fn read<T>(&self, mut read: impl FnMut(&mut Reader<'_>) -> Result<T>) -> Result<T> {
        let connection = self.readers.take(|| open::reader(&self.path))?;
        let found = read(&mut Reader { connection: &connection, names: &self.names });
        self.readers.give_back(connection);
        found
    }
}

impl Store for SqliteStore {
    fn put(&self, id: &RecordId, sealed: &[u8]) -> Result<()> {
        self.transact(|transaction| {
            const PUT: &str = "INSERT INTO secret (kind, name, sealed) VALUES (?1, ?2, ?3)
                ON CONFLICT (kind, name) DO UPDATE SET sealed = excluded.sealed";
            transaction.execute(PUT, params![id.kind().name(), id.name(), sealed]).map(drop)
        })
    }

    fn get(&self, id: &RecordId) -> Result<Option<Vec<u8>>> {
        self.read(|reader| {
            const GET: &str = "SELECT sealed FROM secret WHERE kind = ?1 AND name = ?2";
            reader.one(GET, [id.kind().name(), id.name()], |row| row.bytes())
        })
    }

    fn remove(&self, id: &RecordId) -> Result<bool> {
        self.transact(|transaction| {
            const REMOVE: &str = "DELETE FROM secret WHERE kind = ?1 AND name = ?2";
            Ok(transaction.execute(REMOVE, [id.kind().name(), id.name()])? > 0)
        })
    }

    fn names(&self, kind: Kind) -> Result<Vec<String>> {
        self.read(|reader| {
            const NAMES: &str = "SELECT name FROM secret WHERE kind = ?1 ORDER BY name";
            reader.all(NAMES, [kind.name()], |row| row.text())
        })
    }
}

#[cfg(test)]
mod tests;
