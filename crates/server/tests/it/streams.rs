//! Large and slow answers: listings that are made while they are sent, and copies that are not waited for any more.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use crate::support::TestServer;
use gridlane_core::limits;
use gridlane_dav::Status;
use gridlane_share::Turns;
use gridlane_store::blocking::Read;
use gridlane_store::{
    BlockingObject, BlockingStorage, BlockingUpload, Committed, Completion, DirectoryEntry, Expectation,
    MemoryStorage, Metadata, ObjectPath, Opened, Overwrite, Space, StoreError, StoreResult, WriteOptions,
};

const PATIENCE: Duration = Duration::from_secs(30);

/// The bytes that kernels hold between two processes: both sockets' buffers grow to this together at most.
const SOCKETS_BYTES: u64 = 16 * 1024 * 1024;

/// Has a directory with any number of entries, which are made as they are asked for, and `/endless`, a file that no
/// copy ever comes to the end of. Nothing can be renamed: every name is on a file system of its own.
struct Endless {
    inner: MemoryStorage,
    entry: Metadata,
    count: u64,
    /// Where reading the directory fails.
    fails_at: Option<u64>,
    /// When the first is opened, the second is stored by another client.
    meanwhile: Option<(&'static str, &'static str)>,
    watch: Watch,
}

/// The signs of it that are seen from outside.
#[derive(Clone, Default)]
struct Watch {
    made: Arc<AtomicU64>,
    copied: Arc<AtomicU64>,
    /// Told at the end of every listing and copy.
    ended: Arc<Mutex<Option<Sender<()>>>>,
}

/// Tells of its end.
struct Ending(Option<Sender<()>>);

impl Drop for Ending {
    fn drop(&mut self) {
        // There may be no receiver.
        self.0.take().map(|sender| sender.send(()));
    }
}

impl Watch {
    fn ends(&self) -> Receiver<()> {
        let (sender, receiver) = channel();
        *self.ended.lock().unwrap() = Some(sender);
        receiver
    }

    fn ending(&self) -> Ending {
        Ending(self.ended.lock().unwrap().clone())
    }
}

fn path(text: &str) -> ObjectPath {
    ObjectPath::new(text.split('/').filter(|name| !name.is_empty()).map(str::as_bytes)).unwrap()
}

impl Endless {
    fn new(count: u64, fails_at: Option<u64>) -> Endless {
        let inner = MemoryStorage::new();
        inner.add_directory(&path("d"));
        inner.add_file(&path("f"), "x");
        let entry = inner.look(&path("f")).unwrap();
        Endless { inner, entry, count, fails_at, meanwhile: None, watch: Watch::default() }
    }
}

type MemoryObject = <MemoryStorage as BlockingStorage>::Object;
type MemoryUpload = <MemoryStorage as BlockingStorage>::Upload;

/// A file of [`Endless`], or of the memory in it.
enum EndlessObject {
    Endless(Metadata, Arc<Turns>),
    Memory(Arc<MemoryObject>),
}

impl BlockingObject for EndlessObject {
    fn turns(&self) -> &Arc<Turns> {
        match self {
            EndlessObject::Endless(_, turns) => turns,
            EndlessObject::Memory(object) => object.turns(),
        }
    }

    fn metadata(&self) -> &Metadata {
        match self {
            EndlessObject::Endless(metadata, _) => metadata,
            EndlessObject::Memory(object) => object.metadata(),
        }
    }

    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.read_at(target, offset).map(Some)
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            EndlessObject::Endless(..) => Ok(target.len()),
            EndlessObject::Memory(object) => object.read_at(target, offset),
        }
    }

    fn is_unchanged(&self) -> bool {
        match self {
            EndlessObject::Endless(..) => true,
            EndlessObject::Memory(object) => object.is_unchanged(),
        }
    }
}

