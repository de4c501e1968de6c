//! `query` (3001): facts about the server, a file or a file system.
//!
//! ```text
//!  0 kind (2)   2 reserved (2)   4 handle (4)   8 reserved (8)   payload: text, nearly always with a NUL
//! ```

use crate::Malformed;
use crate::answer::merge_cgi;
use crate::frame::Handle;
use crate::path::PathArg;
use crate::registry::{QueryKind, RequestId};
use crate::request::Call;
use crate::wire::{Body, Reader, without_nul};

/// A question.
#[derive(Clone, PartialEq, Eq)]
pub struct Query {
    /// The kind of question.
    pub kind: QueryKind,
    /// Of which open file, for some kinds.
    pub handle: Handle,
    /// The argument, without a NUL at its end: a path with CGI, names, or what the kind says.
    pub argument: Vec<u8>,
}

/// The argument may have a token in its CGI.
impl std::fmt::Debug for Query {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Query({} {:?})", self.kind, PathArg::parse(&self.argument))
    }
}

impl Query {
    /// A question about a path or about names.
    pub fn new(kind: QueryKind, argument: impl Into<Vec<u8>>) -> Query {
        Query { kind, handle: Handle::default(), argument: argument.into() }
    }

    /// A question about a path, with `more` CGI beside its own.
    pub fn about(kind: QueryKind, about: &PathArg, more: &str) -> Query {
        let about = PathArg { path: about.path.clone(), cgi: merge_cgi(&about.cgi, more.as_bytes()) };
        let mut argument = Vec::new();
        about.write(&mut argument);
        Query::new(kind, argument)
    }
}

impl Call for Query {
    const ID: RequestId = RequestId::QUERY;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<Query, Malformed> {
        let mut reader = Reader::new(body);
        let kind = QueryKind(reader.u16()?);
        reader.skip(2)?;
        let handle = Handle(reader.array()?);
        Ok(Query { kind, handle, argument: without_nul(payload).to_vec() })
    }

    fn body(&self) -> [u8; 16] {
        Body::new().put(&self.kind.0.to_be_bytes()).skip(2).put(&self.handle.0).done()
    }

    fn payload(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.argument);
        out.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::testing::{hex, round_trip};

    #[test]
    fn as_captured() {
        let bytes = round_trip(Query::new(QueryKind::CHECKSUM, "/up20_6?cks.type=adler32"));
        assert_eq!(bytes[2..24], hex("0bb9 0003 0000 00000000 0000000000000000 00000019"));
        assert_eq!(bytes.last(), Some(&0));
        let about = |path: PathArg, more| Query::about(QueryKind::CHECKSUM, &path, more).argument;
        assert_eq!(about(PathArg::new("/f"), "cks.type=md5"), b"/f?cks.type=md5");
        assert_eq!(about(PathArg::with_cgi("/f", "authz=x"), "cks.type=md5"), b"/f?authz=x&cks.type=md5");
        assert_eq!(about(PathArg::with_cgi("/f", "authz=x"), ""), b"/f?authz=x");
    }
}
