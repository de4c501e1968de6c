//! Probes: which endpoints can be listed, read, written, over which protocols, with which credential, and how fast.
//!
//! ```text
//!  lines ──▶ sites ──▶ endpoints, several at once ──▶ rates, in turns ──▶ reports ──▶ causes of failures
//!   site      site      endpoint (clock, traces)       endpoint            report  └─▶ choice
//! ```
//!
//! Every step of an endpoint is tried on its own, within a time limit: one that fails hides no other that could still work. Each
//! is an operation that this crate has for a person as well: a listing, the copy of a file in either direction, a
//! removal. Bytes are made and compared as they pass ([`content`](self)), so that no size of a file takes memory.
//!
//! Sites, causes and the choice are pure.
//!
//! Read first: [`Site`], [`Manner`], [`probe`], then [`Report`] and [`choose`].

mod cause;
mod choice;
mod clock;
mod content;
mod endpoint;
mod report;
mod run;
mod site;
mod traces;

pub use cause::{Cause, Group, by_cause, kind_words};
pub use choice::{Ability, Apart, Choice, Chosen, Criteria, Criterion, Figures, Rank, Why, choose};
pub use endpoint::Manner;
pub use report::{Left, Outcome, Rate, Report, Shown, Step, Untried};
pub use run::{Part, ProbeObserver, ProbeRequest, probe};
pub use site::{Endpoint, Protocol, Site, SiteList, Wished};
