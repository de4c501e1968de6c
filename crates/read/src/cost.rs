//! The cost model: the time that a way of bringing bytes takes on a path.
//!
//! R is the round trip, B the rate, c the cost of an element at both ends, S the time of slow start on k connections, each of
//! which begins with 14.6 kB and doubles each R until together they fill the path. A size, a number of reads and these give
//! the time of every policy; the reader compares them, and merges two neighbours when their gap costs less than an element.

/// Bytes that a sender has under way before the first acknowledgement: ten segments (RFC 6928).
pub const INITIAL_WINDOW_BYTES: f64 = 14_600.0;

/// A path, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path {
    /// From a question to its answer, in seconds: R.
    pub round_trip_s: f64,
    /// All connections together, in bytes per second: B.
    pub rate_bytes_per_s: f64,
    /// Cost of an element, in seconds: c.
    pub element_s: f64,
    /// Connections: k.
    pub lanes: usize,
    /// Bytes that all connections together may have under way now: k x 14.6 kB where they are cold.
    pub window_bytes: f64,
}

impl Path {
    /// Bytes that the path holds: B x R.
    pub fn holds_bytes(&self) -> f64 {
        self.rate_bytes_per_s * self.round_trip_s
    }

    /// Time in which `bytes` come without a pause, slow start included and the first round trip not: S, in seconds.
    pub fn transfer_s(&self, bytes: f64) -> f64 {
        let window = self.window_bytes.max(INITIAL_WINDOW_BYTES);
        let rounds = (self.holds_bytes() / window).log2().max(0.0);
        let grown_bytes = window * (rounds.exp2() - 1.0);
        if bytes <= grown_bytes {
            return (bytes / window + 1.0).log2() * self.round_trip_s;
        }
        rounds * self.round_trip_s + (bytes - grown_bytes) / self.rate_bytes_per_s
    }

    /// The time of `reads` reads of `bytes` bytes each, one after the other: n (R + s / B + c), in seconds.
    pub fn one_at_a_time_s(&self, reads: f64, bytes: f64) -> f64 {
        reads * (self.round_trip_s + bytes / self.rate_bytes_per_s + self.element_s)
    }

    /// The time of `elements` elements of `bytes` bytes in all, pipelined in vectors: R + max(S, n c), in seconds.
    pub fn vectors_s(&self, elements: f64, bytes: f64) -> f64 {
        self.round_trip_s + self.transfer_s(bytes).max(elements * self.element_s)
    }

    /// The time of bringing `bytes` in bulk: R + S, in seconds.
    pub fn bulk_s(&self, bytes: f64) -> f64 {
        self.round_trip_s + self.transfer_s(bytes)
    }

    /// The largest gap between two neighbours that costs less than another element: B x c where requests are pipelined, and
    /// B x R where each is waited for. In bytes.
    pub fn gap_bytes(&self, is_pipelined: bool) -> f64 {
        self.rate_bytes_per_s * if is_pipelined { self.element_s } else { self.round_trip_s }
    }

    /// Reads, each waited for, in whose time `bytes` are copied: F / (B R).
    pub fn break_even_reads(&self, bytes: f64) -> f64 {
        bytes / self.holds_bytes().max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(round_trip_s: f64, rate_bytes_per_s: f64, lanes: usize) -> Path {
        let window_bytes = lanes as f64 * INITIAL_WINDOW_BYTES;
        Path { round_trip_s, rate_bytes_per_s, element_s: 60e-6, lanes, window_bytes }
    }

    fn assert_near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 0.03, "{found} is not {expected}");
    }

    /// The table of the published harness: 1 GB at 1 Gb/s; a tenth in events of 1 kB, one at a time; break-even.
    #[test]
    fn the_harness_by_hand() {
        for (round_trip_s, one_by_one_s, break_even) in
            [(0.0005, 57.0, 16_000.0), (0.026, 2610.0, 308.0), (0.3, 30_007.0, 27.0)]
        {
            let path = path(round_trip_s, 125e6, 8);
            assert_near(path.one_at_a_time_s(100_000.0, 1000.0), one_by_one_s);
            assert_near(path.break_even_reads(1e9), break_even);
        }
        assert_near(path(0.3, 125e6, 8).bulk_s(1e9) + 4.0 * 0.3, 12.0);
        assert_near(path(0.026, 125e6, 8).bulk_s(1e9) + 4.0 * 0.026, 8.3);
        assert_near(path(0.3, 125e6, 8).bulk_s(1e8) + 4.0 * 0.3, 4.5);
    }

    #[test]
    fn slow_start_counts_once() {
        let cold = path(0.1, 125e6, 1);
        let warm = Path { window_bytes: cold.holds_bytes(), ..cold };
        assert_near(warm.transfer_s(1e9), 8.0);
        // log2(12.5 MB / 14.6 kB) = 9.74 rounds, in which 12.5 MB less a window come.
        assert_near(cold.transfer_s(1e9), 0.974 + 1e9 / 125e6 - 0.1);
        assert_near(cold.transfer_s(14_600.0), 0.1);
    }

    #[test]
    fn pipelined_gaps_are_small_and_serial_ones_large() {
        let path = Path { element_s: 9e-6, ..path(0.026, 125e6, 8) };
        assert_near(path.gap_bytes(true), 1125.0);
        assert_near(path.gap_bytes(false), 3.25e6);
    }
}
