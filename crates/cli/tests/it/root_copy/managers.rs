//! Through XRootD's manager: it sends the client to a data server, or lets it wait.

use std::fs;

use super::random;
use crate::support::client::{cp, gridlane, run};
use crate::support::cluster::Cluster;
use crate::support::{MIB, Scratch, assert_copied};

#[test]
fn files_behind_a_manager() {
    let cluster = Cluster::start();
    let scratch = Scratch::new();
    let bytes = random(41, 8 * MIB + 5);
    // Down, from the server that the manager names.
    fs::create_dir_all(cluster.exported("dir")).unwrap();
    fs::write(cluster.exported("dir/f"), &*bytes).unwrap();
    cluster.give();
    let target = scratch.join("f");
    let outcome = run(cp(cluster.url("dir/f"), &target)).ok().verified(true);
    assert_copied(&target, &bytes);
    assert_eq!(outcome.number("fetched_bytes"), bytes.len() as u64);
    // A file that no server has, after the pause that the manager wants.
    run(cp(cluster.url("none"), scratch.join("none"))).fails(3, "caller", false, &["none"]);
    // A list is that of the servers.
    let mut command = gridlane();
    command.args(["ls", &cluster.url("dir")]);
    assert_eq!(run(command).ok().text(), "f\n");
    let mut command = gridlane();
    command.args(["stat", &cluster.url("dir/f")]);
    let said = run(command).ok().text();
    assert!(said.contains(&bytes.len().to_string()), "{said}");
    // Up, to the server that the manager chooses.
    let source = scratch.file("up", &bytes);
    let mut command = gridlane();
    command.arg("cp").arg(&source).arg(cluster.url("dir/up")).arg("--json");
    run(command).ok();
    assert_copied(&cluster.exported("dir/up"), &bytes);
    // Where the directory is not there, it is made, as for xrdcp: no server has all directories of a cluster.
    let mut command = gridlane();
    command.arg("cp").arg(&source).arg(cluster.url("not/there/up")).arg("--json");
    run(command).ok();
    assert_copied(&cluster.exported("not/there/up"), &bytes);
}
