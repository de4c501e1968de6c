//! The places that paths of requests lead to, and the rights of clients there.

use gridlane_auth::{Grants, Operation};
use gridlane_core::limits;
use gridlane_dav::ResourcePath;
use gridlane_store::StoreError;
use gridlane_xrd::{ErrorCode, PathArg};

use crate::export::{Denial, Place, Spot};
use crate::storage_service::StorageService;
use gridlane_front::root::answer::{Failure, printable_path};
use gridlane_front::root::context;

/// The context that a request is answered with.
pub(crate) type Context = context::Context<StorageService>;

/// Finds the places of paths.
pub(crate) trait Places {
    /// The place of a path. A path that is relative, or that leads upwards, leads nowhere and is an error, as in
    /// XRootD; `//` and `/./` count as one slash.
    fn place(&self, about: &PathArg) -> Result<Place, Failure>;

    /// The place of a path inside of an export, when its client may do that there. `act` is the verb for a message that
    /// it is not there.
    fn spot(&self, about: &PathArg, act: &str, operation: Operation) -> Result<Spot, Failure>;

    /// The same when the client may do one of these there.
    fn spot_any(&self, about: &PathArg, act: &str, operations: &[Operation]) -> Result<Spot, Failure>;
}

impl Places for Context {
    fn place(&self, about: &PathArg) -> Result<Place, Failure> {
        let refused = |why: &str| {
            Failure::new(ErrorCode::NOT_AUTHORIZED, format!("{} {why}", printable_path(&about.path)))
        };
        if about.path.is_empty() {
            return Err(Failure::new(ErrorCode::ARG_MISSING, "Required argument not present"));
        }
        if about.path.len() > limits::ROOT_PATH_BYTES_MAX {
            return Err(Failure::new(ErrorCode::ARG_TOO_LONG, "the path is too long"));
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
        Ok(self.service().exports.find(&path, &self.client))
    }

    fn spot(&self, about: &PathArg, act: &str, operation: Operation) -> Result<Spot, Failure> {
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

    fn spot_any(&self, about: &PathArg, act: &str, operations: &[Operation]) -> Result<Spot, Failure> {
        let may = |operation: &&Operation| matches!(self.place(about), Ok(Place::Inside(spot)) if spot.may(**operation));
        // A refusal names the first.
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

/// The failure of an operation that a client is denied.
pub(crate) fn denied(spot: &Spot, about: &PathArg, act: &str, denial: Denial) -> Failure {
    // Scripts look for either of the two.
    let why = if denial == Denial::ReadOnly {
        "permission denied: file path marked read/only: "
    } else {
        "permission denied: "
    };
    let mut text = format!("Unable to {act} {}; {why}{denial}", printable_path(&about.path));
    if let (Denial::ByRules(_), Some(doubt)) = (denial, &spot.client.doubt) {
        text = format!("{text}; {doubt}");
    }
    Failure::new(ErrorCode::NOT_AUTHORIZED, text)
}
