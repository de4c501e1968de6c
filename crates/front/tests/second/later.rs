//! A payload whose end waits for another task.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gridlane_front::pieces::Pieces;
use gridlane_store::BoxFuture;
use tokio::sync::Semaphore;

/// The end of an answer, which takes a permit, and counts clients that have left before.
pub(crate) struct Later {
    pub(crate) ends: Arc<Semaphore>,
    pub(crate) left: Arc<AtomicUsize>,
}

impl Pieces for Later {
    fn next<'a>(&'a mut self, out: &'a mut Vec<u8>) -> BoxFuture<'a, io::Result<bool>> {
        Box::pin(async move {
            self.ends.acquire().await.unwrap().forget();
            out.extend_from_slice(b", and that is all");
            Ok(false)
        })
    }

    fn client_left(&mut self) {
        self.left.fetch_add(1, Ordering::SeqCst);
    }
}
