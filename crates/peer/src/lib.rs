//! The clients of the protocols: connections to servers over HTTP and XRootD's protocol, and the requests on them.
//!
//! A [`Client`] has one of each. A request of HTTP is a [`Request`](http::Request), and its answer an
//! [`Exchange`](http::Exchange) whose body is still to be read; over root:// a request is one of `gridlane-xrd`'s
//! ([`root::Client::call`]). Both find a connection, an idle one if there is one, follow redirects, present the user's
//! credentials where they may be seen, and have errors that name the endpoint and the credentials and say what to do.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use gridlane_core::{Result, Url};
//! use gridlane_net::{Dialer, tls::Trust};
//! use gridlane_peer::Client;
//! use gridlane_xrd::request::{About, Stat};
//!
//! async fn sizes(of: &Url, of_root: &Url) -> Result<(Option<u64>, Vec<u8>)> {
//!     let client = Client::new(Dialer::new(Trust::default()), Duration::from_secs(60));
//!     let exchange = client.http.request("HEAD", of, &[]).await?;
//!     let stat = |path| Stat { about: About::Path(path), is_vfs: false, wants: 0 };
//!     let answered = client.root.call(of_root, stat).await?;
//!     Ok((exchange.response.head.content_length()?, answered.body))
//! }
//! ```
//!
//! Many requests on one connection, and file bytes straight into buffers of the caller, are had a level below: from
//! [`http::Client::connect`] and [`root::Client::open`]. That is what the engine's lanes do.
//!
//! One process may serve many users. [`Credentials`] have an identity, and a connection, a session, a ticket of TLS and what a
//! server said belong to one: [`Client::credentials`] makes the client of another user, which shares the rest. What a user
//! has given for single requests to single servers, a third-party copy's, is in [`Credentials::forwarding`].
//!
//! What it is not: it copies nothing, has no plan, retries nothing that may have been done, and writes to no disk.
//!
//! Read first: [`Client`], [`http::Request`], `http::exchange`, `root::client`, then `pool` and `credentials`.

mod client;
mod credentials;
pub mod descriptors;
mod forwarded;
pub mod http;
mod memory;
pub mod paths;
pub mod patience;
mod pool;
pub mod root;
pub mod unresponsive;

pub use client::Client;
pub use credentials::{
    Certificate, CertificateSource, Credentials, HostPattern, Renewal, SharedKeys, Token, TokenSource,
    sends_password,
};
pub use forwarded::Forwarded;
pub use memory::{Asked, Memory};
