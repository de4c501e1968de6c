//! Small files with certificates and keys: they appear whole, and are never readable for more people than in the end.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Writes a file so that it is there whole or not at all, with its final mode from the start.
pub fn replace(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let partial = write_beside(path, mode, bytes)?;
    fs::rename(&partial, path).inspect_err(|_| drop(fs::remove_file(&partial)))
}

/// The same for a name that is not there yet: whatever is there stays, and the error says so.
pub fn create(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let partial = write_beside(path, mode, bytes)?;
    // A second name fails where a rename would replace.
    let named = fs::hard_link(&partial, path);
    let _ = fs::remove_file(&partial);
    named
}

fn write_beside(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<PathBuf> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let partial = path.with_file_name(name);
    // Of a process that had our number and died. What another user put there (a link, in a directory for all)
    // is not written through: the next line refuses what is there.
    let _ = fs::remove_file(&partial);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&partial)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.inspect_err(|_| drop(fs::remove_file(&partial)))?;
    Ok(partial)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_or_refused_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hostkey.pem");
        create(&path, 0o600, b"one").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(create(&path, 0o600, b"two").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"one");
        replace(&path, 0o644, b"three").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"three");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        let is_dir = dir.path().join("dir");
        fs::create_dir_all(is_dir.join("full")).unwrap();
        assert!(replace(&is_dir, 0o600, b"four").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
