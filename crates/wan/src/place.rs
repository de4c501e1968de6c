//! Where an emulated network that is up is found: a directory of this user's with its socket, its names and
//! what is needed to clean up after it, should it die.
//!
//! Which one is up is said by a lock that its process holds, not by files: files outlive a crash.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gridlane_core::{Error, ErrorKind, Fault, Hint, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde::{Deserialize, Serialize};

/// Time that a process that was told to end may take, and the interval at which it is looked for.
const ENDING_MAX: Duration = Duration::from_secs(20);
const ENDING_STEP: Duration = Duration::from_millis(5);

/// Time for which a claim is waited for that no process answers for: its holder is dying, or only looks.
const CLAIMING_MAX: Duration = Duration::from_secs(2);

/// Time for which the process of a network may end by itself before it is killed.
const ASKED_MAX: Duration = Duration::from_secs(5);

/// Time for which programs at the sites may end by themselves.
const GRACE: Duration = Duration::from_secs(1);

/// In the environment of everything that runs in an emulated network: which one.
pub const ID_VARIABLE: &str = "GRIDLANE_WAN_ID";

/// A directory for the network of a name. That there is one does not mean that it is up.
#[derive(Clone, Debug)]
pub struct Place {
    name: String,
    dir: PathBuf,
}

/// Everything needed to clean up after a process that died.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Remains {
    /// Version of this file.
    pub(crate) v: u32,
    /// The value of [`ID_VARIABLE`].
    pub(crate) id: String,
    /// Numbers of its network namespaces.
    pub(crate) namespaces: Vec<u64>,
}

/// The right to be the network of a name, until the value is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Claim(File);

