//! Checksums in header fields: RFC 3230's `Digest` and `Want-Digest`, which the grid uses; their successors
//! `Repr-Digest`, `Content-Digest` and `Want-Repr-Digest` of RFC 9530; and what else an upload may carry
//! (`Content-MD5`, ownCloud's `OC-Checksum`).
//!
//! `Digest` and `Repr-Digest` are of the whole file, on a 206 too; `Content-Digest` is of the bytes of one
//! message, so it says something about a file only where the message is all of it.
//!
//! Written strictly, read tolerantly: adler32 and crc32c are hexadecimal (some clients drop leading
//! zeros or use capitals; XRootD before 5.8.1 sends crc32c in base64), md5 and sha-256 are base64
//! (davix and gfal2 also send hexadecimal). What cannot be read is skipped: a missing digest is not an
//! error here, only for code that needs it.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use gridlane_core::{Checksum, ChecksumKind};

use crate::header::{Headers, trim, weight};

const TOLERANT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The name of an algorithm in `Digest` and `Want-Digest`.
pub fn name(kind: ChecksumKind) -> &'static str {
    match kind {
        ChecksumKind::Adler32 => "adler32",
        ChecksumKind::Crc32c => "crc32c",
        ChecksumKind::Md5 => "md5",
        ChecksumKind::Sha256 => "sha-256",
        ChecksumKind::Sha1 => "sha",
        ChecksumKind::Sha512 => "sha-512",
        ChecksumKind::PosixCrc => "unixcksum",
    }
}

/// The value of a `Digest` header. One algorithm per response: davix misses a second one.
pub fn encode(checksum: &Checksum) -> String {
    let value = match checksum.kind() {
        ChecksumKind::Adler32 | ChecksumKind::Crc32c => checksum.hex(),
        _ => STANDARD.encode(checksum.bytes()),
    };
    format!("{}={value}", name(checksum.kind()))
}

/// The name of an algorithm in the fields of RFC 9530 (its section 7.2): adler32 is registered as `adler`.
pub fn repr_name(kind: ChecksumKind) -> &'static str {
    match kind {
        ChecksumKind::Adler32 => "adler",
        kind => name(kind),
    }
}

/// The value of a `Repr-Digest` or `Content-Digest` header: always base64 (RFC 9530, 2 and 3).
pub fn encode_repr(checksum: &Checksum) -> String {
    format!("{}=:{}:", repr_name(checksum.kind()), STANDARD.encode(checksum.bytes()))
}

/// The value of a `Want-Digest` header that asks for one of `kinds`, the best one first: `adler32;q=1,md5;q=0.9`
/// (RFC 3230, 4.3.1).
pub fn want(kinds: &[ChecksumKind]) -> String {
    let element = |(kind, tenths): (&ChecksumKind, u32)| match tenths {
        10 => format!("{};q=1", name(*kind)),
        tenths => format!("{};q=0.{tenths}", name(*kind)),
    };
    kinds.iter().zip((1..=10).rev().chain(std::iter::repeat(1))).map(element).collect::<Vec<_>>().join(",")
}

/// Reads a `Digest` header: every checksum in it that we know and can read.
pub fn decode(text: &str) -> Vec<Checksum> {
    text.split(',')
        .filter_map(|element| {
            let (name, value) = trim(element).split_once('=')?;
            decode_value(kind_of(trim(name))?, trim(value))
        })
        .collect()
}

/// Hexadecimal or base64, by what is usual for the algorithm and by length.
fn decode_value(kind: ChecksumKind, value: &str) -> Option<Checksum> {
    if let Some(checksum) = Checksum::from_hex(kind, value) {
        return Some(checksum);
    }
    Checksum::from_bytes(kind, &TOLERANT.decode(value).ok()?)
}

/// Reads a `Repr-Digest` or `Content-Digest` header: `sha-256=:BASE64:`, adler32 under its registered name
/// `adler` or its own. Parameters of a value mean nothing (RFC 8941, 3.2).
pub fn decode_repr(text: &str) -> Vec<Checksum> {
    text.split(',')
        .filter_map(|element| {
            let (name, value) = trim(element).split_once('=')?;
            let (value, parameters) = trim(value).strip_prefix(':')?.split_once(':')?;
            let parameters = trim(parameters);
            let is_value = parameters.is_empty() || parameters.starts_with(';');
            let bytes = TOLERANT.decode(value).ok().filter(|_| is_value)?;
            Checksum::from_bytes(kind_of(trim(name))?, &bytes)
        })
        .collect()
}

