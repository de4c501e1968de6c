//! What is measured, in which order, and within which limits: the quick ones first.

use std::time::Duration;

use gridlane_core::{Error, Result};

use super::Row;
use super::experiment::{Figure, Figures, Line, Phase, Work};
use super::statistics::{loss_interval, reno_bits_per_s};
use crate::network::{Family, payload_ceiling};

const MTU_BYTES: u32 = 1500;
const JUMBO_MTU_BYTES: u32 = 9000;
const FRAMING_BYTES: u32 = 38;

const MBIT: u64 = 1_000_000;
const GBIT: u64 = 1_000_000_000;

/// A stream may miss so much of what it could reach. More than it could reach is the arithmetic's fault, but for
/// a sample's width at both ends of four seconds.
const CEILING_PART_MIN: f64 = 0.98;
const CEILING_PART_MAX: f64 = 1.01;

const CPU_PERCENT_MAX: f64 = 30.0;

/// Error that a round trip may have.
const LATENESS_MS_MAX: f64 = 0.5;

const UNLIMITED_GBIT_PER_S_MIN: f64 = 6.0;

/// The use of one network.
pub(super) struct Experiment {
    pub(super) rows: Vec<Wanted>,
    pub(super) is_quick: bool,
    pub(super) work: Work,
}

/// A row, before it is measured.
pub(super) struct Wanted {
    pub(super) name: String,
    unit: &'static str,
    decimals: usize,
    least: Option<f64>,
    most: Option<f64>,
}

impl Wanted {
    fn new(name: impl Into<String>, unit: &'static str, decimals: usize) -> Wanted {
        Wanted { name: name.into(), unit, decimals, least: None, most: None }
    }

    fn least(self, least: f64) -> Wanted {
        Wanted { least: Some(least), ..self }
    }

    fn most(self, most: f64) -> Wanted {
        Wanted { most: Some(most), ..self }
    }

    /// The row, from what was measured: the figure at `index` is its own.
    pub(super) fn judge(&self, measured: &Result<Figures>, index: usize) -> Row {
        let (measured, measured_text, detail) = match measured.as_ref().map(|figures| figures.get(index)) {
            Ok(Some(Figure { value, detail })) => (*value, self.text(*value), detail.clone()),
            Ok(None) => (f64::NAN, "not measured".to_owned(), String::new()),
            Err(error) => (f64::NAN, why(error), String::new()),
        };
        // Comparisons with what is not a number are false.
        let is_enough = self.least.is_none_or(|least| measured >= least);
        let is_little = self.most.is_none_or(|most| measured <= most);
        Row {
            name: self.name.clone(),
            measured,
            unit: self.unit,
            least: self.least,
            most: self.most,
            measured_text,
            limit_text: self.limit_text(),
            detail,
            passed: measured.is_finite() && is_enough && is_little,
        }
    }

    fn limit_text(&self) -> String {
        match (self.least, self.most) {
            (Some(least), Some(most)) => format!("{:.*} to {}", self.decimals, least, self.text(most)),
            (Some(least), None) => format!("at least {}", self.text(least)),
            (None, Some(0.0)) => "0".to_owned(),
            (None, Some(most)) => format!("at most {}", self.text(most)),
            (None, None) => String::new(),
        }
    }

    fn text(&self, value: f64) -> String {
        format!("{value:.*} {}", self.decimals, self.unit).trim_end().to_owned()
    }
}

/// Without whose fault it is: the row's name says what was tried, and the row that it failed.
fn why(error: &Error) -> String {
    match error.advice() {
        Some(hint) => format!("{}; {hint}", error.message()),
        None => error.message().to_owned(),
    }
}

