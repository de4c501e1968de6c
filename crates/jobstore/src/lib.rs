//! Where the transfer service keeps its jobs: one trait, each dialect of SQL written out, one suite that all pass.
//!
//! ```text
//! requests, executor ─▶ Writer ─▶ JobStore::write: many changes, one transaction ─▶ SQLite (WAL) · PostgreSQL
//!                                      │ each change: state of the file, tally and state of the job, together
//! pages, answers ◀── JobStore reads ◀──┘
//! start ◀── JobStore::waiting: what the queues in memory are made of
//! ```
//!
//! What a write has returned is durable. Nothing in the path of a copy reads more rows than it changes: queues and counters
//! are in memory, with the deciding.

mod apply;
mod codes;
mod dialect;
mod fault;
mod names;
mod pool;
mod postgres;
mod progress;
mod rows;
mod sqlite;
mod store;
pub mod suite;
mod tables;
mod writer;

pub use self::postgres::PostgresStore;
pub use self::sqlite::SqliteStore;
pub use store::{
    Answer, Audit, Beat, Filter, Host, JobFilter, JobStore, Order, Refused, Setting, Standing, Waiting,
    Write, Written,
};
pub use writer::Writer;
