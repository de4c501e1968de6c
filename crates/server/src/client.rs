//! Who asks.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use gridlane_auth::{Asker, Identity};

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// Where it is, as far as can be told: what a trusted proxy says, or else the connection's other end.
    /// [`Client::UNKNOWN`] when a trusted proxy would not say.
    pub(crate) address: IpAddr,
    /// Who it has proved to be.
    pub(crate) identity: Arc<Identity>,
    /// What of its certificate does not count, and why: for whoever is refused something.
    pub(crate) doubt: Option<Arc<str>>,
    /// Whether it may send secrets: nobody between it and us could read them.
    pub(crate) is_secure: bool,
    /// What was decided of its request, for the log.
    decided: Arc<Mutex<Option<Decided>>>,
}

#[derive(Debug)]
struct Decided {
    what: String,
    is_refused: bool,
}

impl Client {
    /// Of whom a proxy conceals the address. No host has it, so only rules for everybody apply.
    pub(crate) const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

    /// Nobody in particular.
    pub(crate) fn anonymous(address: IpAddr) -> Client {
        static NOBODY: LazyLock<Arc<Identity>> = LazyLock::new(Arc::default);
        Client {
            address,
            identity: Arc::clone(&NOBODY),
            doubt: None,
            is_secure: false,
            decided: Arc::default(),
        }
    }

    /// The same for the rules.
    pub(crate) fn asker(&self) -> Asker<'_> {
        Asker { identity: &self.identity, address: self.address }
    }

    /// The same for another request.
    pub(crate) fn for_request(&self) -> Client {
        Client { decided: Arc::default(), ..self.clone() }
    }

    /// Notes what a decision came to. A request needs several, of which the last one is noted, or the first that refuses.
    pub(crate) fn decided(&self, what: impl ToString, is_refused: bool) {
        let mut decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        if !decided.as_ref().is_some_and(|before| before.is_refused) {
            *decided = Some(Decided { what: what.to_string(), is_refused });
        }
    }

    /// What was noted.
    pub(crate) fn decision(&self) -> Option<String> {
        let decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        decided.as_ref().map(|decided| decided.what.clone())
    }
}
