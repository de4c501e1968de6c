use super::*;
use crate::PathArg;
use crate::flags::Abilities;
use crate::frame::{Handle, PathId, RESPONSE_HEAD_BYTES, SessionId};
use crate::request::testing::hex;
use crate::request::{About, Expect, Ping, Read, Sigver, Stat, Write};
use proptest::prelude::*;

const STREAM: StreamId = StreamId([7, 9]);

fn protocol(flags: ClientFlags) -> Vec<u8> {
    Protocol { version: 0x511, flags, expect: Expect::Login }.to_bytes(StreamId::default())
}

fn login() -> Vec<u8> {
    Login::new(1, b"somebody", Abilities::NONE, b"xrd.cc=us".to_vec()).to_bytes(StreamId::default())
}

fn stat(path: &str) -> Stat {
    Stat { about: About::Path(PathArg::parse(path.as_bytes())), is_vfs: false, wants: 0 }
}

/// Runs a connection on these bytes, split behind `split`, as its owner does; what happened.
fn run(has_tls: bool, bytes: &[u8], split: usize) -> Vec<Step> {
    let mut machine = Machine::new(has_tls);
    let (mut steps, mut at) = (Vec::new(), 0);
    for end in [split, bytes.len()] {
        loop {
            let (used, step) = machine.step(&bytes[at..end]);
            at += used;
            assert!(at <= end);
            match &step {
                Step::More(needed) => {
                    assert!(used == 0 && *needed > end - at);
                    break;
                }
                Step::End => {
                    steps.push(step);
                    return steps;
                }
                Step::Refused(_, _, wrong) if wrong.closes => {
                    steps.push(step);
                    return steps;
                }
                Step::StartTls(_) => machine.tls_begun(),
                Step::Login(..) => machine.logged_in(false),
                Step::Bind(..) => machine.bound(),
                Step::Data(head) => match at.checked_add(head.payload_len as usize) {
                    Some(behind) if behind <= end => at = behind,
                    _ => {
                        steps.push(step);
                        return steps;
                    }
                },
                _ => {}
            }
            steps.push(step);
        }
    }
    steps
}

fn logged_in(requests: &[Vec<u8>]) -> Vec<Step> {
    let bytes = [HANDSHAKE.to_vec(), protocol(ClientFlags::NONE), login(), requests.concat()].concat();
    let whole = run(false, &bytes, bytes.len());
    assert!(matches!(whole[2], Step::Login(..)), "{whole:?}");
    whole[3..].to_vec()
}

