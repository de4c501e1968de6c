//! A lane over a file of this machine, or over an open file of a storage: reads in place of requests.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::Arc;

use gridlane_core::limits::IO_BYTES;
use gridlane_core::{ByteRange, Error, ErrorKind, Fault, Result, Url};
use gridlane_peer::http::is_directory;
use gridlane_plan::Loss;
use gridlane_share::Turns;
use gridlane_share::turns::BriefKind;
use gridlane_store::{Object, turns_of, turns_of_names};
use gridlane_sys::ReusedBuf;
use gridlane_sys::file::CacheProbe;
use tokio::time::Instant;

use super::tally::{DELAY_MAX, Tally};
use super::version::difference;
use super::{Command, Commands, End, Lane};
use crate::notice::Notice;
use crate::source::{Identity, Source};

/// A file that is read.
pub(crate) enum Opened {
    /// Of this machine.
    File { file: File, probe: CacheProbe, turns: Arc<Turns> },
    /// Of a storage, which waits for its device by itself.
    Object(Arc<dyn Object>),
}

impl Opened {
    /// Opens what a source names, or takes what it was given; says which version it is.
    pub(crate) async fn of(source: &Source) -> Result<(Opened, Identity)> {
        if let Some(stored) = &source.stored {
            return Ok((Opened::Object(Arc::clone(&stored.object)), identity_of(stored.object.as_ref())));
        }
        let (file, identity) = open(&source.url).await?;
        let (probe, turns) = (CacheProbe::of(&file), turns_of(&file));
        Ok((Opened::File { file, probe, turns }, identity))
    }

    /// Reads at `offset`; 0 is the end. What is in memory is copied on this thread: handing over to one that may wait is dearer.
    pub(crate) async fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Opened::File { file, probe, turns } => match probe.read_at(file, into, offset)? {
                Some(count) => Ok(count),
                None => turns.run(|| file.read_at(into, offset)).await,
            },
            Opened::Object(object) => match object.read_at_nowait(into, offset)? {
                Some(count) => Ok(count),
                None => object.read_at(into, offset).await,
            },
        }
    }

    /// What the file is now, if it is not what it was.
    pub(crate) async fn changed(&self, before: &Identity) -> Option<Identity> {
        match self {
            Opened::File { file, turns, .. } => {
                let now = turns.brief(BriefKind::Other).await.run(|| identity(file));
                now.ok().filter(|now| !now.agrees_with(before))
            }
            Opened::Object(object) => {
                let is_unchanged = match object.is_unchanged_nowait() {
                    Some(is_unchanged) => is_unchanged,
                    None => object.is_unchanged().await,
                };
                (!is_unchanged).then(|| Identity { validator: Some("changed".to_owned()), ..before.clone() })
            }
        }
    }
}

pub(super) async fn run(lane: &Lane, commands: &mut Commands) -> End {
    let mut tally = Tally::default();
    let outcome = read(lane, commands, &mut tally).await;
    tally.tell(lane);
    match outcome {
        Ok(()) => End::Lost(Loss::Closed, None),
        Err(end) => end,
    }
}

async fn read(lane: &Lane, commands: &mut Commands, tally: &mut Tally) -> std::result::Result<(), End> {
    let name = lane.source.url.to_string();
    let dead = |error: Error| End::Dead { error: error.endpoint(&name), forget: false };
    let (file, opened) = Opened::of(&lane.source).await.map_err(dead)?;
    lane.identify(&opened)?;
    let size_bytes = opened.size_bytes.unwrap_or(0);
    lane.tell(Notice::Dialled { lane: lane.id, round_trip: None, handshake_round_trips: 0 });
    lane.tell(Notice::Pipelines { lane: lane.id });
    let mut asked: VecDeque<ByteRange> = VecDeque::new();
    let mut buf = ReusedBuf::new(IO_BYTES);
    let mut told = Instant::now();
    loop {
        let command = match asked.is_empty() {
            true => commands.recv().await.map_or(Some(Command::Close), Some),
            false => commands.try_recv().ok(),
        };
        match command {
            Some(Command::Request(range)) => {
                asked.push_back(range.intersection(ByteRange::new(0, size_bytes)));
                continue;
            }
            Some(Command::Close) => return Ok(()),
            Some(Command::Ask) | None => {}
        }
        let Some(range) = asked.front_mut() else { continue };
        if !range.is_empty() {
            lane.pace.ready().await;
            let len = range.len().min(lane.pace.step_bytes(buf.len()) as u64) as usize;
            let count = match file.read_at(&mut buf[..len], range.start()).await {
                Ok(0) => return Err(lane.changed("it was longer when it was opened")),
                Ok(count) => count,
                Err(cause) => return Err(dead(Error::local_io("cannot read", &cause))),
            };
            lane.pace.spend(count);
            let written = lane.target.write(lane.id, lane.source.number, &buf[..count], range.start()).await;
            let fresh_bytes = written.map_err(End::Local)?;
            *range = range.split_at(range.start() + count as u64).1;
            if tally.is_empty() {
                told = Instant::now();
            }
            tally.add(lane, count as u64, fresh_bytes);
            if told.elapsed() >= DELAY_MAX {
                tally.tell(lane);
            }
        }
        if range.is_empty() {
            tally.tell(lane);
            asked.pop_front();
            // Between requests is where a change shows: the size and time it had when it was opened.
            if let Some(now) = file.changed(&opened).await {
                return Err(lane.changed(&difference(&opened, &now)));
            }
            lane.tell(Notice::RequestDone { lane: lane.id });
        }
        if tally.is_empty() {
            // Nothing here ever waits while bytes are in memory: let the run have its turn.
            tokio::task::yield_now().await;
        }
    }
}

/// Opens a source that is a regular file, and says which version it is.
pub(crate) async fn open(url: &Url) -> Result<(File, Identity)> {
    turns_of_names().brief(BriefKind::Other).await.run(|| open_here(url))
}

fn open_here(url: &Url) -> Result<(File, Identity)> {
    let path = url.to_path().ok_or_else(|| {
        Error::new(ErrorKind::Usage, "it does not name a file of this machine").fault(Fault::Caller)
    })?;
    // Without waiting: a pipe without a writer would hold the thread for ever.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(&path);
    let file = file.map_err(|cause| Error::local_io("cannot open it", &cause))?;
    let meta = file.metadata().map_err(|cause| Error::local_io("cannot look at it", &cause))?;
    match meta.is_file() {
        true => identity(&file).map(|identity| (file, identity)),
        false if meta.is_dir() => Err(is_directory(url)),
        false => Err(Error::new(ErrorKind::Usage, "it is not a regular file").fault(Fault::Caller)),
    }
}

/// Which version of a file of a storage this is.
pub(crate) fn identity_of(object: &dyn Object) -> Identity {
    let metadata = object.metadata();
    let validator = Some(format!("stored:{}", metadata.tag));
    Identity { validator, ..Identity::of_size(metadata.size_bytes) }
}

/// Which version of a file this is.
fn identity(file: &File) -> Result<Identity> {
    let meta = file.metadata().map_err(|cause| Error::local_io("cannot look at it", &cause))?;
    let validator = format!("file:{}:{}:{}.{}", meta.dev(), meta.ino(), meta.mtime(), meta.mtime_nsec());
    Ok(Identity { validator: Some(validator), ..Identity::of_size(meta.len()) })
}
