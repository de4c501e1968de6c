//! Listings as other servers write them, our own read back, and everything that could go wrong with one.

use super::*;
use crate::date;
use crate::multistatus::{Multistatus, Resource};
use crate::property::PropertyName;
use crate::propfind::PropfindRequest;
use proptest::prelude::*;
use std::time::{Duration, UNIX_EPOCH};

fn url(path: &str) -> Url {
    Url::parse_absolute(&format!("http://h{path}")).unwrap()
}

fn read_in(path: &str, pieces: &[&[u8]]) -> Result<(Vec<MultistatusEntry>, u64)> {
    let mut reader = MultistatusReader::new(&url(path));
    let mut entries = Vec::new();
    for piece in pieces {
        reader.feed(piece, &mut entries)?;
    }
    let skipped = reader.skipped();
    reader.finish()?;
    Ok((entries, skipped))
}

fn read(path: &str, body: &str) -> Vec<MultistatusEntry> {
    let (entries, skipped) = read_in(path, &[body.as_bytes()]).unwrap();
    assert_eq!(skipped, 0, "{entries:?}");
    let bytes: Vec<&[u8]> = body.as_bytes().chunks(1).collect();
    assert_eq!(read_in(path, &bytes).unwrap(), (entries.clone(), 0));
    entries
}

/// The entry in a line: its path, `/` behind a directory's, its size.
fn line(entry: &MultistatusEntry) -> String {
    let path = String::from_utf8_lossy(&entry.names.join(&b'/')).into_owned();
    let slash = if entry.kind == EntryKind::Directory { "/" } else { "" };
    let size = entry.size_bytes.map(|size| format!(" {size}")).unwrap_or_default();
    format!("{path}{slash}{size}")
}

fn lines(entries: &[MultistatusEntry]) -> Vec<String> {
    entries.iter().map(line).collect()
}

const MODIFIED: &str = "Wed, 21 Oct 2015 07:28:00 GMT";

#[test]
fn apache() {
    let body = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\" xmlns:ns0=\"DAV:\">\n\
        <D:response xmlns:lp1=\"DAV:\" xmlns:lp2=\"http://apache.org/dav/props/\">\n<D:href>/dav/</D:href>\n<D:propstat>\n\
        <D:prop>\n<lp1:resourcetype><D:collection/></lp1:resourcetype>\n<lp1:creationdate>2015-10-21T07:28:00Z</lp1:creationdate>\n\
        <lp1:getlastmodified>Wed, 21 Oct 2015 07:28:00 GMT</lp1:getlastmodified>\n<lp1:getetag>\"1000-55b5e9e1e873b\"</lp1:getetag>\n\
        <D:supportedlock>\n<D:lockentry>\n<D:lockscope><D:exclusive/></D:lockscope>\n<D:locktype><D:write/></D:locktype>\n\
        </D:lockentry>\n</D:supportedlock>\n<D:lockdiscovery/>\n<D:getcontenttype>httpd/unix-directory</D:getcontenttype>\n\
        </D:prop>\n<D:status>HTTP/1.1 200 OK</D:status>\n</D:propstat>\n</D:response>\n\
        <D:response xmlns:lp1=\"DAV:\" xmlns:lp2=\"http://apache.org/dav/props/\">\n<D:href>/dav/a%20b%26c.root</D:href>\n\
        <D:propstat>\n<D:prop>\n<lp1:resourcetype/>\n<lp1:getcontentlength>1500</lp1:getcontentlength>\n\
        <lp1:getlastmodified>Wed, 21 Oct 2015 07:28:00 GMT</lp1:getlastmodified>\n<lp2:executable>F</lp2:executable>\n\
        </D:prop>\n<D:status>HTTP/1.1 200 OK</D:status>\n</D:propstat>\n</D:response>\n</D:multistatus>\n";
    let entries = read("/dav/", body);
    assert_eq!(lines(&entries), ["/", "a b&c.root 1500"]);
    assert!(entries[0].is_self && !entries[1].is_self);
    assert_eq!(entries[0].etag, ETag::strong("1000-55b5e9e1e873b"));
    assert_eq!((entries[1].modified, entries[0].created), (date::parse(MODIFIED), date::parse(MODIFIED)));
}

