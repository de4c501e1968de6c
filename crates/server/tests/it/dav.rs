//! WebDAV over a real connection: every status of RFC 4918 that this server gives, on a directory of this machine and
//! in memory.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;

use crate::support::{Response, TestServer};
use gridlane_dav::{ResourcePath, Status};
use gridlane_server::{Compat, Export, Settings};
use gridlane_store::{MemoryStorage, ObjectPath};

/// The same server on both kinds of storage.
fn servers(adjust: impl Fn(&mut Settings)) -> [TestServer; 2] {
    let adjust = |settings: &mut Settings| {
        settings.service.exports[0].allow_write = true;
        adjust(settings);
    };
    [TestServer::with(adjust), TestServer::of(Arc::new(MemoryStorage::new()), adjust)]
}

fn put(server: &TestServer, path: &str, text: &str) {
    let len = text.len();
    let got = server.ask(&format!("PUT {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len}\r\n\r\n{text}"));
    assert!(matches!(got.status(), 201 | 204), "{path}: {}", got.text());
}

fn get(server: &TestServer, path: &str) -> Option<String> {
    let got = server.request(&format!("GET {path}"), "");
    (got.status() == 200).then(|| got.text())
}

fn make(server: &TestServer, directories: &[&str]) {
    for directory in directories {
        assert_eq!(server.request(&format!("MKCOL {directory}"), "").status(), 201, "{directory}");
    }
}

fn with_body(server: &TestServer, line: &str, fields: &str, body: &str) -> Response {
    let len = body.len();
    server.ask(&format!("{line} HTTP/1.1\r\nHost: h\r\nContent-Length: {len}\r\n{fields}\r\n{body}"))
}

/// The paths of a multi-status, in its order.
fn hrefs(text: &str) -> Vec<&str> {
    text.split("<D:href>").skip(1).map(|rest| rest.split("</D:href>").next().unwrap()).collect()
}

fn sorted(text: &str) -> Vec<&str> {
    let mut hrefs = hrefs(text);
    hrefs.sort();
    hrefs
}

#[test]
fn listings() {
    for server in servers(|_| {}) {
        make(&server, &["/d", "/d/sub"]);
        put(&server, "/d/a%20b", "four");
        let got = server.request("PROPFIND /d/", "Depth: 1\r\n");
        assert_eq!((got.status(), got.field("content-type")), (207, Some("application/xml; charset=utf-8")));
        assert_eq!(got.field("content-length"), Some(got.body.len().to_string().as_str()));
        let text = got.text();
        assert_eq!(hrefs(&text)[0], "http://h/d/", "the directory itself comes first");
        assert_eq!(sorted(&text), ["http://h/d/", "http://h/d/a%20b", "http://h/d/sub/"]);
        for part in [
            "<D:resourcetype/>",
            "<D:resourcetype><D:collection/></D:resourcetype>",
            "<D:getcontentlength>4</D:getcontentlength>",
            "<D:displayname>a b</D:displayname>",
            "<D:getetag>&quot;",
            "<L:mode>0100666</L:mode>",
            "<L:mode>040777</L:mode>",
            "<D:getlastmodified>",
        ] {
            assert!(text.contains(part) || text.contains(&part.replace("&quot;", "\"")), "{part}: {text}");
        }
        assert!(!text.contains("quota") && !text.contains("HTTP/1.1 404"), "{text}");
        // Without a slash as well, for clients for which it need not be a page.
        for (target, depth, expected) in [
            ("/d", "0", &["http://h/d/"][..]),
            ("/d/a%20b", "0", &["http://h/d/a%20b"]),
            ("/d/a%20b", "1", &["http://h/d/a%20b"]),
            ("/", "1", &["http://h/", "http://h/d/"]),
            ("http://localhost/d/sub", "1", &["http://localhost/d/sub/"]),
        ] {
            let got = server.request(&format!("PROPFIND {target}"), &format!("Depth: {depth}\r\n"));
            assert_eq!((got.status(), sorted(&got.text())), (207, expected.to_vec()), "{target} {depth}");
        }
        for target in ["/none", "/d/a%20b/", "/d/a%20b/x", "/.gridlane", "/d/.gridlane/"] {
            let got = server.request(&format!("PROPFIND {target}"), "Depth: 0\r\n");
            got.assert_refused(Status::NOT_FOUND, "no such file");
        }
        let one = server.ask("PROPFIND /d/a%20b HTTP/1.0\r\nDepth: 0\r\n\r\n");
        assert_eq!(hrefs(&one.text()), ["/d/a%20b"], "no Host, no URL");
    }
    let readable = TestServer::of(Arc::new(MemoryStorage::new()), |_| {});
    assert!(readable.request("PROPFIND /", "Depth: 0\r\n").text().contains("<L:mode>040555</L:mode>"));
}

