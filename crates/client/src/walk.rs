//! Walks through a directory and those below it, as a person wants to read them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use gridlane_core::limits::{
    LISTING_DIRECTORIES_MAX, LISTING_SORTED_MAX, TREE_DEPTH_MAX, TREE_PATH_BYTES_MAX,
};
use gridlane_core::url::encode_name;
use gridlane_core::{Error, ErrorKind, Result, Url};
use gridlane_dav::listing::{Entry, EntryKind};

use crate::files::of_metadata;
use crate::item::{Item, OddKind, directory_form};
use crate::listing::Lister;

/// The manner of a walk through a directory.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// Its directories are listed too, and theirs.
    pub is_recursive: bool,
    /// The names of a directory come in order, as far as they are few enough to be waited for.
    pub is_sorted: bool,
}

/// Takes what is found.
pub trait WalkObserver: Send {
    /// Some of what is in one directory, by their paths below the one that was asked for. `false`: no more is wanted.
    fn entries(&mut self, entries: &[Entry]) -> Result<bool>;

    /// Something could not be listed, or looked at; the rest goes on.
    fn failed(&mut self, error: &Error);
}

/// Lists a directory. What of it cannot be looked at is an error when the rest has been told; in a walk through others it is
/// told to the observer, and the number of such failures is what comes back.
pub async fn walk(lister: &Lister, url: &Url, how: Walk, observer: &mut dyn WalkObserver) -> Result<u64> {
    let mut failed = None;
    let Some(inner) = directory(lister, url, &[], how, observer, &mut failed).await? else { return Ok(0) };
    if !how.is_recursive {
        return failed.map_or(Ok(0), Err);
    }
    let mut failures = 0;
    let mut tell = |observer: &mut dyn WalkObserver, error: Error| {
        observer.failed(&error);
        failures += 1;
    };
    failed.into_iter().for_each(|error| tell(observer, error));
    // Of each directory on the way down, those in it that are still to be listed, with the way to them.
    let mut open = vec![(url.clone(), inner)];
    while let Some((above, inner)) = open.last_mut() {
        let Some(below) = inner.pop() else {
            open.pop();
            continue;
        };
        let name = below[..below.len() - 1].rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let next = directory_form(above).and_then(|url| url.join(&format!("./{}/", encode_name(name))));
        let found = match next {
            Ok(next) if open.len() >= TREE_DEPTH_MAX || below.len() > TREE_PATH_BYTES_MAX => {
                let message = format!(
                    "the tree is deeper than {TREE_DEPTH_MAX} directories or {TREE_PATH_BYTES_MAX} bytes"
                );
                Err(Error::new(ErrorKind::Unsupported, message).endpoint(&next))
            }
            Ok(next) => {
                let mut failed = None;
                let found = directory(lister, &next, &below, how, observer, &mut failed).await;
                failed.into_iter().for_each(|error| tell(observer, error));
                found.map(|inner| inner.map(|inner| (next, inner)))
            }
            Err(error) => Err(error),
        };
        match found {
            Ok(Some(next)) => open.push(next),
            Ok(None) => break,
            Err(error) => tell(observer, error),
        }
        if open.iter().map(|(_, inner)| inner.len()).sum::<usize>() > LISTING_DIRECTORIES_MAX {
            let message = format!("more than {LISTING_DIRECTORIES_MAX} directories wait to be listed");
            return Err(Error::new(ErrorKind::Unsupported, message).endpoint(url));
        }
    }
    Ok(failures)
}

