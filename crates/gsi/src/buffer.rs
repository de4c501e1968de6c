//! The one form of all messages, and of the main part inside of them.
//!
//! ```text
//! "gsi\0"   step (4)   { kind (4)   length (4)   bytes }*   0 (4)
//! ```

use gridlane_auth::Refusal;

use crate::exchange::malformed;

/// Buckets of a message: the largest has twelve.
const BUCKETS_MAX: usize = 32;

/// The name that every message begins with.
const NAME: &[u8] = b"gsi\0";

/// The contents of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind(u32);

impl Kind {
    /// The library that encrypts: `ssl`, with `nopad` behind it where secrets keep no leading zeros.
    pub(crate) const CRYPTO_MODULE: Kind = Kind(3000);
    /// A message inside of the message.
    pub(crate) const MAIN: Kind = Kind(3001);
    /// A public key.
    pub(crate) const PUBLIC_KEY: Kind = Kind(3004);
    /// The public part of the agreement on a key.
    pub(crate) const CIPHER: Kind = Kind(3005);
    /// A tag that the other end has to send back.
    pub(crate) const TAG: Kind = Kind(3006);
    /// The other end's tag.
    pub(crate) const SIGNED_TAG: Kind = Kind(3007);
    /// Something for people.
    pub(crate) const MESSAGE: Kind = Kind(3011);
    /// The version of the exchange.
    pub(crate) const VERSION: Kind = Kind(3014);
    /// What a client offers.
    pub(crate) const CLIENT_OPTIONS: Kind = Kind(3019);
    /// Certificates.
    pub(crate) const X509: Kind = Kind(3022);
    /// The authority of the client's certificate, by the hash of its name.
    pub(crate) const ISSUER_HASH: Kind = Kind(3023);
    /// A request for a proxy.
    pub(crate) const X509_REQUEST: Kind = Kind(3024);
    /// Ciphers.
    pub(crate) const CIPHER_ALGORITHM: Kind = Kind(3025);
    /// Digests.
    pub(crate) const DIGEST_ALGORITHM: Kind = Kind(3026);
}

/// A message. It has no `Debug`: there may be a proxy in it.
#[derive(Default)]
pub(crate) struct Buffer {
    pub(crate) step: u32,
    buckets: Vec<(Kind, Vec<u8>)>,
}

impl Buffer {
    pub(crate) fn new(step: u32) -> Buffer {
        Buffer { step, buckets: Vec::new() }
    }

    /// Adds a bucket.
    pub(crate) fn with(mut self, kind: Kind, bytes: impl Into<Vec<u8>>) -> Buffer {
        self.buckets.push((kind, bytes.into()));
        self
    }

    /// Adds a number.
    pub(crate) fn with_number(self, kind: Kind, number: u32) -> Buffer {
        self.with(kind, number.to_be_bytes())
    }

    /// Reads a message. What is behind its end does not count: clients send zeros there.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Buffer, Refusal> {
        let cut = || malformed("the message is cut short");
        let mut rest = bytes.strip_prefix(NAME).ok_or_else(|| malformed("the message is none of gsi's"))?;
        let number = |rest: &mut &[u8]| -> Result<u32, Refusal> {
            let (number, behind) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
            *rest = behind;
            Ok(u32::from_be_bytes(*number))
        };
        let mut buffer = Buffer::new(number(&mut rest)?);
        loop {
            let kind = number(&mut rest)?;
            if kind == 0 {
                return Ok(buffer);
            }
            let len = number(&mut rest)? as usize;
            let (bytes, behind) = rest.split_at_checked(len).ok_or_else(cut)?;
            if buffer.buckets.len() == BUCKETS_MAX {
                return Err(malformed("the message has too many parts"));
            }
            buffer.buckets.push((Kind(kind), bytes.to_vec()));
            rest = behind;
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = NAME.to_vec();
        out.extend_from_slice(&self.step.to_be_bytes());
        for (kind, bytes) in &self.buckets {
            out.extend_from_slice(&kind.0.to_be_bytes());
            // What is encoded was made here, or came in a message of 64 KiB at most.
            out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
            out.extend_from_slice(bytes);
        }
        out.extend_from_slice(&[0; 4]);
        out
    }

    pub(crate) fn get(&self, kind: Kind) -> Option<&[u8]> {
        self.buckets.iter().find(|(of, _)| *of == kind).map(|(_, bytes)| bytes.as_slice())
    }

    /// A bucket that has to be there.
    pub(crate) fn need(&self, kind: Kind, name: &str) -> Result<&[u8], Refusal> {
        self.get(kind).ok_or_else(|| malformed(format!("the message lacks {name}")))
    }

    /// Text for people, or a word of the protocol, without the NUL that some write behind it.
    pub(crate) fn text(&self, kind: Kind) -> Option<String> {
        let text = String::from_utf8_lossy(self.get(kind)?).into_owned();
        Some(text.trim_end_matches('\0').to_owned())
    }

    pub(crate) fn number(&self, kind: Kind) -> Option<u32> {
        self.get(kind)?.try_into().ok().map(u32::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_comes_back() {
        let message = Buffer::new(1000).with(Kind::CRYPTO_MODULE, *b"ssl").with_number(Kind::VERSION, 10_600);
        let bytes = message.encode();
        assert_eq!(
            bytes,
            b"gsi\0\0\0\x03\xe8\0\0\x0b\xb8\0\0\0\x03ssl\0\0\x0b\xc6\0\0\0\x04\0\0\x29\x68\0\0\0\0"
        );
        let read = Buffer::parse(&bytes).unwrap();
        assert_eq!((read.step, read.text(Kind::CRYPTO_MODULE).as_deref()), (1000, Some("ssl")));
        assert_eq!((read.number(Kind::VERSION), read.get(Kind::MAIN)), (Some(10_600), None));
        for end in 0..bytes.len() {
            assert!(Buffer::parse(&bytes[..end]).is_err(), "{end}");
        }
        let many = (0..=BUCKETS_MAX).fold(Buffer::new(1), |buffer, _| buffer.with(Kind::TAG, []));
        assert!(Buffer::parse(&many.encode()).is_err());
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(read) = Buffer::parse(&[NAME, &bytes].concat()) {
                let again = Buffer::parse(&read.encode()).unwrap();
                prop_assert_eq!(again.encode(), read.encode());
            }
        }
    }
}
