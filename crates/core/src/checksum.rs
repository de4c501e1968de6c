//! Checksums: their names, their values, and how partial ones are merged.
//!
//! adler32 and crc32c are *combinable*: the checksum of two adjoining pieces follows from the
//! checksums and lengths of the pieces, so ranges may arrive in any order. md5 and the SHA family are not.

use std::fmt;
use std::str::FromStr;

use md5::Digest as _;

use crate::error::{Error, ErrorKind, Fault};
use crate::posix_crc::PosixCrc;

/// An algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChecksumKind {
    /// Adler-32 (RFC 1950, section 8): the grid's common checksum.
    Adler32,
    /// CRC-32C (Castagnoli; RFC 3720, appendix B.4).
    Crc32c,
    /// MD5 (RFC 1321): against accidents, not against intent.
    Md5,
    /// SHA-256 (FIPS 180-4).
    Sha256,
    /// SHA-1 (FIPS 180-4): what most metalinks have of pieces; as md5, against accidents.
    Sha1,
    /// SHA-512 (FIPS 180-4).
    Sha512,
    /// The CRC of POSIX' `cksum`, as XRootD's `crc32`. No other program means that by the name, so it is not one of
    /// those that can be named: neither on the command line nor in a metalink.
    PosixCrc,
}

impl ChecksumKind {
    /// Every algorithm that can be named, cheapest first.
    pub const ALL: [ChecksumKind; 6] = [
        ChecksumKind::Adler32,
        ChecksumKind::Crc32c,
        ChecksumKind::Sha256,
        ChecksumKind::Md5,
        ChecksumKind::Sha1,
        ChecksumKind::Sha512,
    ];

    /// Every algorithm whose value may be kept with a file.
    pub const KEPT: [ChecksumKind; 7] = [
        ChecksumKind::Adler32,
        ChecksumKind::Crc32c,
        ChecksumKind::Sha256,
        ChecksumKind::Md5,
        ChecksumKind::Sha1,
        ChecksumKind::Sha512,
        ChecksumKind::PosixCrc,
    ];

    /// The kinds that our server computes when asked: those that the grid uses. The others it would compute for
    /// a few curious clients, at a file's length of CPU time each.
    pub const OFFERED: [ChecksumKind; 4] =
        [ChecksumKind::Adler32, ChecksumKind::Crc32c, ChecksumKind::Sha256, ChecksumKind::Md5];

    /// The name used on the command line, in JSON and in journals.
    pub fn name(self) -> &'static str {
        match self {
            ChecksumKind::Adler32 => "adler32",
            ChecksumKind::Crc32c => "crc32c",
            ChecksumKind::Md5 => "md5",
            ChecksumKind::Sha256 => "sha256",
            ChecksumKind::Sha1 => "sha1",
            ChecksumKind::Sha512 => "sha512",
            ChecksumKind::PosixCrc => "crc32",
        }
    }

    /// Length of a value in bytes.
    pub fn value_len(self) -> usize {
        match self {
            ChecksumKind::Adler32 | ChecksumKind::Crc32c | ChecksumKind::PosixCrc => 4,
            ChecksumKind::Md5 => 16,
            ChecksumKind::Sha256 => 32,
            ChecksumKind::Sha1 => 20,
            ChecksumKind::Sha512 => 64,
        }
    }

    /// The effort of making other bytes with the same value: greater is harder.
    pub fn strength(self) -> u8 {
        match self {
            ChecksumKind::Adler32 => 0,
            ChecksumKind::Crc32c | ChecksumKind::PosixCrc => 1,
            ChecksumKind::Md5 => 2,
            ChecksumKind::Sha1 => 3,
            ChecksumKind::Sha256 => 4,
            ChecksumKind::Sha512 => 5,
        }
    }

    /// True if no accident makes other bytes with the same value.
    pub fn is_strong(self) -> bool {
        self.strength() >= ChecksumKind::Md5.strength()
    }

    /// True if values of adjoining pieces can be merged into the value of the whole.
    pub fn is_combinable(self) -> bool {
        matches!(self, ChecksumKind::Adler32 | ChecksumKind::Crc32c)
    }
}

impl fmt::Display for ChecksumKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ChecksumKind {
    type Err = Error;

