//! Clients with the credentials that they may show to the servers that a person has named.

use std::path::PathBuf;
use std::sync::Arc;

use gridlane_core::{Result, Url};
use gridlane_net::tls::Trust;
use gridlane_net::{Dialer, Proxies};
use gridlane_peer::{Client, HostPattern, sends_password};

use crate::ANSWER_MAX;
use crate::credentials::{
    Found, Lasting, Machine as _, ThisMachine, Wanted, Warning, are_shown_to, discover, may_be_shown_to,
};

/// With the value 0 of this variable, bytes travel over root:// without a checksum for each page, as with
/// `XRD_CPUSEPGWRTRD=0`. The checksum of the whole is compared in any case.
const PAGES_VARIABLE: &str = "GRIDLANE_ROOT_PAGES";

/// Where grids keep their authorities, unless `X509_CERT_DIR` names another directory.
const GRID_AUTHORITIES: &str = "/etc/grid-security/certificates";

/// The trust in servers of a user who names these authorities beside those of the system and the grid: every certificate is
/// checked.
pub fn authorities(ca_files: Vec<PathBuf>) -> Trust {
    let named = std::env::var_os("X509_CERT_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let usual = || Some(PathBuf::from(GRID_AUTHORITIES)).filter(|dir| dir.read_dir().is_ok());
    Trust { ca_files, ca_dir: named.or_else(usual), ..Trust::default() }
}

/// A client, and what is to be known of its credentials.
pub struct Session {
    /// The client.
    pub client: Client,
    /// The [user](Found::user) whom its credentials name.
    pub user: String,
    /// The end of what it shows; `None` when it shows nothing.
    pub lasting: Option<Lasting>,
    /// Warnings about credentials that are shown, or are not.
    pub warnings: Vec<Warning>,
    /// The credentials that the named servers are shown, as they are called in messages.
    pub shown: Vec<String>,
    /// Credentials that were passed over although they are there, and why.
    pub passed_over: Vec<String>,
    /// All that servers may see, to compare.
    pub(crate) found: Found,
}

/// Makes the client that all calls share, without credentials. It goes through the proxies that the environment names.
pub fn connect(trust: Trust) -> Client {
    connect_as(trust, &Found::default(), Vec::new())
}

/// The way to servers and issuers that this trust and the environment's proxies make.
pub fn dialer(trust: Trust) -> Dialer {
    let proxies = Proxies::from_environment(|name| std::env::var(name).ok());
    Dialer::new(trust).proxies(proxies)
}

/// Makes a client that shows what was found to the endpoints that are named to its `credentials`, and to hosts that
/// `forward_to` names.
fn connect_as(trust: Trust, found: &Found, forward_to: Vec<HostPattern>) -> Client {
    let dialer = dialer(trust);
    let credentials = found.credentials(Arc::new(ThisMachine), forward_to);
    let mut client = Client::new(dialer, ANSWER_MAX).credentials(credentials);
    client.root.pages = std::env::var_os(PAGES_VARIABLE).is_none_or(|value| value != "0");
    client
}

/// A client for the URLs that a person named. Nothing is sent to them; the issuer of a login is asked for a token, if there
/// is none that is good. A credential that would be shown and is not valid is an
/// error; one that would not is of no interest.
pub fn session(urls: &[Url], wanted: &Wanted, trust: Trust, forward_to: Vec<HostPattern>) -> Result<Session> {
    let forwards = !forward_to.is_empty() && urls.iter().any(|url| url.scheme().is_http());
    let is_shown = forwards || urls.iter().any(are_shown_to);
    let mut warnings = Vec::new();
    let found = match discover(wanted, &ThisMachine).and_then(|found| found.usable(ThisMachine.now_s())) {
        Err(error) if is_shown => return Err(error),
        Err(error) => {
            if urls.iter().any(may_be_shown_to) {
                warnings.push(Warning::unshown(&error));
            }
            Found::default()
        }
        Ok(found) => found,
    };
    let found = found.signed_in(wanted, dialer(trust.clone()), is_shown)?;
    let (client, user) = (connect_as(trust, &found, forward_to), found.user());
    urls.iter().for_each(|url| client.credentials.name(url));
    let lasting = found.lasting().filter(|_| is_shown);
    let (mut shown, mut passed_over) = (Vec::new(), Vec::new());
    if is_shown {
        shown = found.names();
        (warnings, passed_over) = (found.warnings.clone(), found.passed_over.clone());
    }
    Ok(Session { client, user, lasting, warnings, shown, passed_over, found })
}

/// The same for what says nothing about credentials and goes on without: what cannot be used is not shown.
pub fn quiet_session(urls: &[Url], wanted: &Wanted, trust: Trust, forward_to: Vec<HostPattern>) -> Client {
    let found = discover(wanted, &ThisMachine).and_then(|found| found.usable(ThisMachine.now_s()));
    let found =
        found.and_then(|found| found.signed_in(wanted, dialer(trust.clone()), urls.iter().any(are_shown_to)));
    let client = connect_as(trust, &found.unwrap_or_default(), forward_to);
    urls.iter().for_each(|url| client.credentials.name(url));
    client
}

/// Warnings about users and passwords in URLs that are not sent.
pub fn unsent(urls: &[Url]) -> Vec<Warning> {
    let is_kept = |url: &&Url| url.scheme().is_http() && url.credentials().is_some() && !sends_password(url);
    urls.iter().filter(is_kept).map(Warning::unsent).collect()
}
