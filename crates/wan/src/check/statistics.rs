//! What is worked out from what was measured. Pure.

use std::time::Duration;

/// Bytes that a receiver had at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// Since its connection began.
    pub(super) at: Duration,
    /// All bytes so far.
    pub(super) bytes: u64,
}

/// The smallest value that at least the share `part` of them do not exceed; `None` of nothing.
pub(super) fn quantile(values: &[Duration], part: f64) -> Option<Duration> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Number of `packets` that are lost with this probability each, in 99 of 100 cases: from, to.
///
/// The normal approximation of the binomial distribution with half a packet of continuity. It is good enough
/// where some thousand packets are lost: the skew that it leaves out moves either end by (z² − 1)(1 − 2p) / 6,
/// which is less than one packet, and the interval is hundreds wide.
pub(super) fn loss_interval(packets: u64, probability: f64) -> (f64, f64) {
    /// Of the standard normal distribution 99 % lie between minus and plus this.
    const Z: f64 = 2.575_829_3;
    let (n, p) = (packets as f64, probability);
    let half = Z * (n * p * (1.0 - p)).sqrt() + 0.5;
    ((n * p - half).max(0.0), (n * p + half).min(n))
}

/// Rate of arrival between two times, in bits per second. Times of arrival are those of samples: the first one in
/// the window, and the last one. `None`: less than two.
pub(super) fn bits_per_s(samples: &[Sample], from: Duration, to: Duration) -> Option<f64> {
    let first = samples.get(samples.partition_point(|sample| sample.at < from))?;
    let last = samples.get(samples.partition_point(|sample| sample.at <= to).checked_sub(1)?)?;
    let time = last.at.checked_sub(first.at).filter(|time| !time.is_zero())?;
    Some((last.bytes - first.bytes) as f64 * 8.0 / time.as_secs_f64())
}

/// True if a stream has ramped up by the time of its last sample: for two seconds it has reached `target`, in
/// each of them.
///
/// Two seconds, because a hole that is filled hands over at once what had arrived behind it: one second of that
/// looks faster than the wire, the one before it slower. A target, because "it no longer grows" is no sign:
/// CUBIC spends many round trips close to a window that it has left, and grows again afterwards.
pub(super) fn is_at_plateau(samples: &[Sample], target_bits_per_s: f64) -> bool {
    const SECOND: Duration = Duration::from_secs(1);
    let Some(now) = samples.last().map(|sample| sample.at) else { return false };
    let (Some(middle), Some(start)) = (now.checked_sub(SECOND), now.checked_sub(2 * SECOND)) else {
        return false;
    };
    [(start, middle), (middle, now)]
        .into_iter()
        .all(|(from, to)| bits_per_s(samples, from, to).is_some_and(|rate| rate >= target_bits_per_s))
}

/// True if a stream of about this rate flows evenly: no hole in it was open during the last second, and none was
/// filled.
pub(super) fn is_even(samples: &[Sample], about_bits_per_s: f64) -> bool {
    const PIECE: Duration = Duration::from_millis(200);
    const PIECES: u32 = 5;
    let Some(now) = samples.last().map(|sample| sample.at) else { return false };
    let is_usual = |rate: f64| (0.5 * about_bits_per_s..=1.5 * about_bits_per_s).contains(&rate);
    (0..PIECES).all(|ago| {
        let Some(from) = now.checked_sub((ago + 1) * PIECE) else { return false };
        bits_per_s(samples, from, from + PIECE).is_some_and(is_usual)
    })
}

