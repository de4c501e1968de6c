//! Credentials that users have lent to a service: kept encrypted, handed out while they last, renewed where they can be.
//!
//! ```text
//! upload, request ─▶ Delegations ─┐
//!                                 ├─▶ Vault: sealed records ─▶ Store: a directory, memory, a database
//! job's token ─────▶ JobTokens ───┘     ▲
//!                      │                └── Secrets of the site
//!                      └─▶ Issuer: exchange, refresh
//! ```
//!
//! A library for the transfer service, without any HTTP. What is believed and decided is in
//! [`gridlane_auth::delegation`], pure; here is what touches disks and issuers. What sealing
//! protects against, and what not: `docs/decisions/2026-11-27-delegated-credentials-sealed.md`.
//!
//! Everything but [`JobTokens::advance`] blocks for as long as its store does: call it where that is allowed.
//!
//! ```
//! # use gridlane_delegation::{Delegations, MemoryStore, Secrets, Vault};
//! # use gridlane_auth::{delegation, make::*, x509::Trust};
//! # let random = ring::rand::SystemRandom::new();
//! # let now_s = 1_800_000_000;
//! # let validity = Validity::from_now(now_s, 86_400);
//! # let key = || Key::generate(Curve::P256, &random);
//! # let ca = profile::authority(&"/CN=CA".parse()?, key()?, validity, &random)?;
//! # let ada = profile::user(&ca, &"/CN=Ada".parse()?, key()?, validity, &random)?;
//! # let (trust, _) = Trust::read([("ca.pem".to_owned(), ca.chain_pem().into_bytes())]);
//! let secrets = Secrets::parse("oLXt3DuSgwL8Bz1AZLAbAJT5n6tTjmCkFz2T0mDcBv0=")?;
//! let delegations = Delegations::new(Vault::new(MemoryStore::default(), secrets));
//! let request = delegations.request("1c4f2b7a90d3e865", delegation::KeyKind::P256, || key())?;
//!
//! // Elsewhere: the user signs it.
//! let terms = ProxyTerms::new(Validity::from_now(now_s, 7 * 3600));
//! let chain = delegation::Request::read(request.as_bytes())?.sign(&ada, terms, now_s, &random)?;
//! let upload: String = chain.iter().map(|der| pem::encode(pem::CERTIFICATE, der)).collect();
//!
//! delegations.accept("1c4f2b7a90d3e865", "/CN=Ada", upload.as_bytes(), &trust, now_s)?;
//! let lent = delegations.credential("1c4f2b7a90d3e865")?.expect("it was accepted");
//! assert_eq!(lent.ends_s, now_s + 7 * 3600);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod delegations;
mod dir;
mod job_tokens;
mod memory;
mod seal;
mod secrets;
mod store;
pub mod suite;
mod vault;

pub use delegations::{Delegations, Failure, Lent};
pub use dir::DirStore;
pub use job_tokens::{Advanced, Issuer, JobTokens};
pub use memory::MemoryStore;
pub use secrets::Secrets;
pub use store::{Kind, RecordId, Store};
pub use vault::Vault;
