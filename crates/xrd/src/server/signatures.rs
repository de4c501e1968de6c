//! Signatures of a session's requests, as a server checks them.
//!
//! ```text
//! sigver ─▶ kept ─▶ the request behind it ─▶ checked ─▶ served
//!                                        └─▶ SigVerErr, and the connection ends
//! ```
//!
//! A signature covers the payload, but for the bytes that `write` and `pgwrite` bring: a server that has not said that it wants
//! these signed gets none from any client. What no level asks for is checked as well where there is a key.

use crate::Malformed;
use crate::answer::Signing;
use crate::frame::{REQUEST_HEAD_BYTES, RequestHead, StreamId};
use crate::registry::{ErrorCode, RequestId};
use crate::request::{Call, Sigver};
use crate::signing::{SHA_256, digest, is_signed};

/// Bytes of a signature, at most; as much as XRootD's servers take.
const SIGNATURE_BYTES_MAX: usize = 1024;

/// The bits of the algorithm that say which digest it is.
const DIGEST_MASK: u8 = 0x0f;

/// The bit of the algorithm that says that the key is an RSA key.
const BY_RSA: u8 = 0x80;

/// Opens signatures with the key that a login has agreed on.
pub trait Unseal: Send + Sync {
    /// The digest in a signature; `None`: it is not sealed with this key.
    fn unseal(&self, signature: &[u8]) -> Option<Vec<u8>>;
}

/// What a request lacks, to be looked at.
pub(super) enum Check {
    /// Nothing: it is served.
    Good,
    /// Its payload, which is signed, is not there.
    NeedsPayload,
}

/// The signatures of a session.
pub(super) struct Signatures {
    signing: Signing,
    key: Option<Box<dyn Unseal>>,
    /// The number of the last one that was good.
    last: u64,
    /// The one whose request has not come.
    waiting: Option<(StreamId, Sigver)>,
}

impl Signatures {
    /// For a session with this key; `None`: nothing is looked at, since there is none and no client has to sign without.
    pub(super) fn new(signing: Signing, key: Option<Box<dyn Unseal>>) -> Option<Signatures> {
        (key.is_some() || signing.is_forced).then_some(Signatures { signing, key, last: 0, waiting: None })
    }

    /// Keeps a signature for the request behind it.
    pub(super) fn take(&mut self, head: &RequestHead, payload: &[u8]) -> Result<(), Malformed> {
        if !(1..=SIGNATURE_BYTES_MAX).contains(&payload.len()) {
            return Err(Malformed::new(ErrorCode::ARG_INVALID, "Invalid signature data length").closing());
        }
        if self.waiting.is_some() {
            return Err(wrong("Signature requestid mismatch"));
        }
        if head.body[2] != 0 {
            return Err(wrong("Unsupported signature version"));
        }
        let sigver = Sigver::parse(&head.body, payload)?;
        if sigver.algorithm & DIGEST_MASK != SHA_256 {
            return Err(wrong("Unsupported signature hash"));
        }
        if sigver.algorithm & BY_RSA != 0 {
            return Err(wrong("Unsupported signature key"));
        }
        self.waiting = Some((head.stream, sigver));
        Ok(())
    }

    /// Checks the signature of a request; fails if it has to have one and has none. `payload`: all of it, if that is there.
    pub(super) fn check(
        &mut self,
        head: &RequestHead,
        head_bytes: &[u8; REQUEST_HEAD_BYTES],
        payload: Option<&[u8]>,
    ) -> Result<Check, Malformed> {
        let Some((stream, sigver)) = &self.waiting else {
            return match is_signed(&self.signing, head) {
                true => Err(wrong("Request not signed")),
                false => Ok(Check::Good),
            };
        };
        if sigver.number <= self.last {
            return Err(wrong("Incorrect signature sequence"));
        }
        if *stream != head.stream {
            return Err(wrong("Signature streamid mismatch"));
        }
        if sigver.expected != head.id {
            return Err(wrong("Signature requestid mismatch"));
        }
        let brings_bytes = matches!(head.id, RequestId::WRITE | RequestId::PGWRITE);
        let payload = match (head.payload_len, sigver.leaves_payload_out) {
            (0, _) => &[][..],
            (_, true) if brings_bytes => &[][..],
            // The argument of anything else is what somebody on the way would change.
            (_, true) => return Err(wrong("Signature leaves the argument of the request out")),
            (_, false) if brings_bytes => return Err(wrong("Signatures of data are not asked for here")),
            (_, false) => match payload {
                Some(payload) => payload,
                None => return Ok(Check::NeedsPayload),
            },
        };
        let expected = digest(sigver.number, head_bytes, &[payload]);
        let given = match &self.key {
            Some(key) => key.unseal(&sigver.signature).ok_or_else(|| wrong("Signature is of another key"))?,
            None => sigver.signature.clone(),
        };
        if given.len() != expected.bytes().len() {
            return Err(wrong("Invalid signature hash length"));
        }
        if given != expected.bytes() {
            return Err(wrong("Signature hash mismatch"));
        }
        self.last = sigver.number;
        self.waiting = None;
        Ok(Check::Good)
    }
}

