//! Signatures of requests (`sigver`): which requests have them, and what is in them.
//!
//! ```text
//! sigver: id of the request, its stream, number, signature        the request itself
//!         signature = SHA-256(number ‖ head of the request ‖ its payload), sealed with the key of the login
//! ```
//!
//! A server says in its answer to `protocol` what it wants signed; its table of levels is in `crate::signing`. The key is from the way of authentication: gsi has one. With a method that has none nothing is signed, unless the
//! server insists; then the signature is the bare digest, which proves nothing and is wanted all the same.

use crate::answer::Signing;
use crate::frame::{REQUEST_HEAD_BYTES, RequestHead};
use crate::registry::RequestId;
use crate::request::{Call, Sigver};
use crate::signing::{SHA_256, digest, is_signed};

/// Seals the digest of a request with the key that a login has agreed on.
pub trait Seal: Send + Sync {
    /// The signature with this digest. Fails, in words, where there is no randomness.
    fn seal(&self, digest: &[u8]) -> Result<Vec<u8>, String>;
}

/// Signs the requests of one connection, in the order in which they are sent.
pub struct Signer {
    signing: Signing,
    key: Option<Box<dyn Seal>>,
    /// Signatures so far.
    count: u64,
}

impl Signer {
    /// For a session whose server wants `signing`, with the key of its login if that has one; `None` where nothing is to be signed.
    pub fn new(signing: Signing, key: Option<Box<dyn Seal>>) -> Option<Signer> {
        let wants = signing.level > 0 || signing.exceptions != Default::default();
        (wants && (key.is_some() || signing.is_forced)).then_some(Signer { signing, key, count: 0 })
    }

    /// True if requests that bring bytes for files have these in their signatures.
    pub fn signs_data(&self) -> bool {
        self.signing.signs_data
    }

    /// Appends `requests`, which are whole, to `out`, each behind its signature if it has one.
    pub fn sign_all(&mut self, requests: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let mut rest = requests;
        while let Some(head) = rest.first_chunk::<REQUEST_HEAD_BYTES>() {
            let head = RequestHead::parse(head).map_err(|_| "a request of no known form".to_owned())?;
            let end = REQUEST_HEAD_BYTES.saturating_add(head.payload_len as usize);
            let (request, behind) =
                rest.split_at_checked(end).ok_or("a request that is cut short".to_owned())?;
            self.sign(request, &[], out)?;
            out.extend_from_slice(request);
            rest = behind;
        }
        out.extend_from_slice(rest);
        Ok(())
    }

