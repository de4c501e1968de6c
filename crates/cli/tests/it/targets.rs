//! Targets: existing ones, devices, pipes, stdout, directories, full disks, and places where nothing can be
//! written. As root too: nothing here relies on permission bits.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::client::{Running, cp, gridlane, isolated, run, text};
use crate::support::object::Object;
use crate::support::rogue::Rogue;
use crate::support::serve::Server;
use crate::support::{MIB, Scratch, assert_copied, assert_same, content, part_of};

const SIZE: usize = 8 * MIB;

fn export(scratch: &Scratch, seed: u64) -> (std::sync::Arc<Vec<u8>>, Server) {
    let bytes = content(seed, SIZE);
    let dir = scratch.dir("export");
    fs::write(dir.join("f.dat"), &*bytes).unwrap();
    (bytes, Server::start(&dir))
}

#[test]
fn an_existing_target_is_kept_unless_forced() {
    let scratch = Scratch::new();
    let (bytes, server) = export(&scratch, 501);
    let target = scratch.file("there", b"precious");
    run(cp(server.url("f.dat"), &target)).fails(5, "caller", false, &[text(&target), "--force"]);
    assert_eq!(fs::read(&target).unwrap(), b"precious");
    let mut command = cp(server.url("f.dat"), &target);
    command.arg("--force");
    run(command).ok().verified(true);
    assert_copied(&target, &bytes);
}

#[test]
fn a_forced_copy_that_fails_leaves_the_old_target() {
    let scratch = Scratch::new();
    let (_, server) = export(&scratch, 502);
    let target = scratch.file("there", b"precious");
    let mut command = cp(server.url("missing"), &target);
    command.arg("--force");
    run(command).exits(3);
    assert_eq!(fs::read(&target).unwrap(), b"precious");
}

#[test]
fn a_directory_takes_the_name_of_the_source() {
    let scratch = Scratch::new();
    let (bytes, server) = export(&scratch, 503);
    let dir = scratch.dir("existing");
    run(cp(server.url("f.dat"), &dir)).ok();
    assert_copied(&dir.join("f.dat"), &bytes);
    run(cp(server.url("f.dat"), format!("{}/", dir.display()))).exits(5);
}

#[test]
fn a_missing_directory_is_said_to_be_missing() {
    let scratch = Scratch::new();
    let (_, server) = export(&scratch, 504);
    let target = scratch.join("nowhere/f");
    let outcome = run(cp(server.url("f.dat"), &target)).says(&[text(&scratch.join("nowhere"))]);
    assert_eq!(outcome.code, Some(3), "{}", outcome.describe());
    assert_eq!(outcome.error()["fault"], "local");
}

#[test]
fn a_target_below_a_file_is_a_local_error() {
    let scratch = Scratch::new();
    let (_, server) = export(&scratch, 505);
    let file = scratch.file("file", b"not a directory");
    let outcome = run(cp(server.url("f.dat"), file.join("f"))).says(&[text(&file)]);
    assert_eq!(outcome.code, Some(9), "{}", outcome.describe());
    assert_eq!(outcome.error()["fault"], "local");
}

#[test]
fn a_directory_where_nobody_may_write_is_a_local_error() {
    let scratch = Scratch::new();
    let (_, server) = export(&scratch, 506);
    // Not even root can create files there.
    let outcome = run(cp(server.url("f.dat"), "/proc/self/f.dat")).says(&["/proc/self"]);
    assert!(matches!(outcome.code, Some(3 | 4 | 9)), "{}", outcome.describe());
    assert_eq!(outcome.error()["fault"], "local");
}

#[test]
fn a_null_device_takes_everything_and_stays_a_device() {
    use std::os::unix::fs::FileTypeExt as _;
    let scratch = Scratch::new();
    let (_, server) = export(&scratch, 507);
    let outcome = run(cp(server.url("f.dat"), "/dev/null")).ok().verified(true);
    assert_eq!(outcome.number("bytes"), SIZE as u64);
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    assert!(!part_of(Path::new("/dev/null")).exists());
}

#[test]
fn a_full_device_is_a_local_error() {
    let scratch = Scratch::new();
    let (_, server) = export(&scratch, 508);
    run(cp(server.url("f.dat"), "/dev/full")).fails(9, "local", false, &["/dev/full", "space"]);
}

