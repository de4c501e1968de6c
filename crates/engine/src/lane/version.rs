//! The version of the file that a source has, compared with its earlier statements.

use gridlane_core::{Error, ErrorKind, Fault, Scheme};

use super::{End, Lane};
use crate::notice::Notice;
use crate::source::Identity;

impl Lane {
    /// Compares what the source says of itself with what it said before, and tells the copy what is said first.
    pub(super) fn identify(&self, now: &Identity) -> Result<(), End> {
        self.identified(now, self.source.identify(now))
    }

    /// The same of an answer with bytes, which tells all that the server knows of the version.
    pub(super) fn identify_answer(&self, now: &Identity) -> Result<(), End> {
        self.identified(now, self.source.identify_answer(now))
    }

    fn identified(&self, now: &Identity, outcome: Result<bool, Identity>) -> Result<(), End> {
        match outcome {
            Ok(true) => {
                self.tell(Notice::Identified { source: self.source.number, size_bytes: now.size_bytes });
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(before) => Err(self.changed(&difference(&before, now))),
        }
    }

    /// The source has another version than at first: the bytes that it sent do not count either.
    pub(super) fn changed(&self, what: &str) -> End {
        // A writer on this machine is at work now; a peer may have answered from two servers, of which one is behind.
        let is_local = self.source.url.scheme() == Scheme::File;
        let error =
            Error::new(ErrorKind::Precondition, format!("the file changed while it was copied: {what}"))
                .fault(if is_local { Fault::Local } else { Fault::Peer })
                .hint("copy it again when no program writes to it")
                .retryable(!is_local)
                .endpoint(&self.source.url);
        End::Dead { error, forget: true }
    }
}

/// The first property in which the two differ.
pub(crate) fn difference(before: &Identity, now: &Identity) -> String {
    match (before.size_bytes, now.size_bytes) {
        (Some(before), Some(now)) if before != now => format!("from {before} to {now} bytes"),
        _ if now.validator.is_none() => "the server no longer states its version".to_owned(),
        _ if before.validator.is_none() => "the server did not state its version before".to_owned(),
        _ => "it is another version".to_owned(),
    }
}
