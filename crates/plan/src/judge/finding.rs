//! The results of judging a copy: by what its bytes are right, why a source is not used any more, and why a copy has failed.
//!
//! Values only. The engine has the sentences that people read.

use gridlane_core::{ByteRange, Checksum};

use super::votes::Split;

/// The statement that the bytes agree with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The person that started the copy.
    User,
    /// The file's metalink: the checksum of the whole, or those of all pieces.
    Metalink,
    /// The sources that the person named.
    Sources {
        /// The number of sources with checksums that the bytes have.
        agreeing: usize,
        /// The number of sources with any that could be compared.
        said: usize,
        /// The number of sources that were named.
        named: usize,
    },
}

/// The reason why a source is not used any more, or why it is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its file has another size.
    OtherSize {
        /// The size that it states.
        size_bytes: u64,
        /// The one that counts.
        right: u64,
        /// A metalink says which one counts; else the other sources do.
        by_metalink: bool,
    },
    /// It states another checksum than is agreed, before all bytes are there.
    OtherChecksum {
        /// Its own checksum of the same kind.
        said: Option<Checksum>,
        /// The agreed checksum.
        agreed: Checksum,
    },
    /// It states another checksum than the bytes have on which most sources agree.
    AgainstTheBytes,
    /// It has told two sizes.
    TwoSizes {
        /// On the connections that carry bytes.
        sent: u64,
        /// When it was asked for its checksum.
        asked: u64,
    },
    /// It sent other bytes than those that turned out to be right.
    WrongBytes,
    /// It sent so many pieces that have another checksum than the metalink says.
    WrongPieces(u32),
}

/// The reason why a copy has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The bytes have another checksum than they should have.
    Wrong {
        /// The one that they have.
        found: Checksum,
        /// The one that they should have.
        expected: Checksum,
        /// Why they are not fetched again.
        hopeless: Hopeless,
    },
    /// The sources contradict each other.
    Split(Split),
    /// Bytes are there from a replica that only a server named, and that server turned out to be wrong.
    Unvouched,
    /// Nothing tells whether the bytes are right, and that was asked for.
    NotCompared,
    /// Nothing tells whether the bytes are right, and among them are those of this source, which is not believed.
    Disproved {
        /// Its number.
        source: usize,
    },
    /// The same as [`Disproved`](Failure::Disproved), of a target that cannot take back what it was given.
    DisprovedInOrder,
    /// No source has this piece as the metalink describes it.
    NowhereRight(ByteRange),
    /// Most sources state another size than the one by which a target in order was written.
    SizeTurned {
        /// The source by whose word it turned.
        source: usize,
        /// The size so far.
        agreed: u64,
        /// The size that most state.
        right: u64,
    },
    /// The file does not keep what is written to it.
    NotKept,
    /// The bytes were to be compared, and no checksum of them could be computed.
    NotComputed,
}

/// The reason why wrong bytes are not fetched again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hopeless {
    /// Every piece is as the metalink says.
    PiecesAreRight,
    /// The target has taken them in order.
    InOrder,
    /// There is one source only.
    OneSource,
    /// No set of sources has brought right ones.
    NobodyHasThem,
}
