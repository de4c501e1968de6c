//! `open`: a file, to read or to change.
//!
//! With `posc` a file that is made is seen when it is closed, all at once. Without, it is there from the beginning,
//! and one that is there is changed in place, as XRootD does.

use gridlane_auth::Operation;
use gridlane_store::{Disposition, Metadata, Opened, StoreError, Visibility, WriteOptions};
use gridlane_xrd::ErrorCode;
use gridlane_xrd::answer::OpenAnswer;
use gridlane_xrd::flags::{OpenMore, OpenOptions};
use gridlane_xrd::request::Open;
use gridlane_xrd::third_party::{Destination, Role, Wrong, parse};

use super::chmod::MODE_MAX;
use super::files::{Content, NewFile};
use super::locks::{Key, Lock, Usage};
use super::places::{Context, Places as _, allowed, denied};
use super::stat::{Rights, stat_text};
use super::third_party;
use crate::export::{MayStore, Spot};
use crate::mkcol::missing_that_may_not_be_made;
use gridlane_front::root::answer::{Answer, Failure, Outcome, printable_path};

/// Permissions that the owner has whatever a client chooses, as in XRootD.
const MODE_MIN: u32 = 0o600;

/// Opens a file.
pub(crate) async fn open(context: &Context, request: &Open) -> Outcome {
    let mode = OpenMode::of(request)?;
    context.session.files.check_room()?;
    let room = context.service().open_files.room()?;
    let spot = match &mode.copy {
        // What it may read is what the client may that has said so, and nothing else.
        Some(Role::Fetch { key, origin }) => third_party::fetch(context, &request.about, key, origin).await?,
        _ => context.spot_any(&request.about, mode.verb(), mode.operations())?,
    };
    let (content, metadata, locks) = match mode.disposition {
        None => open_to_read(context, &spot, &mode).await?,
        Some(_) if let Some(Role::Destination(destination)) = &mode.copy => {
            open_to_pull(context, &spot, &mode, destination).await?
        }
        Some(disposition) => open_to_change(context, &spot, &mode, disposition).await?,
    };
    let word = match &mode.copy {
        Some(Role::Source { key, destination, ttl }) => {
            Some(third_party::register(context, &spot, key, destination, *ttl).await?)
        }
        _ => None,
    };
    let is_pending = matches!(content, Content::Changing { is_pending: true, .. } | Content::Pulled(_));
    let wants_stat = request.options.has(OpenOptions::RETSTAT);
    let rights = match &mode.copy {
        Some(Role::Fetch { .. }) => Rights { read: true, ..Rights::of(&spot) },
        _ => Rights::of(&spot),
    };
    let stat = wants_stat.then(|| stat_text(&metadata, rights, is_pending));
    let path = request.about.path.clone();
    let upload = mode.disposition.map(|_| context.front().data.metrics.one(|metrics| &metrics.uploads));
    let handle = context.session.files.insert(NewFile { path, spot, content, locks, room, word, upload })?;
    let mut body = Vec::new();
    OpenAnswer { handle, stat }.encode(&mut body);
    if !wants_stat && request.options.has(OpenOptions::COMPRESS) {
        // Nothing is compressed: zeros where that would be told.
        body.extend_from_slice(&[0; 8]);
    }
    Ok(Answer::Ok(body))
}

/// The options of a request.
struct OpenMode<'a> {
    request: &'a Open,
    /// To change it, and what has to be there; `None`: to read it.
    disposition: Option<Disposition>,
    /// Its part in a third-party copy.
    copy: Option<Role>,
}

