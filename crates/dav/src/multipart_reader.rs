//! Reading `multipart/byteranges` (RFC 9110, 14.6), and the other answers to a request for several ranges.
//!
//! First [`AnswerToRanges::classify`] says what a server made of the request: parts, one range, everything,
//! or nothing. For parts there is [`MultipartReader`], a machine without input or output: give it the bytes
//! that are there, and it says which of them belong where in the file. Data is never copied.
//!
//! It counts and does not search: a part is as long as its `Content-Range` says, so a file may contain the
//! boundary (XRootD's is always `123456`). What a part may hold is known from the request: a range that was
//! not asked for is an error. Servers may make one part of ranges that are near each other, so bytes between
//! two ranges may come along; they are skipped, and so are bytes that came before: **each byte that was asked
//! for is delivered once**. What never came is in [`MultipartReader::missing`]: a server leaves out what is
//! behind the file's end.
//!
//! Tolerated, since some server sends it: text in front of the first delimiter and behind the last; an empty
//! line at the start (nginx, Apache, XRootD) or none; line ends that are a bare LF; blanks behind a delimiter;
//! quoted boundaries; names of fields in any case and order; no `Content-Type`; parts in another order; an
//! end without a last line end, or without a last delimiter when nothing is missing.
//!
//! Not tolerated is an end that comes too early, and XRootD 5.5.3 makes one of requests that it only half
//! understands: with an open range (`5-`) in the list its answer is empty, and with a range behind the file's
//! end it promises more bytes than it sends. [`RangeList::batch`](crate::ranges::RangeList::batch) writes no
//! open ranges; the caller knows the file's size.

use gridlane_core::{ByteRange, Error, ErrorKind, RangeSet, Result, limits};

use crate::header::{trim, unquote};
use crate::media_type;
use crate::range::{ContentRange, UnsatisfiedRange};
use crate::status::Status;

/// The kind of answer of a server to a request for several ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerToRanges {
    /// 206 in parts: read them with a [`MultipartReader`].
    Multipart {
        /// The separator of the parts.
        boundary: String,
    },
    /// 206 with one range: the only one that there is, all of them merged into one, or the first one from a
    /// server that knows no parts (object stores). Compare it with what was asked for.
    Single(ContentRange),
    /// 200: everything, of this size where it is known. Others read it if it is not much more than was asked
    /// for, and else ask for the ranges one by one.
    Whole {
        /// Size of the file.
        size: Option<u64>,
    },
    /// 416: none of the ranges is in the file, or the server does not like so many.
    Unsatisfiable {
        /// Size of the file.
        size: Option<u64>,
    },
    /// Any other status: no answer about ranges.
    Other,
}

impl AnswerToRanges {
    /// Looks at the status and the fields that matter; an error when a 206 does not say what it is.
    pub fn classify(
        status: Status,
        content_type: Option<&str>,
        content_range: Option<&str>,
        content_length: Option<u64>,
    ) -> Result<AnswerToRanges> {
        match status {
            Status::OK => Ok(AnswerToRanges::Whole { size: content_length }),
            Status::RANGE_NOT_SATISFIABLE => {
                let size = content_range.and_then(UnsatisfiedRange::parse).map(|range| range.size);
                Ok(AnswerToRanges::Unsatisfiable { size })
            }
            Status::PARTIAL_CONTENT => partial(content_type, content_range, content_length),
            _ => Ok(AnswerToRanges::Other),
        }
    }
}

fn partial(
    content_type: Option<&str>,
    content_range: Option<&str>,
    content_length: Option<u64>,
) -> Result<AnswerToRanges> {
    let single = match content_range.map(|text| (text, ContentRange::parse(text))) {
        None => None,
        Some((_, Some(range))) => Some(range),
        Some((text, None)) => return Err(protocol(format!("Content-Range {text:?} cannot be read"))),
    };
    let boundary = content_type.and_then(boundary_of);
    match (single, boundary) {
        // A field that a part should have, in the head of the whole; unless the length says otherwise.
        (Some(range), Some(boundary)) if content_length != Some(range.range.len()) => {
            Ok(AnswerToRanges::Multipart { boundary })
        }
        (Some(range), _) => match content_length {
            Some(length) if length != range.range.len() => Err(protocol(format!(
                "the answer has {length} bytes, and its Content-Range {}",
                range.range.len()
            ))),
            _ => Ok(AnswerToRanges::Single(range)),
        },
        (None, Some(boundary)) => Ok(AnswerToRanges::Multipart { boundary }),
        (None, None) => Err(protocol("a 206 has neither Content-Range nor parts")),
    }
}

/// The boundary in a `Content-Type`, when that is `multipart/byteranges` and has one (RFC 9110, 8.3.1).
pub fn boundary_of(content_type: &str) -> Option<String> {
    let (_, mut rest) = content_type.split_once(';')?;
    // The second is the name before it was registered; Apache sends it to browsers of that time.
    if !matches!(
        media_type::of_field(content_type).as_str(),
        "multipart/byteranges" | "multipart/x-byteranges"
    ) {
        return None;
    }
    loop {
        let (name, after) = rest.split_once('=')?;
        // Parameters without a value in front of it are passed over.
        let name = trim(name.rsplit(';').next().unwrap_or_default());
        let (value, left) = parameter_value(after)?;
        if name.eq_ignore_ascii_case("boundary") {
            let is_good = (1..=limits::MULTIPART_BOUNDARY_BYTES_MAX).contains(&value.len())
                && !value.bytes().any(|byte| byte.is_ascii_control());
            return is_good.then_some(value);
        }
        rest = left;
    }
}

