//! The upload by XRootD's protocol: open, write, close.
//!
//! ```text
//!  small:  open ◀▶ write · close ◀▶ checksum ◀▶
//!  other:  open ◀▶ write · write · …  ◀ answers, and pages that came wrong are sent again ▶  close ◀▶ checksum ◀▶
//! ```
//!
//! Where the server can, bytes go as pages with a checksum each (`pgwrite`): it says which of them came wrong, and
//! those are sent again. TLS protects them without.
//!
//! The file is opened so that it vanishes unless it is closed in good order (POSC), and is closed when the whole
//! object is known to be right.
//!
//! XRootD keeps a file's checksum with the file for as long as its time of change is the same second. In the place of a
//! file that was written in this second goes a new one, without the old one's checksum. Where that may not be, the
//! server's answer may be about the old one: the bytes are read back instead.
//!
//! Servers keep such a file for some minutes when its writer has gone: an upload
//! that is given up removes it.

mod writing;

use std::time::Duration;

use gridlane_core::checksum::Hasher;
use gridlane_core::limits::SMALL_UPLOAD_BYTES_MAX;
use gridlane_core::{Checksum, ChecksumKind, Error, ErrorKind, Fault, Hint, Result, Url};
use gridlane_peer::root::Client;
use gridlane_xrd::PathId;
use gridlane_xrd::answer::StatText;
use gridlane_xrd::flags::{OpenOptions, ServerFlags, StatFlags};
use gridlane_xrd::request::{About, Read, Rm, Stat};
use tokio::time::timeout;

use writing::Writing;

/// Permissions of a file that is made. The server takes away from them what it does not allow.
const FILE_MODE: u16 = 0o644;
/// Bytes of a file that are read back at a time.
const READ_BYTES: u32 = 4 * 1024 * 1024;
/// The time that giving up may take.
const ABANDON_MAX: Duration = Duration::from_secs(5);

/// A file that is opened, written and closed.
pub(crate) struct Upload {
    client: Client,
    url: Url,
    overwrite: bool,
    /// The kind of checksum that the server is asked for.
    kind: ChecksumKind,
    /// The longest silence of the server that the upload tolerates.
    patience: Duration,
    /// The second that the file was written in that this one replaces, if it may be this one's as well.
    replaced_s: Option<i64>,
    state: State,
}

enum State {
    New,
    /// All of it so far.
    Held(Vec<u8>),
    Open(Box<Writing>),
    /// It is closed, or was given up.
    Over,
}

impl Upload {
    /// An upload to `url`, which replaces an existing file only when `overwrite` says so.
    pub(crate) fn new(
        client: Client,
        url: Url,
        overwrite: bool,
        kind: ChecksumKind,
        patience: Duration,
    ) -> Upload {
        Upload { client, url, overwrite, kind, patience, replaced_s: None, state: State::New }
    }

    /// Opens the file, unless it is small; does nothing the second time.
    pub(crate) async fn begin(&mut self, size_bytes: u64) -> Result<()> {
        if !matches!(self.state, State::New) {
            return Ok(());
        }
        self.state = match size_bytes <= SMALL_UPLOAD_BYTES_MAX {
            true => State::Held(Vec::with_capacity(size_bytes as usize)),
            false => State::Open(self.open(size_bytes, self.overwrite).await?),
        };
        Ok(())
    }

