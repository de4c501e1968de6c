//! The answer to a request for one range or several: what its head says, and its body taken apart.

use gridlane_core::{ByteRange, Error, ErrorKind, Result};
use gridlane_dav::ResponseHead;
use gridlane_dav::multipart_reader::{AnswerToRanges, Event, MultipartReader};
use gridlane_plan::RequestId;

use crate::lane::answered::Answered;
use crate::reading::batch::Batch;

/// The meaning of a head.
pub(super) enum Judged {
    /// Bytes follow, of a file of this size where it is told.
    Body { body: Body, size_bytes: Option<u64> },
    /// More was asked for than there is, and the connection is of no use any more: the file has so many bytes.
    Overlong(u64),
    /// The range is behind the end of the file, which has so many bytes.
    Nothing(u64),
    /// It does not do as a request for several ranges says: each is to be asked for by itself.
    Singly,
    /// No answer about ranges.
    Other,
}

/// The end of a body.
pub(super) enum Taken {
    /// All that was asked for has come, or what there is of it.
    All,
    /// The same, in parts.
    Parts,
    /// These have not come: the server understood the request in part.
    Lacks(Vec<ByteRange>),
    /// All of the file has come, which has so many bytes.
    Size(u64),
}

/// A body that comes.
pub(super) struct Body {
    request: RequestId,
    form: Form,
}

enum Form {
    Range {
        at: u64,
        /// Where it ends; `None` when only its end tells.
        end: Option<u64>,
        /// It is the whole file, which was not asked for.
        is_whole: bool,
        /// What was asked for and is in no other part.
        lacks: Vec<ByteRange>,
    },
    Parts(Box<MultipartReader>),
}

/// Judges the head of an answer to a request for these ranges; an error says what is wrong with it.
pub(super) fn judge(head: &ResponseHead, request: RequestId, ranges: &[ByteRange]) -> Result<Judged> {
    match ranges {
        [range] => judge_one(head, request, *range),
        several => judge_several(head, request, several),
    }
}

fn judge_one(head: &ResponseHead, request: RequestId, range: ByteRange) -> Result<Judged> {
    let lacks = Vec::new;
    Ok(match Answered::of(head, range)? {
        Answered::Part(came) => {
            let (at, end) = (came.range.start(), Some(came.range.end()));
            let form = Form::Range { at, end, is_whole: false, lacks: lacks() };
            Judged::Body { body: Body { request, form }, size_bytes: came.size }
        }
        Answered::Whole(size_bytes) => {
            // All that was asked for, and nothing else.
            let is_asked =
                range.start() == 0 && size_bytes.is_some_and(|size_bytes| size_bytes <= range.end());
            let form = Form::Range { at: 0, end: size_bytes, is_whole: !is_asked, lacks: lacks() };
            Judged::Body { body: Body { request, form }, size_bytes }
        }
        Answered::Overlong(size_bytes) => Judged::Overlong(size_bytes),
        Answered::Nothing(size_bytes) => Judged::Nothing(size_bytes),
        Answered::Other => Judged::Other,
    })
}

fn judge_several(head: &ResponseHead, request: RequestId, ranges: &[ByteRange]) -> Result<Judged> {
    let length = head.content_length()?;
    let (kind, range) = (head.headers.get("content-type"), head.headers.get("content-range"));
    // One that makes no sense may make some when a single range is asked for.
    let Ok(answer) = AnswerToRanges::classify(head.status, kind, range, length) else {
        return Ok(Judged::Singly);
    };
    if head.status.is_success()
        && let Some(coding) = head.content_coding()
    {
        let message = format!("it sends the file encoded as {coding:?}, which was not asked for");
        return Err(Error::new(ErrorKind::Protocol, message));
    }
    Ok(match answer {
        AnswerToRanges::Multipart { boundary } => {
            let form = Form::Parts(Box::new(MultipartReader::new(&boundary, ranges)));
            Judged::Body { body: Body { request, form }, size_bytes: None }
        }
        AnswerToRanges::Single(came) => {
            let (at, end) = (came.range.start(), came.range.end());
            let lacks = ranges.iter().copied().filter(|range| !came.range.contains(*range)).collect();
            let form = Form::Range { at, end: Some(end), is_whole: false, lacks };
            Judged::Body { body: Body { request, form }, size_bytes: came.size }
        }
        AnswerToRanges::Whole { .. } | AnswerToRanges::Unsatisfiable { .. } => Judged::Singly,
        AnswerToRanges::Other => match head.status.code() {
            // Not about ranges: a redirect, a right that lacks, no file, a server that is busy.
            300..=399 | 401 | 403 | 404 | 407 | 408 | 410 | 429 | 503 | 504 => Judged::Other,
            _ => Judged::Singly,
        },
    })
}

impl Body {
    /// The request that is answered with the whole file, if it is.
    pub(super) fn whole(&self) -> Option<RequestId> {
        matches!(self.form, Form::Range { is_whole: true, .. }).then_some(self.request)
    }

