//! `gridlane pki`: its commands and options.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Days that certificates may last: a hundred years.
const DAYS_MAX: i64 = 36_525;

/// Make an authority, and certificates for test servers and users.
///
/// For a fleet of test servers with a certificate each, and for trying out rules. `init` makes an authority in a
/// directory, the other commands make certificates that it signs. The authority's key lies in that directory without a
/// passphrase: a copy of it can sign any identity. Do not make servers of real data trust it.
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
/// Its certificate, its signing policy and an empty revocation list go to DIR/certificates, its key to DIR/ca.key.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Directory that is made, with all files
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// The authority's name; names in its certificates begin with the same parts, without the last one
    #[arg(
        long,
        value_name = "NAME",
        default_value = "/DC=org/DC=example/CN=Test CA",
        env = "GRIDLANE_PKI_NAME"
    )]
    pub(crate) name: String,
    /// Days that it lasts
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
    /// Directory of the authority, as `init` made it
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Names or addresses of the hosts
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Another name or address of each of them: localhost, 127.0.0.1 (repeatable)
    #[arg(long, value_name = "NAME|IP", env = "GRIDLANE_PKI_ALIAS", value_delimiter = ',')]
    pub(crate) alias: Vec<String>,
    /// Days that it lasts; never longer than the authority
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
    /// Directory of the authority, as `init` made it
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// The user's name: "Ada Lovelace"
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Days that it lasts; never longer than the authority
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(i64).range(1..=DAYS_MAX), env = "GRIDLANE_PKI_DAYS")]
    pub(crate) days: i64,
    /// Use this private key (PEM) and make none: an RSA key, for programs that know nothing else
    #[arg(long, value_name = "FILE", env = "GRIDLANE_PKI_KEY")]
    pub(crate) key: Option<PathBuf>,
}

/// Make a VOMS server's certificate and key for a virtual organisation.
///
/// Certificate and key in DIR/voms/VO: vomscert.pem and vomskey.pem, for `gridlane auth proxy --voms VO`, which puts
/// groups and roles into a proxy as the server would. DIR/vomsdir is for X509_VOMS_DIR: it names the VO's servers.
/// No server is started.
#[derive(Debug, Args)]
pub(crate) struct VomsArgs {
    /// Directory of the authority, as `init` made it
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// The virtual organisation
    #[arg(value_name = "VO")]
    pub(crate) vo: String,
    /// The server's name [default: voms.VO.example.org]
    #[arg(long, value_name = "NAME", env = "GRIDLANE_PKI_VOMS_HOST")]
    pub(crate) host: Option<String>,
    /// Days that it lasts; never longer than the authority
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(i64).range(1..=DAYS_MAX), env = "GRIDLANE_PKI_DAYS")]
    pub(crate) days: i64,
    /// Use this private key (PEM) and make none: an RSA key, for programs that know nothing else
    #[arg(long, value_name = "FILE", env = "GRIDLANE_PKI_KEY")]
    pub(crate) key: Option<PathBuf>,
}

/// Revoke a certificate.
///
/// It is added to the revocation list in DIR/certificates, which servers read from there.
#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// Directory of the authority, as `init` made it
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// The certificate (PEM)
    #[arg(value_name = "FILE")]
    pub(crate) certificate: PathBuf,
}
