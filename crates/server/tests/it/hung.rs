//! An export whose device hangs costs itself only: whatever hangs there, the others are served.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;

use crate::support::root::RootClient;
use crate::support::{Client, Response, TestServer};
use gridlane_core::limits;
use gridlane_dav::ResourcePath;
use gridlane_server::Export;
use gridlane_share::Share;
use gridlane_store::fake::{Gate, SlowStorage};
use gridlane_store::{MemoryStorage, ObjectPath};
use gridlane_xrd::flags::{DirlistOptions, OpenOptions};
use gridlane_xrd::request::{About, Dirlist, Mv, Query, Stat};
use gridlane_xrd::{PathArg, QueryKind, StreamId};

/// More operations than one device has turns.
const STUCK: usize = limits::DISK_OPERATIONS_MAX + 6;

/// A server with one export that can be made to hang, and one that works.
struct Site {
    server: TestServer,
    /// In front of bytes, and in front of names.
    bytes: Gate,
    names: Gate,
}

fn about(path: &str) -> PathArg {
    PathArg::new(path)
}

fn export(path: &str, bytes: &Gate, names: &Gate) -> Export {
    let storage = MemoryStorage::new();
    let at = |names: &[&str]| ObjectPath::new(names.iter().map(|name| name.as_bytes())).unwrap();
    storage.add_directory(&at(&["d"]));
    storage.add_file(&at(&["d", "below"]), vec![2; 100]);
    storage.add_file(&at(&["f"]), vec![1; 4096]);
    // Files whose checksums have not been requested.
    for number in 0..STUCK {
        storage.add_file(&at(&[&format!("f{number}")]), vec![1; 4096]);
    }
    let storage = SlowStorage::new(storage, bytes.clone()).with_names(names.clone());
    Export { path: ResourcePath::parse(path).unwrap(), allow_write: true, ..Export::new(Arc::new(storage)) }
}

impl Site {
    fn start() -> Site {
        let (bytes, names, open) = (Gate::new(), Gate::new(), Gate::new());
        let exports = vec![export("/hung", &bytes, &names), export("/fine", &open, &open)];
        let server = TestServer::of(Arc::new(MemoryStorage::new()), |settings| {
            settings.service.exports = exports;
            // One client may take all: others then have nothing but what another export leaves them.
            let device = &mut settings.service.device;
            for share in
                [&mut device.operations, &mut device.digests, &mut device.listing_bytes, &mut device.copies]
            {
                *share = Share { all: share.all, one: share.all };
            }
        });
        Site { server, bytes, names }
    }

    fn http(&self, request: &str) -> Client {
        let mut client = self.server.connect();
        client.send(request);
        client
    }

    fn root(&self) -> RootClient {
        RootClient::connect(self.server.address)
    }

