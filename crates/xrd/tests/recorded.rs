//! Everything that XRootD's tools and servers were recorded to say is understood, and written as they wrote it.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

#[allow(unreachable_pub)] // it is a module of another crate
#[path = "../../../fuzz/targets/src/recorded.rs"]
mod recorded;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use gridlane_xrd::answer::{self, *};
use gridlane_xrd::flags::{DirlistOptions, FattrOptions};
use gridlane_xrd::frame::*;
use gridlane_xrd::path::pairs;
use gridlane_xrd::registry::FattrKind;
use gridlane_xrd::request::{Segment, carries_data};
use gridlane_xrd::{QueryKind, Request, RequestId, Status, StreamId, pages};

/// One end's bytes that are not read.
#[derive(Default)]
struct Side {
    bytes: Vec<u8>,
    greeted: bool,
}

#[derive(Default)]
struct Replay {
    clients: HashMap<u32, Side>,
    servers: HashMap<u32, Side>,
    /// The requests on a connection, for reading their answers.
    asked: HashMap<(u32, StreamId), Request>,
    requests: BTreeSet<RequestId>,
    statuses: BTreeSet<Status>,
}

impl Replay {
    fn client(&mut self, connection: u32, bytes: &[u8]) {
        let side = self.clients.entry(connection).or_default();
        side.bytes.extend_from_slice(bytes);
        if !side.greeted && side.bytes.len() >= HANDSHAKE_BYTES {
            assert_eq!(side.bytes[..HANDSHAKE_BYTES], HANDSHAKE);
            side.bytes.drain(..HANDSHAKE_BYTES);
            side.greeted = true;
        }
        while let Some(head) = side.bytes.first_chunk::<REQUEST_HEAD_BYTES>() {
            let head = RequestHead::parse(head).unwrap();
            let whole = REQUEST_HEAD_BYTES + head.payload_len as usize;
            if side.bytes.len() < whole {
                break;
            }
            let message: Vec<u8> = side.bytes.drain(..whole).collect();
            self.requests.insert(head.id);
            if head.id == RequestId::GPFILE {
                // Asked for by the recorder itself; no server knows it.
                assert!(Request::parse(head.id, &head.body, &message[REQUEST_HEAD_BYTES..]).is_err());
                continue;
            }
            let payload = if carries_data(head.id) { &[] } else { &message[REQUEST_HEAD_BYTES..] };
            let request = Request::parse(head.id, &head.body, payload)
                .unwrap_or_else(|wrong| panic!("{wrong:?}: {message:02x?}"));
            if let Request::WriteV(write) = &request {
                side.bytes.drain(..write.data_len() as usize);
            }
            let mut again = Vec::new();
            if carries_data(head.id) {
                request.encode_for(head.stream, head.payload_len, &mut again);
                again.extend_from_slice(&message[REQUEST_HEAD_BYTES..]);
                if let Request::PgWrite(write) = &request {
                    pages::unframe(write.offset, &message[REQUEST_HEAD_BYTES..]).unwrap();
                }
            } else {
                request.encode_for(head.stream, 0, &mut again);
            }
            assert_eq!(as_written(&request, again), as_written(&request, message), "{request:?}");
            self.asked.insert((connection, head.stream), request);
        }
    }

