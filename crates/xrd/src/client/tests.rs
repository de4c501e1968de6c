use gridlane_core::Secret;
use proptest::prelude::*;

use super::*;
use crate::Malformed;
use crate::answer::{
    Corrections, ErrorAnswer, HandshakeAnswer, LoginAnswer, ProtocolAnswer, Redirect, Signing, StatusAnswer,
    WaitAnswer, deferred, error, message, ok, wait,
};
use crate::flags::{OpenMore, ServerFlags};
use crate::registry::{ErrorCode, Status};
use crate::request::{Call, Mkdir, Open, Ping, Request};
use crate::{Handle, PathArg, PathId, RequestHead, SessionId, StreamId, frame, pages};

#[test]
fn what_may_be_sent_twice() {
    let open = |options| {
        let (about, template) = (PathArg::new("/f"), Handle::default());
        Open { mode: 0, options, more: OpenMore::NONE, template, about }.to_bytes(StreamId([0, 1]))
    };
    assert!(is_repeatable(&open(OpenOptions::READ)));
    assert!(!is_repeatable(&open(OpenOptions::UPDATE | OpenOptions::DELETE)));
    assert!(is_repeatable(&Ping.to_bytes(StreamId::default())));
    let mkdir = Mkdir { about: PathArg::new("/d"), mode: 0, parents: false };
    assert!(!is_repeatable(&mkdir.to_bytes(StreamId::default())));
    assert!(!is_repeatable(b"short"));
}

// --- What comes ------------------------------------------------------------------------------------------

/// The result of bytes that come in pieces of `size`: parts with their data, and words.
fn heard(answers: &mut Answers, bytes: &[u8], size: usize) -> Result<Vec<(Step, Vec<u8>)>, Malformed> {
    let (mut all, mut ahead) = (Vec::<(Step, Vec<u8>)>::new(), Vec::new());
    for piece in bytes.chunks(size) {
        ahead.extend_from_slice(piece);
        loop {
            let (step, used) = answers.step(&ahead)?;
            let taken: Vec<u8> = ahead.drain(..used).collect();
            match step {
                Step::NeedsMore => break,
                Step::Data(count) => {
                    let (_, data) = all.last_mut().unwrap();
                    data.extend_from_slice(&taken[taken.len() - count..]);
                }
                step => all.push((step, Vec::new())),
            }
        }
    }
    Ok(all)
}

const TEXT: Expect = Expect::Text { bytes_max: 100 };

