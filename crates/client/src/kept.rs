//! Sessions of a program that lives longer than credentials do: they are kept, with their connections, and credentials are looked for
//! again from time to time.

use std::time::{Duration, Instant};

use gridlane_core::{Result, Url};
use gridlane_net::tls::Trust;
use gridlane_peer::{Client, HostPattern};

use crate::Session;
use crate::credentials::{Found, Lasting, Wanted, Warning};

/// Time after which credentials are looked for again: a proxy may be renewed beside the program.
const LOOKED_MAX: Duration = Duration::from_secs(60);

/// A session that is used again.
#[derive(Clone)]
pub struct KeptSession {
    /// The client, with its connections.
    pub client: Client,
    /// The end of what it shows; `None` when it shows nothing.
    pub lasting: Option<Lasting>,
    /// The credentials that servers may see.
    found: Found,
    /// The time of the last look for them.
    looked: Instant,
}

impl KeptSession {
    /// True if credentials need not be looked for yet; then `urls`, which a person has named, see them from now on.
    pub fn serves(&self, urls: &[Url]) -> bool {
        let is_fresh = self.looked.elapsed() < LOOKED_MAX;
        if is_fresh {
            self.name(urls);
        }
        is_fresh
    }

    /// Looks for credentials (again), as [`session`](crate::session) does, which reads files. Where they are the same as `before`,
    /// the connections stay; otherwise there is a new client, with warnings.
    ///
    /// # Errors
    ///
    /// As [`session`](crate::session) has them.
    pub fn look(
        before: Option<KeptSession>,
        urls: &[Url],
        wanted: &Wanted,
        trust: Trust,
        forward_to: Vec<HostPattern>,
    ) -> Result<(KeptSession, Vec<Warning>)> {
        let Session { client, lasting, warnings, found, .. } =
            crate::session(urls, wanted, trust, forward_to)?;
        let looked = Instant::now();
        Ok(match before {
            Some(kept) if kept.found.is_same(&found) => {
                kept.name(urls);
                (KeptSession { looked, lasting, found, ..kept }, Vec::new())
            }
            _ => (KeptSession { client, lasting, found, looked }, warnings),
        })
    }

    fn name(&self, urls: &[Url]) {
        urls.iter().for_each(|url| self.client.credentials.name(url));
    }
}
