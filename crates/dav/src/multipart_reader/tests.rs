//! Bodies of real servers, bodies that are wrong, and those of our own writer.

use super::*;
use crate::multipart::{Boundary, Multipart};
use crate::ranges::{RangeAnswer, RangeList};
use proptest::prelude::*;

fn ranges(pairs: &[(u64, u64)]) -> Vec<ByteRange> {
    pairs.iter().map(|(start, end)| ByteRange::new(*start, *end)).collect()
}

/// The ranges that arrived, in order; and those that did not.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    pieces: Vec<(u64, Vec<u8>)>,
    parts: usize,
    missing: Vec<ByteRange>,
}

/// Reads `wire` in pieces of the given lengths, again and again; half of the data past `step` if `direct`.
fn read(boundary: &str, asked: &[ByteRange], wire: &[u8], lengths: &[usize], direct: bool) -> Result<Read> {
    let mut reader = MultipartReader::new(boundary, asked);
    let (mut pieces, mut parts, mut at): (Vec<(u64, Vec<u8>)>, _, _) = (Vec::new(), 0, 0);
    let mut put = |offset: u64, bytes: &[u8]| match pieces.last_mut() {
        Some((start, last)) if *start + last.len() as u64 == offset => last.extend_from_slice(bytes),
        _ => pieces.push((offset, bytes.to_vec())),
    };
    let mut lengths = lengths.iter().cycle();
    'body: while at < wire.len() {
        let end = (at + *lengths.next().unwrap()).min(wire.len());
        loop {
            if direct && reader.data_expected() > 0 && at < end {
                let take = (reader.data_expected().min((end - at) as u64) as usize).div_ceil(2);
                put(reader.data_offset(), &wire[at..at + take]);
                reader.data_taken(take as u64);
                at += take;
            }
            let (event, used) = reader.step(&wire[at..end])?;
            at += used;
            match event {
                Event::PartStart(_) => parts += 1,
                Event::Data { offset, bytes } => {
                    assert!(!bytes.is_empty());
                    put(offset, bytes);
                }
                Event::PartEnd => {}
                Event::NeedsMore => {
                    assert_eq!(at, end, "asks for more only when all is used");
                    break;
                }
                Event::End => break 'body,
            }
        }
    }
    reader.finish()?;
    Ok(Read { pieces, parts, missing: reader.missing().iter().collect() })
}

#[test]
fn other_servers() {
    let asked = ranges(&[(0, 3), (10, 12)]);
    let expected = Read { pieces: vec![(0, b"abc".into()), (10, b"kl".into())], parts: 2, missing: vec![] };
    for (server, boundary, wire) in [
        (
            "nginx 1.22",
            "00000000000000000001",
            "\r\n--00000000000000000001\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-2/26\r\n\r\nabc\
             \r\n--00000000000000000001\r\nContent-Type: text/plain\r\nContent-Range: bytes 10-11/26\r\n\r\nkl\
             \r\n--00000000000000000001--\r\n",
        ),
        (
            "Apache's names of fields, without its empty line",
            "5f3a1b2c3d4e5f6a",
            "--5f3a1b2c3d4e5f6a\r\nContent-type: text/plain\r\nContent-range: bytes 0-2/26\r\n\r\nabc\
             \r\n--5f3a1b2c3d4e5f6a\r\nContent-type: text/plain\r\nContent-range: bytes 10-11/26\r\n\r\nkl\
             \r\n--5f3a1b2c3d4e5f6a--\r\n",
        ),
        (
            "XRootD 5.5.3",
            "123456",
            "\r\n--123456\r\nContent-type: text/plain; charset=UTF-8\r\nContent-range: bytes 0-2/26\r\n\r\nabc\
             \r\n--123456\r\nContent-type: text/plain; charset=UTF-8\r\nContent-range: bytes 10-11/26\r\n\r\nkl\
             \r\n--123456--\r\n",
        ),
        (
            "as dCache: a length beside the range, in either order",
            "__AAAAAAAAAAAAAAAA__",
            "--__AAAAAAAAAAAAAAAA__\r\nContent-Length: 3\r\nContent-Range: bytes 0-2/26\r\n\r\nabc\
             \r\n--__AAAAAAAAAAAAAAAA__\r\nContent-Range: bytes 10-11/26\r\nContent-Length: 2\r\n\r\nkl\
             \r\n--__AAAAAAAAAAAAAAAA__--",
        ),
        (
            "bare LF, lower case, blanks, preamble, epilogue, no size",
            "b",
            "This is a multipart message.\n\n--b \t\ncontent-range:  bytes 0-2/*  \n\nabc\
             \n--b\ncontent-RANGE : bytes 10-11/26\nx\n\nkl\n--b--\nGoodbye.\n--b\n",
        ),
        (
            "no line end in front of a delimiter, no last delimiter",
            "b",
            "--b\r\nContent-Range: bytes 0-2/26\r\n\r\nabc--b\r\nContent-Range: bytes 10-11/26\r\n\r\nkl\r\n",
        ),
    ] {
        for length in [1, 2, 3, 7, 1000] {
            for direct in [false, true] {
                let got = read(boundary, &asked, wire.as_bytes(), &[length], direct);
                assert_eq!(got.unwrap_or_else(|error| panic!("{server}: {error}")), expected, "{server}");
            }
        }
    }
}

