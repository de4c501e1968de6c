//! Files that are written over root://: their bytes afterwards, the clients' answers, and what other clients see
//! meanwhile.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "it/support/mod.rs"]
mod support;

use gridlane_auth::policy::{Principal, Template};
use gridlane_auth::{Grants, Policy, Rule};
use gridlane_core::checksum::adler32;
use gridlane_core::{Network, limits};
use gridlane_xrd::flags::{OpenOptions, StatFlags};
use gridlane_xrd::pages::{self, UNIT_BYTES};
use gridlane_xrd::registry::ChkpointKind;
use gridlane_xrd::request::{About, Chkpoint, Clone, CloneRange, Segment, Sync, WriteV};
use gridlane_xrd::{ErrorCode, Handle, PathArg, Request, Status};
use support::root::RootClient;
use support::{TestServer, noise};

const NEW: OpenOptions = OpenOptions(OpenOptions::NEW.0 | OpenOptions::UPDATE.0);
const REPLACE: OpenOptions = OpenOptions(OpenOptions::DELETE.0 | OpenOptions::UPDATE.0);
const POSC: OpenOptions = OpenOptions(NEW.0 | OpenOptions::POSC.0);
const UPDATE: OpenOptions = OpenOptions::UPDATE;
const READ: OpenOptions = OpenOptions::READ;

fn code<T: std::fmt::Debug>(outcome: Result<T, (ErrorCode, String)>) -> ErrorCode {
    outcome.unwrap_err().0
}

fn framed(offset: u64, bytes: &[u8]) -> Vec<u8> {
    let mut framed = Vec::new();
    pages::frame(offset, bytes, &mut framed);
    framed
}

#[test]
fn the_options_of_an_open_and_the_existing_file_decide() {
    let server = TestServer::start();
    server.write("there", "old bytes");
    std::fs::create_dir(server.path("dir")).unwrap();
    let mut client = RootClient::connect(server.address);
    let both = OpenOptions(NEW.0 | OpenOptions::DELETE.0);
    for (path, options, expected) in [
        ("/there", NEW, ErrorCode::ITEM_EXISTS),
        ("/there", both, ErrorCode::ITEM_EXISTS),
        ("/none", UPDATE, ErrorCode::NOT_FOUND),
        ("/none", OpenOptions::WRITE, ErrorCode::NOT_FOUND),
        ("/no/parent", NEW, ErrorCode::NOT_FOUND),
        ("/there/below", NEW, ErrorCode::NOT_FOUND),
        ("/dir", NEW, ErrorCode::ITEM_EXISTS),
        ("/dir", REPLACE, ErrorCode::IS_DIRECTORY),
        ("/dir", UPDATE, ErrorCode::IS_DIRECTORY),
        ("/dir", READ, ErrorCode::IS_DIRECTORY),
        ("/", REPLACE, ErrorCode::IS_DIRECTORY),
        ("/.gridlane/x", NEW, ErrorCode::NOT_FOUND),
        ("/../x", NEW, ErrorCode::NOT_AUTHORIZED),
        ("x", NEW, ErrorCode::NOT_AUTHORIZED),
        ("/x?tpc.stage=copy&tpc.key=k", NEW, ErrorCode::ARG_INVALID),
    ] {
        assert_eq!(code(client.open(path, options)), expected, "{path} {options:?}");
    }
    assert_eq!(server.read("there").unwrap(), b"old bytes");
    // Parents are made where that is asked for, in either way.
    for (path, options) in [("/a/b/c", OpenOptions::MKPATH), ("/d/e/f", OpenOptions::ASYNC)] {
        let handle = client.open(path, OpenOptions(NEW.0 | options.0)).unwrap();
        client.write(handle, 0, b"x").unwrap();
        client.close(handle).unwrap();
        assert_eq!(server.read(&path[1..]).unwrap(), b"x");
    }
    // To make it is to write it, whatever else is said. To append alone is to read.
    let handle = client.open("/made", OpenOptions::NEW).unwrap();
    client.write(handle, 0, b"made").unwrap();
    client.close(handle).unwrap();
    let handle = client.open("/made", OpenOptions::APPEND).unwrap();
    assert_eq!(code(client.write(handle, 0, b"x")), ErrorCode::FILE_NOT_OPEN);
    assert_eq!(code(client.truncate(About::Handle(handle), 1)), ErrorCode::FILE_NOT_OPEN);
    client.ask(Sync { handle }, &[]).unwrap();
    client.close(handle).unwrap();
    assert_eq!(code(client.close(handle)), ErrorCode::FILE_NOT_OPEN);
    let handle = client.open("/made", UPDATE).unwrap();
    client.write(handle, 2, b"XYZ").unwrap();
    assert_eq!(client.read(handle, 0, 100).unwrap(), b"maXYZ");
    client.close(handle).unwrap();
    let handle = client.open("/there", REPLACE).unwrap();
    assert_eq!(server.read("there").unwrap(), b"");
    client.close(handle).unwrap();
    assert_eq!(server.read("made").unwrap(), b"maXYZ");
}

