//! The kinds of several paths.

use gridlane_core::limits;
use gridlane_xrd::flags::StatFlags;
use gridlane_xrd::request::Statx;
use gridlane_xrd::{ErrorCode, PathArg};

use super::answer::{Answer, Failure, Outcome};
use super::context::Context;
use super::stat;

/// Answers `statx`: a byte of flags for each path, and if one is missing a failure for all. May wait for the disk.
pub(crate) fn statx(context: &Context, request: &Statx) -> Outcome {
    if request.paths.is_empty() {
        return Err(Failure::new(ErrorCode::ARG_MISSING, "Required argument not present"));
    }
    if request.paths.len() > limits::ROOT_PATHS_MAX {
        return Err(Failure::new(ErrorCode::ARG_TOO_LONG, "too many paths in one request"));
    }
    let kind = |path: &Vec<u8>| {
        let text = stat::look(context, &PathArg::parse(path))?;
        // Of the low byte's flags XRootD tells only those of the kind.
        let kinds = StatFlags::DIRECTORY | StatFlags::OTHER | StatFlags::OFFLINE;
        Ok((text.flags.0 & kinds.0) as u8)
    };
    request.paths.iter().map(kind).collect::<Result<Vec<u8>, Failure>>().map(Answer::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::{bytes, code, context};

    #[test]
    fn a_byte_for_each() {
        let context = context();
        let of = |paths: &[&str]| {
            statx(&context, &Statx { paths: paths.iter().map(|path| path.as_bytes().to_vec()).collect() })
        };
        assert_eq!(bytes(of(&["/d", "/d/f?a=b"])), [2, 0]);
        assert_eq!(code(of(&["/d", "/nope"])), ErrorCode::NOT_FOUND);
        assert_eq!(code(of(&[])), ErrorCode::ARG_MISSING);
        assert_eq!(code(of(&["/d"; limits::ROOT_PATHS_MAX + 1])), ErrorCode::ARG_TOO_LONG);
    }
}