#[test]
fn a_disk_that_takes_no_more_is_a_local_error_and_what_came_is_kept() {
    let scratch = Scratch::new();
    let bytes = content(509, 24 * MIB);
    let object = Object::new(&bytes);
    let server = Rogue::with_rate(40_000_000, move |request| object.answer(request));
    let target = scratch.join("f");
    // The limit is in blocks of 512 bytes: 12 MiB. Writing beyond it fails with EFBIG: the nearest thing to a full
    // disk that needs no privilege. The signal that comes with it would end a program without a word.
    let mut limited = isolated(Command::new("/bin/sh"));
    limited.args(["-c", "ulimit -f 24576; exec \"$0\" \"$@\""]);
    limited.arg(env!("CARGO_BIN_EXE_gridlane"));
    limited.args(["cp", &server.url("f"), text(&target), "--json", "--timeout", "2"]);
    let outcome = run(limited).says(&["f", "too large", "ulimit -f"]);
    assert_eq!(outcome.code, Some(9), "{}", outcome.describe());
    assert_eq!(outcome.error()["fault"], "local");
    assert!(!target.exists(), "something that looks complete is there");

    let outcome = run(cp(server.url("f"), &target)).ok().verified(true);
    assert_copied(&target, &bytes);
    assert!(outcome.number("resumed_bytes") > 0, "nothing was kept: {}", outcome.describe());
}

#[test]
fn a_pipe_carries_every_byte_in_order() {
    let scratch = Scratch::new();
    let (bytes, server) = export(&scratch, 510);
    let fifo = scratch.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let copy = Running::start(cp(server.url("f.dat"), &fifo));
    let read = fs::read(&fifo).unwrap();
    copy.wait().ok().verified(true);
    assert_same(&read, &bytes);
}

#[test]
fn a_reader_that_goes_away_ends_the_copy() {
    let scratch = Scratch::new();
    let (_, server) = export(&scratch, 511);
    let mut command = isolated(Command::new("/bin/sh"));
    // The status of the first part of a pipe is kept in a file: `pipefail` is not in every shell.
    command.args(["-c", "{ \"$0\" cat \"$1\"; echo $? >\"$2\"; } | head -c 1000 | wc -c"]);
    command.args([env!("CARGO_BIN_EXE_gridlane"), &server.url("f.dat"), text(&scratch.join("status"))]);
    let outcome = run(command).ok();
    assert_eq!(outcome.text().trim(), "1000");
    let status = fs::read_to_string(scratch.join("status")).unwrap();
    assert_ne!(status.trim(), "101", "it panicked: {}", outcome.describe());
}

#[test]
fn stdout_gets_the_bytes_and_nothing_else() {
    let scratch = Scratch::new();
    let (bytes, server) = export(&scratch, 512);
    let mut plain = gridlane();
    plain.args(["cp", &server.url("f.dat"), "-"]);
    let outcome = run(plain).ok();
    assert_same(&outcome.stdout, &bytes);

    // With --json the events move to stderr.
    let outcome = run(cp(server.url("f.dat"), "-")).ok();
    assert_same(&outcome.stdout, &bytes);
    assert!(outcome.stderr.lines().any(|line| line.contains("\"summary\"")), "{}", outcome.stderr);
}

#[test]
fn a_copy_between_local_files_is_verified_too() {
    let scratch = Scratch::new();
    let bytes = content(513, SIZE);
    let source = scratch.file("a", &bytes);
    let target = scratch.join("b");
    run(cp(&source, &target)).ok();
    assert_copied(&target, &bytes);
    let again = scratch.join("c");
    run(cp(format!("file://{}", source.display()), &again)).ok();
    assert_copied(&again, &bytes);
}

#[test]
fn a_file_copied_onto_itself_stays_what_it_is() {
    let scratch = Scratch::new();
    let source = scratch.file("a", b"precious");
    let mut command = cp(&source, &source);
    command.arg("--force");
    run(command);
    assert_eq!(fs::read(&source).unwrap(), b"precious");
}

#[test]
fn a_missing_local_source_is_not_found() {
    let scratch = Scratch::new();
    run(cp(scratch.join("missing"), scratch.join("b"))).fails(3, "local", false, &["missing"]);
    assert!(scratch.names().is_empty());
}
