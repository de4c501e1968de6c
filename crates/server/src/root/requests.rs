//! Dispatch of requests over root://.

use gridlane_xrd::{ErrorCode, Request};

use super::places::Context;
use super::{
    chmod, close, dirlist, fattr, locate, mkdir, mv, open, prepare, query, rm, stat, statx, truncate,
};
use gridlane_front::root::answer::{Failure, Outcome};

/// Answers a request that may have to wait.
pub(crate) async fn answer(context: &Context, request: &Request) -> Outcome {
    match request {
        Request::Open(request) => open::open(context, request).await,
        Request::Close(request) => close::close(context, request).await,
        Request::Sync(request) => close::sync(context, request).await,
        Request::Truncate(request) => truncate::truncate(context, request).await,
        Request::Query(request) => query::query(context, request).await,
        Request::Stat(request) => stat::stat(context, request).await,
        Request::Statx(request) => statx::statx(context, request).await,
        Request::Dirlist(request) => dirlist::dirlist(context, request).await,
        Request::Mkdir(request) => mkdir::mkdir(context, request).await,
        Request::Rm(request) => rm::rm(context, request).await,
        Request::Rmdir(request) => rm::rmdir(context, request).await,
        Request::Mv(request) => mv::mv(context, request).await,
        Request::Chmod(request) => chmod::chmod(context, request).await,
        Request::Locate(request) => locate::locate(context, request).await,
        Request::Fattr(request) => fattr::fattr(context, request).await,
        Request::Prepare(request) => prepare::prepare(context, request).await,
        // It is not in the version of the protocol that is announced.
        Request::Clone(_) => Err(Failure::new(ErrorCode::UNSUPPORTED, "ranges of files are not cloned")),
        // What the machine keeps to itself, what brings data, and what is answered at once.
        _ => Err(Failure::new(ErrorCode::INVALID_REQUEST, "Invalid request code")),
    }
}

/// The same at once, where that needs no wait.
pub(crate) fn answer_nowait(context: &Context, request: &Request) -> Option<Outcome> {
    match request {
        Request::Stat(request) => stat::stat_nowait(context, request),
        _ => None,
    }
}
