//! One TLS session over buffers of our own: ciphertext in, plaintext out, and back.
//!
//! No socket here: [`Stream`](crate::Stream) moves the bytes. rustls shakes hands, through its unbuffered interface: the
//! other one reads in steps of 4 KiB and copies twice, which costs three times the CPU on receive. As soon as a handshake
//! of TLS 1.3 is over `records` takes over, unless [`RecordLayer`](crate::tls::RecordLayer) says otherwise. Until then
//! rustls is shown a record at a time: what it had decrypted, or had to answer, behind the end of the handshake would be
//! lost with it. With TLS 1.2 rustls goes on.
//!
//! Bulk data comes straight into its reader's buffer and is decrypted there ([`Session::room_in`]). What is small comes
//! into a buffer of the session, which keeps a partial record in front of a page boundary, so that the kernel always
//! copies to an aligned address (see `gridlane_sys::AlignedBuf` for why that matters):
//!
//! ```text
//!   |<-- HEADROOM -->|<------------- IO_BYTES ------------->|
//!          [partial ]|[next read starts at a page          ]
//! ```

use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use gridlane_core::limits::{IO_BYTES, TLS_RECORD_BYTES_MAX};
use gridlane_sys::{AlignedBuf, PAGE_BYTES, ReusedBuf};
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
};
use rustls::{ClientConfig, ProtocolVersion, ServerConfig};

use crate::framing::{HEADER_BYTES, OVERHEAD_BYTES, Opened, RecordEnds, Stop, first_record, places};
use crate::records::Records;
use crate::side::Side;

/// Room for one partial record: its 5-byte header, 16 KiB, and what a cipher may add (RFC 8446, 5.2).
const HEADROOM: usize = 20 * 1024;
/// Plaintext encrypted per call: what is sent with one system call.
pub(crate) const ENCRYPT_BYTES: usize = 4 * TLS_RECORD_BYTES_MAX;
/// Records of [`ENCRYPT_BYTES`].
const ENCRYPT_RECORDS: usize = ENCRYPT_BYTES / TLS_RECORD_BYTES_MAX;
/// Where in its buffer bulk data begins: the plaintext of the first record lies 64 bytes behind a page boundary, and that of each
/// further one a few bytes more. Copies to 1 to 31 bytes behind one are slow (see `gridlane_sys::AlignedBuf`).
const BULK_AT: usize = 64 - HEADER_BYTES;
/// Room that a record needs beyond its plaintext.
const RECORD_OVERHEAD: usize = 256;
/// Room for one record about TLS itself.
const NOTE_BYTES: usize = 16 + OVERHEAD_BYTES;
/// A reader's buffer with at least so much room is received into.
const DIRECT_BYTES_MIN: usize = 64 * 1024;
const _: () = assert!(HEADER_BYTES + TLS_RECORD_BYTES_MAX + RECORD_OVERHEAD <= HEADROOM);

/// The code that makes and opens records.
enum Layer {
    Rustls(Side),
    Ours(Box<Records>),
    /// Only while one becomes the other, and when that failed.
    Vacant,
}

/// Results of a handshake.
struct Agreed {
    version: Option<ProtocolVersion>,
    peer_certificates: Vec<CertificateDer<'static>>,
    is_resumed: bool,
}

/// The next thing that a session needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// More ciphertext from the peer.
    Input,
    /// Nothing: the handshake is over and application data may be written.
    Nothing,
    /// The peer has said that it will send no more.
    PeerClosed,
}

/// One side of a TLS connection: ciphertext goes in by [`input`](Session::input) and [`received`](Session::received),
/// or straight to its reader by [`room_in`](Session::room_in) and [`received_in`](Session::received_in);
/// [`handshake`](Session::handshake), [`read`](Session::read) and [`write`](Session::write) process it; ciphertext for
/// the peer comes out by [`output`](Session::output) and [`transmitted`](Session::transmitted).
pub struct Session {
    layer: Layer,
    /// True if rustls gives the keys away.
    gives_keys: bool,
    /// Known here when rustls does not know it any more.
    agreed: Option<Agreed>,
    /// Why nothing can be read any more.
    failed: Option<rustls::Error>,
    /// Made when bytes are about to come.
    incoming: Option<ReusedBuf>,
    /// Unprocessed ciphertext is `incoming[start..end]`.
    start: usize,
    end: usize,
    /// Whole records at the front of that which rustls was shown, and not more, while it shakes hands.
    shown: usize,
    /// Made when there is something to send.
    outgoing: Option<AlignedBuf>,
    /// Unsent ciphertext is `outgoing[sent..filled]`.
    sent: usize,
    filled: usize,
    /// Plaintext in the places of the next records, behind `outgoing[..filled]`.
    loaded: usize,
    /// Plaintext that did not fit where its reader wanted it; `plain[taken..]` is left.
    plain: Vec<u8>,
    taken: usize,
    peer_closed: bool,
    /// We have said that nothing follows.
    is_ended: bool,
    /// Length of the last record of bulk data.
    record_bytes: usize,
}

