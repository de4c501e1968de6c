//! Where text and JSON leave the program: nothing else in it writes to standard output or standard error, but for the bytes
//! of a file.
//!
//! Names of files and words of servers are in most of what is said. So no character gets to a terminal that it obeys or does
//! not show ([`gridlane_core::text`]), but for those that the progress display itself needs. JSON has them escaped: it
//! says the same.

use std::io::{self, Write};
use std::process::ExitCode;

use gridlane_client::credentials::Warning;
use gridlane_core::text::{self, printable_json, printable_lines};
use gridlane_core::{Error, ErrorKind, Fault, Result};
use serde_json::{Value, json};

use crate::args::Global;

/// Version of the JSON events.
const EVENTS_VERSION: u32 = 1;

/// How this run of the command speaks.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
}

impl Output {
    pub(crate) fn new(global: &Global) -> Output {
        Output { json: global.json, quiet: global.quiet, verbose: global.verbose }
    }

    /// An error, for people.
    pub(crate) fn error(&self, error: &Error) {
        say(&format!("gridlane: {error}"));
    }

    /// Something that a person should know, and that ends nothing.
    pub(crate) fn warning(&self, warning: &Warning, data_on_stdout: bool) {
        let fields = warning_value(warning);
        match self.json {
            true if data_on_stdout => print_event(&mut std::io::stderr().lock(), "warning", fields),
            true => print_event(&mut std::io::stdout().lock(), "warning", fields),
            false if self.quiet => {}
            false => say(&format!("gridlane: {}", warning_text(warning))),
        }
    }

    /// An error that ends the command and that nobody has told yet.
    pub(crate) fn failed(&self, event: &str, error: &Error, data_on_stdout: bool) {
        let fields = json!({ "error": error_value(error) });
        match self.json {
            true if data_on_stdout => print_event(&mut std::io::stderr().lock(), event, fields),
            true => print_event(&mut std::io::stdout().lock(), event, fields),
            false => self.error(error),
        }
    }
}

/// Writes a line to standard error, for people. Nobody reading it is no reason to fail.
pub(crate) fn say(line: &str) {
    let line = printable(line.as_bytes()) + "\n";
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// Writes lines, or the beginning of one, to standard error, likewise.
pub(crate) fn say_lines(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(printable_lines(text).as_bytes()).and_then(|()| stderr.flush());
}

/// Writes lines to standard output, for people. Nobody reading them is no reason to fail.
pub(crate) fn answer(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(printable_lines(text).as_bytes()).and_then(|()| stdout.flush());
}

/// Writes what the command was asked for, text or JSON, to standard output. A reader that went away (`| head`) is no
/// failure.
pub(crate) fn print(text: &[u8]) -> Result<ExitCode> {
    write(text).map(|_| ExitCode::SUCCESS)
}

/// Writes a part of it; `false`: nobody reads any more.
pub(crate) fn write(text: &[u8]) -> Result<bool> {
    let shown = printable_lines(&String::from_utf8_lossy(text));
    let mut stdout = io::stdout().lock();
    match stdout.write_all(shown.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(cause) => Err(Error::local_io("cannot write to standard output", &cause)),
    }
}

/// Prints one event. Nobody reading any more is no reason to stop moving bytes.
pub(crate) fn print_event(to: &mut dyn Write, kind: &str, mut fields: Value) {
    if let Value::Object(map) = &mut fields {
        let mut event = serde_json::Map::new();
        event.insert("v".into(), json!(EVENTS_VERSION));
        event.insert("type".into(), json!(kind));
        event.append(map);
        let _ = writeln!(to, "{}", printable_json(Value::Object(event).to_string()));
    }
}

/// The fields of a warning in JSON.
pub(crate) fn warning_value(warning: &Warning) -> Value {
    json!({ "about": "credentials", "message": warning.message, "hint": warning.advice })
}

/// A warning, for people.
pub(crate) fn warning_text(warning: &Warning) -> String {
    format!("warning: {}; {}", warning.message, warning.advice)
}

/// A name as it may be shown, on one line.
pub(crate) fn printable(name: &[u8]) -> String {
    text::printable(&String::from_utf8_lossy(name))
}

/// The fields of an error in JSON.
pub(crate) fn error_value(error: &Error) -> Value {
    json!({
        "code": error.kind().exit_code(),
        "class": error.kind().name(),
        "fault": error.whose_fault().name(),
        "message": error.message(),
        "hint": error.hint_text(),
        "endpoint": error.endpoint_text(),
        "retryable": error.is_retryable(),
        "retry_after_s": error.wait().map(|wait| wait.as_secs_f64()),
        "http_status": error.status(),
    })
}

/// The error that another process of this program told in JSON.
pub(crate) fn error_from(value: &Value) -> Error {
    let kind = ErrorKind::named(value["class"].as_str().unwrap_or_default());
    let mut error = Error::new(kind, value["message"].as_str().unwrap_or("it does not say why"));
    if let Some(fault) = value["fault"].as_str().and_then(Fault::named) {
        error = error.fault(fault);
    }
    if let Some(hint) = value["hint"].as_str() {
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
    }
}
