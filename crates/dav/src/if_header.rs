//! WebDAV's `If` field (RFC 4918, 10.4): conditions about locks and entity tags of several resources.
//!
//! This server has no locks. That does not make the conditions unknown: no resource has the state that a
//! lock token stands for, so a condition that demands one is false and its negation is true, as it is for
//! `<DAV:no-lock>`, which never matches anything (RFC 4918, 10.4.8). A client that believes to hold a lock
//! gets 412, and nothing is changed behind its back.

use gridlane_core::limits;

use crate::etag::ETag;
use crate::header::Headers;
use crate::request::Rejection;

/// The conditions. They hold when one of the lists holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IfHeader {
    lists: Vec<List>,
}

/// Conditions that hold together, about one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
struct List {
    /// The name that the client uses; `None` for the one that is requested.
    resource: Option<String>,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    negated: bool,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// A lock with a token, whichever: there is none.
    Locked,
    Tag(ETag),
}

impl IfHeader {
    /// Reads the field, if there is one. What is malformed is refused: it protects something.
    pub fn parse(headers: &Headers) -> Result<Option<IfHeader>, Rejection> {
        if !headers.contains("if") {
            return Ok(None);
        }
        let refused = || Rejection::bad_request("the If cannot be understood");
        let text = headers.single("if").ok_or_else(refused)?;
        parse(text).map(Some).ok_or_else(refused)
    }

    /// The resources whose entity tags decide, as [`holds`](IfHeader::holds) asks for them.
    pub fn resources(&self) -> impl Iterator<Item = Option<&str>> {
        self.lists.iter().filter(|list| list.is_about_tags()).map(|list| list.resource.as_deref())
    }

    /// True if the conditions hold; if not, the answer is 412 (RFC 4918, 10.4.1).
    ///
    /// `current` tells the entity tag of a resource that the client named by a URL or a path, or for `None`
    /// of the one that is requested; no tag for what does not exist or is not of this server.
    pub fn holds(&self, mut current: impl FnMut(Option<&str>) -> Option<ETag>) -> bool {
        self.lists.iter().any(|list| {
            let tag = if list.is_about_tags() { current(list.resource.as_deref()) } else { None };
            list.conditions.iter().all(|condition| {
                let matches = match (&condition.state, &tag) {
                    (State::Tag(wanted), Some(tag)) => wanted.matches_strongly(tag),
                    _ => false,
                };
                matches != condition.negated
            })
        })
    }
}

impl List {
    fn is_about_tags(&self) -> bool {
        self.conditions.iter().any(|condition| condition.state != State::Locked)
    }
}

/// RFC 4918, 10.4.2: either only lists with a resource in front, or only lists without.
fn parse(text: &str) -> Option<IfHeader> {
    let mut lists = Vec::new();
    let mut resource: Option<String> = None;
    let mut rest = skip(text);
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix('<') {
            if resource.is_none() && !lists.is_empty() {
                return None;
            }
            let (name, behind) = behind.split_once('>')?;
            rest = skip(behind);
            // A resource without a list behind it says nothing.
            if name.is_empty() || !rest.starts_with('(') {
                return None;
            }
            resource = Some(name.to_owned());
            continue;
        }
        let (conditions, behind) = parse_list(rest.strip_prefix('(')?)?;
        if lists.len() >= limits::IF_LISTS_MAX {
            return None;
        }
        lists.push(List { resource: resource.clone(), conditions });
        rest = skip(behind);
    }
    (!lists.is_empty()).then_some(IfHeader { lists })
}

