//! Several replicas at once: each gives its part, over IPv4, IPv6, http and https alike.
//!
//! Their part of all rates together is measured by `make bench`, in pairs; here only what holds on any machine: never
//! faster than the limits, and no replica left out.

use std::fs;
use std::sync::Arc;

use crate::support::client::{cp, cp_from, run};
use crate::support::serve::Server;
use crate::support::{MIB, Scratch, assert_copied, assert_ipv6_is_refused, assert_same, content, has_ipv6};

struct Export {
    scratch: Scratch,
    bytes: Arc<Vec<u8>>,
}

impl Export {
    fn new(seed: u64, size: usize) -> Export {
        let scratch = Scratch::new();
        let bytes = content(seed, size);
        fs::write(scratch.dir("export").join("f"), &*bytes).unwrap();
        Export { scratch, bytes }
    }

    fn server(&self, options: &[&str]) -> Server {
        Server::with(&self.scratch.join("export"), options)
    }
}

#[test]
fn three_equal_replicas_work_at_the_same_time() {
    let export = Export::new(801, 64 * MIB);
    let servers: Vec<Server> = (0..3).map(|_| export.server(&["--limit-rate", "8MB/s"])).collect();
    let sources: Vec<String> = servers.iter().map(|server| server.url("f")).collect();
    let target = export.scratch.join("f");
    let outcome = run(cp_from(&sources, &target)).ok().verified(true);
    assert_copied(&target, &export.bytes);
    let summary = outcome.summary();
    for source in &sources {
        let share = outcome.source(source)["bytes"].as_f64().unwrap() / export.bytes.len() as f64;
        // A replica that waits for the others has no share: there is one pool of ranges.
        assert!((0.1..0.7).contains(&share), "{source} gave {share:.2} of it: {summary}");
    }
    // 64 MiB at 3 x 8 MB/s: 2.8 s.
    let seconds = summary["seconds"].as_f64().unwrap();
    let bound = export.bytes.len() as f64 / 24e6;
    assert!(seconds > 0.8 * bound, "faster than the limits: {seconds:.2} s");
    assert!(outcome.number("extra_bytes") <= export.bytes.len() as u64 / 10, "{summary}");
    let fraction = summary["fraction"].as_f64().unwrap_or_else(|| panic!("no fraction: {summary}"));
    assert!(fraction > 0.0 && fraction <= 1.1, "{summary}");
    assert!(!summary["limited_by"].as_str().unwrap().is_empty(), "{summary}");
}

#[test]
fn unequal_replicas_give_in_proportion() {
    let export = Export::new(802, 48 * MIB);
    let (slow, fast) =
        (export.server(&["--limit-rate", "4MB/s"]), export.server(&["--limit-rate", "16MB/s"]));
    let sources = [slow.url("f"), fast.url("f")];
    let target = export.scratch.join("f");
    let outcome = run(cp_from(&sources, &target)).ok().verified(true);
    assert_copied(&target, &export.bytes);
    let share = outcome.source(&sources[0])["bytes"].as_f64().unwrap() / export.bytes.len() as f64;
    assert!((0.02..0.45).contains(&share), "the slow one gave {share:.2}");
    let seconds = outcome.summary()["seconds"].as_f64().unwrap();
    assert!(seconds > 0.8 * export.bytes.len() as f64 / 20e6, "faster than the limits: {seconds:.2} s");
}

#[test]
fn ipv6_works_like_ipv4() {
    let export = Export::new(803, 8 * MIB);
    if !has_ipv6() {
        return assert_ipv6_is_refused(&export.scratch.join("export"));
    }
    let mut command = Server::command(&export.scratch.join("export"));
    command.args(["--listen", "[::1]:0", "--listen", "127.0.0.1:0"]);
    let server = Server::spawn(command);
    let six = server.url_where("f", "http://[::1]:");
    let four = server.url_where("f", "http://127.0.0.1:");
    let target = export.scratch.join("six");
    run(cp(&six, &target)).ok().verified(true);
    assert_copied(&target, &export.bytes);
    let target = export.scratch.join("both");
    run(cp_from(&[four, six], &target)).ok().verified(true);
    assert_copied(&target, &export.bytes);
}

#[test]
fn https_with_the_right_authority_is_taken_and_without_it_refused() {
    let export = Export::new(804, 8 * MIB);
    let server = export.server(&[]);
    let url = server.url_over("https", "f");
    let target = export.scratch.join("f");
    let outcome = run(cp(&url, &target)).says(&["certificate", "--ca"]);
    assert_ne!(outcome.code, Some(0));
    assert!(!target.exists());
    assert_eq!(outcome.error()["retryable"], false, "{}", outcome.describe());

    let mut command = cp(&url, &target);
    command.arg("--ca").arg(server.ca());
    run(command).ok().verified(true);
    assert_copied(&target, &export.bytes);

    let mut command = cp(&url, "-");
    command.arg("--insecure");
    let outcome = run(command).ok().says(&["insecure"]);
    assert_same(&outcome.stdout, &export.bytes);
}

