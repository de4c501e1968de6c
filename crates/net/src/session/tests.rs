use super::*;
use crate::tls;
use rustls_pki_types::ServerName;

/// Moves what `from` has to send to `to`.
fn carry(from: &mut Session, to: &mut Session) {
    while !from.output().is_empty() {
        let count = from.output().len().min(1000);
        let piece = from.output()[..count].to_vec();
        to.input()[..count].copy_from_slice(&piece);
        to.received(count);
        from.transmitted(count);
    }
}

fn pair() -> (Session, Session) {
    pair_of(true, true)
}

/// A client and a server, whose records are ours where it says so.
fn pair_of(client_is_ours: bool, server_is_ours: bool) -> (Session, Session) {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = tls::self_signed(dir.path(), &["localhost".to_owned()]).unwrap();
    let config = tls::server_config(&cert, &key, false).unwrap();
    let server = Session::new(
        Side::Server(Box::new(UnbufferedServerConnection::new(config).unwrap())),
        server_is_ours,
    );
    let trust = tls::Trust { ca_files: vec![cert], ..tls::Trust::default() };
    let name = ServerName::try_from("localhost").unwrap();
    let config = tls::client_config(&trust).unwrap();
    let conn = UnbufferedClientConnection::new(config, name).unwrap();
    let client = Session::new(Side::Client(Box::new(conn)), client_is_ours);
    (client, server)
}

#[test]
fn a_session_that_waits_holds_no_buffer() {
    let (mut client, mut server) = pair();
    assert!(client.incoming.is_none() && client.outgoing.is_none(), "not before they are needed");
    while (client.handshake().unwrap(), server.handshake().unwrap()) != (Need::Nothing, Need::Nothing) {
        carry(&mut client, &mut server);
        carry(&mut server, &mut client);
    }
    carry(&mut server, &mut client);
    let mut target = [0; 100];
    for round in 0..3 {
        let text = format!("request {round}");
        assert_eq!(client.write(text.as_bytes()).unwrap(), text.len());
        client.release();
        assert!(client.outgoing.is_some(), "what waits to be sent stays");
        carry(&mut client, &mut server);
        server.release();
        assert!(server.incoming.is_some(), "what was received stays");
        let (count, _) = server.read(&mut target).unwrap();
        assert_eq!(&target[..count], text.as_bytes());
        assert_eq!(server.read(&mut target).unwrap(), (0, Need::Input));
        server.release();
        client.release();
        assert!(server.incoming.is_none() && server.outgoing.is_none() && !server.has_input());
        assert!(client.outgoing.is_none());
    }
}

/// The same, with the handshake behind them.
fn met(client_is_ours: bool, server_is_ours: bool) -> (Session, Session) {
    let (mut client, mut server) = pair_of(client_is_ours, server_is_ours);
    while (client.handshake().unwrap(), server.handshake().unwrap()) != (Need::Nothing, Need::Nothing) {
        carry(&mut client, &mut server);
        carry(&mut server, &mut client);
    }
    carry(&mut server, &mut client);
    client.handshake().unwrap();
    assert_eq!(matches!(client.layer, Layer::Ours(_)), client_is_ours);
    assert_eq!(matches!(server.layer, Layer::Ours(_)), server_is_ours);
    (client, server)
}

fn records(session: &mut Session) -> &mut Records {
    match &mut session.layer {
        Layer::Ours(records) => records,
        _ => panic!("the records are not ours"),
    }
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end
    }
}

