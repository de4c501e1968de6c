//! What is known of a file or a file system, as text.
//!
//! ```text
//! id size flags mtime ctime atime mode user group        mode: at least four octal digits
//! ```
//!
//! Older servers stop after mtime.

use std::io::Write as _;

use crate::Malformed;
use crate::flags::StatFlags;
use crate::registry::ErrorCode;
use crate::wire::until_nul;

/// What is known of a file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatText {
    /// Any number, the same for the same file.
    pub id: u64,
    /// Its length.
    pub size_bytes: u64,
    /// What it is.
    pub flags: StatFlags,
    /// When its bytes were changed, in seconds since 1970.
    pub modified_s: i64,
    /// What only newer servers tell.
    pub more: Option<StatMore>,
}

/// What only newer servers tell of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatMore {
    /// When anything about it was changed, in seconds since 1970.
    pub changed_s: i64,
    /// When it was read, in seconds since 1970.
    pub accessed_s: i64,
    /// Permissions.
    pub mode: u32,
    /// Whose it is: a name, or a number.
    pub user: Vec<u8>,
    /// Which group's.
    pub group: Vec<u8>,
}

impl StatText {
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.flags.has(StatFlags::DIRECTORY)
    }

    /// Appends the text, without a NUL.
    pub fn write(&self, out: &mut Vec<u8>) {
        // Writing to memory does not fail.
        let _ = write!(out, "{} {} {} {}", self.id, self.size_bytes, self.flags.0, self.modified_s);
        if let Some(more) = &self.more {
            let _ = write!(out, " {} {} {:04o} ", more.changed_s, more.accessed_s, more.mode);
            out.extend_from_slice(&more.user);
            out.push(b' ');
            out.extend_from_slice(&more.group);
        }
    }

    /// Reads the text, with a NUL behind it or without. What follows the ninth word is not looked at.
    pub fn parse(text: &[u8]) -> Result<StatText, Malformed> {
        let mut words = until_nul(text).split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let mut next = || words.next().ok_or(WRONG);
        let id = number(next()?).unwrap_or(0);
        let size_bytes = number(next()?).ok_or(WRONG)?;
        let flags = StatFlags(number(next()?).ok_or(WRONG)?);
        let modified_s = number(next()?).ok_or(WRONG)?;
        let more = (|| {
            let changed_s = number(words.next()?)?;
            let accessed_s = number(words.next()?)?;
            let mode = u32::from_str_radix(std::str::from_utf8(words.next()?).ok()?, 8).ok()?;
            let (user, group) = (words.next()?.to_vec(), words.next()?.to_vec());
            Some(StatMore { changed_s, accessed_s, mode, user, group })
        })();
        Ok(StatText { id, size_bytes, flags, modified_s, more })
    }
}

/// What is known of the file system that something is in. Sizes are of the node that has most room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct VfsText {
    /// Nodes that can be written to.
    pub nodes: u64,
    /// Free there, in units of 1 MiB.
    pub free_mib: u64,
    /// How much is used there, in percent.
    pub used_percent: u64,
    /// Nodes that can stage.
    pub staging_nodes: u64,
    /// Free there, in units of 1 MiB.
    pub staging_free_mib: u64,
    /// How much is used there, in percent.
    pub staging_used_percent: u64,
}

impl VfsText {
    /// Appends the text, without a NUL.
    pub fn write(&self, out: &mut Vec<u8>) {
        let VfsText { nodes, free_mib, used_percent, staging_nodes, staging_free_mib, staging_used_percent } =
            self;
        // Writing to memory does not fail.
        let _ = write!(
            out,
            "{nodes} {free_mib} {used_percent} {staging_nodes} {staging_free_mib} {staging_used_percent}"
        );
    }

    /// Reads the text, with a NUL behind it or without.
    pub fn parse(text: &[u8]) -> Result<VfsText, Malformed> {
        let mut words = until_nul(text).split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let mut next = || words.next().and_then(number).ok_or(WRONG);
        Ok(VfsText {
            nodes: next()?,
            free_mib: next()?,
            used_percent: next()?,
            staging_nodes: next()?,
            staging_free_mib: next()?,
            staging_used_percent: next()?,
        })
    }
}

const WRONG: Malformed = Malformed::new(ErrorCode::ARG_INVALID, "a stat text makes no sense");

fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn as_captured() {
        let text = b"43601494376775168 100 48 1795290349 1795291010 1795290349 0644 xrootd xrootd\0";
        let stat = StatText::parse(text).unwrap();
        assert_eq!(stat.flags, StatFlags::READABLE | StatFlags::WRITABLE);
        let mut out = Vec::new();
        stat.write(&mut out);
        assert_eq!(out, text[..text.len() - 1]);
        let old = StatText::parse(b"1 2 51 3").unwrap();
        assert!(old.is_directory() && old.more.is_none());
        for wrong in [&b""[..], b"1 2 3", b"1 -2 3 4", b"a b c d", b"1 99999999999999999999 3 4"] {
            assert!(StatText::parse(wrong).is_err());
        }
    }

    #[test]
    fn a_file_system() {
        let vfs = VfsText::parse(b"1 75336 70 0 0 0\0").unwrap();
        assert_eq!((vfs.nodes, vfs.free_mib, vfs.used_percent), (1, 75336, 70));
        let mut out = Vec::new();
        vfs.write(&mut out);
        assert_eq!(out, b"1 75336 70 0 0 0");
        assert!(VfsText::parse(b"1 2 3").is_err());
    }
}
