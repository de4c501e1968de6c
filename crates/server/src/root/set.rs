//! Settings of the session, for monitoring.

use gridlane_xrd::ErrorCode;
use gridlane_xrd::request::Set;

use super::answer::{Answer, Failure, Outcome};
use super::context::Context;
use crate::access_log::told;

/// Answers `set`. What the client calls itself, and what it says of what it does, comes into the log.
pub(crate) fn set(context: &Context, request: &Set) -> Outcome {
    let text = String::from_utf8_lossy(&request.text);
    let text = text.trim();
    if text.is_empty() {
        return Err(Failure::new(ErrorCode::ARG_MISSING, "Required argument not present"));
    }
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    match (word, rest.trim().split_once(' ').unwrap_or((rest.trim(), ""))) {
        ("appid", _) => {
            context.session.set_purpose(told(rest));
            Ok(Answer::done())
        }
        ("monitor", ("info", info)) => {
            context.session.set_purpose(told(info));
            // By this number a monitoring stream would name it; there is none.
            Ok(Answer::Ok(vec![0; 4]))
        }
        ("monitor", ("on" | "off", _)) => Ok(Answer::done()),
        _ => Err(Failure::new(ErrorCode::ARG_INVALID, "invalid set parameter")),
    }
}
