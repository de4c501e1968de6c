//! Names from outside: what a peer, or a document that a peer wrote, may call a file here. This is the one
//! place that judges them: entries of listings (a page, WebDAV, root://), files of metalinks, the last names
//! of URLs, names in lists.
//!
//! There are three questions, each stricter than the one before:
//!
//! - [`is_entry`]: is it a name in a directory at all, and no way to somewhere else? Whatever shows or walks
//!   a directory asks this.
//! - [`judge_entry`]: may something in a tree that a person asked for be called so here? Names that begin
//!   with a dot may be: `.zarray` belongs to its data. The names that this program gives to files of its own
//!   ([`is_own`]) may not, wherever they are from: what lies under them is believed to be an unfinished copy.
//! - [`judge_chosen`]: may a peer choose this name for a file that a person did not name? The person most
//!   likely is in the home directory, so that a name that begins with a dot would be configuration
//!   (`.bashrc`, `.ssh/authorized_keys`), and one with characters that are not shown would look like another
//!   name.
//!
//! `Content-Disposition` is not read at all.

use std::fmt;

use crate::limits::NAME_BYTES_MAX;
use crate::text::is_unprintable;

/// The directory in which a server keeps what is not complete: on the same file system as what it becomes,
/// never listed, never reachable.
pub const HIDDEN_DIRECTORY: &str = ".gridlane";
/// The end of the name of a partial file, `.NAME` in front of it.
pub const PART_END: &str = ".gridlane-part";
/// The end of the name of a partial file's journal, likewise.
pub const JOURNAL_END: &str = ".gridlane-journal";
/// The beginning of the name of a list that is being written.
pub const FAILED_LIST_BEGIN: &str = ".gridlane-failed-";
/// The beginning of the name of a file that a probe writes.
pub const PROBE_BEGIN: &str = "gridlane-probe-";

/// Why a name is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameFault {
    /// There is none.
    Missing,
    /// It begins with a slash. Names of CMS and Belle II in Rucio do.
    Absolute,
    /// It has a component `.` or `..`.
    Traversal,
    /// It has an empty component, or ends with a slash.
    EmptyComponent,
    /// It should be a single name and has a slash in it, or it has a NUL.
    NoName,
    /// It has a component of more than [`NAME_BYTES_MAX`] bytes.
    TooLong,
    /// It has a character that terminals obey or do not show.
    ControlCharacter,
    /// It has a component that begins with a dot, and a peer chose it.
    Hidden,
    /// It has a component that this program uses for files of its own.
    Own,
}

impl fmt::Display for NameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameFault::Missing => "has no name",
            NameFault::Absolute => "has a name that begins with a slash",
            NameFault::Traversal => "has a name that leads out of its directory",
            NameFault::EmptyComponent => "has a name with an empty part",
            NameFault::NoName => "has a name that no file can have",
            NameFault::TooLong => "has a name that is too long",
            NameFault::ControlCharacter => "has a name with a control character",
            NameFault::Hidden => "has a name that begins with a dot, which only you may choose",
            NameFault::Own => "has a name that gridlane keeps for unfinished copies of its own",
        })
    }
}

