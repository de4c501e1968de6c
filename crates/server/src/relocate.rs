//! MOVE and COPY within the server.
//!
//! A move within a file system is one rename, all at once. Everything else is a [copy](crate::copying), after which
//! a move removes its source if nothing failed.

use std::io;
use std::sync::Arc;

use gridlane_auth::Operation;
use gridlane_core::limits;
use gridlane_dav::request::RequestHead;
use gridlane_dav::webdav::{Depth, Destination, overwrites};
use gridlane_dav::{Method, Multistatus, ResourcePath, Status, multistatus};
use gridlane_store::{Expectation, Metadata, ObjectPath, Overwrite, Storage, StoreError};
use tokio::time::timeout;

use crate::conditions::{self, refused};
use crate::copying::{Copying, End, Outcome, Trouble};
use crate::delete::remove_directory;
use crate::digests::Digests;
use crate::export::{MayStore, Place, Spot};
use crate::mkcol::prepare_parent;
use crate::origin::Origin;
use crate::storage_service::StorageService;
use gridlane_front::reply::{Payload, Reply};
use gridlane_share::budget;

/// A move or copy.
struct Task<'a> {
    service: &'a StorageService,
    head: &'a RequestHead,
    from: &'a Spot,
    to: Spot,
    moves: bool,
    overwrites: bool,
    /// The depth of a copy of a directory.
    depth: Depth,
    /// True for the source's and the target's path if it ends with a slash: then it means a directory.
    forms: (bool, bool),
}

/// The state before anything was done.
struct Before {
    source: Metadata,
    target: Option<Metadata>,
    /// The state that is expected of the source.
    expectation: Expectation,
    /// The ways in which the client may store something at the target, once a directory that is there is removed.
    may: MayStore,
}

/// Moves or copies what is at a path (RFC 4918, 9.8 and 9.9).
pub(crate) async fn answer(
    service: &StorageService,
    head: &RequestHead,
    path: &ResourcePath,
    from: &Spot,
    origin: &Origin<'_>,
) -> Reply {
    let task = match prepare(service, head, path, from, origin) {
        Ok(task) => task,
        Err(reply) => return reply,
    };
    task.run(origin).await.unwrap_or_else(|reply| reply)
}

/// Reads the head.
fn prepare<'a>(
    service: &'a StorageService,
    head: &'a RequestHead,
    path: &ResourcePath,
    from: &'a Spot,
    origin: &Origin<'_>,
) -> Result<Task<'a>, Reply> {
    conditions::check_no_body(head)?;
    let moves = head.method == Method::Move;
    let destination = Destination::parse(&head.headers).map_err(refused)?;
    if !origin.is_ours(service, &destination) {
        let what = "the Destination is on another server, and this one does not copy to others";
        return Err(Reply::failure(Status::BAD_GATEWAY, what));
    }
    let target = destination.resource_path().map_err(refused)?;
    let depth = match moves {
        true => Depth::of_removal(&head.headers),
        false => Depth::of_copy(&head.headers),
    };
    let task = Task {
        service,
        head,
        from,
        to: match service.exports.find(&target, &from.client) {
            Place::Inside(spot) => spot,
            Place::Above(_) => return Err(forbidden("there is no export at the Destination, only below it")),
            Place::Nowhere => {
                return Err(forbidden("no export has the Destination, or a name in it is gridlane's own"));
            }
        },
        moves,
        overwrites: overwrites(&head.headers).map_err(refused)?,
        depth: depth.map_err(refused)?,
        forms: (path.is_directory_form(), target.is_directory_form()),
    };
    task.to.check_any(&[Operation::Create, Operation::Overwrite])?;
    // A client that could move it to where it may read could read it.
    if !moves || task.to.may(Operation::Read) {
        from.check(Operation::Read)?;
    }
    if moves && from.object.is_root() {
        return Err(forbidden("an export itself cannot be moved, only what is in it"));
    }
    Ok(task)
}

