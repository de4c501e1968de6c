//! DELETE of files. Directories stay: removing a tree by one request is not offered.

use gridlane_dav::request::RequestHead;
use gridlane_dav::{ResourcePath, Status};
use gridlane_store::StoreError;

use crate::export::Spot;
use crate::put::expectation_of;
use crate::reply::Reply;
use crate::shared::Shared;

/// Removes a file.
pub(crate) async fn answer(shared: &Shared, head: &RequestHead, path: &ResourcePath, spot: &Spot) -> Reply {
    if path.is_directory_form() {
        return Reply::failure(Status::CONFLICT, "a directory cannot be removed, only files can");
    }
    let outcome = shared.disk.run(|| {
        let expectation = expectation_of(spot, head)?;
        spot.storage().remove(&spot.object, &expectation).map_err(|error| match error {
            StoreError::NotAFile => {
                Reply::failure(Status::CONFLICT, "a directory cannot be removed, only files can")
            }
            other => Reply::store_failure(&other),
        })
    });
    match outcome.await {
        Ok(()) => Reply::new(Status::NO_CONTENT),
        Err(reply) => reply,
    }
}
