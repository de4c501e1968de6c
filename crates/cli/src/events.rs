//! Events as JSON, one object a line (docs/reference/json-events.md): printed here, made by the client.

use std::io::Write;
use std::sync::Arc;

use gridlane_client::events::{CopyLine, CopyLines, TreeLine, TreeLines};
use gridlane_client::{CopyEvent, CopyObserver, Location, TreeEvent, TreeObserver, TreeReport};
use gridlane_core::Error;

use crate::output::{Output, print_line, tell};
use crate::words::CommandLine;

/// Prints the events of copies as they come.
pub(crate) struct JsonEvents {
    lines: CopyLines,
    to: Box<dyn Write + Send + Sync>,
    verbose: bool,
}

impl JsonEvents {
    /// With `data_on_stdout`, the file itself goes to standard output, so events go to standard error.
    pub(crate) fn new(data_on_stdout: bool, output: &Output) -> JsonEvents {
        let to: Box<dyn Write + Send + Sync> = match data_on_stdout {
            true => Box::new(std::io::stderr()),
            false => Box::new(std::io::stdout()),
        };
        JsonEvents { lines: CopyLines::new(Arc::new(CommandLine)), to, verbose: output.verbose }
    }
}

impl CopyObserver for JsonEvents {
    fn event(&mut self, event: &CopyEvent<'_>) {
        match event {
            CopyEvent::Note(text) if self.verbose => tell!("gridlane: {text}"),
            _ => {}
        }
        for line in self.lines.of(event) {
            match line {
                // No file goes to standard output then.
                CopyLine::Would { .. } => print_line(&mut std::io::stdout().lock(), &line),
                line => print_line(&mut *self.to, &line),
            }
        }
    }
}

/// Prints the events of a tree as they come.
pub(crate) struct TreeJson {
    lines: TreeLines,
}

impl TreeJson {
    pub(crate) fn new(target: &Location) -> TreeJson {
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
