//! What an emulated network looks like, as written in a TOML file.
//!
//! ```toml
//! sites = ["client", "near", "far"]      # each a network namespace, where commands run
//! routers = ["exchange"]                 # each a network namespace that only passes packets on
//! seed = 1                               # of everything that is drawn by lot
//! mtu = 1500
//! congestion_control = "cubic"           # [default: the host's]
//! buffers = "bdp"                        # or "host": the kernel's own limits
//!
//! [[link]]
//! between = ["near", "client"]
//! rate = "800Mb/s"                       # on the wire [default: unlimited]
//! delay_ms = 5                           # one way
//! queue = "1MB"                          # [default: one bandwidth-delay product of the longest path]
//! loss = 1e-5                            # of single packets, at random
//! jitter_ms = 0.1                        # the delay is drawn from delay ± jitter; order is kept
//! from.client.rate = "100Mb/s"           # other figures for one direction
//!
//! [[event]]
//! at_s = 2
//! link = "near-client"
//! down = true                            # or any figure of a link
//! ```
//!
//! Less often needed: `name` of a link (`near-client` is made of `between` otherwise), `framing_bytes`
//! (what a packet occupies on the wire beyond its IP bytes, 38 as on Ethernet), and `from = "client"` of an
//! event that changes one direction only. `queue = "bdp"` and `rate = "unlimited"` write the defaults out.
//!
//! A [`Scenario`] that was parsed can be built and run to its last event: every figure is within
//! [`gridlane_core::limits`] at every time, and every node reaches every other one.
//!
//! Read first: [`Scenario`], then [`Change`], which events and `wan set` share; `scenario/read.rs` turns
//! text into them.

mod read;

use std::time::Duration;

use gridlane_core::units::{format_bytes, parse_bytes, parse_rate_bytes_per_s};
use gridlane_core::{Error, ErrorKind, Fault, Hint, Result, limits};
use serde::{Deserialize, Serialize};

/// A network to emulate: valid in itself, as [`Scenario::parse`] makes sure.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Seed of everything that is drawn by lot.
    pub seed: u64,
    /// Largest IP packet on every link, in bytes.
    pub mtu: u32,
    /// Bytes that a packet occupies on the wire beyond its IP bytes. 38: Ethernet's header, check sequence,
    /// preamble and gap.
    pub framing_bytes: u32,
    /// Congestion control of every sender; `None`: the host's default.
    pub congestion_control: Option<String>,
    /// Socket-buffer limits inside the namespaces.
    pub buffers: Buffers,
    /// Where commands run.
    pub sites: Vec<String>,
    /// Nodes that only pass packets on.
    pub routers: Vec<String>,
    /// The links that join them.
    pub links: Vec<Link>,
    /// The changes, in the order of time.
    pub events: Vec<Event>,
}

/// Socket-buffer limits inside the namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffers {
    /// Large enough for the longest bandwidth-delay product and its queue, never less than the host's.
    #[default]
    Bdp,
    /// The host's limits, as users have them.
    Host,
}

/// Two directions between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// `near-client` unless the file says otherwise.
    pub name: String,
    /// Names of its two nodes.
    pub ends: [String; 2],
    /// The directions: from `ends[0]`, from `ends[1]`.
    pub directions: [Direction; 2],
}

/// One direction of a link. The default: unlimited, no delay, no loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Direction {
    /// Bits per second on the wire, framing included; `None`: unlimited.
    pub rate_bits_per_s: Option<u64>,
    /// From the end of sending to the end of receiving.
    pub delay: Duration,
    /// Bytes on the wire (framing included) that may wait to be sent; `None`: one bandwidth-delay product.
    pub queue_bytes: Option<u64>,
    /// Probability that a packet is lost.
    pub loss: f64,
    /// The delay is drawn from `delay - jitter` to `delay + jitter`, evenly; order is kept.
    pub jitter: Duration,
    /// True if everything that is sent vanishes.
    pub is_down: bool,
}

