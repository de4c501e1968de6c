//! A file of this machine that appears, or replaces the one before, when it is complete.

use std::fs::Permissions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use gridlane_core::name::FAILED_LIST_BEGIN;
use gridlane_core::{Error, Result};

/// A file that is being written beside its path.
pub struct WholeFile {
    path: PathBuf,
    to: BufWriter<tempfile::NamedTempFile>,
}

impl WholeFile {
    /// Begins a file that will be at `path`: where it cannot be, that is known now.
    pub fn create(path: &Path) -> Result<WholeFile> {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::Builder::new()
            .prefix(FAILED_LIST_BEGIN)
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(dir)
            .map_err(|cause| not_written(path, &cause))?;
        Ok(WholeFile { path: path.to_path_buf(), to: BufWriter::new(file) })
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.to.write_all(bytes).map_err(|cause| not_written(&self.path, &cause))
    }

    /// Makes it visible.
    pub fn finish(self) -> Result<()> {
        let WholeFile { path, to } = self;
        let file = to.into_inner().map_err(|cause| not_written(&path, cause.error()))?;
        file.persist(&path).map(drop).map_err(|cause| not_written(&path, &cause.error))
    }
}

fn not_written(path: &Path, cause: &io::Error) -> Error {
    Error::local_io("cannot write it", cause).endpoint(path.display())
}
