//! What comes on a connection that is logged in, taken apart.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use gridlane_core::limits::{ROOT_REQUESTS_MAX, ROOT_WORDS_BYTES_MAX};

use crate::Malformed;
use crate::answer::{ErrorAnswer, Redirect, STATUS_BYTES, StatusAnswer, WaitAnswer};
use crate::frame::{PathId, RESPONSE_HEAD_BYTES, ResponseHead, StreamId};
use crate::pages;
use crate::registry::{AttnAction, ErrorCode, RequestId, Status};

/// Bytes of `attn` in front of the answer that it carries.
const ATTN_BYTES: usize = 8;

/// The answer to a request when all goes well, as far as it can be checked on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// At most so many bytes over all parts.
    Text {
        /// The limit.
        bytes_max: u64,
    },
    /// Bytes of a file: these, or fewer where it ends.
    Bytes {
        /// Where they begin.
        offset: u64,
        /// Number of bytes that were asked for.
        len: u64,
    },
    /// The same, with a checksum for each page.
    Pages {
        /// Where they begin.
        offset: u64,
        /// Number of bytes that were asked for, without checksums.
        len: u64,
    },
    /// The answer to `pgwrite`: pages that have to be sent again; or nothing.
    Written,
}

/// A part of an answer: its bytes come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The request that it answers.
    pub stream: StreamId,
    /// Bytes that follow, checksums included.
    pub len: u64,
    /// Where its bytes belong, if they are of a file.
    pub offset: u64,
    /// True if there is a checksum in front of each page.
    pub is_paged: bool,
    /// True if it is a list of pages that were written and were not what their checksum says.
    pub is_list: bool,
    /// True if it is the last one.
    pub is_last: bool,
}

/// An answer to a request instead of data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// It failed.
    Error(ErrorAnswer),
    /// Ask elsewhere.
    Redirect(Redirect),
    /// Ask the same again later.
    Wait(WaitAnswer),
    /// The answer comes later.
    Later(WaitAnswer),
}

/// The meaning of the next bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// More of them are needed to know.
    NeedsMore,
    /// A part of an answer begins, whose bytes come as [`Step::Data`].
    Part(Part),
    /// So many of the bytes belong to the part that began last.
    Data(usize),
    /// Something else than data. But for [`Said::Later`] the request is answered with it.
    Said(StreamId, Said),
}

/// Takes what a server sends apart, and knows which requests it has not answered.
#[derive(Debug, Default)]
pub struct Answers {
    awaited: HashMap<StreamId, Awaited>,
    /// Of the connection: its number in the session is in each of its requests.
    path_id: PathId,
    /// True if there are other connections, whose requests went out on this one.
    hears_others: bool,
    last: u16,
    state: State,
}

#[derive(Debug)]
struct Awaited {
    expect: Expect,
    /// Bytes that have come, without checksums.
    came: u64,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Head,
    /// An `attn` of so many bytes, whose beginning says what it is.
    Attn(u32),
    /// Words are collected.
    Words {
        head: ResponseHead,
        words: Vec<u8>,
    },
    /// The answer is not wanted any more.
    Skip(u32),
    Data {
        stream: StreamId,
        left: u64,
        is_last: bool,
    },
}

/// Data that should have come on another connection: it is not taken here.
fn other(stream: StreamId, len: u32) -> Part {
    let (is_paged, is_list, is_last) = (false, false, false);
    Part { stream, len: u64::from(len), offset: 0, is_paged, is_list, is_last }
}

fn wrong(what: &'static str) -> Malformed {
    Malformed::new(ErrorCode::INVALID_REQUEST, what).closing()
}

/// Bits of a stream id that count; those above are the number of the connection that the answer comes on.
const COUNTER_BITS: u32 = 12;
const COUNTER_MAX: u16 = (1 << COUNTER_BITS) - 1;

const _: () = assert!(ROOT_REQUESTS_MAX < COUNTER_MAX as usize);

impl Answers {
    /// For a connection that joined a session as `path_id`: its stream ids are none of the session's other ones.
    /// `None` for a number that is too large for that.
    pub fn of_path(path_id: PathId) -> Option<Answers> {
        let fits = u32::from(path_id.0) < 1 << (u16::BITS - COUNTER_BITS);
        fits.then(|| Answers { path_id, ..Answers::default() })
    }

    /// Says that requests of other connections go out on this one: what comes for them is passed on too.
    pub fn hear_others(&mut self) {
        self.hears_others = true;
    }

    /// The connection that the answer to `stream` is expected on.
    pub fn path_of(stream: StreamId) -> PathId {
        PathId((u16::from_be_bytes(stream.0) >> COUNTER_BITS) as u8)
    }

