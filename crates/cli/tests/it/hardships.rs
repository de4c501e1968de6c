//! Hardships of a machine: no reader of the client's output, few descriptors or no threads, a long stop, and other
//! programs that meddle with its files. Nothing of that may end in a wrong file, in silence or in a panic.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::client::{Running, copy_of_gridlane, cp, cp_r, gridlane, isolated, run, text};
use crate::support::object::Object;
use crate::support::rogue::Rogue;
use crate::support::serve::Server;
use crate::support::{
    MIB, Scratch, assert_copied, content, journal_of, lone_user, needs_root, occupied_bytes, part_of,
    processor_time_s, until,
};

/// A write to it fails: it has no reader.
fn broken_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// Runs a command whose words go nowhere, and returns its exit code.
fn unheard(mut command: Command) -> Option<i32> {
    command.stdout(broken_pipe()).stderr(broken_pipe());
    command.status().unwrap().code()
}

fn slow(bytes: &Arc<Vec<u8>>, bytes_per_s: u64) -> Rogue {
    let object = Object::new(bytes);
    Rogue::with_rate(bytes_per_s, move |request| object.answer(request))
}

#[test]
fn words_that_nobody_reads_change_no_outcome() {
    let scratch = Scratch::new();
    let bytes = content(901, 2 * MIB);
    let dir = scratch.dir("export");
    fs::write(dir.join("f"), &*bytes).unwrap();
    let server = Server::start(&dir);
    for (number, options) in [&[][..], &["-v"], &["--json"], &["--progress", "always"]].iter().enumerate() {
        let target = scratch.join(format!("f{number}"));
        let mut command = gridlane();
        command.arg("cp").arg(server.url("f")).arg(&target).args(*options);
        assert_eq!(unheard(command), Some(0), "{options:?}");
        assert_copied(&target, &bytes);
    }
    let (file, missing, top) = (server.url("f"), server.url("missing"), server.url(""));
    let (other, tree) = (scratch.join("m"), scratch.join("tree"));
    let others: [(&[&str], i32); 12] = [
        (&["cp", &missing, text(&other)], 3),
        (&["cp", "--dry-run", &file, text(&other)], 0),
        (&["cp", "-r", &top, text(&tree)], 0),
        (&["ls", "-l", &top], 0),
        (&["stat", &file], 0),
        (&["checksum", &file], 0),
        (&["stat", &missing], 3),
        (&["doctor"], 0),
        (&["completion", "bash"], 0),
        (&["--help"], 0),
        (&["cp", "--no-such-option"], 2),
        (&["serve", "--check", text(&dir)], 0),
    ];
    for (words, code) in others {
        let mut command = gridlane();
        command.args(words).env("XDG_DATA_HOME", scratch.path());
        let found = unheard(command);
        // What `doctor` finds differs from machine to machine.
        let is_right = found == Some(code) || words == ["doctor"] && found.is_some_and(|code| code != 101);
        assert!(is_right, "{words:?} ended with {found:?}, not {code}");
    }
}

/// `ulimit -n COUNT`, and then the command.
fn with_descriptors(count: u32, words: &[&str]) -> Command {
    let mut command = isolated(Command::new("/bin/sh"));
    command.args(["-c", &format!("ulimit -n {count}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_gridlane")]);
    command.args(words);
    command
}

#[test]
fn few_descriptors_are_enough() {
    let scratch = Scratch::new();
    let bytes = content(902, 48 * MIB);
    let dir = scratch.dir("export");
    fs::write(dir.join("f"), &*bytes).unwrap();
    let server = Server::start(&dir);
    for scheme in ["root", "http"] {
        let (url, target) = (server.url_over(scheme, "f"), scratch.join(scheme));
        run(with_descriptors(32, &["cp", "--json", &url, text(&target)])).ok().verified(true);
        assert_copied(&target, &bytes);
    }
    let tree = scratch.dir("tree");
    for directory in 0..12 {
        let below = tree.join(format!("d{directory}/e"));
        fs::create_dir_all(&below).unwrap();
        for file in 0..6_u8 {
            fs::write(below.join(format!("f{file}")), vec![file; 300_000]).unwrap();
        }
    }
    let copied = scratch.join("copied");
    run(with_descriptors(32, &["cp", "-r", "--json", text(&tree), text(&copied)])).ok();
    for file in 0..6_u8 {
        assert_copied(&copied.join(format!("d11/e/f{file}")), &vec![file; 300_000]);
    }
}

