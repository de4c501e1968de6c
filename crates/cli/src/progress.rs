//! A copy as a person sees it: a few lines that are redrawn on a terminal, and a summary at the end.

pub(crate) mod tree;

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use gridlane_client::third_party::{self, Carrier, Detour};
use gridlane_client::{CopyEvent, CopyObserver, Kept};
use gridlane_core::Error;
use gridlane_core::units::{format_bytes, format_rate, format_seconds};
use gridlane_engine::{Basis, Event, Report, Snapshot, State};

use crate::args::Progress;
use crate::cp::typed_command;
use crate::output::{Output, draw, printable, show, tell, to_stderr, warning_text};
use crate::progress::tree::would_text;
use crate::words;

/// Where there is no terminal, a line this often, when asked for.
const PLAIN_INTERVAL: Duration = Duration::from_secs(2);
/// Width when the terminal does not tell its own.
const COLUMNS: usize = 80;

/// Standard error, as a screen or as lines.
pub(crate) struct Canvas {
    mode: Mode,
    /// Lines that the next drawing replaces.
    drawn: usize,
    plain_at: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Redraw,
    Lines,
    Nothing,
}

impl Canvas {
    pub(crate) fn new(progress: Progress, output: &Output) -> Canvas {
        let terminal =
            std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let mode = match progress {
            _ if output.quiet => Mode::Nothing,
            Progress::Never => Mode::Nothing,
            Progress::Auto | Progress::Always if terminal => Mode::Redraw,
            Progress::Always => Mode::Lines,
            Progress::Auto => Mode::Nothing,
        };
        Canvas { mode, drawn: 0, plain_at: Instant::now() }
    }

    /// Takes the progress lines away.
    pub(crate) fn clear(&mut self) {
        if self.drawn > 0 {
            // Up, then erase from there to the end of the screen (ECMA-48: CUU, ED).
            draw(&format!("\x1b[{}A\r\x1b[J", self.drawn));
            self.drawn = 0;
        }
    }

    /// Prints a line that stays.
    pub(crate) fn say(&mut self, text: &str) {
        self.clear();
        tell!("gridlane: {text}");
    }

    /// Shows the total, and on a screen as many of the `details` as fit, each made for so many columns.
    pub(crate) fn draw(
        &mut self,
        total: impl FnOnce() -> String,
        details: impl FnOnce(usize) -> Vec<String>,
    ) {
        match self.mode {
            Mode::Nothing => {}
            Mode::Lines => {
                if self.plain_at.elapsed() >= PLAIN_INTERVAL {
                    self.plain_at = Instant::now();
                    tell!("gridlane: {}", total());
                }
            }
            Mode::Redraw => {
                let (columns, rows) = terminal_size();
                let room = rows.saturating_sub(2).max(1);
                let lines = std::iter::once(total()).chain(details(columns)).take(room);
                let lines: Vec<String> = lines.collect();
                let mut text = String::new();
                if self.drawn > 0 {
                    let _ = write!(text, "\x1b[{}A\r", self.drawn);
                }
                for line in &lines {
                    let line: String =
                        printable(line.as_bytes()).chars().take(columns.saturating_sub(1)).collect();
                    let _ = writeln!(text, "{line}\x1b[K");
                }
                text.push_str("\x1b[J");
                // One write: no flicker, and no other line in between.
                draw(&text);
                self.drawn = lines.len();
            }
        }
    }
}

/// Shows copies, one after the other.
pub(crate) struct Screen {
    urls: Vec<String>,
    target: String,
    canvas: Canvas,
    trying: Trying,
    verbose: bool,
    quiet: bool,
}

/// Why nothing comes, from when a connection was lost until something comes again.
#[derive(Default)]
struct Trying {
    why: Option<String>,
    /// The amount that was there when it was shown first.
    done_bytes: Option<u64>,
}

impl Trying {
    fn again(&mut self, error: &Error) {
        *self = Trying { why: Some(error.message().to_owned()), done_bytes: None };
    }

    /// The total, with that.
    fn line(&mut self, snapshot: &Snapshot) -> String {
        if *self.done_bytes.get_or_insert(snapshot.done_bytes) != snapshot.done_bytes {
            *self = Trying::default();
        }
        match &self.why {
            Some(why) => format!("{}  trying again: {why}", total_line(snapshot)),
            None => total_line(snapshot),
        }
    }
}

