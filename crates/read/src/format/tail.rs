//! Formats of which the last bytes say where the metadata begin.

use gridlane_core::ByteRange;

use super::File;

/// Bytes of zip's last record, without the comment that may follow it.
const ZIP_END_BYTES: u64 = 22;

/// The footer (Parquet, README, "File format": its length, then `PAR1`).
pub(super) fn parquet<B: FnMut(ByteRange) -> Option<Vec<u8>>>(file: &mut File<B>) -> Option<()> {
    let footer_end = file.size_bytes.checked_sub(8)?;
    let end = file.want(footer_end, 8)?;
    let end = file.read(end)?;
    let length = u32::from_le_bytes(end.strip_suffix(b"PAR1")?.try_into().ok()?);
    let start = footer_end.checked_sub(u64::from(length))?;
    file.want(start, file.size_bytes - start)?;
    Some(())
}

/// The central directory (APPNOTE.TXT, 4.3.16: the end of central directory record), of an archive without a comment.
pub(super) fn zip<B: FnMut(ByteRange) -> Option<Vec<u8>>>(file: &mut File<B>) -> Option<()> {
    let end_at = file.size_bytes.checked_sub(ZIP_END_BYTES)?;
    let end = file.want(end_at, ZIP_END_BYTES)?;
    let end = file.read(end)?;
    if !end.starts_with(b"PK\x05\x06") {
        return None;
    }
    let number = |at: usize| Some(u64::from(u32::from_le_bytes(end.get(at..at + 4)?.try_into().ok()?)));
    let (length, start) = (number(12)?, number(16)?);
    file.want(start, length)?;
    Some(())
}
