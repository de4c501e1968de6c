//! Where sealed records are kept.

use std::fmt;
use std::sync::Arc;

use gridlane_core::{Error, ErrorKind, Fault, Result, limits};

/// The subject of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The key that a user is asked to sign a proxy for.
    Key,
    /// A proxy of a user with its key.
    Proxy,
    /// A job's token with what renews it.
    Token,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 3] = [Kind::Key, Kind::Proxy, Kind::Token];

    /// Its name, which stays: records are sealed with it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Key => "key",
            Kind::Proxy => "proxy",
            Kind::Token => "token",
        }
    }
}

/// The name of a record: a kind, and the name of a user or a job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId {
    kind: Kind,
    name: String,
}

impl RecordId {
    /// A name is of letters and digits of ASCII, `-` and `_`, with none of these in front, and at most 64 bytes long.
    /// Identifiers of users and jobs are like that; what users choose themselves (a name in a certificate) is not, and has
    /// to be made one by a digest.
    pub fn new(kind: Kind, name: &str) -> Result<RecordId> {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let is_long = name.len() > limits::VAULT_NAME_BYTES_MAX;
        let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if is_long || !begins || !name.bytes().all(is_good) {
            let message = format!("{:?} is no name of a user or a job", gridlane_core::text::printable(name));
            return Err(Error::new(ErrorKind::Usage, message).fault(Fault::Caller));
        }
        Ok(RecordId { kind, name: name.to_owned() })
    }

    /// Its subject.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The name of its user or job.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} of {}", self.kind.name(), self.name)
    }
}

/// A place for records that cannot be read without the site's secret: a directory, a database.
///
/// It keeps bytes under names and believes nothing of them. What [`suite::check`](crate::suite::check) asks has to hold.
/// Calls may block.
pub trait Store: Send + Sync {
    /// Keeps a record, in place of one of the same name. When it returns the record is kept whatever happens; when it does
    /// not, the old one is or the new one.
    fn put(&self, id: &RecordId, sealed: &[u8]) -> Result<()>;

    /// A record; `None` if there is none.
    fn get(&self, id: &RecordId) -> Result<Option<Vec<u8>>>;

    /// Takes a record away for good; false if there is none.
    fn remove(&self, id: &RecordId) -> Result<bool>;

    /// The names of all records of a kind, in order.
    fn names(&self, kind: Kind) -> Result<Vec<String>>;
}

/// The same store, for several that use it.
impl<S: Store + ?Sized> Store for Arc<S> {
    fn put(&self, id: &RecordId, sealed: &[u8]) -> Result<()> {
        (**self).put(id, sealed)
    }

    fn get(&self, id: &RecordId) -> Result<Option<Vec<u8>>> {
        (**self).get(id)
    }

    fn remove(&self, id: &RecordId) -> Result<bool> {
        (**self).remove(id)
    }

    fn names(&self, kind: Kind) -> Result<Vec<String>> {
        (**self).names(kind)
    }
}
