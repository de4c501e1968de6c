//! What is asked of a VOMS server, and what it answers: the bytes of both protocols.
//!
//! Servers since VOMS 2.0 are asked with `GET /generate-ac`; the older protocol is a document of XML each way, without any
//! framing. Debian's server (2.1.0) closes the connection on the newer one, and answers the older one alone.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use gridlane_core::text::printable;
use gridlane_core::{Error, ErrorKind, Fault, Result, limits};
use gridlane_dav::leaves::{Leaf, LeafBounds, leaves};

use crate::fqan::Fqan;

/// Attributes that a user asks a VOMS server for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeRequest {
    /// The virtual organisation.
    pub vo: String,
    /// Groups and roles of it, the primary one first; never empty.
    pub fqans: Vec<Fqan>,
    /// For how many seconds they should count. A server may give less.
    pub lifetime_s: i64,
}

/// What a server has given: nothing of it is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// An attribute certificate in DER.
    pub attribute_certificate: Vec<u8>,
    /// The server's own words about it, in one line each.
    pub warnings: Vec<String>,
}

impl AttributeRequest {
    /// Path and query of the request for HTTP. Names of groups and roles have no characters that would have to be encoded,
    /// and servers decode none.
    pub fn target(&self) -> String {
        let fqans: Vec<String> = self.fqans.iter().map(Fqan::to_string).collect();
        format!("/generate-ac?fqans={}&lifetime={}", fqans.join(","), self.lifetime_s)
    }

    /// The document of the older protocol. `G` asks for a group, `B` for a role in one.
    pub fn document(&self) -> String {
        let command = |fqan: &Fqan| match fqan.role() {
            Some(role) => format!("<command>B{}:{role}</command>", fqan.group()),
            None => format!("<command>G{}</command>", fqan.group()),
        };
        let commands: String = self.fqans.iter().map(command).collect();
        format!(
            "<?xml version=\"1.0\" encoding=\"US-ASCII\"?><voms>{commands}<base64>1</base64><version>4</version>\
             <lifetime>{}</lifetime></voms>",
            self.lifetime_s
        )
    }
}

/// Where a document of the older protocol ends in the bytes that have come so far: nothing else tells.
pub fn document_end(received: &[u8]) -> Option<usize> {
    const ENDS: [&[u8]; 2] = [b"</vomsans>", b"</voms>"];
    let ends = ENDS.iter().filter_map(|end| {
        received.windows(end.len()).position(|window| window == *end).map(|at| at + end.len())
    });
    ends.min()
}

/// Reads the answer of either protocol. An attribute certificate beside an error is none: servers send a filler there.
///
/// # Errors
/// Of kind `Denied`, with the server's words, when it refuses the user or the groups; of kind `Protocol` when it cannot be
/// read, and `Other` when something is wrong with the server.
pub fn read_answer(document: &[u8]) -> Result<Answer> {
    let bounds = LeafBounds {
        depth_max: 4,
        elements_max: limits::VOMS_ANSWER_ELEMENTS_MAX,
        token_bytes_max: limits::VOMS_ANSWER_BYTES_MAX,
    };
    let found = leaves(document.trim_ascii_start(), bounds).map_err(|error| error.fault(Fault::Peer))?;
    let (mut ac, mut code, mut warnings) = (None, String::new(), Vec::new());
    let mut refused = None;
    for Leaf { path, text } in found {
        let text = text.trim();
        match path.as_str() {
            "voms/ac" | "vomsans/ac" => ac = Some(text.to_owned()),
            "voms/warning" => warnings.push(words(text)),
            "voms/error/code" | "vomsans/error/item/number" => code = text.to_owned(),
            "voms/error/message" | "vomsans/error/item/message" => match is_warning(&code) {
                true => warnings.push(words(text)),
                false => {
                    refused.get_or_insert_with(|| refusal(&code, text));
                }
            },
            _ => {}
        }
    }
    if let Some(refused) = refused {
        return Err(refused);
    }
    if !code.is_empty() && !is_warning(&code) {
        return Err(refusal(&code, ""));
    }
    let broken = |what: &str| Error::new(ErrorKind::Protocol, what.to_owned()).fault(Fault::Peer);
    let ac = ac.ok_or_else(|| broken("there is no attribute certificate in the answer"))?;
    let attribute_certificate =
        decode(&ac).ok_or_else(|| broken("the attribute certificate in the answer is not base64"))?;
    Ok(Answer { attribute_certificate, warnings })
}

/// Numbers of the older protocol: errors begin at 1000, and below are remarks.
fn is_warning(code: &str) -> bool {
    code.parse::<u32>().is_ok_and(|number| number < 1000)
}

fn refusal(code: &str, text: &str) -> Error {
    let says = match words(text).trim_end_matches('.') {
        "" => format!("it says {}", words(code)),
        text => format!("it says: {text}"),
    };
    let denied = |hint: &str| Error::new(ErrorKind::Denied, says.clone()).fault(Fault::Caller).hint(hint);
    // Suspended users have a number of their own, and the words tell the rest.
    match code {
        _ if text.contains("Unable to satisfy") => {
            denied("ask for groups and roles that are yours in the VO; who leads it gives them")
        }
        "NoSuchUser" | "1001" => {
            denied("is this the certificate that the VO knows? Its registration page has it")
        }
        "SuspendedUser" | "1004" => denied("ask who leads the VO; often its rules must be signed again"),
        "BadRequest" | "1002" | "1005" => {
            denied("ask for groups and roles that are yours in the VO; who leads it gives them")
        }
        _ => Error::new(ErrorKind::Other, says).fault(Fault::Peer),
    }
}

