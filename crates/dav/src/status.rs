//! Status codes: any number a peer may send, and names for those we use.

use std::fmt;

/// A status code of three digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Status(u16);

macro_rules! statuses {
    ($($name:ident = $code:literal $reason:literal;)*) => {
        impl Status {
            $(#[doc = concat!("`", stringify!($code), " ", $reason, "`")]
            pub const $name: Status = Status($code);)*

            /// The phrase that stands behind the code on a status line; empty for codes without a name here.
            pub fn reason(self) -> &'static str {
                match self.0 {
                    $($code => $reason,)*
                    _ => "",
                }
            }
        }
    };
}

statuses! {
    CONTINUE = 100 "Continue";
    OK = 200 "OK";
    CREATED = 201 "Created";
    ACCEPTED = 202 "Accepted";
    NO_CONTENT = 204 "No Content";
    PARTIAL_CONTENT = 206 "Partial Content";
    MULTI_STATUS = 207 "Multi-Status";
    MOVED_PERMANENTLY = 301 "Moved Permanently";
    FOUND = 302 "Found";
    SEE_OTHER = 303 "See Other";
    NOT_MODIFIED = 304 "Not Modified";
    TEMPORARY_REDIRECT = 307 "Temporary Redirect";
    PERMANENT_REDIRECT = 308 "Permanent Redirect";
    BAD_REQUEST = 400 "Bad Request";
    UNAUTHORIZED = 401 "Unauthorized";
    FORBIDDEN = 403 "Forbidden";
    NOT_FOUND = 404 "Not Found";
    METHOD_NOT_ALLOWED = 405 "Method Not Allowed";
    REQUEST_TIMEOUT = 408 "Request Timeout";
    CONFLICT = 409 "Conflict";
    LENGTH_REQUIRED = 411 "Length Required";
    PRECONDITION_FAILED = 412 "Precondition Failed";
    CONTENT_TOO_LARGE = 413 "Content Too Large";
    URI_TOO_LONG = 414 "URI Too Long";
    UNSUPPORTED_MEDIA_TYPE = 415 "Unsupported Media Type";
    RANGE_NOT_SATISFIABLE = 416 "Range Not Satisfiable";
    EXPECTATION_FAILED = 417 "Expectation Failed";
    MISDIRECTED_REQUEST = 421 "Misdirected Request";
    UNPROCESSABLE_CONTENT = 422 "Unprocessable Content";
    LOCKED = 423 "Locked";
    FAILED_DEPENDENCY = 424 "Failed Dependency";
    TOO_MANY_REQUESTS = 429 "Too Many Requests";
    HEAD_TOO_LARGE = 431 "Request Header Fields Too Large";
    CLIENT_LEFT = 499 "Client Left";
    INTERNAL_SERVER_ERROR = 500 "Internal Server Error";
    NOT_IMPLEMENTED = 501 "Not Implemented";
    BAD_GATEWAY = 502 "Bad Gateway";
    SERVICE_UNAVAILABLE = 503 "Service Unavailable";
    GATEWAY_TIMEOUT = 504 "Gateway Timeout";
    VERSION_NOT_SUPPORTED = 505 "HTTP Version Not Supported";
    INSUFFICIENT_STORAGE = 507 "Insufficient Storage";
    LOOP_DETECTED = 508 "Loop Detected";
}

impl Status {
    /// The status with this code, if it has three digits.
    pub fn new(code: u16) -> Option<Status> {
        (100..=999).contains(&code).then_some(Status(code))
    }

    /// The number.
    pub fn code(self) -> u16 {
        self.0
    }

    /// 1xx: another head follows.
    pub fn is_informational(self) -> bool {
        self.0 / 100 == 1
    }

    /// 2xx.
    pub fn is_success(self) -> bool {
        self.0 / 100 == 2
    }

    /// The redirections that a client follows by itself.
    pub fn is_redirect(self) -> bool {
        matches!(self.0, 301 | 302 | 303 | 307 | 308)
    }

    /// 4xx and 5xx.
    pub fn is_error(self) -> bool {
        self.0 >= 400
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            "" => write!(f, "{}", self.0),
            reason => write!(f, "{} {reason}", self.0),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_and_unknown_codes() {
        assert_eq!(Status::NOT_FOUND.to_string(), "404 Not Found");
        assert_eq!(Status::new(299).unwrap().to_string(), "299");
        assert_eq!(Status::new(99), None);
        assert!(Status::new(299).unwrap().is_success());
        assert!(!Status::NOT_MODIFIED.is_redirect());
    }
}
