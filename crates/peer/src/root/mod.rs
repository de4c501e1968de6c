//! XRootD's protocol for clients: `root://` and `roots://`.
//!
//! Our own, over `gridlane-net`'s streams and `gridlane-xrd`'s machines, for the reasons of [`http`](crate::http):
//! many requests in flight on a connection, file bytes straight into the engine's buffers, the socket itself.
//!
//! A [`Client`] makes requests ([`Client::call`]) and opens files ([`Client::open`]). Both follow redirects, wait as they
//! are told, and go back to a manager when a server that it named fails (see `redirect`). Sessions outlive what they were
//! opened for: those that are idle are kept (see `pool`). The costs of an opening in round trips are in
//! docs/protocol/root.md; a server that takes no flight is remembered (see `quirks`).

mod client;
mod connection;
mod file;
mod gsi;
mod info;
mod login_user;
mod names;
mod quirks;
mod redirect;
mod refusal;
mod server;
mod sss;
mod status;
mod substreams;

pub use client::{Answered, Client};
pub use connection::{Connection, Next};
pub use file::{Answer, OpenFile, Outcome};
pub use gsi::Delegation;
pub use info::Greeting;
pub use status::{malformed, status_error};
pub use substreams::{MainStream, SharedSession, SubStream};
