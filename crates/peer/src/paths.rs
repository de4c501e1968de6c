//! Knowledge of the paths to servers: what a connection that is there already can do at once.

use std::time::Duration;

use gridlane_core::Endpoint;

use crate::memory::Memory;

/// The paths to all servers, shared by the clones of a client.
pub type Paths = Memory<Endpoint, Path>;

/// Figures of the connections to one server in the last copy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Path {
    /// Rate of one connection, in bytes per second, if it brought enough to tell.
    pub rate_bytes_per_s: Option<f64>,
    /// Smallest round trip seen.
    pub round_trip: Option<Duration>,
    /// Size of the file, in bytes.
    pub file_bytes: Option<u64>,
    /// Its answers come in good order while more requests are under way.
    pub pipelines: bool,
}

impl Path {
    /// Notes what a copy has seen; a rate or a round trip that it did not see stays as it was.
    pub fn update(&mut self, seen: Path) {
        self.rate_bytes_per_s = seen.rate_bytes_per_s.or(self.rate_bytes_per_s);
        self.round_trip = seen.round_trip.or(self.round_trip);
        self.file_bytes = seen.file_bytes.or(self.file_bytes);
        self.pipelines = seen.pipelines;
    }
}

#[cfg(test)]
mod tests {
    use gridlane_core::Url;

    use super::*;

    #[test]
    fn what_a_copy_did_not_see_stays_known() {
        let at = |text: &str| Url::parse_absolute(text).unwrap().endpoint();
        let paths = Paths::default();
        let rate_bytes_per_s = Some(5.0);
        let file_bytes = Some(7);
        paths.learn(&at("https://H/a"), |path| {
            path.update(Path { rate_bytes_per_s, file_bytes, ..Path::default() })
        });
        paths.learn(&at("https://h/b"), |path| path.update(Path { pipelines: true, ..Path::default() }));
        let both = Path { rate_bytes_per_s, round_trip: None, file_bytes, pipelines: true };
        assert_eq!(paths.of(&at("https://h/c")), both);
        assert_eq!(paths.of(&at("https://h:8443/c")), Path::default());
    }
}