/// Tells what is in a directory, each name after `below`, which is the way there. Returns the directories in it that are to
/// be listed too, the last first; `None`: no more is wanted. What cannot be looked at is in `failed`.
async fn directory(
    lister: &Lister,
    url: &Url,
    below: &[u8],
    how: Walk,
    observer: &mut dyn WalkObserver,
    failed: &mut Option<Error>,
) -> Result<Option<Vec<Vec<u8>>>> {
    let mut listing = lister.list(url).await?;
    let (mut entries, mut items, mut inner) = (Vec::new(), Vec::new(), Vec::new());
    let mut sorts = how.is_sorted;
    loop {
        let more = listing.next(&mut items).await?;
        for item in items.drain(..) {
            let found = match item {
                Item::Entry(entry) => {
                    if how.is_recursive && entry.kind == EntryKind::Directory {
                        inner.push([below, &entry.name, b"/"].concat());
                    }
                    Some(entry)
                }
                // It was told where it was found to be a directory.
                Item::Itself(_) if !below.is_empty() => None,
                Item::Itself(entry) => Some(entry),
                Item::Odd { name, kind } => odd(url, name, kind, failed),
            };
            entries.extend(found);
        }
        sorts &= entries.len() <= LISTING_SORTED_MAX;
        if !sorts || !more {
            if sorts {
                entries.sort_by(|a: &Entry, b| a.name.cmp(&b.name));
            }
            for entry in &mut entries {
                entry.name.splice(..0, below.iter().copied());
            }
            if !observer.entries(&entries)? {
                return Ok(None);
            }
            entries.clear();
        }
        if !more {
            inner.sort_by(|a, b| b.cmp(a));
            return Ok(Some(inner));
        }
    }
}

/// A person sees what a link leads to; a link that leads nowhere, and what is no file, is not told.
fn odd(directory: &Url, name: Vec<u8>, kind: OddKind, failed: &mut Option<Error>) -> Option<Entry> {
    match kind {
        OddKind::Special(_) => None,
        OddKind::Unknown(error) => {
            failed.get_or_insert(error);
            None
        }
        OddKind::Link => {
            let meta = fs::metadata(directory.to_path()?.join(OsStr::from_bytes(&name))).ok()?;
            Some(of_metadata(name, &meta))
        }
    }
}

/// The kind of failure of a command about `count` things, of which these failed: what all of them failed with, or that some
/// did.
pub fn failure_of(failures: &[Error], count: usize) -> Option<ErrorKind> {
    let (first, rest) = failures.split_first()?;
    let is_common = failures.len() == count && rest.iter().all(|other| other.kind() == first.kind());
    Some(if is_common { first.kind() } else { ErrorKind::Partial })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wants so many batches.
    struct Heard {
        names: Vec<String>,
        wanted: usize,
        failures: usize,
    }

    impl WalkObserver for Heard {
        fn entries(&mut self, entries: &[Entry]) -> Result<bool> {
            self.names.extend(entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()));
            self.wanted -= 1;
            Ok(self.wanted > 0)
        }

        fn failed(&mut self, _: &Error) {
            self.failures += 1;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_directory_comes_before_what_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b/d", "a"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        for name in ["b/d/e", "b/c", "f"] {
            fs::write(dir.path().join(name), b"").unwrap();
        }
        std::os::unix::fs::symlink("f", dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("broken")).unwrap();
        let lister = Lister::new(crate::connect(gridlane_net::tls::Trust::default()));
        let url = Url::from_path(&dir.path().join("")).unwrap();
        let heard = async |is_recursive, wanted| {
            let mut heard = Heard { names: Vec::new(), wanted, failures: 0 };
            let how = Walk { is_recursive, is_sorted: true };
            assert_eq!(walk(&lister, &url, how, &mut heard).await.unwrap(), heard.failures as u64);
            heard.names.join(" ")
        };
        assert_eq!(heard(false, 9).await, "a b f link");
        assert_eq!(heard(true, 9).await, "a b f link b/c b/d b/d/e");
        assert_eq!(heard(true, 1).await, "a b f link");
    }

    #[test]
    fn the_kind_of_several_failures() {
        let error = |kind| Error::new(kind, "no");
        assert_eq!(failure_of(&[], 2), None);
        let (one, two) = (error(ErrorKind::Denied), error(ErrorKind::NotFound));
        assert_eq!(failure_of(&[one.clone(), one.clone()], 2), Some(ErrorKind::Denied));
        assert_eq!(failure_of(std::slice::from_ref(&one), 2), Some(ErrorKind::Partial));
        assert_eq!(failure_of(&[one, two], 2), Some(ErrorKind::Partial));
    }
}
