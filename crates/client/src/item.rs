//! Entries of directories, and the room in one, over every protocol.

use gridlane_core::{Error, Result, Url};
use gridlane_dav::listing::Entry;

/// Something in a directory.
#[derive(Debug)]
pub enum Item {
    /// A file or a directory.
    Entry(Entry),
    /// Neither of the two.
    Odd {
        /// Its name.
        name: Vec<u8>,
        /// Its kind.
        kind: OddKind,
    },
    /// The place that was to be listed is no directory but this file.
    Itself(Entry),
}

/// An entry that is neither a file nor a directory.
#[derive(Debug)]
pub enum OddKind {
    /// A symbolic link.
    Link,
    /// A pipe, a socket or a device: the word for it.
    Special(&'static str),
    /// It cannot be looked at.
    Unknown(Error),
}

/// Room below a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that are stored there, if it is told.
    pub used_bytes: Option<u64>,
    /// Bytes that may still be stored there, if it is told.
    pub available_bytes: Option<u64>,
}

/// The URL as that of a directory.
pub(crate) fn directory_form(url: &Url) -> Result<Url> {
    match url.file_name() {
        None => Ok(url.clone()),
        Some(name) => url.join(&format!("./{name}/")),
    }
}
