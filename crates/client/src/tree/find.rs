//! Finding what there is to copy: one directory at a time, or the names of a list.

use std::collections::HashSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use gridlane_core::limits::{LISTED_AGAIN_MAX, LISTING_PAUSES};
use gridlane_core::name::is_own;
use gridlane_core::{Error, ErrorKind, Fault, Result};
use gridlane_dav::listing::{Entry, EntryKind};
use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use super::job::{Found, Job};
use super::names::NameList;
use super::news::News;
use super::report::LeftOut;
use super::shared::Shared;
use crate::item::{Item, OddKind};
use crate::location::Location;
use crate::tree_path::TreePath;

/// Lists one directory and tells what is in it. One that breaks off is listed again: else a lost connection would cost all
/// that is below it.
pub(super) async fn directory(shared: &Shared, job: &Job, news: &Sender<News>) -> Result<()> {
    let root = &shared.roots[job.root as usize];
    if shared.makes_all_directories() {
        shared.directories.ensure(&root.target(&job.path)?).await?;
    }
    let mut told = Told::default();
    for pause in LISTING_PAUSES {
        match listed(shared, job, news, &mut told).await {
            Err(error) if error.kind() == ErrorKind::Network && told.is_known() => sleep(pause).await,
            outcome => return outcome,
        }
    }
    listed(shared, job, news, &mut told).await
}

/// Lists a directory once, without what was told before.
async fn listed(shared: &Shared, job: &Job, news: &Sender<News>, told: &mut Told) -> Result<()> {
    let source = &shared.roots[job.root as usize].sources[0];
    let mut listing = shared.lister.list(&source.directory(&job.path)?).await?;
    let mut items = Vec::new();
    loop {
        let more = listing.next(&mut items).await;
        if !source.is_local() {
            items.retain(|item| told.is_new(item));
        }
        let found: Vec<Found> =
            items.drain(..).filter_map(|item| of_item(shared, job, source, item)).collect();
        if !found.is_empty() && news.send(News::Found(found)).await.is_err() {
            return Ok(());
        }
        if !more? {
            return Ok(());
        }
    }
}

/// Names of a directory that were told, as long as they are few enough to be kept.
#[derive(Default)]
struct Told {
    names: HashSet<Vec<u8>>,
    is_too_much: bool,
}

impl Told {
    /// Notes that something is told, and returns true if it was not told before.
    fn is_new(&mut self, item: &Item) -> bool {
        let name = match item {
            Item::Entry(entry) => &entry.name,
            Item::Odd { name, .. } => name,
            Item::Itself(_) => return true,
        };
        self.is_too_much |= self.names.len() >= LISTED_AGAIN_MAX;
        match self.is_too_much {
            true => !self.names.contains(name),
            false => self.names.insert(name.clone()),
        }
    }

    /// True if it is known of every item if it was told.
    fn is_known(&self) -> bool {
        !self.is_too_much
    }
}

fn of_item(shared: &Shared, directory: &Job, source: &Location, item: Item) -> Option<Found> {
    let (name, entry) = match &item {
        Item::Entry(entry) => (&entry.name, Some(entry)),
        Item::Odd { name, .. } => (name, None),
        Item::Itself(_) => {
            let error = Error::new(ErrorKind::Precondition, "it is a file and no directory any more");
            return Some(Found::Failed { job: directory.clone(), is_directory: true, error });
        }
    };
    let is_directory = entry.is_some_and(|entry| entry.kind == EntryKind::Directory);
    let is_unfinished = is_own(name);
    let path = match directory.path.child(name) {
        Err(_) if is_unfinished => directory.path.refused(name),
        Ok(path) => path,
        Err(error) => {
            // What cannot be named is told of under the name of its directory.
            return Some(Found::Failed { job: directory.clone(), is_directory: true, error });
        }
    };
    let wanted = match is_directory {
        true => shared.filter.descends(&path),
        false => shared.filter.wants(&path),
    };
    if !wanted {
        return None;
    }
    let job = |entry: &Entry| Job {
        root: directory.root,
        path: path.clone(),
        size_bytes: entry.size_bytes,
        modified: entry.modified,
    };
    let bare = Job { root: directory.root, path: path.clone(), size_bytes: None, modified: None };
    if is_unfinished {
        return Some(Found::LeftOut { job: bare, why: LeftOut::Unfinished });
    }
    Some(match item {
        Item::Entry(entry) if is_directory => Found::Directory(job(&entry)),
        Item::Entry(entry) => Found::File(job(&entry)),
        Item::Odd { kind: OddKind::Link, .. } if shared.follow_links => {
            match source.local(&path).ok_or_else(not_local).and_then(|link| follow(&link, &directory.path)) {
                Ok(Target::Entry(entry)) if entry.kind == EntryKind::Directory => {
                    Found::Directory(job(&entry))
                }
                Ok(Target::Entry(entry)) => Found::File(job(&entry)),
                Ok(Target::Special(why)) => Found::LeftOut { job: bare, why },
                Err(error) => Found::Failed { job: bare, is_directory: false, error },
            }
        }
        Item::Odd { kind: OddKind::Link, .. } => Found::LeftOut { job: bare, why: LeftOut::Link },
        Item::Odd { kind: OddKind::Special(what), .. } => {
            Found::LeftOut { job: bare, why: LeftOut::Special(what) }
        }
        Item::Odd { kind: OddKind::Unknown(error), .. } => {
            Found::Failed { job: bare, is_directory: false, error }
        }
        Item::Itself(_) => return None,
    })
}

