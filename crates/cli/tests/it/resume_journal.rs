//! Partial files and journals that are damaged, cut, from another version, or in the way: nothing in them is
//! believed that cannot be proved.

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::client::{Outcome, Running, cp, run};
use crate::support::object::Object;
use crate::support::rogue::Rogue;
use crate::support::{MIB, Scratch, assert_copied, content, journal_of, part_of, until};

const SIZE: usize = 24 * MIB;

/// A copy that was stopped in the middle, and a server from which it can be continued.
struct Stopped {
    bytes: Arc<Vec<u8>>,
    server: Rogue,
    scratch: Scratch,
}

impl Stopped {
    fn new(seed: u64) -> Stopped {
        let bytes = content(seed, SIZE);
        let object = Object::new(&bytes);
        let (slow, fast) = (object.clone(), object);
        let server = Rogue::with_rate(0, move |request| fast.answer(request));
        let first = Rogue::with_rate(24_000_000, move |request| slow.answer(request));
        let scratch = Scratch::new();
        let target = scratch.join("f");
        let mut copy = Running::start(cp(first.url("f"), &target));
        until("half of it has arrived", || {
            assert!(copy.is_running(), "it ended too early");
            first.sent_bytes() >= SIZE as u64 / 2
        });
        // A clean stop leaves a journal that vouches for nearly all of it.
        copy.signal("INT");
        assert_eq!(copy.wait().code, Some(130));
        Stopped { bytes, server, scratch }
    }

    /// The same state in another directory, with a server of its own.
    fn copy_of(other: &Stopped) -> Stopped {
        let scratch = Scratch::new();
        let target = scratch.join("f");
        fs::copy(other.part(), part_of(&target)).unwrap();
        fs::copy(other.journal(), journal_of(&target)).unwrap();
        let object = Object::new(&other.bytes);
        let server = Rogue::start(move |request| object.answer(request));
        Stopped { bytes: Arc::clone(&other.bytes), server, scratch }
    }

    fn target(&self) -> PathBuf {
        self.scratch.join("f")
    }

    fn part(&self) -> PathBuf {
        part_of(&self.target())
    }

    fn journal(&self) -> PathBuf {
        journal_of(&self.target())
    }

    fn resume(&self) -> Outcome {
        let outcome = run(cp(self.server.url("f"), self.target())).ok().verified(true);
        assert_copied(&self.target(), &self.bytes);
        outcome
    }
}

fn overwrite(path: &Path, place: u64, bytes: &[u8]) {
    let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(place)).unwrap();
    file.write_all(bytes).unwrap();
}

#[test]
fn an_unharmed_partial_file_is_used() {
    let stopped = Stopped::new(701);
    let outcome = stopped.resume();
    let kept = outcome.number("resumed_bytes");
    assert!(kept >= SIZE as u64 / 4, "only {kept} bytes were kept\n{}", outcome.describe());
}

#[test]
fn damaged_ranges_of_the_partial_file_are_fetched_again() {
    let stopped = Stopped::new(702);
    overwrite(&stopped.part(), 1000, &[0xAA; 5000]);
    overwrite(&stopped.part(), 5 * MIB as u64, &[0x55; 1]);
    stopped.resume();
}

#[test]
fn a_truncated_partial_file_is_completed() {
    let stopped = Stopped::new(703);
    fs::OpenOptions::new().write(true).open(stopped.part()).unwrap().set_len(MIB as u64 + 17).unwrap();
    stopped.resume();
}

#[test]
fn a_missing_partial_file_makes_its_journal_worthless() {
    let stopped = Stopped::new(704);
    fs::remove_file(stopped.part()).unwrap();
    let outcome = stopped.resume();
    assert_eq!(outcome.number("resumed_bytes"), 0);
}

#[test]
fn a_missing_journal_makes_its_partial_file_worthless() {
    let stopped = Stopped::new(705);
    fs::remove_file(stopped.journal()).unwrap();
    let outcome = stopped.resume();
    assert_eq!(outcome.number("resumed_bytes"), 0);
}

#[test]
fn a_truncated_journal_vouches_only_for_what_it_still_says() {
    let stopped = Stopped::new(706);
    let journal = fs::read(stopped.journal()).unwrap();
    for keep in [journal.len() - 1, journal.len() / 2, 10, 0] {
        fs::write(stopped.journal(), &journal[..keep]).unwrap();
        Stopped::copy_of(&stopped).resume();
    }
}

#[test]
fn a_corrupted_journal_is_not_believed() {
    let stopped = Stopped::new(707);
    let journal = fs::read(stopped.journal()).unwrap();
    for place in [0, journal.len() / 3, journal.len() / 2, journal.len() - 2] {
        let mut damaged = journal.clone();
        damaged[place] ^= 0x15;
        fs::write(stopped.journal(), damaged).unwrap();
        Stopped::copy_of(&stopped).resume();
    }
    fs::write(stopped.journal(), [0xFF; 3000]).unwrap();
    stopped.resume();
}

