//! `auth` (3000): credentials of one kind.
//!
//! ```text
//!  0 reserved (12)   12 kind (4, NUL padded)   payload: credentials, which begin with the kind and a NUL
//! ```

use crate::Malformed;
use crate::registry::RequestId;
use crate::request::Call;
use crate::wire::{Body, Reader};
use std::fmt;

/// Credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Auth {
    /// The kind: `unix`, `host`, `ztn`, `gsi`, `sss`; without NULs.
    pub kind: Vec<u8>,
    /// The credentials themselves.
    pub credentials: Vec<u8>,
}

/// Credentials are not shown.
impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Auth({:?})", String::from_utf8_lossy(&self.kind))
    }
}

impl Call for Auth {
    const ID: RequestId = RequestId::AUTH;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<Auth, Malformed> {
        let mut reader = Reader::new(body);
        reader.skip(12)?;
        let kind: [u8; 4] = reader.array()?;
        let kind = kind.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        Ok(Auth { kind, credentials: payload.to_vec() })
    }

    fn body(&self) -> [u8; 16] {
        Body::new().skip(12).put(&self.kind[..self.kind.len().min(4)]).done()
    }

    fn payload(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.credentials);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::testing::round_trip;

    #[test]
    fn credentials_travel_and_are_not_shown() {
        let auth = Auth { kind: b"unix".to_vec(), credentials: b"unix\0root root\0".to_vec() };
        assert!(!format!("{auth:?}").contains("root"));
        round_trip(auth);
        round_trip(Auth { kind: b"ztn".to_vec(), credentials: Vec::new() });
    }
}
