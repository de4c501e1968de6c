//! Any request and any answer survives being written and read; whatever is read, nothing panics, and what is kept is not
//! longer than what came.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use gridlane_core::limits::{ATTRIBUTE_NAME_BYTES_MAX, ATTRIBUTE_VALUE_BYTES_MAX, ROOT_ATTRIBUTES_MAX};
use gridlane_core::{Checksum, ChecksumKind};
use gridlane_xrd::answer::{self, *};
use gridlane_xrd::flags::*;
use gridlane_xrd::frame::*;
use gridlane_xrd::registry::*;
use gridlane_xrd::request::*;
use gridlane_xrd::{Handle, PathArg, PathId, Request, SessionId, StreamId, pages};
use proptest::collection::vec;
use proptest::prelude::*;

fn handle() -> impl Strategy<Value = Handle> {
    any::<[u8; 4]>().prop_map(Handle)
}

fn session() -> impl Strategy<Value = SessionId> {
    any::<[u8; 16]>().prop_map(SessionId)
}

/// Values that the wire can have: its numbers have a sign.
fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..10_000, 0..=i64::MAX as u64]
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..10_000, 0..=i32::MAX as u32]
}

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..max)
}

/// Bytes without these.
fn without(not: &'static [u8], least: usize, max: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>().prop_map(move |byte| if not.contains(&byte) { b'x' } else { byte }), least..max)
}

/// Any path that can be told from its CGI, and CGI that can be told from the NUL behind it.
fn path() -> impl Strategy<Value = PathArg> {
    (without(b"?\0", 1, 40), without(b"\0", 0, 40)).prop_map(|(path, cgi)| PathArg::with_cgi(path, cgi))
}

fn about() -> impl Strategy<Value = About> {
    prop_oneof![handle().prop_map(About::Handle), path().prop_map(About::Path)]
}

fn segments() -> impl Strategy<Value = Vec<Segment>> {
    let segment = (handle(), length(), offset());
    vec(segment.prop_map(|(handle, len, offset)| Segment { handle, len, offset }), 1..40)
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    without(b"\n\0", 1, 40)
}

fn fattr() -> impl Strategy<Value = Fattr> {
    let about = prop_oneof![handle().prop_map(FattrAbout::Handle), path().prop_map(FattrAbout::Path)];
    let attribute = (without(b"\0", 1, ATTRIBUTE_NAME_BYTES_MAX), bytes(300));
    (about, 0..4u8, any::<u8>(), vec(attribute, 1..=ROOT_ATTRIBUTES_MAX)).prop_map(
        |(about, kind, options, mut attributes)| {
            let kind = FattrKind(kind);
            if kind != FattrKind::SET {
                attributes.iter_mut().for_each(|(_, value)| value.clear());
            }
            Fattr { about, kind, options: FattrOptions(options), attributes }
        },
    )
}

