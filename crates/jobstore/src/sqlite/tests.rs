use super::*;
use crate::store::{JobStore, Refused, Write, Written};
use crate::suite;
use gridlane_jobs::{FileState, JobKind};

fn open(path: &Path) -> Result<SqliteStore> {
    SqliteStore::open(path)
}

#[test]
fn it_is_a_store_of_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs");
    let again = |store: SqliteStore| {
        drop(store);
        open(&path)
    };
    suite::check(open(&path).unwrap(), again, SqliteStore::faults).unwrap().unwrap();
}

#[test]
fn it_is_a_store_of_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs");
    let again = |store: SqliteStore| {
        drop(store);
        open(&path)
    };
    gridlane_delegation::suite::check(open(&path).unwrap(), again).unwrap().unwrap();
}

/// A disk that is full refuses what comes, keeps what is there, and goes on when there is room.
#[test]
fn a_full_disk_is_an_error_and_not_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("jobs")).unwrap();
    let new = |number| {
        let mut new = suite::make::job(number, JobKind::Plain, &[FileState::Submitted; 100]);
        // A name that no other job has is forgotten with the job.
        new.job.owner.user_dn = format!("/CN={number}");
        Write::Submit(Box::new(new))
    };
    store.write(&[new(1)]).unwrap();
    store.limit_pages(Some(1)).unwrap();
    let mut number = 2;
    // The last page that is there has room for some.
    let error = loop {
        match store.write(&[new(number)]) {
            Ok(_) if number < 1000 => number += 1,
            Ok(_) => panic!("the limit is none"),
            Err(error) => break error,
        }
    };
    assert!(error.is_no_space() && error.is_retryable(), "{error}");
    assert!(error.advice().is_some(), "{error}");
    assert_eq!(store.job(suite::make::id(number)).unwrap(), None);
    assert_eq!(store.faults().unwrap(), Vec::<String>::new());
    store.limit_pages(None).unwrap();
    assert!(matches!(store.write(&[new(number)]).unwrap()[..], [Ok(Written::Submitted(_))]));
    let owner = store.job(suite::make::id(number)).unwrap().unwrap().owner;
    assert_eq!(owner.user_dn, format!("/CN={number}"));
    assert_eq!(store.faults().unwrap(), Vec::<String>::new());
}

#[test]
fn a_backup_is_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("jobs")).unwrap();
    let new = Write::Submit(Box::new(suite::make::full(1)));
    store.write(std::slice::from_ref(&new)).unwrap();
    let to = dir.path().join("copy");
    store.backup(&to).unwrap();
    assert_eq!(store.backup(&to).unwrap_err().kind(), ErrorKind::Precondition);
    let copy = open(&to).unwrap();
    assert_eq!(copy.job(suite::make::id(1)).unwrap(), store.job(suite::make::id(1)).unwrap());
    assert_eq!(copy.write(&[new]).unwrap(), vec![Err(Refused::DuplicateJob)]);
}

/// Damage is seen: what the suite relies on.
#[test]
fn faults_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs");
    let store = open(&path).unwrap();
    store.write(&[Write::Submit(Box::new(suite::make::full(1)))]).unwrap();
    assert_eq!(store.faults().unwrap(), Vec::<String>::new());
    let other = Connection::open(&path).unwrap();
    other.execute_batch("UPDATE file SET state = 33 WHERE number = 0").unwrap();
    assert_eq!(store.faults().unwrap().len(), 1, "a count is wrong");
    other.execute_batch("UPDATE file SET state = 33; UPDATE job SET tally = '{\"FAILED\":2}'").unwrap();
    let found = store.faults().unwrap();
    assert!(found.len() == 1 && found[0].contains("it is STAGING"), "{found:?}");
    other.execute_batch("UPDATE job SET state = 99").unwrap();
    let error = store.job(suite::make::id(1)).unwrap_err();
    assert!(error.to_string().contains("no state of a job of number 99"), "{error}");
}
