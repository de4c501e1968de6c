//! HTTP as gridlane speaks it, as pure functions over bytes: nothing here reads a socket or a clock.
//!
//! Both sides use it. A server parses [`request`] heads into a type that cannot be wrong, resolves
//! [`range`]s and [`conditional`]s, and renders [`listing`]s. A client parses [`response`] heads,
//! checks the [`range::ContentRange`] that came back, and reads [`links`] of another server's listing. Bodies that
//! come in chunks are decoded by [`chunked`]; checksums travel as [`digest`].
//!
//! Several ranges at once are asked for with [`ranges`], answered as [`multipart`] and read by
//! [`multipart_reader`]. [`metalink`]s and the [`link_header`] name the replicas of a file. WebDAV's requests are
//! in [`propfind`] and [`webdav`], its listings in [`multistatus`] and, for the client, [`multistatus_reader`].
//! All XML of these goes through one reader, `xml`. Copies between two servers, which a COPY asks for, are in [`third_party`].
//!
//! It is no HTTP implementation: the order of messages is decided by `gridlane-front` and
//! `gridlane-peer`, which own their sockets.
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
mod href;
pub mod if_header;
pub mod leaves;
pub mod link_header;
pub mod links;
pub mod listing;
pub mod media_type;
pub mod metalink;
pub mod method;
pub mod multipart;
pub mod multipart_reader;
pub mod multistatus;
pub mod multistatus_reader;
pub mod path;
pub mod property;
pub mod propfind;
pub mod range;
pub mod ranges;
pub mod request;
pub mod response;
pub mod status;
pub mod third_party;
pub mod timestamp;
pub mod webdav;
mod xml;
mod xml_syntax;

pub use chunked::ChunkedDecoder;
pub use etag::ETag;
pub use header::Headers;
pub use listing::{Entry, EntryKind};
pub use metalink::Metalink;
pub use method::{Method, Version};
pub use multipart::{Boundary, Multipart};
pub use multipart_reader::{AnswerToRanges, MultipartReader};
pub use multistatus::{Multistatus, Resource};
pub use multistatus_reader::{MultistatusEntry, MultistatusReader};
pub use path::ResourcePath;
pub use propfind::PropfindRequest;
pub use range::{ContentRange, OverlongRange, RangeSpec, UnsatisfiedRange};
pub use ranges::{RangeAnswer, RangeList};
pub use request::RequestHead;
pub use response::ResponseHead;
pub use status::Status;
