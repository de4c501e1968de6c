//! Records of TLS 1.3, opened and sealed by the code of `gridlane-net` and by rustls alone: both have to come to the same.
//!
//! An input is a script for a peer that has the keys and may do with them what it likes. It is played twice, to a
//! session of each kind, with other keys and cut into other pieces: the plaintexts have to be equal, and the connection
//! has to end in the same way, but where one of the two is known to be stricter.

use std::sync::{Arc, LazyLock};

use gridlane_net::session::{Need, Session};
use gridlane_net::tls::{self, RecordLayer, Trust};
use ring::aead::{self, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use rustls::{ClientConfig, ConnectionTrafficSecrets, Error, PeerMisbehaved, ServerConfig};

use crate::random::Random;

const HEADER_BYTES: usize = 5;
const TAG_BYTES: usize = 16;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
const KEY_UPDATE: u8 = 24;
/// Longer than any record: what waits for the rest of one gets it.
const TAIL_BYTES: usize = 20_000;

/// Settings of both sides, by the code of the records.
struct Settings {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

static OWN: LazyLock<Settings> = LazyLock::new(|| settings(RecordLayer::Own));
static ALONE: LazyLock<Settings> = LazyLock::new(|| settings(RecordLayer::Rustls));

/// The script's peer: rustls shakes hands and gives its keys away.
static PEER: LazyLock<Settings> = LazyLock::new(|| {
    let Settings { client, server } = settings(RecordLayer::Rustls);
    let (mut client, mut server) = ((*client).clone(), (*server).clone());
    client.enable_secret_extraction = true;
    server.enable_secret_extraction = true;
    Settings { client: Arc::new(client), server: Arc::new(server) }
});

fn settings(records: RecordLayer) -> Settings {
    let dir = std::env::temp_dir().join(format!("gridlane-fuzz-{}-{records}", std::process::id()));
    let made = tls::self_signed(&dir, &["localhost".to_owned()]);
    let server = made.and_then(|(cert, key)| tls::server_config_with(&cert, &key, false, records));
    let _ = std::fs::remove_dir_all(&dir);
    let client = tls::client_config(&Trust { insecure: true, records, ..Trust::default() });
    match (client, server) {
        (Ok(client), Ok(server)) => Settings { client, server },
        (client, server) => panic!("no settings: {:?} {:?}", client.err(), server.err()),
    }
}

/// A script: one byte says which side is tried, then steps, each a letter and its arguments.
pub(crate) fn tls_records(data: &[u8]) {
    let (is_client, script) = match data.split_first() {
        Some((first, script)) => (first % 2 == 0, script),
        None => (true, data),
    };
    let mut random = Random::of(data);
    let ours = play(&OWN, is_client, script, random.bits());
    let theirs = play(&ALONE, is_client, script, random.bits());
    let (is_ours, is_theirs) = (is_ours_stricter(&ours), is_theirs_stricter(&theirs));
    if !is_ours && !is_theirs {
        assert_eq!(ours.end.is_closed(), theirs.end.is_closed(), "{:?} and {:?}", ours.end, theirs.end);
        assert!(ours.read == theirs.read, "{} and {} bytes are read", ours.read.len(), theirs.read.len());
        // Either may refuse a record by its front before the other does, and send less then.
        let is_front = ours.sent.starts_with(&theirs.sent) || theirs.sent.starts_with(&ours.sent);
        let is_same = ours.sent == theirs.sent || is_front && !ours.end.is_closed();
        assert!(is_same, "{} and {} bytes sent", ours.sent.len(), theirs.sent.len());
    } else {
        let is_front = (is_ours && theirs.read.starts_with(&ours.read))
            || (is_theirs && ours.read.starts_with(&theirs.read));
        assert!(is_front, "{:?} and {:?}: other bytes are read", ours.end, theirs.end);
    }
}

/// Ours refuses other types and versions in the header of a record (RFC 8446, 5.2), where rustls decrypts as if the usual
/// ones stood there; empty handshake records (5.4); and more than 32 records without data one behind the other.
fn is_ours_stricter(ours: &Played) -> bool {
    match &ours.end {
        End::Failed(Error::PeerMisbehaved(PeerMisbehaved::TooManyEmptyFragments)) => true,
        End::Failed(_) => ours.is_stricter,
        End::Closed => false,
    }
}

/// rustls refuses the fifth cancellation, and the 33rd update of keys between data.
fn is_theirs_stricter(theirs: &Played) -> bool {
    use PeerMisbehaved::{TooManyKeyUpdateRequests, TooManyWarningAlertsReceived};
    matches!(
        &theirs.end,
        End::Failed(Error::PeerMisbehaved(TooManyWarningAlertsReceived | TooManyKeyUpdateRequests))
    )
}

#[derive(Debug)]
enum End {
    /// The peer has said that it will send no more.
    Closed,
    Failed(Error),
}

impl End {
    fn is_closed(&self) -> bool {
        matches!(self, End::Closed)
    }
}

/// The outcome of a script.
struct Played {
    read: Vec<u8>,
    sent: Vec<u8>,
    end: End,
    /// The script did a thing that ours has to refuse and rustls does not.
    is_stricter: bool,
}

/// A session that is tried, with its peer.
struct Play {
    session: Session,
    peer: Peer,
    random: Random,
    /// Records that the peer has made and not sent yet.
    records: Vec<Vec<u8>>,
    /// Bytes of the record whose header came last that are still to come, and what has come of the next header.
    rest: usize,
    header: Vec<u8>,
    played: Played,
    is_over: bool,
    /// The peer has done a thing that may be refused.
    is_odd: bool,
    /// The session has ended its direction. Then the peer does nothing odd any more: where rustls would have to refuse it,
    /// it asserts in debug builds that it has not sent the last word yet.
    is_closed_here: bool,
    updates_left: usize,
}

fn play(settings: &Settings, is_client: bool, script: &[u8], seed: u64) -> Played {
    let (session, peer) = meet(settings, is_client);
    let end = End::Failed(Error::HandshakeNotComplete);
    let played = Played { read: Vec::new(), sent: Vec::new(), end, is_stricter: false };
    let mut play = Play {
        session,
        peer,
        random: Random::new(seed),
        records: Vec::new(),
        rest: 0,
        header: Vec::new(),
        played,
        is_over: false,
        is_odd: false,
        is_closed_here: false,
        updates_left: usize::MAX,
    };
    play.steps(script);
    play.deliver();
    match play.is_closed_here {
        true => {
            play.inner(ALERT, &[1, 0], 0);
            play.deliver();
        }
        // Both refuse this.
        false => play.deliver_wire(&[0xff; TAIL_BYTES]),
    }
    assert!(play.is_over, "garbage is taken for records");
    play.played
}

impl Play {
    fn steps(&mut self, script: &[u8]) {
        let mut rest = script.iter().copied();
        while let Some(step) = rest.next() {
            let mut next = || usize::from(rest.next().unwrap_or_default());
            match step {
                b'd' | b'u' | b'W' | b'f' | b'C' => {}
                _ if self.is_closed_here => continue,
                _ => self.is_odd = true,
            }
            match step {
                // Data of some length, then with padding, then at the limits.
                b'd' => {
                    let len = (next() << 8 | next()) % 16_385;
                    self.inner(DATA, &noise(len.max(usize::from(self.is_closed_here))), 0);
                }
                b'p' => {
                    let (len, zeros) = (next(), next() * 65);
                    self.inner(DATA, &noise(len), zeros);
                }
                b'o' => {
                    let (over, zeros) = (next() % 8, next() % 3);
                    self.inner(DATA, &noise(16_380 + over), zeros);
                }
                // Anything inside; zeros alone.
                b'i' => {
                    let (kind, len, zeros) = (next() as u8, next(), next());
                    self.inner(kind, &noise(len), zeros);
                }
                b'n' => {
                    let zeros = vec![0; next()];
                    self.sealed(&zeros);
                }
                // Updates of keys, with a change of keys and without.
                b'u' => {
                    let requested = next() as u8;
                    let left = self.updates_left.checked_sub(1);
                    if self.is_closed_here && (requested > 1 || left.is_none()) {
                        continue;
                    }
                    self.updates_left = left.unwrap_or_default();
                    self.is_odd |= requested > 1;
                    self.inner(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, requested], 0);
                    self.peer.update_sealer();
                }
                b'U' => {
                    let requested = next() as u8;
                    self.inner(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, requested], 0);
                }
                b'k' => self.peer.update_sealer(),
                // Messages, alerts and garbage as the script has them.
                b'h' => {
                    let said: Vec<u8> = (0..next() % 32).map(|_| next() as u8).collect();
                    self.inner(HANDSHAKE, &said, 0);
                }
                b'a' => {
                    let said = [next() as u8, next() as u8];
                    self.inner(ALERT, &said, 0);
                }
                b'A' => {
                    let said: Vec<u8> = (0..next() % 8).map(|_| next() as u8).collect();
                    self.inner(ALERT, &said, 0);
                }
                b'g' => {
                    let bytes = (0..next() % 64).map(|_| next() as u8).collect();
                    self.records.push(bytes);
                }
                // Damage to what is not sent yet.
                b'x' => {
                    let (at, bit) = (next() << 8 | next(), next() % 8);
                    if let Some(last) = self.records.last_mut().filter(|last| !last.is_empty()) {
                        let at = at % last.len();
                        last[at] ^= 1 << bit;
                    }
                }
                b't' => {
                    let less = next();
                    if let Some(last) = self.records.last_mut().filter(|_| less > 0) {
                        last.truncate(last.len().saturating_sub(less));
                        // The next record's front must not happen to be what is missing here.
                        if let Some(byte) = last.get_mut(HEADER_BYTES) {
                            *byte ^= 1;
                        }
                    }
                }
                b'r' => self.records.extend(self.records.last().cloned()),
                b'w' => {
                    let len = self.records.len();
                    if len >= 2 {
                        self.records.swap(len - 1, len - 2);
                    }
                }
                // The session's own doing.
                b'W' => {
                    let len = next() << 8 | next();
                    self.write(&noise(len));
                }
                b'C' if self.is_odd || self.is_closed_here => {}
                b'C' => {
                    self.inner(DATA, b"x", 0);
                    self.deliver();
                    if self.is_over {
                        continue;
                    }
                    (self.is_closed_here, self.updates_left) = (true, 8);
                    let _ = self.session.close();
                    self.take_output();
                }
                b'f' => self.deliver(),
                _ => {}
            }
        }
    }

    fn inner(&mut self, kind: u8, content: &[u8], zeros: usize) {
        // The last byte that is no zero says what a record is.
        let inner = [content, &[kind], &vec![0; zeros]].concat();
        self.sealed(&inner);
    }

    fn sealed(&mut self, inner: &[u8]) {
        let record = self.peer.sealer.seal(inner);
        self.records.push(record);
        let at = inner.iter().rposition(|byte| *byte != 0);
        self.played.is_stricter |= at == Some(0) && inner[0] == HANDSHAKE;
    }

    fn write(&mut self, bytes: &[u8]) {
        self.deliver();
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.session.write(rest) {
                Ok(taken) => rest = &rest[taken..],
                Err(_) => {
                    assert!(self.is_over || self.is_closed_here, "nothing can be written");
                    return;
                }
            }
            self.take_output();
        }
    }

    /// Gives the session what the peer has sent, in pieces.
    fn deliver(&mut self) {
        let wire = self.records.drain(..).collect::<Vec<_>>().concat();
        self.look_at_headers(&wire);
        self.deliver_wire(&wire);
    }

    fn deliver_wire(&mut self, wire: &[u8]) {
        let mut at = 0;
        let mut target = vec![0; 70_000];
        while !self.is_over {
            let room = *self.random.pick(&[1, 100, 20_000, 70_000]);
            let target = &mut target[..room];
            let outcome = self.session.read(target);
            self.take_output();
            let (count, need) = match outcome {
                Ok(outcome) => outcome,
                Err(cause) => return self.fail(&cause),
            };
            self.played.read.extend_from_slice(&target[..count]);
            match need {
                Need::PeerClosed => {
                    self.played.end = End::Closed;
                    self.is_over = true;
                }
                Need::Input if count == 0 && at == wire.len() => return,
                Need::Input if count == 0 => {
                    if self.random.once_in(8) {
                        self.session.release();
                    }
                    let most = *self.random.pick(&[1, 7, 3000, 16_406, 100_000]);
                    let some = most.min(wire.len() - at);
                    let came = &wire[at..at + some];
                    at += match self.session.room_in(target) {
                        Some(room) => {
                            let some = came.len().min(room.len());
                            target[room.start..room.start + some].copy_from_slice(&came[..some]);
                            match self.session.received_in(target, room.start, some) {
                                Ok((count, _)) => self.played.read.extend_from_slice(&target[..count]),
                                Err(cause) => {
                                    self.take_output();
                                    return self.fail(&cause);
                                }
                            }
                            some
                        }
                        None => {
                            let room = self.session.input();
                            let some = came.len().min(room.len());
                            room[..some].copy_from_slice(&came[..some]);
                            self.session.received(some);
                            some
                        }
                    };
                }
                Need::Input | Need::Nothing => {}
            }
        }
    }

    fn fail(&mut self, cause: &std::io::Error) {
        let error = cause.get_ref().and_then(|cause| cause.downcast_ref::<Error>()).cloned();
        let Some(error) = error else { panic!("no error of TLS: {cause}") };
        self.played.end = End::Failed(error);
        self.is_over = true;
        let again = self.session.read(&mut [0; 10]);
        assert!(again.is_err(), "an error does not last");
        assert!(self.session.write(b"x").is_err(), "nothing may be written behind an error");
    }

    /// Notes headers of records that are not like all others: see [`is_ours_stricter`].
    fn look_at_headers(&mut self, wire: &[u8]) {
        let mut wire = wire;
        while !wire.is_empty() {
            let skipped = wire.len().min(self.rest);
            (self.rest, wire) = (self.rest - skipped, &wire[skipped..]);
            let more = wire.len().min(HEADER_BYTES - self.header.len());
            self.header.extend_from_slice(&wire[..more]);
            wire = &wire[more..];
            if let [kind, major, minor, high, low] = self.header[..] {
                self.played.is_stricter |= [kind, major, minor] != [DATA, 3, 3];
                self.rest = usize::from(u16::from_be_bytes([high, low]));
                self.header.clear();
            }
        }
    }

    /// The peer takes what the session sends: all of it has to be genuine.
    fn take_output(&mut self) {
        let wire = self.session.output().to_vec();
        self.session.transmitted(wire.len());
        let mut rest = &wire[..];
        while !rest.is_empty() {
            let (kind, content, behind) = self.peer.opener.open(rest);
            match kind {
                DATA => self.played.sent.extend(content),
                HANDSHAKE if content == [KEY_UPDATE, 0, 0, 1, 0] => self.peer.update_opener(),
                ALERT => assert!(behind.is_empty() && content.len() == 2, "an alert is not the last word"),
                _ => panic!("sent a record of kind {kind}: {content:?}"),
            }
            rest = behind;
        }
    }
}