/// The small ones and those that have no path.
fn short() -> BoxedStrategy<Request> {
    let expect = prop_oneof![
        Just(Expect::Nothing),
        Just(Expect::Bind),
        Just(Expect::Login),
        Just(Expect::TpcLogin),
        (5u8..16).prop_map(Expect::Other)
    ];
    prop_oneof![
        (without(b"\0", 0, 5), bytes(100)).prop_map(|(kind, credentials)| Auth { kind, credentials }.into()),
        session().prop_map(|session| Bind { session }.into()),
        session().prop_map(|session| Endsess { session }.into()),
        (handle(), any::<u8>(), bytes(30)).prop_map(|(handle, kind, inner)| Chkpoint {
            handle,
            kind: ChkpointKind(kind),
            inner
        }
        .into()),
        handle().prop_map(|handle| Close { handle }.into()),
        handle().prop_map(|handle| Sync { handle }.into()),
        Just(Ping.into()),
        (any::<u32>(), any::<u8>(), expect).prop_map(|(version, flags, expect)| Protocol {
            version,
            flags: ClientFlags(flags),
            expect
        }
        .into()),
        (any::<u32>(), without(b"\0", 0, 9), any::<[u8; 3]>(), bytes(100)).prop_map(
            |(process, user, [abilities_more, abilities, version], cgi)| Login {
                process,
                user,
                abilities: Abilities(abilities),
                abilities_more,
                version,
                cgi
            }
            .into()
        ),
        (handle(), offset(), length(), any::<u8>()).prop_map(|(handle, offset, len, id)| Read {
            handle,
            offset,
            len,
            path_id: PathId(id)
        }
        .into()),
        (handle(), offset(), length(), any::<u8>(), any::<bool>()).prop_map(
            |(handle, offset, len, id, is_retry)| PgRead {
                handle,
                offset,
                len: len.max(1),
                path_id: PathId(id),
                is_retry
            }
            .into()
        ),
        (handle(), offset(), any::<u8>()).prop_map(|(handle, offset, id)| Write {
            handle,
            offset,
            path_id: PathId(id)
        }
        .into()),
        (handle(), offset(), any::<u8>(), any::<bool>()).prop_map(|(handle, offset, id, is_retry)| PgWrite {
            handle,
            offset,
            path_id: PathId(id),
            is_retry
        }
        .into()),
        (any::<u8>(), segments()).prop_map(|(id, segments)| ReadV { path_id: PathId(id), segments }.into()),
        (any::<bool>(), segments()).prop_map(|(syncs, segments)| WriteV { syncs, segments }.into()),
        (any::<u16>(), any::<bool>(), offset(), any::<u8>(), bytes(40)).prop_map(
            |(id, leaves_payload_out, number, algorithm, signature)| Sigver {
                expected: RequestId(id),
                leaves_payload_out,
                number,
                algorithm,
                signature
            }
            .into()
        ),
        (handle(), vec((handle(), offset(), offset(), offset()), 1..40)).prop_map(|(to, ranges)| {
            let range =
                |(handle, offset, len, target_offset)| CloneRange { handle, offset, len, target_offset };
            gridlane_xrd::request::Clone { handle: to, ranges: ranges.into_iter().map(range).collect() }
                .into()
        }),
    ]
    .boxed()
}

/// Those that have paths or texts.
fn named() -> BoxedStrategy<Request> {
    prop_oneof![
        (path(), any::<u16>()).prop_map(|(about, mode)| Chmod { about, mode }.into()),
        (path(), any::<u8>()).prop_map(|(about, options)| Dirlist {
            about,
            options: DirlistOptions(options)
        }
        .into()),
        (path(), any::<u16>())
            .prop_map(|(about, options)| Locate { about, options: LocateOptions(options) }.into()),
        (path(), any::<bool>(), any::<u16>()).prop_map(|(about, parents, mode)| Mkdir {
            about,
            parents,
            mode
        }
        .into()),
        (path(), path()).prop_map(|(from, to)| Mv { from, to }.into()),
        (any::<[u16; 3]>(), handle(), path()).prop_map(|([mode, options, more], template, about)| Open {
            mode,
            options: OpenOptions(options),
            more: OpenMore(more),
            template,
            about
        }
        .into()),
        (any::<[u8; 2]>(), any::<u16>(), any::<bool>(), vec(line(), 0..9)).prop_map(
            |([options, priority], port, evicts, lines)| Prepare {
                options: PrepareOptions(options),
                priority,
                port,
                evicts,
                lines
            }
            .into()
        ),
        (any::<u16>(), handle(), bytes(60)).prop_map(|(kind, handle, argument)| Query {
            kind: QueryKind(kind),
            handle,
            argument
        }
        .into()),
        path().prop_map(|about| Rm { about }.into()),
        path().prop_map(|about| Rmdir { about }.into()),
        (any::<u8>(), without(b"\0", 0, 40)).prop_map(|(modifier, text)| Set { modifier, text }.into()),
        (about(), any::<bool>(), any::<u32>()).prop_map(|(about, is_vfs, wants)| Stat {
            about,
            is_vfs,
            wants
        }
        .into()),
        vec(line(), 0..9).prop_map(|paths| Statx { paths }.into()),
        (about(), offset()).prop_map(|(about, size_bytes)| Truncate { about, size_bytes }.into()),
        fattr().prop_map(Request::from),
    ]
    .boxed()
}

