//! The client of a command, and the words about its credentials.

use gridlane_client::credentials::{Wanted, Warning};
use gridlane_client::login::Teller;
use gridlane_client::{Session, quiet_session, session, unsent};
use gridlane_core::{Result, Url};
use gridlane_peer::Client;

use crate::args::{CredentialArgs, Global};
use crate::files::parse;
use crate::output::{Output, tell};

/// The client for URLs that a person typed. Nothing is sent. A credential that would be shown and is not valid is an
/// error; one that would not is of no interest.
pub(crate) fn connect<'a>(
    typed: impl IntoIterator<Item = &'a String>,
    credentials: &CredentialArgs,
    global: &Global,
) -> Result<Session> {
    connect_saying(typed, credentials, global, false)
}

/// The same where warnings may not go to standard output, as bytes of a file do.
pub(crate) fn connect_saying<'a>(
    typed: impl IntoIterator<Item = &'a String>,
    credentials: &CredentialArgs,
    global: &Global,
    data_on_stdout: bool,
) -> Result<Session> {
    connect_to(&urls(typed), credentials, global, data_on_stdout)
}

/// The same for URLs that were read already.
pub(crate) fn connect_to(
    urls: &[Url],
    credentials: &CredentialArgs,
    global: &Global,
    data_on_stdout: bool,
) -> Result<Session> {
    let output = Output::new(global);
    unsent(urls).iter().for_each(|warning| output.warning(warning, data_on_stdout));
    let teller = {
        let output = output.clone();
        Teller::new(move |error| output.warning(&Warning::of(error), data_on_stdout))
    };
    let wanted = Wanted { teller, ..credentials.wanted() };
    let session = session(urls, &wanted, global.trust(), credentials.forward_credentials_to.clone())?;
    session.warnings.iter().for_each(|warning| output.warning(warning, data_on_stdout));
    if output.verbose {
        for name in &session.shown {
            tell!("gridlane: sent to the servers that are named here: {name}");
        }
        session.passed_over.iter().for_each(|text| tell!("gridlane: passed over: {text}"));
    }
    Ok(session)
}

/// The same for a shell that completes: what cannot be used is not shown, and nothing is said.
pub(crate) fn connect_quietly(url: &Url, trust: gridlane_net::tls::Trust) -> Client {
    quiet_session(std::slice::from_ref(url), &CredentialArgs::default().wanted(), trust, Vec::new())
}

/// The client of `doctor`, which tells of the credentials by itself and goes on without when something is wrong with them.
pub(crate) fn for_doctor(
    typed: &[String],
    credentials: &CredentialArgs,
    trust: &gridlane_net::tls::Trust,
) -> Client {
    quiet_session(
        &urls(typed),
        &credentials.wanted(),
        trust.clone(),
        credentials.forward_credentials_to.clone(),
    )
}

/// The URLs of what was typed: an error of the rest is told where it is used.
fn urls<'a>(typed: impl IntoIterator<Item = &'a String>) -> Vec<Url> {
    typed.into_iter().filter_map(|text| parse(text).ok()).collect()
}