impl Session {
    /// A client's that wants to speak to `name`.
    pub fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Session, rustls::Error> {
        let gives_keys = config.enable_secret_extraction;
        let conn = UnbufferedClientConnection::new(config, name)?;
        Ok(Session::new(Side::Client(Box::new(conn)), gives_keys))
    }

    /// A server's.
    pub fn server(config: Arc<ServerConfig>) -> Result<Session, rustls::Error> {
        let gives_keys = config.enable_secret_extraction;
        let conn = UnbufferedServerConnection::new(config)?;
        Ok(Session::new(Side::Server(Box::new(conn)), gives_keys))
    }

    /// `gives_keys`: whether the configuration lets rustls give the keys away.
    fn new(side: Side, gives_keys: bool) -> Session {
        Session {
            layer: Layer::Rustls(side),
            gives_keys: gives_keys && cfg!(feature = "own-records"),
            agreed: None,
            failed: None,
            incoming: None,
            start: HEADROOM,
            end: HEADROOM,
            shown: 0,
            outgoing: None,
            sent: 0,
            filled: 0,
            loaded: 0,
            plain: Vec::new(),
            taken: 0,
            peer_closed: false,
            is_ended: false,
            record_bytes: 0,
        }
    }

    /// Where the socket's next bytes go; followed by [`Session::received`].
    pub fn input(&mut self) -> &mut [u8] {
        let incoming = self.incoming.get_or_insert_with(|| ReusedBuf::new(HEADROOM + IO_BYTES));
        if self.start == self.end {
            (self.start, self.end) = (HEADROOM, HEADROOM);
        } else if incoming.len() - self.end < IO_BYTES / 2 {
            let partial = self.end - self.start;
            // More than a record can only wait here when its reader took less than a record at a time.
            let to = HEADROOM.saturating_sub(partial);
            incoming.copy_within(self.start..self.end, to);
            (self.start, self.end) = (to, to + partial);
        }
        &mut incoming[self.end..]
    }

    /// True if there is room for the socket's next bytes already, or it would be made for them.
    pub(crate) fn has_input(&self) -> bool {
        self.incoming.is_some()
    }

    /// Gives back the memory of buffers that hold nothing: a connection that waits needs none.
    pub fn release(&mut self) {
        if self.start == self.end {
            self.incoming = None;
            (self.start, self.end) = (HEADROOM, HEADROOM);
        }
        if self.sent == self.filled {
            self.outgoing = None;
            (self.sent, self.filled, self.loaded) = (0, 0, 0);
        }
        if self.plain.is_empty() {
            self.plain = Vec::new();
        }
    }

    /// `bytes` came into [`Session::input`].
    pub fn received(&mut self, bytes: usize) {
        self.end += bytes;
    }

    /// Ciphertext to send; followed by [`Session::transmitted`].
    pub fn output(&self) -> &[u8] {
        self.outgoing.as_deref().map_or(&[], |outgoing| &outgoing[self.sent..self.filled])
    }

    /// `bytes` of [`Session::output`] were sent.
    pub fn transmitted(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.filled {
            (self.sent, self.filled, self.loaded) = (0, 0, 0);
        }
    }

    /// Takes plaintext that is there already; processes what ciphertext there is.
    ///
    /// Returns how many bytes were put into `target`, and what the session needs to go on.
    pub fn read(&mut self, target: &mut [u8]) -> io::Result<(usize, Need)> {
        let mut count = self.take_plain(target);
        while target.len() - count >= TLS_RECORD_BYTES_MAX || count == 0 {
            if self.taken < self.plain.len() || target.len() == count {
                break;
            }
            let (got, need) = match self.step(&mut target[count..], None) {
                // A failure that lasts is told when what came before it has been read.
                Err(_) if count > 0 && self.failed.is_some() => break,
                outcome => outcome?,
            };
            count += got;
            if got == 0 {
                match need {
                    Some(Need::Nothing) | Some(Need::Input) => return Ok((count, Need::Input)),
                    Some(Need::PeerClosed) => return Ok((count, Need::PeerClosed)),
                    None => {}
                }
            }
        }
        Ok((count, Need::Nothing))
    }