    /// Awaits no more answer to `stream`: it came another way.
    pub fn forget(&mut self, stream: StreamId) {
        self.awaited.remove(&stream);
    }

    fn is_of_other(&self, stream: StreamId) -> bool {
        self.hears_others && Answers::path_of(stream) != self.path_id
    }

    /// Numbers a request that is about to be sent. `None`: too many are unanswered.
    pub fn ask(&mut self, expect: Expect) -> Option<StreamId> {
        if self.awaited.len() >= ROOT_REQUESTS_MAX {
            return None;
        }
        loop {
            // 0 is what a server says unasked.
            self.last = self.last % COUNTER_MAX + 1;
            let stream = StreamId((u16::from(self.path_id.0) << COUNTER_BITS | self.last).to_be_bytes());
            if let Entry::Vacant(free) = self.awaited.entry(stream) {
                free.insert(Awaited { expect, came: 0 });
                return Some(stream);
            }
        }
    }

    /// Requests that are not answered, or not to the end.
    pub fn unanswered(&self) -> usize {
        self.awaited.len()
    }

    /// True if the next byte would be the first of a message.
    pub fn is_between(&self) -> bool {
        matches!(self.state, State::Head)
    }

    /// Bytes of a part that come next: they may be put where they belong at once, see
    /// [`data_taken`](Answers::data_taken).
    pub fn data_expected(&self) -> u64 {
        match self.state {
            State::Data { left, .. } => left,
            _ => 0,
        }
    }

    /// Says that so many bytes of a part were taken past [`step`](Answers::step): at most as many as are expected.
    pub fn data_taken(&mut self, count: u64) {
        if let State::Data { stream, left, is_last } = &mut self.state {
            *left = left.saturating_sub(count);
            if *left == 0 {
                if *is_last {
                    self.awaited.remove(stream);
                }
                self.state = State::Head;
            }
        }
    }

