//! PUT: a file appears under its name when it is complete, or not at all.
//!
//! Everything that can be decided from the head is decided before a byte of the body is read, and before `100 Continue`
//! invites the client to send it. Then the data plane: read, hash while the bytes are in cache, write. Then the
//! client's digests are compared with those of the bytes, and only then they are committed.

use gridlane_auth::Operation;
use gridlane_core::{Checksum, ChecksumKind, Hasher};
use gridlane_dav::request::{RequestBody, RequestHead};
use gridlane_dav::webdav::overwrites;
use gridlane_dav::{ETag, ResourcePath, Status, digest, timestamp};
use gridlane_share::turns;
use gridlane_store::{Completion, Expectation, Metadata, StoreError, Upload};

use crate::conditions::{self, evaluate, look};
use crate::digest_request::DigestRequest;
use crate::export::{MayStore, Spot};
use crate::mkcol::prepare_parent;
use crate::storage_service::StorageService;
use gridlane_front::body::{Body, BodyError, Wire, invite};
use gridlane_front::reply::Reply;
use gridlane_front::transfer::Patience;

/// The failure of a PUT.
enum Failure {
    /// This is the answer.
    Answer(Reply),
    /// The body cannot be read.
    Body(BodyError),
}

impl From<Reply> for Failure {
    fn from(reply: Reply) -> Failure {
        Failure::Answer(reply)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::Answer(Reply::store_failure(&error))
    }
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Failure {
        Failure::Body(error)
    }
}

/// Receives a file.
pub(crate) async fn answer(
    service: &StorageService,
    wire: &mut Wire,
    head: &RequestHead,
    path: &ResourcePath,
    spot: &Spot,
    body: &mut Body,
) -> Reply {
    match receive(service, wire, head, path, spot, body).await {
        Ok(reply) => reply,
        Err(Failure::Answer(reply)) => reply,
        Err(Failure::Body(error)) => error.reply(),
    }
}

async fn receive(
    service: &StorageService,
    wire: &mut Wire,
    head: &RequestHead,
    path: &ResourcePath,
    spot: &Spot,
    body: &mut Body,
) -> Result<Reply, Failure> {
    let upload_bytes_max = spot.export.upload_bytes_max;
    check_head(head, path, upload_bytes_max)?;
    let overwrites = overwrites(&head.headers).map_err(conditions::refused)?;
    let target = Target::find(spot, head, overwrites).await?;
    let expected_bytes = match head.body {
        RequestBody::Known(len) => Some(len),
        RequestBody::Absent | RequestBody::Chunked => None,
    };
    prepare_parent(spot).await?;
    let upload = spot.storage().create(&spot.object, expected_bytes).await?;
    invite(wire, head, &mut Patience::new(&service.front.data.deadlines)).await?;
    let mut promised = digest::of_upload(&head.headers);
    let requested = DigestRequest::of(&head.headers, &ChecksumKind::OFFERED);
    let mut kinds: Vec<ChecksumKind> = promised.iter().map(Checksum::kind).collect();
    kinds.extend(digest::announced(&head.headers));
    kinds.extend(requested.kinds());
    // Always computed: it costs .03 CPU-seconds per GB now, and a whole read of the file later.
    kinds.push(ChecksumKind::Adler32);
    kinds.sort();
    kinds.dedup();
    let checksums = match receive_body(service, wire, body, upload.as_ref(), upload_bytes_max, &kinds).await {
        Ok(checksums) => checksums,
        Err(failure) => {
            upload.discard().await;
            return Err(failure);
        }
    };
    promised.extend(body.trailers().map(digest::of_upload).unwrap_or_default());
    if let Some(reply) = compare(&promised, &checksums) {
        upload.discard().await;
        return Err(reply.into());
    }
    let modified = head.headers.single(MODIFIED).and_then(timestamp::from_seconds);
    let completion = Completion { expectation: target.expectation.clone(), modified, checksums };
    let committed = match upload.commit(&completion).await {
        Err(StoreError::Unexpected) => return Err(target.unexpected(spot).into()),
        committed => committed?,
    };
    let checksums = completion.checksums;
    let status = if committed.replaced { Status::NO_CONTENT } else { Status::CREATED };
    for checksum in &checksums {
        service.digests.remember(&committed.metadata, checksum.clone());
    }
    let mut reply = requested.add_to(success(status, &committed.metadata), &checksums);
    if modified.is_some() {
        // ownCloud's way to say so: rclone would set it by another request otherwise.
        reply = reply.field(MODIFIED, "accepted");
    }
    Ok(reply)
}

/// The state at the target, and what may be done to it.
pub(crate) struct Target {
    pub(crate) expectation: Expectation,
    /// It is expected because the rules allow the client nothing else, and not because the client says so.
    by_rules: Option<MayStore>,
    /// The client says that it must not replace anything.
    keeps: bool,
}

