//! Bytes that come over root://: requests, answers, pages, listings, and the client's side of a connection.

use gridlane_core::Secret;
use gridlane_core::limits::{ROOT_ARGUMENT_BYTES_MAX, ROOT_REQUESTS_MAX};
use gridlane_xrd::answer::*;
use gridlane_xrd::client::{Aim, Answers, Expect, Flight, LoginUser, Opening, Part, Step, Turn, Unpaging};
use gridlane_xrd::frame::{HANDSHAKE, REQUEST_HEAD_BYTES, RESPONSE_HEAD_BYTES, RequestHead, ResponseHead};
use gridlane_xrd::request::carries_data;
use gridlane_xrd::server::{Machine, Step as ServerStep, TlsDemand};
use gridlane_xrd::{Request, SessionId, Status, StreamId, pages, ztn};

use crate::random::Random;

/// No more of what comes is read: a machine that does not get on would go on for ever.
const STEPS_MAX: usize = 1_000_000;

/// Bytes of a client on a connection, with the handshake or without.
pub(crate) fn root_requests(data: &[u8]) {
    let mut rest = data.strip_prefix(&HANDSHAKE[..]).unwrap_or(data);
    while let Some((head, behind)) = rest.split_first_chunk::<REQUEST_HEAD_BYTES>() {
        let Ok(head) = RequestHead::parse(head) else { return };
        assert_eq!(RequestHead::parse(&head.encode()).as_ref(), Ok(&head));
        // What is cut off is tried as if that were all of it.
        let (payload, behind) = behind.split_at(behind.len().min(head.payload_len as usize));
        rest = behind;
        let payload = if carries_data(head.id) { &[] } else { payload };
        let Ok(request) = Request::parse(head.id, &head.body, payload) else { continue };
        if let Request::WriteV(write) = &request {
            rest = &rest[rest.len().min(usize::try_from(write.data_len()).unwrap_or(usize::MAX))..];
        }
        // What it has become, it stays; and it is not longer than what came, but for what we always write.
        let again = written_again(&request, head.stream);
        assert!(again.len() <= REQUEST_HEAD_BYTES + payload.len() + 9, "{request:?}");
        let (head, payload) = again.split_first_chunk::<REQUEST_HEAD_BYTES>().expect("a head");
        let head = RequestHead::parse(head).expect("our own head");
        let once = Request::parse(head.id, &head.body, payload).expect("our own request");
        let twice = written_again(&once, head.stream);
        assert!(twice.len() <= again.len(), "{request:?} grows");
    }
}

fn written_again(request: &Request, stream: StreamId) -> Vec<u8> {
    let mut out = Vec::new();
    request.encode_for(stream, 0, &mut out);
    out
}

/// Bytes of a server on a connection.
pub(crate) fn root_answers(data: &[u8]) {
    let mut rest = data;
    while let Some((head, behind)) = rest.split_first_chunk::<RESPONSE_HEAD_BYTES>() {
        let Ok(head) = ResponseHead::parse(head) else { return };
        let (body, behind) = behind.split_at(behind.len().min(head.len as usize));
        rest = behind;
        any_answer(body);
        if head.status == Status::STATUS {
            let Some(Ok(status)) = body.first_chunk().map(StatusAnswer::parse) else { return };
            let again = status.encode();
            assert_eq!(again[8..].first_chunk().map(StatusAnswer::parse), Some(Ok(status)));
            let data = &rest[..rest.len().min(status.data_len as usize)];
            rest = &rest[data.len()..];
            any_answer(data);
            unframed(status.offset, data);
        }
    }
}

