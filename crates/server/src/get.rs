//! GET and HEAD: files, ranges of files, and listings of directories.

use std::sync::Arc;

use gridlane_core::{ByteRange, Checksum, ChecksumKind, limits};
use gridlane_dav::conditional::{self, Validators, Verdict};
use gridlane_dav::path::encode_query;
use gridlane_dav::request::{RequestHead, Target};
use gridlane_dav::{
    ContentRange, ETag, Entry, EntryKind, Method, RangeSpec, ResourcePath, Status, UnsatisfiedRange, date,
    digest, listing, media_type,
};
use gridlane_store::{Listing, Metadata, Object, ObjectPath, Opened, StoreError};
use tokio::time::timeout;

use crate::connection::SMALL_BYTES;
use crate::reply::{Payload, Reply};
use crate::shared::Shared;

/// Decides what a GET or HEAD gets. The caller ends this when the client leaves meanwhile.
pub(crate) async fn answer(shared: &Shared, head: &RequestHead, path: &ResourcePath) -> Reply {
    let Some(object_path) = ObjectPath::new(path.names()) else {
        return Reply::store_failure(&StoreError::NotFound);
    };
    let opened = match shared.export.open_nowait(&object_path) {
        Ok(None) => shared.disk.run(|| shared.export.open(&object_path)).await,
        Ok(Some(opened)) => Ok(opened),
        Err(error) => Err(error),
    };
    match opened {
        Ok(Opened::File(_)) if path.is_directory_form() => Reply::store_failure(&StoreError::NotFound),
        Ok(Opened::File(object)) => file(shared, head, path, object).await,
        Ok(Opened::Directory) if !path.is_directory_form() => redirect_to_directory(head, path),
        Ok(Opened::Directory) if head.method == Method::Head => {
            directory_reply(head).payload(Payload::Unmeasured)
        }
        Ok(Opened::Directory) => {
            let turn = Arc::clone(&shared.listings).acquire_owned();
            let Ok(Ok(permit)) = timeout(limits::LISTING_WAIT_MAX, turn).await else {
                return Reply::failure(Status::SERVICE_UNAVAILABLE, "too many listings are being sent");
            };
            // The page as well: a hundred thousand lines take a tenth of a second.
            let page = || shared.export.list(&object_path).map(|listing| directory(head, path, listing));
            let mut reply = shared.disk.run(page).await.unwrap_or_else(|error| Reply::store_failure(&error));
            // A small one takes no memory worth counting: slow readers of those hinder nobody.
            reply.permit = (reply.payload_len() > SMALL_BYTES).then_some(permit);
            reply
        }
        Err(error) => Reply::store_failure(&error),
    }
}

/// What a condition compares with.
pub(crate) fn validators(metadata: &Metadata) -> Option<Validators> {
    Some(Validators { etag: ETag::strong(metadata.tag.as_str())?, modified: metadata.modified })
}

async fn file(shared: &Shared, head: &RequestHead, path: &ResourcePath, object: Arc<dyn Object>) -> Reply {
    let metadata = object.metadata();
    let Some(validators) = validators(metadata) else {
        return Reply::failure(Status::INTERNAL_SERVER_ERROR, "the storage made an entity tag that is none");
    };
    let with_validators = |reply: Reply| {
        reply
            .field("ETag", validators.etag.to_string())
            .field("Last-Modified", date::format(metadata.modified))
    };
    match conditional::evaluate(&head.headers, &head.method, Some(&validators)) {
        Verdict::NotModified => return with_validators(Reply::new(Status::NOT_MODIFIED)),
        Verdict::Failed => {
            return Reply::failure(Status::PRECONDITION_FAILED, "the file is not in the state asked for");
        }
        Verdict::Proceed => {}
    }
    let size = metadata.size_bytes;
    let asked = match head.method {
        Method::Get if conditional::range_applies(&head.headers, &validators) => {
            head.headers.single("range").and_then(RangeSpec::parse)
        }
        // RFC 9110, 14.2: a range means something to GET only.
        _ => None,
    };
    let (status, range) = match asked.map(|spec| spec.resolve(size)) {
        None => (Status::OK, ByteRange::new(0, size)),
        Some(Some(range)) => (Status::PARTIAL_CONTENT, range),
        Some(None) => {
            return Reply::failure(Status::RANGE_NOT_SATISFIABLE, format!("the file has {size} bytes"))
                .field("Content-Range", UnsatisfiedRange { size }.to_string());
        }
    };
    let name = path.names().next_back().unwrap_or_default();
    let media_type = media_type::of_name(name);
    let mut reply = with_validators(Reply::new(status))
        .field("Accept-Ranges", "bytes")
        .field("Content-Type", media_type)
        .field("X-Content-Type-Options", "nosniff");
    if media_type::is_active(media_type) {
        // Whoever may write a page must not thereby act as this server's origin in a reader's browser.
        reply = reply.field("Content-Security-Policy", "sandbox");
    }
    if status == Status::PARTIAL_CONTENT {
        reply = reply.field("Content-Range", ContentRange { range, size: Some(size) }.to_string());
    }
    if let Some(checksum) = digest_of(shared, head, &object).await {
        reply = reply.field("Digest", digest::encode(&checksum));
    }
    reply.payload(Payload::File { object, range })
}

