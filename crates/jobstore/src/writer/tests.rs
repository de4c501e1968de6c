use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc as channel};
use std::task::{Context, Poll, Waker};

use gridlane_jobs::{Attempt, File, FileId, Job, JobId};

use super::*;
use crate::store::{Audit, Beat, Filter, Host, JobFilter, Setting, Waiting, Written};

/// A store whose transactions begin when they are let.
struct Held {
    /// Transactions that have been asked for: their writes.
    begun: Mutex<channel::Sender<usize>>,
    /// One word for each of them that may be made.
    may: Mutex<channel::Receiver<Result<()>>>,
    made: AtomicUsize,
}

impl JobStore for Held {
    fn write(&self, writes: &[Write]) -> Result<Vec<Answer>> {
        self.begun.lock().unwrap().send(writes.len()).unwrap();
        self.may.lock().unwrap().recv().unwrap()?;
        self.made.fetch_add(writes.len(), Ordering::SeqCst);
        // The number of each write comes back, which says whose it was.
        let number = |write: &Write| match write {
            Write::Beat(beat) => beat.at_s as u64,
            _ => 0,
        };
        Ok(writes.iter().map(|write| Ok(Written::Done(number(write)))).collect())
    }

    fn job(&self, _: JobId) -> Result<Option<Job>> {
        Ok(None)
    }

    fn files(&self, _: JobId, _: Option<FileId>, _: u32) -> Result<Vec<File>> {
        Ok(Vec::new())
    }

    fn file(&self, _: FileId) -> Result<Option<File>> {
        Ok(None)
    }

    fn attempts(&self, _: FileId) -> Result<Vec<Attempt>> {
        Ok(Vec::new())
    }

    fn jobs(&self, _: &JobFilter) -> Result<Vec<Job>> {
        Ok(Vec::new())
    }

    fn files_like(&self, _: &Filter) -> Result<Vec<File>> {
        Ok(Vec::new())
    }

    fn waiting(&self, _: Option<FileId>, _: &mut dyn FnMut(Waiting) -> Result<()>) -> Result<()> {
        Ok(())
    }

    fn settings(&self, _: Setting) -> Result<Vec<(String, serde_json::Value)>> {
        Ok(Vec::new())
    }

    fn audit(&self, _: u32) -> Result<Vec<Audit>> {
        Ok(Vec::new())
    }

    fn hosts(&self) -> Result<Vec<Host>> {
        Ok(Vec::new())
    }

    fn leader(&self) -> Result<Option<(String, i64)>> {
        Ok(None)
    }
}

/// A writer, with what its store is told and tells.
struct Test {
    writer: Writer,
    thread: thread::JoinHandle<()>,
    store: Arc<Held>,
    begun: channel::Receiver<usize>,
    may: channel::Sender<Result<()>>,
}

fn test() -> Test {
    let (begin, begun) = channel::channel();
    let (may, maybe) = channel::channel();
    let store =
        Arc::new(Held { begun: Mutex::new(begin), may: Mutex::new(maybe), made: AtomicUsize::new(0) });
    let (writer, thread) = Writer::start(Arc::clone(&store) as Arc<dyn JobStore>).unwrap();
    Test { writer, thread, store, begun, may }
}

/// So many writes, with their numbers.
fn writes(numbers: std::ops::Range<i64>) -> Vec<Write> {
    numbers.map(|at_s| Write::Beat(Beat { host: String::new(), at_s, is_draining: false })).collect()
}

fn done(numbers: std::ops::Range<u64>) -> Vec<Answer> {
    numbers.map(|number| Ok(Written::Done(number))).collect()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn callers_that_wait_share_a_transaction_and_get_their_own_answers() {
    let test = test();
    let first = test.writer.write(writes(0..2));
    assert_eq!(test.begun.recv().unwrap(), 2);
    let (second, third, none) =
        (test.writer.write(writes(2..3)), test.writer.write(writes(3..7)), test.writer.write(Vec::new()));
    assert_eq!(test.writer.queued(), 3);
    test.may.send(Ok(())).unwrap();
    assert_eq!(block_on(first).unwrap(), done(0..2));
    assert_eq!(test.begun.recv().unwrap(), 5);
    test.may.send(Ok(())).unwrap();
    assert_eq!(block_on(third).unwrap(), done(3..7));
    assert_eq!(block_on(second).unwrap(), done(2..3));
    assert_eq!(block_on(none).unwrap(), Vec::new());
}

#[test]
fn writes_of_a_caller_that_has_gone_are_made() {
    let test = test();
    drop(test.writer.write(writes(0..3)));
    test.may.send(Ok(())).unwrap();
    test.may.send(Ok(())).unwrap();
    drop(test.writer.write(writes(3..4)));
    drop(test.writer);
    test.thread.join().unwrap();
    assert_eq!(test.store.made.load(Ordering::SeqCst), 4, "the thread ends after what was queued");
}

#[test]
fn every_caller_gets_the_error_of_the_store() {
    let test = test();
    let first = test.writer.write(writes(0..1));
    test.begun.recv().unwrap();
    let others = [test.writer.write(writes(1..2)), test.writer.write(writes(2..3))];
    test.may.send(Ok(())).unwrap();
    test.may.send(Err(Error::new(ErrorKind::LocalIo, "the disk is full"))).unwrap();
    block_on(first).unwrap();
    for other in others {
        assert_eq!(block_on(other).unwrap_err().message(), "the disk is full");
    }
    test.may.send(Ok(())).unwrap();
    assert_eq!(block_on(test.writer.write(writes(4..5))).unwrap(), done(4..5), "and it goes on");
}

#[test]
fn a_caller_that_asks_for_the_impossible_spoils_nothing_for_others() {
    let test = test();
    let first = test.writer.write(writes(0..1));
    test.begun.recv().unwrap();
    let (good, bad) = (test.writer.write(writes(1..2)), test.writer.write(writes(2..3)));
    let impossible = || Err(Error::new(ErrorKind::Usage, "too long"));
    for word in [Ok(()), impossible(), Ok(()), impossible()] {
        test.may.send(word).unwrap();
    }
    block_on(first).unwrap();
    assert_eq!(block_on(good).unwrap(), done(1..2));
    assert_eq!(block_on(bad).unwrap_err().message(), "too long");
}

#[test]
fn a_full_queue_pushes_back() {
    let test = test();
    let first = test.writer.write(writes(0..1));
    test.begun.recv().unwrap();
    let queued: Vec<_> = (0..limits::STORE_QUEUE_MAX).map(|_| test.writer.write(writes(1..2))).collect();
    assert_eq!(test.writer.queued(), limits::STORE_QUEUE_MAX);
    let mut context = Context::from_waker(Waker::noop());
    {
        let mut taken_back = pin!(test.writer.write(writes(2..3)));
        assert!(taken_back.as_mut().poll(&mut context).is_pending());
    }
    let mut late = Box::pin(test.writer.write(writes(3..4)));
    assert!(matches!(late.as_mut().poll(&mut context), Poll::Pending));
    for _ in 0..=2 {
        test.may.send(Ok(())).unwrap();
    }
    block_on(first).unwrap();
    for one in queued {
        assert_eq!(block_on(one).unwrap(), done(1..2));
    }
    assert_eq!(block_on(late).unwrap(), done(3..4));
    assert_eq!(test.store.made.load(Ordering::SeqCst), limits::STORE_QUEUE_MAX + 2);
}