/// This process's own. The system call sets it as well, for all other tests that run.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:")).unwrap();
    u32::from_str_radix(line.trim(), 8).unwrap()
}

#[test]
fn an_open_has_the_metadata_and_keeps_to_the_rules_of_modes() {
    use std::os::unix::fs::PermissionsExt;
    let server = TestServer::start();
    let mut client = RootClient::connect(server.address);
    let umask = umask();
    for (path, mode, expected) in [("/a", 0, 0o600), ("/b", 0o777, 0o775), ("/c", 0o444, 0o644)] {
        let options = OpenOptions(NEW.0 | OpenOptions::RETSTAT.0);
        let (handle, stat) = client.open_with(path, options, mode).unwrap();
        let stat = stat.unwrap();
        assert_eq!((stat.size_bytes, stat.flags.has(StatFlags::POSC_PENDING)), (0, false));
        assert!(stat.flags.has(StatFlags::WRITABLE));
        client.close(handle).unwrap();
        let mode = std::fs::metadata(server.path(&path[1..])).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, expected & !umask | 0o600, "{path}");
    }
    let (_, stat) = client.open_with("/p", OpenOptions(POSC.0 | OpenOptions::RETSTAT.0), 0o644).unwrap();
    assert!(stat.unwrap().flags.has(StatFlags::POSC_PENDING));
}

#[test]
fn an_upload_has_its_checksum_at_once() {
    let server = TestServer::start();
    let mut client = RootClient::connect(server.address);
    let bytes = noise(3_000_001, 1);
    let sum = format!("adler32 {:08x}", adler32(&bytes));
    // Plain, in an order of its own, and longer than any buffer.
    let handle = client.open("/plain", NEW).unwrap();
    for begin in [1_000_000, 2_000_000, 0] {
        let end = (begin + 1_000_000 + begin / 2_000_000).min(bytes.len());
        client.write(handle, begin as u64, &bytes[begin..end]).unwrap();
    }
    client.close(handle).unwrap();
    // In pages.
    let handle = client.open("/paged", POSC).unwrap();
    let cut = 1_234_567;
    for (begin, end) in [(cut, bytes.len()), (0, cut)] {
        let sent = framed(begin as u64, &bytes[begin..end]);
        assert_eq!(client.pgwrite(handle, begin as u64, &sent, false).unwrap(), []);
    }
    assert!(server.read("paged").is_none());
    client.close(handle).unwrap();
    for path in ["plain", "paged"] {
        assert!(server.read(path).unwrap() == bytes, "{path}");
        assert_eq!(client.checksum(&format!("/{path}")).unwrap(), sum);
        // It was kept with the file, so HTTP has it as well.
        let response = server.request(&format!("HEAD /{path}"), "Want-Digest: adler32\r\n");
        assert_eq!(response.field("digest"), Some(format!("adler32={:08x}", adler32(&bytes)).as_str()));
    }
    let handle = client.open("/empty", NEW).unwrap();
    client.write(handle, 0, b"").unwrap();
    client.close(handle).unwrap();
    assert_eq!(client.checksum("/empty").unwrap(), "adler32 00000001");
    // What was written twice, or cut, has the checksum of what is there.
    let handle = client.open("/twice", NEW).unwrap();
    client.write(handle, 0, b"0123456789").unwrap();
    client.write(handle, 3, b"abc").unwrap();
    client.truncate(About::Handle(handle), 8).unwrap();
    client.close(handle).unwrap();
    assert_eq!(server.read("twice").unwrap(), b"012abc67");
    assert_eq!(client.checksum("/twice").unwrap(), format!("adler32 {:08x}", adler32(b"012abc67")));
    // A change in place makes an old one be forgotten.
    let handle = client.open("/twice", UPDATE).unwrap();
    client.write(handle, 0, b"9").unwrap();
    client.close(handle).unwrap();
    assert_eq!(client.checksum("/twice").unwrap(), format!("adler32 {:08x}", adler32(b"912abc67")));
}

