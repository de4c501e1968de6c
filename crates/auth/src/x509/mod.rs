//! Certificate chains with proxies (RFC 5280, RFC 3820), the trust of the grid, and revocation.
//!
//! ```text
//! files of a trust directory ──▶ Trust ──┐
//! what a peer sent (DER) ────────────────┼─▶ verify ──▶ Verified: whose it is, until when
//! the time ──────────────────────────────┘
//! ```
//!
//! OpenSSL with `-allow_proxy_certs -auth_level 2` is the measure, held by a test with hundreds of chains; where we are
//! stricter the test says why. Ours because no library in Rust knows proxies, and because a client that is refused
//! should be told which certificate is wrong and what to do.

mod certificate;
mod constraints;
mod crl;
pub(crate) mod der;
mod name;
mod rules;
pub mod signature;
mod signing_policy;
mod trust;
mod verify;

pub(crate) use certificate::shown;
pub use certificate::{Certificate, Extension};
pub use name::Name;
pub(crate) use name::short_names;
pub use trust::{OutdatedLists, Trust};
pub use verify::{Purpose, Verified, verify, verify_for};

#[cfg(test)]
mod tests;
