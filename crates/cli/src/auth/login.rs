//! `gridlane auth login`: logs in at an issuer of tokens, and keeps what it gives.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use gridlane_auth::oidc::{Client, DeviceGrant};
use gridlane_client::credentials::{Machine as _, ThisMachine};
use gridlane_client::dialer;
use gridlane_client::login::{self, LoginSettings, NewLogin, Store, judge_name};
use gridlane_core::units::format_seconds;
use gridlane_core::{Error, ErrorKind, Fault, Result, Secret, Url};
use serde_json::json;

use crate::args::Global;
use crate::output::{print, tell as tell_person};
use crate::pki::{moment, now_s, tell, usage};

/// Log in at an issuer of tokens (OpenID Connect), or list and forget logins.
///
/// A page and a code are shown: whoever opens the page in any browser and types the code allows the login (RFC 8628). What the
/// issuer gives is kept in $XDG_DATA_HOME/gridlane/logins (or ~/.local/share), in a file that its user alone can read; commands
/// with --login NAME send its tokens, and renew them before they end, for as long as the issuer lets them.
///
/// The client has to be registered at the issuer, for the grant of device codes. With --as-client nobody logs in: the
/// client, which has a secret, gets tokens of its own.
// Lines of a comment would be joined to one.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n\n\
    \x20   gridlane auth login https://iam.example/ --client-id lane --name atlas\n\
    \x20   gridlane cp --login atlas https://se.example/run7/f .\n\
    \x20   gridlane auth login atlas\n\
    \x20   gridlane auth login --forget atlas")]
pub(crate) struct LoginArgs {
    /// The issuer, exactly as it calls itself, or the name of a login to make again as it was
    #[arg(value_name = "ISSUER", required_unless_present_any = ["list", "forget"])]
    pub(crate) issuer: Option<String>,
    /// The name by which the issuer knows the client [default: that of the login before]
    #[arg(long, value_name = "ID", env = "GRIDLANE_CLIENT_ID")]
    pub(crate) client_id: Option<String>,
    /// A file with the client's secret, which nobody else may read. It is kept with the login [default: a public client]
    #[arg(long, value_name = "FILE", env = "GRIDLANE_CLIENT_SECRET_FILE")]
    pub(crate) client_secret_file: Option<PathBuf>,
    /// Scopes to ask for, separated by spaces [default: openid offline_access]. Without offline_access most issuers let
    /// nothing be renewed
    #[arg(long, value_name = "SCOPES")]
    pub(crate) scope: Option<String>,
    /// The servers that tokens are to be for [default: as the issuer likes]
    #[arg(long, value_name = "AUDIENCE")]
    pub(crate) audience: Option<String>,
    /// The name of the login [default: the issuer's host]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Log nobody in: get tokens of the client itself (RFC 6749, 4.4)
    #[arg(long)]
    pub(crate) as_client: bool,
    /// List the logins
    #[arg(long, conflicts_with_all = ["issuer", "client_id", "client_secret_file", "scope", "audience", "name", "as_client"])]
    pub(crate) list: bool,
    /// Remove a login from this machine. The issuer is not told: to make its tokens worthless, revoke them there
    #[arg(long, value_name = "NAME", conflicts_with_all = ["issuer", "list", "scope", "audience", "name", "as_client"])]
    pub(crate) forget: Option<String>,
}

pub(crate) fn run(args: &LoginArgs, global: &Global) -> Result<ExitCode> {
    let store = Store::of(|name| ThisMachine.variable(name))?;
    match (&args.forget, &args.issuer) {
        (Some(name), _) => forget(name, &store, global),
        (None, Some(issuer)) => log_in(issuer, args, &store, global),
        (None, None) => list(&store, global),
    }
}

fn log_in(issuer: &str, args: &LoginArgs, store: &Store, global: &Global) -> Result<ExitCode> {
    let settings = settings(issuer, args, store)?;
    let runtime = gridlane_client::runtime(1)?;
    let dialer = dialer(global.trust());
    let made = runtime.block_on(login::log_in(store, &dialer, settings, |grant| show(grant, global)));
    // A name service that does not answer must not keep the process.
    runtime.shutdown_background();
    told(&made?, store, global)
}

/// The wishes, with what is not said as it was in the login before.
fn settings(issuer: &str, args: &LoginArgs, store: &Store) -> Result<LoginSettings> {
    let is_name = !issuer.contains("://");
    let name = match (&args.name, is_name) {
        (Some(name), _) => name.clone(),
        (None, true) => issuer.to_owned(),
        (None, false) => host_of(issuer)?,
    };
    judge_name(&name)?;
    let before = match is_name {
        true => Some(store.read(issuer)?),
        // What cannot be read is made anew.
        false => store.read(&name).ok().filter(|before| before.issuer == issuer),
    };
    let secret = args.client_secret_file.as_deref().map(secret_in).transpose()?;
    let known = before.as_ref().map(|before| &before.client);
    let client = match (&args.client_id, known) {
        (Some(id), known) => {
            let kept = known.filter(|known| known.id == *id).and_then(|known| known.secret.clone());
            Client { id: id.clone(), secret: secret.or(kept) }
        }
        (None, Some(known)) => Client { id: known.id.clone(), secret: secret.or(known.secret.clone()) },
        (None, None) => {
            return Err(usage("it is not said which client logs in".into())
                .hint("register one at the issuer, for device codes, and name it: --client-id ID"));
        }
    };
    let is_client = args.as_client || before.as_ref().is_some_and(|before| before.is_client);
    if is_client && client.secret.is_none() {
        return Err(usage("a client without a secret has no tokens of its own".into())
            .hint("name the file that it is in: --client-secret-file FILE"));
    }
    let by_default = (!is_client).then(|| "openid offline_access".to_owned());
    let kept = before.as_ref().and_then(|before| before.scope.clone());
    Ok(LoginSettings {
        name,
        issuer: before.as_ref().map_or_else(|| issuer.to_owned(), |before| before.issuer.clone()),
        client,
        is_client,
        scope: args.scope.clone().or(kept).or(by_default),
        audience: args.audience.clone().or(before.and_then(|before| before.audience)),
    })
}

