//! `gridlane pki`.

pub(crate) mod args;
mod authority;

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gridlane_auth::Fqan;
use gridlane_auth::make::{AlternativeName, Credential, Curve, Key, Name, Text, Validity, profile};
use gridlane_core::{Error, ErrorKind, Fault, Result};
use gridlane_dav::timestamp;
use gridlane_net::file;
use ring::rand::SystemRandom;
use serde_json::{Value, json};

use crate::args::Global;
use crate::output::{self, print_event};
use args::{HostArgs, InitArgs, PkiArgs, PkiCommand, RevokeArgs, UserArgs, VomsArgs};
use authority::Authority;

const DAY_S: i64 = 86_400;

pub(crate) fn run(args: &PkiArgs, global: &Global) -> Result<ExitCode> {
    match &args.command {
        PkiCommand::Init(args) => init(args, global),
        PkiCommand::Host(args) => host(args, global),
        PkiCommand::User(args) => user(args, global),
        PkiCommand::Voms(args) => voms(args, global),
        PkiCommand::Revoke(args) => revoke(args, global),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn init(args: &InitArgs, global: &Global) -> Result<()> {
    let (random, key) = key(args.key.as_deref())?;
    let name = Name::parse(&args.name, Text::Utf8)?;
    let validity = Validity::from_now(now_s(), args.days * DAY_S);
    let credential = profile::authority(&name, key, validity, &random)?;
    let authority = Authority::found(&args.directory, credential)?;
    let made = Made { what: "authority", credential: authority.credential(), files: authority.files() };
    let directory = quoted(&args.directory);
    let next = format!(
        "gridlane pki host {directory} NAME\n  gridlane pki user {directory} NAME\n  \
         export X509_CERT_DIR={directory}/certificates    # where it is to be trusted"
    );
    made.tell(&next, global)
}

fn host(args: &HostArgs, global: &Global) -> Result<()> {
    if args.key.is_some() && args.names.len() > 1 {
        return Err(usage(
            "hosts with the same key cannot be told from each other: name one host with --key".into(),
        ));
    }
    let authority = Authority::open(&args.directory)?;
    let aliases = args.alias.iter().map(|name| host_name(name)).collect::<Result<Vec<_>>>()?;
    let mut hosts = Vec::new();
    for name in &args.names {
        let mut names = vec![host_name(name)?];
        names.extend(aliases.iter().filter(|alias| **alias != names[0]).cloned().collect::<Vec<_>>());
        let pair = Pair::of(&args.directory, &["hosts", &name.to_ascii_lowercase()], "host");
        // All of them or none: a mistake in the last name is told before the first is made.
        pair.refuse_what_is_there()?;
        hosts.push((name, names, pair));
    }
    for (name, names, pair) in hosts {
        let (random, key) = key(args.key.as_deref())?;
        let subject =
            authority.names_begin()?.with("OU", "Hosts", Text::Utf8)?.with("CN", name, Text::Utf8)?;
        let validity = authority.validity(args.days)?;
        let made = profile::host(authority.credential(), &subject, &names, key, validity, &random)?;
        pair.write(&made)?;
        let next = format!("gridlane serve DATA --cert {} --key {}", quoted(&pair.cert), quoted(&pair.key));
        Made { what: "host", credential: &made, files: pair.files() }.tell(&next, global)?;
    }
    Ok(())
}

fn user(args: &UserArgs, global: &Global) -> Result<()> {
    let authority = Authority::open(&args.directory)?;
    let is_name = |name: &str| {
        !name.is_empty()
            && name != "."
            && name != ".."
            && !name.contains('/')
            && !name.contains(char::is_control)
    };
    if !is_name(&args.name) {
        return Err(usage(format!("{:?} cannot be the name of a directory", args.name)));
    }
    let pair = Pair::of(&args.directory, &["users", &args.name], "user");
    pair.refuse_what_is_there()?;
    let (random, key) = key(args.key.as_deref())?;
    let subject =
        authority.names_begin()?.with("OU", "Users", Text::Utf8)?.with("CN", &args.name, Text::Utf8)?;
    let made = profile::user(authority.credential(), &subject, key, authority.validity(args.days)?, &random)?;
    pair.write(&made)?;
    let next = format!("gridlane auth proxy --cert {} --key {}", quoted(&pair.cert), quoted(&pair.key));
    Made { what: "user", credential: &made, files: pair.files() }.tell(&next, global)
}

fn voms(args: &VomsArgs, global: &Global) -> Result<()> {
    let authority = Authority::open(&args.directory)?;
    let vo: Fqan = format!("/{}", args.vo).parse().map_err(|_| usage(format!("{:?} is no VO", args.vo)))?;
    if vo.group() != format!("/{}", args.vo) || vo.role().is_some() || vo.vo() != args.vo {
        return Err(usage(format!("{:?} is a group, and no VO", args.vo)));
    }
    let host = args.host.clone().unwrap_or_else(|| format!("voms.{}.example.org", args.vo));
    let AlternativeName::Dns(_) = host_name(&host)? else {
        return Err(usage(format!("{host} is an address: a VOMS server is known by its name")));
    };
    let pair = Pair::of(&args.directory, &["voms", &args.vo], "voms");
    let trusted = args.directory.join("vomsdir").join(&args.vo).join(format!("{host}.lsc"));
    pair.refuse_what_is_there()?;
    refuse_if_there(&trusted)?;
    let (random, key) = key(args.key.as_deref())?;
    let subject = authority.names_begin()?.with("OU", "Hosts", Text::Utf8)?.with("CN", &host, Text::Utf8)?;
    let validity = authority.validity(args.days)?;
    let names = [AlternativeName::Dns(host)];
    let made = profile::host(authority.credential(), &subject, &names, key, validity, &random)?;
    pair.write(&made)?;
    // The certificate of the VO's server, and its authority.
    write_new(&trusted, 0o644, format!("{subject}\n{}\n", authority.credential().subject()?).as_bytes())?;
    let next = format!(
        "gridlane auth proxy --voms {} --voms-cert {} --voms-key {} --cert … --key …",
        args.vo,
        quoted(&pair.cert),
        quoted(&pair.key)
    );
    let mut files = pair.files();
    files.push(("trusted", trusted));
    Made { what: "voms", credential: &made, files }.tell(&next, global)
}

fn revoke(args: &RevokeArgs, global: &Global) -> Result<()> {
    let authority = Authority::open(&args.directory)?;
    let revoked = authority.revoke(&args.certificate, now_s())?;
    if global.json {
        let fields = json!({
            "what": "revocation", "subject": revoked.subject, "serial": revoked.serial,
            "files": { "list": revoked.list },
        });
        return tell("made", fields);
    }
    let mut out = format!("revoked: {}, serial number {}\n", revoked.subject, revoked.serial);
    out += &format!("  list: {}\n", revoked.list.display());
    out += "next: copy it to the directories of authorities of the other servers\n";
    say(&out, global)
}

/// The files that were made, for people and programs.
struct Made<'a> {
    what: &'static str,
    credential: &'a Credential,
    files: Vec<(&'static str, PathBuf)>,
}

impl Made<'_> {
    fn tell(&self, next: &str, global: &Global) -> Result<()> {
        let subject = self.credential.subject()?.to_string();
        let not_after_s = self.credential.validity()?.not_after_s;
        if global.json {
            let files: serde_json::Map<String, Value> =
                self.files.iter().map(|(what, path)| ((*what).to_owned(), json!(path))).collect();
            let fields = json!({
                "what": self.what, "subject": subject, "not_after_s": not_after_s, "files": files,
            });
            return tell("made", fields);
        }
        let mut out = format!("{}: {subject}, until {}\n", self.what, moment(not_after_s));
        for (what, path) in &self.files {
            out += &format!("  {:<15} {}\n", format!("{what}:"), path.display());
        }
        out += &format!("next:\n  {next}\n");
        say(&out, global)
    }
}

/// Prints an event.
pub(crate) fn tell(kind: &str, fields: Value) -> Result<()> {
    let mut out = Vec::new();
    print_event(&mut out, kind, fields);
    output::print(&out).map(drop)
}

/// Prints text, unless told to be quiet.
pub(crate) fn say(text: &str, global: &Global) -> Result<()> {
    if global.quiet { Ok(()) } else { output::print(text.as_bytes()).map(drop) }
}

/// Where a certificate and its key go.
struct Pair {
    cert: PathBuf,
    key: PathBuf,
}

impl Pair {
    fn of(directory: &Path, below: &[&str], kind: &str) -> Pair {
        let directory = below.iter().fold(directory.to_path_buf(), |path, name| path.join(name));
        Pair {
            cert: directory.join(format!("{kind}cert.pem")),
            key: directory.join(format!("{kind}key.pem")),
        }
    }

    fn refuse_what_is_there(&self) -> Result<()> {
        refuse_if_there(&self.cert)?;
        refuse_if_there(&self.key)
    }

    fn write(&self, made: &Credential) -> Result<()> {
        write_new(&self.key, 0o600, made.key.to_pem().expose().as_bytes())?;
        write_new(&self.cert, 0o644, made.chain_pem().as_bytes())
    }

    fn files(&self) -> Vec<(&'static str, PathBuf)> {
        vec![("certificate", self.cert.clone()), ("key", self.key.clone())]
    }
}

/// A host by its name or its address.
fn host_name(text: &str) -> Result<AlternativeName> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(AlternativeName::Ip(address));
    }
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    // The longest that DNS has (RFC 1035, 2.3.4), and what fits into a common name (RFC 5280, A.1).
    match text.len() <= 64 && text.strip_prefix("*.").unwrap_or(text).split('.').all(is_label) {
        true => Ok(AlternativeName::Dns(text.to_ascii_lowercase())),
        false => Err(usage(format!("{text:?} is no host name of at most 64 letters, digits, - _ and ."))),
    }
}