/// A parameter's value, with or without quotes, and what is behind it and its semicolon.
fn parameter_value(text: &str) -> Option<(String, &str)> {
    let text = trim(text);
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = text.split_once(';').unwrap_or((text, ""));
        return Some((trim(value).to_owned(), rest));
    };
    let (value, rest) = unquote(quoted);
    Some((value, rest?.split_once(';').map_or("", |(_, rest)| rest)))
}

/// The meaning of the next bytes of a multipart body.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A part begins: this range of a file of this size.
    PartStart(ContentRange),
    /// Bytes that were asked for.
    Data {
        /// Where in the file they belong.
        offset: u64,
        /// The bytes; never none.
        bytes: &'a [u8],
    },
    /// The part is complete.
    PartEnd,
    /// Everything given was used; the body goes on.
    NeedsMore,
    /// The last delimiter was read. Whatever is behind it means nothing.
    End,
}

/// The machine. Call [`step`](MultipartReader::step) with the body's bytes until it says [`Event::End`] or
/// the body ends, and then [`finish`](MultipartReader::finish).
#[derive(Debug)]
pub struct MultipartReader {
    /// `--` and the boundary.
    delimiter: Vec<u8>,
    /// The ranges that were asked for, and the bytes that lie between ranges near each other.
    allowed: RangeSet,
    missing: RangeSet,
    state: State,
    /// The unfinished line.
    line: Vec<u8>,
    /// Bytes since the last data.
    head_bytes: usize,
    parts: usize,
    /// The part's `Content-Range`, once its head has told it; of the part before while there is none.
    content_range: Option<ContentRange>,
    size: Option<u64>,
    /// Offset of the part's next byte.
    at: u64,
    /// Offset of the part's end.
    end: u64,
    /// Ranges that the part still has to deliver, last one first.
    wanted: Vec<ByteRange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In front of a delimiter.
    Between,
    /// In a part's head.
    Head,
    /// In a part's data.
    Data,
    Done,
}

impl MultipartReader {
    /// A reader in front of a body whose parts are separated by `boundary`, the answer to a request for the
    /// ranges `asked`.
    pub fn new(boundary: &str, asked: &[ByteRange]) -> MultipartReader {
        let missing: RangeSet = asked.iter().copied().collect();
        MultipartReader {
            delimiter: format!("--{boundary}").into_bytes(),
            allowed: with_gaps(&missing),
            missing,
            state: State::Between,
            line: Vec::new(),
            head_bytes: 0,
            parts: 0,
            content_range: None,
            size: None,
            at: 0,
            end: 0,
            wanted: Vec::new(),
        }
    }

    /// The ranges that were asked for and have not been delivered.
    pub fn missing(&self) -> &RangeSet {
        &self.missing
    }

