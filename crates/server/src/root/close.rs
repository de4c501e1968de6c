//! `close` and `sync`, and the end of a session: what was written is brought to its file.

use std::sync::Arc;

use gridlane_front::root::answer::{Answer, Failure, Outcome};
use gridlane_front::root::log::{self, Closed};
use gridlane_xrd::ErrorCode;
use gridlane_xrd::request::{Close, Sync};

use super::files::FileState;
use super::places::Context;
use super::pull::cancelled;
use super::third_party;

/// Closes a file, after the requests that use it: those must be able to come to their end meanwhile.
pub(crate) async fn close(context: &Context, request: &Close) -> Outcome {
    let entry = context.session.files.remove(request.handle).ok_or_else(|| Failure::not_open("close"))?;
    // Those that wait for the end of a copy would keep it from being closed.
    let was_cut_short = entry.stop().await;
    let state = entry.settled().await;
    let outcome = match state.is_changing() {
        true if was_cut_short => Err(cancelled()),
        true => state.close(&context.service().digests).await,
        false => Ok(()),
    };
    end(context, state, outcome.as_ref().err()).await;
    outcome.map(|()| Answer::done())
}

/// Lets go of a file, and records that.
async fn end(context: &Context, state: Arc<FileState>, failure: Option<&Failure>) {
    let closed = Closed {
        path: &state.path,
        opened: state.opened,
        read_bytes: state.bytes_read(),
        written_bytes: state.bytes_written(),
        is_writable: state.is_changing(),
        failure,
    };
    log::closed(context, &state.spot.client, &closed);
    if let Some(state) = Arc::into_inner(state) {
        state.discard().await;
    }
}

/// Brings what was written to the device.
pub(crate) async fn sync(context: &Context, request: &Sync) -> Outcome {
    let file = context.session.files.get(request.handle, "sync")?;
    if let Some(pull) = file.pull() {
        return third_party::sync(context, pull, &file.path).await.map(|()| Answer::done());
    }
    if let Ok(changing) = file.changing("sync") {
        let synced = changing.file().sync().await;
        synced.map_err(|error| Failure::of_store("sync", &file.path, &error))?;
    }
    Ok(Answer::done())
}

/// Ends all files of a session that is over, after the requests that use them. A file that was to be hidden until its
/// close is gone, the rest stays as it is.
pub(crate) async fn end_all(context: &Context) {
    let left = Failure::new(ErrorCode::CANCELLED, "the client left without closing the file");
    for entry in context.session.files.end() {
        entry.stop().await;
        let state = entry.settled().await;
        end(context, state, Some(&left)).await;
    }
}
