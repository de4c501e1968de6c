//! Checksums in header fields: RFC 3230's `Digest` and `Want-Digest`, which the grid uses, and what an
//! upload may carry (`Repr-Digest` of RFC 9530, `Content-MD5`, ownCloud's `OC-Checksum`).
//!
//! Written strictly, read tolerantly: adler32 and crc32c are hexadecimal (some clients drop leading
//! zeros or use capitals; XRootD before 5.8.1 sends crc32c in base64), md5 and sha-256 are base64
//! (davix and gfal2 also send hexadecimal). What cannot be read is skipped: a missing digest is not an
//! error here, only for whoever needs it.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use gridlane_core::{Checksum, ChecksumKind};

use crate::header::{Headers, trim};

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
    }
}

/// The value of a `Digest` header. One algorithm per response: davix misses a second one.
pub fn encode(checksum: &Checksum) -> String {
    let value = match checksum.kind() {
        ChecksumKind::Adler32 | ChecksumKind::Crc32c => checksum.hex(),
        ChecksumKind::Md5 | ChecksumKind::Sha256 => STANDARD.encode(checksum.bytes()),
    };
    format!("{}={value}", name(checksum.kind()))
}

/// Reads a `Digest` header: every checksum in it that we know and can read.
pub fn decode(text: &str) -> Vec<Checksum> {
    text.split(',')
        .filter_map(|element| {
            let (name, value) = trim(element).split_once('=')?;
            decode_value(trim(name).parse().ok()?, trim(value))
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

/// Reads a `Repr-Digest` header: `sha-256=:BASE64:`, adler32 under its registered name `adler` too.
pub fn decode_repr(text: &str) -> Vec<Checksum> {
    text.split(',')
        .filter_map(|element| {
            let (name, value) = trim(element).split_once('=')?;
            let kind = match trim(name) {
                "adler" => ChecksumKind::Adler32,
                name => name.parse().ok()?,
            };
            let value = trim(value).strip_prefix(':')?.strip_suffix(':')?;
            Checksum::from_bytes(kind, &TOLERANT.decode(value).ok()?)
        })
        .collect()
}

/// Reads an `OC-Checksum` header: `TYPE:HEX`, which ownCloud's clients and rclone send.
pub fn decode_oc(text: &str) -> Option<Checksum> {
    let (name, value) = text.split_once(':')?;
    Checksum::from_hex(trim(name).parse().ok()?, trim(value))
}

/// What an uploader says its body is: `Digest`, `Repr-Digest`, `Content-MD5`, `OC-Checksum`.
pub fn of_upload(headers: &Headers) -> Vec<Checksum> {
    let mut checksums: Vec<Checksum> = headers.all("digest").flat_map(decode).collect();
    checksums.extend(headers.all("repr-digest").flat_map(decode_repr));
    checksums.extend(headers.all("content-md5").filter_map(|value| decode_value(ChecksumKind::Md5, value)));
    checksums.extend(headers.all("oc-checksum").filter_map(decode_oc));
    checksums
}

/// Which of the `supported` algorithms a `Want-Digest` asks for: the one with the highest weight, the
/// first of equals. `None` when it wants none of them.
pub fn negotiate(wants: &Headers, supported: &[ChecksumKind]) -> Option<ChecksumKind> {
    let mut best: Option<(ChecksumKind, f64)> = None;
    for element in wants.list("want-digest") {
        let mut parts = element.split(';').map(trim);
        let Some(kind) = parts.next().and_then(|name| name.parse().ok()) else { continue };
        let weight = match parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")))
        {
            Some(text) => trim(text).parse::<f64>().unwrap_or(0.0),
            None => 1.0,
        };
        let better = best.is_none_or(|(_, weight_so_far)| weight > weight_so_far);
        if supported.contains(&kind) && weight > 0.0 && better {
            best = Some((kind, weight));
        }
    }
    best.map(|(kind, _)| kind)
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
    fn own_cloud_s() {
        for (text, expected) in [
            ("ADLER32:091e01de", Some("adler32:091e01de")),
            ("adler32: 091E01DE", Some("adler32:091e01de")),
            ("MD5:900150983cd24fb0d6963f7d28e17f72", Some("md5:900150983cd24fb0d6963f7d28e17f72")),
            ("SHA1:a9993e364706816aba3e25717850c26c9cd0d89d", None),
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
            ("", None),
        ] {
            let mut headers = Headers::new();
            headers.push("Want-Digest", text.as_bytes());
            assert_eq!(negotiate(&headers, &[Adler32, Crc32c, Md5]), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(which in 0usize..4, bytes in prop::collection::vec(any::<u8>(), 32)) {
            let kind = ChecksumKind::ALL[which];
            let checksum = Checksum::from_bytes(kind, &bytes[..kind.value_len()]).unwrap();
            prop_assert_eq!(decode(&encode(&checksum)), vec![checksum]);
        }

        #[test]
        fn never_panics(text in "((adler32|md5|sha-256|crc32c)[=;])?\\PC*") {
            let _ = (decode(&text), decode_repr(&text));
            let mut headers = Headers::new();
            headers.push("want-digest", text.as_bytes());
            let _ = negotiate(&headers, &ChecksumKind::ALL);
        }
    }
}
