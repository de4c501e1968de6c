//! The journal beside a partial file: which bytes of the object are there, what vouches for them, where they came from.
//!
//! A text file, one record a line, each behind a tag (`TAG` stands for 32 hexadecimal digits):
//!
//! ```text
//! TAG {"record":"object","version":2,"size_bytes":1000000000}
//! TAG {"record":"source","id":0,"url":"https://a.example/f","validator":"\"5f-1\""}
//! TAG {"record":"digest","value":"adler32:091e01de"}
//! TAG {"record":"done","offset":0,"len":8388608,"adler32":305419896,"source":0}
//! ```
//!
//! The tag is the first half of an HMAC-SHA256 of the line and of the tag before it, the first one's of the partial file: its
//! name (in an export its path) and the number of its inode. The key is the user's or the server's own
//! ([`journal_key`](crate::journal_key)). So a journal counts only for its writer, and only beside the file that it was written
//! about: one that came in with a tree, or that lay beside another file, does not count, and neither does one that was put
//! together from lines of others.
//!
//! Why no write is followed by a sync: a record does not claim that the bytes are on the disk, it says
//! what their checksum is. A copy that goes on reads the bytes again and keeps the ranges that match
//! ([`Journaled::done`] are claims, not facts). So whatever order a crash leaves the two files in, the
//! worst case is a range that is fetched again.
//!
//! A line that is torn, altered or unknown ends the journal: what stands behind it is ignored and
//! overwritten. A journal of another version is not read at all.

use std::io::{self, Read};

use gridlane_core::{ByteRange, Checksum};
use serde::{Deserialize, Serialize};

use crate::journal_key::JournalKey;

/// Version of the format; another one is never trusted.
pub const JOURNAL_VERSION: u32 = 2;

/// Bytes of a tag that a line has: half of what is computed. Guessing 128 bits is as hopeless.
const TAG_BYTES: usize = 16;

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
        /// The checksum as `TYPE:HEX`.
        value: String,
    },
    /// Bytes that were written to the partial file.
    Done {
        /// Offset of the first.
        offset: u64,
        /// Number of bytes.
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

/// The claims of an earlier copy, to be checked before they count.
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

/// The reason why a journal cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// There is nothing in it.
    Empty,
    /// It starts with something else than a journal's first line.
    Damaged,
    /// It is of this other version.
    Version(u32),
    /// Its first line was written with another key, or about another file.
    Foreign,
}

/// The tag of the next line of a journal is made of this: the key, and all lines so far.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    key: JournalKey,
    tag: [u8; 32],
}

impl Chain {
    /// For the first line of a journal about the partial file that is called `name` and has this inode.
    pub(crate) fn new(key: JournalKey, name: &[u8], inode: u64) -> Chain {
        let tag = key.tag(&[b"gridlane journal", &JOURNAL_VERSION.to_be_bytes(), name, &inode.to_be_bytes()]);
        Chain { key, tag }
    }

