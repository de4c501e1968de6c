//! Permissions.

use gridlane_xrd::request::Chmod;

use super::answer::{Answer, Failure, Outcome};
use super::context::Context;
use crate::rules::Operation;

/// Permissions that clients can give: as in XRootD never to everybody to write.
const GIVEN: u32 = 0o775;

/// Answers `chmod`. May wait for the disk.
pub(crate) fn chmod(context: &Context, request: &Chmod) -> Outcome {
    // "Change" is XRootD's word.
    const ACT: &str = "change";
    let spot = context.spot(&request.about, ACT, Operation::Write)?;
    let changed = spot.storage().set_mode(&spot.object, u32::from(request.mode) & GIVEN);
    changed.map_err(|error| Failure::of_store(ACT, &request.about.path, &error))?;
    Ok(Answer::done())
}
