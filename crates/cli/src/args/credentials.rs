//! Credentials: options of the commands that speak to servers.

use std::path::PathBuf;

use clap::Args;
use clap::builder::FalseyValueParser;
use gridlane_client::credentials::Wanted;
use gridlane_peer::HostPattern;

/// Credentials for servers, and the servers that get them.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Credentials")]
pub(crate) struct CredentialArgs {
    /// Send the token in this file, over TLS only, to the servers that are named here [default: that of BEARER_TOKEN,
    /// of BEARER_TOKEN_FILE, of bt_u$UID in $XDG_RUNTIME_DIR or /tmp]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Send tokens of this login (gridlane auth login), renewed before they end; oidc-agent:ACCOUNT for those of oidc-agent
    /// [env: GRIDLANE_LOGIN, where --token-file and --cert are not given]
    #[arg(long, value_name = "NAME", conflicts_with = "token_file")]
    pub(crate) login: Option<String>,
    /// As for --no-credentials, what is typed is stronger.
    #[arg(long = "login-by-environment", hide = true, env = "GRIDLANE_LOGIN", value_name = "NAME")]
    pub(crate) login_by_environment: Option<String>,
    /// Present the certificate or proxy in this PEM file [default, without a token: that of X509_USER_PROXY, of
    /// /tmp/x509up_u$UID, of X509_USER_CERT, of ~/.globus]
    #[arg(long, value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,
    /// The certificate's private key (PEM) [default: in the same file]
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Log in by the keys in this file to servers of root:// that share them (sss) [default: that of
    /// GRIDLANE_SSS_KEYTAB, of XrdSecSSSKT or XrdSecsssKT, of ~/.xrd]
    #[arg(long, value_name = "FILE")]
    pub(crate) sss_keytab: Option<PathBuf>,
    /// Send them to these hosts as well when redirects or metalinks lead there: names, or *.DOMAIN (repeatable)
    #[arg(long, value_name = "HOST", env = "GRIDLANE_FORWARD_CREDENTIALS_TO", value_delimiter = ',', value_parser = HostPattern::parse)]
    pub(crate) forward_credentials_to: Vec<HostPattern>,
    /// Send no credentials but those in URLs [env: GRIDLANE_NO_CREDENTIALS, where no other is named here]
    #[arg(long, conflicts_with_all = ["token_file", "cert", "login", "sss_keytab"])]
    pub(crate) no_credentials: bool,
    /// The environment's word is an argument of its own: what is typed is stronger, where two options contradict.
    #[arg(long = "no-credentials-by-environment", hide = true, env = "GRIDLANE_NO_CREDENTIALS", value_parser = FalseyValueParser::new())]
    pub(crate) no_credentials_by_environment: bool,
}

impl CredentialArgs {
    /// The credentials to look for.
    pub(crate) fn wanted(&self) -> Wanted {
        let is_named = self.token_file.is_some()
            || self.cert.is_some()
            || self.login.is_some()
            || self.sss_keytab.is_some();
        Wanted {
            nothing: self.no_credentials || self.no_credentials_by_environment && !is_named,
            token: None,
            token_file: self.token_file.clone(),
            login: self.login().map(str::to_owned),
            certificate: self.cert.clone(),
            key: self.key.clone(),
            sss_keytab: self.sss_keytab.clone(),
            ..Wanted::default()
        }
    }

    /// The login whose tokens are wanted.
    pub(crate) fn login(&self) -> Option<&str> {
        let by_environment = || {
            let is_free = self.token_file.is_none() && self.cert.is_none();
            self.login_by_environment.as_deref().filter(|name| is_free && !name.is_empty())
        };
        self.login.as_deref().or_else(by_environment)
    }
}
