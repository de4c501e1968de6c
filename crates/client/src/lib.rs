//! The operations of a user, in terms of the engine: copies, trees, metalinks, listings, names, checksums, diagnosis.
//!
//! Every call takes URLs of any scheme; an operation that a scheme lacks is an error of kind `Unsupported`. Bytes
//! of files move through `gridlane-engine` only; this crate decides names and asks short questions.

mod backlog;
mod copies;
pub mod credentials;
pub mod doctor;
pub mod events;
mod files;
mod filter;
mod item;
mod listing;
mod location;
mod macaroon;
mod metalink;
mod namespace;
mod root;
mod session;
mod target;
pub mod third_party;
mod threads;
mod tree;
mod tree_path;
mod walk;

use std::fs::File;
use std::time::Duration;

use gridlane_core::{Checksum, ChecksumKind, Error, ErrorKind, Result, Scheme, Url};
use gridlane_engine::{CopySpec, Event, Observer, Options, TargetSpec, copy};
use gridlane_peer::Client;
use gridlane_peer::http::is_directory as is_directory_error;

pub use copies::rules::{Action, Existing};
pub use copies::{Copies, CopyEvent, CopyObserver, CopyOutcome, CopyRequest, Kept, journal_keys, patient};
pub use files::{Stat, remove, stat};
pub use filter::Filter;
pub use gridlane_dav::listing::{Entry, EntryKind};
pub use gridlane_dav::path::encode_name;
pub use item::{Item, OddKind, Space};
pub use listing::{Lister, Listing};
pub use location::Location;
pub use macaroon::{GivenMacaroon, ask_macaroon};
pub use metalink::{Replicas, replicas};
pub use namespace::{make_directory, remove_tree, rename, space};
pub use session::{Session, connect, quiet_session, session, unsent};
pub use target::file_target;
pub use threads::bound_devices;
pub use tree::*;
pub use tree_path::TreePath;
pub use walk::{Walk, WalkObserver, failure_of, walk};

/// Longest wait for the answer to a short request.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Fails if a URL or path can name nothing but a directory, where a file is asked for. No server is asked: what it says of
/// others is found out when it is.
pub fn refuse_directory(url: &Url) -> Result<()> {
    let says_so = match url.to_path() {
        Some(path) => path.is_dir(),
        None => url.is_directory_form(),
    };
    if says_so { Err(is_directory_error(url)) } else { Ok(()) }
}

/// The checksum of a file: the server's word if it gives one, else computed from the bytes.
pub async fn checksum(client: &Client, url: &Url, kind: ChecksumKind) -> Result<Checksum> {
    refuse_directory(url)?;
    let said = match url.scheme() {
        Scheme::File => None,
        Scheme::Root | Scheme::Roots => root::checksum(&client.root, url, kind).await?,
        Scheme::Http | Scheme::Https => {
            let want = [("Want-Digest", gridlane_dav::digest::name(kind).to_owned())];
            let exchange = client.http.request("HEAD", url, &want).await?;
            refuse_directory(&exchange.url)?;
            exchange.response.head.digests().into_iter().find(|said| said.kind() == kind)
        }
    };
    if let Some(checksum) = said {
        return Ok(checksum);
    }
    let nowhere = File::options().write(true).open("/dev/null");
    let nowhere = nowhere.map_err(|cause| Error::local_io("cannot open /dev/null", &cause))?;
    let spec = CopySpec {
        sources: vec![url.clone()],
        target: TargetSpec::pipe(nowhere),
        options: Options { checksum: Some((kind, None)), ..Options::default() },
    };
    let outcome = copy(spec, client.clone(), &mut Unwatched, std::future::pending()).await;
    outcome.result?;
    outcome.report.checksum.ok_or_else(|| Error::new(ErrorKind::Other, "the copy ended without a checksum"))
}

/// Writes a file's bytes to `output`, in order.
pub async fn cat(client: &Client, url: &Url, output: File) -> Result<()> {
    refuse_directory(url)?;
    let spec = CopySpec {
        sources: vec![url.clone()],
        target: TargetSpec::pipe(output),
        options: Options::default(),
    };
    copy(spec, client.clone(), &mut Unwatched, std::future::pending()).await.result
}

/// An observer that ignores everything.
struct Unwatched;

impl Observer for Unwatched {
    fn event(&mut self, _: &Event<'_>) {}
}
