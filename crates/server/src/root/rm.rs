//! Files and directories are removed.

use gridlane_store::{Expectation, StoreError};
use gridlane_xrd::request::{Rm, Rmdir};

use super::answer::{Answer, Failure, Outcome};
use super::context::Context;
use crate::rules::Operation;

const ACT: &str = "remove";

/// Answers `rm`: a directory is `isDirectory`. May wait for the disk.
pub(crate) fn rm(context: &Context, request: &Rm) -> Outcome {
    let spot = context.spot(&request.about, ACT, Operation::Delete)?;
    let removed = match spot.object.is_root() {
        true => Err(StoreError::NotAFile),
        false => spot.storage().remove(&spot.object, &Expectation::Anything),
    };
    removed.map_err(|error| Failure::of_store(ACT, &request.about.path, &error))?;
    Ok(Answer::done())
}

/// Answers `rmdir`: one that is not empty is `ItExists`. May wait for the disk.
pub(crate) fn rmdir(context: &Context, request: &Rmdir) -> Outcome {
    let spot = context.spot(&request.about, ACT, Operation::Delete)?;
    let removed = match spot.object.is_root() {
        true => Err(StoreError::InUse),
        false => spot.storage().remove_directory(&spot.object),
    };
    removed.map_err(|error| Failure::of_store(ACT, &request.about.path, &error))?;
    Ok(Answer::done())
}
