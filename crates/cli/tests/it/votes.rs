//! A majority of replicas decides what is right, and not the fastest of them; and what cannot be compared is no file
//! for a user that says so. The honest answer here when the copy has every byte of the liar.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use gridlane_core::ChecksumKind;

use crate::support::client::{cp, cp_from, cp_r, gridlane, run};
use crate::support::nginx::Nginx;
use crate::support::object::Object;
use crate::support::relay::{Relay, Ways};
use crate::support::rogue::Rogue;
use crate::support::serve::Server;
use crate::support::tree::assert_same_trees;
use crate::support::{
    DEADLINE, MIB, Scratch, assert_copied, assert_same, checksum, content, names, occupied_bytes, part_of,
};

/// The delay of everything that comes through a relay: long after everything that does not.
const LATE: Duration = Duration::from_millis(200);

fn at_once(bytes: &Arc<Vec<u8>>) -> Rogue {
    let object = Object::new(bytes);
    Rogue::start(move |request| object.answer(request))
}

/// A replica that answers from when so many bytes are beside the target, or the copy has ended without it.
fn last(bytes: &Arc<Vec<u8>>, target: &Path, after: usize) -> Rogue {
    let (object, target, is_open) = (Object::new(bytes), target.to_owned(), AtomicBool::new(false));
    Rogue::start(move |request| {
        let begun = Instant::now();
        let is_there = || occupied_bytes(&part_of(&target)) >= after as u64 || target.exists();
        while !is_open.load(Relaxed) && !is_there() && begun.elapsed() < DEADLINE {
            std::thread::sleep(Duration::from_millis(1));
        }
        // The copy begins again when it has learned of another size.
        is_open.store(true, Relaxed);
        object.answer(request)
    })
}

fn late(port: u16) -> Relay {
    Relay::to(port, Ways { delay: LATE, ..Ways::default() })
}

/// The URL of a path by HTTP.
fn by_http(relay: &Relay, path: &str) -> String {
    format!("{}/{path}", relay.url("http", "").trim_end_matches('/'))
}

fn port_of(url: &str) -> u16 {
    let authority = url.split("://").nth(1).unwrap().split('/').next().unwrap();
    authority.rsplit(':').next().unwrap().parse().unwrap()
}

#[test]
fn a_liar_that_answers_at_once_does_not_decide() {
    let scratch = Scratch::new();
    for (number, size) in [3000, 20 * MIB].into_iter().enumerate() {
        let truth = content(1101 + number as u64, size);
        let lies = [content(1103, size), Arc::new(truth[..size / 2].to_vec())];
        for (kind, lie) in lies.iter().enumerate() {
            for place in [0, 2] {
                let target = scratch.join(format!("f-{number}-{kind}-{place}"));
                let honest = [last(&truth, &target, lie.len()), last(&truth, &target, lie.len())];
                let liar = at_once(lie);
                let mut sources = vec![honest[0].url("f"), honest[1].url("f")];
                sources.insert(place, liar.url("f"));
                let outcome = run(cp_from(&sources, &target)).ok().verified(true);
                assert_same(&fs::read(&target).unwrap(), &truth);
                assert_eq!(outcome.summary()["verified_by"], "2 of 3 sources", "{}", outcome.describe());
                assert_eq!(outcome.source(&liar.url("f"))["state"], "wrong");
            }
        }
    }
}

#[test]
fn one_voice_of_three_is_told_as_such() {
    let scratch = Scratch::new();
    let bytes = content(1105, 100_000);
    let object = Object::bare(&bytes);
    let mute: Vec<Rogue> = (0..2)
        .map(|_| {
            let object = object.clone();
            Rogue::start(move |request| object.answer(request))
        })
        .collect();
    let voice = at_once(&bytes);
    let sources = [mute[0].url("f"), voice.url("f"), mute[1].url("f")];
    let outcome = run(cp_from(&sources, scratch.join("json"))).ok().verified(true);
    let summary = outcome.summary();
    assert_eq!(summary["verified_by"], "1 of 3 sources", "{summary}");
    assert_eq!(summary["votes"]["agreeing"], 1, "{summary}");
    assert_eq!((&summary["votes"]["said"], &summary["votes"]["named"]), (&1.into(), &3.into()), "{summary}");
    let mut command = gridlane();
    command.args(["cp", &sources[0]]).arg(scratch.join("text"));
    command.args(["--mirror", &sources[1], "--mirror", &sources[2]]);
    run(command).ok().says(&["verified by 1 of 3 sources"]);
}

#[test]
fn replicas_over_other_protocols_and_of_trees_are_waited_for_too() {
    let scratch = Scratch::new();
    let (truth, lie) = (scratch.dir("truth"), scratch.dir("lie"));
    for number in 0..3 {
        fs::write(truth.join(format!("f{number}")), &**content(1110 + number, 30_000)).unwrap();
        fs::write(lie.join(format!("f{number}")), &**content(1120 + number, 30_000)).unwrap();
    }
    let (honest, liar) = (Server::start(&truth), Server::start(&lie));
    let port = port_of(&honest.url_over("root", "f0"));
    let relays = [late(port), late(port)];
    let sources = [liar.url("f0"), relays[0].url("root", "f0"), by_http(&relays[1], "f0")];
    let target = scratch.join("f");
    let outcome = run(cp_from(&sources, &target)).ok().verified(true);
    assert_same(&fs::read(&target).unwrap(), &fs::read(truth.join("f0")).unwrap());
    assert_eq!(outcome.summary()["verified_by"], "2 of 3 sources", "{}", outcome.describe());

    let mut command = cp_r(liar.url(""), scratch.join("tree"));
    for relay in &relays {
        command.args(["--mirror", &by_http(relay, "")]);
    }
    assert_eq!(run(command).ok().number("verified_files"), 3);
    assert_same_trees(&truth, &scratch.join("tree"));
}

