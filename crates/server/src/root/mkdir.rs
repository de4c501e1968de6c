//! New directories.

use gridlane_auth::Operation;
use gridlane_store::StoreError;
use gridlane_xrd::request::Mkdir;

use super::places::{Context, Places as _, allowed};
use crate::export::Place;
use crate::mkcol::missing_that_may_not_be_made;
use gridlane_front::root::answer::{Answer, Failure, Outcome};

const ACT: &str = "mkdir";

/// Answers `mkdir`.
///
/// What is there already is `ItExists`, unless directories that lead to it may be made as well (`mkdir -p`) and it is a
/// directory.
pub(crate) async fn mkdir(context: &Context, request: &Mkdir) -> Outcome {
    let failed = |error: StoreError| Err(Failure::of_store(ACT, &request.about.path, &error));
    if let Place::Above(_) = context.place(&request.about)? {
        return if request.parents { Ok(Answer::done()) } else { failed(StoreError::Unexpected) };
    }
    let spot = context.spot(&request.about, ACT, Operation::Mkdir)?;
    let storage = spot.storage();
    if request.parents {
        match storage.look(&spot.object).await {
            Ok(there) if there.is_directory() => return Ok(Answer::done()),
            Ok(_) => return failed(StoreError::Unexpected),
            Err(StoreError::NotFound) => {}
            Err(error) => return failed(error),
        }
    }
    // A client that does not ask for parents means it: `create-parents` is for protocols that cannot ask.
    if let Some((parent, _)) = spot.object.split_last()
        && request.parents
    {
        match missing_that_may_not_be_made(&spot, &parent).await {
            Ok(None) => {}
            Ok(Some(refused)) => allowed(&refused, &request.about, ACT, Operation::Mkdir)?,
            Err(error) => return failed(error),
        }
        if let Err(error) = storage.make_directories(&parent).await {
            return failed(error);
        }
    }
    match storage.make_directory(&spot.object).await {
        Ok(()) => {}
        // Another request made it just now.
        Err(StoreError::Unexpected)
            if request.parents
                && storage.look(&spot.object).await.is_ok_and(|there| there.is_directory()) =>
        {
            return Ok(Answer::done());
        }
        Err(error) => return failed(error),
    }
    match set_mode(storage, &spot.object, request.mode).await {
        // A storage without permissions has none to set.
        Ok(()) | Err(StoreError::Unsupported) => Ok(Answer::done()),
        Err(error) => failed(error),
    }
}

/// Takes permissions that the client does not want from a new directory: those that the umask takes stay away.
async fn set_mode(
    storage: &dyn gridlane_store::Storage,
    object: &gridlane_store::ObjectPath,
    mode: u16,
) -> Result<(), StoreError> {
    let Some(posix) = storage.posix() else { return Ok(()) };
    let has = storage.look(object).await?.mode & 0o777;
    // 0 stands for none given, and the owner, which is this server, has to get in.
    let wanted = (u32::from(mode) | 0o700) & has;
    if mode == 0 || wanted == has { Ok(()) } else { posix.set_mode(object, wanted).await }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::{arg, bytes, code, context, context_of, export_at, stat_of, wait};
    use gridlane_xrd::ErrorCode;

    fn make(context: &Context, path: &str, parents: bool, mode: u16) -> Outcome {
        wait(mkdir(context, &Mkdir { about: arg(path), parents, mode }))
    }

    #[test]
    fn new_ones() {
        let context = context();
        assert_eq!(bytes(make(&context, "/new", false, 0o750)), b"");
        assert_eq!(stat_of(&context, "/new").unwrap().more.unwrap().mode & 0o777, 0o750);
        assert_eq!(code(make(&context, "/x/y/z", false, 0)), ErrorCode::NOT_FOUND);
        assert_eq!(bytes(make(&context, "/x/y/z", true, 0o700)), b"");
        assert_eq!(stat_of(&context, "/x/y/z").unwrap().more.unwrap().mode & 0o777, 0o700);
        assert_ne!(stat_of(&context, "/x/y").unwrap().more.unwrap().mode & 0o777, 0o700);
    }

    #[test]
    fn existing_names() {
        let context = context();
        for (path, parents, expected) in [
            ("/d", false, Some(ErrorCode::ITEM_EXISTS)),
            ("/d/f", false, Some(ErrorCode::ITEM_EXISTS)),
            ("/", false, Some(ErrorCode::ITEM_EXISTS)),
            ("/d", true, None),
            ("/", true, None),
            ("/d/f", true, Some(ErrorCode::ITEM_EXISTS)),
            ("/d/f/g", true, Some(ErrorCode::FS_ERROR)),
        ] {
            assert_eq!(
                make(&context, path, parents, 0).err().map(|failure| failure.code),
                expected,
                "{path}"
            );
        }
    }

    #[test]
    fn without_permission() {
        let context = context_of(vec![export_at("/a/b")], |_| {});
        assert_eq!(code(make(&context, "/a/b/new", true, 0)), ErrorCode::NOT_AUTHORIZED);
        assert_eq!(code(make(&context, "/a", false, 0)), ErrorCode::ITEM_EXISTS);
        assert_eq!(bytes(make(&context, "/a", true, 0)), b"");
        assert_eq!(code(make(&context, "/other", true, 0)), ErrorCode::NOT_FOUND);
        assert_eq!(code(make(&context, "/a/b/.gridlane", true, 0)), ErrorCode::NOT_FOUND);
    }
}
