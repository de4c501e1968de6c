//! The content of an answer, by request and resource; names make no markup; memory does not grow.

use super::*;
use crate::propfind::ProppatchRequest;
use std::time::{Duration, UNIX_EPOCH};

fn request(body: &str) -> PropfindRequest {
    PropfindRequest::parse(body.as_bytes()).unwrap()
}

fn asking(names: &str) -> PropfindRequest {
    let namespaces = "xmlns='DAV:' xmlns:L='LCGDM:' xmlns:oc='http://owncloud.org/ns' \
                      xmlns:dc='http://www.dcache.org/2013/webdav' xmlns:x='x&amp;y'";
    request(&format!("<propfind {namespaces}><prop>{names}</prop></propfind>"))
}

fn entry(resource: &Resource<'_>, request: &PropfindRequest) -> String {
    let mut out = Vec::new();
    Multistatus::new(None).entry(&mut out, resource, request);
    String::from_utf8(out).unwrap()
}

fn moment() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(784_111_777)
}

#[test]
fn a_directory_and_a_file() {
    let tag = ETag::strong("x&y").unwrap();
    let directory = Resource {
        modified: Some(moment()),
        created: Some(moment()),
        mode: Some(0o755),
        quota: Some(Quota { available_bytes: Some(7), used_bytes: Some(5) }),
        size_bytes: Some(4096),
        ..Resource::new(b"/data", EntryKind::Directory)
    };
    let file = Resource {
        size_bytes: Some(3),
        etag: Some(&tag),
        content_type: Some("text/plain"),
        mode: Some(0o100_644),
        quota: Some(Quota { available_bytes: Some(7), used_bytes: Some(5) }),
        ..Resource::new(b"/data/a <b>", EntryKind::File)
    };
    let answer = Multistatus::new(Some("https://h:8443"));
    let mut out = Vec::new();
    answer.open(&mut out);
    answer.entry(&mut out, &directory, &request(""));
    answer.entry(&mut out, &file, &request(""));
    answer.close(&mut out);
    let expected = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
        <D:multistatus xmlns:D=\"DAV:\" xmlns:L=\"LCGDM:\" xmlns:oc=\"http://owncloud.org/ns\" \
        xmlns:dcache=\"http://www.dcache.org/2013/webdav\">\n\
        <D:response><D:href>https://h:8443/data/</D:href><D:propstat><D:prop>\
        <D:resourcetype><D:collection/></D:resourcetype><D:displayname>data</D:displayname>\
        <D:getlastmodified>Sun, 06 Nov 1994 08:49:37 GMT</D:getlastmodified>\
        <D:creationdate>1994-11-06T08:49:37Z</D:creationdate><D:supportedlock/><L:mode>040755</L:mode>\
        </D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>\n\
        <D:response><D:href>https://h:8443/data/a%20%3Cb%3E</D:href><D:propstat><D:prop>\
        <D:resourcetype/><D:displayname>a &lt;b&gt;</D:displayname>\
        <D:getcontentlength>3</D:getcontentlength><D:getcontenttype>text/plain</D:getcontenttype>\
        <D:getetag>&quot;x&amp;y&quot;</D:getetag><D:supportedlock/><L:mode>0100644</L:mode>\
        </D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>\n\
        </D:multistatus>\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn what_was_asked_for_and_nothing_else() {
    let checksums =
        ["adler32:091e01de", "md5:900150983cd24fb0d6963f7d28e17f72"].map(|text| text.parse().unwrap());
    let file = Resource {
        size_bytes: Some(3),
        checksums: &checksums,
        quota: Some(Quota { available_bytes: Some(7), used_bytes: None }),
        ..Resource::new(b"/f", EntryKind::File)
    };
    let directory = Resource { kind: EntryKind::Directory, ..file.clone() };
    let ok = |inside: &str| {
        format!("<D:propstat><D:prop>{inside}</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>")
    };
    let missing = |inside: &str| {
        format!(
            "<D:propstat><D:prop>{inside}</D:prop><D:status>HTTP/1.1 404 Not Found</D:status></D:propstat>"
        )
    };
    for (names, of_file, of_directory) in [
        (
            "<getcontentlength/>",
            ok("<D:getcontentlength>3</D:getcontentlength>"),
            missing("<D:getcontentlength/>"),
        ),
        (
            "<quota-available-bytes/><quota-used-bytes/>",
            missing("<D:quota-available-bytes/><D:quota-used-bytes/>"),
            ok("<D:quota-available-bytes>7</D:quota-available-bytes>") + &missing("<D:quota-used-bytes/>"),
        ),
        (
            "<oc:checksums/><dc:Checksums/>",
            ok(
                "<oc:checksums><oc:checksum>ADLER32:091e01de MD5:900150983cd24fb0d6963f7d28e17f72</oc:checksum></oc:checksums>\
                <dcache:Checksums>adler32=091e01de,md5=kAFQmDzST7DWlj99KOF/cg==</dcache:Checksums>",
            ),
            missing(
                "<x:checksums xmlns:x=\"http://owncloud.org/ns\"/>\
                     <x:Checksums xmlns:x=\"http://www.dcache.org/2013/webdav\"/>",
            ),
        ),
        ("<resourcetype/>", ok("<D:resourcetype/>"), ok("<D:resourcetype><D:collection/></D:resourcetype>")),
        (
            "<x:executable/><nowhere xmlns=''/><getetag/>",
            missing("<x:executable xmlns:x=\"x&amp;y\"/><nowhere/><D:getetag/>"),
            missing("<x:executable xmlns:x=\"x&amp;y\"/><nowhere/><D:getetag/>"),
        ),
        ("", ok(""), ok("")),
    ] {
        let request = asking(names);
        assert_eq!(
            entry(&file, &request),
            format!("<D:response><D:href>/f</D:href>{of_file}</D:response>\n")
        );
        assert_eq!(
            entry(&directory, &request),
            format!("<D:response><D:href>/f/</D:href>{of_directory}</D:response>\n")
        );
    }
    let names = entry(&file, &PropfindRequest::PropName);
    let expected = "<D:resourcetype/><D:displayname/><D:getcontentlength/><D:supportedlock/><oc:checksums/><dcache:Checksums/>";
    assert!(names.contains(&ok(expected)), "{names}");
    let include = "<propfind xmlns='DAV:'><allprop/><include><getetag/><resourcetype/><quota-available-bytes/></include></propfind>";
    let all = entry(&directory, &request(include));
    assert_eq!(all.matches("resourcetype>").count(), 2, "{all}");
    assert!(all.contains("<D:quota-available-bytes>7<") && all.contains(&missing("<D:getetag/>")), "{all}");
}

