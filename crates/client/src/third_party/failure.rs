//! The meaning of a COPY that has failed: whether another way may do.

use gridlane_core::{Error, ErrorKind, Fault, Hint, Url};

use super::terms::Mode;

/// The end of an attempt that did not succeed.
#[derive(Debug)]
pub(super) enum Failed {
    /// Nothing of the file has moved, and another way may do.
    Way(Error),
    /// The file itself is the matter, or bytes have moved: the copy has failed.
    File(Error),
    /// The active server has too much to do now.
    Busy(Error),
    /// It is not known how it has ended: the target has to be looked at.
    Unknown(Error),
}

/// The meaning of the status with which a COPY was answered. The source exists, as far as this client can see it.
pub(super) fn of_status(error: Error) -> Failed {
    match error.status() {
        Some(412) => Failed::File(already_there(error)),
        Some(409) => Failed::File(error.hint(Hint::MakeDirectory)),
        Some(413 | 423 | 507) => Failed::File(error),
        _ if error.kind() == ErrorKind::Busy => Failed::Busy(error),
        _ if error.kind() == ErrorKind::Interrupted => Failed::File(error),
        // Servers that do not know third-party copies take it for a copy within them, and answer in many ways.
        _ => Failed::Way(error),
    }
}

/// True if a server with this answer makes no third-party copies at all.
pub(super) fn is_unable(error: &Error) -> bool {
    matches!(error.status(), Some(405 | 501))
}

fn already_there(error: Error) -> Error {
    let endpoint = error.endpoint_text().unwrap_or_default().to_owned();
    Error::new(ErrorKind::Precondition, "the file exists")
        .fault(Fault::Caller)
        .http_status(412)
        .endpoint(endpoint)
        .hint(Hint::Replace)
}

/// The meaning of the last line of the active server `active`, without the secrets that it was shown. Such lines are for
/// people; FTS tells failures apart by words in them as well.
pub(super) fn of_last_line(said: &str, mode: Mode, active: &Url, moved_bytes: u64) -> Failed {
    let lower = said.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    // Numbers are looked for as words: "404" may be a part of a size.
    let has_status =
        |codes: &[&str]| lower.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| codes.contains(&word));
    let error = |kind| {
        let doing = match mode {
            Mode::Pull => "fetching the file",
            Mode::Push => "uploading the file",
        };
        Error::new(kind, format!("the server failed at {doing}: {said}")).fault(Fault::Peer).endpoint(active)
    };
    let kind = if has(&["checksum", "digest mismatch"]) {
        return Failed::File(error(ErrorKind::ChecksumMismatch));
    } else if has(&["no space", "insufficient storage", "quota"]) || has_status(&["507"]) {
        return Failed::File(error(ErrorKind::LocalIo).no_space());
    } else if has(&["already exists", "file exists", "does not overwrite"]) || has_status(&["412"]) {
        return Failed::File(error(ErrorKind::Precondition).hint(Hint::Replace));
    } else if has(&["locked", "another copy"]) || has_status(&["423"]) {
        // What is at the target is that other one's.
        return Failed::File(error(ErrorKind::Precondition));
    } else if has(&["not found", "no such file"]) || has_status(&["404"]) {
        ErrorKind::NotFound
    } else if has(&["forbidden", "unauthorized", "denied", "not authorized", "permission"])
        || has_status(&["401", "403"])
    {
        ErrorKind::Denied
    } else if has(&["timeout", "timed out", "time-out", "stall"]) {
        ErrorKind::Timeout
    } else {
        ErrorKind::Network
    };
    match kind {
        // What is there for this client may be hidden from the active server, whose credential is another one.
        _ if moved_bytes == 0 => Failed::Way(error(kind)),
        _ => Failed::File(error(kind)),
    }
}

