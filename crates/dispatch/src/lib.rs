//! Decides which transfer runs when: files that wait, limits and shares, the number of copies of a link, what is down.
//!
//! Pure: it opens nothing and reads no clock. A caller tells what has happened, with the time, and asks what starts.
//!
//! ```text
//! submitted, progress, moved, ended, cancelled, configured ──▶ Dispatcher ──▶ next(now): files that start, that have expired
//!                                                                  │    └───▶ tick(now): concurrencies, each with its reason
//!                                                                  └────────▶ why_waits(file), why_slow(link)
//! ```
//!
//! # The life of a file
//!
//! [`Dispatcher::submitted`] → [`Start`] of [`Dispatcher::next`] → [`Dispatcher::progress`] now and then → [`Dispatcher::moved`], by
//! which the next file of the link may start while this one is verified → [`Dispatcher::ended`], which says of a failure what follows.
//! [`Dispatcher::deadline`] says when to ask again if nothing happens.
//!
//! # Rules
//!
//! - A link has as many copies as its optimiser says ([`Kind`]), within its range; a storage as many in each direction as is configured.
//! - Among the VOs of a link the one is served that has had least by its share, in bytes; then the activity of which the same holds, or the
//!   oldest file where the VO has no shares of activities; then the file of the highest priority, which rises with age. Nothing that
//!   may start waits for ever, and no place stays empty while something may.
//! - A copy that ends makes place for one at once. Places that are new are filled one by one, over a second.
//! - A path or storage at which nothing works any more is probed by one file at a time.
//!
//! # Reading order
//!
//! [`Dispatcher`], `queue` (files that wait), `optimizer` (`ours`), `breaker`, `explain`; below them `rules`, `meter`, `records`, `timers`.
//! [`simulate`] is a world of storages and links to try all this in.

mod breaker;
mod dispatcher;
mod explain;
mod meter;
mod names;
mod optimizer;
mod queue;
mod random;
mod records;
mod rules;
pub mod simulate;
mod timers;

pub use breaker::{Class, Failure, Side, Verdict};
pub use dispatcher::{Cancelled, Dispatcher, Outcome, Start, Turn};
pub use explain::{Figures, Pace, Wait};
pub use optimizer::{Decision, Kind, Level, Reason};
pub use queue::{Entry, LinkId};
pub use rules::{Hold, HoldReason, LinkRule, Range, Rules, StorageRule};
