//! A payload whose end waits for another task.

use std::io;
use std::sync::Arc;

use gridlane_front::pieces::Pieces;
use gridlane_store::BoxFuture;
use tokio::sync::Semaphore;

/// The end of an answer, which takes a permit.
pub(crate) struct Later(pub(crate) Arc<Semaphore>);

impl Pieces for Later {
    fn next<'a>(&'a mut self, out: &'a mut Vec<u8>) -> BoxFuture<'a, io::Result<bool>> {
        Box::pin(async move {
            self.0.acquire().await.unwrap().forget();
            out.extend_from_slice(b", and that is all");
            Ok(false)
        })
    }
}
