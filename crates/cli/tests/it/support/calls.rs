//! The system calls of a program, counted by strace(1). Counts hold on a loaded machine, and in a debug build.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::tools::tool;

/// The same command, whose calls and those of its threads are counted into a file.
pub(crate) fn counted(command: &Command, into: &Path) -> Command {
    let mut strace = tool("strace", "strace");
    strace.args(["-f", "-c", "-o"]).arg(into);
    strace.arg(command.get_program()).args(command.get_args());
    strace
}

/// System calls by name.
#[derive(Debug)]
pub(crate) struct Calls(BTreeMap<String, u64>);

impl Calls {
    /// Reads what strace wrote. `None` while the program runs.
    pub(crate) fn read(file: &Path) -> Option<Calls> {
        let text = fs::read_to_string(file).unwrap_or_default();
        // % time, seconds, usecs/call, calls, errors if there were any, name; a line for all of them at the end.
        let lines = text.lines().filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let calls = words.get(3)?.parse().ok()?;
            Some(((*words.last()?).to_owned(), calls))
        });
        let mut calls: BTreeMap<String, u64> = lines.collect();
        calls.remove("total").map(|_| Calls(calls))
    }

    /// The number of these calls.
    pub(crate) fn of(&self, names: &[&str]) -> u64 {
        names.iter().filter_map(|name| self.0.get(*name)).sum()
    }

    /// The number of all calls.
    pub(crate) fn all(&self) -> u64 {
        self.0.values().sum()
    }

    /// Asserts that something happened at most so often.
    #[track_caller]
    pub(crate) fn at_most(&self, most: u64, what: &str, names: &[&str]) {
        let found = if names.is_empty() { self.all() } else { self.of(names) };
        assert!(found <= most, "{what}: {found} calls, which should be at most {most}: {:?}", self.0);
    }
}