impl Place {
    /// The place of a name: letters, digits, hyphens.
    pub fn of(name: &str) -> Result<Place> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if name.is_empty() || name.len() > 32 || !name.chars().all(is_plain) {
            let message = format!("{name:?} is no name for a network");
            return Err(Error::new(ErrorKind::Usage, message).hint("letters, digits and hyphens, 32 at most"));
        }
        let user = geteuid().as_raw();
        // The same for a client: neither the working directory nor a job's own TMPDIR counts.
        let base = match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
            _ if user == 0 => PathBuf::from("/run"),
            Some(dir) if dir.is_absolute() => dir,
            _ => PathBuf::from("/tmp"),
        };
        // In a directory that others write to, its name says whose it is, and `check` makes sure.
        let dir = base.join(format!("gridlane-wan-{user}")).join(name);
        Ok(Place { name: name.to_owned(), dir })
    }

    /// The name of the network.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its control socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("control")
    }

    /// The `/etc/hosts` of the inside.
    pub(crate) fn hosts(&self) -> PathBuf {
        self.dir.join("hosts")
    }

    /// The `/etc/nsswitch.conf` of the inside.
    pub(crate) fn name_services(&self) -> PathBuf {
        self.dir.join("nsswitch.conf")
    }

    /// The last words of its process.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// The directory of this user, and in it that of the name.
    fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.dir.parent().into_iter().chain([self.dir.as_path()])
    }

    /// Makes the directory, for this user only.
    pub fn create(&self) -> Result<()> {
        let failed =
            |cause: io::Error| Error::local_io(format!("cannot make {}", self.dir.display()), &cause);
        let asked_at = Instant::now();
        loop {
            for dir in self.dirs() {
                match fs::DirBuilder::new().mode(0o700).create(dir) {
                    Err(cause) if cause.kind() == io::ErrorKind::NotFound => break,
                    Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => return Err(failed(cause)),
                    // Looked at before anything is made in it.
                    _ if !check(dir)? => break,
                    _ => {}
                }
            }
            // The command that takes a network down removes the directories when they are empty.
            if self.dir.is_dir() || asked_at.elapsed() > CLAIMING_MAX {
                break;
            }
            std::thread::sleep(ENDING_STEP);
        }
        if self.is_there()? { Ok(()) } else { Err(failed(io::ErrorKind::NotFound.into())) }
    }

    /// True if the directory is there; `Denied` if it is not this user's alone.
    pub(crate) fn is_there(&self) -> Result<bool> {
        for dir in self.dirs() {
            if !check(dir)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Becomes the process that keeps the network of this name up; `Precondition` if there is one.
    pub(crate) fn claim(&self) -> Result<Claim> {
        let claim = self.wait_for_claim(CLAIMING_MAX)?;
        // For a command that must end a process that does not answer.
        (&claim.0)
            .write_all(std::process::id().to_string().as_bytes())
            .map_err(|cause| Error::local_io("cannot write into the lock", &cause))?;
        Ok(claim)
    }

    /// The claim, without the number of a process in it.
    fn wait_for_claim(&self, patience: Duration) -> Result<Claim> {
        let asked_at = Instant::now();
        loop {
            self.create()?;
            if let Some(claim) = self.try_claim()? {
                claim.0.set_len(0).map_err(|cause| Error::local_io("cannot write into the lock", &cause))?;
                return Ok(claim);
            }
            // A process that was killed holds it until the commands that it was starting have started; one that
            // looks whether a network is up does for a moment; one that cleans up, until it has.
            if self.answers() || asked_at.elapsed() > patience {
                return Err(self.is_taken());
            }
            std::thread::sleep(ENDING_STEP);
        }
    }

    /// True if the claim is still one: its file is where others look for it.
    pub(crate) fn is_reachable(&self, claim: &Claim) -> bool {
        match (claim.0.metadata(), fs::metadata(self.lock())) {
            (Ok(own), Ok(found)) => (own.dev(), own.ino()) == (found.dev(), found.ino()),
            _ => false,
        }
    }

    /// True if a process answers for the network.
    pub fn answers(&self) -> bool {
        UnixStream::connect(self.socket()).is_ok()
    }

    /// The error when a network of this name is up.
    pub fn is_taken(&self) -> Error {
        Error::new(ErrorKind::Precondition, format!("the network {} is up already", self.name))
            .fault(Fault::Caller)
            .hint(Hint::TakeDownOrRename)
    }

    fn try_claim(&self) -> Result<Option<Claim>> {
        let path = self.lock();
        let failed = |cause: io::Error| Error::local_io(format!("cannot lock {}", path.display()), &cause);
        loop {
            let file = match File::options().create(true).append(true).open(&path) {
                Ok(file) => file,
                // The command that took a network down has removed the directory.
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                    self.create()?;
                    continue;
                }
                Err(cause) => return Err(failed(cause)),
            };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(cause) => return Err(failed(cause.into())),
            }
            // Its holder may have removed it between the two calls: then it locks nothing any more.
            let locked = file.metadata().map_err(failed)?.ino();
            match fs::metadata(&path) {
                Ok(found) if found.ino() == locked => return Ok(Some(Claim(file))),
                _ => self.create()?,
            }
        }
    }

    /// True if a process holds the claim.
    pub fn is_up(&self) -> bool {
        // Shared: processes that look do not see each other.
        let Ok(file) = File::open(self.lock()) else { return false };
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
    }

    fn lock(&self) -> PathBuf {
        self.dir.join("lock")
    }

    /// Writes a file of its directory.
    pub(crate) fn write(&self, path: &Path, text: &str) -> Result<()> {
        fs::write(path, text)
            .map_err(|cause| Error::local_io(format!("cannot write {}", path.display()), &cause))
    }

    /// Writes down what has to be cleaned up. Whole or not at all: it is read after crashes.
    pub(crate) fn keep(&self, remains: &Remains) -> Result<()> {
        let path = self.remains();
        let failed = |cause: io::Error| Error::local_io(format!("cannot write {}", path.display()), &cause);
        let text = serde_json::to_vec(remains).map_err(io::Error::other).map_err(failed)?;
        let new = path.with_extension("new");
        File::create(&new).and_then(|mut file| file.write_all(&text)).map_err(failed)?;
        fs::rename(&new, &path).map_err(failed)
    }

    fn remains(&self) -> PathBuf {
        self.dir.join("remains.json")
    }

    /// The text that was written down, if any.
    pub(crate) fn kept(&self) -> Option<Remains> {
        let text = fs::read(self.remains()).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Cleans up after a process that is gone: kills what still runs in its namespaces, and removes its files.
    /// Returns how many processes that were; `None` when there was nothing to clean up.
    ///
    /// Fails with `Timeout`, and forgets nothing, if some of them do not end.
    pub fn clean_up(&self) -> Result<Option<usize>> {
        if !self.is_there()? {
            return Ok(None);
        }
        // Another one may be doing the same.
        let _claim = self.wait_for_claim(2 * ENDING_MAX)?;
        let ended = self.kept().map(|remains| kill_inside(&remains, true)).transpose()?;
        self.forget();
        Ok(ended)
    }

    /// True if something is there to be cleaned up, or a network is up.
    pub(crate) fn has_remains(&self) -> bool {
        self.remains().exists()
    }

    /// Ends the process that holds the claim but does not answer: asks (SIGTERM), for it may be coming up, then
    /// kills.
    pub(crate) fn end(&self) -> Result<()> {
        if !self.is_there()? {
            return Ok(());
        }
        // Only a process that keeps a network up writes its number, and never one that the kernel reads as many.
        let number =
            || fs::read_to_string(self.lock()).ok()?.parse::<i32>().ok().filter(|number| *number > 1);
        let holder = || number().and_then(Pid::from_raw);
        for (signal, patience) in [(Signal::TERM, ASKED_MAX), (Signal::KILL, ENDING_MAX)] {
            let asked_at = Instant::now();
            // Between the claim and the number in it is a moment; a process that cleans up holds it without one.
            while self.is_up() && holder().is_none() && asked_at.elapsed() < 2 * ENDING_MAX {
                std::thread::sleep(ENDING_STEP);
            }
            if let Some(process) = holder().filter(|_| self.is_up()) {
                // It may be gone by now.
                let _ = kill_process(process, signal);
            }
            while self.is_up() && asked_at.elapsed() < patience {
                std::thread::sleep(ENDING_STEP);
            }
        }
        Ok(())
    }

    /// Waits for a process that is ending.
    pub(crate) fn wait_until_gone(&self) -> Result<()> {
        // What runs inside is ended first.
        let deadline = Instant::now() + 2 * ENDING_MAX;
        while self.is_up() {
            if Instant::now() > deadline {
                let message = format!("the process that keeps {} up does not end", self.name);
                return Err(Error::new(ErrorKind::Timeout, message).fault(Fault::Local));
            }
            std::thread::sleep(ENDING_STEP);
        }
        Ok(())
    }

    /// Removes its files. The claim must be held.
    pub(crate) fn forget(&self) {
        // The lock goes last: while it is there, no other process makes files here.
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if entry.path() != self.lock() {
                let _ = fs::remove_file(entry.path());
            }
        }
        let _ = fs::remove_file(self.lock());
        // Only when they are empty: the next network may be here already.
        let _ = fs::remove_dir(&self.dir);
        if let Some(parent) = self.dir.parent() {
            let _ = fs::remove_dir(parent);
        }
    }
}

