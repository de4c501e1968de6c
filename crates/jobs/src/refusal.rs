//! Refusals, with the status and the words of FTS3 (fts3-rest 1).

use std::fmt;

use gridlane_core::limits::JOB_REASON_BYTES_MAX;
use gridlane_core::text;
use serde_json::{Value, json};

/// A request that is not done, and why. Clients decide by the status, and people read the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status of HTTP, 400 to 599.
    pub status: u16,
    /// The text.
    pub message: String,
}

impl Refusal {
    /// A refusal with this status. A text that is long, or has characters that are not to be shown, is made shorter and harmless, as
    /// there may be a client's words in it.
    pub fn new(status: u16, message: impl Into<String>) -> Refusal {
        let message = message.into();
        Refusal { status, message: text::printable(shortened(&message, JOB_REASON_BYTES_MAX)) }
    }

    /// 400, with a text of its own.
    pub fn bad(message: impl Into<String>) -> Refusal {
        Refusal::new(400, message)
    }

    /// 400: a value that is not one of those that its place has.
    pub fn invalid(what: impl fmt::Display) -> Refusal {
        Refusal::new(400, format!("Invalid value within the request: {what}"))
    }

    /// 400: a value of a type that its place does not have.
    pub fn malformed(what: impl fmt::Display) -> Refusal {
        Refusal::new(400, format!("Malformed request: {what}"))
    }

    /// 400: something that has to be there.
    pub fn missing(name: &str) -> Refusal {
        Refusal::new(400, format!("Missing parameter: '{name}'"))
    }

    /// 403.
    pub fn forbidden(message: impl Into<String>) -> Refusal {
        Refusal::new(403, message)
    }

    /// 404.
    pub fn not_found(message: impl Into<String>) -> Refusal {
        Refusal::new(404, message)
    }

    /// 404: there is no such job.
    pub fn no_such_job(id: impl fmt::Display) -> Refusal {
        Refusal::not_found(format!("No job with the id \"{id}\" has been found"))
    }

    /// 409: there is a job with this id, which its submitter chose.
    pub fn duplicate_job() -> Refusal {
        Refusal::new(409, "The sid provided by the user is duplicated")
    }

    /// 409: a file that is not done has this destination.
    pub fn duplicate_destination(destination: &str) -> Refusal {
        Refusal::new(409, format!("The submission is duplicated {destination}"))
    }

    /// 419: the user has lent no credentials, by what the text says.
    pub fn not_delegated(message: impl Into<String>) -> Refusal {
        Refusal::new(419, message)
    }

    /// `400 Bad Request`.
    pub fn status_line(&self) -> String {
        status_line(self.status)
    }

    /// The body of the answer: `{"status": "400 Bad Request", "message": …}`.
    pub fn body(&self) -> Value {
        json!({"status": self.status_line(), "message": self.message})
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status_line(), self.message)
    }
}

impl std::error::Error for Refusal {}

/// A status with its name, as FTS3 writes it: `200 Ok`, `404 Not Found`.
pub fn status_line(status: u16) -> String {
    let name = match status {
        200 => "Ok",
        201 => "Created",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        207 => "Multi-Status",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        413 => "Request Entity Too Large",
        419 => "Authentication Timeout",
        424 => "Failed Dependency",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    };
    format!("{status} {name}")
}

/// The beginning of a text that has at most so many bytes.
pub(crate) fn shortened(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_a_status_line_and_its_words() {
        let refusal = Refusal::missing("sources");
        let body = json!({"status": "400 Bad Request", "message": "Missing parameter: 'sources'"});
        assert_eq!(refusal.body(), body);
        assert_eq!(Refusal::not_delegated("x").status_line(), "419 Authentication Timeout");
        assert_eq!(status_line(200), "200 Ok");
    }

    #[test]
    fn words_of_a_client_are_short_and_harmless_in_it() {
        let hostile = format!("\u{1b}[2J{}", "ü".repeat(100_000));
        let refusal = Refusal::invalid(hostile);
        assert!(refusal.message.len() <= JOB_REASON_BYTES_MAX + 8, "{}", refusal.message.len());
        assert!(!refusal.message.contains('\u{1b}'));
    }
}
