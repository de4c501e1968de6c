//! A lane over XRootD's protocol: a session of its own with the file open, since the answers to vectors of a session all come
//! on its first connection.
//!
//! One range is a `pgread`, with a checksum for each page, where the server has them and TLS does not protect the bytes; several
//! are one `readv`. A server that refuses a vector is sent its ranges one by one.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use gridlane_core::limits::{ROOT_VECTOR_ELEMENT_BYTES_MAX, ROOT_VECTOR_ELEMENTS_MAX};
use gridlane_core::{ByteRange, Error, ErrorKind, Fault};
use gridlane_peer::paths::ReadPath;
use gridlane_plan::{Loss, RequestId};
use gridlane_read::{Abilities, Event};

use super::batch::Batch;
use super::lane::{Command, Commands, Heard, Lane, Order, hear, meanwhile};
use crate::lane::End;
use crate::lane::root::{cut, open, reads};
use crate::pace::Pace;
use reads::{Came, Ended, Reads, Wanted};

/// An order of which reads are to be sent, or under way.
struct Asked {
    ranges: Vec<ByteRange>,
    /// Reads that have not ended.
    left: usize,
    is_vector: bool,
}

struct Reader<'a> {
    lane: &'a Lane,
    reads: Reads,
    pace: Pace,
    size_bytes: u64,
    asked: HashMap<RequestId, Asked>,
    waiting: VecDeque<(RequestId, Wanted)>,
    under_way_max: usize,
    takes_vectors: bool,
    abilities: Abilities,
}

/// Runs until the connection ends or is to be closed.
pub(super) async fn run(lane: &Lane, commands: &mut Commands, batch: &mut Batch) -> End {
    match read(lane, commands, batch).await {
        Ok(()) => End::Lost(Loss::Closed, None),
        Err(end) => end,
    }
}

async fn read(lane: &Lane, commands: &mut Commands, batch: &mut Batch) -> Result<(), End> {
    let mut kept = Vec::new();
    let url = lane.source.current_url();
    let opened = meanwhile(commands, &mut kept, open::opened(&lane.shared.client, &url)).await?;
    let file = open::led(&lane.source, &url, opened)?;
    let size_bytes = file.stat.as_ref().map_or(0, |stat| stat.size_bytes);
    lane.identify(&open::identity(&lane.source, &file), batch)?;
    lane.look_on_disk().await;
    let client = &lane.shared.client;
    let known = client.read_paths.of(&client.asked(&lane.source.current_url()));
    let has_no_vectors = known.refused_vectors_at.is_some_and(|at| at.elapsed() < REFUSAL_COUNTS);
    let checks_pages = lane.shared.options.checks_every_page && file.uses_pages();
    let takes_vectors = !has_no_vectors && !checks_pages;
    let (elements, element_bytes) = known.vector_limits.unwrap_or_default();
    let elements_max =
        elements.map_or(ROOT_VECTOR_ELEMENTS_MAX, |elements| elements.clamp(1, ROOT_VECTOR_ELEMENTS_MAX));
    let element_bytes_max = u64::from(ROOT_VECTOR_ELEMENT_BYTES_MAX);
    let abilities = Abilities {
        elements_max: if takes_vectors { elements_max } else { READS_OF_A_VECTOR },
        element_bytes_max: element_bytes.map_or(element_bytes_max, |bytes| bytes.clamp(1, element_bytes_max)),
        pipelines: true,
        warm: file.handshake_round_trips() == 0,
    };
    batch.push(Event::Ready { lane: lane.id, round_trip: file.round_trip(), abilities });
    let mut reader = Reader {
        lane,
        reads: Reads::new(file, None, None),
        pace: Pace::new(None),
        size_bytes,
        asked: HashMap::new(),
        waiting: VecDeque::new(),
        under_way_max: lane.source.requests_max().unwrap_or(READS_OF_A_VECTOR),
        takes_vectors,
        abilities,
    };
    if takes_vectors {
        reader.reads.ask(LIMITS, Wanted::Limits)?;
    }
    for command in kept {
        reader.obey(command, batch)?;
    }
    let end = reader.run(commands, batch).await;
    if matches!(end, Err(End::Lost(Loss::Failed, _))) {
        // Another lane may be led elsewhere.
        lane.source.set_resolved(None);
        reader.reads.lost();
    }
    end
}

/// The number of what is no order of the planner.
const LIMITS: u64 = u64::MAX;
/// Time for which a server that had no vectors is not asked for one again.
const REFUSAL_COUNTS: Duration = Duration::from_secs(600);
/// Ranges of a request where each is a read of its own.
const READS_OF_A_VECTOR: usize = 16;

