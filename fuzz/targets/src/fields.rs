//! Header fields.

use gridlane_core::{ByteRange, Checksum, ChecksumKind, limits};
use gridlane_dav::if_header::IfHeader;
use gridlane_dav::link_header::{self, Link};
use gridlane_dav::metalink::{Format, PRIORITY_LOWEST};
use gridlane_dav::webdav::{Depth, Destination, overwrites};
use gridlane_dav::{
    Boundary, ContentRange, ETag, Headers, Multipart, RangeAnswer, RangeList, RangeSpec, UnsatisfiedRange,
    digest,
};

use crate::names::check_path;

/// Lines `name: value` as fields, which may hold anything that a head may: no line ends and no NUL.
pub(crate) fn fields(data: &[u8]) -> Headers {
    let mut headers = Headers::new();
    for line in data.split(|byte| matches!(byte, b'\n' | b'\r' | 0)) {
        if let Some(colon) = line.iter().position(|byte| *byte == b':') {
            headers.push(&String::from_utf8_lossy(&line[..colon]), &line[colon + 1..]);
        }
    }
    headers
}

/// A size in the first line, and a field behind it.
pub(crate) fn ranges(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (size, text) = text.split_once('\n').unwrap_or(("1000", &text));
    let size: u64 = size.trim().parse().unwrap_or(u64::MAX);

    let list = RangeList::parse(text);
    let single = RangeSpec::parse(text);
    let only = list.as_ref().filter(|list| list.specs().len() == 1).map(|list| list.specs()[0]);
    assert_eq!(single, only, "two readers of one field");
    if let Some(spec) = single {
        assert_eq!(RangeSpec::parse(&spec.to_string()), Some(spec));
        let range = spec.resolve(size);
        assert!(range.is_none_or(|range| !range.is_empty() && range.end() <= size));
    }
    if let Some(list) = list {
        assert!((1..=limits::RANGES_MAX).contains(&list.specs().len()));
        assert_eq!(RangeList::parse(&list.to_string()).as_ref(), Some(&list));
        check_answer(&list, size);
    }
    if let Some(range) = ContentRange::parse(text) {
        assert!(!range.range.is_empty() && range.size.is_none_or(|size| range.range.end() <= size));
        assert_eq!(ContentRange::parse(&range.to_string()), Some(range));
        assert_eq!(UnsatisfiedRange::parse(text), None);
    }
    if let Some(range) = UnsatisfiedRange::parse(text) {
        assert_eq!(UnsatisfiedRange::parse(&range.to_string()), Some(range));
    }
}

fn check_answer(list: &RangeList, size: u64) {
    let ranges = match list.resolve(size) {
        RangeAnswer::Whole => return,
        RangeAnswer::Unsatisfiable => {
            assert!(list.specs().iter().all(|spec| spec.resolve(size).is_none()));
            return;
        }
        RangeAnswer::Single(range) => vec![range],
        RangeAnswer::Multi(ranges) => {
            assert!(ranges.len() >= 2);
            ranges
        }
    };
    assert!(ranges.len() <= list.specs().len());
    assert!(ranges.iter().all(|range| !range.is_empty() && range.end() <= size));
    // No more than the file is sent, and a head for each part.
    assert!(ranges.iter().map(|range| u128::from(range.len())).sum::<u128>() <= u128::from(size));
    check_batch(&ranges);
    let Some(multipart) = Multipart::new(Boundary::from_bits(7), "text/plain", size, ranges.clone()) else {
        assert!(ranges.len() < 2 || size > u64::MAX / 2, "ranges that cannot be sent: {ranges:?} of {size}");
        return;
    };
    let heads: usize = multipart.parts().map(|part| part.head.len()).sum();
    let data: u64 = ranges.iter().map(|range| range.len()).sum();
    assert_eq!(multipart.content_length(), data + (heads + multipart.end().len()) as u64);
    assert!(heads <= ranges.len() * 256);
}

