//! `fattr` (3020): attributes of a file.
//!
//! ```text
//!  0 handle (4)   4 kind (1)   5 count (1)   6 options (1)
//!  payload: path and NUL (NUL alone: the handle counts), count × { 0 (2)   name and NUL }, of "set" count × { length (4)   value }
//! ```
//!
//! At most 16 names of 248 bytes, and values of 64 KiB.

use crate::Malformed;
use crate::flags::FattrOptions;
use crate::frame::Handle;
use crate::path::PathArg;
use crate::registry::{ErrorCode, FattrKind, RequestId};
use crate::request::Call;
use crate::wire::{Body, Reader};
use gridlane_core::limits::{ATTRIBUTE_NAME_BYTES_MAX, ATTRIBUTE_VALUE_BYTES_MAX, ROOT_ATTRIBUTES_MAX};

/// An operation on the attributes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fattr {
    /// Of what.
    pub about: FattrAbout,
    /// The operation.
    pub kind: FattrKind,
    /// Its options.
    pub options: FattrOptions,
    /// Which attributes, and for [`FattrKind::SET`] their values.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The file that has the attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FattrAbout {
    /// An open file.
    Handle(Handle),
    /// A file or directory.
    Path(PathArg),
}

impl Call for Fattr {
    const ID: RequestId = RequestId::FATTR;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<Fattr, Malformed> {
        let mut reader = Reader::new(body);
        let handle = Handle(reader.array()?);
        let kind = FattrKind(reader.u8()?);
        let count = usize::from(reader.u8()?);
        let options = FattrOptions(reader.u8()?);
        if !FattrKind::KNOWN.contains(&kind) {
            return Err(Malformed::new(ErrorCode::ARG_INVALID, "Invalid fattr request"));
        }
        if count > ROOT_ATTRIBUTES_MAX {
            return Err(Malformed::new(ErrorCode::ARG_INVALID, "Too many attributes"));
        }
        if count == 0 && kind != FattrKind::LIST {
            return Err(Malformed::new(ErrorCode::ARG_MISSING, "No attribute is named"));
        }
        let mut reader = Reader::new(payload);
        let about = match reader.terminated()? {
            [] => FattrAbout::Handle(handle),
            path => FattrAbout::Path(PathArg::parse(path)),
        };
        let mut attributes = Vec::with_capacity(count);
        for _ in 0..count {
            reader.skip(2)?;
            let name = reader.terminated()?;
            if name.is_empty() {
                return Err(Malformed::new(ErrorCode::ARG_INVALID, "An attribute has no name"));
            }
            if name.len() > ATTRIBUTE_NAME_BYTES_MAX {
                return Err(Malformed::new(ErrorCode::ARG_TOO_LONG, "An attribute's name is too long"));
            }
            attributes.push((name.to_vec(), Vec::new()));
        }
        if kind == FattrKind::SET {
            for (_, value) in &mut attributes {
                let len = reader.length()? as usize;
                if len > ATTRIBUTE_VALUE_BYTES_MAX {
                    return Err(Malformed::new(ErrorCode::ARG_TOO_LONG, "An attribute's value is too long"));
                }
                *value = reader.take(len)?.to_vec();
            }
        }
        Ok(Fattr { about, kind, options, attributes })
    }

    fn body(&self) -> [u8; 16] {
        let handle = match &self.about {
            FattrAbout::Handle(handle) => *handle,
            FattrAbout::Path(_) => Handle::default(),
        };
        let count = u8::try_from(self.attributes.len()).unwrap_or(u8::MAX);
        Body::new().put(&handle.0).put(&[self.kind.0, count, self.options.0]).done()
    }

    fn payload(&self, out: &mut Vec<u8>) {
        if let FattrAbout::Path(path) = &self.about {
            path.write(out);
        }
        out.push(0);
        for (name, _) in &self.attributes {
            out.extend_from_slice(&[0; 2]);
            out.extend_from_slice(name);
            out.push(0);
        }
        if self.kind == FattrKind::SET {
            for (_, value) in &self.attributes {
                out.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
                out.extend_from_slice(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::testing::{hex, refused, round_trip};

    #[test]
    fn as_captured() {
        let set = Fattr {
            about: FattrAbout::Path(PathArg::new("/rnd")),
            kind: FattrKind::SET,
            options: FattrOptions::NONE,
            attributes: vec![(b"k".to_vec(), b"vv".to_vec())],
        };
        let bytes = round_trip(set);
        let expected =
            "0bcc 00000000 03 01 00 000000000000000000 0000000f 2f726e64 00 0000 6b 00 00000002 7676";
        assert_eq!(bytes[2..], hex(expected));
        let get = Fattr {
            about: FattrAbout::Handle(Handle([1; 4])),
            kind: FattrKind::GET,
            options: FattrOptions::NONE,
            attributes: vec![(b"k".to_vec(), vec![]), (b"zz".to_vec(), vec![])],
        };
        round_trip(get);
    }

    #[test]
    fn what_is_too_much() {
        let body = |kind: u8, count: u8| {
            let mut body = [0; 16];
            (body[4], body[5]) = (kind, count);
            body
        };
        assert_eq!(refused::<Fattr>(body(1, 17), b"/f\0"), ErrorCode::ARG_INVALID);
        assert_eq!(refused::<Fattr>(body(9, 1), b"/f\0"), ErrorCode::ARG_INVALID);
        assert_eq!(refused::<Fattr>(body(1, 2), b"/f\0\0\0k\0"), ErrorCode::ARG_INVALID);
        let long = [b"/f\0\0\0".to_vec(), vec![b'k'; 249], vec![0]].concat();
        assert_eq!(refused::<Fattr>(body(1, 1), &long), ErrorCode::ARG_TOO_LONG);
        let huge = b"/f\0\0\0k\0\x7f\xff\xff\xff".to_vec();
        assert_eq!(refused::<Fattr>(body(3, 1), &huge), ErrorCode::ARG_TOO_LONG);
    }
}
