//! Networks whose process is killed, while they come up or later: whatever happens, `wan down` or the next `wan up`
//! leaves nothing, and no unknown process lives on.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::client::{Running, run, signal};
use crate::support::wan::{Sleeper, Wan, assert_unchanged, crash, host, is_alive};
use crate::support::{SOON, until};

const PAIR: &str = r#"
    sites = ["client", "near"]
    link = [{ between = ["near", "client"], delay_ms = 1 }]
"#;

#[test]
fn after_a_crash_down_leaves_nothing() {
    let before = host();
    let wan = Wan::up("crash-down", PAIR);
    let mut sleeper = Sleeper::start(wan.exec("near", "sleep"));
    let namespaces = crash(&wan);
    for (subcommand, arguments) in
        [("show", &[][..]), ("set", &["near-client", "--down"]), ("exec", &["near", "--", "true"])]
    {
        wan.run(subcommand, arguments).exits(3).says(&["died", "gridlane wan down"]);
    }
    let outcome = wan.run("down", &["--json"]).ok().says(&[r#""was":"remains""#]);
    assert_eq!(outcome.event("wan.down")["killed_processes"], 1, "{}", outcome.describe());
    sleeper.assert_ended();
    wan.assert_gone(&namespaces);
    wan.run("down", &[]).ok().says(&["no network"]);
    assert_unchanged(&before);
    wan.bring_up();
    assert_eq!(wan.shell("near", "hostname"), "near");
}

#[test]
fn after_a_crash_up_works_at_once() {
    let wan = Wan::up("crash-up", PAIR);
    let mut sleeper = Sleeper::start(wan.exec("near", "sleep"));
    crash(&wan);
    wan.bring_up();
    // What ran in the old ones has ended. Their numbers tell nothing: the kernel gives them to the next namespaces.
    sleeper.assert_ended();
    assert_eq!(wan.shell("near", "hostname"), "near");
    let new = wan.namespaces();
    wan.run("down", &[]).ok().says(&["is down"]);
    wan.assert_gone(&new);
}

#[test]
fn what_hides_its_environment_is_found_after_a_crash() {
    let wan = Wan::up("crash-env", PAIR);
    let mut hidden = wan.exec("near", "env");
    hidden.args(["-i", "sleep"]);
    let mut sleeper = Sleeper::start(hidden);
    let namespaces = crash(&wan);
    wan.run("down", &[]).ok();
    sleeper.assert_ended();
    wan.assert_gone(&namespaces);
}

#[test]
fn a_keeper_that_does_not_answer_is_taken_down() {
    let wan = Wan::up("stopped", PAIR);
    let (namespaces, keeper) = (wan.namespaces(), wan.keeper());
    let mut sleeper = Sleeper::start(wan.exec("near", "sleep"));
    signal(&keeper, "STOP");
    let outcome = wan.run("down", &[]).ok();
    assert!(outcome.elapsed < Duration::from_secs(50), "{}", outcome.describe());
    sleeper.assert_ended();
    wan.assert_gone(&namespaces);
}

/// Asserts that either nothing is up, or something that `down` knows of.
fn assert_known(wan: &Wan, what: &str) {
    let mut is_up = false;
    until(&format!("{what}: it is up, or nothing runs"), || {
        is_up = wan.run("show", &[]).code == Some(0);
        is_up || wan.processes().is_empty()
    });
    let namespaces = if is_up { wan.namespaces() } else { BTreeSet::new() };
    wan.run("down", &[]).ok();
    wan.assert_gone(&namespaces);
}

#[test]
fn an_interrupted_up_leaves_nothing_that_nobody_knows_of() {
    let before = host();
    let wan = Wan::planned("interrupt", PAIR);
    // Bringing it up takes some ten milliseconds. These are no waits for something: the moment is what is varied.
    for (round, name) in (0..40).zip(["KILL", "INT", "TERM", "HUP"].into_iter().cycle()) {
        let mut command = wan.command_up();
        let mut up = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(400 * round));
        // Not yet waited for: the number is still its own.
        signal(&up.id().to_string(), name);
        up.wait().unwrap();
        if round % 3 == 0 {
            // As a script does that cleans up on its way out.
            let outcome = wan.run("down", &[]).ok();
            assert!(outcome.elapsed < SOON, "{}", outcome.describe());
        }
        assert_known(&wan, &format!("SIG{name} after {} us", 400 * round));
    }
    assert_unchanged(&before);
}

#[test]
fn down_while_it_comes_up_leaves_nothing_that_nobody_knows_of() {
    let before = host();
    let wan = Wan::planned("up-down", PAIR);
    for round in 0..20 {
        let up = Running::start(wan.command_up());
        std::thread::sleep(Duration::from_micros(700 * round));
        let outcome = wan.run("down", &[]).ok();
        assert!(outcome.elapsed < SOON, "{}", outcome.describe());
        let up = up.wait();
        assert!(up.code.is_some(), "{}", up.describe());
        assert_known(&wan, &format!("down after {} us", 700 * round));
    }
    assert_unchanged(&before);
}

#[test]
fn a_keeper_killed_while_it_comes_up_is_reported() {
    let before = host();
    let wan = Wan::planned("stillborn", PAIR);
    for round in 0..30 {
        let mut up = wan.command_up();
        let up = up.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut keeper = None;
        until("its child runs", || {
            keeper = wan.processes().into_iter().find(|pid| *pid != up.id());
            keeper.is_some()
        });
        std::thread::sleep(Duration::from_micros(300 * round));
        let keeper = keeper.unwrap().to_string();
        signal(&keeper, "KILL");
        let output = up.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            // It was up before it was killed.
            Some(0) => {}
            Some(_) => assert!(said.contains("ended") && said.contains("signal"), "{said}"),
            None => panic!("{}: {said}", output.status),
        }
        until("it is gone", || !is_alive(&keeper));
        if round % 2 == 0 {
            assert_known(&wan, &format!("killed after {} us", 300 * round));
        } else {
            wan.bring_up();
            run(wan.command("down")).ok();
            wan.assert_gone(&BTreeSet::new());
        }
    }
    assert_unchanged(&before);
}