    /// Looks at `bytes`: what they are, and how many of them that took. After an error it is unknown where the next
    /// message begins.
    pub fn step(&mut self, bytes: &[u8]) -> Result<(Step, usize), Malformed> {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            match &mut self.state {
                State::Head => {
                    let Some(head) = rest.first_chunk::<RESPONSE_HEAD_BYTES>() else {
                        return Ok((Step::NeedsMore, used));
                    };
                    used += RESPONSE_HEAD_BYTES;
                    let head = ResponseHead::parse(head)?;
                    if head.status == Status::ATTN {
                        self.state = State::Attn(head.len);
                    } else if let Some(step) = self.begin(head)? {
                        return Ok((step, used));
                    }
                }
                State::Attn(len) => {
                    let len = *len;
                    let begin = len.min(4) as usize;
                    let Some(action) = rest.get(..begin) else { return Ok((Step::NeedsMore, used)) };
                    let action = action.first_chunk().map(|action| AttnAction(u32::from_be_bytes(*action)));
                    if action != Some(AttnAction::RESPONSE) {
                        self.state = State::Skip(len);
                        continue;
                    }
                    let Some(whole) = rest.first_chunk::<{ ATTN_BYTES + RESPONSE_HEAD_BYTES }>() else {
                        return Ok((Step::NeedsMore, used));
                    };
                    used += whole.len();
                    let inner: &[u8; RESPONSE_HEAD_BYTES] =
                        whole.last_chunk().ok_or(wrong("an answer that came later is too short"))?;
                    let head = ResponseHead::parse(inner)?;
                    if len as usize != whole.len() + head.len as usize || head.status == Status::ATTN {
                        return Err(wrong("the length of an answer that came later makes no sense"));
                    }
                    self.state = State::Head;
                    if let Some(step) = self.begin(head)? {
                        return Ok((step, used));
                    }
                }
                State::Skip(left) => {
                    let skipped = rest.len().min(*left as usize);
                    used += skipped;
                    *left -= skipped as u32;
                    match left {
                        0 => self.state = State::Head,
                        _ => return Ok((Step::NeedsMore, used)),
                    }
                }
                State::Words { head, words } => {
                    let taken = rest.len().min(head.len as usize - words.len());
                    words.extend_from_slice(&rest[..taken]);
                    used += taken;
                    if words.len() < head.len as usize {
                        return Ok((Step::NeedsMore, used));
                    }
                    let (head, words) = (*head, std::mem::take(words));
                    self.state = State::Head;
                    return Ok((self.words(head, &words)?, used));
                }
                State::Data { left, .. } => {
                    let count = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    if count == 0 {
                        return Ok((Step::NeedsMore, used));
                    }
                    self.data_taken(count as u64);
                    return Ok((Step::Data(count), used + count));
                }
            }
        }
    }

    /// The state behind a head.
    fn begin(&mut self, head: ResponseHead) -> Result<Option<Step>, Malformed> {
        let is_of_other = self.is_of_other(head.stream);
        let awaited = self.awaited.get_mut(&head.stream);
        if awaited.is_none() && !is_of_other {
            return Err(wrong("an answer to no request"));
        }
        match head.status {
            Status::OK | Status::OKSOFAR => {
                let Some(awaited) = awaited else {
                    return Ok(Some(self.part(other(head.stream, head.len))));
                };
                let len = u64::from(head.len);
                let offset = match awaited.expect {
                    Expect::Text { bytes_max } if awaited.came + len <= bytes_max => 0,
                    Expect::Text { .. } => return Err(wrong("an answer is longer than it may be")),
                    Expect::Bytes { offset, len: asked } if awaited.came + len <= asked => {
                        offset + awaited.came
                    }
                    Expect::Bytes { .. } => return Err(wrong("more bytes than were asked for")),
                    Expect::Written if len == 0 => 0,
                    Expect::Pages { .. } | Expect::Written => {
                        return Err(wrong("bytes without checksums where some were asked for"));
                    }
                };
                awaited.came += len;
                let is_last = head.status == Status::OK;
                let part =
                    Part { stream: head.stream, len, offset, is_paged: false, is_list: false, is_last };
                Ok(Some(self.part(part)))
            }
            Status::ERROR | Status::REDIRECT | Status::WAIT | Status::WAITRESP | Status::STATUS => {
                let is_fixed = head.status == Status::STATUS;
                if head.len as usize > ROOT_WORDS_BYTES_MAX || is_fixed && head.len as usize != STATUS_BYTES {
                    return Err(wrong("an answer has a length that makes no sense"));
                }
                self.state = State::Words { head, words: Vec::new() };
                Ok(None)
            }
            _ => Err(wrong("an answer of a kind that makes no sense here")),
        }
    }

    fn part(&mut self, part: Part) -> Step {
        let Part { stream, len, is_last, .. } = part;
        self.state = State::Data { stream, left: len, is_last };
        if len == 0 {
            self.data_taken(0);
        }
        Step::Part(part)
    }

    fn words(&mut self, head: ResponseHead, words: &[u8]) -> Result<Step, Malformed> {
        let closing = |malformed: Malformed| malformed.closing();
        let said = match head.status {
            Status::STATUS => return self.status(head, words),
            Status::WAITRESP => {
                let later = WaitAnswer::parse(words).map_err(closing)?;
                return Ok(Step::Said(head.stream, Said::Later(later)));
            }
            Status::ERROR => Said::Error(ErrorAnswer::parse(words).map_err(closing)?),
            Status::REDIRECT => Said::Redirect(Redirect::parse(words).map_err(closing)?),
            _ => Said::Wait(WaitAnswer::parse(words).map_err(closing)?),
        };
        self.awaited.remove(&head.stream);
        Ok(Step::Said(head.stream, said))
    }

    fn status(&mut self, head: ResponseHead, words: &[u8]) -> Result<Step, Malformed> {
        let words = words.first_chunk().ok_or(wrong("an answer is too short"))?;
        let status = StatusAnswer::parse(words)?;
        if status.stream != head.stream {
            return Err(wrong("an answer names two requests"));
        }
        let Some(awaited) = self.awaited.get_mut(&head.stream) else {
            return Ok(self.part(other(head.stream, status.data_len)));
        };
        let len = u64::from(status.data_len);
        let is_paged = match awaited.expect {
            Expect::Pages { offset, len: asked } => {
                let bytes = pages::data_len(status.offset, len).ok_or(wrong("pages that make no sense"))?;
                if status.request != RequestId::PGREAD
                    || bytes > 0 && status.offset != offset + awaited.came
                    || awaited.came + bytes > asked
                {
                    return Err(wrong("pages that were not asked for"));
                }
                awaited.came += bytes;
                true
            }
            Expect::Written => {
                if status.request != RequestId::PGWRITE || len > ROOT_WORDS_BYTES_MAX as u64 {
                    return Err(wrong("a list of wrong pages that makes no sense"));
                }
                false
            }
            Expect::Text { .. } | Expect::Bytes { .. } => return Err(wrong("pages that were not asked for")),
        };
        let part = Part {
            stream: head.stream,
            len,
            offset: status.offset,
            is_paged,
            is_list: !is_paged,
            is_last: !status.is_partial,
        };
        Ok(self.part(part))
    }
}
