//! Heads of requests and answers, and bodies in chunks.

use std::fmt::Write as _;
use std::time::SystemTime;

use gridlane_core::limits;
use gridlane_dav::chunked::{ChunkedDecoder, Step};
use gridlane_dav::request::{RequestBody, RequestHead, Target};
use gridlane_dav::response::{BodyLength, ResponseHead};
use gridlane_dav::{Headers, Method, Status, Version};

use crate::names::check_path;
use crate::random::Random;

/// Beginnings of an input that are tried.
const BEGINNINGS: usize = 10;

/// The server's reader of request heads.
pub(crate) fn request_head(data: &[u8]) {
    let _ = RequestHead::glimpse(data);
    let whole = RequestHead::parse(data);
    // The head comes in pieces, and is read again with each.
    let mut random = Random::of(data);
    for turn in 0..BEGINNINGS {
        let cut = match (&whole, turn) {
            (Ok(Some((_, used))), 0) => *used,
            (Ok(Some((_, used))), 1) => used - 1,
            _ => random.below(data.len() + 1),
        };
        let part = RequestHead::parse(&data[..cut]);
        match &whole {
            Ok(Some((_, used))) if cut >= *used => {
                assert_eq!(part, whole, "the head depends on what is behind it")
            }
            Ok(_) => assert_eq!(part, Ok(None), "the beginning of a good head is refused"),
            Err(_) => assert!(!matches!(part, Ok(Some(_))), "refused only when more of it is there"),
        }
    }
    match &whole {
        Ok(Some((head, used))) => {
            // Empty lines in front do not count.
            assert!(*used <= limits::REQUEST_HEAD_BYTES_MAX + 4);
            check_request(head);
        }
        Ok(None) => assert!(data.len() <= limits::REQUEST_HEAD_BYTES_MAX + 4, "nobody waits for so much"),
        Err(rejection) => {
            assert!((400..=599).contains(&rejection.status.code()), "{rejection:?}");
            assert!(rejection.message.len() < 300, "{rejection:?}");
        }
    }
}

fn check_request(head: &RequestHead) {
    check_fields(&head.headers, limits::REQUEST_HEADERS_MAX);
    let hosts = head.headers.all("host").count();
    assert!(hosts == 1 || (hosts == 0 && head.version == Version::Http10));
    // It stands in URLs that others read.
    assert!(
        head.host()
            .is_none_or(|host| !host.is_empty() && !host.contains(['/', '@', '?', '#', '\\', '<', '"', ' ']))
    );
    if head.headers.contains("transfer-encoding") {
        assert!(!head.headers.contains("content-length") && head.version == Version::Http11);
        assert_eq!(head.body, RequestBody::Chunked);
    }
    assert!(!head.expects_continue || !matches!(head.body, RequestBody::Absent | RequestBody::Known(0)));
    let target = match &head.target {
        Target::Resource { path, query } => {
            check_path(path);
            let query = query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
            // A host that was in the target is what counts.
            let origin = head.authority.as_ref().map(|host| format!("http://{host}")).unwrap_or_default();
            format!("{origin}{path}{query}")
        }
        Target::Server if head.method == Method::Options => "*".to_owned(),
        Target::Server => "h:1".to_owned(),
    };
    // Written down again, it says the same.
    let version = if head.version == Version::Http10 { "1.0" } else { "1.1" };
    let mut text = format!("{} {target} HTTP/{version}\r\n", head.method.name());
    let line_bytes = text.len();
    for (name, value) in head.headers.iter() {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    text.push_str("\r\n");
    // Encoding makes it longer.
    if line_bytes > limits::REQUEST_LINE_BYTES_MAX || text.len() > limits::REQUEST_HEAD_BYTES_MAX {
        return;
    }
    match RequestHead::parse(text.as_bytes()) {
        Ok(Some((again, used))) => assert_eq!((&again, used), (head, text.len())),
        other => panic!("{text:?} is read as {other:?}"),
    }
}

/// No field can hold what ends a field.
fn check_fields(headers: &Headers, max: usize) {
    assert!(headers.iter().count() <= max);
    for (name, value) in headers.iter() {
        assert!(
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':'),
            "{name:?}"
        );
        assert!(!name.bytes().any(|byte| byte.is_ascii_uppercase()), "{name:?}");
        assert!(!value.contains(['\r', '\n', '\0']), "{name}: {value:?}");
        assert_eq!(value.trim_matches([' ', '\t']), value);
    }
}

/// The client's reader of response heads.
pub(crate) fn response_head(data: &[u8]) {
    let whole = ResponseHead::parse(data);
    let mut random = Random::of(data);
    for turn in 0..BEGINNINGS {
        let cut = match (&whole, turn) {
            (Ok(Some((_, used))), 0) => *used,
            (Ok(Some((_, used))), 1) => used - 1,
            _ => random.below(data.len() + 1),
        };
        let part = ResponseHead::parse(&data[..cut]);
        match &whole {
            Ok(Some(head)) if cut >= head.1 => {
                assert_eq!(part.ok().flatten().as_ref(), Some(head), "the head depends on what is behind it");
            }
            Ok(_) => assert!(matches!(part, Ok(None)), "the beginning of a good head is refused"),
            Err(_) => assert!(!matches!(part, Ok(Some(_))), "refused only when more of it is there"),
        }
    }
    match &whole {
        Ok(Some((head, used))) => {
            assert!(*used <= limits::RESPONSE_HEAD_BYTES_MAX);
            check_response(head);
        }
        Ok(None) => assert!(data.len() < limits::RESPONSE_HEAD_BYTES_MAX, "nobody waits for so much"),
        Err(error) => assert!(error.message().len() < 300, "{error}"),
    }
}

