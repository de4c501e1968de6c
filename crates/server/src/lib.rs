//! Sessions to storage: the server behind `gridlane serve`, HTTP/1.1, HTTPS and XRootD's protocol on one port.
//!
//! A request passes these phases, each with one place in the code:
//!
//! ```text
//! accept ─▶ detect, TLS ─▶ head ─▶ who ─▶ decide ─▶ (body) ─▶ answer ─▶ log ─▶ next head, or close
//! server    gridlane-net   connection  auth  get·put·…  body   transfer   access_log   connection
//! ```
//!
//! *Who* asks is what a credential in the request proves, or the connection's certificate, or nobody in particular
//! ([`gridlane_auth`] judges them; `auth` is where keys, sockets and clocks meet that). What somebody may do is one policy
//! over all exports: each method asks it about the operations that it needs (`export::Spot`).
//!
//! *Deciding* looks at the head and the storage and ends in a `Reply`: status, fields, and a descriptor
//! of the payload (bytes, "this object from here to there", or something that makes one piece after the other). The
//! data plane then moves the payload in a plain loop: `sendfile` where there is a file and no TLS, else a page-aligned
//! buffer. The file that a connection asked for last stays open for its next request (`recent`).
//!
//! It is a WebDAV server of class 1 (RFC 4918): each method has a module of its own, what several of them ask of a
//! request is in `conditions` and `origin`, and copies of files and trees are in `copying`. There are no locks and no
//! dead properties.
//!
//! XRootD's protocol has its own way through: `root::connection` reads requests and sends answers, several at a time,
//! `root::dispatch` says which is answered by what. Storage, exports, rules, limits, logs and metrics are the same.
//!
//! What it guarantees: a client costs a task and never a thread, however slow or silent; every wait has a
//! deadline; a disk never stalls another client; nothing half-written is visible, but what a client of XRootD's protocol
//! writes in place; an answer is never padded.
//! Every limit is in [`gridlane_core::limits`]. Of all that there is so much of, one client has a part at most (`budget`).
//!
//! What an operator decides is one generation of settings; a reload makes the next, with which requests that begin
//! afterwards are served. What the server does is counted and told on an address of its own (`admin`, `metrics`).
//!
//! It is no framework and no general web server: no virtual hosts, no rewriting, no scripts.
//!
//! Read first: [`settings`], then [`server`], then `connection`, `auth` and `export`.

mod conditions;
mod copying;
mod cors;
mod delete;
mod digests;
pub mod export;
mod get;
mod looks;
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
mod storage_service;
mod wanted;

pub use export::{Compat, Export, READ_ONLY, open_to_anyone};
pub use storage_service::{StorageService, StorageSettings, settings_of};

/// A server of storage.
pub type Server = gridlane_front::Server<StorageService>;

/// Changes a server of storage while it runs.
pub type Control = gridlane_front::Control<StorageService>;

/// What an operator decides.
pub type Settings = gridlane_front::Settings<StorageSettings>;

/// What the server calls itself.
pub(crate) const PRODUCT: &str = concat!("gridlane/", env!("CARGO_PKG_VERSION"));