    fn server(&mut self, connection: u32, bytes: &[u8]) {
        let side = self.servers.entry(connection).or_default();
        side.bytes.extend_from_slice(bytes);
        while let Some(head) = side.bytes.first_chunk::<RESPONSE_HEAD_BYTES>() {
            let head = ResponseHead::parse(head).unwrap();
            let mut whole = RESPONSE_HEAD_BYTES + head.len as usize;
            if side.bytes.len() < whole {
                break;
            }
            if head.status == Status::STATUS {
                let answer =
                    StatusAnswer::parse(side.bytes[RESPONSE_HEAD_BYTES..].first_chunk().unwrap()).unwrap();
                assert_eq!(answer.encode(), side.bytes[..StatusAnswer::BYTES]);
                assert_eq!(answer.stream, head.stream);
                whole += answer.data_len as usize;
                if side.bytes.len() < whole {
                    break;
                }
            }
            let message: Vec<u8> = side.bytes.drain(..whole).collect();
            let body = &message[RESPONSE_HEAD_BYTES..];
            self.statuses.insert(head.status);
            if !std::mem::replace(&mut side.greeted, true) {
                let mut again = Vec::new();
                HandshakeAnswer::parse(body).unwrap().encode(&mut again);
                assert_eq!(again, message);
                continue;
            }
            if head.status == Status::ATTN {
                let AttnAnswer::Response(inner, body) = AttnAnswer::parse(body).unwrap() else {
                    panic!("{message:02x?}");
                };
                assert_eq!(answer::deferred(inner.stream, inner.status, &body), message);
                check(&self.asked[&(connection, inner.stream)], inner.status, &body);
                continue;
            }
            // On a bound connection comes what was asked for on the session's first.
            let asked = self.asked.get(&(connection, head.stream));
            match asked.or_else(|| self.asked.get(&(1, head.stream))) {
                Some(request) => check(request, head.status, body),
                None => assert_eq!(head.status, Status::ERROR, "an answer to nothing"),
            }
        }
    }
}

/// Without what may be written in several ways.
fn as_written(request: &Request, mut message: Vec<u8>) -> Vec<u8> {
    let mut payload = message.split_off(REQUEST_HEAD_BYTES);
    match request {
        // Ours begins with `?`, for a server that leaves out the first byte.
        Request::Login(_) if payload.first() == Some(&b'?') => drop(payload.remove(0)),
        // With a NUL behind the text, or none.
        Request::Query(_) | Request::Rm(_) if payload.last() == Some(&0) => drop(payload.pop()),
        // With a path id of 0, or none.
        Request::Read(_) | Request::PgRead(_) if payload.iter().all(|byte| *byte == 0) => payload.clear(),
        // With the first path's length, or none.
        Request::Mv(_) => message[18..20].fill(0),
        _ => {}
    }
    message[REQUEST_HEAD_BYTES - 4..].fill(0);
    message.extend_from_slice(&payload);
    message
}

/// Reads what is behind the head, and writes it again.
fn check(request: &Request, status: Status, body: &[u8]) {
    let stream = StreamId([1, 2]);
    let mut again = Vec::new();
    match status {
        Status::ERROR => {
            let error = ErrorAnswer::parse(body).unwrap();
            assert!(error.code.name().is_some() && !error.text.is_empty());
            let message = answer::error(stream, error.code, &error.text);
            again.extend_from_slice(&message[RESPONSE_HEAD_BYTES..]);
        }
        Status::REDIRECT => Redirect::parse(body).unwrap().encode(&mut again),
        Status::WAIT | Status::WAITRESP => {
            let wait = WaitAnswer::parse(body).unwrap();
            let message = answer::wait(stream, status, wait.seconds, &wait.text);
            again.extend_from_slice(&message[RESPONSE_HEAD_BYTES..]);
        }
        Status::STATUS => {
            let data = &body[STATUS_BYTES..];
            let answer = StatusAnswer::parse(body.first_chunk().unwrap()).unwrap();
            assert_eq!(answer.request, request.id());
            again.extend_from_slice(&body[..STATUS_BYTES]);
            match request {
                Request::PgRead(_) => {
                    let (bytes, wrong) = pages::unframe(answer.offset, data).unwrap();
                    assert_eq!(wrong, []);
                    pages::frame(answer.offset, &bytes, &mut again);
                }
                Request::PgWrite(_) if data.is_empty() => {}
                Request::PgWrite(_) => again.extend_from_slice(&Corrections::parse(data).unwrap().encode()),
                other => panic!("{other:?}"),
            }
        }
        Status::OK | Status::OKSOFAR => again = written_again(request, body),
        other => panic!("{other:?}"),
    }
    assert_eq!(again, body, "{request:?} {status:?}");
}

