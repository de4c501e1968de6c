//! Other people's libraries for Python: scripts beside the tests use them.

use std::path::PathBuf;
use std::process::Command;

use super::client::isolated;

/// The distribution's own Python, with the packages that Debian makes for it, runs a script of these tests.
pub(crate) fn debian(script: &str) -> Command {
    with(PathBuf::from("/usr/bin/python3"), script)
}

/// Python with packages from PyPI: the newest client of XRootD, and uproot.
pub(crate) fn pypi(script: &str) -> Command {
    of_environment("xrootd-6.2.1", script)
}

/// Python with the reference implementation of SciTokens.
pub(crate) fn tokens(script: &str) -> Command {
    of_environment("tokens-1", script)
}

/// Python with fsspec and what it speaks HTTP with.
pub(crate) fn fsspec(script: &str) -> Command {
    of_environment("fsspec-2026.9.0", script)
}

fn of_environment(name: &str, script: &str) -> Command {
    let environment = cached(name);
    // Behind it is the digest of the list that it was made from.
    let is_mark = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("complete-");
    let is_complete = std::fs::read_dir(&environment)
        .is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(is_mark)));
    assert!(is_complete, "{} is needed and not complete: scripts/bootstrap.sh --test", environment.display());
    with(environment.join("bin/python"), script)
}

fn with(python: PathBuf, script: &str) -> Command {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let mut command = isolated(Command::new(python));
    // Nothing of the user's own, and no compiled files beside the tests.
    command.args(["-s", "-B"]).arg(dir.join(script));
    command
}

/// Where scripts/bootstrap.sh keeps what it fetches for the tests.
pub(crate) fn cached(name: &str) -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let cache = cache
        .unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap_or("/root".into())).join(".cache"));
    cache.join("gridlane-test").join(name)
}