impl Target {
    /// Looks at the target: what the client may do with it, and if it is as the request demands.
    pub(crate) async fn find(spot: &Spot, head: &RequestHead, overwrites: bool) -> Result<Target, Reply> {
        let current = look(spot.storage(), &spot.object).await?;
        let (was_there, keeps) = (current.is_some(), !overwrites);
        let may = spot.may_store(current.is_some()).map_err(|denial| spot.denied(denial))?;
        let expectation = evaluate(head, current.as_ref())?;
        if keeps && was_there {
            return Err(is_taken());
        }
        Ok(match (may, expectation, current) {
            _ if keeps => Target { expectation: Expectation::Absent, by_rules: None, keeps },
            (MayStore::New, Expectation::Anything, _) => {
                Target { expectation: Expectation::Absent, by_rules: Some(may), keeps }
            }
            (MayStore::Instead, Expectation::Anything, Some(current)) => {
                Target { expectation: Expectation::Tag(current.tag), by_rules: Some(may), keeps }
            }
            (_, expectation, _) => Target { expectation, by_rules: None, keeps },
        })
    }

    /// The answer when another request has changed the target meanwhile.
    fn unexpected(&self, spot: &Spot) -> Reply {
        match self.by_rules {
            _ if self.keeps => is_taken(),
            Some(MayStore::New) => spot
                .check(Operation::Overwrite)
                .err()
                .unwrap_or_else(|| Reply::store_failure(&StoreError::Unexpected)),
            Some(_) => Reply::failure(
                Status::SERVICE_UNAVAILABLE,
                "another request is changing the file at this moment",
            ),
            None => Reply::store_failure(&StoreError::Unexpected),
        }
    }
}

/// The answer to `Overwrite: F` where something is. The field is COPY's and MOVE's, for which it is 412; XRootD's clients send it
/// with a PUT, and its server answers so, which they and gfal2 take for "exists".
fn is_taken() -> Reply {
    let what = "something has this name already, and the request does not overwrite";
    Reply::failure(Status::CONFLICT, what)
}

/// The field of ownCloud's clients, and of rclone, that says when the file was last changed.
pub(crate) const MODIFIED: &str = "X-OC-Mtime";

/// Refuses what the head alone shows to be impossible.
fn check_head(head: &RequestHead, path: &ResourcePath, upload_bytes_max: u64) -> Result<(), Reply> {
    if head.headers.contains("content-range") {
        // RFC 9110, 14.5: a server that does not write parts must not mistake a part for the whole.
        let what = "a PUT with Content-Range, which would write a part of a file, is not supported";
        return Err(Reply::failure(Status::BAD_REQUEST, what));
    }
    if head.headers.list("content-encoding").any(|coding| !coding.eq_ignore_ascii_case("identity")) {
        let what = "a PUT with Content-Encoding is not supported: files are stored as they come";
        return Err(Reply::failure(Status::UNSUPPORTED_MEDIA_TYPE, what));
    }
    if path.is_directory_form() {
        return Err(Reply::failure(Status::CONFLICT, "a path that ends with a slash cannot be a file"));
    }
    match head.body {
        RequestBody::Absent => {
            let what = "a PUT needs Content-Length (0 for an empty file) or Transfer-Encoding: chunked";
            Err(Reply::failure(Status::LENGTH_REQUIRED, what))
        }
        RequestBody::Known(len) if len > upload_bytes_max => Err(too_large(upload_bytes_max)),
        RequestBody::Known(_) | RequestBody::Chunked => Ok(()),
    }
}

/// The data plane: the body goes to the storage; returns its checksums.
async fn receive_body(
    service: &StorageService,
    wire: &mut Wire,
    body: &mut Body,
    upload: &dyn Upload,
    upload_bytes_max: u64,
    kinds: &[ChecksumKind],
) -> Result<Vec<Checksum>, Failure> {
    let mut buffer = service.front.data.buffers.lend();
    let mut hashers: Vec<Hasher> = kinds.iter().map(|kind| Hasher::new(*kind)).collect();
    let is_fast = kinds.iter().all(|kind| kind.is_combinable());
    let mut patience = Patience::new(&service.front.data.deadlines);
    let mut at = 0;
    loop {
        let count = body.read(wire, &mut buffer, &mut patience).await?;
        if count == 0 {
            return Ok(hashers.into_iter().map(Hasher::finish).collect());
        }
        if at + count as u64 > upload_bytes_max {
            return Err(too_large(upload_bytes_max).into());
        }
        let bytes = &buffer[..count];
        let mut hash = || hashers.iter_mut().for_each(|hasher| hasher.update(bytes));
        // By a slow one a buffer takes up to a millisecond.
        if is_fast {
            hash()
        } else {
            turns::in_place(hash)
        }
        upload.write_at(bytes, at).await?;
        at += count as u64;
    }
}

/// The answer when the bytes do not have the client's digests.
fn compare(promised: &[Checksum], computed: &[Checksum]) -> Option<Reply> {
    let wrong = promised.iter().find_map(|promised| {
        let computed = computed.iter().find(|computed| computed.kind() == promised.kind())?;
        (computed != promised).then_some((promised, computed))
    });
    let (promised, computed) = wrong?;
    let what = format!("the body has {computed}, not {promised}: it was damaged on the way and is discarded");
    Some(Reply::failure(Status::BAD_REQUEST, what))
}

fn too_large(max: u64) -> Reply {
    Reply::failure(Status::CONTENT_TOO_LARGE, format!("an upload may have at most {max} bytes"))
}

fn success(status: Status, metadata: &Metadata) -> Reply {
    let mut reply = Reply::new(status);
    if let Some(etag) = ETag::strong(metadata.tag.as_str()) {
        reply = reply.field("ETag", etag.to_string());
    }
    if status == Status::CREATED {
        reply = reply.payload(gridlane_front::reply::Payload::Bytes(Vec::new()));
    }
    reply
}
