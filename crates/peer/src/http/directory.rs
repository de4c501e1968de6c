//! Directories where a file was asked for. What a server sends for one is a page about it, and never the data that was
//! wanted.
//!
//! Most servers redirect `/sub` to `/sub/` (nginx, Apache, gridlane). Some send the page at once (XRootD,
//! dCache, WsgiDAV): then what looks like such a page is asked about by WebDAV, which those servers speak. A
//! page that no server tells from a file (`/report`, answered as HTML) is a file.

use gridlane_core::limits::{DIRECTORY_ANSWER_MAX, IO_BYTES};
use gridlane_core::{Error, ErrorKind, Fault, Hint, Url};
use gridlane_dav::listing::EntryKind;
use gridlane_dav::property::LiveProperty;
use gridlane_dav::{MultistatusReader, PropfindRequest, ResponseHead};
use tokio::time::timeout;

use super::exchange::Client;
use super::redirect::names_directory;
use super::request::Request;

/// Ends of names that pages have and directories have not.
const PAGES: [&str; 4] = [".html", ".htm", ".xhtml", ".shtml"];

/// The error for a directory where a file was asked for.
pub fn is_directory(url: &Url) -> Error {
    Error::new(ErrorKind::Usage, "it is a directory").fault(Fault::Caller).endpoint(url).hint(Hint::CopyTree)
}

/// True if an answer sends to the same path with a slash. The rest of its target does not matter: many a server behind
/// one that speaks TLS sends to `http://`, where no redirect is followed.
pub fn sends_to_directory(from: &Url, head: &ResponseHead) -> bool {
    let location = head.location().filter(|_| head.status.is_redirect());
    location.and_then(|location| from.join(location).ok()).is_some_and(|to| names_directory(from, &to))
}

/// True if an answer may be the page of a directory.
pub fn may_be_listing(url: &Url, head: &ResponseHead) -> bool {
    let name = url.file_name().unwrap_or_default().to_ascii_lowercase();
    matches!(head.media_type().as_deref(), Some("text/html" | "application/xhtml+xml"))
        && !PAGES.iter().any(|end| name.ends_with(end))
}

/// True if a server says by WebDAV that a URL is a collection. A server that says nothing has none.
pub async fn is_collection(client: &Client, url: &Url) -> bool {
    let asked = timeout(DIRECTORY_ANSWER_MAX, ask(client, url)).await;
    asked.ok().flatten().unwrap_or(false)
}

async fn ask(client: &Client, url: &Url) -> Option<bool> {
    let body = PropfindRequest::Prop(vec![LiveProperty::ResourceType.into()]).to_xml();
    let request = Request::new("PROPFIND", url)
        .header("Depth", "0")
        .header("Content-Type", "application/xml; charset=utf-8")
        .body(body.as_bytes());
    let mut exchange = client.exchange(&request).await.ok()?;
    if exchange.status().code() != 207 {
        exchange.finish().await;
        return None;
    }
    let mut reader = MultistatusReader::new(&exchange.url);
    let (mut entries, mut buf) = (Vec::new(), vec![0; IO_BYTES]);
    while entries.is_empty() {
        match exchange.read(&mut buf).await.ok()? {
            0 => break,
            count => reader.feed(&buf[..count], &mut entries).ok()?,
        }
    }
    exchange.finish().await;
    let itself = entries.into_iter().find(|entry| entry.is_self)?;
    Some(itself.status.is_success() && itself.kind == EntryKind::Directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse_absolute(text).unwrap()
    }

    #[test]
    fn a_slash_and_nothing_else_makes_a_directory() {
        for (from, to, expected) in [
            ("http://h/sub", "http://h/sub/", true),
            ("http://h/sub", "https://pool:8443/sub/?x=1", true),
            ("http://h/s%75b%20x?y", "http://h/sub%20x/", true),
            ("http://h/sub", "http://h/sub", false),
            ("http://h/sub", "http://h/sub//", false),
            ("http://h/sub", "http://h/other/", false),
            ("http://h/file", "http://cdn/blob/17", false),
        ] {
            assert_eq!(names_directory(&url(from), &url(to)), expected, "{from} {to}");
        }
    }

    #[test]
    fn a_redirect_that_is_not_followed_tells_as_well() {
        let sends = |from: &str, code: u16, to: &str| {
            let text = format!("HTTP/1.1 {code} x\r\nLocation: {to}\r\n\r\n");
            let (head, _) = ResponseHead::parse(text.as_bytes()).unwrap().unwrap();
            sends_to_directory(&url(from), &head)
        };
        assert!(sends("https://h/sub", 301, "http://h/sub/") && sends("http://h/a/sub", 307, "sub/"));
        assert!(!sends("https://h/sub", 201, "http://h/sub/") && !sends("https://h/f", 302, "/g"));
    }

    #[test]
    fn pages_that_may_be_listings() {
        let head = |media_type: &str| {
            let text = format!("HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\n\r\n");
            ResponseHead::parse(text.as_bytes()).unwrap().unwrap().0
        };
        let html = head("text/html; charset=utf-8");
        assert!(may_be_listing(&url("http://h/d/sub"), &html));
        assert!(may_be_listing(&url("http://h/d/sub.zarr"), &head("application/xhtml+xml")));
        assert!(!may_be_listing(&url("http://h/d/Report.HTML"), &html));
        assert!(!may_be_listing(&url("http://h/d/sub"), &head("application/octet-stream")));
    }
}
