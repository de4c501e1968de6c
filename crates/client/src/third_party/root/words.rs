//! Which of the three is at fault, in words: this client, the source, or the destination.

use gridlane_core::{Error, ErrorKind, Fault, Result, Url};
use gridlane_peer::root::{Delegation, OpenFile, status_error};
use gridlane_xrd::ErrorCode;
use gridlane_xrd::answer::ErrorAnswer;

/// XRootD's program that fetches a file puts this in front of what the source has answered: `[3011] no such file`.
const SOURCE_ANSWERED: &str = "Server responded with an error: [";
/// And this behind what it could not do there.
const AT_SOURCE: &str = "(source)";
/// And this when its disk is full.
const NO_SPACE: &str = "no space left on device";
/// The refusal of a source to which a destination came that nobody has announced.
const EXPIRED: &str = "authorization expired";
/// The refusal of a destination that was to get a proxy of the user's, and has none.
const NO_PROXY: &str = "no delegated credentials";
/// The refusals of servers that do not copy, or do not in this place.
const NO_COPIES: [&str; 3] = ["tpc not supported", "tpc not allowed", "not authorized for tpc"];

/// A server cannot take part: the bytes can still come by another way.
pub(super) fn unable(url: &Url) -> Error {
    Error::new(ErrorKind::Unsupported, "the server takes no part in third-party copies").endpoint(url)
}

/// Fails unless the destination has got a proxy of the user's, without which it cannot read the source as the user.
pub(super) fn has_proxy(file: &OpenFile) -> Result<()> {
    let unsupported = |message: String| Error::new(ErrorKind::Unsupported, message).endpoint(&file.url);
    match file.delegation() {
        Delegation::Given => Ok(()),
        Delegation::Failed(why) => {
            Err(unsupported(format!("no proxy could be made for the destination of the copy: {why}")))
        }
        Delegation::Unasked => {
            let message =
                "the server asks for no proxy of the user's certificate, with which it could fetch the file";
            Err(unsupported(message.to_owned()).hint(
                "is the credential itself a proxy, are certificates checked, and does the server take proxies by gsi?",
            ))
        }
    }
}

/// The source has refused this client something.
pub(super) fn at_source(error: Error, source: &Url) -> Error {
    at(error, source, "this is the source of a third-party copy")
}

/// The destination has.
pub(super) fn at_target(error: Error, target: &Url) -> Error {
    at(error, target, "this is the destination of a third-party copy")
}

fn at(error: Error, url: &Url, part: &str) -> Error {
    let lacks_proxy = error.message().contains(NO_PROXY);
    if NO_COPIES.iter().any(|words| error.message().contains(words)) {
        return unable(url).more(error.message());
    }
    let error = if error.endpoint_text().is_none() { error.endpoint(url) } else { error };
    let error = error.more(part);
    match lacks_proxy {
        true => error.hint(
            "it wants a proxy of the user's: is the credential itself a proxy, and are certificates checked? XRootD before 5.6 gets one over roots:// alone",
        ),
        false => error,
    }
}

/// The destination has not made the copy, and says why. It repeats in its words what the source has answered it.
/// The source was told that it is on `host`.
pub(super) fn of_copy(error: Error, source: &Url, (target, host): (&Url, &str)) -> Error {
    let said = error.message().to_owned();
    let answered = said.split_once(SOURCE_ANSWERED).and_then(|(_, rest)| rest.split_once(']'));
    if let Some((Ok(code), text)) = answered.map(|(code, text)| (code.trim().parse::<u32>(), text)) {
        let text = text.trim_end_matches(['"', ')', ' ']).trim().to_owned();
        let answer = status_error(&ErrorAnswer { code: ErrorCode(code), text });
        let message =
            format!("it refused the destination of a third-party copy, {target}: {}", answer.message());
        let refused = Error::new(answer.kind(), message).fault(Fault::Peer).endpoint(source);
        return match said.contains(EXPIRED) {
            true => refused.hint(format!(
                "the copy was announced for the host {host}: the source may have another name for it, or the destination \
                 came too late"
            )),
            false => refused.retryable(answer.is_retryable()),
        };
    }
    if said.contains(AT_SOURCE) {
        let message = format!("the destination could not reach the source, {source}: {said}");
        return Error::new(ErrorKind::Network, message).endpoint(target);
    }
    if said.contains(NO_SPACE) {
        let full =
            Error::new(ErrorKind::LocalIo, error.message()).fault(Fault::Peer).no_space().retryable(false);
        return at_target(full.hint("ask the operator of the server for space"), target);
    }
    at_target(error, target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Error {
        let (source, target) = ("root://s//f", "root://d//g");
        let url = |text: &str| Url::parse_absolute(text).unwrap();
        let answer = ErrorAnswer { code: ErrorCode::FS_ERROR, text: text.to_owned() };
        of_copy(status_error(&answer).endpoint(url(target)), &url(source), (&url(target), "d"))
    }

    #[test]
    fn whose_answer_it_was() {
        let gone = of(
            "[ERROR] Server responded with an error: [3011] Unable to open /f; no such file or directory\n",
        );
        assert_eq!((gone.kind(), gone.endpoint_text()), (ErrorKind::NotFound, Some("root://s//f")));
        let message = gone.message();
        assert!(message.contains("root://d//g") && message.contains("3011 NotFound"), "{message}");
        let late = of("Run: [ERROR] Server responded with an error: [3010] tpc authorization expired");
        assert!(late.kind() == ErrorKind::Denied && late.advice().is_some(), "{late}");
        let away = of("[FATAL] Connection error (source)");
        assert_eq!((away.kind(), away.endpoint_text()), (ErrorKind::Network, Some("root://d//g")));
        let full = of("Unable to write /g; no space left on device");
        assert_eq!(full.endpoint_text(), Some("root://d//g"));
        assert!(full.message().contains("destination of a third-party copy"), "{full}");
        for odd in ["Server responded with an error: [", "Server responded with an error: [x] y", ""] {
            assert_eq!(of(odd).endpoint_text(), Some("root://d//g"), "{odd}");
        }
        assert_eq!(of("Unable to open /g; tpc not supported").kind(), ErrorKind::Unsupported);
    }
}
