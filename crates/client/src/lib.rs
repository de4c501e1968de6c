//! The operations of a user, in terms of the engine: copies, trees, metalinks, listings, names, checksums, diagnosis,
//! probes, replayed reads.
//!
//! Every call takes URLs of any scheme; an operation that a scheme lacks is an error of kind `Unsupported`. Bytes
//! of files move through `gridlane-engine` only; this crate decides names and asks short questions.

mod backlog;
mod contents;
mod copies;
pub mod credentials;
pub mod doctor;
pub mod events;
mod files;
mod filter;
mod guest;
mod item;
mod kept;
mod listing;
mod location;
pub mod login;
mod macaroon;
mod metalink;
mod namespace;
pub mod probe;
mod put;
mod random;
pub mod reading;
mod root;
mod runtime;
mod session;
mod stop;
mod target;
pub mod third_party;
mod threads;
mod tree;
mod tree_path;
mod typed;
mod voms;
mod walk;
mod whole_file;

use std::time::Duration;

pub use contents::{cat, checksum, refuse_directory};
pub use copies::rules::{Action, Existing};
pub use copies::{Copies, CopyEvent, CopyObserver, CopyOutcome, CopyRequest, Kept, journal_keys, patient};
pub use files::{Stat, remove, stat};
pub use filter::Filter;
pub use gridlane_dav::listing::{Entry, EntryKind};
pub use gridlane_dav::path::encode_name;
pub use guest::{forget_guest_runtime, found_guest_runtime, guest_runtime};
pub use item::{Item, OddKind, Space};
pub use kept::KeptSession;
pub use listing::{Lister, Listing};
pub use location::Location;
pub use macaroon::{GivenMacaroon, ask_macaroon};
pub use metalink::{Replicas, replicas};
pub use namespace::{make_directory, remove_directory, remove_tree, rename, space};
pub use put::put;
pub use runtime::runtime;
pub use session::{Session, authorities, connect, dialer, quiet_session, session, unsent};
pub use target::file_target;
pub use threads::bound_devices;
pub use tree::*;
pub use tree_path::TreePath;
pub use typed::{current_dir, typed_url};
pub use voms::{VomsGift, ask_voms, voms_url};
pub use walk::{Walk, WalkObserver, failure_of, walk};
pub use whole_file::WholeFile;

/// Longest wait for the answer to a short request.
const ANSWER_MAX: Duration = Duration::from_secs(60);
