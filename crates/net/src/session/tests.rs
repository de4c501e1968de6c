use super::*;
use crate::tls::{self, RecordLayer};
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

fn layer(is_ours: bool) -> RecordLayer {
    if is_ours { RecordLayer::Own } else { RecordLayer::Rustls }
}

/// A client and a server, whose records are ours where it says so.
fn pair_of(client_is_ours: bool, server_is_ours: bool) -> (Session, Session) {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = tls::self_signed(dir.path(), &["localhost".to_owned()]).unwrap();
    let config = tls::server_config_with(&cert, &key, false, layer(server_is_ours)).unwrap();
    let server = Session::server(config).unwrap();
    let records = layer(client_is_ours);
    let trust = tls::Trust { ca_files: vec![cert], records, ..tls::Trust::default() };
    let name = ServerName::try_from("localhost").unwrap();
    (Session::client(tls::client_config(&trust).unwrap(), name).unwrap(), server)
}

#[test]
fn a_session_that_waits_holds_no_buffer() {
    for is_ours in [true, false] {
        holds_no_buffer(pair_of(is_ours, is_ours));
    }
}

fn holds_no_buffer((mut client, mut server): (Session, Session)) {
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
    assert_eq!(client.has_own_records(), client_is_ours);
    assert_eq!(server.has_own_records(), server_is_ours);
    (client, server)
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end
    }
}

/// The bytes that `session` reads when `wire` comes in pieces, by whichever way a stream takes; and the end.
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
        let part = &plain[at..(at + most).min(plain.len())];
        at += match dice.below(2) {
            0 => session.write(part).unwrap(),
            _ => loaded(session, part, dice),
        };
        wire.extend_from_slice(session.output());
        session.transmitted(session.output().len());
    }
    session.close().unwrap();
    wire.extend_from_slice(session.output());
    session.transmitted(session.output().len());
    wire
}

/// Encrypts `part` in place where that is possible, and nothing where it is not; returns how much.
fn loaded(session: &mut Session, part: &[u8], dice: &mut Dice) -> usize {
    // As a file may end before it was expected to.
    let part = &part[..part.len() - dice.below(2).min(part.len() - 1)];
    let fill = |places: &mut [IoSliceMut<'_>]| {
        let mut left = part;
        for place in places {
            let (here, behind) = left.split_at(left.len().min(place.len()));
            place[..here.len()].copy_from_slice(here);
            left = behind;
        }
        Ok(Some(part.len() - left.len()))
    };
    match session.load(part.len() + dice.below(2), fill).unwrap() {
        Some(count) => {
            session.seal_loaded().unwrap();
            count
        }
        None => session.write(part).unwrap(),
    }
}

fn noise(len: usize) -> Vec<u8> {
    let mut dice = Dice(5);
    (0..len).map(|_| dice.below(256) as u8).collect()
}

