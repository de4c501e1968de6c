//! Traces: the reads of a program, as a server or a client has recorded them.

use std::str::FromStr;

use gridlane_core::limits::{READ_RANGES_MAX, TRACE_RANGES_MAX};
use gridlane_core::{ByteRange, Error, ErrorKind, Fault, Result};

/// The first line of a trace.
const HEAD: &str = "request,op,offset,length";

/// Calls that read, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    calls: Vec<Vec<ByteRange>>,
}

impl Trace {
    /// Reads lines of `request,op,offset,length` behind a first line that says so; lines with the same `request` are one call
    /// with several ranges. `op` means nothing. An error names the line.
    pub fn parse(text: &str) -> Result<Trace> {
        let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        match lines.next() {
            Some((_, head)) if head.trim() == HEAD => {}
            Some((number, _)) => return Err(wrong(number, &format!("the first line is not {HEAD:?}"))),
            None => return Err(wrong(1, "there is nothing in it")),
        }
        let mut calls: Vec<Vec<ByteRange>> = Vec::new();
        let (mut last, mut count) = (None, 0);
        for (number, line) in lines {
            let fields: Vec<&str> = line.split(',').map(str::trim).collect();
            let [request, _, offset, length] = fields.as_slice() else {
                return Err(wrong(number, "it has not four fields"));
            };
            let (offset, length): (u64, u64) = (value(number, offset)?, value(number, length)?);
            if offset.checked_add(length).is_none() {
                return Err(wrong(number, "it ends behind every file"));
            }
            let range = ByteRange::at(offset, length);
            let request: u64 = value(number, request)?;
            match calls.last_mut().filter(|_| last == Some(request)) {
                Some(call) if call.len() >= READ_RANGES_MAX => {
                    return Err(wrong(number, &format!("a call has more than {READ_RANGES_MAX} ranges")));
                }
                Some(call) => call.push(range),
                None => calls.push(vec![range]),
            }
            last = Some(request);
            count += 1;
            if count > TRACE_RANGES_MAX {
                return Err(wrong(number, &format!("a trace has no more than {TRACE_RANGES_MAX} ranges")));
            }
        }
        Ok(Trace { calls })
    }

    /// A trace of these calls.
    pub fn of(calls: Vec<Vec<ByteRange>>) -> Trace {
        Trace { calls }
    }

    /// Its calls.
    pub fn calls(&self) -> &[Vec<ByteRange>] {
        &self.calls
    }

    /// Ranges of all calls.
    pub fn ranges(&self) -> usize {
        self.calls.iter().map(Vec::len).sum()
    }

    /// Bytes of all ranges, repeated ones each time.
    pub fn bytes(&self) -> u64 {
        self.calls.iter().flatten().map(|range| range.len()).sum()
    }

    /// The end of what it reads.
    pub fn end(&self) -> u64 {
        self.calls.iter().flatten().map(|range| range.end()).max().unwrap_or(0)
    }
}

fn value<T: FromStr>(number: usize, text: &str) -> Result<T> {
    text.parse().map_err(|_| wrong(number, &format!("{text:?} is not a number")))
}

fn wrong(number: usize, what: &str) -> Error {
    Error::new(ErrorKind::Usage, format!("line {number} of the trace: {what}")).fault(Fault::Caller)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_of_one_request_are_one_call() {
        let text = "request,op,offset,length\n0,read,0,300\n\n1,readv,10,5\n1,readv,100,5\n2,read,0,300\n";
        let trace = Trace::parse(text).unwrap();
        assert_eq!(
            trace.calls(),
            [
                vec![ByteRange::at(0, 300)],
                vec![ByteRange::at(10, 5), ByteRange::at(100, 5)],
                vec![ByteRange::at(0, 300)]
            ]
        );
        assert_eq!((trace.ranges(), trace.end()), (4, 300));
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        for (text, word) in [
            ("", "nothing"),
            ("offset\n", "first line"),
            ("request,op,offset,length\n0,read,0\n", "line 2"),
            ("request,op,offset,length\n0,read,0,1\n0,read,x,1\n", "line 3"),
            ("request,op,offset,length\n0,read,18446744073709551615,1\n", "behind every file"),
        ] {
            let error = Trace::parse(text).unwrap_err();
            assert!(error.message().contains(word), "{text:?}: {}", error.message());
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(request,op,offset,length\n)?([0-9]{0,20},r,[0-9]{0,20},[0-9]{0,20}\n){0,6}.{0,20}") {
            if let Ok(trace) = Trace::parse(&text) {
                prop_assert!(trace.calls().iter().all(|call| !call.is_empty()));
            }
        }
    }
}
