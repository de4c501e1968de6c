//! Connections: listening, telling protocols apart on one port, TLS, and dialling.
//!
//! Everything above speaks to a [`Stream`], which is one TCP connection, plain or TLS, and does not
//! care which side opened it. The data path's costs live here: TLS goes through rustls' unbuffered
//! interface with page-aligned buffers of our own (see the `session` module), plain connections send files by
//! `sendfile`.
//!
//! What it is not: it knows no HTTP, keeps no pool and retries nothing.

mod accept;
mod dial;
pub mod proxy_protocol;
mod session;
mod stream;
pub mod tls;

pub use accept::{Acceptor, Proxies, has_ipv6, listen};
pub use dial::{Dialer, Dialled};
pub use stream::Stream;
