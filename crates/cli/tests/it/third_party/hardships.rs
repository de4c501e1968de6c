//! Clients that leave, sources that lie or end early, and destinations that have no room: the client is told in words, nothing
//! half-written is seen, and nothing is left that nobody goes on with.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use gridlane_core::{ChecksumKind, limits};
use serde_json::Value;

use super::asking::{Asking, Home};
use crate::support::client::text;
use crate::support::object::{Answer, Framing, Object, Then};
use crate::support::rogue::Rogue;
use crate::support::serve::Server;
use crate::support::tools::run_curl;
use crate::support::{MIB, assert_same, checksum, content, secrets, until};

/// The time in which a server is done with a copy whose client has left; on a loaded machine it is longer.
const LEFT_MAX: Duration = Duration::from_secs(10);

const NONE: [PathBuf; 0] = [];

fn source_of(rogue: &Rogue) -> String {
    format!("Source: {}", rogue.url("f"))
}

/// A source whose connections are silent behind the first bytes.
fn stalling_at(bytes: &Arc<Vec<u8>>, at: usize) -> Rogue {
    let object = Object::new(bytes);
    Rogue::start(move |request| {
        let answer = object.answer(request);
        if request.is_get() { answer.cut_at(at, Then::Stall) } else { answer }
    })
}

/// A right source whose connections are slow.
fn slow(bytes: &Arc<Vec<u8>>, bytes_per_s: u64) -> Rogue {
    let object = Object::new(bytes);
    Rogue::with_rate(bytes_per_s, move |request| object.answer(request))
}

/// The value of a metric.
pub(super) fn metric(server: &Server, name: &str) -> u64 {
    let (_, page) = secrets::metrics(&server.admin());
    let page = String::from_utf8(page).unwrap();
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
}

#[test]
fn what_nobody_waits_for_ends_and_leaves_nothing() {
    let home = Home::new();
    let _server = home.start(&[]);
    let bytes = content(9601, 8 * MIB);
    let rogue = stalling_at(&bytes, 3 * MIB);
    // Before the answer has begun, and behind its first marker.
    let silent = Rogue::start(|_| Answer::raw(Vec::new()).then(Then::Stall));
    for (source, is_begun) in [(&silent, false), (&rogue, true)] {
        let asked = Asking::copy(&home.url("f"), &[&source_of(source)]);
        until("it has begun", || {
            assert!(!asked.has_ended(), "{}", asked.so_far());
            source.open_connections() > 0 && (!is_begun || asked.so_far().contains("Perf Marker"))
        });
        assert!(!is_begun || home.hidden_bytes() > 0);
        let left = Instant::now();
        asked.leave();
        until("the connections to the source are closed", || source.open_connections() == 0);
        until("the hidden file is gone", || home.hidden().is_empty());
        assert!(left.elapsed() < LEFT_MAX, "{:?}", left.elapsed());
    }
    assert_eq!(home.visible(), [""; 0]);
}

#[test]
fn a_copy_that_waits_for_its_turn_says_so_and_can_be_given_up() {
    // As many as move at one endpoint, wherever that is.
    const MOVING: usize = limits::COPIES_FAR_MAX;
    let home = Home::new();
    let server = home.start(&["--admin", "127.0.0.1:0"]);
    let bytes = content(9602, 48 * MIB);
    let rogue = slow(&bytes, 2 << 20);
    let copy = |number: usize| {
        let fields = [&source_of(&rogue), "X-Number-Of-Streams: 1"];
        Asking::copy(&home.url(&format!("f{number}")), &fields)
    };
    let mut asked: Vec<Asking> = (0..=MOVING).map(copy).collect();
    let waits = |asked: &Asking| asked.so_far().contains("waits for its turn");
    until("one is told that it waits", || asked.iter().any(waits));
    let running = || metric(&server, "gridlane_third_party_copies_running");
    assert_eq!(running(), MOVING as u64 + 1);
    let waiting = asked.iter().position(waits).unwrap();
    asked.remove(waiting).leave();
    until("it is given up", || running() == MOVING as u64);
    asked.into_iter().for_each(Asking::leave);
    until("all are given up", || running() == 0);
    until("nothing is left", || home.hidden().is_empty() && rogue.open_connections() == 0);
    assert_eq!(home.visible(), [""; 0]);
}

