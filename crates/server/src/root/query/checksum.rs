//! Checksums of whole files.

use std::sync::Arc;

use gridlane_auth::Operation;
use gridlane_store::{Opened, StoreError};
use gridlane_xrd::answer::checksum_text;
use gridlane_xrd::{ErrorCode, PathArg};

use super::super::places::Context;
use super::super::third_party;
use super::kind_named;
use gridlane_front::root::answer::{Answer, Failure, Outcome, printable_path};

const ACT: &str = "checksum";

/// The checksum of a file: one that is known, or else computed once for all requests at the same time.
pub(super) async fn checksum(context: &Context, about: &PathArg) -> Outcome {
    let kind = kind_named(about)?;
    let spot = third_party::spot_to_compare(context, about, ACT, Operation::Read).await?;
    let service = context.service();
    let failed = |error: &StoreError| Failure::of_store(ACT, &about.path, error);
    // It may wait for long, with the file open.
    let _room = service.open_files.room()?;
    let opened = spot.storage().open(&spot.object).await;
    let object = match opened.map_err(|error| failed(&error))? {
        Opened::File(object) => object,
        Opened::Directory => return Err(failed(&StoreError::NotAFile)),
    };
    let known = service.digests.kept(object.as_ref(), &[kind]).await.pop();
    let checksum = match known {
        Some(known) => Some(known),
        None => {
            let object = Arc::clone(&object);
            service.digests.of(&object, kind, spot.export.allow_write).await
        }
    };
    match checksum {
        Some(checksum) => Ok(Answer::Ok(checksum_text(&checksum))),
        None => {
            let why = "it cannot be read to its end, or is being changed; try again later";
            let text = format!("Unable to {ACT} {}; {why}", printable_path(&about.path));
            Err(Failure::new(ErrorCode::IO_ERROR, text))
        }
    }
}
