//! roots:// is root:// that goes over to TLS.

use std::fs;

use gridlane_core::ChecksumKind;

use super::{Site, assert_refused};
use crate::support::client::{run, text};
use crate::support::tree::read_tree;
use crate::support::xrootd::hashed_authorities;
use crate::support::{MIB, Scratch, assert_same, checksum, content, until};

/// Asserts that everything that was asked for was asked for over TLS.
#[track_caller]
fn assert_encrypted(site: &Site) {
    if site.is_ours() {
        until("the requests are in the log", || site.log().lines().count() >= 2);
        let log = site.log();
        for line in log.lines() {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(record["tls"].is_string(), "not encrypted: {line}");
        }
    } else {
        let log = site.log();
        let mut logins = log.lines().filter(|line| line.ends_with(" login")).peekable();
        assert!(logins.peek().is_some() && logins.all(|line| line.contains(" TLSv1")), "{log}");
    }
}

#[test]
fn copies() {
    let site = Site::new();
    let bytes = content(3401, 20 * MIB + 11);
    let source = site.scratch.file("source", &bytes);
    let target = site.scratch.join("target");
    let url = |name: &str| site.url_over("roots", name);
    for (name, size) in [("empty", 0), ("one", 1), ("d/a name with %20 and ü", 1_000_000)] {
        let small = site.scratch.file(&format!("here/{name}"), &bytes[..size]);
        site.xrdcp(&[text(&small), &url(name)]).ok();
        assert_same(&site.read(name), &bytes[..size]);
        site.xrdcp(&["-f", &url(name), text(&target)]).ok();
        assert_same(&fs::read(&target).unwrap(), &bytes[..size]);
    }
    site.xrdcp(&["--cksum", "adler32", text(&source), &url("f")]).ok();
    assert_same(&site.read("f"), &bytes);
    for streams in ["1", "4"] {
        let mut command = site.xrdcp_command(&["-f", "-S", streams, &url("f"), text(&target)]);
        command.env("XRD_CPCHUNKSIZE", "1048576");
        run(command).ok();
        assert_same(&fs::read(&target).unwrap(), &bytes);
    }
    site.xrdcp(&["--posc", "--force", text(&source), &url("f")]).ok();
    fs::write(&target, &bytes[..MIB + 1]).unwrap();
    site.xrdcp(&["--continue", &url("f"), text(&target)]).ok();
    assert_same(&fs::read(&target).unwrap(), &bytes);
    assert_encrypted(&site);
}

/// Upwards only: xrdcp lists no directory of a roots:// URL, and asks for it as a file.
#[test]
fn trees() {
    let site = Site::new();
    let here = site.scratch.dir("here");
    for number in 0..6_u64 {
        site.scratch.file(&format!("here/dir {}/f {number}", number % 2), &content(number, 30_000));
    }
    fs::create_dir(site.exported("up")).unwrap();
    site.give();
    site.xrdcp(&["-r", text(&here), &site.url_over("roots", "up")]).ok();
    assert_eq!(read_tree(&site.exported("up/here")), read_tree(&here));
    assert_encrypted(&site);
}

#[test]
fn verbs() {
    let site = Site::new();
    let bytes = content(3402, 100_000);
    site.put("d/f", &bytes);
    let xrdfs = |arguments: &[&str]| site.xrdfs_over("roots", arguments);
    let listed = xrdfs(&["ls", "-l", "/d"]).ok().text();
    assert!(listed.contains(" 100000 ") && listed.ends_with("/d/f\n"), "{listed}");
    xrdfs(&["stat", "/d/f"]).ok().says(&["Size:   100000"]);
    assert_same(&xrdfs(&["cat", "/d/f"]).ok().stdout, &bytes);
    assert_same(&xrdfs(&["tail", "-c", "7", "/d/f"]).ok().stdout, &bytes[99_993..]);
    let said = xrdfs(&["query", "checksum", "/d/f"]).ok().text();
    assert!(said.contains(&checksum(ChecksumKind::Adler32, &bytes).hex()), "{said}");
    xrdfs(&["query", "config", "readv_iov_max"]).ok().says(&["1024"]);
    xrdfs(&["statvfs", "/"]).ok();
    xrdfs(&["locate", "/d/f"]).ok().says(&["Server ReadWrite"]);
    xrdfs(&["prepare", "/d/f"]).ok();
    xrdfs(&["mkdir", "-p", "/x/y"]).ok();
    xrdfs(&["mv", "/d/f", "/x/y/g"]).ok();
    xrdfs(&["truncate", "/x/y/g", "10"]).ok();
    assert_same(&site.read("x/y/g"), &bytes[..10]);
    xrdfs(&["chmod", "/x/y/g", "rw-r-----"]).ok();
    xrdfs(&["xattr", "/x/y/g", "set", "k=v"]).ok();
    xrdfs(&["xattr", "/x/y/g", "get", "k"]).ok().says(&["k=\"v\""]);
    xrdfs(&["xattr", "/x/y/g", "del", "k"]).ok();
    xrdfs(&["rm", "/x/y/g"]).ok();
    xrdfs(&["rmdir", "/x/y"]).ok();
    assert_refused(xrdfs(&["stat", "/x/y"]), &[3011], &["no such file"]);
    assert_encrypted(&site);
    // It goes over to the address that locate tells, and there it asks in clear text.
    xrdfs(&["spaceinfo", "/"]).ok().says(&["Largest free chunk"]);
}

/// A server that no trusted authority vouches for is told nothing.
#[test]
fn an_unknown_certificate_is_refused() {
    let site = Site::new();
    site.put("f", b"words");
    let target = site.scratch.join("target");
    let other = Scratch::new();
    let (certificate, _) =
        gridlane_net::tls::self_signed(&other.dir("other"), &["localhost".to_owned()]).unwrap();
    let mut command = site.xrdcp_command(&[&site.url_over("roots", "f"), text(&target)]);
    command.env("X509_CERT_DIR", hashed_authorities(&other, &certificate));
    let outcome = run(command);
    assert_ne!(outcome.code, Some(0), "{}", outcome.describe());
    assert!(!target.exists());
    // Nor does that hurt the next one.
    site.xrdcp(&[&site.url_over("roots", "f"), text(&target)]).ok();
}