#[test]
fn bytes_arrive_however_they_are_cut_and_whoever_makes_the_records() {
    let plain = noise(1_500_000);
    for (round, (ours, theirs)) in
        [(true, true), (true, false), (false, true), (true, true), (false, false)].into_iter().enumerate()
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
        client.records().sealed_max = 3;
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
fn what_is_loaded_is_sent_when_it_is_said_and_else_forgotten() {
    let fill = |places: &mut [IoSliceMut<'_>]| {
        places.iter_mut().for_each(|place| place.fill(b'x'));
        Ok(Some(places.iter().map(|place| place.len()).sum()))
    };
    let (mut client, mut server) = met(true, false);
    // 64 KiB at a time, of which records of 16 KiB are made; their plaintexts lie where copies are fast.
    assert_eq!(client.load(1 << 20, fill).unwrap(), Some(ENCRYPT_BYTES));
    assert!(client.output().is_empty(), "nothing is sent of it yet");
    client.seal_loaded().unwrap();
    assert_eq!(client.output().len(), ENCRYPT_BYTES + ENCRYPT_RECORDS * OVERHEAD_BYTES);
    assert_eq!(client.load(10, |_| panic!("while bytes wait")).unwrap(), None);
    carry(&mut client, &mut server);
    let mut came = vec![0; 2 * ENCRYPT_BYTES];
    let (count, _) = server.read(&mut came).unwrap();
    assert!(came[..count].iter().all(|byte| *byte == b'x') && count == ENCRYPT_BYTES);
    // What a reader has not got, or says that it would wait for, is nothing.
    assert_eq!(client.load(10, |_| Ok(None)).unwrap(), None);
    assert_eq!(client.load(10, |_| Ok(Some(0))).unwrap(), Some(0));
    client.load(10, |_| Err(io::ErrorKind::Other.into())).unwrap_err();
    client.seal_loaded().unwrap();
    assert!(client.output().is_empty());
    // Other bytes take its place.
    assert_eq!(client.load(10, fill).unwrap(), Some(10));
    assert_eq!(client.write(b"other").unwrap(), 5);
    client.seal_loaded().unwrap();
    carry(&mut client, &mut server);
    let (count, _) = server.read(&mut came).unwrap();
    assert_eq!(came[..count], *b"other");
    // Its place is given up.
    assert_eq!(client.load(10, fill).unwrap(), Some(10));
    client.transmitted(0);
    client.seal_loaded().unwrap();
    assert!(client.output().is_empty());
    // Behind the end, and with rustls' records, bytes go the other way.
    client.close().unwrap();
    assert_eq!(client.load(10, |_| panic!("behind the end")).unwrap(), None);
    assert_eq!(server.load(10, |_| panic!("not in place")).unwrap(), None);
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

/// Moves all that `from` has to send to `to`, as if it had come at once.
fn carry_whole(from: &mut Session, to: &mut Session) {
    let wire = from.output().to_vec();
    from.transmitted(wire.len());
    to.input()[..wire.len()].copy_from_slice(&wire);
    to.received(wire.len());
}

fn refresh_keys(session: &mut Session) {
    let Layer::Rustls(Side::Client(conn)) = &mut session.layer else { panic!("no client of rustls") };
    match conn.process_tls_records(&mut []).state.unwrap() {
        ConnectionState::WriteTraffic(traffic) => traffic.refresh_traffic_keys().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_comes_right_behind_a_handshake_is_not_lost_with_rustls() {
    let (mut client, mut server) = pair_of(false, true);
    assert_eq!(client.handshake().unwrap(), Need::Input);
    carry_whole(&mut client, &mut server);
    assert_eq!(server.handshake().unwrap(), Need::Input);
    carry_whole(&mut server, &mut client);
    assert_eq!(client.handshake().unwrap(), Need::Nothing);
    // New keys are asked for and taken, twice, before the server knows that the handshake is over.
    refresh_keys(&mut client);
    client.write(b"with new keys").unwrap();
    refresh_keys(&mut client);
    client.write(b" twice").unwrap();
    carry_whole(&mut client, &mut server);
    assert_eq!(server.handshake().unwrap(), Need::Nothing);
    assert!(matches!(server.layer, Layer::Ours(_)));
    let mut target = [0; 100];
    let (count, _) = server.read(&mut target).unwrap();
    let (more, _) = server.read(&mut target[count..]).unwrap();
    assert_eq!(&target[..count + more], b"with new keys twice");
    server.write(b"seen").unwrap();
    carry(&mut server, &mut client);
    assert_eq!(client.read(&mut target).unwrap().0, 4);
    assert_eq!(&target[..4], b"seen");
}

#[test]
fn what_a_server_says_before_a_handshake_is_over_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = tls::self_signed(dir.path(), &["localhost".to_owned()]).unwrap();
    let mut config = (*tls::server_config(&cert, &key, false).unwrap()).clone();
    config.send_half_rtt_data = true;
    let conn = UnbufferedServerConnection::new(std::sync::Arc::new(config)).unwrap();
    let mut server = Session::new(Side::Server(Box::new(conn)), true);
    let trust = tls::Trust { ca_files: vec![cert], ..tls::Trust::default() };
    let name = ServerName::try_from("localhost").unwrap();
    let conn = UnbufferedClientConnection::new(tls::client_config(&trust).unwrap(), name).unwrap();
    let mut client = Session::new(Side::Client(Box::new(conn)), true);
    assert_eq!(client.handshake().unwrap(), Need::Input);
    carry_whole(&mut client, &mut server);
    assert_eq!(server.handshake().unwrap(), Need::Nothing, "it may write already");
    assert!(matches!(server.layer, Layer::Rustls(_)), "but whose client it is is not known");
    server.write(b"welcome").unwrap();
    carry_whole(&mut server, &mut client);
    assert_eq!(client.handshake().unwrap(), Need::Nothing);
    assert!(matches!(client.layer, Layer::Ours(_)));
    let mut target = [0; 100];
    assert_eq!(client.read(&mut target).unwrap().0, 7);
    assert_eq!(&target[..7], b"welcome");
    client.write(b"thanks").unwrap();
    carry_whole(&mut client, &mut server);
    assert_eq!(server.handshake().unwrap(), Need::Nothing);
    assert!(matches!(server.layer, Layer::Ours(_)));
    assert_eq!(server.read(&mut target).unwrap().0, 6);
    server.write(b"more").unwrap();
    carry_whole(&mut server, &mut client);
    assert_eq!(client.read(&mut target).unwrap().0, 4);
}

#[test]
fn requests_for_new_keys_are_bounded_and_answered_once_while_nothing_can_be_sent() {
    let (mut client, mut server) = met(false, true);
    for round in 0..200 {
        refresh_keys(&mut client);
        client.write(b"x").unwrap();
        carry(&mut client, &mut server);
        assert_eq!(server.read(&mut [0; 10]).unwrap().0, 1, "{round}");
        assert!(server.output().len() <= NOTE_BYTES, "{round}: one answer for all of them");
    }
    server.write(b"y").unwrap();
    carry(&mut server, &mut client);
    assert_eq!(client.read(&mut [0; 10]).unwrap().0, 1);
    // Without anything between them they come to an end.
    let mut refused = None;
    for round in 0..200 {
        let Layer::Rustls(Side::Client(_)) = &client.layer else { panic!("not rustls") };
        refresh_keys(&mut client);
        client.handshake().unwrap();
        carry(&mut client, &mut server);
        if server.read(&mut [0; 10]).is_err() {
            refused = Some(round);
            break;
        }
    }
    assert!(refused.is_some_and(|round| round <= 40), "{refused:?}");
}

#[test]
fn nothing_is_said_after_the_last_word() {
    let (mut client, mut server) = met(true, true);
    client.close().unwrap();
    let said = client.output().len();
    client.close().unwrap();
    assert_eq!(client.output().len(), said, "once");
    assert!(client.write(b"more").is_err());
    assert_eq!(client.output().len(), said);
    carry(&mut client, &mut server);
    assert_eq!(server.read(&mut [0; 10]).unwrap(), (0, Need::PeerClosed));
    // The other direction goes on.
    server.write(b"still here").unwrap();
    carry(&mut server, &mut client);
    assert_eq!(client.read(&mut [0; 10]).unwrap().0, 10);
    // An alert that ends the connection is the last word, too.
    server.input()[..5].copy_from_slice(&[22, 3, 3, 0, 1]);
    server.received(5);
    server.peer_closed = false;
    assert!(server.read(&mut [0; 10]).is_err());
    let said = server.output().len();
    assert!(said > 0 && server.write(b"more").is_err());
    server.close().unwrap();
    assert_eq!(server.output().len(), said);
    carry(&mut server, &mut client);
    let cause = client.read(&mut [0; 10]).unwrap_err();
    assert!(cause.to_string().contains("UnexpectedMessage"), "{cause}");
    assert!(client.write(b"more").is_err() && client.output().is_empty());
}

#[test]
fn what_came_before_a_failure_is_read_by_either_way() {
    for (is_damaged, is_ours) in [(true, true), (false, true), (true, false), (false, false)] {
        let (mut client, mut server) = met(is_ours, is_ours);
        server.write(&[1; 100]).unwrap();
        server.write(&[2; 100]).unwrap();
        carry(&mut server, &mut client);
        server.write(&[3; 100]).unwrap();
        let mut wire = server.output().to_vec();
        let last = wire.len() - 1;
        wire[last] ^= u8::from(is_damaged);
        client.input()[..wire.len()].copy_from_slice(&wire);
        client.received(wire.len());
        let mut target = vec![0; IO_BYTES];
        let (count, need) = client.read(&mut target).unwrap();
        assert_eq!((count, need), if is_damaged { (200, Need::Nothing) } else { (300, Need::Input) });
        assert!(target[200..300].iter().all(|byte| *byte != 3) || !is_damaged, "nothing that is not genuine");
        assert_eq!(client.read(&mut target).is_err(), is_damaged);
    }
}

/// rustls as it is mostly used, with buffers of its own.
fn buffered(server: bool, is_ours: bool, dir: &std::path::Path) -> (rustls::Connection, Session) {
    let (cert, key) = tls::self_signed(dir, &["localhost".to_owned()]).unwrap();
    let records = layer(is_ours);
    let server_config = tls::server_config_with(&cert, &key, false, records).unwrap();
    let trust = tls::Trust { ca_files: vec![cert], records, ..tls::Trust::default() };
    let client_config = tls::client_config(&trust).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    if server {
        let theirs = rustls::ServerConnection::new(server_config).unwrap();
        (theirs.into(), Session::client(client_config, name).unwrap())
    } else {
        let theirs = rustls::ClientConnection::new(client_config, name).unwrap();
        (theirs.into(), Session::server(server_config).unwrap())
    }
}

/// Whatever both sides do in whatever order, each reads what the other has written, and that it has ended.
#[test]
fn rustls_and_we_understand_each_other_whatever_happens() {
    use std::io::{Read as _, Write as _};
    let dir = tempfile::tempdir().unwrap();
    let source = noise(1 << 20);
    let mut total = 0;
    for seed in 0..60 {
        let mut dice = Dice(seed * 77 + 1);
        // A third of them with rustls' records on our side as well.
        let is_ours = seed % 3 != 2;
        let (mut theirs, mut ours) = buffered(seed % 2 == 0, is_ours, dir.path());
        // Ciphertext on the way, by direction; what was written and what was read.
        let (mut to_us, mut to_them) = (Vec::new(), Vec::new());
        let (mut we_wrote, mut they_wrote) = (Vec::new(), Vec::new());
        let (mut we_read, mut they_read) = (Vec::new(), Vec::new());
        let mut buffer = AlignedBuf::new(IO_BYTES);
        let (mut is_over, mut we_ended, mut they_ended) = (false, false, false);
        let (mut we_saw, mut they_saw) = (false, false);
        for round in 0..4000 {
            let is_last = round > 600;
            match dice.below(12) {
                // Their side.
                0 if !is_last && !theirs.is_handshaking() && they_wrote.len() < 400_000 => {
                    let len = [1, 300, 16_384, 40_000][dice.below(4)];
                    let at = dice.below(source.len() - len);
                    let taken = theirs.writer().write(&source[at..at + len]).unwrap();
                    they_wrote.extend_from_slice(&source[at..at + taken]);
                }
                1 if !is_last && !theirs.is_handshaking() && dice.below(3) == 0 => {
                    theirs.refresh_traffic_keys().unwrap();
                }
                2 => {
                    while theirs.wants_write() {
                        theirs.write_tls(&mut to_us).unwrap();
                    }
                }
                3 | 4 => {
                    let some = to_them.len().min([1, 5, 900, 20_000][dice.below(4)]);
                    let read = theirs.read_tls(&mut &to_them[..some]).unwrap_or(0);
                    to_them.drain(..read);
                    they_saw |= theirs.process_new_packets().unwrap().peer_has_closed();
                }
                5 => {
                    let read = theirs.reader().read(&mut buffer).unwrap_or(0);
                    they_read.extend_from_slice(&buffer[..read]);
                }
                // Our side.
                6 if !is_over => is_over = ours.handshake().unwrap() == Need::Nothing,
                7 if is_over && !is_last && ours.output().is_empty() && we_wrote.len() < 400_000 => {
                    let len = [1, 300, 16_384, 40_000, 100_000][dice.below(5)];
                    let at = dice.below(source.len() - len);
                    let taken = ours.write(&source[at..at + len]).unwrap();
                    we_wrote.extend_from_slice(&source[at..at + taken]);
                }
                8 => {
                    let some = ours.output().len().min([1, 5, 900, 200_000][dice.below(4)]);
                    to_them.extend_from_slice(&ours.output()[..some]);
                    ours.transmitted(some);
                }
                9 | 10 if is_over => {
                    let room = [1, 100, 20_000, IO_BYTES][dice.below(4)];
                    let target = &mut buffer[..room];
                    let (count, need) = ours.read(target).unwrap();
                    we_read.extend_from_slice(&target[..count]);
                    we_saw |= need == Need::PeerClosed;
                    let some = to_us.len().min([1, 5, 900, 20_000, 100_000][dice.below(5)]);
                    if count > 0 || need != Need::Input || some == 0 {
                        continue;
                    }
                    if let Some(room) = ours.room_in(target) {
                        let some = some.min(room.len());
                        target[room.start..room.start + some].copy_from_slice(&to_us[..some]);
                        let (count, need) = ours.received_in(target, room.start, some).unwrap();
                        we_read.extend_from_slice(&target[..count]);
                        we_saw |= need == Need::PeerClosed;
                        to_us.drain(..some);
                    } else {
                        let some = some.min(ours.input().len());
                        ours.input()[..some].copy_from_slice(&to_us[..some]);
                        ours.received(some);
                        to_us.drain(..some);
                    }
                }
                9 => {
                    let some = to_us.len().min([1, 5, 900, 20_000][dice.below(4)]);
                    ours.input()[..some].copy_from_slice(&to_us[..some]);
                    ours.received(some);
                    to_us.drain(..some);
                }
                11 => {
                    ours.release();
                    if let (Layer::Ours(records), 0) = (&mut ours.layer, dice.below(4)) {
                        records.sealed_max = 1 + dice.below(9) as u64;
                    }
                    if is_last && is_over && !we_ended {
                        we_ended = true;
                        ours.close().unwrap();
                    }
                    if is_last && is_over && !they_ended {
                        they_ended = true;
                        theirs.send_close_notify();
                    }
                }
                _ => {}
            }
            if we_saw && they_saw && they_read.len() >= we_wrote.len() && we_read.len() >= they_wrote.len() {
                break;
            }
        }
        assert!(is_over && ours.has_own_records() == is_ours, "{seed}");
        // What is left.
        for _ in 0..10_000 {
            if we_saw && they_saw && they_read.len() >= we_wrote.len() && we_read.len() >= they_wrote.len() {
                break;
            }
            if !we_ended {
                we_ended = true;
                ours.close().unwrap();
                theirs.send_close_notify();
            }
            to_them.extend_from_slice(ours.output());
            ours.transmitted(ours.output().len());
            while theirs.wants_write() {
                theirs.write_tls(&mut to_us).unwrap();
            }
            let read = theirs.read_tls(&mut &to_them[..]).unwrap_or(0);
            to_them.drain(..read);
            they_saw |= theirs.process_new_packets().unwrap().peer_has_closed();
            let read = theirs.reader().read(&mut buffer).unwrap_or(0);
            they_read.extend_from_slice(&buffer[..read]);
            let (count, need) = ours.read(&mut buffer).unwrap();
            we_read.extend_from_slice(&buffer[..count]);
            we_saw |= need == Need::PeerClosed;
            if count == 0 && need == Need::Input {
                let some = to_us.len().min(ours.input().len());
                ours.input()[..some].copy_from_slice(&to_us[..some]);
                ours.received(some);
                to_us.drain(..some);
            }
        }
        assert!(we_saw && they_saw, "{seed}: {we_saw} {they_saw}");
        assert!(we_read == they_wrote, "{seed}: {} of {} bytes", we_read.len(), they_wrote.len());
        assert!(they_read == we_wrote, "{seed}: {} of {} bytes", they_read.len(), we_wrote.len());
        total += we_read.len().min(they_read.len());
    }
    assert!(total > 5_000_000, "{total}: much went both ways");
}

/// Bytes of a stranger, before and after the handshake: nothing that is no error does harm, and an error lasts.
#[test]
fn bytes_that_are_damaged_anywhere_are_an_error_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let mut refused = 0;
    for seed in 0..400 {
        let mut dice = Dice(seed);
        let is_ours = seed % 3 != 2;
        let (mut theirs, mut ours) = buffered(seed % 2 == 0, is_ours, dir.path());
        let (mut plain, mut failed, mut damages) = (Vec::new(), false, 1 + dice.below(2));
        let begin = dice.below(8);
        for turn in 0..12 {
            let mut wire = Vec::new();
            while theirs.wants_write() {
                theirs.write_tls(&mut wire).unwrap();
            }
            if turn >= begin && damages > 0 && !wire.is_empty() {
                damages -= 1;
                let at = dice.below(wire.len());
                match dice.below(4) {
                    0 => wire[at] ^= 1 << dice.below(8),
                    1 => wire.truncate(at),
                    2 => wire.insert(at, dice.below(256) as u8),
                    _ => wire.extend(noise(1 + dice.below(300))),
                }
            }
            for piece in wire.chunks(1 + dice.below(2000)) {
                ours.input()[..piece.len()].copy_from_slice(piece);
                ours.received(piece.len());
                let mut target = [0; 500];
                for _ in 0..50 {
                    let outcome = match !is_ours || ours.has_own_records() {
                        true => ours.read(&mut target),
                        false => ours.handshake().map(|need| (0, need)),
                    };
                    assert!(!failed || outcome.is_err(), "{seed}: an error lasts");
                    match outcome {
                        Ok((count, _)) => plain.extend_from_slice(&target[..count]),
                        Err(_) => failed = true,
                    }
                    if !matches!(outcome, Ok((1.., _))) {
                        break;
                    }
                }
            }
            let answer = ours.output().to_vec();
            ours.transmitted(answer.len());
            let _ = theirs.read_tls(&mut answer.as_slice());
            if theirs.process_new_packets().is_err() {
                break;
            }
            if !theirs.is_handshaking() {
                use std::io::Write as _;
                theirs.writer().write_all(&[7; 1000]).unwrap();
            }
        }
        assert!(plain.iter().all(|byte| *byte == 7), "{seed}: only what was written");
        refused += usize::from(failed);
        let _ = (ours.write(b"x"), ours.close(), ours.is_quiet());
    }
    assert!(refused > 100, "{refused}");
}