impl Task<'_> {
    async fn run(&self, origin: &Origin<'_>) -> Result<Reply, Reply> {
        let mut before = self.look().await?;
        if self.moves && self.is_within_export() {
            match self.rename(&before).await {
                Err(StoreError::AcrossDevices) => {}
                Err(StoreError::Unexpected) if self.overwrites && before.may == MayStore::New => {
                    let is_taken = conditions::look(self.to.storage(), &self.to.object).await?.is_some();
                    let denied = self.to.check(Operation::Overwrite).err().filter(|_| is_taken);
                    return Err(denied.unwrap_or_else(|| Reply::store_failure(&StoreError::Unexpected)));
                }
                renamed => {
                    let replaced = renamed.map_err(|error| Reply::store_failure(&error))?;
                    return Ok(done(replaced || before.target.is_some()));
                }
            }
        }
        // A tree holds descriptors, and a turn at the disk again and again, for as long as it takes.
        let mut turn = None;
        if before.source.is_directory() {
            let copies = self.from.storage().turns().copies(self.to.storage().turns());
            let Ok(taken) = timeout(limits::COPY_WAIT_MAX, copies.take(budget::current(), 1)).await else {
                let what = "too many directories are being copied";
                return Err(Reply::failure(Status::SERVICE_UNAVAILABLE, what));
            };
            turn = Some(taken);
            // Others may have changed it meanwhile.
            before = self.look().await?;
        }
        let copying = Copying {
            service: self.service,
            from: &self.from.export,
            to: &self.to.export,
            // What is moved is the same file as before.
            keeps_times: self.moves,
        };
        let replaced = before.target.is_some();
        if !before.source.is_directory() {
            if before.target.as_ref().is_some_and(Metadata::is_directory) {
                self.clear_target(&before).await?;
            }
            let expected = match (&before.target, before.may) {
                _ if !self.overwrites => Expectation::Absent,
                (_, MayStore::New) => Expectation::Absent,
                (Some(target), MayStore::Instead) => Expectation::Tag(target.tag.clone()),
                _ => Expectation::Anything,
            };
            let ends = (&self.from.object, &self.to.object);
            let copied = copying.file(ends, &before.expectation, &expected).await;
            let source = copied.map_err(|trouble| self.failure_reply(trouble, &before))?;
            if self.moves {
                let expectation = Expectation::Tag(source.tag);
                let removed = self.from.storage().remove(&self.from.object, &expectation).await;
                removed.map_err(|error| Reply::store_failure(&error))?;
            }
            return Ok(done(replaced));
        }
        self.clear_target(&before).await?;
        let mut outcome = Outcome::default();
        copying.tree(&self.from.object, &self.to.object, self.depth, &mut outcome).await?;
        if !outcome.is_clean() {
            return Ok(partial(origin, &outcome));
        }
        if self.moves {
            // Files that other requests stored in it meanwhile are nowhere else. Between this look and the removal
            // there is still a moment: two file systems have no move that is one step.
            let is_as_copied = copying.is_as_copied(&self.from.object, &outcome).await;
            if is_as_copied.map_err(|error| Reply::store_failure(&error))? {
                let removed = self.from.storage().remove_tree(&self.from.object).await;
                removed.map_err(|error| Reply::store_failure(&error))?;
            } else {
                let what = "something in the directory was changed while it was moved; it is still there, beside \
                            the copy";
                return Err(Reply::failure(Status::SERVICE_UNAVAILABLE, what));
            }
        }
        drop(turn);
        Ok(done(replaced))
    }

    fn is_within_export(&self) -> bool {
        Arc::ptr_eq(&self.from.export, &self.to.export)
    }

    /// The source, and what is expected of it; refuses what is seen of it to be impossible.
    async fn look_at_source(&self) -> Result<(Metadata, Expectation), Reply> {
        let storage = self.from.storage();
        let source = conditions::look(storage, &self.from.object).await?;
        let expectation = conditions::evaluate(self.head, source.as_ref())?;
        let missing = || Reply::store_failure(&StoreError::NotFound);
        let source = source.ok_or_else(missing)?;
        if self.moves && source.is_directory() {
            self.depth.check_whole().map_err(refused)?;
        }
        if self.forms.0 && !source.is_directory() {
            return Err(missing());
        }
        if !source.is_directory() {
            // A copy would find it out when the target is gone already.
            if source.size_bytes > self.to.export.upload_bytes_max {
                return Err(Reply::store_failure(&StoreError::TooLarge));
            }
            storage.open(&self.from.object).await.map_err(|error| Reply::store_failure(&error))?;
        }
        Ok((source, expectation))
    }

    /// Refuses what can be seen to be impossible before anything is changed. Each end is waited for by itself: one that hangs
    /// holds no turns of the other.
    async fn look(&self) -> Result<Before, Reply> {
        let (source, expectation) = self.look_at_source().await?;
        let target = conditions::look(self.to.storage(), &self.to.object).await?;
        // litmus means the directory that is to be replaced.
        let replaces_directory = target.as_ref().is_some_and(Metadata::is_directory);
        if self.forms.1 && !source.is_directory() && !replaces_directory {
            let what = "the Destination of a file ends with a slash, as only a directory's does";
            return Err(Reply::failure(Status::CONFLICT, what));
        }
        if source.is_directory() {
            self.to.check(Operation::Mkdir)?;
            // What is in it may come to where more is allowed than at the Destination itself.
            for seen in [Operation::Read, Operation::List] {
                if !self.moves || self.to.reaches(seen) {
                    self.from.check(seen)?;
                }
            }
        }
        if replaces_directory {
            // What is in it goes away with it.
            self.to.check(Operation::Delete)?;
        }
        let is_taken = target.is_some() && !replaces_directory;
        let may = self.to.may_store(is_taken).map_err(|denial| self.to.denied(denial))?;
        self.check_apart(&source, target.as_ref()).await?;
        if self.to.object.is_root() {
            return Err(forbidden("an export itself cannot be replaced, only what is in it"));
        }
        if target.is_some() && !self.overwrites {
            let what = "something is at the Destination, and the request does not overwrite";
            return Err(Reply::failure(Status::PRECONDITION_FAILED, what));
        }
        self.prepare_target().await?;
        Ok(Before { source, target, expectation, may })
    }

    /// Sees to the directory that the target is to be in.
    async fn prepare_target(&self) -> Result<(), Reply> {
        prepare_parent(&self.to).await?;
        if let Some((parent, _)) = self.to.object.split_last()
            && !conditions::look(self.to.storage(), &parent)
                .await?
                .is_some_and(|parent| parent.is_directory())
        {
            // Before anything that is to be replaced is removed.
            return Err(Reply::store_failure(&StoreError::ParentMissing));
        }
        Ok(())
    }

    /// Neither may be the other or be in it: a copy into itself has no end, and one onto what holds it would
    /// remove it first. By names, and by what is there, for links give one thing two names.
    async fn check_apart(&self, source: &Metadata, target: Option<&Metadata>) -> Result<(), Reply> {
        let (from, to) = (&self.from.object, &self.to.object);
        let refused = Err(forbidden("source and Destination are the same, or one is in the other"));
        let copies_alone = !self.moves && self.depth == Depth::Zero;
        if self.is_within_export()
            && (from == to || from.is_below(to) || (to.is_below(from) && !copies_alone))
        {
            return refused;
        }
        let is_source = |metadata: &Metadata| metadata.identity == source.identity;
        if target.is_some_and(|target| target.is_directory() && is_source(target)) {
            return refused;
        }
        if source.is_directory() && !copies_alone && any_above(self.to.storage(), to, is_source).await? {
            return refused;
        }
        if let Some(target) = target.filter(|target| target.is_directory()) {
            let is_target = |above: &Metadata| above.identity == target.identity;
            if any_above(self.from.storage(), from, is_target).await? {
                return refused;
            }
        }
        Ok(())
    }

    /// The answer for a copy's failure: that another request has stored something at the target is this request's
    /// failure only when it may not overwrite that.
    fn failure_reply(&self, trouble: Trouble, before: &Before) -> Reply {
        let is_taken = trouble.end == End::Target && trouble.reply.status == Status::PRECONDITION_FAILED;
        match is_taken && self.overwrites && before.may == MayStore::New {
            true => self.to.check(Operation::Overwrite).err().unwrap_or(trouble.reply),
            false => trouble.reply,
        }
    }

    /// The files that a rename may replace: none that the client could not replace or remove otherwise, also if it is
    /// there only since a moment ago.
    fn replaceable(&self, before: &Before) -> Overwrite {
        let has_directory = before.target.as_ref().is_some_and(Metadata::is_directory);
        match before.may {
            _ if !self.overwrites => Overwrite::Nothing,
            _ if has_directory => Overwrite::Anything,
            MayStore::New => Overwrite::Nothing,
            MayStore::Instead | MayStore::Any if self.to.may(Operation::Delete) => Overwrite::Anything,
            MayStore::Instead | MayStore::Any if before.source.is_directory() => Overwrite::Nothing,
            MayStore::Instead | MayStore::Any => Overwrite::Files,
        }
    }

    /// Renames; returns true if something was replaced. What is replaced may have to go first: a client that leaves
    /// meanwhile leaves nothing half done.
    async fn rename(&self, before: &Before) -> Result<bool, StoreError> {
        let storage = Arc::clone(&self.from.export.storage);
        if storage.posix().is_none() {
            return Err(StoreError::AcrossDevices);
        }
        let (from, to) = (self.from.object.clone(), self.to.object.clone());
        let removes_directory = before.target.as_ref().is_some_and(Metadata::is_directory)
            && self.to.export.compat.refuse_recursive_delete;
        let overwrite = self.replaceable(before);
        let removed_file = match (overwrite, &before.target, self.overwrites) {
            // A directory takes the place of a file, and of nothing else.
            (Overwrite::Nothing, Some(file), true) => Some(Expectation::Tag(file.tag.clone())),
            _ => None,
        };
        let (source, expectation) = (before.source.clone(), before.expectation.clone());
        let digests = self.service.digests.clone();
        let moving = async move {
            if removes_directory {
                storage.remove_directory(&to).await?;
            }
            if let Some(file) = removed_file {
                storage.remove(&to, &file).await?;
            }
            let source = (&source, &expectation);
            rename(&digests, storage.as_ref(), (&from, &to), overwrite, source).await
        };
        let moved = tokio::spawn(budget::on_behalf(budget::current(), moving)).await;
        moved.unwrap_or_else(|ended| Err(StoreError::Io(io::Error::other(ended))))
    }

    /// Removes what a copy cannot replace by itself.
    async fn clear_target(&self, before: &Before) -> Result<(), Reply> {
        let (storage, to) = (self.to.storage(), &self.to.object);
        let cleared = match &before.target {
            Some(target) if target.is_directory() => remove_directory(&self.to.export, storage, to).await,
            Some(target) => storage.remove(to, &Expectation::Tag(target.tag.clone())).await,
            None => Ok(()),
        };
        match cleared {
            // It was removed already.
            Ok(()) | Err(StoreError::NotFound) => Ok(()),
            Err(error) => Err(Reply::store_failure(&error)),
        }
    }
}