#[test]
fn everything_a_server_says_in_pieces_of_any_size() {
    let framed = {
        let mut framed = Vec::new();
        pages::frame(4090, b"0123456789", &mut framed);
        framed
    };
    let corrections = Corrections::of(&[(4096, 4)]).unwrap().encode();
    let request = |stream, request, data_len, offset| {
        StatusAnswer { stream, request, is_partial: false, data_len, offset }.encode().to_vec()
    };
    let mut sizes: Vec<usize> = (1..40).collect();
    sizes.push(10_000);
    for size in sizes {
        let mut answers = Answers::default();
        let mut ask = |expect| answers.ask(expect).unwrap();
        let (text, later, failed) = (ask(TEXT), ask(TEXT), ask(TEXT));
        let (read, pgread) =
            (ask(Expect::Bytes { offset: 7, len: 20 }), ask(Expect::Pages { offset: 4090, len: 100 }));
        let (pgwrite, moved, put_off) = (ask(Expect::Written), ask(TEXT), ask(TEXT));
        let elsewhere = {
            let redirect =
                Redirect::Host { host: "h".into(), port: 1, cgi: b"a".to_vec(), token: Vec::new() };
            let mut body = Vec::new();
            redirect.encode(&mut body);
            message(moved, Status::REDIRECT, &body)
        };
        let bytes = [
            message(text, Status::OKSOFAR, b"one "),
            message(read, Status::OKSOFAR, b"abc"),
            wait(later, Status::WAITRESP, 600, "soon"),
            message(StreamId::default(), Status::ATTN, b"\0\0\x13\x8awords for people"),
            message(StreamId::default(), Status::ATTN, b""),
            ok(text, b"two"),
            error(failed, ErrorCode::NOT_FOUND, "no"),
            [request(pgread, RequestId::PGREAD, 18, 4090), framed.clone()].concat(),
            ok(read, b"def"),
            [request(pgwrite, RequestId::PGWRITE, 16, 0), corrections.clone()].concat(),
            elsewhere,
            wait(put_off, Status::WAIT, 2, ""),
            deferred(later, Status::OK, b"at last"),
        ]
        .concat();
        let all = heard(&mut answers, &bytes, size).unwrap();
        let part = |stream, len, offset, is_last| {
            Step::Part(Part { stream, len, offset, is_paged: false, is_list: false, is_last })
        };
        let later_answer = WaitAnswer { seconds: 600, text: "soon".into() };
        let no = ErrorAnswer { code: ErrorCode::NOT_FOUND, text: "no".into() };
        let redirect = Redirect::Host { host: "h".into(), port: 1, cgi: b"a".to_vec(), token: Vec::new() };
        let paged =
            Part { stream: pgread, len: 18, offset: 4090, is_paged: true, is_list: false, is_last: true };
        let list =
            Part { stream: pgwrite, len: 16, offset: 0, is_paged: false, is_list: true, is_last: true };
        let expected = [
            (part(text, 4, 0, false), b"one ".to_vec()),
            (part(read, 3, 7, false), b"abc".to_vec()),
            (Step::Said(later, Said::Later(later_answer)), Vec::new()),
            (part(text, 3, 0, true), b"two".to_vec()),
            (Step::Said(failed, Said::Error(no)), Vec::new()),
            (Step::Part(paged), framed.clone()),
            (part(read, 3, 10, true), b"def".to_vec()),
            (Step::Part(list), corrections.clone()),
            (Step::Said(moved, Said::Redirect(redirect)), Vec::new()),
            (Step::Said(put_off, Said::Wait(WaitAnswer { seconds: 2, text: String::new() })), Vec::new()),
            (part(later, 7, 0, true), b"at last".to_vec()),
        ];
        assert_eq!(all, expected, "pieces of {size}");
        assert_eq!(answers.unanswered(), 0);
        assert!(answers.is_between());
    }
}

#[test]
fn what_no_server_says() {
    let refused = |expect, make: &dyn Fn(StreamId) -> Vec<u8>| {
        let mut answers = Answers::default();
        let stream = answers.ask(expect).unwrap();
        let wrong = heard(&mut answers, &make(stream), 10_000).unwrap_err();
        assert!(wrong.closes);
    };
    let bytes = Expect::Bytes { offset: 0, len: 5 };
    let pages = Expect::Pages { offset: 0, len: 5000 };
    refused(TEXT, &|_| ok(StreamId([9, 9]), b""));
    refused(TEXT, &|stream| [ok(stream, b""), ok(stream, b"")].concat());
    refused(TEXT, &|stream| ok(stream, &[0; 101]));
    refused(TEXT, &|stream| {
        [message(stream, Status::OKSOFAR, &[0; 60]), message(stream, Status::OKSOFAR, &[0; 41])].concat()
    });
    refused(bytes, &|stream| ok(stream, b"123456"));
    refused(pages, &|stream| ok(stream, b"1"));
    refused(TEXT, &|stream| message(stream, Status::AUTHMORE, b""));
    refused(TEXT, &|stream| message(stream, Status(4711), b""));
    refused(TEXT, &|stream| message(stream, Status::ERROR, &vec![0; 100_000]));
    refused(TEXT, &|stream| message(stream, Status::ERROR, b"1"));
    refused(TEXT, &|stream| message(stream, Status::STATUS, &[0; 20]));
    let negative = |stream: StreamId| {
        let mut bytes = ok(stream, b"");
        bytes[4] = 0x80;
        bytes
    };
    refused(TEXT, &negative);
    let status = |stream, request, data_len, offset| {
        StatusAnswer { stream, request, is_partial: false, data_len, offset }.encode().to_vec()
    };
    refused(TEXT, &|stream| status(stream, RequestId::PGREAD, 0, 0));
    refused(pages, &|stream| status(stream, RequestId::PGWRITE, 0, 0));
    // Of another place, too many, and half a checksum.
    refused(pages, &|stream| status(stream, RequestId::PGREAD, 8, 4096));
    refused(pages, &|stream| status(stream, RequestId::PGREAD, 5009, 0));
    refused(pages, &|stream| status(stream, RequestId::PGREAD, 3, 0));
    refused(pages, &|stream| {
        let mut bytes = status(stream, RequestId::PGREAD, 8, 0);
        bytes[30] ^= 1;
        bytes
    });
    refused(pages, &|stream| {
        let mut bytes = status(stream, RequestId::PGREAD, 0, 0);
        bytes[..2].copy_from_slice(&[7, 7]);
        [ok(stream, b""), bytes].concat()
    });
    // An answer inside of one that came later, and one that is longer than what holds it.
    refused(TEXT, &|stream| deferred(stream, Status::ATTN, b"12345678"));
    refused(TEXT, &|stream| {
        let mut bytes = deferred(stream, Status::OK, b"1");
        bytes[23] = 9;
        bytes
    });
}

