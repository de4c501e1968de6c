//! Records as files of a directory.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gridlane_core::{Error, ErrorKind, Fault, Result, limits};
use gridlane_net::file;

use crate::store::{Kind, RecordId, Store};

/// Records as files, `DIRECTORY/KIND/NAME`, each replaced whole and synced. The directories are of mode 0700, the files of
/// 0600. One process has it at a time.
pub struct DirStore {
    root: PathBuf,
    /// Holds the lock for as long as it is open.
    _lock: File,
    /// One writer at a time: two of the same name would write the same partial file.
    writing: Mutex<()>,
}

/// The file whose lock says that a process has the directory.
const LOCK: &str = "lock";

impl DirStore {
    /// Opens a directory, which is made if it is not there, but not those above it.
    ///
    /// Fails where others may read it or write in it, and while another process has it.
    pub fn open(root: &Path) -> Result<DirStore> {
        make_private(root)?;
        let lock_path = root.join(LOCK);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock_path);
        let lock = lock.map_err(|cause| failed("open", &lock_path, &cause))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let message = format!("another process has the directory {}", root.display());
                let hint = "one service keeps its credentials in a directory at a time: stop the other one, or give this \
                            one a directory of its own";
                return Err(Error::new(ErrorKind::Busy, message).fault(Fault::Caller).hint(hint));
            }
            Err(TryLockError::Error(cause)) => return Err(failed("lock", &lock_path, &cause)),
        }
        for kind in Kind::ALL {
            let dir = root.join(kind.name());
            make_private(&dir)?;
            // Left by a process that was killed while it wrote: the lock says that no other one is here.
            for (name, is_record) in entries(&dir)? {
                if !is_record {
                    let path = dir.join(name);
                    fs::remove_file(&path).map_err(|cause| failed("remove", &path, &cause))?;
                }
            }
        }
        sync_dir(root)?;
        Ok(DirStore { root: root.to_owned(), _lock: lock, writing: Mutex::new(()) })
    }

    fn path(&self, id: &RecordId) -> PathBuf {
        self.dir(id.kind()).join(id.name())
    }

    fn dir(&self, kind: Kind) -> PathBuf {
        self.root.join(kind.name())
    }
}

impl Store for DirStore {
    fn put(&self, id: &RecordId, sealed: &[u8]) -> Result<()> {
        // It guards a name of a file, which the next writer takes over.
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path(id);
        file::replace(&path, 0o600, sealed).map_err(|cause| failed("write", &path, &cause))?;
        sync_dir(&self.dir(id.kind()))
    }

    fn get(&self, id: &RecordId) -> Result<Option<Vec<u8>>> {
        let path = self.path(id);
        let opened = match File::open(&path) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|cause| failed("open", &path, &cause))?,
        };
        let mut bytes = Vec::new();
        let max = limits::VAULT_RECORD_BYTES_MAX as u64;
        opened.take(max + 1).read_to_end(&mut bytes).map_err(|cause| failed("read", &path, &cause))?;
        if bytes.len() as u64 > max {
            let message = format!("{} is larger than any record", path.display());
            return Err(Error::new(ErrorKind::LocalIo, message).fault(Fault::Local));
        }
        Ok(Some(bytes))
    }

    fn remove(&self, id: &RecordId) -> Result<bool> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path(id);
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(false),
            removed => removed.map_err(|cause| failed("remove", &path, &cause))?,
        }
        sync_dir(&self.dir(id.kind()))?;
        Ok(true)
    }

    fn names(&self, kind: Kind) -> Result<Vec<String>> {
        let mut names: Vec<String> = entries(&self.dir(kind))?
            .into_iter()
            .filter(|(_, is_record)| *is_record)
            .map(|(name, _)| name)
            .collect();
        names.sort();
        Ok(names)
    }
}

/// Names of files, and whether each is a record: partial files have a dot in theirs, and records have none. What is no file,
/// or has a name of neither, is passed over.
fn entries(dir: &Path) -> Result<Vec<(String, bool)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(|cause| failed("list", dir, &cause))? {
        let entry = entry.map_err(|cause| failed("list", dir, &cause))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let is_record = RecordId::new(Kind::Key, &name).is_ok();
        if is_record || name.contains(PARTIAL) {
            found.push((name, is_record));
        }
    }
    Ok(found)
}

/// The text that [`file::replace`] puts between a name and the number of a process.
const PARTIAL: &str = ".new-";

fn make_private(dir: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed("make", dir, &cause));
        }
        _ => {}
    }
    let metadata = fs::metadata(dir).map_err(|cause| failed("look at", dir, &cause))?;
    let wrong = |message: String| Err(Error::new(ErrorKind::Denied, message).fault(Fault::Local));
    if !metadata.is_dir() {
        return wrong(format!("{} is no directory", dir.display()));
    }
    if metadata.mode() & 0o077 != 0 {
        let mode = metadata.mode() & 0o777;
        let message = format!("{} keeps credentials, and its mode {mode:03o} lets others in", dir.display());
        let hint = format!("chmod 700 {}", dir.display());
        return wrong(message).map_err(|error| error.hint(hint));
    }
    Ok(())
}

/// Renames and removals in it survive a loss of power.
fn sync_dir(dir: &Path) -> Result<()> {
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|cause| failed("sync", dir, &cause))
}

fn failed(what: &str, path: &Path, cause: &io::Error) -> Error {
    Error::local_io(format!("cannot {what} {}", path.display()), cause)
}
