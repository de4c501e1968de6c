//! Reads what an active server says while it copies.
//!
//! As tolerant as davix, through which gfal2 and FTS read: lines are trimmed at both ends, words have no case, unknown ones
//! are skipped, the last line may lack its end (XRootD, StoRM), and a line is kept up to 1024 bytes. Markers of several
//! stripes, of which each tells its own bytes, are added up.

use gridlane_core::limits;
use gridlane_core::text::printable;

/// Something that the active server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Where the copy stands.
    Marker(Progress),
    /// It has ended; nothing behind that counts.
    End(Ending),
}

/// What a marker says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of all stripes since the beginning, as far as markers told them; `None` while no marker told any, as while the
    /// copy is queued.
    pub bytes: Option<u64>,
    /// Stripes of which the copy consists, 1 where no marker says it.
    pub total_stripes: u32,
    /// The remote ends of its connections, as they were written: `tcp:192.0.2.7:443`.
    pub remote_connections: Vec<String>,
    /// The server's word for its state, such as `Running`.
    pub state: Option<String>,
    /// What it says about that.
    pub description: Option<String>,
    /// When it was said, in seconds since 1970 by the server's clock.
    pub timestamp_s: Option<u64>,
}

/// The end of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The target is there.
    Success,
    /// It is not, for this reason: text for people, in the server's words, on one line.
    Failure(String),
}

/// The machine: give it the bytes of the body as they come, and at its end call [`finish`](MarkerReader::finish).
///
/// An answer of 2xx whose body ends without an [`Event::End`] leaves open whether the copy has succeeded.
///
/// ```
/// use gridlane_dav::third_party::{Ending, Event, MarkerReader};
/// let (mut reader, mut events) = (MarkerReader::new(), Vec::new());
/// for mut piece in [&b"Perf Marker\n Stripe Bytes Tran"[..], b"sferred: 5\nEnd\nsuccess: Created"] {
///     while let Some(event) = reader.next(&mut piece) {
///         events.push(event);
///     }
/// }
/// events.extend(reader.finish());
/// assert!(matches!(&events[0], Event::Marker(progress) if progress.bytes == Some(5)));
/// assert_eq!(events[1], Event::End(Ending::Success));
/// ```
#[derive(Debug, Default)]
pub struct MarkerReader {
    /// The unfinished line, as far as it is kept.
    line: Vec<u8>,
    /// Bytes of each stripe that has told them, by its index.
    stripes: Vec<u64>,
    has_bytes: bool,
    /// The marker that is being read.
    marker: Option<Draft>,
    is_ended: bool,
}

/// A marker of which not all lines are there.
#[derive(Debug, Default)]
struct Draft {
    progress: Progress,
    stripe: Option<usize>,
    bytes: Option<u64>,
    total: Option<u32>,
}

impl MarkerReader {
    /// A reader in front of a body.
    pub fn new() -> MarkerReader {
        MarkerReader::default()
    }

    /// The next thing that is said in `input`, which becomes what is behind it; `None` when all of it has been read.
    pub fn next(&mut self, input: &mut &[u8]) -> Option<Event> {
        while !self.is_ended {
            let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
                self.keep(input);
                break;
            };
            self.keep(&input[..end]);
            *input = &input[end + 1..];
            if let Some(event) = self.take_line() {
                return Some(event);
            }
        }
        *input = &[];
        None
    }

    /// What the last line says, when no more bytes come: it may lack its end. `None` when nothing has ended there.
    pub fn finish(&mut self) -> Option<Event> {
        if self.is_ended { None } else { self.take_line() }
    }

    /// True if the end of the copy was told.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = limits::MARKER_LINE_BYTES_MAX - self.line.len();
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn take_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        let event = self.read_line(printable(String::from_utf8_lossy(&line).trim()).trim());
        // The memory is used again.
        self.line = line;
        self.line.clear();
        event
    }

    fn read_line(&mut self, line: &str) -> Option<Event> {
        if let Some(ending) = ending(line) {
            self.is_ended = true;
            return Some(Event::End(ending));
        }
        if behind(line, "perf marker").is_some() {
            self.marker = Some(Draft::default());
            return None;
        }
        if line.eq_ignore_ascii_case("end") {
            return self.marker.take().map(|marker| Event::Marker(self.complete(marker)));
        }
        if let Some(marker) = &mut self.marker {
            marker.read_line(line);
        }
        None
    }

    /// The marker, with the bytes of the other stripes.
    fn complete(&mut self, marker: Draft) -> Progress {
        let mut progress = marker.progress;
        let stripe = marker.stripe.unwrap_or(0);
        if let Some(bytes) = marker.bytes.filter(|_| stripe < limits::MARKER_STRIPES_MAX) {
            if self.stripes.len() <= stripe {
                self.stripes.resize(stripe + 1, 0);
            }
            self.stripes[stripe] = bytes;
            self.has_bytes = true;
        }
        let sum = self.stripes.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        progress.bytes = self.has_bytes.then_some(sum);
        // Indices begin at 0.
        let told = u32::try_from(self.stripes.len()).unwrap_or(u32::MAX);
        progress.total_stripes = marker.total.unwrap_or(1).max(told);
        progress
    }
}

