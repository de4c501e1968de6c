//! Trees of small files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Scratch, content};

/// Makes a tree of 40 files and an empty directory; some names need encoding.
pub(crate) fn tree(scratch: &Scratch) -> PathBuf {
    for number in 0..40_u64 {
        let name = format!("here/dir {}/sub/file ü {number}", number % 3);
        scratch.file(&name, &content(number, 1 + 997 * number as usize));
    }
    scratch.dir("here/empty");
    scratch.join("here")
}

/// Every file and directory below `dir`, files with their bytes; nothing else.
pub(crate) fn read_tree(dir: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![dir.to_path_buf()];
    while let Some(at) = waiting.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(dir).unwrap().to_path_buf();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            if kind.is_dir() {
                found.insert(name, None);
                waiting.push(path);
            } else if kind.is_file() {
                found.insert(name, Some(fs::read(&path).unwrap()));
            }
        }
    }
    found
}

/// Asserts that two trees have the same names and bytes.
#[track_caller]
pub(crate) fn assert_same_trees(a: &Path, b: &Path) {
    let (a, b) = (read_tree(a), read_tree(b));
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (name, bytes) in &a {
        assert!(b[name] == *bytes, "{} differs", name.display());
    }
}
