//! Third-party copies over root:// between two of Debian's xrootd, begun by gridlane: the bytes go from the one to the other.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

use gridlane_client::connect;
use gridlane_client::third_party::root::{RootThirdParty, copy};
use gridlane_client::third_party::{Copied, Progress};
use gridlane_core::{ChecksumKind, Error, ErrorKind, Url};
use gridlane_net::tls::Trust;

use crate::support::serve::Server;
use crate::support::xrootd::{Xrootd, hashed_authorities, open_to_all};
use crate::support::{MIB, SOON, Scratch, assert_same, checksum, content, names, needs_root, until};

/// A server that takes part.
fn part() -> Xrootd {
    Xrootd::with("ofs.tpc pgm /usr/bin/xrdcp --server\n")
}

fn url(text: impl AsRef<str>) -> Url {
    Url::parse_absolute(text.as_ref()).unwrap()
}

/// Makes a copy, and returns what was said of its progress too. It is stopped when that has come so far.
fn copy_until(
    (source, target): (&str, &str),
    (options, trust): (&RootThirdParty, Trust),
    stop_at: Option<u64>,
) -> (Result<Copied, Error>, Vec<Progress>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (told, stopping) = (Arc::new(Mutex::new(Vec::new())), Arc::new(tokio::sync::Notify::new()));
    let mut observer = |progress: Progress| {
        told.lock().unwrap().push(progress);
        if stop_at.is_some_and(|stop_at| progress.done_bytes >= stop_at) {
            stopping.notify_one();
        }
    };
    let (client, stop) = (connect(trust), stopping.notified());
    let (source, target) = (url(source), url(target));
    let copying = copy(&client, &source, &target, options, &mut observer, stop);
    let outcome = runtime.block_on(async { tokio::time::timeout(SOON, copying).await });
    let told = told.lock().unwrap().clone();
    (outcome.expect("the copy ends"), told)
}

fn copy_one(source: &str, target: &str, options: &RootThirdParty) -> Result<Copied, Error> {
    copy_until((source, target), (options, Trust::default()), None).0
}

fn replacing() -> RootThirdParty {
    RootThirdParty { overwrite: true, ..RootThirdParty::default() }
}

#[test]
fn files_of_all_sizes_arrive() {
    let (source, target) = (part(), part());
    let options = RootThirdParty { make_parents: true, requires_checksum: true, ..RootThirdParty::default() };
    for size in [0, 1, 30 * MIB] {
        let (bytes, name) = (content(size as u64 + 1, size), format!("new/dir/f{size}"));
        // Another name each: XRootD keeps the checksum of a file that it finds changed within the same second.
        let from = format!("a file {size}");
        source.put(&from, &bytes);
        let copied = copy_one(&source.url(&from), &target.url(&name), &options).unwrap();
        assert_same(&fs::read(target.exported(&name)).unwrap(), &bytes);
        let adler = checksum(ChecksumKind::Adler32, &bytes);
        assert_eq!(copied, Copied { size_bytes: size as u64, checksum: Some(adler) });
    }
}

#[test]
fn it_is_noticed_at_once_that_it_is_done() {
    let (source, target) = (part(), part());
    source.put("f", b"bytes");
    let begun = std::time::Instant::now();
    copy_one(&source.url("f"), &target.url("f"), &RootThirdParty::default()).unwrap();
    // XRootD's client needs 2.5 s for any file: it looks at its clock.
    assert!(begun.elapsed().as_secs_f64() < 2.4, "{:?}", begun.elapsed());
}

#[test]
fn what_is_there_is_replaced_only_if_that_is_asked_for() {
    let (source, target) = (part(), part());
    source.put("f", b"new");
    target.put("f", b"old bytes");
    let (from, to) = (source.url("f"), target.url("f"));
    let refused = copy_one(&from, &to, &RootThirdParty::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Precondition, "{refused}");
    assert!(refused.to_string().contains("destination"), "{refused}");
    assert_eq!(fs::read(target.exported("f")).unwrap(), b"old bytes");
    copy_one(&from, &to, &replacing()).unwrap();
    assert_eq!(fs::read(target.exported("f")).unwrap(), b"new");
    // A file is not emptied before it is read.
    let refused = copy_one(&to, &to, &replacing()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Usage, "{refused}");
    let alias = to.replace("127.0.0.1", "localhost");
    assert_eq!(copy_one(&alias, &to, &replacing()).unwrap_err().kind(), ErrorKind::Usage);
    assert_eq!(fs::read(target.exported("f")).unwrap(), b"new");
}

