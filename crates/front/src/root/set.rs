//! Settings of the session, for monitoring.

use gridlane_xrd::ErrorCode;
use gridlane_xrd::request::Set;

use super::answer::{Answer, Failure, Outcome};
use super::context::Session;
use crate::access_log::loggable;

/// Answers `set`. The client's name for itself, and for its activity, come into the log.
pub(crate) fn set<F>(session: &Session<F>, request: &Set) -> Outcome {
    let text = String::from_utf8_lossy(&request.text);
    let text = text.trim();
    if text.is_empty() {
        return Err(Failure::new(ErrorCode::ARG_MISSING, "Required argument not present"));
    }
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    match (word, rest.trim().split_once(' ').unwrap_or((rest.trim(), ""))) {
        ("appid", _) => {
            session.set_purpose(loggable(rest));
            Ok(Answer::done())
        }
        ("monitor", ("info", info)) => {
            session.set_purpose(loggable(info));
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

    #[test]
    fn the_client_s_activity_is_logged() {
        let session = Session::<()>::new(Default::default(), "ann", 7, "xrdcp v5.5.3");
        let say = |text: &str| match set(&session, &Set { modifier: 0, text: text.as_bytes().to_vec() }) {
            Ok(Answer::Ok(bytes)) => Ok(bytes),
            Ok(_) => panic!("bytes"),
            Err(failure) => Err(failure.code),
        };
        assert_eq!(say("appid my\u{7} job"), Ok(vec![]));
        assert_eq!(session.purpose(), "my job");
        assert_eq!(say("monitor info run 7"), Ok(vec![0; 4]));
        assert_eq!(session.purpose(), "run 7");
        assert_eq!(say("monitor on"), Ok(vec![]));
        assert_eq!(say("cache x"), Err(ErrorCode::ARG_INVALID));
        assert_eq!(say(" "), Err(ErrorCode::ARG_MISSING));
    }
}
