//! Files are brought to disk, or may leave it: here all of them are on disk, for good.

use gridlane_auth::Operation;
use gridlane_core::limits;
use gridlane_xrd::flags::PrepareOptions;
use gridlane_xrd::request::Prepare;
use gridlane_xrd::{ErrorCode, PathArg};

use super::answer::{Answer, Failure, Outcome};
use super::connection::limited::count_paths;
use super::context::Context;

const ACT: &str = "prepare";

/// Answers `prepare`. As in XRootD nobody looks whether the paths are there.
pub(crate) async fn prepare(context: &Context, request: &Prepare) -> Outcome {
    if request.lines.is_empty() {
        return Err(Failure::new(ErrorCode::ARG_MISSING, "Required argument not present"));
    }
    if request.options.has(PrepareOptions::CANCEL) {
        return Err(unknown());
    }
    count_paths(context, request.lines.len());
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
        let text =
            "prepare with staging is not supported: this server has no tape, all its files are on disk";
        return Err(Failure::new(ErrorCode::UNSUPPORTED, text));
    }
    // "Will be written", "may leave the disk": hints that nothing follows from.
    Ok(Answer::done())
}

/// Of a request that this server never gave a name.
pub(crate) fn unknown() -> Failure {
    Failure::new(ErrorCode::ARG_INVALID, "Prepare requestid owned by an unknown server")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::{bytes, code, context};

    #[tokio::test]
    async fn there_is_no_tape() {
        let context = context();
        let ask = async |options: PrepareOptions, evicts| {
            let lines = vec![b"/d/f".to_vec()];
            prepare(&context, &Prepare { options, priority: 0, port: 0, evicts, lines }).await
        };
        assert_eq!(bytes(ask(PrepareOptions::NONE, false).await), b"");
        assert_eq!(bytes(ask(PrepareOptions::WRITE, true).await), b"");
        assert_eq!(code(ask(PrepareOptions::STAGE, false).await), ErrorCode::UNSUPPORTED);
        assert_eq!(code(ask(PrepareOptions::CANCEL, false).await), ErrorCode::ARG_INVALID);
    }
}
