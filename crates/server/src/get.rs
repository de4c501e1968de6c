//! GET and HEAD: files, ranges of files, and listings of directories.

use std::borrow::Cow;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use gridlane_auth::Operation;
use gridlane_core::{ByteRange, ChecksumKind, limits};
use gridlane_dav::conditional::{self, Validators, Verdict};
use gridlane_dav::path::encode_query;
use gridlane_dav::request::{RequestHead, Target};
use gridlane_dav::{
    Boundary, ContentRange, ETag, Entry, EntryKind, Method, Multipart, RangeAnswer, RangeList, ResourcePath,
    Status, UnsatisfiedRange, Version, date, listing, media_type,
};
use gridlane_store::{Listing, Metadata, Object, Opened, StoreError};
use tokio::time::timeout;

use crate::digest_request::DigestRequest;
use crate::export::Spot;
use crate::mirrors::{self, Mirrored};
use crate::origin::Origin;
use crate::recent::Recent;
use crate::storage_service::StorageService;
use gridlane_front::auth::presented::without_credential;
use gridlane_front::gather::{SMALL_BYTES, being_changed};
use gridlane_front::reply::{Payload, Reply};
use gridlane_share::{budget, turns};

/// Answers a GET or HEAD, without sending. The caller ends this when the client leaves meanwhile.
pub(crate) async fn answer(
    service: &StorageService,
    head: &RequestHead,
    path: &ResourcePath,
    spot: &Spot,
    origin: &Origin<'_>,
    recent: &mut Recent,
    began: Instant,
) -> Reply {
    let opened = match recent.find(spot, began) {
        Some(object) => Ok(Opened::File(object)),
        None => {
            recent.forget();
            let opened = match spot.storage().open_nowait(&spot.object) {
                Ok(None) => spot.storage().open(&spot.object).await,
                Ok(Some(opened)) => Ok(opened),
                Err(error) => Err(error),
            };
            if let Ok(Opened::File(object)) = &opened {
                recent.keep(spot, object, began);
            }
            opened
        }
    };
    let operation = match (&head.method, &opened) {
        // Metadata is for every client that may do anything with the file, as by PROPFIND.
        (Method::Head, _) => Operation::Stat,
        (_, Ok(Opened::Directory)) => Operation::List,
        _ => Operation::Read,
    };
    if let Err(refusal) = spot.check(operation) {
        return refusal;
    }
    match opened {
        Ok(Opened::File(_)) if path.is_directory_form() => Reply::store_failure(&StoreError::NotFound),
        Ok(Opened::File(object))
            if head.method == Method::Get && object.settles_in(SystemTime::now()).is_some() =>
        {
            match Box::pin(settled(spot, object)).await {
                Ok(object) => {
                    recent.keep(spot, &object, began);
                    Box::pin(file(service, head, path, spot, origin, object)).await
                }
                Err(reply) => reply,
            }
        }
        Ok(Opened::File(object)) => file(service, head, path, spot, origin, object).await,
        Ok(Opened::Directory) if !path.is_directory_form() => redirect_to_directory(head, path),
        Ok(Opened::Directory) if head.method == Method::Head => {
            directory_reply(head).payload(Payload::Unmeasured)
        }
        // Kept elsewhere: the future of a file's answer would have room for it, and is copied.
        Ok(Opened::Directory) => Box::pin(list(head, path, spot)).await,
        Err(error) => Reply::store_failure(&error),
    }
}

/// A file that was changed a moment ago, as it is when the change is over: what changes it from now on shows when its last
/// byte has been read. One that grows all the time is taken as it is, for what is there of it stays.
async fn settled(spot: &Spot, mut object: Arc<dyn Object>) -> Result<Arc<dyn Object>, Reply> {
    let mut only_grows = true;
    for _ in 0..limits::FILE_SETTLE_TRIES {
        let Some(wait) = object.settles_in(SystemTime::now()) else { return Ok(object) };
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        if object.settle().await {
            return Ok(object);
        }
        object = match spot.storage().open(&spot.object).await {
            Ok(Opened::File(now)) => {
                only_grows &= now.metadata().size_bytes > object.metadata().size_bytes;
                now
            }
            Ok(Opened::Directory) => return Err(Reply::store_failure(&StoreError::NotFound)),
            Err(error) => return Err(Reply::store_failure(&error)),
        };
    }
    if only_grows { Ok(object) } else { Err(being_changed()) }
}

/// A directory's listing, when it is its turn.
async fn list(head: &RequestHead, path: &ResourcePath, spot: &Spot) -> Reply {
    let turn = spot.storage().turns().listings().take(budget::current(), limits::LISTING_PAGE_BYTES);
    let Ok(mut lease) = timeout(limits::LISTING_WAIT_MAX, turn).await else {
        return Reply::failure(Status::SERVICE_UNAVAILABLE, "too many listings are being sent");
    };
    let mut reply = match spot.storage().list(&spot.object).await {
        // A hundred thousand lines take a tenth of a second.
        Ok(listing) if listing.entries.len() > limits::DIRECTORY_PAGE_ENTRIES => {
            turns::in_place(|| directory(head, path, listing))
        }
        Ok(listing) => directory(head, path, listing),
        Err(error) => Reply::store_failure(&error),
    };
    // A small one takes no memory worth counting: slow readers of those hinder no other client.
    if let Payload::Bytes(page) = &mut reply.payload
        && page.len() as u64 > SMALL_BYTES
    {
        page.shrink_to_fit();
        // One that has become larger than any was thought to be is sent all the same.
        let _ = lease.try_resize(page.len());
        reply.lease = Some(Box::new(lease));
    }
    reply
}

