//! The errors, with their messages and hints, of what the judge finds.

use gridlane_core::{Checksum, Error, ErrorKind, Fault, Hint};
use gridlane_plan::judge::{Failure, Hopeless, Split, Why};

use crate::run::Run;

impl Run<'_> {
    /// The error of a source that is not used any more, or that has sent wrong bytes.
    pub(crate) fn why(&self, source: usize, why: &Why) -> Error {
        why_error(why).endpoint(&self.replicas[source].source.url)
    }

    /// The error of a copy that has failed.
    pub(crate) fn failure(&self, failure: Failure) -> Error {
        let mismatch = |message: String| Error::new(ErrorKind::ChecksumMismatch, message).fault(Fault::Peer);
        match failure {
            Failure::Wrong { found, expected, hopeless } => {
                mismatch(format!("the bytes have {found}, not {expected}")).hint(hopeless_hint(hopeless))
            }
            Failure::Split(contradiction) => split(&contradiction),
            Failure::Unvouched => mismatch(
                "the source that named other replicas turned out to be wrong, and there is no \
                 checksum to compare their bytes with"
                    .into(),
            )
            .hint(Hint::StateChecksumOrName),
            Failure::NotCompared => self.not_compared(),
            Failure::Disproved { source } => {
                let dead = self.replicas[source].dead.clone();
                dead.unwrap_or_else(|| self.not_compared())
            }
            Failure::DisprovedInOrder => {
                let message = "a source turned out to be wrong after its bytes were written, and they cannot be compared";
                Error::new(ErrorKind::ChecksumMismatch, message).hint("do not use what was written")
            }
            Failure::NowhereRight(range) => {
                let message = format!("no source has the piece {range} that the metalink describes");
                mismatch(message).hint(
                    "the metalink may be of another version of the file, or the file is damaged at every source",
                )
            }
            Failure::SizeTurned { source, agreed, right } => other_size(agreed, right)
                .endpoint(&self.replicas[source].source.url)
                .hint("copy to a file, or name one source that is right"),
            Failure::NotKept => {
                let message = "the file does not keep what is written to it: another program writes to it, or its disk is bad";
                Error::new(ErrorKind::LocalIo, message).fault(Fault::Local)
            }
            Failure::NotComputed => {
                Error::new(ErrorKind::Other, "the bytes were compared without a checksum")
            }
        }
    }

    /// The error of bytes that could not be verified.
    fn not_compared(&self) -> Error {
        let unstated = self.judge.unstated();
        let of_kind = unstated.map(|kind| format!(" of type {}", kind.name())).unwrap_or_default();
        let message = format!("the bytes cannot be verified: no source states a checksum{of_kind}");
        let hint = match self.target.anywhere() {
            Some(_) => Hint::StateChecksum,
            None => "do not use what was written".into(),
        };
        Error::new(ErrorKind::ChecksumMismatch, message)
            .fault(Fault::Peer)
            .hint(hint)
            .endpoint(&self.replicas[0].source.url)
    }
}

fn why_error(why: &Why) -> Error {
    let mismatch = |message: String| Error::new(ErrorKind::ChecksumMismatch, message);
    let tell = "report it to the operator of that server";
    match why {
        Why::OtherSize { size_bytes, right, by_metalink: true } => {
            mismatch(format!("it has {size_bytes} bytes, the metalink says {right}"))
                .hint("it is another file, or damaged")
        }
        Why::OtherSize { size_bytes, right, by_metalink: false } => other_size(*size_bytes, *right),
        Why::OtherChecksum { said, agreed } => {
            let said = said.as_ref().map_or_else(|| "another checksum".to_owned(), ToString::to_string);
            mismatch(format!("its file is another one: it states {said}, and {agreed} was agreed on"))
                .hint(tell)
        }
        Why::AgainstTheBytes => {
            mismatch("it states another checksum than that of the bytes on which most sources agree".into())
                .hint(tell)
        }
        Why::TwoSizes { sent, asked } => {
            let message = format!("it states two sizes of the file, {sent} bytes and {asked} bytes");
            Error::new(ErrorKind::Precondition, message)
                .fault(Fault::Peer)
                .hint("copy it again when no program writes to it")
                .retryable(true)
        }
        Why::WrongBytes => mismatch("it sent wrong bytes".into()).hint(tell),
        Why::WrongPieces(count) => wrong_pieces(*count),
    }
}

/// The error of a source that has sent so many wrong pieces.
pub(crate) fn wrong_pieces(count: u32) -> Error {
    let message = match count {
        1 => "it sent a wrong piece".to_owned(),
        count => format!("it sent {count} wrong pieces"),
    };
    Error::new(ErrorKind::ChecksumMismatch, message)
        .fault(Fault::Peer)
        .hint("report it to the operator of that server")
}

fn other_size(size_bytes: u64, right: u64) -> Error {
    Error::new(
        ErrorKind::ChecksumMismatch,
        format!("it has {size_bytes} bytes, the other sources have {right}"),
    )
    .hint("it is another file, or damaged")
}

fn hopeless_hint(hopeless: Hopeless) -> Hint {
    match hopeless {
        Hopeless::PiecesAreRight => Hint::PiecesContradict,
        Hopeless::InOrder => {
            "do not use what was written; a copy to a file finds the source of the wrong bytes".into()
        }
        Hopeless::OneSource => {
            "the file is damaged at its source, or the checksum is that of another file".into()
        }
        Hopeless::NobodyHasThem => {
            "no combination of the sources has these bytes: the checksum may be that of another file".into()
        }
    }
}

fn split(contradiction: &Split) -> Error {
    let listed = |values: Vec<String>| values.join(", ");
    let (about, values) = match contradiction {
        Split::Sizes(sizes) => {
            ("how many bytes the file has", listed(sizes.iter().map(u64::to_string).collect()))
        }
        Split::Checksums(values) => {
            ("the checksum", listed(values.iter().map(Checksum::to_string).collect()))
        }
    };
    let message = format!("the sources contradict each other about {about}: {values}");
    Error::new(ErrorKind::ChecksumMismatch, message).fault(Fault::Peer).hint(Hint::StateChecksumOrAdd)
}