/// The text between two brackets, and that behind them.
fn parse_list(text: &str) -> Option<(Vec<Condition>, &str)> {
    let mut conditions = Vec::new();
    let mut rest = skip(text);
    loop {
        if let Some(behind) = rest.strip_prefix(')') {
            return (!conditions.is_empty()).then_some((conditions, behind));
        }
        let negated = rest.get(..3).is_some_and(|word| word.eq_ignore_ascii_case("not"));
        rest = skip(if negated { &rest[3..] } else { rest });
        let (state, behind) = if let Some(behind) = rest.strip_prefix('<') {
            let (token, behind) = behind.split_once('>')?;
            (token.contains(':').then_some(State::Locked)?, behind)
        } else {
            // A bracket may stand in the tag's quotes, so its end is behind them.
            let inside = rest.strip_prefix('[')?;
            let open = inside.find('"')? + 1;
            let close = open + inside[open..].find('"')? + 1;
            let tag = ETag::parse(&inside[..close])?;
            (State::Tag(tag), skip(&inside[close..]).strip_prefix(']')?)
        };
        conditions.push(Condition { negated, state });
        rest = skip(behind);
    }
}

fn skip(text: &str) -> &str {
    text.trim_start_matches(crate::header::OWS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Option<IfHeader>, Rejection> {
        let mut headers = Headers::new();
        headers.push("If", text.as_bytes());
        IfHeader::parse(&headers)
    }

    /// The requested resource has the tag "a", `/b` has "b", and there is nothing else.
    fn holds(text: &str) -> bool {
        read(text).unwrap().unwrap().holds(|resource| match resource {
            None => ETag::strong("a"),
            Some("/b") => ETag::strong("b"),
            Some(_) => None,
        })
    }

    #[test]
    fn what_holds() {
        for (text, expected) in [
            ("([\"a\"])", true),
            ("([\"b\"])", false),
            ("([W/\"a\"])", false),
            ("(Not [\"b\"])", true),
            ("(not[\"a\"])", false),
            ("([\"b\"]) ([\"a\"])", true),
            ("([\"a\"] [\"b\"])", false),
            ("([\"a\"] Not [\"b\"])", true),
            ("([\"x]\"])", false),
            // davfs2 and cadaver, with a lock that they do not have.
            ("(<opaquelocktoken:e71d4fae-5dec-22d6-fea5-00a0c91e6be4>)", false),
            ("</b> (<urn:uuid:181d4fae-7d8c-11d0-a765-00a0c91e6bf2> [\"b\"])", false),
            // litmus: one that cannot hold, beside one that always does.
            ("(<DAV:no-lock>)", false),
            ("(Not <DAV:no-lock>)", true),
            ("(<opaquelocktoken:x>) (Not <DAV:no-lock>)", true),
            ("(<DAV:no-lock> [\"a\"])", false),
            ("</b> ([\"b\"])", true),
            ("</b> ([\"a\"])", false),
            ("</b> ([\"a\"]) ([\"b\"])", true),
            ("<http://elsewhere/x> ([\"x\"]) </b>(Not<x:y>[\"b\"])", true),
            ("<http://elsewhere/x> (Not [\"x\"])", true),
        ] {
            assert_eq!(holds(text), expected, "{text}");
        }
        assert_eq!(IfHeader::parse(&Headers::new()), Ok(None));
    }

    #[test]
    fn what_is_refused() {
        let many = "(<a:b>)".repeat(limits::IF_LISTS_MAX + 1);
        for text in [
            "",
            "()",
            "(",
            "([\"a\"]",
            "[\"a\"]",
            "</b>",
            "</b> </c> ([\"a\"])",
            "([\"a\"]) </b> ([\"b\"])",
            "([a])",
            "([\"a\")",
            "(<>)",
            "(<token>)",
            "(Not)",
            "(Not Not [\"a\"])",
            "([\"a\"]) x",
            "<> ([\"a\"])",
            &many,
        ] {
            assert_eq!(read(text).unwrap_err().status.code(), 400, "{text:.40}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "([()<>\\[\\]\" ]|Not|a:b|\\PC){0,40}") {
            if let Ok(Some(conditions)) = read(&text) {
                let _ = conditions.holds(|_| ETag::strong("a"));
            }
        }
    }
}
