//! The multi-source scheduler: which range is fetched on which lane next.
//!
//! Pure: it owns no socket and reads no clock. The engine tells it what happened
//! ([`Plan::handle`]) and when, asks what to do ([`Plan::poll`], until it answers `None`), and
//! wakes it at [`Plan::deadline`]. The same events at the same times give the same actions.
//!
//! # How it thinks
//!
//! Every byte is *done*, *free*, or *owed* by a request that is outstanding on a lane. Free bytes are
//! handed out from the lowest offset on, in requests of about 0.4 s of the lane's own rate, so that a
//! slow source is asked for little and a fast one for much. Four rules do the rest:
//!
//! - **Level.** All lanes should end at the same time. Free bytes are poured over the lanes like water
//!   into a vessel whose floor is the time at which each lane runs dry; a lane gets no more than fits
//!   under the surface. So a far or slow source works until its last useful moment and never owns
//!   the end of the copy (the formula is that of [`fluid_bound_s`]). When the free bytes come to an end, a lane has no
//!   more outstanding than its path holds: what no lane was asked for yet, a lane that is early can have.
//! - **Hedge.** When a lane has nothing to do, or soon runs dry, and a request ends late, the end of that
//!   request is asked for a second time, as much as lets both finish together. No byte is owed twice
//!   otherwise, and none three times.
//! - **Silence.** A lane on which bytes are due and none come is suspect after a second or four round
//!   trips: what it owes is free again. If it comes back, what no other took is its own again. If not, it
//!   is closed, and the source rests: 5 s, 10 s, 20 s, then it is dead. The last source that is left
//!   never dies of failures; there [`Settings::patience`] ends the hope. A source that brings only a few bytes for each
//!   connection has not recovered (`SOURCE_PROGRESS_BYTES_MIN`), and is not dialled without a pause. Waiting ends
//!   when all that are left ask to come back after patience has ended.
//! - **Lanes.** A long path begins with several lanes, which share the time of slow start. Where a source's rate is
//!   level although nothing waits in queues on the way, each lane is held back by itself: lanes are doubled, up to
//!   sixteen, until the path is full or it does not help. A full path gets no trials (`streams` says why). A near
//!   source that only a processor holds back gets as many as [there are threads for](Settings::lanes_near).
//!
//! What it is not: it does not connect, time out a connect, verify, or write. It believes the engine
//! about which bytes came, and takes bytes back when it is told that they were wrong
//! ([`Event::Invalidate`]).
//!
//! # What it reaches
//!
//! Time of the causal bound (what the sources in fact offered, three round trips after the start)
//! divided by the time of a simulated copy over TCP-like connections:
//!
//! | sources | fraction |
//! | --- | --- |
//! | A: 3 equal of 100 MB/s, 10 ms, 10 GB | 0.999 |
//! | B: 100/50/10 MB/s at 1/30/150 ms, 1 GB | 0.987 |
//! | C: as B, 100 MB | 0.899 |
//! | D: five of 200 to 20 MB/s at 0.5 to 300 ms, 2 GB | 0.938 |
//! | E: as B, the fast source goes silent at 2 s | 0.984 |
//! | F: as B, the fast source drops to 5 % at 2 s | 0.977 |
//! | G: 3 equal, one drops to 5 % after 80 % of 3 GB | 0.989 |
//!
//! `cargo test -p gridlane-plan --test scenarios -- --nocapture` prints these and more, among them
//! paths with windows, losses and a shared bottleneck. No CPU: the lab decides.
//!
//! # Reading order
//!
//! `plan` (events in, actions out), `assign` (sizes and the level), `hedge`, `health` (silence, loss,
//! opening lanes), `report` (what the plan tells); below them `event`, `action` and `id`, `work` (bytes),
//! `lane`, `source`, `streams` (how many lanes), `estimate` (rates); apart: `bound`, and [`judge`].
//!
//! # The judge
//!
//! [`judge`] is a machine of its own, and as pure: it hears what replicas state and send of the file, and says which bytes are
//! right, which replica lied, and what is fetched again.
//!
//! # Memory
//!
//! At most 16 requests per lane and [`Settings::lanes_max`] lanes, plus one entry per fragment of the
//! done and free bytes, of which there are not many more than requests.

mod action;
mod arrivals;
mod assign;
mod bound;
mod estimate;
mod event;
mod health;
mod hedge;
mod id;
pub mod judge;
mod lane;
mod plan;
mod report;
mod settings;
mod source;
mod streams;
mod work;

pub use action::Action;
pub use bound::{SourcePath, fluid_bound_s};
pub use estimate::RateEstimate;
pub use event::{Event, Loss};
pub use id::{LaneId, RequestId, SourceId};
pub use judge::{first_answer_max, reading_max};
pub use plan::Plan;
pub use report::{Outcome, SourceReport, SourceState, Stuck};
pub use settings::Settings;
