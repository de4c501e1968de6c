//! Bodies: several ranges, and listings in HTML and JSON.

use gridlane_core::{ByteRange, RangeSet, limits};
use gridlane_dav::links::parse_listing;
use gridlane_dav::multipart_reader::{AnswerToRanges, Event, boundary_of};
use gridlane_dav::{
    Boundary, Entry, EntryKind, Multipart, MultipartReader, RangeList, ResourcePath, Status, listing,
};

use crate::names::check_name;
use crate::random::Random;

/// The outcome of a body in parts.
#[derive(Debug, PartialEq)]
struct Parted {
    /// Where the bytes belong, adjacent ones together.
    data: Vec<(u64, Vec<u8>)>,
    parts: usize,
    missing: Vec<ByteRange>,
    size: Option<u64>,
    error: Option<String>,
}

fn part(boundary: &str, asked: &[ByteRange], pieces: &[&[u8]], past: bool) -> Parted {
    let mut reader = MultipartReader::new(boundary, asked);
    let (mut data, mut parts, mut error) = (Vec::<(u64, Vec<u8>)>::new(), 0, None);
    let mut deliver = |offset: u64, bytes: &[u8]| match data.last_mut() {
        Some((begin, before)) if *begin + before.len() as u64 == offset => before.extend_from_slice(bytes),
        _ => data.push((offset, bytes.to_vec())),
    };
    'pieces: for piece in pieces {
        let mut rest = *piece;
        loop {
            let expected = usize::try_from(reader.data_expected()).unwrap_or(usize::MAX);
            if past && expected > 0 && !rest.is_empty() {
                let (bytes, behind) = rest.split_at(expected.min(rest.len()));
                deliver(reader.data_offset(), bytes);
                reader.data_taken(bytes.len() as u64);
                rest = behind;
                continue;
            }
            let (event, used) = match reader.step(rest) {
                Ok(step) => step,
                Err(cause) => {
                    error = Some(cause.message().to_owned());
                    break 'pieces;
                }
            };
            assert!(used <= rest.len());
            match event {
                Event::PartStart(range) => {
                    assert!(!range.range.is_empty());
                    parts += 1;
                }
                Event::Data { offset, bytes } => {
                    assert!(!bytes.is_empty());
                    deliver(offset, bytes);
                }
                Event::PartEnd => {}
                Event::NeedsMore => {
                    assert_eq!(used, rest.len(), "what is there was not used");
                    break;
                }
                Event::End => break 'pieces,
            }
            rest = &rest[used..];
        }
    }
    let error = error.or_else(|| reader.finish().err().map(|error| error.message().to_owned()));
    Parted { data, parts, missing: reader.missing().iter().collect(), size: reader.size(), error }
}

/// The ranges that were asked for in the first line, a `Content-Type` in the second, and a body behind it.
pub(crate) fn multipart(data: &[u8]) {
    let mut random = Random::of(data);
    let mut lines = data.splitn(3, |byte| *byte == b'\n');
    let mut line = || String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let (asked, content_type) = (line(), line());
    let body = lines.next().unwrap_or_default();

    let asked = RangeList::parse(&asked).map_or_else(Vec::new, |list| list.specs().to_vec());
    let asked: Vec<ByteRange> = asked.iter().filter_map(|spec| spec.resolve(1 << 40)).collect();
    for (content_range, length) in
        [(None, None), (Some("bytes 0-1/2"), Some(2)), (Some(&*content_type), None)]
    {
        let answer =
            AnswerToRanges::classify(Status::PARTIAL_CONTENT, Some(&content_type), content_range, length);
        if let Ok(AnswerToRanges::Multipart { boundary }) = answer {
            assert_eq!(boundary_of(&content_type), Some(boundary));
        }
    }
    let boundary = boundary_of(&content_type).unwrap_or_else(|| "B".to_owned());
    assert!((1..=limits::MULTIPART_BOUNDARY_BYTES_MAX).contains(&boundary.len()));

    let whole = part(&boundary, &asked, &[body], false);
    for past in [false, true] {
        let pieces = random.pieces(body);
        assert_eq!(part(&boundary, &asked, &pieces, past), whole, "it depends on the pieces");
    }
    // Nothing that was not asked for, nothing twice, and the rest is missing.
    let mut left: RangeSet = asked.iter().copied().collect();
    let mut delivered = 0;
    for (offset, bytes) in &whole.data {
        let range = ByteRange::at(*offset, bytes.len() as u64);
        assert_eq!(left.remove(range), range.len(), "{range} came twice or was not asked for");
        delivered += bytes.len();
    }
    assert!(whole.missing.iter().copied().eq(left.iter()));
    assert!(delivered <= body.len() && whole.parts <= limits::MULTIPART_PARTS_MAX);
    check_written(&mut random, body);
}

