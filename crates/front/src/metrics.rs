//! The server's counters and their page: OpenMetrics text 1.0.0.
//!
//! Counters and gauges are atomics that the connections change; everything else (memory, descriptors, tasks, space) is
//! looked up for each page. The page is documented in `docs/reference/metrics.md`, and a test compares.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use gridlane_dav::{Method, Status};

use crate::auth::metrics::AuthMetrics;
use crate::root::metrics::RootMetrics;
use crate::throttle::By;

/// The content type of the page (OpenMetrics 1.0.0).
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Methods that are counted by name; others are `other`: a client may invent any number of them. Not a
/// constant, of which each use would be a copy.
static METHODS: [Method; 13] = [
    Method::Get,
    Method::Head,
    Method::Put,
    Method::Delete,
    Method::Options,
    Method::Post,
    Method::Propfind,
    Method::Proppatch,
    Method::Mkcol,
    Method::Copy,
    Method::Move,
    Method::Lock,
    Method::Unlock,
];

/// Classes of statuses, from 1xx to 5xx.
const CLASSES: usize = 5;

/// Upper ends of the histogram's buckets, in seconds: from what is in the page cache to a file of 100 GB.
const DURATIONS_S: [f64; 10] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 300.0, 3600.0];

/// Places in which one thing is counted.
const PLACES: usize = 8;

/// Only grows. Each thread counts in a place of its own, as far as there are as many: cores that count in the same one
/// would wait for each other's caches, a dozen times for each request.
#[derive(Default)]
pub struct Counter([Place; PLACES]);

/// In a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Place(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        thread_local! {
            static MINE: usize = {
                static NEXT: AtomicUsize = AtomicUsize::new(0);
                NEXT.fetch_add(1, Ordering::Relaxed) % PLACES
            };
        }
        if count > 0 {
            self.0[MINE.with(|mine| *mine)].0.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// The sum.
    pub fn get(&self) -> u64 {
        self.0.iter().map(|place| place.0.load(Ordering::Relaxed)).sum()
    }
}

/// Gives each number once.
#[derive(Default)]
pub(crate) struct Numbers(AtomicU64);

impl Numbers {
    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// A number of things in a state that they enter and leave for each request: a [`Gauge`] that cores do not wait for,
/// and that may be a little behind.
#[derive(Default)]
pub(crate) struct Passing {
    came: Counter,
    left: Counter,
}

impl Passing {
    /// Counts one for as long as what is returned lives.
    pub(crate) fn one(&self) -> Passes<'_> {
        self.came.add(1);
        Passes(self)
    }

    pub(crate) fn get(&self) -> u64 {
        // In this order, so that what comes and leaves meanwhile is not counted as having left only.
        let left = self.left.get();
        self.came.get().saturating_sub(left)
    }
}

/// One of what is counted there.
pub(crate) struct Passes<'a>(&'a Passing);

impl Drop for Passes<'_> {
    fn drop(&mut self) {
        self.0.left.add(1);
    }
}

/// A number of things that grows and shrinks.
#[derive(Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Their number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One of what a gauge counts, for a task of its own.
pub struct CountedIn {
    metrics: Arc<Metrics>,
    gauge: fn(&Metrics) -> &Gauge,
}