#[test]
fn failures_say_where_they_are() {
    let source = part();
    let target = Xrootd::with("ofs.tpc pgm /usr/bin/xrdcp --server\nall.export /closed r/o\n");
    source.put("f", b"bytes");
    fs::create_dir(target.exported("closed")).unwrap();
    let options = RootThirdParty::default();
    let gone = copy_one(&source.url("none"), &target.url("f"), &options).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound, "{gone}");
    assert!(gone.to_string().contains("this is the source"), "{gone}");
    let closed = copy_one(&source.url("f"), &target.url("closed/f"), &options).unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::Denied, "{closed}");
    assert!(closed.to_string().contains("this is the destination"), "{closed}");
    // The pull program cannot write, though the file could be made.
    let broken = Xrootd::with("ofs.tpc pgm /bin/false\n");
    let failed = copy_one(&source.url("f"), &broken.url("f"), &options).unwrap_err();
    assert!(failed.to_string().contains("this is the destination"), "{failed}");
    for server in [&target, &broken] {
        assert!(!server.exported("f").exists());
    }
}

#[test]
fn a_server_that_takes_no_part_is_left_alone() {
    let (able, unable) = (part(), Xrootd::start());
    able.put("f", b"bytes");
    unable.put("f", b"bytes");
    for (source, target) in [(&able, &unable), (&unable, &able)] {
        let refused = copy_one(&source.url("f"), &target.url("g"), &RootThirdParty::default()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
        let at = refused.endpoint_text().unwrap();
        assert!(at.contains(&unable.port().to_string()), "{refused}");
        assert!(!target.exported("g").exists());
    }
}

/// A server whose copies stay unfinished: the file gets a few bytes and no more.
fn slow(scratch: &Scratch) -> Xrootd {
    let program = scratch
        .file("slow", b"#!/bin/sh\nfor target; do :; done\nprintf 12345 > \"$target\"\nexec sleep 600\n");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    open_to_all(scratch.path());
    Xrootd::with(&format!("ofs.tpc pgm {}\n", program.display()))
}

#[test]
fn a_copy_that_is_stopped_leaves_nothing() {
    let scratch = Scratch::new();
    let (source, target) = (part(), slow(&scratch));
    source.put("f", &content(1, MIB));
    let (from, to) = (source.url("f"), target.url("f"));
    let terms = RootThirdParty::default();
    let (outcome, told) = copy_until((&from, &to), (&terms, Trust::default()), Some(5));
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Interrupted);
    assert_eq!(told.last(), Some(&Progress { done_bytes: 5, size_bytes: Some(MIB as u64) }));
    until("the partial file is gone", || !target.exported("f").exists());
    // What was there before this copy is not removed.
    target.put("f", b"old bytes");
    let (outcome, _) = copy_until((&from, &to), (&replacing(), Trust::default()), Some(5));
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Interrupted);
    assert!(target.exported("f").exists());
}

#[test]
fn a_copy_that_does_not_go_on_ends() {
    let scratch = Scratch::new();
    let (source, target) = (part(), slow(&scratch));
    source.put("f", &content(1, MIB));
    let stall_max = std::time::Duration::from_secs(2);
    let options = RootThirdParty { stall_max, ..RootThirdParty::default() };
    let late = copy_one(&source.url("f"), &target.url("f"), &options).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Timeout, "{late}");
    assert!(late.to_string().contains("this is the destination"), "{late}");
    until("the partial file is gone", || !target.exported("f").exists());
}

#[test]
fn bytes_that_change_on_their_way_are_found() {
    let scratch = Scratch::new();
    let program = scratch.file("liar", b"#!/bin/sh\nfor target; do :; done\nprintf 54321 > \"$target\"\n");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    open_to_all(scratch.path());
    let (source, target) = (part(), Xrootd::with(&format!("ofs.tpc pgm {}\n", program.display())));
    source.put("f", b"12345");
    source.put("short", b"1");
    let wrong = copy_one(&source.url("f"), &target.url("f"), &RootThirdParty::default()).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::ChecksumMismatch, "{wrong}");
    let wrong = copy_one(&source.url("short"), &target.url("f"), &RootThirdParty::default()).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Protocol, "{wrong}");
    assert!(!target.exported("f").exists());
}

#[test]
fn tls_on_either_side() {
    let scratch = Scratch::new();
    let source = part();
    source.put("f", b"bytes");
    // The destination has to know who vouches for the source.
    let authorities = hashed_authorities(&scratch, &source.ca());
    open_to_all(scratch.path());
    let target = Xrootd::with(&format!(
        "ofs.tpc pgm /usr/bin/env X509_CERT_DIR={} /usr/bin/xrdcp --server\n",
        authorities.display()
    ));
    let both = [fs::read(source.ca()).unwrap(), fs::read(target.ca()).unwrap()].concat();
    let both = scratch.file("both.pem", &both);
    for (from, to) in [("root", "roots"), ("roots", "root"), ("roots", "roots")] {
        let (from, to) = (source.url_over(from, "f"), target.url_over(to, "g"));
        let trust = Trust { ca_files: vec![both.clone()], ..Trust::default() };
        copy_until((&from, &to), (&replacing(), trust), None).0.unwrap();
        assert_eq!(fs::read(target.exported("g")).unwrap(), b"bytes");
        fs::remove_file(target.exported("g")).unwrap();
    }
}

