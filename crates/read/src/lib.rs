//! The planner of remote reading: what is asked for of a file that an application reads over a long path, when, and on which
//! connection.
//!
//! Pure, like the plan of a copy: it owns no socket and reads no clock. The application's calls go in ([`Reader::read`],
//! [`Reader::cancel`], [`Reader::hint`], [`Reader::close`]), and what the transport tells ([`Reader::handle`]); actions come out
//! ([`Reader::poll`]), and the moment at which it wants to be asked again ([`Reader::deadline`]). The same calls at the same
//! times give the same actions.
//!
//! # How it thinks
//!
//! Round trips are the cost, and bytes are the price of avoiding them. Every byte that a call wants is *there* (the page map),
//! *owed* by one request (the table of what is in flight), or *queued*. Calls are given bytes as these come, part by part. The
//! adaptive policy has these parts, each of which a forced policy can have alone:
//!
//! - **Known ranges** are sorted, freed of repetitions and of what is there or owed, merged where a gap costs less than an
//!   element (B x c, as requests are pipelined), and cut into vectors ([`vector`]). They wait in one queue, from which each lane
//!   takes as much as its window can use: so lanes and replicas share them in proportion to their rates.
//! - **Opening**: a file that the path holds (B x R) is fetched whole; of a larger one the head and the tail, and when the head
//!   is there, the metadata that a format which is recognised names.
//! - **Streams**: sequential, strided and backward reads are read ahead of, twice as far with each hit, within the budget.
//! - **Renting or buying**: reads at places that were not known before cost a round trip each, the rent. When the rent
//!   reaches an eighth of the price, the time in which the rest would be here, it is fetched, nearest to the last miss first,
//!   beside the reads and behind them. The price is that of the part of the file in which the reads are, or of all of it.
//! - **Budget**: bytes moved for each byte wanted are at most four; the opening, the metadata of a format (within a bound of their
//!   own), small files and the switch to copying are exempt, and reported by themselves ([`Explain`]).
//!
//! R, B and c are measured as it goes, in bounds; until then they are what an earlier file has shown ([`Known`]), or defaults.
//! [`cost`] has the formulas.
//!
//! Sources that are silent, fail or die give back what they owe; when none is left, every call ends with the reason.
//!
//! What it is not: it does not connect, retry a handshake, verify or decode. The engine tells it which bytes came, and keeps those
//! to itself whose checksum is wrong ([`Event::Failed`]).
//!
//! # What it reaches
//!
//! In the simulator of the tests: one server at 1 Gb/s, eight cold connections with slow start, four round trips of handshakes,
//! 2 us for each element, a page map with room for the file. The best forced policy is chosen in hindsight for each job.
//!
//! | jobs | time of the adaptive policy by that of the best one |
//! | --- | --- |
//! | eleven recorded traces at 26 and 150 ms | median 0.92, 90 % within 1.00, all within 1.16 |
//! | 1 GB, offsets unknown: 1, 10, 50, 100 %, events of 1 kB and 1 MB, random and ascending, 0.5, 26, 300 ms | median 1.08, all within 1.21 |
//! | 200 by lot: 0.5 to 100 % of 10 MB to 1 GB, events of 1 kB to 4 MB, 0.5 to 300 ms | median 1.04, 90 % within 1.14, all within 1.46 |
//!
//! With known offsets a tenth of 1 GB in random events of 1 kB takes 1.05 s at 26 ms and 4.72 s at 300 ms, where the floor of eight
//! cold connections is 1.03 and 4.50 s; no row of that table is above 1.06 times its floor, and none above 1.23 with
//! elements of 9 us. The worst jobs by lot are small files on long paths, which are fetched whole for a few reads.
//!
//! `cargo test -p gridlane-read --test hindsight -- --nocapture` and `--test known` print the tables of smaller files, and with
//! `GRIDLANE_READ_FULL=1` these. With less memory than the file has, the switch to copying brings no more than fits, and
//! random reads all over it gain as much less.
//!
//! # Reading order
//!
//! `reader` (calls in, actions out), `events` (what the transport tells), `dispatch` (what is asked for next, on which lane),
//! `failover`, `idle`; below them `call`, `event`, `action`, `settings`, `explain`; the parts: [`pages`], `parts`, `owed`, `waits`, [`vector`],
//! `stored` and `recall`, `stream`, `rental`, `fill`, `budget`, `estimate`, `known`, [`cost`], `lane`; [`mod@format`] and `outline`.
//!
//! # Memory
//!
//! The page map has [`Settings::memory_bytes`], its own entries counted, and is within it after every call. Beside it there are
//! the ranges that wait (`READ_WAITING_MAX`), the parts that are owed (16 requests on each of at most 16 lanes), and fragments of
//! what is there. The bytes of a call are handed over as they come, and held by nothing here.

mod action;
mod budget;
mod call;
pub mod cost;
mod dispatch;
mod estimate;
mod event;
mod events;
mod explain;
mod failover;
mod fill;
pub mod format;
mod idle;
mod known;
mod lane;
mod outline;
mod owed;
pub mod pages;
mod parts;
mod payload;
mod reader;
mod recall;
mod rental;
mod settings;
mod stored;
mod stream;
pub mod vector;
mod waits;

pub use action::Action;
pub use budget::Purpose;
pub use call::{Call, Hint, ReadId};
pub use event::{Abilities, Event};
pub use explain::Explain;
pub use known::{Known, Seen};
pub use payload::Payload;
pub use reader::Reader;
pub use settings::{Choices, Policy, Settings};
