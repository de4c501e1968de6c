mod cluster;

use std::sync::{Arc, Barrier};

use gridlane_core::ErrorKind;
use gridlane_jobs::{FileId, FileState, JobKind};

use super::*;
use crate::store::{Filter, JobFilter, JobStore, Write, Written};
use crate::suite;
use cluster::Cluster;

#[test]
fn it_is_a_store_of_jobs() {
    let cluster = Cluster::start();
    let again = |store: PostgresStore| {
        drop(store);
        PostgresStore::open(&cluster.url())
    };
    let store = PostgresStore::open(&cluster.url()).unwrap();
    suite::check(store, again, PostgresStore::faults).unwrap().unwrap();
}

#[test]
fn it_is_a_store_of_credentials() {
    let cluster = Cluster::start();
    let again = |store: PostgresStore| {
        drop(store);
        PostgresStore::open(&cluster.url())
    };
    let store = PostgresStore::open(&cluster.url()).unwrap();
    gridlane_delegation::suite::check(store, again).unwrap().unwrap();
}

#[test]
fn every_version_becomes_the_newest_and_a_newer_one_is_left_alone() {
    let cluster = Cluster::start();
    let config = connection::configuration(&cluster.url()).unwrap();
    let mut connection = Connection::open(&config, Purpose::Writing).unwrap();
    let mut schemas = Vec::new();
    for version in 0..=open::MIGRATIONS.len() {
        open::migrate(&mut connection, &open::MIGRATIONS[..version]).unwrap();
        open::migrate(&mut connection, open::MIGRATIONS).unwrap();
        let columns =
            "SELECT table_name || '.' || column_name || ' ' || data_type || coalesce(column_default, '')
             FROM information_schema.columns WHERE table_schema = 'gridlane_broker'
             UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'gridlane_broker' ORDER BY 1";
        schemas.push(connection.all(columns, &[], |row| row.text()).unwrap());
        connection.batch("DROP SCHEMA gridlane_broker CASCADE").unwrap();
    }
    assert!(schemas[0].len() > 50);
    assert!(schemas.iter().all(|schema| *schema == schemas[0]));

    open::migrate(&mut connection, open::MIGRATIONS).unwrap();
    connection.batch("UPDATE version SET number = 99").unwrap();
    let error = PostgresStore::open(&cluster.url()).err().unwrap();
    assert!(error.to_string().contains("has version 99"), "{error}");
}

/// A user that may make no schemas has its tables in one that was made for it.
#[test]
fn a_schema_may_be_made_beforehand() {
    let cluster = Cluster::start();
    let config = connection::configuration(&cluster.url()).unwrap();
    let mut owner = Connection::open(&config, Purpose::Writing).unwrap();
    owner.batch("CREATE USER broker").unwrap();
    let url = cluster.url().replace("user=gridlane", "user=broker");
    let error = PostgresStore::open(&url).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    owner.batch("CREATE SCHEMA gridlane_broker AUTHORIZATION broker").unwrap();
    for number in 1..=2 {
        // It is opened again as well.
        let store = PostgresStore::open(&url).unwrap();
        let new = suite::make::job(number, JobKind::Plain, &[FileState::Submitted]);
        assert!(matches!(
            store.write(&[Write::Submit(Box::new(new))]).unwrap()[..],
            [Ok(Written::Submitted(_))]
        ));
        assert_eq!(store.jobs(&JobFilter::default()).unwrap().len() as u128, number);
    }
}

/// Two brokers on one database: what one submits the other sees, in the order of numbers, and each file goes to one.
#[test]
fn brokers_share_a_store() {
    const JOBS: u128 = 30;
    let cluster = Cluster::start();
    // Both make the tables.
    let start = Barrier::new(2);
    let open = || {
        start.wait();
        PostgresStore::open(&cluster.url()).unwrap()
    };
    let (one, two) = std::thread::scope(|scope| {
        let (one, two) = (scope.spawn(open), scope.spawn(open));
        (one.join().unwrap(), two.join().unwrap())
    });
    let submit = |store: &PostgresStore, from: u128| {
        for number in from..from + JOBS {
            let new = suite::make::job(number, JobKind::Plain, &[FileState::Submitted; 3]);
            store.write(&[Write::Submit(Box::new(new))]).unwrap();
        }
    };
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        let (first, second) = (scope.spawn(|| submit(&one, 1)), scope.spawn(|| submit(&two, 1000)));
        // Whoever asks again and again for what came later misses nothing.
        let mut is_last = false;
        while !is_last {
            is_last = first.is_finished() && second.is_finished();
            let after = seen.last().copied();
            one.waiting(after, &mut |waiting| {
                seen.push(waiting.file);
                Ok(())
            })
            .unwrap();
        }
    });
    let all: Vec<FileId> = two.files_like(&Filter::default()).unwrap().iter().map(|file| file.id).collect();
    assert_eq!(all.len(), 2 * 3 * JOBS as usize);
    assert_eq!(seen, all);

    // Both change all files, in opposite orders and a dozen in each transaction.
    let change = |store: &PostgresStore, files: Vec<FileId>| -> usize {
        let mut won = 0;
        for files in files.chunks(12) {
            let writes: Vec<Write> = files
                .iter()
                .map(|file| suite::make::change(*file, &[FileState::Submitted], FileState::Finished, 1))
                .flat_map(|change| {
                    // Each in a run of its own: the jobs of all runs are locked before the first one, in the order of their
                    // numbers, whatever the order of the changes is.
                    let reason = String::new();
                    let nothing = Write::Cancel { job: suite::make::id(0), files: None, reason, at_s: 1 };
                    [Write::Change(Box::new(change)), nothing]
                })
                .collect();
            let answers = store.write(&writes).unwrap();
            won += answers.iter().filter(|answer| matches!(answer, Ok(Written::Changed(..)))).count();
        }
        won
    };
    let backwards: Vec<FileId> = all.iter().rev().copied().collect();
    let won = std::thread::scope(|scope| {
        let (first, second) =
            (scope.spawn(|| change(&one, all.clone())), scope.spawn(|| change(&two, backwards)));
        first.join().unwrap() + second.join().unwrap()
    });
    assert_eq!(won, all.len());
    assert_eq!(one.faults().unwrap(), Vec::<String>::new());
}

