//! Knowledge of a path from earlier files: what a measurement will replace is not the default, but what was measured before, as far
//! as it is not old.
//!
//! Knowledge fades: after [`READ_KNOWN_HALF_LIFE`] it is half way, by factors, to the default.

use std::time::Duration;

use gridlane_core::limits::{READ_ELEMENT_S, READ_KNOWN_HALF_LIFE, READ_RATE_BYTES_PER_S, READ_ROUND_TRIP_S};
use gridlane_plan::SourceId;

use crate::payload::Payload;
use crate::reader::Reader;

/// Part of what it was worth that knowledge without a default must be worth still.
const WORTH_MIN: f64 = 0.25;

/// A figure that was measured some time ago.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The figure, in the unit of its field.
    pub value: f64,
    /// The time since then.
    pub age: Duration,
}

impl Seen {
    /// A figure that is measured now.
    pub fn now(value: f64) -> Seen {
        Seen { value, age: Duration::ZERO }
    }

    /// Between the figure and its default: the older it is, the nearer to that.
    fn faded(self, default: f64) -> Option<f64> {
        let is_possible = self.value.is_finite() && self.value > 0.0;
        is_possible.then(|| default * (self.value / default).powf(worth(self.age)))
    }
}

/// The part of what it was worth that knowledge of this age is worth.
fn worth(age: Duration) -> f64 {
    (-age.as_secs_f64() / READ_KNOWN_HALF_LIFE.as_secs_f64()).exp2()
}

/// What earlier files have shown of the path to one source.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Known {
    /// The rate of all connections together, in bytes per second.
    pub rate: Option<Seen>,
    /// The round trip, in seconds.
    pub round_trip: Option<Seen>,
    /// The cost of an element, in seconds.
    pub element: Option<Seen>,
    /// The server has sent a whole file where a range was asked for, so long ago.
    pub ignored_ranges: Option<Duration>,
}

impl<P: Payload> Reader<P> {
    /// Another replica of the file, like [`add_source`](Reader::add_source), to which the path is known from earlier files.
    pub fn add_source_known(&mut self, known: Known) -> SourceId {
        let id = self.add_source();
        let Some(source) = self.sources.get_mut(id.0 as usize) else { return id };
        let round_trip_s = known.round_trip.and_then(|seen| seen.faded(READ_ROUND_TRIP_S));
        source.round_trip.expect(round_trip_s);
        source.is_doubted = known.ignored_ranges.is_some_and(|age| worth(age) >= WORTH_MIN);
        if let Some(rate) = known.rate.and_then(|seen| seen.faded(READ_RATE_BYTES_PER_S))
            && self.settings.rate_bytes_per_s.is_none()
        {
            self.rate.expect(rate);
        }
        self.element.expect(known.element.and_then(|seen| seen.faded(READ_ELEMENT_S)));
        self.explain.path_is_known |=
            known.rate.is_some() || known.round_trip.is_some() || known.element.is_some();
        id
    }

    /// What this file has shown of the path to a source, for later ones. The rate is that of all sources: with several it says
    /// nothing of one.
    pub fn learned(&self, source: SourceId) -> Known {
        let Some(of) = self.sources.get(source.0 as usize) else { return Known::default() };
        let is_alone = self.sources.len() == 1;
        Known {
            rate: self.rate.lesson().filter(|_| is_alone).map(Seen::now),
            round_trip: of.round_trip.known_s().map(Seen::now),
            element: (is_alone && self.element.is_measured()).then(|| Seen::now(self.element.get_s())),
            ignored_ranges: of.is_rangeless.then_some(Duration::ZERO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_knowledge_counts_less() {
        let seen = |age| Seen { value: 100.0 * READ_RATE_BYTES_PER_S, age };
        let factor = |age| seen(age).faded(READ_RATE_BYTES_PER_S).unwrap() / READ_RATE_BYTES_PER_S;
        assert!((factor(Duration::ZERO) - 100.0).abs() < 1e-6);
        assert!((factor(READ_KNOWN_HALF_LIFE) - 10.0).abs() < 1e-6);
        assert!(factor(20 * READ_KNOWN_HALF_LIFE) < 1.01);
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Seen::now(value).faded(1.0), None);
        }
    }

    #[test]
    fn knowledge_stands_where_defaults_stand_and_is_replaced_by_what_is_measured() {
        let known = Known {
            rate: Some(Seen::now(2e6)),
            round_trip: Some(Seen::now(0.2)),
            element: Some(Seen::now(5e-5)),
            ignored_ranges: None,
        };
        let mut reader = Reader::<Vec<u8>>::new(crate::Settings::default());
        let source = reader.add_source_known(known);
        let path = reader.path();
        let close = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-6;
        assert!(close(path.rate_bytes_per_s, 2e6) && close(path.round_trip_s, 0.2), "{path:?}");
        assert!(close(path.element_s, 5e-5), "{path:?}");
        assert_eq!(reader.learned(source), Known::default(), "nothing was measured");
        let text = reader.explain(gridlane_core::Time::ZERO).to_string();
        assert!(text.contains("round trip 200.0 ms (remembered)"), "{text}");
        // Of two replicas both bring bytes.
        reader.add_source_known(Known { rate: Some(Seen::now(3e6)), ..Known::default() });
        assert!(close(reader.path().rate_bytes_per_s, 5e6));
        let settings = crate::Settings { rate_bytes_per_s: Some(7e6), ..crate::Settings::default() };
        let mut told = Reader::<Vec<u8>>::new(settings);
        told.add_source_known(known);
        assert!(close(told.path().rate_bytes_per_s, 7e6), "the application knows better");
    }
}