#[test]
fn http_and_https_replicas_work_together() {
    let export = Export::new(805, 32 * MIB);
    let limit = ["--limit-rate", "12MB/s"];
    let (plain, tls) = (export.server(&limit), export.server(&limit));
    let sources = [plain.url("f"), tls.url_over("https", "f")];
    let target = export.scratch.join("f");
    let mut command = cp_from(&sources, &target);
    command.arg("--ca").arg(tls.ca());
    let outcome = run(command).ok().verified(true);
    assert_copied(&target, &export.bytes);
    for source in &sources {
        assert!(outcome.source(source)["bytes"].as_u64().unwrap() > 4 * MIB as u64, "{}", outcome.describe());
    }
}

#[test]
fn a_local_file_can_be_one_of_the_replicas() {
    let export = Export::new(806, 8 * MIB);
    let server = export.server(&[]);
    let local = format!("file://{}", export.scratch.join("export/f").display());
    let target = export.scratch.join("f");
    run(cp_from(&[server.url("f"), local], &target)).ok().verified(true);
    assert_copied(&target, &export.bytes);
}

#[test]
fn several_streams_from_one_server_give_the_same_bytes() {
    let export = Export::new(807, 32 * MIB);
    let server = export.server(&[]);
    let target = export.scratch.join("f");
    let mut command = cp(server.url("f"), &target);
    command.args(["--streams", "4"]);
    run(command).ok().verified(true);
    assert_copied(&target, &export.bytes);
}

#[test]
fn a_limit_of_the_client_is_kept() {
    let export = Export::new(808, 16 * MIB);
    let servers = [export.server(&[]), export.server(&[])];
    let target = export.scratch.join("f");
    let mut command = cp_from(&[servers[0].url("f"), servers[1].url("f")], &target);
    command.args(["--limit-rate", "8MB/s"]);
    let outcome = run(command).ok().verified(true);
    assert_copied(&target, &export.bytes);
    // 16 MiB at 8 MB/s: 2.1 s.
    let seconds = outcome.summary()["seconds"].as_f64().unwrap();
    assert!(seconds > 1.6, "faster than the limit: {seconds:.2} s");
}

#[test]
fn several_replicas_into_a_pipe_arrive_in_order() {
    let export = Export::new(809, 24 * MIB);
    let servers: Vec<Server> =
        ["4MB/s", "8MB/s", "24MB/s"].map(|rate| export.server(&["--limit-rate", rate])).into();
    let sources: Vec<String> = servers.iter().map(|server| server.url("f")).collect();
    let outcome = run(cp_from(&sources, "-")).ok();
    assert_same(&outcome.stdout, &export.bytes);
}

#[test]
fn the_events_tell_the_story_of_a_copy() {
    let export = Export::new(810, 16 * MIB);
    let servers: Vec<Server> = (0..2).map(|_| export.server(&["--limit-rate", "6MB/s"])).collect();
    let sources: Vec<String> = servers.iter().map(|server| server.url("f")).collect();
    let outcome = run(cp_from(&sources, export.scratch.join("f"))).ok();
    let types: Vec<String> =
        outcome.events().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    for expected in ["plan", "file.start", "progress", "verify", "file.done", "summary"] {
        assert!(types.iter().any(|found| found == expected), "no {expected:?} in {types:?}");
    }
    let known = [
        "plan",
        "source",
        "file.start",
        "progress",
        "retry",
        "verify",
        "file.done",
        "file.failed",
        "summary",
    ];
    assert!(types.iter().all(|found| known.contains(&found.as_str())), "{types:?}");
    assert_eq!(types.last().unwrap(), "summary", "{types:?}");
    let summary = outcome.summary();
    assert_eq!(summary["bytes"], export.bytes.len());
    let parts: u64 =
        summary["sources"].as_array().unwrap().iter().map(|source| source["bytes"].as_u64().unwrap()).sum();
    assert!(parts >= export.bytes.len() as u64, "{summary}");
    let progress: Vec<u64> = outcome
        .events()
        .iter()
        .filter(|event| event["type"] == "progress")
        .map(|event| event["bytes"].as_u64().unwrap())
        .collect();
    assert!(progress.is_sorted(), "progress goes backwards: {progress:?}");
}
