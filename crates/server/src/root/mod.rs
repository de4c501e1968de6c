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
//! Read first: [`answer`], [`context`], then `connection`.

pub(crate) mod answer;
pub(crate) mod connection;
pub(crate) mod context;
mod dispatch;
pub(crate) mod files;
mod outbox;
mod reading;
pub(crate) mod session;
