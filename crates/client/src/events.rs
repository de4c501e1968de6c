//! Events as lines that a program reads: one JSON object each (docs/reference/json-events.md).
//!
//! They are made here, of what the engine and the trees of this crate tell, so that every front end writes the same ones.
//! What is a choice of a few is an enum in them. What a person reads in them (a hint, what limited a copy) is a value with
//! the [`Words`] of the front end; the value itself stands beside it by a name that stays.
//!
//! Read first: [`Line`], then `copy` and `tree`; `answer` has the lines of commands that ask one question,
//! `probe` those of a probe, `read` those of replayed reads.

mod answer;
mod common;
mod copy;
mod probe;
mod read;
mod tree;

pub use answer::{AnswerLine, EntryLine};
pub use common::{
    Carried, EVENTS_VERSION, Failure, Line, NoteAbout, PlainWords, Said, Verification, Votes, WarningLine,
    Words,
};
pub use copy::{CopyLine, CopyLines, SourceLine, SourceProgress, Summary};
pub use probe::{
    CauseLine, ChoiceLine, ChosenLine, CredentialLine, CriterionLine, EndpointLine, FailedLine, LeftLine,
    PassedOverLine, ProbeCounts, ProbeLine, ProbeSummary, RateLine, StepLine,
};
pub use read::{ReadLine, ReadPrice, ReadPrices, ReadRecord, ReadRun};
pub use tree::{ActiveLine, TreeLine, TreeLines, TreeSummary};

#[cfg(test)]
mod tests;
