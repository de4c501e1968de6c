//! Facts about the server, a file or a file system.

mod checksum;
mod config;
mod space;
mod stats;
mod xattr;

use gridlane_core::ChecksumKind;
use gridlane_xrd::request::Query;
use gridlane_xrd::{ErrorCode, PathArg, QueryKind};

use super::answer::{Answer, Failure, Outcome, shown};
use super::context::Context;
use super::prepare;

/// Answers `query`. Where it waits for a disk it finds a place for that itself. A checksum may take half an hour: the
/// caller tells a client that has waited for a while that the answer comes later, and drops this when the client is
/// gone.
pub(crate) async fn query(context: &Context, request: &Query) -> Outcome {
    let by_handle = matches!(request.kind, QueryKind::VISA | QueryKind::OPAQUE_HANDLE);
    if request.argument.is_empty() || by_handle && QueryKind::KNOWN.contains(&request.kind) {
        // XRootD takes a question without an argument for one about a handle.
        let file = context.session.files.get(request.handle);
        file.map_err(|_| Failure::new(ErrorCode::FILE_NOT_OPEN, "query does not refer to an open file"))?;
        return match by_handle {
            true => Err(Failure::new(ErrorCode::UNSUPPORTED, "Unable to fctl; operation not supported")),
            false => Err(Failure::new(ErrorCode::ARG_MISSING, "Required argument not present")),
        };
    }
    let about = || PathArg::parse(&request.argument);
    match request.kind {
        QueryKind::CONFIG => config::config(context, &request.argument),
        QueryKind::CHECKSUM => checksum::checksum(context, &about()).await,
        QueryKind::SPACE => context.shared.disk.run(|| space::space(context, &about())).await,
        QueryKind::XATTR => context.shared.disk.run(|| xattr::xattr(context, &about())).await,
        QueryKind::STATS => Ok(stats::stats(context, &request.argument)),
        QueryKind::PREPARE => Err(prepare::unknown()),
        // Computations end by themselves when nobody waits for them any longer.
        QueryKind::CHECKSUM_CANCEL => Ok(Answer::done()),
        QueryKind::OPAQUE | QueryKind::OPAQUE_FILE => {
            Err(Failure::new(ErrorCode::UNSUPPORTED, "Unable to FSctl; operation not supported"))
        }
        _ => Err(Failure::new(ErrorCode::ARG_INVALID, "Invalid information query type code")),
    }
}

/// The checksum that `cks.type` names, in any case; Adler-32 where it is not said.
pub(super) fn kind_named(about: &PathArg) -> Result<ChecksumKind, Failure> {
    let Some(name) = about.value("cks.type").filter(|name| !name.is_empty()) else {
        return Ok(ChecksumKind::Adler32);
    };
    let named = |kind: &&ChecksumKind| kind.name().as_bytes().eq_ignore_ascii_case(name);
    ChecksumKind::OFFERED.iter().find(named).copied().ok_or_else(|| {
        Failure::new(ErrorCode::SERVER_ERROR, format!("{} checksum not supported.", shown(name)))
    })
}