    /// Drives the handshake with what ciphertext there is.
    pub fn handshake(&mut self) -> io::Result<Need> {
        loop {
            if let (_, Some(need)) = self.step(&mut [], None)? {
                if need == Need::Nothing && self.may_take_over() {
                    self.take_over()?;
                }
                return Ok(need);
            }
        }
    }

    /// True if the handshake is over and the keys of what follows are to be had.
    fn may_take_over(&self) -> bool {
        let Layer::Rustls(side) = &self.layer else { return false };
        let is_over = !side.is_handshaking() && !side.keeps_records();
        is_over && self.gives_keys && self.shown == 0 && self.plain.is_empty() && !self.peer_closed
    }

    /// Makes the records ours. rustls must have nothing more to say.
    fn take_over(&mut self) -> io::Result<()> {
        let agreed = Agreed {
            version: self.protocol_version(),
            peer_certificates: self.peer_certificates().to_vec(),
            is_resumed: self.is_resumed(),
        };
        let records = match std::mem::replace(&mut self.layer, Layer::Vacant) {
            Layer::Rustls(side) => Records::take(side),
            Layer::Ours(_) | Layer::Vacant => Err(rustls::Error::HandshakeNotComplete),
        };
        let records = records.map_err(invalid)?;
        (self.layer, self.agreed) = (Layer::Ours(Box::new(records)), Some(agreed));
        Ok(())
    }

    /// Where in `target` the socket's next bytes may go so that they need not be copied, when nothing waits to be read;
    /// followed by [`Session::received_in`]. It begins with a page, with room in front of it for the record of which a
    /// part is there, and ends with a record if they are as long as the last one: else its front would be copied twice.
    pub fn room_in(&self, target: &[u8]) -> Option<Range<usize>> {
        let is_ready = matches!(self.layer, Layer::Ours(_)) && self.plain.is_empty();
        if !is_ready || self.peer_closed || self.failed.is_some() {
            return None;
        }
        let partial = self.end - self.start;
        let at = (target.as_ptr().addr() + partial).next_multiple_of(PAGE_BYTES) - target.as_ptr().addr();
        let room = target.len().checked_sub(at).filter(|room| *room >= DIRECT_BYTES_MIN)?;
        let over = (room + partial).checked_rem(self.record_bytes).unwrap_or(0);
        Some(at..target.len() - over)
    }

    /// `bytes` came into `target[at..]`, as [`Session::room_in`] said. They become plaintext at the front of `target`;
    /// returns how much.
    pub fn received_in(&mut self, target: &mut [u8], at: usize, bytes: usize) -> io::Result<(usize, Need)> {
        let partial = self.end - self.start;
        if let Some(incoming) = &self.incoming {
            target[at - partial..at].copy_from_slice(&incoming[self.start..self.end]);
        }
        (self.start, self.end) = (HEADROOM, HEADROOM);
        let Layer::Ours(records) = &mut self.layer else { return Err(io::ErrorKind::NotConnected.into()) };
        let ciphertext = &mut target[..at + bytes];
        let opened = records.open(ciphertext, 0, at - partial, usize::MAX);
        if opened.record_bytes > 0 {
            self.record_bytes = opened.record_bytes;
        }
        if opened.stop.is_none() && opened.rest < ciphertext.len() {
            let left = &ciphertext[opened.rest..];
            self.start = HEADROOM - left.len();
            let incoming = self.incoming.get_or_insert_with(|| ReusedBuf::new(HEADROOM + IO_BYTES));
            incoming[self.start..HEADROOM].copy_from_slice(left);
        }
        let count = opened.plain_end;
        let need = self.settle(opened, 0)?.unwrap_or(Need::Input);
        Ok((count, need))
    }

