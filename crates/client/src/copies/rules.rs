//! What is done with a file, seen from its source and from what is at its target.

use std::fs::File;
use std::time::{SystemTime, UNIX_EPOCH};

use gridlane_core::{Error, ErrorKind, Fault, Result, Url};
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

/// Fails if one of the sources is what is to be replaced at a server. Servers that write in place empty it before they read it.
pub(crate) fn refuse_itself(sources: &[Url], target: &Url) -> Result<()> {
    let query = |url: &Url| url.request_target().split_once('?').map(|(_, query)| query.to_owned());
    let is_it = |source: &&Url| {
        (source.host(), source.port()) == (target.host(), target.port())
            && source.wire_path() == target.wire_path()
            // What opens it is no part of its name.
            && (query(source) == query(target) || source.has_secrets() || target.has_secrets())
    };
    match sources.iter().any(|source| is_it(&source)) {
        true => Err(is_itself(target)),
        false => Ok(()),
    }
}

/// The error of a file that would be copied onto itself.
pub(crate) fn is_itself(target: &Url) -> Error {
    let message = "the source and the target are one file";
    Error::new(ErrorKind::Usage, message).fault(Fault::Caller).endpoint(target)
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
    fn what_is_a_file_itself() {
        let url = |text: &str| Url::parse_absolute(text).unwrap();
        for (source, target, is_it) in [
            ("http://h/a%20b", "http://h/a b", true),
            ("http://h/f?authz=one", "http://h/f", true),
            ("https://h:1094/f", "root://h//f", true),
            ("http://h/f?file=a", "http://h/f?file=b", false),
            ("http://h/f", "http://h:81/f", false),
            ("http://h/f", "http://g/f", false),
            ("http://h/f", "http://h/F", false),
        ] {
            let other = url("http://other/f");
            let judged = refuse_itself(&[other, url(source)], &url(target));
            assert_eq!(judged.is_err(), is_it, "{source} {target}");
        }
    }

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
