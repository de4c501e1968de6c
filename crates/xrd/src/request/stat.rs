//! `stat` (3017): what is known of a file, a directory, or the file system it is in.
//!
//! ```text
//!  0 options (1): 1 the file system   8 wants (4): 1 when it was made   12 handle (4)   payload: path; none: the handle counts
//! ```

use crate::Malformed;
use crate::frame::Handle;
use crate::path::PathArg;
use crate::registry::RequestId;
use crate::request::Call;
use crate::wire::{Body, Reader};

/// Of what, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Of what.
    pub about: About,
    /// True if the file system is meant that it is in.
    pub is_vfs: bool,
    /// More that is wanted: 1 is when it was made.
    pub wants: u32,
}

/// A file by its name, or one that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// One that is open.
    Handle(Handle),
    /// By its name.
    Path(PathArg),
}

impl About {
    pub(crate) fn parse(handle: Handle, payload: &[u8]) -> About {
        match payload {
            [] => About::Handle(handle),
            path => About::Path(PathArg::parse(path)),
        }
    }

    pub(crate) fn handle(&self) -> Handle {
        match self {
            About::Handle(handle) => *handle,
            About::Path(_) => Handle::default(),
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        if let About::Path(path) = self {
            path.write(out);
        }
    }
}

impl Call for Stat {
    const ID: RequestId = RequestId::STAT;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<Stat, Malformed> {
        let mut reader = Reader::new(body);
        let is_vfs = reader.u8()? & 1 != 0;
        reader.skip(7)?;
        let wants = reader.u32()?;
        Ok(Stat { about: About::parse(Handle(reader.array()?), payload), is_vfs, wants })
    }

    fn body(&self) -> [u8; 16] {
        let body = Body::new().put(&[u8::from(self.is_vfs)]).skip(7).put(&self.wants.to_be_bytes());
        body.put(&self.about.handle().0).done()
    }

    fn payload(&self, out: &mut Vec<u8>) {
        self.about.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::testing::round_trip;

    #[test]
    fn by_path_and_by_handle() {
        round_trip(Stat { about: About::Path(PathArg::with_cgi("/f", "a=b")), is_vfs: true, wants: 0 });
        round_trip(Stat { about: About::Handle(Handle([1, 2, 3, 4])), is_vfs: false, wants: 1 });
    }
}