#[test]
fn wrong_pages_are_reported_and_sent_again() {
    let server = TestServer::start();
    let mut client = RootClient::connect(server.address);
    let bytes = noise(3 * 4096 + 100, 2);
    let offset = 4000;
    let mut sent = framed(offset, &bytes);
    // The first page has 96 bytes, the last 4.
    let places = [0, 100, 100 + UNIT_BYTES, 100 + 2 * UNIT_BYTES, 100 + 3 * UNIT_BYTES];
    for at in [places[0], places[2], places[4]] {
        sent[at + 4] ^= 1;
    }
    let wrong = [(4000, 96), (8192, 4096), (16384, 4)];
    let handle = client.open("/f", NEW).unwrap();
    assert_eq!(client.pgwrite(handle, offset, &sent, false).unwrap(), wrong);
    client.ask(Sync { handle }, &[]).unwrap();
    let page = |(begin, len): (u64, usize)| {
        let at = (begin - offset) as usize;
        framed(begin, &bytes[at..at + len])
    };
    // Again wrong, then of two pages, then a part of it only, then as another write: none of it corrects.
    let mut damaged = page(wrong[1]);
    damaged[9] ^= 1;
    assert_eq!(client.pgwrite(handle, 8192, &damaged, true).unwrap(), [wrong[1]]);
    let two = framed(8192, &noise(5000, 3));
    assert_eq!(code(client.pgwrite(handle, 8192, &two, true)), ErrorCode::ARG_INVALID);
    let part = framed(8192, &bytes[4192..4292]);
    assert_eq!(client.pgwrite(handle, 8192, &part, true).unwrap(), []);
    assert_eq!(client.pgwrite(handle, 8192, &page(wrong[1]), false).unwrap(), []);
    for page_again in [wrong[0], wrong[2]] {
        assert_eq!(client.pgwrite(handle, page_again.0, &page(page_again), true).unwrap(), []);
    }
    let (why, text) = client.close(handle).unwrap_err();
    assert_eq!((why, text.as_str()), (ErrorCode::CHECKSUM_ERROR, "1 uncorrected checksum errors"));
    assert_eq!(code(client.close(handle)), ErrorCode::FILE_NOT_OPEN);
    assert_eq!(server.read("f").unwrap()[4000..], bytes);
    // One that was never seen is gone.
    let handle = client.open("/p", POSC).unwrap();
    assert_eq!(client.pgwrite(handle, offset, &sent, false).unwrap(), wrong);
    assert_eq!(code(client.close(handle)), ErrorCode::CHECKSUM_ERROR);
    assert!(server.read("p").is_none());
    assert_eq!(server.leftovers(), 0);
}

#[test]
fn wrong_pages_have_an_end() {
    let server = TestServer::start();
    let mut client = RootClient::connect(server.address);
    let handle = client.open("/f", NEW).unwrap();
    let wrong = |count: usize| [&[0; 4][..], &[7; 4096]].concat().repeat(count);
    let max = limits::ROOT_WRONG_PAGES_PER_REQUEST_MAX;
    let (why, text) = client.pgwrite(handle, 0, &wrong(max + 1), false).unwrap_err();
    assert_eq!((why, text.as_str()), (ErrorCode::TOO_MANY_ERRORS, "Too many checksum errors in request"));
    assert_eq!(client.pgwrite(handle, 0, &wrong(max), false).unwrap().len(), max);
    let next = (1 << 20) as u64;
    assert_eq!(client.pgwrite(handle, next, &wrong(max), false).unwrap().len(), max);
    let (why, text) = client.pgwrite(handle, 2 * next, &wrong(3), false).unwrap_err();
    assert_eq!(
        (why, text.as_str()),
        (ErrorCode::TOO_MANY_ERRORS, "Too many uncorrected checksum errors in file")
    );
    client.ping().unwrap();
    assert_eq!(client.close(handle).unwrap_err().1, "256 uncorrected checksum errors");
}

