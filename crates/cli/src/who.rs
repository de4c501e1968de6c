//! Who asks: the client of a command, with the credentials that it may show to the servers that a person has named.

use gridlane_client::credentials::{
    Found, Lasting, Machine as _, ThisMachine, Warning, are_shown_to, discover, may_be_shown_to,
};
use gridlane_client::{TreeEvent, TreeObserver};
use gridlane_core::{Result, Url};
use gridlane_engine::{Event, Observer};
use gridlane_peer::{Client, sends_password};

use crate::args::{Global, WhoArgs};
use crate::files::parse;
use crate::output::{Output, tell};

/// A client, and what is to be known of its credentials.
pub(crate) struct Session {
    pub(crate) client: Client,
    /// How long what it shows lasts; `None` when it shows nothing.
    pub(crate) lasting: Option<Lasting>,
}

/// The client for URLs that a person typed. Nothing is sent. A credential that would be shown and is not valid is an
/// error; one that would not is of no interest.
pub(crate) fn connect<'a>(
    typed: impl IntoIterator<Item = &'a String>,
    who: &WhoArgs,
    global: &Global,
) -> Result<Session> {
    connect_saying(typed, who, global, false)
}

/// The same where warnings may not go to standard output, as bytes of a file do.
pub(crate) fn connect_saying<'a>(
    typed: impl IntoIterator<Item = &'a String>,
    who: &WhoArgs,
    global: &Global,
    data_on_stdout: bool,
) -> Result<Session> {
    // Whoever uses them says what is wrong with them.
    let urls: Vec<Url> = typed.into_iter().filter_map(|text| parse(text).ok()).collect();
    let forwards = !who.forward_credentials_to.is_empty() && urls.iter().any(|url| url.scheme().is_http());
    let is_shown = forwards || urls.iter().any(are_shown_to);
    let output = Output::new(global);
    let is_kept = |url: &&Url| url.scheme().is_http() && url.credentials().is_some() && !sends_password(url);
    urls.iter().filter(is_kept).for_each(|url| output.warning(&Warning::unsent(url), data_on_stdout));
    let found = discover(&who.wanted(), &ThisMachine).and_then(|found| found.usable(ThisMachine.now_s()));
    let found = match found {
        Err(error) if is_shown => return Err(error),
        Err(error) => {
            if urls.iter().any(may_be_shown_to) {
                output.warning(&Warning::unshown(&error), data_on_stdout);
            }
            Found::default()
        }
        Ok(found) => found,
    };
    if is_shown {
        found.warnings.iter().for_each(|warning| output.warning(warning, data_on_stdout));
        if output.verbose {
            for name in found.names() {
                tell!("gridlane: shown to the servers that are named here: {name}");
            }
            found.passed_over.iter().for_each(|text| tell!("gridlane: passed over: {text}"));
        }
    }
    let client = gridlane_client::connect_as(global.trust(), &found, who.forward_credentials_to.clone());
    urls.iter().for_each(|url| client.credentials.name(url));
    Ok(Session { client, lasting: found.lasting().filter(|_| is_shown) })
}

/// The same for a shell that completes: what cannot be used is not shown, and nothing is said.
pub(crate) fn connect_quietly(url: &Url, trust: gridlane_net::tls::Trust) -> Client {
    let found = discover(&WhoArgs::default().wanted(), &ThisMachine);
    let found = found.and_then(|found| found.usable(ThisMachine.now_s())).unwrap_or_default();
    let client = gridlane_client::connect_as(trust, &found as &Found, Vec::new());
    client.credentials.name(url);
    client
}

/// Says a warning where the other words of a copy go.
pub(crate) trait Warns {
    fn warn(&mut self, warning: &Warning);
}

/// Warns once when a copy turns out to need its credential for longer than that lasts.
pub(crate) struct Watch {
    lasting: Option<Lasting>,
    limit_bytes_per_s: Option<u64>,
}

impl Watch {
    pub(crate) fn new(lasting: Option<Lasting>, limit_bytes_per_s: Option<u64>) -> Watch {
        Watch { lasting, limit_bytes_per_s }
    }

    /// The warning, when it is time for it.
    fn needs(&mut self, size_bytes: u64) -> Option<Warning> {
        let lasting = self.lasting.as_ref()?;
        let warning = lasting.warning(size_bytes, self.limit_bytes_per_s, ThisMachine.now_s())?;
        self.lasting = None;
        Some(warning)
    }
}

/// Sees what an observer sees, before it does.
pub(crate) struct Watched<'a, O> {
    pub(crate) observer: &'a mut O,
    pub(crate) watch: &'a mut Watch,
}

impl<O: Observer + Warns> Observer for Watched<'_, O> {
    fn event(&mut self, event: &Event<'_>) {
        if let Event::Started { size_bytes } = event
            && let Some(warning) = self.watch.needs(*size_bytes)
        {
            self.observer.warn(&warning);
        }
        self.observer.event(event);
    }
}

impl<O: TreeObserver + Warns> TreeObserver for Watched<'_, O> {
    fn event(&mut self, event: &TreeEvent<'_>) {
        if let TreeEvent::Progress(snapshot) = event
            && let Some(warning) = self.watch.needs(snapshot.found_bytes.saturating_sub(snapshot.done_bytes))
        {
            self.observer.warn(&warning);
        }
        self.observer.event(event);
    }
}

/// The client of `doctor`, which tells of the credentials by itself and goes on without when something is wrong with them.
pub(crate) fn for_doctor(typed: &[String], who: &WhoArgs, trust: &gridlane_net::tls::Trust) -> Client {
    let found = discover(&who.wanted(), &ThisMachine);
    let found = found.and_then(|found| found.usable(ThisMachine.now_s())).unwrap_or_default();
    let client = gridlane_client::connect_as(trust.clone(), &found, who.forward_credentials_to.clone());
    typed.iter().filter_map(|text| parse(text).ok()).for_each(|url| client.credentials.name(&url));
    client
}
