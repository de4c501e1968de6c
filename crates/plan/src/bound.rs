//! What no scheduler can beat: the fluid bound of a set of paths.
//!
//! A cold connection loses `s = (h + max(0, n - 1)) R` seconds before it runs at its full rate `B`: `h`
//! round trips `R` of handshakes and request, and slow start, which needs `n = log2(B R / W0)` rounds
//! from the initial window `W0` and in them delivers about one round trip's worth of the full rate.
//! Behind that the path carries `B (t - s)` bytes up to time `t`. The bound is the smallest `T` by which
//! all paths together carry the object and the client, which takes `C` bytes per second from the first
//! arrival on, has taken it:
//!
//! ```text
//! sum of B_i max(0, T - s_i) >= S    and    C (T - min s_i) >= S
//! ```

use crate::settings::INITIAL_WINDOW_BYTES;

/// One way from a source to this client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourcePath {
    /// The most that the path or the server carries, payload only.
    pub rate_bytes_per_s: f64,
    /// From a question to the first byte of its answer.
    pub round_trip_s: f64,
    /// Round trips up to and including the one that brings the first byte of data: 2 for HTTP over a
    /// new TCP connection, 3 with TLS 1.3, 1 on a connection that is open.
    pub handshake_round_trips: f64,
}

impl SourcePath {
    /// Time lost before the path runs at its full rate.
    pub fn start_up_s(&self) -> f64 {
        let rounds = (self.rate_bytes_per_s * self.round_trip_s / INITIAL_WINDOW_BYTES).log2();
        (self.handshake_round_trips + (rounds - 1.0).max(0.0)) * self.round_trip_s
    }
}

/// The time in which `size_bytes` can be had at best from `paths` together, by a client that takes
/// `client_rate_bytes_per_s` (the smallest of card, disk, cipher and checksum; `None`: no limit).
///
/// `None` when no path carries anything or the client takes nothing, unless there is nothing to carry.
pub fn fluid_bound_s(
    size_bytes: u64,
    paths: &[SourcePath],
    client_rate_bytes_per_s: Option<f64>,
) -> Option<f64> {
    if size_bytes == 0 {
        return Some(0.0);
    }
    let size = size_bytes as f64;
    let mut paths: Vec<(f64, f64)> = paths
        .iter()
        .filter(|path| path.rate_bytes_per_s > 0.0)
        .map(|path| (path.start_up_s(), path.rate_bytes_per_s))
        .collect();
    paths.sort_by(|a, b| a.0.total_cmp(&b.0));
    let first_s = paths.first()?.0;
    let fetched_s = level(&paths, size);
    match client_rate_bytes_per_s {
        None => Some(fetched_s),
        Some(rate) if rate > 0.0 => Some(fetched_s.max(first_s + size / rate)),
        Some(_) => None,
    }
}

/// The smallest `T` with `sum of rate max(0, T - start) >= amount`, for `(start, rate)` pairs in
/// ascending order of start; infinite when there is none.
///
/// Paths are taken in one by one: those so far are the set that counts if they are done before the
/// next one starts.
pub(crate) fn level(paths: &[(f64, f64)], amount: f64) -> f64 {
    let (mut rates, mut head_starts) = (0.0, 0.0);
    let mut at = f64::INFINITY;
    for &(start, rate) in paths {
        if at <= start {
            break;
        }
        rates += rate;
        head_starts += rate * start;
        at = (amount + head_starts) / rates;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(rate_bytes_per_s: f64, round_trip_s: f64, handshake_round_trips: f64) -> SourcePath {
        SourcePath { rate_bytes_per_s, round_trip_s, handshake_round_trips }
    }

    /// A path of `rate` that loses exactly `start_s`: its window of 1460 B needs no slow start.
    fn plain(rate: f64, start_s: f64) -> SourcePath {
        path(rate, 1e-6, start_s / 1e-6)
    }

    fn assert_near(found: Option<f64>, expected: f64) {
        let found = found.expect("there is a bound");
        assert!((found - expected).abs() < 1e-9 * expected.max(1.0), "{found} is not {expected}");
    }

    #[test]
    fn slow_start_costs_its_rounds_less_one() {
        // B R = 16 W0: four rounds, of which three are lost, behind three of handshake.
        let path = path(16.0 * 14_600.0 / 0.1, 0.1, 3.0);
        assert!((path.start_up_s() - 0.6).abs() < 1e-12);
        // 1 MB/s: 1 000 000 B behind the 0.6 s, at 2 336 000 B/s.
        assert_near(fluid_bound_s(1_000_000, &[path], None), 0.6 + 1_000_000.0 / 2_336_000.0);
    }

    #[test]
    fn a_path_below_the_initial_window_pays_only_its_handshake() {
        assert!((path(14_600.0, 0.5, 2.0).start_up_s() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn equal_paths_add_up() {
        let paths = [plain(100e6, 0.03); 3];
        assert_near(fluid_bound_s(10_000_000_000, &paths, None), 0.03 + 10e9 / 300e6);
    }

    #[test]
    fn a_path_that_starts_too_late_does_not_count() {
        // 10 MB are here after 0.1 s of the first path; the second starts at 0.45 s.
        let paths = [plain(10e6, 0.45), plain(100e6, 0.0)];
        assert_near(fluid_bound_s(10_000_000, &paths, None), 0.1);
        // 100 MB: (100 MB + 10 MB/s x 0.45 s) / 110 MB/s = 0.95 s.
        assert_near(fluid_bound_s(100_000_000, &paths, None), 0.95);
    }

    #[test]
    fn three_unequal_paths_by_hand() {
        // (1 GB + 100 x 0.003 + 50 x 0.09 + 10 x 0.45 MB) / 160 MB/s
        let paths = [plain(100e6, 0.003), plain(50e6, 0.09), plain(10e6, 0.45)];
        assert_near(fluid_bound_s(1_000_000_000, &paths, None), 1_009_300_000.0 / 160e6);
    }

    #[test]
    fn the_client_takes_from_the_first_arrival_on() {
        let paths = [plain(100e6, 0.5), plain(100e6, 0.1)];
        assert_near(fluid_bound_s(100_000_000, &paths, Some(50e6)), 0.1 + 2.0);
    }

    #[test]
    fn without_a_path_there_is_no_bound() {
        assert_eq!(fluid_bound_s(1, &[], None), None);
        assert_eq!(fluid_bound_s(1, &[plain(0.0, 0.0)], None), None);
        assert_eq!(fluid_bound_s(1, &[plain(1.0, 0.0)], Some(0.0)), None);
        assert_eq!(fluid_bound_s(0, &[], None), Some(0.0));
    }
}