/// True if bytes are a name in a directory: not empty, not `.` or `..`, without a slash or a NUL.
pub fn is_entry(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// Judges the name of something in a tree that a person asked for.
pub fn judge_entry(name: &[u8]) -> Result<(), NameFault> {
    match name {
        b"" => Err(NameFault::Missing),
        b"." | b".." => Err(NameFault::Traversal),
        _ if !is_entry(name) => Err(NameFault::NoName),
        _ if name.len() > NAME_BYTES_MAX => Err(NameFault::TooLong),
        _ if is_own(name) => Err(NameFault::Own),
        _ => Ok(()),
    }
}

/// Judges a name that a peer chose for a file that a person did not name.
pub fn judge_chosen(name: &str) -> Result<(), NameFault> {
    judge_entry(name.as_bytes())?;
    match name {
        _ if name.chars().any(is_unprintable) => Err(NameFault::ControlCharacter),
        _ if name.starts_with('.') => Err(NameFault::Hidden),
        _ => Ok(()),
    }
}

/// True if some file system takes `name` for one that this program gives to files of its own: `.gridlane`,
/// `.gridlane-…`, and `.NAME.gridlane-…` ([`PART_END`], [`JOURNAL_END`]).
///
/// In any case: vfat, SMB and ext4 with casefold do not tell them apart. With dots and spaces at its end,
/// which vfat leaves off. As vfat's short name of it. With characters that are not shown, which ext4 with
/// casefold and HFS+ leave out.
pub fn is_own(name: &[u8]) -> bool {
    if name.is_ascii() {
        return is_own_ascii(name);
    }
    // What is not UTF-8 has no characters that could be left out.
    let Ok(text) = std::str::from_utf8(name) else { return is_own_ascii(name) };
    let seen: String = text.chars().filter(|char| !is_left_out(*char)).collect();
    is_own_ascii(seen.as_bytes())
}

fn is_own_ascii(name: &[u8]) -> bool {
    const SHORT: &[u8] = b"gridla~";
    const EXTENSION: &[u8] = b"gridlane-";
    let begins = |text: &[u8], with: &[u8]| {
        text.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with))
    };
    if !name.starts_with(b".") {
        return begins(name, SHORT);
    }
    let end = name.iter().rposition(|byte| !matches!(byte, b'.' | b' ')).map_or(0, |last| last + 1);
    let name = &name[..end];
    let extension = name.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
    name.eq_ignore_ascii_case(HIDDEN_DIRECTORY.as_bytes()) || begins(extension, EXTENSION)
}

