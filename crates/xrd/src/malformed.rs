//! The error of everything that reads a peer's bytes.

use crate::registry::ErrorCode;

/// Bytes of a peer that make no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The code that a client is told.
    pub code: ErrorCode,
    /// In words.
    pub message: &'static str,
    /// The beginning of the next message is unknown: the connection has to end.
    pub closes: bool,
}

impl Malformed {
    /// A refusal after which the connection goes on.
    pub const fn new(code: ErrorCode, message: &'static str) -> Malformed {
        Malformed { code, message, closes: false }
    }

    /// The same, after which the connection ends.
    pub const fn closing(self) -> Malformed {
        Malformed { closes: true, ..self }
    }
}
