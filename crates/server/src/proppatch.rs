//! PROPPATCH: the time of the last change can be set, and nothing else; there are no dead properties.

use std::time::SystemTime;

use gridlane_core::limits;
use gridlane_dav::property::PropertyName;
use gridlane_dav::propfind::ProppatchRequest;
use gridlane_dav::request::RequestHead;
use gridlane_dav::{Multistatus, ResourcePath, Status, multistatus};
use gridlane_store::StoreError;

use crate::conditions;
use crate::export::Spot;
use crate::origin::Origin;
use crate::propfind::{joined, kind_of};
use crate::storage_service::StorageService;
use gridlane_front::body::{Body, Wire};
use gridlane_front::reply::{Payload, Reply};

/// Changes properties: all that the request names, or none (RFC 4918, 9.2).
pub(crate) async fn answer(
    service: &StorageService,
    wire: &mut Wire,
    head: &RequestHead,
    path: &ResourcePath,
    spot: &Spot,
    body: &mut Body,
) -> Reply {
    let bytes = match body.read_whole(&service.front.data, wire, head, limits::DAV_REQUEST_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(reply) => return reply,
    };
    let request = match ProppatchRequest::parse(&bytes) {
        Ok(request) => request,
        Err(rejection) => return conditions::refused(rejection),
    };
    let origin = Origin::new(head, wire.stream.is_tls());
    change(head, path, spot, &origin, &request).await.unwrap_or_else(|reply| reply)
}

async fn change(
    head: &RequestHead,
    path: &ResourcePath,
    spot: &Spot,
    origin: &Origin<'_>,
    request: &ProppatchRequest,
) -> Result<Reply, Reply> {
    let current = conditions::look(spot.storage(), &spot.object).await?;
    conditions::evaluate(head, current.as_ref())?;
    let missing = || Reply::store_failure(&StoreError::NotFound);
    let current = current.ok_or_else(missing)?;
    if path.is_directory_form() && !current.is_directory() {
        return Err(missing());
    }
    let mut out = Vec::new();
    let writer = Multistatus::new(origin.url().as_deref());
    writer.open(&mut out);
    let outcomes = match time_of(request) {
        Ok(modified) => {
            let set = match spot.storage().posix() {
                Some(posix) => posix.set_modified(&spot.object, modified).await,
                None => Err(StoreError::Unsupported),
            };
            set.map_err(|error| Reply::store_failure(&error))?;
            request.names().into_iter().map(|name| (name, Status::OK)).collect()
        }
        Err(outcomes) => outcomes,
    };
    writer.changes(&mut out, &joined(path.names()), kind_of(&current), &outcomes);
    writer.close(&mut out);
    Ok(Reply::new(Status::MULTI_STATUS)
        .field("Content-Type", multistatus::MEDIA_TYPE)
        .payload(Payload::Bytes(out)))
}

/// The time that is to be set, if nothing else is to be done; else the status of each property.
fn time_of(request: &ProppatchRequest) -> Result<SystemTime, Vec<(&PropertyName, Status)>> {
    let times: Option<Vec<SystemTime>> = request.changes.iter().map(|change| change.modified()).collect();
    // Of several the last one counts: they are done in order.
    if let Some(last) = times.as_deref().and_then(<[SystemTime]>::last) {
        return Ok(*last);
    }
    let is_settable = |name: &PropertyName| {
        request.changes.iter().all(|change| change.name != *name || change.modified().is_some())
    };
    let status =
        |name: &PropertyName| if is_settable(name) { Status::FAILED_DEPENDENCY } else { Status::FORBIDDEN };
    Err(request.names().into_iter().map(|name| (name, status(name))).collect())
}
