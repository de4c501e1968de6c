//! The file of keys that servers of the same site have as well (XRootD's `sss`).
//!
//! `--sss-keytab`, then `GRIDLANE_SSS_KEYTAB`, `XrdSecSSSKT` and `XrdSecsssKT`, then `~/.xrd/sss.keytab`. It is read at each login, so that a key that
//! was replaced counts at once; what is wrong with it is told where a server asks for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridlane_auth::sss::Keytab;
use gridlane_peer::SharedKeys;

use super::{Machine, Search};

/// Variables that name the file: ours, and those that XRootD's clients look at.
const VARIABLES: [&str; 3] = ["GRIDLANE_SSS_KEYTAB", "XrdSecSSSKT", "XrdSecsssKT"];

/// A file of shared keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundKeys {
    /// The file.
    pub file: PathBuf,
}

impl Search<'_> {
    /// The file; `None` where nothing names one, and none is in the usual place.
    pub(super) fn shared_keys(&self) -> Option<FoundKeys> {
        if let Some(file) = VARIABLES.into_iter().find_map(|name| self.path(name)) {
            return Some(FoundKeys { file });
        }
        let file = self.path("HOME")?.join(".xrd/sss.keytab");
        self.machine.version(&file).is_ok().then_some(FoundKeys { file })
    }
}

/// The keys that a file has now, or what is wrong with it.
fn read(machine: &dyn Machine, file: &Path) -> Result<Keytab, String> {
    let place = file.display();
    let content = machine.read(file, false).map_err(|cause| format!("{place}: {cause}"))?;
    let content = content.ok_or_else(|| format!("{place} is not there"))?;
    if let Some(mode) = content.mode.filter(|mode| mode & 0o077 != 0) {
        return Err(format!("{place} can be read or changed by others (mode {mode:03o}): chmod 600 {place}"));
    }
    let text = std::str::from_utf8(&content.bytes).map_err(|_| format!("{place} is no text"))?;
    Keytab::parse(text).map_err(|error| format!("{place}: {}", error.message()))
}

impl FoundKeys {
    /// The number of its keys, or what is wrong with it.
    pub(crate) fn count(&self, machine: &dyn Machine) -> Result<usize, String> {
        read(machine, &self.file).map(|keys| keys.keys().len())
    }
}

/// The keys that the file has now.
pub(super) struct LiveKeys {
    pub(super) file: PathBuf,
    pub(super) machine: Arc<dyn Machine>,
}

impl SharedKeys for LiveKeys {
    fn place(&self) -> String {
        self.file.display().to_string()
    }

    fn keys(&self) -> Result<Keytab, String> {
        read(&*self.machine, &self.file)
    }
}
