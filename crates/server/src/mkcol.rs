//! MKCOL: directories.

use gridlane_dav::Status;
use gridlane_dav::request::{RequestBody, RequestHead};
use gridlane_store::StoreError;

use crate::conditions;
use crate::export::{Place, Spot};
use crate::options;
use crate::reply::{Payload, Reply};
use crate::shared::Shared;

/// Makes a directory (RFC 4918, 9.3).
pub(crate) async fn answer(shared: &Shared, head: &RequestHead, spot: Spot) -> Reply {
    if !matches!(head.body, RequestBody::Absent | RequestBody::Known(0)) {
        return Reply::failure(Status::UNSUPPORTED_MEDIA_TYPE, "a MKCOL with a body means nothing here");
    }
    let made = shared.disk.run(|| {
        let current = conditions::look(spot.storage(), &spot.object)?;
        conditions::evaluate(head, current.as_ref())?;
        if current.is_some() {
            return Ok(false);
        }
        prepare_parent(&spot)?;
        match spot.storage().make_directory(&spot.object) {
            Ok(()) => Ok(true),
            Err(StoreError::Unexpected) => Ok(false),
            Err(error) => Err(Reply::store_failure(&error)),
        }
    });
    match made.await {
        Ok(true) => Reply::new(Status::CREATED).payload(Payload::Bytes(Vec::new())),
        Ok(false) => options::exists(shared, &Place::Inside(spot)),
        Err(reply) => reply,
    }
}

/// Makes the directories that lead to a path, where the export is to do so.
pub(crate) fn prepare_parent(spot: &Spot) -> Result<(), Reply> {
    match spot.object.split_last() {
        Some((parent, _)) if spot.export.compat.create_parents => {
            spot.storage().make_directories(&parent).map_err(|error| Reply::store_failure(&error))
        }
        _ => Ok(()),
    }
}
