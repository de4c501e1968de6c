//! Other processes: killed while they write, or alive and writing to the same file.
//!
//! The other process is this test's own binary, which runs [`child`] alone. It says after each write what it has kept; a killed process
//! loses nothing that the kernel has, so that all of it must be there.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use gridlane_core::{ByteRange, RangeSet};

use crate::common::{check, files_in, key, open, write};

const SIZE_BYTES: u64 = 2_000_000;
const ROUNDS: u64 = 40;

/// Numbers that follow from a seed.
struct Lots(u64);

impl Lots {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % bound
    }
}

/// The other process.
struct Other {
    child: Child,
    from: BufReader<ChildStdout>,
}

impl Other {
    fn start(directory: &Path, job: &str, seed: u64) -> Other {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::child", "--nocapture", "--test-threads", "1"])
            .env("GRIDLANE_SPARSE_JOB", job)
            .env("GRIDLANE_SPARSE_DIRECTORY", directory)
            .env("GRIDLANE_SPARSE_SEED", seed.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        Other { child, from }
    }

    /// The next write that it tells of; none when it has ended.
    fn next(&mut self) -> Option<ByteRange> {
        loop {
            let mut line = String::new();
            if self.from.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
                return None;
            }
            if let Some(numbers) = line.strip_prefix("kept ") {
                let numbers: Vec<u64> =
                    numbers.split_whitespace().map(|text| text.parse().unwrap()).collect();
                return Some(ByteRange::at(numbers[0], numbers[1]));
            }
        }
    }

    /// Kills it and returns what it has told of since.
    fn kill(mut self) -> RangeSet {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::iter::from_fn(|| self.next()).collect()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the other process it writes until it is killed; anywhere else it does nothing.
#[test]
fn child() {
    let Ok(job) = std::env::var("GRIDLANE_SPARSE_JOB") else { return };
    let directory = std::env::var("GRIDLANE_SPARSE_DIRECTORY").unwrap();
    let mut lots = Lots(std::env::var("GRIDLANE_SPARSE_SEED").unwrap().parse().unwrap());
    let cache = open(directory.as_ref());
    let mut file = cache.file(&key("f", SIZE_BYTES)).unwrap();
    let mut out = std::io::stdout();
    let mut tell = |offset: u64, len: u64| {
        out.write_all(format!("kept {offset} {len}\n").as_bytes()).unwrap();
    };
    // In the middle of a line is the name of the test.
    println!();
    loop {
        if job == "joins" {
            // Neighbours, so many that the index is written anew when it is opened.
            let start = lots.below(SIZE_BYTES / 2);
            for number in 0..3000 {
                write(&file, start + 50 * number, 50);
            }
            tell(start, 150_000);
            drop(file);
            file = cache.file(&key("f", SIZE_BYTES)).unwrap();
            continue;
        }
        let len = [1, 100, 1000, 5000, 70_000][lots.below(5) as usize];
        let offset = lots.below(SIZE_BYTES - len);
        write(&file, offset, len);
        tell(offset, len);
        if job == "waits" {
            std::io::stdin().read_exact(&mut [0]).unwrap();
        }
    }
}

/// Kills a process that does `job` again and again, and looks at what it has left.
fn killed_again_and_again(job: &str, writes_max: u64, rounds: u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut lots = Lots(7);
    let mut told = RangeSet::new();
    for round in 0..rounds {
        // A file fills up: begin anew from time to time.
        if told.len() > SIZE_BYTES / 2 {
            open(directory.path()).file(&key("f", SIZE_BYTES)).unwrap().discard().unwrap();
            told = RangeSet::new();
        }
        let mut other = Other::start(directory.path(), job, round);
        for _ in 0..=lots.below(writes_max) {
            told.insert(other.next().expect("the other process has ended"));
        }
        for range in other.kill().iter() {
            told.insert(range);
        }
        let file = open(directory.path()).file(&key("f", SIZE_BYTES)).unwrap();
        assert!(file.is_writable(), "the lock of a killed process is free");
        check(&file, SIZE_BYTES);
        for range in told.iter() {
            let mut buffer = vec![0; range.len() as usize];
            assert_eq!(
                file.read(range.start(), &mut buffer),
                [range],
                "round {round}: what it had told is gone"
            );
        }
        assert_eq!(file.damaged_bytes(), 0);
        drop(file);
        let left = files_in(directory.path()).len();
        assert!((2..=3).contains(&left), "{left} files");
    }
}

#[test]
fn a_process_that_is_killed_while_it_writes_has_lost_nothing() {
    killed_again_and_again("writes", 60, ROUNDS);
}

#[test]
fn a_process_that_is_killed_while_it_writes_an_index_anew_has_lost_nothing() {
    killed_again_and_again("joins", 3, ROUNDS / 2);
}

#[test]
fn one_process_writes_and_the_other_reads_and_takes_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let mut other = Other::start(directory.path(), "waits", 1);
    let first = other.next().unwrap();
    let file = open(directory.path()).file(&key("f", SIZE_BYTES)).unwrap();
    assert!(!file.is_writable());
    assert_eq!(file.present(), RangeSet::from_iter([first]));
    assert_eq!(check(&file, SIZE_BYTES), first.len());
    assert_eq!(write(&file, 0, SIZE_BYTES), 0, "the other one writes");
    // Another byte makes it write again.
    other.child.stdin.as_mut().unwrap().write_all(b"!").unwrap();
    let second = other.next().unwrap();
    assert_eq!(file.present(), RangeSet::from_iter([first]), "nothing changes by itself");
    file.refresh().unwrap();
    assert_eq!(file.present(), RangeSet::from_iter([first, second]));
    other.kill();
    assert!(!file.is_writable());
    file.refresh().unwrap();
    assert!(file.is_writable());
    let there_bytes = file.present().len();
    assert_eq!(write(&file, 0, SIZE_BYTES), SIZE_BYTES - there_bytes);
    assert_eq!(check(&file, SIZE_BYTES), SIZE_BYTES);
}

#[test]
fn a_file_that_another_process_has_removed_is_read_and_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let mut other = Other::start(directory.path(), "waits", 1);
    let first = other.next().unwrap();
    let file = open(directory.path()).file(&key("f", SIZE_BYTES)).unwrap();
    // The other one needs no more than its life to keep the lock; here, everything is removed.
    file.discard().unwrap();
    assert!(files_in(directory.path()).is_empty());
    let fresh = {
        drop(file);
        open(directory.path()).file(&key("f", SIZE_BYTES)).unwrap()
    };
    assert!(fresh.is_writable() && fresh.present().is_empty());
    for _ in 0..3 {
        other.child.stdin.as_mut().unwrap().write_all(b"!").unwrap();
        other.next().unwrap();
    }
    assert!(files_in(directory.path()).len() == 2 && fresh.present().is_empty());
    assert_eq!(write(&fresh, first.start(), first.len()), first.len());
    for path in files_in(directory.path()) {
        std::fs::remove_file(path).unwrap();
    }
    assert_eq!(check(&fresh, SIZE_BYTES), first.len(), "descriptors stay good");
    // Noticed after a while.
    let kept: u64 = (0..3000).map(|number| write(&fresh, SIZE_BYTES / 2 + 10 * number, 10)).sum();
    assert!(!fresh.is_writable() && kept < 15_000, "{kept}");
    assert!(files_in(directory.path()).is_empty());
}
