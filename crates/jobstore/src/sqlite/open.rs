//! Connections to the file, and its versions.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use gridlane_core::{Error, ErrorKind, Fault, Result, limits};
use rusqlite::{Connection, OpenFlags};

use super::error::failed;

/// The steps that bring a store from each version to the next one, from none on.
pub(super) const MIGRATIONS: &[&str] = &[include_str!("../../migrations/sqlite/1.sql")];
/// Says in the file that it is of this service: the letters `glbr`.
const APPLICATION: i64 = 0x676c_6272;

/// The connection that writes, to a store of the newest version.
pub(super) fn writer(path: &Path) -> Result<Connection> {
    make_private(path)?;
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let settings = format!(
        "PRAGMA synchronous = FULL;
         PRAGMA wal_autocheckpoint = {};
         PRAGMA journal_size_limit = {};
         PRAGMA cache_size = -{};",
        limits::STORE_LOG_PAGES_MAX,
        limits::STORE_LOG_BYTES_KEPT,
        limits::STORE_CACHE_KIB,
    );
    let set = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0));
    let mode = set.map_err(|cause| failed("open the store of jobs", &cause))?;
    if mode != "wal" {
        let message =
            format!("{} is on a file system on which SQLite cannot keep a log (WAL)", path.display());
        return Err(Error::new(ErrorKind::Unsupported, message).fault(Fault::Local).hint("use a local disk"));
    }
    connection.execute_batch(&settings).map_err(|cause| failed("open the store of jobs", &cause))?;
    migrate(&mut connection, path, MIGRATIONS)?;
    Ok(connection)
}

/// A connection that reads.
pub(super) fn reader(path: &Path) -> Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

/// Makes the file if it is not there, so that only its owner reads it: it has names, URLs and sealed credentials. SQLite gives
/// the files beside it the same mode.
fn make_private(path: &Path) -> Result<()> {
    let made = fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
    made.map(drop).map_err(|cause| Error::local_io(format!("cannot open {}", path.display()), &cause))
}

fn connect(path: &Path, mode: OpenFlags) -> Result<Connection> {
    let failed = |cause| failed(&format!("open {}", path.display()), &cause);
    let connection =
        Connection::open_with_flags(path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(failed)?;
    connection.busy_timeout(limits::STORE_BUSY_MAX).map_err(failed)?;
    connection.execute_batch("PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF").map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(limits::STORE_STATEMENTS_KEPT);
    Ok(connection)
}

/// Brings a store to the version of the last of these, all in one transaction.
pub(super) fn migrate(connection: &mut Connection, path: &Path, migrations: &[&str]) -> Result<()> {
    let failed = |cause| failed(&format!("bring {} to this version", path.display()), &cause);
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(failed)?;
    let number = |pragma: &str| transaction.query_row(pragma, [], |row| row.get::<_, i64>(0)).map_err(failed);
    let (application, version) = (number("PRAGMA application_id")?, number("PRAGMA user_version")?);
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    if application != APPLICATION && tables > 0 {
        let message = format!("{} is a database of another program", path.display());
        return Err(Error::new(ErrorKind::Precondition, message)
            .fault(Fault::Caller)
            .hint("name a file that is not there yet"));
    }
    let done = usize::try_from(version).unwrap_or(usize::MAX);
    let Some(missing) = migrations.get(done..) else {
        let message =
            format!("{} has version {version}, and this program knows {}", path.display(), migrations.len());
        return Err(Error::new(ErrorKind::Precondition, message)
            .fault(Fault::Caller)
            .hint("use the newer program, or a backup from before it"));
    };
    if missing.is_empty() {
        return Ok(());
    }
    for step in missing {
        transaction.execute_batch(step).map_err(failed)?;
    }
    let versions =
        format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {}", migrations.len());
    transaction.execute_batch(&versions).map_err(failed)?;
    transaction.commit().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(connection: &Connection) -> Vec<String> {
        let mut statement = connection.prepare("SELECT sql FROM sqlite_schema ORDER BY name").unwrap();
        let rows = statement.query_map([], |row| row.get::<_, Option<String>>(0)).unwrap();
        rows.map(|sql| sql.unwrap().unwrap_or_default()).collect()
    }

    #[test]
    fn every_version_becomes_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        let fresh = schema(&writer(&dir.path().join("fresh")).unwrap());
        assert!(fresh.len() > 10);
        for version in 0..=MIGRATIONS.len() {
            let path = dir.path().join(format!("{version}"));
            let mut old = Connection::open(&path).unwrap();
            migrate(&mut old, &path, &MIGRATIONS[..version]).unwrap();
            drop(old);
            assert_eq!(schema(&writer(&path).unwrap()), fresh, "from version {version}");
        }
    }

    #[test]
    fn others_files_and_newer_versions_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("other");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
        let error = writer(&path).unwrap_err();
        assert!(error.to_string().contains("another program"), "{error}");

        let path = dir.path().join("newer");
        writer(&path).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
        let error = writer(&path).unwrap_err();
        assert!(error.to_string().contains("has version 99"), "{error}");

        let path = dir.path().join("text");
        fs::write(&path, "no database at all, but long enough to look at").unwrap();
        let error = writer(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LocalIo, "{error}");
    }

    #[test]
    fn nobody_else_reads_the_file() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs");
        let _open = writer(&path).unwrap();
        for name in ["jobs", "jobs-wal", "jobs-shm"] {
            assert_eq!(fs::metadata(dir.path().join(name)).unwrap().mode() & 0o777, 0o600, "{name}");
        }
    }
}
