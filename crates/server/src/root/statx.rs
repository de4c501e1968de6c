//! The kinds of several paths.

use gridlane_core::limits;
use gridlane_share::Turns;
use gridlane_xrd::flags::StatFlags;
use gridlane_xrd::request::Statx;
use gridlane_xrd::{ErrorCode, PathArg};
use std::sync::Arc;

use super::places::{Context, Places as _};
use super::stat;
use gridlane_front::root::answer::{Answer, Failure, Outcome};

/// Answers `statx`: a byte of flags for each path, and if one is missing a failure for all. A few paths are looked at in
/// each turn at the disk, however many there are.
pub(crate) async fn statx(context: &Context, request: &Statx) -> Outcome {
    if request.paths.is_empty() {
        return Err(Failure::new(ErrorCode::ARG_MISSING, "Required argument not present"));
    }
    if request.paths.len() > limits::ROOT_PATHS_MAX {
        return Err(Failure::new(ErrorCode::ARG_TOO_LONG, "too many paths in one request"));
    }
    context.count_paths(request.paths.len());
    let kind = |path: &Vec<u8>| {
        let text = stat::look(context, &PathArg::parse(path))?;
        // Of the low byte's flags XRootD tells only those of the kind.
        let kinds = StatFlags::DIRECTORY | StatFlags::OTHER | StatFlags::OFFLINE;
        Ok((text.flags.0 & kinds.0) as u8)
    };
    let mut kinds = Vec::with_capacity(request.paths.len());
    for paths in request.paths.chunks(limits::ROOT_PATHS_PER_TURN) {
        for (turns, paths) in by_device(context, paths, |path| PathArg::parse(path)) {
            let look = || paths.iter().map(kind).collect::<Result<Vec<u8>, Failure>>();
            kinds.extend(turns.run(look).await?);
        }
    }
    Ok(Answer::Ok(kinds))
}

/// Paths that lead to the same device, one behind the other, with the turns there.
pub(crate) fn by_device<'a, T>(
    context: &Context,
    paths: &'a [T],
    about: impl Fn(&T) -> PathArg,
) -> Vec<(Arc<Turns>, &'a [T])> {
    let mut found: Vec<(Arc<Turns>, &[T])> = Vec::new();
    let mut begin = 0;
    for (at, path) in paths.iter().enumerate() {
        let turns = context.turns(&about(path));
        match found.last_mut() {
            Some((last, same)) if Arc::ptr_eq(last, &turns) => *same = &paths[begin..=at],
            _ => {
                begin = at;
                found.push((turns, &paths[at..=at]));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::{bytes, code, context, context_of, export_at, leaves_turns};
    use gridlane_share::Share;

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

    /// Of a long list a part is looked at in each turn at the disk, and others have theirs in between.
    #[tokio::test]
    async fn a_long_list_leaves_turns_to_others() {
        let one = Share { all: 1, one: 1 };
        let context = context_of(vec![export_at("/")], |settings| settings.service.device.operations = one);
        let many = ["/f"; 16 * limits::ROOT_PATHS_PER_TURN];
        let told = leaves_turns(&context, of(&context, &many)).await;
        assert_eq!(bytes(told), [0; 16 * limits::ROOT_PATHS_PER_TURN]);
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
