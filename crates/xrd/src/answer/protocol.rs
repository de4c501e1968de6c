//! The answer to `protocol`: version (4), flags (4), and records that follow.
//!
//! A record `B` says where to bind, a record `S` what has to be signed: `S`, 0, version, options, level, count, and pairs of
//! request and need.

use crate::Malformed;
use crate::flags::ServerFlags;
use crate::wire::Reader;

/// The role and the abilities of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolAnswer {
    /// Its version of the protocol.
    pub version: u32,
    /// Its role and its abilities, and the beginning of TLS.
    pub flags: ServerFlags,
    /// The requests that have to be signed.
    pub signing: Signing,
}

/// Requirements of signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Signing {
    /// From 0, none, to 4, nearly all.
    pub level: u8,
    /// Also when the way of authentication gives no key.
    pub is_forced: bool,
}

impl ProtocolAnswer {
    /// Appends the answer without its head.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&self.flags.0.to_be_bytes());
        if self.signing.level > 0 {
            let options = if self.signing.is_forced { 2 } else { 0 };
            out.extend_from_slice(&[b'S', 0, 0, options, self.signing.level, 0]);
        }
    }

    /// Reads what is behind the head. What follows the flags and is not known is not looked at.
    pub fn parse(bytes: &[u8]) -> Result<ProtocolAnswer, Malformed> {
        let mut reader = Reader::new(bytes);
        let (version, flags) = (reader.u32()?, ServerFlags(reader.u32()?));
        let mut signing = Signing::default();
        let mut rest = reader.rest();
        if let [b'B', _, high, low, behind @ ..] = rest {
            let len = usize::from(u16::from_be_bytes([*high, *low]));
            // The record as a whole is padded to a multiple of 8.
            let skipped = (4 + len).next_multiple_of(8) - 4;
            rest = behind.get(skipped..).unwrap_or_default();
        }
        if let [b'S', _, _, options, level, ..] = rest {
            signing = Signing { level: *level, is_forced: options & 2 != 0 };
        }
        Ok(ProtocolAnswer { version, flags, signing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn records_may_follow() {
        let plain =
            ProtocolAnswer { version: 0x511, flags: ServerFlags(0x8030_0001), signing: Signing::default() };
        let mut out = Vec::new();
        plain.encode(&mut out);
        assert_eq!(out, [0, 0, 5, 0x11, 0x80, 0x30, 0, 1]);
        assert_eq!(ProtocolAnswer::parse(&out), Ok(plain));
        let signing = Signing { level: 3, is_forced: true };
        let signed = ProtocolAnswer { signing, ..plain };
        let mut out = Vec::new();
        signed.encode(&mut out);
        assert_eq!(ProtocolAnswer::parse(&out), Ok(signed));
        let bind = [&out[..8], b"B\0\0\x06host:1\0\0\0\0\0\0", &out[8..]].concat();
        assert_eq!(ProtocolAnswer::parse(&bind), Ok(signed));
        assert_eq!(ProtocolAnswer::parse(&bind[..12]), Ok(plain));
    }
}