/// Each of them reads anything, and what it has read is written and read alike.
fn any_answer(body: &[u8]) {
    fn same<T: PartialEq + std::fmt::Debug>(
        read: Option<T>,
        write: impl Fn(&T, &mut Vec<u8>),
        read_again: impl Fn(&[u8]) -> Option<T>,
    ) {
        if let Some(read) = read {
            let mut out = Vec::new();
            write(&read, &mut out);
            assert_eq!(read_again(&out), Some(read));
        }
    }
    let _ = HandshakeAnswer::parse(body);
    same(
        ProtocolAnswer::parse(body)
            .ok()
            .filter(|answer| answer.signing.level > 0 || !answer.signing.is_forced),
        ProtocolAnswer::encode,
        |body| ProtocolAnswer::parse(body).ok(),
    );
    if let Ok(answer) = LoginAnswer::parse(body) {
        assert!(answer.method_list().count() <= body.len());
    }
    let _ = OpenAnswer::parse(body);
    let _ = AttnAnswer::parse(body);
    let _ = WaitAnswer::parse(body);
    let _ = parse_checksum(body);
    same(StatText::parse(body).ok(), StatText::write, |body| StatText::parse(body).ok());
    same(VfsText::parse(body).ok(), VfsText::write, |body| VfsText::parse(body).ok());
    let space = |body: &[u8]| SpaceText::parse(body);
    same(space(body), |space, out| out.extend_from_slice(space.encode().as_bytes()), space);
    let corrections = |body: &[u8]| Corrections::parse(body).ok();
    same(corrections(body), |list, out| out.extend_from_slice(&list.encode()), corrections);
    if let Ok(redirect) = Redirect::parse(body) {
        let mut out = Vec::new();
        redirect.encode(&mut out);
        assert!(Redirect::parse(&out).is_ok(), "{redirect:?} is not understood by ourselves");
    }
    for with_values in [true, false] {
        let read = |body: &[u8]| FattrAnswer::parse(body, with_values).ok();
        same(read(body), |answer, out| answer.encode(with_values, out), read);
        let read = |body: &[u8]| parse_fattr_list(body, with_values).ok();
        same(read(body), |list, out| write_fattr_list(list, with_values, out), read);
    }
    for location in Location::parse_all(body) {
        let mut out = Vec::new();
        location.write(&mut out);
        assert_eq!(Location::parse_all(&out), [location]);
    }
}

/// Eight bytes of offset, then pages.
pub(crate) fn root_pages(data: &[u8]) {
    let Some((offset, framed)) = data.split_first_chunk::<8>() else { return };
    unframed(u64::from_be_bytes(*offset) >> 1, framed);
}

fn unframed(offset: u64, framed: &[u8]) {
    let found = pages::unframe(offset, framed);
    let mut random = Random::of(framed);
    let cut = unpaged(offset, framed.len() as u64, &random.pieces(framed));
    let Some((bytes, wrong)) = found else { return };
    assert_eq!(pages::framed_len(offset, bytes.len() as u64), framed.len() as u64);
    assert_eq!(cut, (bytes.clone(), wrong.clone()), "it depends on where it is cut");
    let mut again = Vec::new();
    pages::frame(offset, &bytes, &mut again);
    assert_eq!(again == framed, wrong.is_empty());
    for (at, len) in wrong {
        assert!(at >= offset && at + len as u64 <= offset + bytes.len() as u64 && len <= pages::PAGE_BYTES);
    }
}