    /// Accepts any case, the spellings `sha-256` and `crc-32c`, and `sha` for SHA-1 (RFC 3230, 4.1.1).
    fn from_str(text: &str) -> Result<ChecksumKind, Error> {
        let plain: String = text.chars().filter(|c| *c != '-').map(|c| c.to_ascii_lowercase()).collect();
        let plain = if plain == "sha" { "sha1".to_owned() } else { plain };
        ChecksumKind::ALL.into_iter().find(|kind| kind.name() == plain).ok_or_else(|| {
            let known: Vec<_> = ChecksumKind::ALL.iter().map(|kind| kind.name()).collect();
            Error::new(ErrorKind::Usage, format!("unknown checksum type {text:?}"))
                .fault(Fault::Caller)
                .hint(format!("use one of {}", known.join(", ")))
        })
    }
}

/// The value of a checksum over some bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Checksum {
    kind: ChecksumKind,
    value: Vec<u8>,
}

impl Checksum {
    /// A value from its bytes, big-endian; `None` when the length is wrong for the algorithm.
    pub fn from_bytes(kind: ChecksumKind, value: &[u8]) -> Option<Checksum> {
        (value.len() == kind.value_len()).then(|| Checksum { kind, value: value.to_vec() })
    }

    /// A value from hexadecimal digits of any case. Four-byte checksums may lack leading zeros, as
    /// several grid tools print them.
    pub fn from_hex(kind: ChecksumKind, digits: &str) -> Option<Checksum> {
        let full = kind.value_len() * 2;
        let complete =
            digits.len() == full || (kind.value_len() == 4 && !digits.is_empty() && digits.len() < full);
        if !complete || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let padded = format!("{digits:0>full$}");
        let value = (0..full)
            .step_by(2)
            .map(|at| u8::from_str_radix(&padded[at..at + 2], 16).ok())
            .collect::<Option<Vec<u8>>>()?;
        Some(Checksum { kind, value })
    }

    /// The adler32 `value`.
    pub fn adler32(value: u32) -> Checksum {
        Checksum { kind: ChecksumKind::Adler32, value: value.to_be_bytes().to_vec() }
    }

    /// Which algorithm.
    pub fn kind(&self) -> ChecksumKind {
        self.kind
    }

    /// The value's bytes, big-endian.
    pub fn bytes(&self) -> &[u8] {
        &self.value
    }

    /// The value as lower-case hexadecimal digits with leading zeros.
    pub fn hex(&self) -> String {
        self.value.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.hex())
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Checksum {
    type Err = Error;

    /// Reads `TYPE:HEX`.
    fn from_str(text: &str) -> Result<Checksum, Error> {
        let (kind, digits) = text.split_once(':').ok_or_else(|| {
            Error::new(ErrorKind::Usage, format!("checksum {text:?} is not of the form TYPE:VALUE"))
                .fault(Fault::Caller)
        })?;
        let kind: ChecksumKind = kind.parse()?;
        Checksum::from_hex(kind, digits).ok_or_else(|| {
            let full = kind.value_len() * 2;
            Error::new(ErrorKind::Usage, format!("{digits:?} is not a {kind} value"))
                .fault(Fault::Caller)
                .hint(format!("write {full} hexadecimal digits"))
        })
    }
}

/// Computes a checksum over bytes given in order.
#[derive(Clone)]
pub struct Hasher {
    kind: ChecksumKind,
    state: State,
}

#[derive(Clone)]
enum State {
    Adler32(simd_adler32::Adler32),
    Crc32c(u32),
    Md5(md5::Md5),
    Sha256(sha2::Sha256),
    Sha1(sha1::Sha1),
    Sha512(sha2::Sha512),
    PosixCrc(PosixCrc),
}

impl Hasher {
    /// A hasher that has seen no byte.
    pub fn new(kind: ChecksumKind) -> Hasher {
        let state = match kind {
            ChecksumKind::Adler32 => State::Adler32(simd_adler32::Adler32::new()),
            ChecksumKind::Crc32c => State::Crc32c(0),
            ChecksumKind::Md5 => State::Md5(md5::Md5::new()),
            ChecksumKind::Sha256 => State::Sha256(sha2::Sha256::new()),
            ChecksumKind::Sha1 => State::Sha1(sha1::Sha1::new()),
            ChecksumKind::Sha512 => State::Sha512(sha2::Sha512::new()),
            ChecksumKind::PosixCrc => State::PosixCrc(PosixCrc::default()),
        };
        Hasher { kind, state }
    }

    /// The algorithm.
    pub fn kind(&self) -> ChecksumKind {
        self.kind
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::Adler32(state) => state.write(bytes),
            State::Crc32c(state) => *state = crc32c::crc32c_append(*state, bytes),
            State::Md5(state) => state.update(bytes),
            State::Sha256(state) => state.update(bytes),
            State::Sha1(state) => state.update(bytes),
            State::Sha512(state) => state.update(bytes),
            State::PosixCrc(state) => state.update(bytes),
        }
    }

