//! A storage like an object store: nothing is renamed or changed in place, uploads go in order, listings come in pages. What it
//! can hold it serves over both protocols; what it cannot is told so.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use std::time::Duration;

use crate::support::root::RootClient;
use crate::support::{Response, TestServer, noise, wait};
use gridlane_core::checksum::adler32;
use gridlane_dav::Status;
use gridlane_store::fake::{Delay, DelayedStorage, ObjectStore};
use gridlane_store::{ObjectPath, conformance};
use gridlane_xrd::flags::{DirlistOptions, FattrOptions, OpenOptions};
use gridlane_xrd::registry::FattrKind;
use gridlane_xrd::request::{About, Chmod, Dirlist, Fattr, FattrAbout, Mkdir, Mv, Rm, Stat};
use gridlane_xrd::{ErrorCode, PathArg};

fn path(text: &str) -> ObjectPath {
    ObjectPath::new(text.split('/').map(str::as_bytes)).unwrap()
}

fn serve() -> TestServer {
    let store = ObjectStore::new();
    store.add_directory(&path("d"));
    TestServer::of(Arc::new(store), |settings| settings.service.exports[0].allow_write = true)
}

/// Sends a request with fields and a body.
fn ask(server: &TestServer, line: &str, fields: &str, body: &[u8]) -> Response {
    let mut client = server.connect();
    client.send(format!("{line} HTTP/1.1\r\nHost: h\r\n{fields}Content-Length: {}\r\n\r\n", body.len()));
    client.send(body);
    client.response(line.starts_with("HEAD"))
}

#[test]
fn an_object_store_is_served_over_http() {
    let server = serve();
    let get = |path: &str| ask(&server, &format!("GET {path}"), "", b"");
    let bytes = noise(3_000_000, 7);
    assert_eq!(ask(&server, "PUT /d/f", "", &bytes).status(), 201);
    assert!(get("/d/f").body == bytes);
    let part = ask(&server, "GET /d/f", "Range: bytes=100000-100009\r\n", b"");
    assert_eq!((part.status(), part.body.as_slice()), (206, &bytes[100_000..100_010]));
    let parts = ask(&server, "GET /d/f", "Range: bytes=0-9,2000000-2000009\r\n", b"");
    assert!(parts.status() == 206 && parts.body.windows(10).any(|ten| *ten == bytes[2_000_000..2_000_010]));
    let digest = ask(&server, "HEAD /d/f", "Want-Digest: adler32\r\n", b"");
    assert_eq!(digest.field("digest"), Some(format!("adler32={:08x}", adler32(&bytes)).as_str()));
    let digest = ask(&server, "HEAD /d/f", "Want-Digest: md5\r\n", b"");
    assert!(digest.field("digest").is_some_and(|digest| digest.starts_with("md5=")), "{digest:?}");
    // A wrong upload is not seen.
    let wrong = ask(&server, "PUT /d/g", "Digest: adler32=00000001\r\n", b"bytes");
    assert_eq!((wrong.status(), get("/d/g").status()), (400, 404));
    let tag = digest.field("etag").unwrap().to_owned();
    assert_eq!(ask(&server, "PUT /d/f", "If-None-Match: *\r\n", b"other").status(), 412);
    assert_eq!(ask(&server, "PUT /d/f", &format!("If-Match: {tag}\r\n"), b"other").status(), 204);
    assert_eq!(get("/d/f").body, b"other");

    assert_eq!(ask(&server, "MKCOL /tree", "", b"").status(), 201);
    assert_eq!(ask(&server, "MKCOL /tree/below", "", b"").status(), 201);
    for number in 0..250 {
        assert_eq!(ask(&server, &format!("PUT /tree/below/{number}"), "", b"x").status(), 201);
    }
    let listed = ask(&server, "PROPFIND /tree/below/", "Depth: 1\r\n", b"");
    assert_eq!((listed.status(), listed.text().matches("<D:response>").count()), (207, 251));
    assert_eq!(get("/tree/below/").text().matches("<a href").count(), 251, "with a way up");
    let to = |target: &str| format!("Destination: {target}\r\n");
    assert_eq!(ask(&server, "COPY /tree", &to("/copy"), b"").status(), 201);
    assert_eq!(get("/copy/below/249").body, b"x");
    // What cannot be renamed is copied and removed.
    assert_eq!(ask(&server, "MOVE /d/f", &to("/d/moved"), b"").status(), 201);
    assert_eq!((get("/d/moved").body.as_slice(), get("/d/f").status()), (&b"other"[..], 404));
    assert_eq!(ask(&server, "MOVE /d/moved", &to("/copy/below/0"), b"").status(), 204);
    assert_eq!(get("/copy/below/0").body, b"other");
    assert_eq!(ask(&server, "MOVE /tree", &to("/moved"), b"").status(), 201);
    assert_eq!((get("/moved/below/7").body.as_slice(), get("/tree/").status()), (&b"x"[..], 404));
    assert_eq!(ask(&server, "DELETE /moved", "", b"").status(), 204);
    assert_eq!(get("/moved/below/7").status(), 404);

    let update = "<propertyupdate xmlns='DAV:'><set><prop><getlastmodified>Sun, 06 Nov 1994 08:49:37 GMT\
                  </getlastmodified></prop></set></propertyupdate>";
    let refused = ask(&server, "PROPPATCH /copy/below/0", "", update.as_bytes());
    refused.assert_refused(Status::NOT_IMPLEMENTED, "does not support it");
}

