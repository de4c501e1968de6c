//! Destinations: what a person means by one, and the engine's target for it.

use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use gridlane_core::{Error, ErrorKind, Fault, Result, Url, name};
use gridlane_engine::{OpenTarget, TargetSpec};
use gridlane_share::turns::BriefKind;
use gridlane_store::journal_key::JournalKeys;
use gridlane_store::links::refuse_planted;
use gridlane_store::path_target::{PathTarget, exists, sweep};
use gridlane_store::{Expectation, turns_of_names};
use percent_encoding::percent_decode_str;

/// A destination that has been looked at.
#[derive(Debug)]
pub(crate) struct Destination {
    /// The place itself.
    pub goal: Goal,
    /// For messages.
    pub name: String,
    /// True if a stopped copy to it can be continued.
    pub is_resumable: bool,
}

/// The place where a file goes.
#[derive(Debug)]
pub(crate) enum Goal {
    /// A regular file of this machine, visible when complete. Its directory is there when the copy begins.
    File(PathBuf),
    /// A place that takes bytes in order: a pipe, a device, standard output.
    Stream(File),
    /// A file of a server.
    Upload(Url),
}

impl Goal {
    /// The place that has this URL.
    pub(crate) fn at(url: &Url) -> Goal {
        match url.to_path() {
            Some(path) => Goal::File(path),
            None => Goal::Upload(url.clone()),
        }
    }

    /// The target for the engine. An existing file is replaced if it `overwrite`s; a server is told when the file was
    /// `modified`.
    pub(crate) fn spec(
        self,
        overwrite: bool,
        modified: Option<SystemTime>,
        keys: &JournalKeys,
    ) -> TargetSpec {
        match self {
            Goal::File(path) => file_target(path, overwrite, keys.clone()),
            Goal::Stream(file) => TargetSpec::pipe(file),
            Goal::Upload(url) => TargetSpec::Upload { url, overwrite, modified },
        }
    }
}

/// A file of this machine as a target of the engine: opened when the copy begins, with what an earlier copy has left beside it,
/// and visible when it is complete. An existing one is replaced if it `overwrite`s.
pub fn file_target(path: PathBuf, overwrite: bool, keys: JournalKeys) -> TargetSpec {
    let open = move || {
        if !overwrite && path.symlink_metadata().is_ok() {
            // Perhaps an earlier run was killed when all was there.
            sweep(&path);
            return Err(exists(&path));
        }
        let (target, found) = PathTarget::open(&path, &keys)?;
        let expectation = if overwrite { Expectation::Anything } else { Expectation::Absent };
        Ok(OpenTarget { target: Arc::new(target), found, completion: expectation.into() })
    };
    TargetSpec::Anywhere(Box::pin(async move { turns_of_names().brief(BriefKind::Other).await.run(open) }))
}

/// Turns what was typed into a target for a file from `source`.
///
/// `-` is standard output. A directory, or a name that ends in a slash, gets the source's name. What
/// exists and is neither a regular file nor a directory is written to directly.
pub(crate) fn resolve(text: &str, source: &Url, current_dir: &Path) -> Result<Destination> {
    if text == "-" {
        let stdout = std::io::stdout();
        let file = own(&stdout)?;
        let goal = Goal::Stream(file);
        return Ok(Destination { goal, name: "standard output".into(), is_resumable: false });
    }
    let url = Url::parse(text, current_dir)?;
    let Some(path) = url.to_path() else {
        let url = match url.is_directory_form() {
            true => url.join(&format!("./{}", encoded_name(source)?))?,
            false => url,
        };
        let name = url.to_string();
        return Ok(Destination { goal: Goal::Upload(url), name, is_resumable: false });
    };
    let path = match fs::metadata(&path) {
        Ok(meta) if meta.is_dir() => path.join(plain_name(source)?),
        Err(_) if text.ends_with('/') => {
            let message = format!("{text} is no directory");
            return Err(Error::new(ErrorKind::NotFound, message).fault(Fault::Caller).hint("make it first"));
        }
        _ => path,
    };
    let name = path.display().to_string();
    match fs::metadata(&path) {
        Ok(meta) if meta.is_dir() => {
            let message = format!("{name} is a directory");
            Err(Error::new(ErrorKind::Precondition, message).fault(Fault::Caller))
        }
        Ok(meta) if !meta.is_file() => {
            refuse_planted(&path, &meta)?;
            let file = File::options().write(true).open(&path);
            let file = file.map_err(|cause| Error::local_io(format!("cannot open {name}"), &cause))?;
            Ok(Destination { goal: Goal::Stream(file), name, is_resumable: false })
        }
        _ => Ok(Destination { goal: Goal::File(path), name, is_resumable: true }),
    }
}