/// Renames what `before` describes, which has to be as expected. Checksums that are known of a file stay known. Returns
/// true if something was replaced. A storage without other names says that it is to be copied.
pub(crate) async fn rename(
    digests: &Digests,
    storage: &dyn Storage,
    (from, to): (&ObjectPath, &ObjectPath),
    overwrite: Overwrite,
    (before, expectation): (&Metadata, &Expectation),
) -> Result<bool, StoreError> {
    let posix = storage.posix().ok_or(StoreError::AcrossDevices)?;
    let known = digests.known(before);
    if known.is_empty() {
        return posix.rename(from, to, overwrite, expectation).await;
    }
    // The checksums are of these bytes: a file that was changed since is moved without them.
    let same = Expectation::Tag(before.tag.clone());
    let replaced = match posix.rename(from, to, overwrite, &same).await {
        Err(StoreError::Unexpected) => return posix.rename(from, to, overwrite, expectation).await,
        renamed => renamed?,
    };
    // A new name makes a new tag. A write to the file since then has made another time as well.
    let state = |metadata: &Metadata| (metadata.identity, metadata.size_bytes, metadata.modified);
    if let Some(after) = storage.look(to).await.ok().filter(|after| state(after) == state(before)) {
        known.into_iter().for_each(|checksum| digests.remember(&after, checksum));
    }
    Ok(replaced)
}

