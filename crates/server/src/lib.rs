//! The service of storage behind `gridlane serve`: WebDAV and requests of XRootD's protocol, on the front that every
//! server has (`gridlane_front`).
//!
//! The front accepts connections, authenticates clients, keeps them to their limits, moves payloads and writes logs.
//! Here is the rest: the meaning of a path (`export`), the operations on it, and their answers.
//!
//! *Deciding* looks at the head and the storage and ends in a `Reply`: status, fields, and a descriptor of the payload.
//! The permissions are one policy over all exports: each method asks it about the operations that it needs
//! (`export::Spot`). The file that a connection asked for last stays open for its next request (`recent`).
//!
//! It is a WebDAV server of class 1 (RFC 4918): each method has a module of its own, what several of them ask of a
//! request is in `conditions` and `origin`, and copies of files and trees are in `copying`. There are no locks and no
//! dead properties. `root::requests` says which request of XRootD's protocol is answered by what. Storage, exports and
//! rules are the same.
//!
//! It guarantees: a disk never stalls another client; nothing half-written is visible, but what a client of XRootD's
//! protocol writes in place.
//!
//! Read first: `storage_service`, `serving`, then `methods` and `export`.

mod conditions;
mod copy_request;
mod copying;
mod cors;
mod delete;
mod digest_request;
mod digests;
pub mod export;
mod get;
mod macaroons;
mod methods;
mod mirrors;
mod mkcol;
mod options;
mod origin;
mod propfind;
mod proppatch;
mod put;
mod recent;
mod relocate;
mod root;
mod serving;
mod storage_checks;
mod storage_service;
mod third_party;

pub use export::{Compat, Export, open_to_anyone};
pub use storage_service::{StorageService, StorageSettings, settings_of};
pub use third_party::ThirdPartySettings;

/// A server of storage.
pub type Server = gridlane_front::Server<StorageService>;

/// Changes a server of storage while it runs.
pub type Control = gridlane_front::Control<StorageService>;

/// The settings of a server of storage: those of the front, and of storage inside.
pub type Settings = gridlane_front::Settings<StorageSettings>;

/// The name and version by which the server calls itself.
pub(crate) const PRODUCT: &str = concat!("gridlane/", env!("CARGO_PKG_VERSION"));
