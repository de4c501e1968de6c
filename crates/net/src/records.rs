//! The record layer of TLS 1.3 over buffers of our own (RFC 8446, section 5).
//!
//! rustls shakes hands, and keeps the key schedule and the tickets. Its records cost an allocation and two copies more
//! than this: here the plaintexts of many records are decrypted to where they are wanted, one behind the other, in the
//! buffer that the ciphertext came into.
//!
//! ```text
//!   |hdr|ciphertext 1 |tag|hdr|ciphertext 2 |tag|hdr|cipher…    as received
//!   |plaintext 1|plaintext 2|                   |hdr|cipher…    afterwards
//! ```
//!
//! No socket and no buffer here: [`session`](crate::session) has them.

use std::mem;

use gridlane_core::limits::{TLS_HANDSHAKE_MESSAGE_BYTES_MAX, TLS_RECORD_BYTES_MAX};
use ring::aead::{self, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, Error, InvalidMessage, PeerMisbehaved, SupportedCipherSuite,
};

use crate::framing::{HEADER_BYTES, Header, OVERHEAD_BYTES, Opened, RecordEnds, Stop, TAG_BYTES};
use crate::side::Side;

/// Ciphertext of one record (RFC 8446, 5.2).
const CIPHERTEXT_BYTES_MAX: usize = TLS_RECORD_BYTES_MAX + 256;
/// Records without data one behind the other: a peer that has nothing to say need not be listened to.
const IDLE_RECORDS_MAX: u32 = 32;

// RFC 8446, B.1 to B.3.
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
const WARNING: u8 = 1;
const FATAL: u8 = 2;

/// Both directions of a connection whose handshake is over.
pub(crate) struct Records {
    opener: Half,
    sealer: Half,
    keys: Keys,
    /// Records after which a key has to be replaced.
    pub(crate) sealed_max: u64,
    /// The front of a handshake message whose rest is in the next record.
    message: Vec<u8>,
    idle_records: u32,
    /// The peer has asked for new keys of ours.
    owes_update: bool,
    /// We have said that nothing follows.
    is_ended: bool,
}

/// The key schedule behind a handshake, which stays with rustls.
enum Keys {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

impl Records {
    /// Takes the keys of a connection whose handshake was of TLS 1.3 and is over. rustls must have nothing more to say.
    pub(crate) fn take(side: Side) -> Result<Records, Error> {
        let (secrets, keys) = match side {
            Side::Client(conn) => conn
                .dangerous_into_kernel_connection()
                .map(|(secrets, keys)| (secrets, Keys::Client(keys)))?,
            Side::Server(conn) => conn
                .dangerous_into_kernel_connection()
                .map(|(secrets, keys)| (secrets, Keys::Server(keys)))?,
        };
        let suite = match &keys {
            Keys::Client(keys) => keys.negotiated_cipher_suite(),
            Keys::Server(keys) => keys.negotiated_cipher_suite(),
        };
        let sealed_max = match suite {
            // The last one says that the key is replaced.
            SupportedCipherSuite::Tls13(suite) => suite.common.confidentiality_limit.saturating_sub(1),
            #[allow(unreachable_patterns)]
            _ => return Err(Error::General("these records are not of TLS 1.3".into())),
        };
        Ok(Records {
            opener: Half::new(secrets.rx)?,
            sealer: Half::new(secrets.tx)?,
            keys,
            sealed_max,
            message: Vec::new(),
            idle_records: 0,
            owes_update: false,
            is_ended: false,
        })
    }

    /// Decrypts up to `max` records with data of those that begin at `buf[at..]` and are there whole, and puts their
    /// plaintexts one behind the other from `buf[out..]` on, where `out` is not behind `at`.
    pub(crate) fn open(&mut self, buf: &mut [u8], out: usize, at: usize, max: usize) -> Opened {
        let mut opened = Opened { plain_end: out, rest: at, record_bytes: 0, stop: None };
        for _ in 0..max {
            let Opened { plain_end, rest, .. } = &mut opened;
            let plain_before = *plain_end;
            match self.open_one(buf, plain_end, rest) {
                Ok(true) => opened.record_bytes = opened.plain_end - plain_before + OVERHEAD_BYTES,
                Ok(false) => break,
                Err(stop) => {
                    opened.stop = Some(stop);
                    break;
                }
            }
        }
        opened
    }

