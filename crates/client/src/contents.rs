//! The contents of one file: its checksum, and its bytes in order.

use std::fs::File;

use gridlane_core::{Checksum, ChecksumKind, Error, ErrorKind, Result, Scheme, Url};
use gridlane_engine::{CopySpec, Event, Observer, Options, TargetSpec, copy};
use gridlane_peer::Client;
use gridlane_peer::http::is_directory as is_directory_error;

use crate::root;

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
pub(crate) struct Unwatched;

impl Observer for Unwatched {
    fn event(&mut self, _: &Event<'_>) {}
}
