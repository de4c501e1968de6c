//! `gridlane auth token`: gets a macaroon from a server or a token of a login, restricts and exchanges them, and prints the
//! content of a token.

mod of_login;
mod show;

use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use gridlane_auth::Grants;
use gridlane_auth::macaroon::request::parse_duration_s;
use gridlane_auth::macaroon::{Caveat, Macaroon, attenuate, grants_of, words_of};
use gridlane_core::limits::{MACAROON_BYTES_MAX, MACAROON_DEFAULT};
use gridlane_core::{Error, Network, Result, Scheme, Secret, Url};
use gridlane_net::file;
use gridlane_peer::Client;
use serde_json::json;

use crate::args::{CredentialArgs, Global};
use crate::connect::connect;
use crate::files::parse;
use crate::output::{print, tell};
use crate::pki::{now_s, tell, usage};

/// Get a macaroon from a server or a token from an issuer, restrict one, or print the content of a token.
///
/// A macaroon is a token that the server makes for clients that prove their identity, by a certificate, a token or a
/// password in the URL. It is for the path of the URL and everything below it. dCache, XRootD and gridlane make them. Its
/// text is enough to use it: with --out it goes to a file that its user alone may read, which is made only for a macaroon;
/// else it alone is printed on standard output.
///
/// Any holder of a macaroon can make one of it that allows less, without a server: with --attenuate it is read from
/// standard input.
///
/// Without a URL and with --login, an access token of that login is printed, good for --lifetime at least. With --exchange
/// the issuer makes another one of it (RFC 8693): with fewer scopes, or for other servers.
// Lines of a comment would be joined to one.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n\n\
    \x20   gridlane auth token https://se.example/run7 --may read,list --out token\n\
    \x20   BEARER_TOKEN_FILE=token gridlane cp https://se.example/run7/f .\n\
    \x20   gridlane auth token --attenuate --lifetime 10m --out less <token\n\
    \x20   gridlane auth token --login atlas --lifetime 30m --out token\n\
    \x20   gridlane auth token --exchange --login atlas --scope storage.read:/run7 --audience https://se.example")]
pub(crate) struct TokenArgs {
    /// An https URL of a file or directory that it is for
    #[arg(value_name = "URL", required_unless_present_any = ["attenuate", "show", "exchange", "login", "login_by_environment"], add = crate::args::remote())]
    pub(crate) url: Option<String>,
    /// Operations that it allows: read, list, create, overwrite, delete, stage, stat [default: all that the server
    /// allows]
    #[arg(long, value_name = "WORDS", value_delimiter = ',', value_parser = parse_may, env = "GRIDLANE_TOKEN_MAY")]
    pub(crate) may: Vec<Grants>,
    /// Its lifetime: 90s, 30m, 2h, 1d [default: 1h, with --attenuate as long as before]; of a token of a login the least
    #[arg(long, value_name = "TIME", value_parser = parse_lifetime_s, env = "GRIDLANE_TOKEN_LIFETIME")]
    pub(crate) lifetime: Option<u64>,
    /// Address or network that it may be used from (repeatable). XRootD's servers do not know this
    #[arg(long, value_name = "NETWORK", value_delimiter = ',', env = "GRIDLANE_TOKEN_FROM")]
    pub(crate) from: Vec<Network>,
    /// Use no server: make one that allows less of the macaroon on standard input
    #[arg(long, conflicts_with = "url")]
    pub(crate) attenuate: bool,
    /// With --attenuate: only for this path of the server and what is below it
    #[arg(long, value_name = "PATH", requires = "attenuate")]
    pub(crate) path: Option<String>,
    /// Get nothing: print the content of this token, `-` for standard input [default: the one that commands would
    /// send to servers]. It is not verified
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with_all = ["url", "attenuate"])]
    pub(crate) show: Option<Option<String>>,
    /// Write it to this file, which its user alone may read, and which stays as it was when there is none
    #[arg(long, value_name = "FILE", conflicts_with = "show")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) exchange: of_login::ExchangeArgs,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
}

pub(crate) fn run(args: &TokenArgs, global: &Global) -> Result<ExitCode> {
    match (&args.show, &args.url) {
        (Some(from), _) => show::run(from.as_deref(), &args.credentials, global),
        (None, Some(url)) => ask(url, args, global),
        (None, None) if args.exchange.exchange => of_login::exchange(args, global),
        (None, None) if args.attenuate => give_less(args, global),
        (None, None) => of_login::get(args, global),
    }
}

/// The words for what a macaroon allows.
const MAY: [(&str, &str); 7] = [
    ("read", "DOWNLOAD"),
    ("list", "LIST"),
    ("create", "UPLOAD"),
    ("overwrite", "MANAGE"),
    ("delete", "DELETE"),
    ("stage", "STAGE"),
    ("stat", "READ_METADATA"),
];

fn parse_may(word: &str) -> std::result::Result<Grants, String> {
    let found = MAY.iter().find(|(known, activity)| *known == word || *activity == word);
    found.map(|(_, activity)| grants_of(activity)).ok_or_else(|| {
        let known: Vec<&str> = MAY.iter().map(|(known, _)| *known).collect();
        format!("the words are {}", known.join(", "))
    })
}