/// What `session` reads when `wire` comes in pieces, by whichever way a stream takes; and how it ended.
fn read_pieces(session: &mut Session, wire: &[u8], dice: &mut Dice) -> (Vec<u8>, io::Result<Need>) {
    let mut target = AlignedBuf::new(IO_BYTES);
    let (mut plain, mut at) = (Vec::new(), 0);
    loop {
        let room = [1, 100, 20_000, IO_BYTES][dice.below(4)];
        let target = &mut target[..room];
        let (count, need) = match session.read(target) {
            Ok(outcome) => outcome,
            Err(cause) => return (plain, Err(cause)),
        };
        plain.extend_from_slice(&target[..count]);
        if need == Need::PeerClosed || need == Need::Input && at == wire.len() {
            return (plain, Ok(need));
        }
        if need != Need::Input || count > 0 {
            continue;
        }
        let most = [1, 7, 3000, 16_406, 200_000][dice.below(5)];
        let direct = session.room_in(target);
        let place = match direct.clone() {
            Some(room) => &mut target[room],
            None => session.input(),
        };
        let some = most.min(place.len()).min(wire.len() - at);
        place[..some].copy_from_slice(&wire[at..at + some]);
        at += some;
        match direct {
            None => session.received(some),
            Some(room) => match session.received_in(target, room.start, some) {
                Ok((count, _)) => plain.extend_from_slice(&target[..count]),
                Err(cause) => return (plain, Err(cause)),
            },
        }
    }
}

/// The ciphertext of `plain` in records of many lengths, and of the end behind it.
fn sealed(session: &mut Session, plain: &[u8], dice: &mut Dice) -> Vec<u8> {
    let (mut wire, mut at) = (Vec::new(), 0);
    while at < plain.len() {
        let most = [1, 16, 5000, 16_384, ENCRYPT_BYTES][dice.below(5)];
        let taken = session.write(&plain[at..(at + most).min(plain.len())]).unwrap();
        at += taken;
        wire.extend_from_slice(session.output());
        session.transmitted(session.output().len());
    }
    session.close().unwrap();
    wire.extend_from_slice(session.output());
    session.transmitted(session.output().len());
    wire
}

fn noise(len: usize) -> Vec<u8> {
    let mut dice = Dice(5);
    (0..len).map(|_| dice.below(256) as u8).collect()
}

#[test]
fn bytes_arrive_however_they_are_cut_and_whoever_makes_the_records() {
    let plain = noise(1_500_000);
    for (round, (ours, theirs)) in
        [(true, true), (true, false), (false, true), (true, true), (true, false)].into_iter().enumerate()
    {
        let mut dice = Dice(round as u64);
        let (mut client, mut server) = met(ours, theirs);
        let wire = sealed(&mut server, &plain, &mut dice);
        let (came, end) = read_pieces(&mut client, &wire, &mut dice);
        assert!(came == plain, "{round}: {} of {} bytes", came.len(), plain.len());
        assert_eq!(end.unwrap(), Need::PeerClosed);
        // The other direction is still open.
        let wire = sealed(&mut client, &plain[..300_000], &mut dice);
        let (came, end) = read_pieces(&mut server, &wire, &mut dice);
        assert!(came == plain[..300_000] && end.unwrap() == Need::PeerClosed, "{round}");
    }
}

#[test]
fn keys_are_replaced_when_they_are_used_up_and_when_the_peer_asks() {
    let plain = noise(400_000);
    for theirs in [true, false] {
        let mut dice = Dice(9);
        let (mut client, mut server) = met(true, theirs);
        records(&mut client).sealed_max = 3;
        let wire = sealed(&mut client, &plain, &mut dice);
        assert!(read_pieces(&mut server, &wire, &mut dice).0 == plain, "rustls follows too");
    }
    let (mut client, mut server) = met(true, false);
    let Layer::Rustls(Side::Server(conn)) = &mut server.layer else { panic!("not rustls") };
    let ConnectionState::WriteTraffic(traffic) = conn.process_tls_records(&mut []).state.unwrap() else {
        panic!("the handshake is not over")
    };
    traffic.refresh_traffic_keys().unwrap();
    assert_eq!(server.write(b"with new keys").unwrap(), 13);
    carry(&mut server, &mut client);
    let mut target = [0; 100];
    assert_eq!(client.read(&mut target).unwrap().0, 13);
    assert!(!client.output().is_empty(), "it was asked for new keys, too");
    assert_eq!(client.write(b"with ours").unwrap(), 9);
    carry(&mut client, &mut server);
    assert_eq!(server.read(&mut target).unwrap().0, 9);
}