impl OpenMode<'_> {
    fn of(request: &Open) -> Result<OpenMode<'_>, Failure> {
        let unsupported = |what: &str| {
            let text = format!("Unable to open {}; {what}", printable_path(&request.about.path));
            Failure::new(ErrorCode::UNSUPPORTED, text)
        };
        if request.more.has(OpenMore::DUPLICATE) || request.more.has(OpenMore::SAME_FILE_SYSTEM) {
            return Err(unsupported("this server opens no file by the template of another"));
        }
        // To append means nothing by itself, and nothing beside the others: every write says where, as in XRootD.
        let changes = OpenOptions::UPDATE | OpenOptions::WRITE;
        let disposition = if request.options.has(OpenOptions::NEW) {
            Some(Disposition::New)
        } else if request.options.has(OpenOptions::DELETE) {
            Some(Disposition::Replace)
        } else if request.options.has_any(changes) {
            Some(Disposition::Existing)
        } else {
            None
        };
        let copy = parse(&request.about.cgi, disposition.is_some()).map_err(|wrong| {
            let code = match wrong {
                Wrong::Delegated | Wrong::Checksum => ErrorCode::UNSUPPORTED,
                _ => ErrorCode::ARG_INVALID,
            };
            Failure::new(code, format!("Unable to open {}; {wrong}", printable_path(&request.about.path)))
        })?;
        Ok(OpenMode { request, disposition, copy })
    }

    /// Operations of which the client has to be allowed one.
    fn operations(&self) -> &'static [Operation] {
        match self.disposition {
            None => &[Operation::Read],
            Some(Disposition::Existing) => &[Operation::Overwrite],
            Some(Disposition::New) => &[Operation::Create],
            Some(Disposition::Replace) => &[Operation::Create, Operation::Overwrite],
        }
    }

    /// The opener's usage for other sessions. A client that makes a file without a bit for changes counts as a reader,
    /// as in XRootD, although it may write.
    fn usage(&self) -> Usage {
        let changes = OpenOptions::UPDATE | OpenOptions::WRITE;
        if self.request.options.has_any(changes) { Usage::Changing } else { Usage::Reading }
    }

    /// For messages.
    fn verb(&self) -> &'static str {
        if self.request.options.creates() { "create" } else { "open" }
    }

    fn failed(&self, error: &StoreError) -> Failure {
        Failure::of_store(self.verb(), &self.request.about.path, error)
    }

    /// Takes a lock, unless the client does not care for those.
    fn lock(&self, context: &Context, key: Key, usage: Usage) -> Result<Option<Lock>, Failure> {
        if self.request.options.has(OpenOptions::FORCE) {
            return Ok(None);
        }
        context.service().open_files.locks.take(key, usage).map(Some).map_err(|taken| {
            let direction = if self.disposition.is_some() { "Output" } else { "Input" };
            let path = printable_path(&self.request.about.path);
            let text = format!("{direction} file {path} is already opened by {taken}; open denied.");
            Failure::new(ErrorCode::FILE_LOCKED, text)
        })
    }
}

type Opening = (Content, Metadata, Vec<Lock>);

async fn open_to_read(context: &Context, spot: &Spot, mode: &OpenMode<'_>) -> Result<Opening, Failure> {
    let (storage, failed) = (spot.storage(), |error| mode.failed(&error));
    let opened = match storage.open_nowait(&spot.object).map_err(failed)? {
        Some(opened) => opened,
        None => storage.open(&spot.object).await.map_err(failed)?,
    };
    let Opened::File(object) = opened else { return Err(mode.failed(&StoreError::NotAFile)) };
    let metadata = object.metadata().clone();
    let lock = mode.lock(context, file_key(spot, &metadata), Usage::Reading)?;
    Ok((Content::Reading(object), metadata, lock.into_iter().collect()))
}

/// Remembers a copy from another server. Nothing is made before it is asked for, by `sync`.
async fn open_to_pull(
    context: &Context,
    spot: &Spot,
    mode: &OpenMode<'_>,
    destination: &Destination,
) -> Result<Opening, Failure> {
    let key = Key::Path(spot.export.path.clone(), spot.object.clone());
    let lock = mode.lock(context, key, Usage::Changing)?;
    let pull = third_party::open(context, mode.request, spot, destination).await?;
    let metadata = pull.metadata();
    Ok((Content::Pulled(Box::new(pull)), metadata, lock.into_iter().collect()))
}