enum EndlessUpload {
    Endless(Watch, #[allow(dead_code, reason = "dropped with it")] Ending),
    Memory(MemoryUpload),
}

impl BlockingUpload for EndlessUpload {
    fn write_at(&self, bytes: &[u8], offset: u64) -> StoreResult<()> {
        match self {
            EndlessUpload::Endless(watch, _) => {
                watch.copied.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
            EndlessUpload::Memory(upload) => upload.write_at(bytes, offset),
        }
    }

    fn commit(&self, completion: &Completion) -> StoreResult<Committed> {
        match self {
            EndlessUpload::Endless(..) => Err(StoreError::NoSpace),
            EndlessUpload::Memory(upload) => upload.commit(completion),
        }
    }
}

impl BlockingStorage for Endless {
    type Object = EndlessObject;
    type Upload = EndlessUpload;
    type File = <MemoryStorage as BlockingStorage>::File;

    fn turns(&self) -> &Arc<Turns> {
        self.inner.turns()
    }

    fn look(&self, at: &ObjectPath) -> StoreResult<Metadata> {
        if *at == path("endless") {
            return Ok(Metadata { size_bytes: u64::MAX, ..self.entry.clone() });
        }
        self.inner.look(at)
    }

    fn open(&self, at: &ObjectPath) -> StoreResult<Opened<EndlessObject>> {
        if *at == path("endless") {
            let object = EndlessObject::Endless(self.look(at)?, Arc::clone(self.turns()));
            return Ok(Opened::File(Arc::new(object)));
        }
        if let Some((_, stored)) = self.meanwhile.filter(|(opened, _)| *at == path(opened)) {
            self.inner.add_file(&path(stored), "late");
        }
        Ok(match self.inner.open(at)? {
            Opened::File(object) => Opened::File(Arc::new(EndlessObject::Memory(object))),
            Opened::Directory => Opened::Directory,
        })
    }

    fn entries(&self, at: &ObjectPath) -> StoreResult<Read<DirectoryEntry>> {
        if *at != path("d") {
            return self.inner.entries(at);
        }
        let (entry, watch, fails_at) = (self.entry.clone(), self.watch.clone(), self.fails_at);
        let ending = watch.ending();
        Ok(Box::new((0..self.count).map(move |number| {
            let _held = &ending;
            watch.made.fetch_add(1, Ordering::SeqCst);
            if fails_at == Some(number) {
                return Err(StoreError::Io(io::Error::other("the disk is gone")));
            }
            let name = format!("file-{number:08}.root").into_bytes();
            Ok(DirectoryEntry { name, metadata: entry.clone(), is_link: false })
        })))
    }

    fn make_directory(&self, at: &ObjectPath) -> StoreResult<()> {
        self.inner.make_directory(at)
    }

    fn remove(&self, at: &ObjectPath, expectation: &Expectation) -> StoreResult<()> {
        self.inner.remove(at, expectation)
    }

    fn remove_directory(&self, at: &ObjectPath) -> StoreResult<()> {
        self.inner.remove_directory(at)
    }

    fn remove_tree(&self, at: &ObjectPath) -> StoreResult<()> {
        self.inner.remove_tree(at)
    }

    fn rename(&self, _: &ObjectPath, _: &ObjectPath, _: Overwrite, _: &Expectation) -> StoreResult<bool> {
        Err(StoreError::AcrossDevices)
    }

    fn set_modified(&self, at: &ObjectPath, modified: SystemTime) -> StoreResult<()> {
        self.inner.set_modified(at, modified)
    }

    fn space(&self, at: &ObjectPath) -> StoreResult<Space> {
        self.inner.space(at)
    }

    fn create(&self, at: &ObjectPath, expected_bytes: Option<u64>) -> StoreResult<EndlessUpload> {
        match expected_bytes {
            Some(u64::MAX) => Ok(EndlessUpload::Endless(self.watch.clone(), self.watch.ending())),
            _ => self.inner.create(at, expected_bytes).map(EndlessUpload::Memory),
        }
    }

