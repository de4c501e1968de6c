//! `gridlane auth password`: a line for a file of users.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Args;
use gridlane_auth::password::make_line;
use gridlane_core::limits::{PASSWORD_BYTES_MAX, PASSWORD_COST, PASSWORD_COST_MAX};
use gridlane_core::{Error, ErrorKind, Result, Secret};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::output::{print, to_stderr};
use crate::pki::usage;

/// Make a user's line for the file that `users` in the server's `[auth]` names.
///
/// The password is the first line of standard input; on a terminal it is asked for, twice, and not shown. The line has its
/// bcrypt hash, as `htpasswd -nB NAME` makes it.
#[derive(Debug, Args)]
pub(crate) struct PasswordArgs {
    /// The user
    pub(crate) name: String,
    /// The cost of trying one password: each step doubles it
    #[arg(long, value_name = "N", default_value_t = PASSWORD_COST, value_parser = clap::value_parser!(u32).range(4..=i64::from(PASSWORD_COST_MAX)), env = "GRIDLANE_PASSWORD_COST")]
    pub(crate) cost: u32,
}

pub(crate) fn run(args: &PasswordArgs) -> Result<ExitCode> {
    let password = match std::io::stdin().is_terminal() {
        true => {
            let first = unseen("Password: ")?;
            if unseen("The same again: ")? != first {
                return Err(usage("the two are not the same".into()));
            }
            first
        }
        false => line()?,
    };
    let mut salt = [0; 16];
    SystemRandom::new()
        .fill(&mut salt)
        .map_err(|_| Error::new(ErrorKind::Other, "the system gives no randomness"))?;
    let line = make_line(&args.name, password.expose(), salt, args.cost)?;
    print(format!("{line}\n").as_bytes())
}

/// One line of standard input.
fn line() -> Result<Secret> {
    let mut text = Vec::new();
    // A longer one is refused later, and need not be read.
    let mut stdin = std::io::Read::take(std::io::stdin().lock(), PASSWORD_BYTES_MAX as u64 + 3);
    stdin
        .read_until(b'\n', &mut text)
        .map_err(|cause| Error::local_io("cannot read the password".to_owned(), &cause))?;
    let text = String::from_utf8(text).map_err(|_| usage("the password is not UTF-8".into()))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(Secret::new(text.strip_suffix('\r').unwrap_or(text)))
}

/// The same from a terminal, which does not show it.
fn unseen(prompt: &str) -> Result<Secret> {
    let failed = |cause: rustix::io::Errno| {
        Error::local_io("cannot ask on this terminal".to_owned(), &std::io::Error::from(cause))
    };
    let terminal = std::io::stdin();
    let before = tcgetattr(&terminal).map_err(failed)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    silent.local_modes.insert(LocalModes::ECHONL);
    to_stderr(format_args!("{prompt}"));
    let _ = std::io::stderr().flush();
    tcsetattr(&terminal, OptionalActions::Flush, &silent).map_err(failed)?;
    let read = line();
    tcsetattr(&terminal, OptionalActions::Flush, &before).map_err(failed)?;
    read
}
