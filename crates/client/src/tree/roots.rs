//! What a person means by `SRC… DST`.

use std::fs;
use std::path::{Path, PathBuf};

use gridlane_core::limits::SOURCES_LOOKED_AT_MAX;
use gridlane_core::{Error, ErrorKind, Fault, Result, Url};
use gridlane_dav::listing::EntryKind;
use tokio::task::JoinSet;

use crate::listing::Lister;
use crate::location::Location;
use crate::tree_path::TreePath;

/// Files and trees, with the directory that they go to.
#[derive(Clone, Debug)]
pub struct Roots {
    /// The roots that are copied.
    pub roots: Vec<Root>,
    /// The directory below which it goes.
    pub target: Location,
    /// True if that is there already.
    pub target_exists: bool,
}

/// A file or tree that is copied.
#[derive(Clone, Debug)]
pub struct Root {
    /// Where it is; with several, each has all of it. The first says what there is.
    pub sources: Vec<Location>,
    /// Its path below the target; the root's own path for the target itself.
    pub prefix: TreePath,
    /// True for a tree.
    pub is_directory: bool,
}

impl Root {
    /// The path below the target of what is at `path` of this root.
    pub(super) fn target(&self, path: &TreePath) -> Result<TreePath> {
        path.names().try_fold(self.prefix.clone(), |target, name| target.child(name))
    }
}

/// Turns what was typed into roots.
///
/// As `cp -r` has it: a tree goes into a `DST` that is a directory or ends with a slash, and becomes `DST`
/// otherwise. As rsync has it: of a `SRC` that ends with a slash (or is `.`), what is in it goes into `DST`.
/// Every mirror is another location of the only source. With `recursive`, sources may be trees.
pub async fn resolve_roots(
    lister: &Lister,
    sources: &[String],
    mirrors: &[String],
    target: &str,
    current_dir: &Path,
    recursive: bool,
) -> Result<Roots> {
    let target_url = Url::parse(target, current_dir)?;
    let kind = kind_of_target(lister, &target_url).await?;
    let means_directory = target.ends_with('/') || matches!(target, "." | "..");
    if kind == Some(EntryKind::File) && (sources.len() > 1 || means_directory || recursive) {
        let error = Error::new(ErrorKind::Precondition, "it is there and is no directory");
        return Err(error.fault(Fault::Caller).endpoint(&target_url));
    }
    let into = kind == Some(EntryKind::Directory) || means_directory;
    if sources.len() > 1 && !into {
        return Err(usage("several sources go into a directory, and there is none", &target_url)
            .hint("end its name with a slash: then it is made"));
    }
    let target = Location::of(&target_url);
    let mut roots = Vec::new();
    let urls = sources.iter().map(|text| Url::parse(text, current_dir)).collect::<Result<Vec<_>>>()?;
    let kinds = are_directories(lister, &urls).await?;
    for ((text, url), is_directory) in sources.iter().zip(urls).zip(kinds) {
        if is_directory && !recursive {
            return Err(gridlane_peer::http::is_directory(&url));
        }
        let source = match is_directory {
            true => Location::of(&Location::of(&url).directory(&TreePath::root())?),
            false => Location::of(&url),
        };
        let contents = is_directory && (text.ends_with('/') || ends_in_dots(text));
        let prefix = match into && !contents || !is_directory {
            true => {
                let name = source.name().ok_or_else(|| {
                    let error = usage("it has no name that it could have at the target", &url);
                    error.hint("with a slash at its end, what is in it is copied")
                })?;
                TreePath::root().child(&name)?
            }
            false => TreePath::root(),
        };
        let mut sources = vec![source];
        for mirror in mirrors {
            sources.push(Location::of(&Url::parse(mirror, current_dir)?));
        }
        let root = Root { sources, prefix, is_directory };
        if is_directory {
            refuse_into_itself(&root, &target)?;
        }
        if roots.iter().any(|other: &Root| other.prefix == root.prefix && !root.prefix.is_root()) {
            return Err(usage(format!("two sources would both become {}", root.prefix), &target_url));
        }
        roots.push(root);
    }
    Ok(Roots { roots, target, target_exists: kind == Some(EntryKind::Directory) })
}

/// Which of them are directories. Several are asked at a time: a round trip for each in turn would be waited for before
/// the first one is copied.
async fn are_directories(lister: &Lister, urls: &[Url]) -> Result<Vec<bool>> {
    let mut found = Vec::with_capacity(urls.len());
    for some in urls.chunks(SOURCES_LOOKED_AT_MAX) {
        let mut looks = JoinSet::new();
        for (at, url) in some.iter().cloned().enumerate() {
            let lister = lister.clone();
            looks.spawn(async move { (at, lister.is_directory(&url).await) });
        }
        let mut kinds = looks.join_all().await;
        kinds.sort_by_key(|(at, _)| *at);
        for (_, is_directory) in kinds {
            found.push(is_directory?);
        }
    }
    Ok(found)
}