    /// The checksum of all bytes taken.
    pub fn finish(self) -> Checksum {
        let value = match self.state {
            State::Adler32(state) => state.finish().to_be_bytes().to_vec(),
            State::Crc32c(state) => state.to_be_bytes().to_vec(),
            State::Md5(state) => state.finalize().to_vec(),
            State::Sha256(state) => state.finalize().to_vec(),
            State::Sha1(state) => state.finalize().to_vec(),
            State::Sha512(state) => state.finalize().to_vec(),
            State::PosixCrc(state) => state.finish().to_be_bytes().to_vec(),
        };
        Checksum { kind: self.kind, value }
    }
}

/// The adler32 of no bytes.
pub const ADLER32_EMPTY: u32 = 1;

/// The adler32 of `bytes`.
pub fn adler32(bytes: &[u8]) -> u32 {
    simd_adler32::adler32(&bytes)
}

/// The adler32 of two adjoining pieces: `first`'s value, then `second`'s value and length in bytes.
///
/// RFC 1950 section 8 defines s1 = 1 + sum of bytes and s2 = sum of all s1, both modulo 65521.
/// Behind a first piece (a1, a2), a second of n bytes (b1, b2) gives
/// s1 = a1 + b1 - 1 and s2 = a2 + b2 + n (a1 - 1).
pub fn adler32_combine(first: u32, second: u32, second_len: u64) -> u32 {
    const BASE: u64 = 65_521;
    let (a1, a2) = (u64::from(first & 0xffff), u64::from(first >> 16));
    let (b1, b2) = (u64::from(second & 0xffff), u64::from(second >> 16));
    let s1 = (a1 + b1 + BASE - 1) % BASE;
    let s2 = (a2 + b2 + (second_len % BASE) * ((a1 + BASE - 1) % BASE)) % BASE;
    ((s2 as u32) << 16) | s1 as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(kind: ChecksumKind, bytes: &[u8]) -> String {
        let mut hasher = Hasher::new(kind);
        hasher.update(bytes);
        hasher.finish().hex()
    }

    #[test]
    fn published_values() {
        let digits = b"123456789";
        assert_eq!(of(ChecksumKind::Adler32, digits), "091e01de");
        assert_eq!(of(ChecksumKind::Adler32, b""), "00000001");
        assert_eq!(of(ChecksumKind::Crc32c, digits), "e3069283");
        assert_eq!(of(ChecksumKind::Md5, b"abc"), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(
            of(ChecksumKind::Sha256, b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(of(ChecksumKind::Sha1, b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert!(of(ChecksumKind::Sha512, b"abc").starts_with("ddaf35a193617abacc417349ae204131"));
        for kind in ChecksumKind::ALL {
            assert_eq!(of(kind, b"").len(), 2 * kind.value_len());
            assert_eq!(kind.name().parse::<ChecksumKind>().unwrap(), kind);
        }
        assert_eq!(of(ChecksumKind::PosixCrc, b"abc"), "48aa78a2");
        assert!("crc32".parse::<ChecksumKind>().is_err(), "everybody else means zlib's by that");
        assert_eq!("SHA".parse::<ChecksumKind>().unwrap(), ChecksumKind::Sha1);
    }

    #[test]
    fn values_are_read_as_people_write_them() {
        let short: Checksum = "ADLER32:91E01DE".parse().unwrap();
        assert_eq!(short.to_string(), "adler32:091e01de");
        assert!("sha-256:00".parse::<Checksum>().is_err());
        assert!("adler32:".parse::<Checksum>().is_err());
        assert!("adler32:+1e01de0".parse::<Checksum>().is_err());
        assert!("crc7:00".parse::<Checksum>().is_err());
        assert!("adler32".parse::<Checksum>().is_err());
    }

    proptest! {
        #[test]
        fn pieces_combine_to_the_whole(bytes in prop::collection::vec(any::<u8>(), 0..5000), cut in any::<prop::sample::Index>()) {
            let cut = cut.index(bytes.len() + 1);
            let (first, second) = bytes.split_at(cut);
            let combined = adler32_combine(adler32(first), adler32(second), second.len() as u64);
            prop_assert_eq!(combined, adler32(&bytes));
        }
    }

    #[test]
    fn long_pieces_combine() {
        let bytes = vec![0xff_u8; 3_000_000];
        let (first, second) = bytes.split_at(1_234_567);
        assert_eq!(adler32_combine(adler32(first), adler32(second), second.len() as u64), adler32(&bytes));
    }
}