/// True if a directory is there; `Denied` if it is not this user's alone.
fn check(dir: &Path) -> Result<bool> {
    let found = match fs::symlink_metadata(dir) {
        Ok(found) => found,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(cause) => return Err(Error::local_io(format!("cannot look at {}", dir.display()), &cause)),
    };
    if !found.is_dir() || found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
        let message = format!("{} belongs to another user, or others may write to it", dir.display());
        return Err(Error::new(ErrorKind::Denied, message)
            .fault(Fault::Local)
            .hint("set XDG_RUNTIME_DIR to a directory that is yours alone"));
    }
    Ok(true)
}

/// Ends what runs in the namespaces of a network until nothing does: asks (SIGTERM), and kills what does not end
/// soon. Returns how many processes that were; `Timeout` if some are still there.
///
/// The number of a namespace is given to another one when it is gone: after a crash only those processes are
/// meant that are also marked in their environment, or whose namespace has an address of ours (`only_marked`).
pub(crate) fn kill_inside(remains: &Remains, only_marked: bool) -> Result<usize> {
    let mut ended = BTreeSet::new();
    let asked_at = Instant::now();
    // A process may start another while the list is read; each round finds the children of the last.
    while asked_at.elapsed() < ENDING_MAX {
        let inside = processes_inside(remains, only_marked);
        if inside.is_empty() {
            return Ok(ended.len());
        }
        for pid in inside {
            // It may be gone by now.
            if asked_at.elapsed() > GRACE {
                let _ = kill_process(pid, Signal::KILL);
            } else if ended.insert(pid.as_raw_nonzero()) {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        // It takes a moment to be gone.
        std::thread::sleep(ENDING_STEP);
    }
    let message = "processes in the network do not end, although they were killed";
    Err(Error::new(ErrorKind::Timeout, message).fault(Fault::Local).hint(Hint::TakeDownAgain))
}

fn processes_inside(remains: &Remains, only_marked: bool) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw))
        .filter(|pid| pid.as_raw_nonzero().get() != std::process::id() as i32)
        .filter(|pid| {
            let dir = Path::new("/proc").join(pid.as_raw_nonzero().to_string());
            let is_inside = fs::metadata(dir.join("ns/net"))
                .is_ok_and(|namespace| remains.namespaces.contains(&namespace.ino()));
            is_inside && (!only_marked || is_of_network(&dir, &remains.id))
        })
        .collect()
}

