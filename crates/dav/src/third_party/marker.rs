//! What the active server says while it copies: markers, and one last line.
//!
//! Written for davix, the strictest reader, through which gfal2 and FTS read as well: lines of less than 1024 bytes that end
//! in LF, and exactly one space behind the colons of numbers.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use gridlane_core::limits;
use gridlane_core::text::printable;

/// The type of a body of markers.
pub const MEDIA_TYPE: &str = "text/perf-marker-stream";

/// Where a copy stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker<'a> {
    /// Now, in seconds since 1970.
    pub now_s: u64,
    /// What the copy does, in a few words: it waits for its turn, bytes come. For people and logs.
    pub description: &'a str,
    /// How far it is; `None` while it waits for its turn.
    pub stripe: Option<Stripe<'a>>,
}

/// The progress of a copy that runs. Whatever it does at once is told as one stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripe<'a> {
    /// When it began, in seconds since 1970.
    pub started_s: u64,
    /// When the last bytes came, in seconds since 1970.
    pub last_s: u64,
    /// Bytes since the beginning that are safely written.
    pub bytes: u64,
    /// The remote ends of the connections that carry it. As many are told as a line holds.
    pub connections: &'a [SocketAddr],
}

impl Marker<'_> {
    /// The lines of it, the last of which is `End`.
    pub fn encode(&self) -> String {
        let state = if self.stripe.is_some() { "Running" } else { "Queued" };
        let mut text = format!("Perf Marker\n    Timestamp: {}\n    State: {state}\n", self.now_s);
        text.push_str("    State description: ");
        push_bounded(&mut text, self.description, DESCRIPTION_BYTES_MAX);
        text.push('\n');
        if let Some(stripe) = &self.stripe {
            let duration_s = self.now_s.saturating_sub(stripe.started_s);
            // Writing to a text cannot fail.
            let _ = write!(
                text,
                "    Stripe Index: 0\n    Stripe Start Time: {}\n    Stripe Last Transferred: {}\n    \
                 Stripe Transfer Time: {duration_s}\n    Stripe Bytes Transferred: {}\n    \
                 Stripe Status: RUNNING\n    Total Stripe Count: 1\n",
                stripe.started_s, stripe.last_s, stripe.bytes
            );
            push_connections(&mut text, stripe.connections);
        }
        text.push_str("End\n");
        text
    }
}

/// Far below the length of a line.
const DESCRIPTION_BYTES_MAX: usize = 200;

/// `RemoteConnections: tcp:192.0.2.7:443,tcp:[2001:db8::7]:443`, or nothing where there are none.
fn push_connections(text: &mut String, connections: &[SocketAddr]) {
    let start = text.len();
    for connection in connections {
        let (address, port) = (connection.ip().to_canonical(), connection.port());
        let shown = match address {
            IpAddr::V4(address) => format!("tcp:{address}:{port}"),
            IpAddr::V6(address) => format!("tcp:[{address}]:{port}"),
        };
        let is_first = text.len() == start;
        if !is_first && text.len() - start + 1 + shown.len() > limits::FINAL_LINE_BYTES_MAX {
            break;
        }
        text.push_str(if is_first { "    RemoteConnections: " } else { "," });
        text.push_str(&shown);
    }
    if text.len() > start {
        text.push('\n');
    }
}

/// The last line of a copy that is complete, verified and visible.
pub fn success() -> &'static str {
    "success: Created\n"
}

/// The last line of a copy that failed, with the cause: on one line, with nothing that is not to be shown, and no longer
/// than [`limits::FINAL_LINE_BYTES_MAX`].
pub fn failure(cause: &str) -> String {
    let mut line = "failure: ".to_owned();
    let cause = cause.trim();
    let room = limits::FINAL_LINE_BYTES_MAX - line.len() - 2;
    push_bounded(&mut line, if cause.is_empty() { "the copy failed" } else { cause }, room);
    line.push('\n');
    line
}