#[test]
fn a_journal_of_another_version_is_not_believed() {
    let stopped = Stopped::new(708);
    let journal = fs::read(stopped.journal()).unwrap();
    let text = String::from_utf8_lossy(&journal);
    // The version stands in the first line, whatever else does.
    let first = text.lines().next().unwrap().to_owned();
    let field = "\"version\":";
    let at = first.find(field).unwrap_or_else(|| panic!("no version in {first:?}")) + field.len();
    let mut later = journal.clone();
    later[at] = b'9';
    fs::write(stopped.journal(), later).unwrap();
    let outcome = stopped.resume();
    assert_eq!(outcome.number("resumed_bytes"), 0, "{}", outcome.describe());
}

#[test]
fn a_directory_in_the_place_of_the_partial_file_is_an_error_and_no_loss() {
    let scratch = Scratch::new();
    let bytes = content(709, MIB);
    let object = Object::new(&bytes);
    let server = Rogue::start(move |request| object.answer(request));
    let target = scratch.join("f");
    fs::create_dir(part_of(&target)).unwrap();
    let outcome = run(cp(server.url("f"), &target));
    assert_ne!(outcome.code, Some(0), "{}", outcome.describe());
    assert_eq!(outcome.error()["fault"], "local");
    assert!(!target.exists());
}

#[test]
fn a_link_in_the_place_of_the_partial_file_is_not_followed() {
    let scratch = Scratch::new();
    let bytes = content(710, MIB);
    let object = Object::new(&bytes);
    let server = Rogue::start(move |request| object.answer(request));
    let precious = scratch.file("precious", b"do not touch");
    let target = scratch.join("f");
    std::os::unix::fs::symlink(&precious, part_of(&target)).unwrap();
    run(cp(server.url("f"), &target));
    assert_eq!(fs::read(&precious).unwrap(), b"do not touch");
}

/// Other bytes with the same adler32, in the place of three of them.
fn forge(path: &Path, place: u64) {
    let mut bytes = fs::read(path).unwrap();
    let at = (place as usize..).find(|at| bytes[*at] < 255 && bytes[at + 1] > 1 && bytes[at + 2] < 255);
    let at = at.unwrap();
    let three = [bytes[at] + 1, bytes[at + 1] - 2, bytes[at + 2] + 1];
    bytes[at..at + 3].copy_from_slice(&three);
    overwrite(path, at as u64, &three);
}

#[test]
fn what_came_from_elsewhere_is_not_believed() {
    let stopped = Stopped::new(711);
    // Both files, as they are, beside another target: as if they had come in with a tree.
    let elsewhere = Stopped::copy_of(&stopped);
    forge(&elsewhere.part(), 1000);
    let outcome = elsewhere.resume();
    assert_eq!(outcome.number("resumed_bytes"), 0, "{}", outcome.describe());

    // The journal of another user, which has another key.
    let mut command = cp(stopped.server.url("f"), stopped.target());
    command.env("XDG_STATE_HOME", stopped.scratch.join("state"));
    let outcome = run(command).ok().verified(true);
    assert_eq!(outcome.number("resumed_bytes"), 0, "{}", outcome.describe());
    assert_copied(&stopped.target(), &stopped.bytes);
}

#[test]
fn what_is_resumed_is_compared_with_the_strongest_checksum_that_its_source_has() {
    let stopped = Stopped::new(712);
    let sha256 = crate::support::checksum(gridlane_core::ChecksumKind::Sha256, &stopped.bytes);
    let (weak, strong) = (Object::new(&stopped.bytes), Object::new(&stopped.bytes));
    let strong_digest = gridlane_dav::digest::encode(&sha256);
    let server = Rogue::start(move |request| match request.header("want-digest") {
        Some(wanted) if wanted.contains("sha-256") => {
            weak.answer(request).without("Digest").header("Digest", &strong_digest)
        }
        _ => strong.answer(request),
    });
    forge(&stopped.part(), 1000);
    let outcome = run(cp(server.url("f"), stopped.target())).ok().verified(true);
    assert_copied(&stopped.target(), &stopped.bytes);
    assert_eq!(outcome.summary()["verified_with"], "sha256", "{}", outcome.describe());
    assert_eq!(outcome.summary()["checksum"], sha256.to_string());
}

#[test]
fn what_is_resumed_and_has_no_strong_checksum_is_said_to_be_verified_by_a_weak_one() {
    let stopped = Stopped::new(713);
    let outcome = stopped.resume();
    assert!(outcome.number("resumed_bytes") > 0, "{}", outcome.describe());
    assert_eq!(outcome.summary()["verified_with"], "adler32", "{}", outcome.describe());
}

#[test]
fn without_a_place_for_the_key_nothing_is_left_and_that_is_said() {
    let scratch = Scratch::new();
    let bytes = content(714, SIZE);
    let object = Object::new(&bytes);
    let server = Rogue::with_rate(24_000_000, move |request| object.answer(request));
    let target = scratch.join("f");
    let mut command = crate::support::client::gridlane();
    command.arg("cp").arg(server.url("f")).arg(&target).env("XDG_STATE_HOME", "/dev/null/state");
    let mut copy = Running::start(command);
    until("some of it has arrived", || {
        assert!(copy.is_running(), "it ended too early");
        server.sent_bytes() >= SIZE as u64 / 3
    });
    copy.signal("INT");
    let outcome = copy.wait().exits(130).says(&["nothing of it is kept", "XDG_STATE_HOME"]);
    assert!(scratch.names().is_empty(), "{:?}\n{}", scratch.names(), outcome.describe());
}