#[test]
fn what_belongs_to_another_connection_of_the_session() {
    let (mut main, mut second) = (Answers::default(), Answers::of_path(PathId(2)).unwrap());
    let (own, other) = (main.ask(TEXT).unwrap(), second.ask(TEXT).unwrap());
    assert!(own != other && Answers::path_of(other) == PathId(2) && Answers::path_of(own) == PathId::MAIN);
    assert!(Answers::of_path(PathId(16)).is_none());
    assert!(heard(&mut main, &ok(other, b"1"), 99).is_err());
    let mut main = Answers::default();
    main.hear_others();
    let own = main.ask(TEXT).unwrap();
    let status =
        StatusAnswer { stream: other, request: RequestId::PGREAD, is_partial: false, data_len: 3, offset: 0 };
    let bytes = [
        ok(other, b"12"),
        [status.encode().to_vec(), b"345".to_vec()].concat(),
        error(other, ErrorCode::IO_ERROR, "no"),
        ok(own, b"mine"),
    ];
    let all = heard(&mut main, &bytes.concat(), 7).unwrap();
    assert_eq!(all.len(), 4);
    assert!(matches!(all[2].0, Step::Said(stream, Said::Error(_)) if stream == other));
    assert_eq!((all[3].1.as_slice(), main.unanswered()), (&b"mine"[..], 0));
    // Not to an answer without a request.
    assert!(heard(&mut main, &ok(own, b""), 99).is_err());
    second.forget(other);
    assert_eq!(second.unanswered(), 0);
}

#[test]
fn data_may_be_taken_past_the_machine() {
    let mut answers = Answers::default();
    let stream = answers.ask(Expect::Bytes { offset: 0, len: 10 }).unwrap();
    let head = &ok(stream, &[0; 10])[..8];
    assert!(matches!(answers.step(head), Ok((Step::Part(_), 8))));
    answers.data_taken(4);
    assert_eq!(answers.data_expected(), 6);
    assert_eq!(answers.step(b"123456"), Ok((Step::Data(6), 6)));
    assert_eq!((answers.data_expected(), answers.unanswered()), (0, 0));
}

#[test]
fn numbers_are_given_again_only_when_they_are_free() {
    let mut answers = Answers::default();
    let kept = answers.ask(TEXT).unwrap();
    for _ in 0..70_000 {
        let stream = answers.ask(TEXT).unwrap();
        assert!(stream != kept && stream != StreamId::default());
        assert!(answers.step(&ok(stream, b"")).is_ok());
    }
    while answers.ask(TEXT).is_some() {}
    assert_eq!(answers.unanswered(), gridlane_core::limits::ROOT_REQUESTS_MAX);
}

