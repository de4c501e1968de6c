//! The store of the transfer service's jobs.

use std::time::Duration;

/// Bytes of names (storages, VOs, activities, users) that a store keeps in memory: 100 000 of them with what each needs.
/// Submitters choose activities, so there has to be an end.
pub const STORE_NAMES_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes that a name in memory takes beside its letters: entries of two tables, and its count of users.
pub const STORE_NAME_OVERHEAD_BYTES: usize = 96;
/// Connections that read at once: pages and answers take milliseconds each, and the machine has few processors to spare.
pub const STORE_READERS_MAX: usize = 4;
/// Statements that are kept compiled for each connection: all that there are, of which filters make a few dozen.
pub const STORE_STATEMENTS_KEPT: usize = 128;
/// Pages (of 4 KiB) of SQLite's log before they are copied to their places, 16 MB. Callers wait for the copy: few large ones are
/// cheaper than many small ones, since a page that changes often is copied once, and are felt more.
pub const STORE_LOG_PAGES_MAX: u32 = 4096;
/// Bytes of SQLite's log that stay when a reader was there for so long that it grew: more of it is given back to the disk.
pub const STORE_LOG_BYTES_KEPT: u32 = 64 * 1024 * 1024;
/// Memory of the connection that writes for pages of SQLite, in KiB: the hot ends of its indexes.
pub const STORE_CACHE_KIB: u32 = 64 * 1024;
/// Until a connection to SQLite gives up waiting for another process that writes: a backup takes that long with slow disks.
pub const STORE_BUSY_MAX: Duration = Duration::from_secs(60);
/// Rows that are read at a time of those that are too many for the memory.
pub const STORE_ROWS_AT_A_TIME: i32 = 4096;
/// Times that a transaction is made when brokers get into each other's way: each time one of them goes on.
pub const STORE_ATTEMPTS_MAX: u32 = 10;
/// Callers whose writes wait for their transaction. More of them wait outside, without being heard.
pub const STORE_QUEUE_MAX: usize = 1024;
/// Rows of jobs and files that one transaction takes from the queue before it begins: it takes about 20 ms, and those that
/// come meanwhile wait for it and for their own.
pub const STORE_GROUP_ROWS_MAX: usize = 4000;
/// Until a connection to PostgreSQL is given up that does not come about: callers wait for it.
pub const STORE_CONNECT_MAX: Duration = Duration::from_secs(10);
