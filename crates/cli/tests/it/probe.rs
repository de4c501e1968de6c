//! `gridlane probe`: what it finds of servers that work, refuse, lie, are silent or dead; what it leaves there; and the set
//! that it chooses.

use std::collections::HashSet;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::Value;

use crate::support::apache::Apache;
use crate::support::client::{Outcome, Running, cp, gridlane, run};
use crate::support::nginx::Nginx;
use crate::support::object::{Answer, Object, Then};
use crate::support::rogue::{Request, Rogue, closed_port_url};
use crate::support::serve::Server;
use crate::support::xrootd::Xrootd;
use crate::support::{SOON, Scratch, content, names, secrets, until};

const STEPS: [&str; 10] =
    ["protocol", "resolve", "connect", "login", "list", "write", "read", "write_rate", "read_rate", "delete"];

fn probe(arguments: &[&str]) -> Command {
    let mut command = gridlane();
    command.arg("probe").args(arguments);
    command
}

fn json(arguments: &[&str]) -> Command {
    let mut command = probe(&["--json"]);
    command.args(arguments);
    command
}

/// The line of the endpoint whose URL begins so.
#[track_caller]
fn endpoint(outcome: &Outcome, url: &str) -> Value {
    let is_it =
        |event: &Value| event["type"] == "endpoint" && event["url"].as_str().unwrap().starts_with(url);
    let mut found = outcome.events().into_iter().filter(is_it);
    found.next().unwrap_or_else(|| panic!("no endpoint {url}\n{}", outcome.describe()))
}

/// The ends of the steps: `+` works, `-` fails, a dot where it was not tried.
fn states(endpoint: &Value) -> String {
    let state = |step: &&str| match endpoint["steps"][*step]["state"].as_str().unwrap() {
        "works" => '+',
        "fails" => '-',
        "untried" => '.',
        other => panic!("{other} of {endpoint}"),
    };
    STEPS.iter().map(state).collect()
}

#[track_caller]
fn assert_states(outcome: &Outcome, url: &str, expected: &str) -> Value {
    let found = endpoint(outcome, url);
    assert_eq!(states(&found), expected, "{STEPS:?}\n{found:#}\n{}", outcome.describe());
    found
}

/// What probes have left in a directory.
fn left_in(dir: &Path) -> Vec<String> {
    names(dir).into_iter().filter(|name| name.starts_with("gridlane-probe-")).collect()
}

#[test]
fn servers_that_can_everything_are_written_to_and_left_as_they_were() {
    let scratch = Scratch::new();
    let (ours, apaches, nginxs) = (scratch.dir("ours"), scratch.dir("apache"), scratch.dir("nginx"));
    let serve = Server::with(&ours, &["--allow-write"]);
    let apache = Apache::start(&apaches);
    let nginx = Nginx::with(&nginxs, "autoindex on; dav_methods PUT DELETE; client_max_body_size 0;");
    let xrootd = Xrootd::start();
    let urls = [
        serve.url_over("https", ""),
        serve.url_over("root", ""),
        apache.url(""),
        nginx.tls_url(""),
        xrootd.url(""),
        xrootd.url_over("roots", ""),
    ];
    let mut command = json(&["--write", "--size", "3M"]);
    for ca in [serve.ca(), nginx.ca(), xrootd.ca()] {
        command.arg("--ca").arg(ca);
    }
    command.args(&urls);
    let outcome = run(command).ok();
    for url in &urls {
        let found = assert_states(&outcome, url, "++++++++++");
        for figure in ["round_trip_s", "small_write_s", "small_read_s"] {
            assert!(found[figure].as_f64().unwrap() > 0.0, "{figure} of {found:#}");
        }
        for rate in ["write_rate", "read_rate"] {
            assert_eq!(found[rate]["bytes"], 3_000_000, "{found:#}");
            assert_eq!(found[rate]["verified"], true, "{found:#}");
        }
        assert!(found["left"].as_array().unwrap().is_empty(), "{found:#}");
    }
    assert_eq!(outcome.number("deleted"), urls.len() as u64);
    for dir in [&ours, &apaches, &nginxs, &xrootd.exported("")] {
        assert!(left_in(dir).is_empty(), "{:?}", names(dir));
    }
}

