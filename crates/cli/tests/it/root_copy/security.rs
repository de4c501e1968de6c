//! TLS, and servers that ask for authentication.

use super::{random, server_with};
use crate::support::client::{cp, run};
use crate::support::cluster::Cluster;
use crate::support::serve::Server;
use crate::support::tools::tool;
use crate::support::xrootd::{Xrootd, give, open_to_all};
use crate::support::{MIB, Scratch, assert_copied};

#[test]
fn roots_wants_a_certificate_that_is_trusted() {
    let bytes = random(51, 8 * MIB);
    let server = server_with(&bytes);
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let url = server.url_over("roots", "f");
    // By no authority, and by another one.
    let other = Server::start(&scratch.dir("other"));
    for ca in [None, Some(other.ca())] {
        let mut command = cp(&url, &target);
        if let Some(ca) = ca {
            command.arg("--ca").arg(ca);
        }
        let outcome = run(command).fails(4, "peer", false, &["certificate"]);
        assert!(!target.exists(), "{}", outcome.describe());
    }
    let mut command = cp(&url, &target);
    command.arg("--ca").arg(server.ca());
    run(command).ok().verified(true);
    assert_copied(&target, &bytes);
    let log = server.log();
    let mut logins = log.lines().filter(|line| line.ends_with(" login")).peekable();
    assert!(logins.peek().is_some() && logins.all(|line| line.contains(" TLSv1")), "{log}");
}

#[test]
fn roots_is_never_spoken_in_clear() {
    // A server without a certificate.
    let cluster = Cluster::start();
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let url = format!("roots://127.0.0.1:{}//known", cluster.member());
    let outcome = run(cp(url, &target)).says(&["TLS"]);
    assert!(outcome.code != Some(0) && !target.exists(), "{}", outcome.describe());
}

#[test]
fn root_is_upgraded_where_the_server_demands_it() {
    let bytes = random(53, 4 * MIB);
    for demand in ["login", "session", "login data"] {
        let server = Xrootd::with(&format!("xrootd.tls {demand}\n"));
        server.put("f", &bytes);
        let scratch = Scratch::new();
        let target = scratch.join("f");
        let mut command = cp(server.url("f"), &target);
        command.arg("--ca").arg(server.ca());
        run(command).ok().verified(true);
        assert_copied(&target, &bytes);
        // It has to be the right server all the same.
        let outcome = run(cp(server.url("f"), scratch.join("g"))).says(&["certificate"]);
        assert_eq!(outcome.code, Some(4), "{demand}: {}", outcome.describe());
    }
}

#[test]
fn a_server_that_believes_what_users_say_is_told() {
    let bytes = random(54, 4 * MIB);
    let server = Xrootd::with("xrootd.seclib libXrdSec.so\nsec.protocol unix\n");
    server.put("f", &bytes);
    let scratch = Scratch::new();
    let target = scratch.join("f");
    run(cp(server.url("f"), &target)).ok().verified(true);
    assert_copied(&target, &bytes);
}

#[test]
fn credentials_that_nobody_has_are_named() {
    let keys = Scratch::new();
    open_to_all(keys.path());
    let keytab = keys.join("sss.keytab");
    let mut command = tool("xrdsssadmin", "xrootd-server");
    command.args(["-k", "gridlane", "-u", "nobody", "-g", "nogroup", "add"]).arg(&keytab);
    run(command).ok();
    give(keys.path());
    let lines = format!("xrootd.seclib libXrdSec.so\nsec.protocol sss -s {}\n", keytab.display());
    let server = Xrootd::with(&lines);
    server.put("f", b"f");
    let scratch = Scratch::new();
    let target = scratch.join("f");
    let outcome = run(cp(server.url("f"), &target)).fails(4, "peer", false, &["credentials", "sss"]);
    assert!(!target.exists(), "{}", outcome.describe());
}
