//! Who asks, and for what: what every request is answered with.

use std::sync::Arc;

use gridlane_dav::ResourcePath;
use gridlane_xrd::{ErrorCode, PathArg, SessionId};

use super::answer::{Failure, shown};
use super::files::Files;
use crate::export::{Place, Spot};
use crate::rules::{Client, Operation};
use crate::shared::Shared;

/// A session: what its connections share, and what ends with the first of them.
pub(crate) struct Session {
    /// What other connections call it.
    pub(crate) id: SessionId,
    /// What the client says that its user is called. Nothing depends on it being true.
    pub(crate) user: String,
    /// The files that it has open.
    pub(crate) files: Files,
}

/// What a request is answered with: the settings of the moment when it came, and who asks.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: Client,
    pub(crate) session: Arc<Session>,
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
        Ok(self.shared.exports.find(&path, self.client))
    }

    /// Where a path leads inside of an export, when its client may do that there. `act` is the verb for a message
    /// that it is not there.
    pub(crate) fn spot(&self, about: &PathArg, act: &str, operation: Operation) -> Result<Spot, Failure> {
        let spot = match self.place(about)? {
            Place::Inside(spot) => spot,
            Place::Above(_) if matches!(operation, Operation::Write | Operation::Delete) => {
                let text = format!("Unable to {act} {}; permission denied", shown(&about.path));
                return Err(Failure::new(ErrorCode::NOT_AUTHORIZED, text));
            }
            Place::Above(_) => {
                let text = format!("Unable to {act} {}; is a directory", shown(&about.path));
                return Err(Failure::new(ErrorCode::IS_DIRECTORY, text));
            }
            Place::Nowhere => {
                let text = format!("Unable to {act} {}; no such file or directory", shown(&about.path));
                return Err(Failure::new(ErrorCode::NOT_FOUND, text));
            }
        };
        match spot.refusal(operation) {
            None => Ok(spot),
            Some(why) => Err(Failure::new(
                ErrorCode::NOT_AUTHORIZED,
                format!("Unable to {act} {}; permission denied: {why}", shown(&about.path)),
            )),
        }
    }
}