/// Asking for them, in as many requests as it takes, asks for each of them once.
fn check_batch(ranges: &[ByteRange]) {
    let mut rest = ranges;
    while let Some((list, count)) = RangeList::batch(rest) {
        let header = list.to_string();
        assert!(count > 0 && header.len() <= limits::RANGE_HEADER_BYTES_MAX, "{}", header.len());
        let asked: Vec<Option<ByteRange>> = list.specs().iter().map(|spec| spec.resolve(u64::MAX)).collect();
        assert_eq!(asked, rest[..count].iter().copied().map(Some).collect::<Vec<_>>());
        rest = &rest[count..];
    }
    assert!(rest.is_empty());
}

const KINDS: [ChecksumKind; 4] =
    [ChecksumKind::Adler32, ChecksumKind::Crc32c, ChecksumKind::Md5, ChecksumKind::Sha256];

/// Fields about checksums, in both dialects, and ownCloud's.
pub(crate) fn digests(data: &[u8]) {
    let headers = fields(data);
    for checksum in digest::of_upload(&headers) {
        check_checksum(&checksum);
    }
    for (_, value) in headers.iter() {
        let elements = value.split(',').count();
        let (old, new) = (digest::decode(value), digest::decode_repr(value));
        assert!(old.len() <= elements && new.len() <= elements);
        old.iter().chain(&new).for_each(check_checksum);
        // In the new dialect a value stands between colons, which no value of the old one has.
        assert!(old.is_empty() || new.is_empty() || elements > 1, "{value:?} is of both dialects");
    }
    for supported in [&KINDS[..], &KINDS[1..3], &[ChecksumKind::Sha256, ChecksumKind::Adler32], &[]] {
        for negotiate in [digest::negotiate, digest::negotiate_repr] {
            let Some(kind) = negotiate(&headers, supported) else { continue };
            assert!(supported.contains(&kind), "{kind:?} is not offered");
            assert_eq!(negotiate(&headers, &[kind]), Some(kind), "it is wanted only beside others");
            // Where more is offered, the answer is as good as this one.
            assert!(negotiate(&headers, &KINDS).is_some());
        }
    }
}

fn check_checksum(checksum: &Checksum) {
    assert_eq!(checksum.bytes().len(), checksum.kind().value_len());
    assert_eq!(digest::decode(&digest::encode(checksum)), std::slice::from_ref(checksum));
    assert_eq!(digest::decode_repr(&digest::encode_repr(checksum)), std::slice::from_ref(checksum));
    assert_eq!(digest::decode_oc(&digest::encode_oc(checksum)), Some(checksum.clone()));
    assert_eq!(Checksum::from_hex(checksum.kind(), &checksum.hex()), Some(checksum.clone()));
}

/// `Link` fields, and what Metalink/HTTP makes of them.
pub(crate) fn link_header(data: &[u8]) {
    let headers = fields(data);
    for value in headers.all("link") {
        let links = Link::parse(value);
        assert!(links.len() <= limits::LINKS_MAX);
        for link in links {
            assert!(!link.target.is_empty() && link.target.len() <= limits::METALINK_URL_BYTES_MAX);
            assert!(value.contains(&link.target), "a target from nowhere");
        }
    }
    let replicas = link_header::duplicates(&headers);
    assert!(replicas.len() <= limits::LINKS_MAX);
    for replica in &replicas {
        assert!((1..=PRIORITY_LOWEST).contains(&replica.priority));
        let Some(line) = link_header::encode_duplicate(replica) else { continue };
        assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{line:?}");
        let mut again = Headers::new();
        again.push("link", line.as_bytes());
        let [found] = &link_header::duplicates(&again)[..] else { panic!("{line:?} is not one link") };
        assert_eq!((&found.url, found.priority), (&replica.url, replica.priority));
        assert!(found.location.is_none() || found.location == replica.location);
        assert_eq!(link_header::metalink(&again), None);
    }
    let Some(target) = link_header::metalink(&headers) else { return };
    for format in [Format::V3, Format::V4] {
        let Some(line) = link_header::encode_metalink(&target, format) else { continue };
        let mut again = Headers::new();
        again.push("link", line.as_bytes());
        assert_eq!(link_header::metalink(&again).as_ref(), Some(&target));
        assert!(link_header::duplicates(&again).is_empty());
    }
}

