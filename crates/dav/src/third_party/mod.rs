//! Copies between two servers over HTTP, as the grid's storage does them (HTTP-TPC).
//!
//! A client sends COPY to one of the two, the *active* one, which then fetches from the other (*pull*, the
//! request has a `Source`) or uploads to it (*push*, with a `Destination`), and tells the client about it in the
//! body of its answer: [`CopyRequest`] is the request, [`Marker`] and [`success`] or [`failure`] are the lines of the
//! answer, [`MarkerReader`] reads them. The other server, the *remote*, need not know anything of this.
//!
//! The protocol and what gridlane adds to it, several sources, are in `docs/protocol/third-party-copy.md`.

mod marker;
mod reader;
mod request;

pub use marker::{MEDIA_TYPE, Marker, Stripe, failure, success};
pub use reader::{Ending, Event, MarkerReader, Progress};
pub use request::{CopyRequest, Direction, Field, Remote, SOURCES_FIELD, is_third_party};