#[test]
fn merged_cut_repeated_and_left_out() {
    let asked = ranges(&[(0, 3), (5, 8), (2000, 2003), (9000, 9001)]);
    let part = |first: u64, last: u64, data: &str| {
        format!("--b\r\nContent-Range: bytes {first}-{last}/5000\r\n\r\n{data}\r\n")
    };
    // One part for two ranges, a range in two parts, one twice, and one that is behind the end.
    let wire = [
        part(0, 7, "abcdefgh"),
        part(2001, 2002, "xy"),
        part(2000, 2000, "w"),
        part(5, 7, "fgh"),
        "--b--".into(),
    ]
    .concat();
    let got = read("b", &asked, wire.as_bytes(), &[4], false).unwrap();
    let pieces: Vec<_> = got.pieces.iter().map(|(at, data)| (*at, data.as_slice())).collect();
    assert_eq!(pieces, [(0, &b"abc"[..]), (5, b"fgh"), (2001, b"xy"), (2000, b"w")]);
    assert_eq!((got.parts, got.missing), (4, ranges(&[(9000, 9001)])));
}

#[test]
fn what_is_refused() {
    let asked = ranges(&[(0, 3), (10, 12), (5000, 5001)]);
    let long = format!("--b\r\nX: {}\r\n", "x".repeat(limits::MULTIPART_HEAD_BYTES_MAX));
    let preamble = "y\r\n".repeat(limits::MULTIPART_HEAD_BYTES_MAX);
    for (why, wire) in [
        ("not asked for", "--b\r\nContent-Range: bytes 0-2000/26000\r\n\r\n"),
        ("not asked for", "--b\r\nContent-Range: bytes 4999-5000/26000\r\n\r\n"),
        ("no Content-Range", "--b\r\nContent-Type: a/b\r\n\r\nabc"),
        ("cannot be read", "--b\r\nContent-Range: bytes */26\r\n\r\nabc"),
        ("cannot be read", "--b\r\nContent-Range: bytes 0-9/5\r\n\r\nabc"),
        ("two ranges", "--b\r\nContent-Range: bytes 0-2/26\r\nContent-Range: bytes 0-1/26\r\n\r\nabc"),
        (
            "of files of",
            "--b\r\nContent-Range: bytes 0-2/26\r\n\r\nabc\r\n--b\r\nContent-Range: bytes 10-11/27\r\n\r\n",
        ),
        ("longer than its range", "--b\r\nContent-Range: bytes 0-2/26\r\n\r\nabcd\r\n--b--"),
        ("ends before", "--b\r\nContent-Range: bytes 0-2/26\r\n\r\nab"),
        ("ends before", "--b\r\nContent-Range: bytes 0-2/26\r\n\r\nabc\r\n"),
        ("ends before", "--b"),
        ("ends before", "<html>no parts here</html>"),
        ("more than 8192 bytes", long.as_str()),
        ("more than 8192 bytes", preamble.as_str()),
    ] {
        for length in [1, 1 << 20] {
            let error = read("b", &asked, wire.as_bytes(), &[length], false).unwrap_err();
            assert!(error.to_string().contains(why), "{error} for {wire:.60}");
        }
    }
    // Heads are bounded one by one: many of them are fine.
    let asked: Vec<_> = (0..500).map(|at| ByteRange::at(at * 9999, 1)).collect();
    let part = |at: &ByteRange| format!("\r\n--b\r\nContent-Range: bytes {0}-{0}/*\r\n\r\nx", at.start());
    let wire = asked.iter().map(part).collect::<String>() + "\r\n--b--";
    assert!(wire.len() > 2 * limits::MULTIPART_HEAD_BYTES_MAX);
    assert_eq!(read("b", &asked, wire.as_bytes(), &[7], false).unwrap().parts, 500);

    // The last delimiter is one as soon as its dashes are there, whatever stands behind it.
    let wire = format!("--b\r\nContent-Range: bytes 0-0/9\r\n\r\nx\r\n--b--{}", "-".repeat(long.len()));
    for pieces in [&[7][..], &[99_999]] {
        assert!(read("b", &ranges(&[(0, 1)]), wire.as_bytes(), pieces, false).is_ok());
    }

    let asked = ranges(&[(0, 1)]);
    let part = "--b\nContent-Range: bytes 0-0/9\n\nx\n";
    let many = part.repeat(limits::MULTIPART_PARTS_MAX + 1);
    assert!(read("b", &asked, many.as_bytes(), &[9999], false).is_err());
}

