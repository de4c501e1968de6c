//! `gridlane auth proxy`: makes a proxy of the user's certificate, and shows one.

mod keys;
mod show;
mod voms;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};
use gridlane_auth::make::{Contents, Credential, ProxyPolicy, ProxyTerms, Validity, proxy, voms_extension};
use gridlane_core::{Error, ErrorKind, Fault, Result};
use gridlane_net::file;
use ring::rand::SystemRandom;
use serde_json::json;

use crate::args::Global;
use crate::output::tell;
use crate::pki::{moment, now_s, quoted, say, tell, usage};

const HOUR_S: i64 = 3600;
/// Hours that a proxy may last: a year, more than any grid allows.
const HOURS_MAX: i64 = 8760;

/// Make a proxy of the user's certificate, or show one.
///
/// A proxy is a certificate with a key of its own that lasts for hours and stands for the user's (RFC 3820); programs of
/// the grid present it. It is written where they look for it: X509_USER_PROXY, or /tmp/x509up_uID. The key may not have
/// a passphrase.
///
/// Groups and roles of a virtual organisation are signed by its VOMS servers, which --voms asks. Their addresses are in
/// VOMS_USERCONF, or in ~/.voms/vomses, ~/.glite/vomses, /etc/vomses and /etc/grid-security/vomses, which are files or
/// directories. With the key of a test server (`gridlane pki voms`), --voms signs them here.
#[derive(Debug, Args)]
pub(crate) struct ProxyArgs {
    /// The user's certificate (PEM), or another proxy [default: X509_USER_CERT, or ~/.globus/usercert.pem]
    #[arg(long, value_name = "FILE", env = "GRIDLANE_PROXY_CERT")]
    pub(crate) cert: Option<PathBuf>,
    /// Its private key (PEM) [default: --cert if given, else X509_USER_KEY, or ~/.globus/userkey.pem]
    #[arg(long, value_name = "FILE", env = "GRIDLANE_PROXY_KEY")]
    pub(crate) key: Option<PathBuf>,
    /// File for the proxy, replaced if it exists [default: X509_USER_PROXY, or /tmp/x509up_uID]
    #[arg(long, value_name = "FILE", env = "GRIDLANE_PROXY_OUT")]
    pub(crate) out: Option<PathBuf>,
    /// Lifetime in hours; never longer than the certificate's
    #[arg(long, value_name = "HOURS", default_value_t = 12, value_parser = clap::value_parser!(i64).range(1..=HOURS_MAX), env = "GRIDLANE_PROXY_HOURS")]
    pub(crate) hours: i64,
    /// Make a limited proxy, which starts no jobs
    #[arg(long, env = "GRIDLANE_PROXY_LIMITED", value_parser = FalseyValueParser::new())]
    pub(crate) limited: bool,
    /// Number of proxies that may be made of it, one of the other [default: any number]
    #[arg(long, value_name = "N", env = "GRIDLANE_PROXY_PATH_LENGTH")]
    pub(crate) path_length: Option<u32>,
    /// Kind of the proxy's key: gsi and older programs take RSA only. auto is RSA where the user's own key is, else ECDSA
    #[arg(long, value_name = "KIND", value_enum, default_value_t = KeyType::Auto, env = "GRIDLANE_PROXY_KEY_TYPE")]
    pub(crate) key_type: KeyType,
    /// A group or role, the primary one first (repeatable): atlas, atlas:/atlas/production/Role=pilot
    #[arg(long, value_name = "VO[:FQAN]", env = "GRIDLANE_PROXY_VOMS", value_delimiter = ',')]
    pub(crate) voms: Vec<String>,
    /// File or directory with the addresses of VOMS servers, in place of all others
    #[arg(long, value_name = "FILE", env = "GRIDLANE_PROXY_VOMSES")]
    pub(crate) vomses: Option<PathBuf>,
    /// Hours for which groups and roles should count [default: those of the proxy]; servers may give less
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(i64).range(1..=HOURS_MAX), env = "GRIDLANE_PROXY_VOMS_LIFETIME")]
    pub(crate) voms_lifetime: Option<i64>,
    /// Certificate (PEM) of a test server, which signs them here: no server is asked
    #[arg(long, value_name = "FILE", requires = "voms_key", env = "GRIDLANE_PROXY_VOMS_CERT")]
    pub(crate) voms_cert: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "voms_cert", env = "GRIDLANE_PROXY_VOMS_KEY")]
    pub(crate) voms_key: Option<PathBuf>,
    /// Make nothing: show this proxy [default: --out, X509_USER_PROXY, or /tmp/x509up_uID]. Its content is not verified
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub(crate) show: Option<Option<PathBuf>>,
}

/// A kind of key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeyType {
    /// RSA where the key of the certificate is, else ECDSA
    Auto,
    /// RSA with 2048 bits
    Rsa,
    /// ECDSA P-256
    Ec,
}

