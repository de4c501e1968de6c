//! Bodies in XML.

use std::collections::HashSet;

use gridlane_core::{Scheme, Url, limits};
use gridlane_dav::metalink::{File, Format, Metalink, PRIORITY_LOWEST};
use gridlane_dav::multistatus::{Multistatus, Resource};
use gridlane_dav::property::PropertyName;
use gridlane_dav::propfind::{PropfindRequest, ProppatchRequest};
use gridlane_dav::request::Rejection;
use gridlane_dav::{EntryKind, MultistatusEntry, MultistatusReader, Status};

use crate::names::check_name;
use crate::random::Random;

/// Metalinks of both versions.
pub(crate) fn metalink(data: &[u8]) {
    let Ok(metalink) = Metalink::parse(data) else { return };
    assert!(metalink.files.len() <= limits::METALINK_FILES_MAX);
    assert!(
        metalink.files.iter().map(|file| file.replicas.len()).sum::<usize>() <= limits::METALINK_URLS_MAX
    );
    metalink.files.iter().for_each(check_file);
    // What is written is what is read, but for files that must not be written.
    let good = |metalink: &Metalink| Metalink {
        files: metalink.files.iter().filter(|file| file.name.is_ok()).cloned().collect(),
        ..metalink.clone()
    };
    assert_eq!(again(&metalink, Format::V4), Metalink { format: Format::V4, ..good(&metalink) });
    // Version 3 knows a hundred priorities only.
    let once = again(&metalink, Format::V3);
    assert_eq!(once.files.len(), good(&metalink).files.len());
    assert_eq!(again(&once, Format::V3), once);
    let bytes = metalink.render(Format::V4).len();
    assert!(bytes <= 8 * data.len() + 1024, "{bytes} bytes out of {}", data.len());
}

fn again(metalink: &Metalink, format: Format) -> Metalink {
    let text = metalink.render(format);
    Metalink::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn check_file(file: &File) {
    if let Ok(name) = &file.name {
        assert!(!name.as_str().starts_with('/') && !name.as_str().contains(char::is_control));
        name.components().for_each(|component| check_name(component.as_bytes()));
        assert!(name.components().all(|component| component.len() <= limits::NAME_BYTES_MAX));
    }
    assert!(file.replicas.is_sorted_by_key(|replica| replica.priority));
    let mut seen = HashSet::new();
    for replica in &file.replicas {
        assert!(seen.insert(&replica.url), "a URL twice");
        assert!((1..=PRIORITY_LOWEST).contains(&replica.priority));
        assert!(replica.url.len() <= limits::METALINK_URL_BYTES_MAX);
        assert!(!replica.url.contains(|c: char| c.is_control() || c.is_whitespace()));
        if let Some(url) = replica.remote_url() {
            assert!(url.scheme() != Scheme::File, "a file of this machine");
        }
    }
    for pieces in &file.pieces {
        assert!(pieces.piece_bytes > 0 && !pieces.hashes.is_empty());
        if let Some(size) = file.size {
            assert_eq!(size.div_ceil(pieces.piece_bytes), pieces.hashes.len() as u64);
        }
    }
}

/// Bodies of PROPFIND, and the answers to them.
pub(crate) fn propfind(data: &[u8]) {
    let request = match PropfindRequest::parse(data) {
        Ok(request) => request,
        Err(rejection) => return check_rejection(&rejection),
    };
    let names: &[PropertyName] = match &request {
        PropfindRequest::AllProp { include } => include,
        PropfindRequest::PropName => &[],
        PropfindRequest::Prop(names) => names,
    };
    assert!(names.len() <= limits::DAV_REQUEST_PROPERTIES_MAX);
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "a name twice");
    let xml = request.to_xml();
    // Names of namespaces grow when they are escaped.
    if xml.len() <= limits::DAV_REQUEST_BYTES_MAX {
        assert_eq!(PropfindRequest::parse(xml.as_bytes()).as_ref(), Ok(&request), "{xml}");
    }
    let mut resource = Resource::new(b"/data/a<&>'\"\xff b", EntryKind::File);
    resource.size_bytes = Some(7);
    let answer = |out: &mut Vec<u8>| Multistatus::new(Some("http://h")).entry(out, &resource, &request);
    let entry = check_answer(data, answer);
    assert!(entry.size_bytes.is_none_or(|size| size == 7));
}

