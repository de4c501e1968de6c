//! XRootD's protocol as a client speaks it: `root://` and `roots://`.
//!
//! Our own, over `gridlane-net`'s streams and `gridlane-xrd`'s machines, for the reasons of [`http`](crate::http):
//! many requests in flight on a connection, file bytes straight into the engine's buffers, the socket itself.
//!
//! A [`Client`] asks questions ([`Client::call`]) and opens files ([`Client::open`]). Both follow redirects, wait as
//! they are told, and go back to a manager when a server that it named fails (see `redirect`). Sessions outlive
//! what they were opened for: those that are idle are kept (see `pool`). What opening costs in round trips is in
//! docs/protocol/root.md; a server that takes no flight is remembered (see `habits`).

mod client;
mod connection;
mod file;
mod habits;
mod questions;
mod redirect;
mod refusal;
mod status;
mod trunk;
mod who;

pub use client::{Answered, Client};
pub use connection::{Connection, Next};
pub use file::{Answer, OpenFile, Outcome};
pub use questions::Greeting;
pub use status::{malformed, status_error};
pub use trunk::{Carrier, Joined, Trunk};

use gridlane_core::{Endpoint, Url};
use gridlane_xrd::client::Expect;

/// Sessions that can stand for each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Server {
    is_tls: bool,
    host: String,
    port: u16,
    user: Option<String>,
    /// The user's credentials may be shown there: what was proved with them is for requests that may show them.
    as_user: bool,
}

impl Server {
    fn of(url: &Url, as_user: bool) -> Server {
        let Endpoint { host, port, .. } = url.endpoint();
        let user = url.credentials().map(|(user, _)| user.to_owned());
        Server { is_tls: url.scheme().is_encrypted(), host, port, user, as_user }
    }
}

type Pool = crate::pool::Pool<Server, connection::Wire>;
type Home = crate::pool::Home<Server, connection::Wire>;

/// A question whose answer is collected.
const COLLECTED: Expect = Expect::Text { bytes_max: gridlane_core::limits::ROOT_ANSWER_BYTES_MAX };
