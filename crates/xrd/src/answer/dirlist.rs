//! The answer to `dirlist`: names, or names and stat texts, a line each; the last line ends with NUL.
//!
//! A listing with stat texts begins with `.` and `0 0 0 0`. With checksums, each stat text is followed by ` [ kind:value ]`.
//! Servers cut long listings between entries.
//!
//! A name with a line break would be two lines. XRootD's servers write it as it is: with stat texts behind the names it can
//! be told from two, by the line behind its first one that is no stat text. gridlane's server writes [another
//! name](listable) instead, of something that is neither a file nor a directory, so that a program that copies or
//! removes a tree finds that there is something that it cannot reach.

use gridlane_core::limits::ROOT_LISTING_LINE_BYTES_MAX;

use crate::Malformed;
use crate::answer::StatText;
use crate::flags::StatFlags;
use crate::registry::ErrorCode;

/// The first bytes of a listing with stat texts.
pub const STAT_SENTINEL: &[u8] = b".\n0 0 0 0\n";

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// Its stat text, if that was asked for.
    pub stat: Option<StatText>,
    /// Its checksum as kind and value, if that was asked for and is known.
    pub checksum: Option<(Vec<u8>, Vec<u8>)>,
}

/// The character for a line break: no name has it unless some program could not read what it was given.
const REPLACEMENT: &str = "\u{fffd}";

/// The name to tell instead of one with a line break or a NUL in it; `None`: the name can be told.
pub fn listable(name: &[u8]) -> Option<Vec<u8>> {
    let is_end = |byte: &u8| matches!(byte, b'\n' | 0);
    let parts: Vec<&[u8]> = name.split(is_end).collect();
    (parts.len() > 1).then(|| parts.join(REPLACEMENT.as_bytes()))
}

/// The stat text of something whose name cannot be told.
pub fn unlistable() -> StatText {
    StatText { id: 0, size_bytes: 0, flags: StatFlags::OTHER, modified_s: 0, more: None }
}

impl Entry {
    /// True if it stands for something whose name cannot be told.
    pub fn is_unlistable(&self) -> bool {
        let has_replacement =
            || self.name.windows(REPLACEMENT.len()).any(|part| part == REPLACEMENT.as_bytes());
        self.stat.as_ref().is_some_and(|stat| stat.flags == StatFlags::OTHER) && has_replacement()
    }
}

/// Appends an entry of a plain listing.
pub fn write_name(name: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.push(b'\n');
}

/// Appends an entry of a listing with stat texts; `checksum` is `kind:value` when checksums were asked for.
pub fn write_entry(name: &[u8], stat: &StatText, checksum: Option<&str>, out: &mut Vec<u8>) {
    write_name(name, out);
    stat.write(out);
    if let Some(checksum) = checksum {
        out.extend_from_slice(b" [ ");
        out.extend_from_slice(checksum.as_bytes());
        out.extend_from_slice(b" ]");
    }
    out.push(b'\n');
}

/// Makes the end of a listing of its last line's end.
pub fn finish(out: &mut [u8]) {
    if let Some(last) = out.last_mut().filter(|last| **last == b'\n') {
        *last = 0;
    }
}

/// Reads a listing that comes in parts.
#[derive(Debug, Default)]
pub struct DirlistReader {
    /// A line that is not complete.
    begun: Vec<u8>,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    /// Nothing has come.
    #[default]
    New,
    /// The sentinel's first line has come.
    Dot,
    Plain,
    /// The next line is a name.
    Stat,
    /// The next line is what is known of this.
    Named(Vec<u8>),
}

impl DirlistReader {
    /// Takes a part; `is_last` says that nothing follows.
    pub fn read(&mut self, part: &[u8], is_last: bool, entries: &mut Vec<Entry>) -> Result<(), Malformed> {
        for piece in part.split_inclusive(|byte| matches!(byte, b'\n' | 0)) {
            let is_whole = matches!(piece.last(), Some(b'\n' | 0));
            let text = if is_whole { &piece[..piece.len() - 1] } else { piece };
            self.begun.extend_from_slice(text);
            if self.begun.len() > ROOT_LISTING_LINE_BYTES_MAX {
                return Err(Malformed::new(ErrorCode::ARG_TOO_LONG, "a line of a listing is too long"));
            }
            if is_whole {
                self.line(entries)?;
            }
        }
        if is_last && !self.begun.is_empty() {
            self.line(entries)?;
        }
        if is_last && matches!(self.state, State::Named(_)) {
            return Err(Malformed::new(ErrorCode::ARG_INVALID, "a listing ends in the middle of an entry"));
        }
        Ok(())
    }

