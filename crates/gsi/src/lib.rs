//! XRootD's `gsi`: a client and a server prove their certificates to each other over root://, and agree on a key.
//!
//! ```text
//! server                                   client
//! &P=gsi,v:10600,c:ssl,ca:HASH.0   ──▶
//!                                  ◀──     1000 tag c
//! 2001 certificate, {DH}s, {c}s, tag s ─▶                         {x}s: with the private key of the server
//!                                  ◀──     1001 key, {DH}p, [chain, {s}p]   {x}p: of the proxy; [x]: with the agreed key
//! 2002 [request for a proxy]       ──▶                            only where the server wants one, and the client gives it
//!                                  ◀──     1002 [proxy]
//! ```
//!
//! A tag is eight characters of no meaning; to send the other's back, encrypted with the own private key, is the proof. Both
//! machines take bytes and give bytes. Which certificate is believed is not decided here: [`Client`] asks its owner
//! about the server's, and [`Server`] gives its owner the client's chain to judge.
//!
//! Peers from before the exchange was signed (version 10400, XRootD 4.9) are refused: a third party could take the session over.
//!
//! Read first: [`server`].

mod agreement;
mod buffer;
mod cipher;
pub mod client;
mod exchange;
mod keys;
mod parameters;
pub mod server;

pub use cipher::SessionKey;
pub use client::{Client, ClientCredential};
pub use exchange::VERSION;
pub use keys::{generate_rsa_pkcs8, issuer_hash};
pub use parameters::Parameters;
pub use server::{HostCredential, Server, ServerStep};

#[cfg(test)]
mod tests;
