//! Reading and writing of big-endian numbers and counted bytes: nothing here can overrun.

use gridlane_core::limits::ROOT_PATHS_MAX;

use crate::Malformed;
use crate::registry::ErrorCode;

/// Bytes that are read from the front.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes }
    }

    /// The next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(SHORT)?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or(SHORT)?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub(crate) fn skip(&mut self, count: usize) -> Result<(), Malformed> {
        self.take(count).map(|_| ())
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    /// A length or an offset, which the protocol writes with a sign.
    pub(crate) fn offset(&mut self) -> Result<u64, Malformed> {
        u64::try_from(self.i64()?).map_err(|_| Malformed::new(ErrorCode::ARG_INVALID, "a negative offset"))
    }

    pub(crate) fn length(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.i32()?).map_err(|_| Malformed::new(ErrorCode::ARG_INVALID, "a negative length"))
    }

    /// The bytes in front of the next NUL, which is taken as well.
    pub(crate) fn terminated(&mut self) -> Result<&'a [u8], Malformed> {
        let end = self.bytes.iter().position(|byte| *byte == 0).ok_or(SHORT)?;
        let taken = self.take(end)?;
        self.skip(1)?;
        Ok(taken)
    }

    /// The bytes that are left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

const SHORT: Malformed = Malformed::new(ErrorCode::ARG_INVALID, "the message is too short");

/// The 16 bytes of a request that are its own.
pub(crate) struct Body {
    bytes: [u8; 16],
    at: usize,
}

impl Body {
    pub(crate) fn new() -> Body {
        Body { bytes: [0; 16], at: 0 }
    }

    /// Appends; what does not fit is a mistake in this crate.
    pub(crate) fn put(mut self, bytes: &[u8]) -> Body {
        debug_assert!(self.at + bytes.len() <= 16);
        if let Some(room) = self.bytes.get_mut(self.at..self.at + bytes.len()) {
            room.copy_from_slice(bytes);
        }
        self.at += bytes.len();
        self
    }

    pub(crate) fn skip(mut self, count: usize) -> Body {
        self.at += count;
        self
    }

    pub(crate) fn done(self) -> [u8; 16] {
        self.bytes
    }
}

/// A number as the wire has it: with a sign. What would become negative is cut to the largest.
pub(crate) fn signed(value: u64) -> [u8; 8] {
    i64::try_from(value).unwrap_or(i64::MAX).to_be_bytes()
}

/// Cuts one NUL off the end, which some clients send inside of the length and some do not.
pub(crate) fn without_nul(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(&[0]).unwrap_or(bytes)
}

/// The bytes in front of the first NUL: XRootD's texts end there.
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The lines of a list of paths that are not empty.
pub(crate) fn lines(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    let lines = without_nul(bytes).split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    if lines.clone().nth(ROOT_PATHS_MAX).is_some() {
        return Err(Malformed::new(ErrorCode::ARG_TOO_LONG, "too many paths"));
    }
    Ok(lines.map(<[u8]>::to_vec).collect())
}
