//! A lane over a file of this machine.

use gridlane_core::{Error, ErrorKind, Fault};
use gridlane_plan::{Loss, SourceId};
use gridlane_read::{Abilities, Event};
use gridlane_sys::ReusedBuf;

use super::batch::Batch;
use super::lane::{Command, Commands, Heard, Lane, Order, hear};
use crate::lane::End;
use crate::lane::file::Opened;
use gridlane_core::limits::IO_BYTES;

/// Ranges of one request.
const RANGES_MAX: usize = 1024;

/// Runs until the file is closed.
pub(super) async fn run(lane: &Lane, commands: &mut Commands, batch: &mut Batch) -> End {
    match read(lane, commands, batch).await {
        Ok(()) => End::Lost(Loss::Closed, None),
        Err(error) => End::Dead { error: error.endpoint(&lane.source.url), forget: true },
    }
}

async fn read(lane: &Lane, commands: &mut Commands, batch: &mut Batch) -> gridlane_core::Result<()> {
    let (file, identity) = Opened::of(&lane.source).await?;
    let size_bytes = identity.size_bytes.unwrap_or(0);
    batch.push(Event::Size { source: SourceId(lane.source.number), size_bytes });
    let abilities =
        Abilities { elements_max: RANGES_MAX, element_bytes_max: u64::MAX, pipelines: true, warm: true };
    batch.push(Event::Ready { lane: lane.id, round_trip: None, abilities });
    let mut buf = ReusedBuf::new(IO_BYTES);
    let nothing = || None::<std::future::Pending<()>>;
    loop {
        let order = match hear(lane, commands, batch, nothing()).await {
            Heard::Command(Some(Command::Request(order))) => order,
            Heard::Command(Some(Command::TakeBack(_))) => continue,
            Heard::Command(Some(Command::Close) | None) | Heard::Came(()) => return Ok(()),
        };
        let Order { request, ranges } = order;
        for range in ranges {
            let mut at = range.start();
            let end = range.end().min(size_bytes);
            while at < end {
                let room = usize::try_from(end - at).unwrap_or(usize::MAX).min(buf.len());
                let count = match file.read_at(&mut buf[..room], at).await {
                    Ok(0) => return Err(changed("it was longer when it was opened")),
                    Ok(count) => count,
                    Err(cause) => return Err(Error::local_io("cannot read", &cause)),
                };
                batch.put(request, at, &buf[..count], end - at);
                at += count as u64;
                if batch.is_full() {
                    lane.tell(batch);
                    tokio::task::yield_now().await;
                }
            }
        }
        // Between requests is where a change shows.
        if let Some(now) = file.changed(&identity).await {
            return Err(changed(&crate::lane::difference(&identity, &now)));
        }
        batch.push(Event::Done { request });
    }
}

fn changed(what: &str) -> Error {
    let message = format!("the file changed while it was read: {what}");
    Error::new(ErrorKind::Precondition, message).fault(Fault::Local).hint("open it again")
}
