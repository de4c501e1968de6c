//! `gridlane auth`: identities, and what they may do.

pub(crate) mod explain;
pub(crate) mod import;
pub(crate) mod login;
pub(crate) mod password;
pub(crate) mod proxy;
pub(crate) mod token;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use gridlane_core::Result;

use crate::args::Global;

/// Make and show credentials, and explain decisions about them.
#[derive(Debug, Args)]
pub(crate) struct AuthArgs {
    #[command(subcommand)]
    pub(crate) command: AuthCommand,
}

// Described where the options are, as `gridlane`'s commands are.
#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    Login(login::LoginArgs),
    Proxy(proxy::ProxyArgs),
    Token(Box<token::TokenArgs>),
    Password(password::PasswordArgs),
    Explain(explain::ExplainArgs),
    Import(import::ImportArgs),
}

pub(crate) fn run(args: &AuthArgs, global: &Global) -> Result<ExitCode> {
    match &args.command {
        AuthCommand::Login(args) => login::run(args, global),
        AuthCommand::Proxy(args) => proxy::run(args, global),
        AuthCommand::Token(args) => token::run(args, global),
        AuthCommand::Password(args) => password::run(args),
        AuthCommand::Explain(args) => explain::run(args, global),
        AuthCommand::Import(args) => import::run(args),
    }
}
