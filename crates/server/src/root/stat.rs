//! Metadata of a file, a directory, or the file system it is in.

use std::time::{SystemTime, UNIX_EPOCH};

use gridlane_auth::Operation;
use gridlane_store::{Metadata, Space, StoreResult};
use gridlane_xrd::answer::{StatMore, StatText, VfsText};
use gridlane_xrd::flags::StatFlags;
use gridlane_xrd::request::{About, Stat};
use gridlane_xrd::{ErrorCode, PathArg};

use super::names;
use super::places::{Context, Places as _};
use super::third_party;
use crate::export::{Place, Spot};
use gridlane_front::root::answer::{Answer, Failure, Outcome};

/// The rights of a client to a file or directory, for the flags of a stat text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    /// Read a file.
    pub(crate) read: bool,
    /// List a directory.
    pub(crate) list: bool,
    /// Store something new in a directory.
    pub(crate) create: bool,
    /// Change a file.
    pub(crate) overwrite: bool,
}

impl Rights {
    /// The rights that the rules grant at a place.
    pub(crate) fn of(spot: &Spot) -> Rights {
        Rights {
            read: spot.may(Operation::Read),
            list: spot.may(Operation::List),
            create: spot.may(Operation::Create),
            overwrite: spot.may(Operation::Overwrite),
        }
    }

    /// True if anything at all may be changed.
    pub(crate) fn writes(self) -> bool {
        self.create || self.overwrite
    }

    /// True if there is nothing more that could be granted, in an export that may be changed or not.
    pub(crate) fn are_all(self, allow_write: bool) -> bool {
        self.read && self.list && (!allow_write || self.create && self.overwrite)
    }
}

/// The text of `stat`, `open` and `dirlist` for a file or directory.
///
/// Readable and writable is what the export's rules let this client do and the permissions do not deny to every user:
/// clients look at these bits before they try.
pub(crate) fn stat_text(metadata: &Metadata, rights: Rights, is_posc_pending: bool) -> StatText {
    let is_directory = metadata.is_directory();
    let (may_read, may_write) =
        if is_directory { (rights.list, rights.create) } else { (rights.read, rights.overwrite) };
    let has = |bits: u32| metadata.mode & bits != 0;
    let flags = StatFlags::NONE
        .with_if(is_directory, StatFlags::DIRECTORY)
        .with_if(has(0o111), StatFlags::EXECUTABLE)
        .with_if(may_read && has(0o444), StatFlags::READABLE)
        .with_if(may_write && has(0o222), StatFlags::WRITABLE)
        .with_if(is_posc_pending, StatFlags::POSC_PENDING);
    let modified_s = seconds(metadata.modified);
    StatText {
        // Positive also for clients that read it with a sign.
        id: (metadata.identity.number ^ metadata.identity.device.rotate_right(16)) & (u64::MAX >> 1),
        size_bytes: metadata.size_bytes,
        flags,
        modified_s,
        more: Some(StatMore {
            changed_s: seconds(metadata.changed),
            // Reads are not recorded; at that moment it was certainly there.
            accessed_s: modified_s,
            mode: metadata.mode & 0o7777,
            user: names::user(metadata.owner),
            group: names::group(metadata.group),
        }),
    }
}

/// A directory that is there only because exports are below it.
pub(crate) fn text_above() -> StatText {
    let flags = StatFlags::DIRECTORY | StatFlags::EXECUTABLE | StatFlags::READABLE;
    let more =
        StatMore { changed_s: 0, accessed_s: 0, mode: 0o555, user: names::user(0), group: names::group(0) };
    StatText { id: 0, size_bytes: 0, flags, modified_s: 0, more: Some(more) }
}

