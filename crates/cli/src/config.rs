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

use clap::builder::Resettable;
use clap::{Arg, ArgAction, Command, CommandFactory};
use gridlane_core::{Error, ErrorKind, Result};
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use crate::args::Cli;

/// The command with the defaults of the file that `--config` or `GRIDLANE_CONFIG` names.
pub(crate) fn command_with_file() -> Result<Command> {
    let command = Cli::command();
    let Some(path) = named_file(std::env::args_os()) else { return Ok(command) };
    let text = std::fs::read_to_string(&path)
        .map_err(|cause| Error::new(ErrorKind::Usage, format!("cannot read {}: {cause}", path.display())))?;
    with_defaults(command, &text).map_err(|error| in_file(error, &path))
}

/// The error with the file before the line that it names already.
pub(crate) fn in_file(error: Error, file: &Path) -> Error {
    let place = match error.endpoint_text() {
        Some(line) => format!("{}, {line}", file.display()),
        None => file.display().to_string(),
    };
    error.endpoint(place)
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

/// Reads a TOML file; what is wrong in it is named by its line.
pub(crate) fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T> {
    toml::from_str(text).map_err(|cause| {
        let message = cause.message().trim().replace('\n', "; ");
        let error = wrong(message);
        match cause.span() {
            Some(span) => error.endpoint(format!("line {}", line(text, span.start))),
            None => error,
        }
    })
}

fn line(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

/// The line of a place in a file that is named by its table: `[root]`, `[[rule]] 2`, or `[[export]] /data, rule 1`.
pub(crate) fn line_of(text: &str, place: &str) -> Option<usize> {
    let (names, rest) = match place.strip_prefix("[[") {
        Some(list) => list.split_once("]]")?,
        None => place.strip_prefix('[')?.split_once(']')?,
    };
    let table = DeTable::parse(text).ok()?;
    let mut at = table.span().start;
    let mut inner = table.get_ref();
    let mut names = names.split('.').peekable();
    while let Some(name) = names.next() {
        let (key, value) = inner.get_key_value(name)?;
        at = key.span().start;
        match value.get_ref() {
            DeValue::Table(next) => inner = next,
            DeValue::Array(all) if names.peek().is_none() => {
                return in_list(text, all, rest.trim()).or(Some(line(text, at)));
            }
            _ => break,
        }
    }
    Some(line(text, at))
}

/// The line of one of several tables, which `rest` names by its number, from 1, or by its path or URL.
fn in_list(text: &str, all: &[Spanned<DeValue<'_>>], rest: &str) -> Option<usize> {
    let (name, rule) = match rest.split_once(", rule ") {
        Some((name, rule)) => (name, Some(rule)),
        None => (rest.split(": ").next()?, None),
    };
    let is_named = |table: &&Spanned<DeValue<'_>>| {
        let field = |key| table.get_ref().get(key).and_then(|value| value.get_ref().as_str());
        field("path").or(field("url")).unwrap_or("/") == name
    };
    let found = match name.parse::<usize>() {
        Ok(number) => all.get(number.checked_sub(1)?)?,
        Err(_) => all.iter().find(is_named)?,
    };
    let rules = rule.and_then(|_| found.get_ref().get("rules")?.get_ref().as_array());
    match (rules, rule) {
        (Some(rules), Some(rule)) => in_list(text, rules, rule).or(Some(line(text, found.span().start))),
        _ => Some(line(text, found.span().start)),
    }
}

fn with_defaults(command: Command, text: &str) -> Result<Command> {
    let table: Table = read(text)?;
    let lines = DeTable::parse(text).ok();
    with_table(command, &table, text, lines.as_ref().map(Spanned::get_ref))
}

/// The command with the defaults of its table, and its commands with theirs. `spans` is the same table, with where it is
/// in `text`.
fn with_table(
    mut command: Command,
    table: &Table,
    text: &str,
    spans: Option<&DeTable<'_>>,
) -> Result<Command> {
    let is_all = command.get_name() == "gridlane";
    for (name, value) in table {
        let span = spans.and_then(|table| table.get_key_value(name.as_str()));
        let here = |error: Error| match span {
            Some((key, _)) => error.endpoint(format!("line {}", line(text, key.span().start))),
            None => error,
        };
        match value {
            // Not options of a command: `serve` reads them itself.
            Value::Array(_) if matches!(name.as_str(), "export" | "rule") && is_all => {}
            Value::Table(_) if matches!(name.as_str(), "root" | "auth") && is_all => {}
            Value::Table(options) => {
                let of = command.find_subcommand(name).cloned();
                let of = of.ok_or_else(|| here(wrong(format!("there is no command {name:?}"))))?;
                let inner = span.and_then(|(_, value)| value.get_ref().as_table());
                let with = with_table(of, options, text, inner)?;
                command = command.mut_subcommand(name, |_| with);
            }
            value => {
                let arg = known(&command, name)
                    .ok_or_else(|| here(wrong(format!("{} has no option {name:?}", command.get_name()))))?;
                let defaults = values(name, value).map_err(here)?;
                try_values(&command, arg, &defaults).map_err(here)?;
                let id = arg.get_id().to_string();
                command = command.mut_arg(id, |arg| arg.default_values(defaults));
            }
        }
    }
    Ok(command)
}

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::Usage, message)
}