fn stat_text() -> impl Strategy<Value = StatText> {
    let word = || without(b" \n\0[", 1, 20);
    let more = (any::<[i64; 2]>(), any::<u32>(), word(), word());
    let more = more.prop_map(|([changed_s, accessed_s], mode, user, group)| StatMore {
        changed_s,
        accessed_s,
        mode,
        user,
        group,
    });
    (any::<[u64; 2]>(), any::<u32>(), any::<i64>(), prop::option::of(more)).prop_map(
        |([id, size_bytes], flags, modified_s, more)| StatText {
            id,
            size_bytes,
            flags: StatFlags(flags),
            modified_s,
            more,
        },
    )
}

fn entry() -> impl Strategy<Value = Entry> {
    let name = without(b"\n\0", 1, 20).prop_filter("an entry", |name| name != b"." && name != b"..");
    let checksum =
        prop::option::of("[0-9a-f]{8}".prop_map(|value| (b"adler32".to_vec(), value.into_bytes())));
    (name, stat_text(), checksum).prop_map(|(name, stat, checksum)| Entry {
        name,
        stat: Some(stat),
        checksum,
    })
}

fn host() -> impl Strategy<Value = String> {
    let four = (1u8.., any::<[u8; 3]>()).prop_map(|(a, [b, c, d])| format!("{a}.{b}.{c}.{d}"));
    prop_oneof!["[a-z][a-z0-9.-]{0,20}", four, "2001:db8(:[1-9a-f]{1,4}){6}"]
}