proptest! {
    #[test]
    fn nothing_that_comes_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..600), size in 1usize..50) {
        let mut answers = Answers::default();
        for expect in [TEXT, Expect::Bytes { offset: 0, len: 50 }, Expect::Pages { offset: 3, len: 5000 }, Expect::Written] {
            answers.ask(expect).unwrap();
        }
        let _ = heard(&mut answers, &bytes, size);
        // With a head that is believed.
        for (stream, status) in [(1, 0), (2, 4000), (3, 4007), (4, 4007), (1, 4001), (2, 4003), (1, 4004), (0, 4001)] {
            let mut answers = Answers::default();
            for expect in [TEXT, Expect::Bytes { offset: 0, len: 50 }, Expect::Pages { offset: 3, len: 5000 }, Expect::Written] {
                answers.ask(expect).unwrap();
            }
            let whole = message(StreamId([0, stream]), Status(status), &bytes);
            let _ = heard(&mut answers, &whole, size);
        }
        let _ = opening(Flight::Whole, false).receive(&bytes);
    }

    #[test]
    fn pages_are_taken_out_of_pieces_of_any_size(
        offset in 0u64..10_000,
        bytes in prop::collection::vec(any::<u8>(), 0..20_000),
        size in 1usize..9000,
        bad in prop::option::of(0usize..20_000),
    ) {
        let mut framed = Vec::new();
        pages::frame(offset, &bytes, &mut framed);
        let bad = bad.filter(|bad| *bad < framed.len());
        if let Some(bad) = bad {
            framed[bad] ^= 4;
        }
        let mut unpaging = Unpaging::new(offset, framed.len() as u64);
        let (mut buf, mut found, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
        for piece in framed.chunks(size) {
            buf.extend_from_slice(piece);
            let unpaged = unpaging.take(&mut buf);
            prop_assert_eq!(unpaged.offset, offset + found.len() as u64);
            found.extend_from_slice(&buf[..unpaged.len]);
            wrong.extend(unpaged.wrong);
            buf.drain(..unpaged.rest);
            prop_assert!(buf.len() < pages::UNIT_BYTES);
        }
        prop_assert!(unpaging.is_over() && buf.is_empty());
        prop_assert_eq!(found.len(), bytes.len());
        let differs: Vec<usize> = (0..bytes.len()).filter(|at| found[*at] != bytes[*at]).collect();
        prop_assert_eq!(wrong.len(), usize::from(bad.is_some()));
        for at in differs {
            let (page, len) = wrong[0];
            prop_assert!((page..page + len as u64).contains(&(offset + at as u64)));
        }
    }
}

// --- How it begins ----------------------------------------------------------------------------------------

fn login_user() -> LoginUser {
    let (login, user) = (b"somebody".to_vec(), b"somebody".to_vec());
    LoginUser {
        process: 1,
        login,
        user,
        group: b"some".to_vec(),
        cgi: b"xrd.appname=test".to_vec(),
        token: None,
    }
}

const FIRST: &[u8] = &[9; 24];

fn opening(flight: Flight, must_tls: bool) -> Opening {
    Opening::new(login_user(), Aim::Login, flight, must_tls, FIRST.to_vec())
}

/// The requests of what is sent, behind the handshake if that is there, and `FIRST` by its bytes.
fn sent(bytes: &[u8]) -> Vec<RequestId> {
    let mut rest = bytes.strip_prefix(&frame::HANDSHAKE).unwrap_or(bytes);
    let mut ids = Vec::new();
    while !rest.is_empty() {
        let head = RequestHead::parse(rest.first_chunk().unwrap()).unwrap_or_else(|_| panic!("{rest:?}"));
        if rest == FIRST {
            ids.push(RequestId(0));
            break;
        }
        let end = 24 + head.payload_len as usize;
        assert!(Request::parse(head.id, &head.body, &rest[24..end]).is_ok());
        ids.push(head.id);
        rest = &rest[end..];
    }
    ids
}

