//! What is told of a copy that servers make: the engine's events and its report, from what the active server says.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use gridlane_core::{Checksum, ChecksumKind, Error, Hasher, Result, Url};
use gridlane_engine::events::{SourceReport, SourceSnapshot};
use gridlane_engine::{Basis, Event, Limit, Outcome, Report, Snapshot, State};

use super::terms::{Detour, FileObserver, Progress};

/// Rates are those over so long: active servers tell of themselves every five seconds.
const RATE_OVER: Duration = Duration::from_secs(15);

/// Tells an observer of a copy.
pub(super) struct Telling<'a> {
    observer: &'a mut dyn FileObserver,
    sources: Vec<String>,
    /// Of each source, whether the active server was told of it.
    used: Vec<bool>,
    begun: Instant,
    has_begun: bool,
    size_bytes: Option<u64>,
    done_bytes: u64,
    /// When how many bytes were there.
    marks: VecDeque<(Instant, u64)>,
    connections: usize,
    is_verifying: bool,
}

/// The outcome of comparing both ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Compared {
    /// Whose word the target was compared with.
    pub(super) basis: Option<Basis>,
    /// The target's checksum.
    pub(super) checksum: Option<Checksum>,
    /// The kind that was asked for, if no source states it.
    pub(super) unstated: Option<ChecksumKind>,
}

impl Compared {
    /// True if the target has the checksum of no bytes.
    pub(super) fn is_of_nothing(&self) -> bool {
        self.checksum.as_ref().is_some_and(|checksum| Hasher::new(checksum.kind()).finish() == *checksum)
    }
}

