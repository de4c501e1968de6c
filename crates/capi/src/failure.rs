//! An error as C sees it: texts that end with a NUL, and numbers.

use std::ffi::{CString, c_int};

use gridlane_core::Error;

/// `gridlane_error`.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: c_int,
    pub(crate) name: CString,
    pub(crate) message: CString,
    pub(crate) text: CString,
    pub(crate) endpoint: Option<CString>,
    pub(crate) is_retryable: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure {
            kind: c_int::from(error.kind().exit_code()),
            name: c_text(error.kind().name()),
            message: c_text(error.message()),
            text: c_text(&error.to_string()),
            endpoint: error.endpoint_text().map(c_text),
            is_retryable: error.is_retryable(),
        }
    }
}

/// A text for C. A peer's words may have a NUL in them, which becomes a question mark.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_core::ErrorKind;

    #[test]
    fn an_error_keeps_its_facts() {
        let error = Error::new(ErrorKind::Busy, "full\0house").endpoint("root://a.example");
        let failure = Failure::from(error);
        assert_eq!((failure.kind, failure.is_retryable), (11, true));
        assert_eq!(failure.name.to_str(), Ok("busy"));
        assert_eq!(failure.message.to_str(), Ok("full?house"));
        assert_eq!(failure.endpoint.unwrap().to_str(), Ok("root://a.example"));
        assert!(
            failure.text.to_str().unwrap().starts_with("root://a.example: full?house [the server's side;")
        );
    }
}