impl Screen {
    pub(crate) fn new(progress: Progress, output: &Output) -> Screen {
        let (verbose, quiet) = (output.verbose, output.quiet);
        Screen {
            urls: Vec::new(),
            target: String::new(),
            canvas: Canvas::new(progress, output),
            trying: Trying::default(),
            verbose,
            quiet,
        }
    }

    fn say(&mut self, text: &str) {
        self.canvas.say(text);
    }

    fn draw(&mut self, snapshot: &Snapshot) {
        let sources = self.urls.iter().zip(&snapshot.sources);
        self.canvas.draw(
            || self.trying.line(snapshot),
            |columns| sources.map(|(url, source)| source_line(url, source, snapshot, columns)).collect(),
        );
    }
}

impl CopyObserver for Screen {
    fn event(&mut self, event: &CopyEvent<'_>) {
        match event {
            CopyEvent::Engine(event) => return self.engine(event),
            CopyEvent::Warning(_) if self.quiet => return,
            CopyEvent::Warning(warning) => return self.say(&warning_text(warning)),
            CopyEvent::Turn { sources, target } => {
                (self.urls, self.target) = (sources.to_vec(), (*target).to_owned());
                self.trying = Trying::default();
            }
            _ => {}
        }
        self.canvas.clear();
        let target = &self.target;
        match event {
            CopyEvent::Note(text) if self.verbose => tell!("gridlane: {text}"),
            CopyEvent::Would { action, sources, target: Some(url), size_bytes } => {
                show!("{}", would_text(*action, sources, url, *size_bytes));
            }
            CopyEvent::Would { action, sources, .. } => {
                show!("{:<7} {} -> {target}", action.name(), sources[0]);
            }
            CopyEvent::Skipped(why) if !self.quiet => {
                tell!("gridlane: {target}: {}", words::left_out(*why));
            }
            // That bytes go through this machine is worth a line; the steps before that are not.
            CopyEvent::Detour { detour: Detour::Streamed, why } if !self.quiet => {
                tell!("gridlane: {target}: {}", words::detour(Detour::Streamed, why, Some(target)));
            }
            CopyEvent::Detour { detour, why } if self.verbose => {
                tell!("gridlane: {target}: {}", words::detour(*detour, why, Some(target)));
            }
            CopyEvent::Refused(error) => tell!("gridlane: {}", words::error(error)),
            CopyEvent::TimeLost(error) if !self.quiet => {
                tell!("gridlane: {target}: its time is not kept: {}", error.message());
            }
            CopyEvent::Ended { report, error: None, carrier, .. } if !self.quiet => {
                to_stderr(format_args!("{}", summary_text(report, target, *carrier)));
            }
            CopyEvent::Ended { report, error: Some(error), kept, .. } => self.failed(error, report, kept),
            _ => {}
        }
    }
}

impl Screen {
    /// Says how a copy failed.
    fn failed(&self, error: &Error, report: &Report, kept: &Kept) {
        tell!("gridlane: {}", words::error(error));
        let others = report.sources.iter().filter(|_| !self.quiet && report.sources.len() > 1);
        for source in others {
            if let Some(error) = &source.error {
                tell!("  {}: {}", source.url, error.message());
            }
        }
        match kept {
            Kept::Nothing => {}
            Kept::Unusable(why) => {
                tell!("gridlane: nothing of it is kept: {why}; set XDG_STATE_HOME to a directory that lasts");
            }
            Kept::Bytes(bytes) => {
                let command = typed_command();
                tell!("gridlane: {} are kept; this continues: {command}", format_bytes(*bytes));
            }
        }
    }

