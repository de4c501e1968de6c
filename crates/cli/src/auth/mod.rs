//! `gridlane auth`: who one is, and what that allows.

pub(crate) mod explain;
pub(crate) mod import;
pub(crate) mod proxy;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use gridlane_core::Result;

use crate::args::Global;

/// Make and show credentials, and say what they allow.
#[derive(Debug, Args)]
pub(crate) struct AuthArgs {
    #[command(subcommand)]
    pub(crate) command: AuthCommand,
}

// Described where the options are, as `gridlane`'s commands are.
#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    Proxy(proxy::ProxyArgs),
    Explain(explain::ExplainArgs),
    Import(import::ImportArgs),
}

pub(crate) fn run(args: &AuthArgs, global: &Global) -> Result<ExitCode> {
    match &args.command {
        AuthCommand::Proxy(args) => proxy::run(args, global),
        AuthCommand::Explain(args) => explain::run(args, global),
        AuthCommand::Import(args) => import::run(args),
    }
}
