//! NetCDF's classic formats (NetCDF users' guide, "File format specifications"): one header, at the beginning, without its length.

use gridlane_core::ByteRange;
use gridlane_core::limits::READ_FORMAT_BYTES;

use super::{Fields, File};

/// Bytes that are looked at first; then four times as many.
const HEADER_BYTES: u64 = 16 * 1024;
/// Entries of a list, at most, that are walked over.
const ENTRIES_MAX: u64 = 65_536;

/// The header, if it is longer than what is there.
pub(super) fn follow<B: FnMut(ByteRange) -> Option<Vec<u8>>>(file: &mut File<B>) -> Option<()> {
    let mut len = HEADER_BYTES;
    loop {
        let head = ByteRange::new(0, len.min(file.size_bytes));
        file.found.wanted.clear();
        file.want(head.start(), head.len())?;
        let bytes = file.read(head)?;
        if walk(&bytes).is_some() || head.len() < len || len >= READ_FORMAT_BYTES {
            return Some(());
        }
        len = (4 * len).min(READ_FORMAT_BYTES);
    }
}

/// Walks to the end of the header; `None` if it is not there.
fn walk(head: &[u8]) -> Option<()> {
    let version = *head.get(3)?;
    let (counts_are_large, places_are_large) = (version == 5, version > 1);
    let mut fields = Fields { bytes: head, at: 4 };
    fields.place(counts_are_large)?;
    for _ in 0..list(&mut fields, counts_are_large)? {
        name(&mut fields, counts_are_large)?;
        fields.place(counts_are_large)?;
    }
    attributes(&mut fields, counts_are_large)?;
    for _ in 0..list(&mut fields, counts_are_large)? {
        name(&mut fields, counts_are_large)?;
        let dimensions = fields.place(counts_are_large)?;
        let bytes = dimensions.checked_mul(if counts_are_large { 8 } else { 4 })?;
        fields.take(usize::try_from(bytes).ok()?)?;
        attributes(&mut fields, counts_are_large)?;
        let _kind = fields.u32()?;
        let _bytes = fields.place(counts_are_large)?;
        let _begin = fields.place(places_are_large)?;
    }
    Some(())
}

/// The number of entries of a list.
fn list(fields: &mut Fields<'_>, is_large: bool) -> Option<u64> {
    let _tag = fields.u32()?;
    Some(fields.place(is_large)?.min(ENTRIES_MAX))
}

fn name(fields: &mut Fields<'_>, is_large: bool) -> Option<()> {
    let bytes = fields.place(is_large)?;
    padded(fields, bytes)
}

fn attributes(fields: &mut Fields<'_>, is_large: bool) -> Option<()> {
    for _ in 0..list(fields, is_large)? {
        name(fields, is_large)?;
        let each = match fields.u32()? {
            1 | 2 | 7 => 1,
            3 | 8 => 2,
            4 | 5 | 9 => 4,
            6 | 10 | 11 => 8,
            _ => return None,
        };
        let count = fields.place(is_large)?;
        padded(fields, count.checked_mul(each)?)?;
    }
    Some(())
}

/// Passes over so many bytes, and over those that fill up to four.
fn padded(fields: &mut Fields<'_>, bytes: u64) -> Option<()> {
    fields.take(usize::try_from(bytes.checked_next_multiple_of(4)?).ok()?).map(|_| ())
}
