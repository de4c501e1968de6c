//! The C interface of the remote reader: `libgridlane`, whose header `include/gridlane.h` says what it does.
//!
//! ```text
//!  gridlane_pread, _readv ──▶ File ──read──▶ engine::reading::RemoteFile ◀── runtime's threads
//!        ▲ copies, here          │                     │
//!        └────── parked ◀── Waker┘                     │ wakes
//!  gridlane_submit ──▶ Call in a Queue ◀───────────────┘
//!  gridlane_queue_take ──▶ copies, here; the queue's eventfd is readable while a call has news
//! ```
//!
//! Completions are taken from a queue and not called back from a thread of ours, for four reasons. No code of the caller runs on our
//! threads, so that it can neither block them nor throw through them nor call into the library from within it. The buffers are
//! written by the caller's own thread, inside of a call of the caller's: so a call that was cancelled is over at once, unless another
//! thread of the caller's is taking from it. A descriptor goes into any event loop. And a program that wants callbacks makes them of it
//! with a thread and ten lines, while the other way round is harder.
//!
//! Pointers to things of ours are numbers (`handles`): what was closed is not found, and nothing of a caller's mistake is
//! followed. `unsafe` is in two modules: `abi`, the functions, and `memory`, what they read and write of the caller's.
//!
//! A panic ends at the boundary as an error; nothing is printed.
//!
//! Read first: `include/gridlane.h`, then `file` and `queue`.
#![warn(clippy::undocumented_unsafe_blocks)]

mod abi;
mod failure;
mod file;
mod handles;
mod memory;
mod opening;
mod process;
mod queue;
mod sessions;