#[test]
fn nothing_is_changed_unless_it_is_asked_for() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    fs::write(export.join("large"), &**content(4001, 2_000_000)).unwrap();
    fs::write(export.join("small"), &**content(4002, 700)).unwrap();
    let audit = scratch.join("audit");
    let server = Server::with(&export, &["--allow-write", "--audit-log", audit.to_str().unwrap()]);
    for url in [server.url(""), server.url_over("root", "")] {
        let outcome = run(json(&[&url])).ok();
        let found = assert_states(&outcome, &url, "+++++.+...");
        assert_eq!(found["entries"], 2, "{found:#}");
        assert_eq!(found["steps"]["write"]["why"], "not_asked", "{found:#}");
        // Of a file that is named, the rate as well, up to so many bytes.
        let outcome = run(json(&[&url, "--file", "large", "--size", "1M"])).ok();
        let found = assert_states(&outcome, &url, "+++++.+.+.");
        assert_eq!(found["read_rate"]["bytes"], 1_000_000, "{found:#}");
        let outcome = run(json(&[&url, "--file", "large"])).ok();
        let found = endpoint(&outcome, &url);
        assert_eq!(
            (&found["read_rate"]["bytes"], &found["read_rate"]["verified"]),
            (&2_000_000.into(), &true.into())
        );
        run(json(&[&url, "--file", "missing"])).exits(3);
    }
    // Lines are written some time later, and in order.
    let changes = || fs::read_to_string(&audit).unwrap_or_default();
    let made = scratch.file("made", b"by no probe");
    run(cp(&made, server.url("marker-of-4008"))).ok();
    until("the marker is in the log", || changes().contains("marker-of-4008"));
    let before = changes();
    let before = before.split("marker-of-4008").next().unwrap();
    assert!(!before.contains('\n'), "{before}");
    run(json(&["--write", "--size", "0", &server.url("")])).ok();
    until("what was changed is in the log", || changes().contains("gridlane-probe-"));
    assert!(left_in(&export).is_empty(), "{:?}", names(&export));
}

#[test]
fn a_step_that_fails_hides_no_other() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    fs::write(export.join("f"), b"something").unwrap();
    let read_only = Server::start(&export);
    // It takes files and does not give them back, or away.
    let keeps = scratch.dir("keeps");
    let nginx = Nginx::with(&keeps, "autoindex on; dav_methods PUT; client_max_body_size 0;");
    let errors = scratch.join("errors");
    let (refused, root) = (read_only.url(""), read_only.url_over("root", ""));
    let mut command = json(&["--write", "--size", "100k", &refused, &root, &nginx.url("")]);
    command.arg("--errors").arg(&errors);
    let outcome = run(command).exits(10);
    // What cannot be written can still be read.
    for url in [&refused, &root] {
        let found = assert_states(&outcome, url, "+++++-+...");
        assert_eq!(found["steps"]["write"]["error"]["class"], "denied", "{found:#}");
        assert!(found["left"].as_array().unwrap().is_empty(), "{found:#}");
    }
    let found = assert_states(&outcome, &nginx.url(""), "+++++++++-");
    let left: Vec<String> = found["left"]
        .as_array()
        .unwrap()
        .iter()
        .map(|left| left["url"].as_str().unwrap().to_owned())
        .collect();
    let there = left_in(&keeps);
    assert_eq!((left.len(), there.len()), (4, 4), "{found:#} {there:?}");
    for name in &there {
        assert!(left.contains(&nginx.url(name)), "{name} is not in {left:?}");
        assert!(outcome.stderr.contains(name), "{name} is not told of\n{}", outcome.describe());
    }
    assert_eq!(outcome.number("left"), 4);
    let causes: Vec<Value> = fs::read_to_string(&errors)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(causes.iter().all(|cause| cause["v"] == 1 && cause["type"] == "cause"), "{causes:#?}");
    assert!(causes.iter().any(|cause| cause["step"] == "delete" && cause["count"] == 1), "{causes:#?}");
    assert_eq!(causes.iter().filter(|cause| cause["step"] == "write").count(), 2, "{causes:#?}");
}

