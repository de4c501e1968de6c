//! The answer to `protocol`: version (4), flags (4), and records that follow.
//!
//! A record `B` says where to bind, a record `S` what has to be signed: `S`, 0, version, options, level, count, and pairs of
//! request and need.

use crate::Malformed;
use crate::flags::ServerFlags;
use crate::registry::RequestId;
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
    /// Also the bytes that are written to files, which are left out otherwise.
    pub signs_data: bool,
    /// Requests that are treated in another way than the level says.
    pub exceptions: Exceptions,
}

/// Whether a request has to be signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It need not.
    No,
    /// If it changes anything.
    IfItChanges,
    /// It has to be.
    Yes,
}

/// Requests that a server treats in another way than its level says. Each has a bit, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Exceptions {
    given: u64,
    if_they_change: u64,
    always: u64,
}

impl Exceptions {
    /// The same, and with this request treated so. Requests that nobody knows are left out.
    pub fn with(mut self, id: RequestId, need: Need) -> Exceptions {
        let Some(bit) = index(id).and_then(|index| 1_u64.checked_shl(index.into())) else { return self };
        self.given |= bit;
        (self.if_they_change, self.always) = (self.if_they_change & !bit, self.always & !bit);
        match need {
            Need::No => {}
            Need::IfItChanges => self.if_they_change |= bit,
            Need::Yes => self.always |= bit,
        }
        self
    }

    /// How this request is treated, if in another way.
    pub fn of(&self, id: RequestId) -> Option<Need> {
        let bit = 1_u64.checked_shl(index(id)?.into())?;
        (self.given & bit != 0).then_some(match (self.always & bit != 0, self.if_they_change & bit != 0) {
            (true, _) => Need::Yes,
            (_, true) => Need::IfItChanges,
            _ => Need::No,
        })
    }
}

/// The number by which a record names a request: counted from `auth`, the first of all.
fn index(id: RequestId) -> Option<u8> {
    id.0.checked_sub(RequestId::AUTH.0).and_then(|index| u8::try_from(index).ok()).filter(|index| *index < 64)
}

fn request_of(index: u8) -> RequestId {
    RequestId(RequestId::AUTH.0 + u16::from(index))
}

const SIGNS_DATA: u8 = 1;
const IS_FORCED: u8 = 2;

impl Signing {
    fn encode(&self, out: &mut Vec<u8>) {
        let pairs: Vec<[u8; 2]> = (0..64)
            .filter_map(|index| {
                let need = self.exceptions.of(request_of(index))?;
                Some([index, need as u8])
            })
            .collect();
        if self.level == 0 && pairs.is_empty() {
            return;
        }
        let options =
            if self.is_forced { IS_FORCED } else { 0 } | if self.signs_data { SIGNS_DATA } else { 0 };
        // There are 64 at most.
        out.extend_from_slice(&[b'S', 0, 0, options, self.level, pairs.len() as u8]);
        out.extend(pairs.iter().flatten());
    }

    /// Reads what is behind the letter of the record.
    fn parse(record: &[u8]) -> Signing {
        let [_, _, options, level, count, pairs @ ..] = record else { return Signing::default() };
        let (pairs, _) = pairs.as_chunks::<2>();
        let exceptions = pairs.iter().take(usize::from(*count)).fold(
            Exceptions::default(),
            |exceptions, [index, need]| {
                let need = match need {
                    0 => Need::No,
                    1 => Need::IfItChanges,
                    _ => Need::Yes,
                };
                exceptions.with(request_of(*index), need)
            },
        );
        Signing {
            level: *level,
            is_forced: options & IS_FORCED != 0,
            signs_data: options & SIGNS_DATA != 0,
            exceptions,
        }
    }
}

impl ProtocolAnswer {
    /// Appends the answer without its head.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&self.flags.0.to_be_bytes());
        self.signing.encode(out);
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
        if let [b'S', record @ ..] = rest {
            signing = Signing::parse(record);
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
        let exceptions =
            Exceptions::default().with(RequestId::OPEN, Need::No).with(RequestId::CLONE, Need::Yes);
        let exceptions = exceptions.with(RequestId::SET, Need::IfItChanges).with(RequestId(3100), Need::Yes);
        assert_eq!(exceptions.of(RequestId::OPEN), Some(Need::No));
        assert_eq!(exceptions.of(RequestId::SET), Some(Need::IfItChanges));
        assert_eq!((exceptions.of(RequestId::STAT), exceptions.of(RequestId(3100))), (None, None));
        let signing = Signing { level: 3, is_forced: true, signs_data: true, exceptions };
        let signed = ProtocolAnswer { signing, ..plain };
        let mut out = Vec::new();
        signed.encode(&mut out);
        assert_eq!(ProtocolAnswer::parse(&out), Ok(signed));
        let bind = [&out[..8], b"B\0\0\x06host:1\0\0\0\0\0\0", &out[8..]].concat();
        assert_eq!(ProtocolAnswer::parse(&bind), Ok(signed));
        assert_eq!(ProtocolAnswer::parse(&bind[..12]), Ok(plain));
    }
}