impl Draft {
    /// A line between `Perf Marker` and `End`.
    fn read_line(&mut self, line: &str) {
        let Some((key, value)) = line.split_once(':') else { return };
        let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
        match key.as_str() {
            "timestamp" => self.progress.timestamp_s = number(value),
            "state" => self.progress.state = Some(value.to_owned()),
            "state description" => self.progress.description = Some(value.to_owned()),
            // An index that cannot be read belongs to no stripe.
            "stripe index" => {
                self.stripe =
                    Some(number(value).and_then(|index| index.try_into().ok()).unwrap_or(usize::MAX));
            }
            "stripe bytes transferred" => self.bytes = number(value),
            "total stripe count" => {
                let count = number(value).and_then(|count| u32::try_from(count).ok());
                self.total =
                    count.filter(|count| (1..=limits::MARKER_STRIPES_MAX).contains(&(*count as usize)));
            }
            "remoteconnections" => {
                let all = value.split(',').map(str::trim).filter(|connection| !connection.is_empty());
                self.progress.remote_connections = all.map(str::to_owned).collect();
            }
            _ => {}
        }
    }
}

/// The digits at the beginning: davix does not look at what is behind them.
fn number(text: &str) -> Option<u64> {
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// What a line that is a last one says.
fn ending(line: &str) -> Option<Ending> {
    if behind(line, "success").is_some() {
        return Some(Ending::Success);
    }
    // This word stays in the text: it tells what has happened.
    let cause = match behind(line, "aborted") {
        Some(_) => line,
        None => behind(line, "failure").or_else(|| behind(line, "failed"))?,
    };
    let cause = cause.trim_start_matches(|char: char| char == ':' || char.is_whitespace());
    Some(Ending::Failure(if cause.is_empty() { line } else { cause }.to_owned()))
}

/// The rest of a line that begins with a word, in any case.
fn behind<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let (start, rest) = line.split_at_checked(word.len())?;
    start.eq_ignore_ascii_case(word).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::third_party::{Marker, Stripe, failure, success};
    use proptest::prelude::*;

    fn read(pieces: &[&[u8]]) -> Vec<Event> {
        let (mut reader, mut events) = (MarkerReader::new(), Vec::new());
        for piece in pieces {
            let mut piece = *piece;
            while let Some(event) = reader.next(&mut piece) {
                events.push(event);
            }
            assert!(piece.is_empty());
        }
        events.extend(reader.finish());
        assert_eq!(reader.finish(), None, "the end is told once");
        events
    }

    fn end(text: &str) -> Option<Ending> {
        match read(&[text.as_bytes()]).pop() {
            Some(Event::End(ending)) => Some(ending),
            _ => None,
        }
    }

    fn failed(text: &str) -> Option<Ending> {
        Some(Ending::Failure(text.to_owned()))
    }

    #[test]
    fn last_lines() {
        for (text, expected) in [
            ("success: Created\n", Some(Ending::Success)),
            ("success: Created", Some(Ending::Success)),
            ("  SUCCESS\r\n", Some(Ending::Success)),
            ("Success: done\nfailure: no\n", Some(Ending::Success)),
            ("failure: rejected GET: 404 Not Found", failed("rejected GET: 404 Not Found")),
            ("Failed:no\n", failed("no")),
            ("failure\n", failed("failure")),
            ("aborted\n", failed("aborted")),
            ("Aborted: by the client\n", failed("Aborted: by the client")),
            ("failure: a\u{1b}[2Jb\u{202e}\n", failed("a\u{fffd}[2Jb\u{fffd}")),
            ("Perf Marker\nState: x\nfailure: inside\n", failed("inside")),
            ("failur\n", None),
            ("it is no success\n", None),
            ("", None),
            ("\n\n", None),
        ] {
            assert_eq!(end(text), expected, "{text:?}");
        }
        let long = format!("failure: {}\n", "x".repeat(5000));
        assert_eq!(end(&long), failed(&"x".repeat(limits::MARKER_LINE_BYTES_MAX - "failure: ".len())));
    }

    fn progress(text: &str) -> Vec<Progress> {
        let markers = read(&[text.as_bytes()]).into_iter();
        markers
            .filter_map(|event| if let Event::Marker(progress) = event { Some(progress) } else { None })
            .collect()
    }

    #[test]
    fn a_marker_of_dcache() {
        let text = "Perf Marker\n    Timestamp: 1538000000\n    State: Running\n    State description: Mover created\n    \
                    Stripe Index: 0\n    Stripe Start Time: 1537999990\n    Stripe Last Transferred: 1537999999\n    \
                    Stripe Transfer Time: 9\n    Stripe Bytes Transferred: 1048576\n    Stripe Status: RUNNING\n    \
                    Total Stripe Count: 1\n    RemoteConnections: tcp:192.0.2.7:443,tcp:[2001:db8::7]:443\nEnd\n";
        let expected = Progress {
            bytes: Some(1_048_576),
            total_stripes: 1,
            remote_connections: vec!["tcp:192.0.2.7:443".into(), "tcp:[2001:db8::7]:443".into()],
            state: Some("Running".into()),
            description: Some("Mover created".into()),
            timestamp_s: Some(1_538_000_000),
        };
        assert_eq!(progress(text), [expected]);
    }

    #[test]
    fn bytes_of_stripes_are_added_up() {
        for (text, expected) in [
            // Queued: no stripe.
            ("Perf Marker\nTimestamp: 1\nEnd\n", vec![None]),
            ("perf marker\nstripe bytes transferred:5\nEND\n", vec![Some(5)]),
            // XRootD: one marker, and its own keys.
            (
                "Perf Marker\nTimestamp: 1\nStripe Index: 0\nStripe Bytes Transferred: 7\nTotal Stripe Count: 1\nEnd\n",
                vec![Some(7)],
            ),
            (
                "Perf Marker\nStripe Index: 0\nStripe Bytes Transferred: 5\nTotal Stripe Count: 2\nEnd\n\
                 Perf Marker\nStripe Index: 1\nStripe Bytes Transferred: 6\nTotal Stripe Count: 2\nEnd\n\
                 Perf Marker\nStripe Index: 0\nStripe Bytes Transferred: 9\nTotal Stripe Count: 2\nEnd\n",
                vec![Some(5), Some(11), Some(15)],
            ),
            ("Perf Marker\nStripe Index: 8192\nStripe Bytes Transferred: 5\nEnd\n", vec![None]),
            ("Perf Marker\nStripe Index: x\nStripe Bytes Transferred: 5\nEnd\n", vec![None]),
            ("Perf Marker\nStripe Bytes Transferred: 99999999999999999999\nEnd\n", vec![None]),
            ("Perf Marker\nStripe Bytes Transferred: 5 bytes\nUnknown: x\nno colon\nEnd\n", vec![Some(5)]),
            // Lines outside of a marker, and a marker that another one cuts off.
            (
                "Stripe Bytes Transferred: 5\nEnd\nPerf Marker\nStripe Bytes Transferred: 6\nPerf Marker\nEnd\n",
                vec![None],
            ),
            ("Perf Marker\nStripe Bytes Transferred: 5", vec![]),
        ] {
            let bytes: Vec<_> = progress(text).into_iter().map(|progress| progress.bytes).collect();
            assert_eq!(bytes, expected, "{text:?}");
        }
        let text = format!("Perf Marker\nStripe Index: 8191\nStripe Bytes Transferred: {}\nEnd\n", u64::MAX);
        let twice = progress(&format!("{text}{}", text.replace("8191", "0")));
        assert_eq!((twice[1].bytes, twice[1].total_stripes), (Some(u64::MAX), 8192));
    }

    #[test]
    fn memory_is_bounded() {
        let mut reader = MarkerReader::new();
        for _ in 0..1000 {
            let mut piece = &[b'x'; 10_000][..];
            assert_eq!(reader.next(&mut piece), None);
        }
        assert!(reader.line.capacity() <= 2 * limits::MARKER_LINE_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes: u64, now_s in 0u64..1 << 40, description in "[a-z ]{0,300}", port: u16) {
            let connections = [std::net::SocketAddr::from(([192, 0, 2, 7], port))];
            let stripe = Stripe { started_s: 1, last_s: 2, bytes, connections: &connections };
            let text = Marker { now_s, description: &description, stripe: Some(stripe) }.encode();
            let read = progress(&text);
            prop_assert_eq!(read.len(), 1);
            prop_assert_eq!((read[0].bytes, read[0].timestamp_s), (Some(bytes), Some(now_s)));
            prop_assert_eq!(&read[0].remote_connections, &[format!("tcp:192.0.2.7:{port}")]);
        }

        #[test]
        fn the_end_is_read_as_it_was_written(cause in "\\PC{0,400}") {
            let line = failure(&cause);
            let text = line.trim_end().strip_prefix("failure:").unwrap();
            let cause = text.trim_start_matches(|char: char| char == ':' || char.is_whitespace());
            if !cause.is_empty() {
                prop_assert_eq!(end(&line), failed(cause));
            }
            prop_assert_eq!(end(success()), Some(Ending::Success));
        }

        #[test]
        fn pieces_make_no_difference(text in "(Perf Marker\n|End\n|(Stripe Index|Stripe Bytes Transferred): [0-9]{1,2}\n|success\n|failure: x|\\PC{0,9}|\n)*", cut in 1usize..9) {
            let whole = read(&[text.as_bytes()]);
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(cut).collect();
            prop_assert_eq!(read(&pieces), whole);
        }
    }
}
