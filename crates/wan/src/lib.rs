//! Emulated wide-area paths between network namespaces: real programs over the real kernel's TCP, with the
//! round trips, rates, queues and losses of a path that is not there.
//!
//! It is an instrument. What it does to packets is arithmetic with a seed; what it cannot do exactly it counts
//! and shows; [`check`] measures whether it is right on this machine. It is no simulator (time is real, and so is
//! the CPU that everything shares), and it does not touch the host's network.
//!
//! # Reading order
//!
//! 1. [`Scenario`]: what can be asked for. [`network`]: what follows from it. `commands`: what is configured, as
//!    text. All of it pure.
//! 2. `wire`, `lot`, `packet`, `backlog`: what happens to packets. Pure, too.
//! 3. `forwarder`: the thread that does it, between TUN devices. `netem`: the kernel's own way.
//! 4. `namespace`, `isolation`: the privileged part. [`Emulation`] puts everything together, in this process.
//! 5. [`keep_up`]: the process that keeps an emulation up for other commands; [`remote`]: those commands;
//!    `control`: how they talk; [`Place`]: where they meet, and what is left after a crash.

mod backlog;
pub mod check;
mod commands;
mod control;
mod counters;
mod daemon;
mod emulation;
mod forwarder;
mod isolation;
mod lot;
mod namespace;
mod netem;
pub mod network;
mod packet;
mod place;
pub mod remote;
mod scenario;
mod state;
mod wire;

pub use commands::BackEnd;
pub use counters::Counters;
pub use daemon::keep_up;
pub use emulation::{Emulation, configuration};
pub use isolation::Privilege;
pub use place::{ID_VARIABLE, Place};
pub use remote::Down;
pub use scenario::{Buffers, Change, ChangeText, Direction, Event, Link, Scenario};
pub use state::{LinkState, NodeState, PathState, State};
