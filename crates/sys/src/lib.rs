//! Safe faces of the system calls that Rust's libraries do not offer, and page-aligned memory.
//!
//! The only crate with `unsafe`, but for the boundary of `capi`. Each item has a safe signature and says what happens where the
//! kernel lacks the feature. Most system calls need no unsafe: `rustix` wraps them, and is used directly.

mod aligned;
pub mod file;
pub mod names;
pub mod namespace;
pub mod process;
pub mod schedule;
pub mod tcp;
pub mod tun;

pub use aligned::{AlignedBuf, PAGE_BYTES, ReusedBuf};