#[test]
fn names_that_xml_cannot_hold() {
    for (path, href, display) in [
        (&b"/"[..], "/", "/"),
        (b"", "/", "/"),
        (b"/a", "/a", "a"),
        (b"//a//b/", "/a/b", "b"),
        (b"/\xff\x01", "/%FF%01", "\u{fffd}\u{fffd}"),
        ("/\u{ffff}é".as_bytes(), "/%EF%BF%BF%C3%A9", "\u{fffd}é"),
        (b"/a\r\n\t", "/a%0D%0A%09", "a&#13;&#10;&#9;"),
        (b"/]]>&\"'", "/%5D%5D%3E%26%22%27", "]]&gt;&amp;&quot;'"),
        (b"/a%20b?c#d;e:f", "/a%2520b%3Fc%23d%3Be%3Af", "a%20b?c#d;e:f"),
    ] {
        let shown = entry(&Resource::new(path, EntryKind::File), &asking("<displayname/>"));
        assert!(shown.contains(&format!("<D:href>{href}</D:href>")), "{shown}");
        assert!(shown.contains(&format!("<D:displayname>{display}</D:displayname>")), "{shown}");
    }
}

#[test]
fn origins_are_hosts() {
    for (origin, href) in [
        ("http://h", "http://h/f"),
        ("https://[::1]:8443", "https://[::1]:8443/f"),
        ("ftp://h", "/f"),
        ("http://", "/f"),
        ("http://h/<x>", "/f"),
        ("http://h&lt;", "/f"),
        ("http://u@h", "/f"),
        ("h", "/f"),
    ] {
        let mut out = Vec::new();
        Multistatus::new(Some(origin)).outcome(&mut out, b"/f", EntryKind::File, Status::FORBIDDEN);
        let expected = format!(
            "<D:response><D:href>{href}</D:href><D:status>HTTP/1.1 403 Forbidden</D:status></D:response>\n"
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}

#[test]
fn changes() {
    let body = "<propertyupdate xmlns='DAV:'><set><prop><getetag>x</getetag><y xmlns='z'/><lastmodified>5</lastmodified>\
                </prop></set><remove><prop><getetag/></prop></remove></propertyupdate>";
    let changes = ProppatchRequest::parse(body.as_bytes()).unwrap();
    let outcomes: Vec<_> = changes
        .names()
        .into_iter()
        .zip([Status::FORBIDDEN, Status::FORBIDDEN, Status::FAILED_DEPENDENCY])
        .collect();
    let mut out = Vec::new();
    Multistatus::new(None).changes(&mut out, b"/d", EntryKind::Directory, &outcomes);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "<D:response><D:href>/d/</D:href><D:propstat><D:prop><D:getetag/><x:y xmlns:x=\"z\"/></D:prop>\
         <D:status>HTTP/1.1 403 Forbidden</D:status><D:error><D:cannot-modify-protected-property/></D:error>\
         </D:propstat><D:propstat><D:prop><D:lastmodified/></D:prop><D:status>HTTP/1.1 424 Failed Dependency\
         </D:status></D:propstat></D:response>\n"
    );
}
