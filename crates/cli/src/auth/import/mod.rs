//! `gridlane auth import`: what another server's files say, as rules.

mod authdb;
mod gridmap;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use gridlane_core::{Error, Result};

/// The kind of the file.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    /// XRootD's authorisation database (acc.authdb)
    Authdb,
    /// A grid-mapfile: subjects of certificates and users
    Gridmap,
}

/// Print the grants of another server's file, as rules for `gridlane serve`.
///
/// Each rule grants what its record granted, or less; comments name those that have no rule. Rules forbid nothing: where
/// the file takes away what another record grants, that has to be taken away by hand. They are printed for reading, and for
/// the configuration file.
#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// The format of the file
    format: Format,
    /// The file; - is standard input
    file: PathBuf,
}

/// Prints the tables of a configuration file that say the same, and in comments what cannot be said.
pub(super) fn run(args: &ImportArgs) -> Result<ExitCode> {
    let unreadable = |cause| Error::local_io(format!("cannot read {}", args.file.display()), &cause);
    let text = match args.file.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin()).map_err(unreadable)?,
        false => std::fs::read_to_string(&args.file).map_err(unreadable)?,
    };
    let tables = match args.format {
        Format::Authdb => authdb::tables(&text),
        Format::Gridmap => gridmap::tables(&text),
    };
    crate::output::print(tables.as_bytes())
}

/// A text as TOML writes it.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