/// A new key, or the one that was named.
fn key(named: Option<&Path>) -> Result<(SystemRandom, Key)> {
    let random = SystemRandom::new();
    let key = match named {
        None => Key::generate(Curve::P256, &random)?,
        Some(path) => {
            let text = fs::read(path).map_err(|cause| {
                Error::local_io(format!("cannot read {}", path.display()), &cause).fault(Fault::Caller)
            })?;
            Key::from_pem(&text, &random).map_err(|error| error.endpoint(path.display()))?
        }
    };
    Ok((random, key))
}

/// Writes a file that must not be there, and the directories that lead to it.
fn write_new(path: &Path, mode: u32, bytes: &[u8]) -> Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(directory);
    made.and_then(|()| file::create(path, mode, bytes)).map_err(|cause| match cause.kind() {
        io::ErrorKind::AlreadyExists => is_there(path),
        _ => Error::local_io(format!("cannot make {}", path.display()), &cause),
    })
}

fn refuse_if_there(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Ok(_) => Err(is_there(path)),
        Err(_) => Ok(()),
    }
}

fn is_there(path: &Path) -> Error {
    Error::new(ErrorKind::Precondition, format!("{} is there already", path.display()))
        .fault(Fault::Caller)
        .hint("nothing is replaced: remove it, or choose another name or directory")
}

pub(crate) fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Seconds since 1970 as people read them.
pub(crate) fn moment(time_s: i64) -> String {
    let since = Duration::from_secs(u64::try_from(time_s).unwrap_or_default());
    timestamp::format(UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH))
}

/// A path for a shell.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/.-_+,:@%=".contains(&byte);
    match text.bytes().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

pub(crate) fn usage(message: String) -> Error {
    Error::new(ErrorKind::Usage, message).fault(Fault::Caller)
}
