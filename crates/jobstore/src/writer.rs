//! Writes of many callers, made together.
//!
//! A transaction costs a sync of the disk, whatever is in it. While one is being made, callers queue up; those that are there when
//! it has ended share the next one. Alone a caller waits for one sync, and a thousand wait for two.

use std::future::Future;
use std::sync::Arc;
use std::thread;

use gridlane_core::{Error, ErrorKind, Fault, Result, limits};
use tokio::sync::mpsc::error::{TryRecvError, TrySendError};
use tokio::sync::{mpsc, oneshot};

use crate::store::{Answer, JobStore, Write};

/// The answers to a caller's writes.
type Answers = Result<Vec<Answer>>;

/// Makes writes of many callers together, by a thread of its own.
#[derive(Clone, Debug)]
pub struct Writer {
    queue: mpsc::Sender<Request>,
}

/// Writes of a caller.
struct Request {
    writes: Vec<Write>,
    answer: oneshot::Sender<Answers>,
}

impl Writer {
    /// Starts a thread that writes to a store. It ends when no `Writer` is left, after what was queued is written;
    /// the handle is for waiting for that.
    ///
    /// # Errors
    /// There can be no more threads.
    pub fn start(store: Arc<dyn JobStore>) -> Result<(Writer, thread::JoinHandle<()>)> {
        let (queue, requests) = mpsc::channel(limits::STORE_QUEUE_MAX);
        let thread =
            thread::Builder::new().name("job-writer".to_owned()).spawn(move || run(&*store, requests));
        let thread =
            thread.map_err(|cause| Error::local_io("cannot start the thread that writes jobs", &cause))?;
        Ok((Writer { queue }, thread))
    }

    /// Makes writes in this order, in one transaction, together with those of others; ready when they are durable.
    ///
    /// They are in the queue when this returns, and are made whether or not the answer is waited for, unless the queue is full:
    /// then they get into it as the future is waited for, and dropping it early takes them back.
    ///
    /// # Errors
    /// The store's, as of [`JobStore::write`].
    pub fn write(&self, writes: Vec<Write>) -> impl Future<Output = Answers> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        let refused = self.queue.try_send(Request { writes, answer }).err();
        let queue = self.queue.clone();
        async move {
            match refused {
                None => {}
                Some(TrySendError::Full(request)) => {
                    queue.send(request).await.map_err(|_| gone())?;
                }
                Some(TrySendError::Closed(_)) => return Err(gone()),
            }
            // The thread may end while the answer is waited for.
            drop(queue);
            answered.await.map_err(|_| gone())?
        }
    }

    /// Callers that wait in the queue.
    pub fn queued(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }
}

/// The thread has ended by a defect: it cannot be known what became of the writes.
fn gone() -> Error {
    Error::new(ErrorKind::Other, "the thread that writes jobs has ended").fault(Fault::Internal)
}

/// Makes the writes of all that wait, again and again.
fn run(store: &dyn JobStore, mut requests: mpsc::Receiver<Request>) {
    // Has been taken from the queue, and was too much for the group before.
    let mut left = None;
    while let Some(first) = left.take().or_else(|| requests.blocking_recv()) {
        let mut rows = rows_of(&first);
        let mut group = vec![first];
        while rows < limits::STORE_GROUP_ROWS_MAX {
            match requests.try_recv() {
                Ok(request) if rows + rows_of(&request) > limits::STORE_GROUP_ROWS_MAX => {
                    left = Some(request);
                    break;
                }
                Ok(request) => {
                    rows += rows_of(&request);
                    group.push(request);
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        make(store, group);
    }
}

/// Rows that writes take, about.
fn rows_of(request: &Request) -> usize {
    let rows = |write: &Write| match write {
        Write::Submit(new) => 2 * new.files.len() + 2,
        Write::Cancel { .. } | Write::Archive { .. } => 100,
        _ => 2,
    };
    request.writes.iter().map(rows).sum()
}

/// Makes the writes of a group in one transaction, and answers each caller. A caller that has gone is not missed.
fn make(store: &dyn JobStore, group: Vec<Request>) {
    let mut writes = Vec::new();
    let mut callers = Vec::with_capacity(group.len());
    for request in group {
        let begin = writes.len();
        writes.extend(request.writes);
        callers.push((begin..writes.len(), request.answer));
    }
    match store.write(&writes) {
        Ok(answers) => {
            let mut answers = answers.into_iter();
            for (range, caller) in callers {
                let _ = caller.send(Ok(answers.by_ref().take(range.len()).collect()));
            }
        }
        // One of them asks for what no store can do (a text of 1 GB): the others have nothing to do with it.
        Err(error) if error.whose_fault() == Fault::Caller && callers.len() > 1 => {
            for (range, caller) in callers {
                let _ = caller.send(store.write(&writes[range]));
            }
        }
        Err(error) => {
            for (_, caller) in callers {
                let _ = caller.send(Err(error.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests;
