//! XRootD's protocol on the port that HTTP has: `root://`, and `roots://`, which becomes TLS in place.
//!
//! ```text
//! handshake ─▶ protocol ─▶ [TLS] ─▶ login ─▶ requests, several at once, answered as they are ready
//! ```
//!
//! The session machine and every layout are in [`gridlane_xrd`]; here is what owns the socket. A request becomes an
//! [`Outcome`](answer::Outcome): an answer, or a failure with the code that a client of XRootD expects. What moves the bytes
//! of files is the data plane's loop, as for HTTP.
//!
//! Read first: [`answer`], [`context`], then `connection` and `dispatch`.

pub mod answer;
pub(crate) mod connection;
pub mod context;
mod delegation;
mod dispatch;
mod event;
#[cfg(feature = "gsi")]
mod gsi;
pub mod identity;
pub mod log;
pub(crate) mod metrics;
mod outbox;
mod reading;
pub mod rounds;
pub mod session;
pub mod session_files;
mod set;
pub mod shared_keys;
pub mod sink;
