//! The cost of the disk cache of remote files, on one thread: writes and reads in pages of 64 KiB and in extents of 1 kB, and the opening
//! of a file with 100,000 extents.
//!
//! ```text
//! sparse_cost DIRECTORY [ROUNDS]      makes and removes DIRECTORY/sparse-cost
//! ```
//!
//! Prints `name median least most unit`, a line for each.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use gridlane_core::Url;
use gridlane_store::{FileKey, SparseCache, SparseFile, SparseLimits};

const PAGE_BYTES: u64 = 64 * 1024;
const PAGES: u64 = 4096;
const SMALL_BYTES: u64 = 1000;
const SMALL_COUNT: u64 = 100_000;
const FILE_BYTES: u64 = 1_000_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (directory, rounds) = match &words[..] {
        [directory] => (directory, 5),
        [directory, rounds] => (directory, rounds.parse()?),
        _ => return Err("usage: sparse_cost DIRECTORY [ROUNDS]".into()),
    };
    let directory = Path::new(directory).join("sparse-cost");
    let mut figures: Vec<(&str, &str, Vec<f64>)> = Vec::new();
    for _ in 0..rounds {
        for (at, (name, unit, value)) in round(&directory)?.into_iter().enumerate() {
            if figures.len() <= at {
                figures.push((name, unit, Vec::new()));
            }
            figures[at].2.push(value);
        }
        std::fs::remove_dir_all(&directory)?;
    }
    for (name, unit, mut values) in figures {
        values.sort_by(f64::total_cmp);
        let (least, most) = (values[0], values[values.len() - 1]);
        println!("{name:<36} {:>9.2} {least:>9.2} {most:>9.2} {unit}", values[values.len() / 2]);
    }
    Ok(())
}

type Figure = (&'static str, &'static str, f64);

fn round(directory: &Path) -> Result<Vec<Figure>, Box<dyn Error>> {
    let cache = SparseCache::open(directory, SparseLimits::default())?;
    let open = |name: &str| -> Result<SparseFile, Box<dyn Error>> {
        let url = Url::parse_absolute(&format!("https://h.example/{name}"))?;
        Ok(cache.file(&FileKey::new("alice", &url, FILE_BYTES, "\"v1\"")?)?)
    };
    let mut bytes = vec![0_u8; PAGE_BYTES as usize];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0];
    }
    let mut figures = Vec::new();
    let mut rate = |name, bytes: u64, begin: Instant| {
        figures.push((name, "MB/s", bytes as f64 / 1e6 / begin.elapsed().as_secs_f64()));
    };
    // No two follow each other, and none overlaps another.
    let places = |number: u64| number * 61_681 % SMALL_COUNT * (FILE_BYTES / SMALL_COUNT);

    let pages = open("pages")?;
    let begin = Instant::now();
    let mut kept_bytes = 0;
    for page in 0..PAGES {
        kept_bytes += pages.write(page * PAGE_BYTES, &bytes)?;
    }
    rate("write 64 KiB pages", kept_bytes, begin);
    let begin = Instant::now();
    let mut read_bytes = 0;
    for page in 0..PAGES {
        read_bytes += pages.read(page * PAGE_BYTES, &mut bytes).iter().map(|range| range.len()).sum::<u64>();
    }
    rate("read 64 KiB pages", read_bytes, begin);
    let begin = Instant::now();
    let (mut read_bytes, mut small) = (0, [0; SMALL_BYTES as usize]);
    for number in 0..SMALL_COUNT {
        let offset = number * 2_654_435_761 % (PAGES * PAGE_BYTES - SMALL_BYTES);
        read_bytes += pages.read(offset, &mut small).iter().map(|range| range.len()).sum::<u64>();
    }
    rate("read 1 kB of 64 KiB pages", read_bytes, begin);
    if (kept_bytes, read_bytes) != (PAGES * PAGE_BYTES, SMALL_COUNT * SMALL_BYTES) {
        return Err("the cache has lost something".into());
    }

    let extents = open("extents")?;
    let begin = Instant::now();
    let mut kept_bytes = 0;
    for number in 0..SMALL_COUNT {
        kept_bytes += extents.write(places(number), &bytes[..SMALL_BYTES as usize])?;
    }
    rate("write 1 kB extents", kept_bytes, begin);
    let begin = Instant::now();
    let mut read_bytes = 0;
    for number in 0..SMALL_COUNT {
        read_bytes += extents.read(places(number), &mut small).iter().map(|range| range.len()).sum::<u64>();
    }
    rate("read 1 kB extents", read_bytes, begin);
    if (kept_bytes, read_bytes) != (SMALL_COUNT * SMALL_BYTES, SMALL_COUNT * SMALL_BYTES) {
        return Err("the cache has lost something".into());
    }
    drop(extents);
    let begin = Instant::now();
    let extents = open("extents")?;
    figures.push(("open 100,000 extents of 1 kB", "ms", begin.elapsed().as_secs_f64() * 1e3));
    let begin = Instant::now();
    let present = extents.present();
    figures.push(("list 100,000 extents of 1 kB", "ms", begin.elapsed().as_secs_f64() * 1e3));
    if present.len() != SMALL_COUNT * SMALL_BYTES {
        return Err("the cache has lost something".into());
    }
    Ok(figures)
}