/// By its name in either dialect: the grid's programs use adler32's names of both in both.
fn kind_of(name: &str) -> Option<ChecksumKind> {
    if name.eq_ignore_ascii_case("adler") { Some(ChecksumKind::Adler32) } else { name.parse().ok() }
}

/// Reads an `OC-Checksum` header: `TYPE:HEX`, which ownCloud's clients and rclone send.
pub fn decode_oc(text: &str) -> Option<Checksum> {
    let (name, value) = text.split_once(':')?;
    Checksum::from_hex(trim(name).parse().ok()?, trim(value))
}

/// One checksum as ownCloud writes it: `ADLER32:8f040a5d`, what [`decode_oc`] reads.
pub fn encode_oc(checksum: &Checksum) -> String {
    format!("{}:{}", checksum.kind().name().to_ascii_uppercase(), checksum.hex())
}

/// The digests that an uploader states of its body: `Digest`, `Repr-Digest`, `Content-Digest`, `Content-MD5`,
/// `OC-Checksum`. The body is the whole file, uncoded, so that all of them are of the same bytes.
pub fn of_upload(headers: &Headers) -> Vec<Checksum> {
    let mut checksums: Vec<Checksum> = headers.all("digest").flat_map(decode).collect();
    checksums.extend(headers.all("repr-digest").flat_map(decode_repr));
    checksums.extend(of_content(headers));
    checksums.extend(headers.all("oc-checksum").filter_map(decode_oc));
    checksums
}

/// The digests that a message states of its own content: `Content-Digest` (RFC 9530), `Content-MD5` (RFC 2616,
/// 14.15). Of a file they say something only where the content is all of it.
pub fn of_content(headers: &Headers) -> Vec<Checksum> {
    let mut checksums: Vec<Checksum> = headers.all("content-digest").flat_map(decode_repr).collect();
    checksums.extend(headers.all("content-md5").filter_map(|value| decode_value(ChecksumKind::Md5, value)));
    checksums
}

/// The algorithms that the trailer behind a body may bring checksums of, as its head announces (RFC 9110,
/// 6.6.2): the receiver of the body has to compute them meanwhile.
pub fn announced(headers: &Headers) -> Vec<ChecksumKind> {
    let mut kinds = Vec::new();
    for field in headers.list("trailer") {
        match field.to_ascii_lowercase().as_str() {
            "digest" | "repr-digest" | "content-digest" => kinds.extend(ChecksumKind::OFFERED),
            "content-md5" => kinds.push(ChecksumKind::Md5),
            "oc-checksum" => kinds.extend([ChecksumKind::Adler32, ChecksumKind::Md5]),
            _ => {}
        }
    }
    kinds.sort();
    kinds.dedup();
    kinds
}

/// Which of the `supported` algorithms a `Want-Digest` asks for: the one with the highest weight, the
/// first of equals. `None` when it wants none of them.
pub fn negotiate(wants: &Headers, supported: &[ChecksumKind]) -> Option<ChecksumKind> {
    let mut best: Option<(ChecksumKind, f64)> = None;
    for element in wants.list("want-digest") {
        let name = trim(element.split(';').next().unwrap_or_default());
        let Some(kind) = kind_of(name) else { continue };
        let weight = weight(element);
        let better = best.is_none_or(|(_, weight_so_far)| weight > weight_so_far);
        if supported.contains(&kind) && weight > 0.0 && better {
            best = Some((kind, weight));
        }
    }
    best.map(|(kind, _)| kind)
}