#[test]
fn malformed_data_end_the_connection_and_nothing_else() {
    let server = TestServer::start();
    // A checksum without a page, and no page at all.
    for (data, text) in
        [(&[0; UNIT_BYTES + 4][..], "last page too short"), (&[], "pgwrite length is invalid")]
    {
        let mut client = RootClient::connect(server.address);
        let handle = client.open("/f", REPLACE).unwrap();
        let (why, said) = client.pgwrite(handle, 0, data, false).unwrap_err();
        assert_eq!((why, said.as_str()), (ErrorCode::ARG_INVALID, text));
        client.finish();
        assert!(client.is_ended());
    }
    let mut client = RootClient::connect(server.address);
    let element = |handle, len, offset| Segment { handle, len, offset };
    let bad = WriteV { syncs: false, segments: vec![element(Handle([9; 4]), 3, 0)] };
    assert_eq!(code(client.writev(bad, b"abc")), ErrorCode::FILE_NOT_OPEN);
    client.finish();
    assert!(client.is_ended());
    // These are only refused: their data are known, and passed over.
    let mut client = RootClient::connect(server.address);
    let handle = client.open("/g", NEW).unwrap();
    let much = noise(600_000, 5);
    assert_eq!(code(client.write(Handle([9; 4]), 0, &much)), ErrorCode::FILE_NOT_OPEN);
    assert_eq!(code(client.pgwrite(Handle([9; 4]), 0, &framed(0, &much), false)), ErrorCode::FILE_NOT_OPEN);
    assert_eq!(code(client.write(handle, u64::MAX >> 1, b"abc")), ErrorCode::NO_SPACE);
    let begin = Chkpoint { handle, kind: ChkpointKind::BEGIN, inner: Vec::new() };
    assert_eq!(code(client.ask(begin, &[])), ErrorCode::UNSUPPORTED);
    let range = CloneRange { handle, offset: 0, len: 1, target_offset: 0 };
    assert_eq!(code(client.ask(Clone { handle, ranges: vec![range] }, &[])), ErrorCode::UNSUPPORTED);
    // What a checkpoint is to do brings bytes of its own, which are counted apart.
    let write = gridlane_xrd::request::Write { handle, offset: 0, path_id: gridlane_xrd::PathId::MAIN };
    let inner = client.encode(&Request::from(write), much.len());
    let execute = Chkpoint { handle, kind: ChkpointKind::EXECUTE, inner: inner[..24].to_vec() };
    let outer = client.encode(&Request::from(execute), 0);
    // With the stream of the request that it is in.
    let inner = [&outer[..2], &inner[2..]].concat();
    client.send_bytes(&[&outer[..24], &inner, &much].concat());
    assert_eq!(client.answer().status, Status::ERROR);
    client.write(handle, 0, b"abc").unwrap();
    client.close(handle).unwrap();
    assert_eq!(server.read("g").unwrap(), b"abc");
}

#[test]
fn many_ranges_of_several_files_at_once() {
    let server = TestServer::start();
    let mut client = RootClient::connect(server.address);
    let (one, other) = (client.open("/one", NEW).unwrap(), client.open("/other", NEW).unwrap());
    let bytes = noise(700_000, 7);
    let element = |handle, len, offset| Segment { handle, len, offset };
    let segments = vec![
        element(one, 400_000, 300_000),
        element(other, 3, 5),
        element(one, 0, 1 << 40),
        element(one, 299_997, 3),
    ];
    client.writev(WriteV { syncs: true, segments }, &bytes).unwrap();
    let segments = vec![element(one, 1, 0), element(one, 2, 1)];
    client.writev(WriteV { syncs: false, segments }, b"abc").unwrap();
    client.close(one).unwrap();
    client.close(other).unwrap();
    let expected = [b"abc", &bytes[400_003..], &bytes[..400_000]].concat();
    assert!(server.read("one").unwrap() == expected);
    assert_eq!(server.read("other").unwrap(), [&[0; 5], &bytes[400_000..400_003]].concat());
    assert_eq!(client.checksum("/one").unwrap(), format!("adler32 {:08x}", adler32(&expected)));
}