    /// Appends the signature of one request to `out`, if it has one. `request` is its head and what is known of its payload,
    /// `data` what is sent behind that.
    pub fn sign(&mut self, request: &[u8], data: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let Some((head, payload)) = request.split_first_chunk::<REQUEST_HEAD_BYTES>() else { return Ok(()) };
        let read = RequestHead::parse(head).map_err(|_| "a request of no known form".to_owned())?;
        if !is_signed(&self.signing, &read) {
            return Ok(());
        }
        self.count += 1;
        let brings_data = matches!(read.id, RequestId::WRITE | RequestId::PGWRITE);
        let leaves_payload_out = read.payload_len == 0 || brings_data && !self.signing.signs_data;
        let signed: &[&[u8]] = if leaves_payload_out { &[] } else { &[payload, data] };
        let digest = digest(self.count, head, signed);
        let signature = match &self.key {
            Some(key) => key.seal(digest.bytes())?,
            None => digest.bytes().to_vec(),
        };
        let (expected, number, algorithm) = (read.id, self.count, SHA_256);
        let sigver = Sigver { expected, leaves_payload_out, number, algorithm, signature };
        sigver.encode(read.stream, out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gridlane_core::{ChecksumKind, Hasher};

    use super::*;
    use crate::answer::{Exceptions, Need};
    use crate::flags::{OpenMore, OpenOptions};
    use crate::frame::{Handle, StreamId};
    use crate::path::PathArg;
    use crate::registry::QueryKind;
    use crate::request::{Bind, Chmod, Close, Mkdir, Open, Ping, Query, Read, Rm, Set, Sync, Write};

    const STREAM: StreamId = StreamId([1, 0]);

    fn open(options: OpenOptions) -> Vec<u8> {
        let (more, template) = (OpenMore::NONE, Handle::default());
        let about = PathArg::new("/up20");
        Open { mode: 0o644, options, more, template, about }.to_bytes(STREAM)
    }

    fn query(kind: QueryKind) -> Vec<u8> {
        Query::about(kind, &PathArg::new("/f"), "").to_bytes(STREAM)
    }

    fn forced(level: u8) -> Signing {
        Signing { level, is_forced: true, ..Signing::default() }
    }

    /// Turns every bit over.
    struct Flips;

    impl Seal for Flips {
        fn seal(&self, digest: &[u8]) -> Result<Vec<u8>, String> {
            Ok(digest.iter().map(|byte| !byte).collect())
        }
    }

    /// The example that was captured: a client that has to sign without a key, and opens a file to write it.
    #[test]
    fn as_captured() {
        let mut signer = Signer::new(forced(3), None).unwrap();
        let request = open(OpenOptions::NEW | OpenOptions::UPDATE);
        let mut out = Vec::new();
        signer.sign_all(&request, &mut out).unwrap();
        let head = [1, 0, 0x0b, 0xd5, 0x0b, 0xc2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 32];
        assert_eq!(out[..24], head);
        let mut hasher = Hasher::new(ChecksumKind::Sha256);
        hasher.update(&[&[0, 0, 0, 0, 0, 0, 0, 1], request.as_slice()].concat());
        assert_eq!(&out[24..56], hasher.finish().bytes());
        assert_eq!(out[56..], request);
        // A close has no payload to leave out, and says that it is left out.
        let mut out = Vec::new();
        signer.sign_all(&Close { handle: Handle([1; 4]) }.to_bytes(STREAM), &mut out).unwrap();
        assert_eq!((out[7], out[15]), (1, 2));
    }

    #[test]
    fn each_level_signs_what_the_one_before_does_and_more() {
        let path = || PathArg::new("/d");
        let handle = Handle([1; 4]);
        let requests: [(&str, Vec<u8>, Option<u8>); 13] = [
            ("ping", Ping.to_bytes(STREAM), None),
            ("rm", Rm { about: path() }.to_bytes(STREAM), Some(1)),
            ("chmod", Chmod { mode: 0o644, about: path() }.to_bytes(STREAM), Some(1)),
            ("open to write", open(OpenOptions::UPDATE), Some(1)),
            ("open", open(OpenOptions::READ), Some(2)),
            ("mkdir", Mkdir { about: path(), mode: 0o755, parents: false }.to_bytes(STREAM), Some(2)),
            ("set", Set { modifier: 0, text: b"appid x".to_vec() }.to_bytes(STREAM), Some(3)),
            ("bind", Bind { session: Default::default() }.to_bytes(STREAM), Some(3)),
            ("close", Close { handle }.to_bytes(STREAM), Some(3)),
            ("opaque query", query(QueryKind::OPAQUE), Some(3)),
            ("query", query(QueryKind::CHECKSUM), Some(4)),
            (
                "read",
                Read { handle, offset: 0, len: 4, path_id: Default::default() }.to_bytes(STREAM),
                Some(4),
            ),
            ("sync", Sync { handle }.to_bytes(STREAM), Some(4)),
        ];
        for (name, request, from) in requests {
            for level in 0..=5 {
                let mut out = Vec::new();
                if let Some(mut signer) = Signer::new(forced(level), None) {
                    signer.sign_all(&request, &mut out).unwrap();
                } else {
                    assert_eq!(level, 0);
                    out.clone_from(&request);
                }
                let is_signed = out.len() > request.len();
                assert_eq!(is_signed, from.is_some_and(|from| level >= from), "{name} at {level}");
                assert!(out.ends_with(&request));
            }
        }
    }

    #[test]
    fn exceptions_come_before_the_level() {
        let exceptions = Exceptions::default().with(RequestId::RM, Need::No).with(RequestId::PING, Need::Yes);
        let signing = Signing { exceptions, ..forced(0) };
        let mut signer = Signer::new(signing, None).unwrap();
        let mut out = Vec::new();
        let requests = [Rm { about: PathArg::new("/d") }.to_bytes(STREAM), Ping.to_bytes(STREAM)].concat();
        signer.sign_all(&requests, &mut out).unwrap();
        assert_eq!(out.len(), requests.len() + 56);
        assert_eq!(out[requests.len() - 24..][2..6], [0x0b, 0xd5, 0x0b, 0xc3]);
    }

    /// Bytes for files are signed where the server says so, and the length of all of them always is.
    #[test]
    fn data_is_left_out_or_not() {
        let mut request = Vec::new();
        Write { handle: Handle([1; 4]), offset: 5, path_id: Default::default() }.encode_for(
            STREAM,
            3,
            &mut request,
        );
        for signs_data in [false, true] {
            let mut signer = Signer::new(Signing { signs_data, ..forced(3) }, Some(Box::new(Flips))).unwrap();
            let mut out = Vec::new();
            signer.sign(&request, b"abc", &mut out).unwrap();
            assert_eq!(out[7] == 1, !signs_data);
            let mut hasher = Hasher::new(ChecksumKind::Sha256);
            hasher.update(&[&[0, 0, 0, 0, 0, 0, 0, 1], request.as_slice()].concat());
            if signs_data {
                hasher.update(b"abc");
            }
            assert_eq!(out[24..], Flips.seal(hasher.finish().bytes()).unwrap());
        }
    }

    #[test]
    fn without_a_key_nothing_is_signed_unless_the_server_insists() {
        let wanted = Signing { level: 4, ..Signing::default() };
        assert!(Signer::new(wanted, None).is_none());
        assert!(Signer::new(wanted, Some(Box::new(Flips))).is_some());
        assert!(Signer::new(Signing::default(), Some(Box::new(Flips))).is_none());
        let mut signer = Signer::new(forced(1), None).unwrap();
        assert!(signer.sign_all(&[9; 30], &mut Vec::new()).is_err());
    }
}