/// WebDAV's `If`, as the value of a field.
pub(crate) fn if_header(data: &[u8]) {
    let value: Vec<u8> = data.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n' | 0)).collect();
    let parse = |value: &[u8]| {
        let mut headers = Headers::new();
        headers.push("If", value);
        IfHeader::parse(&headers)
    };
    let condition = match parse(&value) {
        Ok(condition) => condition.unwrap_or_else(|| panic!("the field is there")),
        Err(rejection) => return assert_eq!(rejection.status.code(), 400),
    };
    let tags = [None, ETag::strong("a"), ETag::parse("W/\"a\""), ETag::strong("")];
    for tag in &tags {
        let mut asked = 0;
        let holds = condition.holds(|resource| {
            assert!(resource.is_none_or(|name| !name.is_empty() && !name.contains('>')), "{resource:?}");
            asked += 1;
            tag.clone()
        });
        assert!(asked <= limits::IF_LISTS_MAX);
        assert_eq!(condition.holds(|_| tag.clone()), holds);
    }
    // Together with a list that always holds, and with one that never does.
    if let Ok(Some(wider)) = parse(&[&value[..], b" (Not <DAV:no-lock>)"].concat()) {
        assert!(wider.holds(|_| None));
    }
    if let Ok(Some(same)) = parse(&[&value[..], b"\t(<DAV:no-lock>)"].concat()) {
        for tag in &tags {
            assert_eq!(same.holds(|_| tag.clone()), condition.holds(|_| tag.clone()));
        }
    }
}

/// `Depth`, `Overwrite`, `Destination`.
pub(crate) fn webdav_headers(data: &[u8]) {
    let headers = fields(data);
    let depth = Depth::of_propfind(&headers);
    assert_eq!(Depth::of_copy(&headers).is_ok(), matches!(depth, Ok(Depth::Zero | Depth::Infinity)));
    let is_whole = Depth::of_removal(&headers).and_then(Depth::check_whole).is_ok();
    let is_absent = headers.all("depth").next().is_none();
    assert_eq!(is_whole, is_absent || matches!(depth, Ok(Depth::Infinity)));
    let twice = |name| headers.all(name).count() > 1;
    assert!(depth.is_err() || !twice("depth"), "two fields are one");
    assert!(overwrites(&headers).is_err() || !twice("overwrite"), "two fields are one");
    let Ok(destination) = Destination::parse(&headers) else { return };
    assert!(!twice("destination"), "two fields are one");
    assert!(destination.encoded_path().starts_with('/'));
    assert!(
        !destination
            .encoded_path()
            .contains(|c: char| c.is_whitespace() || c.is_control() || "?#\\".contains(c))
    );
    if let Ok(path) = destination.resource_path() {
        check_path(&path);
    }
    match destination.authority() {
        None => assert!(destination.is_at(true, "anywhere") && destination.is_at(false, "")),
        Some(authority) => {
            let host = &authority.host;
            assert!(!host.is_empty() && !host.contains(['@', '/', '?', '#', '\\']), "{host:?}");
            assert!(destination.is_at(authority.secure, host), "{host:?} is not what it says");
            assert!(!destination.is_at(!authority.secure, host), "http is not https");
            assert!(!destination.is_at(authority.secure, &format!("{host}.example")), "{host:?}");
        }
    }
    // The query may hold a token.
    if destination.query().is_some() {
        let host = destination.authority().map_or("", |authority| &authority.host);
        assert_eq!(format!("{destination:?}"), format!("{host}{}?…", destination.encoded_path()));
    }
}
