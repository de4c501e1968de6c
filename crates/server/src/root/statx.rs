//! The kinds of several paths.

use gridlane_core::limits;
use gridlane_xrd::flags::StatFlags;
use gridlane_xrd::request::Statx;
use gridlane_xrd::{ErrorCode, PathArg};
use tokio::task::yield_now;

use super::places::Context;
use super::stat;
use gridlane_front::root::answer::{Answer, Failure, Outcome};

/// Answers `statx`: a byte of flags for each path, and if one is missing a failure for all. Other tasks have their
/// turns in between, however many there are.
pub(crate) async fn statx(context: &Context, request: &Statx) -> Outcome {
    if request.paths.is_empty() {
        return Err(Failure::new(ErrorCode::ARG_MISSING, "Required argument not present"));
    }
    if request.paths.len() > limits::ROOT_PATHS_MAX {
        return Err(Failure::new(ErrorCode::ARG_TOO_LONG, "too many paths in one request"));
    }
    context.count_paths(request.paths.len());
    let mut kinds = Vec::with_capacity(request.paths.len());
    for paths in request.paths.chunks(limits::ROOT_PATHS_PER_TURN) {
        for path in paths {
            let text = stat::look(context, &PathArg::parse(path)).await?;
            // Of the low byte's flags XRootD tells only those of the kind.
            let sent = StatFlags::DIRECTORY | StatFlags::OTHER | StatFlags::OFFLINE;
            kinds.push((text.flags.0 & sent.0) as u8);
        }
        // Many paths that need no wait must not hold up other tasks.
        yield_now().await;
    }
    Ok(Answer::Ok(kinds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::{bytes, code, context, context_of, export_at, lets_others_in};

    async fn of(context: &Context, paths: &[&str]) -> Outcome {
        let paths = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        statx(context, &Statx { paths }).await
    }

    #[tokio::test]
    async fn a_byte_for_each() {
        let context = context();
        assert_eq!(bytes(of(&context, &["/d", "/d/f?a=b"]).await), [2, 0]);
        assert_eq!(code(of(&context, &["/d", "/nope"]).await), ErrorCode::NOT_FOUND);
        assert_eq!(code(of(&context, &[]).await), ErrorCode::ARG_MISSING);
        assert_eq!(code(of(&context, &["/d"; limits::ROOT_PATHS_MAX + 1]).await), ErrorCode::ARG_TOO_LONG);
        let many = ["/d/f"; 3 * limits::ROOT_PATHS_PER_TURN + 1];
        assert_eq!(bytes(of(&context, &many).await), [0; 3 * limits::ROOT_PATHS_PER_TURN + 1]);
    }

    /// A long list is looked at in parts, and other tasks have their turns in between.
    #[tokio::test]
    async fn a_long_list_leaves_turns_to_others() {
        let context = context_of(vec![export_at("/")], |_| {});
        let many = ["/f"; 16 * limits::ROOT_PATHS_PER_TURN];
        let answer = lets_others_in(of(&context, &many)).await;
        assert_eq!(bytes(answer), [0; 16 * limits::ROOT_PATHS_PER_TURN]);
    }

    #[tokio::test]
    async fn paths_count_as_requests() {
        let context = context_of(vec![export_at("/")], |settings| {
            settings.client_limits.requests_per_s = Some(10);
        });
        let ask = || context.front().take_request(&context.client);
        assert_eq!(bytes(of(&context, &["/f"; 15]).await), [0; 15]);
        let (_, wait) = ask().unwrap_err();
        assert!(wait > std::time::Duration::from_millis(300), "{wait:?}");
    }
}
