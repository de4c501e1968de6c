//! Measures a store of jobs: submissions, changes, and the rows that a start reads.
//!
//! ```text
//! store_load sqlite DIRECTORY [OPTION=NUMBER]...     a new store in a directory
//! store_load postgres URL [OPTION=NUMBER]...         a database, whose tables are made
//!
//! threads=8      callers at once
//! seconds=5      for submissions, and again for changes
//! files=100      of a job
//! in_flight=32   changes that each caller has going at once
//! preload=0      files that wait before anything is measured
//! ```
//!
//! Prints one JSON object. The time of a sync of the disk is measured beside, in the store's directory or, with PostgreSQL, in the
//! one for temporary files.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gridlane_core::{Error, ErrorKind, Result};
use gridlane_jobs::{FileId, FileState, JobKind, NewJob};
use gridlane_jobstore::suite::make;
use gridlane_jobstore::{JobStore, PostgresStore, SqliteStore, Write, Writer, Written};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (kind, place) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    let options = Options::read(arguments)?;
    let (store, dir): (Arc<dyn JobStore>, PathBuf) = match kind.as_str() {
        "sqlite" => (Arc::new(SqliteStore::open(&Path::new(&place).join("jobs"))?), place.into()),
        "postgres" => (Arc::new(PostgresStore::open(&place)?), std::env::temp_dir()),
        _ => return Err(usage("sqlite DIRECTORY or postgres URL")),
    };
    let (writer, _thread) = Writer::start(Arc::clone(&store))?;
    let numbers = Numbers::default();
    preload(&writer, &numbers, options.preload)?;
    let report = json!({
        "store": kind,
        "threads": options.threads,
        "preloaded_files": options.preload,
        "sync_ms": sync_ms(&dir)?,
        "submissions": submissions(&writer, &numbers, &options)?,
        "waiting": waiting(&*store)?,
        "changes": changes(&*store, &writer, &options)?,
        "memory_max_kib": memory_max_kib(),
    });
    println!("{report}");
    Ok(())
}

fn usage(message: &str) -> Error {
    Error::new(ErrorKind::Usage, message)
}

/// What is measured.
struct Options {
    threads: usize,
    seconds: u64,
    files: usize,
    in_flight: usize,
    preload: u64,
}

impl Options {
    fn read(arguments: impl Iterator<Item = String>) -> Result<Options> {
        let mut options = Options { threads: 8, seconds: 5, files: 100, in_flight: 32, preload: 0 };
        for argument in arguments {
            let (name, number) = argument.split_once('=').ok_or_else(|| usage("OPTION=NUMBER"))?;
            let number: u64 = number.parse().map_err(|_| usage("OPTION=NUMBER"))?;
            match name {
                "threads" => options.threads = number as usize,
                "seconds" => options.seconds = number,
                "files" => options.files = number as usize,
                "in_flight" => options.in_flight = number as usize,
                "preload" => options.preload = number,
                _ => return Err(usage("there is no such option")),
            }
        }
        Ok(options)
    }
}

/// Numbers of jobs, each once.
#[derive(Default)]
struct Numbers(AtomicU64);

impl Numbers {
    /// A job like those of a data manager: random ids, URLs of 80 letters, a hundred links.
    fn job(&self, files: usize) -> NewJob {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        let mut new = make::job(u128::from(number), JobKind::Plain, &vec![FileState::Submitted; files]);
        // Ids of time and chance are spread over the index.
        let spread = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        new.job.id = gridlane_jobs::JobId(uuid::Uuid::from_u128(spread ^ u128::from(std::process::id())));
        new.job.metadata =
            Some(json!({"multi_sources": false, "issuer": "rucio", "auth_method": "certificate"}));
        let (source, destination) = (number % 10, number / 10 % 10);
        for (index, file) in new.files.iter_mut().enumerate() {
            file.link.source = format!("davs://source-{source}.example.org").as_str().into();
            file.link.destination = format!("davs://destination-{destination}.example.org").as_str().into();
            file.source = format!(
                "davs://source-{source}.example.org:443/atlas/rucio/data25/{number:012}/{index:06}.root"
            );
            file.destination = format!(
                "davs://destination-{destination}.example.org:443/atlas/rucio/data25/{number:012}/{index:06}"
            );
            file.metadata = Some(
                json!({"name": format!("{index:06}.root"), "scope": "data25", "filesize": 1_000_000_000}),
            );
            file.checksum = format!("ADLER32:{:08x}", number as u32 ^ index as u32);
            file.user_size_bytes = 1_000_000_000;
        }
        new.job.source_se = Some(format!("davs://source-{source}.example.org").as_str().into());
        new.job.dest_se = Some(format!("davs://destination-{destination}.example.org").as_str().into());
        new
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let built = tokio::runtime::Builder::new_current_thread().build();
    built.map_err(|cause| Error::local_io("cannot start", &cause))
}

/// Fills the store.
fn preload(writer: &Writer, numbers: &Numbers, files: u64) -> Result<()> {
    const OF_A_JOB: u64 = 2000;
    let runtime = runtime()?;
    let mut left = files;
    while left > 0 {
        let jobs: Vec<Write> = (0..5)
            .map_while(|_| {
                let count = left.min(OF_A_JOB);
                left -= count;
                (count > 0).then(|| Write::Submit(Box::new(numbers.job(count as usize))))
            })
            .collect();
        runtime.block_on(writer.write(jobs))?;
    }
    Ok(())
}

/// Does something by several threads, until time is over; how often, and how long each took.
fn repeat(
    options: &Options,
    each: &(dyn Fn(usize, &mut Histogram<u64>) -> Result<u64> + Sync),
) -> Result<(u64, f64, Value)> {
    let times = Mutex::new(new_histogram()?);
    let (count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let begin = Instant::now();
    let run = |number: usize| -> Result<()> {
        let mut own = new_histogram()?;
        while !is_over.load(Ordering::Relaxed) && begin.elapsed() < Duration::from_secs(options.seconds) {
            match each(number, &mut own)? {
                0 => is_over.store(true, Ordering::Relaxed),
                done => drop(count.fetch_add(done, Ordering::Relaxed)),
            }
        }
        let mut times = times.lock().map_err(|_| Error::new(ErrorKind::Other, "a thread failed"))?;
        times.add(own).map_err(|_| Error::new(ErrorKind::Other, "a time is out of range"))
    };
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..options.threads).map(|number| scope.spawn(move || run(number))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| Error::new(ErrorKind::Other, "a thread has ended by a panic"))?
        })
    })?;
    let seconds = begin.elapsed().as_secs_f64();
    let times = times.into_inner().map_err(|_| Error::new(ErrorKind::Other, "a thread failed"))?;
    Ok((count.into_inner(), seconds, percentiles(&times)))
}

