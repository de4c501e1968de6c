//! The meaning of an HTTP status for a client that wants a file.

use std::time::SystemTime;

use gridlane_core::{Error, ErrorKind, Fault};
use gridlane_dav::ResponseHead;

/// The error that a response with this head is; `said` is the body's first line, if it has one.
pub fn status_error(head: &ResponseHead, said: &str) -> Error {
    let code = head.status.code();
    use ErrorKind::*;
    let (kind, fault, meaning) = match code {
        401 => (Denied, Fault::Caller, "it wants credentials"),
        403 | 451 => (Denied, Fault::Caller, "it does not allow this"),
        404 | 410 => (NotFound, Fault::Caller, "there is no such file"),
        405 | 501 => (Unsupported, Fault::Peer, "it cannot do this"),
        407 => (Denied, Fault::Caller, "the proxy wants credentials"),
        408 => (Busy, Fault::Network, "it waited too long for the request"),
        409 => (Precondition, Fault::Caller, "what is there does not allow it"),
        411 => (Unsupported, Fault::Peer, "it takes no body of unknown length"),
        412 => (Precondition, Fault::Caller, "the target is not as it has to be"),
        413 => (LocalIo, Fault::Peer, "the file is larger than it takes"),
        414 | 431 => (Unsupported, Fault::Peer, "the request's head is longer than it takes"),
        415 | 417 | 505 => (Unsupported, Fault::Peer, "it cannot do this"),
        423 => (Precondition, Fault::Peer, "the file is locked"),
        425 => (Busy, Fault::Peer, "it is not ready for this"),
        429 | 509 => (Busy, Fault::Peer, "it has too much to do"),
        503 => (Busy, Fault::Peer, "it is overloaded or being mended"),
        504 => (Timeout, Fault::Network, "it waited too long for another server"),
        507 => (LocalIo, Fault::Peer, "it has no space left"),
        508 => (Protocol, Fault::Peer, "it leads in a circle"),
        511 => (Denied, Fault::Network, "the network wants credentials first"),
        500..=599 => (Network, Fault::Peer, "it failed"),
        304 => (Protocol, Fault::Peer, "it says that nothing has changed, which was not asked for"),
        300..=399 => (Protocol, Fault::Peer, "it redirects, and that is not followed here"),
        400..=499 => (Other, Fault::Peer, "it refused the request"),
        _ => (Protocol, Fault::Peer, "that answer makes no sense here"),
    };
    let reason = head.status.reason();
    let mut message = format!("the server answered {code} {reason}: {meaning}").replace(" : ", ": ");
    if !said.is_empty() {
        message.push_str(&format!(" (\"{said}\")"));
    }
    let mut error = Error::new(kind, message).fault(fault).http_status(code);
    match code {
        401 | 403 => error = error.hint("ask the operator of the server for access"),
        404 | 410 => error = error.hint("check the path"),
        413 | 507 => error = error.hint("ask the operator of the server for space").retryable(false),
        407 => error = error.hint("put user and password into the proxy's URL"),
        408 | 425 | 429 | 503 | 509 => {
            let wait = head.retry_after(SystemTime::now());
            error = error.retry_after(wait);
            if let Some(wait) = wait {
                error = error.hint(format!("it asks for a pause of {} s", wait.as_secs()));
            }
        }
        _ => {}
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u16, fields: &str, said: &str) -> Error {
        let text = format!("HTTP/1.1 {code} x\r\n{fields}\r\n");
        let (head, _) = ResponseHead::parse(text.as_bytes()).unwrap().unwrap();
        status_error(&head, said)
    }

    #[test]
    fn every_status_has_a_kind_and_says_whether_to_retry() {
        use ErrorKind::*;
        let kinds: [(&[u16], ErrorKind, bool); 10] = [
            (&[401, 403, 407, 451, 511], Denied, false),
            (&[404, 410], NotFound, false),
            (&[405, 411, 414, 415, 417, 431, 501, 505], Unsupported, false),
            (&[409, 412, 423], Precondition, false),
            (&[413, 507], LocalIo, false),
            (&[408, 425, 429, 503, 509], Busy, true),
            (&[504], Timeout, true),
            (&[500, 502], Network, true),
            (&[400, 402, 422], Other, false),
            (&[204, 302, 304, 508, 999], Protocol, false),
        ];
        for (codes, kind, retry) in kinds {
            for code in codes {
                let error = error(*code, "", "");
                assert_eq!((error.kind(), error.is_retryable()), (kind, retry), "{code}");
                assert_eq!(error.status(), Some(*code));
            }
        }
    }

    #[test]
    fn only_what_redirects_is_said_to_redirect() {
        assert!(error(302, "", "").message().contains("it redirects"));
        let odd = error(304, "", "");
        assert!(odd.message().contains("nothing has changed"), "{odd}");
    }

    #[test]
    fn a_message_has_what_the_server_said() {
        let busy = error(429, "Retry-After: 7\r\n", "too many of you");
        assert!(busy.message().contains("(\"too many of you\")"), "{busy}");
        assert_eq!(busy.wait(), Some(std::time::Duration::from_secs(7)));
    }
}
