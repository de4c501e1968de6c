//! gridlane as a client of root:// and roots://, against Debian's xrootd.

mod commands;
mod trees;
mod uploads;

use std::ffi::OsStr;
use std::process::Command;

use crate::support::client::{Outcome, gridlane, run};

/// `gridlane` with these arguments.
fn command(arguments: &[&str]) -> Command {
    let mut command = gridlane();
    command.args(arguments);
    command
}

fn ask(arguments: &[&str]) -> Outcome {
    run(command(arguments))
}

/// The same command with one more option.
fn with(mut command: Command, option: impl AsRef<OsStr>) -> Command {
    command.arg(option);
    command
}

/// Names that a URL of another protocol would encode, and no root URL does. `?` is none of them: it ends the path.
const AWKWARD: [&str; 8] = ["sp ace", "100%", "%41", "a#b", "a&b=c", "Größe", "\"q'", "a\\b;c"];