/// True if the process of a directory in `/proc`, which is in a namespace of the right number, was started in
/// the network `id`: its environment says so, or says nothing (not every program keeps it) and the namespace
/// looks like one of ours.
fn is_of_network(process: &Path, id: &str) -> bool {
    let environment = fs::read(process.join("environ")).unwrap_or_default();
    let name = format!("{ID_VARIABLE}=").into_bytes();
    match environment.split(|byte| *byte == 0).find_map(|word| word.strip_prefix(name.as_slice())) {
        Some(value) => value == id.as_bytes(),
        None => fs::read_to_string(process.join("net/if_inet6"))
            .is_ok_and(|addresses| addresses.lines().any(is_own_address)),
    }
}

/// True if a line of `/proc/PID/net/if_inet6` is that of a node's address (2001:2::/112 on `lo`).
fn is_own_address(line: &str) -> bool {
    line.starts_with("2001000200000000000000000000") && line.ends_with(" lo")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(dir: &Path) -> Place {
        Place { name: "x".into(), dir: dir.join("users").join("x") }
    }

    #[test]
    fn one_process_at_a_time_is_the_network_of_a_name() {
        let scratch = tempfile::tempdir().unwrap();
        let place = place(scratch.path());
        assert!(!place.is_up());
        let claim = place.claim().unwrap();
        assert!(place.is_up());
        let error = place.claim().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Precondition);
        assert!(place.wait_for_claim(Duration::ZERO).is_err(), "who cleans up does not get it either");
        drop(claim);
        assert!(!place.is_up());
        assert_eq!(place.clean_up().unwrap(), None);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn a_directory_of_somebody_else_is_not_used() {
        let scratch = tempfile::tempdir().unwrap();
        let place = place(scratch.path());
        place.create().unwrap();
        fs::set_permissions(&place.dir, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(place.create().unwrap_err().kind(), ErrorKind::Denied);
    }

    #[test]
    fn only_processes_that_are_marked_are_killed() {
        let own = fs::metadata("/proc/self/ns/net").unwrap().ino();
        let remains = |id: &str| Remains { v: 1, id: id.into(), namespaces: vec![own] };
        let mut child =
            std::process::Command::new("sleep").arg("60").env(ID_VARIABLE, "mine").spawn().unwrap();
        assert_eq!(kill_inside(&remains("another"), true).unwrap(), 0);
        assert!(child.try_wait().unwrap().is_none());
        let mine = remains("mine");
        let killer = std::thread::spawn(move || kill_inside(&mine, true));
        assert!(!child.wait().unwrap().success());
        assert_eq!(killer.join().unwrap().unwrap(), 1);
    }

    #[test]
    fn names_are_plain() {
        for bad in ["", "a/b", "..", "a b", &"x".repeat(33)] {
            assert!(Place::of(bad).is_err(), "{bad}");
        }
        assert!(Place::of("lab-1").is_ok());
    }
}