/// A server's words as one line.
fn words(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    printable(&line).chars().take(limits::VOMS_WORDS_MAX).collect()
}

/// Base64, or the alphabet that VOMS has beside it: `a-zA-Z0-9[]`. DER of this length begins with `MI` in the one, and with
/// `mi` in the other.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut text: String = text.split_ascii_whitespace().collect();
    if !text.starts_with('M') {
        let other = |c: char| match c {
            'a'..='z' => Some(c.to_ascii_uppercase()),
            'A'..='Z' => Some(c.to_ascii_lowercase()),
            '0'..='9' => Some(c),
            '[' => Some('+'),
            ']' => Some('/'),
            _ => None,
        };
        text = text.chars().map(other).collect::<Option<String>>()?;
        while !text.len().is_multiple_of(4) {
            text.push('=');
        }
    }
    BASE64_STANDARD.decode(text).ok().filter(|der| !der.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fqans: &[&str]) -> AttributeRequest {
        let fqans = fqans.iter().map(|fqan| fqan.parse().unwrap()).collect();
        AttributeRequest { vo: "atlas".to_owned(), fqans, lifetime_s: 43200 }
    }

    #[test]
    fn both_protocols_ask_for_the_same() {
        let asked = request(&["/atlas/prod/Role=pilot", "/atlas"]);
        assert_eq!(asked.target(), "/generate-ac?fqans=/atlas/prod/Role=pilot,/atlas&lifetime=43200");
        let document = "<?xml version=\"1.0\" encoding=\"US-ASCII\"?><voms><command>B/atlas/prod:pilot</command>\
                        <command>G/atlas</command><base64>1</base64><version>4</version><lifetime>43200</lifetime></voms>";
        assert_eq!(asked.document(), document);
        assert_eq!(document_end(document.as_bytes()), Some(document.len()));
        assert_eq!(document_end(b"<vomsans></voms"), None);
    }

    #[test]
    fn an_answer_has_the_certificate_and_what_the_server_says_of_it() {
        for (document, warnings) in [
            (
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?><voms><ac>MIIB\nAAAA</ac><warning> shorter\n now</warning></voms>",
                vec!["shorter now"],
            ),
            (
                "<?xml version=\"1.0\" encoding = \"US-ASCII\"?><vomsans><version>3</version><error><item><number>2</number>\
              <message>shortened</message></item></error><ac>MIIBAAAA</ac></vomsans>",
                vec!["shortened"],
            ),
            ("<vomsans><version>3</version><ac>miibaaaa</ac></vomsans>", vec![]),
        ] {
            let answer = read_answer(document.as_bytes()).unwrap();
            assert_eq!(answer.attribute_certificate, [0x30, 0x82, 1, 0, 0, 0], "{document}");
            assert_eq!(answer.warnings, warnings, "{document}");
        }
    }

    /// The words are those of Debian's server, and of the newer ones.
    #[test]
    fn a_refusal_says_why() {
        use ErrorKind::{Denied, Other, Protocol};
        for (document, kind, says) in [
            (
                "<vomsans><version>3</version><error><item><number>1001</number><message>atlas: User unknown to this VO.\
              </message></item></error><ac>QQ==</ac></vomsans>",
                Denied,
                "it says: atlas: User unknown to this VO",
            ),
            (
                "<vomsans><error><item><number>1001</number><message>atlas: Unable to satisfy B/atlas:x request!</message></item>\
              </error></vomsans>",
                Denied,
                "Unable to satisfy",
            ),
            (
                "<voms><error><code>NoSuchUser</code><message>nobody</message></error></voms>",
                Denied,
                "it says: nobody",
            ),
            (
                "<voms><error><code>SuspendedUser</code><message>for\u{202e}ever</message></error></voms>",
                Denied,
                "for\u{fffd}ever",
            ),
            (
                "<voms><error><code>BadRequest</code></error><ac>MIIBAAAA</ac></voms>",
                Denied,
                "it says BadRequest",
            ),
            (
                "<voms><error><code>InternalError</code><message>no database</message></error></voms>",
                Other,
                "no database",
            ),
            ("<voms></voms>", Protocol, "no attribute certificate"),
            ("<voms><ac></ac></voms>", Protocol, "not base64"),
            ("<voms><ac>M!!!</ac></voms>", Protocol, "not base64"),
            ("<html>", Protocol, "XML"),
            ("", Protocol, "XML"),
        ] {
            let error = read_answer(document.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), kind, "{document}: {error}");
            assert!(error.message().contains(says), "{document}: {error}");
        }
        let long =
            format!("<voms><error><code>x</code><message>{}</message></error></voms>", "y".repeat(5000));
        assert!(read_answer(long.as_bytes()).unwrap_err().message().len() < 600);
    }
}