    fn line(&mut self, entries: &mut Vec<Entry>) -> Result<(), Malformed> {
        let line = std::mem::take(&mut self.begun);
        let plain = |name| Entry { name, stat: None, checksum: None };
        self.state = match std::mem::take(&mut self.state) {
            State::New if line == b"." => State::Dot,
            State::Dot if line.starts_with(b"0 0 0 0") => State::Stat,
            State::New | State::Dot | State::Plain => {
                if !line.is_empty() && line != b"." && line != b".." {
                    entries.push(plain(line));
                }
                State::Plain
            }
            State::Stat if line.is_empty() => State::Stat,
            State::Stat => State::Named(line),
            State::Named(mut name) => match StatText::parse(&line) {
                Ok(stat) => {
                    if name != b"." && name != b".." {
                        entries.push(Entry { name, stat: Some(stat), checksum: checksum_of(&line) });
                    }
                    State::Stat
                }
                // The rest of a name with a line break in it.
                Err(wrong) if name.len() + line.len() >= ROOT_LISTING_LINE_BYTES_MAX => return Err(wrong),
                Err(_) => {
                    name.push(b'\n');
                    name.extend_from_slice(&line);
                    State::Named(name)
                }
            },
        };
        Ok(())
    }
}

/// The text between the brackets.
fn checksum_of(line: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let open = line.iter().position(|byte| *byte == b'[')?;
    let inside = line[open + 1..].split(|byte| *byte == b']').next()?.trim_ascii();
    let colon = inside.iter().position(|byte| *byte == b':')?;
    let (kind, value) = (&inside[..colon], &inside[colon + 1..]);
    (value != b"none").then(|| (kind.to_vec(), value.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(parts: &[&[u8]]) -> Vec<Entry> {
        let mut reader = DirlistReader::default();
        let mut entries = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            reader.read(part, at + 1 == parts.len(), &mut entries).unwrap();
        }
        entries
    }

    #[test]
    fn what_servers_send() {
        let names = |entries: Vec<Entry>| entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>();
        assert_eq!(names(read(&[b"a\nb c\n", b"d\0"])), [&b"a"[..], b"b c", b"d"]);
        assert_eq!(names(read(&[b""])), [b""; 0]);
        assert_eq!(read(&[b".\n0 0 0 0\0"]), []);
        let text = b".\n0 0 0 0\nb\n1 100 48 5 6 7 0644 u g [ adler32:0a0b0c0d ]\nc\n2 0 51 5 6 7 0755 u g [ adler32:none ]\0";
        let entries = read(&[text]);
        assert_eq!(names(entries.clone()), [b"b", b"c"]);
        assert_eq!(entries[0].checksum, Some((b"adler32".to_vec(), b"0a0b0c0d".to_vec())));
        assert_eq!(
            (entries[1].checksum.clone(), entries[1].stat.as_ref().unwrap().is_directory()),
            (None, true)
        );
        let cut = b".\n0 0 0 0\nb\n1 100 48 5\nc\0";
        assert!(DirlistReader::default().read(cut, true, &mut Vec::new()).is_err());
        assert!(
            DirlistReader::default()
                .read(&[b'x'; ROOT_LISTING_LINE_BYTES_MAX + 1], false, &mut Vec::new())
                .is_err()
        );
    }

    #[test]
    fn names_with_line_breaks() {
        assert_eq!(listable(b"two lines"), None);
        assert_eq!(listable(b"two\nlines").unwrap(), "two\u{fffd}lines".as_bytes());
        let mut text = STAT_SENTINEL.to_vec();
        write_entry(&listable(b"two\nlines").unwrap(), &unlistable(), None, &mut text);
        write_entry("an odd \u{fffd}".as_bytes(), &StatText::parse(b"1 5 48 100").unwrap(), None, &mut text);
        finish(&mut text);
        let entries = read(&[&text]);
        assert_eq!(entries.iter().map(Entry::is_unlistable).collect::<Vec<_>>(), [true, false]);
        // As XRootD's servers write it.
        let entries = read(&[b".\n0 0 0 0\ntwo\n\nlines\n1 100 48 5\nb\n2 0 51 5\0"]);
        let names: Vec<_> = entries.iter().map(|entry| entry.name.as_slice()).collect();
        assert_eq!(names, [&b"two\n\nlines"[..], b"b"]);
        assert_eq!(entries[0].stat.as_ref().unwrap().size_bytes, 100);
    }

    proptest! {
        #[test]
        fn any_cut_is_the_same(cut in 0usize..60, size in any::<u32>(), name in "[^\n\0]{1,20}") {
            prop_assume!(name != "." && name != "..");
            let stat = StatText { id: 1, size_bytes: size.into(), flags: Default::default(), modified_s: 3, more: None };
            let mut text = STAT_SENTINEL.to_vec();
            write_entry(name.as_bytes(), &stat, Some("md5:0"), &mut text);
            write_entry(b"z", &stat, None, &mut text);
            finish(&mut text);
            let (one, two) = text.split_at(cut.min(text.len()));
            let entries = read(&[one, two]);
            prop_assert_eq!(entries.len(), 2);
            prop_assert_eq!(&entries[0].name, name.as_bytes());
            prop_assert_eq!(entries[1].stat.as_ref(), Some(&stat));
        }
    }
}
