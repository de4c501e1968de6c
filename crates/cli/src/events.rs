//! A copy as JSON events, one object a line (docs/reference/json-events.md): printed here, made by the client.

pub(crate) mod tree;

use std::io::Write;
use std::sync::Arc;

use gridlane_client::LeftOut;
use gridlane_client::credentials::Warning;
use gridlane_client::events::{CopyLine, CopyLines};
use gridlane_client::{Action, FileFacts};
use gridlane_core::Error;
use gridlane_engine::{Event, Observer, Report};

use crate::output::print_line;
use crate::who::Warns;
use crate::words::CommandLine;

/// Prints events as they come.
pub(crate) struct JsonEvents {
    lines: CopyLines,
    to: Box<dyn Write + Send + Sync>,
}

impl JsonEvents {
    /// With `data_on_stdout`, the file itself goes to standard output, so events go to standard error.
    pub(crate) fn new(urls: &[String], target: &str, data_on_stdout: bool) -> JsonEvents {
        let to: Box<dyn Write + Send + Sync> = match data_on_stdout {
            true => Box::new(std::io::stderr()),
            false => Box::new(std::io::stdout()),
        };
        JsonEvents { lines: CopyLines::new(urls, target, Arc::new(CommandLine)), to }
    }

    fn print(&mut self, line: &CopyLine) {
        print_line(&mut *self.to, line);
    }

    /// The last events: how it ended.
    pub(crate) fn end(&mut self, report: &Report, error: Option<&Error>) {
        for line in self.lines.end(report, error) {
            self.print(&line);
        }
    }

    pub(crate) fn time_lost(&mut self, error: &Error) {
        self.print(&self.lines.time_lost(error));
    }

    pub(crate) fn failed(&mut self, error: &Error) {
        self.print(&self.lines.failed(error));
    }

    pub(crate) fn would(&mut self, action: Action, facts: &FileFacts) {
        self.print(&self.lines.would(action, facts.size_bytes));
    }

    pub(crate) fn skipped(&mut self, why: LeftOut) {
        self.print(&self.lines.skipped(why));
    }
}

impl Warns for JsonEvents {
    fn warn(&mut self, warning: &Warning) {
        self.print(&self.lines.warning(warning));
    }
}

impl Observer for JsonEvents {
    fn event(&mut self, event: &Event<'_>) {
        if let Some(line) = self.lines.of(event) {
            self.print(&line);
        }
    }
}
