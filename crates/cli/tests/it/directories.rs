//! A directory where a file was asked for: what a server sends for it is a page, and never data.

use std::fs;
use std::sync::Arc;

use crate::support::apache::Apache;
use crate::support::client::{Outcome, cp, cp_from, gridlane, run, text};
use crate::support::nginx::Nginx;
use crate::support::object::{Answer, Object, Then};
use crate::support::rogue::{Request, Rogue};
use crate::support::serve::Server;
use crate::support::wsgidav::WsgiDav;
use crate::support::xrootd::Xrootd;
use crate::support::{Scratch, assert_copied, content, names};

/// Everything that takes a file, asked for what `url` makes of `sub` and `sub/`; by HTTP it is the caller's
/// mistake (2), by root:// what is there does not fit (5).
#[track_caller]
fn assert_refused(url: impl Fn(&str) -> String, scratch: &Scratch, code: i32) {
    let into = scratch.dir("into");
    let refused = |outcome: Outcome, code: i32| {
        let outcome = outcome.says(&["directory", "-r"]);
        assert_eq!(outcome.code, Some(code), "{}", outcome.describe());
        assert!(names(&into).is_empty(), "{}", outcome.describe());
        outcome
    };
    for path in ["sub", "sub/"] {
        let code = if path.ends_with('/') { 2 } else { code };
        refused(run(cp(url(path), &into)), code);
        refused(run(cp(url(path), into.join("f"))), code);
        let mut cat = gridlane();
        cat.args(["cat", &url(path)]);
        assert!(refused(run(cat), code).stdout.is_empty());
    }
    let mut dry = cp(url("sub"), &into);
    dry.arg("--dry-run");
    refused(run(dry), 2);
}

#[test]
fn our_own_server_and_files_of_this_machine() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    fs::create_dir(export.join("sub")).unwrap();
    fs::write(export.join("sub/f"), b"data").unwrap();
    let server = Server::start(&export);
    assert_refused(|path| server.url(path), &scratch, 2);
    assert_refused(|path| server.url_over("root", path), &scratch, 5);
    assert_refused(|path| format!("{}/{path}", text(&export)), &scratch, 2);
    let mut checksum = gridlane();
    checksum.args(["checksum", &server.url("sub")]);
    run(checksum).exits(2).says(&["it is a directory"]);
}

#[test]
fn servers_of_others() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    fs::create_dir(export.join("sub")).unwrap();
    fs::write(export.join("sub/f"), b"data").unwrap();
    let nginx = Nginx::with(&export, "autoindex on;");
    assert_refused(|path| nginx.url(path), &scratch, 2);
    let apache = Apache::start(&export);
    assert_refused(|path| apache.url(path), &scratch, 2);
    // It sends the page at once.
    let wsgidav = WsgiDav::start(&export);
    let mut got = gridlane();
    got.args(["cat", &wsgidav.url("sub/f")]);
    assert_eq!(run(got).ok().stdout, b"data");
    let into = scratch.dir("into");
    run(cp(wsgidav.url("sub"), &into)).exits(2).says(&["it is a directory", "-r"]);
    assert!(names(&into).is_empty());
    let xrootd = Xrootd::start();
    xrootd.put("sub/f", b"data");
    assert_refused(|path| xrootd.url(path), &scratch, 5);
}

#[test]
fn a_redirect_and_a_page_are_told_from_data() {
    let bytes = content(3401, 100_000);
    let page = Arc::new(b"<html>Index of /sub</html>".to_vec());
    let (object, html) = (Object::bare(&bytes), Object::bare(&page));
    let answer_page = move |request: &Request| html.answer(request).header("Content-Type", "text/html");
    let collection = Arc::new(
        b"<D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>/listed</D:href><D:propstat><D:prop><D:resourcetype>\
          <D:collection/></D:resourcetype></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>\
          </D:multistatus>"
            .to_vec(),
    );
    let server = Rogue::start(move |request| match (request.method.as_str(), request.path.as_str()) {
        ("PROPFIND", "/listed") => {
            Answer::status(207).body(&collection, 0..collection.len()).then(Then::Close)
        }
        ("PROPFIND", _) => Answer::status(405).then(Then::Close),
        // As another host, with a letter encoded in another way, and after a detour.
        (_, "/elsewhere") => Answer::redirect(301, "http://inner.example:8080/elsewhere/"),
        (_, "/s%75b") => Answer::redirect(308, "/sub/?C=N"),
        (_, "/detour") => Answer::redirect(302, "/sub"),
        (_, "/sub") => Answer::redirect(302, "sub/"),
        (_, "/moved") => Answer::redirect(302, "/f"),
        (_, "/listed" | "/page" | "/page.html") => answer_page(request),
        (_, path) if path.ends_with('/') => answer_page(request),
        _ => object.answer(request),
    });
    let scratch = Scratch::new();
    let into = scratch.dir("into");
    for directory in ["elsewhere", "s%75b", "detour", "sub", "listed"] {
        run(cp(server.url(directory), &into)).fails(2, "caller", false, &["it is a directory", "-r"]);
        assert!(names(&into).is_empty(), "{directory}");
    }
    // What no server calls a directory is a file.
    for (file, expected) in [("moved", &bytes), ("page", &page), ("page.html", &page)] {
        run(cp(server.url(file), &into)).ok();
        assert_copied(&into.join(file), expected);
    }
    let asked = |path: &str| {
        server
            .requests()
            .iter()
            .filter(|request| request.method == "PROPFIND" && request.path == path)
            .count()
    };
    assert!(asked("/page") > 0);
    assert_eq!((asked("/page.html"), asked("/moved")), (0, 0));
    // A mirror that is a directory is of no use, and does no harm.
    run(cp_from(&[server.url("f"), server.url("sub")], into.join("mirrored"))).ok();
    assert_copied(&into.join("mirrored"), &bytes);
    run(cp_from(&[server.url("f"), server.url("sub/")], into.join("refused"))).exits(2).says(&["directory"]);
}