/// Which of the `supported` algorithms a `Want-Repr-Digest` asks for: the one with the highest preference,
/// the first of equals. `None` when it wants none of them, and when it is malformed: then it is ignored as a
/// whole (RFC 8941, 4.2).
///
/// A request may have both wishes. XRootD obeys `Want-Digest`, dCache this one; answering each in its own
/// header satisfies every client.
pub fn negotiate_repr(wants: &Headers, supported: &[ChecksumKind]) -> Option<ChecksumKind> {
    // A key that comes again takes the place and gets the value of the last one.
    let mut preferences: Vec<(ChecksumKind, u8)> = Vec::new();
    for element in wants.list("want-repr-digest") {
        let (key, preference) = preference(element)?;
        let Some(kind) = kind_of(key) else { continue };
        match preferences.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, before)) => *before = preference,
            None => preferences.push((kind, preference)),
        }
    }
    let mut best: Option<(ChecksumKind, u8)> = None;
    for (kind, preference) in preferences {
        let better = best.is_none_or(|(_, so_far)| preference > so_far);
        if supported.contains(&kind) && preference > 0 && better {
            best = Some((kind, preference));
        }
    }
    best.map(|(kind, _)| kind)
}

/// A member of a `Want-Repr-Digest`: a key and an integer from 0 to 10 (RFC 9530, 4).
fn preference(element: &str) -> Option<(&str, u8)> {
    let (key, value) = element.split_once('=')?;
    let valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte);
    let key_is_valid =
        key.starts_with(|first: char| first.is_ascii_lowercase() || first == '*') && key.bytes().all(valid);
    let digits = trim(value.split(';').next().unwrap_or_default());
    let value = digits.parse::<u8>().ok().filter(|value| *value <= 10 && !digits.starts_with('+'))?;
    key_is_valid.then_some((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn checksum(text: &str) -> Checksum {
        text.parse().unwrap()
    }

    #[test]
    fn what_the_grid_sends() {
        let digits = ("adler32:091e01de", "crc32c:e3069283");
        for (text, expected) in [
            ("adler32=091e01de", &[digits.0][..]),
            ("ADLER32=91E01DE", &[digits.0]),
            ("adler=091e01de", &[digits.0]),
            ("crc32c=e3069283", &[digits.1]),
            ("crc32c=4waSgw==", &[digits.1]),
            ("md5=kAFQmDzST7DWlj99KOF/cg==", &["md5:900150983cd24fb0d6963f7d28e17f72"]),
            ("MD5=900150983cd24fb0d6963f7d28e17f72", &["md5:900150983cd24fb0d6963f7d28e17f72"]),
            (
                "sha-256=ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=, unixcksum=5,adler32=091e01de",
                &["sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", digits.0],
            ),
            ("adler32=091e01de0", &[]),
            ("adler32=", &[]),
            ("adler32", &[]),
            ("md5=AAAA", &[]),
        ] {
            let expected: Vec<_> = expected.iter().map(|text| checksum(text)).collect();
            assert_eq!(decode(text), expected, "{text}");
        }
    }

    #[test]
    fn uploads() {
        let mut headers = Headers::new();
        headers.push("Repr-Digest", b"adler=:CR4B3g==:, sha-512=:x:");
        headers.push("Content-MD5", b"kAFQmDzST7DWlj99KOF/cg==");
        assert_eq!(
            of_upload(&headers),
            [checksum("adler32:091e01de"), checksum("md5:900150983cd24fb0d6963f7d28e17f72")]
        );
    }

    #[test]
    fn what_a_trailer_may_bring() {
        use ChecksumKind::{Adler32, Md5};
        for (text, expected) in [
            ("Digest", vec![Adler32, ChecksumKind::Crc32c, Md5, ChecksumKind::Sha256]),
            ("x, Content-MD5", vec![Md5]),
            ("OC-Checksum,content-md5", vec![Adler32, Md5]),
            ("x", vec![]),
        ] {
            let mut headers = Headers::new();
            headers.push("Trailer", text.as_bytes());
            assert_eq!(announced(&headers), expected, "{text}");
        }
    }

    #[test]
    fn own_cloud_s() {
        for (text, expected) in [
            ("ADLER32:091e01de", Some("adler32:091e01de")),
            ("adler32: 091E01DE", Some("adler32:091e01de")),
            ("MD5:900150983cd24fb0d6963f7d28e17f72", Some("md5:900150983cd24fb0d6963f7d28e17f72")),
            (
                "SHA1:a9993e364706816aba3e25717850c26c9cd0d89d",
                Some("sha1:a9993e364706816aba3e25717850c26c9cd0d89d"),
            ),
            ("MD5:kAFQmDzST7DWlj99KOF/cg==", None),
            ("091e01de", None),
        ] {
            let mut headers = Headers::new();
            headers.push("OC-Checksum", text.as_bytes());
            assert_eq!(of_upload(&headers), Vec::from_iter(expected.map(checksum)), "{text}");
        }
    }

    #[test]
    fn wishes() {
        use ChecksumKind::{Adler32, Crc32c, Md5};
        for (text, expected) in [
            ("adler32, md5;q=0.5", Some(Adler32)),
            ("ADLER32", Some(Adler32)),
            ("adler32;q=0.1, md5;q=0.5", Some(Md5)),
            ("crc32c,md5,crc32,sha", Some(Crc32c)),
            ("SHA-512;q=1, SHA;q=0.1", None),
            ("adler32;q=0", None),
            ("adler32;q=x, md5 ; q=0.1", Some(Md5)),
            ("adler32; q = 0.2 ,md5;q=0.3", Some(Md5)),
            ("adler32;q=7, md5;q=0.3", Some(Md5)),
            ("adler32;q=nan, md5;q=inf, crc32c;q=-1", None),
            ("adler32;q=0.5, md5;q=0.5", Some(Adler32)),
            ("SHA-512;q=1, SHA-256;q=1, SHA;q=0.1", None),
            // dCache's list.
            ("adler32;q=1,md5;q=0.9,sha;q=0.8,sha-256;q=0.7,sha-512;q=0.6", Some(Adler32)),
            ("UNIXsum;q=0.1,MD5;q=0.2,CRC32C;q=0.3", Some(Crc32c)),
            ("", None),
        ] {
            let mut headers = Headers::new();
            headers.push("Want-Digest", text.as_bytes());
            assert_eq!(negotiate(&headers, &[Adler32, Crc32c, Md5]), expected, "{text}");
        }
    }

    #[test]
    fn wishes_in_the_new_form() {
        use ChecksumKind::{Adler32, Crc32c, Md5, Sha256, Sha512};
        for (text, expected) in [
            ("sha-256=10, md5=1", Some(Sha256)),
            ("adler=3, crc32c=3", Some(Adler32)),
            ("adler32=2, sha-512=10", Some(Sha512)),
            ("md5=0, crc32c=1;x=y", Some(Crc32c)),
            ("md5=0", None),
            ("sha-512=10", Some(Sha512)),
            ("unixsum=10", None),
            // The last value of a key counts.
            ("md5=10, crc32c=5, md5=1", Some(Crc32c)),
            // Malformed: ignored as a whole.
            ("md5=11", None),
            ("md5=-1, crc32c=5", None),
            ("md5=+1", None),
            ("md5=0.5, crc32c=5", None),
            ("md5, crc32c=5", None),
            ("MD5=5", None),
            ("md5 = 5", None),
            ("=5", None),
            ("md5;q=0.5", None),
            ("", None),
        ] {
            let mut headers = Headers::new();
            headers.push("Want-Repr-Digest", text.as_bytes());
            assert_eq!(negotiate_repr(&headers, &ChecksumKind::ALL), expected, "{text}");
        }
        let mut headers = Headers::new();
        headers.push("want-repr-digest", b"adler=4");
        headers.push("want-repr-digest", b"md5=5");
        assert_eq!(negotiate_repr(&headers, &[Adler32, Md5]), Some(Md5));
        assert_eq!(negotiate_repr(&headers, &[Adler32]), Some(Adler32));
    }

    #[test]
    fn the_new_form() {
        let both = "adler32:8f040a5d";
        for (text, expected) in [
            ("adler=:jwQKXQ==:", &[both][..]),
            ("adler32=:jwQKXQ==:", &[both]),
            ("ADLER=:jwQKXQ:", &[both]),
            ("adler=:jwQKXQ==:;x=1, crc32c=:4waSgw==:", &[both, "crc32c:e3069283"]),
            ("md5=:kAFQmDzST7DWlj99KOF/cg==:", &["md5:900150983cd24fb0d6963f7d28e17f72"]),
            // Hexadecimal between colons has the wrong length, and text without colons is no byte sequence.
            ("adler=:8f040a5d:", &[]),
            ("adler=8f040a5d", &[]),
            ("adler=:jwQKXQ==", &[]),
            ("adler=:jwQKXQ==:x", &[]),
            ("adler", &[]),
        ] {
            let expected: Vec<_> = expected.iter().map(|text| checksum(text)).collect();
            assert_eq!(decode_repr(text), expected, "{text}");
        }
        assert_eq!(encode_repr(&checksum(both)), "adler=:jwQKXQ==:");
        assert_eq!(encode_repr(&checksum("crc32c:e3069283")), "crc32c=:4waSgw==:");
        let mut headers = Headers::new();
        headers.push("Content-Digest", b"adler=:jwQKXQ==:");
        assert_eq!(of_upload(&headers), [checksum(both)]);
    }

    #[test]
    fn spellings_of_digests() {
        for (text, expected) in [
            // Leading zeros dropped, in both algorithms of four bytes; the shortest and the longest.
            ("adler32=1", "adler32:00000001"),
            ("adler32=91E01de", "adler32:091e01de"),
            ("crc32c=0", "crc32c:00000000"),
            ("CRC32C=E3069283", "crc32c:e3069283"),
            // XRootD before 5.8.1, with and without padding.
            ("crc32c=4waSgw", "crc32c:e3069283"),
            ("crc32c=AAAAAA==", "crc32c:00000000"),
            (
                "Sha-256=BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD",
                "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            ("md5 = kAFQmDzST7DWlj99KOF/cg", "md5:900150983cd24fb0d6963f7d28e17f72"),
        ] {
            assert_eq!(decode(text), [checksum(expected)], "{text}");
        }
        assert_eq!(encode(&checksum("adler32:1")), "adler32=00000001");
    }

    #[test]
    fn asking() {
        assert_eq!(want(&[ChecksumKind::Adler32]), "adler32;q=1");
        assert_eq!(
            want(&ChecksumKind::ALL),
            "adler32;q=1,crc32c;q=0.9,sha-256;q=0.8,md5;q=0.7,sha;q=0.6,sha-512;q=0.5"
        );
        for field in ["Want-Digest: adler", "Want-Digest: sha-512;q=0,ADLER;q=0.5,md5;q=0.1"] {
            let (name, value) = field.split_once(": ").unwrap();
            let mut headers = Headers::new();
            headers.push(name, value.as_bytes());
            assert_eq!(negotiate(&headers, &ChecksumKind::OFFERED), Some(ChecksumKind::Adler32), "{field}");
        }
        for (at, kind) in ChecksumKind::ALL.into_iter().enumerate() {
            let mut headers = Headers::new();
            headers.push("Want-Digest", want(&ChecksumKind::ALL).as_bytes());
            headers.push("Want-Repr-Digest", b"adler=10, crc32c=9, sha-256=8, md5=7, sha=6, sha-512=5");
            assert_eq!(negotiate(&headers, &ChecksumKind::ALL[at..]), Some(kind));
            assert_eq!(negotiate_repr(&headers, &ChecksumKind::ALL[at..]), Some(kind));
        }
    }

    proptest! {
        #[test]
        fn round_trip(which in 0usize..6, bytes in prop::collection::vec(any::<u8>(), 64)) {
            let kind = ChecksumKind::ALL[which];
            let checksum = Checksum::from_bytes(kind, &bytes[..kind.value_len()]).unwrap();
            prop_assert_eq!(decode(&encode(&checksum)), vec![checksum.clone()]);
            prop_assert_eq!(decode_repr(&encode_repr(&checksum)), vec![checksum.clone()]);
            prop_assert_eq!(decode_oc(&encode_oc(&checksum)), Some(checksum));
        }

        #[test]
        fn never_panics(text in "((adler32|md5|sha-256|crc32c)[=;])?\\PC*") {
            let _ = (decode(&text), decode_repr(&text));
            let mut headers = Headers::new();
            headers.push("want-digest", text.as_bytes());
            headers.push("want-repr-digest", text.as_bytes());
            let _ = (negotiate(&headers, &ChecksumKind::ALL), negotiate_repr(&headers, &ChecksumKind::ALL));
        }
    }
}
