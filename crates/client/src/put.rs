//! Files written from memory.

use std::path::Path;

use gridlane_core::{Error, ErrorKind, Hint, Result, Url};
use gridlane_engine::{CopySpec, Options, StoredSource, TargetSpec, copy};
use gridlane_peer::Client;

use crate::contents::Unwatched;
use crate::{file_target, journal_keys, make_directory};

/// Writes a file from memory, or from whatever `stored` has, with the directories that it should be in if `parents` wants them.
///
/// # Errors
///
/// As a copy has them; of `parents`, that the directories cannot be made.
pub async fn put(
    client: &Client,
    url: &Url,
    stored: &StoredSource,
    overwrite: bool,
    parents: bool,
) -> Result<()> {
    let missing = match send(client, url, stored, overwrite).await {
        Err(error) if parents && is_without_directory(&error) => error,
        outcome => return outcome,
    };
    if url.is_directory_form() {
        return Err(missing);
    }
    make_directory(client, &url.join("./")?, true).await?;
    send(client, url, stored, overwrite).await
}

/// True if it says that what the file should be in is not there, or may.
fn is_without_directory(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.advice() == Some(&Hint::MakeDirectory)
}

async fn send(client: &Client, url: &Url, stored: &StoredSource, overwrite: bool) -> Result<()> {
    // Only its name in messages.
    let sources = vec![Url::from_path(Path::new("/memory"))?];
    let target = match url.to_path() {
        Some(path) => file_target(path, overwrite, journal_keys()),
        None => TargetSpec::Upload { url: url.clone(), overwrite, modified: None },
    };
    let options = Options { stored: Some(stored.clone()), ..Options::default() };
    let spec = CopySpec { sources, target, options };
    copy(spec, client.clone(), &mut Unwatched, std::future::pending()).await.result
}
