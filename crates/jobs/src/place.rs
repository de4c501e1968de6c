//! URLs of jobs: what FTS3 asks of them, and the storage that each is of (fts3-rest 4.1, 4.3).
//!
//! A URL stays as it was given; schemes are those of any storage, and paths what their storage takes them for.

use gridlane_core::limits::JOB_URL_BYTES_MAX;
use gridlane_core::text::is_unprintable;

use crate::{Refusal, Storage};

/// The parts of a URL that matter to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts<'a> {
    scheme: &'a str,
    /// Without user and port; with the brackets of an address.
    host: &'a str,
    path: &'a str,
    has_query: bool,
}

/// Reads the URL of a source or destination, without the blanks around it: the URL, its scheme in small letters, its storage.
///
/// # Errors
/// In FTS3's words: no scheme, host or path; a file of this machine; longer than FTS3 keeps. And characters that are not to be shown,
/// which make one URL look like another one.
pub fn parse(text: &str) -> Result<(&str, String, Storage), Refusal> {
    let url = text.trim();
    if url.len() > JOB_URL_BYTES_MAX {
        return Err(Refusal::invalid(format!("Length {} exceeds allowed {JOB_URL_BYTES_MAX}", url.len())));
    }
    if url.chars().any(is_unprintable) {
        return Err(Refusal::invalid(format!("Unprintable characters in the URL ({url})")));
    }
    let parts = parts(url)?;
    let scheme = parts.scheme.to_ascii_lowercase();
    if scheme.is_empty() {
        return Err(Refusal::invalid(format!("Missing scheme ({url})")));
    }
    if scheme == "file" {
        return Err(Refusal::invalid(format!("Can not transfer local files ({url})")));
    }
    if parts.path.is_empty() || (parts.path == "/" && !parts.has_query) {
        return Err(Refusal::invalid(format!("Missing path ({url})")));
    }
    let storage =
        storage(&scheme, parts.host).ok_or_else(|| Refusal::invalid(format!("Missing host ({url})")))?;
    Ok((url, scheme, storage))
}

/// The storage that a text names: a URL of it with or without port and path, in any case.
pub fn storage_of(text: &str) -> Option<Storage> {
    let url = text.trim();
    if url.len() > JOB_URL_BYTES_MAX || url.chars().any(is_unprintable) {
        return None;
    }
    let parts = parts(url).ok()?;
    storage(&parts.scheme.to_ascii_lowercase(), parts.host)
}

/// The host of a URL, in small letters: empty if it has none.
pub fn host_of(url: &str) -> String {
    parts(url.trim()).map(|parts| parts.host.to_lowercase()).unwrap_or_default()
}

/// The scheme of a URL, in small letters: empty if it has none.
pub fn scheme_of(url: &str) -> String {
    parts(url.trim()).map(|parts| parts.scheme.to_ascii_lowercase()).unwrap_or_default()
}

fn storage(scheme: &str, host: &str) -> Option<Storage> {
    let is_host =
        !host.is_empty() && !host.contains(|char: char| char.is_whitespace() || "\"<>\\^`{|}".contains(char));
    (is_host && !scheme.is_empty())
        .then(|| Storage::from(format!("{scheme}://{}", host.to_lowercase()).as_str()))
}

/// The parts of a URL, each of which may be empty (RFC 3986, appendix B).
fn parts(url: &str) -> Result<Parts<'_>, Refusal> {
    let is_scheme = |name: &&str| {
        name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    let scheme = url.split_once(':').map(|(name, _)| name).filter(is_scheme).unwrap_or_default();
    let rest = if scheme.is_empty() { url } else { &url[scheme.len() + 1..] };
    let (authority, rest) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len())),
        None => ("", rest),
    };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = match host.find(']') {
        Some(end) if host.starts_with('[') => (&host[..=end], host[end + 1..].strip_prefix(':')),
        _ => host.split_once(':').map_or((host, None), |(host, port)| (host, Some(port))),
    };
    if port.is_some_and(|port| !port.is_empty() && port.parse::<u16>().is_err()) {
        return Err(Refusal::invalid(format!("Port out of range 0-65535 ({url})")));
    }
    let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
    let (path, query) = rest.split_once('?').map_or((rest, ""), |(path, query)| (path, query));
    Ok(Parts { scheme, host, path, has_query: !query.is_empty() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(url: &str) -> String {
        parse(url).unwrap_err().message
    }

    #[test]
    fn a_storage_is_a_scheme_and_a_host() {
        for (url, storage) in [
            ("davs://se.example.org:443/a", "davs://se.example.org"),
            (" Root://user@SE.example.org:1094//a/b?c=d ", "root://se.example.org"),
            ("srm://h/srm/managerv2?SFN=/x", "srm://h"),
            ("mock://h/?size=1", "mock://h"),
            ("https://[2001:DB8::1]:8443/a", "https://[2001:db8::1]"),
            ("s3://bucket.example.org/a b", "s3://bucket.example.org"),
        ] {
            let (text, scheme, found) = parse(url).unwrap();
            assert_eq!((text, found), (url.trim(), Storage::from(storage)), "{url}");
            assert!(storage.starts_with(&format!("{scheme}://")));
        }
        assert_eq!(storage_of("https://A.example:8443"), Some(Storage::from("https://a.example")));
        assert_eq!(storage_of("a.example"), None);
        assert_eq!(host_of("root://u@Se.example.org:1094//x"), "se.example.org");
    }

    #[test]
    fn refusals_are_in_the_words_of_fts3() {
        for (url, message) in [
            ("/etc/passwd", "Missing scheme (/etc/passwd)"),
            ("", "Missing scheme ()"),
            ("file:///etc/passwd", "Can not transfer local files (file:///etc/passwd)"),
            ("FILE:///etc/passwd", "Can not transfer local files (FILE:///etc/passwd)"),
            ("gsiftp:/source.es:8446/file", "Missing host (gsiftp:/source.es:8446/file)"),
            ("gsiftp://source.es:8446/", "Missing path (gsiftp://source.es:8446/)"),
            ("http://google.com", "Missing path (http://google.com)"),
            ("http: //source.es/file", "Missing host (http: //source.es/file)"),
            ("root://se:port/x", "Port out of range 0-65535 (root://se:port/x)"),
            ("root://a host/x", "Missing host (root://a host/x)"),
        ] {
            assert_eq!(refused(url), format!("Invalid value within the request: {message}"));
        }
        assert!(
            refused(&format!("https://a/{}", "x".repeat(1200))).ends_with("Length 1210 exceeds allowed 1100")
        );
        assert!(refused("https://a/\u{202e}x").contains("Unprintable"));
        assert!(refused("https://a/x\r\nHost: b").contains("Unprintable"));
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_has_a_storage(text in "(https|root|file|)(:|://)?\\PC{0,20}(/\\PC{0,9})?") {
            match parse(&text) {
                Ok((url, scheme, storage)) => {
                    prop_assert_eq!(url, text.trim());
                    let prefix = format!("{scheme}://");
                    prop_assert!(storage.0.len() > prefix.len() && storage.0.starts_with(&prefix));
                    prop_assert_eq!(storage_of(&storage.0), Some(storage.clone()), "names itself");
                }
                Err(refusal) => prop_assert_eq!(refusal.status, 400),
            }
        }
    }
}
