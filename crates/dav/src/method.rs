//! Methods and versions: any name a peer may send, and what we make of it.

/// A version of HTTP that this code speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// What a request wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// Send a file, or list a directory.
    Get,
    /// The same without the body.
    Head,
    /// Store a file.
    Put,
    /// Remove a file.
    Delete,
    /// Tell what is possible.
    Options,
    /// A method that exists (its specification is registered with IANA) and that gridlane does not offer.
    Other(&'static str),
    /// Something else.
    Unknown(String),
}

/// Methods that clients of storage systems really send: to these the answer is 405, to others 501.
const KNOWN_METHODS: [&str; 15] = [
    "POST",
    "PATCH",
    "TRACE",
    "CONNECT",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "SEARCH",
    "REPORT",
    "ACL",
    "MKCALENDAR",
];

impl Method {
    /// The method of this name; names have case (RFC 9110, 9.1).
    pub fn from_name(name: &str) -> Method {
        match name {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "PUT" => Method::Put,
            "DELETE" => Method::Delete,
            "OPTIONS" => Method::Options,
            _ => match KNOWN_METHODS.iter().find(|known| **known == name) {
                Some(known) => Method::Other(known),
                None => Method::Unknown(name.to_owned()),
            },
        }
    }

    /// The name on the request line.
    pub fn name(&self) -> &str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
            Method::Other(name) => name,
            Method::Unknown(name) => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_case() {
        for name in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PROPFIND", "BREW", "get"] {
            assert_eq!(Method::from_name(name).name(), name);
        }
        assert_eq!(Method::from_name("PROPFIND"), Method::Other("PROPFIND"));
        assert_eq!(Method::from_name("get"), Method::Unknown("get".into()));
    }
}
