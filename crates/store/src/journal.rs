//! The journal beside a partial file: what of the object is there, who vouches for it, where it came from.
//!
//! A text file, one record a line, each behind the CRC-32C of its text:
//!
//! ```text
//! 1b3c5d7f {"record":"object","version":1,"size_bytes":1000000000}
//! 90ab12cd {"record":"source","id":0,"url":"https://a.example/f","validator":"\"5f-1\""}
//! 34ef56ab {"record":"digest","value":"adler32:091e01de"}
//! 78cd90ef {"record":"done","offset":0,"len":8388608,"adler32":305419896,"source":0}
//! ```
//!
//! Why no write is followed by a sync: a record does not claim that the bytes are on the disk, it says
//! what their checksum is. Whoever resumes reads the bytes again and keeps the ranges that match
//! ([`Journaled::done`] are claims, not facts). So whatever order a crash leaves the two files in, the
//! worst case is a range that is fetched again.
//!
//! A line that is torn, altered or unknown ends the journal: what stands behind it is ignored and
//! overwritten. A journal of another version is not read at all.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;

use gridlane_core::{ByteRange, Checksum};
use serde::{Deserialize, Serialize};

/// Version of the format; another one is never trusted.
pub const JOURNAL_VERSION: u32 = 1;

/// Bytes of a journal that are read: two million records, more than a copy of 16 TiB writes.
const JOURNAL_BYTES_MAX: u64 = 256 << 20;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// Which object this is about. The first line of every journal.
    Object {
        /// [`JOURNAL_VERSION`] of the writer.
        version: u32,
        /// Size of the whole object.
        size_bytes: u64,
    },
    /// A source that bytes came from.
    Source {
        /// Number used in `Done`.
        id: u32,
        /// The source by a name without secrets that no other has.
        url: String,
        /// Strong validator of the object there (an ETag, or a date that counts as one).
        validator: Option<String>,
    },
    /// The agreed checksum of the whole object.
    Digest {
        /// As `TYPE:HEX`.
        value: String,
    },
    /// Bytes that were written to the partial file.
    Done {
        /// Offset of the first.
        offset: u64,
        /// How many.
        len: u64,
        /// Their adler32.
        adler32: u32,
        /// The source they came from.
        source: u32,
    },
}

impl Record {
    /// The first line of a journal about an object of `size_bytes`.
    pub fn object(size_bytes: u64) -> Record {
        Record::Object { version: JOURNAL_VERSION, size_bytes }
    }
}

/// A source as an earlier copy knew it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournaledSource {
    /// Number used in [`JournaledRange::source`].
    pub id: u32,
    /// The URL without secrets.
    pub url: String,
    /// Strong validator of the object there.
    pub validator: Option<String>,
}

/// A range that an earlier copy wrote, with the checksum it must still have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournaledRange {
    /// Where.
    pub range: ByteRange,
    /// Checksum of the bytes.
    pub adler32: u32,
    /// The source they came from.
    pub source: u32,
}

/// What an earlier copy left behind: claims, to be checked before they are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journaled {
    /// Size of the object.
    pub size_bytes: u64,
    /// Where its bytes came from.
    pub sources: Vec<JournaledSource>,
    /// Checksum of the whole object, if it was known.
    pub digest: Option<Checksum>,
    /// Ranges in the order they were written; later ones replace earlier ones.
    pub done: Vec<JournaledRange>,
}

/// Why a journal cannot be used.
#[derive(Debug)]
pub enum Unusable {
    /// There is nothing in it.
    Empty,
    /// It starts with something else than a journal's first line.
    Damaged,
    /// It is of this other version.
    Version(u32),
}

/// Reads a journal from its beginning. Returns what it says and how many bytes of the file are good.
pub fn read(file: &File) -> io::Result<Result<(Journaled, u64), Unusable>> {
    let mut text = Vec::new();
    let mut reader = file.take(JOURNAL_BYTES_MAX);
    reader.read_to_end(&mut text)?;
    if text.is_empty() {
        return Ok(Err(Unusable::Empty));
    }
    let mut journaled = Journaled::default();
    let mut good_bytes = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let Some(record) = decode(line) else { break };
        match record {
            Record::Object { version, .. } if version != JOURNAL_VERSION => {
                return Ok(Err(Unusable::Version(version)));
            }
            Record::Object { size_bytes, .. } if good_bytes == 0 => journaled.size_bytes = size_bytes,
            _ if good_bytes == 0 => return Ok(Err(Unusable::Damaged)),
            Record::Object { .. } => break,
            Record::Source { id, url, validator } => {
                journaled.sources.retain(|source| source.id != id);
                journaled.sources.push(JournaledSource { id, url, validator });
            }
            Record::Digest { value } => journaled.digest = value.parse().ok(),
            Record::Done { offset, len, adler32, source } => {
                let range = ByteRange::at(offset, len);
                if range.end() > journaled.size_bytes {
                    break;
                }
                journaled.done.push(JournaledRange { range, adler32, source });
            }
        }
        good_bytes += line.len() as u64;
    }
    Ok(if good_bytes == 0 { Err(Unusable::Damaged) } else { Ok((journaled, good_bytes)) })
}