#[test]
fn one_writes_or_many_read() {
    let server = TestServer::start();
    server.write("f", "bytes");
    let mut first = RootClient::connect(server.address);
    let mut second = RootClient::connect(server.address);
    let refused = |outcome: Result<Handle, (ErrorCode, String)>, text: &str| {
        assert_eq!(outcome.unwrap_err(), (ErrorCode::FILE_LOCKED, text.to_owned()));
    };
    let writing = first.open("/f", UPDATE).unwrap();
    for client in [&mut second, &mut first] {
        refused(client.open("/f", READ), "Input file /f is already opened by 1 writer; open denied.");
        refused(client.open("/f", UPDATE), "Output file /f is already opened by 1 writer; open denied.");
        refused(client.open("/f", REPLACE), "Output file /f is already opened by 1 writer; open denied.");
    }
    // By another name it is the same file.
    std::fs::hard_link(server.path("f"), server.path("g")).unwrap();
    refused(second.open("/g", READ), "Input file /g is already opened by 1 writer; open denied.");
    let forced = second.open("/f", OpenOptions(READ.0 | OpenOptions::FORCE.0)).unwrap();
    second.close(forced).unwrap();
    assert_eq!(server.read("f").unwrap(), b"bytes");
    first.close(writing).unwrap();
    let (one, two) = (second.open("/f", READ).unwrap(), first.open("/f", READ).unwrap());
    refused(first.open("/f", UPDATE), "Output file /f is already opened by 2 readers; open denied.");
    first.close(two).unwrap();
    refused(first.open("/f", REPLACE), "Output file /f is already opened by 1 reader; open denied.");
    second.close(one).unwrap();
    // A file that is not seen yet has one writer as well. What HTTP does is another file.
    let pending = first.open("/p", POSC).unwrap();
    refused(second.open("/p", POSC), "Output file /p is already opened by 1 writer; open denied.");
    assert_eq!(code(second.open("/p", READ)), ErrorCode::NOT_FOUND);
    first.write(pending, 0, b"by root").unwrap();
    let open = second.open("/f", UPDATE).unwrap();
    assert_eq!(server.ask("PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nhttp").status(), 204);
    second.write(open, 0, b"BYTES").unwrap();
    second.close(open).unwrap();
    assert_eq!(server.read("f").unwrap(), b"http");
    assert_eq!(server.read("g").unwrap(), b"BYTES");
    first.close(pending).unwrap();
    assert_eq!(server.read("p").unwrap(), b"by root");
    // A client that makes a file without a bit for changes counts as a reader, and may write, as in XRootD.
    let makes = OpenOptions::DELETE;
    let (making, reading) = (first.open("/f", makes).unwrap(), second.open("/f", READ).unwrap());
    refused(second.open("/f", UPDATE), "Output file /f is already opened by 2 readers; open denied.");
    first.write(making, 0, b"new").unwrap();
    assert_eq!(second.read(reading, 0, 10).unwrap(), b"new");
    second.close(reading).unwrap();
    first.close(making).unwrap();
}

#[test]
fn two_forced_writers_leave_no_checksum_of_other_bytes() {
    let server = TestServer::start();
    let mut first = RootClient::connect(server.address);
    let mut second = RootClient::connect(server.address);
    let one = first.open("/f", NEW).unwrap();
    let other = second.open("/f", UPDATE | OpenOptions::FORCE).unwrap();
    first.write(one, 0, b"0123456789").unwrap();
    second.write(other, 3, b"abc").unwrap();
    second.close(other).unwrap();
    // It has written all bytes that there are, and some are others now.
    first.close(one).unwrap();
    let sum = adler32(b"012abc6789");
    assert_eq!(first.checksum("/f").unwrap(), format!("adler32 {sum:08x}"));
    let response = server.request("HEAD /f", "Want-Digest: adler32\r\n");
    assert_eq!(response.field("digest"), Some(format!("adler32={sum:08x}").as_str()));
}