const ANY: RequestId = RequestId(0);

fn stream(number: u8) -> StreamId {
    StreamId([0xff, number])
}

fn hello(flags: ServerFlags) -> Vec<u8> {
    let (mut out, mut body) = (Vec::new(), Vec::new());
    HandshakeAnswer { version: 0x511, is_manager: false }.encode(&mut out);
    ProtocolAnswer { version: 0x511, flags, signing: Signing::default() }.encode(&mut body);
    out.extend(ok(stream(1), &body));
    out
}

fn login(methods: &str) -> Vec<u8> {
    let mut body = Vec::new();
    LoginAnswer { session: SessionId([3; 16]), methods: methods.as_bytes().to_vec() }.encode(&mut body);
    ok(stream(2), &body)
}

/// Feeds bytes one by one; the last turn, and how many were left.
fn turn(opening: &mut Opening, bytes: &[u8]) -> Result<(Turn, usize), Refused> {
    let mut ahead = Vec::new();
    for (at, byte) in bytes.iter().enumerate() {
        ahead.push(*byte);
        let (turn, used) = opening.receive(&ahead)?;
        ahead.drain(..used);
        if turn != Turn::Receive {
            assert!(ahead.is_empty());
            return Ok((turn, bytes.len() - at - 1));
        }
    }
    Ok((Turn::Receive, 0))
}

#[test]
fn all_in_one_flight() {
    let mut all = opening(Flight::Whole, false);
    assert_eq!(sent(&all.output()), [RequestId::PROTOCOL, RequestId::LOGIN, ANY]);
    let bytes =
        [hello(ServerFlags::IS_SERVER | ServerFlags::CAN_PAGES), login(""), b"rest".to_vec()].concat();
    assert_eq!(turn(&mut all, &bytes), Ok((Turn::Ready, 4)));
    assert!(all.output().is_empty());
    let session = all.session();
    assert!(session.has_pages() && !session.is_manager() && session.path_id == PathId::MAIN);
    assert_eq!(session.id, SessionId([3; 16]));
    let mut but_one = opening(Flight::Login, false);
    assert_eq!(sent(&but_one.output()), [RequestId::PROTOCOL, RequestId::LOGIN]);
    assert_eq!(turn(&mut but_one, &bytes), Ok((Turn::Ready, 4)));
    assert_eq!(sent(&but_one.output()), [ANY]);
}

#[test]
fn step_by_step() {
    let mut steps = opening(Flight::Steps, false);
    assert_eq!(sent(&steps.output()), [RequestId::PROTOCOL]);
    assert_eq!(turn(&mut steps, &hello(ServerFlags::IS_SERVER)), Ok((Turn::Receive, 0)));
    assert_eq!(sent(&steps.output()), [RequestId::LOGIN]);
    assert_eq!(turn(&mut steps, &wait(stream(2), Status::WAIT, 3, "")), Ok((Turn::Wait(3), 0)));
    steps.again();
    assert_eq!(sent(&steps.output()), [RequestId::LOGIN]);
    let message = message(StreamId::default(), Status::ATTN, b"\0\0\x13\x8ahello");
    assert_eq!(
        turn(&mut steps, &[message, login("&P=gsi,v:1&P=host&P=unix")].concat()),
        Ok((Turn::Receive, 0))
    );
    let auth = steps.output();
    assert_eq!(sent(&auth), [RequestId::AUTH]);
    assert!(auth.ends_with(b"host\0"));
    assert_eq!(turn(&mut steps, &error(stream(3), ErrorCode::AUTH_FAILED, "")), Ok((Turn::Receive, 0)));
    assert!(steps.output().ends_with(b"unix\0somebody some\0"));
    assert_eq!(turn(&mut steps, &deferred(stream(3), Status::OK, b"")), Ok((Turn::Ready, 0)));
    assert_eq!(sent(&steps.output()), [ANY]);
    // Nothing is left to try.
    let mut steps = opening(Flight::Steps, false);
    let refused = turn(&mut steps, &[hello(ServerFlags::NONE), login("&P=gsi,v:1&P=ztn")].concat());
    assert_eq!(refused, Err(Refused::NoMethod("gsi, ztn".into())));
    let mut steps = opening(Flight::Steps, false);
    let no = error(stream(3), ErrorCode::AUTH_FAILED, "no");
    let refused = turn(&mut steps, &[hello(ServerFlags::NONE), login("&P=unix"), no].concat());
    assert!(matches!(refused, Err(Refused::Error(answer)) if answer.text == "no"));
}

