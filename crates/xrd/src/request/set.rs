//! `set` (3018): settings of the session, for monitoring.
//!
//! ```text
//!  15 modifier (1)   payload: text: `appid …`, `monitor …`, `cache …`
//! ```

use crate::Malformed;
use crate::registry::RequestId;
use crate::request::Call;
use crate::wire::{Body, without_nul};

/// A setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// 0.
    pub modifier: u8,
    /// The setting and its value.
    pub text: Vec<u8>,
}

impl Call for Set {
    const ID: RequestId = RequestId::SET;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<Set, Malformed> {
        Ok(Set { modifier: body[15], text: without_nul(payload).to_vec() })
    }

    fn body(&self) -> [u8; 16] {
        Body::new().skip(15).put(&[self.modifier]).done()
    }

    fn payload(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn round_trip() {
        crate::request::testing::round_trip(Set { modifier: 0, text: b"appid test".to_vec() });
    }
}