/// A server that takes files, and gives these bytes back.
fn liar(len: usize, deletes: bool) -> Rogue {
    let object = Object::bare(&content(4003, len));
    let taken = Mutex::new(HashSet::new());
    Rogue::start(move |request| {
        let is_there = taken.lock().unwrap().contains(&request.path);
        match request.method.as_str() {
            "PUT" => {
                taken.lock().unwrap().insert(request.path.clone());
                Answer::status(201).then(Then::Close)
            }
            "DELETE" => {
                if deletes {
                    taken.lock().unwrap().remove(&request.path);
                }
                Answer::status(204)
            }
            "GET" | "HEAD" if is_there => object.answer(request),
            _ => bare(request),
        }
    })
}

/// The answer of a server whose directory can be listed and has no file.
fn bare(request: &Request) -> Answer {
    match request.method.as_str() {
        "GET" | "HEAD" if request.path == "/" => page(b"<a href=\"x\">x</a>".to_vec()),
        "GET" | "HEAD" => Answer::status(404),
        _ => Answer::status(405).then(Then::Close),
    }
}

fn page(html: Vec<u8>) -> Answer {
    let (len, html) = (html.len(), Arc::new(html));
    Answer::status(200).header("Content-Type", "text/html").body(&html, 0..len)
}

/// The files that are left, each with whether that is certain.
fn left(endpoint: &Value) -> Vec<(String, bool)> {
    let left = endpoint["left"].as_array().unwrap().iter();
    left.map(|left| (left["url"].as_str().unwrap().to_owned(), left["is_certain"].as_bool().unwrap()))
        .collect()
}

#[test]
fn a_file_that_does_not_come_back_the_same_is_found() {
    // A file of another size is noticed when it was stored, other bytes when they are read.
    for (len, states, step) in
        [(1000, "+++++-...+", "write"), (1024, "++++++--.+", "read"), (5000, "+++++-...+", "write")]
    {
        // That small files cannot be read back does not keep a large one from being written.
        let server = liar(len, true);
        let outcome = run(json(&["--write", &server.url("")])).exits(8);
        let found = assert_states(&outcome, &server.url(""), states);
        let error = &found["steps"][step]["error"];
        assert_eq!(
            (&error["class"], &error["fault"]),
            (&"checksum_mismatch".into(), &"peer".into()),
            "{error}"
        );
    }
    // Nor is a removal believed.
    let server = liar(1024, false);
    let outcome = run(json(&["--write", &server.url("")]));
    let found = assert_states(&outcome, &server.url(""), "++++++--.-");
    assert_eq!(found["left"].as_array().unwrap().len(), 4, "{found:#}");
}

#[test]
fn a_server_that_falls_silent_is_slow() {
    // Far behind what a small file is read for: what is asked for ahead of it is answered.
    const STALLS_AT: usize = 25_000_000;
    let object = Object::bare(&content(4006, 30_000_000));
    let server = Rogue::start(move |request| match request.path.as_str() {
        "/later" if request.is_get() => object.answer(request).cut_at(STALLS_AT, Then::Stall),
        "/soon" if request.is_get() => object.answer(request).cut_at(200_000, Then::Stall),
        "/later" | "/soon" if request.method == "HEAD" => object.answer(request),
        _ => bare(request),
    });
    let url = server.url("");
    let outcome = run(json(&["--file", "later", "--size", "40M", "--timeout", "6", &url])).ok();
    let found = assert_states(&outcome, &url, "+++++.+.+.");
    let rate = &found["read_rate"];
    let (bytes, seconds) = (rate["bytes"].as_u64().unwrap(), rate["seconds"].as_f64().unwrap());
    assert!((1..=STALLS_AT as u64).contains(&bytes) && seconds >= 6.0, "{found:#}");
    assert!(rate["rate_bytes_per_s"].as_f64().unwrap() <= STALLS_AT as f64 / 6.0, "{found:#}");
    // Where it does not even bring as much as a small file, it cannot be read.
    let outcome = run(json(&["--file", "soon", "--timeout", "6", &url]));
    let found = assert_states(&outcome, &url, "+++++.-...");
    let error = &found["steps"]["read"]["error"];
    assert_eq!(
        (&error["class"], &error["message"]),
        (&"timeout".into(), &"not done within 6 s".into()),
        "{found:#}"
    );
}