#[test]
fn nginx_with_dav_ext() {
    let body = "<?xml version=\"1.0\" encoding=\"utf-8\" ?>\n<D:multistatus xmlns:D=\"DAV:\">\n<D:response>\n<D:href>/d/</D:href>\n\
        <D:propstat>\n<D:prop>\n<D:displayname>d</D:displayname>\n<D:getcontentlength>4096</D:getcontentlength>\n\
        <D:getlastmodified>Wed, 21 Oct 2015 07:28:00 GMT</D:getlastmodified>\n<D:resourcetype><D:collection/></D:resourcetype>\n\
        <D:lockdiscovery/>\n</D:prop>\n<D:status>HTTP/1.1 200 OK</D:status>\n</D:propstat>\n</D:response>\n\
        <D:response>\n<D:href>/d/sub</D:href>\n<D:propstat>\n<D:prop>\n<D:resourcetype><D:collection/></D:resourcetype>\n\
        </D:prop>\n<D:status>HTTP/1.1 200 OK</D:status>\n</D:propstat>\n</D:response>\n</D:multistatus>\n";
    assert_eq!(lines(&read("/d/", body)), ["/", "sub/"]);
}

#[test]
fn xrootd() {
    // Old ones have no resourcetype for files, ISO dates, and paths that are not encoded.
    let entry = |path: &str, properties: &str| {
        format!(
            "<D:response xmlns:lp1=\"DAV:\" xmlns:lp2=\"http://apache.org/dav/props/\" xmlns:lp3=\"LCGDM:\">\n\
             <D:href>{path}</D:href>\n<D:propstat>\n<D:prop>\n{properties}</D:prop>\n\
             <D:status>HTTP/1.1 200 OK</D:status>\n</D:propstat>\n</D:response>\n"
        )
    };
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\" xmlns:ns1=\"http://apache.org/dav/props/\" \
         xmlns:ns0=\"DAV:\">\n{}{}</D:multistatus>\n",
        entry(
            "//store",
            "<lp1:getcontentlength>4096</lp1:getcontentlength>\n<lp1:getlastmodified>2015-10-21T07:28:00Z</lp1:getlastmodified>\n\
             <lp1:resourcetype><D:collection/></lp1:resourcetype>\n<lp1:iscollection>1</lp1:iscollection>\n"
        ),
        entry(
            "//store/a b/",
            "<lp1:getcontentlength>7</lp1:getcontentlength>\n<lp1:iscollection>0</lp1:iscollection>\n\
             <lp1:executable>T</lp1:executable>\n<lp3:mode>0100644</lp3:mode>\n"
        )
    );
    let entries = read("/store", &body);
    assert_eq!(lines(&entries), ["/", "a b 7"]);
    assert_eq!((entries[0].modified, entries[1].mode), (date::parse(MODIFIED), Some(0o100_644)));
}

#[test]
fn dcache() {
    let body = "<?xml version=\"1.0\" encoding=\"utf-8\" ?>\n<d:multistatus xmlns:cal=\"urn:ietf:params:xml:ns:caldav\" \
        xmlns:ns2=\"http://www.dcache.org/2013/webdav\" xmlns:ns1=\"http://srm.lbl.gov/StorageResourceManager\" xmlns:d=\"DAV:\">\n   \
        <d:response>\n      <d:href>/pnfs/f</d:href>\n      <d:propstat>\n         <d:prop>\n\
                    <ns2:Checksums>adler32=091e01de,md5=kAFQmDzST7DWlj99KOF/cg==</ns2:Checksums>\n\
                    <ns1:FileLocality>ONLINE</ns1:FileLocality>\n            <d:getetag>\"0000A_1445412480\"</d:getetag>\n\
                    <d:iscollection>FALSE</d:iscollection>\n            <d:getcontentlength>12</d:getcontentlength>\n\
                 </d:prop>\n         <d:status>HTTP/1.1 200 OK</d:status>\n      </d:propstat>\n   </d:response>\n</d:multistatus>\n";
    let entries = read("/pnfs/f", body);
    assert_eq!(lines(&entries), [" 12"]);
    assert!(entries[0].is_self);
    let expected =
        ["adler32:091e01de", "md5:900150983cd24fb0d6963f7d28e17f72"].map(|text| text.parse().unwrap());
    assert_eq!(entries[0].checksums, expected);
}