#[test]
fn metalinks_that_do_not_come_keep_no_other_client_from_one() {
    const AT_ONCE: usize = limits::THIRD_PARTY_METALINKS_READ_MAX / limits::CLIENT_PART;
    let home = Home::new();
    let _server = home.start(&[]);
    let silent = Rogue::start(|_| Answer::raw(Vec::new()).then(Then::Stall));
    let from = format!("Source: {}", silent.url("f.meta4"));
    let copy = |number: usize| Asking::copy(&home.url(&format!("s{number}")), &[&from]);
    let asked: Vec<Asking> = (0..4 * AT_ONCE).map(copy).collect();
    until("as many are read as one client may have", || silent.open_connections() == AT_ONCE);
    let bytes = content(9613, 1000);
    let source = slow(&bytes, 0);
    let metalink = format!(
        "<?xml version=\"1.0\"?><metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\"><size>1000</size>\
         <hash type=\"adler32\">{}</hash><url>{}</url></file></metalink>",
        checksum(ChecksumKind::Adler32, &bytes).hex(),
        source.url("f"),
    );
    let metalink = Arc::new(metalink.into_bytes());
    let described = Rogue::start(move |_| Answer::status(200).body(&metalink, 0..metalink.len()));
    let field = format!("Source: {}", described.url("f.meta4"));
    let other = ["--interface", "127.0.0.2", "--request", "COPY", "--header", &field, &home.url("f")];
    let said = run_curl(&other).ok().text();
    assert!(said.ends_with("success: Created\n"), "{said}");
    assert_same(&fs::read(home.exported("f")).unwrap(), &bytes);
    assert_eq!(silent.open_connections(), AT_ONCE);
    asked.into_iter().for_each(Asking::leave);
    until("nobody waits for them", || silent.open_connections() == 0);
}

#[test]
fn a_source_whose_bytes_are_not_those_of_its_digest_is_found_out() {
    let home = Home::new();
    let _server = home.start(&[]);
    let bytes = content(9603, 3 * MIB);
    let mut lie = Object::new(&bytes);
    lie.digest = Some("adler32=00000001".to_owned());
    let liar = {
        let lie = lie.clone();
        Rogue::start(move |request| lie.answer(request))
    };
    let asked = Asking::copy(&home.url("f"), &[&source_of(&liar)]).end();
    asked.fails_late(&["checksum"]);
    assert_eq!((home.visible().len(), home.hidden().as_slice()), (0, &NONE[..]));
    // Bytes that are wrong in one of two: the other's are taken.
    let mut wrong = bytes.to_vec();
    wrong[MIB] ^= 1;
    let wrong = Object { bytes: Arc::new(wrong), ..Object::new(&bytes) };
    let (wrong, right) = (Rogue::start(move |request| wrong.answer(request)), slow(&bytes, 8 << 20));
    Asking::copy(&home.url("f"), &[&source_of(&wrong), &source_of(&right)]).end().succeeds();
    assert_same(&fs::read(home.exported("f")).unwrap(), &bytes);
    assert_eq!(home.hidden(), NONE);
}