    fn engine(&mut self, event: &Event<'_>) {
        match event {
            Event::Progress(snapshot) => self.draw(snapshot),
            Event::Added { url, .. } => {
                self.urls.push((*url).to_owned());
                if self.verbose {
                    self.say(&format!("{url} is a replica as well, as a server says"));
                }
            }
            Event::Plan { dropped: Some(why), .. } if !self.quiet => {
                self.say(&format!("an earlier partial file is not used: {why}"));
            }
            Event::Plan { resumed_bytes, .. } if *resumed_bytes > 0 && !self.quiet => {
                self.say(&format!("continuing: {} are there already", format_bytes(*resumed_bytes)));
            }
            Event::Source { source, state, error } if !self.quiet => {
                let why = error.map(|error| format!(": {}", error.message())).unwrap_or_default();
                // With one source the error is the end, and is told there.
                if self.urls.len() > 1 {
                    self.say(&format!("{} is {state}{why}", self.urls[*source]));
                }
            }
            Event::WrongPiece { range, sources } if self.verbose => {
                let from: Vec<&str> = sources.iter().map(|number| self.urls[*number].as_str()).collect();
                self.say(&format!("{range} from {} are wrong: fetched again", from.join(", ")));
            }
            Event::Mismatch { found, expected, .. } if !self.quiet => {
                self.say(&format!(
                    "the bytes have {found}, not {expected}: looking for the source that is wrong"
                ));
            }
            Event::Retry { source, error } => {
                self.trying.again(error);
                if self.verbose {
                    self.say(&format!("{}: {}; trying again", self.urls[*source], error.message()));
                }
            }
            _ => {}
        }
    }
}

fn total_line(snapshot: &Snapshot) -> String {
    let rate = format_rate(snapshot.rate_bytes_per_s);
    if snapshot.verifying {
        return format!("{} are there, waiting for checksums", format_bytes(snapshot.done_bytes));
    }
    let Some(size_bytes) = snapshot.size_bytes else {
        return format!("{}  {rate}", format_bytes(snapshot.done_bytes));
    };
    let percent = 100.0 * snapshot.done_bytes as f64 / size_bytes.max(1) as f64;
    let eta = snapshot.eta_s.map_or("unknown".into(), format_seconds);
    let (done, size) = (format_bytes(snapshot.done_bytes), format_bytes(size_bytes));
    format!("{done} of {size} ({percent:.0} %)  {rate}  {eta} left")
}

fn source_line(
    url: &str,
    source: &gridlane_engine::events::SourceSnapshot,
    snapshot: &Snapshot,
    columns: usize,
) -> String {
    let share = 100.0 * source.bytes as f64 / snapshot.done_bytes.max(1) as f64;
    let round_trip = source.round_trip.map_or("-".into(), round_trip_text);
    let rate = format_rate(source.rate_bytes_per_s);
    let numbers = format!("{:<10} {rate:>10} {round_trip:>9} {share:>3.0} %", source.state);
    let room = columns.saturating_sub(numbers.chars().count() + 5).max(10);
    format!("  {:<room$} {numbers}", shortened(url, room))
}

/// A round trip for people: `50 µs`, `12.3 ms`, `150 ms`.
fn round_trip_text(round_trip: Duration) -> String {
    match round_trip.as_secs_f64() * 1e3 {
        ms if ms < 1.0 => format!("{:.0} µs", ms * 1e3),
        ms if ms < 100.0 => format!("{ms:.1} ms"),
        ms => format!("{ms:.0} ms"),
    }
}

/// The end of a URL says more than its beginning.
fn shortened(url: &str, room: usize) -> String {
    let count = url.chars().count();
    match count > room {
        true => format!("…{}", url.chars().skip(count - room + 1).collect::<String>()),
        false => url.to_owned(),
    }
}

fn terminal_size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (COLUMNS, 24),
    }
}

/// The checksum that was compared, where no source states the one that was asked for.
fn instead(report: &Report) -> String {
    match (report.verified, &report.checksum) {
        (None, _) => "nothing was compared, the copy is unverified".into(),
        (Some(Basis::Metalink), _) => "compared with what its metalink says".into(),
        (Some(_), Some(checksum)) => format!("compared by {} instead", checksum.kind().name()),
        (Some(_), None) => "compared by another".into(),
    }
}

