//! What is behind the head of an answer of status `status`: 24 bytes with a checksum of their own, then data.
//!
//! ```text
//!  0 CRC-32C of the rest (4)   4 stream (2)   6 id of the request less 3000 (1)   7 kind (1)   8 reserved (4)
//!  12 length of the data (4)   16 offset (8)   24 data, which the head's length does not count
//! ```

use crate::Malformed;
use crate::frame::{ResponseHead, StreamId};
use crate::registry::{ErrorCode, RequestId, Status};
use crate::wire::{Reader, signed};

/// Bytes behind the head that the head counts.
pub const STATUS_BYTES: usize = 24;

/// The difference between a request's id and what stands for it here.
const FIRST_REQUEST: u16 = 3000;

/// An answer that carries pages, or tells of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusAnswer {
    /// Of which request.
    pub stream: StreamId,
    /// The request: `pgread` or `pgwrite`.
    pub request: RequestId,
    /// True if more follows.
    pub is_partial: bool,
    /// Bytes of the data behind it.
    pub data_len: u32,
    /// Where the data belong in the file.
    pub offset: u64,
}

impl StatusAnswer {
    /// Bytes with the head.
    pub const BYTES: usize = 8 + STATUS_BYTES;

    /// Head and what is behind it, without the data.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let head = ResponseHead { stream: self.stream, status: Status::STATUS, len: STATUS_BYTES as u32 };
        bytes[..8].copy_from_slice(&head.encode());
        bytes[12..14].copy_from_slice(&self.stream.0);
        bytes[14] = self.request.0.wrapping_sub(FIRST_REQUEST) as u8;
        bytes[15] = u8::from(self.is_partial);
        bytes[20..24].copy_from_slice(&self.data_len.to_be_bytes());
        bytes[24..].copy_from_slice(&signed(self.offset));
        let crc = crc32c::crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// Reads what is behind the head. If it is not what its checksum says, it is unknown where the next answer
    /// begins.
    pub fn parse(bytes: &[u8; STATUS_BYTES]) -> Result<StatusAnswer, Malformed> {
        let wrong = |what| Malformed::new(ErrorCode::CHECKSUM_ERROR, what).closing();
        let mut reader = Reader::new(bytes);
        if reader.u32()? != crc32c::crc32c(&bytes[4..]) {
            return Err(wrong("the head of an answer is not what its checksum says"));
        }
        let stream = StreamId(reader.array()?);
        let request = RequestId(FIRST_REQUEST + u16::from(reader.u8()?));
        let is_partial = reader.u8()? != 0;
        reader.skip(4)?;
        let data_len = reader.length().map_err(|_| wrong("an answer has a negative length"))?;
        let offset = reader.offset().map_err(|_| wrong("an answer has a negative offset"))?;
        Ok(StatusAnswer { stream, request, is_partial, data_len, offset })
    }
}

/// The pages of a `pgwrite` that were not what their checksum said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corrections {
    /// Bytes of the first of them.
    pub first_len: u16,
    /// Bytes of the last of them.
    pub last_len: u16,
    /// Where they begin.
    pub offsets: Vec<u64>,
}

impl Corrections {
    /// The list of these pages, each offset and length; `None` if there are none.
    pub fn of(pages: &[(u64, usize)]) -> Option<Corrections> {
        let (first, last) = (pages.first()?, pages.last()?);
        let offsets = pages.iter().map(|(offset, _)| *offset).collect();
        Some(Corrections { first_len: first.1 as u16, last_len: last.1 as u16, offsets })
    }

    /// Each page's offset and length.
    pub fn pages(&self) -> Vec<(u64, usize)> {
        let last = self.offsets.len().saturating_sub(1);
        let len = |at: usize| match at {
            0 => usize::from(self.first_len),
            _ if at == last => usize::from(self.last_len),
            _ => crate::pages::PAGE_BYTES,
        };
        self.offsets.iter().enumerate().map(|(at, offset)| (*offset, len(at))).collect()
    }

    /// The data of the answer.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&self.first_len.to_be_bytes());
        bytes.extend_from_slice(&self.last_len.to_be_bytes());
        for offset in &self.offsets {
            bytes.extend_from_slice(&signed(*offset));
        }
        let crc = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// Reads the data of an answer.
    pub fn parse(bytes: &[u8]) -> Result<Corrections, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u32()? != crc32c::crc32c(&bytes[4..]) {
            let what = "a list of wrong pages is not what its checksum says";
            return Err(Malformed::new(ErrorCode::CHECKSUM_ERROR, what));
        }
        let (first_len, last_len) = (reader.u16()?, reader.u16()?);
        let mut offsets = Vec::new();
        while !reader.is_empty() {
            offsets.push(reader.offset()?);
        }
        Ok(Corrections { first_len, last_len, offsets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::testing::hex;

    #[test]
    fn as_captured() {
        let bytes = hex("0005 0fa7 00000018 9054e7e9 0005 1e 00 00000000 00000014 0000000000000ffa");
        let answer = StatusAnswer::parse(bytes[8..].first_chunk().unwrap()).unwrap();
        assert_eq!(answer.request, RequestId::PGREAD);
        assert_eq!((answer.is_partial, answer.data_len, answer.offset), (false, 20, 4090));
        assert_eq!(answer.encode(), bytes.as_slice());
        let mut damaged = bytes;
        damaged[20] ^= 1;
        assert!(StatusAnswer::parse(damaged[8..].first_chunk().unwrap()).unwrap_err().closes);
        let list = hex("9c75b409 0004 0004 0000000000001000");
        let corrections = Corrections::parse(&list).unwrap();
        assert_eq!(corrections.pages(), [(4096, 4)]);
        assert_eq!(corrections.encode(), list);
        let pages = [(10, 4086), (4096, 4096), (8192, 9)];
        assert_eq!(Corrections::of(&pages).unwrap().pages(), pages);
        assert_eq!(Corrections::of(&[]), None);
        assert!(Corrections::parse(&list[..9]).is_err() && Corrections::parse(b"").is_err());
    }
}