#[test]
fn answers() {
    let multipart = |boundary: &str| Some(AnswerToRanges::Multipart { boundary: boundary.to_owned() });
    let single = |text| ContentRange::parse(text).map(AnswerToRanges::Single);
    let (parts, range) = (Some("multipart/byteranges; boundary=THIS_STRING"), Some("bytes 0-9/26"));
    for (status, content_type, content_range, length, expected) in [
        (206, parts, None, Some(500), multipart("THIS_STRING")),
        (206, Some("Multipart/ByteRanges;charset=x;BOUNDARY=\"a; \\\"b\""), None, None, multipart("a; \"b")),
        (206, Some("multipart/x-byteranges; a; boundary = 123456 ; b=c"), None, None, multipart("123456")),
        (206, Some("multipart/byteranges; q=\"boundary=x\"; boundary=y"), None, None, multipart("y")),
        (206, parts, range, Some(500), multipart("THIS_STRING")),
        (206, parts, range, Some(10), single("bytes 0-9/26")),
        (206, Some("text/plain"), range, Some(10), single("bytes 0-9/26")),
        (206, None, range, None, single("bytes 0-9/26")),
        (206, None, range, Some(11), None),
        (206, None, Some("bytes 0-9"), None, None),
        (206, None, None, Some(10), None),
        (206, Some("multipart/byteranges"), None, None, None),
        (206, Some("multipart/byteranges; boundary="), None, None, None),
        (206, Some("multipart/byteranges; boundary=\"x"), None, None, None),
        (206, Some("multipart/mixed; boundary=x"), None, None, None),
        (200, parts, range, Some(26), Some(AnswerToRanges::Whole { size: Some(26) })),
        (200, None, None, None, Some(AnswerToRanges::Whole { size: None })),
        (416, None, Some("bytes */26"), None, Some(AnswerToRanges::Unsatisfiable { size: Some(26) })),
        (416, None, None, None, Some(AnswerToRanges::Unsatisfiable { size: None })),
        (404, parts, None, None, Some(AnswerToRanges::Other)),
    ] {
        let status = Status::new(status).unwrap();
        let got = AnswerToRanges::classify(status, content_type, content_range, length);
        assert_eq!(got.ok(), expected, "{content_type:?} {content_range:?} {length:?}");
    }
}

