//! XRootD's protocol on the port that HTTP has: `root://`, and `roots://`, which becomes TLS in place.
//!
//! ```text
//! handshake ─▶ protocol ─▶ [TLS] ─▶ login ─▶ requests, several at once, answered as they are ready
//! ```
//!
//! The session machine and every layout are in [`gridlane_xrd`]; here is what owns the socket and the storage. A
//! request becomes an [`Outcome`](answer::Outcome): an answer, or a failure with the code that a client of XRootD
//! expects. What moves the bytes of files is the data plane's loop, as for HTTP.
//!
//! Read first: [`answer`], [`context`], then [`connection`] and [`dispatch`].

pub(crate) mod answer;
pub(crate) mod chmod;
pub(crate) mod connection;
pub(crate) mod context;
mod delegation;
pub(crate) mod dirlist;
mod dispatch;
mod event;
pub(crate) mod fattr;
pub(crate) mod files;
pub(crate) mod identity;
pub(crate) mod intake;
pub(crate) mod locate;
pub(crate) mod locks;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod mkdir;
pub(crate) mod mv;
mod names;
pub(crate) mod open;
mod outbox;
mod pages_in;
pub(crate) mod places;
pub(crate) mod prepare;
pub(crate) mod query;
mod reading;
pub(crate) mod requests;
pub(crate) mod rm;
pub(crate) mod session;
pub(crate) mod session_files;
pub(crate) mod set;
pub(crate) mod sink;
pub(crate) mod stat;
pub(crate) mod statx;
#[cfg(test)]
mod testing;
pub(crate) mod truncate;
mod written;