#[test]
fn a_client_that_leaves_leaves_nothing_open() {
    let server = TestServer::start();
    let mut client = RootClient::connect(server.address);
    for ends_in_order in [true, false] {
        let mut leaving = RootClient::connect(server.address);
        let (kept, pending) = (leaving.open("/kept", REPLACE).unwrap(), leaving.open("/gone", POSC).unwrap());
        leaving.write(kept, 0, b"as written").unwrap();
        leaving.write(pending, 0, b"never seen").unwrap();
        if !ends_in_order {
            // In the middle of the data of a write.
            let write = gridlane_xrd::request::Write {
                handle: kept,
                offset: 10,
                path_id: gridlane_xrd::PathId::MAIN,
            };
            let mut bytes = leaving.encode(&Request::from(write), 1 << 20);
            bytes.extend_from_slice(&[b'x'; 1000]);
            leaving.send_bytes(&bytes);
        }
        drop(leaving);
        let handle = client.open_when_free("/kept", READ);
        assert_eq!(client.read(handle, 0, 100).unwrap(), b"as written");
        client.close(handle).unwrap();
        let handle = client.open_when_free("/gone", POSC);
        assert_eq!(server.leftovers(), 1);
        client.write(handle, 0, b"seen").unwrap();
        client.close(handle).unwrap();
        assert_eq!(server.read("gone").unwrap(), b"seen");
        std::fs::remove_file(server.path("gone")).unwrap();
    }
}

#[test]
fn an_upload_that_brings_nothing_more_is_cut() {
    for rate in [None, Some(10_000_000)] {
        let server = TestServer::with(|settings| {
            settings.service.exports[0].allow_write = true;
            settings.limit_rate_bytes_per_s = rate;
            settings.deadlines.body_stall = std::time::Duration::from_secs(1);
        });
        let mut client = RootClient::connect(server.address);
        let handle = client.open("/f", POSC).unwrap();
        let write = gridlane_xrd::request::Write { handle, offset: 0, path_id: gridlane_xrd::PathId::MAIN };
        let bytes = client.encode(&Request::from(write), 1 << 20);
        client.send_bytes(&[&bytes[..], b"half of it"].concat());
        assert!(client.is_ended(), "{rate:?}");
        RootClient::connect(server.address).open_when_free("/f", POSC);
    }
}

#[test]
fn lengths_change_by_handle_and_by_path() {
    let server = TestServer::start();
    server.write("f", "0123456789");
    let mut client = RootClient::connect(server.address);
    let path = |path: &str| About::Path(PathArg::new(path));
    client.truncate(path("/f"), 4).unwrap();
    assert_eq!(server.read("f").unwrap(), b"0123");
    assert_eq!(client.checksum("/f").unwrap(), format!("adler32 {:08x}", adler32(b"0123")));
    client.truncate(path("/f"), 6).unwrap();
    assert_eq!(server.read("f").unwrap(), b"0123\0\0");
    assert_eq!(client.checksum("/f").unwrap(), format!("adler32 {:08x}", adler32(b"0123\0\0")));
    assert_eq!(code(client.truncate(path("/none"), 0)), ErrorCode::NOT_FOUND);
    std::fs::create_dir(server.path("dir")).unwrap();
    assert_eq!(code(client.truncate(path("/dir"), 0)), ErrorCode::IS_DIRECTORY);
    assert_eq!(code(client.truncate(About::Handle(Handle([9; 4])), 0)), ErrorCode::FILE_NOT_OPEN);
    let handle = client.open("/f", UPDATE).unwrap();
    client.truncate(About::Handle(handle), 2).unwrap();
    assert_eq!(code(client.truncate(About::Handle(handle), u64::MAX >> 1)), ErrorCode::NO_SPACE);
    client.close(handle).unwrap();
    assert_eq!(server.read("f").unwrap(), b"01");
}

