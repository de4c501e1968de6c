//! A future on the heap.

use std::pin::Pin;

/// A future on the heap, of a type that has no name. Its code is compiled where it is written: that of a bare `async fn` is
/// compiled again by every crate that awaits it, and its state is part of the state of each that does.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
