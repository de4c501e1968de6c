//! Clients that may do some things and not others: every method, over HTTP and over root://.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;

use crate::support::TestServer;
use crate::support::root::RootClient;
use gridlane_auth::policy::{Principal, Template};
use gridlane_auth::{Grants, Operation, Policy, Rule};
use gridlane_dav::{ResourcePath, Status};
use gridlane_server::Settings;
use gridlane_xrd::flags::{OpenOptions, PrepareOptions};
use gridlane_xrd::request::{About, Mkdir, Mv, Prepare, Stat};
use gridlane_xrd::{ErrorCode, PathArg};

/// Anyone may do these things at these places.
fn rules(grants: &[(&str, Grants)]) -> impl FnOnce(&mut Settings) {
    move |settings: &mut Settings| {
        settings.service.exports[0].allow_write = true;
        settings.service.exports[0].compat.create_parents = true;
        let rule = |(under, may): &(&str, Grants)| Rule {
            name: format!("{may} under {under}"),
            who: Principal::anyone(),
            may: *may,
            under: Template::parse(under).unwrap(),
        };
        settings.policy = Arc::new(Policy::new(grants.iter().map(rule).collect()));
    }
}

const NEW: Grants = Grants::CREATE;
const INSTEAD: Grants = Grants::OVERWRITE;
const RENAMES: Grants = Grants::of(Operation::Rename);

fn server() -> TestServer {
    let server = TestServer::with(rules(&[
        ("/new", NEW),
        ("/instead", INSTEAD),
        ("/names", RENAMES),
        ("/deep/er", NEW.with(RENAMES)),
        ("/files", Grants::of(Operation::Create)),
        ("/read", Grants::READ.with(Grants::LIST)),
    ]));
    for directory in ["new", "instead", "names", "files", "read", "read/sub", "names/sub"] {
        std::fs::create_dir(server.path(directory)).unwrap();
        server.write(&format!("{directory}/f"), directory);
    }
    server
}

#[test]
fn each_method_needs_its_own() {
    let server = server();
    let put = "Content-Length: 0\r\n";
    let to = |path: &str| format!("Destination: {path}\r\n");
    for (line, fields, expected, word) in [
        ("PUT /new/g", put.into(), 201, ""),
        ("PUT /new/g", put.into(), 403, "no rule"),
        ("PUT /new/g", format!("{put}If-None-Match: *\r\n"), 403, "no rule"),
        ("PUT /instead/f", put.into(), 204, ""),
        ("PUT /instead/g", put.into(), 403, "no rule"),
        ("PUT /files/g", put.into(), 201, ""),
        ("PUT /files/no/g", put.into(), 403, "no rule"),
        ("PUT /names/f", put.into(), 403, "no rule"),
        // The directories that lead to a place have to be allowed as well.
        ("PUT /deep/er/g", put.into(), 403, "no rule"),
        ("MKCOL /deep/er", String::new(), 403, "no rule"),
        ("MKCOL /new/d/e", String::new(), 201, ""),
        ("MKCOL /instead/d", String::new(), 403, "no rule"),
        ("DELETE /new/g", String::new(), 403, "no rule"),
        ("DELETE /names/f", String::new(), 403, "no rule"),
        ("GET /new/g", String::new(), 403, "no rule"),
        ("HEAD /new/g", String::new(), 200, ""),
        ("PROPFIND /new/g", "Depth: 0\r\n".into(), 207, ""),
        ("PROPFIND /new", "Depth: 1\r\n".into(), 403, "no rule"),
        ("COPY /read/f", to("/new/c"), 201, ""),
        ("COPY /read/f", to("/new/c"), 403, "no rule"),
        ("COPY /read/f", to("/instead/f"), 204, ""),
        ("COPY /read/f", to("/instead/c"), 403, "no rule"),
        ("COPY /read/sub", to("/files/sub"), 403, "no rule"),
        ("COPY /read/sub", to("/new/sub"), 201, ""),
        ("MOVE /new/c", to("/new/e"), 403, "no rule"),
        ("MOVE /names/sub", to("/new/e"), 201, ""),
        ("MOVE /names/f", to("/new/f"), 403, "no rule"),
        // A client that may not read it does not move it to where it may.
        ("MOVE /names/f", to("/read/g"), 403, "no rule"),
        ("MOVE /names/f", to("/instead/f"), 204, ""),
    ] {
        let got = server.request(line, &fields);
        assert_eq!(got.status(), expected, "{line} {fields}: {}", got.text());
        assert!(got.text().contains(word), "{line} {fields}: {}", got.text());
    }
    assert_eq!(server.read("instead/f").unwrap(), b"names");
    assert_eq!(server.read("new/c").unwrap(), b"read");
    assert_eq!(server.leftovers(), 0);
}

#[test]
fn nothing_is_moved_to_above_where_it_could_be_read() {
    let server = TestServer::with(rules(&[("/", NEW.with(RENAMES)), ("/open/sub", Grants::READ)]));
    for directory in ["private", "private/sub", "private/other"] {
        std::fs::create_dir(server.path(directory)).unwrap();
    }
    server.write("private/sub/f", "secret");
    let to = |path: &str| format!("Destination: {path}\r\n");
    for (line, destination, expected) in [
        ("MOVE /private", "/open", 403),
        ("MOVE /private/sub", "/open/sub", 403),
        ("MOVE /private/other", "/elsewhere", 201),
        ("MOVE /private/sub/f", "/elsewhere/f", 201),
    ] {
        let got = server.request(line, &to(destination));
        assert_eq!(got.status(), expected, "{line} {destination}: {}", got.text());
    }
}

