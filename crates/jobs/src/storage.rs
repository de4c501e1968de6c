//! Storages, and links between them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A storage endpoint, by scheme and host in small letters, without a port: `davs://se.example.org`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Storage(pub Arc<str>);

impl Storage {
    /// All of them, in configuration.
    pub const ANY: &str = "*";
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for Storage {
    fn from(name: &str) -> Storage {
        Storage(name.into())
    }
}

/// An ordered pair of storages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Link {
    /// Where files are.
    pub source: Storage,
    /// Where they go.
    pub destination: Storage,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {}", self.source, self.destination)
    }
}