/// Answers `stat` of a path, if that needs no wait.
pub(crate) fn stat_nowait(context: &Context, request: &Stat) -> Option<Outcome> {
    let (About::Path(about), false) = (&request.about, request.is_vfs) else { return None };
    if third_party::is_fetch(about) {
        return None;
    }
    let text = match place_of(context, about) {
        Ok(None) => Ok(text_above()),
        Ok(Some(spot)) => {
            let looked = spot.storage().look_nowait(&spot.object).transpose()?;
            text_of(&spot, about, looked)
        }
        Err(failure) => Err(failure),
    };
    Some(text.map(|text| answer_of(&text)))
}

/// Answers `stat`.
pub(crate) async fn stat(context: &Context, request: &Stat) -> Outcome {
    let text = match (&request.about, request.is_vfs) {
        (About::Handle(_), true) => {
            return Err(Failure::new(ErrorCode::ARG_MISSING, "Required argument not present"));
        }
        (About::Path(about), true) => return vfs(context, about).await,
        (About::Path(about), false) => look(context, about).await?,
        (About::Handle(handle), false) => {
            let file = context.session.files.get(*handle, "stat")?;
            let metadata =
                file.metadata().await.map_err(|error| Failure::of_store("stat", &file.path, &error))?;
            stat_text(&metadata, Rights::of(&file.spot), file.is_pending())
        }
    };
    Ok(answer_of(&text))
}

fn answer_of(text: &StatText) -> Answer {
    let mut out = Vec::new();
    text.write(&mut out);
    Answer::text(out)
}

/// The metadata of a path, if its client may know it.
pub(crate) async fn look(context: &Context, about: &PathArg) -> Result<StatText, Failure> {
    if third_party::is_fetch(about) {
        let spot = third_party::spot_to_compare(context, about, ACT, Operation::Stat).await?;
        return text_of(&spot, about, spot.storage().look(&spot.object).await);
    }
    match place_of(context, about)? {
        Some(spot) => text_of(&spot, about, spot.storage().look(&spot.object).await),
        None => Ok(text_above()),
    }
}

/// The verb of messages about it.
const ACT: &str = "locate";

/// The place of a path, if its client may know what is there; `None` for a directory above exports.
fn place_of(context: &Context, about: &PathArg) -> Result<Option<Spot>, Failure> {
    match context.place(about)? {
        Place::Above(_) => Ok(None),
        Place::Inside(_) | Place::Nowhere => context.spot(about, ACT, Operation::Stat).map(Some),
    }
}

fn text_of(spot: &Spot, about: &PathArg, looked: StoreResult<Metadata>) -> Result<StatText, Failure> {
    let metadata = looked.map_err(|error| Failure::of_store(ACT, &about.path, &error))?;
    Ok(stat_text(&metadata, Rights::of(spot), false))
}

/// The room at a path: of directories above exports, in the export below that has most.
pub(crate) async fn space(context: &Context, about: &PathArg, act: &str) -> Result<(Space, bool), Failure> {
    let mut best: Option<(Space, bool)> = None;
    match context.place(about)? {
        Place::Above(names) => {
            for name in names {
                let mut below = about.clone();
                below.path.push(b'/');
                below.path.extend_from_slice(&name);
                // One that is refused or fails keeps the others from nothing.
                let Ok(found) = Box::pin(space(context, &below, act)).await else { continue };
                if best.is_none_or(|best| best.0.available_bytes < found.0.available_bytes) {
                    best = Some(found);
                }
            }
        }
        Place::Inside(_) | Place::Nowhere => {
            let spot = context.spot(about, act, Operation::Stat)?;
            let space = spot.storage().space(&spot.object).await;
            let space = space.map_err(|error| Failure::of_store(act, &about.path, &error))?;
            best = Some((space, Rights::of(&spot).writes()));
        }
    }
    best.ok_or_else(|| Failure::of_store(act, &about.path, &gridlane_store::StoreError::Denied))
}

