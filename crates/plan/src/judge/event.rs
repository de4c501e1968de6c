//! What the judge is told, and what it wants done.

use std::time::Duration;

use gridlane_core::{ByteRange, Checksum, ChecksumKind};

use super::finding::{Failure, Why};
use super::ledger::{Piece, Sender};
use super::thrown::{Answer, ReadBack};

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A source has said, perhaps, how large its file is.
    Identified {
        /// Its number.
        source: usize,
        /// The size, if it says one.
        size_bytes: Option<u64>,
    },
    /// A source was asked for its checksum, and these are all that it says.
    Said {
        /// Its number.
        source: usize,
        /// Its checksums; none, if it says none.
        checksums: Vec<Checksum>,
    },
    /// A source was asked for a strong checksum, and these are all that it says.
    SaidStrong {
        /// Its number.
        source: usize,
        /// Its checksums; `None`: it did not answer.
        checksums: Option<Vec<Checksum>>,
    },
    /// A source states checksums for which it was not asked.
    States {
        /// Its number.
        source: usize,
        /// Its checksums.
        checksums: Vec<Checksum>,
    },
    /// A source has told two sizes, or not any more.
    TwoSizes {
        /// Its number.
        source: usize,
        /// That which it told with its bytes, and that which it told when it was asked for its checksum.
        sizes: Option<(u64, u64)>,
    },
    /// A source can deliver nothing any more.
    Died {
        /// Its number.
        source: usize,
        /// True if its bytes and statements do not count either: it contradicts itself, or does not keep to its protocol.
        forget: bool,
    },
    /// A piece turned out to have another checksum than the metalink says; the ledger has forgotten it.
    PieceWrong {
        /// Its number.
        index: u64,
        /// The parts that it was made of.
        parts: Vec<Piece>,
    },
    /// A piece that was wrong is right.
    PieceMended {
        /// Its number.
        index: u64,
        /// The senders of parts that had been wrong.
        liars: Vec<Sender>,
    },
    /// An earlier run has left what the ledger has now. With a size, it is gone on with on the word of its journal.
    Continued {
        /// The size that the journal tells.
        size_bytes: Option<u64>,
    },
    /// Some time has passed: told now and then.
    Tick,
    /// [`Action::ComparePieces`] was done.
    PiecesCompared,
    /// [`Action::Hash`] was done.
    Hashed {
        /// The ticket of the action.
        ticket: u64,
        /// Checksums of the kinds that could be computed.
        checksums: Vec<Checksum>,
    },
    /// [`Action::ReadBack`] was done.
    WasRead {
        /// The ticket of the action.
        ticket: u64,
        /// The answer.
        answer: Answer,
    },
    /// [`Action::LookAtFile`] was done.
    Looked {
        /// The file may not have kept what was written to it.
        is_doubtful: bool,
        /// The time that the copy has taken so far.
        took: Duration,
    },
    /// [`Action::CloseLanes`] was done, and everything has been told that lanes had still to tell.
    LanesClosed,
}

/// Something to be done.
#[derive(Debug)]
pub enum Action {
    /// Tell the plan.
    Plan(crate::Event),
    /// The file has so many bytes: tell the plan, the target and the observer.
    Agree {
        /// The size.
        size_bytes: u64,
    },
    /// More than half of all state this checksum already, whatever bytes come: the journal may be told.
    Settled(Checksum),
    /// Never use a source again.
    Stop {
        /// Its number.
        source: usize,
        /// Why.
        why: Why,
    },
    /// Say that a source is wrong; what it could still deliver is not needed any more.
    Name {
        /// Its number.
        source: usize,
        /// Why.
        why: Why,
    },
    /// Say, when it is the first time, that a source has sent a wrong piece.
    Blame {
        /// Its number.
        source: usize,
        /// The number of wrong pieces so far.
        count: u32,
    },
    /// A source may be used again, and is asked again for its checksum: its size counts now.
    Revive {
        /// Its number.
        source: usize,
    },
    /// Ask a source for the strongest checksum that it has.
    AskStrong {
        /// Its number.
        source: usize,
    },
    /// Every byte is there: ask the sources whose word is waited for and that were not asked yet.
    AskOthers,
    /// Say that a piece was wrong.
    WrongPiece {
        /// Where it lies.
        range: ByteRange,
        /// The sources that sent parts of it.
        sources: Vec<usize>,
    },
    /// Say that the bytes are wrong and that others are believed in the next attempt.
    Mismatch {
        /// The checksum that the bytes have.
        found: Checksum,
        /// The one that they should have.
        expected: Checksum,
        /// The sources that are believed.
        believed: Vec<usize>,
    },
    /// Compare the pieces that are there and were not compared; answered with [`Event::PiecesCompared`].
    ComparePieces,
    /// Compute checksums of all bytes; answered with [`Event::Hashed`].
    Hash {
        /// Names the question.
        ticket: u64,
        /// The kinds.
        kinds: Vec<ChecksumKind>,
    },
    /// Read bytes of the file; answered with [`Event::WasRead`].
    ReadBack {
        /// Names the question.
        ticket: u64,
        /// The question.
        what: ReadBack,
    },
    /// Look whether the file has kept what was written; answered with [`Event::Looked`].
    LookAtFile,
    /// Close all lanes, and tell of everything that they had still to tell; answered with [`Event::LanesClosed`].
    CloseLanes,
    /// Nothing that the file has is of use: begin it, and its journal, anew.
    Restart,
    /// Make a new plan over what the ledger has. There are no lanes.
    NewPlan,
    /// The bytes are as right as can be known: make the target visible.
    Finish,
    /// The copy has failed.
    Fail(Failure),
}