    /// Opens records up to the first with data; whether there was one.
    fn open_one(&mut self, buf: &mut [u8], plain_end: &mut usize, rest: &mut usize) -> Result<bool, Stop> {
        while let Some(header) = whole_record(&buf[*rest..]).map_err(Stop::Failed)? {
            let (from, to) = (*rest + HEADER_BYTES, *rest + header.record_bytes());
            let opened = self.opener.open(header, &mut buf[*plain_end..to], from - *plain_end);
            let (kind, count) = opened.map_err(Stop::Failed)?;
            *rest = to;
            if kind != HANDSHAKE && !self.message.is_empty() {
                return Err(misbehaved(PeerMisbehaved::MessageInterleavedWithHandshakeMessage));
            }
            if kind == APPLICATION_DATA && count > 0 {
                *plain_end += count;
                self.idle_records = 0;
                return Ok(true);
            }
            self.idle_records += 1;
            if self.idle_records > IDLE_RECORDS_MAX {
                return Err(misbehaved(PeerMisbehaved::TooManyEmptyFragments));
            }
            let said = &buf[*plain_end..*plain_end + count];
            match kind {
                APPLICATION_DATA => {}
                HANDSHAKE if count > 0 => self.messages(said).map_err(Stop::Failed)?,
                ALERT => alert(said)?,
                _ => return Err(misbehaved(PeerMisbehaved::IllegalTlsInnerPlaintext)),
            }
        }
        Ok(false)
    }

    /// Takes in the messages of a record (RFC 8446, 4.6), which may begin before it and end behind it.
    fn messages(&mut self, said: &[u8]) -> Result<(), Error> {
        let mut bytes = mem::take(&mut self.message);
        bytes.extend_from_slice(said);
        let mut left = bytes.as_slice();
        while let [kind, a, b, c, behind @ ..] = left {
            let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if len > TLS_HANDSHAKE_MESSAGE_BYTES_MAX {
                return Err(InvalidMessage::HandshakePayloadTooLarge.into());
            }
            let Some((payload, behind)) = behind.split_at_checked(len) else { break };
            match (*kind, &mut self.keys) {
                (NEW_SESSION_TICKET, Keys::Client(keys)) => keys.handle_new_session_ticket(payload)?,
                (KEY_UPDATE, keys) => {
                    // What follows is sealed with the new key, so it cannot be in this record.
                    if !behind.is_empty() {
                        return Err(PeerMisbehaved::KeyEpochWithPendingFragment.into());
                    }
                    self.owes_update |= match payload {
                        [0] => false,
                        [1] => true,
                        [] => return Err(InvalidMessage::MessageTooShort.into()),
                        [_, _, ..] => return Err(InvalidMessage::TrailingData("KeyUpdate").into()),
                        [_] => return Err(InvalidMessage::InvalidKeyUpdate.into()),
                    };
                    self.opener = Half::new(keys.next(Direction::In)?)?;
                }
                _ => return Err(InvalidMessage::UnexpectedMessage("nothing of a handshake").into()),
            }
            left = behind;
        }
        self.message = left.to_vec();
        Ok(())
    }

    /// Bytes that [`Records::seal`] may need for so much plaintext.
    pub(crate) fn sealed_bytes(plain_bytes: usize, ends: RecordEnds) -> usize {
        let records = ends.count(plain_bytes);
        // Each may have to follow a change of keys.
        plain_bytes + records * (2 * OVERHEAD_BYTES + KEY_UPDATE_MESSAGE.len())
    }

    /// Encrypts `plain` into the front of `out`, which has [enough room](Records::sealed_bytes); returns how many bytes
    /// that takes. Records end where `ends` says. New keys come first when they are due.
    pub(crate) fn seal(&mut self, plain: &[u8], ends: RecordEnds, out: &mut [u8]) -> Result<usize, Error> {
        if self.is_ended {
            return Err(Error::General("nothing may follow the end of TLS".into()));
        }
        let mut filled = 0;
        let RecordEnds { first, each } = ends.bounded();
        let (first, rest) = plain.split_at(plain.len().min(first));
        let first = Some(first).filter(|first| !first.is_empty());
        for part in first.into_iter().chain(rest.chunks(each)) {
            if self.owes_update || self.sealer.sequence >= self.sealed_max {
                filled += self.seal_update(&mut out[filled..])?;
            }
            filled += self.sealer.seal(APPLICATION_DATA, part, &mut out[filled..])?;
        }
        Ok(filled)
    }

