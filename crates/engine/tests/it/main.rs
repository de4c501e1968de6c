//! Copies from and to servers that answer as told. One program, which is linked once.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

#[path = "../../../peer/tests/it/support/root.rs"]
mod root_site;
#[path = "../../../peer/tests/it/support/script.rs"]
mod script;
mod support;

mod hostile;
mod mirrors;
mod pool;
mod reading;
mod restarts;
mod root;
mod server_links;
mod targets;
mod trouble;
mod upload;
mod votes;
