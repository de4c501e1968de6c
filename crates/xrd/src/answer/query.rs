//! The texts that answer `query`: checksums, and how much room there is.

use gridlane_core::{Checksum, ChecksumKind};

use crate::path::pairs;

/// The answer to a question for a checksum: `kind value` and NUL.
pub fn checksum_text(checksum: &Checksum) -> Vec<u8> {
    format!("{} {}\0", checksum.kind().name(), checksum.hex()).into_bytes()
}

/// Reads the answer to a question for a checksum. Adler-32 may lack leading zeros.
pub fn parse_checksum(text: &[u8]) -> Option<Checksum> {
    let text = text.split(|byte| *byte == 0).next()?;
    let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    let kind = words.next()?.parse::<ChecksumKind>().ok()?;
    Checksum::from_hex(kind, words.next()?)
}

/// The room that there is, as the answer to `space` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SpaceText {
    /// Used and free together.
    pub total_bytes: u64,
    /// Bytes that can still be written.
    pub free_bytes: u64,
    /// The largest file that can still be written.
    pub largest_bytes: u64,
    /// Bytes that are there.
    pub used_bytes: u64,
    /// Bytes that may be there, if they are limited.
    pub quota_bytes: Option<u64>,
}

impl SpaceText {
    /// The text, without a NUL.
    pub fn encode(&self) -> String {
        let quota = self.quota_bytes.map_or("-1".to_owned(), |bytes| bytes.to_string());
        format!(
            "oss.cgroup=public&oss.space={}&oss.free={}&oss.maxf={}&oss.used={}&oss.quota={quota}",
            self.total_bytes, self.free_bytes, self.largest_bytes, self.used_bytes
        )
    }

    /// Reads the text. `None` when it says nothing of room.
    pub fn parse(text: &[u8]) -> Option<SpaceText> {
        let text = text.split(|byte| *byte == 0).next()?;
        let mut space = SpaceText::default();
        let mut is_known = false;
        for (key, value) in pairs(text) {
            // A negative number, -1, says that there is no such limit.
            let bytes = std::str::from_utf8(value).ok().and_then(|value| value.trim().parse::<u64>().ok());
            match (key, bytes) {
                (b"oss.space", Some(bytes)) => (space.total_bytes, is_known) = (bytes, true),
                (b"oss.free", Some(bytes)) => (space.free_bytes, is_known) = (bytes, true),
                (b"oss.maxf", Some(bytes)) => space.largest_bytes = bytes,
                (b"oss.used", Some(bytes)) => (space.used_bytes, is_known) = (bytes, true),
                (b"oss.quota", bytes) => space.quota_bytes = bytes,
                _ => {}
            }
        }
        is_known.then_some(space)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn checksums() {
        let checksum = parse_checksum(b"adler32 353ad728\0junk").unwrap();
        assert_eq!(checksum_text(&checksum), b"adler32 353ad728\0");
        assert!(parse_checksum(b"adler32").is_none() && parse_checksum(b"what 12").is_none());
    }

    #[test]
    fn room() {
        let space =
            SpaceText { total_bytes: 9, free_bytes: 5, largest_bytes: 4, used_bytes: 3, quota_bytes: None };
        assert_eq!(SpaceText::parse(space.encode().as_bytes()), Some(space));
        let limited = SpaceText { quota_bytes: Some(7), ..space };
        assert_eq!(SpaceText::parse(limited.encode().as_bytes()), Some(limited));
        assert_eq!(SpaceText::parse(b"oss.cgroup=public"), None);
    }
}