    /// True if so many records may follow with the keys that are in force.
    pub(crate) fn may_seal(&self, records: usize) -> bool {
        !self.is_ended && !self.owes_update && self.sealer.sequence + (records as u64) < self.sealed_max
    }

    /// Encrypts `bytes` of plaintext that lie in their [places](crate::framing::places) at the front of `out` already; returns
    /// how many bytes the records take. It is an error unless [`Records::may_seal`] allows so many of them.
    pub(crate) fn seal_placed(&mut self, bytes: usize, out: &mut [u8]) -> Result<usize, Error> {
        if !self.may_seal(bytes.div_ceil(TLS_RECORD_BYTES_MAX)) {
            return Err(Error::EncryptError);
        }
        let (mut filled, mut left) = (0, bytes);
        while left > 0 {
            let count = left.min(TLS_RECORD_BYTES_MAX);
            let record = out.get_mut(filled..filled + count + OVERHEAD_BYTES).ok_or(Error::EncryptError)?;
            filled += self.sealer.seal_placed(APPLICATION_DATA, record)?;
            left -= count;
        }
        Ok(filled)
    }

    /// True if the peer has asked for new keys and may still get them.
    pub(crate) fn owes_update(&self) -> bool {
        self.owes_update && !self.is_ended
    }

    /// Says that what follows has new keys, and takes them.
    pub(crate) fn seal_update(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        let filled = self.sealer.seal(HANDSHAKE, &KEY_UPDATE_MESSAGE, out)?;
        self.sealer = Half::new(self.keys.next(Direction::Out)?)?;
        self.owes_update = false;
        Ok(filled)
    }

    /// Says that nothing follows, unless that was said.
    pub(crate) fn seal_close(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        self.seal_end(WARNING, AlertDescription::CloseNotify, out)
    }

    /// The last record: after an alert that ends the connection nothing may be sent (RFC 8446, 6).
    fn seal_end(&mut self, level: u8, why: AlertDescription, out: &mut [u8]) -> Result<usize, Error> {
        if mem::replace(&mut self.is_ended, true) {
            return Ok(0);
        }
        self.sealer.seal(ALERT, &[level, why.into()], out)
    }

    /// Makes a record of any kind.
    #[cfg(test)]
    pub(crate) fn seal_as(&mut self, kind: u8, said: &[u8], out: &mut [u8]) -> Result<usize, Error> {
        self.sealer.seal(kind, said, out)
    }

    /// Says why the connection is given up, if that is for us to say.
    pub(crate) fn seal_failure(&mut self, cause: &Error, out: &mut [u8]) -> Result<usize, Error> {
        let why = match cause {
            Error::AlertReceived(_) => {
                self.is_ended = true;
                return Ok(0);
            }
            Error::DecryptError => AlertDescription::BadRecordMac,
            Error::PeerSentOversizedRecord => AlertDescription::RecordOverflow,
            Error::InvalidMessage(
                InvalidMessage::UnexpectedMessage(_) | InvalidMessage::InvalidContentType,
            )
            | Error::PeerMisbehaved(_) => AlertDescription::UnexpectedMessage,
            Error::InvalidMessage(InvalidMessage::InvalidKeyUpdate) => AlertDescription::IllegalParameter,
            // Sequence numbers are used up (RFC 8446, 5.3).
            Error::EncryptError => AlertDescription::InternalError,
            _ => AlertDescription::DecodeError,
        };
        self.seal_end(FATAL, why, out)
    }
}

/// A `KeyUpdate` that asks for nothing (RFC 8446, 4.6.3).
const KEY_UPDATE_MESSAGE: [u8; 5] = [KEY_UPDATE, 0, 0, 1, 0];

enum Direction {
    In,
    Out,
}

impl Keys {
    fn next(&mut self, direction: Direction) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        match (self, direction) {
            (Keys::Client(keys), Direction::In) => keys.update_rx_secret(),
            (Keys::Client(keys), Direction::Out) => keys.update_tx_secret(),
            (Keys::Server(keys), Direction::In) => keys.update_rx_secret(),
            (Keys::Server(keys), Direction::Out) => keys.update_tx_secret(),
        }
    }
}

/// The key of one direction, and how many records it has seen.
struct Half {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
}

