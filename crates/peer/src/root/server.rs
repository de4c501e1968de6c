//! Servers, the keys of idle sessions and of what is known of them.

use gridlane_core::{Endpoint, Url};
use gridlane_net::IdentityId;

use crate::pool::Key;

/// Sessions that can stand for each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Server {
    is_tls: bool,
    host: String,
    port: u16,
    user: Option<String>,
    /// The identity whose credentials may be shown there: what was proved with them is for its requests.
    identity: IdentityId,
}

impl Key for Server {
    fn of_any(&self) -> Server {
        Server { identity: IdentityId::default(), ..self.clone() }
    }
}

impl Server {
    /// The server of a URL.
    pub(super) fn of(url: &Url, identity: IdentityId) -> Server {
        let Endpoint { host, port, .. } = url.endpoint();
        let user = url.credentials().map(|(user, _)| user.to_owned());
        Server { is_tls: url.scheme().is_encrypted(), host, port, user, identity }
    }
}
