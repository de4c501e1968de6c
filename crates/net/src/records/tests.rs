//! The limits and rules of RFC 8446 at their edges: the last that is allowed, and the first that is not, with the alert
//! that section 6.2 names for it.

use std::io;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring as provider};
use rustls::{CipherSuite, ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};

use super::*;
use crate::session::{Need, Session};
use crate::tls;

/// RFC 8446, 5.5: so many full-size records may be sealed with one key of AES-GCM, 2^24.5.
const AES_GCM_RECORDS_MAX: u64 = 23_726_566;

const CIPHERS: [CipherSuite; 3] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
];

/// Moves all that `from` has to send to `to`, as much at once as there is room.
fn carry(from: &mut Session, to: &mut Session) {
    while !from.output().is_empty() {
        let room = to.input();
        let count = room.len().min(from.output().len());
        room[..count].copy_from_slice(&from.output()[..count]);
        to.received(count);
        from.transmitted(count);
    }
}

/// A client and a server with the handshake behind them; the records of both are ours.
fn met_with(cipher: CipherSuite) -> (Session, Session) {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = tls::self_signed(dir.path(), &["localhost".to_owned()]).unwrap();
    let mut server = Session::server(tls::server_config(&cert, &key, false).unwrap()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&cert).unwrap()).unwrap();
    let mut only = CryptoProvider { ..provider::default_provider() };
    only.cipher_suites.retain(|suite| suite.suite() == cipher);
    let mut config = ClientConfig::builder_with_provider(Arc::new(only))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.enable_secret_extraction = true;
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = Session::client(Arc::new(config), name).unwrap();
    while (client.handshake().unwrap(), server.handshake().unwrap()) != (Need::Nothing, Need::Nothing) {
        carry(&mut client, &mut server);
        carry(&mut server, &mut client);
    }
    carry(&mut server, &mut client);
    // Tickets are behind them as well.
    assert_eq!(client.handshake().unwrap(), Need::Nothing);
    assert!(client.has_own_records() && server.has_own_records());
    (client, server)
}

fn met() -> (Session, Session) {
    met_with(CIPHERS[0])
}

/// A record whose TLSInnerPlaintext (RFC 8446, 5.2) is `inner`, whatever that is.
fn sealed_inner(from: &mut Session, inner: &[u8]) -> Vec<u8> {
    let half = &mut from.records().sealer;
    let nonce = half.nonce().unwrap();
    let [high, low] = u16::try_from(inner.len() + TAG_BYTES).unwrap().to_be_bytes();
    let header = [APPLICATION_DATA, 3, 3, high, low];
    let mut content = inner.to_vec();
    let tag = half.key.seal_in_place_separate_tag(nonce, Aad::from(header), &mut content).unwrap();
    [&header[..], &content, tag.as_ref()].concat()
}

/// A record of that content type with so many zeros behind it.
fn sealed(from: &mut Session, kind: u8, content: &[u8], zeros: usize) -> Vec<u8> {
    let inner = [content, &[kind], &vec![0; zeros]].concat();
    sealed_inner(from, &inner)
}

/// The plaintext that `wire` becomes, and how that ends.
fn read(at: &mut Session, wire: &[u8]) -> (Vec<u8>, io::Result<Need>) {
    let (mut plain, mut wire) = (Vec::new(), wire);
    let mut target = vec![0; 20_000];
    loop {
        let (count, need) = match at.read(&mut target) {
            Ok(outcome) => outcome,
            Err(cause) => return (plain, Err(cause)),
        };
        plain.extend_from_slice(&target[..count]);
        if need == Need::PeerClosed || need == Need::Input && wire.is_empty() {
            return (plain, Ok(need));
        }
        let room = at.input();
        let (here, behind) = wire.split_at(wire.len().min(room.len()));
        room[..here.len()].copy_from_slice(here);
        at.received(here.len());
        wire = behind;
    }
}

