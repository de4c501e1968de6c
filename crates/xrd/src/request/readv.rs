//! `readv` (3025): many ranges at once, of one file or several.
//!
//! ```text
//!  0 reserved (15)   15 path id (1)   payload: n × { 0 handle (4)   4 length (4)   8 offset (8) }
//! ```
//!
//! The answer repeats each element in front of its bytes, and comes on the main connection whatever the path id says.

use crate::Malformed;
use crate::frame::{Handle, PathId};
use crate::registry::{ErrorCode, RequestId};
use crate::request::Call;
use crate::wire::{Body, Reader, signed};
use gridlane_core::limits::ROOT_VECTOR_ELEMENTS_MAX;

/// Bytes of an element's description.
pub(crate) const SEGMENT_BYTES: usize = 16;

/// Which ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadV {
    /// Of no effect.
    pub path_id: PathId,
    /// The ranges, in the order of their bytes in the answer; they may overlap.
    pub segments: Vec<Segment>,
}

/// A range of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The file.
    pub handle: Handle,
    /// Bytes.
    pub len: u32,
    /// From where.
    pub offset: u64,
}

impl Segment {
    /// Bytes of its description.
    pub const BYTES: usize = SEGMENT_BYTES;

    /// Appends its description.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.encode());
    }

    /// Its description.
    pub fn encode(&self) -> [u8; SEGMENT_BYTES] {
        let mut bytes = [0; SEGMENT_BYTES];
        bytes[..4].copy_from_slice(&self.handle.0);
        bytes[4..8].copy_from_slice(&self.len.to_be_bytes());
        bytes[8..].copy_from_slice(&signed(self.offset));
        bytes
    }

    /// Reads a description.
    pub fn parse(bytes: &[u8; SEGMENT_BYTES]) -> Result<Segment, Malformed> {
        let mut reader = Reader::new(bytes);
        let handle = Handle(reader.array()?);
        Ok(Segment { handle, len: reader.length()?, offset: reader.offset()? })
    }

    /// Reads a list of descriptions.
    pub(crate) fn parse_all(payload: &[u8], what: &'static str) -> Result<Vec<Segment>, Malformed> {
        let (chunks, rest) = payload.as_chunks::<SEGMENT_BYTES>();
        if chunks.is_empty() || !rest.is_empty() {
            return Err(Malformed::new(ErrorCode::ARG_INVALID, what));
        }
        if chunks.len() > ROOT_VECTOR_ELEMENTS_MAX {
            return Err(Malformed::new(ErrorCode::ARG_TOO_LONG, "the vector has too many elements"));
        }
        chunks.iter().map(Segment::parse).collect()
    }
}

impl Call for ReadV {
    const ID: RequestId = RequestId::READV;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<ReadV, Malformed> {
        let segments = Segment::parse_all(payload, "Read vector is invalid")?;
        Ok(ReadV { path_id: PathId(body[15]), segments })
    }

    fn body(&self) -> [u8; 16] {
        Body::new().skip(15).put(&[self.path_id.0]).done()
    }

    fn payload(&self, out: &mut Vec<u8>) {
        self.segments.iter().for_each(|segment| segment.write(out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::testing::{refused, round_trip};

    #[test]
    fn a_list_of_ranges() {
        let segment = |at: u64| Segment { handle: Handle([1; 4]), len: 5, offset: at };
        round_trip(ReadV { path_id: PathId::MAIN, segments: vec![segment(7), segment(7), segment(1 << 50)] });
        round_trip(ReadV { path_id: PathId(1), segments: vec![segment(0); ROOT_VECTOR_ELEMENTS_MAX] });
        assert_eq!(refused::<ReadV>([0; 16], b""), ErrorCode::ARG_INVALID);
        assert_eq!(refused::<ReadV>([0; 16], &[0; 17]), ErrorCode::ARG_INVALID);
        assert_eq!(refused::<ReadV>([0; 16], &[0; 16 * 1025]), ErrorCode::ARG_TOO_LONG);
        assert_eq!(refused::<ReadV>([0; 16], &[0xff; 16]), ErrorCode::ARG_INVALID);
    }
}
