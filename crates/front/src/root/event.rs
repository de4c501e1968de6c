//! Events for connections of root://, from tasks of their own and from other connections of their session.

use std::io;
use std::ops::Range;

use gridlane_xrd::StreamId;
use tokio::sync::mpsc;

use super::answer::{Failure, Outcome};
use super::reading::{Pending, ReadJob, Source, VectorJob};
use crate::pieces::Pieces;
use gridlane_sys::ReusedBuf;

/// The way to tell a connection something. Without a bound, and never long: each thing belongs to a request that has no answer yet,
/// of which its connections have [`ROOT_REQUESTS_MAX`](gridlane_core::limits::ROOT_REQUESTS_MAX) at most, or is told once.
pub(crate) type Inbox = mpsc::UnboundedSender<Event>;

/// An event for a connection.
pub(crate) enum Event {
    /// A request was answered.
    Answered(Pending, Outcome),
    /// The answer to this comes later.
    ComesLater(StreamId),
    /// It has come.
    AnsweredLater(Pending, Result<Vec<u8>, Failure>),
    /// A part of a read that waited for a disk is there.
    Read(ReadJob, io::Result<(ReusedBuf, Range<usize>, u64)>),
    /// The same of many reads.
    Vector(VectorJob, io::Result<(ReusedBuf, usize, usize)>),
    /// Bytes that were promised already are there.
    Refilled(io::Result<(ReusedBuf, Range<usize>, Source)>),
    /// The next piece of an answer that is made while it is sent, true if more follows, and the source of the rest.
    Piece(Pending, Box<dyn Pieces>, io::Result<(Vec<u8>, bool)>),
    /// A read that was asked for on another connection.
    Delegated(ReadJob),
    /// The same, and that one has ended with nothing of it sent.
    Returned(ReadJob),
    /// It has ended with a part of this answer sent.
    Lost(StreamId),
    /// A change of names has ended in this queue.
    Changed(usize),
    /// Other connections have fewer answers in hand again than the session may have.
    HasRoom,
    /// The session is over.
    End,
}
