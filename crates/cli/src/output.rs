//! Where text and JSON leave the program: nothing else in it writes to standard output or standard error, but for the bytes
//! of a file.
//!
//! Names of files and words of servers are in most of what is said. So no character gets to a terminal that it obeys or does
//! not show ([`gridlane_core::text`]), but for those that the progress display itself needs. JSON has them escaped: it
//! says the same.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use gridlane_client::credentials::Warning;
use gridlane_client::events::{AnswerLine, CopyLine, EVENTS_VERSION, Failure, Line, WarningLine};
use gridlane_core::text::{self, printable_json, printable_lines};
use gridlane_core::{Error, ErrorKind, Fault, Hint, Result};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::Global;
use crate::words::{self, CommandLine};

/// Writes a line for people to standard error. A closed output is no reason to fail: the standard library's macros
/// would panic.
macro_rules! tell {
    ($($text:tt)*) => {
        $crate::output::to_stderr(format_args!("{}\n", gridlane_core::text::Printable(format_args!($($text)*))))
    };
}

/// Writes a line that was asked for to standard output, in the same way.
macro_rules! show {
    ($($text:tt)*) => {
        $crate::output::to_stdout(format_args!("{}\n", gridlane_core::text::Printable(format_args!($($text)*))))
    };
}

pub(crate) use {show, tell};

/// The form of this run's output.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
}

/// The event by which a command tells that it failed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FailedEvent {
    /// `file.failed`, of a copy.
    Copy,
    /// `error`, of all others.
    Command,
}

impl Output {
    pub(crate) fn new(global: &Global) -> Output {
        Output { json: global.json, quiet: global.quiet, verbose: global.verbose }
    }

    /// An error, for people.
    pub(crate) fn error(&self, error: &Error) {
        tell!("gridlane: {}", words::error(error));
    }

    /// Something that a person should know, and that ends nothing.
    pub(crate) fn warning(&self, warning: &Warning, data_on_stdout: bool) {
        let line = || CopyLine::Warning(WarningLine::new(warning, &CommandLine));
        match self.json {
            true if data_on_stdout => print_line(&mut std::io::stderr().lock(), &line()),
            true => print_line(&mut std::io::stdout().lock(), &line()),
            false if self.quiet => {}
            false => tell!("gridlane: {}", warning_text(warning)),
        }
    }

    /// An error that ends the command, or one of the things that it does, and that was not told yet.
    pub(crate) fn failed(&self, event: FailedEvent, error: &Error, data_on_stdout: bool) {
        if !self.json {
            return self.error(error);
        }
        let error = Failure::new(error, &CommandLine);
        let print = |to: &mut dyn Write| match event {
            FailedEvent::Copy => print_line(to, &CopyLine::Failed { target: None, error }),
            FailedEvent::Command => print_line(to, &AnswerLine::Error { error }),
        };
        match data_on_stdout {
            true => print(&mut std::io::stderr().lock()),
            false => print(&mut std::io::stdout().lock()),
        }
    }
}

/// Writes lines, or the beginning of one, to standard error; a failure is of no consequence.
pub(crate) fn to_stderr(text: fmt::Arguments<'_>) {
    // One write: no other lines come in between.
    let _ = io::stderr().lock().write_all(printable_lines(&text.to_string()).as_bytes());
}

/// Writes lines to standard output; a failure is of no consequence.
pub(crate) fn to_stdout(text: fmt::Arguments<'_>) {
    let mut stdout = io::stdout().lock();
    let shown = printable_lines(&text.to_string());
    let _ = stdout.write_all(shown.as_bytes()).and_then(|()| stdout.flush());
}

/// Columns of the terminal that standard output is; as many as one likes where it is none.
pub(crate) fn columns() -> usize {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 => size.ws_col.into(),
        _ => usize::MAX,
    }
}

/// Writes what commands the terminal to standard error: the lines of a screen, of which nothing else may.
pub(crate) fn draw(screen: &str) {
    let _ = io::stderr().lock().write_all(screen.as_bytes());
}

/// Writes what the command was asked for, text or JSON, to standard output. A reader that went away (`| head`) is no
/// failure.
pub(crate) fn print(text: &[u8]) -> Result<ExitCode> {
    write(text).map(|_| ExitCode::SUCCESS)
}

/// Writes a part of it; `false`: the output is closed.
pub(crate) fn write(text: &[u8]) -> Result<bool> {
    write_bytes(printable_lines(&String::from_utf8_lossy(text)).as_bytes())
}

/// Writes bytes of a file as they are; `false`: the output is closed.
pub(crate) fn write_bytes(bytes: &[u8]) -> Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(cause) => Err(Error::local_io("cannot write to standard output", &cause)),
    }
}

/// Prints one event that is a type. A closed output is no reason to stop moving bytes.
pub(crate) fn print_line(to: &mut dyn Write, event: &impl Serialize) {
    // Fields in the order of their names, as in all other events.
    if let Ok(line) = serde_json::to_value(Line::new(event)) {
        let _ = writeln!(to, "{}", printable_json(line.to_string()));
    }
}

/// Prints one event. A closed output is no reason to stop moving bytes.
pub(crate) fn print_event(to: &mut dyn Write, kind: &str, mut fields: Value) {
    if let Value::Object(map) = &mut fields {
        let mut event = serde_json::Map::new();
        event.insert("v".into(), json!(EVENTS_VERSION));
        event.insert("type".into(), json!(kind));
        event.append(map);
        let _ = writeln!(to, "{}", printable_json(Value::Object(event).to_string()));
    }
}

/// A warning, for people.
pub(crate) fn warning_text(warning: &Warning) -> String {
    format!("warning: {}; {}", warning.message, words::hint(&warning.advice))
}

/// A name as it may be shown, on one line.
pub(crate) fn printable(name: &[u8]) -> String {
    text::printable(&String::from_utf8_lossy(name))
}

/// The exit code of a command that failed in this way, or did not.
pub(crate) fn exit_code(failure: Option<ErrorKind>) -> ExitCode {
    failure.map_or(ExitCode::SUCCESS, |kind| ExitCode::from(kind.exit_code()))
}

/// The fields of an error in JSON.
pub(crate) fn error_value(error: &Error) -> Value {
    json!(Failure::new(error, &CommandLine))
}

/// The error that another process of this program told in JSON.
pub(crate) fn error_from(value: &Value) -> Error {
    let kind = ErrorKind::named(value["class"].as_str().unwrap_or_default());
    let mut error = Error::new(kind, value["message"].as_str().unwrap_or("it does not say why"));
    if let Some(fault) = value["fault"].as_str().and_then(Fault::named) {
        error = error.fault(fault);
    }
    let words = || value["hint"].as_str().map(Hint::from);
    if let Some(hint) = value["hint_id"].as_str().and_then(Hint::named).or_else(words) {
        error = error.hint(hint);
    }
    if let Some(endpoint) = value["endpoint"].as_str() {
        error = error.endpoint(endpoint);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_survives_the_way_through_json() {
        let error = Error::new(ErrorKind::Denied, "no").fault(Fault::Local).hint("ask").endpoint("here");
        assert_eq!(error_from(&error_value(&error)).to_string(), error.to_string());
        let error = error.hint(Hint::TakeDown);
        let value = error_value(&error);
        assert_eq!(value["hint_id"], "take_down");
        assert_eq!(value["hint"], "gridlane wan down ends it, and removes what is left of it");
        assert_eq!(error_from(&value).advice(), Some(&Hint::TakeDown));
    }
}
