//! OPTIONS, and which methods there are where.

use gridlane_dav::Status;
use gridlane_dav::request::RequestHead;

use crate::export::{Operation, Place};
use crate::reply::{Payload, Reply};
use crate::shared::Shared;

const READING: &str = "GET, HEAD, OPTIONS, PROPFIND";
/// Of a file that may be read, copied to where something may be written.
const COPYING: &str = "GET, HEAD, OPTIONS, PROPFIND, COPY";
const WRITING: &str = "GET, HEAD, PUT, DELETE, OPTIONS, PROPFIND, PROPPATCH, MKCOL, MOVE, COPY";

/// What may be done at a place, for `Allow`.
fn allowed(shared: &Shared, place: &Place) -> &'static str {
    match place {
        Place::Inside(spot) if spot.check(Operation::Write).is_ok() => WRITING,
        Place::Inside(_) if shared.exports.allow_write() => COPYING,
        Place::Inside(_) | Place::Above(_) | Place::Nowhere => READING,
    }
}

/// Tells what may be done at a path (RFC 4918, 10.1). davix looks for PROPFIND in `Allow`, cadaver and davfs2 for
/// the class in `DAV`: 1, for there are no locks.
pub(crate) fn answer(shared: &Shared, place: &Place) -> Reply {
    reply(allowed(shared, place))
}

/// `OPTIONS *`: what may be done somewhere.
pub(crate) fn of_server(shared: &Shared) -> Reply {
    reply(if shared.exports.allow_write() { WRITING } else { READING })
}

fn reply(allowed: &str) -> Reply {
    Reply::new(Status::OK)
        .field("Allow", allowed)
        .field("DAV", "1")
        // Without it Windows takes the server for one that speaks FrontPage.
        .field("MS-Author-Via", "DAV")
        .field("Accept-Ranges", "bytes")
        .payload(Payload::Bytes(Vec::new()))
}

/// The answer to a method that exists and is not offered there.
pub(crate) fn not_allowed(shared: &Shared, head: &RequestHead, place: &Place) -> Reply {
    let what = format!("the server does not offer {} here", head.method.name());
    Reply::failure(Status::METHOD_NOT_ALLOWED, what).field("Allow", allowed(shared, place))
}

/// The answer to a MKCOL where something is already (RFC 4918, 9.3.1).
pub(crate) fn exists(shared: &Shared, place: &Place) -> Reply {
    Reply::failure(Status::METHOD_NOT_ALLOWED, "something has this name already")
        .field("Allow", allowed(shared, place))
}
