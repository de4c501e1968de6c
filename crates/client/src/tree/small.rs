//! Small files of a tree: those that need no more than the engine's way for many of them.
//!
//! Here it is decided which files these are, and their targets are looked at, with one look at each directory. Everything
//! else, and what the engine returns, is copied like any other file (`file`).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use gridlane_core::limits::TREE_LISTINGS_MAX;
use gridlane_engine::small::{Directory, SmallEnds, SmallFile, SmallFiles};

use super::job::Job;
use super::shared::Shared;
use crate::location::Location;
use crate::tree_path::TreePath;

/// The small files of a tree that are under way.
pub(super) struct Small {
    shared: Arc<Shared>,
    files: SmallFiles,
    target: PathBuf,
    /// Directories that files go to; `None` for those that cannot have files without names. Bounded: then those are closed
    /// that have no files under way, and opening one again costs little.
    directories: HashMap<TreePath, Option<Arc<Directory>>>,
    under_way: HashMap<u64, (Job, TreePath)>,
    next_id: u64,
}

impl Small {
    /// `None` when no file of the tree is to be copied in this way.
    pub(super) fn new(shared: &Arc<Shared>) -> Option<Small> {
        let Location::Local(target) = &shared.target else { return None };
        let has_remote = shared.roots.iter().any(|root| matches!(&root.sources[..], [Location::Remote(_)]));
        if shared.rules.dry_run || !has_remote {
            return None;
        }
        Some(Small {
            files: SmallFiles::new(shared.lister.client().clone(), &shared.options)?,
            target: target.clone(),
            shared: shared.clone(),
            directories: HashMap::new(),
            under_way: HashMap::new(),
            next_id: 0,
        })
    }

    /// Says from where files are likely to come.
    pub(super) fn expect(&mut self) {
        for root in self.shared.roots.iter().filter(|root| root.is_directory) {
            if let [source @ Location::Remote(_)] = &root.sources[..]
                && let Ok(url) = source.directory(&TreePath::root())
            {
                // The root is listed already.
                self.files.expect(&url, TREE_LISTINGS_MAX - 1);
            }
        }
    }

    /// True if another one may begin, whatever directory it goes to.
    pub(super) fn has_room(&self) -> bool {
        let has_directory = || {
            self.directories.len() < self.files.directories_max() || !self.directories.values().all(is_used)
        };
        self.files.has_room() && has_directory()
    }

    /// Files that are under way.
    pub(super) fn len(&self) -> usize {
        self.files.under_way()
    }

    /// The file to fetch, if it is one for this: small, from one place, and with nothing at its target.
    pub(super) fn file(&mut self, job: &Job, name: &TreePath) -> Option<SmallFile> {
        let [source @ Location::Remote(_)] = &self.shared.roots[job.root as usize].sources[..] else {
            return None;
        };
        let modified: Option<SystemTime> = match self.shared.rules.preserve_times {
            true => Some(job.modified?),
            false => None,
        };
        let size_bytes = job.size_bytes;
        let url = source.file(&job.path).ok()?;
        if !self.files.takes(&url, size_bytes) {
            return None;
        }
        let parent = name.parent()?;
        let directory = self.directory(&parent)?;
        let own_name = OsStr::from_bytes(name.names().last()?);
        // Whether and how something is replaced is another question.
        if directory.has(own_name).unwrap_or(true) || directory.has_unfinished(own_name).unwrap_or(true) {
            return None;
        }
        let name = own_name.to_owned();
        Some(SmallFile { id: self.next_id, url, size_bytes, directory, name, modified })
    }

    /// Fetches it.
    pub(super) fn push(&mut self, file: SmallFile, job: Job, name: TreePath) {
        self.next_id += 1;
        self.under_way.insert(file.id, (job, name));
        self.files.push(file);
    }

    /// The next ends of files; never when none is under way. May be dropped at any time.
    pub(super) async fn next(&mut self) -> SmallEnds {
        match self.files.next().await {
            Some(ends) => ends,
            None => std::future::pending().await,
        }
    }

    /// Removes a file that has ended from those under way.
    pub(super) fn ended(&mut self, id: u64) -> Option<(Job, TreePath)> {
        self.under_way.remove(&id)
    }

    /// Begins with no further file.
    pub(super) fn begin_nothing(&mut self) {
        self.files.begin_nothing();
    }

    /// Stops everything.
    pub(super) fn stop(&mut self) {
        self.files.stop();
    }

    fn directory(&mut self, path: &TreePath) -> Option<Arc<Directory>> {
        if let Some(known) = self.directories.get(path) {
            return known.clone();
        }
        if self.directories.len() >= self.files.directories_max() {
            self.directories.retain(|_, directory| is_used(directory));
        }
        // An error shows again when the next file comes that way.
        self.shared.directories.ensure_here(path).ok()?;
        let below = OsStr::from_bytes(path.as_bytes());
        let directory = Directory::open(&self.target, below.as_ref()).ok().map(Arc::new);
        self.directories.insert(path.clone(), directory.clone());
        directory
    }
}

/// True if files on their way to this directory hold it.
fn is_used(directory: &Option<Arc<Directory>>) -> bool {
    directory.as_ref().is_some_and(|directory| Arc::strong_count(directory) > 1)
}
