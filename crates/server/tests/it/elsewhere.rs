//! Metalinks and links to a file's mirrors, and pages of other sites whose scripts may read it.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support::TestServer;
use gridlane_core::{Checksum, Url};
use gridlane_dav::metalink::Format;
use gridlane_dav::{Metalink, Status, link_header};
use gridlane_server::Settings;

const V4: &str = "Accept: application/metalink4+xml\r\n";
const V3: &str = "Accept: application/metalink+xml\r\n";

fn mirrored(settings: &mut Settings) {
    settings.service.exports[0].allow_write = true;
    settings.service.exports[0].mirrors =
        ["https://one.example/data/", "http://two.example:1094", "https://u:p@three.example/"]
            .map(|root| Url::parse_absolute(root).unwrap())
            .to_vec();
}

fn put(server: &TestServer, path: &str, fields: &str) {
    let put = format!("PUT {path} HTTP/1.1\r\nHost: h\r\n{fields}Content-Length: 9\r\n\r\n123456789");
    assert_eq!(server.ask(&put).status(), 201);
}

#[test]
fn a_metalink_for_clients_that_prefer_it() {
    let server = TestServer::start();
    let checksums = "Digest: sha-256=FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=\r\n";
    put(&server, "/a%20%26%20b.root", checksums);
    for (line, fields, format) in [
        ("GET /a%20%26%20b.root", V4, Format::V4),
        ("GET /a%20%26%20b.root", V3, Format::V3),
        ("GET /a%20%26%20b.root?metalink", "", Format::V4),
        ("GET /a%20%26%20b.root", "Accept: application/metalink4+xml\r\nRange: bytes=0-1\r\n", Format::V4),
    ] {
        let got = server.request(line, fields);
        assert_eq!(
            (got.status(), got.field("content-type")),
            (200, Some(format.media_type())),
            "{line} {fields}"
        );
        assert_eq!((got.field("vary"), got.head.etag()), (Some("Accept"), None), "none of the file's");
        let metalink = Metalink::parse(&got.body).unwrap();
        assert_eq!(metalink.format, format);
        let [file] = metalink.files.as_slice() else { panic!("{metalink:?}") };
        assert_eq!(file.name.as_ref().unwrap().as_str(), "a & b.root");
        assert_eq!((file.size, file.pieces.len()), (Some(9), 0));
        let known: Vec<String> = file.checksums().map(Checksum::to_string).collect();
        assert_eq!(known.len(), 2, "{known:?}");
        assert!(
            known.contains(&"adler32:091e01de".to_owned())
                && known.iter().any(|one| one.starts_with("sha256:15e2b0d3"))
        );
        let urls: Vec<&str> = file.replicas.iter().map(|replica| replica.url.as_str()).collect();
        assert_eq!(urls, ["http://h/a%20%26%20b.root"]);
    }
    let head = server.request("HEAD /a%20%26%20b.root", V4);
    assert_eq!((head.status(), head.field("content-type")), (200, Some(Format::V4.media_type())));
    // aria2 takes one as gladly as the file: it gets the file, and is told that there was a choice.
    let all = "Accept: */*,application/metalink4+xml,application/metalink+xml\r\n";
    let got = server.request("GET /a%20%26%20b.root", all);
    assert_eq!((got.body.as_slice(), got.field("vary")), (&b"123456789"[..], Some("Accept")));
    assert_eq!(got.field("link"), None, "it is nowhere else");
    assert_eq!(server.request("GET /none?metalink", "").status(), 404);
    assert_eq!(server.request("GET /?metalink", "").status(), 200);
}

#[test]
fn mirrors_are_named() {
    let server = TestServer::with(mirrored);
    std::fs::create_dir(server.path("d")).unwrap();
    put(&server, "/d/f%3f", "");
    for line in ["GET /d/f%3f", "HEAD /d/f%3f"] {
        let got = server.request(line, "");
        let lines: Vec<&str> = got.head.headers.all("link").collect();
        assert_eq!(
            lines,
            [
                "<https://one.example/data/d/f%3F>; rel=duplicate; pri=2",
                "<http://two.example:1094/d/f%3F>; rel=duplicate; pri=3",
                "<http://h/d/f%3F?metalink>; rel=describedby; type=\"application/metalink4+xml\"",
            ],
            "{line}"
        );
        assert_eq!(link_header::duplicates(&got.head.headers).len(), 2);
    }
    let metalink = Metalink::parse(&server.request("GET /d/f%3f", V4).body).unwrap();
    let urls: Vec<_> =
        metalink.files[0].replicas.iter().map(|one| (one.url.as_str(), one.priority)).collect();
    assert_eq!(
        urls,
        [
            ("http://h/d/f%3F", 1),
            ("https://one.example/data/d/f%3F", 2),
            ("http://two.example:1094/d/f%3F", 3)
        ]
    );
}

