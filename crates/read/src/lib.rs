//! The planner of remote reading.

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
mod lane;
mod owed;
pub mod pages;
mod payload;
mod reader;
mod rental;
mod settings;
mod stream;
pub mod vector;
mod waits;

pub use action::{Action, Kind, Priority};
pub use budget::Purpose;
pub use call::{Call, Hint, ReadId};
pub use event::{Abilities, Event};
pub use explain::Explain;
pub use payload::Payload;
pub use reader::Reader;
pub use settings::{Policy, Settings};
