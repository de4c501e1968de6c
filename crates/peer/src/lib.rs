//! The clients of the protocols: connections to servers over HTTP and XRootD's protocol, and what is asked on them.

pub mod awake;
mod client;
mod credentials;
pub mod descriptors;
pub mod http;
mod memory;
pub mod mute;
pub mod paths;
mod pool;
pub mod root;

pub use client::Client;
pub use credentials::{Certificate, Credentials, HostPattern, Token, TokenSource, sends_password};
