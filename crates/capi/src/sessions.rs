//! Connections to servers that files share which were opened with the same credentials.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridlane_client::credentials::{Lasting, Wanted, are_shown_to};
use gridlane_client::{Session, authorities, session};
use gridlane_core::{Result, Secret, Url};
use gridlane_net::tls::Trust;
use gridlane_peer::Client;

use crate::opening::Opening;

/// Time after which credentials are looked for again: a program may live longer than a proxy, which is renewed beside it.
const LOOKED_MAX: Duration = Duration::from_secs(60);
/// Sessions that are kept. A program with more users than that makes new connections for those that it has not seen for long.
const SESSIONS_MAX: usize = 64;

static SESSIONS: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// What sessions differ by.
#[derive(Clone, PartialEq, Eq)]
struct Key {
    /// Whether servers are named that are shown credentials.
    shows: bool,
    nothing: bool,
    token: Option<Secret>,
    /// The files with a token, a certificate, and its key.
    files: [Option<PathBuf>; 3],
    authorities: Vec<PathBuf>,
    insecure: bool,
}

#[derive(Clone)]
struct Known {
    key: Key,
    client: Client,
    lasting: Option<Lasting>,
    /// Names of the credentials that are shown.
    shown: Vec<String>,
    /// The time of the last look for them.
    looked: Instant,
}

/// The client for URLs that the caller named, which see its credentials.
pub(crate) fn client(urls: &[Url], opening: &Opening) -> Result<Client> {
    let Wanted { nothing, token, token_file, certificate, key } = &opening.wanted;
    let key = Key {
        shows: urls.iter().any(are_shown_to),
        nothing: *nothing,
        token: token.clone(),
        files: [token_file.clone(), certificate.clone(), key.clone()],
        authorities: opening.authorities.clone(),
        insecure: opening.insecure,
    };
    let found = sessions().iter().find(|known| known.key == key).cloned();
    if let Some(known) = found.as_ref().filter(|known| known.looked.elapsed() < LOOKED_MAX) {
        urls.iter().for_each(|url| known.client.credentials.name(url));
        return Ok(known.client.clone());
    }
    // Files are read for it: nobody else waits meanwhile.
    let trust = Trust { insecure: opening.insecure, ..authorities(opening.authorities.clone()) };
    let Session { client, lasting, shown, .. } = session(urls, &opening.wanted, trust, Vec::new())?;
    let looked = Instant::now();
    let known = match found {
        // The same as before: its connections stay.
        Some(known) if known.shown == shown && known.lasting == lasting => {
            urls.iter().for_each(|url| known.client.credentials.name(url));
            Known { looked, ..known }
        }
        _ => Known { key, client, lasting, shown, looked },
    };
    let client = known.client.clone();
    let mut sessions = sessions();
    sessions.retain(|other| other.key != known.key);
    if sessions.len() >= SESSIONS_MAX {
        sessions.remove(0);
    }
    sessions.push(known);
    Ok(client)
}

fn sessions() -> MutexGuard<'static, Vec<Known>> {
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}
