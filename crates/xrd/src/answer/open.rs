//! The answer to `open`: handle (4) and, if asked for, compression (8, zeros) and a stat text.

use crate::Malformed;
use crate::answer::StatText;
use crate::frame::Handle;
use crate::wire::Reader;

/// A file is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAnswer {
    /// Its name in later requests.
    pub handle: Handle,
    /// Its stat text, if that was asked for.
    pub stat: Option<StatText>,
}

impl OpenAnswer {
    /// Appends the answer without its head.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.handle.0);
        if let Some(stat) = &self.stat {
            out.extend_from_slice(&[0; 8]);
            stat.write(out);
            out.push(0);
        }
    }

    /// Reads what is behind the head. A stat text that makes no sense is as good as none.
    pub fn parse(bytes: &[u8]) -> Result<OpenAnswer, Malformed> {
        let mut reader = Reader::new(bytes);
        let handle = Handle(reader.array()?);
        let stat = match reader.skip(8) {
            Ok(()) => StatText::parse(reader.rest()).ok(),
            Err(_) => None,
        };
        Ok(OpenAnswer { handle, stat })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::testing::hex;

    #[test]
    fn as_captured() {
        let text = "43601494376775168 100 48 1795290349 1795291010 1795290349 0644 xrootd xrootd\0";
        let bytes = [hex("00000000 00000000 00000000"), text.as_bytes().to_vec()].concat();
        assert_eq!(bytes.len(), 0x59);
        let answer = OpenAnswer::parse(&bytes).unwrap();
        assert_eq!(answer.stat.as_ref().unwrap().size_bytes, 100);
        let mut out = Vec::new();
        answer.encode(&mut out);
        assert_eq!(out, bytes);
        assert_eq!(OpenAnswer::parse(&bytes[..4]).unwrap().stat, None);
        assert!(OpenAnswer::parse(&bytes[..3]).is_err());
    }
}
