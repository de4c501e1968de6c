//! A tree as a person sees it: one line for the whole, a few for big files, and what went wrong.

use gridlane_client::third_party::Detour;
use gridlane_client::{
    About, Action, ActiveFile, LeftOut, TreeEvent, TreeObserver, TreePath, TreeReport, TreeSnapshot,
};
use gridlane_core::Url;
use gridlane_core::units::{format_bytes, format_rate, format_seconds};
use gridlane_engine::State;

use super::{Canvas, shortened};
use crate::args::Progress;
use crate::output::{Output, printable, show, warning_text};
use crate::words;

/// A file smaller than this is not shown while it is copied.
const BIG_BYTES: u64 = 64 * 1024 * 1024;

/// Shows a tree.
pub(crate) struct TreeScreen {
    canvas: Canvas,
    /// The source, when the target is a single file.
    target: String,
    verbose: bool,
    quiet: bool,
    has_told_of_times: bool,
    has_told_of_bytes: bool,
}

impl TreeScreen {
    pub(crate) fn new(target: &str, progress: Progress, output: &Output) -> TreeScreen {
        TreeScreen {
            canvas: Canvas::new(progress, output),
            target: target.to_owned(),
            verbose: output.verbose,
            quiet: output.quiet,
            has_told_of_times: false,
            has_told_of_bytes: false,
        }
    }

    /// Takes the progress lines away.
    pub(crate) fn clear(&mut self) {
        self.canvas.clear();
    }

    fn name(&self, name: &TreePath) -> String {
        match name.is_root() {
            true => self.target.clone(),
            false => printable(name.as_bytes()),
        }
    }
}

impl TreeObserver for TreeScreen {
    fn event(&mut self, event: &TreeEvent<'_>) {
        match event {
            TreeEvent::Progress(snapshot) => self.canvas.draw(
                || total_line(snapshot),
                |columns| {
                    let is_big = |file: &&ActiveFile| file.size_bytes.is_some_and(|size| size >= BIG_BYTES);
                    snapshot.active.iter().filter(is_big).map(|file| file_line(file, columns)).collect()
                },
            ),
            TreeEvent::Warning(_) if self.quiet => {}
            TreeEvent::Warning(warning) => self.canvas.say(&warning_text(warning)),
            TreeEvent::Failed { name, is_directory, error } => {
                let slash = if *is_directory && !name.is_root() { "/" } else { "" };
                let text = format!("{}{slash}: {}", self.name(name), words::error(error));
                self.canvas.say(&text);
            }
            TreeEvent::Skipped { name, why }
                if !self.quiet && (self.verbose || *why != LeftOut::UpToDate) =>
            {
                let text = format!("left out: {}: {}", self.name(name), words::left_out(*why));
                self.canvas.say(&text);
            }
            TreeEvent::Noted { name, url, about, error } => {
                let why = error.map(|error| format!(": {}", error.message())).unwrap_or_default();
                let whose = url.map(|url| format!(": {url}")).unwrap_or_default();
                let name = self.name(name);
                let is = |state: &str| format!("{name}{whose} is {state}{why}");
                match *about {
                    // Once is enough: the server keeps none, or all.
                    About::Time if self.quiet || std::mem::replace(&mut self.has_told_of_times, true) => {}
                    About::Time => {
                        let text = format!("{name}: its time is not kept{why}");
                        self.canvas.say(&text);
                    }
                    // The others go the same way, most likely.
                    About::Detour(Detour::Streamed)
                        if self.quiet || std::mem::replace(&mut self.has_told_of_bytes, !self.verbose) => {}
                    About::Detour(Detour::Streamed) => {
                        if let Some(why) = error {
                            let text = format!("{name}: {}", words::detour(Detour::Streamed, why, None));
                            self.canvas.say(&text);
                        }
                    }
                    About::Detour(detour) if self.verbose => {
                        if let Some(why) = error {
                            let text = format!("{name}: {}", words::detour(detour, why, None));
                            self.canvas.say(&text);
                        }
                    }
                    About::Unlisted => {
                        let text = format!("{name}{why}");
                        self.canvas.say(&text);
                    }
                    About::Source(State::Wrong) if !self.quiet => self.canvas.say(&is("wrong")),
                    About::Source(state) if self.verbose => self.canvas.say(&is(state.name())),
                    About::Retry if self.verbose => self.canvas.say(&is("retry")),
                    About::Mismatch if self.verbose => self.canvas.say(&is("mismatch")),
                    About::Source(_) | About::Retry | About::Mismatch | About::Detour(_) => {}
                }
            }
            TreeEvent::Would { action, sources, target, size_bytes, .. } => {
                self.canvas.clear();
                show!("{}", would_text(*action, sources, target, *size_bytes));
            }
            TreeEvent::FileDone { name, report, carrier } if self.verbose => {
                let verified = if report.verified.is_some() { "verified" } else { "unverified" };
                let size = format_bytes(report.done_bytes);
                let by = carrier.map(|carrier| format!(", {} by {}", carrier.mode, carrier.server));
                let text = format!("{}: {size}, {verified}{}", self.name(name), by.unwrap_or_default());
                self.canvas.say(&text);
            }
            TreeEvent::FileDone { .. } | TreeEvent::FileStarted { .. } | TreeEvent::Skipped { .. } => {}
        }
    }
}

