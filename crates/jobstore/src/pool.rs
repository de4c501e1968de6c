//! Connections that several threads share, each for the time of a question.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use gridlane_core::{Result, limits};

/// Connections, at most [`STORE_READERS_MAX`](limits::STORE_READERS_MAX) of them.
pub(crate) struct Pool<C> {
    connections: Mutex<Connections<C>>,
    is_free: Condvar,
}

struct Connections<C> {
    idle: Vec<C>,
    open: usize,
}

impl<C> Default for Pool<C> {
    fn default() -> Pool<C> {
        Pool { connections: Mutex::new(Connections { idle: Vec::new(), open: 0 }), is_free: Condvar::new() }
    }
}

impl<C> Pool<C> {
    /// A connection that is not used, or a new one, when there may be one more.
    pub(crate) fn take(&self, open: impl FnOnce() -> Result<C>) -> Result<C> {
        let mut connections = self.connections();
        loop {
            if let Some(connection) = connections.idle.pop() {
                return Ok(connection);
            }
            if connections.open < limits::STORE_READERS_MAX {
                connections.open += 1;
                drop(connections);
                return open().inspect_err(|_| self.closed());
            }
            connections = self.is_free.wait(connections).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes one back.
    pub(crate) fn give_back(&self, connection: C) {
        self.connections().idle.push(connection);
        self.is_free.notify_one();
    }

    /// One that was taken is no more: another may be opened.
    pub(crate) fn closed(&self) {
        let mut connections = self.connections();
        connections.open = connections.open.saturating_sub(1);
        drop(connections);
        self.is_free.notify_one();
    }

    fn connections(&self) -> MutexGuard<'_, Connections<C>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_core::{Error, ErrorKind};

    #[test]
    fn there_are_so_many_and_no_more() {
        let pool = Pool::default();
        let taken: Vec<usize> =
            (0..limits::STORE_READERS_MAX).map(|number| pool.take(|| Ok(number)).unwrap()).collect();
        let waited = std::thread::scope(|scope| {
            let waits = scope.spawn(|| pool.take(|| Ok(99)).unwrap());
            pool.give_back(taken[2]);
            waits.join().unwrap()
        });
        assert_eq!(waited, 2);
        pool.closed();
        let failed = pool.take(|| Err(Error::new(ErrorKind::Other, "no")));
        assert!(failed.is_err());
        assert_eq!(pool.take(|| Ok(7)).unwrap(), 7, "one that could not be opened takes no place");
    }
}
