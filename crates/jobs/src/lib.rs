//! Jobs of the transfer service, as FTS3 knows them: what a user asks for, the states that files and jobs go through, and
//! what clients are answered.
//!
//! ```text
//! submission (JSON) ─▶ Submission ─▶ NewJob: a Job and its Files ─▶ store
//!                                        │
//! events of the executor, users ─▶ Change ┴─▶ file's state ─▶ Tally ─▶ job's state
//! ```
//!
//! - [`submission`], with [`place`] and [`select`]: what is asked for, and the job that it becomes;
//! - [`change`], [`follow`], [`tally`], [`failure`]: what becomes of files and jobs;
//! - [`query`], [`answer`], [`refusal`]: questions of clients, and what they are answered;
//! - [`config`], [`level`]: settings, users and what each may do;
//! - [`message`]: what is told on a message bus.
//!
//! Pure: the time, randomness and the configuration are arguments. Times are seconds since 1970 (`_s`).
//!
//! The names of states and the words of reasons are FTS3's, since its clients and their users read them.

pub mod answer;
pub mod body;
pub mod change;
pub mod config;
pub mod date;
pub mod failure;
pub mod file;
pub mod follow;
pub mod id;
pub mod job;
pub mod level;
pub mod message;
mod names;
pub mod place;
pub mod query;
pub mod refusal;
pub mod select;
pub mod state;
pub mod storage;
pub mod submission;
pub mod tally;
#[cfg(test)]
mod testing;

pub use change::{Change, News};
pub use failure::{Failure, Scope};
pub use file::{Attempt, File, NewToken, Selection, Stamps};
pub use id::{FileId, JobId};
pub use job::{Family, Job, NewJob, Overwrite, Owner, Params, Verify};
pub use level::{Identity, Level, Method, Operation};
pub use refusal::Refusal;
pub use select::Figures;
pub use state::{FileState, FileStates, JobKind, JobState};
pub use storage::{Link, Storage};
pub use submission::Submission;
pub use tally::Tally;
