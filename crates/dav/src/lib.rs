//! HTTP as gridlane speaks it, as pure functions over bytes: nothing here reads a socket or a clock.
//!
//! Both sides use it. A server parses [`request`] heads into a type that cannot be wrong, resolves
//! [`range`]s and [`conditional`]s, and renders [`listing`]s. A client parses [`response`] heads,
//! checks the [`range::ContentRange`] that came back, and reads [`links`] of somebody else's listing. Bodies that
//! come in chunks are decoded by [`chunked`]; checksums travel as [`digest`].
//!
//! It is no HTTP implementation: who sends what when is decided by `gridlane-server` and
//! `gridlane-engine`, which own their sockets.
//!
//! What a peer sent never panics here. A server's parser is strict and answers with a
//! [`request::Rejection`]; a client's is as tolerant as the servers of the grid require, and each
//! tolerance names the server that needs it.
//!
//! Read first: [`header`], then [`request`], then [`response`].

pub mod chunked;
pub mod conditional;
pub mod date;
pub mod digest;
pub mod etag;
pub mod header;
pub mod links;
pub mod listing;
pub mod media_type;
pub mod method;
pub mod path;
pub mod range;
pub mod request;
pub mod response;
pub mod status;

pub use chunked::ChunkedDecoder;
pub use etag::ETag;
pub use header::Headers;
pub use listing::{Entry, EntryKind};
pub use method::{Method, Version};
pub use path::ResourcePath;
pub use range::{ContentRange, RangeSpec, UnsatisfiedRange};
pub use request::RequestHead;
pub use response::ResponseHead;
pub use status::Status;