/// All of them, in their order.
pub(super) fn experiments() -> Vec<Experiment> {
    let mut all = vec![
        round_trip(26.0, Family::Ipv4, true),
        round_trip(26.0, Family::Ipv6, false),
        round_trip(0.5, Family::Ipv4, false),
        round_trip(100.0, Family::Ipv4, false),
        round_trip(300.0, Family::Ipv4, false),
        saturation(Family::Ipv4, true),
        saturation(Family::Ipv6, false),
        numbered_loss(),
        same_losses(),
        lossy_stream(),
        unlimited("bbr", 0.0),
        unlimited("cubic", 0.0),
        unlimited("bbr", 26.0),
        unlimited("cubic", 26.0),
    ];
    for (rate_bits_per_s, round_trips_ms) in
        [(GBIT, [26.0, 0.5, 100.0, 300.0]), (100 * MBIT, [0.5, 26.0, 100.0, 300.0])]
    {
        for round_trip_ms in round_trips_ms {
            for congestion_control in ["bbr", "cubic"] {
                all.push(stream(&StreamPlan {
                    rate_bits_per_s,
                    round_trip_ms,
                    ..StreamPlan::of(congestion_control)
                }));
            }
        }
    }
    all.push(stream(&StreamPlan { family: Family::Ipv6, ..StreamPlan::of("bbr") }));
    all.push(stream(&StreamPlan { family: Family::Ipv6, ..StreamPlan::of("cubic") }));
    all.push(stream(&StreamPlan { mtu: JUMBO_MTU_BYTES, ..StreamPlan::of("bbr") }));
    all.push(stream(&StreamPlan { mtu: JUMBO_MTU_BYTES, ..StreamPlan::of("cubic") }));
    all.push(reno());
    all
}

fn line() -> Line {
    Line {
        rate_bits_per_s: None,
        round_trip: Duration::ZERO,
        queue_bytes: None,
        loss: 0.0,
        mtu: MTU_BYTES,
        framing_bytes: FRAMING_BYTES,
        congestion_control: None,
        seed: 1,
        family: Family::Ipv4,
    }
}

fn ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}

fn family_name(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "IPv4",
        Family::Ipv6 => "IPv6",
    }
}

fn round_trip(round_trip_ms: f64, family: Family, is_quick: bool) -> Experiment {
    // Nothing arrives early; 0.01 ms is how the clock is read.
    let row = Wanted::new(format!("round trip of {round_trip_ms} ms, {}", family_name(family)), "ms", 2)
        .least(round_trip_ms - 0.01)
        .most(round_trip_ms + 0.25 + 0.01 * round_trip_ms);
    let line = Line { rate_bits_per_s: Some(GBIT), round_trip: ms(round_trip_ms), family, ..line() };
    Experiment { rows: vec![row], is_quick, work: Work::RoundTrip(line) }
}

fn saturation(family: Family, is_quick: bool) -> Experiment {
    // Not the default queue, which is one round trip: twice that would be right for the wrong reason.
    let (rate_bits_per_s, round_trip_ms, queue_bytes) = (100 * MBIT, 20.0, 500_000);
    let expected_ms = round_trip_ms + queue_bytes as f64 * 8e3 / rate_bits_per_s as f64;
    let name = format!(
        "round trip with a full queue, {round_trip_ms} + {} ms, {}",
        expected_ms - round_trip_ms,
        family_name(family)
    );
    let row = Wanted::new(name, "ms", 2).least(0.95 * expected_ms).most(1.05 * expected_ms);
    let line = Line {
        rate_bits_per_s: Some(rate_bits_per_s),
        round_trip: ms(round_trip_ms),
        queue_bytes: Some(queue_bytes),
        family,
        ..line()
    };
    Experiment { rows: vec![row], is_quick, work: Work::Saturation(line) }
}

fn percent_lost(name: String, packets: u64, probability: f64) -> Wanted {
    let (least, most) = loss_interval(packets, probability);
    let percent = |lost: f64| lost * 100.0 / packets as f64;
    Wanted::new(name, "%", 4).least(percent(least)).most(percent(most))
}

fn numbered_loss() -> Experiment {
    let (packets, loss) = (1_000_000, 0.01);
    let name = format!("loss of {} %, of {packets} UDP packets", loss * 100.0);
    Experiment {
        rows: vec![percent_lost(name, packets, loss)],
        is_quick: true,
        work: Work::Loss { line: Line { loss, ..line() }, packets },
    }
}

fn same_losses() -> Experiment {
    let packets = 200_000;
    Experiment {
        rows: vec![
            Wanted::new("same seed: packets lost in one run only", "", 0).most(0.0),
            // By chance it is the probability of loss, 1 %.
            Wanted::new("other seed: losses that are the same", "%", 1).most(5.0),
        ],
        is_quick: false,
        work: Work::SameLosses { line: Line { loss: 0.01, ..line() }, packets },
    }
}

