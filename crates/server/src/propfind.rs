//! PROPFIND: the properties of a file, or of a directory and what is in it.
//!
//! A directory is never in memory: entries are read from the storage a page at a time, written as XML and sent a piece at a time,
//! so that one of a million files costs what one piece does. What fits into the first piece is sent with its
//! length; everything else in chunks. When the storage fails in the middle, the connection is cut: the
//! client sees XML without an end, and not a directory with fewer files.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use gridlane_auth::Operation;
use gridlane_core::{Checksum, ChecksumKind, limits};
use gridlane_dav::multistatus::{self, Quota};
use gridlane_dav::property::{LiveProperty, PropertyName};
use gridlane_dav::request::RequestHead;
use gridlane_dav::webdav::Depth;
use gridlane_dav::{
    ETag, EntryKind, Multistatus, PropfindRequest, Resource, ResourcePath, Status, media_type,
};
use gridlane_store::{
    BoxFuture, DirectoryEntry, Entries, Metadata, ObjectPath, Storage, StoreError, StoreResult,
};

use crate::conditions;
use crate::digests::Digests;
use crate::export::Spot;
use crate::origin::Origin;
use crate::storage_service::StorageService;
use gridlane_front::body::{Body, Wire};
use gridlane_front::pieces::Pieces;
use gridlane_front::reply::{Payload, Reply};

/// A client's request for properties, and the form of its answer.
struct Question {
    depth: Depth,
    request: PropfindRequest,
    writer: Multistatus,
}

impl Question {
    async fn read(
        service: &StorageService,
        wire: &mut Wire,
        head: &RequestHead,
        body: &mut Body,
    ) -> Result<Question, Reply> {
        let depth = Depth::of_propfind(&head.headers).map_err(conditions::refused)?;
        let bytes = body.read_whole(&service.front.data, wire, head, limits::DAV_REQUEST_BYTES_MAX).await?;
        let request = PropfindRequest::parse(&bytes).map_err(conditions::refused)?;
        let origin = Origin::new(head, wire.stream.is_tls());
        Ok(Question { depth, request, writer: Multistatus::new(origin.url().as_deref()) })
    }

    /// True if it asks for one of these by name.
    fn names(&self, properties: &[LiveProperty]) -> bool {
        let is_one = |name: &PropertyName| name.live().is_some_and(|live| properties.contains(&live));
        match &self.request {
            PropfindRequest::AllProp { include } => include.iter().any(is_one),
            PropfindRequest::PropName => true,
            PropfindRequest::Prop(names) => names.iter().any(is_one),
        }
    }
}

/// Answers with the properties of what is at a path (RFC 4918, 9.1).
pub(crate) async fn answer(
    service: &StorageService,
    wire: &mut Wire,
    head: &RequestHead,
    path: &ResourcePath,
    spot: &Spot,
    body: &mut Body,
) -> Reply {
    let question = match Question::read(service, wire, head, body).await {
        Ok(question) => question,
        Err(reply) => return reply,
    };
    find(service, head, path, spot, question).await.unwrap_or_else(|reply| reply)
}

/// The answer for a directory that exists only because exports are below it.
pub(crate) async fn above(
    service: &StorageService,
    wire: &mut Wire,
    head: &RequestHead,
    path: &ResourcePath,
    names: &[Vec<u8>],
    body: &mut Body,
) -> Reply {
    let Question { depth, request, writer } = match Question::read(service, wire, head, body).await {
        Ok(question) => question,
        Err(reply) => return reply,
    };
    if depth == Depth::Infinity {
        return finite_depth();
    }
    let mut out = Vec::new();
    writer.open(&mut out);
    let children = if depth == Depth::Zero { &[] } else { names };
    let paths = std::iter::once(joined(path.names()))
        .chain(children.iter().map(|name| joined(path.join(name).names())));
    for path in paths {
        let directory = Resource { mode: Some(0o555), ..Resource::new(&path, EntryKind::Directory) };
        writer.entry(&mut out, &directory, &request);
    }
    writer.close(&mut out);
    reply(Payload::Bytes(out))
}

