//! Connections: listening, telling protocols apart on one port, TLS, and dialling.
//!
//! Everything above speaks to a [`Stream`], which is one TCP connection, plain or TLS, and does not
//! care which side opened it. The data path's costs live here: rustls shakes hands, and the records of TLS 1.3 are opened
//! and sealed in page-aligned buffers of our own (see [`session`] and the module `records`), unless
//! [`RecordLayer`](tls::RecordLayer) or a build without the feature `own-records` leaves them to rustls; bulk data
//! gathers in the kernel before its reader is woken (`gather`), plain connections send files by `sendfile`.
//!
//! A [`Dialer`] finds the way: every address of a name is tried, each with a head start (see the `race`
//! module), directly or through the proxy that the environment names (see `proxy`). [`Speech`] finds the protocol of a
//! server that does not answer as it should. [`AddressRules`] say which addresses it connects to for others.
//!
//! It knows no HTTP, keeps no pool and retries nothing.

mod accept;
mod addresses;
mod client_certs;
mod dial;
pub mod file;
mod framing;
mod gather;
mod identity;
mod names;
mod proxy;
pub mod proxy_protocol;
mod race;
#[cfg(feature = "own-records")]
mod records;
#[cfg(not(feature = "own-records"))]
#[path = "no_records.rs"]
mod records;
mod resolve;
mod resumption;
pub mod session;
mod side;
mod socks;
mod speech;
mod stream;
pub mod tls;
mod turns;

pub use accept::{Acceptor, Opening, TrustedProxies, has_ipv6, listen};
pub use addresses::AddressRules;
pub use dial::{Dialer, Dialled, Reached, Route, Touched};
pub use framing::RecordEnds;
pub use identity::{Identity, IdentityId};
pub use names::Names;
pub use proxy::{Proxies, Proxy, ProxyKind};
pub use speech::Speech;
pub use stream::Stream;