/// The action for a file.
pub(crate) fn would_text(action: Action, sources: &[Url], target: &Url, size_bytes: Option<u64>) -> String {
    let size = size_bytes.map_or("size unknown".into(), format_bytes);
    let source = sources.first().map(ToString::to_string).unwrap_or_default();
    let text = format!("{:<7} {source} -> {target} ({size})", action.name());
    printable(text.as_bytes())
}

fn total_line(snapshot: &TreeSnapshot) -> String {
    let found = match snapshot.is_listed {
        true => format!("{} files, {}", snapshot.found_files, format_bytes(snapshot.found_bytes)),
        false => format!("{} files found so far", snapshot.found_files),
    };
    let mut text = format!(
        "{} of {found}; {} at {}",
        snapshot.done_files,
        format_bytes(snapshot.done_bytes),
        format_rate(snapshot.rate_bytes_per_s)
    );
    if snapshot.is_listed {
        text += &format!(", {} left", snapshot.eta_s.map_or("unknown".into(), format_seconds));
    }
    for (count, what) in [(snapshot.skipped, "skipped"), (snapshot.failed, "failed")] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    text
}

fn file_line(file: &ActiveFile, columns: usize) -> String {
    let size_bytes = file.size_bytes.unwrap_or(0);
    let percent = 100.0 * file.done_bytes as f64 / size_bytes.max(1) as f64;
    let numbers = format!("{percent:>3.0} % of {:>8}", format_bytes(size_bytes));
    let room = columns.saturating_sub(numbers.chars().count() + 5).max(10);
    format!("  {:<room$} {numbers}", shortened(&printable(file.name.as_bytes()), room))
}

/// The outcome of a tree, in a line or two.
pub(crate) fn tree_summary_text(report: &TreeReport, target: &str, dry_run: bool) -> String {
    let target = printable(target.as_bytes());
    let count = |count: u64, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    };
    let files = count(report.done_files, "file", "files");
    if dry_run {
        return format!(
            "{target}: would copy {files}, {}; {} there already, {} would fail, {} left out\n",
            format_bytes(report.done_bytes),
            report.there_already,
            report.failed,
            report.left_out
        );
    }
    let mut text = format!(
        "{target}: {files}, {} in {} ({})",
        format_bytes(report.done_bytes),
        format_seconds(report.seconds),
        format_rate(report.rate_bytes_per_s())
    );
    if report.resumed_bytes > 0 {
        text += &format!(", {} of them from an earlier run", format_bytes(report.resumed_bytes));
    }
    let unverified = report.done_files.saturating_sub(report.verified_files);
    text += &format!("; {} verified", report.verified_files);
    let between = match report.third_party_files {
        all if all == report.done_files => "no byte of them came here".to_owned(),
        some => format!("{some} copied without a byte that came here"),
    };
    if report.third_party_files > 0 {
        text += &format!(", {between}");
    }
    for (count, what) in [
        (unverified, "unverified (nothing to compare them with)"),
        (report.unstated_files, "without a checksum of the type that was asked for"),
        (report.there_already, "there already"),
        (report.left_out, "left out"),
        (report.failed, "failed"),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_says_what_is_known() {
        let mut snapshot = TreeSnapshot { found_files: 10, found_bytes: 1 << 20, ..TreeSnapshot::default() };
        assert!(total_line(&snapshot).starts_with("0 of 10 files found so far"));
        snapshot.is_listed = true;
        snapshot.failed = 2;
        let line = total_line(&snapshot);
        assert!(line.contains("unknown left") && line.ends_with(", 2 failed"), "{line}");
    }

    #[test]
    fn the_summary_says_what_was_not_verified() {
        let mut report = TreeReport { done_files: 3, verified_files: 3, ..TreeReport::default() };
        assert!(!tree_summary_text(&report, "d", false).contains("unverified"));
        report.third_party_files = 3;
        assert!(tree_summary_text(&report, "d", false).contains("; 3 verified, no byte of them came here"));
        report.third_party_files = 2;
        assert!(tree_summary_text(&report, "d", false).contains(", 2 copied without a byte that came here"));
        report.verified_files = 1;
        assert!(tree_summary_text(&report, "d", false).contains("2 unverified"));
    }
}