    /// Consequences of opening records to `out..`: what is to be sent, and what is needed if nothing can be had any
    /// more. A failure is told when what came before it has been read.
    fn settle(&mut self, opened: Opened, out: usize) -> io::Result<Option<Need>> {
        let need = match opened.stop {
            None => None,
            Some(Stop::Closed) => {
                self.peer_closed = true;
                Some(Need::PeerClosed)
            }
            Some(Stop::Failed(cause)) => {
                self.note(|records, room| records.seal_failure(&cause, room));
                self.failed = Some(cause.clone());
                if opened.plain_end == out {
                    return Err(invalid(cause));
                }
                None
            }
        };
        if matches!(&self.layer, Layer::Ours(records) if records.owes_update()) && self.output().is_empty() {
            self.note(Records::seal_update);
        }
        Ok(need)
    }

    /// Puts a record about TLS itself behind what waits to be sent. If that cannot be, the peer finds out by itself.
    fn note(&mut self, seal: impl FnOnce(&mut Records, &mut [u8]) -> Result<usize, rustls::Error>) {
        let Layer::Ours(records) = &mut self.layer else { return };
        self.loaded = 0;
        let outgoing = &mut Outgoing { buf: &mut self.outgoing, filled: &mut self.filled };
        let room = outgoing.room(NOTE_BYTES);
        if let Ok(count) = seal(records, room) {
            self.filled += count;
        }
    }

    /// The records, which must be ours.
    #[cfg(test)]
    #[cfg(feature = "own-records")]
    pub(crate) fn records(&mut self) -> &mut Records {
        match &mut self.layer {
            Layer::Ours(records) => records,
            _ => panic!("the records are not ours"),
        }
    }

    /// One record of those that wait.
    fn open_one(&mut self, target: &mut [u8]) -> io::Result<(usize, Option<Need>)> {
        let Layer::Ours(records) = &mut self.layer else { return Err(io::ErrorKind::NotConnected.into()) };
        if self.peer_closed {
            return Ok((0, Some(Need::PeerClosed)));
        }
        let incoming = unprocessed(&mut self.incoming, self.start..self.end);
        let opened = records.open(incoming, 0, 0, 1);
        let plain = &incoming[..opened.plain_end];
        let (here, later) = plain.split_at(plain.len().min(target.len()));
        target[..here.len()].copy_from_slice(here);
        self.plain.extend_from_slice(later);
        let (count, has_plain) = (here.len(), !plain.is_empty());
        self.start += opened.rest;
        let need = self.settle(opened, 0)?;
        Ok((count, need.or((!has_plain).then_some(Need::Nothing))))
    }

    /// Takes in what ciphertext there is. True when the peer has neither sent anything for
    /// [`Session::read`] nor ended its direction.
    pub fn is_quiet(&mut self) -> bool {
        let need = self.handshake();
        matches!(need, Ok(Need::Input | Need::Nothing)) && self.plain.is_empty()
    }