#[test]
fn sources_that_end_early_leave_what_came_to_the_next_copy() {
    let home = Home::new();
    let _server = home.start(&[]);
    let bytes = content(9604, 24 * MIB);
    let (is_dead, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let dying: Vec<Rogue> = (0..2)
        .map(|_| {
            let (object, is_dead, served) = (Object::new(&bytes), Arc::clone(&is_dead), Arc::clone(&served));
            // As those are whose token has expired.
            Rogue::with_rate(24 << 20, move |request| {
                if is_dead.load(Relaxed) {
                    return Answer::status(403);
                }
                let answer = object.answer(request);
                match request.is_get() && served.fetch_add(1, Relaxed) > 5 {
                    true => {
                        is_dead.store(true, Relaxed);
                        answer.cut(MIB, Then::Close)
                    }
                    false => answer,
                }
            })
        })
        .collect();
    let fields = [source_of(&dying[0]), source_of(&dying[1]), "X-Number-Of-Streams: 4".to_owned()];
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    Asking::copy(&home.url("f"), &fields).end().fails_late(&["403"]);
    assert_eq!(home.visible(), [""; 0]);
    let kept = home.hidden_bytes();
    assert!(kept > 4 * MIB as u64, "{kept} bytes are kept");
    let again = slow(&bytes, 0);
    Asking::copy(&home.url("f"), &[&source_of(&again)]).end().succeeds();
    assert_same(&fs::read(home.exported("f")).unwrap(), &bytes);
    assert!(again.sent_bytes() < (bytes.len() - 3 * MIB) as u64, "{} bytes came again", again.sent_bytes());
    assert_eq!(home.hidden(), NONE);
}

/// Sources that tell the size, and that do not.
fn sized_and_unsized(bytes: &Arc<Vec<u8>>) -> [Rogue; 2] {
    let (sized, bare) = (Object::new(bytes), Object::bare(bytes));
    let chunked = Rogue::start(move |request| bare.answer_whole(request).framed(Framing::Chunked));
    [Rogue::start(move |request| sized.answer(request)), chunked]
}

/// The longest of these tests waits as long as a server does for a source that says nothing more.
#[test]
fn a_source_that_stalls_is_the_end_without_another_one() {
    let home = Home::new();
    let _server = home.start(&[]);
    let bytes = content(9614, 8 * MIB);
    let source = stalling_at(&bytes, 3 * MIB);
    let began = Instant::now();
    let ended = Asking::copy(&home.url("f"), &[&source_of(&source)]).end();
    ended.fails_late(&["no source sent a byte for 60 s"]);
    assert!(began.elapsed() >= limits::THIRD_PARTY_PATIENCE, "{:?}", began.elapsed());
    assert_eq!(home.visible(), [""; 0]);
    until("the connections to it are closed", || source.open_connections() == 0);
    // What came stays for the next copy, which needs not fetch it again.
    let again = slow(&bytes, 0);
    Asking::copy(&home.url("f"), &[&source_of(&again)]).end().succeeds();
    assert_same(&fs::read(home.exported("f")).unwrap(), &bytes);
    assert_eq!(home.hidden(), NONE);
}

#[test]
fn a_destination_without_room_says_so() {
    let home = Home::new();
    let config = format!(
        "[serve]\nlisten = [\"127.0.0.1:0\"]\n[[export]]\npath = \"/\"\ndirectory = \"{}\"\nallow-write = true\nquota = \"4MB\"\n",
        text(&home.exported("")).trim_end_matches('/')
    );
    let server = Server::by_file(&home.scratch.file("serve.toml", config.as_bytes()));
    let bytes = content(9605, 8 * MIB);
    let small = content(9606, 3_000_000);
    // What is left is known before the first byte is asked for, and counted with each.
    for (source, word) in sized_and_unsized(&bytes).iter().zip(["no space", "quota"]) {
        let asked = Asking::copy(&server.url("f"), &[&source_of(source)]).end();
        asked.fails(&[word]);
        assert!([202, 507].contains(&asked.status), "{asked:?}");
        assert_eq!(home.visible(), [""; 0]);
        until("nothing is left", || home.hidden().is_empty());
    }
    // What is gone has left its room.
    for (number, source) in sized_and_unsized(&small).iter().enumerate() {
        let name = format!("small{number}");
        Asking::copy(&server.url(&name), &[&source_of(source)]).end().succeeds();
        assert_same(&fs::read(home.exported(&name)).unwrap(), &small);
        assert_eq!(Asking::with("DELETE", &server.url(&name), &[]).end().status, 204);
    }
}

#[test]
fn a_file_that_is_larger_than_an_upload_may_be_is_refused() {
    let home = Home::new();
    let _server = home.start(&["--max-upload", "1MB"]);
    let bytes = content(9607, 3 * MIB);
    let [sized, chunked] = sized_and_unsized(&bytes);
    Asking::copy(&home.url("f"), &[&source_of(&sized)]).end().refused(413, &["1000000 bytes"]);
    assert!(sized.sent_bytes() < 2_000_000, "its size was known");
    Asking::copy(&home.url("f"), &[&source_of(&chunked)]).end().fails(&["1000000 bytes"]);
    assert_eq!(home.visible(), [""; 0]);
    until("nothing is left", || home.hidden().is_empty());
    // What fits comes.
    let fits = content(9608, 1_000_000);
    for source in sized_and_unsized(&fits) {
        Asking::copy(&home.url("f"), &[&source_of(&source)]).end().succeeds();
        assert_same(&fs::read(home.exported("f")).unwrap(), &fits);
    }
}

#[test]
fn two_pulls_to_one_path_do_not_meet() {
    let home = Home::new();
    let _server = home.start(&[]);
    let bytes = content(9609, 6 * MIB);
    let other = slow(&content(9610, MIB), 0);
    let source = slow(&bytes, 1 << 20);
    let first = Asking::copy(&home.url("f"), &[&source_of(&source)]);
    until("it has begun", || home.hidden_bytes() > 0 && first.so_far().contains("Perf Marker"));
    Asking::copy(&home.url("f"), &[&source_of(&other)]).end().refused(423, &[]);
    first.end().succeeds();
    assert_same(&fs::read(home.exported("f")).unwrap(), &bytes);
    assert_eq!(home.hidden(), NONE);
}

#[test]
fn a_file_that_appears_meanwhile_is_not_replaced() {
    let home = Home::new();
    let _server = home.start(&[]);
    let bytes = content(9611, 4 * MIB);
    for overwrite in ["F", "T"] {
        let _ = fs::remove_file(home.exported("f"));
        let source = slow(&bytes, 1 << 20);
        let fields = [source_of(&source), format!("Overwrite: {overwrite}")];
        let asked = Asking::copy(&home.url("f"), &[&fields[0], &fields[1]]);
        until("it has begun", || asked.so_far().contains("Perf Marker"));
        home.put("f", b"another");
        let ended = asked.end();
        if overwrite == "T" {
            ended.succeeds();
            continue;
        }
        ended.fails_late(&["exists"]);
        assert_eq!(fs::read(home.exported("f")).unwrap(), b"another");
        until("nothing is left", || home.hidden().is_empty());
    }
    assert_same(&fs::read(home.exported("f")).unwrap(), &bytes);
}

#[test]
fn copies_are_counted_and_recorded_without_secrets() {
    const TOKEN: &str = "token-of-a-copy-that-is-recorded";
    const IN_QUERY: &str = "signature-in-the-query-of-a-source";
    secrets::remember(TOKEN);
    secrets::remember(IN_QUERY);
    let home = Home::new();
    let log = home.scratch.join("access.log");
    let server = home.start(&["--admin", "127.0.0.1:0", "--access-log", text(&log)]);
    let bytes = content(9612, 100_000);
    let right = slow(&bytes, 0);
    let missing = Rogue::start(|_| Answer::status(404));
    let pushed_to = Home::new();
    let _other = pushed_to.start(&[]);
    let token = format!("TransferHeaderAuthorization: Bearer {TOKEN}");
    let source =
        |rogue: &Rogue| format!("Source: {}?X-Amz-Signature={IN_QUERY}&authz={IN_QUERY}", rogue.url("f"));
    let info = "ClientInfo: job-id=17";
    Asking::copy(&home.url("f"), &[&source(&right), &token, info]).end().succeeds();
    Asking::copy(&home.url("g"), &[&source(&missing), &token]).end().refused(404, &[]);
    let destination = format!("Destination: {}", pushed_to.url("f"));
    Asking::copy(&home.url("f"), &[&destination, &token]).end().succeeds();
    let records = || -> Vec<Value> {
        let lines = fs::read_to_string(&log).unwrap_or_default();
        let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|record| record.get("copy").is_some()).collect()
    };
    until("all are recorded", || records().len() == 3);
    let all = records();
    let [pulled, failed, pushed] = all.as_slice() else { unreachable!() };
    assert_eq!(
        (&pulled["copy"], &pulled["path"], &pulled["moved_bytes"]),
        (&"pull".into(), &"/f".into(), &100_000.into())
    );
    assert_eq!((&pulled["client"], &pulled["client_info"]), (&"127.0.0.1".into(), &"job-id=17".into()));
    assert_eq!((&pulled["verified"], pulled.get("error")), (&true.into(), None));
    let remote = pulled["remotes"][0].as_str().unwrap();
    assert!(remote.starts_with(&right.url("f")), "{pulled}");
    assert!(failed["error"].as_str().unwrap().contains("404"), "{failed}");
    assert_eq!((&pushed["copy"], &pushed["moved_bytes"]), (&"push".into(), &100_000.into()));
    // The other end knows it by the same name.
    let ids: Vec<_> =
        right.requests().iter().map(|request| request.header("x-request-id").map(str::to_owned)).collect();
    assert!(ids.iter().all(|id| id.as_deref() == pulled["id"].as_str()), "{ids:?}: {pulled}");
    assert!(
        right.requests().iter().any(|request| request.path.contains(IN_QUERY)),
        "it was sent where it belongs"
    );
    for (labels, count) in [
        ("copies_ended_total{direction=\"pull\",outcome=\"done\"}", 1),
        ("copies_ended_total{direction=\"pull\",outcome=\"failed\"}", 1),
        ("copies_ended_total{direction=\"push\",outcome=\"done\"}", 1),
        ("copies_ended_total{direction=\"push\",outcome=\"failed\"}", 0),
        ("moved_bytes_total{direction=\"pull\"}", 100_000),
        ("moved_bytes_total{direction=\"push\"}", 100_000),
        ("copies_running", 0),
    ] {
        assert_eq!(metric(&server, &format!("gridlane_third_party_{labels}")), count, "{labels}");
    }
    let said = server.stop_and_hear("TERM");
    assert!(!said.contains("panicked"), "{said}");
    secrets::check_file(&log);
}