/// Writes records behind the first `at` bytes of a journal; returns where the next ones go.
pub fn append(file: &File, at: u64, records: &[Record]) -> io::Result<u64> {
    let mut text = Vec::new();
    for record in records {
        encode(record, &mut text)?;
    }
    file.write_all_at(&text, at)?;
    Ok(at + text.len() as u64)
}

fn encode(record: &Record, text: &mut Vec<u8>) -> io::Result<()> {
    let json = serde_json::to_vec(record)?;
    write!(text, "{:08x} ", crc32c::crc32c(&json))?;
    text.extend_from_slice(&json);
    text.push(b'\n');
    Ok(())
}

fn decode(line: &[u8]) -> Option<Record> {
    let line = line.strip_suffix(b"\n")?;
    let (crc, json) = (line.get(..8)?, line.get(9..)?);
    let crc = u32::from_str_radix(std::str::from_utf8(crc).ok()?, 16).ok()?;
    (line[8] == b' ' && crc == crc32c::crc32c(json)).then(|| serde_json::from_slice(json).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{Seek, SeekFrom};

    fn records() -> Vec<Record> {
        vec![
            Record::Object { version: JOURNAL_VERSION, size_bytes: 100 },
            Record::Source { id: 0, url: "http://a/f".into(), validator: Some("\"x\"".into()) },
            Record::Done { offset: 0, len: 10, adler32: 7, source: 0 },
            Record::Digest { value: "adler32:091e01de".into() },
            Record::Done { offset: 90, len: 10, adler32: 9, source: 0 },
        ]
    }

    fn written(text: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file
    }

    fn text() -> Vec<u8> {
        let mut text = Vec::new();
        for record in records() {
            encode(&record, &mut text).unwrap();
        }
        text
    }

    #[test]
    fn what_was_written_is_read() {
        let (journaled, good_bytes) = read(&written(&text())).unwrap().unwrap();
        assert_eq!(good_bytes, text().len() as u64);
        assert_eq!(journaled.size_bytes, 100);
        assert_eq!(journaled.sources[0].validator.as_deref(), Some("\"x\""));
        assert_eq!(journaled.digest.unwrap().hex(), "091e01de");
        assert_eq!(journaled.done.len(), 2);
        assert_eq!(journaled.done[1].range, ByteRange::new(90, 100));
    }

    #[test]
    fn another_version_is_not_trusted() {
        let mut text = Vec::new();
        encode(&Record::Object { version: 2, size_bytes: 100 }, &mut text).unwrap();
        assert!(matches!(read(&written(&text)).unwrap(), Err(Unusable::Version(2))));
    }

    #[test]
    fn a_range_beyond_the_object_ends_the_journal() {
        let mut text = text();
        let before = text.len() as u64;
        encode(&Record::Done { offset: 99, len: 2, adler32: 1, source: 0 }, &mut text).unwrap();
        let (journaled, good_bytes) = read(&written(&text)).unwrap().unwrap();
        assert_eq!((journaled.done.len(), good_bytes), (2, before));
    }

    proptest! {
        /// Whatever happens to the file, what is read is a prefix of what was written.
        #[test]
        fn damage_only_shortens(cut in any::<prop::sample::Index>(), flip in any::<prop::sample::Index>(), mask: u8) {
            let whole = read(&written(&text())).unwrap().unwrap().0;
            let mut damaged = text();
            let at = flip.index(damaged.len());
            damaged[at] ^= mask;
            damaged.truncate(cut.index(damaged.len() + 1));
            if let Ok((journaled, good_bytes)) = read(&written(&damaged)).unwrap() {
                prop_assert!(good_bytes <= damaged.len() as u64);
                prop_assert!(whole.done.starts_with(&journaled.done));
                prop_assert_eq!(journaled.size_bytes, 100);
            }
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&written(&bytes)).unwrap();
        }
    }
}
