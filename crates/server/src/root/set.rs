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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::{bytes, code, context};

    #[test]
    fn what_comes_into_the_log() {
        let context = context();
        let say = |text: &str| set(&context, &Set { modifier: 0, text: text.as_bytes().to_vec() });
        assert_eq!(bytes(say("appid my\u{7} job")), b"");
        assert_eq!(context.session.purpose(), "my job");
        assert_eq!(bytes(say("monitor info run 7")), [0; 4]);
        assert_eq!(context.session.purpose(), "run 7");
        assert_eq!(bytes(say("monitor on")), b"");
        assert_eq!(code(say("cache x")), ErrorCode::ARG_INVALID);
        assert_eq!(code(say(" ")), ErrorCode::ARG_MISSING);
    }
}
