//! `sigver` (3029): the signature of the request that follows. It is not answered.
//!
//! ```text
//!  0 id of that request (2)   2 version (1)   3 flags (1): 1 leaves the payload out   4 number (8)   12 algorithm (1)
//!  13 reserved (3)   payload: signature
//! ```

use crate::Malformed;
use crate::registry::RequestId;
use crate::request::Call;
use crate::wire::{Body, Reader, signed};

/// A signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sigver {
    /// Of what comes next.
    pub expected: RequestId,
    /// True if the payload of that is left out.
    pub leaves_payload_out: bool,
    /// Greater than that of every signature before it.
    pub number: u64,
    /// 1 is SHA-256.
    pub algorithm: u8,
    /// The signature.
    pub signature: Vec<u8>,
}

impl Call for Sigver {
    const ID: RequestId = RequestId::SIGVER;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<Sigver, Malformed> {
        let mut reader = Reader::new(body);
        let expected = RequestId(reader.u16()?);
        reader.skip(1)?;
        let leaves_payload_out = reader.u8()? & 1 != 0;
        let number = reader.offset()?;
        let algorithm = reader.u8()?;
        Ok(Sigver { expected, leaves_payload_out, number, algorithm, signature: payload.to_vec() })
    }

    fn body(&self) -> [u8; 16] {
        let body = Body::new().put(&self.expected.0.to_be_bytes());
        let body = body.put(&[0, u8::from(self.leaves_payload_out)]).put(&signed(self.number));
        body.put(&[self.algorithm]).done()
    }

    fn payload(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.signature);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::testing::{hex, round_trip};

    #[test]
    fn as_captured() {
        let sigver = Sigver {
            expected: RequestId::OPEN,
            leaves_payload_out: false,
            number: 1,
            algorithm: 1,
            signature: vec![7; 32],
        };
        let bytes = round_trip(sigver);
        assert_eq!(bytes[2..24], hex("0bd5 0bc2 00 00 0000000000000001 01 000000 00000020"));
    }
}
