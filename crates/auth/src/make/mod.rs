//! Makes credentials: keys, certificates, proxies, requests for them, revocation lists, VOMS attribute certificates.
//!
//! ```text
//! Key ──┐
//! Name ─┼─▶ Contents ──sign──▶ certificate ─┐
//! Extension                                 ├─▶ Credential ──proxy──▶ Credential
//!                                       Key ┘
//! ```
//!
//! For `gridlane pki`, which makes what a fleet of test servers needs, for proxies of users, and for tests, which also
//! need certificates that must not be believed: [`Contents`] signs whatever it is told to, right or wrong. [`profile`]
//! has the usual ones.
//!
//! Nothing here judges a certificate; that is what [`x509`](crate::x509) is for.

mod certificate;
mod credential;
mod crl;
mod der;
mod extension;
mod key;
mod name;
pub mod pem;
pub mod profile;
mod proxy;
mod request;
mod voms;

pub use certificate::{Contents, Validity, serial};
pub use credential::Credential;
pub use crl::{RevocationList, Revoked};
pub use extension::{AlternativeName, Extension, KeyUsage, ProxyPolicy, key_id};
pub use key::{Curve, Key};
pub use name::{Name, Text};
pub use proxy::{ProxyTerms, proxy, proxy_chain};
pub use request::{proxy_request, request};
pub use voms::{AttributeCertificate, Targets, VOMS_EXTENSION, voms_extension};
