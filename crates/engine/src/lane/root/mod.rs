//! A lane over XRootD's protocol: a session with the file open, and reads on it, many under way at once. Where another
//! lane to the same server has one already, this one joins it (see `peer::root::SharedSession`), or if that fails
//! opens its own.
//!
//! What the plan asks for is cut into reads of a few megabytes. Their answers may overtake each other; the plan
//! counts bytes as those of its oldest request, so what is early is told of when its turn comes.
//!
//! Pages are compared with their checksums while they are in the cache, and moved together in the buffer that they came
//! into: one call reads many of them. A wrong page is asked for again, alone and once ([`Reads`]).

pub(crate) mod open;
pub(crate) mod reads;

use std::collections::VecDeque;

use gridlane_core::limits::ROOT_READ_BYTES_MAX;
use gridlane_core::{ByteRange, Error, ErrorKind};
use gridlane_plan::Loss;

use super::tally::{DELAY_MAX, Tally};
use super::{Command, Commands, End, Lane};
use crate::notice::Notice;
use reads::{Ended, Reads, Span, Step, Wanted};

/// Reads under way on a connection: enough for a long path, and so few that a server need not set some aside.
const READS_AHEAD_MAX: usize = 16;

/// A range that the plan has asked for.
struct Requested {
    range: ByteRange,
    /// Where its next read begins.
    next: u64,
    /// Bytes that are not there yet.
    missing: u64,
    /// Bytes that came while an older request was under way, and how many of them were new.
    early: (u64, u64),
}

struct Reader<'a> {
    lane: &'a Lane,
    reads: Reads,
    size_bytes: u64,
    asked: VecDeque<Requested>,
    /// Requests of the plan that are over.
    over: u64,
    tally: Tally,
}

pub(super) async fn run(lane: &Lane, commands: &mut Commands) -> End {
    let mut early = VecDeque::new();
    let reads = match open::open(lane, commands, &mut early).await {
        Ok(reads) => reads,
        Err(end) => return end,
    };
    let size_bytes = reads.file.stat.as_ref().map_or(0, |stat| stat.size_bytes);
    let (asked, over, tally) = Default::default();
    let mut reader = Reader { lane, reads, size_bytes, asked, over, tally };
    early.into_iter().for_each(|range| reader.ask(range));
    let end = match reader.run(commands).await {
        Ok(()) => End::Lost(Loss::Closed, None),
        Err(end) => end,
    };
    reader.tally.tell(lane);
    if matches!(end, End::Lost(Loss::Failed, _)) {
        // Another lane may be led elsewhere.
        lane.source.set_resolved(None);
        reader.reads.lost();
    }
    let is_closed = matches!(end, End::Lost(Loss::Closed, _));
    if let Some(shared) = reader.reads.bound()
        && (!is_closed || reader.reads.is_unheard())
    {
        // The cause is unknown; the next lane has a session of its own.
        lane.source.refuse(shared);
    }
    if is_closed {
        reader.reads.leave();
    }
    end
}