fn told(step: &Step) -> (bool, ErrorCode, String) {
    match step {
        Step::Refused(_, _, wrong) => (wrong.closes, wrong.code, wrong.message.to_owned()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_that_wants_tls_before_the_login() {
    let begin = |flags, demands| {
        let mut machine = Machine::new(true).demanding_tls(demands);
        let bytes = [HANDSHAKE.to_vec(), protocol(flags), login()].concat();
        let mut at = 0;
        let mut last = Step::End;
        for _ in 0..3 {
            let (used, step) = machine.step(&bytes[at..]);
            at += used;
            last = step;
            if matches!(last, Step::StartTls(_)) {
                break;
            }
        }
        last
    };
    for demand in [TlsDemand::Capable, TlsDemand::Always] {
        assert!(matches!(begin(ClientFlags::CAN_TLS, demand), Step::StartTls(_)), "also for root://");
    }
    assert!(matches!(begin(ClientFlags::CAN_TLS, TlsDemand::Never), Step::Login(..)));
    assert!(matches!(begin(ClientFlags::NONE, TlsDemand::Capable), Step::Login(..)));
    let (closes, code, text) = told(&begin(ClientFlags::NONE, TlsDemand::Always));
    assert!(closes && code == ErrorCode::TLS_REQUIRED && text.contains("roots://"), "{text}");
    // Without a certificate there is nothing to demand.
    let without = Machine::new(false).demanding_tls(TlsDemand::Always);
    assert_eq!(without.demands_tls, TlsDemand::Never);
    // A client that cannot does not get the demand, where TLS is not required.
    let flags = |flags, demand| {
        let mut machine = Machine::new(true).demanding_tls(demand);
        let bytes = [HANDSHAKE.to_vec(), protocol(flags)].concat();
        let (used, _) = machine.step(&bytes);
        match machine.step(&bytes[used..]).1 {
            Step::Say(said) | Step::StartTls(said) => {
                ProtocolAnswer::parse(&said[RESPONSE_HEAD_BYTES..]).unwrap().flags
            }
            other => panic!("{other:?}"),
        }
    };
    assert!(!flags(ClientFlags::NONE, TlsDemand::Capable).has(ServerFlags::TLS_LOGIN));
    assert!(flags(ClientFlags::NONE, TlsDemand::Always).has(ServerFlags::TLS_LOGIN));
    assert!(flags(ClientFlags::CAN_TLS, TlsDemand::Capable).has(ServerFlags::TLS_LOGIN));
}

#[test]
fn the_first_segment_of_xrdcp() {
    let bytes = hex(
        "00000000 00000000 00000000 00000004 000007dc  0000 0bbe 00000511 0b 03 00000000000000000000 00000000",
    );
    for split in 0..=bytes.len() {
        let said = |has_tls| match run(has_tls, &bytes, split).as_slice() {
            [Step::Say(first), Step::Say(second)] => [first.clone(), second.clone()].concat(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            said(true),
            hex("0000 0000 00000008 00000511 00000001 0000 0000 00000008 00000511 80300001")
        );
        assert_eq!(
            said(false),
            hex("0000 0000 00000008 00000511 00000001 0000 0000 00000008 00000511 00300001")
        );
    }
}

#[test]
fn tls_begins_when_it_is_wanted_and_there() {
    let wants = protocol(ClientFlags::CAN_TLS | ClientFlags::WANTS_TLS);
    let bytes = [HANDSHAKE.to_vec(), wants.clone(), wants.clone()].concat();
    let steps = run(true, &bytes, bytes.len());
    let [Step::Say(_), Step::StartTls(said), Step::Say(again)] = steps.as_slice() else {
        panic!("{steps:?}")
    };
    assert_eq!(said[8..], hex("00000511 c0300001"));
    // Within TLS nothing is to begin.
    assert_eq!(again[8..], hex("00000511 80300001"));
    let steps = run(false, &bytes, bytes.len());
    let [Step::Say(_), Step::Say(said), Step::Say(_)] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(said[8..], hex("00000511 00300001"));
}

#[test]
fn old_clients_see_no_flag_that_they_do_not_know() {
    let asked = Protocol { version: 0, flags: ClientFlags::WANTS_TLS, expect: Expect::Nothing };
    let bytes = [HANDSHAKE.to_vec(), asked.to_bytes(STREAM)].concat();
    let steps = run(true, &bytes, bytes.len());
    let Step::Say(said) = &steps[1] else { panic!("{steps:?}") };
    assert_eq!(said[8..], hex("00000511 00000001"));
}

#[test]
fn nothing_is_answered_to_strangers() {
    assert_eq!(run(false, &[0; 20], 20), [Step::End]);
    assert_eq!(run(false, b"\0\0\0\x01", 4), [Step::End]);
    for request in [Ping.to_bytes(STREAM), stat("/").to_bytes(STREAM), vec![0xff; 24]] {
        let bytes = [HANDSHAKE.to_vec(), request.clone()].concat();
        let steps = run(false, &bytes, bytes.len());
        if request[0] == 0xff {
            assert_eq!(told(&steps[1]), (true, ErrorCode::ARG_INVALID, "Invalid request data length".into()));
        } else {
            let what = "Invalid request; user not logged in";
            assert_eq!(told(&steps[1]), (true, ErrorCode::INVALID_REQUEST, what.into()));
        }
    }
}

#[test]
fn what_has_to_be_proved_comes_first() {
    let mut machine = Machine::new(false);
    assert!(matches!(machine.step(&HANDSHAKE).1, Step::Say(_)));
    assert!(matches!(machine.step(&login()).1, Step::Login(..)));
    machine.logged_in(true);
    assert!(!machine.is_in());
    assert!(matches!(machine.step(&Ping.to_bytes(STREAM)).1, Step::Request(_, Request::Ping(_))));
    let (_, step) = machine.step(&stat("/").to_bytes(STREAM));
    let what = "Invalid request; user not authenticated";
    assert_eq!(told(&step), (true, ErrorCode::INVALID_REQUEST, what.into()));
    let auth = Auth { kind: b"unix".to_vec(), credentials: b"unix\0a b\0".to_vec() };
    assert_eq!(machine.step(&auth.to_bytes(STREAM)).1, Step::Auth(STREAM, auth));
    machine.authenticated(None);
    assert!(machine.is_in());
    assert!(matches!(machine.step(&stat("/").to_bytes(STREAM)).1, Step::Request(..)));
}

#[test]
fn what_makes_no_sense_in_a_session() {
    let unknown = [hex("0709 0001"), vec![0; 20]].concat();
    let steps = logged_in(&[unknown, login(), Bind { session: SessionId([0; 16]) }.to_bytes(STREAM)]);
    for step in &steps {
        assert_eq!(told(step), (false, ErrorCode::INVALID_REQUEST, "Invalid request code".into()));
    }
    assert_eq!(steps.len(), 3);
    let mut empty = Login::new(1, b"", Abilities::NONE, Vec::new()).to_bytes(STREAM);
    empty.truncate(24);
    assert_eq!(told(&logged_in(&[empty])[0]).1, ErrorCode::ARG_MISSING);
    // The head alone is enough.
    let mut long = stat("/").to_bytes(STREAM);
    long[20..24].copy_from_slice(&(ROOT_ARGUMENT_BYTES_MAX + 1).to_be_bytes());
    let what = "Request argument is too long";
    assert_eq!(told(&logged_in(&[long])[0]), (true, ErrorCode::ARG_TOO_LONG, what.into()));
}

#[test]
fn strangers_may_not_say_much() {
    let mut bytes = [HANDSHAKE.to_vec(), login()].concat();
    bytes[20 + 20..20 + 24].copy_from_slice(&(ROOT_LOGIN_BYTES_MAX + 1).to_be_bytes());
    let steps = run(false, &bytes, bytes.len());
    assert_eq!(told(&steps[1]).1, ErrorCode::ARG_TOO_LONG);
}

#[test]
fn data_are_told_of_and_not_waited_for() {
    let write = Write { handle: Handle([1; 4]), offset: 5, path_id: PathId::MAIN };
    let mut bytes = Vec::new();
    write.encode_for(STREAM, 4, &mut bytes);
    bytes.extend_from_slice(b"data");
    let steps = logged_in(&[bytes.clone(), Ping.to_bytes(STREAM)]);
    let Step::Data(head) = &steps[0] else { panic!("{steps:?}") };
    assert_eq!((head.stream, head.id, head.payload_len), (STREAM, RequestId::WRITE, 4));
    assert_eq!(head.body, write.body());
    assert_eq!(steps[1], Step::Request(STREAM, Ping.into()));
    // Bytes behind the head are not looked at here, however many they are.
    bytes[20..24].copy_from_slice(&(i32::MAX as u32).to_be_bytes());
    assert!(matches!(logged_in(&[bytes])[..], [Step::Data(_)]));
}

#[test]
fn signatures_are_not_looked_at_and_bound_connections_not_answered() {
    let sigver = Sigver {
        expected: RequestId::PING,
        leaves_payload_out: false,
        number: 1,
        algorithm: 1,
        signature: vec![0; 32],
    };
    let steps = logged_in(&[sigver.to_bytes(STREAM), Ping.to_bytes(STREAM)]);
    assert_eq!(steps, [Step::Ignored, Step::Request(STREAM, Ping.into())]);
    let bind = Bind { session: SessionId([3; 16]) };
    let bytes = [HANDSHAKE.to_vec(), bind.to_bytes(STREAM), Ping.to_bytes(STREAM)].concat();
    let steps = run(false, &bytes, bytes.len());
    assert_eq!(steps[1..], [Step::Bind(STREAM, bind), Step::Ignored]);
}

#[test]
fn any_split_means_the_same() {
    let read = Read { handle: Handle([1; 4]), offset: 5, len: 9, path_id: PathId::MAIN };
    let bytes = [
        HANDSHAKE.to_vec(),
        protocol(ClientFlags::CAN_TLS),
        login(),
        stat("/a?b=c").to_bytes(STREAM),
        read.to_bytes(STREAM),
        Ping.to_bytes(STREAM),
    ]
    .concat();
    let whole = run(true, &bytes, bytes.len());
    assert_eq!(whole.len(), 6);
    for split in 0..bytes.len() {
        assert_eq!(run(true, &bytes, split), whole);
    }
}

proptest! {
    #[test]
    fn anything_may_come(bytes in prop::collection::vec(any::<u8>(), 0..300), split in 0usize..300) {
        run(true, &bytes, split.min(bytes.len()));
        let prefix = [HANDSHAKE.to_vec(), login()].concat();
        let all = [prefix.as_slice(), &bytes].concat();
        run(true, &all, (prefix.len() + split).min(all.len()));
    }

    #[test]
    fn any_request_may_come(id in 2999u16..3034, body in any::<[u8; 16]>(), payload in prop::collection::vec(any::<u8>(), 0..100)) {
        let head = RequestHead { stream: STREAM, id: RequestId(id), body, payload_len: payload.len() as u32 };
        let bytes = [&HANDSHAKE[..], &login(), &head.encode(), &payload, &Ping.to_bytes(STREAM)].concat();
        let steps = run(false, &bytes, bytes.len());
        prop_assert!(steps.len() >= 3);
    }
}
