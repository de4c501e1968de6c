//! `pgwrite`: bytes that come with a checksum for each page.
//!
//! Each page is looked at while it is in cache. A wrong one is written all the same, as in XRootD: the client is
//! told which, and sends it again. Until then the file cannot be closed in good order.

use std::io::IoSlice;

use gridlane_core::checksum::{adler32, adler32_combine};
use gridlane_core::{ByteRange, limits};
use gridlane_xrd::answer::Corrections;
use gridlane_xrd::pages::{self, CRC_BYTES, WrongPages};
use gridlane_xrd::request::PgWrite;
use gridlane_xrd::{ErrorCode, Malformed};

use super::answer::Failure;
use super::context::Context;
use super::files::{Changing, OpenFile};
use super::payload::Payload;

/// The bytes of the file that a payload of this length is for.
pub(crate) fn range_of(request: &PgWrite, framed_len: u64) -> Result<ByteRange, Failure> {
    // Where its layout makes no sense, XRootD's servers stop listening as well.
    let invalid = |what| Failure::from(Malformed::new(ErrorCode::ARG_INVALID, what).closing());
    if framed_len == 0 {
        return Err(invalid("pgwrite length is invalid"));
    }
    let len = pages::data_len(request.offset, framed_len).ok_or_else(|| invalid("last page too short"))?;
    if request.is_retry && pages::count(request.offset, len) > 1 {
        let what = "pgwrite retry of more than one page not allowed";
        return Err(Failure::new(ErrorCode::ARG_INVALID, what));
    }
    Ok(ByteRange::at(request.offset, len))
}

/// Receives the pages of `range` and writes them; returns which were wrong.
pub(crate) async fn receive(
    context: &Context,
    payload: &mut Payload<'_>,
    file: &OpenFile,
    changing: &Changing,
    range: ByteRange,
    is_retry: bool,
) -> Result<Option<Corrections>, Failure> {
    let mut buffer = context.shared.buffers.lend();
    let mut wrong = WrongPages::new();
    let mut left = range;
    while !left.is_empty() {
        let (now, later) = left.split_at(left.start() + data_that_fits(left, buffer.len()));
        let framed_len = pages::framed_len(now.start(), now.len()) as usize;
        let framed = &mut buffer[..framed_len];
        payload.fill(framed).await?;
        file.count_written(&context.shared, now.len());
        let write = || {
            let checked = Checked::of(now, framed);
            changing.file().write_vectored_at(&checked.pages, now.start())?;
            checked.right.iter().for_each(|(range, adler32)| changing.wrote(*range, *adler32));
            Ok(checked.wrong)
        };
        let found = context.shared.disk.run(write).await;
        let found = found.map_err(|error| Failure::of_store("write", &file.path, &error))?;
        for page in found {
            if wrong.len() >= limits::ROOT_WRONG_PAGES_PER_REQUEST_MAX {
                let text = "Too many checksum errors in request";
                return Err(Failure::new(ErrorCode::TOO_MANY_ERRORS, text));
            }
            changing.add_wrong(page)?;
            wrong.push(page);
        }
        left = later;
    }
    if is_retry && wrong.is_empty() {
        changing.corrected((range.start(), range.len() as usize));
    }
    Ok(Corrections::of(&wrong))
}

/// How many bytes of whole pages fit into a buffer together with their checksums.
fn data_that_fits(range: ByteRange, room: usize) -> u64 {
    let mut framed = 0;
    let fits = |(_, len): &(u64, usize)| {
        framed += CRC_BYTES + len;
        framed <= room
    };
    pages::pages(range.start(), range.len()).take_while(fits).map(|(_, len)| len as u64).sum()
}

/// Pages, without their checksums.
struct Checked<'a> {
    /// All of them.
    pages: Vec<IoSlice<'a>>,
    /// Runs of those that are what their checksums say, with the adler32 of each run.
    right: Vec<(ByteRange, u32)>,
    /// The others.
    wrong: WrongPages,
}

impl Checked<'_> {
    /// `framed` is as long as `range` makes it.
    fn of(range: ByteRange, framed: &[u8]) -> Checked<'_> {
        let mut pages = Vec::with_capacity(framed.len().div_ceil(pages::UNIT_BYTES) + 1);
        let (mut right, mut wrong): (Vec<(ByteRange, u32)>, _) = (Vec::new(), WrongPages::new());
        let mut rest = framed;
        for (at, len) in pages::pages(range.start(), range.len()) {
            let Some((said, behind)) = rest.split_first_chunk::<CRC_BYTES>() else { break };
            let Some((page, behind)) = behind.split_at_checked(len) else { break };
            rest = behind;
            pages.push(IoSlice::new(page));
            if pages::crc(page) != u32::from_be_bytes(*said) {
                wrong.push((at, len));
                continue;
            }
            let sum = adler32(page);
            match right.last_mut() {
                Some((run, whole)) if run.end() == at => {
                    *run = ByteRange::new(run.start(), at + len as u64);
                    *whole = adler32_combine(*whole, sum, len as u64);
                }
                _ => right.push((ByteRange::at(at, len as u64), sum)),
            }
        }
        debug_assert!(rest.is_empty());
        Checked { pages, right, wrong }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn as_many_pages_as_fit() {
        let range = ByteRange::new;
        for (pages, room, expected) in [
            (range(0, 1 << 20), 256 * 1024, 63 * 4096),
            (range(4095, 1 << 20), 256 * 1024, 1 + 63 * 4096),
            (range(0, 64 * 4096), 64 * 4100, 64 * 4096),
            (range(0, 64 * 4096), 64 * 4100 - 1, 63 * 4096),
            (range(10, 20), 256 * 1024, 10),
        ] {
            assert_eq!(data_that_fits(pages, room), expected, "{pages}");
        }
    }

    proptest! {
        #[test]
        fn pages_lose_their_checksums_and_wrong_ones_are_found(
            offset in 0u64..10_000,
            bytes in prop::collection::vec(any::<u8>(), 1..50_000),
            bad in prop::collection::btree_set(0usize..13, 0..5),
        ) {
            let range = ByteRange::at(offset, bytes.len() as u64);
            let mut framed = Vec::new();
            pages::frame(offset, &bytes, &mut framed);
            let mut expected = Vec::new();
            let mut at = 0;
            for (index, (begin, len)) in pages::pages(offset, range.len()).enumerate() {
                if bad.contains(&index) {
                    framed[at] ^= 1;
                    expected.push((begin, len));
                }
                at += CRC_BYTES + len;
            }
            let checked = Checked::of(range, &framed);
            prop_assert_eq!(&checked.wrong, &expected);
            let whole: Vec<u8> = checked.pages.iter().flat_map(|page| page.to_vec()).collect();
            prop_assert_eq!(&whole, &bytes);
            for (run, sum) in &checked.right {
                let (begin, end) = ((run.start() - offset) as usize, (run.end() - offset) as usize);
                prop_assert_eq!(*sum, adler32(&bytes[begin..end]));
            }
            let right: u64 = checked.right.iter().map(|(run, _)| run.len()).sum();
            let wrong: u64 = expected.iter().map(|(_, len)| *len as u64).sum();
            prop_assert_eq!(right + wrong, range.len());
        }
    }
}
