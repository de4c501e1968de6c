//! Questions to servers that answer as told. One program, which is linked once.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

#[path = "support/proxy.rs"]
mod proxy;
#[allow(dead_code)] // the tests of the engine need more of it
#[path = "support/root.rs"]
mod root_site;
#[path = "support/script.rs"]
mod script;

mod exchange;
mod pool;
mod proxies;
mod root;
mod root_credentials;