/// True if one of the directories that lead to a path is such.
async fn any_above(
    storage: &dyn Storage,
    path: &ObjectPath,
    is_such: impl Fn(&Metadata) -> bool,
) -> Result<bool, Reply> {
    let mut at = path.clone();
    while let Some((parent, _)) = at.split_last() {
        if conditions::look(storage, &parent).await?.is_some_and(|parent| is_such(&parent)) {
            return Ok(true);
        }
        at = parent;
    }
    Ok(false)
}

fn done(replaced: bool) -> Reply {
    match replaced {
        true => Reply::new(Status::NO_CONTENT),
        false => Reply::new(Status::CREATED).payload(Payload::Bytes(Vec::new())),
    }
}

/// The answer that names what could not be copied; what it does not name is there (RFC 4918, 9.8.5).
fn partial(origin: &Origin<'_>, outcome: &Outcome) -> Reply {
    let writer = Multistatus::new(origin.url().as_deref());
    let mut out = Vec::new();
    writer.open(&mut out);
    for failure in &outcome.failures {
        writer.outcome(&mut out, &failure.path, failure.kind, failure.status);
    }
    writer.close(&mut out);
    let mut reply = Reply::new(Status::MULTI_STATUS)
        .field("Content-Type", multistatus::MEDIA_TYPE)
        .payload(Payload::Bytes(out));
    reply.cause = outcome.failures.first().map(|failure| failure.cause.clone());
    reply
}

fn forbidden(what: &str) -> Reply {
    Reply::failure(Status::FORBIDDEN, what)
}
