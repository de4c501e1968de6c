//! Lists of names in files: what to copy, and what failed.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use gridlane_core::limits::TREE_PATH_BYTES_MAX;
use gridlane_core::{Error, ErrorKind, Fault, Result};

use crate::tree_path::TreePath;
use crate::whole_file::WholeFile;

/// The whole tree, in a list.
const ROOT: &[u8] = b"./";

/// The separator of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separator {
    /// The end of a line.
    Newline,
    /// A byte of value 0: the names may have line breaks.
    Nul,
}

impl Separator {
    fn byte(self) -> u8 {
        match self {
            Separator::Newline => b'\n',
            Separator::Nul => 0,
        }
    }
}

/// A list of names below the root of a tree; one that ends in a slash is a directory with all that is in it.
pub struct NameList {
    from: BufReader<Box<dyn Read + Send>>,
    separator: Separator,
    shown: String,
    number: u64,
}

impl NameList {
    /// Opens a list; `-` is standard input.
    pub fn open(path: &Path, separator: Separator) -> Result<NameList> {
        let (from, shown): (Box<dyn Read + Send>, String) = match path == Path::new("-") {
            true => (Box::new(std::io::stdin()), "standard input".into()),
            false => {
                let shown = path.display().to_string();
                let file = File::open(path)
                    .map_err(|cause| Error::local_io("cannot open it", &cause).endpoint(&shown))?;
                (Box::new(file), shown)
            }
        };
        Ok(NameList { from: BufReader::new(from), separator, shown, number: 0 })
    }

    /// The next name, and whether it is that of a directory; `None` at the end. Empty lines are skipped. What
    /// is no name below a root is an error: the list is not what it should be.
    pub(crate) fn next(&mut self) -> Result<Option<(TreePath, bool)>> {
        loop {
            let mut line = Vec::new();
            let max = TREE_PATH_BYTES_MAX as u64 + 2;
            let read = self.from.by_ref().take(max).read_until(self.separator.byte(), &mut line);
            let failed = |cause| Error::local_io("cannot read it", &cause).endpoint(&self.shown);
            if read.map_err(failed)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if line.last() == Some(&self.separator.byte()) {
                line.pop();
            }
            if line.is_empty() {
                continue;
            }
            if line == ROOT {
                return Ok(Some((TreePath::root(), true)));
            }
            let path = TreePath::parse(&line).map_err(|error| {
                let message = format!("name {} of the list: {}", self.number, error.message());
                Error::new(ErrorKind::Usage, message)
                    .fault(Fault::Caller)
                    .endpoint(&self.shown)
                    .hint("one name below the source a line, with slashes between directories")
            })?;
            return Ok(Some((path, line.ends_with(b"/"))));
        }
    }
}

/// Names of what failed, in the form of a [`NameList`]. The file appears, or replaces the one before, when
/// it is complete.
pub struct FailedList {
    separator: Separator,
    to: WholeFile,
}

impl FailedList {
    /// Begins a list that will be at `path`.
    pub fn create(path: &Path, separator: Separator) -> Result<FailedList> {
        WholeFile::create(path).map(|to| FailedList { separator, to })
    }

    /// Adds a name. `false`: it has the separator in it, so it cannot stand in this list.
    pub(crate) fn add(&mut self, path: &TreePath, is_directory: bool) -> Result<bool> {
        let name = path.as_bytes();
        if name.contains(&self.separator.byte()) {
            return Ok(false);
        }
        let (name, end): (&[u8], &[u8]) = match (path.is_root(), is_directory) {
            (true, _) => (ROOT, b""),
            (false, true) => (name, b"/"),
            (false, false) => (name, b""),
        };
        [name, end, &[self.separator.byte()]].iter().try_for_each(|part| self.to.write(part))?;
        Ok(true)
    }

    /// Makes the list visible.
    pub(crate) fn finish(self) -> Result<()> {
        self.to.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], separator: Separator) -> Result<Vec<(String, bool)>> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("list");
        std::fs::write(&file, text).unwrap();
        let mut list = NameList::open(&file, separator)?;
        let mut names = Vec::new();
        while let Some((path, is_directory)) = list.next()? {
            names.push((path.to_string(), is_directory));
        }
        Ok(names)
    }

    #[test]
    fn names_a_line() {
        let names = read(b"a\n\nd/ b #c\r\nd/\n-x", Separator::Newline).unwrap();
        let expected = [("a", false), ("d/ b #c\r", false), ("d", true), ("-x", false)];
        assert_eq!(names, expected.map(|(name, is_directory)| (name.to_owned(), is_directory)));
        assert_eq!(read(b"a\nb\0c", Separator::Nul).unwrap()[0].0, "a\nb");
        for bad in [&b"/etc/passwd"[..], b"a/../b", b"..", b"/"] {
            assert_eq!(read(bad, Separator::Newline).unwrap_err().kind(), ErrorKind::Usage);
        }
        assert!(read(&[b'x'; 10_000], Separator::Newline).is_err());
    }

    #[test]
    fn what_failed_can_be_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("failed");
        std::fs::write(&file, b"of an earlier run").unwrap();
        let mut list = FailedList::create(&file, Separator::Newline).unwrap();
        assert!(list.add(&TreePath::parse(b"a b").unwrap(), false).unwrap());
        assert!(list.add(&TreePath::parse(b"d/e").unwrap(), true).unwrap());
        assert!(!list.add(&TreePath::parse(b"a\nb").unwrap(), false).unwrap());
        assert!(list.add(&TreePath::root(), true).unwrap());
        assert_eq!(std::fs::read(&file).unwrap(), b"of an earlier run");
        list.finish().unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"a b\nd/e/\n./\n");
        let mut again = NameList::open(&file, Separator::Newline).unwrap();
        let (_, _, root) = (again.next().unwrap(), again.next().unwrap(), again.next().unwrap());
        assert_eq!(root, Some((TreePath::root(), true)));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        FailedList::create(&file, Separator::Newline).unwrap().finish().unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"");
    }
}