    /// Encrypts the front of `bytes` (at most 64 KiB) behind what waits to be sent; returns
    /// how many bytes that was. Nothing may wait in [`Session::output`].
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_in(bytes, RecordEnds::FULL)
    }

    /// The same in records that end where `ends` says, or where `bytes` do.
    pub(crate) fn write_in(&mut self, bytes: &[u8], ends: RecordEnds) -> io::Result<usize> {
        if let Some(cause) = &self.failed {
            return Err(invalid(cause.clone()));
        }
        if self.is_ended {
            return Err(invalid(rustls::Error::General("nothing may follow the end of TLS".into())));
        }
        let part = match bytes.len() <= ENCRYPT_BYTES {
            true => bytes,
            false => &bytes[..ends.last_within(ENCRYPT_BYTES)],
        };
        self.loaded = 0;
        if let Layer::Ours(records) = &mut self.layer {
            if self.sent == self.filled {
                (self.sent, self.filled) = (BULK_AT, BULK_AT);
            }
            let outgoing = &mut Outgoing { buf: &mut self.outgoing, filled: &mut self.filled };
            let room = outgoing.room(Records::sealed_bytes(part.len(), ends));
            self.filled += records.seal(part, ends, room).map_err(invalid)?;
            return Ok(part.len());
        }
        // A record at a time where they are not of full size: rustls fills those that it makes.
        let part = match ends == RecordEnds::FULL {
            true => part,
            false => &part[..part.len().min(ends.next_from(1))],
        };
        let mut written = false;
        loop {
            match self.step(&mut [], Some((part, &mut written)))? {
                _ if written => return Ok(part.len()),
                (_, Some(Need::Input)) => {
                    return Err(io::Error::new(io::ErrorKind::NotConnected, "TLS handshake unfinished"));
                }
                _ => {}
            }
        }
    }

    /// Has `read` put up to `bytes` (at most 64 KiB) of plaintext where they are encrypted in place, without a copy;
    /// [`Session::seal_loaded`] does that, and nothing of them is sent if it is not called. `None`: `read` says so, or it was not
    /// called because these records cannot be made in place now.
    pub(crate) fn load(
        &mut self,
        bytes: usize,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<Option<usize>>,
    ) -> io::Result<Option<usize>> {
        self.loaded = 0;
        let Layer::Ours(records) = &self.layer else { return Ok(None) };
        let is_free = self.sent == self.filled && self.failed.is_none() && !self.is_ended;
        if !is_free || !records.may_seal(ENCRYPT_RECORDS) {
            return Ok(None);
        }
        let bytes = bytes.min(ENCRYPT_BYTES);
        (self.sent, self.filled) = (BULK_AT, BULK_AT);
        let outgoing = &mut Outgoing { buf: &mut self.outgoing, filled: &mut self.filled };
        let room = outgoing.room(Records::sealed_bytes(bytes, RecordEnds::FULL));
        let mut slices: [IoSliceMut<'_>; ENCRYPT_RECORDS] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let count = places(room, bytes, &mut slices);
        let read = read(&mut slices[..count])?;
        self.loaded = read.unwrap_or(0).min(bytes);
        Ok(read.map(|_| self.loaded))
    }

    /// Encrypts what was [loaded](Session::load): it waits to be sent.
    pub(crate) fn seal_loaded(&mut self) -> io::Result<()> {
        let (Layer::Ours(records), Some(outgoing)) = (&mut self.layer, &mut self.outgoing) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let bytes = std::mem::take(&mut self.loaded);
        self.filled += records.seal_placed(bytes, &mut outgoing[self.filled..]).map_err(invalid)?;
        Ok(())
    }

    /// Queues the orderly end of our direction.
    pub fn close(&mut self) -> io::Result<()> {
        self.is_ended = true;
        if let Layer::Ours(_) = &self.layer {
            self.note(Records::seal_close);
            return Ok(());
        }
        if self.failed.is_some() {
            // An alert has said so already.
            return Ok(());
        }
        let mut written = false;
        for _ in 0..64 {
            self.step(&mut [], Some((&[], &mut written)))?;
            if written {
                break;
            }
        }
        Ok(())
    }

    /// The negotiated protocol version, for logs.
    pub(crate) fn version(&self) -> Option<&'static str> {
        match self.protocol_version()? {
            ProtocolVersion::TLSv1_3 => Some("TLSv1.3"),
            ProtocolVersion::TLSv1_2 => Some("TLSv1.2"),
            _ => Some("TLS"),
        }
    }

    fn protocol_version(&self) -> Option<ProtocolVersion> {
        match &self.layer {
            Layer::Rustls(side) => side.protocol_version(),
            Layer::Ours(_) | Layer::Vacant => self.agreed.as_ref()?.version,
        }
    }

    /// The certificates that the other side has shown, its own first.
    pub(crate) fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        let certificates = match &self.layer {
            Layer::Rustls(Side::Client(conn)) => conn.peer_certificates(),
            Layer::Rustls(Side::Server(conn)) => conn.peer_certificates(),
            Layer::Ours(_) | Layer::Vacant => {
                self.agreed.as_ref().map(|agreed| agreed.peer_certificates.as_slice())
            }
        };
        certificates.unwrap_or_default()
    }

    /// The records are made and opened by the code of this crate: the handshake is over, and was of TLS 1.3.
    pub fn has_own_records(&self) -> bool {
        matches!(self.layer, Layer::Ours(_))
    }

    /// True if the handshake went on from an earlier session.
    pub(crate) fn is_resumed(&self) -> bool {
        let kind = match &self.layer {
            Layer::Rustls(Side::Client(conn)) => conn.handshake_kind(),
            Layer::Rustls(Side::Server(conn)) => conn.handshake_kind(),
            Layer::Ours(_) | Layer::Vacant => {
                return self.agreed.as_ref().is_some_and(|agreed| agreed.is_resumed);
            }
        };
        kind == Some(rustls::HandshakeKind::Resumed)
    }

    fn take_plain(&mut self, target: &mut [u8]) -> usize {
        let count = target.len().min(self.plain.len() - self.taken);
        target[..count].copy_from_slice(&self.plain[self.taken..self.taken + count]);
        self.taken += count;
        if self.taken == self.plain.len() {
            self.plain.clear();
            self.taken = 0;
        }
        count
    }

    /// One step of rustls' state machine. Plaintext goes to `target`, and what does not fit to `plain`.
    /// With `write`, its bytes are encrypted (or, when there are none, the session is closed) as soon as
    /// that is possible, and the flag is set.
    ///
    /// Returns the bytes put into `target`, and what is needed if this step could do nothing more.
    fn step(
        &mut self,
        target: &mut [u8],
        write: Option<(&[u8], &mut bool)>,
    ) -> io::Result<(usize, Option<Need>)> {
        if let Some(cause) = &self.failed {
            return Err(invalid(cause.clone()));
        }
        let Layer::Rustls(side) = &mut self.layer else { return self.open_one(target) };
        let unseen = unprocessed(&mut self.incoming, self.start + self.shown..self.end);
        // A part of a record has no consequences but that it is refused early.
        let next = first_record(unseen).filter(|_| self.gives_keys && !side.keeps_records());
        let visible = next.map_or(self.end, |_| self.start + self.shown);
        let incoming = unprocessed(&mut self.incoming, self.start..visible);
        let outgoing = &mut Outgoing { buf: &mut self.outgoing, filled: &mut self.filled };
        let plain = &mut self.plain;
        let (discard, outcome) = match side {
            Side::Client(conn) => {
                let UnbufferedStatus { discard, state, .. } = conn.process_tls_records(incoming);
                (discard, client_or_server(state, target, plain, outgoing, write))
            }
            Side::Server(conn) => {
                let UnbufferedStatus { discard, state, .. } = conn.process_tls_records(incoming);
                (discard, client_or_server(state, target, plain, outgoing, write))
            }
        };
        let (more_discard, copied, need) = match outcome {
            Ok(outcome) => outcome,
            Err(cause) => {
                // rustls queues the alert that tells the peer why; it is sent if the caller flushes.
                self.start += discard;
                self.shown = self.shown.saturating_sub(discard);
                self.queue_alert();
                self.failed =
                    cause.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()).cloned();
                return Err(cause);
            }
        };
        self.start += discard + more_discard;
        self.shown = self.shown.saturating_sub(discard + more_discard);
        if let (Some(next), Some(Need::Input | Need::Nothing), true) = (next, need, side.is_handshaking()) {
            self.shown += next;
            return Ok((copied, None));
        }
        if need == Some(Need::PeerClosed) {
            self.peer_closed = true;
        }
        let need = need.map(|need| if self.peer_closed { Need::PeerClosed } else { need });
        Ok((copied, need))
    }

    /// After a failed step: fetches the alert that rustls has queued for the peer.
    ///
    /// rustls remembers how far into the unprocessed bytes it has looked, so it must see them again.
    fn queue_alert(&mut self) {
        let Layer::Rustls(side) = &mut self.layer else { return };
        let incoming = unprocessed(&mut self.incoming, self.start..self.end);
        let outgoing = &mut Outgoing { buf: &mut self.outgoing, filled: &mut self.filled };
        match side {
            Side::Client(conn) => {
                if let Ok(ConnectionState::EncodeTlsData(mut data)) = conn.process_tls_records(incoming).state
                {
                    let _ = outgoing
                        .put(|room| data.encode(room).map_or_else(encode_room, |n| Ok(Put::Written(n))));
                }
            }
            Side::Server(conn) => {
                if let Ok(ConnectionState::EncodeTlsData(mut data)) = conn.process_tls_records(incoming).state
                {
                    let _ = outgoing
                        .put(|room| data.encode(room).map_or_else(encode_room, |n| Ok(Put::Written(n))));
                }
            }
        }
    }
}