/// Unicode's `Default_Ignorable_Code_Point`.
fn is_left_out(char: char) -> bool {
    matches!(char,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// A name below some directory: components with slashes between them, none of them `.`, `..`, empty, or one
/// of this program's own.
///
/// Symbolic links are not its matter: whatever creates the file has those to care for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RelativeName(String);

impl RelativeName {
    /// The name that `text` is (RFC 5854, 4.1.2.1).
    pub fn new(text: &str) -> Result<RelativeName, NameFault> {
        if text.is_empty() {
            return Err(NameFault::Missing);
        }
        if text.starts_with('/') {
            return Err(NameFault::Absolute);
        }
        if text.chars().any(char::is_control) {
            return Err(NameFault::ControlCharacter);
        }
        for component in text.split('/') {
            judge_entry(component.as_bytes()).map_err(|fault| match fault {
                NameFault::Missing => NameFault::EmptyComponent,
                other => other,
            })?;
        }
        Ok(RelativeName(text.to_owned()))
    }

    /// The same name where a peer may have chosen it: each component as [`judge_chosen`] has it.
    pub fn chosen(&self) -> Result<&RelativeName, NameFault> {
        self.components().try_for_each(judge_chosen).map(|()| self)
    }

    /// The whole name, with slashes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its components, from the top.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }

    /// Its last component.
    pub fn last(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }
}

impl fmt::Display for RelativeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RelativeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_our_own() {
        for own in [
            ".gridlane",
            ".GridLane",
            ".gridlane. .",
            "GRIDLA~1",
            ".grid\u{200d}lane",
            "\u{feff}.GRIDLANE.",
            ".f.gridlane-part",
            ".f.gridlane-journal",
            ".F.GRIDLANE-Part. ",
            "..f.gridlane-part.gridlane-journal",
            ".über.gridlane-jour\u{200b}nal",
            ".gridlane-part",
            ".gridlane-failed-a8Xz",
            ".f.gridlane-of-a-later-version",
        ] {
            assert!(is_own(own.as_bytes()), "{own:?}");
            assert_eq!(judge_entry(own.as_bytes()), Err(NameFault::Own));
        }
        assert!(is_own(b".\xff.gridlane-part"));
        for other in [
            "",
            ".",
            "gridlane",
            ".gridlane2",
            ".gridlane\u{200d}s",
            ".grid\u{e9}lane",
            "f.gridlane-part",
            ".f.gridlane",
            ".gridlane-part.root",
            ".zarray",
            "a~1",
            ". .",
            "\u{200d}",
        ] {
            assert!(!is_own(other.as_bytes()), "{other:?}");
        }
        assert!(!is_own(b".gridlane\xff"));
    }

    #[test]
    fn a_tree_has_dot_names_and_a_peer_chooses_none() {
        for (name, of_tree, chosen) in [
            ("run7.root", Ok(()), Ok(())),
            (".zarray", Ok(()), Err(NameFault::Hidden)),
            (".bashrc", Ok(()), Err(NameFault::Hidden)),
            ("...", Ok(()), Err(NameFault::Hidden)),
            ("a\u{202e}b", Ok(()), Err(NameFault::ControlCharacter)),
            ("\u{200b}.bashrc", Ok(()), Err(NameFault::ControlCharacter)),
            ("a\nb", Ok(()), Err(NameFault::ControlCharacter)),
            ("..", Err(NameFault::Traversal), Err(NameFault::Traversal)),
            ("a/b", Err(NameFault::NoName), Err(NameFault::NoName)),
            ("a\0", Err(NameFault::NoName), Err(NameFault::NoName)),
            ("", Err(NameFault::Missing), Err(NameFault::Missing)),
            (".f.gridlane-journal", Err(NameFault::Own), Err(NameFault::Own)),
        ] {
            assert_eq!((judge_entry(name.as_bytes()), judge_chosen(name)), (of_tree, chosen), "{name:?}");
        }
        assert_eq!(judge_entry(&[b'x'; NAME_BYTES_MAX + 1]), Err(NameFault::TooLong));
        for bad in [".ssh/authorized_keys", "data/.bashrc", "a/.b/c"] {
            assert_eq!(RelativeName::new(bad).unwrap().chosen(), Err(NameFault::Hidden), "{bad}");
        }
        assert!(RelativeName::new("data/run7/f.root").unwrap().chosen().is_ok());
        assert_eq!(RelativeName::new("a/.f.gridlane-part"), Err(NameFault::Own));
    }

    /// Texts of which some part matters here.
    fn text() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            prop::sample::select(vec![
                ".",
                "..",
                "/",
                "\0",
                " ",
                "~1",
                ".gridlane",
                "-part",
                "-journal",
                "gridla",
                "-failed-",
                "\u{200d}",
                "\u{202e}",
                "\u{1b}",
                "é",
                "GRID",
                "LANE",
            ])
            .prop_map(str::to_owned),
            any::<char>().prop_map(String::from),
        ];
        prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
    }

    proptest! {
        /// Whatever is taken stays in its directory, and is not taken for what is not complete.
        #[test]
        fn what_is_taken_is_harmless(name in text()) {
            if judge_entry(name.as_bytes()).is_ok() {
                let path = std::path::Path::new("/d").join(&name);
                prop_assert_eq!(path.parent(), Some(std::path::Path::new("/d")));
                prop_assert!(!name.ends_with(PART_END) || !name.starts_with('.'));
                prop_assert!(!name.ends_with(JOURNAL_END) || !name.starts_with('.'));
                prop_assert!(name != HIDDEN_DIRECTORY && name.len() <= NAME_BYTES_MAX);
            }
            if judge_chosen(&name).is_ok() {
                prop_assert!(judge_entry(name.as_bytes()).is_ok());
                prop_assert!(!name.starts_with('.') && !name.chars().any(char::is_control));
            }
            if let Ok(relative) = RelativeName::new(&name) {
                prop_assert!(relative.components().all(|component| judge_entry(component.as_bytes()).is_ok()));
                let is_chosen = relative.components().all(|component| judge_chosen(component).is_ok());
                prop_assert_eq!(relative.chosen().is_ok(), is_chosen);
            }
        }

        /// No name of a file hides what its own partial files are called, in any letters.
        #[test]
        fn partial_files_of_any_name_are_our_own(name in "[^/\0]{1,40}") {
            for end in [PART_END, JOURNAL_END] {
                let own = format!(".{name}{end}");
                prop_assert!(is_own(own.as_bytes()) && is_own(own.to_ascii_uppercase().as_bytes()), "{own:?}");
            }
        }
    }
}