/// Runs the binary as another user, which may have so many threads: root itself has no such limit.
fn with_threads(count: u32, binary: &Path, words: &[&str]) -> Command {
    needs_root();
    let somebody = lone_user(1);
    let mut command = isolated(Command::new("prlimit"));
    command.arg(format!("--nproc={count}")).arg(binary).args(words);
    command.uid(somebody).gid(somebody).current_dir("/");
    command
}

#[test]
fn without_threads_there_are_words_and_with_few_a_copy() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = Scratch::new();
    for open in [scratch.path().to_owned(), scratch.dir("to")] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o777)).unwrap();
    }
    // The other user may not look into the directory where it was built.
    let binary = scratch.join("gridlane");
    copy_of_gridlane(&binary);
    let bytes = content(903, 8 * MIB);
    let object = Object::new(&bytes);
    let server = Rogue::start(move |request| object.answer(request));
    let target = scratch.join("to/f");
    let words = ["cp", "--json", &server.url("f"), text(&target)];
    run(with_threads(1, &binary, &words)).fails(9, "local", false, &["no threads", "pids.max"]);
    for count in [3, 4, 6] {
        run(with_threads(count, &binary, &words)).ok().verified(true);
        assert_copied(&target, &bytes);
        fs::remove_file(&target).unwrap();
    }
}

#[test]
fn time_in_which_the_client_was_stopped_is_nobodys_silence() {
    let scratch = Scratch::new();
    let bytes = content(904, 24 * MIB);
    let dir = scratch.dir("export");
    fs::write(dir.join("f"), &*bytes).unwrap();
    let server = Server::with(&dir, &["--limit-rate", "8MB/s"]);
    std::thread::scope(|scope| {
        for scheme in ["http", "root"] {
            let target = scratch.join(scheme);
            let mut command = cp(server.url_over(scheme, "f"), &target);
            // More than a busy machine is silent for.
            command.args(["--timeout", "6"]);
            let (bytes, server) = (&bytes, server.pid());
            scope.spawn(move || {
                let mut copy = Running::start(command);
                until("some of it has arrived", || {
                    assert!(copy.is_running(), "it ended too early");
                    occupied_bytes(&part_of(&target)) >= MIB as u64
                });
                copy.signal("STOP");
                let (stopped, used_before_s) = (Instant::now(), processor_time_s(server));
                // More than its patience, and less than that of the server.
                until("it was stopped for long", || stopped.elapsed() > Duration::from_secs(9));
                // Of what the server sent, the kernel has all that it takes: there is nothing to do.
                let used = (processor_time_s(server) - used_before_s) / stopped.elapsed().as_secs_f64();
                assert!(used < 0.25, "{used} of a processor for those who do not read");
                copy.signal("CONT");
                copy.wait().ok().verified(true);
                assert_copied(&target, bytes);
            });
        }
    });
}

/// A copy of which some has arrived.
fn begun(server: &Rogue, target: &Path) -> Running {
    let mut copy = Running::start(cp(server.url("f"), target));
    until("some of it has arrived", || {
        assert!(copy.is_running(), "it ended too early");
        occupied_bytes(&part_of(target)) >= 6 * MIB as u64
    });
    copy
}