/// The rate of Reno with this probability of loss, in bits per second: Mathis, Semke, Mahdavi and Ott, "The
/// macroscopic behavior of the TCP congestion avoidance algorithm", CCR 1997, with an acknowledgement for every
/// packet.
pub(super) fn reno_bits_per_s(payload_bytes: f64, round_trip: Duration, probability: f64) -> f64 {
    payload_bytes * 8.0 / round_trip.as_secs_f64() * (1.5 / probability).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A stream whose rate in Mb/s is a function of the time in seconds, sampled every 50 ms.
    fn stream(seconds: f64, rate: impl Fn(f64) -> f64) -> Vec<Sample> {
        let mut bytes = 0.0;
        (0..(seconds * 20.0) as u32)
            .map(|tick| {
                let at_s = f64::from(tick) / 20.0;
                bytes += rate(at_s) * 1e6 / 8.0 / 20.0;
                Sample { at: tick * 50 * MS, bytes: bytes as u64 }
            })
            .collect()
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let values: Vec<Duration> = [5, 1, 4, 2, 3].into_iter().map(|ms| ms * MS).collect();
        assert_eq!(quantile(&values, 0.5), Some(3 * MS));
        assert_eq!(quantile(&values, 0.99), Some(5 * MS));
        assert_eq!(quantile(&values, 0.0), Some(MS));
        assert_eq!(quantile(&values[..1], 0.5), Some(5 * MS));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn the_interval_of_losses_is_that_of_the_exact_distribution() {
        // Quantiles 0.5 % and 99.5 % of the exact distribution, for comparison within two packets.
        let within = |interval: (f64, f64), low: f64, high: f64| {
            assert!((interval.0 - low).abs() < 2.0 && (interval.1 - high).abs() < 2.0, "{interval:?}");
        };
        within(loss_interval(1_000_000, 0.01), 9744.0, 10257.0);
        within(loss_interval(1000, 0.5), 459.0, 541.0);
        assert_eq!(loss_interval(1000, 0.0), (0.0, 0.5));
        let (low, high) = loss_interval(10, 0.5);
        assert!(low >= 0.0 && high <= 10.0);
    }

    #[test]
    fn a_rate_is_that_of_its_window() {
        let samples = stream(10.0, |at_s| if at_s < 5.0 { 100.0 } else { 900.0 });
        let rate = |from: u32, to: u32| bits_per_s(&samples, from * MS, to * MS).unwrap();
        assert!((rate(1000, 4000) - 1e8).abs() < 1e3);
        assert!((rate(6000, 9000) - 9e8).abs() < 1e4);
        assert_eq!(bits_per_s(&samples, 20_000 * MS, 30_000 * MS), None);
        assert_eq!(bits_per_s(&samples, 1001 * MS, 1049 * MS), None);
        assert_eq!(bits_per_s(&[], MS, 2 * MS), None);
    }

    #[test]
    fn a_plateau_is_two_seconds_at_the_target() {
        let target = 920e6;
        assert!(is_at_plateau(&stream(4.0, |_| 941.0), target));
        assert!(!is_at_plateau(&stream(1.9, |_| 941.0), target), "too short to tell");
        assert!(!is_at_plateau(&[], target));
        // It no longer grows, but is not there.
        assert!(!is_at_plateau(&stream(20.0, |_| 700.0), target));
        // It grows past the target: not at once.
        let ramp = |at_s: f64| (at_s * 100.0).min(941.0);
        assert!(!is_at_plateau(&stream(10.5, ramp), target));
        assert!(is_at_plateau(&stream(11.5, ramp), target));
        // A hole for half a second, then everything at once, at half of the target.
        let hole = |at_s: f64| match at_s {
            s if s < 9.0 => 470.0,
            s if s < 9.5 => 0.0,
            _ => 2000.0,
        };
        assert!(!is_at_plateau(&stream(10.0, hole), target));
    }

    #[test]
    fn a_hole_is_not_even_until_it_was_filled() {
        let even = |seconds, rate: fn(f64) -> f64| is_even(&stream(seconds, rate), 920e6);
        assert!(even(5.0, |_| 941.0));
        assert!(!even(0.9, |_| 941.0), "too short to tell");
        let hole = |at_s: f64| match at_s {
            s if s < 4.0 => 941.0,
            s if s < 4.5 => 0.0,
            s if s < 5.0 => 1882.0,
            _ => 941.0,
        };
        assert!(even(4.0, hole));
        assert!(!even(4.4, hole) && !even(4.9, hole) && !even(5.5, hole));
        assert!(even(6.2, hole));
    }

    #[test]
    fn the_rate_of_reno() {
        // 1.22 packets of 1448 bytes in 100 ms at 10⁻⁴: 14 Mb/s.
        let rate = reno_bits_per_s(1448.0, 100 * MS, 1e-4);
        assert!((rate - 14.19e6).abs() < 0.01e6, "{rate}");
    }
}