pub(crate) fn run(args: &ProxyArgs, global: &Global) -> Result<ExitCode> {
    match &args.show {
        Some(file) => show::run(&file.clone().or_else(|| args.out.clone()).unwrap_or_else(place), global)?,
        None => make(args, global)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn make(args: &ProxyArgs, global: &Global) -> Result<()> {
    let (cert, key) = user_files(args)?;
    let out = args.out.clone().unwrap_or_else(place);
    refuse_to_replace_sources(
        &out,
        [Some(&cert), Some(&key), args.voms_cert.as_ref(), args.voms_key.as_ref()],
    )?;
    let issuer = read_credential(&cert, &key)?;
    let now_s = now_s();
    let own = check_time(&issuer, now_s, &cert)?;
    check_length(&issuer, &cert)?;
    let mut terms = ProxyTerms::new(Validity::from_now(now_s, args.hours * HOUR_S));
    terms.path_len = args.path_length;
    // A limited proxy makes limited ones only.
    let is_limited = issuer.contents()?.proxy_policy()? == Some(ProxyPolicy::Limited);
    if args.limited || is_limited {
        terms.policy = ProxyPolicy::Limited;
    }
    let random = SystemRandom::new();
    let key_of_proxy = keys::new_key(args.key_type, &issuer.key, &random)?;
    let user = voms::User { credential: &issuer, cert: &cert, key: &key, now_s };
    let attributes = voms::attributes(args, &user, global, &random)?;
    if !attributes.is_empty() {
        let certificates: Vec<Vec<u8>> = attributes.iter().map(|one| one.certificate.clone()).collect();
        terms.extensions = vec![voms_extension(&certificates)];
    }
    let made = proxy(&issuer, key_of_proxy, &terms, &random)?;
    file::replace(&out, 0o600, made.to_pem().expose().as_bytes())
        .map_err(|cause| Error::local_io(format!("cannot write {}", out.display()), &cause))?;
    let contents = made.contents()?;
    let not_after_s = contents.validity.not_after_s;
    if own.not_after_s < terms.validity.not_after_s && !global.quiet {
        let ends = moment(not_after_s);
        tell!("gridlane: the proxy ends with {}, {ends}, before {} hours", cert.display(), args.hours);
    }
    if global.json {
        let mut fields = json!({
            "what": "proxy", "subject": contents.subject.to_string(), "not_after_s": not_after_s,
            "files": { "proxy": out },
        });
        if !attributes.is_empty() {
            fields["vos"] = attributes.iter().map(voms::Attributes::fields).collect();
        }
        return tell("made", fields);
    }
    let said: String = attributes.iter().map(voms::Attributes::line).collect();
    let text = format!(
        "proxy: {}, until {}\n{said}  in {}\nnext:\n  gridlane auth proxy --show {}\n",
        contents.subject,
        moment(not_after_s),
        out.display(),
        quoted(&out)
    );
    say(&text, global)
}

/// Where programs look for a proxy.
fn place() -> PathBuf {
    set("X509_USER_PROXY")
        .unwrap_or_else(|| PathBuf::from(format!("/tmp/x509up_u{}", rustix::process::getuid().as_raw())))
}

fn user_files(args: &ProxyArgs) -> Result<(PathBuf, PathBuf)> {
    let globus = |name: &str| set("HOME").map(|home| home.join(".globus").join(name));
    let missing = || {
        usage("there is no certificate to make a proxy of".into()).hint("name it with --cert FILE --key FILE")
    };
    if let Some(cert) = &args.cert {
        // A proxy has its key in the same file.
        return Ok((cert.clone(), args.key.clone().unwrap_or_else(|| cert.clone())));
    }
    let cert = set("X509_USER_CERT").or_else(|| globus("usercert.pem")).ok_or_else(missing)?;
    let key = args.key.clone().or_else(|| set("X509_USER_KEY")).or_else(|| globus("userkey.pem"));
    Ok((cert, key.ok_or_else(missing)?))
}

fn set(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// A proxy in the place of the key that it was made with would be the end of that key.
fn refuse_to_replace_sources(out: &Path, sources: [Option<&PathBuf>; 4]) -> Result<()> {
    let Ok(there) = out.metadata() else { return Ok(()) };
    for source in sources.into_iter().flatten() {
        let is_same = |file: fs::Metadata| (file.dev(), file.ino()) == (there.dev(), there.ino());
        if source.metadata().is_ok_and(is_same) {
            return Err(usage(format!("the proxy would replace {}", source.display()))
                .hint("name another file with --out FILE"));
        }
    }
    Ok(())
}

fn read_credential(cert: &Path, key: &Path) -> Result<Credential> {
    let read = |path: &Path| {
        fs::read(path).map_err(|cause| {
            Error::local_io(format!("cannot read {}", path.display()), &cause)
                .fault(Fault::Caller)
                .hint("name certificate and key with --cert FILE --key FILE")
        })
    };
    let certificates = read(cert)?;
    let key_text = read(key)?;
    let mode = key.metadata().map(|file| file.mode()).unwrap_or_default();
    if mode & 0o077 != 0 {
        let what = format!("others than you may read the key {} (mode {:03o})", key.display(), mode & 0o777);
        return Err(Error::new(ErrorKind::Denied, what)
            .fault(Fault::Caller)
            .hint(format!("chmod 600 {}, and consider that it may have been read", quoted(key))));
    }
    Credential::from_pem(&certificates, &key_text, &SystemRandom::new()).map_err(|error| {
        let whose = if error.message().contains("private key") { key } else { cert };
        error.endpoint(whose.display())
    })
}

fn check_time(credential: &Credential, now_s: i64, file: &Path) -> Result<Validity> {
    let validity = credential.validity()?;
    let refused = |what: String| Err(usage(what).endpoint(file.display()));
    if validity.not_after_s < now_s {
        return refused(format!("the certificate expired {}", moment(validity.not_after_s)));
    }
    if validity.not_before_s > now_s {
        return refused(format!("the certificate is not valid before {}", moment(validity.not_before_s)));
    }
    Ok(validity)
}

/// Checks that the proxies which it is made of let one more follow: it would not be believed otherwise.
fn check_length(credential: &Credential, file: &Path) -> Result<()> {
    for (between, der) in (0u64..).zip(&credential.chain) {
        if Contents::read(der)?.proxy_path_len()?.is_some_and(|most| most <= between) {
            return Err(usage("no more proxies may be made of this one".into()).endpoint(file.display()));
        }
    }
    Ok(())
}
