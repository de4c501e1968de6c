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

/// Facts about a file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatText {
    /// Any number, the same for the same file.
    pub id: u64,
    /// Its length.
    pub size_bytes: u64,
    /// Its kind and its permissions.
    pub flags: StatFlags,
    /// When its bytes were changed, in seconds since 1970.
    pub modified_s: i64,
    /// Facts that only newer servers tell.
    pub more: Option<StatMore>,
}

/// Facts that only newer servers tell of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatMore {
    /// When anything about it was changed, in seconds since 1970.
    pub changed_s: i64,
    /// When it was read, in seconds since 1970.
    pub accessed_s: i64,
    /// Permissions.
    pub mode: u32,
    /// Its owner: a name, or a number.
    pub user: Vec<u8>,
    /// Which group's.
    pub group: Vec<u8>,
}

/// Appends a number to this base, with at least `least` digits.
fn push_digits<const BASE: u64>(out: &mut Vec<u8>, mut number: u64, least: usize) {
    // 22 octal digits are the longest.
    let mut digits = [b'0'; 22];
    let mut begin = digits.len();
    while number > 0 {
        begin -= 1;
        digits[begin] = b'0' + (number % BASE) as u8;
        number /= BASE;
    }
    let begin = begin.min(digits.len() - least);
    out.extend_from_slice(&digits[begin..]);
}

fn push_number(out: &mut Vec<u8>, number: u64) {
    push_digits::<10>(out, number, 1);
}

fn push_signed(out: &mut Vec<u8>, number: i64) {
    if number < 0 {
        out.push(b'-');
    }
    push_number(out, number.unsigned_abs());
}

impl StatText {
    /// True if it is a directory.
    pub fn is_directory(&self) -> bool {
        self.flags.has(StatFlags::DIRECTORY)
    }

    /// Appends the text, without a NUL.
    pub fn write(&self, out: &mut Vec<u8>) {
        // By hand: a listing has one of them for each entry, and `write!` takes as long as the look at the file.
        push_number(out, self.id);
        out.push(b' ');
        push_number(out, self.size_bytes);
        out.push(b' ');
        push_number(out, self.flags.0.into());
        out.push(b' ');
        push_signed(out, self.modified_s);
        if let Some(more) = &self.more {
            out.push(b' ');
            push_signed(out, more.changed_s);
            out.push(b' ');
            push_signed(out, more.accessed_s);
            out.push(b' ');
            push_digits::<8>(out, more.mode.into(), 4);
            out.push(b' ');
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

/// Facts about the file system that something is in. Sizes are of the node that has most room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct VfsText {
    /// Nodes that can be written to.
    pub nodes: u64,
    /// Free there, in units of 1 MiB.
    pub free_mib: u64,
    /// The part that is used there, in percent.
    pub used_percent: u64,
    /// Nodes that can stage.
    pub staging_nodes: u64,
    /// Free there, in units of 1 MiB.
    pub staging_free_mib: u64,
    /// The part that is used there, in percent.
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
    fn numbers_are_what_format_makes() {
        for number in [0, 1, 9, 10, 0o777, 0o7777, 0o10000, u64::MAX] {
            let (mut octal, mut decimal, mut signed) = (Vec::new(), Vec::new(), Vec::new());
            push_digits::<8>(&mut octal, number, 4);
            push_number(&mut decimal, number);
            push_signed(&mut signed, number as i64);
            assert_eq!(octal, format!("{number:04o}").into_bytes());
            assert_eq!(decimal, number.to_string().into_bytes());
            assert_eq!(signed, (number as i64).to_string().into_bytes());
        }
        let mut least = Vec::new();
        push_signed(&mut least, i64::MIN);
        assert_eq!(least, i64::MIN.to_string().into_bytes());
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
