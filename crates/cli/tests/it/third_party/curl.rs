//! Between two of gridlane's servers, as curl asks for it.

use std::fs;
use std::time::Instant;

use super::{Copied, Site, Watched, copy};
use crate::support::client::text;
use crate::support::object::{Answer, Object, Then};
use crate::support::rogue::{Request, Rogue};
use crate::support::tools::run_curl;
use crate::support::{MIB, SOON, assert_same, content, until};

/// Sizes at which something else happens.
const SIZES: [usize; 4] = [0, 1, 64 * 1024, 5 * MIB + 17];

#[test]
fn pulls_and_pushes_in_clear_and_over_tls() {
    let passive = Site::new();
    let active = Site::trusting(&passive.server.ca());
    for scheme in ["http", "https"] {
        for (seed, size) in (9101..).zip(SIZES) {
            let bytes = content(seed, size);
            let name = format!("{scheme}-{size}");
            passive.put(&name, &bytes);
            let source = format!("Source: {}", passive.server.url_over(scheme, &name));
            let pulled =
                copy(&active.server.url_over(scheme, &name), &[&source, "Credential: none"]).succeeds();
            assert_same(&fs::read(active.exported(&name)).unwrap(), &bytes);
            check_bytes(&pulled, size as u64);

            let pushed = passive.server.url_over(scheme, &format!("{name}-pushed"));
            let destination = format!("Destination: {pushed}");
            let pushed =
                copy(&active.server.url_over(scheme, &name), &[&destination, "Credential: none"]).succeeds();
            assert_same(&fs::read(passive.exported(&format!("{name}-pushed"))).unwrap(), &bytes);
            check_bytes(&pushed, size as u64);
        }
    }
    for site in [&active, &passive] {
        let (_, hidden) = site.all_names();
        assert!(hidden.iter().all(|name| !name.contains("part")), "{hidden:?}");
    }
}

/// Bytes grow, and are never more than there are.
fn check_bytes(copied: &Copied, size: u64) {
    let (markers, _) = copied.told();
    let bytes: Vec<u64> = markers.iter().filter_map(super::Marker::bytes).collect();
    assert!(bytes.is_sorted() && bytes.iter().all(|bytes| *bytes <= size), "{markers:?}");
}

/// What davix and gfal2 send by default, other numbers, and fields that clients send for other servers.
#[test]
fn streams_and_fields_that_change_nothing() {
    let (active, passive) = (Site::new(), Site::new());
    let bytes = content(9111, 20 * MIB);
    passive.put("f", &bytes);
    let source = format!("Source: {}", passive.url("f"));
    for streams in ["0", "1", "8", "100"] {
        let target = format!("by-{streams}");
        let fields = [
            &source,
            &format!("X-Number-Of-Streams: {streams}"),
            "Secure-Redirection: 1",
            "X-No-Delegate: true",
            "RequireChecksumVerification: true",
            "ClientInfo: job-id=1;file-id=2;retry=0",
            "SciTag: 65",
            "ArchiveMetadata: e30=",
            "Accept: text/perf-marker-stream",
            "Want-Digest: adler32",
            "Anything: else",
        ];
        copy(&active.url(&target), &fields).succeeds();
        assert_same(&fs::read(active.exported(&target)).unwrap(), &bytes);
        copy(
            &active.url(&target),
            &[&format!("Destination: {}", passive.url(&target)), fields[1], fields[4]],
        )
        .succeeds();
        assert_same(&fs::read(passive.exported(&target)).unwrap(), &bytes);
    }
}

#[test]
fn fields_for_the_remote_reach_it() {
    let active = Site::new();
    let object = Object::new(&content(9112, MIB));
    let remote = Rogue::start(move |request| object.answer(request));
    let fields = [
        &format!("Source: {}", remote.url("f?signed=yes")),
        "TransferHeaderAuthorization: bearer passed-on-to-the-remote",
        "transferheaderX-Mine: mine",
        "SciTag: 65",
        "TransferHeaderSciTag: 70",
        "TransferHeaderX-Request-Id: of-the-client",
    ];
    let copied = copy(&active.url("f"), &fields).succeeds();
    let requests = remote.requests();
    assert!(!requests.is_empty());
    for request in requests {
        assert_eq!(request.path, "/f?signed=yes");
        assert_eq!(request.header("authorization"), Some("Bearer passed-on-to-the-remote"), "{request:?}");
        assert_eq!(
            (request.header("x-mine"), request.header("scitag")),
            (Some("mine"), Some("65")),
            "{request:?}"
        );
        // The id in the log of the active server, which the answer tells.
        assert_eq!(request.all("x-request-id"), [copied.field("x-request-id").unwrap()], "{request:?}");
    }
}

/// A URL that is signed for GET opens nothing else.
#[test]
fn no_head_is_sent_where_there_may_be_none() {
    let active = Site::new();
    let bytes = content(9118, 3 * MIB);
    let object = Object::new(&bytes);
    let signed = Rogue::start(
        move |request| if request.is_get() { object.answer(request) } else { Answer::status(403) },
    );
    copy(&active.url("f"), &[&format!("Source: {}", signed.url("f?signature=x")), "Copy-Flags: NoHead"])
        .succeeds();
    assert_same(&fs::read(active.exported("f")).unwrap(), &bytes);
    assert!(signed.requests().iter().all(Request::is_get));
}

