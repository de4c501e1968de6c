//! Notices that files which a daemon goes by have changed since they were read.
//!
//! Looking is what works everywhere: certificates, lists and secrets are replaced by renaming files and by turning links
//! round, on network file systems too, by programs that announce nothing. A change counts when a look finds nothing new:
//! a certificate and its key, or a directory of lists, are replaced one file at a time.

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry as Slot};
use std::fs::{self, Metadata};
use std::hash::{Hash, Hasher as _};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Directories below a directory that is watched: `vomsdir/VO`.
const DEPTH_MAX: usize = 1;

/// Looks that something may be another one each time. What never comes to rest, a file beside the others for instance, must
/// not keep a list of what was revoked from being read.
const CHANGING_LOOKS_MAX: u32 = 20;

/// Longest wait for a look at a directory that is served: where its file system is dead, nothing else is to be missed.
const SERVED_LOOK_MAX: Duration = Duration::from_secs(1);

/// Files and directories that are looked at, and their state at the last look.
#[derive(Debug, Default)]
pub struct Watch {
    seen: HashMap<PathBuf, u64>,
    /// Directories that are served: what is in them is no business of ours, but which they are.
    directories: HashMap<PathBuf, Seen>,
    /// Looks since something has changed, which may not be complete; 0: nothing has.
    changing_looks: u32,
}

/// The last look at a directory that is served.
#[derive(Debug)]
struct Seen {
    print: u64,
    /// A look that has not come back.
    looking: Option<Receiver<u64>>,
}

/// A look at a directory, which may take for ever.
type Look = Box<dyn FnOnce() + Send>;

impl Seen {
    /// Looks, on a thread that `begin` starts; whether another one is there now. Without a thread there is no look this
    /// time.
    fn look(&mut self, place: &Path, begin: impl FnOnce(Look) -> io::Result<()>) -> bool {
        let looking = match self.looking.take() {
            Some(looking) => looking,
            None => {
                let (tell, told) = mpsc::channel();
                let place = place.to_owned();
                let look = move || {
                    // A watch that has ended asks for no more.
                    let _ = tell.send(print_of_served(&place));
                };
                if begin(Box::new(look)).is_err() {
                    return false;
                }
                told
            }
        };
        match looking.recv_timeout(SERVED_LOOK_MAX) {
            Ok(now) => std::mem::replace(&mut self.print, now) != now,
            Err(RecvTimeoutError::Timeout) => {
                self.looking = Some(looking);
                false
            }
            Err(RecvTimeoutError::Disconnected) => false,
        }
    }
}

impl Watch {
    /// Looks at these from now on, and at nothing else. Of those that it has looked at before it goes on knowing how they
    /// were then; of the others it knows how they are now.
    pub fn follow(&mut self, places: impl IntoIterator<Item = PathBuf>) {
        let mut before = std::mem::take(&mut self.seen);
        for place in places {
            // Certificate and key may be one file: what is known of it is not to be what it is now.
            if let Slot::Vacant(slot) = self.seen.entry(place) {
                let seen = before.remove(slot.key()).unwrap_or_else(|| print_of(slot.key(), DEPTH_MAX));
                slot.insert(seen);
            }
        }
    }

    /// The same of directories that are served: only whether another one is there.
    pub fn follow_directories(&mut self, places: impl IntoIterator<Item = PathBuf>) {
        let mut before = std::mem::take(&mut self.directories);
        for place in places {
            let seen = before.remove(&place).unwrap_or_else(|| {
                // They are opened now, which waits for them as well.
                Seen { print: print_of_served(&place), looking: None }
            });
            self.directories.insert(place, seen);
        }
    }

    /// Takes everything as it is now: it is about to be read.
    pub fn refresh(&mut self) {
        self.look();
        self.changing_looks = 0;
    }