#[test]
fn a_replica_here_is_passed_by_where_there_are_others() {
    let (source, destination) = (Home::new(), Home::new());
    let bytes = content(9461, MIB);
    source.put("f", &bytes);
    // Were it asked, it would contradict the other one.
    destination.put("f", b"something else");
    let (_source, _destination) = (source.start(&[]), destination.start(&[]));
    let [own, other] = [&destination, &source].map(|home| format!("Source: {}", home.url("f")));
    let answered = Asking::copy(&destination.url("g"), &[&own, &other]).end();
    assert!(answered.text.contains("Copy-Sources: 1\r\n"), "{answered:?}");
    answered.succeeds();
    assert_same(&fs::read(destination.exported("g")).unwrap(), &bytes);
    // The same of those that a metalink names.
    let urls = [&destination, &source].map(|home| format!("<url>{}</url>", home.url("f"))).concat();
    let metalink = format!(
        "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\">{urls}</file></metalink>"
    );
    source.put("f.meta4", metalink.as_bytes());
    let described = format!("Source: {}", source.url("f.meta4"));
    let answered = Asking::copy(&destination.url("h"), &[&described]).end();
    assert!(answered.text.contains("Copy-Sources: 1\r\n"), "{answered:?}");
    answered.succeeds();
    assert_same(&fs::read(destination.exported("h")).unwrap(), &bytes);
}

#[test]
fn a_push_keeps_to_the_limit_of_its_server() {
    const RATE: usize = 20 * MIB;
    let (source, destination) = (Home::new(), Home::new());
    let bytes = content(9462, 2 * RATE);
    source.put("f", &bytes);
    let (_source, _destination) = (source.start(&["--limit-rate", "20MiB/s"]), destination.start(&[]));
    let began = Instant::now();
    Asking::copy(&source.url("f"), &[&format!("Destination: {}", destination.url("f"))]).end().succeeds();
    // Two seconds, but for what may go at once.
    assert!(began.elapsed() > Duration::from_secs(1), "{:?}", began.elapsed());
    assert_same(&fs::read(destination.exported("f")).unwrap(), &bytes);
}