#[test]
fn propfinds_that_are_refused() {
    let server = TestServer::of(Arc::new(MemoryStorage::new()), |_| {});
    let got = server.request("PROPFIND /", "Depth: infinity\r\n");
    assert_eq!((got.status(), got.field("content-type")), (403, Some("application/xml; charset=utf-8")));
    assert!(got.text().contains("<D:propfind-finite-depth/>"));
    server.request("PROPFIND /", "Depth: 2\r\n").assert_refused(Status::BAD_REQUEST, "Depth");
    let bad = with_body(&server, "PROPFIND /", "Depth: 0\r\n", "<a><b></a>");
    bad.assert_refused(Status::BAD_REQUEST, "XML");
    let large = "PROPFIND / HTTP/1.1\r\nHost: h\r\nDepth: 0\r\nContent-Length: 65537\r\n\
                 Expect: 100-continue\r\n\r\n";
    server.ask(large).assert_refused(Status::CONTENT_TOO_LARGE, "65536");
    let mut client = server.connect();
    client.send("PROPFIND / HTTP/1.1\r\nHost: h\r\nDepth: 0\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(format!("10001\r\n{}\r\n0\r\n\r\n", " ".repeat(65_537)));
    client.response(false).assert_refused(Status::CONTENT_TOO_LARGE, "65536");
    // One that asks first is told to go on; and the connection is good for more.
    let mut client = server.connect();
    let body = "<propfind xmlns='DAV:'><propname/></propfind>";
    let len = body.len();
    client.send(format!(
        "PROPFIND / HTTP/1.1\r\nHost: h\r\nDepth: 0\r\nContent-Length: {len}\r\nExpect: 100-continue\r\n\r\n"
    ));
    assert_eq!(client.head().status, Status::CONTINUE);
    client.send(body);
    let got = client.response(false);
    assert!(got.text().contains("<D:prop><D:resourcetype/><D:displayname/>"), "{}", got.text());
    assert_eq!(client.request("PROPFIND /", "Depth: 0\r\n").status(), 207);
}

/// RFC 4918, 9.1, lets a server refuse an infinite depth of collections, and of nothing else.
#[test]
fn any_depth_of_a_file_and_of_nothing() {
    for server in servers(|_| {}) {
        put(&server, "/f", "x");
        make(&server, &["/d"]);
        put(&server, "/d/g", "x");
        for depth in ["", "Depth: 0\r\n", "Depth: 1\r\n", "Depth: infinity\r\n"] {
            let file = server.request("PROPFIND /f", depth);
            assert_eq!((file.status(), hrefs(&file.text()).len()), (207, 1), "{depth}");
            for missing in ["/none", "/none/f", "/f/", "/f/g"] {
                assert_eq!(server.request(&format!("PROPFIND {missing}"), depth).status(), 404, "{depth}");
            }
        }
        // What XRootD's client asks to know of one directory.
        let itself = server.request("PROPFIND /d", "");
        assert_eq!((itself.status(), hrefs(&itself.text())), (207, vec!["http://h/d/"]));
        for directory in ["/", "/d", "/d/"] {
            let refused = server.request(&format!("PROPFIND {directory}"), "Depth: infinity\r\n");
            assert_eq!(refused.status(), 403, "{directory}");
            assert!(refused.text().contains("<D:propfind-finite-depth/>"), "{directory}");
        }
    }
}

/// RFC 4918, 8.4: a body without a meaning is refused, and nothing is done.
#[test]
fn bodies_that_mean_nothing() {
    for server in servers(|_| {}) {
        put(&server, "/f", "x");
        for (line, fields) in [
            ("DELETE /f", ""),
            ("COPY /f", "Destination: /g\r\n"),
            ("MOVE /f", "Destination: /g\r\n"),
            ("MKCOL /g", ""),
        ] {
            for body in
                ["Content-Length: 1\r\n\r\nx", "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"]
            {
                let got = server.ask(&format!("{line} HTTP/1.1\r\nHost: h\r\n{fields}{body}"));
                got.assert_refused(Status::UNSUPPORTED_MEDIA_TYPE, "body");
            }
            assert_eq!((get(&server, "/f"), get(&server, "/g")), (Some("x".into()), None), "{line}");
        }
        assert_eq!(server.request("DELETE /f", "Content-Length: 0\r\n").status(), 204);
    }
}

/// RFC 4918, 9.6.1 and 9.9.2, are about collections.
#[test]
fn files_have_no_depth() {
    for server in servers(|_| {}) {
        make(&server, &["/d"]);
        for depth in ["0", "1", "infinity"] {
            put(&server, "/f", "x");
            let depth = format!("Depth: {depth}\r\n");
            let moved = server.request("MOVE /f", &format!("Destination: /g\r\n{depth}"));
            assert_eq!(moved.status(), 201, "{depth}");
            assert_eq!(server.request("DELETE /g", &depth).status(), 204, "{depth}");
        }
        put(&server, "/f", "x");
        server.request("DELETE /f", "Depth: 2\r\n").assert_refused(Status::BAD_REQUEST, "Depth");
        server.request("DELETE /d", "Depth: 1\r\n").assert_refused(Status::BAD_REQUEST, "Depth");
        let moved = server.request("MOVE /d", "Destination: /e\r\nDepth: 0\r\n");
        moved.assert_refused(Status::BAD_REQUEST, "Depth");
    }
}

#[test]
fn properties_by_name() {
    for server in servers(|_| {}) {
        put(&server, "/f.nc", "four");
        let ask = |path: &str, depth: &str, names: &str| {
            let body = format!(
                "<propfind xmlns='DAV:' xmlns:L='LCGDM:' xmlns:oc='http://owncloud.org/ns' xmlns:a='urn:a'>\
                 <prop>{names}</prop></propfind>"
            );
            let got = with_body(&server, &format!("PROPFIND {path}"), &format!("Depth: {depth}\r\n"), &body);
            assert_eq!(got.status(), 207);
            got.text()
        };
        let text =
            ask("/f.nc", "0", "<getcontenttype/><L:mode/><a:x/><owner/><oc:checksums/><creationdate/>");
        for part in [
            "<D:getcontenttype>application/x-netcdf</D:getcontenttype>",
            "<L:mode>0100666</L:mode>",
            "<D:owner>",
            // Known since it was uploaded.
            "ADLER32:",
            "<x:x xmlns:x=\"urn:a\"/></D:prop><D:status>HTTP/1.1 404 Not Found</D:status>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // RFC 4331: collections have quotas; only the one that was asked for is told of.
        let text = ask("/", "1", "<quota-used-bytes/><quota-available-bytes/>");
        assert_eq!(text.matches("<D:quota-used-bytes>").count(), 1, "{text}");
        assert_eq!(text.matches("<D:quota-available-bytes>").count(), 1, "{text}");
        assert_eq!(text.matches("404 Not Found").count(), 1, "{text}");
    }
}

#[test]
fn mkcol() {
    for server in servers(|_| {}) {
        put(&server, "/f", "x");
        for (line, fields, status) in [
            ("MKCOL /d", "", 201),
            ("MKCOL /d/e/", "", 201),
            ("MKCOL /g", "If-None-Match: *\r\nContent-Length: 0\r\n", 201),
            ("MKCOL /d", "", 405),
            ("MKCOL /f", "", 405),
            ("MKCOL /f/", "", 405),
            ("MKCOL /", "", 405),
            ("MKCOL /d", "If-None-Match: *\r\n", 412),
            ("MKCOL /new", "If-Match: *\r\n", 412),
            ("MKCOL /new", "If: (<opaquelocktoken:x>)\r\n", 412),
            ("MKCOL /none/d", "", 409),
            ("MKCOL /f/d", "", 409),
            ("MKCOL /.gridlane", "", 403),
            ("MKCOL /d/.gridlane/x", "", 403),
        ] {
            let got = server.request(line, fields);
            assert_eq!(got.status(), status, "{line} {fields}: {}", got.text());
            assert_eq!(got.field("allow").is_some(), status == 405, "{line}");
        }
        for body in ["Content-Length: 1\r\n\r\nx", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"] {
            let got = server.ask(&format!("MKCOL /b HTTP/1.1\r\nHost: h\r\n{body}"));
            got.assert_refused(Status::UNSUPPORTED_MEDIA_TYPE, "body");
        }
        assert_eq!(sorted(&server.request("PROPFIND /", "Depth: 1\r\n").text()).len(), 4);
    }
    let compat = Compat { create_parents: true, ..Compat::default() };
    for server in servers(|settings| settings.service.exports[0].compat = compat) {
        assert_eq!(server.request("MKCOL /a/b/c", "").status(), 201);
        put(&server, "/f", "x");
        assert_eq!(server.request("MKCOL /f/b/c", "").status(), 409);
        let moved = server.request("MOVE /f", "Destination: /x/y/f\r\n");
        assert_eq!((moved.status(), get(&server, "/x/y/f")), (201, Some("x".into())));
    }
    let server = TestServer::of(Arc::new(MemoryStorage::new()), |_| {});
    server.request("MKCOL /d", "").assert_refused(Status::FORBIDDEN, "this export is read-only");
}

#[test]
fn removing_directories() {
    for server in servers(|_| {}) {
        make(&server, &["/d", "/d/sub", "/e"]);
        put(&server, "/d/sub/f", "x");
        for (line, fields, status) in [
            ("DELETE /", "", 403),
            ("DELETE /none/", "", 404),
            ("DELETE /d/sub/f/", "", 404),
            ("DELETE /d/", "Depth: 0\r\n", 400),
            ("DELETE /d/", "If: (<urn:uuid:x>)\r\n", 412),
            ("DELETE /d/", "If-None-Match: *\r\n", 412),
            ("DELETE /d/", "If-Match: *\r\nDepth: infinity\r\n", 204),
            ("DELETE /d/", "", 404),
            ("DELETE /e", "", 204),
        ] {
            let got = server.request(line, fields);
            assert_eq!(got.status(), status, "{line} {fields}: {}", got.text());
        }
        assert_eq!(get(&server, "/d/sub/f"), None);
    }
    let compat = Compat { refuse_recursive_delete: true, ..Compat::default() };
    for server in servers(|settings| settings.service.exports[0].compat = compat) {
        make(&server, &["/d", "/e"]);
        put(&server, "/d/f", "x");
        server.request("DELETE /d/", "").assert_refused(Status::CONFLICT, "not empty");
        for method in ["MOVE", "COPY"] {
            let got = server.request(&format!("{method} /e"), "Destination: /d\r\n");
            got.assert_refused(Status::CONFLICT, "not empty");
        }
        assert_eq!(server.request("DELETE /d/f", "").status(), 204);
        assert_eq!(server.request("DELETE /d/", "").status(), 204);
    }
}

/// Fields behind the `Destination`, and the status of COPY and of MOVE; each begins with the same tree.
#[test]
fn the_table_of_copy_and_move() {
    for (line, fields, copy, moved) in [
        ("/f", "/new", 201, 201),
        ("/f", "http://h/new", 201, 201),
        ("/f", "https://H/new", 201, 201),
        ("/f", "/g", 204, 204),
        ("/f", "/g\r\nOverwrite: T", 204, 204),
        ("/f", "/g\r\nOverwrite: F", 412, 412),
        ("/f", "/new\r\nOverwrite: F", 201, 201),
        ("/f", "/g\r\nOverwrite: yes", 400, 400),
        ("/f", "/d", 204, 204),
        ("/f", "/d/", 204, 204),
        ("/f", "/new/", 409, 409),
        ("/f", "/none/new", 409, 409),
        ("/f", "/g/new", 409, 409),
        ("/f", "/f", 403, 403),
        ("/f", "/", 403, 403),
        ("/f", "/.gridlane/x", 403, 403),
        ("/f/", "/new", 404, 404),
        ("/none", "/new", 404, 404),
        ("/d", "/new", 201, 201),
        ("/d/", "/new/", 201, 201),
        ("/d", "/e", 204, 204),
        ("/d", "/e\r\nOverwrite: F", 412, 412),
        ("/d", "/g", 204, 204),
        ("/d", "/d", 403, 403),
        ("/d", "/d/inside", 403, 403),
        ("/d/sub", "/d", 403, 403),
        ("/d/sub/deep", "/d", 403, 403),
        ("/", "/new", 403, 403),
        ("/d", "/new\r\nDepth: infinity", 201, 201),
        ("/d", "/new\r\nDepth: 0", 201, 400),
        ("/d", "/new\r\nDepth: 1", 400, 400),
        ("/f", "/new\r\nIf-Match: \"other\"", 412, 412),
        ("/f", "/new\r\nIf-None-Match: *", 412, 412),
        ("/f", "/new\r\nIf-Unmodified-Since: Sun, 06 Nov 1960 08:49:37 GMT", 201, 201),
        ("/f", "/new\r\nIf: (<opaquelocktoken:x>)", 412, 412),
        ("/f", "/new\r\nIf: (Not <opaquelocktoken:x>)", 201, 201),
        ("/f", "/new\r\nIf: </g> ([\"other\"])", 412, 412),
        ("/f", "/new\r\nIf: </g> (Not [\"other\"])", 201, 201),
        ("/f", "/new\r\nIf: nonsense", 400, 400),
        ("/f", "http://other.example/new", 502, 502),
        ("/f", "http://h:81/new", 502, 502),
        ("/f", "root://h/new", 400, 400),
        ("/f", "new", 400, 400),
        ("/f", "/a/../new", 400, 400),
    ] {
        for (method, status) in [("COPY", copy), ("MOVE", moved)] {
            for server in servers(|_| {}) {
                make(&server, &["/d", "/d/sub", "/e"]);
                for (path, text) in [("/f", "f"), ("/g", "g"), ("/d/sub/deep", "deep"), ("/e/old", "old")] {
                    put(&server, path, text);
                }
                let got = server.request(&format!("{method} {line}"), &format!("Destination: {fields}\r\n"));
                let case = format!("{method} {line} {fields}: {}", got.text());
                assert_eq!(got.status(), status, "{case}");
                let target = fields.split('\r').next().unwrap().trim_end_matches('/');
                let target = target.rsplit('/').next().unwrap();
                let done = matches!(status, 201 | 204);
                match line.trim_end_matches('/') {
                    "/f" if done => assert_eq!(get(&server, &format!("/{target}")).unwrap(), "f", "{case}"),
                    "/d" if done => {
                        let deep = get(&server, &format!("/{target}/sub/deep"));
                        assert_eq!(deep.is_some(), !fields.contains("Depth: 0"), "{case}");
                        assert_eq!(get(&server, "/e/old").is_some(), target != "e", "{case}");
                    }
                    _ => {}
                }
                if !(done && method == "MOVE") {
                    // What was there is there still.
                    assert_eq!(get(&server, "/f").as_deref(), Some("f"), "{case}");
                    assert_eq!(get(&server, "/d/sub/deep").is_some(), !done || target != "d", "{case}");
                } else {
                    let source = server.request(&format!("PROPFIND {line}"), "Depth: 0\r\n");
                    assert_eq!(source.status(), 404, "{case}");
                }
                if !done {
                    assert_eq!(get(&server, "/g").as_deref(), Some("g"), "{case}");
                    assert_eq!(get(&server, "/e/old").as_deref(), Some("old"), "{case}");
                }
            }
        }
    }
    let server = TestServer::start();
    server.request("COPY /f", "").assert_refused(Status::BAD_REQUEST, "Destination");
}

#[test]
fn third_party_copies_are_refused_and_not_taken_for_others() {
    let server = TestServer::start();
    put(&server, "/f", "x");
    for fields in [
        "Source: https://elsewhere/f\r\n",
        "Destination: /new\r\nCredential: none\r\n",
        "Destination: /new\r\nX-Number-Of-Streams: 0\r\n",
        "Destination: /new\r\nTransferHeaderAuthorization: Bearer x\r\n",
    ] {
        let got = server.request("COPY /f", fields);
        assert_eq!(got.status(), 501, "{fields}");
        assert!(!got.text().contains("Bearer x"));
    }
    let got = server.request("COPY /f", "Destination: https://elsewhere/new\r\nCredential: none\r\n");
    got.assert_refused(Status::NOT_IMPLEMENTED, "no third-party copies");
    assert_eq!(get(&server, "/new"), None);
}

#[test]
fn checksums_follow_their_files() {
    for server in servers(|_| {}) {
        put(&server, "/f", "four");
        let known = |path: &str| {
            let body =
                "<propfind xmlns='DAV:'><prop><checksums xmlns='http://owncloud.org/ns'/></prop></propfind>";
            let got = with_body(&server, &format!("PROPFIND {path}"), "Depth: 0\r\n", body);
            got.text().contains("ADLER32:")
        };
        assert!(known("/f"));
        assert_eq!(server.request("COPY /f", "Destination: /g\r\n").status(), 201);
        assert_eq!(server.request("MOVE /f", "Destination: /h\r\n").status(), 201);
        assert!(known("/g") && known("/h"));
    }
}

/// `/one` and `/two/writable` may be written to, `/two/readable` may not.
fn three_exports() -> TestServer {
    TestServer::of(Arc::new(MemoryStorage::new()), |settings| {
        let export = |path: &str, allow_write: bool| {
            let storage = MemoryStorage::new();
            storage.add_directory(&ObjectPath::new([&b"d"[..]]).unwrap());
            storage.add_directory(&ObjectPath::new([&b"d"[..], b"sub"]).unwrap());
            storage.add_file(&ObjectPath::new([&b"d"[..], b"sub", b"f"]).unwrap(), path);
            storage.add_file(&ObjectPath::new([&b"f"[..]]).unwrap(), path);
            Export { path: ResourcePath::parse(path).unwrap(), allow_write, ..Export::new(Arc::new(storage)) }
        };
        settings.service.exports =
            vec![export("/one", true), export("/two/writable", true), export("/two/readable", false)];
    })
}

#[test]
fn from_export_to_export() {
    for (method, from, to, status) in [
        ("COPY", "/one/f", "/two/writable/new", 201),
        ("MOVE", "/one/f", "/two/writable/new", 201),
        ("MOVE", "/one/f", "/two/writable/f", 204),
        ("COPY", "/one/d/", "/two/writable/new/", 201),
        ("MOVE", "/one/d", "/two/writable/d", 204),
        ("MOVE", "/one/d", "/two/writable/f", 204),
        ("MOVE", "/one/f", "/two/writable/d", 204),
        ("COPY", "/two/readable/d", "/one/new", 201),
        ("MOVE", "/two/readable/d", "/one/new", 403),
        ("COPY", "/one/d", "/two/readable/new", 403),
        ("COPY", "/one/d", "/two", 403),
        ("COPY", "/one/d", "/three", 403),
        ("COPY", "/one/d", "/two/writable", 403),
        ("COPY", "/one", "/two/writable/new", 201),
        ("MOVE", "/one", "/two/writable/new", 403),
        ("COPY", "/two", "/one/new", 403),
        ("MOVE", "/two", "/one/new", 403),
    ] {
        let server = three_exports();
        let got = server.request(&format!("{method} {from}"), &format!("Destination: http://h{to}\r\n"));
        let case = format!("{method} {from} {to}: {}", got.text());
        assert_eq!(got.status(), status, "{case}");
        let (from, to) = (from.trim_end_matches('/'), to.trim_end_matches('/'));
        let below = if from.ends_with("/d") { "/sub/f" } else { "" };
        if !matches!(status, 201 | 204) || from == "/one" {
            continue;
        }
        let export = from.trim_end_matches("/d").trim_end_matches("/f");
        assert_eq!(get(&server, &format!("{to}{below}")).as_deref(), Some(export), "{case}");
        assert_eq!(get(&server, &format!("{from}{below}")).is_some(), method == "COPY", "{case}");
    }
}

#[test]
fn directories_above_the_exports() {
    let server = three_exports();
    let listed = |target: &str| {
        let got = server.request(&format!("PROPFIND {target}"), "Depth: 1\r\n");
        assert_eq!(got.status(), 207);
        got.text()
    };
    let text = listed("/");
    assert_eq!(hrefs(&text), ["http://h/", "http://h/one/", "http://h/two/"]);
    assert_eq!(hrefs(&listed("/two")), ["http://h/two/", "http://h/two/readable/", "http://h/two/writable/"]);
    assert!(!text.contains("<D:resourcetype/>"), "{text}");
    for (line, status) in [
        ("MKCOL /two", 405),
        ("DELETE /two/", 403),
        ("PROPPATCH /two", 403),
        ("PROPFIND /three", 404),
        ("MKCOL /three", 403),
        ("DELETE /three", 404),
        ("DELETE /one", 403),
    ] {
        assert_eq!(server.request(line, "Depth: infinity\r\n").status(), status, "{line}");
    }
    for (target, allowed) in [
        ("/two", "GET,HEAD,OPTIONS,PROPFIND"),
        ("/two/readable/f", "GET,HEAD,OPTIONS,PROPFIND,COPY"),
        ("/one/f", "GET,HEAD,PUT,DELETE,OPTIONS,PROPFIND,PROPPATCH,MKCOL,MOVE,COPY"),
        ("*", "GET,HEAD,PUT,DELETE,OPTIONS,PROPFIND,PROPPATCH,MKCOL,MOVE,COPY"),
    ] {
        let got = server.request(&format!("OPTIONS {target}"), "");
        assert_eq!(got.field("allow"), Some(allowed), "{target}");
    }
}

#[test]
fn failures_of_a_copy_are_named_and_the_rest_is_there() {
    let server = TestServer::of(Arc::new(MemoryStorage::new()), |settings| {
        let export = |path: &str| Export {
            path: ResourcePath::parse(path).unwrap(),
            allow_write: true,
            ..Export::new(Arc::new(MemoryStorage::new()))
        };
        settings.service.exports = vec![export("/a"), Export { upload_bytes_max: 3, ..export("/b") }];
    });
    make(&server, &["/a/d", "/a/d/sub"]);
    for (path, text) in [("/a/d/one", "1"), ("/a/d/sub/large%20one", "1234"), ("/a/d/sub/two", "2")] {
        put(&server, path, text);
    }
    for method in ["COPY", "MOVE"] {
        let got = server.request(&format!("{method} /a/d"), "Destination: /b/d\r\n");
        assert_eq!(got.status(), 207, "{}", got.text());
        let text = got.text();
        assert_eq!(hrefs(&text), ["http://h/b/d/sub/large%20one"]);
        assert!(text.contains("<D:status>HTTP/1.1 413 Content Too Large</D:status>"), "{text}");
        assert_eq!(
            (get(&server, "/b/d/one"), get(&server, "/b/d/sub/two")),
            (Some("1".into()), Some("2".into()))
        );
        assert_eq!(get(&server, "/b/d/sub/large%20one"), None);
        assert_eq!(
            get(&server, "/a/d/one").as_deref(),
            Some("1"),
            "a move that is not whole removes nothing"
        );
    }
    // Seen before what is to be replaced is gone.
    for method in ["COPY", "MOVE"] {
        let got = server.request(&format!("{method} /a/d/sub/large%20one"), "Destination: /b/d\r\n");
        got.assert_refused(Status::CONTENT_TOO_LARGE, "too large");
        assert_eq!(get(&server, "/b/d/one").as_deref(), Some("1"));
    }
}

#[test]
fn a_full_disk_is_507() {
    let storage = MemoryStorage::new().with_capacity(3);
    let server =
        TestServer::of(Arc::new(storage.clone()), |settings| settings.service.exports[0].allow_write = true);
    let long = |name: &[u8]| storage.add_file(&ObjectPath::new([&b"d"[..], name]).unwrap(), "long");
    storage.add_directory(&ObjectPath::new([&b"d"[..]]).unwrap());
    long(b"f");
    for (from, to) in [("/d/f", "/g"), ("/d", "/e")] {
        let got = server.request(&format!("COPY {from}"), &format!("Destination: {to}\r\n"));
        got.assert_refused(Status::INSUFFICIENT_STORAGE, "space");
    }
}

#[test]
fn links_that_lead_back_end() {
    let server = TestServer::start();
    make(&server, &["/d", "/d/sub"]);
    put(&server, "/d/sub/f", "x");
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, server.path(at)).unwrap();
    link("..", "d/sub/back");
    link("../copy", "d/forth");
    let got = server.request("COPY /d", "Destination: /copy\r\n");
    assert_eq!(got.status(), 207, "{}", got.text());
    let text = got.text();
    assert!(text.contains("508 Loop Detected"), "{text}");
    assert_eq!(sorted(&text), ["http://h/d/forth/", "http://h/d/sub/back/"]);
    assert_eq!(get(&server, "/copy/sub/f").as_deref(), Some("x"));
    // Two names of one directory, and one of them inside.
    link("d", "alias");
    for (from, to) in [("/d", "/alias"), ("/d", "/alias/sub/new"), ("/alias/sub", "/d")] {
        let got = server.request(&format!("COPY {from}"), &format!("Destination: {to}\r\n"));
        got.assert_refused(Status::FORBIDDEN, "same");
    }
    // What is removed is the link.
    assert_eq!(server.request("DELETE /alias/", "").status(), 204);
    assert_eq!(get(&server, "/d/sub/f").as_deref(), Some("x"));
}

#[test]
fn the_time_of_the_last_change_can_be_set() {
    for server in servers(|_| {}) {
        put(&server, "/f", "x");
        let patch = |path: &str, fields: &str, inside: &str| {
            let body = format!("<propertyupdate xmlns='DAV:'>{inside}</propertyupdate>");
            with_body(&server, &format!("PROPPATCH {path}"), fields, &body)
        };
        let modified = || server.request("HEAD /f", "").field("last-modified").unwrap().to_owned();
        let before = modified();
        let set = "<set><prop><lastmodified>1000000000</lastmodified></prop></set>";
        let refused = patch("/f", "", &format!("{set}<set><prop><x xmlns='urn:a'>y</x></prop></set>"));
        let text = refused.text();
        assert_eq!(refused.status(), 207, "{text}");
        assert!(text.contains("<x:x xmlns:x=\"urn:a\"/></D:prop><D:status>HTTP/1.1 403 Forbidden"), "{text}");
        assert!(
            text.contains("<D:lastmodified/></D:prop><D:status>HTTP/1.1 424 Failed Dependency"),
            "{text}"
        );
        assert_eq!(modified(), before, "all or nothing");
        for (path, fields, inside, status) in [
            ("/none", "", set, 404),
            ("/f/", "", set, 404),
            ("/f", "If-Match: \"x\"\r\n", set, 412),
            ("/f", "If: (<a:b>)\r\n", set, 412),
            ("/f", "", "", 400),
            ("/f", "", "<set>", 400),
        ] {
            assert_eq!(patch(path, fields, inside).status(), status, "{path} {fields} {inside}");
        }
        assert_eq!(modified(), before);
        let got = patch("/f", "", set);
        assert!(got.text().contains("<D:lastmodified/></D:prop><D:status>HTTP/1.1 200 OK"), "{}", got.text());
        assert_eq!((got.status(), modified().as_str()), (207, "Sun, 09 Sep 2001 01:46:40 GMT"));
        let removed = patch("/f", "", "<remove><prop><getetag/></prop></remove>");
        assert!(removed.text().contains("<D:cannot-modify-protected-property/>"), "{}", removed.text());
    }
}
