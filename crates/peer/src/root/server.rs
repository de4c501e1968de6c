//! Servers, as idle sessions and what is known of them are found by.

use gridlane_core::{Endpoint, Url};

/// Sessions that can stand for each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Server {
    is_tls: bool,
    host: String,
    port: u16,
    user: Option<String>,
    /// The user's credentials may be shown there: what was proved with them is for requests that may show them.
    as_user: bool,
}

impl Server {
    /// The server of a URL.
    pub(super) fn of(url: &Url, as_user: bool) -> Server {
        let Endpoint { host, port, .. } = url.endpoint();
        let user = url.credentials().map(|(user, _)| user.to_owned());
        Server { is_tls: url.scheme().is_encrypted(), host, port, user, as_user }
    }
}
