//! Other names.

use std::sync::Arc;

use gridlane_store::{Expectation, StoreError};
use gridlane_xrd::request::Mv;

use super::answer::{Answer, Failure, Outcome};
use super::context::{Context, allowed};
use crate::relocate;
use crate::rules::Operation;

const ACT: &str = "rename";

/// Answers `mv`: a file replaces a file, and nothing replaces a directory. May wait for the disk.
pub(crate) fn mv(context: &Context, request: &Mv) -> Outcome {
    let failed = |error: StoreError| Failure::of_store(ACT, &request.from.path, &error);
    let from = context.spot(&request.from, ACT, Operation::Delete)?;
    let to = context.spot(&request.to, ACT, Operation::Write)?;
    // Who could move it to where they may read it could read it.
    allowed(&from, &request.from, ACT, Operation::Read)?;
    if !Arc::ptr_eq(&from.export, &to.export) {
        return Err(failed(StoreError::AcrossDevices));
    }
    let storage = from.storage();
    let source = storage.look(&from.object).map_err(failed)?;
    if source.is_directory() {
        allowed(&from, &request.from, ACT, Operation::List)?;
    }
    if from.object == to.object {
        return Ok(Answer::done());
    }
    if from.object.is_root() {
        return Err(failed(StoreError::InUse));
    }
    let target = match storage.look(&to.object) {
        Ok(target) => Some(target),
        Err(StoreError::NotFound) => None,
        Err(error) => return Err(failed(error)),
    };
    match &target {
        Some(target) if target.is_directory() && !storage.is_link(&to.object).map_err(failed)? => {
            return Err(failed(StoreError::NotAFile));
        }
        Some(_) if source.is_directory() => return Err(failed(StoreError::NotADirectory)),
        _ => {}
    }
    let shared = &context.shared;
    let ends = (&from.object, &to.object);
    // Where nothing is, nothing is replaced: a directory that somebody makes there meanwhile stays.
    relocate::rename(shared, storage, ends, target.is_some(), (&source, &Expectation::Anything))
        .map_err(failed)?;
    Ok(Answer::done())
}