#[test]
fn a_partial_file_that_is_cut_while_it_is_copied_ends_right() {
    let scratch = Scratch::new();
    let bytes = content(905, 24 * MIB);
    let server = slow(&bytes, 12_000_000);
    let target = scratch.join("f");
    let copy = begun(&server, &target);
    fs::OpenOptions::new().write(true).open(part_of(&target)).unwrap().set_len(4096).unwrap();
    copy.wait().ok().verified(true);
    assert_copied(&target, &bytes);
}

#[test]
fn what_takes_the_place_of_a_partial_file_never_becomes_the_target() {
    let scratch = Scratch::new();
    let bytes = content(906, 24 * MIB);
    let server = slow(&bytes, 12_000_000);
    let other = scratch.file("other", b"precious");
    for is_link in [true, false] {
        let target = scratch.join("f");
        let copy = begun(&server, &target);
        fs::remove_file(part_of(&target)).unwrap();
        match is_link {
            true => std::os::unix::fs::symlink(&other, part_of(&target)).unwrap(),
            false => fs::write(part_of(&target), vec![7; bytes.len()]).unwrap(),
        }
        copy.wait().fails(9, "local", false, &["is not the file that was written"]);
        assert!(!target.exists() && !target.is_symlink());
        assert_eq!(fs::read(&other).unwrap(), b"precious");
        let _ = fs::remove_file(part_of(&target));
        let _ = fs::remove_file(journal_of(&target));
    }
}

#[test]
fn a_journal_that_a_kill_left_goes_with_the_next_start() {
    let scratch = Scratch::new();
    let (source, target) = (scratch.file("a", b"bytes"), scratch.join("b"));
    run(cp(&source, &target)).ok();
    for (options, code) in [(&[][..], 5), (&["--update"], 0), (&["--force"], 0)] {
        fs::write(journal_of(&target), b"left").unwrap();
        let mut command = cp(&source, &target);
        command.args(options);
        assert_eq!(run(command).code, Some(code), "{options:?}");
        assert!(!journal_of(&target).exists(), "{options:?}: {:?}", scratch.names());
    }
    let tree = scratch.dir("tree");
    fs::write(tree.join("b"), b"bytes").unwrap();
    let to = scratch.dir("to");
    let up_to_date = || {
        let mut command = cp_r(format!("{}/", tree.display()), &to);
        command.arg("--update");
        run(command).ok();
    };
    up_to_date();
    fs::write(journal_of(&to.join("b")), b"left").unwrap();
    up_to_date();
    assert!(!journal_of(&to.join("b")).exists());
}

#[test]
fn a_replaced_file_lets_nothing_run_as_somebody_else() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = Scratch::new();
    let (source, target) = (scratch.file("a", b"new"), scratch.file("b", b"old"));
    fs::set_permissions(&target, fs::Permissions::from_mode(0o6755)).unwrap();
    let mut command = cp(&source, &target);
    command.arg("--force");
    run(command).ok();
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o7777, 0o755);
}

#[test]
fn what_somebody_else_put_into_a_directory_like_tmp_is_not_written_through() {
    use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
    needs_root();
    let scratch = Scratch::new();
    let (source, victim) = (scratch.file("a", b"new"), scratch.file("mine/victim", b"precious"));
    let (source_tree, shared) = (scratch.dir("tree/below"), scratch.dir("shared"));
    fs::write(source_tree.join("f"), b"new").unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    let (link, way) = (shared.join("link"), shared.join("way"));
    symlink(&victim, &link).unwrap();
    symlink(scratch.join("mine"), &way).unwrap();
    lchown(&link, Some(4242), None).unwrap();
    lchown(&way, Some(4242), None).unwrap();
    for target in [&link, &way, &way.join("victim"), &way.join("new")] {
        let mut command = cp(&source, target);
        command.arg("--force");
        run(command).fails(4, "local", false, &["belongs to another user"]);
    }
    assert_ne!(run(cp_r(format!("{}/", scratch.join("tree").display()), &way)).code, Some(0));
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    assert_eq!(fs::read_dir(scratch.join("mine")).unwrap().count(), 1, "something was made behind the link");
}
