//! Trees of small files.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Scratch, assert_same, content};

/// Makes a tree of 40 files and an empty directory; some names need encoding.
pub(crate) fn tree(scratch: &Scratch) -> PathBuf {
    for number in 0..40_u64 {
        let name = format!("here/dir {}/sub/file ü {number}", number % 3);
        scratch.file(&name, &content(number, 1 + 997 * number as usize));
    }
    scratch.dir("here/empty");
    scratch.join("here")
}

/// Asserts that two trees have the same names and bytes.
pub(crate) fn assert_same_trees(a: &Path, b: &Path) {
    let mut compared = 0;
    for entry in fs::read_dir(a).unwrap().map(Result::unwrap) {
        let other = b.join(entry.file_name());
        match entry.path().is_dir() {
            true => assert_same_trees(&entry.path(), &other),
            false => assert_same(&fs::read(&other).unwrap(), &fs::read(entry.path()).unwrap()),
        }
        compared += 1;
    }
    assert_eq!(fs::read_dir(b).unwrap().count(), compared, "{} and {}", a.display(), b.display());
}