/// The ciphertext that waits; none where there is no buffer for it.
fn unprocessed(incoming: &mut Option<ReusedBuf>, waiting: Range<usize>) -> &mut [u8] {
    match incoming {
        Some(incoming) => &mut incoming[waiting],
        None => &mut [],
    }
}

/// The buffer of ciphertext to send; it grows when a flight of the handshake is larger than it.
struct Outgoing<'a> {
    buf: &'a mut Option<AlignedBuf>,
    filled: &'a mut usize,
}

impl Outgoing<'_> {
    /// Room for `bytes` behind what waits.
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        let buf = self.buf.get_or_insert_with(|| AlignedBuf::new(ENCRYPT_BYTES + 16 * 1024));
        if buf.len() - *self.filled < bytes {
            let mut larger = AlignedBuf::new((*self.filled + bytes).next_multiple_of(16 * 1024));
            larger[..*self.filled].copy_from_slice(&buf[..*self.filled]);
            *buf = larger;
        }
        &mut buf[*self.filled..]
    }

    /// Appends what `encode` writes; gives it more room once when it asks for it.
    fn put(&mut self, mut encode: impl FnMut(&mut [u8]) -> io::Result<Put>) -> io::Result<()> {
        let required = match encode(self.room(0))? {
            Put::Written(count) => {
                *self.filled += count;
                return Ok(());
            }
            Put::Needs(required) => required,
        };
        match encode(self.room(required))? {
            Put::Written(count) => {
                *self.filled += count;
                Ok(())
            }
            Put::Needs(_) => Err(io::Error::other("TLS record larger than announced")),
        }
    }
}

