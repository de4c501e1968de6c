//! The bounds of small files in scarce resources: descriptors above all.

use std::time::Duration;

use gridlane_core::limits::{
    DIRECTORIES_OPEN_MAX, SMALL_FETCHERS_MAX, SMALL_FILES_OPEN_MAX, SMALL_ORIGINS_MAX,
};
use rustix::process::{Resource, getrlimit};

/// A round trip from which on a path is a long one.
const LONG_ROUND_TRIP: Duration = Duration::from_millis(5);

/// Shares of the descriptors that a process may have open: a quarter for files, a quarter for connections, an eighth for
/// directories. The rest is for listings, for other copies, and for what rests in the pool.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub(super) files_open_max: usize,
    /// Of one origin.
    pub(super) fetchers_max: usize,
    pub(super) origins_max: usize,
    pub(super) directories_open_max: usize,
    /// From it on a path is a long one. Tests choose another.
    pub(super) long_round_trip: Duration,
}

impl Bounds {
    pub(super) fn of_process() -> Bounds {
        Bounds::of(getrlimit(Resource::Nofile).current)
    }

    /// For so many descriptors; `None`: there is no limit.
    pub(super) fn of(descriptors: Option<u64>) -> Bounds {
        let descriptors = descriptors.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
        let share = |of: usize, most: usize| (descriptors / of).clamp(1, most);
        let fetchers_max = share(16, SMALL_FETCHERS_MAX);
        Bounds {
            files_open_max: share(4, SMALL_FILES_OPEN_MAX),
            fetchers_max,
            origins_max: share(4 * fetchers_max, SMALL_ORIGINS_MAX),
            directories_open_max: share(8, DIRECTORIES_OPEN_MAX),
            long_round_trip: LONG_ROUND_TRIP,
        }
    }

    pub(super) fn is_long(&self, round_trip: Duration) -> bool {
        round_trip > self.long_round_trip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_descriptors_are_left_where_there_are_few() {
        for descriptors in [64, 100, 256, 1024, 4096, 1 << 20] {
            let Bounds { files_open_max, fetchers_max, origins_max, directories_open_max, .. } =
                Bounds::of(Some(descriptors));
            let all = (files_open_max + fetchers_max * origins_max + directories_open_max) as u64;
            assert!(all <= descriptors * 5 / 8, "{all} of {descriptors}");
        }
        let bounds = Bounds::of(Some(1024));
        assert_eq!((bounds.fetchers_max, bounds.origins_max), (SMALL_FETCHERS_MAX, SMALL_ORIGINS_MAX));
        assert_eq!(Bounds::of(None).files_open_max, SMALL_FILES_OPEN_MAX);
    }
}
