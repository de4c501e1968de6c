//! `truncate`: changes of a file's length.

use gridlane_auth::Operation;
use gridlane_store::{Disposition, StoreError, StoreResult, WriteOptions};
use gridlane_xrd::request::{About, Truncate};

use super::places::{Context, Places as _};
use crate::export::Spot;
use gridlane_front::root::answer::{Answer, Failure, Outcome};

/// Changes the length of an open file, or of one at a path: that one, as in XRootD, without regard to sessions that
/// have it open.
pub(crate) async fn truncate(context: &Context, request: &Truncate) -> Outcome {
    let size_bytes = request.size_bytes;
    match &request.about {
        About::Handle(handle) => {
            let file = context.session.files.get(*handle, "trunc")?;
            let changing = file.changing("truncate")?;
            file.check_size("truncate", size_bytes)?;
            changing.cut();
            let outcome = changing.file().truncate(size_bytes).await;
            outcome.map_err(|error| Failure::of_store("truncate", &file.path, &error))?;
        }
        About::Path(about) => {
            const ACT: &str = "trunc";
            let spot = context.spot(about, ACT, Operation::Overwrite)?;
            let outcome = truncate_at(&spot, size_bytes).await;
            outcome.map_err(|error| Failure::of_store(ACT, &about.path, &error))?;
        }
    }
    Ok(Answer::done())
}

async fn truncate_at(spot: &Spot, size_bytes: u64) -> StoreResult<()> {
    if size_bytes > spot.export.upload_bytes_max {
        return Err(StoreError::TooLarge);
    }
    let posix = spot.storage().posix().ok_or(StoreError::Unsupported)?;
    let options = WriteOptions::new(Disposition::Existing);
    let file = posix.open_writable(&spot.object, &options).await?;
    file.truncate(size_bytes).await?;
    file.close(None).await?;
    file.discard().await;
    Ok(())
}