/// `90s`, `30m`, `2h`, `1d`, or ISO 8601 as servers have it.
pub(crate) fn parse_lifetime_s(text: &str) -> std::result::Result<u64, String> {
    if text.starts_with('P') {
        return parse_duration_s(text).map_err(|refusal| refusal.message);
    }
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];
    let found = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(*unit)?, seconds)));
    found
        .and_then(|(number, seconds)| number.parse::<u64>().ok()?.checked_mul(*seconds))
        .filter(|lifetime_s| *lifetime_s > 0)
        .ok_or_else(|| "write for example 90s, 30m, 2h or 1d".to_owned())
}

fn may(args: &TokenArgs) -> Option<Grants> {
    args.may.iter().copied().reduce(Grants::with)
}

/// The activities of [`words_of`] that the field's servers know: dCache refuses others.
fn activities(grants: Grants) -> String {
    let known = |word: &&str| MAY.iter().any(|(_, activity)| activity == word);
    // The right to do anything is the right to look.
    let words = words_of(grants);
    let (look, other): (Vec<&str>, Vec<&str>) =
        words.split(',').filter(known).partition(|word| *word == "READ_METADATA");
    if other.is_empty() { look.join(",") } else { other.join(",") }
}

fn ask(typed: &String, args: &TokenArgs, global: &Global) -> Result<ExitCode> {
    let url = parse(typed)?;
    if url.scheme() != Scheme::Https {
        return Err(usage("a macaroon is a secret: it is asked for over https".into()).endpoint(&url));
    }
    let session = connect([typed], &args.credentials, global)?;
    let runtime = gridlane_client::runtime(1)?;
    let given = runtime.block_on(request(&session.client, &url, args));
    // A name service that does not answer must not keep the process.
    runtime.shutdown_background();
    let (token, lifetime_s) = given?;
    tell_token(&token, lifetime_s, args, global)
}

/// Asks for a macaroon: the text, and for how many seconds it is good if the server says it.
async fn request(client: &Client, url: &Url, args: &TokenArgs) -> Result<(Secret, Option<u64>)> {
    let mut caveats = Vec::new();
    if let Some(grants) = may(args) {
        caveats.push(format!("activity:{}", activities(grants)));
    }
    if !args.from.is_empty() {
        caveats.push(String::from_utf8_lossy(&Caveat::Ip(args.from.clone()).to_bytes()).into_owned());
    }
    let lifetime_s = args.lifetime.unwrap_or(MACAROON_DEFAULT.as_secs());
    let given = gridlane_client::ask_macaroon(client, url, &caveats, lifetime_s).await?;
    Ok((given.text, given.lifetime_s))
}

fn give_less(args: &TokenArgs, global: &Global) -> Result<ExitCode> {
    let mut caveats = Vec::new();
    caveats.extend(may(args).map(Caveat::Activity));
    if let Some(path) = &args.path {
        let caveat = Caveat::parse(format!("path:{path}").as_bytes());
        caveats.push(caveat.map_err(|_| usage(format!("{path:?} is no path from the server's root")))?);
    }
    if let Some(lifetime_s) = args.lifetime {
        let lifetime_s = i64::try_from(lifetime_s).unwrap_or(i64::MAX);
        caveats.push(Caveat::Before(now_s().saturating_add(lifetime_s)));
    }
    if !args.from.is_empty() {
        caveats.push(Caveat::Ip(args.from.clone()));
    }
    if caveats.is_empty() {
        let what = "the macaroon would stay as it is";
        return Err(usage(what.into()).hint("restrict it by --may, --path, --lifetime or --from"));
    }
    let less = attenuate(read_stdin()?.expose(), &caveats).map_err(|refusal| usage(refusal.message))?;
    tell_token(&less, None, args, global)
}

/// The first words on standard input.
fn read_stdin() -> Result<Secret> {
    let mut stdin = std::io::stdin();
    if stdin.is_terminal() {
        tell!("gridlane: reading a token from the terminal; end it with a line end and Ctrl-D");
    }
    let mut text = String::new();
    let bytes_max = 2 * MACAROON_BYTES_MAX as u64;
    stdin
        .by_ref()
        .take(bytes_max)
        .read_to_string(&mut text)
        .map_err(|cause| Error::local_io("cannot read standard input".to_owned(), &cause))?;
    match text.trim() {
        "" => Err(usage("there is no token on standard input".into())),
        token => Ok(Secret::new(token)),
    }
}

/// Prints the token, which is what was asked for, or puts it into the file.
fn tell_token(
    token: &Secret,
    lifetime_s: Option<u64>,
    args: &TokenArgs,
    global: &Global,
) -> Result<ExitCode> {
    if let Some(out) = &args.out {
        let line = Secret::new(format!("{}\n", token.expose()));
        file::replace(out, 0o600, line.expose().as_bytes())
            .map_err(|cause| Error::local_io(format!("cannot write {}", out.display()), &cause))?;
        if global.json {
            tell("made", json!({"what": "token", "files": { "token": out }, "lifetime_s": lifetime_s}))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !global.json {
        return print(format!("{}\n", token.expose()).as_bytes());
    }
    let mut fields = json!({"what": "token", "token": token.expose(), "lifetime_s": lifetime_s});
    if let Ok(macaroon) = Macaroon::parse(token.expose()) {
        fields["id"] = json!(macaroon.id());
        fields["caveats"] =
            macaroon.caveats().map(|caveat| String::from_utf8_lossy(caveat).into_owned()).collect();
    }
    tell("made", fields)?;
    Ok(ExitCode::SUCCESS)
}
