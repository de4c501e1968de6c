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
    /// Its sessions were opened for files that one server sends to another.
    is_for_copies: bool,
    /// It was to get a proxy of the user's in their logins.
    is_delegated: bool,
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
        let (is_for_copies, is_delegated) = (false, false);
        Server {
            is_tls: url.scheme().is_encrypted(),
            host,
            port,
            user,
            identity,
            is_for_copies,
            is_delegated,
        }
    }

    /// The same, of sessions for files that one server sends to another, if so.
    pub(super) fn for_copies(self, is_for_copies: bool) -> Server {
        Server { is_for_copies, ..self }
    }

    /// The same, of sessions in whose logins it was to get a proxy, if so.
    pub(super) fn delegated(self, is_delegated: bool) -> Server {
        Server { is_delegated, ..self }
    }
}