fn written<T>(value: &T, write: impl Fn(&T, &mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(value, &mut out);
    out
}

proptest! {
    #[test]
    fn requests(request in prop_oneof![short(), named()], stream in any::<[u8; 2]>(), data_len in 0u32..1000) {
        let data_len = if carries_data(request.id()) { data_len } else { 0 };
        let mut out = Vec::new();
        request.encode_for(StreamId(stream), data_len, &mut out);
        let (head, payload) = out.split_first_chunk::<REQUEST_HEAD_BYTES>().unwrap();
        let head = RequestHead::parse(head).unwrap();
        prop_assert_eq!((head.stream, head.id), (StreamId(stream), request.id()));
        prop_assert_eq!(head.payload_len as usize, payload.len() + data_len as usize);
        prop_assert_eq!(Request::parse(head.id, &head.body, payload).unwrap(), request.clone());
        // A NUL behind it, as some clients have it, changes nothing.
        if let Request::Open(_) | Request::Rm(_) | Request::Mv(_) | Request::Locate(_) | Request::Statx(_) = request {
            let with_nul = [payload, &[0]].concat();
            prop_assert_eq!(Request::parse(head.id, &head.body, &with_nul).unwrap(), request);
        }
    }

    #[test]
    fn whatever_is_asked(id in 2999u16..3034, body in any::<[u8; 16]>(), payload in bytes(300)) {
        if let Ok(request) = Request::parse(RequestId(id), &body, &payload) {
            // What is read is written and read the same: nothing is in it that was not there.
            let mut out = Vec::new();
            request.encode_for(StreamId([1, 2]), 0, &mut out);
            // One NUL at the end is not part of a text; of several the others are.
            let several = payload.iter().filter(|byte| **byte == 0).count() > 1;
            let is_text = !matches!(request, Request::Auth(_) | Request::Chkpoint(_) | Request::Fattr(_));
            // An empty path cannot be told from none. A text ends at its first NUL.
            let text = payload.split(|byte| *byte == 0).next().unwrap_or_default();
            let is_nothing = !payload.is_empty() && (text.is_empty() || text == b"?");
            if is_text && (several || is_nothing) {
                return Ok(());
            }
            prop_assert!(out.len() <= REQUEST_HEAD_BYTES + payload.len() + 9, "{request:?}");
            let (head, payload) = out.split_first_chunk::<REQUEST_HEAD_BYTES>().unwrap();
            let head = RequestHead::parse(head).unwrap();
            prop_assert_eq!(Request::parse(head.id, &head.body, payload).unwrap(), request);
        }
    }

    #[test]
    fn heads(bytes in any::<[u8; 24]>()) {
        if let Ok(head) = RequestHead::parse(&bytes) {
            prop_assert_eq!(head.encode(), bytes);
        }
        let bytes = *bytes.first_chunk::<8>().unwrap();
        if let Ok(head) = ResponseHead::parse(&bytes) {
            prop_assert_eq!(head.encode(), bytes);
        }
    }

    #[test]
    fn beginnings(version in any::<u32>(), flags in any::<u32>(), level in 0u8..5, forced in any::<bool>(), is_manager in any::<bool>(), session in session(), methods in without(b"\0", 0, 40)) {
        let hello = HandshakeAnswer { version, is_manager };
        let out = written(&hello, HandshakeAnswer::encode);
        prop_assert_eq!(HandshakeAnswer::parse(&out[RESPONSE_HEAD_BYTES..]), Ok(hello));
        let (is_forced, exceptions) = (forced && level > 0, Exceptions::default());
        let signing = Signing { level, is_forced, signs_data: level > 2, exceptions };
        let protocol = ProtocolAnswer { version, flags: ServerFlags(flags), signing };
        prop_assert_eq!(ProtocolAnswer::parse(&written(&protocol, ProtocolAnswer::encode)), Ok(protocol));
        let login = LoginAnswer { session, methods };
        prop_assert_eq!(LoginAnswer::parse(&written(&login, LoginAnswer::encode)), Ok(login));
    }

    #[test]
    fn what_goes_wrong(code in any::<u32>(), text in "[^\0]{0,60}", seconds in 0..=i32::MAX as u32, stream in any::<[u8; 2]>(), body in bytes(60)) {
        let stream = StreamId(stream);
        let error = ErrorAnswer { code: ErrorCode(code), text: text.clone() };
        prop_assert_eq!(ErrorAnswer::parse(&answer::error(stream, error.code, &text)[8..]), Ok(error));
        let wait = WaitAnswer { seconds, text: text.clone() };
        prop_assert_eq!(WaitAnswer::parse(&answer::wait(stream, Status::WAIT, seconds, &text)[8..]), Ok(wait));
        let later = answer::deferred(stream, Status::OK, &body);
        let head = ResponseHead { stream, status: Status::OK, len: body.len() as u32 };
        prop_assert_eq!(AttnAnswer::parse(&later[8..]), Ok(AttnAnswer::Response(head, body)));
    }

    #[test]
    fn elsewhere(port in 1u16.., host in "[a-z0-9.-]{1,20}|[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}", cgi in without(b"?\0", 1, 30), token in without(b"\0", 0, 30), url in "[a-z]{1,6}://[^\0]{1,20}", flags in 0u32..0x8000) {
        for cgi in [cgi, Vec::new()] {
            let token = if cgi.is_empty() { Vec::new() } else { token.clone() };
            let redirect = Redirect::Host { host: host.clone(), port, cgi, token };
            prop_assert_eq!(Redirect::parse(&written(&redirect, Redirect::encode)), Ok(redirect));
        }
        // The number of no flags is that of the lowest one.
        let redirect = Redirect::Url { url, flags: flags & !1 };
        prop_assert_eq!(Redirect::parse(&written(&redirect, Redirect::encode)), Ok(redirect));
    }

    #[test]
    fn pages_and_corrections(stream in any::<[u8; 2]>(), request in 3000u16..3033, is_partial in any::<bool>(), data_len in length(), offset in offset(), first_len in 1u16..4097, last_len in 1u16..4097, offsets in vec(offset(), 1..130)) {
        let answer = StatusAnswer { stream: StreamId(stream), request: RequestId(request), is_partial, data_len, offset };
        let out = answer.encode();
        prop_assert_eq!(StatusAnswer::parse(out[8..].first_chunk().unwrap()), Ok(answer));
        let corrections = Corrections { first_len, last_len: if offsets.len() == 1 { first_len } else { last_len }, offsets };
        prop_assert_eq!(Corrections::parse(&corrections.encode()), Ok(corrections.clone()));
        prop_assert_eq!(Corrections::of(&corrections.pages()), Some(corrections));
    }

    #[test]
    fn files(stat in stat_text(), handle in handle(), vfs in any::<[u64; 6]>(), space in any::<[u64; 4]>(), quota in prop::option::of(any::<u64>())) {
        prop_assert_eq!(StatText::parse(&written(&stat, StatText::write)), Ok(stat.clone()));
        for stat in [Some(stat), None] {
            let open = OpenAnswer { handle, stat };
            prop_assert_eq!(OpenAnswer::parse(&written(&open, OpenAnswer::encode)), Ok(open));
        }
        let [nodes, free_mib, used_percent, staging_nodes, staging_free_mib, staging_used_percent] = vfs;
        let vfs = VfsText { nodes, free_mib, used_percent, staging_nodes, staging_free_mib, staging_used_percent };
        prop_assert_eq!(VfsText::parse(&written(&vfs, VfsText::write)), Ok(vfs));
        let [total_bytes, free_bytes, largest_bytes, used_bytes] = space;
        let space = SpaceText { total_bytes, free_bytes, largest_bytes, used_bytes, quota_bytes: quota };
        prop_assert_eq!(SpaceText::parse(space.encode().as_bytes()), Some(space));
    }

    #[test]
    fn checksums(digits in "[0-9a-f]{8}") {
        for kind in [ChecksumKind::Adler32, ChecksumKind::Crc32c] {
            let checksum = Checksum::from_hex(kind, &digits).unwrap();
            prop_assert_eq!(parse_checksum(&checksum_text(&checksum)), Some(checksum));
        }
        // As some write it, without leading zeros.
        let short = digits.trim_start_matches('0');
        if !short.is_empty() {
            let text = format!("adler32 {short}\0");
            prop_assert_eq!(parse_checksum(text.as_bytes()), Checksum::from_hex(ChecksumKind::Adler32, &digits));
        }
    }

    #[test]
    fn listings(entries in vec(entry(), 0..20), cuts in vec(0usize..600, 0..6), with_stat in any::<bool>()) {
        let mut text = if with_stat { STAT_SENTINEL.to_vec() } else { Vec::new() };
        let mut expected = entries;
        for entry in &mut expected {
            match (&entry.stat, with_stat) {
                (Some(stat), true) => {
                    let checksum = entry.checksum.as_ref().map(|(_, value)| format!("adler32:{}", String::from_utf8_lossy(value)));
                    write_entry(&entry.name, stat, checksum.as_deref(), &mut text);
                }
                _ => {
                    write_name(&entry.name, &mut text);
                    (entry.stat, entry.checksum) = (None, None);
                }
            }
        }
        finish_dirlist(&mut text);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.sort();
        let (mut reader, mut found, mut begin) = (DirlistReader::default(), Vec::new(), 0);
        for cut in cuts {
            reader.read(&text[begin..cut], false, &mut found).unwrap();
            begin = cut;
        }
        reader.read(&text[begin..], true, &mut found).unwrap();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn attributes(outcomes in vec((without(b"\0", 1, 20), prop::result::maybe_err(bytes(40), (3000u32..3036).prop_map(ErrorCode))), 0..=ROOT_ATTRIBUTES_MAX), with_values in any::<bool>()) {
        let mut list: Vec<Attribute> = outcomes.iter().map(|(name, value)| (name.clone(), value.clone().unwrap_or_default())).collect();
        let mut answer = FattrAnswer { outcomes };
        if !with_values {
            answer.outcomes.iter_mut().filter_map(|(_, outcome)| outcome.as_mut().ok()).for_each(Vec::clear);
            list.iter_mut().for_each(|(_, value)| value.clear());
        }
        let mut out = Vec::new();
        answer.encode(with_values, &mut out);
        prop_assert_eq!(FattrAnswer::parse(&out, with_values), Ok(answer));
        let mut out = Vec::new();
        write_fattr_list(&list, with_values, &mut out);
        prop_assert_eq!(parse_fattr_list(&out, with_values), Ok(list));
    }

    #[test]
    fn locations(is_manager in any::<bool>(), is_pending in any::<bool>(), is_writable in any::<bool>(), host in host(), port in any::<u16>()) {
        let location = Location { is_manager, is_pending, is_writable, host, port };
        prop_assert_eq!(Location::parse_all(&written(&location, Location::write)), [location]);
    }

    #[test]
    fn whatever_is_answered(body in bytes(200), offset in any::<u64>(), is_text in any::<bool>()) {
        let body = if is_text { body.iter().map(|byte| b"S[]:.0179 ra&=?\n\0"[*byte as usize % 17]).collect() } else { body };
        let _ = HandshakeAnswer::parse(&body);
        let _ = ProtocolAnswer::parse(&body);
        let _ = LoginAnswer::parse(&body).map(|answer| answer.method_list().count());
        let _ = OpenAnswer::parse(&body);
        let _ = StatText::parse(&body);
        let _ = VfsText::parse(&body);
        let _ = SpaceText::parse(&body);
        let _ = parse_checksum(&body);
        let _ = ErrorAnswer::parse(&body);
        let _ = WaitAnswer::parse(&body);
        let _ = AttnAnswer::parse(&body);
        let _ = Corrections::parse(&body).map(|corrections| corrections.pages());
        if let Ok(redirect) = Redirect::parse(&body) {
            let _ = Redirect::parse(&written(&redirect, Redirect::encode)).unwrap();
        }
        for with_values in [true, false] {
            let _ = FattrAnswer::parse(&body, with_values);
            let _ = parse_fattr_list(&body, with_values);
        }
        for location in Location::parse_all(&body) {
            prop_assert_eq!(Location::parse_all(&written(&location, Location::write)), [location]);
        }
        let _ = DirlistReader::default().read(&body, true, &mut Vec::new());
        if let Some((bytes, _)) = pages::unframe(offset, &body) {
            prop_assert!(bytes.len() <= body.len());
        }
    }
}

#[test]
fn the_longest_attribute() {
    let name = vec![b'n'; ATTRIBUTE_NAME_BYTES_MAX];
    let outcomes = vec![(name.clone(), Ok(vec![7; ATTRIBUTE_VALUE_BYTES_MAX]))];
    let mut out = Vec::new();
    FattrAnswer { outcomes: outcomes.clone() }.encode(true, &mut out);
    assert_eq!(FattrAnswer::parse(&out, true).unwrap().outcomes, outcomes);
    let attributes = vec![(name, vec![7; ATTRIBUTE_VALUE_BYTES_MAX])];
    let about = FattrAbout::Handle(Handle([1; 4]));
    let set = Fattr { about, kind: FattrKind::SET, options: FattrOptions::NONE, attributes };
    let bytes = set.to_bytes(StreamId([0, 1]));
    assert_eq!(Fattr::parse(&set.body(), &bytes[REQUEST_HEAD_BYTES..]), Ok(set));
}
