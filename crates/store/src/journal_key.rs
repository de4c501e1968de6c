//! The key that a user's journals are written with: a journal that another user has written without it does not count.
//!
//! A partial file and its journal lie beside their target, where others may put files too: they come in with a tree, with an
//! archive, with a directory that several users share. The key lies where only its owner reads and writes, and is made when
//! it is first needed:
//!
//! ```text
//! gridlane-journal-key 1
//! 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
//! ```
//!
//! A key of another version, or one that others may read or write, is not used, and none is put in its place. A file without
//! a byte, as a crash or a full disk leaves it, is no key of any version: it is removed.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use rustix::fs::{CWD, FlockOperation, OFlags, RenameFlags, flock, renameat_with};
use rustix::io::Errno;

/// First line of the file.
const FIRST_LINE: &str = "gridlane-journal-key 1";
/// Bytes of the key: as many as the tags that it makes.
const KEY_BYTES: usize = 32;
/// Random bytes in the name that a new key has until it is complete.
const SUFFIX_BYTES: usize = 8;
/// Bytes of the file that are read: it has fewer.
const FILE_BYTES_MAX: u64 = 256;

/// A key for journals. It is never printed.
#[derive(Clone)]
pub struct JournalKey(Arc<hmac::Key>);

impl fmt::Debug for JournalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JournalKey(…)")
    }
}

impl JournalKey {
    /// A key of these bytes.
    pub fn new(bytes: &[u8; KEY_BYTES]) -> JournalKey {
        JournalKey(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    /// The tag of a message that has these parts.
    pub(crate) fn tag(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            // The lengths as well, so that no two lists of parts are one message.
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut tag = [0; 32];
        tag.copy_from_slice(context.sign().as_ref());
        tag
    }
}

/// Where a user's key is kept. Its clones share what was found there.
#[derive(Clone, Debug, Default)]
pub struct JournalKeys {
    path: Option<PathBuf>,
    found: Arc<OnceLock<Result<JournalKey, String>>>,
}

impl JournalKeys {
    /// At `path`, whose directories are made when the key is.
    pub fn at(path: PathBuf) -> JournalKeys {
        JournalKeys { path: Some(path), found: Arc::default() }
    }

    /// A key of these bytes, which is kept nowhere.
    pub fn of(bytes: &[u8; KEY_BYTES]) -> JournalKeys {
        let found = OnceLock::from(Ok(JournalKey::new(bytes)));
        JournalKeys { path: None, found: Arc::new(found) }
    }

    /// Those of one user among the many of a server: what one has left half done is no beginning for another.
    pub fn of_user(&self, user: &str) -> JournalKeys {
        let derived = self.key().map(|key| JournalKey::new(&key.tag(&[b"user", user.as_bytes()])));
        JournalKeys { path: None, found: Arc::new(OnceLock::from(derived.map_err(str::to_owned))) }
    }

    /// The key, read or made the first time.
    ///
    /// # Errors
    ///
    /// The reason why there is none, as a message.
    pub fn key(&self) -> Result<&JournalKey, &str> {
        let found = self.found.get_or_init(|| match &self.path {
            None => Err("there is no directory for the key of its journal".to_owned()),
            Some(path) => read_or_make(path).map_err(|cause| {
                format!("the key of its journal, {}, cannot be used: {cause}", path.display())
            }),
        });
        found.as_ref().map_err(String::as_str)
    }
}

fn read_or_make(path: &Path) -> io::Result<JournalKey> {
    remove_empty(path);
    match read(path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
        outcome => return outcome,
    }
    make(path)?;
    // Also when another process was first: there is one key.
    read(path)
}

/// Removes a file without a byte at `path`, if it is the user's. Another process that does the same meanwhile waits for
/// the lock, and finds that the name is that of another file by then.
fn remove_empty(path: &Path) {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    let Ok(file) = opened else { return };
    let is_empty = |meta: fs::Metadata| {
        meta.is_file() && meta.len() == 0 && meta.uid() == rustix::process::geteuid().as_raw()
    };
    if !file.metadata().is_ok_and(is_empty) || flock(&file, FlockOperation::LockExclusive).is_err() {
        return;
    }
    let is_same = |there: fs::Metadata| {
        file.metadata().is_ok_and(|ours| (ours.dev(), ours.ino()) == (there.dev(), there.ino()))
    };
    if fs::symlink_metadata(path).is_ok_and(is_same) {
        let _ = fs::remove_file(path);
    }
}

fn read(path: &Path) -> io::Result<JournalKey> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() || meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("the file belongs to another user"));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(io::Error::other("other users may read it: remove it, and a new one is made"));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    let mut lines = text.lines();
    let key = (lines.next() == Some(FIRST_LINE)).then(|| lines.next().and_then(decode)).flatten();
    key.map(|bytes| JournalKey::new(&bytes))
        .ok_or_else(|| io::Error::other("the file is of another version of gridlane, or damaged"))
}