#[test]
fn what_may_be_there_is_named() {
    // It takes a file, says so too late, and does not show it before.
    let slow = Rogue::start(|request| match request.method.as_str() {
        "PUT" => {
            sleep(Duration::from_secs(9));
            Answer::status(201).then(Then::Close)
        }
        _ => bare(request),
    });
    let outcome = run(json(&["--write", "--timeout", "4", &slow.url("")]));
    let found = assert_states(&outcome, &slow.url(""), "+++++-....");
    let left_there = left(&found);
    let [(url, false)] = left_there.as_slice() else { panic!("{found:#}") };
    outcome.says(&[&format!("perhaps left at the server: {url}")]);

    // It does not say what it has after it has refused a file, or removed one.
    let mute = |refuses: bool| {
        let begun = Mutex::new(HashSet::new());
        let object = Object::bare(&content(4007, 1024));
        Rogue::start(move |request| {
            let mut begun = begun.lock().unwrap();
            match request.method.as_str() {
                "PUT" => {
                    begun.insert(request.path.clone());
                    Answer::status(if refuses { 412 } else { 201 }).then(Then::Close)
                }
                "DELETE" => {
                    begun.remove(&request.path);
                    begun.insert(format!("no more {}", request.path));
                    Answer::status(204)
                }
                _ if begun.contains(&format!("no more {}", request.path)) => Answer::status(500),
                "HEAD" if refuses && begun.contains(&request.path) => Answer::status(500),
                "HEAD" | "GET" if begun.contains(&request.path) => object.answer(request),
                _ => bare(request),
            }
        })
    };
    for (refuses, states, count) in [(true, "+++++-...-", 1), (false, "++++++-..-", 3)] {
        let server = mute(refuses);
        let outcome = run(json(&["--write", "--size", "0", &server.url("")]));
        let found = assert_states(&outcome, &server.url(""), states);
        let left = left(&found);
        assert!(left.len() == count && left.iter().all(|(_, is_certain)| !is_certain), "{found:#}");
    }
}

#[test]
fn to_remove_what_was_written_takes_no_longer_than_a_step() {
    let (files, object) = (Mutex::new(HashSet::new()), Object::bare(&content(4009, 1024)));
    let server = Rogue::start(move |request| {
        let mut files = files.lock().unwrap();
        let is_there = files.contains(&request.path);
        match request.method.as_str() {
            "PUT" => {
                files.insert(request.path.clone());
                Answer::status(201).then(Then::Close)
            }
            // From now on it says nothing any more.
            _ if files.len() == 3 => Answer::raw(Vec::new()).then(Then::Stall),
            _ if is_there => object.answer(request),
            _ => bare(request),
        }
    });
    let outcome = run(json(&["--write", "--timeout", "4", "--endpoint-timeout", "8", &server.url("")]));
    let found = endpoint(&outcome, &server.url(""));
    assert_eq!(found["steps"]["delete"]["error"]["class"], "timeout", "{found:#}");
    assert!(left(&found).len() >= 3, "{found:#}");
    // The files, their removal, and the grace of what is broken off; a removal that took a step of its own for each would take
    // three times as long.
    assert!(outcome.elapsed < Duration::from_secs(20), "{}", outcome.describe());
}

