//! `gridlane wan` without root: with a TUN device that users may use it works all the same; without, and where
//! namespaces are forbidden, it says what is missing and leaves nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::support::client::run;
use crate::support::wan::{Sleeper, Wan, assert_unchanged, crash, host};
use crate::support::{assert_copied, content};

const PAIR: &str = r#"
    sites = ["client", "near"]
    link = [{ between = ["near", "client"], rate = "100Mb/s", delay_ms = 5 }]
"#;

/// `wan up` where the TUN device has these permissions, which are its own only in mounts of their own.
fn up_with_tun(wan: &Wan, mode: &str) -> Command {
    let script = format!(
        "mount -t tmpfs none /dev/net && mknod /dev/net/tun c 10 200 && chmod {mode} /dev/net/tun && exec \"$@\""
    );
    let runner = ["unshare", "--mount", "--propagation", "private", "sh", "-c", &script, "sh"];
    let mut command = wan.command_within(&runner, "up");
    command.arg(wan.scenario());
    command
}

#[test]
fn without_the_device_a_user_is_told() {
    let before = host();
    let wan = Wan::planned_for_nobody("no-device", PAIR);
    run(up_with_tun(&wan, "600")).exits(4).says(&["/dev/net/tun", "root", "chmod"]);
    wan.assert_gone(&Default::default());
    assert_eq!(fs::read_dir(wan.writable()).unwrap().count(), 0, "no file is left");
    assert_unchanged(&before);
}

#[test]
fn with_the_device_a_user_has_a_network() {
    let before = host();
    let wan = Wan::planned_for_nobody("user", PAIR);
    run(up_with_tun(&wan, "666")).ok().says(&["user namespace"]);
    assert_eq!(wan.show()["privilege"], "user namespace");
    let namespaces = wan.namespaces();
    assert_eq!(
        wan.shell("near", "hostname; getent ahosts client.v6 | cut -d' ' -f1 | sort -u"),
        "near\n2001:2::1"
    );

    let bytes = content(1401, 500_000);
    let (export, target) = (wan.scratch().dir("export"), wan.writable().join("f"));
    fs::write(export.join("f"), &*bytes).unwrap();
    let server = wan.serve("near", &export);
    for start in ["http://198", "http://[2001"] {
        let _ = fs::remove_file(&target);
        run(wan.cp("client", &[server.url_where("f", start)], &target)).ok().verified(true);
        assert_copied(&target, &bytes);
    }
    assert!(wan.count("near-client", "near", "passed_bytes") > 1_000_000);
    wan.set("near-client", &["--down"]);
    assert_eq!(wan.link("near-client", "near")["is_down"], true);

    // Another user, even root, has networks of its own.
    let mut command = crate::support::client::gridlane();
    command.args(["wan", "show", "--name", wan.name()]);
    run(command).exits(3);

    wan.run("down", &[]).ok().says(&["is down"]);
    wan.assert_gone(&namespaces);
    assert_unchanged(&before);
}

#[test]
fn after_a_crash_a_user_cleans_up_too() {
    let wan = Wan::planned_for_nobody("user-crash", PAIR);
    run(up_with_tun(&wan, "666")).ok();
    let mut sleeper = Sleeper::start(wan.exec("near", "sleep"));
    let namespaces = crash(&wan);
    wan.run("show", &[]).exits(3).says(&["gridlane wan down"]);
    wan.run("down", &[]).ok();
    sleeper.assert_ended();
    wan.assert_gone(&namespaces);
}

#[test]
fn where_namespaces_are_forbidden_it_says_so() {
    let before = host();
    let wan = Wan::planned("forbidden", PAIR);
    // In a user namespace of its own, in which no process may make another or has a right.
    let script = "echo 0 >/proc/sys/user/max_user_namespaces && \
                  exec setpriv --bounding-set=-all --inh-caps=-all --ambient-caps=-all \"$@\"";
    let runner = ["unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c", script, "sh"];
    let mut command = wan.command_within(&runner, "up");
    command.arg(wan.scenario());
    run(command).exits(4).says(&["may make no namespaces", "root", "max_user_namespaces", "/dev/net/tun"]);
    wan.assert_gone(&Default::default());
    assert!(!Path::new(&wan.dir()).exists());
    assert_unchanged(&before);
}

#[test]
fn a_directory_that_belongs_to_somebody_else_is_not_believed() {
    let wan = Wan::planned_for_nobody("foreign", PAIR);
    // Root's directory in the place of an ordinary user's, with a lock that is held and names a process.
    let foreign = wan.writable().join("gridlane-wan-65534");
    let mut victim = Command::new("setpriv");
    victim.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sleep", "60"]);
    let mut victim = victim.spawn().unwrap();
    fs::create_dir_all(foreign.join(wan.name())).unwrap();
    fs::set_permissions(&foreign, fs::Permissions::from_mode(0o755)).unwrap();
    let lock = fs::File::create(foreign.join(wan.name()).join("lock")).unwrap();
    fs::write(foreign.join(wan.name()).join("lock"), victim.id().to_string()).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    for subcommand in ["down", "show"] {
        wan.run(subcommand, &[]).exits(4).says(&["belongs to another user", "XDG_RUNTIME_DIR"]);
    }
    assert!(victim.try_wait().unwrap().is_none(), "it was not ended");
    victim.kill().unwrap();
    victim.wait().unwrap();
}
