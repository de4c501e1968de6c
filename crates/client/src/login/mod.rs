//! Logins at issuers of tokens: made once by a person, kept in a file, and renewed by whatever command uses them.
//!
//! ```text
//! log_in ─▶ Store: NAME.json (refresh token, access token) ─▶ LoginSource ─▶ peer::Credentials
//!              ▲ stored before it is used        renew, under a lock │
//!              └─────────────────────────────────────────────────────┘
//! ```
//!
//! A refresh token of most issuers is good once: whoever uses it gets another one with the access token. So a renewal holds
//! the lock of its login, reads the file again behind it, has room on the disk before it asks, and stores what came before
//! the new access token is used. A process that ends waits for its renewals ([`settle`]); what is killed between the issuer's
//! answer and the file can leave a login that is over, which only logging in again repairs.
//!
//! Accounts of oidc-agent are logins as well (`agent`): the agent renews, and keeps.
//!
//! What is sent and what is understood of answers is decided in `gridlane_auth::oidc`.

pub(crate) mod agent;
mod issuer;
mod make;
mod settling;
mod source;
mod store;

pub use issuer::Issuer;
pub use make::{LoginSettings, NewLogin, exchange, log_in, renew};
pub use settling::settle;
pub use source::{LoginSource, Teller};
pub use store::{Access, Login, Store, judge_name};

use gridlane_core::{Error, ErrorKind, Fault};

/// What an `oidc-agent:ACCOUNT` begins with.
pub(crate) const AGENT_PREFIX: &str = "oidc-agent:";

/// An error of the caller's.
fn usage(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Usage, message).fault(Fault::Caller)
}