fn lossy_stream() -> Experiment {
    // As many as BBR sends at least, through any loss of this size. The interval of more packets is narrower.
    let (segments, loss) = (200_000, 0.01);
    Experiment {
        rows: vec![
            percent_lost(format!("loss of {} %, of segments of a TCP stream", loss * 100.0), segments, loss),
            Wanted::new("bytes of that stream that arrive changed", "", 0).most(0.0),
            // What is lost is sent again, and little else is. The last losses are not repaired yet.
            Wanted::new("packets that its sender sent again, of those that it lost", "%", 1)
                .least(95.0)
                .most(110.0),
        ],
        is_quick: false,
        work: Work::LossyStream {
            line: Line {
                rate_bits_per_s: Some(GBIT),
                round_trip: ms(0.5),
                loss,
                congestion_control: Some("bbr"),
                ..line()
            },
            segments,
        },
    }
}

fn unlimited(congestion_control: &'static str, round_trip_ms: f64) -> Experiment {
    let name =
        format!("one stream, {}, no rate, {round_trip_ms} ms (1 to 4 s)", congestion_control.to_uppercase());
    Experiment {
        rows: vec![Wanted::new(name, "Gb/s", 2).least(UNLIMITED_GBIT_PER_S_MIN)],
        is_quick: round_trip_ms == 0.0,
        work: Work::Stream {
            line: Line {
                congestion_control: Some(congestion_control),
                round_trip: ms(round_trip_ms),
                ..line()
            },
            phase: Phase::Fixed { from: Duration::from_secs(1), to: Duration::from_secs(4) },
            bits_per_unit: 1e9,
        },
    }
}

struct StreamPlan {
    congestion_control: &'static str,
    rate_bits_per_s: u64,
    round_trip_ms: f64,
    mtu: u32,
    family: Family,
}

impl StreamPlan {
    fn of(congestion_control: &'static str) -> StreamPlan {
        StreamPlan {
            congestion_control,
            rate_bits_per_s: GBIT,
            round_trip_ms: 26.0,
            mtu: MTU_BYTES,
            family: Family::Ipv4,
        }
    }
}

fn stream(plan: &StreamPlan) -> Experiment {
    let StreamPlan { congestion_control, rate_bits_per_s, round_trip_ms, mtu, family } = *plan;
    let ceiling = rate_bits_per_s as f64 * payload_ceiling(mtu, FRAMING_BYTES, family);
    let (phase, phase_text) = match congestion_control {
        // BBR's start takes a round trip for each doubling of its rate (4 s at 300 ms), overflows the queue, and
        // repairs that in some more: while it does, the receiver gets nothing, and then twice the rate.
        "bbr" => {
            let (from_s, to_s) = match round_trip_ms {
                short if short < 50.0 => (2, 6),
                medium if medium < 200.0 => (3, 7),
                _ => (7, 9),
            };
            let (from, to) = (Duration::from_secs(from_s), Duration::from_secs(to_s));
            (Phase::Fixed { from, to }, format!("{from_s} to {to_s} s"))
        }
        _ => (Phase::Plateau { bits_per_s: CEILING_PART_MIN * ceiling }, "when steady".to_owned()),
    };
    let rate_text = match rate_bits_per_s {
        GBIT => "1 Gb/s".to_owned(),
        rate => format!("{} Mb/s", rate / MBIT),
    };
    let mut path = format!("{}, {rate_text}, {round_trip_ms} ms", congestion_control.to_uppercase());
    if family == Family::Ipv6 {
        path.push_str(", IPv6");
    }
    if mtu != MTU_BYTES {
        path.push_str(&format!(", MTU {mtu}"));
    }
    let in_mbit = |part: f64| part * ceiling / 1e6;
    let is_typical =
        round_trip_ms == 26.0 && rate_bits_per_s == GBIT && mtu == MTU_BYTES && family == Family::Ipv4;
    let mut rows = vec![
        Wanted::new(format!("one stream, {path} ({phase_text})"), "Mb/s", 1)
            .least(in_mbit(CEILING_PART_MIN))
            .most(in_mbit(CEILING_PART_MAX)),
    ];
    if is_typical {
        rows.push(
            Wanted::new(format!("CPU of the forwarder (of a core), {path}"), "%", 1).most(CPU_PERCENT_MAX),
        );
        rows.push(Wanted::new(format!("lateness (99 %), {path}"), "ms", 3).most(LATENESS_MS_MAX));
    }
    Experiment {
        rows,
        is_quick: is_typical,
        work: Work::Stream {
            line: Line {
                rate_bits_per_s: Some(rate_bits_per_s),
                round_trip: ms(round_trip_ms),
                mtu,
                congestion_control: Some(congestion_control),
                family,
                ..line()
            },
            phase,
            bits_per_unit: 1e6,
        },
    }
}

