//! Limits of remote reading.

use std::time::Duration;

/// Bytes of a page of a file that is read remotely: what is forgotten at once. What is asked for does not depend on it.
pub const READ_PAGE_BYTES: u64 = 64 * 1024;
/// Bytes in memory of one such file unless the application says otherwise: two segments of the lazy policy.
pub const READ_MEMORY_BYTES: u64 = 256 * 1024 * 1024;
/// Memory that a page costs beside its bytes: entries of three tables.
pub const READ_PAGE_OVERHEAD_BYTES: u64 = 160;
/// Memory that each separate part of a page costs beside its bytes.
pub const READ_EXTENT_OVERHEAD_BYTES: u64 = 96;
/// Ranges of one call. A tenth of 1 GB in events of 1 kB has 100,000.
pub const READ_RANGES_MAX: usize = 1 << 20;
/// Ranges of a recorded trace.
pub const TRACE_RANGES_MAX: usize = 1 << 22;
/// Bytes of its text: forty for each of a million ranges.
pub const TRACE_BYTES_MAX: u64 = 160 * 1024 * 1024;
/// Ranges of one file that wait for bytes: about 150 bytes each.
pub const READ_WAITING_MAX: usize = 2 << 20;
/// Calls of one file that wait, deadlines included.
pub const READ_CALLS_MAX: usize = 65_536;
/// Connections for one file: they share the time of slow start. A round trip of 300 ms at 10 Gb/s would take 125 of them with
/// windows of 3 MB; sixteen is what a plan of a copy has for one source.
pub const READ_LANES_MAX: usize = 16;
/// Connections for one file unless the application says otherwise.
pub const READ_LANES: usize = 8;
/// Time without anything to do after which a file keeps one connection: Apache closes idle ones after as long. The next large
/// read costs some round trips more.
pub const READ_IDLE: Duration = Duration::from_secs(5);
/// Connections of all files of a process from which on another file is opened with one, and has more when it needs them: a
/// process may have 1,024 descriptors. Below it a file is opened with all of its connections at once.
pub const READ_LANES_EAGER_MAX: usize = 256;
/// Replicas that are used at the same time.
pub const READ_SOURCES_MAX: usize = 64;
/// Requests of one lane that are not answered in full.
pub const READ_REQUESTS_PER_LANE_MAX: usize = 16;
/// A request has so many bytes at most, or a quarter of what the path holds where that is more.
pub const READ_REQUEST_BYTES: u64 = 1024 * 1024;
/// Bytes of a request at most, however long the path.
pub const READ_REQUEST_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// A range is not divided among connections into parts that are smaller.
pub const READ_SPLIT_BYTES_MIN: u64 = 16 * 1024;
/// Bytes that a cold connection is asked for at first: four times what its sender may have under way, so that it never waits.
pub const READ_FIRST_BYTES: u64 = 64 * 1024;
/// Bytes of the head of a file that come with its opening: HDF5 and ROOT have what leads to everything else there.
pub const READ_HEAD_BYTES: u64 = 64 * 1024;
/// Bytes of the tail of a file that come with its opening: Parquet's footer, and the header of ROOT's tree, of 252 kB in a file
/// of 212 MB.
pub const READ_TAIL_BYTES: u64 = 256 * 1024;
/// Bytes of metadata that the format of a file may name, in all, for them to come just after the opening: the header of a tree with
/// 2,656 branches that is not compressed has 1.5 MB.
pub const READ_FORMAT_BYTES: u64 = 2 * 1024 * 1024;
/// Times that bytes which have come are looked at for places of more metadata.
pub const READ_FORMAT_STEPS_MAX: u32 = 32;
/// Streams of reads that are followed in one file at the same time: a program reads a few columns in parallel.
pub const READ_STREAMS_MAX: usize = 8;
/// Bytes that are read ahead of a stream at first; each hit doubles them.
pub const READ_AHEAD_BYTES: u64 = 256 * 1024;
/// Bytes that are read ahead of a stream at most, or twice what the path holds where that is more.
pub const READ_AHEAD_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Ranges that wait to be read ahead, of all streams.
pub const READ_AHEAD_RANGES_MAX: usize = 1024;
/// Bytes moved for each byte wanted, at most, unless the application says otherwise.
pub const READ_BUDGET: f64 = 4.0;
/// Separate parts of bytes that were brought and not wanted yet: beyond it they count as wanted already.
pub const READ_UNUSED_RANGES_MAX: usize = 65_536;
/// The rest of a file is fetched when an application has waited for this part of the time which that takes. One is the classic
/// bound of two; a fill that runs beside the reads costs them nothing but bytes, and then it is one and an eighth.
pub const READ_BULK_SHARE: f64 = 0.125;
/// Misses of which the hull is the part of the file that the application is busy with.
pub const READ_RECENT_MISSES: usize = 64;
/// Bytes of a segment of the lazy policy: CMSSW's.
pub const READ_SEGMENT_BYTES: u64 = 128 * 1024 * 1024;
/// Bytes per second of a path that was never measured: 1 Gb/s without what packets cost.
pub const READ_RATE_BYTES_PER_S: f64 = 100e6;
/// The slowest and the fastest path that a measurement is believed of.
pub const READ_RATE_BYTES_PER_S_RANGE: (f64, f64) = (10e3, 50e9);
/// The shortest and the longest round trip that a measurement is believed of, in seconds.
pub const READ_ROUND_TRIP_S_RANGE: (f64, f64) = (20e-6, 10.0);
/// The round trip of a path that was never measured, in seconds: across a continent.
pub const READ_ROUND_TRIP_S: f64 = 0.03;
/// The cost of an element of a vector that was never measured, in seconds: XRootD's client with its server.
pub const READ_ELEMENT_S: f64 = 9e-6;
/// The smallest and the largest cost of an element that a measurement is believed of, in seconds.
pub const READ_ELEMENT_S_RANGE: (f64, f64) = (0.1e-6, 1e-3);
/// Time in which what an earlier file has shown of a path loses half of what it is worth: other traffic comes and goes in minutes.
pub const READ_KNOWN_HALF_LIFE: Duration = Duration::from_secs(300);
/// Time for which the largest of the rates that files have shown of a path counts: several that are read at once share it.
pub const READ_KNOWN_SHARED: Duration = Duration::from_secs(60);
/// Time between two moments at which a file that is read tells what it has shown of its path.
pub const READ_LEARN_EVERY: Duration = Duration::from_secs(1);
/// Time without a byte from any source after which reads that wait fail.
pub const READ_PATIENCE: Duration = Duration::from_secs(60);
/// Failures of a source in a row after which it is not used any more, where another one is left.
pub const READ_FAILURES_MAX: u32 = 4;
/// Failures in a row of the only source that is left after which reads fail.
pub const READ_FAILURES_ALONE_MAX: u32 = 8;

const _: () = {
    assert!(READ_LANES <= READ_LANES_MAX);
    assert!(READ_RANGES_MAX <= READ_WAITING_MAX);
    assert!(READ_FAILURES_MAX <= READ_FAILURES_ALONE_MAX);
    assert!(READ_MEMORY_BYTES >= 2 * READ_SEGMENT_BYTES);
    assert!(READ_HEAD_BYTES + READ_TAIL_BYTES < READ_MEMORY_BYTES);
};
