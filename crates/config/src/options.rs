//! Options from a TOML file, as new defaults of a command: command line and environment still count before them.
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
//! [[export]]              # what a daemon reads by itself: `OwnTables`
//! directory = "/data"
//! ```

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::Resettable;
use clap::{Arg, ArgAction, Command};
use gridlane_core::text::printable;
use gridlane_core::{Error, Result};
use toml::de::DeTable;
use toml::{Spanned, Table, Value};

use crate::file;
use crate::value::wrong;

/// Tables at the top of a file that are none of a command's options: a daemon reads them by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnTables<'a> {
    /// Names of lists of tables.
    pub lists: &'a [&'a str],
    /// Names of tables.
    pub tables: &'a [&'a str],
}

/// The option that names the file, which every command has.
const FILE_OPTION: &str = "config";

/// The command with the defaults of the file that its option for that or an environment variable names.
pub fn command_with_file(command: Command, variable: &str, own: OwnTables<'_>) -> Result<Command> {
    let Some(path) = named_file(std::env::args_os(), variable) else { return Ok(command) };
    file::read(&path, |text| with_defaults(command, text, own))
}

/// The file that its option names; clap has not run yet, so that the file can give it its defaults.
fn named_file(args: impl Iterator<Item = OsString>, variable: &str) -> Option<PathBuf> {
    let mut args = args.skip(1);
    while let Some(arg) = args.next() {
        let Some(option) = arg.to_str().and_then(|text| text.strip_prefix("--")) else { continue };
        match option.strip_prefix(FILE_OPTION) {
            None if option.is_empty() => break,
            Some("") => return args.next().map(PathBuf::from),
            Some(rest) if rest.starts_with('=') => return Some(PathBuf::from(&rest[1..])),
            _ => {}
        }
    }
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The command with the defaults that a file's text gives it.
pub fn with_defaults(command: Command, text: &str, own: OwnTables<'_>) -> Result<Command> {
    let table: Table = file::parse(text)?;
    let lines = DeTable::parse(text).ok();
    with_table(command, &table, text, lines.as_ref().map(Spanned::get_ref), own)
}

/// The command with the defaults of its table, and its commands with theirs. `spans` is the same table, with where it is
/// in `text`; `own` is what is none of a command.
fn with_table(
    mut command: Command,
    table: &Table,
    text: &str,
    spans: Option<&DeTable<'_>>,
    own: OwnTables<'_>,
) -> Result<Command> {
    for (name, value) in table {
        let span = spans.and_then(|table| table.get_key_value(name.as_str()));
        let here = |error: Error| match span {
            Some((key, _)) => error.endpoint(format!("line {}", file::line(text, key.span().start))),
            None => error,
        };
        match value {
            Value::Array(_) if own.lists.contains(&name.as_str()) => {}
            Value::Table(_) if own.tables.contains(&name.as_str()) => {}
            Value::Table(options) => {
                let of = command.find_subcommand(name).cloned();
                let of = of.ok_or_else(|| here(wrong(format!("there is no command {name:?}"))))?;
                let inner = span.and_then(|(_, value)| value.get_ref().as_table());
                let with = with_table(of, options, text, inner, OwnTables::default())?;
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

/// An option that may stand in a file.
fn known<'a>(command: &'a Command, option: &str) -> Option<&'a Arg> {
    let arg = command.get_arguments().find(|arg| arg.get_long() == Some(option))?;
    let is_option =
        !matches!(arg.get_action(), ArgAction::Help | ArgAction::Version) && option != FILE_OPTION;
    is_option.then_some(arg)
}

/// Fails when the option does not take these values: clap itself would say only that some value is wrong, not where it
/// stands.
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

/// The message of clap without its advice.
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
pub fn blamed_variables(command: &Command, args: &[OsString], failed: &clap::Error) -> Vec<String> {
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
    names.iter().map(|name| format!("{name}={}", printable(&value(name)))).collect()
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
    all.ok_or_else(|| wrong(format!("the value of {option:?} is no text, number or list")))
}

#[cfg(test)]
mod tests;