/// The other way: what we write, of any bytes and ranges, is read.
fn check_written(random: &mut Random, file: &[u8]) {
    let size = file.len() as u64;
    let mut ranges = Vec::new();
    for _ in 0..2 + random.below(6) {
        let start = random.below(file.len()) as u64;
        ranges.push(ByteRange::new(start, size.min(start + 1 + random.below(file.len()) as u64)));
    }
    let Some(multipart) = Multipart::new(Boundary::from_bits(9), "a/b", size, ranges.clone()) else {
        return assert!(file.is_empty(), "{ranges:?}");
    };
    let mut body = Vec::new();
    for part in multipart.parts() {
        body.extend_from_slice(&part.head);
        body.extend_from_slice(&file[part.range.start() as usize..part.range.end() as usize]);
    }
    body.extend_from_slice(&multipart.end());
    assert_eq!(body.len() as u64, multipart.content_length());
    let boundary = boundary_of(&multipart.content_type()).unwrap_or_default();
    let past = random.once_in(2);
    let read = part(&boundary, &ranges, &random.pieces(&body), past);
    assert_eq!((read.error, read.parts, read.size), (None, ranges.len(), Some(size)));
    assert!(read.missing.is_empty());
    for (offset, bytes) in read.data {
        assert!(file[offset as usize..].starts_with(&bytes), "other bytes than were sent");
    }
}

/// Listings that some server sent, in HTML and in JSON.
pub(crate) fn listing(data: &[u8]) {
    for media_type in [None, Some("text/html"), Some("application/json")] {
        for directory in ["/", "/data/a%20b/", "/x"] {
            let Ok(entries) = parse_listing(media_type, data, directory) else { continue };
            for entry in &entries {
                check_name(&entry.name);
                assert!(entry.size_bytes.is_none() || entry.kind == EntryKind::File);
            }
            // Each takes more than its name.
            assert!(entries.iter().map(|entry| entry.name.len() + 4).sum::<usize>() <= 4 * data.len() + 4);
            check_rendered(&entries);
        }
    }
    check_rendered(&[Entry {
        name: data.iter().copied().filter(|byte| !matches!(byte, 0 | b'/')).chain([b'x']).collect(),
        kind: EntryKind::File,
        size_bytes: Some(data.len() as u64),
        modified: None,
    }]);
}

fn check_rendered(entries: &[Entry]) {
    let path = ResourcePath::parse("/data/<&>'\"").unwrap_or_default();
    let html = listing::render_html(&path, entries, true);
    // A tag for each of ours, and no other: nothing of a name is HTML.
    let (rows, tags) = (html.matches("<tr>").count(), html.matches('<').count());
    assert_eq!((rows, tags), (entries.len() + 2, 41 + 10 * entries.len()), "{html}");
    let again = parse_listing(Some("text/html"), html.as_bytes(), "/data/").unwrap_or_default();
    let distinct = |entries: &[Entry]| {
        let mut found: Vec<(Vec<u8>, EntryKind)> = Vec::new();
        for entry in entries {
            if !found.iter().any(|(name, _)| *name == entry.name) {
                found.push((entry.name.clone(), entry.kind));
            }
        }
        found
    };
    assert_eq!(distinct(&again), distinct(entries), "{html}");
    let json = listing::render_json(entries);
    let again = parse_listing(None, json.as_bytes(), "/").unwrap_or_else(|error| panic!("{error}: {json}"));
    let is_text = |entry: &&Entry| std::str::from_utf8(&entry.name).is_ok();
    let written = entries.iter().filter(is_text).count();
    assert!(again.len() == entries.len());
    assert!(written == 0 || entries.iter().filter(is_text).all(|entry| again.contains(entry)), "{json}");
}