impl Drop for CountedIn {
    fn drop(&mut self) {
        (self.gauge)(&self.metrics).0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counters since the start, and gauges of what is going on.
#[derive(Default)]
pub struct Metrics {
    /// Connections accepted from the kernel, refused ones included.
    pub accepted: Counter,
    /// Connections that have a task.
    pub open: Gauge,
    /// Those of them that are only told that there are too many.
    pub(crate) turned_away: Gauge,
    /// Those of them that wait for a request.
    pub(crate) idle: Passing,
    /// Connections refused because there were too many altogether.
    pub(crate) refused_server: Counter,
    /// Connections refused because their client, its user or its virtual organisation had too many.
    refused_party: [Counter; By::ALL.len()],
    /// Connections that ended before a protocol was known: silence, failed handshakes, proxies' headers.
    pub(crate) refused_unready: Counter,
    /// Requests that began: the source of their ids.
    pub(crate) began: Numbers,
    /// Requests answered, refused ones included.
    pub(crate) requests: Counter,
    /// Requests answered with 429 because of how many came before, by whose allowance was used up.
    throttled: [Counter; By::ALL.len()],
    /// Bytes of bodies received.
    pub bytes_in: Counter,
    /// Bytes of bodies sent.
    pub bytes_out: Counter,
    /// PUTs in progress.
    pub uploads: Gauge,
    /// Reloads that succeeded.
    pub(crate) reloads: Counter,
    /// Counters of authentication.
    pub(crate) auth: AuthMetrics,
    /// Counters of root:// alone.
    pub(crate) root: RootMetrics,
    by_kind: [[Counter; CLASSES]; METHODS.len() + 1],
    durations: [Counter; DURATIONS_S.len() + 1],
    duration_micros: Counter,
}

impl Metrics {
    /// Counts one for as long as what is returned lives.
    pub fn one(self: &Arc<Metrics>, gauge: fn(&Metrics) -> &Gauge) -> CountedIn {
        gauge(self).0.fetch_add(1, Ordering::Relaxed);
        CountedIn { metrics: Arc::clone(self), gauge }
    }

    /// Counts a connection that is one too many.
    pub(crate) fn refused(&self, by: By) {
        self.refused_party[by as usize].add(1);
    }

    /// Counts a request that was refused for an exhausted allowance.
    pub(crate) fn throttled(&self, by: By) {
        self.throttled[by as usize].add(1);
    }

    /// Counts bytes of files that went to a client over root://.
    pub(crate) fn sent_of_files(&self, bytes: u64) {
        self.bytes_out.add(bytes);
        self.root.sent(bytes);
    }

    /// Counts bytes of files that came from a client over root://.
    pub fn received_of_files(&self, bytes: u64) {
        self.bytes_in.add(bytes);
        self.root.received(bytes);
    }

    /// Counts an answered request; `None` is one whose method could not be read.
    pub(crate) fn answered(&self, method: Option<&Method>, status: Status, duration: Duration) {
        self.requests.add(1);
        let method = method.and_then(|method| METHODS.iter().position(|known| known == method));
        let class = usize::from(status.code() / 100).clamp(1, CLASSES) - 1;
        self.by_kind[method.unwrap_or(METHODS.len())][class].add(1);
        let seconds = duration.as_secs_f64();
        let bucket = DURATIONS_S.iter().position(|end| seconds <= *end).unwrap_or(DURATIONS_S.len());
        self.durations[bucket].add(1);
        self.duration_micros.add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    /// Adds the counters to a page.
    pub(crate) fn render(&self, page: &mut Page) {
        page.counter(
            "connections_accepted",
            "Connections accepted, refused ones included.",
            self.accepted.get(),
        );
        page.gauge("connections_open", "Connections open now.", self.open.get());
        page.gauge("connections_idle", "Open connections that wait for a request.", self.idle.get());
        page.family(
            "connections_refused",
            Kind::Counter,
            "Connections refused: too many at the server, of one client, user or virtual organisation, or without a request that could be read in time.",
        );
        for (reason, counter) in [
            ("server", &self.refused_server),
            (By::Client.word(), &self.refused_party[By::Client as usize]),
            (By::User.word(), &self.refused_party[By::User as usize]),
            (By::Vo.word(), &self.refused_party[By::Vo as usize]),
            ("unready", &self.refused_unready),
        ] {
            page.sample("_total", &[("reason", reason)], counter.get());
        }
        page.family("requests", Kind::Counter, "Requests answered, by method and class of status.");
        for (index, classes) in self.by_kind.iter().enumerate() {
            let method = METHODS.get(index).map_or("other", |method| method.name());
            for (class, counter) in ["1xx", "2xx", "3xx", "4xx", "5xx"].iter().zip(classes) {
                // Those that never were would be two thirds of the page.
                if counter.get() > 0 {
                    page.sample("_total", &[("method", method), ("status", class)], counter.get());
                }
            }
        }
        page.family(
            "request_duration_seconds",
            Kind::Histogram,
            "From a request's first byte to the end of its answer.",
        );
        let mut below = 0;
        for (index, counter) in self.durations.iter().enumerate() {
            below += counter.get();
            let end = DURATIONS_S.get(index).map_or("+Inf".to_owned(), |end| format!("{end:?}"));
            page.sample("_bucket", &[("le", &end)], below);
        }
        page.sample("_sum", &[], self.duration_micros.get() as f64 / 1e6);
        page.sample("_count", &[], below);
        page.family(
            "throttled_requests",
            Kind::Counter,
            "Requests refused because an allowance was used up, by the kind of its holder.",
        );
        for by in By::ALL {
            page.sample("_total", &[("by", by.word())], self.throttled[by as usize].get());
        }
        page.counter(
            "received_bytes",
            "Bytes of bodies received, and of files over root://.",
            self.bytes_in.get(),
        );
        page.counter("sent_bytes", "Bytes of bodies sent, and of files over root://.", self.bytes_out.get());
        page.gauge(
            "uploads_running",
            "PUT requests in progress, and files open for writing over root://.",
            self.uploads.get(),
        );
        page.counter("config_reloads", "Reloads of the configuration that succeeded.", self.reloads.get());
        self.auth.render(page);
        self.root.render(page);
    }
}

/// The kind of a family of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It grows and shrinks.
    Gauge,
    /// Counts by size.
    Histogram,
    /// A constant 1, with facts in its labels.
    Info,
}

/// Units that names of families end with.
const UNITS: [&str; 2] = ["bytes", "seconds"];

/// A page of metrics, in the order of the calls.
#[derive(Default)]
pub struct Page {
    text: String,
    family: &'static str,
}

impl Page {
    /// Begins a family, whose unit is what its name ends with.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        };
        self.family = name;
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "# TYPE gridlane_{name} {kind}");
        if let Some(unit) = UNITS.into_iter().find(|unit| name.rsplit('_').next() == Some(*unit)) {
            let _ = writeln!(self.text, "# UNIT gridlane_{name} {unit}");
        }
        let _ = writeln!(self.text, "# HELP gridlane_{name} {help}");
    }

