//! Configuration, for every daemon: where its settings come from, and how they change while it runs.
//!
//! ```text
//!  flag ▸ environment ▸ file ──▶ settings, generation 1 ──▶ the daemon
//!                         ▲                                   │ goes on by
//!  files that change ─────┴──▶ settings, generation 2, 3, … ──┘ or by the old ones, and says why
//! ```
//!
//! A daemon implements [`Source`], which reads its settings and names the files that they come from. [`Generations`] has it
//! read again when one of them has changed, or when the daemon was told, and loses nothing of the old settings when the new
//! ones are wrong. What stands in the tables of a file is the daemon's own business; [`mod@file`] reads them, so that a mistake
//! has the file's name and its line.
//!
//! Read first: [`reload`], then [`mod@file`], then [`options`]. What a daemon listens to, and its signals, are not here.

pub mod file;
pub mod notify;
pub mod options;
pub mod reload;
pub mod value;
pub mod watch;

pub use reload::{Cause, Generations, Source};
pub use watch::Watch;