fn host_of(issuer: &str) -> Result<String> {
    let url = Url::parse_absolute(issuer)?;
    // A name has no colons, which an address of IPv6 is full of.
    Ok(url.host().replace(':', "-"))
}

/// The secret in a file, which nobody else may read; it may be a pipe.
pub(crate) fn secret_in(path: &Path) -> Result<Secret> {
    let shown = path.display();
    let content = ThisMachine.read(path, true);
    let content = content.map_err(|cause| Error::local_io(format!("cannot read {shown}"), &cause))?;
    let content = content.ok_or_else(|| usage(format!("there is no file {shown}")))?;
    if let Some(mode) = content.mode.filter(|mode| mode & 0o077 != 0) {
        let message = format!("{shown} has a secret and can be read or changed by others (mode {mode:03o})");
        return Err(Error::new(ErrorKind::Denied, message)
            .fault(Fault::Caller)
            .hint(format!("chmod 600 {shown}")));
    }
    let text = std::str::from_utf8(&content.bytes).ok().map(str::trim);
    let secret = text.filter(|text| !text.is_empty() && text.len() <= 4096 && !text.contains(['\r', '\n']));
    secret.map(Secret::new).ok_or_else(|| usage(format!("{shown} has no secret of one line in it")))
}

/// Shows the person where to go.
fn show(grant: &DeviceGrant, global: &Global) -> Result<()> {
    if global.json {
        return tell(
            "login.code",
            json!({
                "page": grant.page.as_str(), "code": grant.user_code, "lasts_s": grant.lasts_s,
                "page_with_code": grant.page_with_code.as_ref().map(Url::as_str),
            }),
        );
    }
    let mut out = format!("Open this page in any browser:  {}\n", grant.page.as_str());
    out += &format!("and enter the code:             {}\n", grant.user_code);
    if let Some(page) = &grant.page_with_code {
        out += &format!("or open, with the code in it:   {}\n", page.as_str());
    }
    out += &format!("It is waited for, up to {}.\n", format_seconds(grant.lasts_s as f64));
    print(out.as_bytes()).map(drop)
}

/// Says what was made.
fn told(made: &NewLogin, store: &Store, global: &Global) -> Result<ExitCode> {
    let NewLogin { login, granted } = made;
    let ends_s = login.access.as_ref().and_then(|access| access.ends_s);
    let is_renewable = login.is_renewable();
    if global.json {
        let fields = json!({
            "what": "login", "name": login.name, "issuer": login.issuer, "files": { "login": store.file(&login.name) },
            "is_renewable": is_renewable, "expires_s": ends_s, "granted": granted,
        });
        return tell("made", fields).map(|()| ExitCode::SUCCESS);
    }
    if !is_renewable && !global.quiet {
        let ends = ends_s.map_or_else(String::new, |ends_s| format!(": it ends {}", moment(ends_s)));
        tell_person!(
            "gridlane: warning: the issuer gave no refresh token, so that this login is not renewed{ends}; ask for the scope offline_access"
        );
    }
    if global.quiet {
        return Ok(ExitCode::SUCCESS);
    }
    let mut out =
        format!("logged in: {} at {}; use it with --login {}\n", login.name, login.issuer, login.name);
    if let Some(granted) = granted {
        out += &format!("granted: {granted}\n");
    }
    print(out.as_bytes())
}

fn forget(name: &str, store: &Store, global: &Global) -> Result<ExitCode> {
    store.forget(name)?;
    if global.json {
        tell("removed", json!({"what": "login", "name": name}))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list(store: &Store, global: &Global) -> Result<ExitCode> {
    let mut failed = None;
    for name in store.names()? {
        let login = match store.read(&name) {
            Ok(login) => login,
            Err(error) => {
                tell_person!("gridlane: {}", crate::words::error(&error));
                failed = Some(error.kind());
                continue;
            }
        };
        let ends_s = login.access.as_ref().and_then(|access| access.ends_s);
        if global.json {
            let fields = json!({
                "name": name, "issuer": login.issuer, "client_id": login.client.id, "scope": login.scope,
                "audience": login.audience, "is_renewable": login.is_renewable(), "expires_s": ends_s,
            });
            tell("login", fields)?;
            continue;
        }
        let scope = login.scope.as_deref().unwrap_or("-");
        let state = match (login.is_renewable(), ends_s) {
            (true, _) => "renewed when it is used".to_owned(),
            (false, Some(ends_s)) if ends_s <= now_s() => "over".to_owned(),
            (false, Some(ends_s)) => format!("not renewed, until {}", moment(ends_s)),
            (false, None) => "not renewed".to_owned(),
        };
        print(format!("{name}  {}  {scope}  {state}\n", login.issuer).as_bytes())?;
    }
    Ok(crate::output::exit_code(failed))
}
