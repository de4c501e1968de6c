//! A process that submits and changes is killed again and again, at whatever instant: what it was told to be written is there, and
//! everything fits together.
//!
//! The test is its own victim: with a store's path in its environment it writes until it is killed, and says on its standard output
//! what was acknowledged.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use gridlane_jobs::{FileId, FileState, JobKind};
use gridlane_jobstore::suite::make;
use gridlane_jobstore::{JobStore, SqliteStore, Write, Writer, Written};

const STORE: &str = "GRIDLANE_TEST_KILLED_STORE";
const ROUND: &str = "GRIDLANE_TEST_KILLED_ROUND";
const KILLS: u128 = 10;

#[test]
fn a_process_that_is_killed_loses_nothing() {
    if let (Ok(path), Ok(round)) = (std::env::var(STORE), std::env::var(ROUND)) {
        write_until_killed(Path::new(&path), round.parse().unwrap());
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs");
    // The furthest state that was acknowledged of each file, and its attempts.
    let mut told: BTreeMap<FileId, (usize, u32)> = BTreeMap::new();
    for round in 1..=KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_process_that_is_killed_loses_nothing", "--nocapture"])
            .env(STORE, &path)
            .env(ROUND, round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        // Another number of acknowledgements each time: checkpoints, beginnings and ends of transactions are met by chance.
        let until = 20 + (round * 7919 % 400) as usize;
        let mut before: Vec<String> = lines.by_ref().take(until).collect();
        child.kill().unwrap();
        before.extend(lines);
        child.wait().unwrap();
        assert!(before.len() >= until, "round {round}: the process ended by itself: {before:?}");
        for line in &before {
            // Whole lines only: the last one may be cut.
            let Some([file, rank, attempts]) = line.strip_suffix(" .").and_then(acknowledged) else {
                continue;
            };
            let known = told.entry(FileId(file)).or_default();
            *known = (known.0.max(rank as usize), known.1.max(attempts as u32));
        }

        let store = SqliteStore::open(&path).unwrap();
        assert_eq!(store.faults().unwrap(), Vec::<String>::new(), "round {round}");
        for (file, (rank, attempts)) in &told {
            let is = store.file(*file).unwrap().unwrap_or_else(|| panic!("round {round}: {file} is lost"));
            assert!(rank_of(is.state) >= *rank, "round {round}: {file} is {} and was rank {rank}", is.state);
            assert!(is.attempts >= *attempts, "round {round}: {file}");
            assert_eq!(store.attempts(*file).unwrap().len(), is.attempts as usize, "round {round}: {file}");
        }
    }
    assert!(told.len() > 100, "{} files", told.len());
    assert!(told.values().any(|(rank, _)| *rank == RANKS.len() - 1));
}

/// The numbers behind the word that stands before them.
fn acknowledged(line: &str) -> Option<[i64; 3]> {
    let numbers: Vec<i64> =
        line.split_once("told ")?.1.split(' ').map_while(|word| word.parse().ok()).collect();
    numbers.try_into().ok()
}

/// States in the order in which files get them here.
const RANKS: [&[FileState]; 5] = [
    &[FileState::NotUsed],
    &[FileState::Submitted],
    &[FileState::Ready],
    &[FileState::Active],
    &[FileState::Finished, FileState::Failed, FileState::Canceled],
];

fn rank_of(state: FileState) -> usize {
    RANKS.iter().position(|states| states.contains(&state)).unwrap()
}

/// Submits jobs of all kinds and has their files change, by a few threads, until the process is killed.
fn write_until_killed(path: &Path, round: u128) -> ! {
    let store = Arc::new(SqliteStore::open(path).unwrap());
    let (writer, _thread) = Writer::start(store).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let writer = &writer;
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let write = |writes: Vec<Write>| runtime.block_on(writer.write(writes)).unwrap();
                for number in 0.. {
                    live(&write, (round << 64) | (thread << 32) | number);
                }
            });
        }
    });
    unreachable!("it is killed")
}

/// The life of a job.
fn live(write: &dyn Fn(Vec<Write>) -> Vec<gridlane_jobstore::Answer>, number: u128) {
    use FileState::*;
    let (kind, states) = match number % 4 {
        0 => (JobKind::Replicas, [Submitted, NotUsed, NotUsed]),
        1 => (JobKind::Multihop, [Submitted, NotUsed, NotUsed]),
        _ => (JobKind::Plain, [Submitted; 3]),
    };
    let mut new = make::job(number, kind, &states);
    new.job.owner.user_dn = format!("/CN={number}");
    new.has_unique_destinations = kind == JobKind::Plain;
    let answers = write(vec![Write::Submit(Box::new(new))]);
    let Some(Ok(Written::Submitted(files))) = answers.first() else { panic!("{answers:?}") };
    for (file, state) in files.iter().zip(states) {
        tell(*file, state, 0);
    }
    if number % 5 == 3 {
        let reason = "not wanted".to_owned();
        write(vec![Write::Cancel { job: make::id(number), files: None, reason, at_s: 5 }]);
        files.iter().for_each(|file| tell(*file, Canceled, 0));
        return;
    }
    for (place, file) in files.iter().enumerate() {
        let end = if (number as usize + place).is_multiple_of(3) { Failed } else { Finished };
        for (from, to) in [(Submitted, Ready), (Ready, Active), (Active, end)] {
            let mut change = make::change(*file, &[from], to, 9);
            change.news.transfer_host = (to == Ready).then(|| Some(format!("host {}", number % 7)));
            change.news.has_failed = to == Failed;
            let answers = write(vec![Write::Change(Box::new(change))]);
            match &answers[..] {
                [Ok(Written::Changed(standings, _))] => {
                    standings.iter().for_each(|is| tell(is.file, is.state, u32::from(is.state == Failed)));
                }
                // A replica or a hop that is not its turn.
                [Ok(Written::Stale)] => {}
                _ => panic!("{answers:?}"),
            }
        }
    }
}

/// Says what was acknowledged, in one piece.
fn tell(file: FileId, state: FileState, attempts: u32) {
    let line = format!("told {file} {} {attempts} .\n", rank_of(state));
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}
