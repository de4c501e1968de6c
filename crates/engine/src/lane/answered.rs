//! The meaning of the head of an answer to a request for one range over HTTP.

use gridlane_core::{ByteRange, Error, ErrorKind, Result};
use gridlane_dav::range::ContentRange;
use gridlane_dav::{OverlongRange, ResponseHead};
use gridlane_peer::http::status_error;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// These bytes follow, the first ones of the range.
    Part(ContentRange),
    /// More was asked for than there is; the file has so many bytes, and the connection is of no use any more.
    Overlong(u64),
    /// All of the file follows, of this size where it is known.
    Whole(Option<u64>),
    /// The range begins behind the end of the file, which has so many bytes.
    Nothing(u64),
    /// No answer about ranges: a redirect, or a failure.
    Other,
}

impl Answered {
    /// Judges the head of an answer to a request for `range`; an error says what is wrong with it.
    pub(crate) fn of(head: &ResponseHead, range: ByteRange) -> Result<Answered> {
        let protocol = |message: String| Err(Error::new(ErrorKind::Protocol, message));
        if head.status.is_success()
            && let Some(coding) = head.content_coding()
        {
            return protocol(format!("it sends the file encoded as {coding:?}, which was not asked for"));
        }
        match head.status.code() {
            206 => {
                if let Some(OverlongRange { size: size_bytes }) = head.overlong_range() {
                    return Ok(Answered::Overlong(size_bytes));
                }
                let Some(came) = head.content_range()? else {
                    return protocol("it sent a part and did not say which".into());
                };
                if came.range.start() != range.start() || came.range.end() > range.end() {
                    return protocol(format!("it was asked for {range} and sent {}", came.range));
                }
                match head.content_length() {
                    Ok(Some(length)) if length != came.range.len() => {
                        protocol(format!("it announced {} and then {length} bytes", came.range))
                    }
                    _ => Ok(Answered::Part(came)),
                }
            }
            200 => {
                let length = head.content_length()?;
                // EOS says so of a part.
                let part = head.content_range().ok().flatten().filter(|came| {
                    came.range.start() == range.start()
                        && came.range.end() <= range.end()
                        && length == Some(came.range.len())
                });
                Ok(part.map_or(Answered::Whole(length), Answered::Part))
            }
            416 => match head.unsatisfied_range() {
                Some(unsatisfied) if range.start() < unsatisfied.size => {
                    protocol(format!("it says that {range} are beyond its {} bytes", unsatisfied.size))
                }
                Some(unsatisfied) => Ok(Answered::Nothing(unsatisfied.size)),
                // Not even that the file is empty can be concluded from it.
                None => Err(status_error(head, "")),
            },
            _ => Ok(Answered::Other),
        }
    }
}
