//! Which redirects are followed, and what travels along.
//!
//! RFC 9110, 15.4: 307 and 308 mean the same request elsewhere. 301 and 302 mean it for methods that only ask, and for
//! PUT, as clients of storage have always read them; 303 means "ask there", which answers requests for data only. What
//! changes something is otherwise not repeated at a place that the user did not name.

use gridlane_core::{Error, ErrorKind, Result, Scheme, Url, limits::REDIRECTS_MAX};
use gridlane_dav::ResponseHead;
use percent_encoding::percent_decode_str;

/// Header fields that are for the endpoint that the caller named and for no other. Their names in lower case;
/// `transferheader…` stands for all that begin so (HTTP-TPC's credentials of the other party).
const FOR_ONE_ENDPOINT: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "transferheader"];

/// The target to which the answer to a request with `method` at `from` redirects; `None` when it is the answer.
///
/// From https to http is refused: what TLS protected so far would travel in clear. So is a file of this
/// machine.
pub fn follow(method: &str, from: &Url, head: &ResponseHead) -> Result<Option<Url>> {
    let Some(location) = head.location().filter(|_| head.status.is_redirect()) else { return Ok(None) };
    let to = from.join(location).map_err(|error| {
        Error::new(ErrorKind::Protocol, format!("it redirects to nowhere: {}", error.message()))
            .endpoint(from)
    })?;
    let is_question = matches!(method, "GET" | "HEAD" | "OPTIONS" | "PROPFIND");
    let is_followed = match head.status.code() {
        307 | 308 => true,
        301 | 302 if is_question || method == "PUT" => true,
        301 | 302 => method == "MKCOL" && to.same_endpoint(from) && names_directory(from, &to),
        _ => is_question,
    };
    if !is_followed {
        return Ok(None);
    }
    match (from.scheme(), to.scheme()) {
        (_, Scheme::File) => {
            let message = "it redirects to a file of this machine";
            Err(Error::new(ErrorKind::Protocol, message).endpoint(from))
        }
        (_, Scheme::Root | Scheme::Roots) => {
            let message = format!("it redirects to {to}, which is not HTTP");
            Err(Error::new(ErrorKind::Unsupported, message)
                .endpoint(from)
                .hint("use that URL yourself if it is right"))
        }
        (Scheme::Https, Scheme::Http) => {
            let message = format!("it redirects from https to {to}, which is not encrypted");
            Err(Error::new(ErrorKind::Denied, message)
                .endpoint(from)
                .hint("use that URL yourself if it is right"))
        }
        _ => Ok(Some(to)),
    }
}

/// True if a redirect does nothing but put a slash behind the path: so servers answer where a directory is asked for
/// without it. The host does not matter: behind a proxy some servers call themselves by another name.
pub(super) fn names_directory(from: &Url, to: &Url) -> bool {
    let path = |url: &Url| percent_decode_str(url.encoded_path()).collect::<Vec<u8>>();
    path(to).strip_suffix(b"/") == Some(&path(from))
}

/// True if a header field may go to another endpoint than the one it was made for.
pub(super) fn travels(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    !FOR_ONE_ENDPOINT.iter().any(|secret| match *secret {
        "transferheader" => name.starts_with(secret),
        _ => name == *secret,
    })
}

/// The error for too many redirects.
pub fn redirect_loop() -> Error {
    let message = format!("more than {REDIRECTS_MAX} redirects: it leads in a circle");
    Error::new(ErrorKind::Protocol, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led(method: &str, from: &str, code: u16, location: &str) -> Result<Option<String>> {
        let text = format!("HTTP/1.1 {code} x\r\nLocation: {location}\r\n\r\n");
        let (head, _) = ResponseHead::parse(text.as_bytes()).unwrap().unwrap();
        let to = follow(method, &Url::parse_absolute(from).unwrap(), &head)?;
        Ok(to.map(|to| to.as_str().to_owned()))
    }

    #[test]
    fn what_is_followed() {
        let goes = |method, code| led(method, "http://a/f", code, "http://b/f").unwrap().is_some();
        for method in ["GET", "HEAD", "PROPFIND", "PUT", "DELETE", "MOVE", "MKCOL"] {
            assert!(goes(method, 307) && goes(method, 308), "{method}");
            assert!(!goes(method, 300) && !goes(method, 304) && !goes(method, 201), "{method}");
        }
        assert!(goes("PROPFIND", 301) && goes("PROPFIND", 303) && goes("PUT", 302));
        assert!(!goes("PUT", 303) && !goes("DELETE", 302) && !goes("MOVE", 301) && !goes("MKCOL", 301));
    }

    #[test]
    fn a_directory_is_made_at_its_name_with_a_slash() {
        let to = led("MKCOL", "http://a/d", 301, "/d/").unwrap();
        assert_eq!(to.as_deref(), Some("http://a/d/"));
        assert_eq!(led("DELETE", "http://a/d", 301, "/d/").unwrap(), None);
        assert_eq!(led("MKCOL", "http://a/d", 301, "/e/").unwrap(), None);
        assert_eq!(led("MKCOL", "http://a/d", 301, "http://b/d/").unwrap(), None);
    }

    #[test]
    fn where_nobody_is_led() {
        let denied = led("GET", "https://a/f", 302, "http://a/f").unwrap_err();
        assert_eq!(denied.kind(), ErrorKind::Denied);
        for nowhere in ["file:///etc/passwd", "ftp://a/", "http://"] {
            assert_eq!(led("GET", "http://a/f", 302, nowhere).unwrap_err().kind(), ErrorKind::Protocol);
        }
        for elsewhere in ["root://a//f", "XROOTS://a//f"] {
            let unsupported = led("GET", "https://a/f", 302, elsewhere).unwrap_err();
            assert_eq!(unsupported.kind(), ErrorKind::Unsupported);
        }
        let secret = led("GET", "http://ada:pw@a/f", 302, "http://b/f").unwrap().unwrap();
        assert!(!secret.contains("pw"), "{secret}");
    }

    #[test]
    fn secrets_stay() {
        for name in ["Authorization", "cookie", "TransferHeaderAuthorization", "Proxy-Authorization"] {
            assert!(!travels(name), "{name}");
        }
        assert!(travels("Depth") && travels("Want-Digest") && travels("Destination"));
    }
}