/// New values for some figures of a direction.
///
/// As JSON an object of plain fields, where a missing one means "as it was":
///
/// ```json
/// {"rate_bits_per_s": 800000000, "delay_ns": 5000000, "queue_bytes": 1000000,
///  "loss": 1e-5, "jitter_ns": 100000, "is_down": false}
/// ```
///
/// The words `"unlimited"` for the rate and `"bdp"` for the queue stand where [`Direction`] has `None`;
/// `null` is refused, because some writers mean "missing" by it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ChangeJson", into = "ChangeJson")]
pub struct Change {
    /// `Some(None)`: unlimited.
    pub rate_bits_per_s: Option<Option<u64>>,
    /// See [`Direction::delay`].
    pub delay: Option<Duration>,
    /// `Some(None)`: back to one bandwidth-delay product.
    pub queue_bytes: Option<Option<u64>>,
    /// See [`Direction::loss`].
    pub loss: Option<f64>,
    /// See [`Direction::jitter`].
    pub jitter: Option<Duration>,
    /// See [`Direction::is_down`].
    pub is_down: Option<bool>,
}

/// A change on the timetable.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Since the timetable was started.
    pub at: Duration,
    /// Index of the link.
    pub link: usize,
    /// Which end's sending changes; `None`: both.
    pub from: Option<usize>,
    /// The change.
    pub change: Change,
}

/// The figures of a link as people write them, in a scenario or on the command line of `wan set`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangeText {
    /// `800Mb/s`, `80MB/s` or `unlimited`.
    pub rate: Option<String>,
    /// One way, in milliseconds.
    pub delay_ms: Option<f64>,
    /// `1MB`, `64KiB` or `bdp`.
    pub queue: Option<String>,
    /// A probability: 0.01 is one packet in a hundred.
    pub loss: Option<f64>,
    /// Half the width of the delay's distribution, in milliseconds.
    pub jitter_ms: Option<f64>,
    /// True if everything that is sent vanishes.
    pub down: Option<bool>,
}

impl Scenario {
    /// Reads a scenario and makes sure that it can be built. An error says where it is and what to do.
    pub fn parse(text: &str) -> Result<Scenario> {
        read::scenario(text)
    }

    /// Bytes on the wire of the largest packet: [`Scenario::mtu`] and its framing.
    pub fn packet_bytes_max(&self) -> u32 {
        self.mtu.saturating_add(self.framing_bytes)
    }

    /// The figures of every link as they are before the first event: what [`Change`]s are applied to.
    pub fn directions(&self) -> Vec<[Direction; 2]> {
        self.links.iter().map(|link| link.directions.clone()).collect()
    }
}

impl Direction {
    /// Checks that every figure is possible, and all of them together.
    pub fn check(&self, packet_bytes_max: u32) -> Result<()> {
        check_rate(self.rate_bits_per_s)?;
        check_time("delay", self.delay)?;
        check_queue(self.queue_bytes, packet_bytes_max)?;
        check_loss(self.loss)?;
        check_time("jitter", self.jitter)?;
        if self.jitter > self.delay {
            return Err(wrong(
                format!("the jitter of {} exceeds the delay of {}", ms(self.jitter), ms(self.delay)),
                "a packet cannot arrive before it was sent: make jitter_ms at most delay_ms",
            ));
        }
        Ok(())
    }
}

impl Change {
    /// True if nothing changes.
    pub fn is_empty(&self) -> bool {
        *self == Change::default()
    }

    /// Checks that every new figure is possible in itself. What it makes of a direction is for
    /// [`Change::applied`].
    pub fn check(&self, packet_bytes_max: u32) -> Result<()> {
        self.rate_bits_per_s.map_or(Ok(()), check_rate)?;
        self.delay.map_or(Ok(()), |delay| check_time("delay", delay))?;
        self.queue_bytes.map_or(Ok(()), |queue| check_queue(queue, packet_bytes_max))?;
        self.loss.map_or(Ok(()), check_loss)?;
        self.jitter.map_or(Ok(()), |jitter| check_time("jitter", jitter))
    }

    /// Replaces the figures that it has.
    pub fn apply(&self, direction: &mut Direction) {
        direction.rate_bits_per_s = self.rate_bits_per_s.unwrap_or(direction.rate_bits_per_s);
        direction.delay = self.delay.unwrap_or(direction.delay);
        direction.queue_bytes = self.queue_bytes.unwrap_or(direction.queue_bytes);
        direction.loss = self.loss.unwrap_or(direction.loss);
        direction.jitter = self.jitter.unwrap_or(direction.jitter);
        direction.is_down = self.is_down.unwrap_or(direction.is_down);
    }