/// The jobs of a transaction are locked in the order of their numbers, before its first change and whatever the order of the changes.
#[test]
fn jobs_are_locked_in_the_order_of_their_numbers() {
    let cluster = Cluster::start();
    let store = PostgresStore::open(&cluster.url()).unwrap();
    let [first, second] = [1, 2].map(|number| {
        let new = suite::make::job(number, JobKind::Plain, &[FileState::Submitted]);
        suite::make::submit(&store, new).unwrap()[0]
    });
    let change = |file| {
        let change = suite::make::change(file, &[FileState::Submitted], FileState::Finished, 1);
        Write::Change(Box::new(change))
    };
    let nothing = Write::Cancel { job: suite::make::id(0), files: None, reason: String::new(), at_s: 1 };
    // Two runs, the later job first.
    let writes = [change(second), nothing, change(first)];
    let config = connection::configuration(&cluster.url()).unwrap();
    let mut other = Connection::open(&config, Purpose::Writing).unwrap();
    let lock = |file: FileId| format!("SELECT key FROM job WHERE key = {} FOR UPDATE SKIP LOCKED", file.0);
    other.batch(&format!("BEGIN; {}", lock(second))).unwrap();
    let (is_free, answers) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| store.write(&writes));
        let mut waits = false;
        while !waits && !writer.is_finished() {
            let waiting = other.one("SELECT 1 FROM pg_locks WHERE NOT granted LIMIT 1", &[], |row| row.int());
            waits = waiting.unwrap().is_some();
        }
        // It waits for the job of the higher number, and has the other one.
        let is_free = other.one(&lock(first), &[], |row| row.int()).unwrap().is_some();
        other.batch("COMMIT").unwrap();
        (is_free, writer.join().unwrap().unwrap())
    });
    assert!(!is_free);
    assert!(
        matches!(answers[..], [Ok(Written::Changed(..)), Err(_), Ok(Written::Changed(..))]),
        "{answers:?}"
    );
}

/// A server that is killed is an error, and not the end: what was told to be written is there afterwards.
#[test]
fn a_server_may_be_killed() {
    let mut cluster = Cluster::start();
    let store = Arc::new(PostgresStore::open(&cluster.url()).unwrap());
    let submit = |number| {
        let new = suite::make::job(number, JobKind::Plain, &[FileState::Submitted; 3]);
        store.write(&[Write::Submit(Box::new(new))])
    };
    submit(1).unwrap();
    store.job(suite::make::id(1)).unwrap().unwrap();
    cluster.kill_and_start();
    store.job(suite::make::id(1)).unwrap().unwrap();
    submit(2).unwrap();
    for number in 1..=2 {
        assert_eq!(store.files(suite::make::id(number), None, 0).unwrap().len(), 3);
    }
    assert_eq!(store.faults().unwrap(), Vec::<String>::new());
}

#[test]
fn errors_say_whose_fault_they_are() {
    let error = PostgresStore::open("host=/nowhere/at/all user=x password=secret").err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Network, "{error}");
    assert!(error.is_retryable() && !error.to_string().contains("secret"), "{error}");
    let error = PostgresStore::open("postgresql://u:secret@h/d?nonsense=secret").err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");

    let cluster = Cluster::start();
    let error = PostgresStore::open(&cluster.url().replace("=postgres", "=other")).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let store = PostgresStore::open(&cluster.url()).unwrap();
    let error = store.transact(|transaction| transaction.execute("SELECT 1 / 0", &[])).unwrap_err();
    assert_eq!(error.whose_fault(), gridlane_core::Fault::Caller, "{error}");
    assert_eq!(store.leader().unwrap(), None, "and the store goes on");
}
