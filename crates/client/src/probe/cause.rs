//! Failures by their cause: pure.
//!
//! A cause is the step that failed and the failure without what differs from endpoint to endpoint: names, addresses, times.

use std::collections::BTreeMap;
use std::fmt;

use gridlane_core::{Error, ErrorKind};

use super::report::{Report, Step};

/// The cause of failures.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    /// The step that failed.
    pub step: Step,
    /// The failure in a few words.
    pub what: String,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step.name().replace('_', " "), self.what)
    }
}

impl Cause {
    /// The cause of a failure in a step.
    pub fn of(step: Step, error: &Error) -> Cause {
        Cause { step, what: what(step, error) }
    }
}

/// Failures with one cause.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// The cause.
    pub cause: Cause,
    /// The endpoints, in their order, with the errors.
    pub failures: Vec<(&'a Report, &'a Error)>,
}

/// The failures of all reports by their causes, the most frequent first.
pub fn by_cause(reports: &[Report]) -> Vec<Group<'_>> {
    let mut groups = BTreeMap::<Cause, Vec<_>>::new();
    for report in reports {
        for (step, error) in report.failures() {
            groups.entry(Cause::of(step, error)).or_default().push((report, error));
        }
    }
    let mut groups: Vec<Group<'_>> =
        groups.into_iter().map(|(cause, failures)| Group { cause, failures }).collect();
    // In order of the causes where as many have failed.
    groups.sort_by_key(|group| std::cmp::Reverse(group.failures.len()));
    groups
}

fn what(step: Step, error: &Error) -> String {
    let message = error.message().to_ascii_lowercase();
    let says = |words: &str| message.contains(words);
    if step == Step::Protocol {
        return error.message().to_owned();
    }
    if let Some(status) = error.status() {
        return format!("HTTP {status}, {}", kind_words(error.kind()));
    }
    if let Some(code) = xrootd_code(error.message()) {
        return format!("{code}, {}", kind_words(error.kind()));
    }
    let certificate = says("certificate is not trusted");
    let words = match step {
        Step::Resolve if error.kind() == ErrorKind::Network => "the name has no address",
        _ if certificate && says("expired") => "certificate of the server expired",
        _ if certificate && says("valid only in") => "certificate of the server not valid yet",
        _ if certificate && says("unknownissuer") => "authority of the server unknown",
        _ if certificate && (says("it is for ") || says("another name")) => "certificate of another name",
        _ if certificate => "certificate of the server not trusted",
        _ if says("speaks ") && says(", not ") => "another protocol at that port",
        _ if error.kind() == ErrorKind::Network && says("refused") => "connection refused",
        _ if error.kind() == ErrorKind::Network && says("unreachable") => "unreachable",
        _ if error.kind() == ErrorKind::Network && says("reset") => "connection reset",
        _ => kind_words(error.kind()),
    };
    words.to_owned()
}

/// `3010 NotAuthorized` of an error that a server of XRootD's protocol answered with.
fn xrootd_code(message: &str) -> Option<&str> {
    let code = message.split_once("the server answered ")?.1.split(':').next()?;
    let is_plain = code.len() < 40 && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b' ');
    (is_plain && code.starts_with(|c: char| c.is_ascii_digit())).then_some(code)
}

/// A kind of failure in words.
pub fn kind_words(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Other => "failed",
        ErrorKind::Usage => "not possible",
        ErrorKind::NotFound => "not found",
        ErrorKind::Denied => "not allowed",
        ErrorKind::Precondition => "not as it has to be",
        ErrorKind::Network => "connection failed",
        ErrorKind::Timeout => "too slow",
        ErrorKind::ChecksumMismatch => "other bytes come back",
        ErrorKind::LocalIo => "no space, or this machine",
        ErrorKind::Partial => "some failed",
        ErrorKind::Busy => "busy",
        ErrorKind::Unsupported => "not supported",
        ErrorKind::Interrupted => "stopped",
        ErrorKind::Protocol => "protocol broken",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::report::Outcome;
    use super::super::site::SiteList;
    use super::*;

    fn error(kind: ErrorKind, message: &str) -> Error {
        Error::new(kind, message)
    }

    #[test]
    fn causes_have_nothing_of_one_endpoint() {
        use ErrorKind::*;
        let not_trusted = |why: &str| error(Denied, &format!("its certificate is not trusted: {why}"));
        for (step, error, cause) in [
            (Step::Protocol, error(Unsupported, "gsiftp is not spoken"), "protocol: gsiftp is not spoken"),
            (
                Step::Resolve,
                error(Network, "the name \"a.b\" has no address: x"),
                "resolve: the name has no address",
            ),
            (Step::Resolve, error(Timeout, "no address for \"a\" within 10 s"), "resolve: too slow"),
            (
                Step::Connect,
                error(Network, "192.0.2.1:443: connection refused"),
                "connect: connection refused",
            ),
            (
                Step::Login,
                not_trusted("by this machine's clock it expired 3 h 05 min ago"),
                "login: certificate of the server expired",
            ),
            (
                Step::Login,
                not_trusted("its authority is not trusted here (UnknownIssuer)"),
                "login: authority of the server unknown",
            ),
            (
                Step::Login,
                not_trusted("it is for a.example, and not for b.example"),
                "login: certificate of another name",
            ),
            (Step::Login, not_trusted("odd"), "login: certificate of the server not trusted"),
            (Step::List, error(Denied, "no").http_status(403), "list: HTTP 403, not allowed"),
            (
                Step::List,
                error(Denied, "the server answered 3010 NotAuthorized: it does not allow this"),
                "list: 3010 NotAuthorized, not allowed",
            ),
            (
                Step::Read,
                error(ChecksumMismatch, "what comes back is not what was written"),
                "read: other bytes come back",
            ),
            (Step::WriteRate, error(Timeout, "not done within 15 s"), "write rate: too slow"),
        ] {
            assert_eq!(Cause::of(step, &error).to_string(), cause, "{error}");
        }
        assert_eq!(xrootd_code("the server answered a\u{1b}[2J: 3010"), None);
        assert_eq!(xrootd_code(""), None);
    }

    #[test]
    fn the_most_frequent_cause_is_first() {
        let mut list = SiteList::default();
        list.add("https://a/ https://b/ https://c/ https://d/").unwrap();
        let site = list.over(&[]).unwrap().remove(0);
        let mut reports: Vec<Report> =
            site.endpoints.iter().map(|endpoint| Report::new(0, endpoint.clone())).collect();
        let fails = |kind| Outcome::Fails(error(kind, "no"));
        reports[0].note(Step::List, fails(ErrorKind::Denied), Duration::ZERO);
        reports[0].note(Step::Delete, fails(ErrorKind::Busy), Duration::ZERO);
        reports[1].note(Step::Connect, fails(ErrorKind::Timeout), Duration::ZERO);
        reports[2].note(Step::Delete, fails(ErrorKind::Busy), Duration::ZERO);
        // That it was stopped says nothing of it.
        reports[3].note(Step::List, fails(ErrorKind::Interrupted), Duration::ZERO);
        let groups = by_cause(&reports);
        let found: Vec<(String, Vec<&str>)> = groups
            .iter()
            .map(|group| {
                let hosts = group.failures.iter().map(|(report, _)| report.endpoint.host().unwrap());
                (group.cause.to_string(), hosts.collect())
            })
            .collect();
        let text = |text: &str| text.to_owned();
        assert_eq!(
            found,
            [
                (text("delete: busy"), vec!["a", "c"]),
                (text("connect: too slow"), vec!["b"]),
                (text("list: not allowed"), vec!["a"]),
            ]
        );
    }
}