/// The meaning of a copy over root:// that has failed. `has_moved`: the destination had bytes of it; `is_lost`: what was there
/// before may be gone.
pub(super) fn of_root(error: Error, target: &Url, has_moved: bool, is_lost: bool) -> Failed {
    let is_at_target = || error.endpoint_text() == Some(target.to_string().as_str());
    let is_the_files = match error.kind() {
        ErrorKind::ChecksumMismatch
        | ErrorKind::Precondition
        | ErrorKind::LocalIo
        | ErrorKind::Interrupted
        | ErrorKind::Usage => true,
        ErrorKind::NotFound => !is_at_target(),
        // This client would not reach it with the bytes either.
        _ => error.is_unreached() && is_at_target(),
    };
    match error.kind() {
        _ if is_lost && error.kind() != ErrorKind::Usage => {
            Failed::File(error.more("the file that was at the target may be lost"))
        }
        _ if is_the_files || has_moved => Failed::File(error),
        _ => Failed::Way(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(said: &str, moved_bytes: u64) -> (bool, Error) {
        let active = Url::parse_absolute("https://se.example/f").unwrap();
        match of_last_line(said, Mode::Pull, &active, moved_bytes) {
            Failed::Way(error) => (true, error),
            Failed::File(error) => (false, error),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn last_lines_that_no_other_way_would_change() {
        for (said, kind) in [
            ("checksum mismatch", ErrorKind::ChecksumMismatch),
            ("no common checksum was found", ErrorKind::ChecksumMismatch),
            ("No space left on device", ErrorKind::LocalIo),
            ("remote server answered 507 Insufficient Storage", ErrorKind::LocalIo),
            ("the target already exists", ErrorKind::Precondition),
            ("https://b/f: 412", ErrorKind::Precondition),
            ("423 Locked: another copy to this path runs", ErrorKind::Precondition),
        ] {
            for moved_bytes in [0, 1] {
                let (goes_on, error) = of(said, moved_bytes);
                assert_eq!((goes_on, error.kind()), (false, kind), "{said}");
            }
        }
    }

    #[test]
    fn other_last_lines_are_about_the_way_while_nothing_has_moved() {
        for (said, kind) in [
            ("rejected GET: 404 Not Found", ErrorKind::NotFound),
            ("remote server answered 403 Forbidden", ErrorKind::Denied),
            ("connection timed out", ErrorKind::Timeout),
            ("connection refused after 4040 ms", ErrorKind::Network),
        ] {
            assert_eq!((of(said, 0).0, of(said, 0).1.kind()), (true, kind), "{said}");
            assert_eq!((of(said, 5).0, of(said, 5).1.kind()), (false, kind), "{said}");
        }
        assert!(of("x", 0).1.message().contains("fetching the file: x"));
    }

    #[test]
    fn what_fails_over_root() {
        let (source, target) = ("root://s//f", Url::parse_absolute("root://d//g").unwrap());
        let goes_on = |kind, endpoint: &str, has_moved, is_lost| {
            let error = Error::new(kind, "no").endpoint(endpoint);
            matches!(of_root(error, &target, has_moved, is_lost), Failed::Way(_))
        };
        for kind in [ErrorKind::Network, ErrorKind::Denied, ErrorKind::Timeout, ErrorKind::Unsupported] {
            assert!(goes_on(kind, source, false, false), "{kind:?}");
            assert!(!goes_on(kind, source, true, false) && !goes_on(kind, source, false, true), "{kind:?}");
        }
        for kind in
            [ErrorKind::ChecksumMismatch, ErrorKind::Precondition, ErrorKind::LocalIo, ErrorKind::Usage]
        {
            assert!(!goes_on(kind, source, false, false), "{kind:?}");
        }
        assert!(!goes_on(ErrorKind::NotFound, source, false, false));
        for (endpoint, is_over) in [("root://d//g", true), (source, false)] {
            let away = Error::new(ErrorKind::Network, "cannot connect").unreached().endpoint(endpoint);
            assert_eq!(
                matches!(of_root(away, &target, false, false), Failed::File(_)),
                is_over,
                "{endpoint}"
            );
        }
        assert!(goes_on(ErrorKind::NotFound, "root://d//g", false, false));
    }

    #[test]
    fn statuses() {
        let of = |code, kind| of_status(Error::new(kind, "no").http_status(code));
        assert!(
            matches!(of(412, ErrorKind::Precondition), Failed::File(error) if error.advice() == Some(&Hint::Replace))
        );
        assert!(matches!(of(409, ErrorKind::Precondition), Failed::File(_)));
        assert!(matches!(of(507, ErrorKind::LocalIo), Failed::File(_)));
        assert!(matches!(of(503, ErrorKind::Busy), Failed::Busy(_)));
        for code in [400, 401, 403, 404, 405, 500, 501, 502] {
            assert!(matches!(of(code, ErrorKind::Other), Failed::Way(_)), "{code}");
        }
        let unable = |code| is_unable(&Error::new(ErrorKind::Other, "no").http_status(code));
        assert!(unable(501) && unable(405) && !unable(403));
    }
}
