//! OPTIONS: the methods of a path.

use gridlane_auth::Operation;
use gridlane_core::limits;
use gridlane_dav::Status;
use gridlane_dav::request::RequestHead;
use gridlane_dav::third_party::SOURCES_FIELD;

use crate::export::Place;
use crate::storage_service::StorageService;
use gridlane_front::reply::{Payload, Reply};

/// The methods, each with the operations of which one has to be allowed where it may be used; with none: everywhere.
const METHODS: [(&str, &[Operation]); 10] = [
    ("GET", &[]),
    ("HEAD", &[]),
    ("PUT", &[Operation::Create, Operation::Overwrite]),
    ("DELETE", &[Operation::Delete]),
    ("OPTIONS", &[]),
    ("PROPFIND", &[]),
    ("PROPPATCH", &[Operation::Overwrite]),
    ("MKCOL", &[Operation::Mkdir]),
    ("MOVE", &[Operation::Rename]),
    ("COPY", &[Operation::Read]),
];

/// The methods that `may` allows, for `Allow`. Without spaces: XRootD's client takes the list apart at its commas and
/// nowhere else. With POST where macaroons are given, for whatever path.
fn methods(service: &StorageService, may: impl Fn(Operation) -> bool) -> String {
    let is_allowed =
        |operations: &[Operation]| operations.is_empty() || operations.iter().any(|one| may(*one));
    let allowed = METHODS.iter().filter(|(_, operations)| is_allowed(operations));
    // A client that may only store something has it fetched.
    let fetches = service.third_party.is_some() && !is_allowed(&[Operation::Read]);
    let copy = (fetches && is_allowed(&[Operation::Create, Operation::Overwrite])).then_some("COPY");
    let post = service.front.auth.macaroons.is_some().then_some("POST");
    allowed.map(|(name, _)| *name).chain(copy).chain(post).collect::<Vec<_>>().join(",")
}

/// The methods that are allowed at a place.
fn allowed(service: &StorageService, place: &Place) -> String {
    match place {
        Place::Inside(spot) => methods(service, |operation| match operation {
            // For COPY: what may be read can be copied to where something may be written, or sent to another server.
            Operation::Read => may_copy(service) && spot.may(operation),
            _ => spot.may(operation),
        }),
        Place::Above(_) | Place::Nowhere => methods(service, |_| false),
    }
}

/// Answers OPTIONS for a path (RFC 4918, 10.1). davix looks for PROPFIND in `Allow`, cadaver and davfs2 for the class
/// in `DAV`: 1, for there are no locks.
pub(crate) fn answer(service: &StorageService, place: &Place) -> Reply {
    reply(service, allowed(service, place))
}

/// `OPTIONS *`: the methods that are allowed somewhere.
pub(crate) fn of_server(service: &StorageService) -> Reply {
    reply(service, methods(service, |_| service.exports.allow_write()))
}

/// True if there is anywhere that files can be copied to.
fn may_copy(service: &StorageService) -> bool {
    service.exports.allow_write() || service.third_party.is_some()
}

fn reply(service: &StorageService, allowed: String) -> Reply {
    let reply = Reply::new(Status::OK);
    let reply = match &service.third_party {
        Some(_) => reply.field(SOURCES_FIELD, limits::SOURCES_MAX.to_string()),
        None => reply,
    };
    reply
        .field("Allow", allowed)
        .field("DAV", "1")
        // Without it Windows takes the server for one that speaks FrontPage.
        .field("MS-Author-Via", "DAV")
        .field("Accept-Ranges", "bytes")
        .payload(Payload::Bytes(Vec::new()))
}

/// The answer to a method that exists and is not offered there.
pub(crate) fn not_allowed(service: &StorageService, head: &RequestHead, place: &Place) -> Reply {
    let what = format!("the server does not offer {} here", head.method.name());
    Reply::failure(Status::METHOD_NOT_ALLOWED, what).field("Allow", allowed(service, place))
}

/// The answer to a MKCOL where something is already (RFC 4918, 9.3.1).
pub(crate) fn exists(service: &StorageService, place: &Place) -> Reply {
    Reply::failure(Status::METHOD_NOT_ALLOWED, "something has this name already")
        .field("Allow", allowed(service, place))
}