/// An option that may stand in a file.
fn known<'a>(command: &'a Command, option: &str) -> Option<&'a Arg> {
    let arg = command.get_arguments().find(|arg| arg.get_long() == Some(option))?;
    let is_option = !matches!(arg.get_action(), ArgAction::Help | ArgAction::Version) && option != "config";
    is_option.then_some(arg)
}

/// Whether the option takes these values: clap itself would say only that some value is wrong, not where it stands.
fn try_values(command: &Command, arg: &Arg, values: &[String]) -> Result<()> {
    use clap::error::ErrorKind as Clap;
    let Some(long) = arg.get_long().filter(|_| arg.get_action().takes_values()) else { return Ok(()) };
    let typed = values.iter().map(|value| format!("--{long}={value}"));
    let mut alone = without_env(command.clone().no_binary_name(true), &|_| true);
    match alone.try_get_matches_from_mut(typed) {
        Err(error) if matches!(error.kind(), Clap::InvalidValue | Clap::ValueValidation | Clap::NoEquals) => {
            Err(wrong(first_line(&error)))
        }
        _ => Ok(()),
    }
}

/// What clap says, without its advice.
fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let said = text.split("\n\n").next().unwrap_or_default();
    let said = said.strip_prefix("error: ").unwrap_or(said).trim();
    said.split('\n').map(str::trim).collect::<Vec<_>>().join("; ")
}

/// The command without the environment variables that are meant.
fn without_env(command: Command, meant: &dyn Fn(&str) -> bool) -> Command {
    let is_meant = |arg: &Arg| arg.get_env().and_then(|name| name.to_str()).is_some_and(meant);
    command
        .mut_args(|arg| if is_meant(&arg) { arg.env(Resettable::Reset) } else { arg })
        .mut_subcommands(|inner| without_env(inner, meant))
}

/// The environment variables without which a command line would not have failed as it did, with their values. clap
/// names only the options that they stand for.
pub(crate) fn blamed_variables(command: &Command, args: &[OsString], failed: &clap::Error) -> Vec<String> {
    fn set(command: &Command, all: &mut Vec<String>) {
        for arg in command.get_arguments() {
            let name =
                arg.get_env().and_then(|name| name.to_str()).filter(|name| std::env::var_os(name).is_some());
            all.extend(name.filter(|name| !all.iter().any(|known| known == name)).map(str::to_owned));
        }
        command.get_subcommands().for_each(|inner| set(inner, all));
    }
    let said = failed.render().to_string();
    let is_other =
        |meant: &dyn Fn(&str) -> bool| match without_env(command.clone(), meant).try_get_matches_from(args) {
            Ok(_) => true,
            Err(error) => error.render().to_string() != said,
        };
    let mut names = Vec::new();
    set(command, &mut names);
    if names.is_empty() || !is_other(&|_| true) {
        return Vec::new();
    }
    names.retain(|name| is_other(&|other| other == name));
    let value = |name: &String| std::env::var_os(name).unwrap_or_default().to_string_lossy().into_owned();
    names.iter().map(|name| format!("{name}={}", crate::output::printable(value(name).as_bytes()))).collect()
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
            ("[cp\n", "unclosed table"),
            ("config = \"x\"\n", "config"),
        ] {
            let error = with_defaults(Cli::command(), file).unwrap_err();
            assert!(error.to_string().contains(word), "{file}: {error}");
            assert_eq!(error.kind().exit_code(), 2);
        }
    }

    #[test]
    fn mistakes_in_a_file_have_its_name_and_their_line() {
        for (file, expected) in [
            ("verbose = true\n\n[cp\n", 3),
            ("verbose = true\n[fly]\n", 2),
            ("[cp]\nforce = true\nspeed = 1\n", 3),
            ("[cp]\nforce = true\nstreams = 1000\n", 3),
            ("# of a server\n[serve]\nlisten = [\"127.0.0.1:1\",\n  \"nowhere\"]\n", 3),
            ("[serve]\nlimit-rate = \"fast\"\n", 2),
            ("[wan.up]\n\nbackend = \"slow\"\n", 3),
            ("[cp]\nstreams = {}\n", 2),
        ] {
            let error = in_file(with_defaults(Cli::command(), file).unwrap_err(), Path::new("/etc/g.toml"));
            let place = format!("/etc/g.toml, line {expected}");
            assert_eq!(error.endpoint_text(), Some(place.as_str()), "{error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }

    #[test]
    fn tables_are_found_by_what_errors_call_them() {
        let file = "[root]\n[auth]\n[[auth.issuer]]\nurl = \"https://a\"\n[[auth.issuer]]\nurl = \"https://b\"\n\
                    [[export]]\npath = \"/a\"\n[[export]]\npath = \"/b\"\nrules = [\n {},\n {},\n]\n[[rule]]\n[[rule]]\n";
        for (place, expected) in [
            ("[root]", Some(1)),
            ("[auth]", Some(2)),
            ("[[auth.issuer]] https://b", Some(5)),
            ("[[export]] /a", Some(7)),
            ("[[export]] /b", Some(9)),
            ("[[export]] /b, rule 2", Some(13)),
            ("[[rule]] 2", Some(16)),
            ("[[rule]] 2: inner", Some(16)),
            ("/etc/users, line 3", None),
        ] {
            assert_eq!(line_of(file, place), expected, "{place}");
        }
    }
}