#[test]
fn denied_writes_change_nothing() {
    let read_only = TestServer::with(|_| {});
    read_only.write("f", "bytes");
    let mut client = RootClient::connect(read_only.address);
    for (path, options) in [("/f", UPDATE), ("/f", REPLACE), ("/g", NEW), ("/g", POSC)] {
        assert_eq!(code(client.open(path, options)), ErrorCode::NOT_AUTHORIZED, "{path} {options:?}");
    }
    assert_eq!(code(client.truncate(About::Path(PathArg::new("/f")), 0)), ErrorCode::NOT_AUTHORIZED);
    assert_eq!(read_only.read("f").unwrap(), b"bytes");
    // A client that may only store files does not get to read them by the same door.
    let box_only = TestServer::with(|settings| {
        settings.service.exports[0].allow_write = true;
        settings.policy = std::sync::Arc::new(Policy::new(vec![Rule {
            name: "box".to_owned(),
            who: Principal { networks: Network::parse_list(["any"]).unwrap(), ..Principal::anyone() },
            may: Grants::WRITE,
            under: Template::default(),
        }]));
    });
    box_only.write("secret", "bytes");
    let mut client = RootClient::connect(box_only.address);
    let handle = client.open("/secret", UPDATE).unwrap();
    assert_eq!(code(client.read(handle, 0, 5)), ErrorCode::NOT_AUTHORIZED);
    client.write(handle, 0, b"BYTE").unwrap();
    client.close(handle).unwrap();
    assert_eq!(code(client.open("/secret", READ)), ErrorCode::NOT_AUTHORIZED);
    assert_eq!(box_only.read("secret").unwrap(), b"BYTEs");
    // Larger than the export takes: said at once, or when it becomes so. What is incomplete is never seen.
    let server = TestServer::with(|settings| {
        settings.service.exports[0].allow_write = true;
        settings.service.exports[0].upload_bytes_max = 10;
    });
    let mut client = RootClient::connect(server.address);
    let (code_of_size, text) = client.open("/f?oss.asize=11", NEW).unwrap_err();
    assert_eq!(code_of_size, ErrorCode::NO_SPACE);
    assert!(text.ends_with("file too large: an upload may have at most 10 bytes"), "{text}");
    let handle = client.open("/f?oss.asize=x&cks.type=adler32", POSC).unwrap();
    client.write(handle, 0, b"0123456789").unwrap();
    assert_eq!(code(client.write(handle, 10, b"a")), ErrorCode::NO_SPACE);
    assert_eq!(code(client.close(handle)), ErrorCode::IO_ERROR);
    assert!(server.read("f").is_none());
    assert_eq!(server.leftovers(), 0);
}

#[test]
fn a_full_quota_and_a_full_disk_have_their_own_errors() {
    use gridlane_store::{MemoryStorage, QuotaStorage};
    let quota = std::sync::Arc::new(QuotaStorage::new(std::sync::Arc::new(MemoryStorage::default()), 1000));
    let server = TestServer::of(quota, |settings| settings.service.exports[0].allow_write = true);
    let mut client = RootClient::connect(server.address);
    assert_eq!(code(client.open("/f?oss.asize=1001", POSC)), ErrorCode::OVER_QUOTA);
    let handle = client.open("/f", NEW).unwrap();
    client.write(handle, 0, &[7; 900]).unwrap();
    assert_eq!(code(client.write(handle, 900, &[7; 101])), ErrorCode::OVER_QUOTA);
    client.ping().unwrap();
    client.write(handle, 900, &[7; 100]).unwrap();
    client.close(handle).unwrap();
    assert_eq!(client.checksum("/f").unwrap(), format!("adler32 {:08x}", adler32(&[7; 1000])));
}

#[test]
fn a_session_has_its_share_of_open_files() {
    // In memory: no descriptors, of which there may be fewer.
    let storage = std::sync::Arc::new(gridlane_store::MemoryStorage::default());
    let server = TestServer::of(storage, |settings| {
        settings.service.exports[0].allow_write = true;
        // Of one client this is as much as of one session.
        settings.shares.open_files.one = settings.shares.open_files.all;
    });
    assert_eq!(server.ask("PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nbytes").status(), 201);
    let mut client = RootClient::connect(server.address);
    let handles: Vec<Handle> =
        (0..limits::ROOT_OPEN_FILES_PER_SESSION_MAX).map(|_| client.open("/f", READ).unwrap()).collect();
    assert_eq!(code(client.open("/f", READ)), ErrorCode::OVERLOADED);
    let mut other = RootClient::connect(server.address);
    let handle = other.open("/f", READ).unwrap();
    other.close(handle).unwrap();
    client.close(handles[7]).unwrap();
    let handle = client.open("/f", READ).unwrap();
    assert!(!handles.contains(&handle));
    assert_eq!(client.read(handle, 0, 10).unwrap(), b"bytes");
}