    /// The other export does all that it has to do, over both protocols.
    fn assert_the_other_works(&self, round: &str) {
        let ask = |request: String| -> Response {
            let to_head = request.starts_with("HEAD");
            self.http(&request).response(to_head)
        };
        let line = |line: &str| ask(format!("{line} HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_eq!(line("GET /fine/f").body.len(), 4096, "{round}");
        assert_eq!(line("GET /fine/").status(), 200, "{round}");
        assert_eq!(line("PROPFIND /fine/").status(), 207, "{round}");
        let put = format!("PUT /fine/new-{round} HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nnew");
        assert_eq!(ask(put).status(), 201, "{round}");
        let digest = ask("HEAD /fine/f HTTP/1.1\r\nHost: h\r\nWant-Digest: md5\r\n\r\n".to_owned());
        assert!(digest.field("digest").is_some(), "{round}: {digest:?}");
        for (method, source, target) in
            [("COPY", "f", "copy"), ("COPY", "d", "tree"), ("MOVE", "copy", "moved")]
        {
            let source = if source == "copy" { format!("copy-{round}") } else { source.to_owned() };
            let copy = format!("{method} /fine/{source} HTTP/1.1\r\nHost: h\r\n");
            assert_eq!(
                ask(format!("{copy}Destination: /fine/{target}-{round}\r\n\r\n")).status(),
                201,
                "{round}"
            );
        }
        assert_eq!(line(&format!("DELETE /fine/tree-{round}")).status(), 204, "{round}");
        let mut session = self.root();
        let handle = session.open("/fine/f", OpenOptions::READ).unwrap();
        assert_eq!(session.read(handle, 0, 4096).unwrap().len(), 4096, "{round}");
        session.close(handle).unwrap();
        session.ask(stat("/fine/f"), &[]).unwrap();
        session.ask(Dirlist { about: about("/fine"), options: DirlistOptions::STAT }, &[]).unwrap();
        assert!(session.checksum("/fine/f?cks.type=md5").unwrap().starts_with("md5 "), "{round}");
        let new = format!("/fine/root-{round}");
        let handle = session.open(&new, OpenOptions::NEW | OpenOptions::UPDATE).unwrap();
        session.write(handle, 0, b"new").unwrap();
        session.close(handle).unwrap();
        session.ask(Mv { from: about(&new), to: about(&format!("{new}-moved")) }, &[]).unwrap();
    }

    /// Has each of `requests` made on a connection of its own, of which `hung` come to the device; then the gate is opened, and
    /// all of them are answered with success.
    fn over_http(&self, round: &str, gate: &Gate, hung: usize, request: impl Fn(usize) -> String) {
        gate.close();
        let clients: Vec<_> = (0..STUCK).map(|number| (self.http(&request(number)), number)).collect();
        gate.wait_for_waiting(hung);
        self.assert_the_other_works(round);
        gate.open();
        for (mut client, number) in clients {
            let got = client.response(request(number).starts_with("HEAD"));
            assert!((200..300).contains(&got.status()), "{round}: {got:?}");
        }
    }

    fn over_root(
        &self,
        round: &str,
        gate: &Gate,
        hung: usize,
        mut begin: impl FnMut(&mut RootClient, usize) -> StreamId,
    ) {
        let mut sessions: Vec<_> = (0..STUCK).map(|_| self.root()).collect();
        gate.close();
        let begun: Vec<_> =
            sessions.iter_mut().enumerate().map(|(number, session)| begin(session, number)).collect();
        gate.wait_for_waiting(hung);
        self.assert_the_other_works(round);
        gate.open();
        for (mut session, stream) in sessions.into_iter().zip(begun) {
            session.answer_to(stream).unwrap_or_else(|refusal| panic!("{round}: {refusal:?}"));
        }
    }
}

fn stat(path: &str) -> Stat {
    Stat { about: About::Path(about(path)), is_vfs: false, wants: 0 }
}

fn line(line: &str, fields: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

const ALL: usize = limits::DISK_OPERATIONS_MAX;

#[test]
fn reads_that_hang_over_http() {
    let site = Site::start();
    site.over_http("bytes", &site.bytes, ALL, |_| line("GET /hung/f", ""));
    site.over_http("parts", &site.bytes, ALL, |_| line("GET /hung/f", "Range: bytes=0-9,2000-2009\r\n"));
    site.over_http("names", &site.names, ALL, |_| line("GET /hung/f", ""));
}

#[test]
fn writes_that_hang_over_http() {
    let site = Site::start();
    let put = |number| format!("{}new", line(&format!("PUT /hung/new{number}"), "Content-Length: 3\r\n"));
    site.over_http("bytes", &site.bytes, ALL, put);
    let put = |number| format!("{}new", line(&format!("PUT /hung/newer{number}"), "Content-Length: 3\r\n"));
    site.over_http("names", &site.names, ALL, put);
    site.over_http("removal", &site.names, ALL, |number| line(&format!("DELETE /hung/new{number}"), ""));
    site.over_http("directory", &site.names, ALL, |number| line(&format!("MKCOL /hung/dir{number}"), ""));
}

#[test]
fn listings_that_hang_over_http() {
    let site = Site::start();
    site.over_http("propfind", &site.names, ALL, |_| line("PROPFIND /hung/", "Depth: 1\r\n"));
    // As many as there is room for on one of two devices.
    let pages = limits::LISTINGS_BYTES_MAX / 2 / limits::LISTING_PAGE_BYTES;
    site.names.close();
    let clients: Vec<_> = (0..STUCK).map(|_| site.http(&line("GET /hung/", ""))).collect();
    site.names.wait_for_waiting(pages);
    site.assert_the_other_works("pages");
    site.names.open();
    for mut client in clients {
        // Those that have waited too long for room are told so.
        assert!([200, 503].contains(&client.response(false).status()));
    }
}

#[test]
fn checksums_that_hang_over_http() {
    let site = Site::start();
    let head = |number| line(&format!("HEAD /hung/f{number}"), "Want-Digest: sha-256\r\n");
    site.over_http("checksums", &site.bytes, limits::DIGESTS_RUNNING_MAX, head);
}

#[test]
fn copies_that_hang_over_http() {
    let site = Site::start();
    let copy = |method: &str, from: &str, to: String| {
        line(&format!("{method} {from}"), &format!("Destination: {to}\r\n"))
    };
    site.over_http("from", &site.bytes, ALL, |n| copy("COPY", "/hung/f", format!("/fine/from{n}")));
    site.over_http("to", &site.bytes, ALL, |n| copy("COPY", "/fine/f", format!("/hung/to{n}")));
    site.over_http("within", &site.bytes, ALL, |n| copy("COPY", "/hung/f", format!("/hung/within{n}")));
    site.over_http("names", &site.names, ALL, |n| {
        copy("MOVE", &format!("/hung/f{n}"), format!("/hung/moved{n}"))
    });
    // Each direction has room of its own for trees; those that wait too long for it are told so.
    let trees = (limits::COPIES_MAX / 2).max(1);
    for (round, from, to) in [("tree-from", "/hung/d", "/fine/df"), ("tree-to", "/fine/d", "/hung/dt")] {
        site.bytes.close();
        let clients: Vec<_> =
            (0..2 * trees).map(|n| site.http(&copy("COPY", from, format!("{to}{n}")))).collect();
        site.bytes.wait_for_waiting(trees);
        site.assert_the_other_works(round);
        site.bytes.open();
        for mut client in clients {
            assert!([201, 503].contains(&client.response(false).status()));
        }
    }
}

#[test]
fn requests_that_hang_over_root() {
    let site = Site::start();
    let open = |path: String, options| move |session: &mut RootClient| session.open(&path, options).unwrap();
    let mut handles = Vec::new();
    let mut reading: Vec<_> = (0..STUCK).map(|_| site.root()).collect();
    for session in &mut reading {
        handles.push(open("/hung/f".to_owned(), OpenOptions::READ)(session));
    }
    site.bytes.close();
    let begun: Vec<_> = reading
        .iter_mut()
        .zip(&handles)
        .map(|(session, handle)| {
            let path_id = gridlane_xrd::PathId::MAIN;
            session.send(gridlane_xrd::request::Read { handle: *handle, offset: 0, len: 4096, path_id }, &[])
        })
        .collect();
    site.bytes.wait_for_waiting(ALL);
    site.assert_the_other_works("read");
    site.bytes.open();
    for (session, stream) in reading.iter_mut().zip(begun) {
        assert_eq!(session.answer_to(stream).unwrap().body.len(), 4096);
    }

    let mut writing: Vec<_> = (0..STUCK).map(|_| site.root()).collect();
    let handles: Vec<_> = writing
        .iter_mut()
        .enumerate()
        .map(|(n, session)| open(format!("/hung/w{n}"), OpenOptions::NEW | OpenOptions::UPDATE)(session))
        .collect();
    site.bytes.close();
    let begun: Vec<_> = writing
        .iter_mut()
        .zip(&handles)
        .map(|(session, handle)| {
            let path_id = gridlane_xrd::PathId::MAIN;
            session.send(gridlane_xrd::request::Write { handle: *handle, offset: 0, path_id }, b"new")
        })
        .collect();
    site.bytes.wait_for_waiting(ALL);
    site.assert_the_other_works("write");
    site.bytes.open();
    for (session, stream) in writing.iter_mut().zip(begun) {
        session.answer_to(stream).unwrap();
    }

    site.over_root("stat", &site.names, ALL, |session, _| session.send(stat("/hung/f"), &[]));
    site.over_root("dirlist", &site.names, ALL, |session, _| {
        session.send(Dirlist { about: about("/hung"), options: DirlistOptions::STAT }, &[])
    });
    site.over_root("mv", &site.names, ALL, |session, n| {
        session.send(Mv { from: about(&format!("/hung/w{n}")), to: about(&format!("/hung/m{n}")) }, &[])
    });
    site.over_root("checksum", &site.bytes, limits::DIGESTS_RUNNING_MAX, |session, n| {
        session.send(Query::new(QueryKind::CHECKSUM, format!("/hung/f{n}?cks.type=md5").as_str()), &[])
    });
}