/// The outcome of a copy, in a few lines.
pub(crate) fn summary_text(report: &Report, target: &str, carrier: Option<&Carrier>) -> String {
    let rate = format_rate(report.rate_bytes_per_s());
    let target = printable(target.as_bytes());
    let checksum = report.checksum.as_ref().map(|checksum| checksum.to_string()).unwrap_or_default();
    let mut text = match report.unstated {
        // First of all: it is not what was asked for.
        Some(kind) => format!("{target}: no source states its {}: {}\n", kind.name(), instead(report)),
        None => String::new(),
    };
    let _ = write!(
        text,
        "{target}: {} in {} ({rate})",
        format_bytes(report.done_bytes),
        format_seconds(report.seconds)
    );
    if report.resumed_bytes > 0 {
        let _ = write!(text, ", {} of them from an earlier run", format_bytes(report.resumed_bytes));
    }
    let _ = match report.verified {
        Some(basis @ Basis::Sources { named: 2.., .. }) => {
            writeln!(text, ", verified by {}: {checksum}", words::basis(basis))
        }
        Some(basis) => writeln!(text, ", verified {checksum} ({})", words::basis(basis)),
        None => writeln!(text, ", unverified {checksum} (nothing to compare it with)"),
    };
    if let Some(Carrier { mode, server }) = carrier {
        let used = report.sources.iter().filter(|source| source.state != State::Spare);
        let sources: Vec<&str> = used.map(|source| source.url.as_str()).collect();
        let how = match mode {
            third_party::Mode::Pull => "fetched it from",
            third_party::Mode::Push => "sent it from",
        };
        let _ = writeln!(text, "  {server} {how} {} ({mode}): no byte of it came here", sources.join(", "));
        return text;
    }
    for source in &report.sources {
        let share = 100.0 * source.bytes as f64 / report.done_bytes.max(1) as f64;
        let best = source.rate_best_bytes_per_s.map_or("-".into(), format_rate);
        let round_trip =
            source.round_trip.map_or("-".into(), |rtt| format!("{:.2} ms", rtt.as_secs_f64() * 1e3));
        let _ = writeln!(
            text,
            "  {:>8} {share:>3.0} %  best second {best}, round trip {round_trip}, {} connection{}  {}",
            format_bytes(source.bytes),
            source.connections,
            if source.connections == 1 { "" } else { "s" },
            source.url,
        );
        if let Some(error) = &source.error {
            let _ = writeln!(text, "           {}: {}", source.state, error.message());
        }
    }
    let _ = match report.bound_s {
        Some(bound_s) => writeln!(
            text,
            "  bound {} ({}), reached {:.2} of it; limited by {}",
            format_seconds(bound_s),
            report.bound_from,
            bound_s / report.seconds.max(1e-9),
            words::limit(report.limited_by)
        ),
        None => {
            writeln!(text, "  bound {}; limited by {}", report.bound_from, words::limit(report.limited_by))
        }
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_it_is_tried_again_stands_there_until_something_comes() {
        let mut snapshot = Snapshot {
            size_bytes: None,
            done_bytes: 0,
            rate_bytes_per_s: 0.0,
            eta_s: None,
            elapsed_s: 0.0,
            verifying: false,
            sources: Vec::new(),
        };
        let mut trying = Trying::default();
        assert_eq!(trying.line(&snapshot), "0 B  0 B/s");
        let refused = Error::new(gridlane_core::ErrorKind::Network, "connection refused");
        trying.again(&refused);
        for _ in 0..2 {
            assert_eq!(trying.line(&snapshot), "0 B  0 B/s  trying again: connection refused");
        }
        snapshot.done_bytes = 1000;
        assert_eq!(trying.line(&snapshot), "1.00 kB  0 B/s");
        // The same in the midst of it.
        trying.again(&refused);
        assert_eq!(trying.line(&snapshot), "1.00 kB  0 B/s  trying again: connection refused");
        snapshot.done_bytes = 2000;
        assert_eq!(trying.line(&snapshot), "2.00 kB  0 B/s");
    }

    #[test]
    fn the_end_of_a_long_url_is_kept() {
        assert_eq!(shortened("https://a.example/dir/file.root", 12), "…r/file.root");
        assert_eq!(shortened("short", 12), "short");
    }

    #[test]
    fn round_trips_from_loopback_to_the_other_side_of_the_world() {
        for (us, text) in [(9, "9 µs"), (12_340, "12.3 ms"), (301_000, "301 ms")] {
            assert_eq!(round_trip_text(Duration::from_micros(us)), text);
        }
    }
}
