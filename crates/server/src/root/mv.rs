//! Renames.

use std::sync::Arc;

use gridlane_auth::Operation;
use gridlane_store::{Expectation, Overwrite, StoreError};
use gridlane_xrd::request::Mv;

use super::places::{Context, Places as _, allowed, denied};
use crate::export::MayStore;
use crate::mkcol::missing_that_may_not_be_made;
use crate::relocate;
use gridlane_front::root::answer::{Answer, Failure, Outcome};

const ACT: &str = "rename";

/// Answers `mv`: a file replaces a file, and nothing replaces a directory.
pub(crate) async fn mv(context: &Context, request: &Mv) -> Outcome {
    let failed = |error: StoreError| Failure::of_store(ACT, &request.from.path, &error);
    let from = context.spot(&request.from, ACT, Operation::Rename)?;
    let to = context.spot_any(&request.to, ACT, &[Operation::Create, Operation::Overwrite])?;
    // A client that could move it to where it may read could read it.
    if to.may(Operation::Read) {
        allowed(&from, &request.from, ACT, Operation::Read)?;
    }
    if !Arc::ptr_eq(&from.export, &to.export) {
        return Err(failed(StoreError::AcrossDevices));
    }
    let storage = from.storage();
    let posix = storage.posix().ok_or_else(|| failed(StoreError::Unsupported))?;
    let source = storage.look(&from.object).await.map_err(failed)?;
    if source.is_directory() {
        allowed(&to, &request.to, ACT, Operation::Mkdir)?;
        // It could also see of it what it may not see where it is, wherever below its rights begin.
        for seen in [Operation::Read, Operation::List] {
            if to.reaches(seen) {
                allowed(&from, &request.from, ACT, seen)?;
            }
        }
    }
    if from.object == to.object {
        return Ok(Answer::done());
    }
    if from.object.is_root() {
        return Err(failed(StoreError::InUse));
    }
    let target = match storage.look(&to.object).await {
        Ok(target) => Some(target),
        Err(StoreError::NotFound) => None,
        Err(error) => return Err(failed(error)),
    };
    match &target {
        Some(target) if target.is_directory() && !posix.is_link(&to.object).await.map_err(failed)? => {
            return Err(failed(StoreError::NotAFile));
        }
        Some(_) if source.is_directory() => return Err(failed(StoreError::NotADirectory)),
        _ => {}
    }
    let may = to.may_store(target.is_some()).map_err(|denial| denied(&to, &request.to, ACT, denial))?;
    if let Some((parent, _)) = to.object.split_last()
        && to.export.compat.create_parents
    {
        if let Some(refused) = missing_that_may_not_be_made(&to, &parent).await.map_err(failed)? {
            allowed(&refused, &request.to, ACT, Operation::Mkdir)?;
        }
        storage.make_directories(&parent).await.map_err(failed)?;
    }
    let ends = (&from.object, &to.object);
    // Whatever is made there meanwhile, no directory is replaced.
    let overwrite = if target.is_some() { Overwrite::Files } else { Overwrite::Nothing };
    let source = (&source, &Expectation::Anything);
    match relocate::rename(&context.service().digests, storage, ends, overwrite, source).await {
        Err(StoreError::Unexpected) if may == MayStore::New => {
            allowed(&to, &request.to, ACT, Operation::Overwrite)?;
            Err(failed(StoreError::Unexpected))
        }
        renamed => renamed.map(|_| Answer::done()).map_err(failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Export;
    use crate::root::testing::{arg, bytes, code, context, context_of, export_at, path, stat_of, wait};
    use gridlane_auth::policy::{Principal, Template};
    use gridlane_auth::{Grants, Policy, Rule};
    use gridlane_store::MemoryStorage;
    use gridlane_xrd::ErrorCode;

    fn rename(context: &Context, from: &str, to: &str) -> Outcome {
        wait(mv(context, &Mv { from: arg(from), to: arg(to) }))
    }

    #[test]
    fn moves_that_succeed_and_that_fail() {
        let context = context();
        for (from, to, expected) in [
            ("/nope", "/x", ErrorCode::NOT_FOUND),
            ("/d/f", "/no/x", ErrorCode::NOT_FOUND),
            ("/d/f", "/d/e", ErrorCode::IS_DIRECTORY),
            ("/d/e", "/d", ErrorCode::IS_DIRECTORY),
            ("/d/e", "/d/f", ErrorCode::FS_ERROR),
            ("/d", "/d/e/x", ErrorCode::ARG_INVALID),
            ("/", "/x", ErrorCode::NOT_AUTHORIZED),
        ] {
            assert_eq!(code(rename(&context, from, to)), expected, "{from} {to}");
        }
        assert_eq!(bytes(rename(&context, "/d/f", "/d/f")), b"");
        assert_eq!(bytes(rename(&context, "/d/f?a=b", "/g")), b"");
        assert_eq!((stat_of(&context, "/d/f"), stat_of(&context, "/g").unwrap().size_bytes), (None, 5));
        assert_eq!(bytes(rename(&context, "/d", "/moved")), b"");
        assert!(stat_of(&context, "/moved/e").unwrap().is_directory());
    }

    #[test]
    fn where_directories_are_made() {
        let mut export = Export { allow_write: true, ..export_at("/") };
        export.compat.create_parents = true;
        let context = context_of(vec![export], |_| {});
        assert_eq!(bytes(rename(&context, "/f", "/no/such/f")), b"");
        assert!(stat_of(&context, "/no/such/f").is_some());
    }

    #[test]
    fn a_file_replaces_a_file() {
        let context = context_of(vec![Export { allow_write: true, ..export_at("/") }], |_| {});
        let storage = context.spot(&arg("/f"), "", Operation::Overwrite).unwrap();
        wait(async {
            let upload = storage.storage().create(&crate::root::testing::path("g"), None).await.unwrap();
            upload.write_at(b"longer", 0).await.unwrap();
            upload.commit(&Expectation::Anything.into()).await.unwrap();
        });
        assert_eq!(bytes(rename(&context, "/g", "/f")), b"");
        assert_eq!(stat_of(&context, "/f").unwrap().size_bytes, 6);
    }

    #[test]
    fn nothing_is_moved_to_above_where_it_could_be_read() {
        let storage = MemoryStorage::new();
        for directory in ["private", "private/sub", "private/other"] {
            storage.add_directory(&path(directory));
        }
        let export = Export { allow_write: true, ..Export::new(Arc::new(storage)) };
        let context = context_of(vec![export], |settings| {
            let rule = |may, under| Rule {
                name: String::new(),
                who: Principal::anyone(),
                may,
                under: Template::parse(under).unwrap(),
            };
            let changes = Grants::CREATE.with(Grants::DELETE);
            settings.policy =
                Arc::new(Policy::new(vec![rule(changes, "/"), rule(Grants::READ, "/open/sub")]));
        });
        for (from, to) in [("/private", "/open"), ("/private/sub", "/open/sub")] {
            assert_eq!(code(rename(&context, from, to)), ErrorCode::NOT_AUTHORIZED, "{from} {to}");
        }
        assert_eq!(bytes(rename(&context, "/private/other", "/elsewhere")), b"");
    }

    #[test]
    fn between_exports_and_without_permission() {
        let exports = vec![
            Export { allow_write: true, ..export_at("/a") },
            Export { allow_write: true, ..export_at("/b") },
            export_at("/c"),
        ];
        let context = context_of(exports, |_| {});
        assert_eq!(code(rename(&context, "/a/f", "/b/g")), ErrorCode::FS_ERROR);
        assert_eq!(code(rename(&context, "/a/f", "/c/g")), ErrorCode::NOT_AUTHORIZED);
        assert_eq!(code(rename(&context, "/c/f", "/a/g")), ErrorCode::NOT_AUTHORIZED);
        assert_eq!(code(rename(&context, "/a/f", "g")), ErrorCode::NOT_AUTHORIZED);
    }
}