/// The checksum of the whole file, if the request wants one that we offer.
///
/// A HEAD gets any that we can compute. A GET waits for its first byte meanwhile, so it gets only what is
/// known, or soon will be: aria2 asks for sha-256 with every GET, and gives up after a minute.
async fn digest_of(shared: &Shared, head: &RequestHead, object: &Arc<dyn Object>) -> Option<Checksum> {
    let is_small = object.metadata().size_bytes <= limits::DIGEST_GET_BYTES_MAX;
    let is_offered = |kind: ChecksumKind| {
        head.method == Method::Head
            || is_small && kind.is_combinable()
            || shared.digests.is_known(object.metadata(), kind)
    };
    let kinds = ChecksumKind::OFFERED.into_iter();
    let offered: Vec<ChecksumKind> = kinds.filter(|kind| is_offered(*kind)).collect();
    let kind = digest::negotiate(&head.headers, &offered)?;
    let wait = match head.method {
        Method::Head => limits::DIGEST_ANSWER_MAX,
        // It may stand in line behind two large files.
        _ => limits::DIGEST_GET_MAX,
    };
    timeout(wait, shared.digests.of(object, kind)).await.ok()?
}

/// Relative links in a listing count from the directory, so its URL has to end with a slash.
fn redirect_to_directory(head: &RequestHead, path: &ResourcePath) -> Reply {
    let mut location = path.to_directory_form().to_string();
    if let Target::Resource { query: Some(query), .. } = &head.target {
        location = format!("{location}?{}", encode_query(query));
    }
    let text = format!("This is a directory: see {location}\n");
    Reply::new(Status::MOVED_PERMANENTLY)
        .field("Location", location)
        .field("Content-Type", "text/plain; charset=utf-8")
        .payload(Payload::Bytes(text.into_bytes()))
}

fn wants_json(head: &RequestHead) -> bool {
    head.headers.list("accept").any(|element| {
        let media_type = element.split(';').next().unwrap_or_default();
        media_type.trim().eq_ignore_ascii_case("application/json")
    })
}

fn directory_reply(head: &RequestHead) -> Reply {
    let media_type = if wants_json(head) { "application/json" } else { "text/html; charset=utf-8" };
    Reply::new(Status::OK)
        .field("Content-Type", media_type)
        .field("Vary", "Accept")
        .field("Cache-Control", "no-cache")
        .field("X-Content-Type-Options", "nosniff")
        .field("Content-Security-Policy", listing::HTML_SECURITY_POLICY)
}

fn directory(head: &RequestHead, path: &ResourcePath, listing: Listing) -> Reply {
    let mut entries: Vec<Entry> = listing
        .entries
        .into_iter()
        .map(|entry| Entry {
            name: entry.name,
            kind: if entry.is_directory { EntryKind::Directory } else { EntryKind::File },
            size_bytes: (!entry.is_directory).then_some(entry.size_bytes),
            modified: Some(entry.modified),
        })
        .collect();
    listing::sort(&mut entries);
    let mut reply = directory_reply(head);
    if listing.is_cut {
        reply = reply.field("X-Listing-Cut", "true");
    }
    let text = if wants_json(head) {
        listing::render_json(&entries)
    } else {
        listing::render_html(path, &entries, listing.is_cut)
    };
    reply.payload(Payload::Bytes(text.into_bytes()))
}
