//! A payload whose end waits for somebody else.

use std::sync::Arc;

use gridlane_front::pieces::{Next, Pieces};
use tokio::sync::Semaphore;

/// The end of an answer, which takes a permit.
pub(crate) struct Later(pub(crate) Arc<Semaphore>);

impl Pieces for Later {
    fn next<'a>(&'a mut self, out: &'a mut Vec<u8>) -> Next<'a> {
        Box::pin(async move {
            self.0.acquire().await.unwrap().forget();
            out.extend_from_slice(b", and that is all");
            Ok(false)
        })
    }
}