    /// Adds a sample to the family.
    pub fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let _ = write!(self.text, "gridlane_{}{suffix}", self.family);
        for (index, (name, value)) in labels.iter().enumerate() {
            let open = if index == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{open}{name}=\"{}\"", escaped(value));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{close} {value}");
    }

    /// Adds a counter without labels.
    pub fn counter(&mut self, name: &'static str, help: &str, value: u64) {
        self.family(name, Kind::Counter, help);
        self.sample("_total", &[], value);
    }

    /// Adds a gauge without labels.
    pub fn gauge(&mut self, name: &'static str, help: &str, value: impl std::fmt::Display) {
        self.family(name, Kind::Gauge, help);
        self.sample("", &[], value);
    }

    /// The whole page.
    pub(crate) fn finish(mut self) -> String {
        self.text.push_str("# EOF\n");
        self.text
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Resources of the process, by the kernel; `None` where it does not tell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) descriptors: Option<u64>,
    pub(crate) threads: Option<u64>,
}

impl Process {
    pub(crate) fn now() -> Process {
        let count = |dir: &str| std::fs::read_dir(dir).ok().map(|entries| entries.count() as u64);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let resident_kib = status.lines().find_map(|line| {
            line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        });
        Process {
            resident_bytes: resident_kib.map(|kib| kib * 1024),
            // Less the one that reads the directory.
            descriptors: count("/proc/self/fd").map(|count| count.saturating_sub(1)),
            threads: count("/proc/self/task"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_open_metrics() {
        let metrics = Arc::new(Metrics::default());
        metrics.answered(Some(&Method::Get), Status::OK, Duration::from_millis(3));
        metrics.answered(Some(&Method::Get), Status::OK, Duration::from_secs(7200));
        metrics.answered(Some(&Method::Unknown("BREW".into())), Status::NOT_IMPLEMENTED, Duration::ZERO);
        metrics.answered(None, Status::BAD_REQUEST, Duration::ZERO);
        let counted = metrics.one(|metrics| &metrics.open);
        let mut page = Page::default();
        metrics.render(&mut page);
        page.family("x_bytes", Kind::Gauge, "X.");
        page.sample("", &[("export", "/a\"\\b")], 1);
        let text = page.finish();
        for line in [
            "# TYPE gridlane_requests counter",
            "gridlane_requests_total{method=\"GET\",status=\"2xx\"} 2",
            "gridlane_requests_total{method=\"other\",status=\"5xx\"} 1",
            "gridlane_requests_total{method=\"other\",status=\"4xx\"} 1",
            "gridlane_request_duration_seconds_bucket{le=\"0.001\"} 2",
            "gridlane_request_duration_seconds_bucket{le=\"0.005\"} 3",
            "gridlane_request_duration_seconds_bucket{le=\"3600.0\"} 3",
            "gridlane_request_duration_seconds_bucket{le=\"+Inf\"} 4",
            "gridlane_request_duration_seconds_count 4",
            "gridlane_request_duration_seconds_sum 7200.003",
            "# UNIT gridlane_x_bytes bytes",
            "gridlane_x_bytes{export=\"/a\\\"\\\\b\"} 1",
            "gridlane_connections_open 1",
        ] {
            assert!(text.lines().any(|other| other == line), "no {line} in\n{text}");
        }
        assert!(text.ends_with("\n# EOF\n"));
        drop(counted);
        assert_eq!(metrics.open.get(), 0);
    }

    #[test]
    fn a_counter_is_the_sum_of_its_threads() {
        let (counter, passing) = (Counter::default(), Passing::default());
        let here = passing.one();
        std::thread::scope(|scope| {
            for _ in 0..2 * PLACES {
                scope.spawn(|| {
                    (0..1000).for_each(|_| counter.add(2));
                    drop(passing.one());
                });
            }
        });
        assert_eq!((counter.get(), passing.get()), (2 * PLACES as u64 * 2000, 1));
        drop(here);
        assert_eq!(passing.get(), 0);
    }

    #[test]
    fn the_kernel_tells_the_resources_of_the_process() {
        let process = Process::now();
        assert!(process.resident_bytes.is_some_and(|bytes| bytes > 100_000));
        assert!(process.descriptors.is_some_and(|count| count >= 3));
        assert!(process.threads.is_some_and(|count| count >= 1));
    }
}