#[test]
fn pages_that_may_read() {
    let server = TestServer::with(|settings| {
        settings.service.exports[0].allow_write = true;
        settings.service.exports[0].cors_origins = vec!["https://jsroot.example".to_owned()];
    });
    server.write("f", b"0123456789");
    let listed = "Origin: https://jsroot.example\r\n";
    for (line, fields, status) in [
        ("GET /f", "Range: bytes=0-1,3-4\r\n", 206),
        ("GET /f", "Range: bytes=20-\r\n", 416),
        ("HEAD /f", "", 200),
        ("GET /none", "", 404),
    ] {
        let got = server.request(line, &format!("{listed}{fields}"));
        assert_eq!(got.status(), status);
        assert_eq!(got.field("access-control-allow-origin"), Some("https://jsroot.example"), "{line}");
        let exposed = got.field("access-control-expose-headers").unwrap();
        assert!(
            ["Content-Range", "ETag", "Digest", "Accept-Ranges"].iter().all(|name| exposed.contains(name))
        );
        assert!(got.head.headers.has_token("vary", "origin"));
        let other = server.request(line, &format!("Origin: https://evil.example\r\n{fields}"));
        assert_eq!((other.status(), other.field("access-control-allow-origin")), (status, None));
        assert!(other.head.headers.has_token("vary", "origin"), "a cache may not give it to others");
    }
    let ask = "Access-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: range\r\n";
    let preflight = server.request("OPTIONS /f", &format!("{listed}{ask}"));
    assert_eq!((preflight.status(), preflight.field("content-length")), (204, None));
    assert_eq!(preflight.field("access-control-allow-origin"), Some("https://jsroot.example"));
    assert_eq!(preflight.field("access-control-allow-methods"), Some("GET, HEAD, OPTIONS"));
    assert!(preflight.head.headers.has_token("access-control-allow-headers", "range"));
    assert_eq!(preflight.field("access-control-max-age"), Some("7200"));
    assert_eq!(preflight.field("access-control-allow-credentials"), None);
    for origin in ["https://evil.example", "https://jsroot.example.evil.example", "null", "*", ""] {
        let got = server.request("OPTIONS /f", &format!("Origin: {origin}\r\n{ask}"));
        assert_eq!((got.status(), got.field("access-control-allow-origin")), (200, None), "{origin}");
    }
    // Without a question of the browser's it is what it always is.
    assert!(server.request("OPTIONS /f", listed).field("allow").unwrap().contains("PUT"));
}

#[test]
fn origins_for_all_pages_and_for_none() {
    let server = TestServer::with(|settings| settings.service.exports[0].cors_origins = vec!["*".to_owned()]);
    server.write("f", b"x");
    let got = server.request("GET /f", "Origin: https://any.example\r\n");
    assert_eq!(got.field("access-control-allow-origin"), Some("*"));
    assert_eq!(got.field("access-control-allow-credentials"), None);
    assert_eq!(server.request("GET /f", "").field("access-control-allow-origin"), None);
    let server = TestServer::start();
    server.write("f", b"x");
    let got = server.request("GET /f", "Origin: https://any.example\r\n");
    assert_eq!(got.field("access-control-allow-origin"), None);
    assert!(!got.head.headers.has_token("vary", "origin"));
    // A name that points here from elsewhere is still refused.
    let ask = "OPTIONS /f HTTP/1.1\r\nHost: evil.example\r\nOrigin: https://any.example\r\nAccess-Control-Request-Method: GET\r\n\r\n";
    assert_eq!(server.ask(ask).head.status, Status::MISDIRECTED_REQUEST);
}