impl Reader<'_> {
    async fn run(&mut self, commands: &mut Commands, batch: &mut Batch) -> Result<(), End> {
        loop {
            while self.reads.under_way() < self.under_way_max {
                let Some((request, wanted)) = self.waiting.pop_front() else { break };
                self.reads.ask(request.0, wanted)?;
            }
            self.reads.send().await?;
            let came = match hear(self.lane, commands, batch, Some(self.reads.wait(&self.pace))).await {
                Heard::Command(Some(Command::Close) | None) => return Ok(()),
                Heard::Command(Some(command)) => {
                    self.obey(command, batch)?;
                    continue;
                }
                Heard::Came(came) => came?,
            };
            let is_data = matches!(came, Came::Bytes(_));
            let ended = self.reads.take(came, &self.pace).await?;
            for span in self.reads.spans() {
                let bytes = self.reads.of(*span);
                let end = span.offset + bytes.len() as u64;
                if end > self.size_bytes {
                    return Err(self.dead("it sent more bytes than the file has"));
                }
                let request = RequestId(span.of);
                let left = self.asked.get(&request).map_or(0, |asked| asked.left_bytes(span.offset));
                batch.put(request, span.offset, bytes, left);
            }
            let settled = self.reads.settle()?;
            for ended in [ended, settled].into_iter().flatten() {
                self.end(ended, batch)?;
            }
            if is_data && batch.is_full() {
                self.lane.tell(batch);
                // As long as bytes are there already, nothing here ever waits: let others have their turn.
                tokio::task::yield_now().await;
            }
        }
    }

    fn obey(&mut self, command: Command, batch: &mut Batch) -> Result<(), End> {
        match command {
            Command::Request(order) => self.ask(order, batch),
            Command::TakeBack(request) => {
                let before = self.waiting.len();
                self.waiting.retain(|(of, _)| *of != request);
                let dropped = before - self.waiting.len();
                self.over(request, dropped, batch);
            }
            Command::Close => {}
        }
        Ok(())
    }

    /// Takes an order: the reads that it takes are sent when their turn comes.
    fn ask(&mut self, order: Order, batch: &mut Batch) {
        let Order { request, ranges } = order;
        let file = ByteRange::new(0, self.size_bytes);
        let mut ranges: Vec<ByteRange> = ranges.iter().map(|range| range.intersection(file)).collect();
        ranges.retain(|range| !range.is_empty());
        let is_vector = self.takes_vectors && ranges.len() > 1;
        let before = self.waiting.len();
        if is_vector {
            self.waiting.push_back((request, Wanted::Vector(ranges.clone())));
        } else {
            self.push_singles(request, &ranges);
        }
        let left = self.waiting.len() - before;
        self.asked.insert(request, Asked { ranges, left, is_vector });
        self.over(request, 0, batch);
    }

    fn push_singles(&mut self, request: RequestId, ranges: &[ByteRange]) {
        for range in ranges {
            let mut rest = *range;
            while !rest.is_empty() {
                let now = cut(rest);
                self.waiting.push_back((request, Wanted::Range(now)));
                rest = ByteRange::new(now.end(), rest.end());
            }
        }
    }

    /// So many reads of an order are over.
    fn over(&mut self, request: RequestId, reads: usize, batch: &mut Batch) {
        let Some(asked) = self.asked.get_mut(&request) else { return };
        asked.left = asked.left.saturating_sub(reads);
        if asked.left == 0 {
            self.asked.remove(&request);
            batch.push(Event::Done { request });
        }
    }

    fn end(&mut self, ended: Ended, batch: &mut Batch) -> Result<(), End> {
        match ended {
            Ended::Done(of) => {
                self.over(RequestId(of), 1, batch);
                Ok(())
            }
            Ended::Limits(elements, element_bytes) => {
                let path = ReadPath { vector_limits: Some((elements, element_bytes)), ..ReadPath::default() };
                self.learn(path);
                let abilities = &mut self.abilities;
                if let Some(elements) = elements.filter(|_| self.takes_vectors) {
                    abilities.elements_max = elements.clamp(1, ROOT_VECTOR_ELEMENTS_MAX);
                }
                if let Some(bytes) = element_bytes {
                    abilities.element_bytes_max = bytes.clamp(1, u64::from(ROOT_VECTOR_ELEMENT_BYTES_MAX));
                }
                batch.push(Event::Able { lane: self.lane.id, abilities: *abilities });
                Ok(())
            }
            // Reads end early where the file does.
            Ended::Short => {
                let message = "the file changed while it was read: it was longer when it was opened";
                let error = Error::new(ErrorKind::Precondition, message).fault(Fault::Peer);
                let error = error.hint("open it again").endpoint(&self.lane.source.url);
                Err(End::Dead { error, forget: true })
            }
            Ended::Refused(of, error) => {
                let request = RequestId(of);
                let Some(asked) = self.asked.get_mut(&request).filter(|asked| asked.is_vector) else {
                    return Err(self.reads.refused(&self.lane.shared.client, error));
                };
                let has_no_vectors = error.kind() == ErrorKind::Unsupported;
                // It has none of them: a limit of its own, or one range that it does not like.
                asked.is_vector = false;
                let ranges = asked.ranges.clone();
                let before = self.waiting.len();
                self.push_singles(request, &ranges);
                let left = self.waiting.len() - before;
                if let Some(asked) = self.asked.get_mut(&request) {
                    asked.left = left;
                }
                if has_no_vectors {
                    self.learn(ReadPath { refused_vectors_at: Some(Instant::now()), ..ReadPath::default() });
                }
                self.takes_vectors = false;
                self.abilities.elements_max = READS_OF_A_VECTOR;
                batch.push(Event::Able { lane: self.lane.id, abilities: self.abilities });
                Ok(())
            }
        }
    }

    /// Remembers something of the server, for other files.
    fn learn(&self, path: ReadPath) {
        let client = &self.lane.shared.client;
        client.read_paths.learn(&client.asked(&self.lane.source.current_url()), |known| known.update(path));
    }

    fn dead(&self, message: &str) -> End {
        let error = Error::new(ErrorKind::Protocol, message).endpoint(&self.lane.source.url);
        End::Dead { error, forget: true }
    }
}

impl Asked {
    /// Bytes of the range that `offset` is in, from there on.
    fn left_bytes(&self, offset: u64) -> u64 {
        let at = self.ranges.partition_point(|range| range.end() <= offset);
        self.ranges.get(at).map_or(0, |range| range.end().saturating_sub(offset))
    }
}
