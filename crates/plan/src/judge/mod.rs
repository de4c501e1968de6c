//! Which bytes are right, which source lied, and what has to be fetched again.

pub mod ledger;
pub mod suspects;
mod votes;

pub use ledger::{EARLIER, Ledger, Piece, Sender};
pub use votes::{Found, Split, Verdict, Votes, first_answer_max, reading_max};