    /// Takes the next bytes.
    pub(super) fn take(&mut self, bytes: &[u8], batch: &mut Batch) -> Result<()> {
        let request = self.request;
        match &mut self.form {
            Form::Range { at, end, .. } => {
                let count = bytes.len() as u64;
                let left = end.map_or(count, |end| end.saturating_sub(*at));
                if count > left {
                    return Err(Error::new(ErrorKind::Protocol, "it sent more bytes than it announced"));
                }
                batch.put(request, *at, bytes, left);
                *at += count;
                Ok(())
            }
            Form::Parts(reader) => {
                let mut rest = bytes;
                loop {
                    let (event, used) = reader.step(rest)?;
                    let data = match event {
                        Event::Data { offset, bytes } => Some((offset, bytes)),
                        Event::NeedsMore | Event::End => return Ok(()),
                        Event::PartStart(_) | Event::PartEnd => None,
                    };
                    if let Some((offset, data)) = data {
                        batch.put(request, offset, data, data.len() as u64 + reader.data_expected());
                    }
                    rest = &rest[used..];
                }
            }
        }
    }

    /// The body has ended.
    pub(super) fn finish(self) -> Result<Taken> {
        match self.form {
            Form::Range { at, end: Some(end), .. } if at < end => {
                let message = format!("it sent {} bytes less than it announced", end - at);
                Err(Error::new(ErrorKind::Protocol, message))
            }
            Form::Range { lacks, .. } if !lacks.is_empty() => Ok(Taken::Lacks(lacks)),
            Form::Range { at, end: None, .. } => Ok(Taken::Size(at)),
            Form::Range { .. } => Ok(Taken::All),
            Form::Parts(reader) => match (reader.finish(), reader.missing().is_empty()) {
                (Ok(()), true) => Ok(Taken::Parts),
                _ => Ok(Taken::Lacks(reader.missing().iter().collect())),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> ResponseHead {
        ResponseHead::parse(format!("HTTP/1.1 {text}\r\n\r\n").as_bytes()).unwrap().unwrap().0
    }

    fn two() -> [ByteRange; 2] {
        [ByteRange::at(0, 4), ByteRange::at(10, 4)]
    }

    #[test]
    fn servers_that_do_not_understand_several_ranges_are_asked_singly() {
        for text in [
            "200 OK\r\nContent-Length: 100",
            "416 No\r\nContent-Range: bytes */100",
            "400 Bad",
            "500 Sorry",
            "206 Part\r\nContent-Length: 5",
        ] {
            assert!(matches!(judge(&head(text), RequestId(1), &two()), Ok(Judged::Singly)), "{text}");
        }
        for text in ["404 None", "302 Else\r\nLocation: /g", "503 Busy"] {
            assert!(matches!(judge(&head(text), RequestId(1), &two()), Ok(Judged::Other)), "{text}");
        }
    }

    #[test]
    fn the_first_range_alone_is_taken_and_the_others_are_asked_for_again() {
        let text = "206 Part\r\nContent-Length: 4\r\nContent-Range: bytes 0-3/100";
        let Ok(Judged::Body { mut body, size_bytes: Some(100) }) = judge(&head(text), RequestId(1), &two())
        else {
            panic!("{text}");
        };
        let mut batch = Batch::default();
        body.take(b"abcd", &mut batch).unwrap();
        assert!(body.take(b"e", &mut batch).is_err());
        let Ok(Taken::Lacks(lacks)) = body.finish() else { panic!() };
        assert_eq!((lacks, batch.take().len()), (vec![ByteRange::at(10, 4)], 1));
    }

    #[test]
    fn a_part_that_is_left_out_is_asked_for_again() {
        let text = "206 Part\r\nContent-Type: multipart/byteranges; boundary=b\r\nContent-Length: 200";
        let Ok(Judged::Body { mut body, .. }) = judge(&head(text), RequestId(1), &two()) else {
            panic!("{text}");
        };
        let mut batch = Batch::default();
        let parts = b"--b\r\nContent-Range: bytes 10-13/100\r\n\r\nabcd\r\n--b--\r\n";
        body.take(parts, &mut batch).unwrap();
        let Ok(Taken::Lacks(lacks)) = body.finish() else { panic!() };
        assert_eq!(lacks, [ByteRange::at(0, 4)]);
    }

    #[test]
    fn a_whole_file_is_noticed_where_it_was_not_asked_for() {
        let text = "200 OK\r\nContent-Length: 100";
        for (len, is_whole) in [(10, true), (100, false), (200, false)] {
            let judged = judge(&head(text), RequestId(1), &[ByteRange::at(0, len)]);
            let Ok(Judged::Body { body, size_bytes: Some(100) }) = judged else { panic!("{len}") };
            assert_eq!(body.whole().is_some(), is_whole, "{len}");
        }
    }
}