/// As much of a text as `bytes_max` holds, an ellipsis behind what is cut.
fn push_bounded(to: &mut String, text: &str, bytes_max: usize) {
    const CUT: char = '…';
    let text = printable(text);
    if text.len() <= bytes_max {
        return to.push_str(&text);
    }
    let mut end = bytes_max - CUT.len_utf8();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    to.push_str(text[..end].trim_end());
    to.push(CUT);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn as_davix_reads_it() {
        let connections = [
            "192.0.2.7:443".parse().unwrap(),
            "[2001:db8::7]:443".parse().unwrap(),
            "[::ffff:1.2.3.4]:80".parse().unwrap(),
        ];
        let stripe = Stripe {
            started_s: 1_729_999_990,
            last_s: 1_729_999_999,
            bytes: 1_234_567,
            connections: &connections,
        };
        let marker = Marker { now_s: 1_730_000_000, description: "bytes\r\ncome", stripe: Some(stripe) };
        assert_eq!(
            marker.encode(),
            "Perf Marker\n    Timestamp: 1730000000\n    State: Running\n    State description: bytes\u{fffd}\u{fffd}come\n    \
             Stripe Index: 0\n    Stripe Start Time: 1729999990\n    Stripe Last Transferred: 1729999999\n    \
             Stripe Transfer Time: 10\n    Stripe Bytes Transferred: 1234567\n    Stripe Status: RUNNING\n    \
             Total Stripe Count: 1\n    RemoteConnections: tcp:192.0.2.7:443,tcp:[2001:db8::7]:443,tcp:1.2.3.4:80\nEnd\n"
        );
    }

    #[test]
    fn nothing_is_said_about_what_is_not_known() {
        let queued = Marker { now_s: 7, description: "waits", stripe: None };
        assert_eq!(
            queued.encode(),
            "Perf Marker\n    Timestamp: 7\n    State: Queued\n    State description: waits\nEnd\n"
        );
        // A clock that was set back.
        let stripe = Stripe { started_s: 9, last_s: 9, bytes: 0, connections: &[] };
        let text = Marker { now_s: 7, description: "", stripe: Some(stripe) }.encode();
        assert!(text.contains("Stripe Transfer Time: 0\n") && !text.contains("RemoteConnections"), "{text}");
    }

    #[test]
    fn many_connections_are_one_short_line() {
        let connections = vec!["[2001:db8:1111:2222:3333:4444:5555:6666]:65535".parse().unwrap(); 100];
        let stripe = Stripe { started_s: 0, last_s: 0, bytes: 0, connections: &connections };
        let text = Marker { now_s: 7, description: &"é".repeat(5000), stripe: Some(stripe) }.encode();
        assert!(text.lines().all(|line| line.len() <= limits::FINAL_LINE_BYTES_MAX));
        let told = text.lines().find(|line| line.contains("RemoteConnections")).unwrap();
        assert!(told.ends_with("]:65535") && told.len() > 800, "{told}");
    }

    #[test]
    fn last_lines() {
        for (cause, line) in [
            ("remote server answered 403 Forbidden", "failure: remote server answered 403 Forbidden\n"),
            (" a\nb\u{1b}[2J\u{202e} ", "failure: a\u{fffd}b\u{fffd}[2J\u{fffd}\n"),
            ("", "failure: the copy failed\n"),
            ("\r\n", "failure: the copy failed\n"),
        ] {
            assert_eq!(failure(cause), line);
        }
        assert_eq!(success(), "success: Created\n");
    }

    proptest! {
        #[test]
        fn a_last_line_is_one_short_line(cause in "(\\PC|[\u{0}-\u{ff}\u{2028}]){0,1000}") {
            let line = failure(&cause);
            prop_assert!(line.len() < limits::FINAL_LINE_BYTES_MAX);
            prop_assert!(line.ends_with('\n') && line.starts_with("failure: ") && line.len() > 10);
            prop_assert!(!line.trim_end_matches('\n').contains(char::is_control));
        }
    }
}