impl Half {
    fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Half, Error> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&aead::AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&aead::AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&aead::CHACHA20_POLY1305, key, iv),
            _ => return Err(Error::General("a cipher that is not known here".into())),
        };
        let unusable = || Error::General("a key of the wrong length".into());
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| unusable())?;
        let iv = iv.as_ref().try_into().map_err(|_| unusable())?;
        Ok(Half { key: LessSafeKey::new(key), iv, sequence })
    }

    /// The next record's (RFC 8446, 5.3).
    fn nonce(&mut self) -> Result<Nonce, Error> {
        let mut nonce = self.iv;
        for (byte, of_sequence) in nonce[NONCE_LEN - 8..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= of_sequence;
        }
        // Never twice the same.
        self.sequence = self.sequence.checked_add(1).ok_or(Error::EncryptError)?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }

    /// Decrypts a record whose ciphertext is `in_out[from..]` to the front of `in_out`; returns of what kind it is, and
    /// how long.
    fn open(&mut self, header: Header, in_out: &mut [u8], from: usize) -> Result<(u8, usize), Error> {
        let nonce = self.nonce()?;
        let plain = self.key.open_within(nonce, Aad::from(header.0), in_out, from..);
        let plain = plain.map_err(|_| Error::DecryptError)?;
        if plain.len() > TLS_RECORD_BYTES_MAX + 1 {
            return Err(Error::PeerSentOversizedRecord);
        }
        // Behind the content comes its kind, and behind that any number of zeros.
        let end = plain.iter().rposition(|byte| *byte != 0);
        let end = end.ok_or(PeerMisbehaved::IllegalTlsInnerPlaintext)?;
        Ok((plain[end], end))
    }

    /// Makes a record of at most [`TLS_RECORD_BYTES_MAX`] bytes at the front of `out`; returns how long it is.
    fn seal(&mut self, kind: u8, plain: &[u8], out: &mut [u8]) -> Result<usize, Error> {
        let record = out.get_mut(..plain.len() + OVERHEAD_BYTES).ok_or(Error::EncryptError)?;
        record[HEADER_BYTES..HEADER_BYTES + plain.len()].copy_from_slice(plain);
        self.seal_placed(kind, record)
    }

    /// Makes a record of what lies in the [place](crate::framing::places) of its plaintext; returns how long it is.
    fn seal_placed(&mut self, kind: u8, record: &mut [u8]) -> Result<usize, Error> {
        let nonce = self.nonce()?;
        let plain_bytes = record.len() - OVERHEAD_BYTES;
        let [high, low] = ((plain_bytes + 1 + TAG_BYTES) as u16).to_be_bytes();
        let header = [APPLICATION_DATA, 3, 3, high, low];
        let (front, rest) = record.split_at_mut(HEADER_BYTES);
        let (content, tag_place) = rest.split_at_mut(plain_bytes + 1);
        front.copy_from_slice(&header);
        content[plain_bytes] = kind;
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(header), content);
        tag_place.copy_from_slice(tag.map_err(|_| Error::EncryptError)?.as_ref());
        Ok(record.len())
    }
}

/// The header of the first record, if all of it is there. What cannot become a record is an error before it is there.
fn whole_record(bytes: &[u8]) -> Result<Option<Header>, Error> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let header = Header(*header);
    // Behind the handshake everything is sealed, and all that is sealed has this kind (RFC 8446, 5.2).
    if header.0[0] != APPLICATION_DATA {
        return Err(InvalidMessage::InvalidContentType.into());
    }
    if header.record_bytes() > HEADER_BYTES + CIPHERTEXT_BYTES_MAX {
        return Err(Error::PeerSentOversizedRecord);
    }
    Ok((bytes.len() >= header.record_bytes()).then_some(header))
}

/// RFC 8446, 6: all but two alerts end the connection, whatever level they say. Levels that are none do as well, and a
/// cancellation that calls itself fatal: rustls decides so.
fn alert(said: &[u8]) -> Result<(), Stop> {
    let [level, description] = said else { return Err(misbehaved(PeerMisbehaved::IllegalTlsInnerPlaintext)) };
    match (*level, AlertDescription::from(*description)) {
        (WARNING | FATAL, AlertDescription::CloseNotify) => Err(Stop::Closed),
        // The close follows.
        (WARNING, AlertDescription::UserCanceled) => Ok(()),
        (_, why) => Err(Stop::Failed(Error::AlertReceived(why))),
    }
}

fn misbehaved(how: PeerMisbehaved) -> Stop {
    Stop::Failed(how.into())
}

#[cfg(test)]
mod tests;
