//! An answer before it is sent: status, fields, and a descriptor of the payload.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::SystemTime;

use gridlane_core::{ByteRange, limits};
use gridlane_dav::request::Rejection;
use gridlane_dav::{Multipart, Status, Version, date, multistatus};
use gridlane_store::{Object, StoreError};

use crate::pieces::Pieces;
use gridlane_share::budget::Lease;

/// The payload that follows the head.
pub enum Payload {
    /// Nothing, and no length either (204, 304).
    None,
    /// These bytes.
    Bytes(Vec<u8>),
    /// A range of a file.
    File {
        /// The file.
        object: Arc<dyn Object>,
        /// The range.
        range: ByteRange,
    },
    /// Parts of a file.
    Parts {
        /// The file.
        object: Arc<dyn Object>,
        /// The ranges, and the text between them.
        parts: Box<Multipart>,
    },
    /// Something of unknown length that a HEAD does not get to see.
    Unmeasured,
    /// Something that is made piece by piece while it is sent, in chunks, or up to the end of the connection of
    /// a client that knows no chunks. These pieces come after `first`.
    Stream {
        /// The bytes that are there already.
        first: Vec<u8>,
        /// The source of the rest.
        rest: Box<dyn Pieces>,
    },
}

impl Payload {
    /// Its length in bytes, as far as that is known before it is sent.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Payload::None | Payload::Unmeasured | Payload::Stream { .. } => 0,
            Payload::Bytes(bytes) => bytes.len() as u64,
            Payload::File { range, .. } => range.len(),
            Payload::Parts { parts, .. } => parts.content_length(),
        }
    }
}

/// The trailer that says whether all of a payload in chunks was sent.
pub(crate) const STATUS_TRAILER: &str = "X-Transfer-Status";

/// The first fields of every head, behind its status.
const SERVER_AND_DATE: &str = concat!("Server: gridlane/", env!("CARGO_PKG_VERSION"), "\r\nDate: ");

/// The type of the text of a failure.
const TEXT: &str = "text/plain; charset=utf-8";

/// Room for the fixed fields of a head, and for a small payload behind it.
const HEAD_BYTES_EXPECTED: usize = 2048;

/// The fields of a file's answer, with room for two more.
const FIELDS_BYTES_EXPECTED: usize = 512;

/// An answer.
pub struct Reply {
    /// Its status.
    pub status: Status,
    /// Names and values as they go over the wire, each in a line: none of them is looked up. No value has a control
    /// character.
    fields: String,
    /// Its payload.
    pub payload: Payload,
    /// The connection cannot be used after this answer.
    pub(crate) closes: bool,
    /// The payload, bytes of a file, goes in chunks, and a trailer says whether all of it was sent.
    pub tells_status: bool,
    /// The cause of a failure, for the log.
    pub cause: Option<String>,
    /// Held until the answer is sent, by a payload that takes much memory.
    pub lease: Option<Box<Lease>>,
}

impl Reply {
    /// An answer without a payload.
    pub fn new(status: Status) -> Reply {
        Reply {
            status,
            fields: String::with_capacity(FIELDS_BYTES_EXPECTED),
            payload: Payload::None,
            closes: false,
            tells_status: false,
            cause: None,
            lease: None,
        }
    }

    /// Adds a field.
    pub fn field(mut self, name: &'static str, value: impl AsRef<str>) -> Reply {
        self.put_field(name, &[value.as_ref()]);
        self
    }

    /// Adds a field whose value is made of these, one behind the other.
    pub fn put_field(&mut self, name: &'static str, value: &[&str]) {
        debug_assert!(!value.concat().contains(|c: char| c.is_control()), "{name}: {value:?}");
        self.fields.push_str(name);
        self.fields.push_str(": ");
        value.iter().for_each(|part| self.fields.push_str(part));
        self.fields.push_str("\r\n");
    }

    /// Sets the payload.
    pub fn payload(mut self, payload: Payload) -> Reply {
        self.payload = payload;
        self
    }

