//! One source that fails, and several that stand in for each other.

use std::fs;
use std::sync::Arc;

use gridlane_core::ChecksumKind;

use super::{Site, copy};
use crate::support::object::{Answer, Framing, Object, Then};
use crate::support::rogue::{Request, Rogue};
use crate::support::{MIB, assert_same, checksum, content, secrets};

/// A source that does what a closure makes of a right answer to a GET.
fn source(object: &Object, change: impl Fn(&Request, Answer) -> Answer + Send + Sync + 'static) -> Rogue {
    let object = object.clone();
    Rogue::start(move |request| {
        let answer = object.answer(request);
        if request.is_get() { change(request, answer) } else { answer }
    })
}

fn field(source: &Rogue) -> String {
    format!("Source: {}", source.url("f"))
}

#[track_caller]
fn assert_nothing(site: &Site) {
    assert_eq!(site.all_names().0, Vec::<String>::new());
}

#[test]
fn several_sources_are_all_used() {
    let active = Site::new();
    let bytes = content(9301, 48 * MIB);
    let object = Object::new(&bytes);
    let sources: Vec<Rogue> = (0..3)
        .map(|_| {
            let object = object.clone();
            Rogue::with_rate(20 * MIB as u64, move |request| object.answer(request))
        })
        .collect();
    let fields: Vec<String> = sources.iter().map(field).collect();
    let mut all: Vec<&str> = fields.iter().map(String::as_str).collect();
    for secret in ["token-of-the-first-source", "token-of-the-second-source"] {
        secrets::remember(secret);
    }
    all.extend([
        "TransferHeaderAuthorization: Bearer token-of-the-first-source",
        "SourceHeader2Authorization: Bearer token-of-the-second-source",
    ]);
    let copied = copy(&active.url("f"), &all).succeeds();
    assert_eq!(copied.field("copy-sources"), Some("3"), "{copied:?}");
    assert_same(&fs::read(active.exported("f")).unwrap(), &bytes);
    let tokens = [Some("Bearer token-of-the-first-source"), Some("Bearer token-of-the-second-source"), None];
    for (source, token) in sources.iter().zip(tokens) {
        assert!(source.sent_bytes() > MIB as u64, "{} bytes of {token:?}", source.sent_bytes());
        for request in source.requests() {
            assert_eq!(request.header("authorization"), token, "{request:?}");
        }
    }
}

#[test]
fn one_source_is_said_to_be_one() {
    let active = Site::new();
    let good = source(&Object::new(&content(9302, MIB)), |_, answer| answer);
    let copied = copy(&active.url("f"), &[&field(&good)]).succeeds();
    assert_eq!(copied.field("copy-sources"), Some("1"), "{copied:?}");
}

#[test]
fn a_source_that_dies_is_the_end_without_another_one() {
    let bytes = content(9303, 24 * MIB);
    let object = Object::new(&bytes);
    let dying = || {
        let is_dead = std::sync::atomic::AtomicBool::new(false);
        source(&object, move |_, answer| {
            // Dead for good.
            match is_dead.swap(true, std::sync::atomic::Ordering::Relaxed) {
                true => Answer::raw(Vec::new()),
                false => answer.cut(5 * MIB, Then::Close),
            }
        })
    };
    let active = Site::new();
    copy(&active.url("f"), &[&field(&dying())]).fails(&[]);
    assert_nothing(&active);

    let (dying, good) = (dying(), source(&object, |_, answer| answer));
    copy(&active.url("f"), &[&field(&dying), &field(&good)]).succeeds();
    assert_same(&fs::read(active.exported("f")).unwrap(), &bytes);
    assert!(good.sent_bytes() > 0);
}

#[test]
fn a_source_that_stalls_is_left_for_another_one() {
    let bytes = content(9304, 24 * MIB);
    let object = Object::new(&bytes);
    let active = Site::new();
    let silent = source(&object, |_, answer| answer.cut(3 * MIB, Then::Stall));
    let good = source(&object, |_, answer| answer);
    copy(&active.url("f"), &[&field(&silent), &field(&good)]).succeeds();
    assert_same(&fs::read(active.exported("f")).unwrap(), &bytes);
}

#[test]
fn a_source_that_lies_is_found_out() {
    let bytes = content(9305, 8 * MIB);
    let mut wrong = bytes.to_vec();
    wrong[4 * MIB] ^= 1;
    let (good, lie) = (Object::new(&bytes), Object { bytes: Arc::new(wrong), ..Object::new(&bytes) });
    let active = Site::new();
    active.put("old", b"old");
    let liar = source(&lie, |_, answer| answer);
    copy(&active.url("old"), &[&field(&liar)]).fails(&["checksum mismatch"]);
    assert_eq!(fs::read(active.exported("old")).unwrap(), b"old", "an old file stays");
    fs::remove_file(active.exported("old")).unwrap();
    copy(&active.url("f"), &[&field(&liar)]).fails(&["checksum"]);
    assert_nothing(&active);
    let truthful = source(&good, |_, answer| answer);
    copy(&active.url("f"), &[&field(&liar), &field(&truthful)]).succeeds();
    assert_same(&fs::read(active.exported("f")).unwrap(), &bytes);
}

