//! Logging in at an issuer of tokens, and renewing what it gave: the client's side of OpenID Connect and OAuth 2.0.
//!
//! ```text
//! issuer ─▶ documents ─▶ Provider ─▶ device_call ─▶ DeviceGrant ─▶ DeviceFlow: when to ask next
//!                          │                                            │ token_call(Grant::Device)
//!                          └─▶ token_call(Grant::Refresh, …) ─▶ read_tokens ─▶ Tokens, or why there are none
//! ```
//!
//! Pure: a [`Call`] is what is to be sent, and answers are read from their bytes. The edge sends it over https to the place
//! that the issuer's own description names, and follows no redirect to another server.
//!
//! An issuer is trusted with the user's login, and yet nothing of its answers is taken on faith: they are bounded; words of
//! its own are shortened, made printable, and never repeat a secret that it was sent (some issuers put a refused refresh
//! token into the text of the error).
//!
//! Specifications: OAuth 2.0 (RFC 6749), bearer tokens (RFC 6750), OpenID Connect Discovery 1.0, RFC 8414, the device
//! authorization grant (RFC 8628), token exchange (RFC 8693), the WLCG Common JWT Profiles.

mod answer;
mod call;
mod device;
mod provider;
#[cfg(test)]
mod tests;

pub use answer::{IssuerWords, Tokens, Unusable, read_tokens};
pub use call::{Call, Client, Grant, TokenType, device_call, token_call};
pub use device::{DeviceFlow, DeviceGrant, Step, read_device};
pub use provider::{Provider, documents, read_provider};
