//! Other people's programs. One that is missing is a failure with a cure, never a skipped test.

use std::process::Command;

use super::client::{Outcome, Running, isolated};

/// curl, quiet, with its errors shown and a deadline.
pub(crate) fn curl() -> Command {
    let mut command = tool("curl", "curl");
    command.args(["--silent", "--show-error", "--max-time", "50"]);
    command
}

/// Runs curl with these arguments to the end.
pub(crate) fn run_curl(arguments: &[&str]) -> Outcome {
    let mut command = curl();
    command.args(arguments);
    Running::start(command).wait()
}

/// A program from a Debian package.
pub(crate) fn tool(name: &str, package: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    // Some distributions keep servers out of a user's PATH.
    let dirs = path.split(':').chain(["/usr/sbin", "/sbin", "/usr/local/sbin"]);
    let found = dirs.map(|dir| std::path::Path::new(dir).join(name)).find(|file| file.is_file());
    let found = found.unwrap_or_else(|| {
        panic!("{name} is needed and not installed: scripts/bootstrap.sh --test (package {package})")
    });
    let mut command = isolated(Command::new(found));
    // XRootD's programs look this machine's name up, and a name server may be far away or silent.
    command.env("RES_OPTIONS", "timeout:1 attempts:1");
    command
}