fn check_response(head: &ResponseHead) {
    check_fields(&head.headers, limits::RESPONSE_HEADERS_MAX);
    assert!((100..=999).contains(&head.status.code()));
    assert!(matches!(head.body_length(true), Ok(BodyLength::Known(0))));
    if let Ok(length) = head.body_length(false) {
        let is_bodiless = head.status.is_informational()
            || matches!(head.status, Status::NO_CONTENT | Status::NOT_MODIFIED);
        match length {
            BodyLength::Chunked => assert!(head.is_chunked() && !head.headers.contains("content-length")),
            BodyLength::Known(length) if is_bodiless => assert_eq!(length, 0),
            BodyLength::Known(length) => {
                assert_eq!(head.content_length().ok().flatten(), Some(length));
                assert!(!head.headers.contains("transfer-encoding"), "a coding is overlooked");
            }
            BodyLength::UntilClose => {
                assert!(!head.headers.contains("content-length") && !head.is_chunked());
                assert!(!head.headers.contains("transfer-encoding"), "a coding is overlooked");
            }
        }
    }
    if let Ok(Some(range)) = head.content_range() {
        assert!(!range.range.is_empty() && range.size.is_none_or(|size| range.range.end() <= size));
    }
    assert!(head.location().is_none_or(|target| !target.is_empty()));
    let _ = (head.unsatisfied_range(), head.etag(), head.last_modified(), head.accepts_ranges());
    let _ =
        (head.retry_after(SystemTime::UNIX_EPOCH), head.media_type(), head.content_coding(), head.digests());
    let _ = head.keeps_alive();
}

/// The outcome of a body in chunks.
#[derive(Debug, PartialEq)]
pub(crate) struct Unchunked {
    pub(crate) body: Vec<u8>,
    /// The number of its bytes, and the fields behind it; an error's text; `None` when it goes on.
    pub(crate) end: Option<Result<(usize, Headers), String>>,
}

/// Decodes as the server does: from what is there, and past it where a chunk's bytes are expected.
pub(crate) fn unchunk(pieces: &[&[u8]], past: bool) -> Unchunked {
    let mut decoder = ChunkedDecoder::new();
    let (mut body, mut taken) = (Vec::new(), 0);
    for piece in pieces {
        let mut rest = *piece;
        loop {
            let expected = usize::try_from(decoder.data_expected()).unwrap_or(usize::MAX);
            if past && expected > 0 && !rest.is_empty() {
                let (data, behind) = rest.split_at(expected.min(rest.len()));
                body.extend_from_slice(data);
                decoder.data_taken(data.len() as u64);
                taken += data.len();
                rest = behind;
                continue;
            }
            match decoder.step(rest) {
                Ok((Step::Data(data), used)) => {
                    assert!(!data.is_empty() && used <= rest.len());
                    body.extend_from_slice(data);
                    taken += used;
                    rest = &rest[used..];
                }
                Ok((Step::NeedsMore, used)) => {
                    assert_eq!(used, rest.len(), "what is there was not used");
                    taken += used;
                    break;
                }
                Ok((Step::End, used)) => {
                    let trailers = decoder.trailers().clone();
                    return Unchunked { body, end: Some(Ok((taken + used, trailers))) };
                }
                Err(error) => return Unchunked { body, end: Some(Err(error.message().to_owned())) },
            }
        }
    }
    Unchunked { body, end: None }
}

/// The decoder of bodies in chunks.
pub(crate) fn chunked(data: &[u8]) {
    let mut random = Random::of(data);
    let whole = unchunk(&[data], false);
    for past in [true, false] {
        let pieces = random.pieces(data);
        assert_eq!(unchunk(&pieces, past), whole, "it depends on the pieces");
    }
    // Each chunk costs five bytes, and the end as many.
    assert!(whole.body.len() <= data.len());
    if let Some(Ok((taken, trailers))) = &whole.end {
        assert!(*taken <= data.len() && whole.body.len() + 5 <= *taken);
        check_fields(trailers, limits::REQUEST_HEADERS_MAX);
    }
    // The other way: any bytes, in any chunks.
    let mut wire = Vec::new();
    for piece in random.pieces(data) {
        let extension = *random.pick(&["", ";a", ";a=b", " ;a=\"b;\""]);
        wire.extend_from_slice(format!("{:x}{extension}\r\n", piece.len()).as_bytes());
        wire.extend_from_slice(piece);
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(b"0\r\nx-a: b\r\n\r\n");
    let taken = wire.len();
    wire.extend_from_slice(b"GET / HTTP/1.1\r\n");
    let again = unchunk(&random.pieces(&wire), random.once_in(2));
    assert!(again.body == data, "what was written is not what is read");
    let Some(Ok((used, trailers))) = again.end else { panic!("{:?}", again.end) };
    assert_eq!((used, trailers.get("x-a")), (taken, Some("b")));
}