fn written_again(request: &Request, body: &[u8]) -> Vec<u8> {
    let mut again = Vec::new();
    match request {
        Request::Protocol(_) => ProtocolAnswer::parse(body).unwrap().encode(&mut again),
        Request::Login(_) => {
            let answer = LoginAnswer::parse(body).unwrap();
            answer.encode(&mut again);
            // The ways of authentication end with NUL, or do not.
            again.extend(body.last().filter(|last| **last == 0 && !answer.methods.is_empty()));
        }
        Request::Open(_) => OpenAnswer::parse(body).unwrap().encode(&mut again),
        Request::Stat(stat) => {
            match stat.is_vfs {
                true => VfsText::parse(body).unwrap().write(&mut again),
                false => StatText::parse(body).unwrap().write(&mut again),
            }
            again.push(0);
        }
        Request::Dirlist(dirlist) => {
            let mut entries = Vec::new();
            DirlistReader::default().read(body, true, &mut entries).unwrap();
            let with_checksums = dirlist.options.has(DirlistOptions::CHECKSUM);
            if with_checksums || dirlist.options.has(DirlistOptions::STAT) {
                again.extend_from_slice(STAT_SENTINEL);
            }
            for entry in &entries {
                let known = entry.checksum.as_ref().map(|(kind, value)| [&kind[..], b":", value].concat());
                let known = String::from_utf8(known.unwrap_or(b"adler32:none".to_vec())).unwrap();
                let checksum = with_checksums.then_some(known);
                match &entry.stat {
                    Some(stat) => write_entry(&entry.name, stat, checksum.as_deref(), &mut again),
                    None => write_name(&entry.name, &mut again),
                }
            }
            finish_dirlist(&mut again);
        }
        Request::Locate(_) => {
            for location in Location::parse_all(body) {
                again.extend((!again.is_empty()).then_some(b' '));
                location.write(&mut again);
            }
            again.push(0);
        }
        Request::Query(query) if query.kind == QueryKind::CHECKSUM => {
            again = checksum_text(&parse_checksum(body).unwrap());
        }
        Request::Query(query) if query.kind == QueryKind::SPACE => {
            let known = |text: &[u8]| {
                let text = text.split(|byte| *byte == 0).next().unwrap();
                let owned = |(key, value): (&[u8], &[u8])| (key.to_vec(), value.to_vec());
                pairs(text).map(owned).collect::<BTreeMap<_, _>>()
            };
            assert_eq!(known(SpaceText::parse(body).unwrap().encode().as_bytes()), known(body));
            again = body.to_vec();
        }
        Request::Fattr(fattr) if fattr.kind == FattrKind::LIST => {
            let with_values = fattr.options.has(FattrOptions::VALUES);
            write_fattr_list(&parse_fattr_list(body, with_values).unwrap(), with_values, &mut again);
        }
        Request::Fattr(fattr) => {
            let with_values = fattr.kind == FattrKind::GET;
            FattrAnswer::parse(body, with_values).unwrap().encode(with_values, &mut again);
        }
        Request::ReadV(read) => {
            let mut rest = body;
            for asked in &read.segments {
                let (description, behind) = rest.split_first_chunk::<{ Segment::BYTES }>().unwrap();
                let segment = Segment::parse(description).unwrap();
                assert_eq!(segment, *asked);
                segment.write(&mut again);
                let (bytes, behind) = behind.split_at(segment.len as usize);
                again.extend_from_slice(bytes);
                rest = behind;
            }
        }
        // Bytes, texts and nothing at all.
        _ => again = body.to_vec(),
    }
    again
}

#[test]
fn what_was_recorded_is_understood_and_written_alike() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/root");
    let (mut requests, mut statuses) = (BTreeSet::new(), BTreeSet::new());
    for conversation in recorded::conversations(&dir) {
        println!("{}", conversation.name);
        let mut replay = Replay::default();
        for said in &conversation.said {
            match said.is_client {
                true => replay.client(said.connection, &said.bytes),
                false => replay.server(said.connection, &said.bytes),
            }
        }
        // Nothing is left over.
        assert!(replay.clients.values().chain(replay.servers.values()).all(|side| side.bytes.is_empty()));
        requests.append(&mut replay.requests);
        statuses.append(&mut replay.statuses);
    }
    // What tools and servers of today do not say is only what is newer than they are.
    let missing: Vec<_> = RequestId::KNOWN.iter().filter(|id| !requests.contains(id)).collect();
    assert_eq!(missing, [&RequestId::CLONE]);
    let missing: Vec<_> = Status::KNOWN.iter().filter(|status| !statuses.contains(status)).collect();
    assert_eq!(missing, [&Status::AUTHMORE]);
}