#[test]
fn a_server_may_want_tls_for_copies_alone() {
    let source = part();
    let target = Xrootd::with("ofs.tpc pgm /usr/bin/xrdcp --server\nxrootd.tls tpc\n");
    source.put("f", b"bytes");
    let trust = Trust { ca_files: vec![target.ca()], ..Trust::default() };
    let (from, to) = (source.url("f"), target.url("f"));
    copy_until((&from, &to), (&RootThirdParty::default(), trust), None).0.unwrap();
    assert_eq!(fs::read(target.exported("f")).unwrap(), b"bytes");
    let log = target.log();
    // The flight before the server has said so is in clear, and so is the login in it, on which nothing follows.
    assert!(log.lines().any(|line| line.contains(" TLSv1") && line.ends_with(" login")), "{log}");
}

#[test]
fn a_source_that_is_gone_ends_the_copy() {
    let scratch = Scratch::new();
    let (mut source, target) = (part(), slow(&scratch));
    source.put("f", &content(1, MIB));
    let (from, to) = (source.url("f"), target.url("f"));
    let copying = std::thread::spawn(move || copy_one(&from, &to, &RootThirdParty::default()));
    until("the copy has begun", || fs::read(target.exported("f")).is_ok_and(|bytes| bytes.len() == 5));
    source.kill();
    let lost = copying.join().unwrap().unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Network, "{lost}");
    assert!(lost.to_string().contains("this is the source"), "{lost}");
    until("the partial file is gone", || !target.exported("f").exists());
}

#[test]
fn a_host_may_have_another_name() {
    let (source, target) = (part(), part());
    source.put("f", b"bytes");
    // The source knows the destination by its address alone.
    let named = target.url("f").replace("127.0.0.1", "localhost");
    copy_one(&source.url("f"), &named, &RootThirdParty::default()).unwrap();
    assert_eq!(fs::read(target.exported("f")).unwrap(), b"bytes");
}

#[test]
fn a_full_disk_says_so() {
    needs_root();
    let (source, target) = (part(), part());
    source.put("f", &content(1, 20 * MIB));
    source.put("short", &content(2, 3 * MIB));
    let small = target.exported("small");
    fs::create_dir(&small).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("none", &small, "tmpfs", flags, Some(c"size=1m")).unwrap();
    target.give();
    let copy = |name| copy_one(&source.url(name), &target.url("small/f"), &RootThirdParty::default());
    // XRootD's program takes the first write that was cut short for a whole one, if no other follows.
    let (full, short) = (copy("f"), copy("short"));
    let left = names(&small);
    rustix::mount::unmount(&small, rustix::mount::UnmountFlags::DETACH).unwrap();
    let full = full.unwrap_err();
    assert!(full.is_no_space() && full.to_string().contains("this is the destination"), "{full}");
    let short = short.unwrap_err();
    assert!(short.kind() == ErrorKind::Protocol && short.advice().is_some(), "{short}");
    assert!(left.is_empty(), "{left:?}");
}

/// `gridlane serve` takes both parts too, beside itself and beside xrootd.
#[test]
fn our_server_is_either_end() {
    let (scratch, other) = (Scratch::new(), Scratch::new());
    let serve =
        |scratch: &Scratch| Server::with(&scratch.dir("export"), &["--allow-write", "--durability", "none"]);
    let (one, two, xrootd) = (serve(&scratch), serve(&other), part());
    let of = |server: &Server, name: &str| server.url("").replacen("http:", "root:", 1) + "/" + name;
    let options = RootThirdParty { make_parents: true, requires_checksum: true, ..RootThirdParty::default() };
    for size in [0, 1, 30 * MIB] {
        let (bytes, name) = (content(size as u64 + 9, size), format!("f{size}"));
        fs::write(scratch.join("export").join(&name), bytes.as_slice()).unwrap();
        let to = format!("new/{name}");
        let steps = [
            (of(&one, &name), of(&two, &to), other.join("export").join(&to)),
            (of(&two, &to), xrootd.url(&to), xrootd.exported(&to)),
            (xrootd.url(&to), of(&one, &to), scratch.join("export").join(&to)),
        ];
        for (from, to, made) in steps {
            copy_one(&from, &to, &options).unwrap_or_else(|error| panic!("{from} {to}: {error}"));
            assert_same(&fs::read(made).unwrap(), &bytes);
        }
    }
    let there = copy_one(&of(&one, "f1"), &of(&two, "new/f1"), &RootThirdParty::default()).unwrap_err();
    assert_eq!(there.kind(), ErrorKind::Precondition, "{there}");
    let gone = copy_one(&of(&one, "none"), &of(&two, "f"), &RootThirdParty::default()).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound, "{gone}");
}