#[test]
fn owncloud_and_storm() {
    // Sabre: groups, the 404 with empty values behind; a quota that is no number of bytes.
    let body = "<?xml version=\"1.0\"?>\n<d:multistatus xmlns:d=\"DAV:\" xmlns:s=\"http://sabredav.org/ns\" \
        xmlns:oc=\"http://owncloud.org/ns\"><d:response><d:href>/remote.php/webdav/</d:href><d:propstat><d:prop>\
        <d:resourcetype><d:collection/></d:resourcetype><d:quota-used-bytes>163</d:quota-used-bytes>\
        <d:quota-available-bytes>-3</d:quota-available-bytes></d:prop><d:status>HTTP/1.1 200 OK</d:status></d:propstat></d:response>\
        <d:response><d:href>/remote.php/webdav/N%C3%A9.pdf</d:href><d:propstat><d:prop><d:getcontentlength>4143665</d:getcontentlength>\
        <d:resourcetype/><d:getetag>&quot;048d7be4437ff7deeae94db50ff3e209&quot;</d:getetag><oc:checksums><oc:checksum>\
        SHA1:a9993e364706816aba3e25717850c26c9cd0d89d MD5:900150983cd24fb0d6963f7d28e17f72 ADLER32:91e01de</oc:checksum>\
        </oc:checksums></d:prop><d:status>HTTP/1.1 200 OK</d:status></d:propstat><d:propstat><d:prop><d:getcontentlength>9\
        </d:getcontentlength><d:quota-used-bytes/></d:prop><d:status>HTTP/1.1 404 Not Found</d:status></d:propstat></d:response>\
        </d:multistatus>";
    let entries = read("/remote.php/webdav/", body);
    assert_eq!(lines(&entries), ["/", "Né.pdf 4143665"]);
    assert_eq!(entries[0].quota, Quota { available_bytes: None, used_bytes: Some(163) });
    assert_eq!(entries[1].checksums.len(), 3);
    // StoRM, by Milton: complete URLs, whatever its host is called.
    let storm = "<D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>https://storm.example:8443/sa/dir/</D:href><D:propstat><D:prop>\
        <D:iscollection>TRUE</D:iscollection></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response><D:response>\
        <D:href>https://storm.example:8443/sa/dir/x</D:href><D:propstat><D:prop><D:getcontentlength>3</D:getcontentlength>\
        <D:iscollection>FALSE</D:iscollection></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>";
    assert_eq!(lines(&read("/sa/dir", storm)), ["/", "x 3"]);
}

#[test]
fn rclone_and_wsgidav() {
    // Go: default namespace declared on every property. wsgidav: ns0 and tags without quotes.
    let go = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>/f</D:href><D:propstat>\
        <D:prop><D:resourcetype></D:resourcetype><D:getcontentlength>5</D:getcontentlength><D:getetag>\"16e5\"</D:getetag>\
        <checksums xmlns=\"http://owncloud.org/ns\"><checksum xmlns=\"http://owncloud.org/ns\">MD5:900150983cd24fb0d6963f7d28e17f72\
        </checksum></checksums></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>";
    let entries = read("/f", go);
    assert_eq!((lines(&entries), entries[0].checksums.len()), (vec![" 5".to_owned()], 1));
    let wsgidav = "\n<?xml version='1.0' encoding='UTF-8'?>\n<ns0:multistatus xmlns:ns0=\"DAV:\"><ns0:response><ns0:href>/d/f</ns0:href>\
        <ns0:propstat><ns0:prop><ns0:resourcetype /><ns0:getetag>abc-17-5</ns0:getetag><ns0:getcontentlength> 5 </ns0:getcontentlength>\
        <ns0:getlastmodified>Wed, 21 Oct 2015 07:28:00 +0000</ns0:getlastmodified></ns0:prop><ns0:status>HTTP/1.1 200</ns0:status>\
        </ns0:propstat></ns0:response></ns0:multistatus>";
    let entries = read("/d/", wsgidav);
    assert_eq!(
        (lines(&entries), entries[0].etag.clone()),
        (vec!["f 5".to_owned()], ETag::strong("abc-17-5"))
    );
    assert_eq!(entries[0].modified, date::parse(MODIFIED));
}

fn multistatus(inside: &str) -> String {
    format!("<multistatus xmlns='DAV:'>{inside}</multistatus>")
}

#[test]
fn groups_and_statuses() {
    let group = |status: &str| {
        let propstat =
            format!("<propstat>{status}<prop><getcontentlength>5</getcontentlength></prop></propstat>");
        let body = multistatus(&format!("<response><href>/d/f</href>{propstat}</response>"));
        read_in("/d/", &[body.as_bytes()]).map(|(entries, _)| entries[0].size_bytes)
    };
    for (status, expected) in [
        ("", Some(5)),
        ("<status>HTTP/1.1 200 OK</status>", Some(5)),
        ("<status>HTTP/2 200</status>", Some(5)),
        ("<status>http/1.0 200 ok</status>", Some(5)),
        ("<status>\n200 OK</status>", Some(5)),
        ("<status>HTTP/1.1 404 Not Found</status>", None),
        ("<status>HTTP/1.1 403</status>", None),
    ] {
        assert_eq!(group(status).unwrap(), expected, "{status}");
    }
    for status in
        ["<status/>", "<status>OK</status>", "<status>HTTP/1.1 20 x</status>", "<status>HTTP/1.1</status>"]
    {
        assert_eq!(group(status).unwrap_err().kind(), ErrorKind::Protocol, "{status}");
    }
    // What a DELETE could not remove, and a listing that was cut.
    let body = multistatus(
        "<response><href>/d/a</href><href>/d/b/</href><status>HTTP/1.1 423 Locked</status></response>\
         <response><href>/d/</href><status>HTTP/1.1 507 Insufficient Storage</status></response>",
    );
    let entries = read("/d/", &body);
    assert_eq!(lines(&entries), ["a", "b/", "/"]);
    assert_eq!(entries.iter().map(|entry| entry.status.code()).collect::<Vec<_>>(), [423, 423, 507]);
}