    /// The tag of a line with this text, which is the last one from now on.
    fn next(&mut self, json: &[u8]) -> String {
        self.tag = self.key.tag(&[&self.tag, json]);
        self.tag[..TAG_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Reads a journal from its beginning, with the `chain` of its first line, which is that of the line behind the last good one
/// afterwards. Returns its records and the number of bytes of the file that are good.
pub(crate) fn read(journal: impl Read, chain: &mut Chain) -> io::Result<Result<(Journaled, u64), Unusable>> {
    let mut text = Vec::new();
    journal.take(JOURNAL_BYTES_MAX).read_to_end(&mut text)?;
    if text.is_empty() {
        return Ok(Err(Unusable::Empty));
    }
    let mut journaled = Journaled::default();
    let mut good_bytes = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let Some((tag, json, record)) = decode(line) else { break };
        let mut next = chain.clone();
        let is_ours = next.next(json).as_bytes() == tag;
        match record {
            // A journal from before there were tags says so, too; it counts, as nothing else follows from it.
            Record::Object { version, .. } if good_bytes == 0 && version != JOURNAL_VERSION => {
                return Ok(Err(Unusable::Version(version)));
            }
            Record::Object { .. } if good_bytes == 0 && !is_ours => return Ok(Err(Unusable::Foreign)),
            _ if !is_ours => break,
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
        *chain = next;
        good_bytes += line.len() as u64;
    }
    Ok(if good_bytes == 0 { Err(Unusable::Damaged) } else { Ok((journaled, good_bytes)) })
}

/// The lines of `records`, of which the first has `chain`, and the chain of the line behind them.
pub(crate) fn lines(chain: &Chain, records: &[Record]) -> io::Result<(Vec<u8>, Chain)> {
    let (mut text, mut next) = (Vec::new(), chain.clone());
    for record in records {
        encode(record, &mut next, &mut text)?;
    }
    Ok((text, next))
}

fn encode(record: &Record, chain: &mut Chain, text: &mut Vec<u8>) -> io::Result<()> {
    let json = serde_json::to_vec(record)?;
    text.extend_from_slice(chain.next(&json).as_bytes());
    text.push(b' ');
    text.extend_from_slice(&json);
    text.push(b'\n');
    Ok(())
}

/// The tag of a line, its text, and the record that it is.
fn decode(line: &[u8]) -> Option<(&[u8], &[u8], Record)> {
    let line = line.strip_suffix(b"\n")?;
    let space = line.iter().position(|byte| *byte == b' ')?;
    let (tag, json) = (&line[..space], &line[space + 1..]);
    Some((tag, json, serde_json::from_slice(json).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn records() -> Vec<Record> {
        vec![
            Record::Object { version: JOURNAL_VERSION, size_bytes: 100 },
            Record::Source { id: 0, url: "http://a/f".into(), validator: Some("\"x\"".into()) },
            Record::Done { offset: 0, len: 10, adler32: 7, source: 0 },
            Record::Digest { value: "adler32:091e01de".into() },
            Record::Done { offset: 90, len: 10, adler32: 9, source: 0 },
        ]
    }

    fn chain() -> Chain {
        Chain::new(JournalKey::new(&[7; 32]), b"f", 42)
    }

    /// A journal, and the chain behind it.
    fn text() -> (Vec<u8>, Chain) {
        let (mut text, mut chain) = (Vec::new(), chain());
        for record in records() {
            encode(&record, &mut chain, &mut text).unwrap();
        }
        (text, chain)
    }

    fn read_text(text: &[u8]) -> Result<(Journaled, u64), Unusable> {
        read(text, &mut chain()).unwrap()
    }

    #[test]
    fn what_was_written_is_read() {
        let (text, behind) = text();
        let mut chain = chain();
        let (journaled, good_bytes) = read(text.as_slice(), &mut chain).unwrap().unwrap();
        assert_eq!((good_bytes, chain.tag), (text.len() as u64, behind.tag));
        assert_eq!(journaled.size_bytes, 100);
        assert_eq!(journaled.sources[0].validator.as_deref(), Some("\"x\""));
        assert_eq!(journaled.digest.unwrap().hex(), "091e01de");
        assert_eq!(journaled.done.len(), 2);
        assert_eq!(journaled.done[1].range, ByteRange::new(90, 100));
    }

    #[test]
    fn another_version_is_not_trusted() {
        let (mut text, mut chain) = (Vec::new(), chain());
        encode(&Record::Object { version: 3, size_bytes: 100 }, &mut chain, &mut text).unwrap();
        assert!(matches!(read_text(&text), Err(Unusable::Version(3))));
        let first = b"1b3c5d7f {\"record\":\"object\",\"version\":1,\"size_bytes\":100}\n";
        assert!(matches!(read_text(first), Err(Unusable::Version(1))));
    }

    #[test]
    fn a_journal_counts_only_for_its_writer_and_only_for_that_file() {
        let text = text().0;
        let key = || JournalKey::new(&[7; 32]);
        let others = [
            Chain::new(JournalKey::new(&[8; 32]), b"f", 42),
            Chain::new(key(), b"g", 42),
            Chain::new(key(), b"f", 43),
        ];
        for mut other in others {
            assert!(matches!(read(text.as_slice(), &mut other).unwrap(), Err(Unusable::Foreign)));
        }
        // Without a tag, or with the checksum that the first version had.
        let json = serde_json::to_string(&Record::object(100)).unwrap();
        for tag in ["", "00000000", &format!("{:08x}", crc32c::crc32c(json.as_bytes()))] {
            assert!(
                matches!(read_text(format!("{tag} {json}\n").as_bytes()), Err(Unusable::Foreign)),
                "{tag}"
            );
        }
    }

    #[test]
    fn lines_that_are_left_out_or_change_places_end_the_journal() {
        let text = text().0;
        let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        for order in [vec![0, 1, 3, 2, 4], vec![0, 1, 4], vec![0, 1, 1, 2]] {
            let mixed: Vec<u8> = order.iter().flat_map(|at| lines[*at]).copied().collect();
            let (journaled, good_bytes) = read_text(&mixed).unwrap();
            assert_eq!((journaled.done.len(), good_bytes as usize), (0, lines[0].len() + lines[1].len()));
        }
    }

    #[test]
    fn a_range_beyond_the_object_ends_the_journal() {
        let (mut text, mut chain) = text();
        let before = text.len() as u64;
        let beyond = Record::Done { offset: 99, len: 2, adler32: 1, source: 0 };
        encode(&beyond, &mut chain, &mut text).unwrap();
        let (journaled, good_bytes) = read_text(&text).unwrap();
        assert_eq!((journaled.done.len(), good_bytes), (2, before));
    }

    proptest! {
        /// Whatever happens to the file, what is read is a prefix of what was written.
        #[test]
        fn damage_only_shortens(cut in any::<prop::sample::Index>(), flip in any::<prop::sample::Index>(), mask: u8) {
            let (mut damaged, _) = text();
            let whole = read_text(&damaged).unwrap().0;
            let at = flip.index(damaged.len());
            damaged[at] ^= mask;
            damaged.truncate(cut.index(damaged.len() + 1));
            if let Ok((journaled, good_bytes)) = read_text(&damaged) {
                prop_assert!(good_bytes <= damaged.len() as u64);
                prop_assert!(whole.done.starts_with(&journaled.done));
                prop_assert_eq!(journaled.size_bytes, 100);
            }
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_text(&bytes);
        }
    }
}