#[test]
fn what_is_not_genuine_is_told_behind_what_is() {
    let (mut client, mut server) = met(true, false);
    let mut wire = Vec::new();
    for part in [&b"good"[..], b"bad"] {
        server.write(part).unwrap();
        wire.extend_from_slice(server.output());
        server.transmitted(server.output().len());
    }
    *wire.last_mut().unwrap() ^= 1;
    let mut target = AlignedBuf::new(IO_BYTES);
    let room = client.room_in(&target).unwrap();
    target[room.start..room.start + wire.len()].copy_from_slice(&wire);
    assert_eq!(client.received_in(&mut target, room.start, wire.len()).unwrap().0, 4);
    assert_eq!(&target[..4], b"good");
    for _ in 0..2 {
        let cause = client.read(&mut target).unwrap_err();
        assert!(cause.to_string().contains("decrypt"), "{cause}");
    }
    carry(&mut client, &mut server);
    let cause = server.read(&mut [0; 10]).unwrap_err();
    assert!(cause.to_string().contains("BadRecordMac"), "{cause}");
}

#[test]
fn what_can_be_no_record_is_refused_before_it_is_there() {
    for (wire, words) in [
        (&[22, 3, 3, 0, 20][..], "content type"),
        (&[23, 3, 3, 0x41, 1], "record size"),
        (&[23, 3, 3, 0, 0], "decrypt"),
        (&[23, 3, 3, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "decrypt"),
    ] {
        let (mut client, _) = met(true, true);
        client.input()[..wire.len()].copy_from_slice(wire);
        client.received(wire.len());
        let cause = client.read(&mut [0; 10]).unwrap_err();
        let cause = format!("{cause} {cause:?}").to_lowercase().replace("contenttype", "content type");
        assert!(cause.contains(words), "{cause}");
    }
}

#[test]
fn notes_about_tls_are_bounded_and_none_may_come_inside_of_another() {
    const ALERT: u8 = 21;
    const HANDSHAKE: u8 = 22;
    let many_empty: Vec<(u8, &[u8])> = vec![(23, &b""[..]); 40];
    for (notes, is_refused) in [
        (many_empty[..20].to_vec(), false),
        (many_empty, true),
        // The rest of a message that is never whole.
        (vec![(HANDSHAKE, &[4, 0, 0, 9, 1][..]), (23, b"x")], true),
        (vec![(HANDSHAKE, &[4, 1, 0, 1][..]), (HANDSHAKE, &[0; 9])], true),
        (vec![(HANDSHAKE, &[24, 0, 0, 1, 0, 24][..])], true),
        (vec![(HANDSHAKE, &[24, 0, 0, 1, 2][..])], true),
        (vec![(HANDSHAKE, &[13, 0, 0, 0][..])], true),
        (vec![(HANDSHAKE, &[][..])], true),
        (vec![(ALERT, &[1][..])], true),
        (vec![(ALERT, &[1, 90][..])], false),
        (vec![(99, &b"?"[..])], true),
    ] {
        let (mut client, mut server) = met(true, true);
        for (kind, said) in &notes {
            server.note(|records, room| records.seal_as(*kind, said, room));
        }
        carry(&mut server, &mut client);
        let outcome = client.read(&mut [0; 10]);
        assert_eq!(outcome.is_err(), is_refused, "{notes:?}: {outcome:?}");
        assert_eq!(!client.output().is_empty(), is_refused, "{notes:?}: the peer is told why");
    }
}

#[test]
fn a_message_may_be_cut_by_records() {
    let (mut client, mut server) = met(true, true);
    for part in [&[24][..], &[0, 0, 1], &[1]] {
        server.note(|records, room| records.seal_as(22, part, room));
    }
    carry(&mut server, &mut client);
    assert_eq!(client.read(&mut [0; 10]).unwrap(), (0, Need::Input));
    assert!(!client.output().is_empty(), "it was asked for new keys, too");
}
