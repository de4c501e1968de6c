//! Knowledge of the paths to servers: what a connection that is there already can do at once.

use std::time::{Duration, Instant};

use gridlane_core::Endpoint;
use gridlane_core::limits::READ_KNOWN_SHARED;

use crate::memory::{Asked, Memory};

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

/// The paths of files that were read here and there, to all servers, shared by the clones of a client.
pub type ReadPaths = Memory<Asked, ReadPath>;

/// A figure, and the moment at which it was measured.
pub type Measured = (f64, Instant);

/// What files that were read here and there have shown of the path to a server, and of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReadPath {
    /// Rate of all connections of a file together, in bytes per second.
    pub rate_bytes_per_s: Option<Measured>,
    /// Round trip, in seconds.
    pub round_trip_s: Option<Measured>,
    /// Cost of an element of a vector, in seconds.
    pub element_s: Option<Measured>,
    /// When it was last seen to ignore ranges.
    pub ignored_ranges_at: Option<Instant>,
    /// When it was last seen to have no vectors.
    pub refused_vectors_at: Option<Instant>,
    /// Elements of a vector, and bytes of each, that it has said it takes.
    pub vector_limits: Option<(Option<usize>, Option<u64>)>,
}

impl ReadPath {
    /// Notes what a file has seen; what it did not see stays as it was. Of rates of files that were read at the same time the
    /// largest counts.
    pub fn update(&mut self, seen: ReadPath) {
        self.rate_bytes_per_s = match (self.rate_bytes_per_s, seen.rate_bytes_per_s) {
            (Some((old, since)), Some((new, at)))
                if old > new && at.saturating_duration_since(since) < READ_KNOWN_SHARED =>
            {
                Some((old, since))
            }
            (old, new) => new.or(old),
        };
        self.round_trip_s = seen.round_trip_s.or(self.round_trip_s);
        self.element_s = seen.element_s.or(self.element_s);
        self.ignored_ranges_at = seen.ignored_ranges_at.or(self.ignored_ranges_at);
        self.refused_vectors_at = seen.refused_vectors_at.or(self.refused_vectors_at);
        self.vector_limits = seen.vector_limits.or(self.vector_limits);
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

    #[test]
    fn files_that_share_a_path_do_not_make_it_slow() {
        let (mut path, now) = (ReadPath::default(), Instant::now());
        let seen =
            |rate: f64, at: Instant| ReadPath { rate_bytes_per_s: Some((rate, at)), ..ReadPath::default() };
        path.update(seen(80e6, now));
        path.update(seen(10e6, now + READ_KNOWN_SHARED / 2));
        assert_eq!(path.rate_bytes_per_s, Some((80e6, now)));
        path.update(seen(90e6, now + READ_KNOWN_SHARED / 2));
        path.update(ReadPath { round_trip_s: Some((0.1, now)), ..ReadPath::default() });
        assert_eq!(path.rate_bytes_per_s, Some((90e6, now + READ_KNOWN_SHARED / 2)));
        path.update(seen(10e6, now + 2 * READ_KNOWN_SHARED));
        assert_eq!(path.rate_bytes_per_s, Some((10e6, now + 2 * READ_KNOWN_SHARED)), "paths change");
        assert_eq!(path.round_trip_s, Some((0.1, now)));
    }
}
