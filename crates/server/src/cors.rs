//! Scripts of other sites' pages that read files here (the Fetch standard's CORS protocol): the fields that a browser
//! needs before it hands them the bytes.
//!
//! Only pages of the origins that an [export](crate::Export) names may read, and only read: a browser asks before
//! anything else (a *preflight*), and is told of GET and HEAD. Other origins get no such fields, and cookies or
//! certificates are never asked for. So `*` shows a page what any client at its reader's address may see, and nothing
//! more: also what rules allow by `addresses`.

use gridlane_core::limits;
use gridlane_dav::request::RequestHead;
use gridlane_dav::{Method, Status};

use crate::export::{Export, Exports, Place};
use gridlane_front::client::Client;
use gridlane_front::reply::Reply;

/// The methods that a script may use.
const METHODS: &str = "GET, HEAD, OPTIONS";

/// The fields that a script may add to a request: those that reading by range and checking take.
const REQUEST_HEADERS: &str = "Accept, Authorization, Cache-Control, If-Match, If-Modified-Since, \
                               If-None-Match, If-Range, If-Unmodified-Since, Range, Want-Digest, \
                               Want-Repr-Digest";

/// The fields of an answer that a script may see.
const ANSWER_HEADERS: &str =
    "Content-Range, Content-Length, ETag, Digest, Repr-Digest, Accept-Ranges, Last-Modified";

/// Adds the fields for a browser to the answer; a preflight gets an answer of its own.
pub(crate) fn apply(exports: &Exports, client: &Client, head: &RequestHead, reply: Reply) -> Reply {
    if exports.iter().all(|export| export.cors_origins.is_empty()) {
        return reply;
    }
    let Some(Place::Inside(spot)) = head.path().map(|path| exports.find(path, client)) else { return reply };
    if spot.export.cors_origins.is_empty() {
        return reply;
    }
    // Also without an origin, and for one that is not allowed: a cache must not give that answer to others.
    let reply = reply.field("Vary", "Origin");
    let allowed = head.headers.single("origin").and_then(|origin| allowed(&spot.export, origin));
    let Some(allowed) = allowed.map(str::to_owned) else { return reply };
    let is_preflight =
        head.method == Method::Options && head.headers.contains("access-control-request-method");
    // Refused for another reason: that counts.
    if is_preflight && reply.status == Status::OK {
        return Reply::new(Status::NO_CONTENT)
            .field("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers")
            .field("Access-Control-Allow-Origin", allowed)
            .field("Access-Control-Allow-Methods", METHODS)
            .field("Access-Control-Allow-Headers", REQUEST_HEADERS)
            .field("Access-Control-Max-Age", limits::CORS_ANSWER_AGE.as_secs().to_string());
    }
    reply.field("Access-Control-Allow-Origin", allowed).field("Access-Control-Expose-Headers", ANSWER_HEADERS)
}

/// The value of `Access-Control-Allow-Origin` for pages of `origin`. What is sent is from the configuration,
/// never the client's own text.
fn allowed<'a>(export: &'a Export, origin: &str) -> Option<&'a str> {
    let matches = |listed: &&String| listed.as_str() == "*" || listed.eq_ignore_ascii_case(origin);
    export.cors_origins.iter().find(matches).map(String::as_str)
}