fn new_histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).map_err(|_| Error::new(ErrorKind::Other, "bounds"))
}

fn percentiles(times_us: &Histogram<u64>) -> Value {
    let ms = |quantile| times_us.value_at_quantile(quantile) as f64 / 1000.0;
    json!({"p50": ms(0.5), "p99": ms(0.99), "max": times_us.max() as f64 / 1000.0})
}

fn record(times_us: &mut Histogram<u64>, since: Instant) {
    times_us.saturating_record(since.elapsed().as_micros() as u64);
}

fn submissions(writer: &Writer, numbers: &Numbers, options: &Options) -> Result<Value> {
    let before = cpu_s();
    let (jobs, seconds, times) = repeat(options, &|_, times| {
        let new = numbers.job(options.files);
        let begin = Instant::now();
        runtime()?.block_on(writer.write(vec![Write::Submit(Box::new(new))]))?;
        record(times, begin);
        Ok(1)
    })?;
    Ok(json!({
        "files_of_a_job": options.files,
        "jobs": jobs,
        "jobs_per_s": jobs as f64 / seconds,
        "cpu_ms_of_a_job": (cpu_s() - before) * 1000.0 / jobs as f64,
        "ms": times,
    }))
}

/// What a start reads.
fn waiting(store: &dyn JobStore) -> Result<Value> {
    let (begin, mut rows) = (Instant::now(), 0_u64);
    store.waiting(None, &mut |_| {
        rows += 1;
        Ok(())
    })?;
    Ok(json!({"rows": rows, "seconds": begin.elapsed().as_secs_f64()}))
}

/// Files begin and end: each is three changes.
fn changes(store: &dyn JobStore, writer: &Writer, options: &Options) -> Result<Value> {
    const FILES_MAX: usize = 200_000;
    let mut files = Vec::new();
    let enough = || Error::new(ErrorKind::Interrupted, "enough");
    let read = store.waiting(None, &mut |waiting| {
        files.push(waiting.file);
        if files.len() < FILES_MAX { Ok(()) } else { Err(enough()) }
    });
    read.or_else(|error| if error.kind() == ErrorKind::Interrupted { Ok(()) } else { Err(error) })?;
    let next = AtomicU64::new(0);
    // Files of many jobs at once, as they come from many links.
    let stride = 7919;
    let file = |number: u64| -> Option<FileId> {
        let count = files.len() as u64;
        let place = (number < count).then(|| number * stride % count)?;
        files.get(place as usize).copied()
    };
    use FileState::*;
    let before = cpu_s();
    let (count, seconds, times) = repeat(options, &|_, times| {
        let first = next.fetch_add(options.in_flight as u64, Ordering::Relaxed);
        let mine: Vec<FileId> = (first..first + options.in_flight as u64).map_while(file).collect();
        let mut made = 0;
        for (from, to) in [(Submitted, Ready), (Ready, Active), (Active, Finished)] {
            let begin = Instant::now();
            let pending: Vec<_> = mine
                .iter()
                .map(|file| {
                    let mut change = make::change(*file, &[from], to, 1_800_000_100);
                    change.news.transfer_host = (to == Ready).then(|| Some("broker-1".to_owned()));
                    writer.write(vec![Write::Change(Box::new(change))])
                })
                .collect();
            let runtime = runtime()?;
            for one in pending {
                let answers = runtime.block_on(one)?;
                record(times, begin);
                made += u64::from(matches!(answers[..], [Ok(Written::Changed(..))]));
            }
        }
        Ok(made)
    })?;
    Ok(json!({
        "changes": count,
        "changes_per_s": count as f64 / seconds,
        "cpu_us_of_a_change": (cpu_s() - before) * 1e6 / count as f64,
        "ms": times,
    }))
}

/// Time of a sync of 4 KiB at the end of a file.
fn sync_ms(dir: &Path) -> Result<Value> {
    let failed = |cause: std::io::Error| Error::local_io("cannot measure the disk", &cause);
    let mut file = tempfile::tempfile_in(dir).map_err(failed)?;
    let mut times = new_histogram()?;
    for _ in 0..100 {
        let begin = Instant::now();
        file.write_all(&[0xa5; 4096]).and_then(|()| file.sync_data()).map_err(failed)?;
        record(&mut times, begin);
    }
    Ok(percentiles(&times))
}

/// Processor time of this process.
fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The most memory that this process has had.
fn memory_max_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
