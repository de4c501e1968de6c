//! The manual pages, made of the same texts as `--help`.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;
use gridlane_core::{Error, Result};

use crate::args::{Cli, ManArgs};

/// Writes a page for the program and one for each of its commands.
pub(crate) fn run(args: &ManArgs) -> Result<ExitCode> {
    let failed = |what: &Path, cause: &std::io::Error| {
        Error::local_io(format!("cannot write manual pages to {}", what.display()), cause)
    };
    std::fs::create_dir_all(&args.directory).map_err(|cause| failed(&args.directory, &cause))?;
    clap_mangen::generate_to(Cli::command(), &args.directory)
        .map_err(|cause| failed(&args.directory, &cause))?;
    Ok(ExitCode::SUCCESS)
}
