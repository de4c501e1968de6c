//! Links on the way to a file that is to be written. They are followed, but for those that another user has put into
//! a directory that all users may write to.
//!
//! In a directory where every user may create files and only owners may remove them (`/tmp`), any user can put a link
//! in the place of the name that another one is about to write to, and have a file elsewhere replaced by it. The
//! kernel refuses such links when it follows them (`fs.protected_symlinks`), but not when a program reads the link
//! itself, as one has to that puts a partial file beside the final one. So the same rule is applied here, to every
//! link on the way.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use gridlane_core::{Error, ErrorKind, Fault, Result};

/// Links on the way to one file: the kernel's own limit.
const LINKS_MAX: u32 = 40;
/// Mode bits of a directory where every user may create files, and only owners may remove them.
const STICKY_FOR_ALL: u32 = 0o1002;

/// The path without links of what is to be written at `path`. A last link that leads nowhere stays what it is: it is a name
/// that is taken. What is not there yet keeps its name.
///
/// # Errors
///
/// `Denied` where a link on the way belongs to another user and is in a directory where every user may put links;
/// `LocalIo` for links in a circle.
pub fn follow(path: &Path) -> Result<PathBuf> {
    let found = walk(path)?;
    if fs::symlink_metadata(&found).is_ok() {
        return Ok(found);
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(walk(parent)?.join(name)),
        _ => Ok(found),
    }
}

/// Refuses a file, a pipe or a device that another user has put into a directory where every user may: such a pipe
/// would take the bytes that are written to it. `meta` is of what is at `path`, all links followed.
///
/// # Errors
///
/// `Denied`, as for [`follow`].
pub fn refuse_planted(path: &Path, meta: &Metadata) -> Result<()> {
    let found = walk(path)?;
    match found.parent().is_none_or(|directory| is_trusted(directory, meta.uid())) {
        true => Ok(()),
        false => Err(planted(&found, "the file")),
    }
}

fn walk(path: &Path) -> Result<PathBuf> {
    let mut at = PathBuf::from("/");
    // What is left of the way, the next name last.
    let mut left: Vec<OsString> = Vec::new();
    push(&mut left, path);
    if path.is_relative() {
        let current = std::env::current_dir();
        let current =
            current.map_err(|cause| Error::local_io("cannot tell the current directory", &cause))?;
        push(&mut left, &current);
    }
    let mut links = 0;
    while let Some(name) = left.pop() {
        if name == ".." {
            // There is no link in front of it any more.
            at.pop();
            continue;
        }
        let next = at.join(&name);
        // The error of a path that cannot be looked at comes from opening it.
        let link = fs::symlink_metadata(&next).ok().filter(Metadata::is_symlink);
        let Some(link) = link else {
            at = next;
            continue;
        };
        if !is_trusted(&at, link.uid()) {
            return Err(planted(&next, "the link"));
        }
        links += 1;
        let to = fs::read_link(&next).and_then(|to| match links > LINKS_MAX {
            true => Err(io::Error::from(rustix::io::Errno::LOOP)),
            false => Ok(to),
        });
        let to = to.map_err(|cause| Error::local_io(format!("cannot follow {}", path.display()), &cause))?;
        if to.is_absolute() {
            at = PathBuf::from("/");
        }
        push(&mut left, &to);
    }
    Ok(at)
}

/// Puts the names of a path in front of what is left of the way.
fn push(left: &mut Vec<OsString>, path: &Path) {
    left.extend(path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    }));
}

/// True if a link or file that `owner` has put into `directory` may be used, by the kernel's rule for links.
fn is_trusted(directory: &Path, owner: u32) -> bool {
    let caller = rustix::process::geteuid().as_raw();
    let is_safe = |meta: Metadata| may_go_by(meta.mode(), meta.uid(), owner, caller);
    owner == caller || fs::symlink_metadata(directory).is_ok_and(is_safe)
}

