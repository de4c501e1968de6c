//! The common values of all crates: URLs, networks, byte ranges and sets of them, checksums that can be
//! combined, units, limits and errors; and the names and texts from outside that are accepted.
//!
//! Pure: no socket, no file, no clock. Time is a value ([`time::Time`]) that a caller passes in.
//!
//! Read first: [`range`], then [`checksum`], then [`error`].

pub mod backoff;
mod boxed;
pub mod checksum;
pub mod error;
mod hint;
pub mod limits;
pub mod name;
pub mod network;
pub mod pacer;
mod posix_crc;
pub mod range;
pub mod secret;
pub mod speaks;
pub mod text;
pub mod time;
pub mod units;
pub mod url;

pub use backoff::Backoff;
pub use boxed::Boxed;
pub use checksum::{Checksum, ChecksumKind, Hasher};
pub use error::{Error, ErrorKind, Fault, Result};
pub use hint::Hint;
pub use network::Network;
pub use pacer::Pacer;
pub use range::{ByteRange, RangeSet};
pub use secret::Secret;
pub use speaks::Speaks;
pub use time::{Time, WakingClock};
pub use url::{Endpoint, Scheme, Url};
