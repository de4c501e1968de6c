//! Who asks.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};

use gridlane_auth::{Asker, Identity, Operation};
use gridlane_dav::ResourcePath;

/// Who asks.
#[derive(Clone, Debug)]
pub struct Client {
    /// Where it is, as far as can be told: what a trusted proxy says, or else the connection's other end.
    /// [`Client::UNKNOWN`] when a trusted proxy would not say.
    pub address: IpAddr,
    /// Who it has proved to be.
    pub identity: Arc<Identity>,
    /// What of its certificate does not count, and why: for whoever is refused something.
    pub doubt: Option<Arc<str>>,
    /// Whether it may send secrets: nobody between it and us could read them.
    pub(crate) is_secure: bool,
    /// What was decided of its request, for the log; nothing where there is none.
    decided: Option<Arc<Mutex<Option<Decided>>>>,
}

/// What was decided: about what, and what it came to.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    /// What was to be done, and where; `None` of what no rule is about.
    about: Option<(Operation, ResourcePath)>,
    /// By which rule it was allowed, or why not.
    pub(crate) what: String,
    is_refused: bool,
}

impl Decided {
    /// What was to be done, in one word.
    pub(crate) fn operation(&self) -> Option<&'static str> {
        self.about.as_ref().map(|(operation, _)| operation.word())
    }

    /// Where, if a record does not say it already by this path: a request may be about two, and about the directories
    /// that lead there.
    pub(crate) fn path_beside(&self, path: &str) -> Option<String> {
        let own = self.about.as_ref()?.1.to_string();
        (own.trim_end_matches('/') != path.trim_end_matches('/')).then_some(own)
    }
}

impl Client {
    /// Of whom a proxy conceals the address. No host has it, so only rules for everybody apply.
    pub const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

    /// Nobody in particular, whose requests are logged.
    pub fn anonymous(address: IpAddr) -> Client {
        Client { decided: Some(Arc::default()), ..Client::unlogged(address) }
    }

    /// The same where there is no log: what is decided need not be noted.
    pub(crate) fn unlogged(address: IpAddr) -> Client {
        thread_local! {
            // One for each thread: all requests of all of them would count in the same place.
            static NOBODY: Arc<Identity> = Arc::default();
        }
        let identity = NOBODY.with(Arc::clone);
        Client { address, identity, doubt: None, is_secure: false, decided: None }
    }

    /// The same for the rules.
    pub fn asker(&self) -> Asker<'_> {
        Asker { identity: &self.identity, address: self.address }
    }

    /// The same for another request.
    pub fn for_request(&self) -> Client {
        Client { decided: self.decided.as_ref().map(|_| Arc::default()), ..self.clone() }
    }

    /// Notes what a decision came to. A request needs several, of which the last one is noted, or the first that refuses.
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
            *decided = Some(Decided { about: Some((operation, path)), what: what.to_string(), is_refused });
        }
    }

    /// Notes what came of a request that no rule is about.
    pub fn noted(&self, what: String) {
        let Some(decided) = &self.decided else { return };
        let mut decided = decided.lock().unwrap_or_else(PoisonError::into_inner);
        *decided = Some(Decided { about: None, what, is_refused: false });
    }

    /// What was noted.
    pub(crate) fn decision(&self) -> Option<Decided> {
        self.decided.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
