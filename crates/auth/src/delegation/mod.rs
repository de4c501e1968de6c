//! Delegation: another party gets a proxy of a user, whose key never leaves that party (RFC 3820); and what a service
//! needs to use such proxies and tokens for longer than one of them lasts.
//!
//! ```text
//! service: Key ──make::request──▶ request ─┐                        ┌─▶ accept ─▶ Delegated ─▶ Watch: ends when?
//! client:                                  └─▶ Request::read, sign ─┘
//!
//! job: access token ─▶ JobToken ─▶ Step: exchange, refresh, wait, the owner must act
//! ```
//!
//! Neither side believes the other. The client signs only what is a request, with a key that is good for something; the
//! service takes only a chain that an authority vouches for, of the very user that uploads it, for the very key that it
//! keeps. It serves the REST interface of FTS3 and XRootD's gsi alike, and knows nothing of either.
//!
//! ```
//! # use gridlane_auth::{delegation, make::*, x509::Trust};
//! # let random = ring::rand::SystemRandom::new();
//! # let now_s = 1_800_000_000;
//! # let validity = Validity::from_now(now_s, 86_400);
//! # let key = || Key::generate(Curve::P256, &random);
//! # let ca = profile::authority(&"/CN=CA".parse()?, key()?, validity, &random)?;
//! # let ada = profile::user(&ca, &"/CN=Ada".parse()?, key()?, validity, &random)?;
//! # let (trust, _) = Trust::read([("ca.pem".to_owned(), ca.chain_pem().into_bytes())]);
//! // The service makes a key for the user and asks for a proxy of it.
//! let kept = key()?;
//! let request = request(&delegation::request_subject()?, &kept, &random)?;
//!
//! // The client signs the request with the user's credential, for seven hours.
//! let read = delegation::Request::read(&request)?;
//! let terms = ProxyTerms::new(Validity::from_now(now_s, 7 * 3600));
//! let chain = read.sign(&ada, terms, now_s, &random)?;
//!
//! // The service judges what comes back.
//! let upload: String = chain.iter().map(|der| pem::encode(pem::CERTIFICATE, der)).collect();
//! let delegated = delegation::accept(upload.as_bytes(), &kept.public_key(), "/CN=Ada", &trust, now_s)?;
//! assert_eq!(delegated.ends_s, now_s + 7 * 3600);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod job_token;
mod key_kind;
mod request;
mod upload;
mod watch;

pub use job_token::{Exchanged, Issued, JobToken, Step, TokenTerms, Trouble, Unusable};
pub use key_kind::KeyKind;
pub use request::{Request, request_subject};
pub use upload::{Delegated, accept, accept_of_session};
pub use watch::Watch;

#[cfg(test)]
mod tests;
