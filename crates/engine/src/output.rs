//! Outputs: what takes the bytes of a copy in order, from the first to the last.
//!
//! A pipe, a device or standard output ([`Pipe`]), a file of a storage that takes bytes in order ([`Stored`]), and an upload to
//! a server (`upload`). What was taken cannot be called back: a copy to an output begins anew, or not at all.

use std::fs::File;
use std::future::ready;
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::Arc;

use gridlane_core::{Boxed, Checksum, Error, ErrorKind, Result};
use gridlane_share::Turns;
use gridlane_share::turns::BriefKind;
use gridlane_store::{Completion, turns_of};

/// Device number of /dev/null on Linux (Documentation/admin-guide/devices.txt): it never makes one wait.
const NULL_DEVICE: (u32, u32) = (1, 3);

/// The time that writes to an output may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waits {
    /// None ever waits.
    Never,
    /// Mostly there is room; else a write holds no thread, or one in a turn of its device.
    #[default]
    Sometimes,
    /// Each may hold its thread for as long as a reader likes.
    Blocks,
}

/// The properties of an output that a copy must know before its first byte.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// The time that writes may take.
    pub waits: Waits,
    /// It has to know the size before its first byte, and others may see the file as soon as it has the last one: that is held
    /// back until all of the object is known to be right.
    pub is_sized: bool,
    /// An output that was begun has to be [abandoned](Output::abandon) when it is not finished.
    pub leaves_traces: bool,
}

/// Takes bytes in order.
///
/// ```text
/// begin(size) ─▶ write_nowait or write … ─┬▶ finish     visible, where anything is
///                                         └▶ abandon
/// ```
pub trait Output: Send + 'static {
    /// The same from the beginning to the end.
    fn manner(&self) -> Manner;

    /// Tells the size of the object; called once.
    fn begin(&mut self, size_bytes: u64) -> Boxed<'_, Result<()>> {
        let _ = size_bytes;
        Box::pin(ready(Ok(())))
    }

    /// Takes the next bytes, if it does so without waiting; `None`: it has taken nothing, and may have to wait.
    fn write_nowait(&mut self, bytes: &[u8]) -> Option<Result<()>> {
        let _ = bytes;
        None
    }

    /// Takes the next bytes.
    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Boxed<'a, Result<()>>;

    /// All bytes were taken, and have these checksums. Returns the checksum that the other side says of them.
    fn finish<'a>(&'a mut self, checksums: &'a [Checksum]) -> Boxed<'a, Result<Option<Checksum>>>;

    /// Gives up what was begun.
    fn abandon(&mut self) -> Boxed<'_, ()> {
        Box::pin(ready(()))
    }
}

/// An open file that is written from where it stands: a pipe, a device, standard output.
pub struct Pipe {
    file: File,
    waits: Waits,
    turns: Arc<Turns>,
}

impl Pipe {
    /// An output that is such a file.
    pub fn new(file: File) -> Pipe {
        let waits = file.metadata().map_or(Waits::Blocks, |meta| {
            let device = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
            match meta.is_file() {
                true => Waits::Sometimes,
                false if meta.file_type().is_char_device() && device == NULL_DEVICE => Waits::Never,
                false => Waits::Blocks,
            }
        });
        let turns = turns_of(&file);
        Pipe { file, waits, turns }
    }
}

impl Output for Pipe {
    fn manner(&self) -> Manner {
        Manner { waits: self.waits, ..Manner::default() }
    }

    fn write_nowait(&mut self, bytes: &[u8]) -> Option<Result<()>> {
        let file = &mut self.file;
        let written = match self.waits {
            Waits::Never => file.write_all(bytes),
            Waits::Sometimes => self.turns.brief_now(BriefKind::Write)?.run(|| file.write_all(bytes)),
            Waits::Blocks => return None,
        };
        Some(written.map_err(|cause| not_written(&cause)))
    }

    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            let (file, turns) = (&mut self.file, &self.turns);
            let mut write = || file.write_all(bytes);
            let written = match self.waits {
                Waits::Blocks => turns.run(write).await,
                Waits::Sometimes => turns.brief(BriefKind::Write).await.run(write),
                // However long it takes it is the processor that it waits for, and no thread takes over from it.
                Waits::Never => write(),
            };
            written.map_err(|cause| not_written(&cause))
        })
    }

    fn finish<'a>(&'a mut self, _: &'a [Checksum]) -> Boxed<'a, Result<Option<Checksum>>> {
        let flushed = self.file.flush().map_err(|cause| not_written(&cause));
        Box::pin(ready(flushed.map(|()| None)))
    }
}

/// A file of a storage, visible when it is finished. The storage waits by itself.
pub struct Stored {
    /// `None` once it was committed or discarded.
    upload: Option<Box<dyn gridlane_store::Upload>>,
    completion: Completion,
    at: u64,
}

impl Stored {
    /// An output that is an upload of which nothing was written, and what it shall be in the end; checksums are added.
    pub fn new(upload: Box<dyn gridlane_store::Upload>, completion: Completion) -> Stored {
        Stored { upload: Some(upload), completion, at: 0 }
    }
}

impl Output for Stored {
    fn manner(&self) -> Manner {
        Manner { leaves_traces: true, ..Manner::default() }
    }

    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            let upload = self.upload.as_ref().ok_or_else(ended)?;
            upload.write_at(bytes, self.at).await?;
            self.at += bytes.len() as u64;
            Ok(())
        })
    }

    fn finish<'a>(&'a mut self, checksums: &'a [Checksum]) -> Boxed<'a, Result<Option<Checksum>>> {
        add_checksums(&mut self.completion, checksums);
        Box::pin(async move {
            let upload = self.upload.take().ok_or_else(ended)?;
            upload.commit(&self.completion).await?;
            Ok(None)
        })
    }

    fn abandon(&mut self) -> Boxed<'_, ()> {
        match self.upload.take() {
            Some(upload) => upload.discard(),
            None => Box::pin(ready(())),
        }
    }
}

/// Adds checksums of kinds that are not among those of a completion.
pub(crate) fn add_checksums(completion: &mut Completion, found: &[Checksum]) {
    for checksum in found {
        if !completion.checksums.iter().any(|known| known.kind() == checksum.kind()) {
            completion.checksums.push(checksum.clone());
        }
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Other, "a file was written to after its end")
}

/// Bytes written in order cannot be continued by a later copy; those in a file can.
fn not_written(cause: &io::Error) -> Error {
    let error = Error::local_io("cannot write to the target", cause);
    match error.is_no_space() {
        true => error.hint("free some space, then begin anew: what was written is not all of it"),
        false => error,
    }
}
