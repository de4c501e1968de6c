//! Texts that a person or a program typed.

use std::path::PathBuf;

use gridlane_core::{Error, Result, Url};

/// The directory that relative paths are in.
///
/// # Errors
///
/// `LocalIo` where it was removed.
pub fn current_dir() -> Result<PathBuf> {
    std::env::current_dir().map_err(|cause| Error::local_io("cannot tell the current directory", &cause))
}

/// The text that was typed as a URL, or as a path of this machine. Only a path needs the current directory to be there.
///
/// # Errors
///
/// As [`Url::parse`] has them, and `LocalIo` where the current directory was removed.
pub fn typed_url(text: &str) -> Result<Url> {
    let directory = match current_dir() {
        Err(_) if text.contains("://") => PathBuf::from("/"),
        found => found?,
    };
    Url::parse(text, &directory)
}