#[test]
fn a_checksum_can_be_demanded() {
    let bytes = content(9306, MIB);
    let active = Site::new();
    let bare = source(&Object::bare(&bytes), |_, answer| answer);
    copy(&active.url("f"), &[&field(&bare), "RequireChecksumVerification: true"]).fails(&["checksum"]);
    assert_nothing(&active);
    copy(&active.url("f"), &[&field(&bare), "RequireChecksumVerification: false"]).succeeds();
    copy(&active.url("g"), &[&field(&bare)]).succeeds();
    let telling = source(&Object::new(&bytes), |_, answer| answer);
    copy(&active.url("h"), &[&field(&telling), "RequireChecksumVerification: true"]).succeeds();
    for name in ["f", "g", "h"] {
        assert_same(&fs::read(active.exported(name)).unwrap(), &bytes);
    }
}

/// A short body is no file: what is missing is asked for.
#[test]
fn a_short_body_is_continued() {
    let active = Site::new();
    let bytes = content(9307, MIB);
    let object = Object::bare(&bytes);
    for (name, framing) in [("length", Framing::Length), ("chunked", Framing::Chunked)] {
        let short = source(&object, move |_, answer| answer.framed(framing).cut(MIB / 2, Then::Close));
        copy(&active.url(name), &[&field(&short)]).succeeds();
        assert_same(&fs::read(active.exported(name)).unwrap(), &bytes);
    }
}

/// A redirect to another server takes no token there, and the right bytes come all the same.
#[test]
fn a_token_stays_where_it_was_meant_for() {
    let active = Site::new();
    secrets::remember("token-for-one-server-only");
    let bytes = content(9308, MIB);
    let there = source(&Object::new(&bytes), |_, answer| answer);
    let to = there.url("f");
    let here = Rogue::start(move |_| Answer::redirect(302, &to));
    let fields = [
        &field(&here),
        "TransferHeaderAuthorization: Bearer token-for-one-server-only",
        "TransferHeaderCookie: c=token-for-one-server-only",
    ];
    copy(&active.url("f"), &fields).succeeds();
    assert_same(&fs::read(active.exported("f")).unwrap(), &bytes);
    for request in here.requests() {
        assert_eq!(request.header("authorization"), Some("Bearer token-for-one-server-only"));
    }
    assert!(there.requests().iter().any(Request::is_get));
    for request in there.requests() {
        assert_eq!((request.header("authorization"), request.header("cookie")), (None, None), "{request:?}");
    }
}

/// What a source says about others counts as if the client had said it, if the bytes can be compared with a checksum.
#[test]
fn sources_are_found_in_metalinks_and_links() {
    let active = Site::new();
    let bytes = content(9309, 48 * MIB);
    let object = Object::new(&bytes);
    let slow = || {
        let object = object.clone();
        Rogue::with_rate(20 * MIB as u64, move |request| object.answer(request))
    };
    let (one, two) = (slow(), slow());
    let metalink = format!(
        "<?xml version=\"1.0\"?><metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\"><size>{}</size>\
         <hash type=\"adler32\">{}</hash><url priority=\"1\">{}</url><url priority=\"2\">{}</url></file></metalink>",
        bytes.len(),
        checksum(ChecksumKind::Adler32, &bytes).hex(),
        one.url("f"),
        two.url("f"),
    );
    let metalink = Arc::new(metalink.into_bytes());
    let described = Rogue::start(move |_| {
        let size = metalink.len();
        Answer::status(200).header("Content-Type", "application/metalink4+xml").body(&metalink, 0..size)
    });
    let url = described.url("f.meta4");
    copy(&active.url("by-metalink"), &[&format!("Source: {url}")]).succeeds();
    assert_same(&fs::read(active.exported("by-metalink")).unwrap(), &bytes);
    assert!(one.sent_bytes() > 0 && two.sent_bytes() > 0, "{} and {}", one.sent_bytes(), two.sent_bytes());

    let (duplicate, object) = (slow(), object.clone());
    let link = format!("<{}>; rel=duplicate; pri=1", duplicate.url("f"));
    let naming =
        Rogue::with_rate(20 * MIB as u64, move |request| object.answer(request).header("Link", &link));
    copy(&active.url("by-link"), &[&field(&naming)]).succeeds();
    assert_same(&fs::read(active.exported("by-link")).unwrap(), &bytes);
    assert!(duplicate.sent_bytes() > 0);
}