impl<'a> Telling<'a> {
    pub(super) fn new(observer: &'a mut dyn FileObserver, sources: &[Url]) -> Telling<'a> {
        Telling {
            observer,
            sources: sources.iter().map(ToString::to_string).collect(),
            used: vec![true; sources.len()],
            begun: Instant::now(),
            has_begun: false,
            size_bytes: None,
            done_bytes: 0,
            marks: VecDeque::new(),
            connections: 0,
            is_verifying: false,
        }
    }

    /// The size of the file, as far as it is known.
    pub(super) fn size(&mut self, size_bytes: Option<u64>) {
        self.size_bytes = size_bytes.or(self.size_bytes);
    }

    /// The copy is asked for with these sources.
    pub(super) fn uses(&mut self, sources: &[&Url]) {
        let used: Vec<String> = sources.iter().map(ToString::to_string).collect();
        self.used = self.sources.iter().map(|source| used.contains(source)).collect();
    }

    /// A server makes the copy now.
    pub(super) fn begins(&mut self) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.observer.event(&Event::Plan { resumed_bytes: 0, dropped: None });
            if let Some(size_bytes) = self.size_bytes {
                self.observer.event(&Event::Started { size_bytes });
            }
        }
        (self.done_bytes, self.is_verifying) = (0, false);
        self.marks = [(Instant::now(), 0)].into();
        self.tick();
    }

    /// The active server has told how far it is, over so many connections if it says that.
    pub(super) fn reached(&mut self, progress: Progress, connections: usize) {
        self.size(progress.size_bytes);
        self.done_bytes = progress.done_bytes;
        self.connections = connections;
        let now = Instant::now();
        self.marks.push_back((now, progress.done_bytes));
        while self.marks.len() > 2 && now.duration_since(self.marks[1].0) > RATE_OVER {
            self.marks.pop_front();
        }
        self.tick();
    }

    /// All bytes are there, and both ends are compared.
    pub(super) fn verifies(&mut self, done_bytes: u64) {
        (self.done_bytes, self.is_verifying) = (done_bytes, true);
        self.tick();
    }

    /// The comparison is over.
    pub(super) fn compared(&mut self, compared: &Compared) {
        if let Some(checksum) = &compared.checksum {
            self.observer.event(&Event::Verified { checksum, basis: compared.basis });
        }
    }

    /// The copy goes another way.
    pub(super) fn detour(&mut self, detour: Detour, why: &Error) {
        self.observer.detour(detour, why);
    }

    /// Tells how far it is.
    pub(super) fn tick(&mut self) {
        let snapshot = self.snapshot();
        self.observer.event(&Event::Progress(&snapshot));
    }

    /// Between two words of the server the rate is what it was, until the next one is late.
    fn rate_bytes_per_s(&self) -> f64 {
        let (Some((from, less)), Some((to, more))) = (self.marks.front(), self.marks.back()) else {
            return 0.0;
        };
        let pauses = self.marks.iter().zip(self.marks.iter().skip(1)).map(|(one, next)| next.0 - one.0);
        let usual = pauses.max().unwrap_or_default();
        let span = to.duration_since(*from) + to.elapsed().saturating_sub(usual);
        more.saturating_sub(*less) as f64 / span.as_secs_f64().max(1e-3)
    }

    fn snapshot(&self) -> Snapshot {
        let rate = self.rate_bytes_per_s();
        let left = self.size_bytes.map(|size| size.saturating_sub(self.done_bytes));
        // Of several sources nobody tells which bytes came from where.
        let is_one = self.used.iter().filter(|used| **used).count() == 1;
        let sources = self.used.iter().map(|used| {
            let is_only = is_one && *used;
            SourceSnapshot {
                state: if *used { State::Active } else { State::Spare },
                rate_bytes_per_s: if is_only { rate } else { 0.0 },
                round_trip: None,
                peer: None,
                bytes: if is_only { self.done_bytes } else { 0 },
                lanes: if is_only { self.connections } else { 0 },
            }
        });
        Snapshot {
            size_bytes: self.size_bytes,
            done_bytes: self.done_bytes,
            rate_bytes_per_s: rate,
            eta_s: left.filter(|_| rate > 0.0).map(|left| left as f64 / rate),
            elapsed_s: self.begun.elapsed().as_secs_f64(),
            verifying: self.is_verifying,
            sources: sources.collect(),
        }
    }

    /// The end of the copy.
    pub(super) fn end(self, result: Result<Compared>) -> Outcome {
        let (compared, result) = match result {
            Ok(compared) => (compared, Ok(())),
            Err(error) => (Compared::default(), Err(error)),
        };
        let is_done = result.is_ok();
        let snapshot = self.snapshot();
        let sources = self.sources.iter().zip(&snapshot.sources).map(|(url, source)| SourceReport {
            url: url.clone(),
            state: if is_done { source.state } else { State::Spare },
            bytes: source.bytes,
            received_bytes: source.bytes,
            rate_best_bytes_per_s: None,
            round_trip: None,
            connections: source.lanes as u32,
            handshakes: 0,
            wrong_pieces: 0,
            error: None,
        });
        let report = Report {
            size_bytes: self.size_bytes,
            done_bytes: self.done_bytes,
            resumed_bytes: 0,
            fetched_bytes: self.done_bytes,
            extra_bytes: 0,
            seconds: snapshot.elapsed_s,
            bound_s: None,
            bound_from: "unknown: servers made the copy".into(),
            limited_by: if self.has_begun { Limit::Servers } else { Limit::NotBegun },
            verified: compared.basis,
            verified_with: compared.basis.and(compared.checksum.as_ref()).map(Checksum::kind),
            checksum: compared.checksum,
            unstated: compared.unstated,
            modified_accepted: None,
            sources: sources.collect(),
        };
        Outcome { report, result, metalink: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_engine::Observer;

    struct Deaf;

    impl Observer for Deaf {
        fn event(&mut self, _: &Event<'_>) {}
    }

    impl FileObserver for Deaf {
        fn detour(&mut self, _: Detour, _: &Error) {}
    }

    fn urls() -> [Url; 2] {
        ["http://a.example/f", "http://b.example/f"].map(|text| Url::parse_absolute(text).unwrap())
    }

    #[test]
    fn a_rate_holds_until_the_next_word_is_late() {
        let mut deaf = Deaf;
        let mut telling = Telling::new(&mut deaf, &urls()[..1]);
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        telling.marks = [(ago(10), 0), (ago(5), 500)].into();
        // It would be half as much.
        assert!((telling.rate_bytes_per_s() - 100.0).abs() < 10.0, "{}", telling.rate_bytes_per_s());
        telling.marks = [(ago(20), 0), (ago(15), 500)].into();
        assert!((telling.rate_bytes_per_s() - 500.0 / 15.0).abs() < 1.0, "{}", telling.rate_bytes_per_s());
    }

    #[test]
    fn sources_that_were_not_named_to_the_server_are_spare() {
        let (mut deaf, urls) = (Deaf, urls());
        let mut telling = Telling::new(&mut deaf, &urls);
        telling.uses(&[&urls[1]]);
        telling.reached(Progress { done_bytes: 7, size_bytes: None }, 1);
        let report = telling.end(Ok(Compared::default())).report;
        let told: Vec<_> = report.sources.iter().map(|source| (source.state, source.bytes)).collect();
        assert_eq!(told, [(State::Spare, 0), (State::Active, 7)]);
    }
}