#[test]
fn a_token_goes_through_tls_only() {
    let with_token = |must_tls| {
        let who = LoginUser { token: Some(Secret::new("abc")), ..login_user() };
        Opening::new(who, Aim::Login, Flight::Steps, must_tls, Vec::new())
    };
    let mut clear = with_token(false);
    let offers = [hello(ServerFlags::HAS_TLS), login("&P=ztn,0:4096:")].concat();
    assert_eq!(turn(&mut clear, &offers), Err(Refused::TokenWantsTls));
    assert!(!clear.output().windows(3).any(|bytes| bytes == b"abc"));
    // In clear, another way is taken.
    let mut other = with_token(false);
    let offers = [hello(ServerFlags::HAS_TLS), login("&P=ztn,0:4096:&P=unix")].concat();
    assert_eq!(turn(&mut other, &offers), Ok((Turn::Receive, 0)));
    assert!(other.output().ends_with(b"unix\0somebody some\0"));
    for (max, expected) in [("4096", Ok((Turn::Receive, 0))), ("2", Err(Refused::TokenTooLong(2)))] {
        let mut secret = with_token(true);
        assert_eq!(
            turn(&mut secret, &hello(ServerFlags::HAS_TLS | ServerFlags::TLS_LOGIN)),
            Ok((Turn::StartTls, 0))
        );
        assert_eq!(secret.secured(), Ok(Turn::Receive));
        secret.output();
        assert_eq!(turn(&mut secret, &login(&format!("&P=ztn,0:{max}:"))), expected, "{max}");
        if expected.is_ok() {
            assert!(secret.output().ends_with(b"ztn\0\0T\0\0\0\x04abc\0"));
        }
    }
}

/// Answers whatever is asked with what it was asked, until the server has said `enough`.
struct Echo(&'static [u8]);

impl Method for Echo {
    fn name(&self) -> &'static [u8] {
        self.0
    }

    fn begin(&mut self, parameters: &[u8], is_tls: bool) -> Result<Vec<u8>, String> {
        match parameters {
            b"no" => Err("there is no key".into()),
            _ => Ok([self.0, b"\0", parameters, if is_tls { b"!" } else { b"?" }].concat()),
        }
    }

    fn more(&mut self, said: &[u8]) -> Result<Vec<u8>, String> {
        if said == b"enough" { Err("that is enough".into()) } else { Ok(said.to_vec()) }
    }
}