fn noise(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + 1) as u8 | 1).collect()
}

/// The other side: it has the keys.
struct Peer {
    sealer: Half,
    opener: Half,
    keys: Keys,
}

enum Keys {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

impl Peer {
    fn update_sealer(&mut self) {
        let next = match &mut self.keys {
            Keys::Client(keys) => keys.update_tx_secret(),
            Keys::Server(keys) => keys.update_tx_secret(),
        };
        self.sealer = Half::new(next);
    }

    fn update_opener(&mut self) {
        let next = match &mut self.keys {
            Keys::Client(keys) => keys.update_rx_secret(),
            Keys::Server(keys) => keys.update_rx_secret(),
        };
        self.opener = Half::new(next);
    }
}

/// One direction (RFC 8446, 5.2 and 5.3), written down a second time.
struct Half {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
}

impl Half {
    fn new(next: Result<(u64, ConnectionTrafficSecrets), Error>) -> Half {
        let Ok((sequence, ConnectionTrafficSecrets::Aes128Gcm { key, iv })) = next else {
            panic!("other keys than those that were agreed on")
        };
        let (key, iv) = (UnboundKey::new(&aead::AES_128_GCM, key.as_ref()), iv.as_ref().try_into());
        match (key, iv) {
            (Ok(key), Ok(iv)) => Half { key: LessSafeKey::new(key), iv, sequence },
            _ => panic!("a key of another length"),
        }
    }