#[test]
fn a_strong_checksum_that_a_server_states_unasked_is_compared() {
    let scratch = Scratch::new();
    let (bytes, other) = (content(1130, 70_000), content(1131, 70_000));
    let stating = |of: &[u8]| {
        let object = Object::bare(&bytes);
        let field = gridlane_dav::digest::encode_repr(&checksum(ChecksumKind::Sha256, of));
        Rogue::start(move |request| object.answer(request).header("Repr-Digest", &field))
    };
    let (right, wrong) = (stating(&bytes), stating(&other));
    let outcome = run(cp(right.url("f"), scratch.join("f"))).ok().verified(true);
    assert!(outcome.summary()["checksum"].as_str().unwrap().starts_with("sha256:"), "{}", outcome.describe());
    assert_copied(&scratch.join("f"), &bytes);
    run(cp(wrong.url("f"), scratch.join("g"))).fails(8, "peer", false, &["sha256"]);
    assert!(!scratch.join("g").exists());
    assert_eq!(run(cp(wrong.url("f"), "-")).code, Some(8));
}

#[test]
fn what_must_be_verified_and_cannot_be_is_not_there() {
    let scratch = Scratch::new();
    let www = scratch.dir("www");
    fs::write(www.join("f"), &**content(1140, 50_000)).unwrap();
    fs::create_dir(www.join("tree")).unwrap();
    for number in 0..20 {
        fs::write(www.join(format!("tree/f{number}")), format!("{number}")).unwrap();
    }
    let nginx = Nginx::with(&www, "autoindex on; dav_methods PUT DELETE; client_max_body_size 10m;");
    let required = |mut command: std::process::Command| {
        command.arg("--require-verified");
        command
    };
    let target = scratch.join("f");
    run(required(cp(nginx.url("f"), &target))).fails(8, "peer", false, &["no source states a checksum"]);
    assert!(!target.exists());
    // By the environment and the configuration file as well.
    let mut command = cp(nginx.url("f"), &target);
    command.env("GRIDLANE_REQUIRE_VERIFIED", "1");
    run(command).exits(8);
    let config = scratch.file("config.toml", b"[cp]\nrequire-verified = true\n");
    let mut command = cp(nginx.url("f"), &target);
    command.arg("--config").arg(&config);
    run(command).exits(8);
    assert!(!target.exists());
    // What is there already stays.
    fs::write(scratch.join("old"), b"old").unwrap();
    let mut command = required(cp(nginx.url("f"), scratch.join("old")));
    command.arg("--force");
    run(command).exits(8);
    assert_eq!(fs::read(scratch.join("old")).unwrap(), b"old");

    run(required(cp(nginx.url("f"), "-"))).exits(8).says(&["do not use what was written"]);

    let tree = scratch.join("tree");
    let outcome = run(required(cp_r(nginx.url("tree/"), &tree))).exits(8);
    assert_eq!((outcome.number("files"), outcome.number("failed")), (0, 20));
    assert!(names(&tree).iter().all(|name| name.starts_with('.')), "{:?}", names(&tree));

    let local = scratch.file("local", b"some bytes");
    run(required(cp(&local, nginx.url("up")))).exits(8).says(&["was removed"]);
    assert!(!www.join("up").exists());

    // Where everything can be compared, nothing changes.
    let server = Server::with(&www, &["--allow-write"]);
    run(required(cp(server.url("f"), &target))).ok().verified(true);
    run(required(cp(&local, server.url("up")))).ok().verified(true);
    let again = scratch.join("again");
    assert_eq!(run(required(cp_r(server.url("tree/"), &again))).ok().number("verified_files"), 20);
}

#[test]
fn a_type_of_checksum_that_no_server_states_is_said_first() {
    let scratch = Scratch::new();
    let www = scratch.dir("www");
    let bytes = content(1150, 40_000);
    fs::write(www.join("f"), &**bytes).unwrap();
    let nginx = Nginx::start(&www);
    let object = Object::bare(&bytes);
    let field = gridlane_dav::digest::encode(&checksum(ChecksumKind::Md5, &bytes));
    let stating = Rogue::start(move |request| object.answer(request).header("Digest", &field));
    for (number, (url, words)) in
        [(nginx.url("f"), "the copy is unverified"), (stating.url("f"), "compared by md5 instead")]
            .into_iter()
            .enumerate()
    {
        let mut command = gridlane();
        command.args(["cp", &url, "--checksum", "sha256"]).arg(scratch.join(format!("text{number}")));
        let outcome = run(command).ok();
        let first = outcome.stderr.lines().next().unwrap();
        assert!(first.contains("no source states its sha256") && first.contains(words), "{first}");
        let mut command = cp(&url, scratch.join(format!("json{number}")));
        command.args(["--checksum", "sha256"]);
        assert_eq!(run(command).ok().summary()["checksum_unstated"], "sha256");
    }
    let server = Server::start(&www);
    let mut command = cp(server.url("f"), scratch.join("stated"));
    command.args(["--checksum", "sha256"]);
    let outcome = run(command).ok().verified(true);
    assert!(outcome.summary()["checksum_unstated"].is_null(), "{}", outcome.describe());
}