    /// The new state of `direction`, if that is possible.
    pub fn applied(&self, direction: &Direction, packet_bytes_max: u32) -> Result<Direction> {
        self.check(packet_bytes_max)?;
        let mut changed = direction.clone();
        self.apply(&mut changed);
        changed.check(packet_bytes_max)?;
        Ok(changed)
    }
}

impl ChangeText {
    /// Reads the figures. Whether they are possible is for [`Change::check`].
    pub fn parse(&self) -> Result<Change> {
        Ok(Change {
            rate_bits_per_s: self.rate.as_deref().map(parse_rate).transpose()?,
            delay: self.delay_ms.map(|delay_ms| parse_ms("delay_ms", delay_ms)).transpose()?,
            queue_bytes: self.queue.as_deref().map(parse_queue).transpose()?,
            // JSON has no word for what is not a number.
            loss: self.loss.map(|loss| check_loss(loss).map(|()| loss)).transpose()?,
            jitter: self.jitter_ms.map(|jitter_ms| parse_ms("jitter_ms", jitter_ms)).transpose()?,
            is_down: self.down,
        })
    }
}

// --- Figures -----------------------------------------------------------------------------------

/// Bits per second; what is written is read in whole bytes per second.
fn parse_rate(text: &str) -> Result<Option<u64>> {
    if text.trim() == UNLIMITED {
        return Ok(None);
    }
    let bytes_per_s = parse_rate_bytes_per_s(text).map_err(|error| {
        wrong(error.message(), "write a rate as 800Mb/s (bits), 80MB/s (bytes), or \"unlimited\"")
    })?;
    // Saturation is above every limit, so that the check refuses it.
    Ok(Some(bytes_per_s.saturating_mul(8)))
}

fn parse_queue(text: &str) -> Result<Option<u64>> {
    if text.trim() == BDP {
        return Ok(None);
    }
    let bytes = parse_bytes(text).map_err(|error| {
        wrong(error.message(), "write a queue as 1MB or 64KiB, or \"bdp\" for one bandwidth-delay product")
    })?;
    Ok(Some(bytes))
}

fn parse_ms(name: &str, ms: f64) -> Result<Duration> {
    if !ms.is_finite() || ms < 0.0 {
        return Err(wrong(
            format!("{name} is {ms}"),
            format!("write milliseconds between 0 and {}", limits::WAN_DELAY_MAX.as_millis()),
        ));
    }
    // The cast saturates, above every limit, so that the check refuses it.
    Ok(Duration::from_nanos((ms * 1e6).round() as u64))
}

fn check_rate(rate_bits_per_s: Option<u64>) -> Result<()> {
    let possible = limits::WAN_RATE_BITS_PER_S_MIN..=limits::WAN_RATE_BITS_PER_S_MAX;
    match rate_bits_per_s {
        Some(rate) if !possible.contains(&rate) => Err(wrong(
            format!("the rate of {rate} b/s is out of range"),
            "write a rate between 8kb/s and 400Gb/s, or \"unlimited\"",
        )),
        _ => Ok(()),
    }
}

fn check_time(what: &str, time: Duration) -> Result<()> {
    if time > limits::WAN_DELAY_MAX {
        return Err(wrong(
            format!("the {what} of {} is too long", ms(time)),
            format!("write milliseconds between 0 and {}", limits::WAN_DELAY_MAX.as_millis()),
        ));
    }
    Ok(())
}

fn check_queue(queue_bytes: Option<u64>, packet_bytes_max: u32) -> Result<()> {
    let possible = u64::from(packet_bytes_max)..=limits::WAN_QUEUE_BYTES_MAX;
    match queue_bytes {
        Some(queue) if !possible.contains(&queue) => Err(wrong(
            format!("the queue of {queue} bytes is out of range"),
            format!(
                "write at least one packet of {packet_bytes_max} bytes (mtu and framing) and at most {}, \
                 or \"bdp\"",
                format_bytes(limits::WAN_QUEUE_BYTES_MAX)
            ),
        )),
        _ => Ok(()),
    }
}

fn check_loss(loss: f64) -> Result<()> {
    if (0.0..=1.0).contains(&loss) {
        return Ok(());
    }
    Err(wrong(
        format!("the loss of {loss} is not a probability"),
        "write a number between 0 and 1: 0.01 loses one packet in a hundred",
    ))
}