#[test]
fn a_page_of_any_length_is_not_taken() {
    let html = b"<a href=\"x\">x</a>\n".repeat(6_000_000 / 19);
    let server = Rogue::start(move |request| match request.path.as_str() {
        "/" if request.method == "GET" => page(html.clone()),
        _ => bare(request),
    });
    let outcome = run(json(&[&server.url("")]));
    let error = assert_states(&outcome, &server.url(""), "++++-.....")["steps"]["list"]["error"].clone();
    assert_eq!(error["class"], "unsupported", "{error}");
}

#[test]
fn what_was_found_out_is_shown_when_the_failures_cannot_be_written() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.dir("export"));
    let there = scratch.dir("errors");
    let command = |mut command: Command| {
        command.arg("--errors").arg(&there).arg(server.url(""));
        run(command)
    };
    let outcome = command(probe(&[])).says(&["cannot write it"]);
    assert!(
        outcome.code != Some(0) && outcome.text().contains("1 endpoint of 1 site"),
        "{}",
        outcome.describe()
    );
    assert!(outcome.text().contains("list read write"), "{}", outcome.describe());
    let outcome = command(json(&[]));
    assert_eq!(
        (outcome.number("listed"), &outcome.event("error")["error"]["class"]),
        (1, &"local_io".into())
    );
}

#[test]
fn files_of_other_probes_are_not_read() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    fs::write(export.join("gridlane-probe-0123456789abcdef-0-small-0"), b"x").unwrap();
    let server = Server::start(&export);
    for url in [server.url(""), server.url_over("root", "")] {
        let found = assert_states(&run(json(&[&url])).ok(), &url, "+++++.....");
        assert_eq!(found["steps"]["read"]["why"], "no_file", "{found:#}");
    }
}

#[test]
fn what_is_dead_silent_or_strange_costs_its_own_time_and_says_why() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    let mut certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    certificate.not_before = date_time_ymd(2000, 1, 1);
    certificate.not_after = date_time_ymd(2001, 1, 1);
    let key = KeyPair::generate().unwrap();
    let cert = scratch.file("old.pem", certificate.self_signed(&key).unwrap().pem().as_bytes());
    let key = scratch.file("old-key.pem", key.serialize_pem().as_bytes());
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let expired = Server::with(&export, &["--cert", cert.to_str().unwrap(), "--key", key.to_str().unwrap()]);
    let works = Server::with(&export, &["--allow-write"]);
    // It takes connections, and never says a word.
    let silent_socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent_socket.local_addr().unwrap();
    let urls = [
        closed_port_url(""),
        format!("https://{silent}/"),
        format!("root://{silent}//"),
        expired.url_over("https", "").replace("https", "davs"),
        "https://no-such-host.invalid/".to_owned(),
        "gsiftp://127.0.0.1:2811/vo/".to_owned(),
        works.url(""),
    ];
    let list = scratch.file("sites", format!("# all of them\n{}\n", urls.join("\n")).as_bytes());
    let mut command = json(&["--write", "--size", "10k", "--timeout", "1", "--from"]);
    command.arg(&list).arg("--ca").arg(&cert);
    let outcome = run(command).exits(10);
    assert!(outcome.elapsed < SOON, "{}", outcome.describe());
    let error = |url: &str, states: &str, step: &str| {
        let found = assert_states(&outcome, url, states);
        found["steps"][step]["error"].clone()
    };
    assert_eq!(error(&urls[0], "++-.......", "connect")["class"], "network");
    for url in &urls[1..3] {
        assert_eq!(error(url, "+++-......", "login")["class"], "timeout");
    }
    let old = error(&expired.url_over("https", ""), "+++-......", "login");
    assert!(old["class"] == "denied" && old["message"].as_str().unwrap().contains("expired"), "{old}");
    error(&urls[4], "+-........", "resolve");
    let unspoken = error(&urls[5], "-.........", "protocol");
    assert_eq!(unspoken["class"], "unsupported", "{unspoken}");
    assert_states(&outcome, &urls[6], "++++++++++");
    // The same for people, by causes.
    let errors = scratch.file("errors", b"of an earlier run");
    let mut command = probe(&["--timeout", "1", "--parallel", "2", "--from"]);
    command.arg(&list).arg("--ca").arg(&cert).arg("--errors").arg(&errors);
    let outcome = run(command).exits(10).says(&[
        "2 × login: too slow",
        "certificate of the server expired",
        "connect: connection refused",
        "gsiftp is not spoken here",
        "7 endpoints of 7 sites",
    ]);
    let text = fs::read_to_string(&errors).unwrap();
    for words in ["\n2 × login: too slow\n", "https://127.0.0.1", "refused", "6 failures, 5 causes"] {
        assert!(text.contains(words), "no {words:?} in\n{text}\n{}", outcome.describe());
    }
    drop(silent_socket);
}

