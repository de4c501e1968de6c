//! Options from a TOML file, as new defaults: command line and environment still count before them.
//!
//! ```toml
//! verbose = true          # options of every command stand at the top
//!
//! [serve]                 # a table per command, options with their long names
//! listen = ["127.0.0.1:8080"]
//! limit-rate = "80M"
//!
//! [wan.up]                # and per command of a command
//! backend = "netem"
//!
//! [[export]]              # what `serve` serves: not options, see `serve::tables`
//! directory = "/data"
//!
//! [[rule]]                # who may do what there, likewise
//! who = "anyone"
//! may = ["read"]
//!
//! [root]                  # what `serve` does over root://, likewise
//! auth = "unix"
//!
//! [auth]                  # whom `serve` believes, likewise: commands of `gridlane auth` have no options here
//! users = "/etc/gridlane/users"
//! ```

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Command, CommandFactory};
use gridlane_core::{Error, ErrorKind, Result};
use toml::{Table, Value};

use crate::args::Cli;

/// The command with the defaults of the file that `--config` or `GRIDLANE_CONFIG` names.
pub(crate) fn command_with_file() -> Result<Command> {
    let command = Cli::command();
    let Some(path) = named_file(std::env::args_os()) else { return Ok(command) };
    let text = std::fs::read_to_string(&path)
        .map_err(|cause| Error::new(ErrorKind::Usage, format!("cannot read {}: {cause}", path.display())))?;
    with_defaults(command, &text).map_err(|error| error.endpoint(path.display()))
}

/// What `--config` names; clap has not run yet, so that the file can give it its defaults.
fn named_file(args: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    let mut args = args.skip(1);
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--") => break,
            Some("--config") => return args.next().map(PathBuf::from),
            Some(text) if text.starts_with("--config=") => return Some(Path::new(&text[9..]).to_path_buf()),
            _ => {}
        }
    }
    std::env::var_os("GRIDLANE_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn with_defaults(command: Command, text: &str) -> Result<Command> {
    let table: Table = text.parse().map_err(|cause| wrong(format!("it is not TOML: {cause}")))?;
    with_table(command, &table)
}

/// The command with the defaults of its table, and its commands with theirs.
fn with_table(mut command: Command, table: &Table) -> Result<Command> {
    let is_all = command.get_name() == "gridlane";
    for (name, value) in table {
        match value {
            // Not options of a command: `serve` reads them itself.
            Value::Array(_) if matches!(name.as_str(), "export" | "rule") && is_all => {}
            Value::Table(_) if matches!(name.as_str(), "root" | "auth") && is_all => {}
            Value::Table(options) => {
                let of = command.find_subcommand(name).cloned();
                let of = of.ok_or_else(|| wrong(format!("there is no command {name:?}")))?;
                let with = with_table(of, options)?;
                command = command.mut_subcommand(name, |_| with);
            }
            value => {
                let id = known(&command, name)
                    .ok_or_else(|| wrong(format!("{} has no option {name:?}", command.get_name())))?;
                let defaults = values(name, value)?;
                command = command.mut_arg(id, |arg| arg.default_values(defaults));
            }
        }
    }
    Ok(command)
}

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::Usage, message)
}

/// The id of an option that may stand in a file.
fn known(command: &Command, option: &str) -> Option<String> {
    let arg = command.get_arguments().find(|arg| arg.get_long() == Some(option))?;
    let is_option = !matches!(arg.get_action(), ArgAction::Help | ArgAction::Version) && option != "config";
    is_option.then(|| arg.get_id().to_string())
}

fn values(option: &str, value: &Value) -> Result<Vec<String>> {
    let one = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Boolean(yes) => Some(yes.to_string()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        _ => None,
    };
    let all = match value {
        Value::Array(items) => items.iter().map(one).collect(),
        value => one(value).map(|value| vec![value]),
    };
    all.ok_or_else(|| {
        Error::new(ErrorKind::Usage, format!("the value of {option:?} is no text, number or list"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    fn parsed(file: &str, args: &[&str]) -> Cli {
        let command = with_defaults(Cli::command(), file).unwrap();
        Cli::from_arg_matches(&command.try_get_matches_from(args).unwrap()).unwrap()
    }

    #[test]
    fn a_file_gives_defaults_and_the_command_line_overrides_them() {
        let file = "verbose = true\n[serve]\nlisten = [\"127.0.0.1:1\", \"[::1]:2\"]\nlimit-rate = \"1M\"\nallow-write = true\n";
        let cli = parsed(file, &["gridlane", "serve", "/tmp"]);
        let crate::args::Command::Serve(serve) = cli.command else { panic!() };
        assert!(cli.global.verbose && serve.allow_write);
        assert_eq!((serve.listen.len(), serve.limit_rate), (2, Some(1_000_000)));
        let cli = parsed(file, &["gridlane", "serve", "/tmp", "--limit-rate", "2M"]);
        let crate::args::Command::Serve(serve) = cli.command else { panic!() };
        assert_eq!(serve.limit_rate, Some(2_000_000));
    }

    #[test]
    fn commands_of_commands_have_tables_too() {
        let cli =
            parsed("[wan]\nname = \"lab\"\n[wan.up]\nbackend = \"netem\"\n", &["gridlane", "wan", "up", "x"]);
        let crate::args::Command::Wan(wan) = cli.command else { panic!() };
        let crate::wan::args::WanCommand::Up(up) = wan.command else { panic!() };
        assert_eq!((wan.name.as_str(), up.backend), ("lab", crate::wan::args::BackEndArg::Netem));
    }

    #[test]
    fn mistakes_in_a_file_are_named() {
        for (file, word) in [
            ("[fly]\n", "fly"),
            ("[wan.fly]\n", "fly"),
            ("[wan.up]\nspeed = 1\n", "speed"),
            ("[cp]\nspeed = 1\n", "speed"),
            ("wings = 2\n", "wings"),
            ("[cp]\nstreams = {}\n", "streams"),
            ("[cp\n", "TOML"),
            ("config = \"x\"\n", "config"),
        ] {
            let error = with_defaults(Cli::command(), file).unwrap_err();
            assert!(error.to_string().contains(word), "{file}: {error}");
            assert_eq!(error.kind().exit_code(), 2);
        }
    }
}