/// The pages as a connection reads them: piece by piece, and the checksums taken out in place.
fn unpaged(offset: u64, framed: u64, pieces: &[&[u8]]) -> (Vec<u8>, Vec<(u64, usize)>) {
    let mut unpaging = Unpaging::new(offset, framed);
    let (mut raw, mut bytes, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    for piece in pieces {
        raw.extend_from_slice(piece);
        let took = unpaging.take(&mut raw);
        assert!(took.len <= took.rest && took.rest <= raw.len());
        assert_eq!(took.offset, offset + bytes.len() as u64);
        bytes.extend_from_slice(&raw[..took.len]);
        wrong.extend(took.wrong);
        raw.drain(..took.rest);
        assert!(raw.len() < pages::UNIT_BYTES, "whole pages were left");
    }
    (bytes, wrong)
}

/// A listing, in any pieces.
pub(crate) fn root_dirlist(data: &[u8]) {
    let whole = listed(&[data]);
    let mut random = Random::of(data);
    let cut = listed(&random.pieces(data));
    assert_eq!(cut, whole, "it depends on where it is cut");
    let (entries, _) = whole;
    assert!(entries.len() <= data.len());
    for entry in &entries {
        // Behind a stat text a name may go over several lines.
        let is_told = listable(&entry.name).is_none() || entry.stat.is_some() && !entry.name.contains(&0);
        assert!(is_told && !entry.name.is_empty() && entry.name != b"." && entry.name != b"..");
    }
    // What is listed is listed again.
    let with_stat = entries.iter().any(|entry| entry.stat.is_some());
    let mut text = if with_stat { STAT_SENTINEL.to_vec() } else { Vec::new() };
    for entry in &entries {
        match &entry.stat {
            Some(stat) => write_entry(&entry.name, stat, None, &mut text),
            None => write_name(&entry.name, &mut text),
        }
    }
    finish_dirlist(&mut text);
    let (again, ended) = listed(&[&text]);
    assert!(ended);
    let known = |entries: Vec<Entry>| entries.into_iter().map(|it| (it.name, it.stat)).collect::<Vec<_>>();
    assert_eq!(known(again), known(entries));
}

/// The entries, and whether the end was reached.
fn listed(parts: &[&[u8]]) -> (Vec<Entry>, bool) {
    let (mut reader, mut entries) = (DirlistReader::default(), Vec::new());
    for part in parts {
        if reader.read(part, false, &mut entries).is_err() {
            return (entries, false);
        }
    }
    let ended = reader.read(&[], true, &mut entries).is_ok();
    (entries, ended)
}

/// Bytes of a server to a client of ours: while a session is opened, then while all kinds of requests are under way.
pub(crate) fn root_client(data: &[u8]) {
    let mut random = Random::of(data);
    let pieces = random.pieces(data);
    for flight in [Flight::Whole, Flight::Login, Flight::Steps] {
        for must_tls in [false, true] {
            for aim in [Aim::Login, Aim::Bind(SessionId([7; 16]))] {
                let (all, end) = opened(&aim, flight, must_tls, &[data]);
                assert_eq!(
                    opened(&aim, flight, must_tls, &pieces),
                    (all.clone(), end.clone()),
                    "cut {flight:?}"
                );
                let in_clear = all.iter().take_while(|it| **it != Event::Tls);
                let logs_in = |event: &Event| matches!(event, Event::Sent(bytes) if bytes.windows(6).any(|six| six == b"person"));
                assert!(!must_tls || !in_clear.clone().any(logs_in), "the login is in clear");
                let shows_it = |event: &Event| matches!(event, Event::Sent(bytes) if bytes.windows(TOKEN.len()).any(|it| it == TOKEN.as_bytes()));
                assert!(!in_clear.clone().any(shows_it), "the token is in clear");
            }
        }
    }
    let whole = heard(&[data]);
    assert_eq!(heard(&pieces), whole, "it depends on where it is cut");
}

#[derive(Clone, Debug, PartialEq)]
enum Event {
    Sent(Vec<u8>),
    Tls,
    Wait(u32),
    Ready,
}

const TOKEN: &str = "eyJ.not.told";

/// The doings of a session that is opened: until it is ready, fails, or has nothing more to read.
fn opened(aim: &Aim, flight: Flight, must_tls: bool, pieces: &[&[u8]]) -> (Vec<Event>, String) {
    let who = LoginUser {
        token: Some(Secret::new(TOKEN)),
        process: 7,
        login: b"person".to_vec(),
        user: b"person".to_vec(),
        group: b"people".to_vec(),
        cgi: Vec::new(),
    };
    let mut opening = Opening::new(who, aim.clone(), flight, must_tls, b"the first request".to_vec());
    let (mut events, mut there) = (Vec::new(), Vec::new());
    // What is sent in one go or in two depends on when the server says what it says.
    let send = |opening: &mut Opening, events: &mut Vec<Event>| {
        let output = opening.output();
        match events.last_mut() {
            Some(Event::Sent(before)) => before.extend_from_slice(&output),
            _ if !output.is_empty() => events.push(Event::Sent(output)),
            _ => {}
        }
    };
    send(&mut opening, &mut events);
    for piece in pieces {
        there.extend_from_slice(piece);
        for steps in 0.. {
            assert!(steps < STEPS_MAX, "it does not get on");
            let (mut turn, used) = match opening.receive(&there) {
                Ok(turn) => turn,
                Err(refused) => {
                    send(&mut opening, &mut events);
                    return (events, format!("{refused:?}"));
                }
            };
            there.drain(..used);
            send(&mut opening, &mut events);
            if turn == Turn::StartTls {
                events.push(Event::Tls);
                turn = match opening.secured() {
                    Ok(turn) => turn,
                    Err(refused) => return (events, format!("{refused:?}")),
                };
            }
            send(&mut opening, &mut events);
            match turn {
                Turn::Ready => {
                    events.push(Event::Ready);
                    return (events, format!("{:?}", opening.session()));
                }
                Turn::Wait(seconds) => {
                    events.push(Event::Wait(seconds));
                    opening.again();
                    send(&mut opening, &mut events);
                }
                Turn::StartTls | Turn::Receive if used == 0 => break,
                Turn::StartTls | Turn::Receive => {}
            }
        }
    }
    (events, "more".to_owned())
}

/// Everything that is made of what comes: parts with their bytes, words, and how it ended.
fn heard(pieces: &[&[u8]]) -> (Vec<String>, String) {
    let mut answers = Answers::default();
    let expects: Vec<Expect> = (0..ROOT_REQUESTS_MAX as u64)
        .map(|number| match number % 4 {
            0 => Expect::Pages { offset: number * 1000, len: 100_000 },
            1 => Expect::Text { bytes_max: 60_000 },
            2 => Expect::Bytes { offset: number * 1000, len: 60_000 },
            _ => Expect::Written,
        })
        .collect();
    let streams: Vec<_> = expects.iter().map(|expect| answers.ask(*expect).expect("room")).collect();
    assert_eq!(answers.ask(Expect::Written), None);
    let (mut events, mut there) = (Vec::<String>::new(), Vec::new());
    let mut part: Option<(Part, Vec<u8>)> = None;
    let mut came = vec![0u64; expects.len()];
    for piece in pieces {
        there.extend_from_slice(piece);
        for steps in 0.. {
            assert!(steps < STEPS_MAX, "it does not get on");
            let (step, used) = match answers.step(&there) {
                Ok(step) => step,
                Err(wrong) => {
                    assert!(wrong.closes, "nobody knows where the next message begins");
                    return (events, format!("{wrong:?}"));
                }
            };
            assert!(used <= there.len());
            match step {
                Step::NeedsMore => {
                    there.drain(..used);
                    break;
                }
                Step::Part(begun) => {
                    let number =
                        streams.iter().position(|stream| *stream == begun.stream).expect("one of ours");
                    let data = if begun.is_paged {
                        pages::data_len(begun.offset, begun.len)
                    } else {
                        Some(begun.len)
                    };
                    came[number] += data.expect("pages that can be");
                    match expects[number] {
                        Expect::Bytes { offset, len } | Expect::Pages { offset, len } => {
                            assert!(came[number] <= len && (begun.len == 0 || begun.offset >= offset));
                        }
                        Expect::Text { bytes_max } => assert!(came[number] <= bytes_max),
                        Expect::Written => {}
                    }
                    events.push(format!("{begun:?}"));
                    part = Some((begun, Vec::new()));
                }
                Step::Data(count) => {
                    let (begun, bytes) = part.as_mut().expect("data without a part");
                    bytes.extend_from_slice(&there[used - count..used]);
                    assert!(bytes.len() as u64 <= begun.len);
                    if bytes.len() as u64 == begun.len {
                        if begun.is_paged {
                            unframed(begun.offset, bytes);
                        }
                        events.push(format!("{bytes:02x?}"));
                    }
                }
                Step::Said(stream, said) => events.push(format!("{stream:?} {said:?}")),
            }
            there.drain(..used);
        }
    }
    (events, format!("{} unanswered", answers.unanswered()))
}

/// Bytes of a client to a server of ours, which believes whatever it says of itself.
pub(crate) fn root_server(data: &[u8]) {
    let mut random = Random::of(data);
    let pieces = random.pieces(data);
    for has_tls in [false, true] {
        for proves in [false, true] {
            for demand in [TlsDemand::Never, TlsDemand::Capable, TlsDemand::Always] {
                let whole = served(has_tls, demand, proves, &[data]);
                assert_eq!(served(has_tls, demand, proves, &pieces), whole, "it depends on where it is cut");
            }
        }
    }
}

/// Everything that a server's connection is told to do, until it ends or has nothing more to read.
fn served(has_tls: bool, demand: TlsDemand, proves: bool, pieces: &[&[u8]]) -> Vec<String> {
    let mut machine = Machine::new(has_tls).demanding_tls(demand);
    let mut is_tls = false;
    let (mut events, mut there, mut data_left) = (Vec::new(), Vec::new(), 0);
    for piece in pieces {
        there.extend_from_slice(piece);
        for steps in 0.. {
            assert!(steps < STEPS_MAX, "it does not get on");
            let data = there.len().min(data_left);
            there.drain(..data);
            data_left -= data;
            if data_left > 0 {
                break;
            }
            let was_in = machine.is_in();
            let (used, step) = machine.step(&there);
            assert!(used <= there.len());
            there.drain(..used);
            match &step {
                ServerStep::More(count) => {
                    assert!(used == 0 && *count > there.len(), "it wants what it has");
                    assert!(*count <= REQUEST_HEAD_BYTES + ROOT_ARGUMENT_BYTES_MAX as usize);
                    break;
                }
                ServerStep::Say(said) => assert!(said.len() < 200),
                ServerStep::Refused(..) | ServerStep::End => {}
                ServerStep::StartTls(_) => {
                    assert!(has_tls);
                    machine.tls_begun();
                    is_tls = true;
                }
                ServerStep::Login(..) => {
                    assert!(is_tls || !has_tls || demand != TlsDemand::Always, "a login in clear");
                    machine.logged_in(proves);
                }
                ServerStep::Auth(_, auth) => {
                    if let Ok(token) = ztn::parse(&auth.credentials) {
                        assert_eq!(ztn::parse(&ztn::encode(&token)), Ok(token), "a token is another one");
                    }
                    machine.authenticated(None);
                }
                ServerStep::Bind(..) => machine.bound(),
                ServerStep::Request(_, request) => {
                    let is_small = matches!(request, Request::Ping(_) | Request::Protocol(_));
                    assert!(was_in || is_small, "{request:?} of somebody who is not in");
                }
                ServerStep::Data(head) => {
                    assert!(was_in, "data of somebody who is not in");
                    data_left = head.payload_len as usize;
                }
                ServerStep::Ignored => assert!(was_in),
            }
            let ends = match &step {
                ServerStep::Refused(_, _, wrong) => wrong.closes,
                step => *step == ServerStep::End,
            };
            assert!(used > 0 || ends, "nothing was used: {step:?}");
            events.push(format!("{step:?}"));
            if ends {
                return events;
            }
        }
    }
    events
}