/// Bodies of PROPPATCH, and the answers to them.
pub(crate) fn proppatch(data: &[u8]) {
    let request = match ProppatchRequest::parse(data) {
        Ok(request) => request,
        Err(rejection) => return check_rejection(&rejection),
    };
    assert!((1..=limits::DAV_REQUEST_PROPERTIES_MAX).contains(&request.changes.len()));
    let names = request.names();
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "a name twice");
    assert!(request.changes.iter().all(|change| names.contains(&&change.name)), "a change is forgotten");
    let path = b"/data/a<&>'\"\xff b";
    let outcomes: Vec<_> = names.iter().map(|name| (*name, Status::FORBIDDEN)).collect();
    let answer = |out: &mut Vec<u8>| Multistatus::new(None).changes(out, path, EntryKind::File, &outcomes);
    let entry = check_answer(data, answer);
    assert_eq!(entry.size_bytes, None, "what is refused says nothing");
}

fn check_rejection(rejection: &Rejection) {
    assert!(matches!(rejection.status.code(), 400 | 413 | 415), "{rejection:?}");
    assert!(rejection.message.len() < 300, "{rejection:?}");
}

/// A client reads the answer, which has one entry.
fn check_answer(request: &[u8], answer: impl Fn(&mut Vec<u8>)) -> MultistatusEntry {
    let writer = Multistatus::new(None);
    let mut body = Vec::new();
    writer.open(&mut body);
    answer(&mut body);
    writer.close(&mut body);
    // A namespace is declared for each name that is in it.
    let most = 4096 + 64 * request.len() + limits::DAV_REQUEST_PROPERTIES_MAX * request.len().min(64 * 1024);
    assert!(body.len() <= most, "{} bytes in answer to {}", body.len(), request.len());
    let mut reader = MultistatusReader::new(&url("http://h/data/"));
    let mut entries = Vec::new();
    let read = reader.feed(&body, &mut entries).and_then(|()| reader.finish());
    if let Err(error) = read {
        // What we write for the longest names is longer than what we read.
        assert!(
            body.len() > limits::MULTISTATUS_TOKEN_BYTES_MAX,
            "{error}: {}",
            String::from_utf8_lossy(&body)
        );
    }
    let [entry] = &entries[..] else {
        panic!("{} entries: {}", entries.len(), String::from_utf8_lossy(&body))
    };
    assert_eq!(entry.names, [b"a<&>'\"\xff b".to_vec()]);
    assert_eq!(entry.status, Status::OK);
    entry.clone()
}

fn url(text: &str) -> Url {
    Url::parse_absolute(text).unwrap_or_else(|error| panic!("{error}"))
}

/// The entries that were read of a listing, and its error.
#[derive(Debug, PartialEq)]
struct Listed {
    entries: Vec<MultistatusEntry>,
    skipped: u64,
    error: Option<String>,
}

fn read(base: &Url, pieces: &[&[u8]]) -> Listed {
    let mut reader = MultistatusReader::new(base);
    let mut entries = Vec::new();
    for piece in pieces {
        if let Err(error) = reader.feed(piece, &mut entries) {
            return Listed { entries, skipped: reader.skipped(), error: Some(error.message().to_owned()) };
        }
    }
    let skipped = reader.skipped();
    let error = reader.finish().err().map(|error| error.message().to_owned());
    Listed { entries, skipped, error }
}

/// Listings of other servers.
pub(crate) fn multistatus(data: &[u8]) {
    let mut random = Random::of(data);
    let base = url(random.pick::<&str>(&["http://h/", "http://h/dav/a%20b/", "http://h/dav/x"]));
    let whole = read(&base, &[data]);
    for _ in 0..2 {
        assert_eq!(read(&base, &random.pieces(data)), whole, "it depends on the pieces");
    }
    let mut held = 0;
    for entry in &whole.entries {
        assert_eq!(entry.is_self, entry.names.is_empty());
        entry.names.iter().for_each(|name| check_name(name));
        held += entry.names.iter().map(|name| name.len() + size_of::<Vec<u8>>()).sum::<usize>();
        held += size_of::<MultistatusEntry>() + size_of_val(entry.checksums.as_slice());
        held += entry.etag.as_ref().map_or(0, |etag| etag.opaque().len());
    }
    assert!(held <= 64 * data.len(), "{held} bytes are held of {}", data.len());
    assert!(whole.error.is_none_or(|error| error.len() < 400));
}