#[test]
fn names_that_lead_elsewhere_are_left_out() {
    let hrefs = ["/d/", "/d/..", "/d/%2e%2e/x", "/d/a%2fb", "/d/%00", "/e/x", "/d/ok", ""];
    let inside: String =
        hrefs.iter().map(|href| format!("<response><href>{href}</href></response>")).collect();
    let body = multistatus(&(inside + "<response/>"));
    let (entries, skipped) = read_in("/d/", &[body.as_bytes()]).unwrap();
    assert_eq!((lines(&entries), skipped), (vec!["/".to_owned(), "ok".to_owned()], 7));
}

#[test]
fn little_text_does_not_take_much_memory() {
    // Properties of an entry are not kept for each of its names, nor all checksums that it has room for.
    let checksums: String = (0..1500).map(|value| format!("ADLER32:{value:08x} ")).collect();
    let properties = format!(
        "<propstat><prop><checksums xmlns='http://owncloud.org/ns'><checksum>{checksums}</checksum></checksums></prop></propstat>"
    );
    let listed = |hrefs: usize| {
        let hrefs = "<href>/d/f</href>".repeat(hrefs);
        read("/d/", &multistatus(&format!("<response>{hrefs}{properties}</response>")))
    };
    assert_eq!(listed(1)[0].checksums.len(), limits::MULTISTATUS_CHECKSUMS_MAX);
    let several = listed(800);
    assert_eq!(several.len(), 800);
    assert!(several.iter().all(|entry| entry.checksums.is_empty() && entry.names == [b"f"]));
}

#[test]
fn a_long_base_costs_nothing_for_each_entry() {
    // It would take minutes to copy the base for each.
    let base = "a/".repeat(20_000);
    let below: String = "<response><href>x</href></response>".repeat(20_000);
    let body = multistatus(&format!("<response><href>/{base}</href></response>{below}"));
    let (entries, skipped) = read_in("/d/", &[body.as_bytes()]).unwrap();
    assert_eq!((entries.len(), skipped), (20_001, 0));
    assert!(entries[0].is_self && entries[1..].iter().all(|entry| entry.names == [b"x"]));
}

#[test]
fn what_ends_the_reading() {
    let max = limits::MULTISTATUS_ENTRY_BYTES_MAX;
    let entry = "<response><href>/d/f</href></response>";
    let hrefs = multistatus(&format!("<response>{}</response>", "<href>/d/f</href>".repeat(max / 8)));
    let text = multistatus(&format!("<response><href>{}</href></response>", "<x/>yyyyyyyy".repeat(max / 8)));
    let groups = "<propstat><prop><displayname/></prop></propstat>".repeat(max / 8);
    let groups = multistatus(&format!("<response>{groups}</response>"));
    let deep = multistatus(&"<x>".repeat(limits::MULTISTATUS_DEPTH_MAX));
    for body in [
        "",
        "<html/>",
        "<multistatus/>",
        "<!DOCTYPE html><html>",
        "not XML",
        &multistatus(entry)[..60],
        &multistatus("<response><href>/d/a&b</href></response>"),
        &multistatus("<response></multistatus>"),
        &hrefs,
        &text,
        &groups,
        &deep,
    ] {
        assert_eq!(read_in("/d/", &[body.as_bytes()]).unwrap_err().kind(), ErrorKind::Protocol, "{body:.80}");
    }
    // What was complete before the error is there.
    let mut reader = MultistatusReader::new(&url("/d/"));
    let mut entries = Vec::new();
    let body = multistatus(&format!("{entry}<response></oops>"));
    assert!(reader.feed(body.as_bytes(), &mut entries).is_err());
    assert_eq!(lines(&entries), ["f"]);
}

