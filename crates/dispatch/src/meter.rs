//! Bytes and times of a link's copies, as they are told: now and then, of each copy for itself.

use std::time::Duration;

use gridlane_core::Time;

/// No storage moves more: what is told of one copy beyond it is a lie.
const BYTES_PER_S_MAX: f64 = 1e12;
/// The last half minute is kept, by pieces of half a second.
const PIECE: Duration = Duration::from_millis(500);
const PIECES: u64 = 64;

/// A copy, as far as it was told of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) bytes: u64,
    pub(crate) at: Time,
    bytes_per_s: f64,
}

impl Told {
    /// A copy that begins.
    pub(crate) fn new(now: Time) -> Told {
        Told { bytes: 0, at: now, bytes_per_s: 0.0 }
    }

    /// Bytes that it has moved since it was told of, as it seems, after this time, and for no longer than `most`.
    pub(crate) fn since(&self, from: Time, now: Time, most: Duration) -> f64 {
        let until = now.min(self.at + most);
        self.bytes_per_s * until.since(self.at.max(from)).as_secs_f64()
    }
}

/// What the copies of a link have moved, and their number, over time.
///
/// Bytes that are told of are those of the time since the copy was told of before: they are spread over it. So the rate of a while is
/// known when all copies have told of it, and of the last few seconds it is an estimate.
#[derive(Debug)]
pub(crate) struct Meter {
    pieces: [f64; PIECES as usize],
    /// The last piece, by number since the origin of time.
    last: u64,
    active: u32,
    slot_s: f64,
    changed_at: Time,
}

impl Default for Meter {
    fn default() -> Meter {
        Meter { pieces: [0.0; PIECES as usize], last: 0, active: 0, slot_s: 0.0, changed_at: Time::ZERO }
    }
}

/// The piece of a time, and the part of it that has passed.
fn piece(time: Time) -> (u64, f64) {
    let pieces = time.since_origin().as_secs_f64() / PIECE.as_secs_f64();
    (pieces as u64, pieces.fract())
}

impl Meter {
    /// A copy begins.
    pub(crate) fn begin(&mut self, now: Time) {
        self.count(now);
        self.active += 1;
    }

    /// A copy has ended, of which so many bytes have moved.
    pub(crate) fn end(&mut self, told: &mut Told, bytes: u64, now: Time) {
        self.tell(told, bytes, now);
        self.count(now);
        self.active -= 1;
    }

    /// So many bytes of a copy have moved by now.
    pub(crate) fn tell(&mut self, told: &mut Told, bytes: u64, now: Time) {
        let seconds = now.since(told.at).as_secs_f64();
        let more = (bytes.saturating_sub(told.bytes) as f64).min(BYTES_PER_S_MAX * seconds.max(1.0));
        self.spread(more, told.at, now);
        *told = Told { bytes, at: now, bytes_per_s: if seconds > 0.0 { more / seconds } else { 0.0 } };
    }

    fn spread(&mut self, bytes: f64, from: Time, to: Time) {
        let ((first, _), (last, _)) = (piece(from), piece(to));
        while self.last < last {
            // Of a long time without news nothing is left.
            self.last = (self.last + 1).max(last.saturating_sub(PIECES));
            self.pieces[(self.last % PIECES) as usize] = 0.0;
        }
        let all_s = to.since(from).as_secs_f64();
        for number in first.max((self.last + 1).saturating_sub(PIECES))..=last {
            let part = if all_s > 0.0 { overlap_s(number, from, to) / all_s } else { 1.0 };
            self.pieces[(number % PIECES) as usize] += bytes * part;
        }
    }

    /// Bytes that were told of from a time until now.
    pub(crate) fn bytes(&self, from: Time, to: Time) -> f64 {
        let ((first, _), (last, _)) = (piece(from), piece(to));
        let kept = (self.last + 1).saturating_sub(PIECES)..=self.last;
        (first.max(*kept.start())..=last.min(*kept.end()))
            .map(|number| {
                // Of the last piece a part has passed.
                let part = overlap_s(number, from, to) / overlap_s(number, Time::ZERO, to).max(1e-9);
                self.pieces[(number % PIECES) as usize] * part
            })
            .sum()
    }

    fn count(&mut self, now: Time) {
        self.slot_s += f64::from(self.active) * now.since(self.changed_at).as_secs_f64();
        self.changed_at = now;
    }

    /// Copies that run.
    pub(crate) fn active(&self) -> u32 {
        self.active
    }

    /// The time of all copies together by now, in seconds.
    pub(crate) fn slot_s(&self, now: Time) -> f64 {
        self.slot_s + f64::from(self.active) * now.since(self.changed_at).as_secs_f64()
    }
}

/// Seconds of a piece that are between these times.
fn overlap_s(number: u64, from: Time, to: Time) -> f64 {
    let length_s = PIECE.as_secs_f64();
    let begins = number as f64 * length_s;
    let (from_s, to_s) = (from.since_origin().as_secs_f64(), to.since_origin().as_secs_f64());
    (to_s.min(begins + length_s) - from_s.max(begins)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Time {
        Time::ZERO.plus_s(1000.0 + seconds)
    }

    #[test]
    fn bytes_are_those_of_the_time_since_the_last_report() {
        let mut meter = Meter::default();
        let (mut one, mut two) = (Told::new(at(0.2)), Told::new(at(0.2)));
        meter.begin(at(0.2));
        meter.begin(at(0.2));
        meter.tell(&mut one, 500, at(5.2));
        assert!((meter.bytes(at(1.2), at(5.2)) - 400.0).abs() < 1e-6);
        assert!((meter.bytes(at(0.0), at(9.0)) - 500.0).abs() < 1e-6);
        assert!((one.since(at(6.2), at(9.2), Duration::from_secs(3)) - 200.0).abs() < 1e-6);
        meter.end(&mut one, 1000, at(8.2));
        assert!((meter.slot_s(at(10.2)) - 18.0).abs() < 1e-6);
        meter.end(&mut two, 100, at(100.2));
        assert!((meter.bytes(at(90.2), at(100.2)) - 10.0).abs() < 1e-6, "only the last half minute is kept");
        assert_eq!(meter.active(), 0);
    }

    #[test]
    fn lies_are_bounded() {
        let (mut meter, mut told) = (Meter::default(), Told::new(at(0.0)));
        meter.begin(at(0.0));
        meter.tell(&mut told, u64::MAX, at(10.0));
        assert!(meter.bytes(at(0.0), at(11.0)) < 1.1e13);
        meter.end(&mut told, 5, at(11.0));
        assert!(meter.bytes(at(0.0), at(11.0)) < 1.1e13);
    }
}
