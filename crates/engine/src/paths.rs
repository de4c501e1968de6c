//! What a client remembers of the paths to servers: what a connection that is there already can do at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gridlane_core::{Scheme, Url};

/// Servers that are remembered; when there are more, all are forgotten.
const SERVERS_KEPT: usize = 1024;

/// Shared by the clones of a client.
#[derive(Clone, Default)]
pub(crate) struct Paths(Arc<Mutex<HashMap<Server, Path>>>);

type Server = (Scheme, String, u16);

/// What the connections to one server did in the last copy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Path {
    /// What one connection brought, in bytes per second, if it brought enough to tell.
    pub(crate) rate_bytes_per_s: Option<f64>,
    /// Smallest round trip seen.
    pub(crate) round_trip: Option<Duration>,
    /// Its answers come in good order while more requests are under way.
    pub(crate) pipelines: bool,
}

impl Paths {
    /// What is known of the way to the server of `url`.
    pub(crate) fn of(&self, url: &Url) -> Path {
        self.all().get(&server(url)).copied().unwrap_or_default()
    }

    /// Notes what a copy has seen; a rate that it did not see stays as it was.
    pub(crate) fn learn(&self, url: &Url, seen: Path) {
        let (server, mut all) = (server(url), self.all());
        if all.len() >= SERVERS_KEPT && !all.contains_key(&server) {
            all.clear();
        }
        let path = all.entry(server).or_default();
        path.rate_bytes_per_s = seen.rate_bytes_per_s.or(path.rate_bytes_per_s);
        path.round_trip = seen.round_trip.or(path.round_trip);
        path.pipelines = seen.pipelines;
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Server, Path>> {
        // A panic elsewhere leaves nothing half-done here.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn server(url: &Url) -> Server {
    (url.scheme(), url.host().to_ascii_lowercase(), url.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_copy_did_not_see_stays_known() {
        let of = |text: &str| Url::parse_absolute(text).unwrap();
        let paths = Paths::default();
        let rate_bytes_per_s = Some(5.0);
        paths.learn(&of("https://H/a"), Path { rate_bytes_per_s, ..Path::default() });
        paths.learn(&of("https://h/b"), Path { pipelines: true, ..Path::default() });
        let both = Path { rate_bytes_per_s, round_trip: None, pipelines: true };
        assert_eq!(paths.of(&of("https://h/c")), both);
        assert_eq!(paths.of(&of("https://h:8443/c")), Path::default());
    }
}