#[test]
fn other_methods_take_as_many_rounds_as_they_need() {
    let begun = |offers: &str| {
        let mut opening =
            opening(Flight::Steps, false).with_methods(vec![Box::new(Echo(b"gsi")), Box::new(Echo(b"sss"))]);
        let turn = turn(&mut opening, &[hello(ServerFlags::NONE), login(offers)].concat());
        (opening, turn)
    };
    let more = |bytes: &[u8]| message(stream(3), Status::AUTHMORE, bytes);
    let (mut opening, _) = begun("&P=gsi,v:1");
    assert!(opening.output().ends_with(b"gsi\0v:1?"));
    for round in [&b"first"[..], b"second"] {
        assert_eq!(turn(&mut opening, &more(round)), Ok((Turn::Receive, 0)));
        let auth = opening.output();
        assert!(auth.ends_with(round) && sent(&auth) == [RequestId::AUTH]);
    }
    assert_eq!(turn(&mut opening, &message(stream(3), Status::OK, b"")), Ok((Turn::Ready, 0)));
    // One that ends here is followed by the next; and the reason is not lost.
    let (mut opening, _) = begun("&P=gsi,v:1&P=sss,no&P=unix");
    opening.output();
    assert_eq!(turn(&mut opening, &more(b"enough")), Ok((Turn::Receive, 0)));
    assert!(opening.output().ends_with(b"unix\0somebody some\0"));
    let (mut opening, _) = begun("&P=gsi,v:1");
    let refused = turn(&mut opening, &more(b"enough"));
    assert_eq!(refused, Err(Refused::Method("gsi".into(), "that is enough".into())));
    let (_, refused) = begun("&P=sss,no");
    assert_eq!(refused, Err(Refused::Method("sss".into(), "there is no key".into())));
    // A method of one round has no more to say.
    let (mut opening, _) = begun("&P=host");
    assert_eq!(turn(&mut opening, &more(b"")), Err(Refused::NoMethod("".into())));
}

#[test]
fn a_token_that_cannot_be_written_is_not_sent() {
    // However much the server would take, or if it does not say.
    for offer in ["&P=ztn", "&P=ztn,0:1000000:"] {
        let who = LoginUser { token: Some(Secret::new("a".repeat(0xffff))), ..login_user() };
        let mut opening = Opening::new(who, Aim::Login, Flight::Steps, true, Vec::new());
        turn(&mut opening, &hello(ServerFlags::HAS_TLS | ServerFlags::TLS_LOGIN)).unwrap();
        opening.secured().unwrap();
        assert_eq!(turn(&mut opening, &login(offer)), Err(Refused::TokenTooLong(0xfffe)), "{offer}");
    }
}

#[test]
fn a_flight_that_the_server_cannot_go_on_with() {
    let tls = |more| hello(ServerFlags::HAS_TLS | more);
    for bytes in [
        tls(ServerFlags::TLS_LOGIN),
        tls(ServerFlags::GOTO_TLS),
        tls(ServerFlags::TLS_SESSION),
        [hello(ServerFlags::NONE), login("&P=unix")].concat(),
        [hello(ServerFlags::NONE), wait(stream(2), Status::WAIT, 3, "")].concat(),
        [hello(ServerFlags::NONE), error(stream(2), ErrorCode::TLS_REQUIRED, "")].concat(),
    ] {
        assert_eq!(turn(&mut opening(Flight::Whole, false), &bytes), Err(Refused::StepByStep));
    }
    // It demands authentication, and may accept more behind TLS.
    let offers = login("&P=unix");
    let mut begun = opening(Flight::Login, false);
    assert_eq!(
        turn(&mut begun, &[tls(ServerFlags::NONE), offers.clone()].concat()),
        Err(Refused::StepByStep)
    );
    let mut begun = opening(Flight::Login, false);
    assert_eq!(turn(&mut begun, &[hello(ServerFlags::NONE), offers].concat()), Ok((Turn::Receive, 0)));
    // That it could do TLS is no reason.
    assert_eq!(turn(&mut opening(Flight::Whole, false), &tls(ServerFlags::NONE)), Ok((Turn::Receive, 0)));
}

