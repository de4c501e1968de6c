//! `prepare` (3021): files are brought to disk, or may leave it.
//!
//! ```text
//!  0 options (1)   1 priority (1)   2 port (2)   4 more options (2): 1 may leave   payload: paths, a line each
//! ```
//!
//! Of a request that cancels, the first line is the request's name.

use std::fmt;

use crate::Malformed;
use crate::flags::PrepareOptions;
use crate::path::PathArg;
use crate::registry::RequestId;
use crate::request::Call;
use crate::wire::{Body, Reader, lines};

/// Which files, and what is done with them.
#[derive(Clone, PartialEq, Eq)]
pub struct Prepare {
    /// Its options.
    pub options: PrepareOptions,
    /// From 0, the least, to 3.
    pub priority: u8,
    /// Where to tell when it is done.
    pub port: u16,
    /// True if they may leave the disk.
    pub evicts: bool,
    /// The lines: paths, or the name of a request.
    pub lines: Vec<Vec<u8>>,
}

/// The CGI of a path may hold a token.
impl fmt::Debug for Prepare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.lines.iter().map(|line| PathArg::parse(line)).collect();
        write!(f, "Prepare({:?} {paths:?})", self.options)
    }
}

impl Call for Prepare {
    const ID: RequestId = RequestId::PREPARE;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<Prepare, Malformed> {
        let mut reader = Reader::new(body);
        let (options, priority, port) = (PrepareOptions(reader.u8()?), reader.u8()?, reader.u16()?);
        let evicts = reader.u16()? & 1 != 0;
        Ok(Prepare { options, priority, port, evicts, lines: lines(payload)? })
    }

    fn body(&self) -> [u8; 16] {
        let body = Body::new().put(&[self.options.0, self.priority]).put(&self.port.to_be_bytes());
        body.put(&u16::from(self.evicts).to_be_bytes()).done()
    }

    fn payload(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.lines.join(&b'\n'));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn round_trip() {
        let lines = vec![b"/a".to_vec(), b"/b?x=1".to_vec()];
        let (options, evicts) = (PrepareOptions::STAGE, true);
        crate::request::testing::round_trip(Prepare { options, priority: 3, port: 7, evicts, lines });
    }
}