    /// Ends the connection after this answer.
    pub(crate) fn closing(mut self) -> Reply {
        self.closes = true;
        self
    }

    /// A failure, with a small text that says what failed, whose fault it is, and if another try makes sense.
    pub fn failure(status: Status, what: impl Into<String>) -> Reply {
        let what = what.into();
        let advice = match status {
            Status::SERVICE_UNAVAILABLE | Status::REQUEST_TIMEOUT | Status::TOO_MANY_REQUESTS => {
                "Try again later."
            }
            Status::INSUFFICIENT_STORAGE => {
                "The server is full; trying again helps only after space was freed."
            }
            Status::INTERNAL_SERVER_ERROR => {
                "The fault is on the server's side; trying again may help, its operator can find out more."
            }
            _ => "The request is at fault; trying it again unchanged will not help.",
        };
        let mut reply = Reply::new(status)
            .field("Content-Type", TEXT)
            .field("X-Content-Type-Options", "nosniff")
            .payload(Payload::Bytes(format!("{status}: {what}.\n{advice}\n").into_bytes()));
        reply.cause = Some(what);
        if matches!(status, Status::SERVICE_UNAVAILABLE) {
            reply = reply.field("Retry-After", limits::RETRY_AFTER.as_secs().to_string());
        }
        reply
    }

    /// The answer to a request that could not be read: nothing behind it can be read either.
    pub(crate) fn rejection(rejection: Rejection) -> Reply {
        Reply::failure(rejection.status, rejection.message).closing()
    }

    /// The answer to a failure of the storage.
    pub fn store_failure(error: &StoreError) -> Reply {
        let status = match error {
            StoreError::NotFound => Status::NOT_FOUND,
            StoreError::ParentMissing
            | StoreError::NotAFile
            | StoreError::NotADirectory
            | StoreError::NotEmpty
            | StoreError::AcrossDevices => Status::CONFLICT,
            StoreError::Unexpected => Status::PRECONDITION_FAILED,
            // RFC 4918, 9.9.4, for a source that is its own destination.
            StoreError::Denied | StoreError::ReadOnly | StoreError::InUse | StoreError::IntoItself => {
                Status::FORBIDDEN
            }
            StoreError::TooLarge => Status::CONTENT_TOO_LARGE,
            StoreError::Busy => Status::SERVICE_UNAVAILABLE,
            StoreError::Locked => Status::LOCKED,
            StoreError::NameTooLong => Status::URI_TOO_LONG,
            StoreError::NoSpace | StoreError::OverQuota => Status::INSUFFICIENT_STORAGE,
            StoreError::Unsupported => Status::NOT_IMPLEMENTED,
            StoreError::NotOurs(_) | StoreError::Closed | StoreError::Io(_) => Status::INTERNAL_SERVER_ERROR,
        };
        // The operating system's own message is for the log, not for clients.
        match error {
            StoreError::Io(cause) => {
                let mut reply = Reply::failure(status, "the storage fails");
                reply.cause = Some(cause.to_string());
                reply
            }
            StoreError::NotOurs(_) => {
                let mut reply = Reply::failure(status, "the server cannot keep uploads");
                reply.cause = Some(error.to_string());
                reply
            }
            StoreError::NoSpace | StoreError::OverQuota => {
                Reply::failure(status, error.to_string()).with_condition("quota-not-exceeded")
            }
            other => Reply::failure(status, other.to_string()),
        }
    }

    /// A failure whose text names the condition that did not hold, for programs (RFC 4918, 16; for space RFC 4331, 6),
    /// with the text for people in a comment.
    fn with_condition(mut self, condition: &str) -> Reply {
        if let Payload::Bytes(text) = &self.payload {
            // No text of ours ends a comment.
            let text = String::from_utf8_lossy(text).replace("--", "- -");
            let body = format!(
                "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
                 <D:error xmlns:D=\"DAV:\"><D:{condition}/></D:error>\n<!--\n{text}-->\n"
            );
            self.payload = Payload::Bytes(body.into_bytes());
            self.fields = self.fields.replace(TEXT, multistatus::MEDIA_TYPE);
        }
        self
    }

