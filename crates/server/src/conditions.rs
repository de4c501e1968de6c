//! Preconditions of requests on the present state of files.
//!
//! Two kinds of fields have them: HTTP's own (RFC 9110, 13) about the resource that is requested, and WebDAV's `If`
//! (RFC 4918, 10.4) about any. Both are evaluated early, to refuse before a byte is moved; HTTP's become an
//! [`Expectation`] besides, which the storage checks at the very moment of the change.

use gridlane_auth::Operation;
use gridlane_dav::conditional::{self, Verdict};
use gridlane_dav::if_header::IfHeader;
use gridlane_dav::request::{Rejection, RequestBody, RequestHead};
use gridlane_dav::webdav::Destination;
use gridlane_dav::{ETag, Status};
use gridlane_store::{Expectation, Metadata, ObjectPath, Storage, StoreError};

use crate::export::{Place, Spot};
use crate::get;
use crate::origin::Origin;
use crate::storage_service::StorageService;
use gridlane_front::reply::Reply;

/// The metadata at a path; `None` for nothing.
pub(crate) async fn look(storage: &dyn Storage, path: &ObjectPath) -> Result<Option<Metadata>, Reply> {
    match storage.look(path).await {
        Ok(metadata) => Ok(Some(metadata)),
        Err(StoreError::NotFound | StoreError::ParentMissing | StoreError::NotADirectory) => Ok(None),
        Err(error) => Err(Reply::store_failure(&error)),
    }
}

/// Evaluates HTTP's conditions against what is at the requested path, and makes of them what must still hold
/// when it is changed.
pub(crate) fn evaluate(head: &RequestHead, current: Option<&Metadata>) -> Result<Expectation, Reply> {
    const CONDITIONS: [&str; 3] = ["if-match", "if-none-match", "if-unmodified-since"];
    if !CONDITIONS.iter().any(|name| head.headers.contains(name)) {
        return Ok(Expectation::Anything);
    }
    let validators = current.and_then(get::validators);
    match conditional::evaluate(&head.headers, &head.method, validators.as_ref()) {
        Verdict::Proceed => {
            Ok(current.map_or(Expectation::Absent, |current| Expectation::Tag(current.tag.clone())))
        }
        Verdict::Failed | Verdict::NotModified => Err(failed()),
    }
}

/// Checks the `If` field, if there is one. There are no locks, so a client that believes to hold one is refused.
pub(crate) async fn check_if(
    service: &StorageService,
    head: &RequestHead,
    origin: &Origin<'_>,
    spot: &Spot,
) -> Result<(), Reply> {
    let Some(conditions) = IfHeader::parse(&head.headers).map_err(refused)? else { return Ok(()) };
    let mut tags: Vec<(Option<&str>, Option<ETag>)> = Vec::new();
    for resource in conditions.resources() {
        if tags.iter().all(|(known, _)| *known != resource) {
            let tag = match resource {
                None => tag_at(spot).await,
                Some(named) => match named_spot(service, named, origin, spot) {
                    Some(named) => tag_at(&named).await,
                    None => None,
                },
            };
            tags.push((resource, tag));
        }
    }
    let known = |resource: Option<&str>| tags.iter().find(|(known, _)| *known == resource)?.1.clone();
    if conditions.holds(known) { Ok(()) } else { Err(failed()) }
}

/// The entity tag of a file, for a client that may know it: one that may not read there is told nothing.
async fn tag_at(spot: &Spot) -> Option<ETag> {
    if !spot.may(Operation::Stat) {
        return None;
    }
    ETag::strong(look(spot.storage(), &spot.object).await.ok()??.tag)
}

/// The place of a resource that the client names, if it is in an export of this server.
fn named_spot(service: &StorageService, named: &str, origin: &Origin<'_>, spot: &Spot) -> Option<Spot> {
    let named = Destination::read(named).ok().filter(|named| origin.is_ours(service, named))?;
    match service.exports.find(&named.resource_path().ok()?, &spot.client) {
        Place::Inside(named) => Some(named),
        Place::Above(_) | Place::Nowhere => None,
    }
}

/// The answer to a field or body that cannot be understood. The head as a whole was, so the connection goes on.
pub(crate) fn refused(rejection: Rejection) -> Reply {
    Reply::failure(rejection.status, rejection.message)
}

/// Refuses a body where none means anything: a client that sends one means something by it (RFC 4918, 8.4).
pub(crate) fn check_no_body(head: &RequestHead) -> Result<(), Reply> {
    match head.body {
        RequestBody::Absent | RequestBody::Known(0) => Ok(()),
        RequestBody::Known(_) | RequestBody::Chunked => {
            let what = format!("a {} has no body here: send it without one", head.method.name());
            Err(Reply::failure(Status::UNSUPPORTED_MEDIA_TYPE, what))
        }
    }
}

fn failed() -> Reply {
    Reply::failure(Status::PRECONDITION_FAILED, "a condition of the request does not hold")
}
