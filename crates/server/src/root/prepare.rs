//! Files are brought to disk, or may leave it: here all of them are on disk, for good.

use std::sync::atomic::{AtomicU64, Ordering};

use gridlane_auth::Operation;
use gridlane_core::limits;
use gridlane_xrd::flags::PrepareOptions;
use gridlane_xrd::request::Prepare;
use gridlane_xrd::{ErrorCode, PathArg};
use serde_json::json;

use super::places::{Context, Places as _};
use super::stat;
use gridlane_front::root::answer::{Answer, Failure, Outcome};
use gridlane_front::root::identity::lines_of;

const ACT: &str = "prepare";

/// The beginning of the names of this server's requests.
const NAME_PREFIX: &str = "gridlane";

/// Requests that were given a name.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// Answers `prepare`. As in XRootD the paths are not looked at, and staging gets a name by which clients ask for its
/// state: it is done.
pub(crate) async fn prepare(context: &Context, request: &Prepare) -> Outcome {
    let Some(first) = request.lines.first() else {
        return Err(Failure::new(ErrorCode::ARG_MISSING, "Required argument not present"));
    };
    if request.options.has(PrepareOptions::CANCEL) {
        return if is_ours(first) { Ok(Answer::done()) } else { Err(unknown()) };
    }
    context.count_paths(request.lines.len());
    if request.options.has(PrepareOptions::STAGE) || request.evicts {
        for (number, line) in (1..).zip(&request.lines) {
            if number % limits::ROOT_PATHS_PER_TURN == 0 {
                // Nothing here waits, and others have their turn.
                tokio::task::yield_now().await;
            }
            context.spot(&PathArg::parse(line), ACT, Operation::Stage)?;
        }
    }
    if request.options.has(PrepareOptions::STAGE) {
        let number = REQUESTS.fetch_add(1, Ordering::Relaxed);
        // Without a NUL, as in XRootD.
        return Ok(Answer::Ok(
            format!("{NAME_PREFIX}:{:08x}.{number}", context.front().started_s).into_bytes(),
        ));
    }
    // "Will be written", "may leave the disk": hints that nothing follows from.
    Ok(Answer::done())
}

/// Answers a query for the state of a request: its name and paths, a line each. As the servers do that have tape, in
/// JSON, which gfal2 reads. Other tasks have their turns in between, however many paths there are.
pub(crate) async fn progress(context: &Context, argument: &[u8]) -> Outcome {
    let mut lines = lines_of(argument);
    let name = lines.next().filter(|name| is_ours(name)).ok_or_else(unknown)?;
    let paths: Vec<PathArg> =
        lines.by_ref().take(limits::ROOT_PREPARED_PATHS_MAX).map(PathArg::parse).collect();
    if lines.next().is_some() {
        let text = format!("more than {} paths in one query", limits::ROOT_PREPARED_PATHS_MAX);
        return Err(Failure::new(ErrorCode::ARG_TOO_LONG, text));
    }
    context.count_paths(paths.len());
    let mut responses = Vec::with_capacity(paths.len());
    for paths in paths.chunks(limits::ROOT_PATHS_PER_TURN) {
        for about in paths {
            let failure = stat::look(context, about).await.err();
            responses.push(json!({
                "path": String::from_utf8_lossy(&about.path),
                "path_exists": failure.is_none(),
                "on_tape": false,
                "online": failure.is_none(),
                "requested": false,
                "has_reqid": false,
                "req_time": "",
                "error_text": failure.map(|failure| failure.text).unwrap_or_default(),
            }));
        }
        // Many paths that need no wait must not hold up other tasks.
        tokio::task::yield_now().await;
    }
    let answer = json!({ "request_id": String::from_utf8_lossy(name), "responses": responses });
    Ok(Answer::text(answer.to_string()))
}

fn is_ours(name: &[u8]) -> bool {
    name.strip_prefix(NAME_PREFIX.as_bytes()).is_some_and(|rest| rest.starts_with(b":"))
}

/// The failure for a name that this server never gave a request.
fn unknown() -> Failure {
    Failure::new(ErrorCode::ARG_INVALID, "Prepare requestid owned by an unknown server")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::{bytes, code, context, context_of, export_at, lets_others_in, text};

    #[tokio::test]
    async fn files_on_disk_are_staged() {
        let context = context();
        let ask = async |options: PrepareOptions, evicts| {
            let lines = vec![b"/d/f".to_vec()];
            prepare(&context, &Prepare { options, priority: 0, port: 0, evicts, lines }).await
        };
        assert_eq!(bytes(ask(PrepareOptions::NONE, false).await), b"");
        assert_eq!(bytes(ask(PrepareOptions::WRITE, true).await), b"");
        assert_eq!(code(ask(PrepareOptions::CANCEL, false).await), ErrorCode::ARG_INVALID);
        let name = text(ask(PrepareOptions::STAGE, false).await);
        assert_ne!(text(ask(PrepareOptions::STAGE, false).await), name);
        let answer = text(progress(&context, format!("{name}\n/d/f\n/nope\0").as_bytes()).await);
        let answer: serde_json::Value = serde_json::from_str(answer.trim_end_matches('\0')).unwrap();
        assert_eq!(answer["request_id"], name);
        assert_eq!(
            (&answer["responses"][0]["path"], &answer["responses"][0]["online"]),
            (&"/d/f".into(), &true.into())
        );
        assert_eq!(answer["responses"][1]["path_exists"], false);
        assert!(answer["responses"][1]["error_text"].as_str().unwrap().contains("no such file"), "{answer}");
        let cancelled = Prepare {
            options: PrepareOptions::CANCEL,
            priority: 0,
            port: 0,
            evicts: false,
            lines: vec![name.clone().into_bytes()],
        };
        assert_eq!(bytes(prepare(&context, &cancelled).await), b"");
        assert_eq!(code(progress(&context, b"1:2\n/d/f").await), ErrorCode::ARG_INVALID);
        let many = format!("{name}{}", "\n/x".repeat(limits::ROOT_PREPARED_PATHS_MAX + 1));
        assert_eq!(code(progress(&context, many.as_bytes()).await), ErrorCode::ARG_TOO_LONG);
    }

    /// A query about many paths is no way around what bounds `statx`.
    #[tokio::test]
    async fn a_question_about_many_paths_leaves_turns_to_others_and_counts_them() {
        const PATHS: usize = 8 * limits::ROOT_PATHS_PER_TURN;
        let context = context_of(vec![export_at("/")], |settings| {
            settings.client_limits.requests_per_s = Some(10);
        });
        let many = format!("{NAME_PREFIX}:1.2{}", "\n/f".repeat(PATHS));
        let answer = lets_others_in(progress(&context, many.as_bytes())).await;
        let answer: serde_json::Value = serde_json::from_str(text(answer).trim_end_matches('\0')).unwrap();
        assert_eq!(answer["responses"].as_array().unwrap().len(), PATHS);
        let (_, wait) = context.front().take_request(&context.client).unwrap_err();
        assert!(wait > std::time::Duration::from_secs(5), "{wait:?}");
    }
}
