//! The answer to `readv`, taken apart: each element's description, and its bytes behind it.

use std::ops::Range;

use gridlane_core::ByteRange;

use crate::Malformed;
use crate::registry::ErrorCode;
use crate::request::Segment;

/// Takes the answer to a vector of ranges apart, in parts of any size. What comes must be what was asked for, in its order, each
/// element whole: a server that has less refuses all of it.
#[derive(Clone, Debug)]
pub struct VectorReader {
    elements: Vec<ByteRange>,
    /// Elements that have come.
    over: usize,
    /// The description that comes, and how much of it is there.
    head: ([u8; Segment::BYTES], usize),
    /// Bytes of the element that have come; `None`: its description comes first.
    came: Option<u64>,
}

impl VectorReader {
    /// For the answer to a request for these.
    pub fn new(elements: Vec<ByteRange>) -> VectorReader {
        VectorReader { elements, over: 0, head: ([0; Segment::BYTES], 0), came: None }
    }

    /// Takes the next bytes of the answer, all of them. `take` is told of those that are the file's: the offset there, and
    /// their place in `input`.
    pub fn read(&mut self, input: &[u8], mut take: impl FnMut(u64, Range<usize>)) -> Result<(), Malformed> {
        let mut at = 0;
        while at < input.len() {
            let Some(element) = self.elements.get(self.over).copied() else {
                return Err(wrong("more elements than were asked for"));
            };
            match self.came {
                None => {
                    let (head, there) = &mut self.head;
                    let count = (head.len() - *there).min(input.len() - at);
                    head[*there..*there + count].copy_from_slice(&input[at..at + count]);
                    *there += count;
                    at += count;
                    if *there < head.len() {
                        return Ok(());
                    }
                    let told = Segment::parse(head)?;
                    if (told.offset, u64::from(told.len)) != (element.start(), element.len()) {
                        return Err(wrong("an element is not the one that was asked for"));
                    }
                    *there = 0;
                    self.came = Some(0);
                }
                Some(came) => {
                    let left = element.len() - came;
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(input.len() - at);
                    if count > 0 {
                        take(element.start() + came, at..at + count);
                    }
                    at += count;
                    self.came = Some(came + count as u64);
                }
            }
            if self.came == Some(element.len()) {
                (self.came, self.over) = (None, self.over + 1);
            }
        }
        Ok(())
    }
}

fn wrong(what: &'static str) -> Malformed {
    Malformed::new(ErrorCode::INVALID_REQUEST, what).closing()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Handle;
    use proptest::prelude::*;

    fn answer(elements: &[ByteRange]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for element in elements {
            let (offset, len) = (element.start(), element.len() as u32);
            Segment { handle: Handle([1, 2, 3, 4]), len, offset }.write(&mut bytes);
            bytes.extend((element.start()..element.end()).map(|at| at as u8));
        }
        bytes
    }

    proptest! {
        /// However an answer is cut, each byte of each element comes once, in its order.
        #[test]
        fn every_cut_gives_the_same(lens in prop::collection::vec(0_u64..40, 1..12), cuts in prop::collection::vec(1_usize..30, 1..60)) {
            let mut start = 7;
            let elements: Vec<ByteRange> = lens.iter().map(|len| {
                start += len + 5;
                ByteRange::at(start, *len)
            }).collect();
            let all = answer(&elements);
            let (mut reader, mut found, mut rest) = (VectorReader::new(elements.clone()), Vec::new(), all.as_slice());
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                reader.read(now, |offset, part| {
                    found.extend(now[part].iter().enumerate().map(|(nth, byte)| (offset + nth as u64, *byte)));
                }).unwrap();
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            let wanted = elements.iter().flat_map(|element| element.start()..element.end());
            prop_assert_eq!(found, wanted.map(|at| (at, at as u8)).collect::<Vec<_>>());
            let more = reader.read(&[0], |_, _| ());
            prop_assert!(more.is_err());
        }

        #[test]
        fn nothing_else_is_believed(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let elements = vec![ByteRange::at(3, 5), ByteRange::at(100, 20)];
            let mut delivered = 0;
            let read = VectorReader::new(elements.clone()).read(&bytes, |_, part| delivered += part.len());
            let is_described = bytes.get(4..16) == answer(&elements).get(4..16);
            prop_assert!(is_described || delivered == 0);
            prop_assert!(is_described || read.is_err() || bytes.len() < Segment::BYTES);
        }
    }

    #[test]
    fn another_element_is_refused() {
        let asked = vec![ByteRange::at(3, 5), ByteRange::at(100, 20)];
        for told in [ByteRange::at(3, 4), ByteRange::at(4, 5), ByteRange::at(100, 20)] {
            assert!(VectorReader::new(asked.clone()).read(&answer(&[told]), |_, _| {}).is_err());
        }
    }
}