/// A protocol whose rate follows from the path alone: a check of delay and loss together. The formula is known
/// to be right within some tens of percent, not better: acknowledgements, timeouts and recovery are not in it.
fn reno() -> Experiment {
    let (round_trip_ms, loss) = (20.0, 1e-3);
    let payload_bytes = payload_ceiling(MTU_BYTES, 0, Family::Ipv4) * f64::from(MTU_BYTES);
    let expected = reno_bits_per_s(payload_bytes, ms(round_trip_ms), loss) / 1e6;
    let name = format!("one stream, RENO, {round_trip_ms} ms, loss of {} % (2 to 12 s)", loss * 100.0);
    Experiment {
        rows: vec![Wanted::new(name, "Mb/s", 1).least(0.5 * expected).most(1.5 * expected)],
        is_quick: false,
        work: Work::Stream {
            line: Line {
                rate_bits_per_s: Some(GBIT),
                round_trip: ms(round_trip_ms),
                loss,
                congestion_control: Some("reno"),
                ..line()
            },
            phase: Phase::Fixed { from: Duration::from_secs(2), to: Duration::from_secs(12) },
            bits_per_unit: 1e6,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use gridlane_core::ErrorKind;

    use super::*;

    fn judged(wanted: &Wanted, value: f64) -> Row {
        wanted.judge(&Ok(vec![Figure { value, detail: String::new() }]), 0)
    }

    #[test]
    fn a_figure_is_within_its_limits_or_not() {
        let wanted = Wanted::new("x", "ms", 2).least(25.5).most(26.5);
        for (value, passed) in [(25.49, false), (25.5, true), (26.0, true), (26.5, true), (26.51, false)] {
            assert_eq!(judged(&wanted, value).passed, passed, "{value}");
        }
        let row = judged(&wanted, 26.019);
        assert_eq!((row.measured_text.as_str(), row.limit_text.as_str()), ("26.02 ms", "25.50 to 26.50 ms"));
        assert_eq!(Wanted::new("x", "Gb/s", 1).least(6.0).limit_text(), "at least 6.0 Gb/s");
        assert_eq!(Wanted::new("x", "%", 1).most(30.0).limit_text(), "at most 30.0 %");
        assert_eq!(Wanted::new("x", "", 0).most(0.0).limit_text(), "0");
        assert_eq!(judged(&Wanted::new("x", "", 0).most(0.0), 3.0).measured_text, "3");
    }

    #[test]
    fn what_was_not_measured_has_not_passed_and_says_why() {
        let wanted = Wanted::new("x", "ms", 2).most(1.0);
        assert!(!judged(&wanted, f64::NAN).passed);
        let failed =
            Err(Error::new(ErrorKind::Unsupported, "this kernel has no bbr").hint("modprobe tcp_bbr"));
        let row = wanted.judge(&failed, 0);
        assert!(!row.passed && row.measured.is_nan());
        assert_eq!(row.measured_text, "this kernel has no bbr; modprobe tcp_bbr");
        assert!(!wanted.judge(&Ok(Vec::new()), 0).passed);
        assert!(serde_json::to_string(&row).unwrap().contains(r#""measured":null"#));
    }

    #[test]
    fn rows_have_names_of_their_own_that_fit_and_limits() {
        let mut names = HashSet::new();
        for row in experiments().iter().flat_map(|experiment| &experiment.rows) {
            assert!(row.name.chars().count() <= 58, "{}", row.name);
            assert!(row.limit_text().chars().count() <= 22, "{}: {}", row.name, row.limit_text());
            assert!(row.least.is_some() || row.most.is_some(), "{}", row.name);
            assert!(names.insert(row.name.clone()), "{}", row.name);
        }
    }

    #[test]
    fn bbr_is_not_measured_while_it_probes() {
        for experiment in experiments() {
            if let Work::Stream { line, phase: Phase::Fixed { from, to }, .. } = experiment.work {
                let is_bbr = line.congestion_control == Some("bbr");
                assert!(from < to && (!is_bbr || to <= Duration::from_secs(9)));
            }
        }
    }
}