fn own(stdout: &std::io::Stdout) -> Result<File> {
    use std::os::fd::AsFd;
    let owned = stdout.as_fd().try_clone_to_owned();
    owned.map(File::from).map_err(|cause| Error::local_io("cannot use standard output", &cause))
}

/// The source's last name as a URL has it, if a file may be called so.
fn encoded_name(source: &Url) -> Result<&str> {
    let refused = |message: String| {
        Error::new(ErrorKind::Usage, message)
            .fault(Fault::Caller)
            .hint("name the target file, not its directory")
    };
    let encoded = source
        .file_name()
        .ok_or_else(|| refused(format!("{source} has no name that the target could take")))?;
    let name: Vec<u8> = percent_decode_str(encoded).collect();
    name::judge_entry(&name).map_err(|fault| refused(format!("{source} {fault}")))?;
    Ok(encoded)
}

/// The source's last name as a file system has it, if a file may be called so.
fn plain_name(source: &Url) -> Result<PathBuf> {
    let bytes: Vec<u8> = percent_decode_str(encoded_name(source)?).collect();
    Ok(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(text: &str, source: &str, dir: &Path) -> Result<Destination> {
        resolve(text, &Url::parse(source, dir).unwrap(), dir)
    }

    #[test]
    fn a_directory_gets_the_sources_name() {
        let dir = tempfile::tempdir().unwrap();
        for text in [".", "./", dir.path().to_str().unwrap()] {
            let found = resolved(text, "http://h/a/b%20c", dir.path()).unwrap();
            let Goal::File(path) = found.goal else { panic!("{text}") };
            assert_eq!(path.file_name().unwrap(), "b c");
        }
        let found = resolved("http://h/up/", "/x/a%b", dir.path()).unwrap();
        let Goal::Upload(url) = found.goal else { panic!() };
        assert_eq!(url.as_str(), "http://h/up/a%25b");
        let found = resolved("root://h//up%/", "http://g/a%20%25", dir.path()).unwrap();
        let Goal::Upload(url) = found.goal else { panic!() };
        assert_eq!(url.typed(), "root://h//up%/a %");
    }

    #[test]
    fn a_server_cannot_choose_a_name_outside_of_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        for source in [
            "http://h/%2e%2e%2fx",
            "http://h/a%2Fb",
            "http://h/a%00b",
            "http://h/",
            "http://h/d/",
            "http://h/.f.gridlane-part",
            "/d/%2Ef.gridlane-journal/.f.gridlane-journal",
        ] {
            for target in [".", "root://h//up/", "http://g/up/"] {
                assert!(resolved(target, source, dir.path()).is_err(), "{source} {target}");
            }
        }
        // What the user called so, is called so.
        assert!(resolved(".", "http://h/.bashrc", dir.path()).is_ok());
        assert!(resolved("mine", "http://h/.f.gridlane-part", dir.path()).is_ok());
    }

    #[test]
    fn devices_are_written_directly() {
        let dir = tempfile::tempdir().unwrap();
        let found = resolved("/dev/null", "http://h/a", dir.path()).unwrap();
        assert!(matches!(found.goal, Goal::Stream(_)));
        assert!(!found.is_resumable);
        let found = resolved("-", "http://h/a", dir.path()).unwrap();
        assert!(matches!(found.goal, Goal::Stream(_)));
        let error = resolved("missing/", "http://h/a", dir.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