async fn vfs(context: &Context, about: &PathArg) -> Outcome {
    const MIB: u64 = 1024 * 1024;
    let (space, is_writable) = space(context, about, "statfs").await?;
    let unavailable = space.total_bytes.saturating_sub(space.available_bytes);
    let text = VfsText {
        nodes: u64::from(is_writable),
        free_mib: space.available_bytes / MIB,
        // In this order it cannot overflow.
        used_percent: (unavailable as f64 / space.total_bytes.max(1) as f64 * 100.0).round() as u64,
        ..VfsText::default()
    };
    let mut out = Vec::new();
    text.write(&mut out);
    Ok(Answer::text(out))
}

/// Seconds since 1970, also before.
pub(crate) fn seconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |seconds| -seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::{arg, bytes, code, context, context_of, export_at, stat_of, text, wait};
    use gridlane_xrd::Handle;

    fn of(path: &str, is_vfs: bool) -> Stat {
        Stat { about: About::Path(arg(path)), is_vfs, wants: 0 }
    }

    #[test]
    fn files_and_directories() {
        let context = context();
        let file = stat_of(&context, "/d//./f?authz=secret").unwrap();
        assert_eq!((file.size_bytes, file.flags), (5, StatFlags::READABLE | StatFlags::WRITABLE));
        assert_ne!(file.id, stat_of(&context, "/d/e").unwrap().id);
        assert_eq!(stat_of(&context, "/d").unwrap().flags, StatFlags(51));
        assert!(stat_of(&context, "/").unwrap().is_directory());
        assert_eq!(stat_of(&context, "/nope"), None);
        assert!(bytes(wait(stat(&context, &of("/d", false)))).ends_with(&[0]));
    }

    #[test]
    fn without_waiting_it_is_the_same() {
        let context = context();
        for path in ["/d/f", "/d", "/", "/nope", "d"] {
            let request = of(path, false);
            let (one, other) = (wait(stat(&context, &request)), stat_nowait(&context, &request).unwrap());
            assert_eq!(one.map(|one| bytes(Ok(one))), other.map(|other| bytes(Ok(other))), "{path}");
        }
        assert!(stat_nowait(&context, &of("/d", true)).is_none());
    }

    #[test]
    fn flags_of_read_only_exports() {
        let context = context_of(vec![export_at("/a/b"), export_at("/a/c")], |_| {});
        assert_eq!(stat_of(&context, "/a/b/f").unwrap().flags, StatFlags::READABLE);
        assert_eq!(stat_of(&context, "/a/b").unwrap().flags, StatFlags(19));
        assert_eq!(stat_of(&context, "/a").unwrap().flags, StatFlags(19));
        assert_eq!(stat_of(&context, "/").unwrap().flags, StatFlags(19));
        assert_eq!(stat_of(&context, "/x"), None);
        assert!(text(wait(stat(&context, &of("/a", true)))).starts_with("0 "));
    }

    #[test]
    fn malformed_requests() {
        let context = context();
        for path in ["d/f", "/d/../d", "/.."] {
            assert_eq!(code(wait(stat(&context, &of(path, false)))), ErrorCode::NOT_AUTHORIZED, "{path}");
        }
        let handle = About::Handle(Handle([1; 4]));
        let request = Stat { about: handle.clone(), is_vfs: false, wants: 0 };
        assert_eq!(code(wait(stat(&context, &request))), ErrorCode::FILE_NOT_OPEN);
        let request = Stat { about: handle, is_vfs: true, wants: 0 };
        assert_eq!(code(wait(stat(&context, &request))), ErrorCode::ARG_MISSING);
    }

    #[test]
    fn a_file_system() {
        let context = context();
        let vfs = VfsText::parse(&bytes(wait(stat(&context, &of("/d", true))))).unwrap();
        assert_eq!((vfs.nodes, vfs.staging_nodes), (1, 0));
        assert_eq!(code(wait(stat(&context, &of("/nope", true)))), ErrorCode::NOT_FOUND);
    }

    #[test]
    fn moments_before_1970() {
        assert_eq!(seconds(UNIX_EPOCH - std::time::Duration::from_secs(5)), -5);
        assert_eq!(seconds(UNIX_EPOCH + std::time::Duration::from_secs(5)), 5);
    }
}