fn ms(time: Duration) -> String {
    format!("{} ms", time.as_secs_f64() * 1e3)
}

/// The caller's mistake: what is wrong, and what to write instead.
fn wrong(message: impl Into<String>, hint: impl Into<Hint>) -> Error {
    Error::new(ErrorKind::Usage, message).fault(Fault::Caller).hint(hint)
}

// --- A change as JSON --------------------------------------------------------------------------

const UNLIMITED: &str = "unlimited";
const BDP: &str = "bdp";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeJson {
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    rate_bits_per_s: Option<NumberOrWord>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    delay_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    queue_bytes: Option<NumberOrWord>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    loss: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    jitter_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    is_down: Option<bool>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum NumberOrWord {
    Number(u64),
    Word(String),
}

/// A field that is there has a value: `null` is refused.
fn present<'de, T, D>(deserializer: D) -> std::result::Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    T::deserialize(deserializer).map(Some)
}

impl From<Change> for ChangeJson {
    fn from(change: Change) -> ChangeJson {
        // Both are far below u64's 584 years in a change that was checked.
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let number_or = |word: &str, number: Option<u64>| match number {
            Some(number) => NumberOrWord::Number(number),
            None => NumberOrWord::Word(word.to_owned()),
        };
        ChangeJson {
            rate_bits_per_s: change.rate_bits_per_s.map(|rate| number_or(UNLIMITED, rate)),
            delay_ns: change.delay.map(nanoseconds),
            queue_bytes: change.queue_bytes.map(|queue| number_or(BDP, queue)),
            loss: change.loss,
            jitter_ns: change.jitter.map(nanoseconds),
            is_down: change.is_down,
        }
    }
}

impl TryFrom<ChangeJson> for Change {
    type Error = String;

