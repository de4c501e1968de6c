//! Remote files that are read here and there: right servers of every kind, and wrong ones.

mod cached;
mod commands;
mod faults;
mod servers;
mod sparing;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridlane_core::{ByteRange, Error, Url};
use gridlane_engine::reading::{Explain, Policy, Proof, ReadOptions, RemoteFile, Settings};
use gridlane_net::tls::Trust;

use crate::support::SOON;

/// A runtime with the file that some URLs name, open.
struct Opened {
    runtime: tokio::runtime::Runtime,
    file: RemoteFile,
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

fn options(policy: Policy) -> ReadOptions {
    let patience = Duration::from_secs(4);
    ReadOptions { settings: Settings { patience, ..Settings::forced(policy) }, ..ReadOptions::default() }
}

/// Opens what all of these URLs name.
fn open_with(urls: &[String], ca: Option<PathBuf>, options: ReadOptions) -> Result<Opened, Error> {
    let trust = Trust { ca_files: ca.into_iter().collect(), ..Trust::default() };
    let runtime = runtime();
    let urls = urls.iter().map(|url| Url::parse_absolute(url).unwrap()).collect();
    let client = gridlane_client::connect(trust);
    let opened = runtime.block_on(async {
        let open = RemoteFile::open(urls, client, options);
        tokio::time::timeout(SOON, open).await.expect("it ends")
    });
    opened.map(|file| Opened { runtime, file })
}

fn open(url: &str) -> Opened {
    open_with(&[url.to_owned()], None, options(Policy::Adaptive)).unwrap()
}

impl Opened {
    /// What a call brings, in the order of its ranges; each range is told once.
    fn read(&self, ranges: &[ByteRange]) -> Result<Vec<Vec<u8>>, Error> {
        self.read_for(ranges, None)
    }

    fn read_for(&self, ranges: &[ByteRange], timeout: Option<Duration>) -> Result<Vec<Vec<u8>>, Error> {
        self.runtime.block_on(async {
            let mut reading = self.file.read(ranges, timeout);
            let mut found = BTreeMap::new();
            loop {
                let came = tokio::time::timeout(SOON, reading.next()).await.expect("it ends")?;
                if came.is_empty() {
                    break;
                }
                for ready in came {
                    assert!(found.insert(ready.index, ready.bytes.to_vec()).is_none());
                }
            }
            assert_eq!(found.len(), ranges.len());
            Ok(found.into_values().collect())
        })
    }

    /// Reads these and compares them with the file.
    #[track_caller]
    fn check(&self, ranges: &[ByteRange], bytes: &[u8]) {
        let found = self.read(ranges).unwrap_or_else(|error| panic!("{error:?}\n{}", self.file.explain()));
        for (range, found) in ranges.iter().zip(found) {
            let whole = ByteRange::new(0, bytes.len() as u64);
            let wanted = range.intersection(whole);
            let wanted = if wanted.is_empty() {
                &[][..]
            } else {
                &bytes[wanted.start() as usize..wanted.end() as usize]
            };
            assert!(found == wanted, "{range:?}: {} bytes\n{}", found.len(), self.file.explain());
        }
    }

    fn explain(&self) -> Explain {
        self.file.explain()
    }

    /// Whether it was compared with a checksum of the whole, once that is known.
    fn proof(&self) -> Proof {
        let since = Instant::now();
        loop {
            match self.file.proof() {
                Proof::Begun => assert!(since.elapsed() < SOON, "it is compared for ever"),
                proof => return proof,
            }
            std::thread::yield_now();
        }
    }
}

/// Ranges by lot: `count` of up to `len_max` bytes, some at borders, some twice, in no order.
fn scattered(seed: u64, size: usize, count: usize, len_max: u64) -> Vec<ByteRange> {
    let lots = crate::support::content(seed, count * 16);
    let number = |at: usize| u64::from_le_bytes(lots[at * 8..at * 8 + 8].try_into().unwrap());
    let one = |nth: usize| {
        let start = number(2 * nth) % size as u64;
        ByteRange::at(start, 1 + number(2 * nth + 1) % len_max)
    };
    let mut ranges: Vec<ByteRange> = (0..count).map(one).collect();
    let (first, last) = (ranges[0], ByteRange::at(size as u64 - 1, 10));
    ranges.extend([first, last, ByteRange::at(0, 1), ByteRange::at(5, 0)]);
    ranges
}

/// A file by lot that is larger than what is fetched whole.
fn large(seed: u64) -> Arc<Vec<u8>> {
    crate::support::content(seed, 24_000_123)
}