impl Reader<'_> {
    async fn run(&mut self, commands: &mut Commands) -> Step<()> {
        let timer = tokio::time::sleep(DELAY_MAX);
        tokio::pin!(timer);
        loop {
            self.send().await?;
            let came = tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(Command::Request(range)) => {
                        self.ask(range);
                        continue;
                    }
                    Some(Command::Ask) => continue,
                    Some(Command::Close) | None => return Ok(()),
                },
                () = &mut timer, if !self.tally.is_empty() => {
                    self.tally.tell(self.lane);
                    continue;
                }
                came = self.reads.wait(&self.lane.pace) => came?,
            };
            let is_data = matches!(came, reads::Came::Bytes(_));
            if is_data && self.tally.is_empty() {
                timer.as_mut().reset(tokio::time::Instant::now() + DELAY_MAX);
            }
            let ended = self.reads.take(came, &self.lane.pace).await?;
            for at in 0..self.reads.spans().len() {
                self.write(self.reads.spans()[at]).await?;
            }
            if is_data && self.tally.is_empty() {
                // As long as bytes are there already, nothing here ever waits: let the run have its turn.
                tokio::task::yield_now().await;
            }
            let settled = self.reads.settle()?;
            for ended in [ended, settled].into_iter().flatten() {
                self.end(ended)?;
            }
        }
    }

    /// Takes an order.
    fn ask(&mut self, range: ByteRange) {
        let range = range.intersection(ByteRange::new(0, self.size_bytes));
        self.asked.push_back(Requested { range, next: range.start(), missing: range.len(), early: (0, 0) });
        // Nothing to wait for.
        self.settle();
    }

    /// Sends as many reads as may be under way.
    async fn send(&mut self) -> Step<()> {
        let mut at = 0;
        while self.reads.under_way() < READS_AHEAD_MAX {
            let Some(asked) = self.asked.get_mut(at) else { break };
            if asked.next >= asked.range.end() {
                at += 1;
                continue;
            }
            let range = cut(ByteRange::new(asked.next, asked.range.end()));
            asked.next = range.end();
            self.reads.ask(self.over + at as u64, Wanted::Range(range))?;
        }
        self.reads.send().await
    }

    /// Writes bytes where they belong.
    async fn write(&mut self, span: Span) -> Step<()> {
        let (lane, bytes) = (self.lane, self.reads.of(span));
        let count = bytes.len() as u64;
        if lane.target.size_bytes().is_some_and(|size_bytes| span.offset + count > size_bytes) {
            return Err(dead(lane, Error::new(ErrorKind::Protocol, "it sent more bytes than the file has")));
        }
        let written = lane.target.write(lane.id, lane.source.number, bytes, span.offset).await;
        let fresh_bytes = written.map_err(End::Local)?;
        let asked = span.of.checked_sub(self.over).and_then(|at| self.asked.get_mut(at as usize));
        let Some(asked) = asked else { return Ok(()) };
        asked.missing = asked.missing.saturating_sub(count);
        match span.of == self.over {
            true => self.tally.add(lane, count, fresh_bytes),
            false => asked.early = (asked.early.0 + count, asked.early.1 + fresh_bytes),
        }
        Ok(())
    }

    /// A read has ended.
    fn end(&mut self, ended: Ended) -> Step<()> {
        match ended {
            Ended::Done(_) => {
                self.settle();
                if let Some(path) = self.reads.file.path() {
                    self.lane.tell_path(&path);
                }
                Ok(())
            }
            // Reads end early where the file does.
            Ended::Short => Err(self.lane.changed("it was longer when it was opened")),
            Ended::Refused(_, error) => Err(self.reads.refused(&self.lane.client, error)),
            Ended::Limits(..) => Ok(()),
        }
    }

    /// Tells of requests that are over, oldest first.
    fn settle(&mut self) {
        while let Some(asked) = self.asked.front_mut() {
            let (bytes, fresh_bytes) = std::mem::take(&mut asked.early);
            if bytes > 0 {
                self.tally.add(self.lane, bytes, fresh_bytes);
            }
            if asked.missing > 0 {
                return;
            }
            self.tally.tell(self.lane);
            self.asked.pop_front();
            self.over += 1;
            self.lane.tell(Notice::RequestDone { lane: self.lane.id });
        }
    }
}

/// The first of the reads that a range is cut into: cut where files are cut, so that a page is never asked for in two halves.
pub(crate) fn cut(range: ByteRange) -> ByteRange {
    range.split_at((range.start() / ROOT_READ_BYTES_MAX + 1) * ROOT_READ_BYTES_MAX).0
}

/// The bytes that the source sent do not count either.
fn dead(lane: &Lane, error: Error) -> End {
    End::Dead { error: error.endpoint(&lane.source.url), forget: true }
}