fn file_byte(offset: u64) -> u8 {
    // The boundary is in the file, too.
    b"\r\n--123456\r\n--123456--\r\nabc"[(offset % 27) as usize]
}

fn count(range: ByteRange, counts: &mut [u32]) {
    for offset in range.start()..range.end() {
        counts[offset as usize] += 1;
    }
}

proptest! {
    /// From a request through the description of an answer, ours or that of a server which merges ranges, to
    /// the reader: every byte that was asked for and exists arrives once, where it belongs, however the body
    /// is cut.
    #[test]
    fn writer_to_reader(
        pieces in prop::collection::vec((0u64..5000, 1u64..300), 2..40),
        lengths in prop::collection::vec(1usize..400, 1..8), merged: bool, direct: bool
    ) {
        let size = 4000;
        let asked: Vec<_> = pieces.iter().map(|(start, len)| ByteRange::at(*start, *len)).collect();
        let (list, _) = RangeList::batch(&asked).unwrap();
        let RangeAnswer::Multi(mut sent) = list.resolve(size) else { return Ok(()) };
        if merged {
            // As other servers do.
            sent = with_gaps(&sent.into_iter().collect()).iter().collect();
        }
        let boundary = Boundary::new("123456").unwrap();
        let Some(multipart) = Multipart::new(boundary, "a/b", size, sent.clone()) else { return Ok(()) };
        let mut wire = Vec::new();
        for part in multipart.parts() {
            wire.extend_from_slice(&part.head);
            wire.extend((part.range.start()..part.range.end()).map(file_byte));
        }
        wire.extend_from_slice(&multipart.end());
        prop_assert_eq!(wire.len() as u64, multipart.content_length());

        let content_type = multipart.content_type();
        let answer = AnswerToRanges::classify(Status::PARTIAL_CONTENT, Some(&content_type), None, None).unwrap();
        let AnswerToRanges::Multipart { boundary } = answer else { panic!("{answer:?}") };
        let got = read(&boundary, &asked, &wire, &lengths, direct).unwrap();
        prop_assert_eq!(got.parts, sent.len());

        let (mut delivered, mut wanted) = (vec![0; 6000], vec![0; 6000]);
        for (offset, bytes) in &got.pieces {
            count(ByteRange::at(*offset, bytes.len() as u64), &mut delivered);
            prop_assert!(bytes.iter().zip(*offset..).all(|(byte, offset)| *byte == file_byte(offset)));
        }
        asked.iter().for_each(|range| count(range.intersection(ByteRange::new(0, size)), &mut wanted));
        wanted.iter_mut().for_each(|count| *count = (*count).min(1));
        prop_assert_eq!(delivered, wanted);
        prop_assert!(got.missing.iter().all(|range| range.start() >= size));
    }

    #[test]
    fn never_panics(
        words in prop::collection::vec(prop::sample::select(vec![
            "--b", "--b--", "--", "\r\n", "\n", "\r", " ", ":", "Content-Range: bytes 0-2/26", "Content-Range",
            "Content-Range: bytes 10-11/*", "Content-Range: bytes 0-18446744073709551614/*", "abc", "kl", "\u{e9}",
        ]), 0..40),
        lengths in prop::collection::vec(1usize..20, 1..4), direct: bool
    ) {
        let asked = ranges(&[(0, 3), (10, 12)]);
        let _ = read("b", &asked, words.concat().as_bytes(), &lengths, direct);
        let all = ranges(&[(0, u64::MAX)]);
        let _ = read("b", &all, words.concat().as_bytes(), &lengths, direct);
    }

    #[test]
    fn any_header(content_type in "(multipart/byteranges)?[;= \"\\\\a-z]*\\PC*", content_range in "\\PC*") {
        let _ = boundary_of(&content_type);
        let _ = AnswerToRanges::classify(Status::PARTIAL_CONTENT, Some(&content_type), Some(&content_range), Some(1));
    }
}
