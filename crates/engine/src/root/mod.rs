//! XRootD's protocol: `root://` and `roots://`.

use std::time::Duration;

use gridlane_core::{Error, ErrorKind, Fault, Url};
use gridlane_net::Dialer;

/// Makes requests and connections. Its clones share their idle connections with it.
#[derive(Clone)]
pub struct Client {
    /// How long an answer may take, for each of the servers that redirects lead to.
    pub answer_max: Duration,
    /// What its connections are made with.
    pub dialer: Dialer,
}

impl Client {
    /// A client that connects with `dialer` and waits for an answer up to `answer_max`.
    pub fn new(dialer: Dialer, answer_max: Duration) -> Client {
        Client { answer_max, dialer }
    }
}

/// What is not done with a `root` or `roots` URL.
pub fn not_spoken(url: &Url) -> Error {
    let message = format!("{}:// is not spoken here", url.scheme().name());
    Error::new(ErrorKind::Unsupported, message).fault(Fault::Caller).endpoint(url)
}