    async fn open(&mut self, size_bytes: u64, overwrite: bool) -> Result<Box<Writing>> {
        let there = if overwrite { self.look(&self.url).await } else { None };
        // XRootD 5.5 refuses to put a file in the place of a directory, and removes that if it is empty.
        if there.as_ref().is_some_and(StatText::is_directory) {
            return Err(self.is_directory());
        }
        let existing = if overwrite { OpenOptions::DELETE } else { OpenOptions::NEW };
        let mut options = OpenOptions::UPDATE | OpenOptions::POSC | OpenOptions::RETSTAT | existing;
        let cgi = format!("oss.asize={size_bytes}");
        let mut opened = self.client.open(&self.url, options, FILE_MODE, &cgi).await;
        if matches!(&opened, Err(error) if error.kind() == ErrorKind::NotFound) && self.has_directory().await
        {
            // Another server of a cluster has the directory that the file goes to.
            options = options | OpenOptions::MKPATH;
            opened = self.client.open(&self.url, options, FILE_MODE, &cgi).await;
        }
        let mut file = match opened {
            Ok(file) => file,
            Err(error) => return Err(self.refused(error, overwrite).await),
        };
        self.replaced_s = None;
        if let (Some(old), Some(new)) = (there, file.stat.clone())
            && old.modified_s >= new.modified_s
        {
            self.replaced_s = Some(old.modified_s);
            // Else the old one has its name and its bytes until the new one is closed (gridlane).
            let is_emptied = |there: StatText| there.id == new.id && there.size_bytes == 0;
            if old.id == new.id && self.look(&self.url).await.is_some_and(is_emptied) {
                file.close().await?;
                if self.client.call(&self.url, |about| Rm { about }).await.is_ok() {
                    self.replaced_s = None;
                }
                file = self.client.open(&self.url, options, FILE_MODE, &cgi).await?;
            }
        }
        Ok(Box::new(Writing::new(file, size_bytes)))
    }

    /// The server's statement about the path, if it answers.
    async fn look(&self, url: &Url) -> Option<StatText> {
        let ask = |about| Stat { about: About::Path(about), is_vfs: false, wants: 0 };
        let found = self.client.call(url, ask).await.ok()?;
        StatText::parse(&found.body).ok()
    }

    /// True if the directory is there that the file goes to.
    async fn has_directory(&self) -> bool {
        let Ok(directory) = self.url.join("./") else { return false };
        self.look(&directory).await.is_some_and(|found| found.is_directory())
    }

    /// The error that a refusal to open the file means.
    async fn refused(&self, error: Error, overwrite: bool) -> Error {
        if error.kind() == ErrorKind::NotFound {
            if self.has_directory().await {
                let message = format!("the server cannot put a file there: {}", error.message());
                // The manager has no server for the file.
                return Error::new(ErrorKind::Network, message)
                    .fault(Fault::Peer)
                    .hint("the directory is there, but its servers may be full or down: ask their operator")
                    .endpoint(&self.url);
            }
            let directory = self.url.join("./").map_or_else(|_| String::new(), |url| format!(" {url}"));
            let message = format!("the directory{directory} is not there: {}", error.message());
            return Error::new(ErrorKind::Precondition, message)
                .fault(Fault::Caller)
                .hint(Hint::MakeDirectory)
                .endpoint(&self.url);
        }
        if error.kind() != ErrorKind::Precondition {
            return error;
        }
        let what = match self.look(&self.url).await {
            Some(found) if found.is_directory() => return self.is_directory(),
            _ if overwrite => return error,
            Some(found) if found.flags.has(StatFlags::POSC_PENDING) => {
                "another client is writing the file, or has left an unfinished one that the server will remove"
            }
            _ => "the file exists",
        };
        Error::new(ErrorKind::Precondition, what).fault(Fault::Caller).hint(Hint::Replace).endpoint(&self.url)
    }

    fn is_directory(&self) -> Error {
        Error::new(ErrorKind::Precondition, "it is a directory")
            .fault(Fault::Caller)
            .hint("with a slash at its end, the file goes into it")
            .endpoint(&self.url)
    }