#[test]
fn what_exists_is_replaced_or_kept() {
    let (active, passive) = (Site::new(), Site::new());
    let bytes = content(9113, MIB);
    passive.put("f", &bytes);
    active.put("f", b"old");
    let source = format!("Source: {}", passive.url("f"));
    copy(&active.url("f"), &[&source, "Overwrite: F"]).refused(412, &[]);
    assert_eq!(fs::read(active.exported("f")).unwrap(), b"old");
    copy(&active.url("f"), &[&source]).succeeds();
    assert_same(&fs::read(active.exported("f")).unwrap(), &bytes);
    copy(&active.url("new"), &[&source, "Overwrite: F"]).succeeds();
    // A push that may not replace what the remote has.
    passive.put("theirs", b"old");
    let destination = format!("Destination: {}", passive.url("theirs"));
    copy(&active.url("f"), &[&destination, "Overwrite: F"]).fails(&[]);
    assert_eq!(fs::read(passive.exported("theirs")).unwrap(), b"old");
    copy(&active.url("f"), &[&destination]).succeeds();
    assert_same(&fs::read(passive.exported("theirs")).unwrap(), &bytes);
}

#[test]
fn redirects_are_followed_on_either_side() {
    let (active, passive) = (Site::new(), Site::new());
    let bytes = content(9114, 3 * MIB);
    passive.put("f", &bytes);
    for status in [301, 302, 303, 307, 308] {
        let (from, to) = (passive.url("f"), passive.url(&format!("pushed-{status}")));
        let redirector = Rogue::start(move |request| {
            Answer::redirect(status, if request.path == "/get" { &from } else { &to }).then(Then::Close)
        });
        let target = format!("pulled-{status}");
        copy(&active.url(&target), &[&format!("Source: {}", redirector.url("get"))]).succeeds();
        assert_same(&fs::read(active.exported(&target)).unwrap(), &bytes);
        // A 303 makes a GET of a PUT (RFC 9110, 15.4.4).
        if status != 303 {
            copy(&active.url(&target), &[&format!("Destination: {}", redirector.url("put"))]).succeeds();
            assert_same(&fs::read(passive.exported(&format!("pushed-{status}"))).unwrap(), &bytes);
        }
    }
}

/// davix takes a bare 201 for a failure, and rclone a 202 for one that has not ended.
#[test]
fn copies_to_oneself_are_answered_as_the_client_expects() {
    let site = Site::new();
    let bytes = content(9115, MIB);
    site.put("f", &bytes);
    let own = |name: &str| site.url(name);
    let to = |name: &str| format!("Destination: {}", own(name));
    assert_eq!(copy(&own("f"), &[&to("plain")]).status, 201);
    assert_eq!(copy(&own("f"), &["Destination: /by-path"]).status, 201);
    copy(&own("f"), &[&to("third-party"), "Credential: none"]).succeeds();
    copy(&own("f"), &["Destination: /third-party-by-path", "Credential: none"]).succeeds();
    copy(&own("pulled"), &[&format!("Source: {}", own("f")), "Credential: none"]).succeeds();
    for name in ["plain", "by-path", "third-party", "third-party-by-path", "pulled"] {
        assert_same(&fs::read(site.exported(name)).unwrap(), &bytes);
    }
    copy(&own("f"), &[&to("f"), "Credential: none"]).fails(&[]);
    assert_same(&fs::read(site.exported("f")).unwrap(), &bytes);
}

/// The first marker is there though the source says nothing, the next ones come by the clock, and a client that goes away
/// ends it all.
#[test]
fn markers_come_at_once_and_the_client_can_leave() {
    let active = Site::new();
    let object = Object::new(&content(9116, 8 * MIB));
    let source = Rogue::start(move |request| {
        let answer = object.answer(request);
        // Something has been written, and then nothing comes any more.
        if request.is_get() { answer.cut_at(2 * MIB, Then::Stall) } else { answer }
    });
    let started = Instant::now();
    let fields = [format!("Source: {}", source.url("f")), "Credential: none".to_owned()];
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    let mut watched = Watched::start(&active.server, "f", &fields);
    let first = watched.marker();
    assert!(started.elapsed().as_secs() < 3, "{:?} until {first:?}", started.elapsed());
    let mut before = Instant::now();
    for _ in 0..2 {
        let marker = watched.marker();
        assert!(before.elapsed().as_secs() <= 6, "{:?} until {marker:?}", before.elapsed());
        assert!(marker.bytes().is_none_or(|bytes| bytes <= 2 * MIB as u64), "{marker:?}");
        before = Instant::now();
    }
    let last = watched.marker();
    assert!(last.has_remote("tcp:127.0.0.1:"), "{last:?}");
    assert!(!active.exported("f").exists());
    let left = Instant::now();
    drop(watched);
    until("nothing is left", || {
        let (visible, hidden) = active.all_names();
        visible.is_empty() && !hidden.iter().any(|name| name.contains("part") || name.contains("journal"))
    });
    assert!(left.elapsed() < SOON);
    // The log says what became of it.
    until("the log tells of it", || {
        fs::read_to_string(active.scratch.join("access.log")).unwrap_or_default().contains("COPY")
    });
}

/// The end of an answer is not that of its connection.
#[test]
fn several_copies_over_one_connection() {
    let (active, passive) = (Site::new(), Site::new());
    let bytes = content(9117, MIB);
    passive.put("f", &bytes);
    let source = format!("Source: {}", passive.url("f"));
    let urls: Vec<String> = (0..5).map(|number| active.url(&format!("f{number}"))).collect();
    let head = active.scratch.join("head");
    let mut arguments =
        vec!["--request", "COPY", "--header", &source, "--verbose", "--dump-header", text(&head)];
    arguments.extend(urls.iter().map(String::as_str));
    let outcome = run_curl(&arguments).ok();
    assert_eq!(outcome.text().matches("success: Created\n").count(), 5, "{}", outcome.describe());
    assert_eq!(outcome.stderr.matches("Re-using existing connection").count(), 4, "{}", outcome.describe());
    for number in 0..5 {
        assert_same(&fs::read(active.exported(&format!("f{number}"))).unwrap(), &bytes);
    }
}