/// The answer for a directory that exists only because exports are below it.
pub(crate) fn above(head: &RequestHead, path: &ResourcePath, names: &[Vec<u8>]) -> Reply {
    if !path.is_directory_form() {
        return redirect_to_directory(head, path);
    }
    let entry = |name: &Vec<u8>| Entry {
        name: name.clone(),
        kind: EntryKind::Directory,
        size_bytes: None,
        modified: None,
    };
    page(head, path, names.iter().map(entry).collect(), false)
}

/// The values that conditions compare with.
pub(crate) fn validators(metadata: &Metadata) -> Option<Validators> {
    Some(Validators { etag: ETag::strong(metadata.tag.as_str())?, modified: metadata.modified })
}

async fn file(
    service: &StorageService,
    head: &RequestHead,
    path: &ResourcePath,
    spot: &Spot,
    origin: &Origin<'_>,
    object: Arc<dyn Object>,
) -> Reply {
    let metadata = object.metadata();
    let media_type = media_type::of_name(path.names().next_back().unwrap_or_default());
    let mirrored = |base| Mirrored { base, export: &spot.export, path };
    if let Some(format) = mirrors::preferred_form(head, media_type)
        && let Some(base) = origin.url()
    {
        // Conditions are about the file, and this is none of its bytes.
        let kinds: &[ChecksumKind] = match spot.may(Operation::Read) {
            true => &[ChecksumKind::Adler32, ChecksumKind::Md5, ChecksumKind::Sha256],
            false => &[],
        };
        let known = Box::pin(service.digests.kept(object.as_ref(), kinds)).await;
        return mirrored(&base).metalink(format, metadata.size_bytes, &known);
    }
    let Some(validators) = validators(metadata) else {
        return Reply::failure(
            Status::INTERNAL_SERVER_ERROR,
            "the storage gave an entity tag that is malformed",
        );
    };
    let with_validators = |mut reply: Reply| {
        reply.put_field("ETag", &["\"", validators.etag.opaque(), "\""]);
        reply.field("Last-Modified", date::format(metadata.modified)).field("Vary", "Accept")
    };
    match conditional::evaluate(&head.headers, &head.method, Some(&validators)) {
        Verdict::NotModified => return with_validators(Reply::new(Status::NOT_MODIFIED)),
        Verdict::Failed => {
            return Reply::failure(
                Status::PRECONDITION_FAILED,
                "a condition of the request does not hold: the file has changed, or is the one that the client has",
            );
        }
        Verdict::Proceed => {}
    }
    let size = metadata.size_bytes;
    let asked = match head.method {
        Method::Get if conditional::range_applies(&head.headers, &validators) => {
            head.headers.single("range").and_then(RangeList::parse)
        }
        // RFC 9110, 14.2: a range means something to GET only.
        _ => None,
    };
    let answer = asked.map_or(RangeAnswer::Whole, |ranges| ranges.resolve(size));
    let whole = ByteRange::new(0, size);
    let (status, content_range, payload) = match answer {
        RangeAnswer::Whole => (Status::OK, None, Payload::File { object: Arc::clone(&object), range: whole }),
        RangeAnswer::Single(range) => {
            let content_range = ContentRange { range, size: Some(size) };
            let payload = Payload::File { object: Arc::clone(&object), range };
            (Status::PARTIAL_CONTENT, Some(content_range), payload)
        }
        RangeAnswer::Multi(ranges) => match Multipart::new(boundary(), media_type, size, ranges) {
            Some(parts) => {
                let payload = Payload::Parts { object: Arc::clone(&object), parts: Box::new(parts) };
                (Status::PARTIAL_CONTENT, None, payload)
            }
            // Longer than a number can say, and far longer than any file.
            None => (Status::OK, None, Payload::File { object: Arc::clone(&object), range: whole }),
        },
        RangeAnswer::Unsatisfiable => {
            return Reply::failure(
                Status::RANGE_NOT_SATISFIABLE,
                format!("the range is outside of the file, which has {size} bytes"),
            )
            .field("Content-Range", UnsatisfiedRange { size }.to_string());
        }
    };
    let content_type = match &payload {
        Payload::Parts { parts, .. } => Cow::from(parts.content_type()),
        _ => media_type.into(),
    };
    let mut reply = with_validators(Reply::new(status))
        .field("Accept-Ranges", "bytes")
        .field("Content-Type", content_type)
        .field("X-Content-Type-Options", "nosniff");
    if media_type::is_active(media_type) {
        // A client that may write a page must not thereby act as this server's origin in a reader's browser.
        reply = reply.field("Content-Security-Policy", "sandbox");
    }
    if let Some(content_range) = content_range {
        reply = reply.field("Content-Range", content_range.to_string());
    }
    if !spot.export.mirrors.is_empty()
        && let Some(base) = origin.url()
    {
        reply = mirrored(&base).link(reply);
    }
    let best = DigestRequest::of(&head.headers, &ChecksumKind::OFFERED);
    // Checksums are for clients that may read the bytes.
    if best.is_any() && spot.may(Operation::Read) {
        reply = Box::pin(tell_digests(service, head, spot, &object, best, reply)).await;
    }
    reply.tells_status = head.method == Method::Get && wants_status(head);
    reply.payload(payload)
}