#[test]
fn a_keeper_killed_while_it_configures_leaves_no_command_behind() {
    let before = host();
    let wan = Wan::planned("configuring", PAIR);
    let slow = wan.scratch().file("bin/ip", b"#!/bin/sh\nexec sleep 600\n");
    std::fs::set_permissions(&slow, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", slow.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut up = wan.command_up();
    let up = up.env("PATH", path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut keeper, mut children) = (None, String::new());
    until("it configures", || {
        keeper = wan.processes().into_iter().find(|pid| *pid != up.id());
        let tasks = keeper.and_then(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).ok());
        let files = tasks.into_iter().flatten().flatten().map(|task| task.path().join("children"));
        children = files.map(|file| std::fs::read_to_string(file).unwrap_or_default()).collect();
        !children.trim().is_empty()
    });
    signal(&keeper.unwrap().to_string(), "KILL");
    let output = up.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("ended") && said.contains("signal"), "{said}");
    for child in children.split_ascii_whitespace() {
        until("its command is gone", || !is_alive(child));
    }
    assert_known(&wan, "killed while it configures");
    assert_unchanged(&before);
}

#[test]
fn a_device_that_is_removed_makes_the_run_void_and_costs_no_cpu() {
    let wan = Wan::up("device", PAIR);
    wan.shell("near", "ip link del wan0");
    until("it is seen", || wan.show()["links"][0]["counters"]["has_failed"] == true);
    assert!(wan.show()["void"].as_str().is_some_and(|why| why.contains("removed")), "{}", wan.show()["void"]);
    // A real-time thread that waits for a device that is gone must not spin.
    let cpu_s = || wan.show()["forwarder_cpu_s"].as_f64().unwrap();
    let (began, before) = (Instant::now(), cpu_s());
    while began.elapsed() < Duration::from_millis(500) {
        cpu_s();
    }
    assert!(cpu_s() - before < 0.25, "{} CPU-s in half a second", cpu_s() - before);
    wan.run("down", &[]).ok();
}

#[test]
fn a_keeper_whose_directory_is_removed_ends() {
    let wan = Wan::up("unreachable", PAIR);
    let (namespaces, keeper, dir) = (wan.namespaces(), wan.keeper(), wan.dir());
    std::fs::remove_dir_all(&dir).unwrap();
    until("it has noticed", || !is_alive(&keeper));
    wan.assert_gone(&namespaces);
}

#[test]
fn what_waits_is_sent_at_the_new_rate_and_memory_is_enough() {
    let wan = Wan::up(
        "faster",
        "sites = ['client', 'near']\nlink = [{ between = ['near', 'client'], rate = '100kb/s', delay_ms = 5, queue = '4MB' }]",
    );
    // At the old rate this takes longer than anything here is waited for.
    const WAITING_BYTES: u64 = 1_000_000;
    let waiting = || wan.link("near-client", "near")["counters"]["queued_bytes"].as_u64().unwrap();
    until("much is waiting", || {
        // There is no listener: what is sent to the discard port only fills the queue. Not more at once than the device
        // takes.
        wan.shell(
            "near",
            "python3 -c \"from socket import *; s = socket(AF_INET, SOCK_DGRAM)
for _ in range(400): s.sendto(bytes(1000), ('client.v4', 9))\"",
        );
        waiting() >= WAITING_BYTES
    });
    wan.set("near-client", &["--rate", "800Mb/s"]);
    until("the queue is sent", || waiting() == 0);
    wan.shell("near", "python3 -c \"from socket import *; socket().connect_ex(('client.v4', 9))\"");
    assert!(wan.show()["void"].is_null(), "{}", wan.show()["void"]);
}
