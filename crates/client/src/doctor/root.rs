//! What works with a server of XRootD's protocol.

use std::time::Instant;

use gridlane_core::units::format_bytes;
use gridlane_core::{Hint, Url};
use gridlane_dav::listing::EntryKind;
use gridlane_peer::root::{Client, Greeting};
use gridlane_xrd::client::Session;
use gridlane_xrd::flags::ServerFlags;

use super::{Finding, in_words, printable};

/// Examines what works with the server of a URL.
pub(super) async fn examine(client: &Client, url: &Url) -> Vec<Finding> {
    let began = Instant::now();
    let Greeting { session, text } = match client.greet(url).await {
        Ok(greeting) => greeting,
        Err(error) => return vec![Finding::bad("connection", error)],
    };
    let mut findings =
        vec![Finding::ok("connection", format!("{text}, after {}", in_words(began.elapsed())))];
    let names = ["version", "sitename", "chksum", "tpc"];
    let settings = client.settings(url, names).await;
    let [version, site, checksums, third_party] =
        settings.unwrap_or_default().map(|said| said.filter(|said| !said.is_empty()));
    findings.push(Finding::ok("server", server(&session, version.as_deref(), site.as_deref())));
    findings.push(encryption(&session));
    findings.push(match session.has_pages() {
        true => Finding::ok("pages", "each travels with a checksum, and one that is damaged is sent again"),
        false => Finding::note(
            "pages",
            "they travel without checksums",
            "damage on the way is seen at the end of a file only",
        ),
    });
    findings.push(match checksums {
        Some(kinds) => Finding::ok("checksums", format!("the server tells {}", kinds_of(&kinds))),
        None => Finding::note("checksums", "the server tells none", Hint::CompareOtherwise),
    });
    findings.push(match session.flags.has(ServerFlags::CAN_POSC) {
        true => Finding::ok("uploads", "one that is broken off is removed"),
        false => Finding::note("uploads", "one that is broken off stays", "remove it yourself"),
    });
    findings.push(match third_party.is_some_and(|said| said.trim_start_matches('+') == "1") {
        true => Finding::ok("third-party copy", "yes"),
        false => Finding::ok("third-party copy", "no"),
    });
    findings.push(answer(client, url).await);
    findings
}

/// Examines if it is there.
async fn answer(client: &Client, url: &Url) -> Finding {
    let began = Instant::now();
    match crate::root::stat(client, url).await {
        Ok(found) => {
            let entry = crate::root::entry(Vec::new(), &found);
            let what = match (entry.kind, entry.size_bytes) {
                (EntryKind::Directory, _) => "a directory".to_owned(),
                (EntryKind::File, Some(bytes)) => format!("a file of {}", format_bytes(bytes)),
                (EntryKind::File, None) => "a file that is being written".to_owned(),
            };
            Finding::ok("answer", format!("{what}, in {}", in_words(began.elapsed())))
        }
        Err(error) => Finding::bad("answer", error),
    }
}

fn server(session: &Session, version: Option<&str>, site: Option<&str>) -> String {
    let roles = [
        (ServerFlags::IS_META, "at the top of a federation"),
        (ServerFlags::IS_SUPERVISOR, "a supervisor"),
        (ServerFlags::IS_MANAGER, "a manager, which knows the servers of files"),
        (ServerFlags::IS_CACHE, "a caching proxy"),
        (ServerFlags::IS_PROXY, "a proxy"),
    ];
    let role = roles
        .into_iter()
        .find(|(flag, _)| session.flags.has(*flag))
        .map_or("a data server", |(_, role)| role);
    let mut text = match version {
        Some(version) => format!("{}, {role}", printable(version)),
        None => role.to_owned(),
    };
    text.push_str(&format!(", protocol {}", protocol(session.version)));
    if let Some(site) = site {
        text.push_str(&format!(", of {}", printable(site)));
    }
    text
}

/// `0x511` is 5.1.1 to its programs' eyes, and 5.1.0 to their logs: three digits.
fn protocol(version: u32) -> String {
    format!("{}.{}.{}", version >> 8, version >> 4 & 15, version & 15)
}

fn encryption(session: &Session) -> Finding {
    let flags = session.flags;
    if !flags.has(ServerFlags::HAS_TLS) {
        let advice = "everything travels in clear, and roots:// does not work";
        return Finding::note("TLS", "the server has none", advice);
    }
    let wanted = [
        (ServerFlags::TLS_LOGIN, "the login"),
        (ServerFlags::TLS_SESSION, "what follows the login"),
        (ServerFlags::TLS_DATA, "data"),
        (ServerFlags::TLS_TPC, "third-party copies"),
    ];
    let wanted: Vec<&str> =
        wanted.into_iter().filter(|(flag, _)| flags.has(*flag)).map(|(_, what)| what).collect();
    match wanted.is_empty() {
        true => Finding::ok("TLS", "for clients that want it (roots://)"),
        false => Finding::ok("TLS", format!("the server wants it for {}", wanted.join(", "))),
    }
}

/// `0:adler32,1:crc32c` without the numbers.
fn kinds_of(said: &str) -> String {
    let kinds = said.split(',').map(|kind| kind.split_once(':').map_or(kind, |(_, kind)| kind).trim());
    printable(&kinds.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_say_of_themselves() {
        assert_eq!(kinds_of("0:adler32,1:crc32c"), "adler32, crc32c");
        assert_eq!(kinds_of("adler32\u{1b}"), "adler32");
        let session = Session { version: 0x511, flags: ServerFlags::IS_SERVER, ..Session::default() };
        let text = server(&session, Some("v5.5.3"), Some("CERN"));
        assert_eq!(text, "v5.5.3, a data server, protocol 5.1.1, of CERN");
        let flags = ServerFlags::IS_MANAGER | ServerFlags::HAS_TLS | ServerFlags::TLS_LOGIN;
        let session = Session { flags, ..session };
        assert!(server(&session, None, None).starts_with("a manager"));
        assert!(encryption(&session).answer.to_string().contains("the login"));
    }
}