#[test]
fn memory_does_not_grow_with_the_listing() {
    let answer = Multistatus::new(Some("http://h"));
    let request = PropfindRequest::AllProp { include: Vec::new() };
    let mut reader = MultistatusReader::new(&url("/d/"));
    let (mut out, mut entries, mut count) = (Vec::new(), Vec::new(), 0);
    answer.open(&mut out);
    for number in 0..100_000 {
        let path = format!("/d/file-{number}.root");
        let resource =
            Resource { size_bytes: Some(number), ..Resource::new(path.as_bytes(), EntryKind::File) };
        answer.entry(&mut out, &resource, &request);
        assert!(out.capacity() < 4096);
        reader.feed(&out, &mut entries).unwrap();
        out.clear();
        count += entries.drain(..).filter(|entry| entry.size_bytes == Some(number)).count();
    }
    answer.close(&mut out);
    reader.feed(&out, &mut entries).unwrap();
    reader.finish().unwrap();
    assert_eq!(count, 100_000);
}

fn path() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let raw = prop::collection::vec(any::<u8>(), 1..12);
    let text = "\\PC{1,12}".prop_map(String::into_bytes);
    let name = prop_oneof![raw, text].prop_filter("a name", |name| gridlane_core::name::is_entry(name));
    prop::collection::vec(name, 0..4)
}

proptest! {
    /// Our own answers are read completely, whatever the names and however they are cut.
    #[test]
    fn round_trip(names in path(), known: [bool; 7], figures: [u32; 4], cut in 1usize..50, absolute: bool, by_name: bool) {
        let directory = known[0];
        let kind = if directory { EntryKind::Directory } else { EntryKind::File };
        let moment = |seconds: u32| UNIX_EPOCH + Duration::from_secs(seconds.into());
        let tag = ETag::strong(format!("{:x}-&<", figures[0])).unwrap();
        let checksums = [Checksum::adler32(figures[1]), "md5:900150983cd24fb0d6963f7d28e17f72".parse().unwrap()];
        let mut full = b"/d".to_vec();
        names.iter().for_each(|name| { full.push(b'/'); full.extend(name) });
        let resource = Resource {
            size_bytes: known[1].then_some(figures[0].into()),
            modified: known[2].then(|| moment(figures[1])),
            created: known[3].then(|| moment(figures[2])),
            etag: known[4].then_some(&tag),
            checksums: if known[5] { &checksums } else { &[] },
            mode: known[6].then_some(figures[3] & 0o7777),
            quota: Some(Quota { available_bytes: known[1].then_some(figures[2].into()), used_bytes: Some(1) }),
            ..Resource::new(&full, kind)
        };
        let every: Vec<PropertyName> = LiveProperty::all().map(PropertyName::from).collect();
        let request = if by_name { PropfindRequest::Prop(every) } else { PropfindRequest::AllProp { include: every } };
        let answer = Multistatus::new(absolute.then_some("https://other:1"));
        let mut body = Vec::new();
        answer.open(&mut body);
        answer.entry(&mut body, &resource, &request);
        answer.close(&mut body);
        let pieces: Vec<&[u8]> = body.chunks(cut).collect();
        let (entries, skipped) = read_in("/d/", &pieces).unwrap();
        let type_bits = if directory { 0o040_000 } else { 0o100_000 };
        let expected = MultistatusEntry {
            is_self: names.is_empty(),
            names,
            kind,
            status: Status::OK,
            size_bytes: resource.size_bytes.filter(|_| !directory),
            modified: resource.modified,
            created: resource.created,
            etag: resource.etag.cloned(),
            checksums: if directory { Vec::new() } else { resource.checksums.to_vec() },
            mode: resource.mode.map(|mode| mode | type_bits),
            quota: resource.quota.filter(|_| directory).unwrap_or_default(),
        };
        prop_assert_eq!((entries, skipped), (vec![expected], 0));
    }

    #[test]
    fn never_panics(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        inside in "(</?(response|href|propstat|prop|status|resourcetype|collection|getetag|checksums)/?>|/d/|HTTP/1.1 200|\\PC){0,20}",
    ) {
        let _ = read_in("/d/", &[&bytes]);
        let body = multistatus(&inside);
        if let Ok((entries, _)) = read_in("/d/", &[body.as_bytes()]) {
            for entry in entries {
                prop_assert!(entry.names.iter().all(|name| gridlane_core::name::is_entry(name)));
            }
        }
        let mut damaged = body.into_bytes();
        for byte in &bytes {
            let at = *byte as usize % damaged.len();
            damaged[at] = *byte;
        }
        let _ = read_in("/d/", &[&damaged]);
    }
}
