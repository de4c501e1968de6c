//! New directories.

use gridlane_store::StoreError;
use gridlane_xrd::request::Mkdir;

use super::answer::{Answer, Failure, Outcome};
use super::context::Context;
use crate::export::Place;
use crate::rules::Operation;

const ACT: &str = "mkdir";

/// Answers `mkdir`. May wait for the disk.
///
/// What is there already is `ItExists`, unless directories that lead to it may be made as well (`mkdir -p`) and it is a
/// directory.
pub(crate) fn mkdir(context: &Context, request: &Mkdir) -> Outcome {
    let failed = |error: StoreError| Err(Failure::of_store(ACT, &request.about.path, &error));
    if let Place::Above(_) = context.place(&request.about)? {
        return if request.parents { Ok(Answer::done()) } else { failed(StoreError::Unexpected) };
    }
    let spot = context.spot(&request.about, ACT, Operation::Write)?;
    let storage = spot.storage();
    if request.parents {
        match storage.look(&spot.object) {
            Ok(there) if there.is_directory() => return Ok(Answer::done()),
            Ok(_) => return failed(StoreError::Unexpected),
            Err(StoreError::NotFound) => {}
            Err(error) => return failed(error),
        }
        if let Some((parent, _)) = spot.object.split_last()
            && let Err(error) = storage.make_directories(&parent)
        {
            return failed(error);
        }
    }
    match storage.make_directory(&spot.object) {
        Ok(()) => {}
        // Somebody else made it just now.
        Err(StoreError::Unexpected)
            if request.parents && storage.look(&spot.object).is_ok_and(|there| there.is_directory()) =>
        {
            return Ok(Answer::done());
        }
        Err(error) => return failed(error),
    }
    match set_mode(storage, &spot.object, request.mode) {
        // A storage without permissions has none to set.
        Ok(()) | Err(StoreError::Unsupported) => Ok(Answer::done()),
        Err(error) => failed(error),
    }
}

/// Takes away what the client does not want of what a new directory has: what the umask takes stays away.
fn set_mode(
    storage: &dyn gridlane_store::Storage,
    object: &gridlane_store::ObjectPath,
    mode: u16,
) -> Result<(), StoreError> {
    let has = storage.look(object)?.mode & 0o777;
    // 0 is no wish, and the owner, who is this server, has to get in.
    let wanted = (u32::from(mode) | 0o700) & has;
    if mode == 0 || wanted == has { Ok(()) } else { storage.set_mode(object, wanted) }
}
