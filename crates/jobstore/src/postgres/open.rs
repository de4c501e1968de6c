//! Versions of the store.

use gridlane_core::{Error, ErrorKind, Fault, Result};

use super::connection::Connection;
use crate::rows::Columns;

/// The steps that bring a store from each version to the next one, from none on.
pub(super) const MIGRATIONS: &[&str] = &[include_str!("../../migrations/postgres/1.sql")];
/// The lock that a broker holds while it does that, in a database that others may use as well: the letters `glbr`.
const LOCK: i64 = 0x676c_6272;

/// Brings a store to the version of the last of these, all in one transaction. Of brokers that start at once, one does it.
pub(super) fn migrate(connection: &mut Connection, migrations: &[&str]) -> Result<()> {
    connection.batch(&format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK})"))?;
    match migrate_locked(connection, migrations) {
        Ok(()) => connection.batch("COMMIT"),
        Err(error) => match connection.batch("ROLLBACK") {
            Ok(()) => Err(error),
            Err(cause) => Err(error.more(cause.message())),
        },
    }
}

fn migrate_locked(connection: &mut Connection, migrations: &[&str]) -> Result<()> {
    const HAS_SCHEMA: &str = "SELECT to_regnamespace('gridlane_broker') IS NOT NULL";
    const HAS_VERSION: &str = "SELECT to_regclass('gridlane_broker.version') IS NOT NULL";
    const VERSION: &str = "SELECT number FROM version";
    let mut is_there = |what| connection.one(what, &[], |row| row.int()).map(|found| found == Some(1));
    let (has_schema, has_version) = (is_there(HAS_SCHEMA)?, is_there(HAS_VERSION)?);
    // Whoever may make no schemas uses one that was made for it: PostgreSQL asks for that right even where there is one.
    if !has_schema {
        connection.batch("CREATE SCHEMA IF NOT EXISTS gridlane_broker")?;
    }
    if !has_version {
        connection.batch("CREATE TABLE version (number int4 NOT NULL); INSERT INTO version VALUES (0)")?;
    }
    let version = connection.one(VERSION, &[], |row| row.int())?.unwrap_or(0);
    let done = usize::try_from(version).unwrap_or(usize::MAX);
    let Some(missing) = migrations.get(done..) else {
        let message =
            format!("the store of jobs has version {version}, and this program knows {}", migrations.len());
        return Err(Error::new(ErrorKind::Precondition, message)
            .fault(Fault::Caller)
            .hint("use the newer program, or a backup from before it"));
    };
    missing.iter().try_for_each(|step| connection.batch(step))?;
    connection.batch(&format!("UPDATE version SET number = {}", migrations.len()))
}