#[test]
fn what_was_begun_is_removed_when_it_is_stopped() {
    let scratch = Scratch::new();
    for scheme in ["http", "root"] {
        let export = scratch.dir(scheme);
        let server = Server::with(&export, &["--allow-write", "--limit-rate", "2M"]);
        let url = server.url_over(scheme, "");
        let running = Running::start(json(&[
            "--write",
            "--size",
            "60M",
            "--timeout",
            "100",
            &url,
            &closed_port_url(""),
        ]));
        // It is all there, and comes back slowly.
        until("the large file is written", || left_in(&export).iter().any(|name| name.ends_with("-rate")));
        running.signal("INT");
        let outcome = running.wait().exits(130);
        let found = endpoint(&outcome, &url);
        assert_eq!(found["steps"]["read_rate"]["why"], "stopped", "{found:#}");
        assert_eq!(
            (&found["steps"]["list"]["state"], &found["steps"]["delete"]["state"]),
            (&"works".into(), &"works".into())
        );
        assert!(left_in(&export).is_empty(), "{:?}\n{}", names(&export), outcome.describe());
    }
}

#[test]
fn a_set_is_chosen_and_the_others_have_a_reason() {
    let scratch = Scratch::new();
    let server = |name: &str, options: &[&str]| Server::with(&scratch.dir(name), options);
    let (a, b) = (server("a", &["--allow-write"]), server("b", &["--allow-write"]));
    let (c, read_only) = (server("c", &["--allow-write"]), server("read-only", &[]));
    let line = |name: &str, zone: &str, server: &Server| {
        let port = server.url("").rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
        (format!("site={name} zone={zone} http://127.0.0.1:{port}/ root://127.0.0.1:{port}//"), port)
    };
    let (closed, list) = (closed_port_url(""), scratch.join("sites"));
    let lines = [
        line("A", "fr", &a).0,
        line("B", "fr", &b).0,
        line("C", "de", &c).0,
        line("R", "us", &read_only).0,
        format!("site=H zone=it {}", c.url("")),
        format!("site=D zone=uk {closed}"),
    ];
    fs::write(&list, lines.join("\n")).unwrap();
    let choose = |more: &[&str]| {
        let mut command = json(&["--write", "--size", "200k", "--from"]);
        command.arg(&list).args(more);
        run(command)
    };
    let named = |outcome: &Outcome| -> Vec<String> {
        let choice = outcome.event("choice");
        let mut named: Vec<String> = choice["chosen"]
            .as_array()
            .unwrap()
            .iter()
            .map(|site| site["site"].as_str().unwrap().to_owned())
            .collect();
        named.sort();
        named
    };
    let outcome = choose(&["--protocols", "http,root:1", "--choose", "2", "--apart", "zone"]).ok();
    let chosen = named(&outcome);
    assert!(chosen.contains(&"C".to_owned()) && chosen.len() == 2, "{}", outcome.describe());
    let choice = outcome.event("choice");
    let why = |site: &str| {
        let others = choice["passed_over"].as_array().unwrap();
        others
            .iter()
            .find(|other| other["site"] == site)
            .map(|other| other["why_id"].as_str().unwrap().to_owned())
    };
    assert_eq!(why("R").as_deref(), Some("ability"), "{choice:#}");
    assert_eq!(why("D").as_deref(), Some("protocol"), "{choice:#}");
    // The site with one URL was tried over the other protocol at a port that nothing listens to.
    assert_eq!(why("H").as_deref(), Some("protocol"), "{choice:#}");
    assert!(["A", "B"].iter().any(|site| why(site).as_deref() == Some("not_apart")), "{choice:#}");
    // All are at one place.
    let outcome = choose(&["--choose", "2", "--apart", "network", "--require", "list"]).exits(5);
    assert_eq!(outcome.event("choice")["is_met"], false);
    let error = outcome.event("error")["error"].clone();
    assert_eq!(error["class"], "precondition", "{error}");
    assert!(error["message"].as_str().unwrap().contains("1 are apart by network"), "{error}");
    let mut plain = probe(&["--choose", "3", "--require", "list", "--by", "rtt", "--from"]);
    plain.arg(&list);
    run(plain).ok().says(&["chosen: 3 of 6 sites, the best by rtt first", "not chosen:", "D: http: connect"]);
    let mut wrong = probe(&["--choose", "3", "--require", "list,write", "--from"]);
    wrong.arg(&list);
    run(wrong).exits(2).says(&["--write"]);
}