    /// Looks; whether something has changed, and stayed the same since the last look, or will not come to rest.
    pub fn has_settled(&mut self) -> bool {
        if self.look() && self.changing_looks < CHANGING_LOOKS_MAX {
            self.changing_looks += 1;
            return false;
        }
        std::mem::take(&mut self.changing_looks) > 0
    }

    /// Looks at everything, and returns true if anything has changed.
    fn look(&mut self) -> bool {
        let mut has_changed = false;
        for (place, seen) in &mut self.seen {
            let now = print_of(place, DEPTH_MAX);
            has_changed |= now != *seen;
            *seen = now;
        }
        for (place, seen) in &mut self.directories {
            has_changed |= seen.look(place, |look| thread::Builder::new().spawn(look).map(drop));
        }
        has_changed
    }
}

/// A number that is another one when another directory is there, by whatever way.
fn print_of_served(place: &Path) -> u64 {
    let mut print = DefaultHasher::new();
    match fs::metadata(place) {
        // Numbers of what was removed are given again.
        Ok(it) => (it.dev(), it.ino(), it.created().ok()).hash(&mut print),
        Err(cause) => cause.raw_os_error().hash(&mut print),
    }
    print.finish()
}

/// A number that is another one when a file, or what is in a directory, has changed.
fn print_of(place: &Path, depth: usize) -> u64 {
    let mut print = DefaultHasher::new();
    let link = fs::symlink_metadata(place);
    mark(&link, &mut print);
    let target = match &link {
        // What it leads to may be replaced, and it may be made to lead elsewhere.
        Ok(metadata) if metadata.is_symlink() => {
            let target = fs::metadata(place);
            mark(&target, &mut print);
            target
        }
        _ => link,
    };
    if target.is_ok_and(|metadata| metadata.is_dir()) {
        match fs::read_dir(place) {
            // In whatever order they are told of.
            Ok(entries) => entries
                .flatten()
                .fold(0u64, |all, entry| {
                    let mut one = DefaultHasher::new();
                    entry.file_name().hash(&mut one);
                    let path = entry.path();
                    match depth.checked_sub(1) {
                        Some(depth) => print_of(&path, depth).hash(&mut one),
                        None => print_of_file(&path, &mut one),
                    }
                    all.wrapping_add(one.finish())
                })
                .hash(&mut print),
            Err(cause) => cause.raw_os_error().hash(&mut print),
        }
    }
    print.finish()
}

/// The same of what is too deep to be looked into.
fn print_of_file(place: &Path, print: &mut DefaultHasher) {
    mark(&fs::symlink_metadata(place), print);
    mark(&fs::metadata(place), print);
}

