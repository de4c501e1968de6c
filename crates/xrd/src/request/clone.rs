//! `clone` (3032, from protocol 5.2 on): a copy within the server, by sharing blocks.
//!
//! ```text
//!  0 handle of the target (4)
//!  payload: n × { 0 handle of the source (4)   4 reserved (4)   8 offset (8)   16 length (8)   24 offset in the target (8) }
//! ```

use crate::Malformed;
use crate::frame::Handle;
use crate::registry::{ErrorCode, RequestId};
use crate::request::Call;
use crate::wire::{Body, Reader, signed};
use gridlane_core::limits::ROOT_VECTOR_ELEMENTS_MAX;

/// Bytes of one range.
const RANGE_BYTES: usize = 32;

/// A copy within the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clone {
    /// Where to.
    pub handle: Handle,
    /// The ranges.
    pub ranges: Vec<CloneRange>,
}

/// A range that is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloneRange {
    /// Where from.
    pub handle: Handle,
    /// Where it begins there.
    pub offset: u64,
    /// Its length.
    pub len: u64,
    /// Where it begins in the target.
    pub target_offset: u64,
}

impl Call for Clone {
    const ID: RequestId = RequestId::CLONE;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<Clone, Malformed> {
        let handle = Handle(Reader::new(body).array()?);
        if payload.is_empty() || !payload.len().is_multiple_of(RANGE_BYTES) {
            return Err(Malformed::new(
                ErrorCode::ARG_INVALID,
                "the list of ranges has no whole number of them",
            ));
        }
        if payload.len() > ROOT_VECTOR_ELEMENTS_MAX * RANGE_BYTES {
            return Err(Malformed::new(ErrorCode::ARG_TOO_LONG, "too many ranges"));
        }
        let range = |bytes: &[u8]| {
            let mut reader = Reader::new(bytes);
            let handle = Handle(reader.array()?);
            reader.skip(4)?;
            let (offset, len, target_offset) = (reader.offset()?, reader.offset()?, reader.offset()?);
            Ok(CloneRange { handle, offset, len, target_offset })
        };
        let ranges = payload.chunks(RANGE_BYTES).map(range).collect::<Result<_, Malformed>>()?;
        Ok(Clone { handle, ranges })
    }

    fn body(&self) -> [u8; 16] {
        Body::new().put(&self.handle.0).done()
    }

    fn payload(&self, out: &mut Vec<u8>) {
        for range in &self.ranges {
            out.extend_from_slice(&range.handle.0);
            out.extend_from_slice(&[0; 4]);
            for number in [range.offset, range.len, range.target_offset] {
                out.extend_from_slice(&signed(number));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::testing::{refused, round_trip};

    #[test]
    fn a_list_of_ranges() {
        let range = CloneRange { handle: Handle([1; 4]), offset: 5, len: 6, target_offset: 7 };
        round_trip(Clone { handle: Handle([2; 4]), ranges: vec![range; 3] });
        assert_eq!(refused::<Clone>([0; 16], &[0; 33]), ErrorCode::ARG_INVALID);
        assert_eq!(refused::<Clone>([0; 16], &[0; 32 * 1025]), ErrorCode::ARG_TOO_LONG);
    }
}
