//! `protocol` (3006): what the server can, and whether TLS begins.
//!
//! ```text
//!  0 the client's version (4)   4 flags (1)   5 what comes next (1)   6 reserved (10)
//! ```

use crate::Malformed;
use crate::flags::ClientFlags;
use crate::registry::RequestId;
use crate::request::Call;
use crate::wire::{Body, Reader};

/// The version and the plans of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// Its version of the protocol; 0 for clients before 2.9.7.
    pub version: u32,
    /// Its abilities and wishes.
    pub flags: ClientFlags,
    /// Its plan for this connection.
    pub expect: Expect,
}

/// The plan of a client for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// It does not say.
    Nothing,
    /// `bind`.
    Bind,
    /// `login`.
    Login,
    /// `login`, for a third-party copy.
    TpcLogin,
    /// Another plan, which no server implements.
    Other(u8),
}

impl Expect {
    fn number(self) -> u8 {
        match self {
            Expect::Nothing => 0,
            Expect::Bind => 1,
            Expect::Login => 3,
            Expect::TpcLogin => 4,
            Expect::Other(number) => number,
        }
    }
}

impl Call for Protocol {
    const ID: RequestId = RequestId::PROTOCOL;

    fn parse(body: &[u8; 16], _: &[u8]) -> Result<Protocol, Malformed> {
        let mut reader = Reader::new(body);
        let (version, flags) = (reader.u32()?, ClientFlags(reader.u8()?));
        let expect = match reader.u8()? & 0x0f {
            0 => Expect::Nothing,
            1 => Expect::Bind,
            3 => Expect::Login,
            4 => Expect::TpcLogin,
            number => Expect::Other(number),
        };
        Ok(Protocol { version, flags, expect })
    }

    fn body(&self) -> [u8; 16] {
        Body::new().put(&self.version.to_be_bytes()).put(&[self.flags.0, self.expect.number()]).done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::testing::{hex, round_trip};

    #[test]
    fn as_captured() {
        let flags = ClientFlags::WANTS_SIGNING | ClientFlags::CAN_TLS | ClientFlags::WANTS_BIND;
        let bytes = round_trip(Protocol { version: 0x511, flags, expect: Expect::Login });
        assert_eq!(bytes[2..], hex("0bbe 00000511 0b 03 00000000000000000000 00000000"));
        for expect in [Expect::Nothing, Expect::Bind, Expect::TpcLogin, Expect::Other(8)] {
            round_trip(Protocol { version: 0, flags: ClientFlags::NONE, expect });
        }
    }
}