/// It ends the connection: what comes behind it cannot be told from what somebody else has put there.
fn wrong(what: &'static str) -> Malformed {
    Malformed::new(ErrorCode::SIGNATURE_ERROR, what).closing()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Seal, Signer};
    use crate::flags::{OpenMore, OpenOptions};
    use crate::frame::{Handle, PathId};
    use crate::path::PathArg;
    use crate::request::{Open, Ping, Rm, Write};

    const STREAM: StreamId = StreamId([1, 0]);

    /// Turns every bit over; without the first byte it is another's.
    struct Flips;

    impl Seal for Flips {
        fn seal(&self, digest: &[u8]) -> Result<Vec<u8>, String> {
            Ok([7].into_iter().chain(digest.iter().map(|byte| !byte)).collect())
        }
    }

    impl Unseal for Flips {
        fn unseal(&self, signature: &[u8]) -> Option<Vec<u8>> {
            Some(signature.strip_prefix(&[7])?.iter().map(|byte| !byte).collect())
        }
    }

    fn level(level: u8) -> Signing {
        Signing { level, ..Signing::default() }
    }

    /// The first fault of messages that come one behind the other, or how many requests were good.
    fn go(signatures: &mut Signatures, mut bytes: &[u8]) -> Result<usize, String> {
        let mut good = 0;
        while let Some(head_bytes) = bytes.first_chunk::<REQUEST_HEAD_BYTES>() {
            let head = RequestHead::parse(head_bytes).unwrap();
            let end = REQUEST_HEAD_BYTES + head.payload_len as usize;
            let payload = &bytes[REQUEST_HEAD_BYTES..end];
            match head.id {
                RequestId::SIGVER => {
                    signatures.take(&head, payload).map_err(|wrong| wrong.message.to_owned())?
                }
                _ => match signatures.check(&head, head_bytes, Some(payload)) {
                    Ok(Check::Good) => good += 1,
                    Ok(Check::NeedsPayload) => panic!("it is there"),
                    Err(wrong) => {
                        assert!(wrong.closes && wrong.code == ErrorCode::SIGNATURE_ERROR);
                        return Err(wrong.message.to_owned());
                    }
                },
            }
            bytes = &bytes[end..];
        }
        Ok(good)
    }

    fn rm() -> Vec<u8> {
        Rm { about: PathArg::new("/vo/f") }.to_bytes(STREAM)
    }

    fn write() -> Vec<u8> {
        let mut out = Vec::new();
        Write { handle: Handle([1; 4]), offset: 5, path_id: PathId::default() }
            .encode_for(STREAM, 3, &mut out);
        out.extend_from_slice(b"abc");
        out
    }

    fn open() -> Vec<u8> {
        let (more, template, about) = (OpenMore::NONE, Handle::default(), PathArg::new("/vo/f"));
        Open { mode: 0o644, options: OpenOptions::UPDATE, more, template, about }.to_bytes(STREAM)
    }

    fn signed(requests: &[Vec<u8>], level: Signing) -> Vec<u8> {
        let mut out = Vec::new();
        let mut signer = Signer::new(level, Some(Box::new(Flips))).unwrap();
        signer.sign_all(&requests.concat(), &mut out).unwrap();
        out
    }

    fn ours(level: Signing) -> Signatures {
        Signatures::new(level, Some(Box::new(Flips))).unwrap()
    }

    #[test]
    fn what_clients_sign_is_good() {
        let requests = [open(), write(), rm(), Ping.to_bytes(STREAM)];
        for (of_client, of_server) in [(4, 4), (3, 3), (4, 1), (4, 0)] {
            let bytes = signed(&requests, level(of_client));
            assert_eq!(go(&mut ours(level(of_server)), &bytes), Ok(4), "{of_client} {of_server}");
        }
        let fault = go(&mut ours(level(3)), &signed(&requests, level(1)));
        assert_eq!(fault.unwrap_err(), "Request not signed");
    }

    #[test]
    fn what_somebody_has_changed_is_not() {
        let good = signed(&[rm()], level(1));
        let request_at = good.len() - rm().len();
        let cases: [(&str, usize, u8); 8] = [
            // The sigver: its stream, the request, the number, the flag that leaves the payload out, the algorithm, and the seal.
            ("Signature streamid mismatch", 0, 2),
            ("Signature requestid mismatch", 5, 1),
            ("Unsupported signature version", 6, 1),
            ("Signature leaves the argument of the request out", 7, 1),
            ("Signature hash mismatch", 15, 9),
            ("Unsupported signature hash", 16, 2),
            ("Signature is of another key", 24, 8),
            // And the path of the request.
            ("Signature hash mismatch", request_at + REQUEST_HEAD_BYTES + 2, b'x'),
        ];
        for (fault, at, byte) in cases {
            let mut bytes = good.clone();
            bytes[at] = byte;
            if at == 5 {
                bytes[at] = 0xc3;
            }
            assert_eq!(go(&mut ours(level(1)), &bytes), Err(fault.to_owned()), "{at}");
        }
        let mut shorter = good.clone();
        shorter.remove(request_at - 1);
        shorter[23] -= 1;
        assert_eq!(go(&mut ours(level(1)), &shorter).unwrap_err(), "Invalid signature hash length");
    }

    #[test]
    fn nothing_is_said_twice() {
        let good = signed(&[rm()], level(1));
        let mut signatures = ours(level(1));
        assert_eq!(go(&mut signatures, &good), Ok(1));
        assert_eq!(go(&mut signatures, &good).unwrap_err(), "Incorrect signature sequence");
        // Two for one request.
        let sigver = &good[..good.len() - rm().len()];
        assert_eq!(
            go(&mut ours(level(1)), &[sigver, sigver].concat()).unwrap_err(),
            "Signature requestid mismatch"
        );
        assert_eq!(
            go(&mut ours(level(1)), &[sigver, &write()].concat()).unwrap_err(),
            "Signature requestid mismatch"
        );
    }

    #[test]
    fn data_are_left_out() {
        let with_data = Signing { signs_data: true, ..level(3) };
        let fault = go(&mut ours(level(3)), &signed(&[write()], with_data));
        assert_eq!(fault.unwrap_err(), "Signatures of data are not asked for here");
        // The payload of anything else is waited for.
        let bytes = signed(&[rm()], level(1));
        let (sigver, request) = bytes.split_at(bytes.len() - rm().len());
        let mut signatures = ours(level(1));
        assert_eq!(go(&mut signatures, sigver), Ok(0));
        let head_bytes = request.first_chunk().unwrap();
        let head = RequestHead::parse(head_bytes).unwrap();
        for payload in [None, None, Some(&request[REQUEST_HEAD_BYTES..])] {
            let is_there = payload.is_some();
            let check = signatures.check(&head, head_bytes, payload).unwrap();
            assert_eq!(matches!(check, Check::Good), is_there);
        }
    }

    #[test]
    fn a_session_without_a_key() {
        assert!(Signatures::new(level(4), None).is_none());
        let forced = Signing { is_forced: true, ..level(1) };
        let mut bytes = Vec::new();
        Signer::new(forced, None).unwrap().sign_all(&[rm(), open()].concat(), &mut bytes).unwrap();
        assert_eq!(go(&mut Signatures::new(forced, None).unwrap(), &bytes), Ok(2));
        let fault = go(&mut Signatures::new(forced, None).unwrap(), &rm());
        assert_eq!(fault.unwrap_err(), "Request not signed");
    }
}