#[test]
fn tls_in_front_of_login_and_behind_it() {
    let mut first = opening(Flight::Whole, true);
    assert_eq!(sent(&first.output()), [RequestId::PROTOCOL], "nothing else in clear");
    assert_eq!(
        turn(&mut first, &hello(ServerFlags::HAS_TLS | ServerFlags::GOTO_TLS)),
        Ok((Turn::StartTls, 0))
    );
    assert!(first.output().is_empty());
    assert_eq!(first.secured(), Ok(Turn::Receive));
    assert_eq!(sent(&first.output()), [RequestId::LOGIN, ANY]);
    assert_eq!(turn(&mut first, &login("")), Ok((Turn::Ready, 0)));
    let mut none = opening(Flight::Whole, true);
    assert_eq!(turn(&mut none, &hello(ServerFlags::HAS_TLS)), Err(Refused::NoTls));
    assert!(sent(&none.output()) == [RequestId::PROTOCOL]);
    let mut last = opening(Flight::Steps, false);
    let flags = ServerFlags::HAS_TLS | ServerFlags::TLS_SESSION;
    assert_eq!(turn(&mut last, &[hello(flags), login("")].concat()), Ok((Turn::StartTls, 0)));
    last.output();
    assert_eq!(last.secured(), Ok(Turn::Ready));
    assert_eq!(sent(&last.output()), [ANY]);
}

#[test]
fn a_connection_that_joins_a_session() {
    let bind = |flight| Opening::new(login_user(), Aim::Bind(SessionId([5; 16])), flight, false, Vec::new());
    let mut joins = bind(Flight::Whole);
    assert_eq!(sent(&joins.output()), [RequestId::PROTOCOL, RequestId::BIND]);
    assert_eq!(
        turn(&mut joins, &[hello(ServerFlags::IS_SERVER), ok(stream(2), &[3])].concat()),
        Ok((Turn::Ready, 0))
    );
    assert_eq!(joins.session().path_id, PathId(3));
    for wrong in [ok(stream(2), &[0]), ok(stream(2), b"")] {
        let refused = turn(&mut bind(Flight::Whole), &[hello(ServerFlags::IS_SERVER), wrong].concat());
        assert!(matches!(refused, Err(Refused::Malformed(_))));
    }
    let flags = ServerFlags::HAS_TLS | ServerFlags::TLS_DATA;
    assert_eq!(turn(&mut bind(Flight::Whole), &hello(flags)), Err(Refused::StepByStep));
}

#[test]
fn what_is_no_server_of_this_protocol() {
    for bytes in [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        ok(stream(1), b"12345678"),
        ok(StreamId::default(), b"123"),
        [hello(ServerFlags::NONE), ok(stream(3), &[0; 16])].concat(),
        [hello(ServerFlags::NONE), ok(stream(2), &[0; 15])].concat(),
        [hello(ServerFlags::NONE), message(stream(2), Status::REDIRECT, &[0; 15])].concat(),
    ] {
        let refused = turn(&mut opening(Flight::Whole, false), &bytes);
        assert!(matches!(refused, Err(Refused::Malformed(_))), "{bytes:?}");
    }
}

#[test]
fn what_does_not_answer_the_handshake_is_not_waited_for() {
    for begin in [
        // More is promised than there is to say.
        &b"\0\0\0\0\0\0\0\x10"[..],
        b"\0\0\0\0\0\0\0\x04",
        b"\0\x01\0\0\0\0\0\x08",
        b"\0\0\x0f\xa5\0\0\0\x08",
        b"+OK ready",
    ] {
        let mut opening = Opening::new(login_user(), Aim::Login, Flight::Steps, false, Vec::new());
        assert!(matches!(opening.receive(begin), Err(Refused::Malformed(_))), "{begin:?}");
    }
    let mut opening = Opening::new(login_user(), Aim::Login, Flight::Steps, false, Vec::new());
    assert_eq!(opening.receive(b"\0\0\0\0\0\0\0\x08\0\0"), Ok((Turn::Receive, 0)));
}

#[test]
fn a_server_of_http_is_known_by_its_answer() {
    let bytes = b"HTTP/1.1 400 Bad Request\r\n\r\n";
    match turn(&mut opening(Flight::Whole, false), bytes) {
        Err(Refused::Malformed(wrong)) => {
            assert!(wrong.message.contains("answers in HTTP"), "{}", wrong.message)
        }
        other => panic!("{other:?}"),
    }
}
