//! Recorded reads of a file, replayed, and the price of each way of reading.

mod prices;
mod trace;

use std::time::{Duration, Instant};

use gridlane_core::{Hasher, Result};
use gridlane_dav::RangeList;
use gridlane_engine::reading::RemoteFile;

pub use prices::{price_s, prices};
pub use trace::Trace;

/// Reads ranges as people write them: `0-99,-1000`, as in a `Range` header of HTTP without its unit.
pub fn parse_ranges(text: &str) -> std::result::Result<RangeList, String> {
    RangeList::parse(&format!("bytes={text}")).ok_or_else(|| {
        format!("{text:?} is no range: write FIRST-LAST, FIRST- or -COUNT, several with commas between them")
    })
}

/// Makes the calls of a trace, each when the one before is complete, as a program does that has one thread; returns the time
/// from the first to the last. `hasher` takes all bytes in the order of the ranges.
pub async fn replay(file: &RemoteFile, trace: &Trace, mut hasher: Option<&mut Hasher>) -> Result<Duration> {
    let begun = Instant::now();
    for call in trace.calls() {
        let mut reading = file.read(call, None);
        match &mut hasher {
            None => while !reading.next().await?.is_empty() {},
            Some(hasher) => reading.all().await?.iter().for_each(|bytes| hasher.update(bytes)),
        }
    }
    Ok(begun.elapsed())
}
