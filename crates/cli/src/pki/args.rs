//! `gridlane pki`: its commands and options.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Days that certificates may last: a hundred years.
const DAYS_MAX: i64 = 36_525;

/// Make an authority, and certificates for test servers and users.
///
/// For a fleet of test servers, of which each has to be told from the others, and for trying out rules. `init` makes an
/// authority in a directory, the other commands what it vouches for. The authority's key lies in that directory without
/// a passphrase: to read it is enough to take any identity. Do not make servers of real data trust it.
///
/// DIR/certificates is a directory of authorities as the grid has them, for X509_CERT_DIR, curl --capath and XRootD.
#[derive(Debug, Args)]
pub(crate) struct PkiArgs {
    #[command(subcommand)]
    pub(crate) command: PkiCommand,
}

// Described where the options are, as `gridlane`'s commands are.
#[derive(Debug, Subcommand)]
pub(crate) enum PkiCommand {
    Init(InitArgs),
    Host(HostArgs),
    User(UserArgs),
    Voms(VomsArgs),
    Revoke(RevokeArgs),
}

/// Make an authority.
///
/// Its certificate, what it may sign, and an empty list of what it called back go to DIR/certificates, its key to
/// DIR/ca.key.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Where everything goes
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// The authority's name; what it vouches for has the same parts in front, without the last one
    #[arg(
        long,
        value_name = "NAME",
        default_value = "/DC=org/DC=example/CN=Test CA",
        env = "GRIDLANE_PKI_NAME"
    )]
    pub(crate) name: String,
    /// For so long
    #[arg(long, value_name = "DAYS", default_value_t = 3650, value_parser = clap::value_parser!(i64).range(1..=DAYS_MAX), env = "GRIDLANE_PKI_DAYS")]
    pub(crate) days: i64,
    /// Use this private key (PEM) and make none: an RSA key, for programs that know nothing else
    #[arg(long, value_name = "FILE", env = "GRIDLANE_PKI_KEY")]
    pub(crate) key: Option<PathBuf>,
}

/// Make certificates and keys of hosts.
///
/// Each in DIR/hosts/NAME: hostcert.pem and hostkey.pem, for `gridlane serve --cert FILE --key FILE`.
#[derive(Debug, Args)]
pub(crate) struct HostArgs {
    /// Where `init` made the authority
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Names or addresses that clients call the hosts by
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Another name or address of each of them: localhost, 127.0.0.1 (repeatable)
    #[arg(long, value_name = "NAME|IP", env = "GRIDLANE_PKI_ALIAS", value_delimiter = ',')]
    pub(crate) alias: Vec<String>,
    /// For so long, if the authority lasts
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(i64).range(1..=DAYS_MAX), env = "GRIDLANE_PKI_DAYS")]
    pub(crate) days: i64,
    /// Use this private key (PEM) and make none; of one host only
    #[arg(long, value_name = "FILE", env = "GRIDLANE_PKI_KEY")]
    pub(crate) key: Option<PathBuf>,
}

/// Make a certificate and key of a user.
///
/// In DIR/users/NAME: usercert.pem and userkey.pem, for `gridlane auth proxy --cert FILE --key FILE`.
#[derive(Debug, Args)]
pub(crate) struct UserArgs {
    /// Where `init` made the authority
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// The user's name: "Ada Lovelace"
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// For so long, if the authority lasts
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(i64).range(1..=DAYS_MAX), env = "GRIDLANE_PKI_DAYS")]
    pub(crate) days: i64,
    /// Use this private key (PEM) and make none: an RSA key, for programs that know nothing else
    #[arg(long, value_name = "FILE", env = "GRIDLANE_PKI_KEY")]
    pub(crate) key: Option<PathBuf>,
}

/// Make what a VOMS server of a virtual organisation has.
///
/// Certificate and key in DIR/voms/VO: vomscert.pem and vomskey.pem, for `gridlane auth proxy --voms VO`, which puts
/// groups and roles into a proxy as the server would. DIR/vomsdir is for X509_VOMS_DIR: it names the VO's servers.
/// No server is started.
#[derive(Debug, Args)]
pub(crate) struct VomsArgs {
    /// Where `init` made the authority
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// The virtual organisation
    #[arg(value_name = "VO")]
    pub(crate) vo: String,
    /// The server's name [default: voms.VO.example.org]
    #[arg(long, value_name = "NAME", env = "GRIDLANE_PKI_VOMS_HOST")]
    pub(crate) host: Option<String>,
    /// For so long, if the authority lasts
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(i64).range(1..=DAYS_MAX), env = "GRIDLANE_PKI_DAYS")]
    pub(crate) days: i64,
    /// Use this private key (PEM) and make none: an RSA key, for programs that know nothing else
    #[arg(long, value_name = "FILE", env = "GRIDLANE_PKI_KEY")]
    pub(crate) key: Option<PathBuf>,
}

/// Call a certificate back.
///
/// It is added to the list in DIR/certificates, which servers read from there.
#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// Where `init` made the authority
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// The certificate (PEM)
    #[arg(value_name = "FILE")]
    pub(crate) certificate: PathBuf,
}