enum Put {
    Written(usize),
    Needs(usize),
}

type Outcome = io::Result<(usize, usize, Option<Need>)>;

/// Acts on a state of the machine; the two sides differ only in a type parameter.
fn client_or_server<Data: SideData>(
    state: Result<ConnectionState<'_, '_, Data>, rustls::Error>,
    target: &mut [u8],
    plain: &mut Vec<u8>,
    outgoing: &mut Outgoing<'_>,
    write: Option<(&[u8], &mut bool)>,
) -> Outcome {
    let state = state.map_err(invalid)?;
    match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            let (mut discard, mut copied) = (0, 0);
            while let Some(record) = traffic.next_record() {
                let record = record.map_err(invalid)?;
                discard += record.discard;
                let fits = record.payload.len().min(target.len() - copied);
                // Order is kept: once something waits in `plain`, everything after it goes there.
                let fits = if plain.is_empty() { fits } else { 0 };
                target[copied..copied + fits].copy_from_slice(&record.payload[..fits]);
                plain.extend_from_slice(&record.payload[fits..]);
                copied += fits;
            }
            Ok((discard, copied, None))
        }
        ConnectionState::EncodeTlsData(mut data) => {
            outgoing.put(|room| data.encode(room).map_or_else(encode_room, |n| Ok(Put::Written(n))))?;
            Ok((0, 0, None))
        }
        // What was encoded waits in `outgoing`; the stream sends it before it reads or writes again.
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok((0, 0, None))
        }
        ConnectionState::BlockedHandshake => Ok((0, 0, Some(Need::Input))),
        ConnectionState::WriteTraffic(mut traffic) => {
            if let Some((bytes, written)) = write {
                if bytes.is_empty() {
                    outgoing.put(|room| {
                        traffic.queue_close_notify(room).map_or_else(encrypt_room, |n| Ok(Put::Written(n)))
                    })?;
                } else {
                    outgoing.put(|room| {
                        traffic.encrypt(bytes, room).map_or_else(encrypt_room, |n| Ok(Put::Written(n)))
                    })?;
                }
                *written = true;
            }
            Ok((0, 0, Some(Need::Nothing)))
        }
        ConnectionState::PeerClosed => Ok((0, 0, Some(Need::PeerClosed))),
        ConnectionState::Closed => Ok((0, 0, Some(Need::PeerClosed))),
        // Early data is not enabled: a replayed PUT would not be harmless.
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "unexpected TLS state")),
    }
}

/// The two type parameters that rustls has for a connection's side.
trait SideData {}
impl SideData for ClientConnectionData {}
impl SideData for ServerConnectionData {}

fn invalid(cause: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, cause)
}

fn encode_room(cause: EncodeError) -> io::Result<Put> {
    match cause {
        EncodeError::InsufficientSize(InsufficientSizeError { required_size }) => {
            Ok(Put::Needs(required_size))
        }
        other => Err(io::Error::other(other)),
    }
}

fn encrypt_room(cause: EncryptError) -> io::Result<Put> {
    match cause {
        EncryptError::InsufficientSize(InsufficientSizeError { required_size }) => {
            Ok(Put::Needs(required_size + RECORD_OVERHEAD))
        }
        other => Err(io::Error::other(other)),
    }
}

#[cfg(test)]
#[cfg(feature = "own-records")]
mod tests;