#[test]
fn an_object_store_is_served_over_root() {
    let server = serve();
    let bytes = noise(1_000_000, 8);
    assert_eq!(ask(&server, "PUT /d/f", "", &bytes).status(), 201);
    let mut client = RootClient::connect(server.address);
    let about = |path: &str| PathArg::new(path);
    let handle = client.open("/d/f", OpenOptions::READ).unwrap();
    assert!(client.read(handle, 0, 1_000_000).unwrap() == bytes);
    assert!(client.pgread(handle, 4000, 100_000).unwrap() == bytes[4000..104_000]);
    client.close(handle).unwrap();
    assert_eq!(client.checksum("/d/f").unwrap(), format!("adler32 {:08x}", adler32(&bytes)));
    client.ask(Stat { about: About::Path(about("/d/f")), is_vfs: false, wants: 0 }, &[]).unwrap();
    client.ask(Mkdir { about: about("/new/below"), parents: true, mode: 0o750 }, &[]).unwrap();
    let listed = client.ask(Dirlist { about: about("/"), options: DirlistOptions::STAT }, &[]).unwrap();
    let listed = String::from_utf8(listed.body).unwrap();
    assert!(listed.contains("\nd\n") && listed.contains("\nnew\n"), "{listed:?}");

    let unsupported = |refused: Option<ErrorCode>| assert_eq!(refused, Some(ErrorCode::UNSUPPORTED));
    let changing = OpenOptions::NEW | OpenOptions::UPDATE;
    for (path, options) in
        [("/d/new", changing), ("/d/new", changing | OpenOptions::POSC), ("/d/f", OpenOptions::UPDATE)]
    {
        unsupported(client.open(path, options).err().map(|refused| refused.0));
    }
    unsupported(client.truncate(About::Path(about("/d/f")), 1).err().map(|refused| refused.0));
    let moving = Mv { from: about("/d/f"), to: about("/d/g") };
    unsupported(client.ask(moving, &[]).err().map(|refused| refused.0));
    let chmod = Chmod { about: about("/d/f"), mode: 0o600 };
    unsupported(client.ask(chmod, &[]).err().map(|refused| refused.0));
    let (kind, options) = (FattrKind::LIST, FattrOptions::NONE);
    let fattr = Fattr { about: FattrAbout::Path(about("/d/f")), kind, options, attributes: Vec::new() };
    unsupported(client.ask(fattr, &[]).err().map(|refused| refused.0));

    client.ask(Rm { about: about("/d/f") }, &[]).unwrap();
    assert_eq!(client.open("/d/f", OpenOptions::READ).unwrap_err().0, ErrorCode::NOT_FOUND);
}

/// The suite is for storages wherever they are.
#[test]
fn the_storage_of_these_tests_conforms() {
    let prepare = || {
        let store = ObjectStore::new();
        store.add_directory(&path("sub"));
        DelayedStorage::new(Arc::new(store), Delay::of(Duration::ZERO))
    };
    for check in conformance::of(&prepare()) {
        wait(check.run(&prepare()));
    }
}
