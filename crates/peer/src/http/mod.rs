//! HTTP/1.1 for clients: connections that take several requests ahead, and the meaning of statuses.
//!
//! Our own, over `gridlane-net`'s streams, because the engine needs three things that a general client
//! hides: more than one request in flight on a connection (so that no round trip is lost between
//! ranges), body bytes read straight into the engine's aligned buffers, and the socket itself (for
//! TCP_INFO). Heads and chunks are parsed by `gridlane-dav`.
//!
//! Connections outlive the requests they were made for: a [`Client`] keeps those that are idle (see `crate::pool`).

mod connection;
mod directory;
mod exchange;
mod quirks;
mod redirect;
mod refusal;
mod request;
mod status;
mod tunnel;

pub use crate::pool::Purpose;
pub use connection::{Connection, Response, Sent};
pub use directory::{is_collection, is_directory, may_be_listing, sends_to_directory};
pub use exchange::{Client, Connected, Exchange, REASON_MAX, Ranges};
pub use redirect::{follow, redirect_loop};
pub(crate) use refusal::{without, without_secrets};
pub use request::Request;
pub use status::status_error;
