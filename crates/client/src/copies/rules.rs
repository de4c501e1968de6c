//! What is done with a file, seen from its source and from what is at its target.

use std::fs::File;
use std::time::{SystemTime, UNIX_EPOCH};

use gridlane_core::{Error, ErrorKind, Result, Url};
use gridlane_dav::listing::{Entry, EntryKind};
use gridlane_engine::Report;
use gridlane_peer::Client;
use gridlane_peer::http::is_directory;
use gridlane_share::turns::BriefKind;
use gridlane_store::turns_of_names;

/// The rule about a target that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// The file fails.
    Refuse,
    /// It stays when it has the source's size and is not older; else it is replaced.
    Update,
    /// It is replaced.
    Replace,
}

/// The action for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// There is no target yet.
    Copy,
    /// The target is replaced.
    Replace,
    /// The target is up to date.
    Skip,
    /// The target may not be replaced.
    Refuse,
}

impl Action {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Action::Copy => "copy",
            Action::Replace => "replace",
            Action::Skip => "skip",
            Action::Refuse => "refuse",
        }
    }
}

/// Facts about a source.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileFacts {
    /// Its size.
    pub size_bytes: Option<u64>,
    /// When it was last changed.
    pub modified: Option<SystemTime>,
}

impl FileFacts {
    /// The same with what was missing, if the source tells.
    pub(crate) async fn or_ask(self, client: &Client, source: &Url) -> Result<FileFacts> {
        if self.size_bytes.is_some() && self.modified.is_some() {
            return Ok(self);
        }
        let asked = look_at_source(client, source).await?;
        Ok(FileFacts {
            size_bytes: self.size_bytes.or(asked.size_bytes),
            modified: self.modified.or(asked.modified),
        })
    }
}

/// Asks a source for its size and time. A directory is an error.
pub(crate) async fn look_at_source(client: &Client, source: &Url) -> Result<FileFacts> {
    match crate::files::stat(client, source).await?.entry {
        Entry { kind: EntryKind::Directory, .. } => Err(is_directory(source)),
        Entry { size_bytes, modified, .. } => Ok(FileFacts { size_bytes, modified }),
    }
}

/// The action for a file from a source with these facts.
pub(crate) async fn decide(
    client: &Client,
    source: &FileFacts,
    target: &Url,
    existing: Existing,
) -> Result<Action> {
    let there = match crate::files::stat(client, target).await {
        Ok(stat) => stat.entry,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Action::Copy),
        Err(error) => return Err(error),
    };
    Ok(match existing {
        _ if there.kind == EntryKind::Directory => Action::Refuse,
        Existing::Refuse => Action::Refuse,
        Existing::Update if is_up_to_date(source, &there) => Action::Skip,
        Existing::Update | Existing::Replace => Action::Replace,
    })
}

/// True if a target of the same size is not older than its source. Servers state whole seconds; a time that is not stated
/// could be any.
fn is_up_to_date(source: &FileFacts, target: &Entry) -> bool {
    let seconds = |time: Option<SystemTime>| Some(time?.duration_since(UNIX_EPOCH).ok()?.as_secs());
    match (seconds(source.modified), seconds(target.modified)) {
        (Some(changed), Some(copied)) => {
            source.size_bytes.is_some() && source.size_bytes == target.size_bytes && copied >= changed
        }
        _ => false,
    }
}

/// Sees to it that a copy has the time of its source, of which an upload was told already. An error says why
/// it has not: the bytes are right in any case.
pub(crate) async fn keep_time(target: &Url, modified: Option<SystemTime>, report: &Report) -> Result<()> {
    let Some(modified) = modified else {
        return Err(Error::new(ErrorKind::Unsupported, "the source does not tell when it was changed"));
    };
    match target.to_path() {
        Some(path) => {
            let set = || File::open(&path).and_then(|file| file.set_modified(modified));
            turns_of_names().brief(BriefKind::Other).await.run(set).map_err(|cause| {
                Error::local_io("cannot set when it was changed", &cause).endpoint(path.display())
            })
        }
        None if report.modified_accepted == Some(true) => Ok(()),
        None => {
            let message = "the server does not say that it keeps when the file was changed";
            Err(Error::new(ErrorKind::Unsupported, message).endpoint(target))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_up_to_date() {
        let at = |seconds: u64, nanos: u32| Some(UNIX_EPOCH + Duration::new(seconds, nanos));
        let source = FileFacts { size_bytes: Some(5), modified: at(100, 999_999_999) };
        let target =
            |size_bytes, modified| Entry { name: b"f".to_vec(), kind: EntryKind::File, size_bytes, modified };
        assert!(is_up_to_date(&source, &target(Some(5), at(100, 0))));
        assert!(is_up_to_date(&source, &target(Some(5), at(200, 0))));
        assert!(!is_up_to_date(&source, &target(Some(5), at(99, 0))));
        assert!(!is_up_to_date(&source, &target(Some(6), at(200, 0))));
        assert!(!is_up_to_date(&source, &target(Some(5), None)));
        assert!(!is_up_to_date(&source, &target(None, at(200, 0))));
        let unknown = FileFacts { size_bytes: None, ..source.clone() };
        assert!(!is_up_to_date(&unknown, &target(None, at(200, 0))));
    }
}