/// A new one for each answer, which cannot be guessed: the hasher's keys are random.
fn boundary() -> Boundary {
    let bits = || u128::from(RandomState::new().build_hasher().finish());
    Boundary::from_bits(bits() << 64 | bits())
}

/// True if the client wants the status of the transfer in a trailer: XRootD's and Pelican's way. Never by `TE` alone,
/// which neon sends with every request; and HTTP/1.0 has no chunks.
fn wants_status(head: &RequestHead) -> bool {
    let is_asked = head.headers.single("x-transfer-status");
    head.version >= Version::Http11
        && head.headers.list("te").any(|coding| {
            coding.split(';').next().is_some_and(|name| name.trim().eq_ignore_ascii_case("trailers"))
        })
        && is_asked.is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// The checksums of the whole file that the request wants and that we offer, of which `best` are the best.
///
/// A HEAD gets any that we can compute. A GET waits for its first byte meanwhile, so it gets only what is
/// known, or soon will be: aria2 asks for sha-256 with every GET, and gives up after a minute.
async fn tell_digests(
    service: &StorageService,
    head: &RequestHead,
    spot: &Spot,
    object: &Arc<dyn Object>,
    best: DigestRequest,
    reply: Reply,
) -> Reply {
    let digests = &service.digests;
    let kinds: Vec<ChecksumKind> = best.kinds().collect();
    let (mut known, may_keep) = (digests.kept(object.as_ref(), &kinds).await, spot.export.allow_write);
    for kind in &kinds {
        if known.iter().all(|checksum| checksum.kind() != *kind) {
            known
                .extend(digests.at_once(&service.front.data.buffers, object.as_ref(), *kind, may_keep).await);
        }
    }
    if known.len() == kinds.len() {
        return best.add_to(reply, &known);
    }
    let requested = match head.method {
        Method::Head => best,
        _ => {
            known = digests.kept(object.as_ref(), &ChecksumKind::OFFERED).await;
            let is_small = object.metadata().size_bytes <= limits::DIGEST_GET_BYTES_MAX;
            let is_offered = |kind: &ChecksumKind| {
                is_small && kind.is_combinable() || known.iter().any(|checksum| checksum.kind() == *kind)
            };
            let offered: Vec<ChecksumKind> = ChecksumKind::OFFERED.into_iter().filter(is_offered).collect();
            DigestRequest::of(&head.headers, &offered)
        }
    };
    let wait = match head.method {
        Method::Head => limits::DIGEST_ANSWER_MAX,
        // It may stand in line behind two large files.
        _ => limits::DIGEST_GET_MAX,
    };
    for kind in requested.kinds() {
        if known.iter().all(|checksum| checksum.kind() != kind)
            && let Ok(Some(checksum)) = timeout(wait, digests.of(object, kind, may_keep)).await
        {
            known.push(checksum);
        }
    }
    requested.add_to(reply, &known)
}

/// Relative links in a listing count from the directory, so its URL has to end with a slash.
fn redirect_to_directory(head: &RequestHead, path: &ResourcePath) -> Reply {
    let mut location = path.to_directory_form().to_string();
    if let Target::Resource { query: Some(query), .. } = &head.target
        && let Some(query) = without_credential(query)
    {
        location = format!("{location}?{}", encode_query(&query));
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
    let entries = listing
        .entries
        .into_iter()
        .map(|entry| Entry {
            name: entry.name,
            kind: if entry.metadata.is_directory() { EntryKind::Directory } else { EntryKind::File },
            size_bytes: (!entry.metadata.is_directory()).then_some(entry.metadata.size_bytes),
            modified: Some(entry.metadata.modified),
        })
        .collect();
    page(head, path, entries, listing.is_cut)
}

/// A listing in the form that the client wants.
fn page(head: &RequestHead, path: &ResourcePath, mut entries: Vec<Entry>, is_cut: bool) -> Reply {
    listing::sort(&mut entries);
    let mut reply = directory_reply(head);
    if is_cut {
        reply = reply.field("X-Listing-Cut", "true");
    }
    let text = if wants_json(head) {
        listing::render_json(&entries)
    } else {
        listing::render_html(path, &entries, is_cut)
    };
    reply.payload(Payload::Bytes(text.into_bytes()))
}