async fn open_to_change(
    context: &Context,
    spot: &Spot,
    mode: &OpenMode<'_>,
    disposition: Disposition,
) -> Result<Opening, Failure> {
    let request = mode.request;
    let storage = spot.storage();
    let posix = storage.posix().ok_or_else(|| mode.failed(&StoreError::Unsupported))?;
    let expected_bytes = expected_bytes(request);
    if expected_bytes.is_some_and(|bytes| bytes > spot.export.upload_bytes_max) {
        return Err(Failure::of_size(mode.verb(), &request.about.path, spot.export.upload_bytes_max));
    }
    let is_pending = request.options.has(OpenOptions::POSC) && disposition != Disposition::Existing;
    let mut options = WriteOptions {
        disposition,
        visibility: if is_pending { Visibility::WhenClosed } else { Visibility::AtOnce },
        // Asked for or not: `create-parents` is for protocols that cannot ask.
        parents: request.options.makes_parents(),
        mode: Some((u32::from(request.mode) & MODE_MAX) | MODE_MIN),
        expected_bytes,
    };
    let path_key = Key::Path(spot.export.path.clone(), spot.object.clone());
    let usage = mode.usage();
    let path_lock = mode.lock(context, path_key, usage)?;
    let mut locks: Vec<Lock> = Vec::new();
    // What is to be changed in place is locked before: opening may take its bytes away.
    let before = match storage.look(&spot.object).await {
        // A directory as well, as in XRootD.
        Ok(_) if disposition == Disposition::New => return Err(mode.failed(&StoreError::Unexpected)),
        Ok(metadata) if metadata.is_directory() => return Err(mode.failed(&StoreError::NotAFile)),
        Ok(metadata) => Some(file_key(spot, &metadata)),
        Err(StoreError::NotFound | StoreError::ParentMissing) => None,
        Err(error) => return Err(mode.failed(&error)),
    };
    let mut may = MayStore::Any;
    if disposition == Disposition::Replace {
        may = spot
            .may_store(before.is_some())
            .map_err(|denial| denied(spot, &request.about, mode.verb(), denial))?;
        // A client that may not replace what is made there just now does not.
        if may == MayStore::New {
            options.disposition = Disposition::New;
        }
    }
    if let Some((parent, _)) = spot.object.split_last().filter(|_| options.parents && before.is_none())
        && let Some(refused) =
            missing_that_may_not_be_made(spot, &parent).await.map_err(|error| mode.failed(&error))?
    {
        allowed(&refused, &request.about, mode.verb(), Operation::Mkdir)?;
    }
    // What is there stays for its readers when another file takes its place.
    let before = before.filter(|_| !is_pending);
    if let Some(key) = before.clone() {
        locks.extend(mode.lock(context, key, usage)?);
    }
    let file = match posix.open_writable(&spot.object, &options).await {
        Err(StoreError::Unexpected) if may == MayStore::New => {
            allowed(spot, &request.about, mode.verb(), Operation::Overwrite)?;
            return Err(mode.failed(&StoreError::Unexpected));
        }
        opened => opened.map_err(|error| mode.failed(&error))?,
    };
    let metadata = file.metadata().map_err(|error| mode.failed(&error))?;
    let key = file_key(spot, &metadata);
    if before.as_ref() != Some(&key) {
        locks.extend(mode.lock(context, key, usage)?);
    }
    // Readers of what is there have a lock of the file alone: one of them that made it is counted among them.
    locks.extend(path_lock.filter(|_| usage == Usage::Changing || is_pending));
    Ok((Content::Changing { file, metadata: metadata.clone(), is_pending }, metadata, locks))
}

fn file_key(spot: &Spot, metadata: &Metadata) -> Key {
    Key::File(spot.export.path.clone(), metadata.identity)
}

/// The length that the client expects the file to have. A length that makes no sense is left out.
fn expected_bytes(request: &Open) -> Option<u64> {
    std::str::from_utf8(request.about.value("oss.asize")?).ok()?.parse().ok()
}