async fn find(
    service: &StorageService,
    head: &RequestHead,
    path: &ResourcePath,
    spot: &Spot,
    question: Question,
) -> Result<Reply, Reply> {
    let current = conditions::look(spot.storage(), &spot.object).await?;
    conditions::evaluate(head, current.as_ref())?;
    let missing = || Reply::store_failure(&StoreError::NotFound);
    let current = current.ok_or_else(missing)?;
    if path.is_directory_form() && !current.is_directory() {
        return Err(missing());
    }
    let quota = [LiveProperty::QuotaAvailableBytes, LiveProperty::QuotaUsedBytes];
    let checksums = [LiveProperty::OwncloudChecksums, LiveProperty::DcacheChecksums];
    match (current.is_directory(), question.depth) {
        (true, Depth::Zero) | (false, _) => {}
        (true, _) => spot.check(Operation::List)?,
    }
    // RFC 4918, 9.1: only of collections. For a file, every depth is the same.
    if current.is_directory() && question.depth == Depth::Infinity {
        return Err(finite_depth());
    }
    // Only of the directory that was asked for: RFC 4331 wants it of collections only, and davix takes what is
    // used below a directory for its size.
    let space = match current.is_directory() && question.names(&quota) {
        true => spot.storage().space(&spot.object).await.ok(),
        false => None,
    };
    let quota = space.map(|space| Quota {
        available_bytes: Some(space.available_bytes),
        used_bytes: Some(space.used_bytes),
    });
    let mut out = Vec::new();
    question.writer.open(&mut out);
    let (depth, has_entries) = (question.depth, current.is_directory());
    let mut lister = Lister {
        storage: Arc::clone(&spot.export.storage),
        object: spot.object.clone(),
        may_change: (spot.may(Operation::Overwrite), spot.may(Operation::Create)),
        // A client that may only list a directory is not told the contents of its files.
        digests: (question.names(&checksums) && spot.may(Operation::Read)).then(|| service.digests.clone()),
        directory: joined(path.names()),
        question,
        entries: None,
        waiting: VecDeque::new(),
    };
    let itself = lister.directory.clone();
    let described = [(Some(&spot.object), &current)];
    let mut checksums = known_checksums(spot.storage(), lister.digests.as_ref(), described).await;
    lister.write(&mut out, &itself, &current, &checksums.pop().unwrap_or_default(), quota);
    let failed = |error| Reply::store_failure(&error);
    if depth == Depth::One && has_entries {
        lister.entries = Some(spot.storage().entries(&spot.object).await.map_err(failed)?);
    }
    Ok(match lister.fill(&mut out).await.map_err(failed)? {
        true => reply(Payload::Stream { first: out, rest: Box::new(lister) }),
        false => reply(Payload::Bytes(out)),
    })
}

/// A listing that is being sent.
struct Lister {
    question: Question,
    storage: Arc<dyn Storage>,
    /// The path that was requested, in the storage.
    object: ObjectPath,
    /// The same for clients: names with slashes in front.
    directory: Vec<u8>,
    /// `None` of what has none.
    entries: Option<Entries>,
    /// Entries that were read and not written yet, with the checksums that are known of them.
    waiting: VecDeque<(DirectoryEntry, Vec<Checksum>)>,
    /// True if files may be changed; and true if something may be stored in directories.
    may_change: (bool, bool),
    /// The known checksums, if they are wanted.
    digests: Option<Digests>,
}

impl Lister {
    /// Appends entries until there is a piece; returns true if there may be more.
    async fn fill(&mut self, out: &mut Vec<u8>) -> StoreResult<bool> {
        let end = out.len() + limits::STREAM_PIECE_BYTES;
        while out.len() < end {
            let Some((entry, checksums)) = self.waiting.pop_front() else {
                if self.read_page().await? {
                    continue;
                }
                self.question.writer.close(out);
                return Ok(false);
            };
            let mut path = self.directory.clone();
            path.push(b'/');
            path.extend_from_slice(&entry.name);
            self.write(out, &path, &entry.metadata, &checksums, None);
        }
        Ok(true)
    }

