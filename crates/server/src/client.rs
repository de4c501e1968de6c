//! Who asks.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock};

use gridlane_auth::{Asker, Identity};

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// Where it is, as far as can be told: what a trusted proxy says, or else the connection's other end.
    /// [`Client::UNKNOWN`] when a trusted proxy would not say.
    pub(crate) address: IpAddr,
    /// Who it has proved to be.
    pub(crate) identity: Arc<Identity>,
}

impl Client {
    /// Of whom a proxy conceals the address. No host has it, so only rules for everybody apply.
    pub(crate) const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

    /// Nobody in particular.
    pub(crate) fn anonymous(address: IpAddr) -> Client {
        static NOBODY: LazyLock<Arc<Identity>> = LazyLock::new(Arc::default);
        Client { address, identity: Arc::clone(&NOBODY) }
    }

    /// The same for the rules.
    pub(crate) fn asker(&self) -> Asker<'_> {
        Asker { identity: &self.identity, address: self.address }
    }
}
