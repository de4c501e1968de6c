//! Connections to servers that files share which were opened with the same credentials.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gridlane_client::credentials::{Wanted, are_shown_to};
use gridlane_client::{KeptSession, authorities};
use gridlane_core::{Result, Secret, Url};
use gridlane_net::tls::Trust;
use gridlane_peer::Client;

use crate::opening::Opening;

/// Sessions that are kept. A program with more users than that makes new connections for those that it has not seen for long.
const SESSIONS_MAX: usize = 64;

static SESSIONS: Mutex<Vec<(Key, KeptSession)>> = Mutex::new(Vec::new());

/// The differences between sessions.
#[derive(Clone, PartialEq, Eq)]
struct Key {
    /// True if servers are named that are shown credentials.
    shows: bool,
    nothing: bool,
    token: Option<Secret>,
    login: Option<String>,
    /// The files with a token, a certificate, and its key.
    files: [Option<PathBuf>; 3],
    authorities: Vec<PathBuf>,
    insecure: bool,
}

/// The client for URLs that the caller named, which see its credentials.
pub(crate) fn client(urls: &[Url], opening: &Opening) -> Result<Client> {
    let Wanted { nothing, token, token_file, certificate, key, login, teller: _, sss_keytab: _ } =
        &opening.wanted;
    let key = Key {
        shows: urls.iter().any(are_shown_to),
        nothing: *nothing,
        token: token.clone(),
        login: login.clone(),
        files: [token_file.clone(), certificate.clone(), key.clone()],
        authorities: opening.authorities.clone(),
        insecure: opening.insecure,
    };
    let found = sessions().iter().find(|(of, _)| *of == key).map(|(_, kept)| kept.clone());
    if let Some(kept) = found.as_ref().filter(|kept| kept.serves(urls)) {
        return Ok(kept.client.clone());
    }
    // Files are read for it: no other thread waits meanwhile.
    let trust = Trust { insecure: opening.insecure, ..authorities(opening.authorities.clone()) };
    let (kept, _) = KeptSession::look(found, urls, &opening.wanted, trust, Vec::new())?;
    let client = kept.client.clone();
    let mut sessions = sessions();
    sessions.retain(|(of, _)| *of != key);
    if sessions.len() >= SESSIONS_MAX {
        sessions.remove(0);
    }
    sessions.push((key, kept));
    Ok(client)
}

fn sessions() -> MutexGuard<'static, Vec<(Key, KeptSession)>> {
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}