#[test]
fn the_credential_is_named_and_not_shown() {
    let scratch = Scratch::new();
    let token = "an-opaque-token-of-4004-that-is-secret";
    secrets::remember(token);
    secrets::remember_password("ada", "quite-secret-4005");
    let export = scratch.dir("export");
    fs::write(export.join("f"), b"something").unwrap();
    let nginx = Nginx::with(&export, "autoindex on;");
    let file = scratch.file("token", token.as_bytes());
    let clear = nginx.url("").replace("http://", "http://ada:quite-secret-4005@");
    let mut command = json(&[&nginx.tls_url(""), &nginx.url(""), &clear]);
    command.arg("--ca").arg(nginx.ca()).arg("--token-file").arg(&file);
    let outcome = run(command).ok();
    let shown = |at: usize| {
        let of: Vec<Value> =
            outcome.events().into_iter().filter(|event| event["type"] == "endpoint").collect();
        let sorted = |url: &str| of.iter().filter(|event| event["url"] == url).cloned().collect::<Vec<_>>();
        match at {
            0 => sorted(&nginx.tls_url(""))[0]["credentials"].clone(),
            _ => sorted(&nginx.url("")).iter().map(|event| event["credentials"].clone()).collect(),
        }
    };
    let name = format!("the token of {}", file.display());
    assert_eq!(shown(0), serde_json::json!([{ "kind": "token", "name": name }]));
    // In clear nothing is sent, but what is in the URL to this machine itself.
    let mut in_clear: Vec<String> = shown(1).as_array().unwrap().iter().map(Value::to_string).collect();
    in_clear.sort();
    assert_eq!(in_clear, ["[]", r#"[{"kind":"url","name":"what is in the URL"}]"#]);
    let mut plain = probe(&[&nginx.tls_url(""), "--token-file"]);
    plain.arg(&file).arg("--ca").arg(nginx.ca());
    run(plain).ok().says(&[&format!("with {name}:")]);
}

#[test]
fn a_list_says_where_it_is_wrong() {
    let scratch = Scratch::new();
    let list = scratch.file("sites", b"# sites\n\nhttps://127.0.0.1:1/\nsite=x /tmp\n");
    let mut command = probe(&["--from"]);
    command.arg(&list);
    run(command).exits(2).says(&["sites, line 4", "neither site=NAME nor zone=NAME"]);
    run(probe(&[])).exits(2).says(&["<ENDPOINT>"]);
    run(probe(&["file:///tmp/"])).exits(2);
    let empty = scratch.file("empty", b"# nothing\n");
    let mut command = probe(&["--from"]);
    command.arg(&empty);
    run(command).exits(2).says(&["no endpoint"]);
    let mut command = probe(&["https://127.0.0.1:1/", "--errors"]);
    command.arg(scratch.join("missing/errors"));
    run(command).exits(3).says(&["missing/errors"]);
}