fn not_local() -> Error {
    Error::new(ErrorKind::Other, "a link was found at a server")
}

enum Target {
    Entry(Entry),
    Special(LeftOut),
}

/// The target of a link of this machine, in the directory `below` of a tree.
fn follow(link: &Path, below: &TreePath) -> Result<Target> {
    let failed =
        |cause: &std::io::Error| Error::local_io("cannot follow the link", cause).endpoint(link.display());
    let meta = fs::metadata(link).map_err(|cause| failed(&cause))?;
    if !meta.is_file() && !meta.is_dir() {
        return Ok(Target::Special(LeftOut::LinkToNoFile));
    }
    if meta.is_dir() {
        // A directory above, under whatever name it was reached, has the same number.
        let depth = below.names().count() + 1;
        for above in link.ancestors().skip(1).take(depth) {
            let above = fs::metadata(above).map_err(|cause| failed(&cause))?;
            if (above.dev(), above.ino()) == (meta.dev(), meta.ino()) {
                let error = Error::new(ErrorKind::Usage, "the link leads back to a directory that it is in");
                return Err(error.fault(Fault::Caller).endpoint(link.display()));
            }
        }
    }
    let name = link.file_name().unwrap_or_default().as_bytes().to_vec();
    Ok(Target::Entry(crate::files::of_metadata(name, &meta)))
}

/// Tells the names of a list, which is read where blocking is allowed.
pub(super) fn list(mut names: NameList, shared: &Shared, news: &Sender<News>) -> Result<()> {
    let mut batch = Vec::new();
    loop {
        let next = names.next()?;
        let is_end = next.is_none();
        if let Some((path, is_directory)) = next {
            let job = Job { root: 0, path, size_bytes: None, modified: None };
            let wanted = match is_directory {
                true => job.path.is_root() || shared.filter.descends(&job.path),
                false => shared.filter.wants(&job.path),
            };
            if wanted {
                batch.push(of_name(shared, job, is_directory));
            }
        }
        // A list that a person or a program is still writing is begun with at once.
        if !batch.is_empty() && news.blocking_send(News::Found(std::mem::take(&mut batch))).is_err() {
            return Ok(());
        }
        if is_end {
            return Ok(());
        }
    }
}

/// The item of a name in a list: on this machine that can be looked at.
fn of_name(shared: &Shared, job: Job, is_directory: bool) -> Found {
    if is_directory {
        return Found::Directory(job);
    }
    let Some(path) = shared.roots[0].sources[0].local(&job.path) else { return Found::File(job) };
    let failed = |job: Job, error: Error| Found::Failed { job, is_directory: false, error };
    match fs::symlink_metadata(&path) {
        Err(cause) => {
            let error = Error::local_io("cannot look at it", &cause).endpoint(path.display());
            failed(job, error)
        }
        Ok(meta) if meta.is_symlink() && shared.follow_links => {
            match follow(&path, &job.path.parent().unwrap_or_default()) {
                Ok(Target::Entry(entry)) if entry.kind == EntryKind::File => {
                    Found::File(Job { size_bytes: entry.size_bytes, modified: entry.modified, ..job })
                }
                Ok(Target::Entry(_)) => failed(job, directory_without_slash(&path)),
                Ok(Target::Special(why)) => Found::LeftOut { job, why },
                Err(error) => failed(job, error),
            }
        }
        Ok(meta) if meta.is_symlink() => Found::LeftOut { job, why: LeftOut::Link },
        Ok(meta) if meta.is_dir() => failed(job, directory_without_slash(&path)),
        Ok(meta) if meta.is_file() => {
            Found::File(Job { size_bytes: Some(meta.len()), modified: meta.modified().ok(), ..job })
        }
        Ok(_) => Found::LeftOut { job, why: LeftOut::NoFile },
    }
}

fn directory_without_slash(path: &Path) -> Error {
    Error::new(ErrorKind::Usage, "it is a directory")
        .fault(Fault::Caller)
        .endpoint(path.display())
        .hint("in a list, a slash at the end of its name says so")
}
