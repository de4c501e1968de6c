//! The client of a request.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};

use gridlane_auth::{Asker, Identity, Operation};
use gridlane_dav::ResourcePath;

/// The client of a request, and the identity that it has proved.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its address, as far as can be told: what a trusted proxy says, or else the connection's other end.
    /// [`Client::UNKNOWN`] when a trusted proxy would not say.
    pub address: IpAddr,
    /// The identity that it has proved.
    pub identity: Arc<Identity>,
    /// The parts of its certificate that do not count, and why: for a client that is refused something.
    pub doubt: Option<Arc<str>>,
    /// True if it may send secrets: no third party between it and the server could read them.
    pub(crate) is_secure: bool,
    /// The decision about its request, for the log; nothing where there is none.
    decided: Option<Arc<Mutex<Option<Decided>>>>,
}

/// A decision: its subject, and its outcome.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    /// The operation, and its path; `None` for what no rule is about.
    about: Option<(Operation, ResourcePath)>,
    /// The rule that allowed it, or why it was refused.
    pub(crate) outcome: String,
    is_refused: bool,
}

impl Decided {
    /// The operation, in one word.
    pub(crate) fn operation(&self) -> Option<&'static str> {
        self.about.as_ref().map(|(operation, _)| operation.word())
    }

    /// The path, if it is not this one, which a record names already: a request may be about two, and about the
    /// directories that lead there.
    pub(crate) fn path_beside(&self, path: &str) -> Option<String> {
        let own = self.about.as_ref()?.1.to_string();
        (own.trim_end_matches('/') != path.trim_end_matches('/')).then_some(own)
    }
}

impl Client {
    /// The address of a client that a proxy conceals. No host has it, so only rules for every host apply.
    pub const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

    /// An anonymous client, whose requests are logged.
    pub fn anonymous(address: IpAddr) -> Client {
        Client { decided: Some(Arc::default()), ..Client::unlogged(address) }
    }

    /// The same where there is no log: decisions need not be noted.
    pub(crate) fn unlogged(address: IpAddr) -> Client {
        thread_local! {
            // One for each thread: all requests of all of them would count in the same place.
            static ANONYMOUS: Arc<Identity> = Arc::default();
        }
        let identity = ANONYMOUS.with(Arc::clone);
        Client { address, identity, doubt: None, is_secure: false, decided: None }
    }

    /// The requester in decisions of the rules.
    pub fn requester(&self) -> Asker<'_> {
        Asker { identity: &self.identity, address: self.address }
    }

    /// The same for another request.
    pub fn for_request(&self) -> Client {
        Client { decided: self.decided.as_ref().map(|_| Arc::default()), ..self.clone() }
    }

    /// Notes the outcome of a decision. A request needs several, of which the last one is noted, or the first that
    /// refuses.
    pub fn decided<'a>(
        &self,
        operation: Operation,
        names: impl Iterator<Item = &'a [u8]>,
        what: impl ToString,
        is_refused: bool,
    ) {
        let Some(decided) = &self.decided else { return };
        let mut decided = decided.lock().unwrap_or_else(PoisonError::into_inner);
        if !decided.as_ref().is_some_and(|before| before.is_refused) {
            let path = ResourcePath::of_names(names);
            *decided =
                Some(Decided { about: Some((operation, path)), outcome: what.to_string(), is_refused });
        }
    }

    /// Notes the outcome of a request that no rule is about.
    pub fn noted(&self, outcome: String) {
        let Some(decided) = &self.decided else { return };
        let mut decided = decided.lock().unwrap_or_else(PoisonError::into_inner);
        *decided = Some(Decided { about: None, outcome, is_refused: false });
    }

    /// The decision that was noted.
    pub(crate) fn decision(&self) -> Option<Decided> {
        self.decided.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
