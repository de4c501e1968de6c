//! Permissions.

use gridlane_auth::Operation;
use gridlane_store::StoreError;
use gridlane_xrd::request::Chmod;

use super::places::{Context, Places as _};
use gridlane_front::root::answer::{Answer, Failure, Outcome};

/// Permissions that a client can give. Write access for all others is none of them, as in XRootD.
pub(super) const MODE_MAX: u32 = 0o775;

/// Answers `chmod`.
pub(crate) async fn chmod(context: &Context, request: &Chmod) -> Outcome {
    // "Change" is XRootD's word.
    const ACT: &str = "change";
    let spot = context.spot(&request.about, ACT, Operation::Overwrite)?;
    let changed = match spot.storage().posix() {
        Some(posix) => posix.set_mode(&spot.object, u32::from(request.mode) & MODE_MAX).await,
        None => Err(StoreError::Unsupported),
    };
    changed.map_err(|error| Failure::of_store(ACT, &request.about.path, &error))?;
    Ok(Answer::done())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::{arg, code, context, stat_of, wait};
    use gridlane_xrd::ErrorCode;

    #[test]
    fn any_mode_but_write_access_for_others() {
        let context = context();
        let change = |path: &str, mode| wait(chmod(&context, &Chmod { about: arg(path), mode }));
        let mode = || stat_of(&context, "/d/f").unwrap().more.unwrap().mode & 0o7777;
        for (wanted, got) in [(0o600, 0o600), (0o777, 0o775), (0o4755, 0o755), (0, 0)] {
            assert!(change("/d/f", wanted).is_ok());
            assert_eq!(mode(), got, "{wanted:o}");
        }
        assert_eq!(stat_of(&context, "/d/f").unwrap().flags.0, 0);
        assert_eq!(code(change("/nope", 0o600)), ErrorCode::NOT_FOUND);
    }
}
