//! Many callers at once.

use std::sync::Mutex;
use std::thread;

use gridlane_core::{Error, ErrorKind, Result};
use gridlane_jobs::{FileId, FileState::*, JobKind, JobState};

use super::found::Found;
use super::make::{change, id, job, one, submit, the_job};
use crate::store::{JobStore, Write, Written};

pub(super) fn check(store: &dyn JobStore, found: &mut Found) -> Result<()> {
    const THREADS: usize = 4;
    const JOBS: u128 = 6;
    let mut files: Vec<FileId> = Vec::new();
    for number in 0..JOBS {
        files.extend(submit(store, job(600 + number, JobKind::Plain, &[Submitted; 5]))?);
    }
    // Every thread wants every file, in another order: each file is one thread's.
    let won: Mutex<Vec<FileId>> = Mutex::new(Vec::new());
    let read = |thread: usize| -> Result<()> {
        let mut files = files.clone();
        let turn = thread * files.len() / THREADS;
        files.rotate_left(turn);
        if thread % 2 == 1 {
            files.reverse();
        }
        for pair in files.chunks(2) {
            let writes: Vec<Write> = pair
                .iter()
                .map(|file| Write::Change(Box::new(change(*file, &[Submitted], Finished, 9))))
                .collect();
            let answers = store.write(&writes)?;
            let mut won = won.lock().map_err(|_| Error::new(ErrorKind::Other, "another thread failed"))?;
            for (file, answer) in pair.iter().zip(answers) {
                if matches!(answer, Ok(Written::Changed(..))) {
                    won.push(*file);
                }
            }
            // Beside it new jobs come, all under the same name.
            let _one_of_them = one(store, Write::Submit(Box::new(job(699, JobKind::Plain, &[Submitted]))))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let read = &read;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || read(thread))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| Error::new(ErrorKind::Other, "a thread has ended by a panic"))?
        })
    })?;
    let mut won = won.into_inner().map_err(|_| Error::new(ErrorKind::Other, "another thread failed"))?;
    won.sort();
    found.same("a file goes to one of those that want it", won, files);
    for number in 0..JOBS {
        found.same(
            "a job ends with its last file",
            the_job(store, id(600 + number))?.state,
            JobState::Finished,
        );
    }
    found.same("a job comes once", store.files(id(699), None, 0)?.len(), 1);
    Ok(())
}
