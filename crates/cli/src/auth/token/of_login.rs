//! Tokens of logins, and tokens that issuers make of others.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use gridlane_auth::oidc::{Client, TokenType};
use gridlane_client::credentials::{Machine as _, ThisMachine, discover};
use gridlane_client::dialer;
use gridlane_client::login::{self, LoginSource, Store, Teller};
use gridlane_core::{Result, Secret};

use super::{TokenArgs, tell_token};
use crate::args::Global;
use crate::auth::login::secret_in;
use crate::pki::{now_s, usage};

/// What an issuer is to make of a token.
#[derive(Debug, Args)]
pub(crate) struct ExchangeArgs {
    /// Have the issuer make another token of the one that commands would send (RFC 8693)
    #[arg(long, conflicts_with_all = ["url", "attenuate", "show", "lifetime", "may", "from"])]
    pub(crate) exchange: bool,
    /// With --exchange: the scopes of the new one, separated by spaces [default: as the issuer likes]
    #[arg(long, value_name = "SCOPES", requires = "exchange")]
    pub(crate) scope: Option<String>,
    /// With --exchange: the servers that the new one is for
    #[arg(long, value_name = "AUDIENCE", requires = "exchange")]
    pub(crate) audience: Option<String>,
    /// With --exchange: the issuer [default: that of --login]
    #[arg(long, value_name = "URL", requires = "exchange", requires = "client_id")]
    pub(crate) issuer: Option<String>,
    /// With --issuer: the name by which it knows the client
    #[arg(long, value_name = "ID", requires = "issuer")]
    pub(crate) client_id: Option<String>,
    /// With --issuer: a file with the client's secret
    #[arg(long, value_name = "FILE", requires = "issuer")]
    pub(crate) client_secret_file: Option<PathBuf>,
}

fn source(name: &str, global: &Global) -> Result<LoginSource> {
    LoginSource::new(name, |name| ThisMachine.variable(name), dialer(global.trust()), Teller::default())
}

/// An access token of a login.
pub(super) fn get(args: &TokenArgs, global: &Global) -> Result<ExitCode> {
    let nothing = || usage("there is no login".into()).hint("name it: --login NAME, or GRIDLANE_LOGIN");
    let name = args.credentials.login().ok_or_else(nothing)?;
    let access = source(name, global)?.lasting(args.lifetime.unwrap_or(1))?;
    let lifetime_s = access.ends_s.map(|ends_s| u64::try_from(ends_s.saturating_sub(now_s())).unwrap_or(0));
    tell_token(&access.secret, lifetime_s, args, global)
}

/// Another token for the one that commands would send.
pub(super) fn exchange(args: &TokenArgs, global: &Global) -> Result<ExitCode> {
    let wishes = &args.exchange;
    let (issuer, client) = asked(args)?;
    let subject = subject(args, global)?;
    let runtime = gridlane_client::runtime(1)?;
    let (scope, audience) = (wishes.scope.as_deref(), wishes.audience.as_deref());
    let dialer = dialer(global.trust());
    let exchanged = login::exchange(&dialer, &issuer, &client, &subject, TokenType::Access, scope, audience);
    let tokens = runtime.block_on(exchanged);
    // A name service that does not answer must not keep the process.
    runtime.shutdown_background();
    let tokens = tokens?;
    tell_token(&tokens.access, tokens.lasts_s, args, global)
}

/// The issuer that is asked, and who asks.
fn asked(args: &TokenArgs) -> Result<(String, Client)> {
    let wishes = &args.exchange;
    if let (Some(issuer), Some(id)) = (&wishes.issuer, &wishes.client_id) {
        let secret = wishes.client_secret_file.as_deref().map(secret_in).transpose()?;
        return Ok((issuer.clone(), Client { id: id.clone(), secret }));
    }
    let name = args.credentials.login().filter(|name| !name.starts_with("oidc-agent:"));
    let nobody = || {
        usage("it is not said which issuer makes the new token".into())
            .hint("name a login, or --issuer URL and --client-id ID")
    };
    let login = Store::of(|name| ThisMachine.variable(name))?.read(name.ok_or_else(nobody)?)?;
    Ok((login.issuer, login.client))
}

/// The token that is exchanged.
fn subject(args: &TokenArgs, global: &Global) -> Result<Secret> {
    if let Some(name) = args.credentials.login() {
        return Ok(source(name, global)?.access()?.secret);
    }
    let found = discover(&args.credentials.wanted(), &ThisMachine)?.usable(now_s())?;
    let token = found.token.ok_or_else(|| {
        usage("there is no token to exchange".into()).hint("name it: --token-file FILE, or --login NAME")
    })?;
    Ok(token.secret)
}
