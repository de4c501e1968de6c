//! The XRootD protocol, level 5.1, as pure functions and machines: nothing here reads a socket or a clock.
//!
//! Both sides use it. Every number that has a name is in [`registry`], every set of bits in [`flags`]. A message
//! is a [`frame`] head and what follows: [`request`]s and [`answer`]s have a file each, with layout, limits, codec and
//! round-trip tests. [`server`] and [`client`] are machines: bytes in, steps out. [`pages`] are bytes with a
//! checksum for each 4096 of them. [`third_party`] is what servers that copy between themselves say.
//!
//! It is no XRootD: opening files, and moving their bytes, is left to `gridlane-front` with its services and to
//! `gridlane-peer`, which own their sockets.
//!
//! A peer's bytes never panic here, and no allocation is as large as a peer states before that was checked. The
//! behaviour of real peers, where it differs from what is written elsewhere, is in docs/protocol/root.md.
//!
//! Read first: [`frame`], then [`request`], then [`answer`].

pub mod answer;
pub mod client;
pub mod flags;
pub mod frame;
mod malformed;
pub mod pages;
pub mod path;
pub mod registry;
pub mod request;
pub mod server;
mod signing;
pub mod third_party;
mod wire;
pub mod ztn;

pub use frame::{Handle, PathId, RequestHead, ResponseHead, SessionId, StreamId};
pub use malformed::Malformed;
pub use path::PathArg;
pub use registry::{ErrorCode, QueryKind, RequestId, Status};
pub use request::{Call, Request};