    fn nonce(&mut self) -> Nonce {
        let number = u128::from(self.sequence).to_be_bytes();
        let mut nonce = self.iv;
        nonce.iter_mut().zip(&number[16 - NONCE_LEN..]).for_each(|(byte, other)| *byte ^= other);
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    fn seal(&mut self, inner: &[u8]) -> Vec<u8> {
        let nonce = self.nonce();
        let [high, low] = ((inner.len() + TAG_BYTES) as u16).to_be_bytes();
        let header = [DATA, 3, 3, high, low];
        let mut content = inner.to_vec();
        match self.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut content) {
            Ok(()) => [&header[..], &content].concat(),
            Err(cause) => panic!("{cause}"),
        }
    }

    /// The kind of the first record, its content, and what is behind it.
    fn open<'a>(&mut self, wire: &'a [u8]) -> (u8, Vec<u8>, &'a [u8]) {
        let Some((header, rest)) = wire.split_first_chunk::<HEADER_BYTES>() else { panic!("half a header") };
        let (content, behind) = rest.split_at(usize::from(u16::from_be_bytes([header[3], header[4]])));
        let (mut content, nonce) = (content.to_vec(), self.nonce());
        let Ok(inner) = self.key.open_in_place(nonce, Aad::from(*header), &mut content) else {
            panic!("sent a record that is not genuine: {header:?}")
        };
        let Some((kind, content)) = inner.split_last() else { panic!("sent a record of no kind") };
        assert!(content.len() <= 16_384, "sent a record that is too long");
        (*kind, content.to_vec(), behind)
    }
}

