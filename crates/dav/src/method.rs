//! Methods and versions: any name a peer may send, and what we make of it.

/// A version of HTTP that this code speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// The method of a request.
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
    /// Hand data to a program behind the address: there is none.
    Post,
    /// Tell the properties of a file or of a directory's entries (RFC 4918, 9.1).
    Propfind,
    /// Change properties (RFC 4918, 9.2).
    Proppatch,
    /// Make a directory (RFC 4918, 9.3).
    Mkcol,
    /// Copy a file or a tree (RFC 4918, 9.8).
    Copy,
    /// Give a file or a tree another name (RFC 4918, 9.9).
    Move,
    /// Take a lock (RFC 4918, 9.10).
    Lock,
    /// Give it back (RFC 4918, 9.11).
    Unlock,
    /// A method that exists (its specification is registered with IANA) and that gridlane does not offer.
    Other(&'static str),
    /// Something else.
    Unknown(String),
}

/// Methods that clients of storage systems really send: to these the answer is 405, to others 501.
const KNOWN_METHODS: [&str; 7] = ["PATCH", "TRACE", "CONNECT", "SEARCH", "REPORT", "ACL", "MKCALENDAR"];

/// The methods with a variant of their own. Not a constant, of which each use would be a copy.
static NAMED: [(&str, Method); 13] = [
    ("GET", Method::Get),
    ("HEAD", Method::Head),
    ("PUT", Method::Put),
    ("DELETE", Method::Delete),
    ("OPTIONS", Method::Options),
    ("POST", Method::Post),
    ("PROPFIND", Method::Propfind),
    ("PROPPATCH", Method::Proppatch),
    ("MKCOL", Method::Mkcol),
    ("COPY", Method::Copy),
    ("MOVE", Method::Move),
    ("LOCK", Method::Lock),
    ("UNLOCK", Method::Unlock),
];

impl Method {
    /// The method of this name; names have case (RFC 9110, 9.1).
    pub fn from_name(name: &str) -> Method {
        if let Some((_, method)) = NAMED.iter().find(|(known, _)| *known == name) {
            return method.clone();
        }
        match KNOWN_METHODS.iter().find(|known| **known == name) {
            Some(known) => Method::Other(known),
            None => Method::Unknown(name.to_owned()),
        }
    }

    /// The name on the request line.
    pub fn name(&self) -> &str {
        match self {
            Method::Other(name) => name,
            Method::Unknown(name) => name,
            named => NAMED.iter().find(|(_, method)| method == named).map_or("", |(name, _)| name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_case() {
        for name in ["PATCH", "BREW", "get"].into_iter().chain(NAMED.iter().map(|(name, _)| *name)) {
            assert_eq!(Method::from_name(name).name(), name);
        }
        assert_eq!(Method::from_name("PROPFIND"), Method::Propfind);
        assert_eq!(Method::from_name("PATCH"), Method::Other("PATCH"));
        assert_eq!(Method::from_name("get"), Method::Unknown("get".into()));
    }
}
