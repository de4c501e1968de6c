//! Files and directories are removed.

use gridlane_auth::Operation;
use gridlane_store::{Expectation, StoreError};
use gridlane_xrd::request::{Rm, Rmdir};

use super::places::{Context, Places as _};
use gridlane_front::root::answer::{Answer, Failure, Outcome};

const ACT: &str = "remove";

/// Answers `rm`: of a directory as `rmdir` does, as in XRootD, since clients that remove trees send nothing else.
pub(crate) async fn rm(context: &Context, request: &Rm) -> Outcome {
    let spot = context.spot(&request.about, ACT, Operation::Delete)?;
    let storage = spot.storage();
    let removed = match spot.object.is_root() {
        true => Err(StoreError::InUse),
        false => match storage.remove(&spot.object, &Expectation::Anything).await {
            Err(StoreError::NotAFile) => storage.remove_directory(&spot.object).await,
            removed => removed,
        },
    };
    removed.map_err(|error| Failure::of_store(ACT, &request.about.path, &error))?;
    Ok(Answer::done())
}

/// Answers `rmdir`: one that is not empty is `ItExists`.
pub(crate) async fn rmdir(context: &Context, request: &Rmdir) -> Outcome {
    let spot = context.spot(&request.about, ACT, Operation::Delete)?;
    let removed = match spot.object.is_root() {
        true => Err(StoreError::InUse),
        false => spot.storage().remove_directory(&spot.object).await,
    };
    removed.map_err(|error| Failure::of_store(ACT, &request.about.path, &error))?;
    Ok(Answer::done())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::{arg, bytes, code, context, context_of, error, export_at, stat_of, wait};
    use gridlane_xrd::ErrorCode;

    #[test]
    fn files_by_one_and_directories_by_either() {
        let context = context();
        let file = |path: &str| wait(rm(&context, &Rm { about: arg(path) }));
        let directory = |path: &str| wait(rmdir(&context, &Rmdir { about: arg(path) }));
        let (kind, text) = error(file("/d"));
        assert_eq!(
            (kind, text.as_str()),
            (ErrorCode::ITEM_EXISTS, "Unable to remove /d; directory not empty")
        );
        assert_eq!(code(file("/")), ErrorCode::NOT_AUTHORIZED);
        assert_eq!(code(file("/nope")), ErrorCode::NOT_FOUND);
        assert_eq!(code(directory("/nope")), ErrorCode::NOT_FOUND);
        assert_eq!(code(directory("/d")), ErrorCode::ITEM_EXISTS);
        assert_eq!(code(directory("/d/f")), ErrorCode::FS_ERROR);
        assert_eq!(code(directory("/")), ErrorCode::NOT_AUTHORIZED);
        assert_eq!(bytes(file("/d/f?x=y")), b"");
        assert_eq!(bytes(file("/d/e")), b"");
        assert_eq!(bytes(directory("/d/")), b"");
        assert_eq!(stat_of(&context, "/d"), None);
    }

    #[test]
    fn without_permission() {
        let context = context_of(vec![export_at("/a")], |_| {});
        assert_eq!(code(wait(rm(&context, &Rm { about: arg("/a/f") }))), ErrorCode::NOT_AUTHORIZED);
        assert_eq!(code(wait(rmdir(&context, &Rmdir { about: arg("/") }))), ErrorCode::NOT_AUTHORIZED);
    }
}