fn error_of(cause: &io::Error) -> Error {
    cause.get_ref().and_then(|cause| cause.downcast_ref::<Error>()).unwrap().clone()
}

/// The alert with which `at` refuses `wire`, as `from` reads it, and nothing else.
#[track_caller]
fn refused(at: &mut Session, from: &mut Session, wire: &[u8]) -> AlertDescription {
    let (_, outcome) = read(at, wire);
    assert!(outcome.is_err(), "{outcome:?}");
    let answer = at.output().to_vec();
    at.transmitted(answer.len());
    let (plain, told) = read(from, &answer);
    assert!(plain.is_empty());
    match error_of(&told.unwrap_err()) {
        Error::AlertReceived(alert) => alert,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn accepted(at: &mut Session, wire: &[u8]) -> usize {
    let (plain, outcome) = read(at, wire);
    assert_eq!(outcome.unwrap(), Need::Input);
    assert!(at.output().is_empty());
    plain.len()
}

/// RFC 8446, 5.1 and 5.4: content of at most 2^14 bytes, a TLSInnerPlaintext of at most 2^14 + 1.
#[test]
fn plaintext_ends_at_16_kib_with_padding_or_without() {
    const MAX: usize = 1 << 14;
    assert_eq!(TLS_RECORD_BYTES_MAX, MAX);
    for (content, zeros) in [(MAX, 0), (MAX - 1, 1), (0, MAX), (5, MAX - 5)] {
        let (mut client, mut server) = met();
        let wire = sealed(&mut server, APPLICATION_DATA, &vec![7; content], zeros);
        assert_eq!(accepted(&mut client, &wire), content);
    }
    for (content, zeros) in [(MAX + 1, 0), (MAX, 1), (0, MAX + 1), (5, MAX - 4)] {
        let (mut client, mut server) = met();
        let wire = sealed(&mut server, APPLICATION_DATA, &vec![7; content], zeros);
        assert_eq!(refused(&mut client, &mut server, &wire), AlertDescription::RecordOverflow);
    }
}

/// RFC 8446, 5.2: a ciphertext longer than 2^14 + 256 is refused, here by its header alone.
#[test]
fn ciphertext_ends_at_16_kib_and_256_bytes() {
    const MAX: usize = (1 << 14) + 256;
    let (mut client, mut server) = met();
    let [high, low] = ((MAX + 1) as u16).to_be_bytes();
    let header = [APPLICATION_DATA, 3, 3, high, low];
    assert_eq!(refused(&mut client, &mut server, &header), AlertDescription::RecordOverflow);
    // One that may be so long is waited for; then its plaintext is too long, if it is genuine.
    let (mut client, mut server) = met();
    let wire = sealed_inner(&mut server, &vec![APPLICATION_DATA; MAX - TAG_BYTES]);
    assert_eq!(wire.len(), HEADER_BYTES + MAX);
    assert_eq!(accepted(&mut client, &wire[..wire.len() - 1]), 0);
    assert_eq!(refused(&mut client, &mut server, &wire[wire.len() - 1..]), AlertDescription::RecordOverflow);
    let (mut client, mut server) = met();
    let wire = [&[APPLICATION_DATA, 3, 3][..], &(MAX as u16).to_be_bytes(), &vec![1; MAX]].concat();
    assert_eq!(refused(&mut client, &mut server, &wire), AlertDescription::BadRecordMac);
}

/// RFC 8446, 5.2: the smallest ciphertext that can be genuine is a content type and a tag.
#[test]
fn ciphertext_without_room_for_a_tag_is_not_genuine() {
    for len in [0, 1, TAG_BYTES - 1, TAG_BYTES] {
        let (mut client, mut server) = met();
        let wire = [&[APPLICATION_DATA, 3, 3, 0, len as u8][..], &vec![0; len]].concat();
        assert_eq!(refused(&mut client, &mut server, &wire), AlertDescription::BadRecordMac, "{len}");
    }
}

/// RFC 8446, 5.4: where there is no content type, the alert is `unexpected_message`.
#[test]
fn padding_alone_is_no_message() {
    for zeros in [0, 1, 100, (1 << 14) + 1] {
        let (mut client, mut server) = met();
        let wire = sealed_inner(&mut server, &vec![0; zeros]);
        assert_eq!(refused(&mut client, &mut server, &wire), AlertDescription::UnexpectedMessage, "{zeros}");
    }
}

/// RFC 8446, 5.1 and 5.4: application data may be empty, with padding or without, alerts and messages may not. So many as to
/// keep a reader busy for nothing are refused.
#[test]
fn empty_records_are_data_only_and_bounded() {
    for zeros in [0, 300] {
        let (mut client, mut server) = met();
        for _ in 0..3 {
            // Tickets count as well.
            let wire = sealed(&mut server, APPLICATION_DATA, b"x", zeros);
            assert_eq!(accepted(&mut client, &wire), 1);
            for _ in 0..IDLE_RECORDS_MAX {
                let wire = sealed(&mut server, APPLICATION_DATA, b"", zeros);
                assert_eq!(accepted(&mut client, &wire), 0);
            }
        }
        let wire = sealed(&mut server, APPLICATION_DATA, b"", zeros);
        assert_eq!(refused(&mut client, &mut server, &wire), AlertDescription::UnexpectedMessage);
        for kind in [HANDSHAKE, ALERT] {
            let (mut client, mut server) = met();
            let wire = sealed(&mut server, kind, b"", zeros);
            assert_eq!(refused(&mut client, &mut server, &wire), AlertDescription::UnexpectedMessage);
        }
    }
}

/// RFC 8446, 5 and 5.2: behind the handshake every record is `application_data` outside; inside there are three types, and
/// `change_cipher_spec` is none of them.
#[test]
fn content_types_are_three_inside_and_one_outside() {
    for kind in (1..=u8::MAX).filter(|kind| ![ALERT, HANDSHAKE, APPLICATION_DATA].contains(kind)) {
        let (mut client, mut server) = met();
        let wire = sealed(&mut server, kind, &[1], 0);
        assert_eq!(refused(&mut client, &mut server, &wire), AlertDescription::UnexpectedMessage, "{kind}");
    }
    for kind in (0..=u8::MAX).filter(|kind| *kind != APPLICATION_DATA).step_by(5).chain([ALERT, HANDSHAKE]) {
        let (mut client, mut server) = met();
        let mut wire = sealed(&mut server, APPLICATION_DATA, b"x", 0);
        wire[0] = kind;
        assert_eq!(refused(&mut client, &mut server, &wire), AlertDescription::UnexpectedMessage, "{kind}");
    }
}

/// RFC 8446, 5.3: the nonce is the number of the record, as 64 bits in network order with zeros in front, over the IV.
#[test]
fn nonces_are_the_sequence_number_over_the_iv() {
    let (mut client, _) = met();
    let half = &mut client.records().sealer;
    half.iv = [0xf0; NONCE_LEN];
    half.sequence = 0;
    assert_eq!(half.nonce().unwrap().as_ref(), &[0xf0; NONCE_LEN]);
    assert_eq!(half.nonce().unwrap().as_ref()[..], [&[0xf0; 11][..], &[0xf1]].concat());
    half.sequence = 0x0102_0304_0506_0708;
    let expected = [0xf0, 0xf0, 0xf0, 0xf0, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8];
    assert_eq!(half.nonce().unwrap().as_ref(), &expected);
    assert_eq!(half.sequence, 0x0102_0304_0506_0709);
}

/// RFC 8446, 5.3: sequence numbers begin at zero with each key, count records of every type, and never wrap.
#[test]
fn sequence_numbers_begin_anew_with_each_key_and_never_wrap() {
    let (mut client, mut server) = met();
    let begun = server.records().sealer.sequence;
    for count in 1..=3 {
        let wire = sealed(&mut server, APPLICATION_DATA, b"", 0);
        assert_eq!(accepted(&mut client, &wire), 0);
        assert_eq!(server.records().sealer.sequence, begun + count);
        assert_eq!(client.records().opener.sequence, begun + count);
    }
    let mut room = [0; 100];
    let count = server.records().seal_update(&mut room).unwrap();
    assert_eq!(accepted(&mut client, &room[..count]), 0);
    assert_eq!((server.records().sealer.sequence, client.records().opener.sequence), (0, 0));

    // Nothing can be sealed or opened with the last number: what comes behind it would begin at zero again.
    let (mut client, mut server) = met();
    client.records().opener.sequence = u64::MAX;
    server.records().sealer.sequence = u64::MAX - 1;
    assert!(server.records().sealer.seal(APPLICATION_DATA, b"x", &mut room).is_ok());
    assert!(server.records().sealer.seal(APPLICATION_DATA, b"x", &mut room).is_err());
    let wire = [&[APPLICATION_DATA, 3, 3, 0, 20][..], &[0; 20]].concat();
    let (_, outcome) = read(&mut client, &wire);
    assert!(outcome.is_err() && !client.output().is_empty());
}

/// RFC 8446, 5.5: a key is replaced before it has sealed 2^24.5 records of AES-GCM; with ChaCha20 the sequence number is
/// the bound. The change is announced with the old key, and the peer follows.
#[test]
fn keys_are_replaced_before_they_are_used_up() {
    for cipher in CIPHERS {
        let (mut client, mut server) = met_with(cipher);
        let most = server.records().sealed_max;
        match cipher {
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => assert_eq!(most, u64::MAX - 1),
            _ => assert!(most < AES_GCM_RECORDS_MAX, "{most}"),
        }
        for sequence in [most - 1, most] {
            server.records().sealer.sequence = sequence;
            client.records().opener.sequence = sequence;
            let updates = server.records().sealer.sequence >= most;
            let plain = vec![9; 3 * TLS_RECORD_BYTES_MAX];
            let mut room = vec![0; Records::sealed_bytes(plain.len(), RecordEnds::FULL)];
            let count = server.records().seal(&plain, RecordEnds::FULL, &mut room).unwrap();
            let update_bytes = OVERHEAD_BYTES + KEY_UPDATE_MESSAGE.len();
            assert_eq!(count, plain.len() + 3 * OVERHEAD_BYTES + update_bytes, "one update");
            assert_eq!(server.records().sealer.sequence, if updates { 3 } else { 2 });
            let (came, outcome) = read(&mut client, &room[..count]);
            assert!(came == plain && outcome.unwrap() == Need::Input, "{cipher:?} {sequence}");
        }
    }
}

fn update(requested: u8) -> [u8; 5] {
    [KEY_UPDATE, 0, 0, 1, requested]
}

/// RFC 8446, 4.6.3: a request is answered once, before further data; other values than 0 and 1 are `illegal_parameter`.
#[test]
fn key_updates_are_followed_and_requests_answered_once() {
    let (mut client, mut server) = met();
    for requested in [0, 1, 1, 0, 1] {
        let wire = sealed(&mut server, HANDSHAKE, &update(requested), 0);
        let new = server.records().keys.next(Direction::Out).unwrap();
        server.records().sealer = Half::new(new).unwrap();
        let (plain, outcome) = read(&mut client, &wire);
        assert!(plain.is_empty() && outcome.unwrap() == Need::Input);
    }
    assert_eq!(client.output().len(), OVERHEAD_BYTES + KEY_UPDATE_MESSAGE.len(), "one answer, not sent yet");
    client.transmitted(0);
    let answer = client.output().to_vec();
    client.transmitted(answer.len());
    client.write(b"behind it").unwrap();
    let wire = [&answer[..], client.output()].concat();
    // The second request came while the first answer was waiting: its answer is in front of the data.
    let (plain, outcome) = read(&mut server, &wire);
    assert!(plain == b"behind it" && outcome.unwrap() == Need::Input);
    assert!(server.output().is_empty(), "an answer asks for nothing");

    for (message, alert) in [
        (&update(2)[..], AlertDescription::IllegalParameter),
        (&update(255), AlertDescription::IllegalParameter),
        (&[KEY_UPDATE, 0, 0, 0], AlertDescription::DecodeError),
        (&[KEY_UPDATE, 0, 0, 2, 0, 0], AlertDescription::DecodeError),
        // RFC 8446, 5.1: messages do not span a change of keys.
        (&[KEY_UPDATE, 0, 0, 1, 0, KEY_UPDATE], AlertDescription::UnexpectedMessage),
        (&[KEY_UPDATE, 0, 0, 1, 0, KEY_UPDATE, 0, 0, 1, 0], AlertDescription::UnexpectedMessage),
    ] {
        let (mut client, mut server) = met();
        let wire = sealed(&mut server, HANDSHAKE, message, 0);
        assert_eq!(refused(&mut client, &mut server, &wire), alert, "{message:?}");
    }
}

/// RFC 8446, 4.6.3: what follows an update is sealed with the new key, and with no other.
#[test]
fn the_old_key_is_worth_nothing_behind_an_update() {
    let (mut client, mut server) = met();
    let wire = sealed(&mut server, HANDSHAKE, &update(0), 0);
    assert_eq!(accepted(&mut client, &wire), 0);
    let wire = sealed(&mut server, APPLICATION_DATA, b"x", 0);
    assert_eq!(refused(&mut client, &mut server, &wire), AlertDescription::BadRecordMac);
}

/// RFC 8446, 4.6 and 5.1: behind the handshake a server may send tickets, both may update keys; messages may be cut and
/// joined, but have nothing else between their parts. Their length is bounded by us.
#[test]
fn handshake_messages_are_few_whole_and_bounded() {
    const MAX: usize = TLS_HANDSHAKE_MESSAGE_BYTES_MAX;
    let length = |kind: u8, len: usize| [&[kind][..], &(len as u32).to_be_bytes()[1..]].concat();
    for (message, alert) in [
        (length(NEW_SESSION_TICKET, MAX + 1), AlertDescription::DecodeError),
        (length(KEY_UPDATE, MAX + 1), AlertDescription::DecodeError),
        (length(0, 0), AlertDescription::UnexpectedMessage),
        (length(1, 0), AlertDescription::UnexpectedMessage),
        (length(13, 0), AlertDescription::UnexpectedMessage),
        (length(20, 0), AlertDescription::UnexpectedMessage),
        (length(255, 0), AlertDescription::UnexpectedMessage),
    ] {
        let (mut client, mut server) = met();
        let wire = sealed(&mut server, HANDSHAKE, &message, 0);
        assert_eq!(refused(&mut client, &mut server, &wire), alert, "{message:?}");
    }
    // A ticket is for clients.
    let (mut client, mut server) = met();
    let wire = sealed(&mut client, HANDSHAKE, &length(NEW_SESSION_TICKET, 0), 0);
    assert_eq!(refused(&mut server, &mut client, &wire), AlertDescription::UnexpectedMessage);
    // The longest one is waited for.
    let (mut client, mut server) = met();
    let wire = sealed(&mut server, HANDSHAKE, &length(NEW_SESSION_TICKET, MAX), 0);
    assert_eq!(accepted(&mut client, &wire), 0);
    for kind in [APPLICATION_DATA, ALERT] {
        let (mut client, mut server) = met();
        let begun = sealed(&mut server, HANDSHAKE, &length(NEW_SESSION_TICKET, 9), 0);
        let wire = [begun, sealed(&mut server, kind, &[WARNING, 0], 0)].concat();
        assert_eq!(refused(&mut client, &mut server, &wire), AlertDescription::UnexpectedMessage);
    }
}

/// RFC 8446, 6.1: data behind `close_notify` is ignored, and the other direction goes on.
#[test]
fn data_behind_the_end_is_ignored() {
    let (mut client, mut server) = met();
    let before = sealed(&mut server, APPLICATION_DATA, b"before", 0);
    let end = sealed(&mut server, ALERT, &[WARNING, 0], 0);
    let behind = sealed(&mut server, APPLICATION_DATA, b"behind", 0);
    let (plain, outcome) = read(&mut client, &[before, end, behind].concat());
    assert!(plain == b"before" && outcome.unwrap() == Need::PeerClosed);
    let (plain, outcome) = read(&mut client, b"anything");
    assert!(plain.is_empty() && outcome.unwrap() == Need::PeerClosed);
    client.write(b"still here").unwrap();
    let wire = client.output().to_vec();
    assert_eq!(read(&mut server, &wire).0, b"still here");
}

/// RFC 8446, 6 and 6.2: an alert is one record of two bytes; whatever is neither an end nor a cancellation is an error at
/// any level, known or not, and is not answered.
#[test]
fn alerts_end_the_connection_at_any_level() {
    for level in [WARNING, FATAL] {
        for description in (1..=u8::MAX).filter(|description| (level, *description) != (WARNING, 90)) {
            let (mut client, mut server) = met();
            let wire = sealed(&mut server, ALERT, &[level, description], 0);
            let (_, outcome) = read(&mut client, &wire);
            assert_eq!(error_of(&outcome.unwrap_err()), Error::AlertReceived(description.into()));
            assert!(client.output().is_empty() && client.write(b"x").is_err());
        }
        let (mut client, mut server) = met();
        let wire = sealed(&mut server, ALERT, &[level, 0], 0);
        assert_eq!(read(&mut client, &wire).1.unwrap(), Need::PeerClosed);
    }
    for said in [&[0, 0][..], &[3, 0], &[FATAL], &[WARNING, 0, 0], &[WARNING, 0, WARNING, 0]] {
        let (mut client, mut server) = met();
        let wire = sealed(&mut server, ALERT, said, 0);
        let (_, outcome) = read(&mut client, &wire);
        assert!(outcome.is_err(), "{said:?}");
    }
    // The end follows a cancellation.
    let (mut client, mut server) = met();
    let cancelled = sealed(&mut server, ALERT, &[WARNING, 90], 0);
    assert_eq!(accepted(&mut client, &cancelled), 0);
    let wire = sealed(&mut server, ALERT, &[WARNING, 0], 0);
    assert_eq!(read(&mut client, &wire).1.unwrap(), Need::PeerClosed);
}

/// RFC 8446, 5.1: records that are sent have at most 2^14 bytes of content, at least one, and the version 3.3.
#[test]
fn records_that_are_sent_keep_to_the_same_limits() {
    for (len, ends) in [
        (TLS_RECORD_BYTES_MAX, RecordEnds::FULL),
        (TLS_RECORD_BYTES_MAX + 1, RecordEnds::FULL),
        (500, RecordEnds { first: 0, each: 0 }),
        (50_000, RecordEnds { first: usize::MAX, each: usize::MAX }),
        (50_000, RecordEnds { first: 1, each: 16_385 }),
    ] {
        let (mut client, mut server) = met();
        let plain = vec![5; len];
        let mut room = vec![0; Records::sealed_bytes(len, ends)];
        let count = server.records().seal(&plain, ends, &mut room).unwrap();
        let mut rest = &room[..count];
        while !rest.is_empty() {
            let (header, _) = rest.split_at(HEADER_BYTES);
            let bytes = usize::from(u16::from_be_bytes([header[3], header[4]]));
            assert_eq!(header[..3], [APPLICATION_DATA, 3, 3]);
            assert!((2 + TAG_BYTES..=TLS_RECORD_BYTES_MAX + 1 + TAG_BYTES).contains(&bytes), "{bytes}");
            rest = &rest[HEADER_BYTES + bytes..];
        }
        assert_eq!(read(&mut client, &room[..count]).0, plain);
    }
}