#[test]
fn answers_come_in_the_order_of_pipelined_writes() {
    let server = TestServer::start();
    let mut client = RootClient::connect(server.address);
    let handle = client.open("/f", NEW).unwrap();
    let bytes = noise(16 << 20, 11);
    let streams: Vec<_> = bytes
        .chunks(4 << 20)
        .enumerate()
        .map(|(index, chunk)| {
            let write = gridlane_xrd::request::Write {
                handle,
                offset: (index * (4 << 20)) as u64,
                path_id: gridlane_xrd::PathId::MAIN,
            };
            client.send(write, chunk)
        })
        .collect();
    let close = client.send(gridlane_xrd::request::Close { handle }, &[]);
    for stream in streams.into_iter().chain([close]) {
        let answer = client.answer();
        assert_eq!((answer.stream, answer.status), (stream, Status::OK));
    }
    assert!(server.read("f").unwrap() == bytes);
    let sum = format!("adler32 {:08x}", adler32(&bytes));
    assert_eq!(client.checksum("/f").unwrap(), sum);
}

#[test]
fn a_slow_disk_keeps_only_its_own_client_waiting() {
    use gridlane_store::{MemoryStorage, fake::Gate, fake::SlowStorage};
    let gate = Gate::new();
    let storage = SlowStorage::new(MemoryStorage::default(), gate.clone());
    let server = TestServer::of(std::sync::Arc::new(storage), |settings| {
        settings.service.exports[0].allow_write = true
    });
    let mut others: Vec<RootClient> = (0..8).map(|_| RootClient::connect(server.address)).collect();
    let mut waiting: Vec<(RootClient, Handle)> = (0..4)
        .map(|index| {
            let mut client = RootClient::connect(server.address);
            let handle = client.open(&format!("/slow{index}"), NEW).unwrap();
            (client, handle)
        })
        .collect();
    gate.close();
    for (client, handle) in &mut waiting {
        let write =
            gridlane_xrd::request::Write { handle: *handle, offset: 0, path_id: gridlane_xrd::PathId::MAIN };
        client.send(write, b"late");
    }
    // More of them than the server has threads for connections.
    gate.wait_for_waiting(waiting.len());
    for (index, client) in others.iter_mut().enumerate() {
        let handle = client.open(&format!("/quick{index}"), NEW).unwrap();
        client.ping().unwrap();
        client.close(handle).unwrap();
    }
    gate.open();
    for (client, handle) in &mut waiting {
        assert_eq!(client.answer().status, Status::OK);
        client.close(*handle).unwrap();
    }
    let response = server.request("GET /slow3", "");
    assert_eq!(response.body, b"late");
}

#[test]
fn a_checksum_is_of_the_writes_of_all_sessions() {
    let server = TestServer::start();
    let mut client = RootClient::connect(server.address);
    let force = |options: OpenOptions| OpenOptions(options.0 | OpenOptions::FORCE.0);
    let first = client.open("/f", force(NEW)).unwrap();
    client.write(first, 0, b"0123456789").unwrap();
    let second = client.open("/f", force(UPDATE)).unwrap();
    client.write(second, 3, b"x").unwrap();
    client.close(second).unwrap();
    client.close(first).unwrap();
    assert_eq!(server.read("f").unwrap(), b"012x456789");
    let expected = format!("adler32 {:08x}", adler32(b"012x456789"));
    assert_eq!(client.checksum("/f").unwrap(), expected);
}

#[test]
fn a_write_that_stops_half_way_is_not_waited_for() {
    let server = TestServer::with(|settings| {
        settings.service.exports[0].allow_write = true;
        settings.deadlines.body_stall = std::time::Duration::from_millis(300);
    });
    let mut client = RootClient::connect(server.address);
    let handle = client.open("/f", POSC).unwrap();
    let write = gridlane_xrd::request::Write { handle, offset: 0, path_id: gridlane_xrd::PathId::MAIN };
    let request = client.encode(&Request::from(write), 1000);
    client.send_bytes(&[&request[..], b"half"].concat());
    assert!(client.is_ended());
}
