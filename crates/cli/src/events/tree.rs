//! A tree as JSON events.

use std::sync::Arc;

use gridlane_client::credentials::Warning;
use gridlane_client::events::{TreeLine, TreeLines};
use gridlane_client::{Place, TreeEvent, TreeObserver, TreeReport};
use gridlane_core::Error;

use crate::output::print_line;
use crate::who::Warns;
use crate::words::CommandLine;

/// Prints the events of a tree as they come.
pub(crate) struct TreeJson {
    lines: TreeLines,
}

impl TreeJson {
    pub(crate) fn new(target: &Place) -> TreeJson {
        TreeJson { lines: TreeLines::new(target, Arc::new(CommandLine)) }
    }

    /// The first event.
    pub(crate) fn plan(&self, sources: Vec<String>, target: &str, parallel: usize) {
        print(&self.lines.plan(sources, target, parallel));
    }

    /// The last event: how it ended.
    pub(crate) fn end(&self, report: &TreeReport, dry_run: bool, error: Option<&Error>) {
        print(&self.lines.end(report, dry_run, error));
    }
}

impl Warns for TreeJson {
    fn warn(&mut self, warning: &Warning) {
        print(&self.lines.warning(warning));
    }
}

impl TreeObserver for TreeJson {
    fn event(&mut self, event: &TreeEvent<'_>) {
        if let Some(line) = self.lines.of(event) {
            print(&line);
        }
    }
}

fn print(line: &TreeLine) {
    print_line(&mut std::io::stdout().lock(), line);
}