    /// The head as it goes over the wire, for a client of this version.
    pub(crate) fn head(&self, version: Version) -> Vec<u8> {
        let mut head = Vec::new();
        self.head_into(version, &mut head);
        head
    }

    /// The same behind what is in `head`.
    pub(crate) fn head_into(&self, version: Version, head: &mut Vec<u8>) {
        // Once, and not a little more for each field: fields are short.
        head.reserve(self.fields.len() + HEAD_BYTES_EXPECTED);
        let mut put = |parts: &[&str]| parts.iter().for_each(|part| head.extend_from_slice(part.as_bytes()));
        match self.status {
            Status::OK => put(&["HTTP/1.1 200 OK\r\n"]),
            status => put(&["HTTP/1.1 ", &status.code().to_string(), " ", status.reason(), "\r\n"]),
        }
        put(&[SERVER_AND_DATE]);
        with_date_now(|date| put(&[date, "\r\n"]));
        put(&[&self.fields]);
        match self.payload {
            Payload::File { .. } | Payload::Parts { .. } if self.tells_status => {
                put(&["Transfer-Encoding: chunked\r\nTrailer: ", STATUS_TRAILER, "\r\n"]);
            }
            Payload::Bytes(_) | Payload::File { .. } | Payload::Parts { .. } => {
                put(&["Content-Length: ", &self.payload.len().to_string(), "\r\n"]);
            }
            Payload::Stream { .. } if version == Version::Http11 => {
                put(&["Transfer-Encoding: chunked\r\n"]);
            }
            Payload::None | Payload::Unmeasured | Payload::Stream { .. } => {}
        }
        match (self.closes, version) {
            (true, _) => put(&["Connection: close\r\n"]),
            (false, Version::Http10) => put(&["Connection: keep-alive\r\n"]),
            (false, Version::Http11) => {}
        }
        put(&["\r\n"]);
    }
}

/// Calls `put` with the date of this second. It is written once in a second and thread: to write one takes as long as all
/// the rest of a head.
fn with_date_now(mut put: impl FnMut(&str)) {
    thread_local! {
        static WRITTEN: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) };
    }
    let now = SystemTime::now();
    let now_s = date::whole_seconds(now);
    WRITTEN.with_borrow_mut(|(of_s, text)| {
        if *of_s != now_s {
            (*of_s, *text) = (now_s, date::format(now));
        }
        put(text);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_say_what_failed_and_if_a_retry_makes_sense() {
        let mut reply = Reply::failure(Status::SERVICE_UNAVAILABLE, "too many connections");
        reply.closes = true;
        let head = String::from_utf8(reply.head(Version::Http11)).unwrap();
        assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\nServer: gridlane/"), "{head}");
        assert!(head.contains("Retry-After: 5\r\n"), "{head}");
        let Payload::Bytes(text) = &reply.payload else { panic!("a text") };
        assert_eq!(text, b"503 Service Unavailable: too many connections.\nTry again later.\n");
        assert!(head.ends_with(&format!("Content-Length: {}\r\nConnection: close\r\n\r\n", text.len())));
    }

    #[test]
    fn a_lack_of_descriptors_passes() {
        // EMFILE on Linux.
        let reply = Reply::store_failure(&std::io::Error::from_raw_os_error(24).into());
        let head = String::from_utf8(reply.head(Version::Http11)).unwrap();
        assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("Retry-After: "), "{head}");
    }

    #[test]
    fn the_system_s_words_stay_inside() {
        let cause = std::io::Error::other("/secret/path is broken");
        let reply = Reply::store_failure(&StoreError::Io(cause));
        let Payload::Bytes(text) = &reply.payload else { panic!("a text") };
        assert!(!String::from_utf8_lossy(text).contains("secret"));
        assert!(reply.cause.unwrap().contains("secret"));
    }
}