#[test]
fn only_names_that_lead_to_visible_files_are_named() {
    let at = |grants: &'static [(&str, Grants)]| {
        TestServer::with(move |settings| {
            rules(grants)(settings);
            settings.service.exports[0].path = ResourcePath::parse("/deep/export").unwrap();
        })
    };
    let open = at(&[("/deep/export/public", Grants::READ)]);
    for line in ["GET /", "GET /deep/", "PROPFIND /deep"] {
        let got = open.request(line, "Depth: 1\r\n");
        assert!(matches!(got.status(), 200 | 207) && got.text().contains("deep"), "{line}: {}", got.text());
    }
    let closed = at(&[("/elsewhere", Grants::READ)]);
    for line in ["GET /", "HEAD /deep/", "GET /deep", "PROPFIND /"] {
        let got = closed.request(line, "Depth: 1\r\n");
        assert_eq!(got.status(), 403, "{line}: {}", got.text());
        assert!(!got.text().contains("deep"), "{line}: {}", got.text());
    }
}

#[test]
fn concurrent_uploads_are_not_replaced_without_the_right() {
    let server = server();
    let mut client = server.connect();
    client.send("PUT /new/g HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.response(false).status(), 100);
    server.write("new/g", "theirs");
    client.send("x");
    client.response(false).assert_refused(Status::FORBIDDEN, "no rule");
    assert_eq!(server.read("new/g").unwrap(), b"theirs");
    let mut client = server.connect();
    client.send("PUT /instead/f HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.response(false).status(), 100);
    std::fs::remove_file(server.path("instead/f")).unwrap();
    client.send("x");
    assert_eq!(client.response(false).status(), 503);
    assert_eq!(server.read("instead/f"), None);
}

#[test]
fn a_checksum_needs_the_right_to_read() {
    let server = server();
    let wants = "Want-Digest: adler32\r\n";
    assert!(server.request("HEAD /read/f", wants).field("digest").is_some());
    let told = server.request("HEAD /new/f", wants);
    assert_eq!((told.status(), told.field("digest")), (200, None));
}

#[test]
fn over_root_as_well() {
    let server = server();
    let mut client = RootClient::connect(server.address);
    const UPDATE: OpenOptions = OpenOptions::UPDATE;
    const CREATE: OpenOptions = OpenOptions::NEW;
    const REPLACE: OpenOptions = OpenOptions::DELETE;
    let refused = Err(ErrorCode::NOT_AUTHORIZED);
    for (path, options, expected) in [
        ("/new/g", CREATE, Ok(())),
        ("/new/g", UPDATE, refused),
        ("/new/g", REPLACE, refused),
        ("/new/h", REPLACE, Ok(())),
        ("/instead/f", UPDATE, Ok(())),
        ("/instead/f", REPLACE, Ok(())),
        ("/instead/g", REPLACE, refused),
        ("/instead/g", CREATE, refused),
        ("/new/g", OpenOptions::READ, refused),
        ("/read/f", OpenOptions::READ, Ok(())),
        ("/files/no/g", CREATE | OpenOptions::MKPATH, refused),
        ("/new/no/g", CREATE | OpenOptions::MKPATH, Ok(())),
    ] {
        let opened = client.open(path, options);
        if let Ok(handle) = opened {
            client.close(handle).unwrap();
        }
        assert_eq!(opened.map(drop).map_err(|(code, _)| code), expected, "{path} {options:?}");
    }
    let arg = |path: &str| PathArg::new(path);
    let mut ask =
        |request: gridlane_xrd::Request| client.ask(request, &[]).map(drop).map_err(|(code, _)| code);
    let mkdir =
        |path: &str, parents| gridlane_xrd::Request::Mkdir(Mkdir { about: arg(path), parents, mode: 0 });
    assert_eq!(ask(mkdir("/instead/d", false)), refused);
    assert_eq!(ask(mkdir("/deep/er", true)), refused);
    assert_eq!(ask(mkdir("/new/x/y", true)), Ok(()));
    let mv = |from: &str, to: &str| gridlane_xrd::Request::Mv(Mv { from: arg(from), to: arg(to) });
    assert_eq!(ask(mv("/new/h", "/new/i")), refused);
    assert_eq!(ask(mv("/names/f", "/new/g")), refused);
    assert_eq!(ask(mv("/names/f", "/read/g")), refused);
    assert_eq!(ask(mv("/names/f", "/new/i")), Ok(()));
    let stage = gridlane_xrd::Request::Prepare(Prepare {
        options: PrepareOptions::STAGE,
        priority: 0,
        port: 0,
        evicts: false,
        lines: vec![b"/read/f".to_vec()],
    });
    assert_eq!(ask(stage), refused);
    let stat = Stat { about: About::Path(arg("/new/g")), is_vfs: false, wants: 0 };
    assert_eq!(ask(stat.into()), Ok(()));
    drop(client);
    // Each line has what was decided of its own request.
    let (_, log) = server.stop();
    let of = |method: &str, path: &str, status: u16| {
        let is_it = |record: &&serde_json::Value| {
            (&record["method"], &record["path"], &record["status"])
                == (&method.into(), &path.into(), &status.into())
        };
        let found = log.iter().find(is_it).unwrap();
        assert_eq!(found["identity"]["kind"], "anonymous");
        found["decision"].as_str().unwrap().to_owned()
    };
    let no = "no rule lets anyone do that here without a credential";
    assert_eq!(of("root:open", "/new/g", 0), "create under /new");
    assert_eq!(of("root:open", "/instead/f", 0), "overwrite under /instead");
    assert_eq!(of("root:mkdir", "/instead/d", 3010), no);
    assert_eq!(of("root:mkdir", "/new/x/y", 0), "create under /new");
    assert_eq!(of("root:stat", "/new/g", 0), "create under /new");
    assert_eq!(of("root:prepare", "/read/f", 3010), no);
}