fn make(path: &Path) -> io::Result<()> {
    let directory = path.parent().ok_or_else(|| io::Error::other("its path has no directory"))?;
    refuse_foreign(directory)?;
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    // Process numbers are no names: containers that share a home directory have the same.
    let (hex, suffix) = (random_hex::<KEY_BYTES>()?, random_hex::<SUFFIX_BYTES>()?);
    let fresh = directory.join(format!(".journal-key-{suffix}"));
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    let written = writeln!(file, "{FIRST_LINE}\n{hex}").and_then(|()| file.sync_all());
    let named = written.and_then(|()| match renameat_with(CWD, &fresh, CWD, path, RenameFlags::NOREPLACE) {
        // A file system without the flag; a link is made there, or not, in one step as well.
        Err(Errno::INVAL | Errno::NOSYS) => fs::hard_link(&fresh, path),
        outcome => outcome.map_err(io::Error::from),
    });
    let _ = fs::remove_file(&fresh);
    match named {
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        outcome => outcome,
    }
}

fn random_hex<const BYTES: usize>() -> io::Result<String> {
    let mut bytes = [0; BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system has no random bytes"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A process with the home directory of another user (`sudo`) would leave directories in it that its owner cannot use.
fn refuse_foreign(directory: &Path) -> io::Result<()> {
    let there = directory.ancestors().find_map(|path| fs::metadata(path).ok());
    match there.is_some_and(|meta| meta.uid() == rustix::process::geteuid().as_raw()) {
        true => Ok(()),
        false => Err(io::Error::other("its directory belongs to another user")),
    }
}

fn decode(hex: &str) -> Option<[u8; KEY_BYTES]> {
    let mut bytes = [0; KEY_BYTES];
    if hex.len() != 2 * KEY_BYTES || !hex.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn tag(keys: &JournalKeys) -> [u8; 32] {
        keys.key().unwrap().tag(&[b"x"])
    }

    #[test]
    fn it_is_made_once_and_read_by_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/journal.key");
        let first = tag(&JournalKeys::at(path.clone()));
        assert_eq!(first, tag(&JournalKeys::at(path.clone())), "another process finds the same");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert_ne!(first, tag(&JournalKeys::at(dir.path().join("other.key"))));
        make(&path).unwrap();
        assert_eq!(first, tag(&JournalKeys::at(path)), "a key that is there stays");
    }

    #[test]
    fn a_key_that_others_know_or_that_makes_no_sense_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.key");
        tag(&JournalKeys::at(path.clone()));
        let good = fs::read_to_string(&path).unwrap();
        for bad in ["\n", "gridlane-journal-key 1\n", &good.replace(" 1\n", " 2\n"), &good[..40]] {
            fs::write(&path, bad).unwrap();
            assert!(JournalKeys::at(path.clone()).key().is_err(), "{bad:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), bad, "nothing is put in its place");
        }
        fs::write(&path, &good).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(JournalKeys::at(path.clone()).key().unwrap_err().contains("other users may read it"));
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(JournalKeys::at(path).key().is_err());
        assert!(JournalKeys::default().key().is_err());
        assert!(JournalKeys::at("/dev/null/journal.key".into()).key().is_err());
    }

    #[test]
    fn a_file_without_a_byte_is_no_key_and_many_at_once_make_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.key");
        fs::write(&path, "").unwrap();
        // As processes in containers do, which all have the same number.
        let tags: Vec<[u8; 32]> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| tag(&JournalKeys::at(path.clone())))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(tags.iter().all(|own| *own == tags[0]));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn parts_are_told_apart() {
        let key = JournalKey::new(&[7; 32]);
        assert_ne!(key.tag(&[b"ab", b"c"]), key.tag(&[b"a", b"bc"]));
        assert!(!format!("{key:?}").contains('7'));
    }
}
