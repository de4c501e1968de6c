//! Copies from one server to another whose bytes do not come here: a server makes them, and is told to.
//!
//! ```text
//!  FileCopy ──▶ Initiator ──▶ looks at both ends ──▶ pull ──▶ push ──▶ the bytes go through this process
//!                  │                                  │        │
//!                  │                                http: COPY, markers       (root: the destination fetches)
//!                  └──────▶ verify: sizes and checksums of both ends
//! ```
//!
//! Which server is asked, and in which way, is decided here. A way that a server cannot go, or may not, is followed by the
//! next one, and at last by the engine, which takes the bytes through this process: a [`Detour`] is told then, with the reason.
//! What is wrong with the file itself (there is none, there is one already, no room, another checksum) is the end of the
//! copy: no other way would change it. So is a copy that broke off after bytes had moved.
//!
//! Read first: `terms`, `initiator`, then `http` and `root`.

mod ends;
mod failure;
mod http;
mod initiator;
mod passive;
mod proof;
pub mod root;
mod telling;
mod terms;
mod verify;

pub(crate) use initiator::{Initiator, Task, Tried};
pub(crate) use terms::FileObserver;
pub use terms::{Carrier, Copied, Detour, Mode, Progress, ThirdParty, Unstated, Wish};