fn mark(metadata: &io::Result<Metadata>, print: &mut DefaultHasher) {
    match metadata {
        Ok(it) => {
            (it.dev(), it.ino(), it.mode(), it.uid(), it.gid()).hash(print);
            // Of a directory its entries are looked at: what else is made there for a moment is no change.
            if !it.is_dir() {
                // Unlike the time of the contents' last change, the time of the inode's cannot be set at will.
                (it.size(), it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec()).hash(print);
            }
        }
        Err(cause) => cause.raw_os_error().hash(print),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_change_counts_when_it_stays_the_same_for_a_look() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        fs::write(at("cert"), "1").unwrap();
        fs::create_dir_all(at("vomsdir/vo")).unwrap();
        fs::write(at("store-1"), "1").unwrap();
        symlink(at("store-1"), at("link")).unwrap();
        let mut watch = Watch::default();
        watch.follow(["cert", "vomsdir", "link", "missing"].map(at));
        let mut is_seen = |what: &str, change: &dyn Fn()| {
            assert!(!watch.has_settled() && !watch.has_settled(), "before: {what}");
            change();
            assert!(!watch.has_settled(), "{what}: not at once");
            assert!(watch.has_settled(), "{what}: then");
            assert!(!watch.has_settled(), "{what}: and once");
        };
        is_seen("other contents", &|| fs::write(at("cert"), "12").unwrap());
        is_seen("another file in its place", &|| {
            fs::write(at("new"), "34").unwrap();
            fs::rename(at("new"), at("cert")).unwrap();
        });
        is_seen("other rights", &|| {
            fs::set_permissions(at("cert"), PermissionsExt::from_mode(0o600)).unwrap()
        });
        is_seen("a new file in a directory of a directory", &|| {
            fs::write(at("vomsdir/vo/a.lsc"), "").unwrap()
        });
        is_seen("and in the directory", &|| fs::write(at("vomsdir/b.lsc"), "").unwrap());
        is_seen("other contents there", &|| fs::write(at("vomsdir/vo/a.lsc"), "1").unwrap());
        is_seen("another name", &|| fs::rename(at("vomsdir/vo/a.lsc"), at("vomsdir/vo/c.lsc")).unwrap());
        is_seen("what a link leads to", &|| fs::write(at("store-1"), "12").unwrap());
        is_seen("a link that leads elsewhere", &|| {
            fs::copy(at("store-1"), at("store-2")).unwrap();
            symlink(at("store-2"), at("link.new")).unwrap();
            fs::rename(at("link.new"), at("link")).unwrap();
        });
        is_seen("something new", &|| fs::write(at("missing"), "").unwrap());
        is_seen("nothing any longer", &|| fs::remove_file(at("missing")).unwrap());
    }

    #[test]
    fn without_a_thread_a_directory_is_looked_at_the_next_time() {
        let scratch = tempfile::tempdir().unwrap();
        let mut seen = Seen { print: print_of_served(scratch.path()), looking: None };
        let elsewhere = scratch.path().join("missing");
        assert!(!seen.look(&elsewhere, |_| Err(io::ErrorKind::WouldBlock.into())));
        let at_once = |look: Look| {
            look();
            Ok(())
        };
        assert!(seen.look(&elsewhere, at_once), "another one was there");
        assert!(!seen.look(&elsewhere, at_once), "and stays");
    }

    #[test]
    fn a_directory_that_is_served_is_another_one() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        fs::create_dir(at("data")).unwrap();
        let mut watch = Watch::default();
        watch.follow_directories([at("data")]);
        let mut is_seen = |change: &dyn Fn(), expected: bool| {
            assert!(!watch.has_settled());
            change();
            assert!(!watch.has_settled());
            assert_eq!(watch.has_settled(), expected);
        };
        is_seen(&|| fs::write(at("data/f"), "1").unwrap(), false);
        is_seen(&|| fs::rename(at("data"), at("old")).unwrap(), true);
        is_seen(&|| fs::create_dir(at("data")).unwrap(), true);
        is_seen(
            &|| {
                fs::remove_dir(at("data")).unwrap();
                symlink(at("old"), at("data")).unwrap();
            },
            true,
        );
    }

    #[test]
    fn what_goes_on_changing_is_waited_for() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("f");
        let mut watch = Watch::default();
        watch.follow([file.clone()]);
        for length in 1..5 {
            fs::write(&file, vec![0; length]).unwrap();
            assert!(!watch.has_settled());
        }
        assert!(watch.has_settled());
        // What is about to be read anyway is no news afterwards, and what changes while it is read is.
        fs::write(&file, "12345").unwrap();
        assert!(!watch.has_settled());
        watch.refresh();
        assert!(!watch.has_settled());
        fs::write(&file, "123456").unwrap();
        watch.follow([file.clone(), scratch.path().join("other"), file.clone()]);
        assert!(!watch.has_settled());
        assert!(watch.has_settled());
        // But not for ever.
        let restless = (0..).take_while(|length| {
            fs::write(&file, vec![1; *length]).unwrap();
            !watch.has_settled()
        });
        assert_eq!(restless.take(1000).count(), CHANGING_LOOKS_MAX as usize);
    }
}