enum Connection {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// A session and its peer, with the handshake behind them.
fn meet(settings: &Settings, is_client: bool) -> (Session, Peer) {
    let Ok(name) = ServerName::try_from("localhost") else { panic!("a name") };
    let session = match is_client {
        true => Session::client(settings.client.clone(), name.clone()),
        false => Session::server(settings.server.clone()),
    };
    let connection = match is_client {
        true => UnbufferedServerConnection::new(PEER.server.clone()).map(Connection::Server),
        false => UnbufferedClientConnection::new(PEER.client.clone(), name).map(Connection::Client),
    };
    let (Ok(mut session), Ok(mut connection)) = (session, connection) else { panic!("no connection") };
    let (mut incoming, mut outgoing) = (Vec::new(), Vec::new());
    loop {
        let need = session.handshake();
        incoming.extend_from_slice(session.output());
        session.transmitted(session.output().len());
        let is_done = match &mut connection {
            Connection::Client(conn) => step(conn.process_tls_records(&mut incoming), &mut outgoing),
            Connection::Server(conn) => step(conn.process_tls_records(&mut incoming), &mut outgoing),
        };
        let (discard, is_done) = is_done;
        incoming.drain(..discard);
        session.input()[..outgoing.len()].copy_from_slice(&outgoing);
        session.received(outgoing.len());
        let is_quiet = outgoing.is_empty();
        outgoing.clear();
        if is_done && is_quiet && matches!(need, Ok(Need::Nothing)) && incoming.is_empty() {
            break;
        }
    }
    // Else rustls would be compared with itself.
    assert_eq!(session.has_own_records(), settings.client.enable_secret_extraction);
    let (secrets, keys) = match connection {
        Connection::Client(conn) => match conn.dangerous_into_kernel_connection() {
            Ok((secrets, keys)) => (secrets, Keys::Client(keys)),
            Err(cause) => panic!("{cause}"),
        },
        Connection::Server(conn) => match conn.dangerous_into_kernel_connection() {
            Ok((secrets, keys)) => (secrets, Keys::Server(keys)),
            Err(cause) => panic!("{cause}"),
        },
    };
    let (sealer, opener) = (Half::new(Ok(secrets.tx)), Half::new(Ok(secrets.rx)));
    (session, Peer { sealer, opener, keys })
}

/// One step of a handshake: how many bytes it took, and whether it is over.
fn step<Data>(status: UnbufferedStatus<'_, '_, Data>, outgoing: &mut Vec<u8>) -> (usize, bool) {
    let UnbufferedStatus { discard, state, .. } = status;
    match state {
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            let mut room = vec![0; 20_000];
            match data.encode(&mut room) {
                Ok(count) => outgoing.extend_from_slice(&room[..count]),
                Err(cause) => panic!("{cause}"),
            }
            (discard, false)
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            (discard, false)
        }
        Ok(ConnectionState::BlockedHandshake) => (discard, false),
        Ok(ConnectionState::WriteTraffic(_)) => (discard, true),
        Ok(other) => panic!("{other:?} in a handshake"),
        Err(cause) => panic!("{cause}"),
    }
}
