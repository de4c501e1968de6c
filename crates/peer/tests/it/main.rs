//! Questions to servers that answer as told. One program, which is linked once.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

#[path = "support/proxy.rs"]
mod proxy;
#[path = "support/root.rs"]
mod root_site;
#[path = "support/script.rs"]
mod script;

mod exchange;
mod forwarded;
mod identity;
mod pool;
mod proxies;
mod refused_handshakes;
mod root;
mod root_credentials;
