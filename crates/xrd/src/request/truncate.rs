//! `truncate` (3028): a new length.
//!
//! ```text
//!  0 handle (4)   4 length (8)   12 reserved (4)   payload: path; none: the handle counts
//! ```

use crate::Malformed;
use crate::frame::Handle;
use crate::registry::RequestId;
use crate::request::Call;
use crate::request::stat::About;
use crate::wire::{Body, Reader, signed};

/// Of which file, and what length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncate {
    /// Which file.
    pub about: About,
    /// Its length afterwards.
    pub size_bytes: u64,
}

impl Call for Truncate {
    const ID: RequestId = RequestId::TRUNCATE;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<Truncate, Malformed> {
        let mut reader = Reader::new(body);
        let about = About::parse(Handle(reader.array()?), payload);
        Ok(Truncate { about, size_bytes: reader.offset()? })
    }

    fn body(&self) -> [u8; 16] {
        Body::new().put(&self.about.handle().0).put(&signed(self.size_bytes)).done()
    }

    fn payload(&self, out: &mut Vec<u8>) {
        self.about.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::PathArg;
    use crate::request::testing::round_trip;

    #[test]
    fn by_path_and_by_handle() {
        round_trip(Truncate { about: About::Path(PathArg::new("/f")), size_bytes: 1 << 40 });
        round_trip(Truncate { about: About::Handle(Handle([1, 2, 3, 4])), size_bytes: 0 });
    }
}
