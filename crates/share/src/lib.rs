//! Shared resources: budgets of which each client has a part at most, turns at devices that may keep one waiting, and limits of
//! rates.
//!
//! [`budget`] is the arithmetic: so much of something, and on whose behalf some of it is taken. [`turns`] bounds how many
//! operations wait for one device at the same time. Both, and [`RateLimit`], are used by whatever has many clients or many devices: the server
//! for its connections, open files and memory, every storage for its disk, and the engine for the disks that it writes to.
//!
//! It knows no protocol, no file and no socket.
//!
//! Read first: [`budget`].

pub mod budget;
mod rate;
pub mod turns;

pub use budget::{Budget, Holder, Lease, Share, Short};
pub use rate::RateLimit;
pub use turns::{DeviceShares, Turns};