    /// Reads some entries; returns true if there were any.
    async fn read_page(&mut self) -> StoreResult<bool> {
        let page = match &mut self.entries {
            Some(entries) => entries.next_page().await?,
            None => Vec::new(),
        };
        let paths: Vec<_> = page.iter().map(|entry| self.object.join(&entry.name)).collect();
        let described = paths.iter().map(Option::as_ref).zip(page.iter().map(|entry| &entry.metadata));
        let checksums = known_checksums(self.storage.as_ref(), self.digests.as_ref(), described).await;
        self.waiting.extend(page.into_iter().zip(checksums));
        Ok(!self.waiting.is_empty())
    }

    fn write(
        &self,
        out: &mut Vec<u8>,
        path: &[u8],
        metadata: &Metadata,
        checksums: &[Checksum],
        quota: Option<Quota>,
    ) {
        let kind = kind_of(metadata);
        let is_file = kind == EntryKind::File;
        let etag = if is_file { ETag::strong(metadata.tag.as_str()) } else { None };
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        // The rights of the client, which are not those that the file system gives the server's user: gfal2 denies
        // locally by them.
        let mode = match (is_file, self.may_change) {
            (true, (true, _)) => 0o666,
            (true, (false, _)) => 0o444,
            (false, (_, true)) => 0o777,
            (false, (_, false)) => 0o555,
        };
        let resource = Resource {
            size_bytes: Some(metadata.size_bytes),
            modified: Some(metadata.modified),
            created: metadata.created,
            etag: etag.as_ref(),
            content_type: is_file.then(|| media_type::of_name(name)),
            checksums,
            mode: Some(mode),
            quota,
            owner: Some((metadata.owner, metadata.group)),
            ..Resource::new(path, kind)
        };
        self.question.writer.entry(out, &resource, &self.question.request);
    }
}

/// The checksums that are known of each of these, if they are wanted.
async fn known_checksums<'a>(
    storage: &dyn Storage,
    digests: Option<&Digests>,
    described: impl IntoIterator<Item = (Option<&'a ObjectPath>, &'a Metadata)>,
) -> Vec<Vec<Checksum>> {
    let described: Vec<_> = described.into_iter().collect();
    let mut found = vec![Vec::new(); described.len()];
    let Some(digests) = digests else { return found };
    let (mut places, mut files) = (Vec::new(), Vec::new());
    for (place, (path, metadata)) in described.into_iter().enumerate() {
        if let (Some(path), false) = (path, metadata.is_directory()) {
            places.push(place);
            files.push((path.clone(), metadata.clone()));
        }
    }
    let kept = digests.of_entries(storage, files, &ChecksumKind::OFFERED).await;
    for (place, kept) in places.into_iter().zip(kept) {
        found[place] = kept;
    }
    found
}

impl Pieces for Lister {
    fn next<'a>(&'a mut self, out: &'a mut Vec<u8>) -> BoxFuture<'a, io::Result<bool>> {
        Box::pin(async move { self.fill(out).await.map_err(io::Error::other) })
    }
}

/// The kind of an entry.
pub(crate) fn kind_of(metadata: &Metadata) -> EntryKind {
    if metadata.is_directory() { EntryKind::Directory } else { EntryKind::File }
}

/// Names with a slash in front of each, not encoded: how [`Multistatus`] takes a path.
pub(crate) fn joined<'a>(names: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    names.flat_map(|name| [b"/", name]).flatten().copied().collect()
}

fn reply(payload: Payload) -> Reply {
    Reply::new(Status::MULTI_STATUS).field("Content-Type", multistatus::MEDIA_TYPE).payload(payload)
}

fn finite_depth() -> Reply {
    let mut reply = Reply::new(Status::FORBIDDEN)
        .field("Content-Type", multistatus::MEDIA_TYPE)
        .payload(Payload::Bytes(multistatus::FINITE_DEPTH_ERROR.into()));
    reply.cause = Some("a PROPFIND with Depth: infinity is not offered: ask with Depth 0 or 1".to_owned());
    reply
}