    fn try_from(json: ChangeJson) -> std::result::Result<Change, String> {
        let number = |value: Option<NumberOrWord>, word: &str| match value {
            None => Ok(None),
            Some(NumberOrWord::Number(number)) => Ok(Some(Some(number))),
            Some(NumberOrWord::Word(written)) if written == word => Ok(Some(None)),
            Some(NumberOrWord::Word(written)) => Err(format!("{written:?} is neither a number nor {word:?}")),
        };
        Ok(Change {
            rate_bits_per_s: number(json.rate_bits_per_s, UNLIMITED)?,
            delay: json.delay_ns.map(Duration::from_nanos),
            queue_bytes: number(json.queue_bytes, BDP)?,
            loss: json.loss,
            jitter: json.jitter_ns.map(Duration::from_nanos),
            is_down: json.is_down,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PACKET_BYTES: u32 = 1538;

    #[test]
    fn the_default_direction_does_nothing_to_packets() {
        let direction = Direction::default();
        assert_eq!(direction.rate_bits_per_s, None);
        assert_eq!((direction.delay, direction.jitter), (Duration::ZERO, Duration::ZERO));
        assert_eq!((direction.loss, direction.is_down), (0.0, false));
        direction.check(PACKET_BYTES).unwrap();
    }

    #[test]
    fn figures_as_people_write_them() {
        let text = ChangeText {
            rate: Some("800Mb/s".into()),
            delay_ms: Some(0.1),
            queue: Some("1MB".into()),
            loss: Some(1e-5),
            jitter_ms: Some(0.05),
            down: Some(false),
        };
        let change = text.parse().unwrap();
        assert_eq!(change.rate_bits_per_s, Some(Some(800_000_000)));
        assert_eq!(change.delay, Some(Duration::from_micros(100)));
        assert_eq!(change.queue_bytes, Some(Some(1_000_000)));
        assert_eq!(change.jitter, Some(Duration::from_micros(50)));
        change.check(PACKET_BYTES).unwrap();
        let words =
            ChangeText { rate: Some("unlimited".into()), queue: Some("bdp".into()), ..ChangeText::default() };
        assert_eq!(
            words.parse().unwrap(),
            Change { rate_bits_per_s: Some(None), queue_bytes: Some(None), ..Change::default() }
        );
    }

    #[test]
    fn figures_that_cannot_be() {
        let rate = |text: &str| ChangeText { rate: Some(text.into()), ..ChangeText::default() };
        let queue = |text: &str| ChangeText { queue: Some(text.into()), ..ChangeText::default() };
        let delay = |delay_ms| ChangeText { delay_ms: Some(delay_ms), ..ChangeText::default() };
        let jitter = |jitter_ms| ChangeText { jitter_ms: Some(jitter_ms), ..ChangeText::default() };
        let loss = |loss| ChangeText { loss: Some(loss), ..ChangeText::default() };
        let refused = [
            rate("fast"),
            rate("0"),
            rate("7kb/s"),
            rate("401Gb/s"),
            rate("9999999T"),
            queue("long"),
            queue("1537"),
            queue("17GiB"),
            delay(-1.0),
            delay(f64::NAN),
            delay(f64::INFINITY),
            delay(10_001.0),
            delay(1e300),
            jitter(-0.1),
            jitter(f64::NAN),
            jitter(10_001.0),
            loss(-1e-9),
            loss(1.000_001),
            loss(f64::NAN),
            loss(f64::INFINITY),
        ];
        for text in refused {
            let refusal = text.parse().and_then(|change| change.check(PACKET_BYTES)).unwrap_err();
            assert_eq!(refusal.kind(), ErrorKind::Usage, "{text:?}");
            assert_eq!(refusal.whose_fault(), Fault::Caller, "{text:?}");
            assert!(refusal.advice().is_some(), "{text:?}");
        }
        for text in
            [rate("8kb/s"), rate("400Gb/s"), queue("1538"), queue("16GiB"), delay(10_000.0), loss(1.0)]
        {
            text.parse().unwrap().check(PACKET_BYTES).unwrap();
        }
    }

    #[test]
    fn a_change_is_checked_against_what_it_leaves() {
        let direction = Direction { delay: Duration::from_millis(5), ..Direction::default() };
        let change = |delay, jitter| Change { delay, jitter, ..Change::default() };
        let ms = |ms| Some(Duration::from_millis(ms));
        assert!(change(None, ms(6)).applied(&direction, PACKET_BYTES).is_err());
        assert_eq!(change(None, ms(5)).applied(&direction, PACKET_BYTES).unwrap().jitter.as_millis(), 5);
        assert_eq!(change(ms(7), ms(6)).applied(&direction, PACKET_BYTES).unwrap().delay.as_millis(), 7);
        assert!(Change::default().is_empty());
        assert!(!Change { is_down: Some(false), ..Change::default() }.is_empty());
        assert_eq!(Change::default().applied(&direction, PACKET_BYTES).unwrap(), direction);
    }

    #[test]
    fn a_change_as_json() {
        let json = |change: &Change| serde_json::to_string(change).unwrap();
        assert_eq!(json(&Change::default()), "{}");
        let unlimited = Change { rate_bits_per_s: Some(None), queue_bytes: Some(None), ..Change::default() };
        assert_eq!(json(&unlimited), r#"{"rate_bits_per_s":"unlimited","queue_bytes":"bdp"}"#);
        for bad in [
            r#"{"rate_bits_per_s":null}"#,
            r#"{"rate_bits_per_s":"bdp"}"#,
            r#"{"rate_bits_per_s":-1}"#,
            r#"{"loss":null}"#,
            r#"{"delay":1}"#,
        ] {
            assert!(serde_json::from_str::<Change>(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn json_keeps_every_change(
            rate_bits_per_s: Option<Option<u64>>,
            delay_ns: Option<u64>,
            queue_bytes: Option<Option<u64>>,
            loss in proptest::option::of(0.0..=1.0),
            jitter_ns: Option<u64>,
            is_down: Option<bool>,
        ) {
            let change = Change {
                rate_bits_per_s,
                delay: delay_ns.map(Duration::from_nanos),
                queue_bytes,
                loss,
                jitter: jitter_ns.map(Duration::from_nanos),
                is_down,
            };
            let json = serde_json::to_string(&change).unwrap();
            let again: Change = serde_json::from_str(&json).unwrap();
            // serde_json reads floating-point numbers to the last bit but one.
            prop_assert_eq!(again.loss.map(|loss| loss as f32), change.loss.map(|loss| loss as f32));
            prop_assert_eq!(Change { loss: None, ..again }, Change { loss: None, ..change });
        }
    }
}
