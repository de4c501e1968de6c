//! Who asks, and for what: what every request is answered with.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use gridlane_auth::{Grants, Operation};
use gridlane_core::{Secret, limits};
use gridlane_dav::ResourcePath;
use gridlane_store::StoreError;
use gridlane_xrd::{ErrorCode, PathArg, SessionId};

use super::answer::{Failure, shown};
use super::files::Files;
use crate::client::Client;
use crate::export::{Denial, Place, Spot};
use crate::shared::Shared;

/// A session: what its connections share, and what ends with the first of them.
pub(crate) struct Session {
    /// What other connections call it.
    pub(crate) id: SessionId,
    /// What the client says that its user is called. Nothing depends on it being true.
    pub(crate) user: String,
    /// What the client says that it is, for the log: its program's name and version.
    pub(crate) agent: String,
    /// What the client says that it does, for the log.
    purpose: Mutex<String>,
    /// The files that it has open.
    pub(crate) files: Files,
}

impl Session {
    /// One that has no file open.
    pub(crate) fn new(id: SessionId, user: impl Into<String>, agent: impl Into<String>) -> Session {
        let (user, agent) = (user.into(), agent.into());
        Session { id, user, agent, purpose: Mutex::default(), files: Files::default() }
    }

    /// What the client says that it does; empty if it says nothing.
    pub(crate) fn purpose(&self) -> String {
        self.purpose.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers what the client says that it does.
    pub(crate) fn set_purpose(&self, purpose: String) {
        *self.purpose.lock().unwrap_or_else(PoisonError::into_inner) = purpose;
    }
}

/// The connection that a request came by.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// Where the client reached us.
    pub(crate) local: SocketAddr,
    /// The other end, or the client that a trusted proxy names.
    pub(crate) peer: SocketAddr,
    /// That proxy.
    pub(crate) proxy: Option<SocketAddr>,
    /// The version of TLS, if it protects the connection.
    pub(crate) tls: Option<&'static str>,
}

/// What a request is answered with: the settings of the moment when it came, and who asks.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    /// Who asks: of a request that is looked at, by what it says itself; else as of the login.
    pub(crate) client: Client,
    /// The token of the login, as if every request had it.
    pub(crate) token: Option<Arc<Secret>>,
    pub(crate) session: Arc<Session>,
    pub(crate) link: Arc<Link>,
    /// Whether the client understands answers that come later.
    pub(crate) takes_later: bool,
}

impl Context {
    /// Where a path leads. A path that is relative, or that leads upwards, leads nowhere and is an error, as in
    /// XRootD; `//` and `/./` count as one slash.
    pub(crate) fn place(&self, about: &PathArg) -> Result<Place, Failure> {
        let refused =
            |why: &str| Failure::new(ErrorCode::NOT_AUTHORIZED, format!("{} {why}", shown(&about.path)));
        if about.path.is_empty() {
            return Err(Failure::new(ErrorCode::ARG_MISSING, "Required argument not present"));
        }
        if about.path.len() > limits::ROOT_PATH_BYTES_MAX {
            return Err(Failure::new(ErrorCode::ARG_TOO_LONG, "the path is longer than any that opens"));
        }
        let Some(relative) = about.path.strip_prefix(b"/") else {
            return Err(refused("is a relative path, which is disallowed"));
        };
        let mut path = ResourcePath::root();
        for name in relative.split(|byte| *byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => return Err(refused("has a relative part, which is disallowed")),
                name if name.contains(&0) => return Err(refused("has a NUL in it")),
                name => path = path.join(name),
            }
        }
        Ok(self.shared.exports.find(&path, &self.client))
    }

    /// Where a path leads inside of an export, when its client may do that there. `act` is the verb for a message
    /// that it is not there.
    pub(crate) fn spot(&self, about: &PathArg, act: &str, operation: Operation) -> Result<Spot, Failure> {
        let spot = match self.place(about)? {
            Place::Inside(spot) => spot,
            Place::Above(_) if Grants::of(operation).changes() => {
                return Err(Failure::of_store(act, &about.path, &StoreError::Denied));
            }
            Place::Above(_) => return Err(Failure::of_store(act, &about.path, &StoreError::NotAFile)),
            Place::Nowhere => return Err(Failure::of_store(act, &about.path, &StoreError::NotFound)),
        };
        allowed(&spot, about, act, operation)?;
        Ok(spot)
    }
}

impl Context {
    /// The same when the client may do one of these there.
    pub(crate) fn spot_any(
        &self,
        about: &PathArg,
        act: &str,
        operations: &[Operation],
    ) -> Result<Spot, Failure> {
        let may = |operation: &&Operation| matches!(self.place(about), Ok(Place::Inside(spot)) if spot.may(**operation));
        // What is refused is told of the first.
        match operations.iter().find(may).or(operations.first()) {
            Some(operation) => self.spot(about, act, *operation),
            None => Err(Failure::of_store(act, &about.path, &StoreError::Denied)),
        }
    }
}

/// Fails when a client may not do it there.
pub(crate) fn allowed(spot: &Spot, about: &PathArg, act: &str, operation: Operation) -> Result<(), Failure> {
    spot.decide(operation).map_err(|denial| denied(spot, about, act, denial))
}

/// The failure of what a client may not do.
pub(crate) fn denied(spot: &Spot, about: &PathArg, act: &str, denial: Denial) -> Failure {
    // Scripts look for either of the two.
    let why = if denial == Denial::ReadOnly {
        "permission denied: file path marked read/only: "
    } else {
        "permission denied: "
    };
    let mut text = format!("Unable to {act} {}; {why}{denial}", shown(&about.path));
    if let (Denial::ByRules(_), Some(doubt)) = (denial, &spot.client.doubt) {
        text = format!("{text}; {doubt}");
    }
    Failure::new(ErrorCode::NOT_AUTHORIZED, text)
}
