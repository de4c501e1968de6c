//! Identities and rights of clients: credential → identity → decision.
//!
//! ```text
//! certificate chain ─▶ x509 ─▶ voms ─┐
//! JSON Web Token ────▶ token ────────┼─▶ Identity ─▶ Policy ─▶ Decision, with the rule that made it
//! macaroon ──────────▶ macaroon ─────┤
//! user and password ─▶ password ─────┘
//! ```
//!
//! Pure: keys, trust anchors, randomness and the time are arguments. Times are seconds since 1970 (`now_s`), as in all
//! these credentials.
//!
//! A credential that is not what it claims to be is a [`Refusal`]: the fault in words for the client that presented
//! it. That is no decision: a client without a good credential is [`Identity::Anonymous`], or is sent away.
//!
//! Read first: [`identity`], then [`policy`].

pub mod delegation;
pub mod dn;
pub mod fqan;
pub mod gridmap;
pub mod identity;
pub mod macaroon;
pub mod make;
pub mod operation;
pub mod password;
pub mod policy;
pub mod refusal;
pub mod secrets;
pub mod token;
pub mod voms;
pub mod x509;

pub use fqan::Fqan;
pub use identity::{Capability, Identity};
pub use operation::{Grants, Operation};
pub use policy::{Asker, Decision, Policy, Rule};
pub use refusal::{Cause, Refusal};
