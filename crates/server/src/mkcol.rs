//! MKCOL: directories.

use gridlane_auth::Operation;
use gridlane_dav::Status;
use gridlane_dav::request::RequestHead;
use gridlane_store::{ObjectPath, StoreError};

use crate::conditions;
use crate::export::{Place, Spot};
use crate::options;
use crate::storage_service::StorageService;
use gridlane_front::reply::{Payload, Reply};

/// Makes a directory (RFC 4918, 9.3).
pub(crate) async fn answer(service: &StorageService, head: &RequestHead, spot: Spot) -> Reply {
    if let Err(reply) = conditions::check_no_body(head) {
        return reply;
    }
    match make(head, &spot).await {
        Ok(true) => Reply::new(Status::CREATED).payload(Payload::Bytes(Vec::new())),
        Ok(false) => options::exists(service, &Place::Inside(spot)),
        Err(reply) => reply,
    }
}

/// Makes a directory; returns false if something is there already.
async fn make(head: &RequestHead, spot: &Spot) -> Result<bool, Reply> {
    let current = conditions::look(spot.storage(), &spot.object).await?;
    conditions::evaluate(head, current.as_ref())?;
    if current.is_some() {
        return Ok(false);
    }
    prepare_parent(spot).await?;
    match spot.storage().make_directory(&spot.object).await {
        Ok(()) => Ok(true),
        Err(StoreError::Unexpected) => Ok(false),
        Err(error) => Err(Reply::store_failure(&error)),
    }
}

/// Makes the directories that lead to a path, where the export is to do so.
pub(crate) async fn prepare_parent(spot: &Spot) -> Result<(), Reply> {
    match spot.object.split_last() {
        Some((parent, _)) if spot.export.compat.create_parents => {
            check_parents(spot, &parent).await?;
            spot.storage().make_directories(&parent).await.map_err(|error| Reply::store_failure(&error))
        }
        _ => Ok(()),
    }
}

/// Refuses to make directories that lead to `parent`, and that one, where its client may not make them.
async fn check_parents(spot: &Spot, parent: &ObjectPath) -> Result<(), Reply> {
    let missing = missing_that_may_not_be_made(spot, parent).await;
    match missing.map_err(|error| Reply::store_failure(&error))? {
        Some(refused) => refused.check(Operation::Mkdir),
        None => Ok(()),
    }
}

/// The first of a directory and those that lead to it that is not there and that the client may not make.
pub(crate) async fn missing_that_may_not_be_made(
    spot: &Spot,
    directory: &ObjectPath,
) -> Result<Option<Spot>, StoreError> {
    let mut at = directory.clone();
    if spot.may_everywhere(Operation::Mkdir) {
        return Ok(None);
    }
    loop {
        match spot.storage().look(&at).await {
            Ok(_) => return Ok(None),
            Err(StoreError::NotFound | StoreError::ParentMissing | StoreError::NotADirectory) => {}
            Err(error) => return Err(error),
        }
        let here = spot.at(at.clone());
        if !here.may(Operation::Mkdir) {
            return Ok(Some(here));
        }
        match at.split_last() {
            Some((parent, _)) => at = parent,
            None => return Ok(None),
        }
    }
}