    /// The file's size, once a part has told it.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// Looks at `input`, the bytes behind those used so far, and says what they are and how many of them
    /// are used now. A part's end may be told without any.
    pub fn step<'a>(&mut self, input: &'a [u8]) -> Result<(Event<'a>, usize)> {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            match self.state {
                State::Done => return Ok((Event::End, input.len())),
                State::Data if self.at == self.end => {
                    self.state = State::Between;
                    self.head_bytes = 0;
                    return Ok((Event::PartEnd, used));
                }
                _ if rest.is_empty() => return Ok((Event::NeedsMore, used)),
                State::Data => {
                    let (offset, expected) = (self.at, self.data_expected());
                    let is_wanted = expected > 0;
                    let next = self.wanted.last().map_or(self.end, |range| range.start());
                    let left = if is_wanted { expected } else { next - self.at };
                    let take = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    used += take;
                    if is_wanted {
                        self.delivered(take as u64);
                        return Ok((Event::Data { offset, bytes: &rest[..take] }, used));
                    }
                    self.at += take as u64;
                }
                State::Between | State::Head => {
                    used += self.take_line(rest)?;
                    if let Some(range) = self.end_of_line()? {
                        return Ok((Event::PartStart(range), used));
                    }
                }
            }
        }
    }

    /// Bytes that were asked for and come next without anything between: they may be read straight to
    /// where they belong, [`data_offset`](MultipartReader::data_offset).
    pub fn data_expected(&self) -> u64 {
        match (self.state, self.wanted.last()) {
            (State::Data, Some(range)) if range.start() <= self.at => range.end() - self.at,
            _ => 0,
        }
    }

    /// Where in the file the [expected](MultipartReader::data_expected) bytes belong.
    pub fn data_offset(&self) -> u64 {
        self.at
    }

    /// Says that `count` of the [expected](MultipartReader::data_expected) bytes were taken elsewhere.
    ///
    /// # Panics
    /// When they are more than were expected.
    pub fn data_taken(&mut self, count: u64) {
        assert!(count <= self.data_expected(), "no more than the part's bytes are taken");
        self.delivered(count);
    }

    /// Says that the body has ended; an error when it ended too early.
    pub fn finish(&self) -> Result<()> {
        match self.state {
            State::Done => Ok(()),
            // Nothing more can come that is waited for.
            State::Between if self.missing.is_empty() => Ok(()),
            State::Data if self.missing.is_empty() && self.at == self.end => Ok(()),
            _ => Err(protocol("the answer in parts ends before its last delimiter")),
        }
    }

    fn delivered(&mut self, count: u64) {
        self.missing.remove(ByteRange::at(self.at, count));
        self.at += count;
        if self.wanted.last().is_some_and(|range| range.end() <= self.at) {
            self.wanted.pop();
        }
    }

    /// Takes bytes up to the next LF into `line`, as many as a head may have; returns how many. A line may mean
    /// something before it ends, however it comes in pieces.
    fn take_line(&mut self, input: &[u8]) -> Result<usize> {
        let max = limits::MULTIPART_HEAD_BYTES_MAX;
        let count = input.iter().position(|byte| *byte == b'\n').map_or(input.len(), |at| at + 1);
        let count = count.min(max - self.head_bytes);
        if count == 0 {
            return Err(protocol(format!("a part of the answer has a head of more than {max} bytes")));
        }
        self.head_bytes += count;
        self.line.extend_from_slice(&input[..count]);
        Ok(count)
    }

    /// Looks at `line`, if it is complete or need not be; returns the range when a part's head ends with it.
    fn end_of_line(&mut self) -> Result<Option<ContentRange>> {
        if self.state == State::Between && self.is_last_delimiter() {
            self.state = State::Done;
            return Ok(None);
        }
        if !self.line.ends_with(b"\n") {
            return Ok(None);
        }
        let line = std::mem::take(&mut self.line);
        let line = trim_end(&line);
        match self.state {
            State::Between if line == self.delimiter => {
                self.state = State::Head;
                self.content_range = None;
            }
            // Text in front of the first part is for programs that know no parts (RFC 2046, 5.1.1).
            State::Between if self.parts == 0 || line.is_empty() => {}
            State::Between => return Err(protocol("a part of the answer is longer than its range")),
            State::Head if line.is_empty() => return self.start_part().map(Some),
            State::Head => self.take_field(&String::from_utf8_lossy(line))?,
            State::Data | State::Done => {}
        }
        Ok(None)
    }

    /// True if `line` is the delimiter with two dashes behind it; the body may end without a line end.
    fn is_last_delimiter(&self) -> bool {
        self.line.strip_prefix(self.delimiter.as_slice()).is_some_and(|rest| rest.starts_with(b"--"))
    }

    /// Takes a field of a part's head; only one is of interest.
    fn take_field(&mut self, line: &str) -> Result<()> {
        let Some((name, value)) = line.split_once(':') else { return Ok(()) };
        if !trim(name).eq_ignore_ascii_case("content-range") {
            return Ok(());
        }
        let range = ContentRange::parse(value)
            .ok_or_else(|| protocol(format!("Content-Range {:?} of a part cannot be read", trim(value))))?;
        if self.content_range.is_some_and(|before| before != range) {
            return Err(protocol("a part of the answer has two ranges"));
        }
        self.content_range = Some(range);
        Ok(())
    }

    fn start_part(&mut self) -> Result<ContentRange> {
        let Some(content_range) = self.content_range else {
            return Err(protocol("a part of the answer has no Content-Range"));
        };
        let range = content_range.range;
        if !self.allowed.contains(range) {
            return Err(protocol(format!("a part of the answer has {range}, which were not asked for")));
        }
        if let (Some(before), Some(size)) = (self.size, content_range.size)
            && before != size
        {
            return Err(protocol(format!("parts of one answer are of files of {before} and {size} bytes")));
        }
        self.parts += 1;
        if self.parts > limits::MULTIPART_PARTS_MAX {
            return Err(protocol(format!("the answer has more than {} parts", limits::MULTIPART_PARTS_MAX)));
        }
        self.size = self.size.or(content_range.size);
        (self.at, self.end) = (range.start(), range.end());
        self.wanted = self.missing.intersection(range);
        self.wanted.reverse();
        self.state = State::Data;
        Ok(content_range)
    }
}

/// The ranges, and what lies between those that are near each other.
fn with_gaps(asked: &RangeSet) -> RangeSet {
    let mut allowed = asked.clone();
    for (range, next) in asked.iter().zip(asked.iter().skip(1)) {
        if next.start() - range.end() < limits::MULTIPART_GAP_BYTES_MAX {
            allowed.insert(ByteRange::new(range.end(), next.start()));
        }
    }
    allowed
}

/// Without the line end and blanks in front of it.
fn trim_end(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r' | b' ' | b'\t'));
    &line[..end.map_or(0, |at| at + 1)]
}

fn protocol(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Protocol, message)
}

#[cfg(test)]
mod tests;