    fn open_writable(&self, at: &ObjectPath, options: &WriteOptions) -> StoreResult<Self::File> {
        self.inner.open_writable(at, options)
    }
}

fn serve(storage: Endless) -> (TestServer, Watch) {
    let watch = storage.watch.clone();
    let server = TestServer::of(Arc::new(storage), |settings| {
        settings.service.exports[0].allow_write = true;
        settings.service.exports[0].upload_bytes_max = u64::MAX;
    });
    (server, watch)
}

const LIST: &str = "PROPFIND /d/ HTTP/1.1\r\nHost: h\r\nDepth: 1\r\n\r\n";

#[test]
fn a_large_directory_is_never_in_memory() {
    const COUNT: u64 = 100_000;
    let (server, watch) = serve(Endless::new(COUNT, None));
    let mut client = server.connect();
    client.send(LIST);
    let head = client.head();
    assert_eq!(head.headers.single("transfer-encoding"), Some("chunked"));
    // An entry has several hundred bytes: listings that were made and not read are bounded.
    const ENTRY_BYTES: u64 = 400;
    let mut received = 0;
    let mut last = Vec::new();
    loop {
        let (made, before) = (watch.made.load(Ordering::SeqCst), received);
        assert!(made * ENTRY_BYTES < before + SOCKETS_BYTES, "{made} entries for {before} bytes");
        match client.chunk() {
            Some(chunk) => {
                received += chunk.len() as u64;
                last = chunk;
            }
            None => break,
        }
    }
    assert!(received > COUNT * ENTRY_BYTES, "{received}");
    assert_eq!(watch.made.load(Ordering::SeqCst), COUNT);
    assert!(last.ends_with(b"</D:multistatus>\n"));
    // The connection is as good as before.
    assert_eq!(client.request("PROPFIND /f", "Depth: 0\r\n").status(), 207);
}

#[test]
fn a_client_without_chunks_reads_to_the_end() {
    let (server, _) = serve(Endless::new(2000, None));
    let mut client = server.connect();
    client.send("PROPFIND /d/ HTTP/1.0\r\nHost: h\r\nDepth: 1\r\nConnection: keep-alive\r\n\r\n");
    let got = client.response(false);
    assert_eq!((got.field("transfer-encoding"), got.field("connection")), (None, Some("close")));
    let text = got.text();
    assert_eq!(text.matches("<D:response>").count(), 2001);
    assert!(text.starts_with("<?xml") && text.ends_with("</D:multistatus>\n"));
}

#[test]
fn a_listing_that_breaks_does_not_look_complete() {
    let (server, _) = serve(Endless::new(10_000, Some(5000)));
    let mut client = server.connect();
    client.send(LIST);
    assert_eq!(client.head().status.code(), 207);
    let part = client.chunks().expect_err("an end would be a lie");
    assert!(part.starts_with(b"<?xml") && !String::from_utf8_lossy(&part).contains("</D:multistatus>"));
    let (_, log) = server.stop();
    assert!(log[0]["error"].as_str().unwrap().contains("the disk is gone"), "{log:?}");
    // Where nothing was sent yet, it is an answer.
    let (server, _) = serve(Endless::new(10, Some(5)));
    assert_eq!(server.ask(LIST).status(), 500);
}

#[test]
fn slow_readers_hold_up_no_other_client() {
    const COUNT: u64 = 1_000_000;
    let (server, _) = serve(Endless::new(COUNT, None));
    let stuck: Vec<_> = (0..2 * limits::DISK_OPERATIONS_MAX)
        .map(|_| {
            let mut client = server.connect();
            client.send(LIST);
            assert_eq!(client.head().status.code(), 207);
            client
        })
        .collect();
    assert_eq!(server.request("PROPFIND /d/", "Depth: 0\r\n").status(), 207);
    let mut client = server.connect();
    client.send(LIST);
    assert_eq!(client.head().status.code(), 207);
    assert!(client.chunk().is_some());
    drop(stuck);
}

#[test]
fn a_listing_ends_with_its_reader() {
    let (server, watch) = serve(Endless::new(u64::MAX, None));
    let ended = watch.ends();
    let mut client = server.connect();
    client.send(LIST);
    client.head();
    client.chunk().unwrap();
    drop(client);
    ended.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn a_reader_that_stops_is_cut() {
    let storage = Endless::new(u64::MAX, None);
    let watch = storage.watch.clone();
    let server = TestServer::of(Arc::new(storage), |settings| {
        settings.deadlines.body_stall = Duration::from_millis(200);
    });
    let ended = watch.ends();
    let mut client = server.connect();
    client.send(LIST);
    client.head();
    ended.recv_timeout(PATIENCE).unwrap();
    assert!(client.chunks().is_err());
}

#[test]
fn a_copy_ends_when_its_client_leaves() {
    for method in ["COPY", "MOVE"] {
        let (server, watch) = serve(Endless::new(0, None));
        let ended = watch.ends();
        let mut client = server.connect();
        client.send(format!("{method} /endless HTTP/1.1\r\nHost: h\r\nDestination: /new\r\n\r\n"));
        while watch.copied.load(Ordering::SeqCst) < 10 {
            std::thread::yield_now();
        }
        drop(client);
        ended.recv_timeout(PATIENCE).unwrap();
        assert_eq!(server.request("PROPFIND /endless", "Depth: 0\r\n").status(), 207);
        assert_eq!(server.request("PROPFIND /new", "Depth: 0\r\n").status(), 404);
    }
}

#[test]
fn a_tree_that_cannot_be_renamed_is_copied_and_removed() {
    let (server, _) = serve(Endless::new(0, None));
    for directory in ["/t", "/t/sub", "/full", "/full/sub"] {
        assert_eq!(server.request(&format!("MKCOL {directory}"), "").status(), 201);
    }
    for file in ["/t/a", "/t/sub/b", "/full/sub/b"] {
        let got = server
            .ask(&format!("PUT {file} HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}", &file[1..3]));
        assert_eq!(got.status(), 201, "{}", got.text());
    }
    let get = |path: &str| server.request(&format!("GET {path}"), "");
    let modified = get("/f").field("last-modified").unwrap().to_owned();
    for (from, to, status, kept, gone) in [
        ("/f", "/g", 201, "/g", "/f"),
        ("/g", "/t/a", 204, "/t/a", "/g"),
        ("/t", "/u", 201, "/u/sub/b", "/t/"),
        ("/u", "/full", 204, "/full/sub/b", "/u/"),
        ("/full/sub", "/full/a", 204, "/full/a/b", "/full/sub/"),
    ] {
        let got = server.request(&format!("MOVE {from}"), &format!("Destination: {to}\r\n"));
        assert_eq!(got.status(), status, "{from} {to}: {}", got.text());
        assert_eq!((get(kept).status(), get(gone).status()), (200, 404), "{from} {to}");
        if kept == "/t/a" {
            assert_eq!(
                (get(kept).text().as_str(), get(kept).field("last-modified")),
                ("x", Some(modified.as_str()))
            );
        }
    }
    assert_eq!(get("/full/a/b").text(), "t/");
    let refused = server.request("MOVE /full", "Destination: /d\r\nOverwrite: F\r\n");
    assert_eq!((refused.status(), get("/full/a/b").status()), (412, 200));
}

#[test]
fn files_that_come_while_a_tree_is_moved_are_not_lost() {
    // A new file, and other bytes of one that was copied or is about to be.
    for (opened, stored, is_whole) in [
        ("t/b", "t/0", false),
        ("t/b", "t/sub/0", true),
        ("t/sub/c", "t/b", false),
        ("t/sub/c", "other", true),
    ] {
        let storage = Endless { meanwhile: Some((opened, stored)), ..Endless::new(0, None) };
        for directory in ["t", "t/sub"] {
            storage.inner.add_directory(&path(directory));
        }
        for file in ["t/b", "t/sub/c"] {
            storage.inner.add_file(&path(file), "early");
        }
        let (server, _) = serve(storage);
        let got = server.request("MOVE /t", "Destination: /u\r\n");
        let case = format!("{stored} when {opened} is opened: {}", got.text());
        if is_whole {
            assert_eq!((got.status(), server.request("GET /t/", "").status()), (201, 404), "{case}");
            continue;
        }
        got.assert_refused(Status::SERVICE_UNAVAILABLE, "changed while it was moved");
        assert_eq!(server.request(&format!("GET /{stored}"), "").text(), "late", "{case}");
        assert_eq!(server.request("GET /u/sub/c", "").text(), "early", "{case}");
    }
}
