//! DELETE: files, and directories with all that is in them.

use gridlane_dav::request::RequestHead;
use gridlane_dav::webdav::Depth;
use gridlane_dav::{ResourcePath, Status};
use gridlane_store::{ObjectPath, Storage, StoreError};

use crate::conditions;
use crate::export::{Export, Spot};
use gridlane_front::reply::Reply;

/// Removes what is there (RFC 4918, 9.6).
pub(crate) async fn answer(head: &RequestHead, path: &ResourcePath, spot: &Spot) -> Reply {
    if let Err(reply) = conditions::check_no_body(head) {
        return reply;
    }
    let depth = match Depth::of_removal(&head.headers) {
        Ok(depth) => depth,
        Err(rejection) => return conditions::refused(rejection),
    };
    if spot.object.is_root() {
        return Reply::failure(Status::FORBIDDEN, "an export itself cannot be removed, only what is in it");
    }
    match remove(head, path, spot, depth).await {
        Ok(()) => Reply::new(Status::NO_CONTENT),
        Err(reply) => reply,
    }
}

async fn remove(head: &RequestHead, path: &ResourcePath, spot: &Spot, depth: Depth) -> Result<(), Reply> {
    let current = conditions::look(spot.storage(), &spot.object).await?;
    let expectation = conditions::evaluate(head, current.as_ref())?;
    let is_directory = match &current {
        Some(metadata) if metadata.is_directory() => true,
        Some(_) if path.is_directory_form() => return Err(Reply::store_failure(&StoreError::NotFound)),
        Some(_) => false,
        None => return Err(Reply::store_failure(&StoreError::NotFound)),
    };
    if is_directory {
        depth.check_whole().map_err(conditions::refused)?;
    }
    let removed = match is_directory {
        true => remove_directory(&spot.export, spot.storage(), &spot.object).await,
        false => spot.storage().remove(&spot.object, &expectation).await,
    };
    removed.map_err(|error| Reply::store_failure(&error))
}

/// Removes a directory with all that is in it, as far as the export lets one request do so.
pub(crate) async fn remove_directory(
    export: &Export,
    storage: &dyn Storage,
    path: &ObjectPath,
) -> Result<(), StoreError> {
    match export.compat.refuse_recursive_delete {
        true => storage.remove_directory(path).await,
        false => storage.remove_tree(path).await,
    }
}
