//! What every server shares: HTTP/1.1, HTTPS and XRootD's protocol on one port, up to a [`Service`].
//!
//! A request passes these phases, each with one place in the code:
//!
//! ```text
//! accept ─▶ detect, TLS ─▶ head ─▶ credentials ─▶ limits ─▶ service ─▶ payload ─▶ log ─▶ next head, or close
//! server    gridlane-net   connection    auth     throttle  (yours)    transfer   access_log   connection
//! ```
//!
//! The front accepts connections and tells protocols apart, judges credentials, counts what each client takes, reads
//! bodies, sends payloads, writes logs, answers on the admin address, goes by new settings, and drains when the server
//! stops. What a path means, what is read and written, and what the rules are about is the service's: storage
//! (`gridlane-server`), and later a redirector, a cache, and a broker of transfers.
//!
//! What a service gets of a request over HTTP is an [`Exchange`](service::Exchange): a head, the client as it was found to
//! be, and the body, of which nothing was read. What it gives back is a [`Reply`](reply::Reply): status, fields, and a
//! descriptor of the payload (bytes, "this object from here to there", or [pieces](pieces::Pieces) that are made one after
//! the other). The data plane then moves the payload in a plain loop: `sendfile` where there is a file and no TLS, else a
//! page-aligned buffer.
//!
//! XRootD's protocol has its own way through: `root::connection` reads requests and sends answers, several at a time.
//! Logins, sessions with several connections, and reads of open files are the front's; every other request is the
//! service's, as a [`Context`](root::context::Context) and a request, and comes to an [`Outcome`](root::answer::Outcome).
//!
//! What an operator decides is one generation of [settings](settings::Settings), with those of the service inside; a reload
//! makes the next, by which requests are served that begin afterwards. A [`Front`](front::Front) is what the connections of
//! a generation share; what moves bytes needs no more of it than a [`DataPath`](data::DataPath).
//!
//! What it guarantees: a client costs a task and never a thread, however slow or silent; every wait has a
//! deadline; a disk never stalls another client; an answer is never padded. Of all that there is so much of, one client has
//! a part at most (`gridlane_share::budget`). Every limit is in [`gridlane_core::limits`].
//!
//! It is no framework and no general web server: no virtual hosts, no rewriting, no scripts.
//!
//! Read first: [`service`], [`settings`], [`server`], then `connection` and `auth`.

pub mod access_log;
mod admin;
pub mod auth;
pub mod body;
pub mod budgets;
pub mod buffers;
pub mod client;
mod connection;
pub mod data;
pub mod disconnect;
pub mod forwarded;
pub mod front;
pub mod gather;
pub mod generation;
mod host_name;
mod idle;
mod linger;
pub mod metrics;
#[cfg(test)]
mod null_service;
mod phase;
pub mod pieces;
pub mod reply;
mod request_id;
pub mod root;
pub mod server;
pub mod service;
pub mod settings;
pub mod testing;
pub mod throttle;
pub mod transfer;

pub use access_log::{AccessLog, CopyRecord};
/// The certificate with which clients of gsi are let in.
#[cfg(feature = "gsi")]
pub use gridlane_gsi::HostCredential;
pub use gridlane_xrd::RequestId;
pub use gridlane_xrd::answer::{Exceptions, Need};
pub use idle::PhaseWatch;
pub use phase::Stopping;
pub use server::{Control, Server, Summary};
pub use service::Service;
pub use settings::{
    AuthSettings, Deadlines, KeySource, LogLevel, RootAuth, RootSettings, RootTls, Settings, Shares, Signing,
};
pub use throttle::ClientLimits;