/// `.`, `..` and what ends in them have no name of their own.
fn ends_in_dots(text: &str) -> bool {
    matches!(text.rsplit('/').next(), Some("." | ".."))
}

/// The kind of the target; `None`: there is none.
async fn kind_of_target(lister: &Lister, url: &Url) -> Result<Option<EntryKind>> {
    if let Some(path) = url.to_path() {
        return match fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => Ok(Some(EntryKind::Directory)),
            Ok(_) => Ok(Some(EntryKind::File)),
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(Error::local_io("cannot look at it", &cause).endpoint(url)),
        };
    }
    match lister.look_at(url).await {
        Ok(entry) => Ok(Some(entry.kind)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        // Directories that may be written to, but not looked at.
        Err(error) if url.is_directory_form() && is_refusal(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// True if a server refused, by whatever protocol, and will do so again.
fn is_refusal(error: &Error) -> bool {
    (error.status().is_some() || error.kind() == ErrorKind::Denied) && !error.is_retryable()
}

/// A copy that is put into its own source would find itself there.
fn refuse_into_itself(root: &Root, target: &Location) -> Result<()> {
    let is_inside = match (&root.sources[0], target) {
        (Location::Local(source), Location::Local(_)) => {
            let to = target.local(&root.prefix).unwrap_or_default();
            let source = fs::canonicalize(source).unwrap_or_else(|_| source.clone());
            real(&to).starts_with(source)
        }
        (source @ Location::Remote(at), Location::Remote(_)) => {
            let (from, to) = (source.directory(&TreePath::root())?, target.directory(&root.prefix)?);
            at.same_endpoint(&to) && to.encoded_path().starts_with(from.encoded_path())
        }
        _ => false,
    };
    match is_inside {
        true => {
            let to = target.file(&root.prefix)?;
            Err(usage(format!("a directory cannot be copied into itself ({to})"), &root.sources[0].url()?))
        }
        false => Ok(()),
    }
}

/// The path without links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let mut missing = Vec::new();
    let mut at = path;
    loop {
        if let Ok(found) = fs::canonicalize(at) {
            return missing.iter().rev().fold(found, |path, name| path.join(name));
        }
        match (at.file_name(), at.parent()) {
            (Some(name), Some(parent)) => {
                missing.push(name);
                at = parent;
            }
            _ => return path.to_path_buf(),
        }
    }
}

fn usage(message: impl Into<String>, url: &Url) -> Error {
    Error::new(ErrorKind::Usage, message).fault(Fault::Caller).endpoint(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn resolved(dir: &Path, sources: &[&str], target: &str) -> Result<Vec<(String, bool)>> {
        let lister = Lister::new(crate::connect(gridlane_net::tls::Trust::default()));
        let sources: Vec<String> = sources.iter().map(|text| (*text).to_owned()).collect();
        let roots = resolve_roots(&lister, &sources, &[], target, dir, true).await?;
        let places = roots.roots.iter().map(|root| {
            let path = roots.target.local(&root.prefix).unwrap();
            (path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned(), root.is_directory)
        });
        Ok(places.collect())
    }

    #[tokio::test]
    async fn where_things_go() {
        let dir = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(dir.path()).unwrap();
        for name in ["src", "there"] {
            fs::create_dir(dir.join(name)).unwrap();
        }
        fs::write(dir.join("f"), b"").unwrap();
        for (sources, target, expected) in [
            (&["src"][..], "there", &["there/src"][..]),
            (&["src"], "there/", &["there/src"]),
            (&["src"], "new", &["new"]),
            (&["src"], "new/", &["new/src"]),
            (&["src"], ".", &[]),
            (&["src/"], "there", &["there"]),
            (&["src/"], "new", &["new"]),
            (&["src/."], "new/", &["new"]),
            (&["src", "f"], "there", &["there/src", "there/f"]),
            (&["src", "f"], "new/", &["new/src", "new/f"]),
            (&["src", "f"], "new", &[]),
            (&["src"], "f", &[]),
            (&["src"], "src", &[]),
            (&["src"], "src/sub", &[]),
            (&["src", "./src"], "there", &[]),
            (&["missing"], "there", &[]),
        ] {
            let found = resolved(&dir, sources, target).await;
            match expected.is_empty() {
                true => assert!(found.is_err(), "{sources:?} {target}: {found:?}"),
                false => {
                    let found: Vec<String> = found.unwrap().into_iter().map(|(path, _)| path).collect();
                    assert_eq!(found, expected, "{sources:?} {target}");
                }
            }
        }
    }
}
