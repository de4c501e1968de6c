//! `writev` (3031): bytes for many ranges at once, of one file or several.
//!
//! ```text
//!  0 options (1): 1 to the disk   payload: n × { 0 handle (4)   4 length (4)   8 offset (8) }
//!  behind the payload, and not counted in its length: the bytes of all, back to back
//! ```

use crate::Malformed;
use crate::registry::RequestId;
use crate::request::Call;
use crate::request::readv::Segment;
use crate::wire::Body;

/// Where the bytes belong that follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteV {
    /// True if they go to the disk before the answer.
    pub syncs: bool,
    /// The ranges, in the order of their bytes.
    pub segments: Vec<Segment>,
}

impl WriteV {
    /// Bytes that follow.
    pub fn data_len(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.len)).sum()
    }
}

impl Call for WriteV {
    const ID: RequestId = RequestId::WRITEV;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<WriteV, Malformed> {
        // It is unknown how many bytes follow a list that makes no sense.
        let segments =
            Segment::parse_all(payload, "Write vector is invalid").map_err(|wrong| wrong.closing())?;
        Ok(WriteV { syncs: body[0] & 1 != 0, segments })
    }

    fn body(&self) -> [u8; 16] {
        Body::new().put(&[u8::from(self.syncs)]).done()
    }

    fn payload(&self, out: &mut Vec<u8>) {
        self.segments.iter().for_each(|segment| segment.write(out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Handle;
    use crate::request::testing::round_trip;

    #[test]
    fn a_list_of_ranges() {
        let segments = vec![Segment { handle: Handle([1; 4]), len: u32::MAX >> 1, offset: 9 }; 3];
        let write = WriteV { syncs: true, segments };
        assert_eq!(write.data_len(), 3 * u64::from(u32::MAX >> 1));
        round_trip(write);
        assert!(WriteV::parse(&[0; 16], &[0; 15]).unwrap_err().closes);
    }
}
