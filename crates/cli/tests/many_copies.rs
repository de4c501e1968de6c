//! Many copies in one process, some of them from sources that say nothing: the others are as fast as few, threads and memory
//! are bounded, and every one ends when it is told to. In a process of its own, so that nothing else is counted.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use gridlane_client::{bound_devices, file_target};
use gridlane_core::Url;
use gridlane_engine::{CopySpec, Event, Observer, Options, TargetSpec, copy};
use gridlane_net::Dialer;
use gridlane_net::tls::Trust;
use gridlane_peer::Client;
use gridlane_store::journal_key::JournalKeys;
use gridlane_sys::process::cpu_time;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// Copies that can be done, and such whose source says nothing.
const DONE: usize = 800;
const SILENT: usize = 200;
/// Copies at the same time, to compare with.
const FEW: usize = 16;
/// Copies that have just begun when all are told to end, or wait for a place: more than one endpoint has.
const LATE: usize = 100;
/// Copies into pipes that are not read, and uploads to a server that says nothing.
const STUCK: usize = 4;

/// A server in a process of its own, and where it is.
struct Server(Child, String);

impl Server {
    fn start(dir: &Path, data_home: &Path) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gridlane"));
        command.arg("serve").arg(dir).args(["--json", "--listen", "127.0.0.1:0"]);
        // All of them are one client.
        command.args(["--client-connections", "4000", "--client-files", "4000"]);
        command.env("XDG_DATA_HOME", data_home).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: serde_json::Value = serde_json::from_str(&line).unwrap();
        let urls = told["urls"].as_array().unwrap().iter().filter_map(|url| url.as_str());
        let url = urls.into_iter().find(|url| url.starts_with("http://")).unwrap().to_owned();
        Server(child, url)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Unwatched;

impl Observer for Unwatched {
    fn event(&mut self, _: &Event<'_>) {}
}

/// The most that this process had while it was looked at.
#[derive(Default)]
struct Most {
    threads: usize,
    resident_bytes: u64,
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn watch_this_process(ends: Arc<AtomicBool>) -> std::thread::JoinHandle<Most> {
    std::thread::spawn(move || {
        let mut most = Most::default();
        while !ends.load(Relaxed) {
            // Less this one.
            most.threads = most.threads.max(fs::read_dir("/proc/self/task").unwrap().count() - 1);
            most.resident_bytes = most.resident_bytes.max(resident_bytes());
            std::thread::sleep(Duration::from_millis(20));
        }
        most
    })
}

/// The size of each file: 10 MB where a measurement asks for it.
fn size_bytes() -> usize {
    std::env::var("GRIDLANE_MANY_BYTES").map_or(1 << 20, |bytes| bytes.parse().unwrap())
}

/// Every second one to a file, which is removed when it is there, the others to where nothing is kept.
fn target(directory: &Path, number: usize) -> (TargetSpec, Option<PathBuf>) {
    match number % 2 {
        0 => {
            let path = directory.join(format!("f{number}"));
            (file_target(path.clone(), true, JournalKeys::default()), Some(path))
        }
        _ => (TargetSpec::pipe(File::options().write(true).open("/dev/null").unwrap()), None),
    }
}

async fn one(client: Client, source: Url, directory: PathBuf, number: usize) {
    let (target, path) = target(&directory, number);
    let spec = CopySpec { sources: vec![source], target, options: Options::default() };
    let outcome = copy(spec, client, &mut Unwatched, std::future::pending()).await;
    outcome.result.unwrap();
    if let Some(path) = path {
        assert_eq!(fs::metadata(&path).unwrap().len(), size_bytes() as u64);
        fs::remove_file(path).unwrap();
    }
}

/// Seconds that all of them take, so many at the same time, and how many of them this process's processors work: what others do
/// on the machine changes that less.
async fn all_of_them(client: &Client, source: &Url, directory: &Path, at_once: usize) -> (f64, f64) {
    let (begun, cpu_before) = (Instant::now(), cpu_time());
    let turns = Arc::new(Semaphore::new(at_once));
    let mut copies = JoinSet::new();
    for number in 0..DONE {
        let turn = turns.clone().acquire_owned().await.unwrap();
        let (client, source, directory) = (client.clone(), source.clone(), directory.to_owned());
        copies.spawn(async move {
            one(client, source, directory, number).await;
            drop(turn);
        });
    }
    while let Some(ended) = copies.join_next().await {
        ended.unwrap();
    }
    (begun.elapsed().as_secs_f64(), (cpu_time() - cpu_before).as_secs_f64())
}

/// Copies that do not end by themselves, and when each has ended that was told to.
struct Hung {
    client: Client,
    stopped: watch::Receiver<()>,
    copies: JoinSet<Instant>,
}

impl Hung {
    fn begin(&mut self, source: &Url, target: TargetSpec) {
        let spec = CopySpec { sources: vec![source.clone()], target, options: Options::default() };
        let (client, mut stopped) = (self.client.clone(), self.stopped.clone());
        self.copies.spawn(async move {
            let stop = async { drop(stopped.changed().await) };
            assert!(copy(spec, client, &mut Unwatched, stop).await.result.is_err());
            Instant::now()
        });
    }
}

fn url_of(listener: &TcpListener) -> Url {
    Url::parse(&format!("http://{}/f", listener.local_addr().unwrap()), Path::new("/")).unwrap()
}

#[test]
fn a_thousand_copies_in_one_process() {
    let scratch = tempfile::tempdir().unwrap();
    let [data, data_home, targets] = ["data", "home", "targets"].map(|name| scratch.path().join(name));
    [&data, &data_home, &targets].into_iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let bytes: Vec<u8> = (0..size_bytes()).map(|at| (at * 7 + at / 251) as u8).collect();
    fs::write(data.join("f"), bytes).unwrap();
    let server = Server::start(&data, &data_home);
    let source = Url::parse(&format!("{}f", server.1), Path::new("/")).unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_url = url_of(&silent);
    let late = TcpListener::bind("127.0.0.1:0").unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        while let Ok((connection, _)) = silent.accept() {
            kept.push(connection);
        }
    });
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).max_blocking_threads(bound_devices(2, None)).enable_all();
    let runtime = builder.build().unwrap();
    let ends = Arc::new(AtomicBool::new(false));
    runtime.block_on(async {
        let client = Client::new(Dialer::new(Trust::default()), Duration::from_secs(60));
        all_of_them(&client, &source, &targets, FEW).await;
        let before = all_of_them(&client, &source, &targets, FEW).await;
        let watching = watch_this_process(ends.clone());
        let (stop, stopped) = watch::channel(());
        let mut hung = Hung { client: client.clone(), stopped, copies: JoinSet::new() };
        for number in 0..SILENT {
            hung.begin(&silent_url, target(&targets, DONE + number).0);
        }
        let (many_s, many_cpu_s) = all_of_them(&client, &source, &targets, DONE).await;
        ends.store(true, Relaxed);
        let most = watching.join().unwrap();
        // Each is told to end where it waits for something else: a reader, an answer, the first byte, a place.
        let mut unread = Vec::new();
        for _ in 0..STUCK {
            let (mut reader, writer) = std::io::pipe().unwrap();
            hung.begin(&source, TargetSpec::pipe(File::from(OwnedFd::from(writer))));
            tokio::task::block_in_place(|| reader.read_exact(&mut [0]).unwrap());
            unread.push(reader);
            let url = silent_url.clone();
            hung.begin(&source, TargetSpec::Upload { url, overwrite: true, modified: None });
        }
        for number in 0..LATE {
            hung.begin(&url_of(&late), target(&targets, DONE + SILENT + number).0);
        }
        let _first = tokio::task::block_in_place(|| late.accept().unwrap());
        let told = Instant::now();
        stop.send(()).unwrap();
        let mut last = Duration::ZERO;
        while let Some(ended) = hung.copies.join_next().await {
            last = last.max(ended.unwrap().saturating_duration_since(told));
        }
        drop(unread);
        // Before and after: a file system that has just removed thousands of files is slower than one that has not.
        let after = all_of_them(&client, &source, &targets, FEW).await;
        let (few_s, few_cpu_s) = ((before.0 + after.0) / 2.0, (before.1 + after.1) / 2.0);
        let said = format!(
            "{FEW} at a time {few_s:.2} s ({few_cpu_s:.2} s CPU), all at once {many_s:.2} s ({many_cpu_s:.2} s), {:.2}; \
             {} threads, {} MiB; ended after {last:?}",
            few_s / many_s,
            most.threads,
            most.resident_bytes >> 20
        );
        eprintln!("{said}");
        // Wide of what is measured, for a machine that does other things as well.
        assert!(few_s >= 0.5 * many_s, "{said}");
        assert!(most.threads <= 32 && most.resident_bytes <= 384 << 20, "{said}");
        // Less than what one lane may take that is stuck, and waited for.
        assert!(last < Duration::from_secs(2), "{said}");
    });
}