    /// Takes the next bytes.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.state {
            State::Open(writing) => writing.write(bytes).await.map_err(|error| error.endpoint(&self.url)),
            State::Held(held) => {
                held.extend_from_slice(bytes);
                Ok(())
            }
            State::New | State::Over => {
                Err(Error::new(ErrorKind::Other, "an upload was written to before it was begun"))
            }
        }
    }

    /// Closes the file; then the server may say which checksum it has.
    pub(crate) async fn finish(&mut self) -> Result<Option<Checksum>> {
        if let State::Held(bytes) = &mut self.state {
            let bytes = std::mem::take(bytes);
            self.put(&bytes).await?;
            drop(bytes);
        } else {
            self.close().await?;
        }
        let State::Open(writing) = std::mem::replace(&mut self.state, State::Over) else { return Ok(None) };
        let (at, size_bytes) = (writing.file().url.clone(), writing.written_bytes());
        // Its connection is free now.
        drop(writing);
        let max = gridlane_plan::reading_max(self.patience, size_bytes);
        if let Some(replaced_s) = self.replaced_s
            && self.look(&at).await.is_none_or(|now| now.modified_s <= replaced_s)
        {
            return Ok(timeout(max, self.read_back(&at, size_bytes)).await.ok().and_then(Result::ok));
        }
        Ok(self.checksum(&at, max).await)
    }

    /// The checksum of the bytes that are `at` a URL now: as many as were written, within a second.
    async fn read_back(&self, at: &Url, size_bytes: u64) -> Result<Checksum> {
        let mut file = self.client.open(at, OpenOptions::READ, 0, "").await?;
        let mut hasher = Hasher::new(self.kind);
        let mut offset = 0;
        // A byte behind the end is read as well: there must be none.
        while offset <= size_bytes {
            let (len, path_id) = (READ_BYTES, PathId::MAIN);
            let part = file.call(|handle| Read { handle, offset, len, path_id }).await?;
            if part.is_empty() {
                break;
            }
            hasher.update(&part);
            offset += part.len() as u64;
        }
        Ok(hasher.finish())
    }

    /// Writes a small file. What closes it goes out together with its bytes.
    async fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.state = State::Open(self.open(bytes.len() as u64, self.overwrite).await?);
        let State::Open(writing) = &mut self.state else { return Ok(()) };
        let mut outcome = writing.write(bytes).await;
        if outcome.is_ok() {
            outcome = writing.close_at_once().await;
        }
        match outcome {
            Ok(()) => Ok(()),
            // Only an open file can be mended: once more, then, and step by step. What is there is ours.
            Err(error) if error.kind() == ErrorKind::ChecksumMismatch => {
                self.state = State::Open(self.open(bytes.len() as u64, true).await?);
                self.write(bytes).await?;
                self.close().await
            }
            Err(error) => Err(error.endpoint(&self.url)),
        }
    }

    async fn close(&mut self) -> Result<()> {
        match &mut self.state {
            State::Open(writing) => writing.close().await.map_err(|error| error.endpoint(&self.url)),
            State::New | State::Held(_) | State::Over => {
                Err(Error::new(ErrorKind::Other, "an upload was finished before it was begun"))
            }
        }
    }

    /// The server's checksum of the file `at` a URL now, if it states one.
    async fn checksum(&self, at: &Url, max: Duration) -> Option<Checksum> {
        let mut client = self.client.clone();
        client.answer_max = max;
        // Nor does a server make it longer by saying that the answer comes later.
        timeout(client.answer_max, client.checksum(at, self.kind)).await.ok()?.ok().flatten()
    }

    /// Removes a file that was begun and not finished, but for an old one that still has its name.
    pub(crate) async fn abandon(&mut self) {
        let State::Open(writing) = std::mem::replace(&mut self.state, State::Over) else { return };
        let file = writing.file();
        let can_vanish = file.session().flags.has(ServerFlags::CAN_POSC);
        let removing = async {
            // Where the file is out of sight until it is closed (gridlane), another one may have its name: it vanishes
            // with the connection, and only what is marked as waiting for its close (XRootD) is to be removed.
            let is_ours = |found: StatText| found.flags.has(StatFlags::POSC_PENDING);
            if !can_vanish || self.look(&file.url).await.is_some_and(is_ours) {
                // If the server refuses, it removes the file by itself when the connection is closed.
                let _ = self.client.call(&file.url, |about| Rm { about }).await;
            }
        };
        let _ = timeout(ABANDON_MAX, removing).await;
    }
}

#[cfg(test)]
mod tests;
