//! Where text and JSON go.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use gridlane_client::credentials::Warning;
use gridlane_core::{Error, ErrorKind, Fault, Result};
use serde_json::{Value, json};

use crate::args::Global;

/// Version of the JSON events.
const EVENTS_VERSION: u32 = 1;

/// Writes a line for people to standard error. Nobody reading it is no reason to fail: the standard library's macros would
/// panic.
macro_rules! tell {
    ($($text:tt)*) => { $crate::output::to_stderr(format_args!("{}\n", format_args!($($text)*))) };
}

/// Writes a line that was asked for to standard output, in the same way.
macro_rules! show {
    ($($text:tt)*) => { $crate::output::to_stdout(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use {show, tell};

/// Writes text to standard error; a failure is of no consequence.
pub(crate) fn to_stderr(text: fmt::Arguments<'_>) {
    // One write: nobody else's words come in between.
    let _ = io::stderr().lock().write_all(text.to_string().as_bytes());
}

/// Writes text to standard output; a failure is of no consequence.
pub(crate) fn to_stdout(text: fmt::Arguments<'_>) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.to_string().as_bytes()).and_then(|()| stdout.flush());
}

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
        tell!("gridlane: {error}");
    }

    /// Something that a person should know, and that ends nothing.
    pub(crate) fn warning(&self, warning: &Warning, data_on_stdout: bool) {
        let fields = warning_value(warning);
        match self.json {
            true if data_on_stdout => print_event(&mut std::io::stderr().lock(), "warning", fields),
            true => print_event(&mut std::io::stdout().lock(), "warning", fields),
            false if self.quiet => {}
            false => tell!("gridlane: {}", warning_text(warning)),
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

/// Writes what the command was asked for to standard output.
pub(crate) fn print(bytes: &[u8]) -> Result<ExitCode> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(cause) if cause.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::new(ErrorKind::LocalIo, format!("cannot write to standard output: {cause}")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Prints one event. Nobody reading any more is no reason to stop moving bytes.
pub(crate) fn print_event(to: &mut dyn Write, kind: &str, mut fields: Value) {
    if let Value::Object(map) = &mut fields {
        let mut event = serde_json::Map::new();
        event.insert("v".into(), json!(EVENTS_VERSION));
        event.insert("type".into(), json!(kind));
        event.append(map);
        let _ = writeln!(to, "{}", Value::Object(event));
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

/// A name as it may be shown: control characters could command the terminal.
pub(crate) fn printable(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
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
