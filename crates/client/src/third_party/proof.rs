//! Proving a copy by a checksum that is known, whatever the target's server states.

use gridlane_core::{Checksum, Error, ErrorKind, Fault, Result, Url};
use gridlane_dav::digest;
use gridlane_peer::Client;

use super::terms::Unstated;

/// Compares the target's checksum with one that is right, of a kind that its server did not state with others. `unstated` says
/// how.
pub(super) async fn compare_unstated(
    client: &Client,
    target: &Url,
    right: &Checksum,
    unstated: Unstated,
) -> Result<()> {
    if unstated == Unstated::Fails {
        let message = format!(
            "the server states no {} of the copy: {right} cannot be compared",
            digest::name(right.kind())
        );
        let error = Error::new(ErrorKind::ChecksumMismatch, message).fault(Fault::Peer).endpoint(target);
        return Err(error.hint("let the bytes go through this machine"));
    }
    let found = crate::contents::checksum(client, target, right.kind()).await?;
    if found == *right { Ok(()) } else { Err(mismatch(target, &found, right)) }
}

/// The error of a target that has other bytes than the right ones.
pub(super) fn mismatch(target: &Url, found: &Checksum, right: &Checksum) -> Error {
    let message = format!("the copy has {found}, not {right}");
    Error::new(ErrorKind::ChecksumMismatch, message).fault(Fault::Peer).endpoint(target)
}