/// True if `caller` may use a link or file that `owner` has put into a directory of this mode and owner.
fn may_go_by(directory_mode: u32, directory_owner: u32, owner: u32, caller: u32) -> bool {
    let is_for_all = directory_mode & STICKY_FOR_ALL == STICKY_FOR_ALL;
    owner == caller || owner == directory_owner || !is_for_all
}

fn planted(path: &Path, what: &str) -> Error {
    let message = format!(
        "{what} at {} belongs to another user, in a directory that all users may write to",
        path.display()
    );
    Error::new(ErrorKind::Denied, message)
        .fault(Fault::Local)
        .hint("write to a directory of your own, or name the path that a link leads to")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    /// A directory like /tmp. It belongs to another user than the caller where the tests may give it away.
    fn shared() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        dir
    }

    #[test]
    fn own_links_are_followed_wherever_they_are() {
        let (dir, elsewhere) = (shared(), tempfile::tempdir().unwrap());
        let elsewhere = fs::canonicalize(elsewhere.path()).unwrap();
        fs::write(elsewhere.join("f"), b"x").unwrap();
        fs::create_dir(elsewhere.join("d")).unwrap();
        symlink(elsewhere.join("d/../f"), dir.path().join("a")).unwrap();
        symlink("a", dir.path().join("b")).unwrap();
        symlink(&elsewhere, dir.path().join("dir")).unwrap();
        symlink("nowhere", dir.path().join("lost")).unwrap();
        symlink("circle", dir.path().join("circle")).unwrap();
        let here = fs::canonicalize(dir.path()).unwrap();
        for (path, expected) in [
            ("a", elsewhere.join("f")),
            ("./b", elsewhere.join("f")),
            ("dir/f", elsewhere.join("f")),
            ("dir/new", elsewhere.join("new")),
            ("new", here.join("new")),
            ("lost", here.join("lost")),
        ] {
            assert_eq!(follow(&dir.path().join(path)).unwrap(), expected, "{path}");
        }
        assert_eq!(follow(&dir.path().join("circle")).unwrap_err().kind(), ErrorKind::LocalIo);
        assert_eq!(follow(Path::new("Cargo.toml")).unwrap(), fs::canonicalize("Cargo.toml").unwrap());
    }

    #[test]
    fn what_somebody_else_has_put_where_everybody_may_is_not_gone_by() {
        const SHARED: u32 = 0o41777;
        assert!(!may_go_by(SHARED, 0, 4242, 1000));
        assert!(!may_go_by(SHARED, 1000, 4242, 1000), "also in a directory of the caller's own");
        assert!(may_go_by(SHARED, 0, 1000, 1000), "one's own");
        assert!(may_go_by(SHARED, 4242, 4242, 1000), "its owner decides what is in it");
        for mode in [0o40755, 0o41755, 0o40777] {
            assert!(may_go_by(mode, 0, 4242, 1000), "{mode:o}: as the kernel decides");
        }
    }

    /// Giving things away needs a privilege, which tests that run as root have.
    #[test]
    fn links_of_somebody_else_are_not_followed_where_everybody_may_put_them() {
        let (dir, elsewhere) = (shared(), tempfile::tempdir().unwrap());
        fs::write(elsewhere.path().join("f"), b"precious").unwrap();
        let (link, way) = (dir.path().join("f"), dir.path().join("d"));
        symlink(elsewhere.path().join("f"), &link).unwrap();
        symlink(elsewhere.path(), &way).unwrap();
        if lchown(&link, Some(4242), None).is_err() {
            return;
        }
        lchown(&way, Some(4242), None).unwrap();
        for path in [link.clone(), way.join("f"), way.join("new")] {
            assert_eq!(follow(&path).unwrap_err().kind(), ErrorKind::Denied, "{}", path.display());
        }
        // Its owner decides what is in a directory.
        lchown(dir.path(), Some(4242), None).unwrap();
        assert!(follow(&link).is_ok());
        lchown(dir.path(), Some(0), None).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(follow(&link).is_ok());
    }
}
